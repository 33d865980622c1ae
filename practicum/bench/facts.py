"""Facts that a context either still holds or does not: each is a rule with a rare name and a number of its own.

The names are made up and the numbers random, so that no model knows them and none follows from another: what is lost
on the way into a context is lost for good (Combee, section 2.2: specific, high-value entries).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from random import Random
from typing import NamedTuple

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

MAX_FACTS = len(NAMES)


@dataclass(frozen=True, slots=True)
class Fact:
    """`text` is the rule; `key` the name and `value` the number in it."""

    key: str
    value: str
    text: str


def make_facts(count: int, seed: int = 0) -> list[Fact]:
    """Distinct facts, from each template in turn. Raises UsageError unless `count` is from 1 to MAX_FACTS."""
    if not 1 <= count <= MAX_FACTS:
        raise UsageError("settings.invalid", f"{count} facts: the number must be from 1 to {MAX_FACTS}")
    rng = Random(f"facts {seed}")
    keys = rng.sample(NAMES, count)
    values = rng.sample(range(1000, 10_000), count)
    return [
        Fact(key, str(value), TEMPLATES[n % len(TEMPLATES)].format(key=key, value=value))
        for n, (key, value) in enumerate(zip(keys, values, strict=True))
    ]


class FactCount(NamedTuple):
    """The number of facts that can still be read, and of those that stand only with another fact's number."""

    readable: int
    wrong: int


def count_facts(facts: Sequence[Fact], texts: Iterable[str]) -> FactCount:
    """Count the facts that the entries' texts still hold. A fact is readable if one text has both its parts.

    If a text has several values, a key goes with the first value after it, or else with the last one before it. So a
    rule that lists many names and then many numbers states hardly any of them.
    """
    values = {fact.value for fact in facts}
    keys = {fact.key.casefold(): fact.key for fact in facts}
    stated: dict[str, set[str]] = {fact.key: set() for fact in facts}
    for text in texts:
        # "4,718" is the number 4718.
        words = [(m.start(), m.group()) for m in re.finditer(r"\w+", re.sub(r"(?<=\d),(?=\d)", "", text))]
        numbers = [(position, word) for position, word in words if word in values]
        for position, word in words:
            if word.casefold() in keys and numbers:
                after = [number for where, number in numbers if where > position]
                stated[keys[word.casefold()]].add(after[0] if after else numbers[-1][1])
    readable = sum(fact.value in stated[fact.key] for fact in facts)
    return FactCount(readable, sum(map(bool, stated.values())) - readable)
