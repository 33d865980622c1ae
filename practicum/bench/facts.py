"""Facts that a context either still holds or does not: each a rule with a rare name and a number of its own.

The names are made up and the numbers random, so that no model knows them, and none can be told from another: what is
lost on the way into a context is lost for good (Combee, section 2.2: the specific, high-value entries).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from random import Random

from practicum.core.errors import UsageError

TEMPLATES = (
    "If the parcel is for the {key} depot, write bay {value} on it.",
    "If a caller asks for the {key} office, give extension {value}.",
    "If the invoice comes from {key}, book it on account {value}.",
    "If a crate is marked {key}, store it on shelf {value}.",
    "If a repair is for the {key} pump, order part {value}.",
    "If a visitor names the {key} project, hand out badge {value}.",
    "If the sample was taken at {key}, file it under number {value}.",
    "If a permit for {key} is asked for, send form {value}.",
)

BEGINNINGS = """Bram Cald Drev Elk Fenn Garr Hask Ist Jorn Kelb Lond Marn Nock Ostr Pell Quill Rav Skel Tarv Ulm Varn
Wick Yarl Zeld Brisk Corm Dunn Ferr Grim Hald"""
ENDINGS = "holt mere wick stead thorpe gate ford bury march field combe haven ness dale moor by ston rick vale worth"
NAMES = tuple(start + end for start, end in product(BEGINNINGS.split(), ENDINGS.split()))

MOST = len(NAMES)
"""Facts there can be at once."""


@dataclass(frozen=True, slots=True)
class Fact:
    """`text` is the rule; `key` the name and `value` the number in it."""

    key: str
    value: str
    text: str


def facts(count: int, seed: int = 0) -> list[Fact]:
    """So many different facts, with the templates in turn. Raises UsageError for fewer than one, or too many."""
    if not 1 <= count <= MOST:
        raise UsageError(f"{count} facts: there can be 1 to {MOST}")
    rng = Random(f"facts {seed}")
    keys = rng.sample(NAMES, count)
    values = rng.sample(range(1000, 10_000), count)
    return [
        Fact(key, str(value), TEMPLATES[n % len(TEMPLATES)].format(key=key, value=value))
        for n, (key, value) in enumerate(zip(keys, values, strict=True))
    ]


def told(known: Sequence[Fact], texts: Iterable[str]) -> dict[str, set[str]]:
    """For each key the values that the texts tell for it.

    In a text with several values a key goes with the value that follows it first or, where none does, with the last
    one before it. So a rule that lists many names and then many numbers tells hardly any of them.
    """
    values = {fact.value for fact in known}
    keys = {fact.key.casefold(): fact.key for fact in known}
    found: dict[str, set[str]] = {fact.key: set() for fact in known}
    for text in texts:
        # "4,718" is the number 4718.
        words = [(m.start(), m.group()) for m in re.finditer(r"\w+", re.sub(r"(?<=\d),(?=\d)", "", text))]
        numbers = [(at, word) for at, word in words if word in values]
        for at, word in words:
            if word.casefold() in keys and numbers:
                after = [number for where, number in numbers if where > at]
                found[keys[word.casefold()]].add(after[0] if after else numbers[-1][1])
    return found


@dataclass(frozen=True, slots=True)
class Kept:
    """How many facts can still be read, and how many only with another fact's number."""

    readable: int
    wrong: int


def kept(known: Sequence[Fact], texts: Iterable[str]) -> Kept:
    """What of these facts the entries of a context still say; a fact is readable if one entry has both its parts."""
    found = told(known, texts)
    readable = sum(fact.value in found[fact.key] for fact in known)
    wrong = sum(bool(found[fact.key]) and fact.value not in found[fact.key] for fact in known)
    return Kept(readable, wrong)
