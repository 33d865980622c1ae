"""The particulars of a text, as far as code can tell: numbers, names, identifiers, quotations. An embedding hardly
reflects them, and a weak model changes them without noticing, but a rule is worth nothing without them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from practicum.tasks.scoring.rules import named_choices

_PARTICULAR = re.compile(
    r"""`[^`]+` | "[^"]+"                                                          # quotations
    | (?<!\w) \w*\d (?: [\w.,:/%-]*\w )? (?!\w)                                      # numbers and codes
    | (?<!\w) (?: \w+_\w+ | [A-Z]{2,} | [a-z]+[A-Z]\w* ) (?!\w)                     # identifiers, abbreviations
    | (?<=[a-z,;:][ ]) [A-Z][a-z][\w-]+                                             # names within a sentence
    """,
    re.VERBOSE,
)
_NOT = re.compile(r"\b(?:not|never|no|nor|cannot|without|avoid)\b|n't\b", re.IGNORECASE)


def particulars(text: str) -> frozenset[str]:
    """The numbers, names, identifiers and quotations in a text, in lower case."""
    return frozenset(found.strip('`"').casefold() for found in _PARTICULAR.findall(text))


def lost(of: str, by: str) -> frozenset[str]:
    """The particulars of one text that another does not have."""
    other = by.casefold()
    return frozenset(p for p in particulars(of) if not _contains(other, p))


def _contains(text: str, particular: str) -> bool:
    """Whether a text has this particular, not as a part of a word or number. A compiled pattern for each particular
    would take five times as long."""
    at = text.find(particular)
    while at >= 0:
        before, after = text[at - 1 : at], text[at + len(particular) :][:1]
        if not (_in_word(before) or before in (".", ",") or _in_word(after)):
            return True
        at = text.find(particular, at + 1)
    return False


def _in_word(character: str) -> bool:
    return character.isalnum() or character == "_"


def answers_named(text: str, choices: Sequence[str]) -> frozenset[str]:
    """The possible answers that a text names, as whole words; the article "a" is not the answer A."""
    return frozenset(named_choices(choices, text)) if choices else frozenset()


def tell_apart(one: str, other: str, choices: Sequence[str] = ()) -> bool:
    """Whether two similar texts differ in a particular, in the possible answers that they name, or in a negation."""
    if one == other:
        return False
    if lost(one, other) or lost(other, one):
        return True
    negated = bool(_NOT.search(one)) != bool(_NOT.search(other))
    return negated or answers_named(one, choices) != answers_named(other, choices)
