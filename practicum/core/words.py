"""Numbers with their nouns, and other short texts: 1 call, 2 calls, 3 entries."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from practicum.core.types import Usage
from practicum.core.visible import visible

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError


def folded(text: str) -> str:
    """The text without regard to case and white space, to compare texts by."""
    return " ".join(text.casefold().split())


def quantity(number: int, noun: str) -> str:
    """A number of things, such as `1 call` and `1,200 entries`. `noun` is the singular, and its last word changes."""
    if number == 1:
        return f"1 {noun}"
    if re.search("[^aeiou]y$", noun):
        noun = noun[:-1] + "ie"
    elif noun.endswith(("s", "x", "ch", "sh")):
        noun += "e"
    return f"{number:,} {noun}s"


def closest(name: str, known: Iterable[str]) -> str:
    """The known name that is most like a wrong one, as the end of an error; empty if none is."""
    return "".join(f" (did you mean {match}?)" for match in get_close_matches(name, list(known), 1))


def fault(error: ValidationError, whole: str = "", model: type[BaseModel] | None = None) -> str:
    """The first thing that is wrong with a value, after where it is; `whole` stands for the value itself. A value that
    does not match a pattern, or none of several types, is explained by the description of its field in `model`."""
    first = error.errors()[0]
    field = model.model_fields.get(str(first["loc"][0])) if model is not None and first["loc"] else None
    # Of several types, pydantic names the one that it tried, which is no name of a field.
    several = field is not None and len(first["loc"]) > 1 and not _NAME.fullmatch(str(first["loc"][1]))
    where = ".".join(map(str, first["loc"][:1] if several else first["loc"])) or whole
    what = _WRONG.get(first["type"]) or re.sub(r"^(Input|String|List) should", "it should", first["msg"])
    what = what.removeprefix("Value error, ").partition(" after validation")[0]
    if first["input"] == "":
        what = "it is empty"
    if first["type"] == "string_pattern_mismatch" or several:
        form = f": {field.description}" if field is not None and field.description else ""
        value = str(first["input"])
        what = f"{value[:60]!r} does not fit{form}" if value.strip() else "it is blank"
    return f"{where}: {what}" if where else what


_NAME = re.compile(r"(?!(bool|int|float|str|datetime)$)[A-Za-z_]\w*|\d+")

_WRONG = {"missing": "it is missing", "extra_forbidden": "there is no such field"}
"""What is wrong, by pydantic's type of the error."""


def wrong_field(error: ValidationError) -> str | None:
    """The name of the first field that is wrong, cut to 80 characters; None if it is the whole value."""
    place = error.errors()[0]["loc"]
    return str(place[0])[:80] if place else None


def in_number(number: int, text: str) -> str:
    """A text whose `[one|many]` parts agree with a number: `answer[|s] cut` is `answer cut` or `answers cut`."""
    return re.sub(r"\[([^|\]]*)\|([^\]]*)\]", r"\1" if number == 1 else r"\2", text)


def usage_text(usage: Usage) -> str:
    """Usage in a few words."""
    money = "" if not usage.usd else f", ${usage.usd:.4f}" if usage.usd < 1 else f", ${usage.usd:.2f}"
    cached = f" ({usage.cached_share:.0%} of the input cached)" if usage.input_tokens else ""
    return f"{quantity(usage.calls, 'call')}, {quantity(usage.tokens, 'token')}{cached}{money}"


def sentence(error: BaseException) -> str:
    """What an error says, as a sentence."""
    text = str(error)
    return f"{capitalized(text)}{'' if text.endswith(('.', '!', '?')) else '.'}"


def capitalized(text: str) -> str:
    """A text with a capital first letter. A first word that is an id, a path or a name in code stays as it is."""
    return text[:1].upper() + text[1:] if re.match(r"[a-z]+(?=[\s,:;]|[.!?]?$|[.!?]\s)", text) else text


def error_line(error: BaseException) -> str:
    """The name and the message of an error, on one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def one_line(text: object, most: int = 80) -> str:
    """A text on one line of at most `most` characters, with what hides in it escaped (`core.visible`)."""
    line = visible(" ".join(str(text).split()))
    return line if len(line) <= most else f"{line[: most - 1]}…"


def strings(value: Any) -> list[str]:
    """All texts in a JSON value."""
    if isinstance(value, str):
        return [value] if value else []
    if isinstance(value, Mapping):
        return [text for part in value.values() for text in strings(part)]
    if isinstance(value, list | tuple):
        return [text for part in value for text in strings(part)]
    return []
