"""Normalized spellings of a text, so that one pattern matches every spelling of a phrase.

`shown` removes the disguise of a text: escapes, accents and styled letters. `plain` and `latin` lower the case of the
result of `shown`; `plain` keeps the scripts, and `latin` replaces lookalikes by Latin letters. `words` reduces each gap
between words in the result of `latin` to one character, and `joined` removes the gaps from the result of `words`.
`collapsed` reduces each gap in the result of `plain` to one space. Each spelling keeps the positions in the original
text. Encodings that a reader has to compute (base64, rot13, reversed letters) are not decoded.
"""

from __future__ import annotations

import html
import re
import sys
import unicodedata
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from importlib.resources import files
from urllib.parse import unquote

import regex

Spell = Callable[[re.Match[str]], str]


@dataclass(frozen=True, slots=True)
class Spelling:
    """A rewritten text. `steps` has, for each rewriting, the replaced pieces: start and end of each piece in the text
    after the rewriting, then start and end in the text before the rewriting."""

    text: str
    steps: tuple[list[tuple[int, int, int, int]], ...] = field(default=(), repr=False)

    def sub(self, pattern: re.Pattern[str], spell: Spell) -> Spelling:
        """Return the text with the matches of a pattern replaced by the results of `spell`."""
        parts, pieces, end, length = list[str](), list[tuple[int, int, int, int]](), 0, 0
        for match in pattern.finditer(self.text):
            new = spell(match)
            if new != match[0]:
                start = length + match.start() - end
                parts += self.text[end : match.start()], new
                length, end = start + len(new), match.end()
                pieces.append((start, length, *match.span()))
        if not pieces:
            return self
        return Spelling("".join((*parts, self.text[end:])), (*self.steps, pieces))

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Return the position of `text[start:end]` in the original text. A replaced piece counts as a whole."""
        last = end - 1
        for pieces in reversed(self.steps):
            start, last = _old(pieces, start, first=True), _old(pieces, last, first=False)
        return start, max(last, start) + 1


def _old(pieces: list[tuple[int, int, int, int]], place: int, *, first: bool) -> int:
    """Return the index in the text before a rewriting, given the index of the character in the text after the
    rewriting. In a replaced piece of another length, return the first or the last index of the old piece."""
    n = bisect_right(pieces, place, key=lambda piece: piece[0]) - 1
    if n < 0:
        return place
    new_start, new_end, start, end = pieces[n]
    if place >= new_end:
        return end + place - new_end
    if new_end - new_start == end - start:
        return start + place - new_start
    return start if first else end - 1


def shown(text: str) -> Spelling:
    r"""Return the text with plain letters, which keep their script and case.

    Escapes are decoded (`&#105;`, `\u0069`, `%69`, up to three times), accents, marks and invisible characters are
    removed, and NFKC gives styled letters their plain form.
    """
    spelling = Spelling(text)
    for _ in range(3):
        spelling = spelling.sub(_ESCAPED, _decoded)
    return spelling.sub(_UNUSUAL, lambda letters: _usual(letters[0]))


def plain(shown: Spelling) -> Spelling:
    """Lower the case, keeping all punctuation. A word that mixes scripts is spelled in Latin letters."""
    if not shown.text.isascii():
        shown = shown.sub(WORD, _one_script).sub(_OTHERS, lambda letters: letters[0].casefold())
    return shown.sub(_CAPITALS, lambda letters: letters[0].lower())


def latin(shown: Spelling) -> Spelling:
    """Lower the case and replace lookalikes by Latin letters, keeping all punctuation."""
    if not shown.text.isascii():
        shown = shown.sub(_OTHERS, lambda letters: _latin(letters[0]).casefold())
    return shown.sub(_CAPITALS, lambda letters: letters[0].lower())


def words(latin: Spelling) -> Spelling:
    """Reduce the text to letters and digits, with one space between words or a line feed at the end of a sentence or
    line. Digits that are used as letters are replaced by letters, single letters with gaps between them are joined to
    words, and l becomes i."""
    spelling = latin.sub(_SPELLED, _spelled_out).sub(_LEET, _unleet)
    word_count = 0

    def gap(match: re.Match[str]) -> str:
        nonlocal word_count
        word_count += 1
        if not _END.fullmatch(match[0]):
            return " "
        # Ignore the end of a sentence of one or two words, so that an author cannot split a phrase by full stops.
        long, word_count = word_count > 2, 0
        return "\n" if long else " "

    spelling = spelling.sub(_GAP, gap)
    return replace(spelling, text=same_letters(spelling.text))


def same_letters(text: str) -> str:
    """Replace l by i in a text or pattern, because the two letters look alike."""
    return text.replace("l", "i")


def collapsed(plain: Spelling) -> Spelling:
    """Return the text with one space for each gap between words. Words that are spelled as single letters are
    joined."""
    return plain.sub(_SPELLED, _spelled_out).sub(_GAP, lambda gap: " ")


def joined(words: Spelling) -> Spelling:
    """Remove the gaps between words."""
    return words.sub(_SPACES, lambda space: "")


_ESCAPED = re.compile(
    r"&(?:#[xX]?[0-9a-fA-F]{1,7}|[a-zA-Z][a-zA-Z0-9]{1,31});?"
    r"|\\+(?:u\{[0-9a-fA-F]{1,6}\}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|x[0-9a-fA-F]{2}|[0-3][0-7]{2}|[nrt])"
    r"|(?:%[0-9a-fA-F]{2})+"
    r"|\bU\+[0-9a-fA-F]{4,6}"
)
_CODE = re.compile(r"[uUx+]\{?([0-9a-fA-F]+)\}?$")


def _decoded(match: re.Match[str]) -> str:
    escape = match[0]
    if escape.startswith("&"):
        return html.unescape(escape)
    if escape.startswith("%"):
        return unquote(escape)
    if escape[-1] in "nrt" and not _CODE.search(escape):
        return " "
    code = int(digits[1], 16) if (digits := _CODE.search(escape)) else int(escape.lstrip("\\"), 8)
    return chr(code) if code <= sys.maxunicode else escape


_UNUSUAL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]+|[^\x00-\x7f]+")
_CAPITALS = re.compile("[A-Z]+")


def usual(text: str) -> str:
    """Return the text without accents and invisible characters, and with styled letters in plain form. Tag characters
    become the ASCII characters that they encode."""
    return _UNUSUAL.sub(lambda letters: _usual(letters[0]), text)


def _usual(text: str) -> str:
    text = "".join(chr(ord(c) - 0xE0000) if "\U000e0020" <= c <= "\U000e007e" else c for c in text)
    parts = unicodedata.normalize("NFKD", text.translate(_SIGNS))
    return unicodedata.normalize("NFC", "".join(c for c in parts if _shows(c)))


_SIGNS = str.maketrans("ı‹❮˂〈⟨≺ᐸ›❯˃〉⟩≻ᐳ", "i<<<<<<<>>>>>>>")
"""Signs that NFKC does not map to the signs that the patterns have, each with its replacement."""


@lru_cache(maxsize=8192)
def _shows(character: str) -> bool:
    """Whether a character is visible by itself, and not only an accent or a mark on another character."""
    category = unicodedata.category(character)
    if category == "Mn":
        # Vowel signs and viramas of Indic scripts belong to the word.
        return unicodedata.combining(character) in (0, 8, 9) and not "\ufe00" <= character <= "\U000e01ef"
    return category not in {"Cc", "Cf", "Co", "Cn", "Cs", "Me"}


WORD = re.compile(r"[^\W\d_]{2,}")


def mixes_scripts(word: str) -> bool:
    """Whether a word has ASCII letters and lookalikes of Latin letters from another script. Greek letters of formulas
    and units are allowed."""
    return not word.isascii() and any(c < "\x80" for c in word) and any(map(_intrudes, word))


@lru_cache(maxsize=8192)
def _intrudes(character: str) -> bool:
    if character < "\x80" or character not in _lookalikes():
        return False
    script = unicodedata.name(character, "").partition(" ")[0]
    return character in "αορνικτΑΒΕΖΗΙΚΜΝΟΡΤΥΧ" if script == "GREEK" else script in _SCRIPTS


_SCRIPTS = {"CYRILLIC", "ARMENIAN", "CHEROKEE", "COPTIC", "LISU", "CANADIAN", "DESERET", "GEORGIAN", "OLD", "LYCIAN"}


def _latin(text: str) -> str:
    """Replace letters that look like Latin letters by these Latin letters, and remove marks."""
    return "".join(_lookalikes().get(c, c) for c in text if unicodedata.category(c)[0] != "M")


@cache
def _lookalikes() -> dict[str, str]:
    lines = (files("practicum.core") / "lookalikes.txt").read_text("utf-8").splitlines()
    return {c: line[0] for line in lines if not line.startswith("#") for c in line[2:]}


_OTHERS = re.compile(r"[^\x00-\x7f]+")

_LETTER = r"\p{L}\p{M}\p{N}"
_GAP = regex.compile(rf"[^{_LETTER}]++")
_BETWEEN = regex.compile(rf"[^{_LETTER}@$]++")
_ALONE = rf"(?<![{_LETTER}])[\p{{L}}\p{{N}}@$](?:{_BETWEEN.pattern}[\p{{L}}\p{{N}}@$](?![{_LETTER}]))"
_SPELLED = regex.compile(rf"{_ALONE}{{3,}}+")
"""Four or more single letters, with any gaps between them."""

PHRASE_SPELLED = regex.compile(rf"{_ALONE}{{11}}")
"""Twelve single letters in a row: more than a list or table with a few letters has."""


def _spelled_out(match: re.Match[str]) -> str:
    """Join single letters to words. Gaps that are longer or rarer than the other gaps separate words."""
    gaps = Counter(_BETWEEN.findall(match[0]))
    shortest = min(map(len, gaps))
    within = {gap for gap in gaps if len(gap) == shortest}
    if len(within) == len(gaps) == 2 and 3 * min(gaps.values()) < gaps.total():
        within = {max(gaps, key=gaps.__getitem__)}
    if 2 * sum(gaps[gap] for gap in within) < gaps.total():
        within = {*gaps}
    return str(_BETWEEN.sub(lambda gap: "" if gap[0] in within else " ", match[0]))


_MARKS = "a-z0-9$@€!|"
_LEET = re.compile(rf"(?<![{_MARKS}])[a-z]*[0-9$@€!|][{_MARKS}]*")
_DIGITS = str.maketrans("013456789$@€", "oieasgtbgsae")
_STROKE = re.compile(r"(?<![!|])[!|]{1,2}(?=[a-z0-9$@€])|(?<=[a-z])[|]{1,2}(?![!|])")


def _unleet(match: re.Match[str]) -> str:
    word = match[0]
    if not any("a" <= c <= "z" for c in word):
        return word
    return _STROKE.sub(lambda strokes: "i" * len(strokes[0]), word).translate(_DIGITS)


_END = re.compile(r"[.!?:;]{1,3}[\"')\]]{0,2}\s{1,2}|\s?\n\s{0,8}[-*#>]{0,3}\s?")
"""End of a sentence or a line, as people write it."""

_SPACES = re.compile("[ \n]+")


def _one_script(match: re.Match[str]) -> str:
    return _latin(match[0]) if mixes_scripts(match[0]) else match[0]
