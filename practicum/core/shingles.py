"""What a text says in words that hardly any other text has: by that, a text is recognized in another one.

`pieces` are what a text is recognized by: three content words in a row, five words in a row, and what stands out by
itself (a code, a long number, an identifier, a name, a short quotation). `grams` is all in which a piece of another
text could be found. Both ignore case, spaces, punctuation, invisible characters and the form of Unicode. A piece that
many texts have says nothing about any of them: `Rarity` counts.

What is not found: a paraphrase; a translation; one or two ordinary words ("swordfish"), unless they are quoted,
capitalized or joined by a hyphen; letters replaced by others that look alike; and five words in a row in a language
without spaces, where six characters count.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from itertools import accumulate

WORDS = 5
"""Words in a row, with at least two content words among them, that are a piece."""

CONTENT = 3
"""Content words in a row, whatever stands between them, that are a piece."""

CHARACTERS = 6
"""Characters in a row that are a piece in a script without spaces."""

COMMON = 4
"""A piece that more texts of a collection have is common there."""

_FUNCTION = """\
about above after again against also always another approach avoid because been before being below between both cannot
could does doing done down during each either else even ever every failed false first five four from have having hence
here hers herself himself however instead into itself just last least less like many might more most much must myself
neither never next none null only onto other ought ours ourselves over rather same second shall should since some
successful such than that their theirs them themselves then there therefore these they third this those though three
through thus together true under unless until upon very were what whatever when where whether which while whom whose
will with within without would your yours yourself zero"""
"""English words of four letters and more that carry no content, or that we write ourselves before what was learned
("Successful approach: ..."). Shorter words count as such in any language."""
_FUNCTION_WORDS = frozenset(_FUNCTION.split())

# Characters that show nothing, beside those of the category Cf, and that would cut a word in two.
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
    """What this text is recognized by, normalized."""
    text = _visible(text)
    words = _words(text)
    return frozenset((*_runs(words), *_standing_out(text, words)))


def grams(text: str) -> frozenset[str]:
    """All in which a piece can be found: every run of up to five words, and the runs that are pieces themselves."""
    said = words(text)
    found = set(_runs(said))
    for at in range(len(said)):
        found.update(accumulate(said[at : at + WORDS], "{} {}".format))
    return frozenset(found)


class Rarity:
    """How many texts of a collection have a piece."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self.counts: Counter[str] = Counter()
        for text in texts:
            self.add(text)

    def add(self, text: str) -> None:
        """Count one more text."""
        self.counts.update(pieces(text))

    def rare(self, found: Iterable[str]) -> frozenset[str]:
        """Those of some pieces that are not common in the collection."""
        return frozenset(piece for piece in found if self.counts[piece] <= COMMON)


def words(text: str) -> list[str]:
    """The words of a text, normalized."""
    return _words(_visible(text))


def _visible(text: str) -> str:
    """The text in one form of Unicode, without invisible characters."""
    if text.isascii():
        return text
    kept = "".join(c for c in _INVISIBLE.sub("", text) if unicodedata.category(c) != "Cf")
    return unicodedata.normalize("NFKC", kept)


def _words(text: str) -> list[str]:
    """The words of a visible text in lower case; in scripts without spaces each character is one."""
    if text.isascii():
        return re.findall("[a-z0-9]+", text.lower())
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text.casefold()).casefold())
    return "".join(map(_spaced, folded)).split()


@lru_cache(maxsize=4096)
def _spaced(character: str) -> str:
    """A character as a part of a word, as a word of its own, or as a space between words."""
    if unicodedata.category(character)[0] not in "LMN":
        return " "
    return f" {character} " if _UNSPACED.match(character) else character


@lru_cache(maxsize=65536)
def has_content(word: str) -> bool:
    """Whether a word is long enough to say something, and none that any text may have."""
    return len(word) > 3 and word not in _FUNCTION_WORDS


def _runs(words: list[str]) -> Iterable[str]:
    """The runs of words that are pieces."""
    content = [word for word in words if has_content(word)]
    for at in range(len(content) - CONTENT + 1):
        if len({*content[at : at + CONTENT]}) == CONTENT:
            yield " … ".join(content[at : at + CONTENT])
    telling = [has_content(word) for word in words]
    for at in range(len(words) - WORDS + 1):
        if sum(telling[at : at + WORDS]) > 1:
            yield " ".join(words[at : at + WORDS])
    unspaced = [bool(_UNSPACED.match(word)) for word in words]
    for at in range(len(words) - CHARACTERS + 1 if any(unspaced) else 0):
        if all(unspaced[at : at + CHARACTERS]):
            yield "".join(words[at : at + CHARACTERS])


def _standing_out(text: str, words: list[str]) -> Iterable[str]:
    """Codes, long numbers, identifiers, names and short quotations."""
    # A word that the text has in lower case too is no name.
    lower = {*re.findall(r"\b[a-z]\w+", text)}
    names = [found.group() for found in _NAMES.finditer(text) if found.group().lower() not in lower]
    # Where many words are capitalized, as in German or in headings, capitals tell nothing.
    found = names if len(names) <= max(2, len(words) // 8) else []
    found = [*found, *("".join(quoted) for quoted in _QUOTED.findall(text))]
    for some in found:
        parts = _words(some)
        if len(parts) < WORDS and any(map(has_content, parts)):
            yield " ".join(parts)
    for joined in _JOINED.findall(text):
        if joined.isalpha() and joined[1:].islower():
            continue
        parts = _words(joined)
        if len(parts) < WORDS and _is_code(joined, parts):
            yield " ".join(parts)


def _is_code(joined: str, parts: list[str]) -> bool:
    """Whether a word, or words that are joined without a space, looks like a code, a long number that is not round, or
    an identifier."""
    numbers = [re.sub(r"\D", "", number) for number in re.findall(r"\d[\d.,]*", joined)]
    if any(len(number) > 3 and len(number.strip("0")) > 2 for number in numbers):
        return True
    content = {part for part in parts if has_content(part)}
    mixed = bool(numbers) and sum(map(str.isalpha, joined)) > 1 and sum(map(len, parts)) > 3
    return mixed or len(content) > 1 or bool(content and _CAPITALS.search(joined))
