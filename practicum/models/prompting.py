"""What is asked of a model: its size, what is left out where that is too much, its name in the journal, and asking
again when the answer does not fit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from pydantic import BaseModel, ValidationError

from practicum.core.errors import WindowError
from practicum.core.types import Prompt, Turn
from practicum.core.views import count_tokens, truncate
from practicum.models.client import JSON, WINDOW_ADVICE, CallOptions, Client
from practicum.store.journal import digest

ECHO = 2000
"""Most characters of a bad answer that its author is shown again."""


def prompt_tokens(prompt: Prompt) -> int:
    """Estimated tokens of a prompt, with a few for each message's frame."""
    turns = sum(count_tokens(t.user) + count_tokens(t.assistant) + 8 for t in prompt.turns)
    texts = sum(map(count_tokens, (prompt.system, *prompt.pages, prompt.user)))
    return texts + turns + 16


MARK = 16
"""Tokens that the mark of a cut takes, about."""


def shorten_prompt(prompt: Prompt, tokens: int) -> Prompt:
    """The prompt with about `tokens` in its last message: the longest of its parts are cut alike in the middle, which
    is marked, so that no part is left out and each keeps its beginning and its end."""
    parts = prompt.parts or (prompt.user,)
    sizes = [count_tokens(part) for part in parts]
    most = _share(sizes, tokens)
    short = tuple(
        part if size <= most else truncate(part, len(part) * max(most - MARK, 1) // size)
        for part, size in zip(parts, sizes, strict=True)
    )
    return replace(prompt, user="\n\n".join(short), parts=short)


def _share(sizes: Sequence[int], room: int) -> int:
    """The size to which the longest are cut for all to have room: what short ones leave goes to the others."""
    ordered = sorted(sizes)
    for n, size in enumerate(ordered):
        share = room // (len(ordered) - n)
        if size > share:
            return share
        room -= size
    return ordered[-1]


def check_fits_window(client: Client, role: str, estimate: int) -> None:
    """Raises WindowError where a prompt of so many tokens is larger than the window of its model."""
    if client.window is not None and estimate > client.window:
        raise WindowError(
            f"the {role}'s prompt of about {estimate} tokens is larger than the window of {client.name} "
            f"({client.window} tokens): {WINDOW_ADVICE}"
        )


def prompt_digest(role: str, model: str, prompt: Prompt, schema: JSON | None, options: CallOptions) -> str:
    """Names a question in the journal."""
    turns = [part for turn in prompt.turns for part in (turn.user, turn.assistant)]
    settings = f"{options.temperature} {options.max_output_tokens} {options.seed}"
    return digest(role, model, prompt.system, *prompt.pages, "turns", *turns, prompt.user, _dumped(schema), settings)


_DUMPED: dict[int, tuple[JSON, str]] = {}
DUMPED = 256
"""Most schemas whose text is kept."""


def _dumped(schema: JSON | None) -> str:
    """A schema as text, once for each schema object (which is kept, so that its id stays its own)."""
    if schema is None:
        return ""
    known = _DUMPED.get(id(schema))
    if known is None:
        if len(_DUMPED) >= DUMPED:
            _DUMPED.clear()
        known = _DUMPED[id(schema)] = (schema, json.dumps(schema, sort_keys=True))
    return known[1]


@cache
def json_schema(schema: type[BaseModel]) -> JSON:
    """The schema a model is told; one object for each class."""
    return schema.model_json_schema()


def extract_json(text: str) -> str:
    """The JSON object in an answer: models without enforced schemas wrap it in words or fences."""
    stripped = text.strip()
    start, end = stripped.find("{"), stripped.rfind("}")
    return stripped[start : end + 1] if 0 <= start < end else stripped


def describe_validation_error(error: ValidationError, cut: bool) -> str:
    """What is wrong with an answer, in words for the model."""
    if cut:
        return "it was cut off at the output limit; answer more briefly"
    first = error.errors()[0]
    where = ".".join(map(str, first["loc"]))
    return f"{where}: {first['msg']}" if where else first["msg"]


def repair_prompt(prompt: Prompt, answer: str, problem: str) -> Prompt:
    """The same conversation, with the bad answer and what is wrong with it."""
    shown = answer if len(answer) <= ECHO else answer[:ECHO] + " …"
    return replace(
        prompt,
        parts=(),
        turns=(*prompt.turns, Turn(prompt.user, shown or "(nothing)")),
        user=f"That does not fit the asked-for JSON: {problem}. Give the whole answer again, as JSON only.",
    )


def invalid_output_message(role: str, model: str, problem: str, cut: bool) -> str:
    """One line for a model that gave no valid output, with what to do."""
    advice = (
        "raise --max-output-tokens, or take another model"
        if cut
        else "try --structure tool or prompted, or take another model"
    )
    return f"the {role} ({model}) gave no valid output, asked three times: {problem}; {advice}"
