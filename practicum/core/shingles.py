"""Rare pieces of a text, by which the text is recognized inside another text.

`pieces` returns the normalized pieces by which texts are compared: three content words in a row, five words in a row,
and distinctive words (a code, a long number, an identifier, a name, a short quotation). `grams` returns everything in a
text that a piece of another text can match. Both functions ignore case, spaces, punctuation, invisible characters and
the Unicode form. A piece that many texts have identifies none of these texts, so `Rarity` counts, for each piece, the
texts that have the piece.

Not recognized are: a paraphrase; a translation; one or two ordinary words ("swordfish"), unless they are quoted,
capitalized or hyphenated; and letters replaced by lookalikes. In a language without spaces, a piece is six characters
in a row, instead of three or five words.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from itertools import accumulate

WORDS = 5
"""Number of consecutive words that form a piece, with at least two content words among them."""

CONTENT = 3
"""Number of consecutive content words that form a piece, ignoring the words between them."""

CHARACTERS = 6
"""Number of consecutive characters that form a piece in a script without spaces."""

COMMON = 4
"""Maximum number of texts in which a rare piece occurs. A piece that occurs in more texts is common."""

_FUNCTION = """\
about above after again against also always another approach avoid because been before being below between both cannot
could does doing done down during each either else even ever every failed false first five four from have having hence
here hers herself himself however instead into itself just last least less like many might more most much must myself
neither never next none null only onto other ought ours ourselves over rather same second shall should since some
successful such than that their theirs them themselves then there therefore these they third this those though three
through thus together true under unless until upon very were what whatever when where whether which while whom whose
will with within without would your yours yourself zero"""
"""English words of four or more letters that have no content, and words that practicum writes before a lesson
("Successful approach: ..."). Shorter words count as words without content in any language."""
_FUNCTION_WORDS = frozenset(_FUNCTION.split())

# Invisible characters that are not in the Unicode category Cf. If they were not removed, they would split a word.
_INVISIBLE = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")
# Thai and Lao, Burmese, Khmer, Kana, Han.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003ffff]"
)
_QUOTED = re.compile(
    r"""`([^`\n]{3,60})`|"([^"\n]{3,60})"|“([^”\n]{3,60})”|«([^»\n]{3,60})»|(?<!\w)'([^'\n]{3,60})'(?!\w)"""
)
_JOINED = re.compile(r"\w+(?:[-_./@:+,'’]+\w+)*")
_NAMES = re.compile(r"(?<=[a-z,;] )[A-Z]\w+(?: [A-Z]\w+)*")
_CAPITALS = re.compile(r"[a-z]\w*[A-Z]|[A-Z]{5}")


def pieces(text: str) -> frozenset[str]:
    """Return the normalized pieces of a text, by which the text is compared with other texts."""
    text = _visible(text)
    words = _words(text)
    return frozenset((*_runs(words), *_distinctive(text, words)))


def grams(text: str) -> frozenset[str]:
    """Return everything in a text that a piece of another text can match: all sequences of up to five words, and all
    sequences that are pieces."""
    sequence = words(text)
    runs = set(_runs(sequence))
    for start in range(len(sequence)):
        runs.update(accumulate(sequence[start : start + WORDS], "{} {}".format))
    return frozenset(runs)


class Rarity:
    """Counts, for each piece, the texts of a collection that have the piece."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self.counts: Counter[str] = Counter()
        for text in texts:
            self.add(text)

    def add(self, text: str) -> None:
        """Add a text to the collection."""
        self.counts.update(pieces(text))

    def rare(self, candidates: Iterable[str]) -> frozenset[str]:
        """Return the given pieces that are rare in the collection."""
        return frozenset(piece for piece in candidates if self.counts[piece] <= COMMON)


def words(text: str) -> list[str]:
    """Return the words of a text, normalized."""
    return _words(_visible(text))


def _visible(text: str) -> str:
    """Normalize the Unicode form of a text and remove invisible characters."""
    if text.isascii():
        return text
    visible = "".join(c for c in _INVISIBLE.sub("", text) if unicodedata.category(c) != "Cf")
    return unicodedata.normalize("NFKC", visible)


def _words(text: str) -> list[str]:
    """Return the words of a visible text in lower case. In scripts without spaces, each character is a word."""
    if text.isascii():
        return re.findall("[a-z0-9]+", text.lower())
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text.casefold()).casefold())
    return "".join(map(_spaced, folded)).split()


@lru_cache(maxsize=4096)
def _spaced(character: str) -> str:
    """Return the character itself if it is part of a word, the character between spaces if it is a separate word, and a
    space if it separates words."""
    if unicodedata.category(character)[0] not in "LMN":
        return " "
    return f" {character} " if _UNSPACED.match(character) else character


@lru_cache(maxsize=65536)
def has_content(word: str) -> bool:
    """Whether a word is long enough to have content, and not a function word."""
    return len(word) > 3 and word not in _FUNCTION_WORDS


def _runs(words: list[str]) -> Iterable[str]:
    """Yield the sequences of words that are pieces."""
    content = [word for word in words if has_content(word)]
    for start in range(len(content) - CONTENT + 1):
        if len({*content[start : start + CONTENT]}) == CONTENT:
            yield " … ".join(content[start : start + CONTENT])
    is_content = [has_content(word) for word in words]
    for start in range(len(words) - WORDS + 1):
        if sum(is_content[start : start + WORDS]) > 1:
            yield " ".join(words[start : start + WORDS])
    is_unspaced = [bool(_UNSPACED.match(word)) for word in words]
    for start in range(len(words) - CHARACTERS + 1 if any(is_unspaced) else 0):
        if all(is_unspaced[start : start + CHARACTERS]):
            yield "".join(words[start : start + CHARACTERS])


def _distinctive(text: str, words: list[str]) -> Iterable[str]:
    """Yield codes, long numbers, identifiers, names and short quotations."""
    # A word that also occurs in lower case is not a name.
    lower = {*re.findall(r"\b[a-z]\w+", text)}
    names = [match.group() for match in _NAMES.finditer(text) if match.group().lower() not in lower]
    # If many words are capitalized, as in German or in headings, capitals do not identify names.
    phrases = names if len(names) <= max(2, len(words) // 8) else []
    phrases = [*phrases, *("".join(quoted) for quoted in _QUOTED.findall(text))]
    for phrase in phrases:
        parts = _words(phrase)
        if len(parts) < WORDS and any(map(has_content, parts)):
            yield " ".join(parts)
    for joined in _JOINED.findall(text):
        if joined.isalpha() and joined[1:].islower():
            continue
        parts = _words(joined)
        if len(parts) < WORDS and _is_code(joined, parts):
            yield " ".join(parts)


def _is_code(joined: str, parts: list[str]) -> bool:
    """Whether a word, or words joined without a space, look like a code, a long number that is not round, or an
    identifier."""
    numbers = [re.sub(r"\D", "", number) for number in re.findall(r"\d[\d.,]*", joined)]
    if any(len(number) > 3 and len(number.strip("0")) > 2 for number in numbers):
        return True
    content = {part for part in parts if has_content(part)}
    mixed = bool(numbers) and sum(map(str.isalpha, joined)) > 1 and sum(map(len, parts)) > 3
    return mixed or len(content) > 1 or bool(content and _CAPITALS.search(joined))
