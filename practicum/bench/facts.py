"""Facts to count in a context. Each fact is a rule with a rare name and a unique number.

The names are invented and the numbers random. So no model knows a fact or can derive it from other facts, and a fact
that an update loses cannot be recovered (Combee, section 2.2: specific, high-value entries).
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
    """Rule with a name and a number. `text`: the rule. `key`: the name in the rule. `value`: the number in the rule."""

    key: str
    value: str
    text: str


def make_facts(count: int, seed: int = 0) -> list[Fact]:
    """Make distinct facts from the templates in turn. Raise UsageError unless `count` is from 1 to MAX_FACTS."""
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
    """Counts of facts in a context. `readable`: facts whose name is stated with the right number. `wrong`: facts whose
    name is stated only with the number of another fact."""

    readable: int
    wrong: int


def count_facts(facts: Sequence[Fact], texts: Iterable[str]) -> FactCount:
    """Count the facts that the texts of entries state. A fact is readable if a text pairs the key of the fact with the
    value of the fact.

    If a text has several values, a key is paired with the first value after the key or, without such a value, with the
    last value of the text. So a rule that lists many names and then many numbers states almost none of the facts.
    """
    values = {fact.value for fact in facts}
    keys = {fact.key.casefold(): fact.key for fact in facts}
    stated: dict[str, set[str]] = {fact.key: set() for fact in facts}
    for text in texts:
        # Read "4,718" as the number 4718.
        words = [(m.start(), m.group()) for m in re.finditer(r"\w+", re.sub(r"(?<=\d),(?=\d)", "", text))]
        numbers = [(position, word) for position, word in words if word in values]
        for position, word in words:
            if word.casefold() in keys and numbers:
                after = [number for where, number in numbers if where > position]
                stated[keys[word.casefold()]].add(after[0] if after else numbers[-1][1])
    readable = sum(fact.value in stated[fact.key] for fact in facts)
    return FactCount(readable, sum(map(bool, stated.values())) - readable)
