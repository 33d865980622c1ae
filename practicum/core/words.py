"""Short texts for messages, such as numbers with their nouns (1 call, 2 calls, 3 entries)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from practicum.core.types import Usage
from practicum.core.visible import visible

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError


SENTENCE_END = re.compile(r"(?<=[.!?:;])\s+|(?<=[。！？：；])")
"""End of a sentence within a line, in Latin and in Chinese or Japanese punctuation."""


def folded(text: str) -> str:
    """Return the text with case and white space normalized, for comparisons."""
    return " ".join(text.casefold().split())


def quantity(number: int, noun: str) -> str:
    """Return a number with its noun, such as `1 call` or `1,200 entries`. `noun` is the singular; its last word is
    inflected."""
    if number == 1:
        return f"1 {noun}"
    if re.search("[^aeiou]y$", noun):
        noun = noun[:-1] + "ie"
    elif noun.endswith(("s", "x", "ch", "sh")):
        noun += "e"
    return f"{number:,} {noun}s"


def closest(name: str, names: Iterable[str]) -> str:
    """Return the end of an error message that suggests the most similar of `names`; empty if no name is similar."""
    return "".join(f" (did you mean {match}?)" for match in get_close_matches(name, list(names), 1))


def fault(error: ValidationError, whole: str = "", model: type[BaseModel] | None = None) -> str:
    """Describe the first validation error: the path of the wrong field, and the problem. If the error is in no field,
    `whole` replaces the path. If the value does not fit a pattern or a union of types, the text quotes the description
    of the field in `model`."""
    first = error.errors()[0]
    field = model.model_fields.get(str(first["loc"][0])) if model is not None and first["loc"] else None
    # For a union, pydantic appends to the path the name of the type that it tried, which is not a field name.
    several = field is not None and len(first["loc"]) > 1 and not _NAME.fullmatch(str(first["loc"][1]))
    where = ".".join(map(str, first["loc"][:1] if several else first["loc"])) or whole
    problem = _WRONG.get(first["type"]) or re.sub(r"^(Input|String|List) should", "it should", first["msg"])
    problem = problem.removeprefix("Value error, ").partition(" after validation")[0]
    if first["input"] == "":
        problem = "it is empty"
    if first["type"] == "string_pattern_mismatch" or several:
        form = f": {field.description}" if field is not None and field.description else ""
        value = str(first["input"])
        problem = f"{value[:60]!r} does not fit{form}" if value.strip() else "it is blank"
    return f"{where}: {problem}" if where else problem


_NAME = re.compile(r"(?!(bool|int|float|str|datetime)$)[A-Za-z_]\w*|\d+")

_WRONG = {"missing": "it is missing", "extra_forbidden": "there is no such field"}
"""Problem that the message states, by pydantic's error type."""


def wrong_field(error: ValidationError) -> str | None:
    """Return the name of the first wrong field, cut to 80 characters; None if the whole value is wrong."""
    place = error.errors()[0]["loc"]
    return str(place[0])[:80] if place else None


def in_number(number: int, text: str) -> str:
    """Choose the `[one|many]` forms in a text for a number: `answer[|s] cut` gives `answer cut` or `answers cut`."""
    return re.sub(r"\[([^|\]]*)\|([^\]]*)\]", r"\1" if number == 1 else r"\2", text)


def usage_text(usage: Usage) -> str:
    """Format a usage: calls, tokens, share of cached input, and cost."""
    money = "" if not usage.usd else f", ${usage.usd:.4f}" if usage.usd < 1 else f", ${usage.usd:.2f}"
    cached = f" ({usage.cached_share:.0%} of the input cached)" if usage.input_tokens else ""
    return f"{quantity(usage.calls, 'call')}, {quantity(usage.tokens, 'token')}{cached}{money}"


def sentence(error: BaseException) -> str:
    """Return the message of an error as a sentence."""
    text = str(error)
    return f"{capitalized(text)}{'' if text.endswith(('.', '!', '?')) else '.'}"


def capitalized(text: str) -> str:
    """Capitalize the first letter, unless the first word is an id, a path or a name in code."""
    return text[:1].upper() + text[1:] if re.match(r"[a-z]+(?=[\s,:;]|[.!?]?$|[.!?]\s)", text) else text


def error_line(error: BaseException) -> str:
    """Return the name and the message of an error on one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def one_line(text: object, most: int = 80) -> str:
    """Return a text on one line of at most `most` characters, with hidden characters escaped (`core.visible`)."""
    line = visible(" ".join(str(text).split()))
    return line if len(line) <= most else f"{line[: most - 1]}…"


def strings(value: Any) -> list[str]:
    """Return all texts in a JSON value."""
    if isinstance(value, str):
        return [value] if value else []
    if isinstance(value, Mapping):
        return [text for part in value.values() for text in strings(part)]
    if isinstance(value, list | tuple):
        return [text for part in value for text in strings(part)]
    return []
