"""Prompts around a call: their size, cuts to fit a window, their digest in the journal, and repairs of bad output."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import cast

from pydantic import BaseModel, ValidationError

from practicum.core.bounded import Output, short_form, strict_schema
from practicum.core.errors import WindowError
from practicum.core.types import Profile, Prompt, Turn
from practicum.core.views import count_tokens, truncate
from practicum.core.words import fault
from practicum.models.client import JSON, WINDOW_ADVICE, CallOptions, Client, once_per_schema
from practicum.store.journal import digest

TOKENS_PER_TURN = 8
TOKENS_PER_PROMPT = 16
"""Tokens that the frames of the messages take."""

MARK_TOKENS = 16
"""Tokens of the mark that replaces what was cut, approximately."""

SHOWN_ANSWER = 2000
"""Characters of a bad answer that the model is shown again, at most."""


def prompt_tokens(prompt: Prompt) -> int:
    """Estimate the tokens of a prompt, the frames of its messages included."""
    turns = sum(count_tokens(t.user) + count_tokens(t.assistant) + TOKENS_PER_TURN for t in prompt.turns)
    texts = sum(map(count_tokens, (prompt.system, *prompt.pages, prompt.user, prompt.closing)))
    return texts + turns + TOKENS_PER_PROMPT


def check_fits_window(client: Client, role: str, tokens: int) -> None:
    """Raise WindowError if a prompt of this many tokens is larger than the window of its model."""
    if client.window is not None and tokens > client.window:
        raise WindowError(
            "window.exceeded",
            f"the {role}'s prompt of about {tokens} tokens is larger than the window of {client.name} "
            f"({client.window} tokens): {WINDOW_ADVICE}",
            tokens=tokens,
            window=client.window,
        )


def shorten_prompt(prompt: Prompt, tokens: int) -> Prompt:
    """Cut the last message of the prompt to about `tokens`.

    The longest of its parts are cut to one size, in the middle, where a mark is left; so every part keeps its beginning
    and its end.
    """
    parts = prompt.parts or (prompt.user,)
    sizes = [count_tokens(part) for part in parts]
    largest = _largest_size(sizes, tokens)
    short = tuple(
        part if size <= largest else truncate(part, len(part) * max(largest - MARK_TOKENS, 1) // size)
        for part, size in zip(parts, sizes, strict=True)
    )
    return replace(prompt, user="\n\n".join(short), parts=short)


def _largest_size(sizes: Sequence[int], room: int) -> int:
    """The size to which longer parts are cut so that all have room; what short parts leave goes to the others."""
    ordered = sorted(sizes)
    for n, size in enumerate(ordered):
        share = room // (len(ordered) - n)
        if size > share:
            return share
        room -= size
    return ordered[-1]


def prompt_digest(role: str, model: str, prompt: Prompt, schema: JSON | None, options: CallOptions) -> str:
    """The digest by which the journal recognizes a call."""
    turns = [part for turn in prompt.turns for part in (turn.user, turn.assistant)]
    settings = f"{options.temperature} {options.max_output_tokens} {options.seed}"
    text = "" if schema is None else _schema_text(schema)
    return digest(role, model, prompt.system, *prompt.pages, "turns", *turns, prompt.user, text, settings)


@once_per_schema
def _schema_text(schema: JSON) -> str:
    return json.dumps(schema, sort_keys=True)


@cache
def json_schema(schema: type[BaseModel], profile: Profile) -> JSON:
    """The JSON schema of an output class, strict in the profile full; always the same object for the same class and
    profile."""
    if profile == "small":
        return (short_form(schema) if issubclass(schema, Output) else schema).model_json_schema()
    return cast(JSON, strict_schema(schema.model_json_schema()))


def extract_json(text: str) -> str:
    """The JSON object in an answer, the longest if there are several: models without enforced schemas put it between
    words or fences, and leave the line breaks inside its texts as they are. Text without one is returned stripped."""
    return max(_objects(text), key=len, default=text.strip())


def _objects(text: str) -> Iterator[str]:
    """The JSON objects in a text that stand in no other."""
    start = text.find("{")
    while start >= 0:
        try:
            value, end = _LENIENT.raw_decode(text, start)
            yield json.dumps(value)
        except json.JSONDecodeError as error:
            # What was read until then belongs to an object that is broken.
            end = max(error.pos, start + 1)
        except (RecursionError, ValueError):
            # It is nested too deeply, or has a number of thousands of digits.
            return
        start = text.find("{", end)


_LENIENT = json.JSONDecoder(strict=False)


def describe_validation_error(error: ValidationError, cut: bool) -> str:
    """Describe to the model why its answer is invalid; `cut` if it reached the output limit."""
    if cut:
        return "it was cut off at the output limit; answer more briefly"
    return fault(error)


def repair_prompt(prompt: Prompt, answer: str, problem: str) -> Prompt:
    """The conversation continued with the bad answer and a request for a valid one."""
    shown = answer if len(answer) <= SHOWN_ANSWER else answer[:SHOWN_ANSWER] + " …"
    return replace(
        prompt,
        parts=(),
        turns=(*prompt.turns, Turn(prompt.user, shown or "(nothing)")),
        user=f"That does not fit the asked-for JSON: {problem}. Give the whole answer again, as JSON only.",
    )
