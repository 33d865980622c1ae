"""The sections of a run's playbook: the user's own, or a set that fits any task.

The reflector and the curator read the list, with a description of each section, and name one for every entry.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from practicum.core.context import Context
from practicum.core.counts import Count
from practicum.core.types import Profile
from practicum.engine.run import Run

FULL = {
    "strategies": "how to go about a kind of task, in order, and when to do otherwise",
    "facts and formulas": "what is true in this domain, definitions, and how to compute something",
    "tools and formats": "how tools and interfaces are called, what they return, and the form of answers",
    "code": "code that can be used again as it is",
    "pitfalls": "mistakes that are easily made, how to notice them, and what to do instead",
    "checks": "what to verify before an answer is given",
}
"""The sections of capable models, with what belongs there."""

SMALL = {"rules": ""}
"""The one section of small models, and of runs from before sections were a setting."""


def default_sections(profile: Profile, seed: Context | None = None) -> dict[str, str]:
    """The sections of a run whose user names none. Capable models have those of the context that the run starts from
    first."""
    if profile == "small":
        return SMALL
    named = {_plain(name): text for name, text in FULL.items()}
    there = {e.section: named.get(_plain(e.section), "") for e in seed or () if not e.hidden}
    names = set(map(_plain, there))
    return there | {name: text for name, text in FULL.items() if _plain(name) not in names}


def parse_sections(lines: Iterable[str]) -> dict[str, str]:
    """Sections from lines of the form "name" or "name: description"; blank lines are left out.

    Raises ValueError if a name is empty, has no letter or digit, begins with a dot, or is there twice.
    """
    found: dict[str, str] = {}
    for line in filter(str.strip, lines):
        name, _, description = (part.strip() for part in line.partition(":"))
        if not _plain(name) or name.startswith("."):
            raise ValueError(f"{line.strip()!r} names no section: write NAME or NAME: DESCRIPTION")
        if _plain(name) in map(_plain, found):
            raise ValueError(f"the section {name!r} is there twice")
        found[name] = " ".join(description.split())
    return found


def section_of(name: str, run: Run) -> str:
    """The section of the run that a model means by `name`.

    Case, punctuation, plurals and missing words do not matter ("Strategy", "2. formulas"). A name that fits no section,
    or several, is counted and stands for the first section, as does an empty name.
    """
    same = [section for section in run.sections if _plain(section) == _plain(name)]
    words = _stems(name)
    near = [section for section in run.sections if words and (words <= _stems(section) or _stems(section) <= words)]
    if len(found := same or near) == 1:
        return found[0]
    run.count(Count.UNKNOWN_SECTIONS, bool(name.strip()))
    return next(iter(run.sections))


def described(run: Run) -> str:
    """The sections as prompts list them, one a line."""
    return "\n".join(f"- {name}: {text}" if text else f"- {name}" for name, text in run.sections.items())


def _plain(name: str) -> str:
    """The letters and digits of a name, in lower case, as words. A number at its beginning counts where it is all."""
    words = re.findall(r"[^\W_]+", name.casefold().replace("&", " and "))
    return " ".join(words[1:] if len(words) > 1 and words[0].isdigit() else words)


def _stems(name: str) -> frozenset[str]:
    """The words of a name without the endings of plurals."""
    return frozenset(re.sub(r"(?<=\w\w)(?:ies|y|s)$", "", word) for word in _plain(name).split() if word != "and")
