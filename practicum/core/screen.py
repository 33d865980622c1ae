"""The filter at the door: what in a text that is about to become an entry a person should look at.

It flags and never changes a text. Instruction-shaped phrases are those that speak to the model about its instructions,
its role or its user, carry tokens of a chat template, or send data out. A rule that says how to do a task ("Never call
delete before list") has none of them. Phrases are found in every spelling of `core.spelling`. A filter of phrases is
the last line of defence: an author who knows it can write around it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from typing import Literal

from practicum.core import sensitive
from practicum.core.spelling import (
    PHRASE_SPELLED,
    WORD,
    Spelling,
    collapsed,
    joined,
    latin,
    mixes_scripts,
    plain,
    same_letters,
    shown,
    usual,
    words,
)
from practicum.core.visible import TEMPLATE, visible, visible_line
from practicum.core.words import one_line

Kind = Literal["characters", "length", "unread", "instruction", "link", "secret", "personal"]

MAX_LENGTH = 8000
"""Characters of an entry above which it is flagged: four times the longest that practicum's own prompts ask for."""

SCREENED = 200_000
"""Characters of a text that are read; what is longer is flagged as unread."""

NAMED = 3
"""How many findings of one kind are named at most."""


@dataclass(frozen=True, slots=True)
class Flag:
    """Something in a text that a person should look at. `what` says on one line what it is, without quoting a secret or
    personal data; `start` is its index in the text."""

    kind: Kind
    what: str
    start: int = 0


def flags(text: str) -> tuple[Flag, ...]:
    """What in a text a person should look at, by kind and place; empty if nothing is found."""
    return _flags(text) if len(text) > MAX_LENGTH else _flags_of_short(text)


def _flags(text: str) -> tuple[Flag, ...]:
    named: dict[Kind, dict[str, Flag]] = {}
    for flag in sorted(_findings(text), key=lambda flag: (flag.kind, flag.start)):
        same = named.setdefault(flag.kind, {})
        if len(same) < NAMED:
            same.setdefault(flag.what, flag)
    return tuple(flag for same in named.values() for flag in same.values())


def steers(text: str) -> bool:
    """Whether a text speaks to the model about its instructions, or hides characters."""
    return any(flag.kind in ("instruction", "characters") for flag in flags(text))


_flags_of_short = lru_cache(maxsize=4096)(_flags)
"""An edit's texts are looked at several times. Long ones are not kept in memory for that."""


def _findings(text: str) -> Iterator[Flag]:
    if len(text) > MAX_LENGTH:
        yield Flag("length", f"{len(text):,} characters, more than {MAX_LENGTH:,}", MAX_LENGTH)
    if len(text) > SCREENED:
        yield Flag("unread", f"more than the {SCREENED:,} characters that the filter reads", SCREENED)
        text = text[:SCREENED]
    yield from _characters(text)
    values = sensitive.find(text)

    def found(kind: Kind, what: str, start: int, end: int) -> Flag:
        private = any(value.start < end and start < value.end for value in values)
        quoted = visible_line(one_line(text[start:end]))
        return Flag(kind, what if private else f"{what}: {quoted!r}", start)

    undisguised = shown(text)
    for what, match, spelling in _phrases_in(undisguised):
        yield found("instruction", what, *spelling.span(*match.span()))
    if token := TEMPLATE.search(undisguised.text):
        yield Flag("instruction", "a token of a chat template", undisguised.span(*token.span())[0])
    for match in _LINK.finditer(undisguised.text):
        yield found("link", "a link", *undisguised.span(*match.span()))
    for value in values:
        yield Flag("secret" if value.kind == "secrets" else "personal", value.what, value.start)


def _phrases_in(undisguised: Spelling) -> Iterator[tuple[str, re.Match[str], Spelling]]:
    """The instruction-shaped phrases of a text, each at its first place in one spelling of the text."""
    as_plain, as_latin = plain(undisguised), latin(undisguised)
    as_words, other = words(as_latin), None if as_plain.text.isascii() else collapsed(as_plain)
    as_joined, spelled_out = joined(as_words), PHRASE_SPELLED.search(as_latin.text)
    for what, phrases in _instructions().items():
        for pattern, spelling in (
            (phrases.plain, as_plain),
            (phrases.words, as_words),
            (phrases.spelled if spelled_out else phrases.joined, as_joined),
            (phrases.other, other),
        ):
            if pattern is not None and spelling is not None and (match := pattern.search(spelling.text)):
                yield what, match, spelling
                break


def _characters(text: str) -> Iterator[Flag]:
    if text.isascii() and text.isprintable():
        return
    # A line break of Windows hides nothing.
    lines = text.replace("\r\n", " \n")
    if (shown := visible(lines)) != lines:
        place = next(place for place, (a, b) in enumerate(zip(shown, lines, strict=False)) if a != b)
        name = unicodedata.name(text[place], "")
        yield Flag("characters", f"a character that does not show: U+{ord(text[place]):04X} {name}".rstrip(), place)
    if match := next((word for word in WORD.finditer(text) if mixes_scripts(word[0])), None):
        yield Flag("characters", "a word with letters of another script that look like its own", match.start())


@dataclass(frozen=True, slots=True)
class _Phrases:
    """The patterns of one heading of `instructions.txt`, for each spelling of a text that they are searched in."""

    plain: re.Pattern[str]
    words: re.Pattern[str]
    joined: re.Pattern[str] | None
    spelled: re.Pattern[str]
    other: re.Pattern[str] | None


@cache
def _instructions() -> dict[str, _Phrases]:
    """What is found, each with its patterns."""
    parts: dict[str, str] = {}
    headed: dict[str, list[str]] = {}
    for line in (files("practicum.core") / "instructions.txt").read_text("utf-8").splitlines():
        if definition := re.fullmatch("([A-Z]+) = (.*)", line):
            parts[f"<{definition[1]}>"] = definition[2]
        elif heading := re.fullmatch(r"\[([a-z, ]+)\]", line):
            patterns = headed[heading[1]] = []
        elif line and not line.startswith("#"):
            patterns.append(re.sub("<[A-Z]+>", lambda name: parts[name.group()], line))
    return {what: _phrases(patterns) for what, patterns in headed.items()}


def _phrases(lines: Sequence[str]) -> _Phrases:
    patterns = [line.removeprefix("+ ") for line in lines]
    of_ascii, others = [p for p in patterns if p.isascii()], [usual(p) for p in patterns if not p.isascii()]
    long = [line.removeprefix("+ ") for line in lines if line.startswith("+ ")]
    return _Phrases(
        _any(of_ascii, r"[^\W_]{1,40}[\W_]{1,4}", r"[\W_]{0,4}"),
        _any(map(same_letters, of_ascii), r"[^\W_]{1,40}[\x20\n]", r"[\x20\n]?"),
        _any(map(_unbroken, long), "", "") if long else None,
        _any(map(_unbroken, of_ascii), r"[^\W_]{0,20}?", ""),
        _any(others, r"[^\W_]{1,40}\x20", r"\x20?") if others else None,
    )


def _unbroken(pattern: str) -> str:
    return same_letters(pattern).replace(r"\b", "")


def _any(patterns: Iterable[str], word: str, gap: str) -> re.Pattern[str]:
    """One pattern for all, with these for any word and for a gap. Every repetition has a bound, so that the time of a
    search grows with the length of a text alone."""
    return re.compile("|".join(line.replace(r"\w+ ", word).replace(" ", gap) for line in patterns))


_LINK = re.compile(
    r"(?:https?|hxxps?|ftps?|wss?|file)://[^\s<>\"'`)\]]+"
    r"|(?<![\w.@])www\.[\w-]+\.[\w./-]+"
    r"|!?\[[^\]\n]{0,200}\]\((?!\s*\))[^)\n]{1,400}\)"
    r"|\b(?:java|vb)script\s*:"
    r"|\bdata:[\w.+-]+/[\w.+-]+[;,]"
    r"|<(?:a|img|iframe|script|link|object|embed|form|svg)\b[^>\n]{0,200}(?:href|src|action|on\w+)\s*="
    r"|(?<![\w.@/-])(?:[a-z0-9-]+\.)+(?:com|net|org|io|ru|cn|xyz|info|biz|app|dev|site|top|me|co|ai)/[\w%#?=&./-]*",
    re.IGNORECASE,
)
