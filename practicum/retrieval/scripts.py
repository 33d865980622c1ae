"""Measures whether an embedder distinguishes the texts of a language. Texts that the embedder does not distinguish are
compared by their words.

An embedder that does not support a script gives all texts in that script nearly the same vector: the median similarity
of unrelated Greek sentences is 0.87 with `wordllama` and 0.98 with `granite`. A threshold measured on English then
merges unrelated texts.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b

import numpy as np
import regex

from practicum.core.shingles import words
from practicum.retrieval.words import STOP_WORDS

HEADROOM = 0.75
"""Texts of a language are compared by their vectors if (threshold - median) / (1 - median) is at least this. `median`
is the median similarity of two texts of the language. The value was chosen on five languages and tested on eleven other
languages (bench/languages_bench.py); for English, the ratio is 0.79 with `wordllama` and 0.82 with `granite`."""

FEWEST, MOST = 3, 64
"""Minimum and maximum number of texts of a language by which the language is measured."""

SHARE, MARKED = 0.1, 0.02
"""A text counts as text of another script if more than SHARE of its letters are not Latin, otherwise as "LATIN" if
more than MARKED of its letters are Latin letters beyond ASCII."""

ENGLISH = 0.15
"""ASCII texts count as English if at least this fraction of their words are English function words."""


def script(text: str) -> str:
    """Return the script of a text, from the Unicode names of its letters, such as "GREEK"; "KANA" for Japanese, "LATIN"
    for Latin letters beyond ASCII, and empty for ASCII letters."""
    if text.isascii():
        return ""
    letters = Counter(_script(letter) for letter in text if letter.isalpha())
    total, marked = letters.total(), letters.pop("LATIN", 0)
    letters.pop("", 0)
    if letters.total() > SHARE * total:
        return "KANA" if "KANA" in letters else letters.most_common(1)[0][0]
    return "LATIN" if marked > MARKED * total else ""


@lru_cache(maxsize=2**14)
def _script(letter: str) -> str:
    if letter.isascii():
        return ""
    name = unicodedata.name(letter, "OTHER").split()[0]
    return "KANA" if name in ("HIRAGANA", "KATAKANA") else name


def _groups(texts: Sequence[str]) -> dict[str, list[int]]:
    """Return the positions of the texts by script. English texts are left out, because the thresholds were measured on
    English texts."""
    rows: dict[str, list[int]] = {}
    for row, text in enumerate(texts):
        rows.setdefault(script(text), []).append(row)
    plain_rows = rows.pop("", [])
    sample = [word for row in _some(plain_rows) for word in words(texts[row]) if word.isalpha()]
    if sample and sum(word in STOP_WORDS for word in sample) < ENGLISH * len(sample):
        rows.setdefault("LATIN", []).extend(plain_rows)
    return rows


def _some(rows: Sequence[int]) -> Sequence[int]:
    return rows[:: -(-len(rows) // MOST) or 1]


def undistinguished(texts: Sequence[str], vectors: np.ndarray, threshold: float) -> tuple[np.ndarray, np.ndarray]:
    """Return two masks of shape (n,). The first marks all texts that must not be compared by their vectors: either the
    median similarity of their language is close to the threshold, or their language has too few texts for a
    measurement. The second mask marks, among these texts, only the texts whose language was measured. `vectors` has
    shape (n, d), with rows of unit length."""
    unknown, blind = np.zeros(len(texts), dtype=bool), np.zeros(len(texts), dtype=bool)
    for rows in _groups(texts).values():
        if len(rows) < FEWEST:
            unknown[rows] = True
            continue
        sample = vectors[_some(rows)]
        usual = float(np.median((sample @ sample.T)[np.triu_indices(len(sample), 1)]))
        if threshold - usual < HEADROOM * (1 - usual) or usual >= 1:
            unknown[rows] = blind[rows] = True
    return unknown, blind


def alike(texts: Sequence[str], vectors: np.ndarray, n: int, threshold: float) -> np.ndarray:
    """Compare each of the first n texts with each of the other texts. Return the mask of similar pairs, shape (n,
    len(texts) - n). Two texts are similar if they have the same words in the same order or, provided that the vectors
    distinguish texts of their languages, if their vectors are similar."""
    unknown, _ = undistinguished(texts, vectors, threshold)
    digests = np.array([words_digest(text) for text in texts], dtype=object)
    same_words = digests[:n, None] == digests[None, n:]
    by_vectors = (vectors[:n] @ vectors[n:].T >= threshold) & ~unknown[:n, None] & ~unknown[None, n:]
    similar: np.ndarray = same_words | by_vectors
    return similar


_WORD = regex.compile(
    r"""[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]     # scripts without spaces
    | (?<![\p{L}\p{N}])[-−](?=\p{N})                                             # the sign of a number
    | \p{N}+ (?: [.,:] \p{N}+ )*
    | [\p{L}\p{M}]+
    | [\p{S}%‰#&*@/\\]""",
    regex.VERBOSE,
)


@lru_cache(maxsize=2**17)
def words_digest(text: str) -> bytes:
    """Return a digest of the words of a text in order, without case and punctuation, but with symbols and the signs of
    numbers. In scripts without spaces, each character is a word."""
    words = _WORD.findall(unicodedata.normalize("NFKC", text).casefold())
    return blake2b("\n".join(words).encode("utf-8", "replace"), digest_size=16).digest()


def shared_characters(left: str, right: str) -> float:
    """Return the fraction of character n-grams that two texts share, from 0 to 1 (Dice's coefficient). An n-gram has
    two characters in scripts without spaces, and three characters in other scripts."""
    size = 2 if {script(left), script(right)} & {"CJK", "KANA", "HANGUL", "THAI", "LAO", "KHMER", "MYANMAR"} else 3
    texts = (" ".join(unicodedata.normalize("NFKC", text).casefold().split()) for text in (left, right))
    first, second = ({text[n : n + size] for n in range(len(text) - size + 1)} for text in texts)
    return 2 * len(first & second) / (len(first) + len(second) or 1)
