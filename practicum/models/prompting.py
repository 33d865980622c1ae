"""Functions on prompts: size, cuts to fit a window, digest for the journal, and repair of invalid output."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import cast

from pydantic import BaseModel, ValidationError

from practicum.core.bounded import Output, short_form, strict_schema
from practicum.core.errors import WindowError
from practicum.core.images import IMAGE_TOKENS
from practicum.core.types import Profile, Prompt, Turn
from practicum.core.views import count_tokens, truncate
from practicum.core.words import fault
from practicum.models.client import JSON, WINDOW_ADVICE, CallOptions, Client, once_per_schema
from practicum.store.journal import digest

TOKENS_PER_TURN = 8
"""Estimated tokens that the message format adds to each earlier chat turn."""
TOKENS_PER_PROMPT = 16
"""Estimated tokens that the message format adds to a prompt without earlier chat turns."""

MARK_TOKENS = 16
"""Approximate number of tokens of the mark that replaces cut text."""

SHOWN_ANSWER = 2000
"""Maximum number of characters of an invalid answer in the repair prompt."""


def prompt_tokens(prompt: Prompt) -> int:
    """Estimate the tokens of a prompt, message formatting included."""
    turns = sum(count_tokens(t.user) + count_tokens(t.assistant) + TOKENS_PER_TURN for t in prompt.turns)
    texts = sum(map(count_tokens, (prompt.system, *prompt.pages, prompt.user, prompt.closing)))
    return texts + turns + len(prompt.images) * IMAGE_TOKENS + TOKENS_PER_PROMPT


def check_fits_window(client: Client, role: str, tokens: int) -> None:
    """Raise WindowError if a prompt of `tokens` tokens is larger than the window of the client's model."""
    if client.window is not None and tokens > client.window:
        raise WindowError(
            "window.exceeded",
            f"the {role}'s prompt of about {tokens} tokens is larger than the window of {client.name} "
            f"({client.window} tokens): {WINDOW_ADVICE}",
            tokens=tokens,
            window=client.window,
        )


def shorten_prompt(prompt: Prompt, tokens: int) -> Prompt:
    """Cut the last message of the prompt to about `tokens` tokens.

    The longest parts of the message are cut to the same size. Each of these parts is cut in the middle, where
    a mark is inserted, so that the part keeps its beginning and its end.
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
    """Return the largest size such that all parts fit into `room` tokens if every longer part is cut to this size."""
    ordered = sorted(sizes)
    for n, size in enumerate(ordered):
        share = room // (len(ordered) - n)
        if size > share:
            return share
        room -= size
    return ordered[-1]


def prompt_digest(role: str, model: str, prompt: Prompt, schema: JSON | None, options: CallOptions) -> str:
    """Return the digest that identifies a call in the journal."""
    turns = [part for turn in prompt.turns for part in (turn.user, turn.assistant)]
    settings = f"{options.temperature} {options.max_output_tokens} {options.seed}"
    text = "" if schema is None else _schema_text(schema)
    return digest(role, model, prompt.system, *prompt.pages, "turns", *turns, prompt.user, text, settings)


@once_per_schema
def _schema_text(schema: JSON) -> str:
    return json.dumps(schema, sort_keys=True)


@cache
def json_schema(schema: type[BaseModel], profile: Profile) -> JSON:
    """Return the JSON schema of an output class, strict in the profile `full`. Equal arguments return the same
    object."""
    if profile == "small":
        return (short_form(schema) if issubclass(schema, Output) else schema).model_json_schema()
    return cast(JSON, strict_schema(schema.model_json_schema()))


def extract_json(text: str) -> str:
    """Return the longest JSON object in an answer; if the answer has no object, return the stripped text. Models
    without enforced schemas write the object between prose or fences, and with raw line breaks in the strings of the
    object."""
    return max(_objects(text), key=len, default=text.strip())


def _objects(text: str) -> Iterator[str]:
    """Yield the outermost JSON objects in a text."""
    start = text.find("{")
    while start >= 0:
        try:
            value, end = _LENIENT.raw_decode(text, start)
            yield json.dumps(value)
        except json.JSONDecodeError as error:
            # Skip the text up to the error, because it belongs to a broken object.
            end = max(error.pos, start + 1)
        except (RecursionError, ValueError):
            # The JSON is nested too deeply, or has a number of thousands of digits.
            return
        start = text.find("{", end)


_LENIENT = json.JSONDecoder(strict=False)


def describe_validation_error(error: ValidationError, cut: bool) -> str:
    """Describe for the model why its answer is invalid. `cut`: the answer reached the output limit."""
    if cut:
        return "it was cut off at the output limit; answer more briefly"
    return fault(error)


def repair_prompt(prompt: Prompt, answer: str, problem: str) -> Prompt:
    """Return the conversation, continued with the invalid answer and a request for a valid answer."""
    shown = answer if len(answer) <= SHOWN_ANSWER else answer[:SHOWN_ANSWER] + " …"
    return replace(
        prompt,
        parts=(),
        turns=(*prompt.turns, Turn(prompt.user, shown or "(nothing)")),
        user=f"That does not fit the asked-for JSON: {problem}. Give the whole answer again, as JSON only.",
    )
