"""What is asked of a model: its size, its name in the journal, and asking again when the answer does not fit."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache

from pydantic import BaseModel, ValidationError

from practicum.journal import digest
from practicum.models.client import JSON, Options
from practicum.types import Prompt, Turn
from practicum.views import count_tokens

ECHO = 2000
"""Most characters of a bad answer that its author is shown again."""


def prompt_tokens(prompt: Prompt) -> int:
    """Estimated tokens of a prompt, with a few for each message's frame."""
    turns = sum(count_tokens(t.user) + count_tokens(t.assistant) + 8 for t in prompt.turns)
    texts = sum(map(count_tokens, (prompt.system, *prompt.pages, prompt.user)))
    return texts + turns + 16


def asked(role: str, model: str, prompt: Prompt, schema: JSON | None, options: Options) -> str:
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


def json_part(text: str) -> str:
    """The JSON object in an answer: models without enforced schemas wrap it in words or fences."""
    stripped = text.strip()
    start, end = stripped.find("{"), stripped.rfind("}")
    return stripped[start : end + 1] if 0 <= start < end else stripped


def problem_with(error: ValidationError, cut: bool) -> str:
    """What is wrong with an answer, in words for the model."""
    if cut:
        return "it was cut off at the output limit; answer more briefly"
    first = error.errors()[0]
    where = ".".join(map(str, first["loc"]))
    return f"{where}: {first['msg']}" if where else first["msg"]


def again(prompt: Prompt, answer: str, problem: str) -> Prompt:
    """The same conversation, with the bad answer and what is wrong with it."""
    shown = answer if len(answer) <= ECHO else answer[:ECHO] + " …"
    return replace(
        prompt,
        turns=(*prompt.turns, Turn(prompt.user, shown or "(nothing)")),
        user=f"That does not fit the asked-for JSON: {problem}. Give the whole answer again, as JSON only.",
    )


def no_output(role: str, model: str, problem: str, cut: bool) -> str:
    """One line for a model that gave no valid output, with what to do."""
    advice = (
        "raise --max-output-tokens, or take another model"
        if cut
        else "try --structure tool or prompted, or take another model"
    )
    return f"the {role} ({model}) gave no valid output, asked three times: {problem}; {advice}"
