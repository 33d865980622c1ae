"""The filter at the door: what in a text that is about to become an entry a person should look at.

It flags and never changes a text. Instruction-shaped phrases are those that speak to the model about its instructions,
its role or its user, carry tokens of a chat template, or send data out. A rule that says how to do a task ("Never call
delete before list") has none of them. A filter of phrases is one layer: who knows it can write around it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from typing import Literal

from practicum.core import sensitive
from practicum.core.visible import TEMPLATE, visible, visible_line
from practicum.core.words import one_line

Kind = Literal["characters", "length", "instruction", "link", "secret", "personal"]

MAX_LENGTH = 8000
"""Characters of an entry above which it is flagged: four times the longest that practicum's own prompts ask for."""

OVERLAP = 1000
"""Characters that two parts of a long text share, so that a phrase at their border is in one of them."""

NAMED = 3
"""How many findings of one kind are named at most."""


@dataclass(frozen=True, slots=True)
class Flag:
    """Something in a text that a person should look at. `what` says on one line what it is, without quoting a secret or
    personal data; `start` is its index in the text."""

    kind: Kind
    what: str
    start: int = 0


@lru_cache(maxsize=4096)
def flags(text: str) -> tuple[Flag, ...]:
    """What in a text a person should look at, by kind and place; empty if nothing is found."""
    named: dict[Kind, dict[str, Flag]] = {}
    for flag in sorted(_findings(text), key=lambda flag: (flag.kind, flag.start)):
        same = named.setdefault(flag.kind, {})
        if len(same) < NAMED:
            same.setdefault(flag.what, flag)
    return tuple(flag for same in named.values() for flag in same.values())


def steers(text: str) -> bool:
    """Whether any part of a text, of any length, speaks to the model about its instructions or hides characters."""
    kinds = ("instruction", "characters")
    parts = (text[start : start + MAX_LENGTH] for start in range(0, len(text), MAX_LENGTH - OVERLAP))
    return any(flag.kind in kinds for part in parts for flag in flags(part))


def _findings(text: str) -> Iterator[Flag]:
    if len(text) > MAX_LENGTH:
        yield Flag("length", f"{len(text):,} characters, more than {MAX_LENGTH:,}", MAX_LENGTH)
        # It waits for a person already, and no text may take long.
        text = text[:MAX_LENGTH]
    yield from _characters(text)
    values = sensitive.find(text)

    def found(kind: Kind, what: str, match: re.Match[str], place: Callable[[int], int] = int) -> Flag:
        start, end = place(match.start()), place(match.end() - 1)
        private = any(value.start <= end and start < value.end for value in values)
        return Flag(kind, what if private else f"{what}: {visible_line(one_line(match.group()))!r}", start)

    plain, place = _plain(text)
    for what, of_ascii, of_all in _instructions():
        if match := (of_ascii if plain.isascii() else of_all).search(plain):
            yield found("instruction", what, match, place)
    if token := TEMPLATE.search(text):
        yield Flag("instruction", "a token of a chat template", token.start())
    for match in _LINK.finditer(text):
        yield found("link", "a link", match)
    for value in values:
        yield Flag("secret" if value.kind == "secrets" else "personal", value.what, value.start)


def _characters(text: str) -> Iterator[Flag]:
    if text.isascii() and text.isprintable():
        return
    # A line break of Windows hides nothing.
    lines = text.replace("\r\n", " \n")
    if (shown := visible(lines)) != lines:
        place = next(place for place, (a, b) in enumerate(zip(shown, lines, strict=False)) if a != b)
        name = unicodedata.name(text[place], "")
        yield Flag("characters", f"a character that does not show: U+{ord(text[place]):04X} {name}".rstrip(), place)
    if match := next(filter(_mixes_scripts, _WORD.finditer(text)), None):
        yield Flag("characters", "a word with letters of another script that look like its own", match.start())


_WORD = re.compile(r"[^\W\d_]{2,}")

_LOOKALIKES = str.maketrans(
    "аеорсухікмтнвѕјԁһӏԛԝАЕОРСУХІКМТНВЅЈαορνικτΑΒΕΖΗΙΚΜΝΟΡΤΥΧ",
    "aeopcyxikmthbsjdhlqwAEOPCYXIKMTHBSJaopviktABEZHIKMNOPTYX",
)
"""Letters of Cyrillic, Greek and others that look like a Latin one."""


def _mixes_scripts(word: re.Match[str]) -> bool:
    letters = word.group()
    return any(c < "\x80" for c in letters) and letters.translate(_LOOKALIKES) != letters


def _plain(text: str) -> tuple[str, Callable[[int], int]]:
    """The text in small letters of one style, and a function from an index in it to the one in the text.

    Accents and hidden characters are left out; tags become what they hide and lookalikes what they look like; words
    spelled l-i-k-e this or w1th d1g1ts are joined. So one pattern finds all spellings of a phrase.
    """
    if text.isascii() and not _SPELLED.search(text) and not _DIGITS_IN.search(text):
        return text.lower(), int
    same = _WORD.sub(lambda w: w.group().translate(_LOOKALIKES) if _mixes_scripts(w) else w.group(), text)
    letters = [(letter, place) for place, c in enumerate(same) for letter in (c if c < "\x80" else _letter(c))]
    line = "".join(letter for letter, _ in letters)
    line = _DIGITS_IN.sub(lambda word: word.group().translate(_DIGITS), line)
    left_out = {place for word in _SPELLED.finditer(line) for place in range(word.start() + 1, word.end(), 2)}
    kept = [place for place in range(len(line)) if place not in left_out]
    return "".join(line[place] for place in kept).lower(), lambda index: letters[kept[index]][1]


@lru_cache(maxsize=8192)
def _letter(character: str) -> str:
    """A character without accents and in its plain style; nothing for a hidden one, and for a tag what it carries."""
    if "\U000e0020" <= character <= "\U000e007e":
        return chr(ord(character) - 0xE0000)
    if unicodedata.category(character) in {"Cf", "Co", "Cn", "Cs", "Mn"}:
        return ""
    return _unaccented(character)


_SPELLED = re.compile(r"(?<![^\W_])[^\W\d_](?P<by>[ .*_-])(?:[^\W\d_](?P=by)){2,}[^\W\d_](?![^\W_])")
"""A word of four letters or more with the same character between them."""

_DIGITS_IN = re.compile(r"(?<![\w$@])(?=[a-zA-Z]*[013457$@][a-zA-Z])[a-zA-Z013457$@]{4,}(?![\w$@])")
_DIGITS = str.maketrans("013457$@", "oieastsa")


@cache
def _instructions() -> list[tuple[str, re.Pattern[str], re.Pattern[str]]]:
    """What is found, the pattern for texts of ASCII, and the one for others; as `instructions.txt` lists them."""
    parts: dict[str, str] = {}
    headed: dict[str, list[str]] = {}
    for line in _unaccented((files("practicum.core") / "instructions.txt").read_text("utf-8")).splitlines():
        if definition := re.fullmatch("([A-Z]+) = (.*)", line):
            parts[f"<{definition[1]}>"] = definition[2]
        elif heading := re.fullmatch(r"\[([a-z, ]+)\]", line):
            patterns = headed[heading[1]] = []
        elif line and not line.startswith("#"):
            line = re.sub("<[A-Z]+>", lambda name: parts[name.group()], line)
            # The gap after any word is not empty: to try every way to split a long one would take forever.
            patterns.append(line.replace(r"\w+ ", r"[^\W_]+[\W_]{1,4}").replace(" ", r"[\W_]{0,4}"))
    return [
        (what, re.compile("|".join(filter(str.isascii, patterns))), re.compile("|".join(patterns)))
        for what, patterns in headed.items()
    ]


def _unaccented(text: str) -> str:
    parts = unicodedata.normalize("NFKD", text.replace("ı", "i"))
    return unicodedata.normalize("NFC", "".join(c for c in parts if not "\u0300" <= c <= "\u036f"))


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
