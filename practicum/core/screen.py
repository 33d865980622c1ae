"""Filter for texts that are about to become entries: flags the parts that a person should check.

The filter never changes a text. Among other parts, it flags instruction-shaped phrases: phrases that address the
model's instructions, role or user, contain tokens of a chat template, or send data out. A rule for a task ("Never call
delete before list") does none of this. Phrases are matched in every spelling of `core.spelling`. A filter of phrases is
only the last line of defence: an author who knows the phrases can avoid them.
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
"""Maximum characters of a text; a longer text is flagged. The value is four times the longest text that practicum's
prompts ask for."""

SCREENED = 200_000
"""Maximum characters of a text that the filter reads; a longer text is flagged as unread."""

NAMED = 3
"""Maximum number of flags of one kind for a text."""


@dataclass(frozen=True, slots=True)
class Flag:
    """Part of a text that a person should check. `label` describes the part on one line, without quoting a secret or
    personal data; `start` is the index in the text at which the part begins."""

    kind: Kind
    label: str
    start: int = 0


def flags(text: str) -> tuple[Flag, ...]:
    """Return the flags of a text, sorted by kind and position; empty if a person need not check the text."""
    return _flags(text) if len(text) > MAX_LENGTH else _flags_of_short(text)


def _flags(text: str) -> tuple[Flag, ...]:
    named: dict[Kind, dict[str, Flag]] = {}
    for flag in sorted(_findings(text), key=lambda flag: (flag.kind, flag.start)):
        same = named.setdefault(flag.kind, {})
        if len(same) < NAMED:
            same.setdefault(flag.label, flag)
    return tuple(flag for same in named.values() for flag in same.values())


def steers(text: str) -> bool:
    """Whether a text has instruction-shaped phrases, hidden characters, or words that mix in lookalike letters."""
    return any(flag.kind in ("instruction", "characters") for flag in flags(text))


_flags_of_short = lru_cache(maxsize=4096)(_flags)
"""Cached version of `_flags`, because the texts of an edit are checked several times. It is used for short texts only,
because cached long texts would take too much memory."""


def _findings(text: str) -> Iterator[Flag]:
    if len(text) > MAX_LENGTH:
        yield Flag("length", f"{len(text):,} characters, more than {MAX_LENGTH:,}", MAX_LENGTH)
    if len(text) > SCREENED:
        yield Flag("unread", f"more than the {SCREENED:,} characters that the filter reads", SCREENED)
        text = text[:SCREENED]
    yield from _characters(text)
    values = sensitive.find(text)

    def flag(kind: Kind, label: str, start: int, end: int) -> Flag:
        private = any(value.start < end and start < value.end for value in values)
        quoted = visible_line(one_line(text[start:end]))
        return Flag(kind, label if private else f"{label}: {quoted!r}", start)

    undisguised = shown(text)
    for label, match, spelling in _phrases_in(undisguised):
        yield flag("instruction", label, *spelling.span(*match.span()))
    if token := TEMPLATE.search(undisguised.text):
        yield Flag("instruction", "a token of a chat template", undisguised.span(*token.span())[0])
    for match in _LINK.finditer(undisguised.text):
        yield flag("link", "a link", *undisguised.span(*match.span()))
    for value in values:
        yield Flag("secret" if value.kind == "secrets" else "personal", value.label, value.start)


def _phrases_in(undisguised: Spelling) -> Iterator[tuple[str, re.Match[str], Spelling]]:
    """Yield each kind of instruction-shaped phrase in a text once: its label, its first match, and the spelling of the
    text in which it was matched."""
    as_plain, as_latin = plain(undisguised), latin(undisguised)
    as_words, other = words(as_latin), None if as_plain.text.isascii() else collapsed(as_plain)
    as_joined, spelled_out = joined(as_words), PHRASE_SPELLED.search(as_latin.text)
    for label, phrases in _instructions().items():
        for pattern, spelling in (
            (phrases.plain, as_plain),
            (phrases.words, as_words),
            (phrases.spelled if spelled_out else phrases.joined, as_joined),
            (phrases.other, other),
        ):
            if pattern is not None and spelling is not None and (match := pattern.search(spelling.text)):
                yield label, match, spelling
                break


def _characters(text: str) -> Iterator[Flag]:
    if text.isascii() and text.isprintable():
        return
    # A Windows line break is not a hidden character.
    lines = text.replace("\r\n", " \n")
    if (shown := visible(lines)) != lines:
        place = next(place for place, (a, b) in enumerate(zip(shown, lines, strict=False)) if a != b)
        name = unicodedata.name(text[place], "")
        yield Flag("characters", f"an invisible character: U+{ord(text[place]):04X} {name}".rstrip(), place)
    if match := next((word for word in WORD.finditer(text) if mixes_scripts(word[0])), None):
        yield Flag("characters", "a word that mixes in lookalike letters of another script", match.start())


@dataclass(frozen=True, slots=True)
class _Phrases:
    """Patterns under one heading of `instructions.txt`: one pattern for each spelling in which a text is searched (see
    `core.spelling`). `spelled` replaces `joined` if the text has words spelled letter by letter; `other` has the
    phrases with characters outside of ASCII."""

    plain: re.Pattern[str]
    words: re.Pattern[str]
    joined: re.Pattern[str] | None
    spelled: re.Pattern[str]
    other: re.Pattern[str] | None


@cache
def _instructions() -> dict[str, _Phrases]:
    """Return the patterns of `instructions.txt` by heading."""
    parts: dict[str, str] = {}
    by_heading: dict[str, list[str]] = {}
    for line in (files("practicum.core") / "instructions.txt").read_text("utf-8").splitlines():
        if definition := re.fullmatch("([A-Z]+) = (.*)", line):
            parts[f"<{definition[1]}>"] = definition[2]
        elif heading := re.fullmatch(r"\[([a-z, ]+)\]", line):
            patterns = by_heading[heading[1]] = []
        elif line and not line.startswith("#"):
            patterns.append(re.sub("<[A-Z]+>", lambda name: parts[name.group()], line))
    return {label: _phrases(patterns) for label, patterns in by_heading.items()}


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
    """Join patterns into one. `word` is the expression for any word, `gap` the expression for the space between two
    words. Every repetition has a bound, so that the search time depends only on the length of a text."""
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
