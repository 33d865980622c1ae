"""Numbers with their nouns: 1 call, 2 calls, 3 entries."""

from __future__ import annotations

import re


def quantity(number: int, noun: str) -> str:
    """A number of things, such as `1 call` and `1,200 entries`. `noun` is the singular, and its last word changes."""
    if number == 1:
        return f"1 {noun}"
    if re.search("[^aeiou]y$", noun):
        noun = noun[:-1] + "ie"
    elif noun.endswith(("s", "x", "ch", "sh")):
        noun += "e"
    return f"{number:,} {noun}s"


def in_number(number: int, text: str) -> str:
    """A text whose `[one|many]` parts agree with a number: `answer[|s] cut` is `answer cut` or `answers cut`."""
    return re.sub(r"\[([^|\]]*)\|([^\]]*)\]", r"\1" if number == 1 else r"\2", text)
