"""Trust levels of origins.

A trust level is stored as a marker, such as "trust:foreign", among the sources of learned data. Markers are passed on
together with the other sources, so every lesson, edit, entry and journal row that depends on a source has the trust
level of that source, without further code. Without a marker, the level is "own".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, get_args

Trust = Literal["own", "labelled", "tool", "user", "foreign"]
"""Trust level of an origin, most trusted first.

own: the operator, for example a task file that a command names. labelled: tasks from others, with the operator's scores
and right answers. tool: output of tools and web pages. user: messages of end users. foreign: traces recorded by others.
"""

Review = Literal["none", "foreign", "all"]
"""Edits that wait for review. none: no edits. foreign: edits from sources with a level below "own", and flagged edits.
all: also all edits that were learned from own sources."""

LEVELS: tuple[Trust, ...] = get_args(Trust)

ORIGIN: Mapping[Trust, str] = {
    "own": "your own tasks", "labelled": "tasks from others, with your labels",
    "tool": "output of tools", "user": "messages of end users", "foreign": "text that others wrote or recorded",
}  # fmt: skip
"""Description of the sources that have a trust level, by level."""

MARK = "trust:"


def markers(*levels: Trust) -> tuple[str, ...]:
    """Return the sources that mark these levels, without duplicates; "own" has no marker."""
    return tuple(dict.fromkeys(f"{MARK}{level}" for level in levels if level != "own"))


def least(*levels: Trust) -> Trust:
    """Return the least trusted of these levels."""
    return max(levels, key=LEVELS.index)


def trust_of(sources: Iterable[str]) -> Trust:
    """Return the lowest trust level among the sources. An unknown marker counts as foreign."""
    names = [source.removeprefix(MARK) for source in sources if source.startswith(MARK)]
    return least("own", *(next((level for level in LEVELS if level == name), LEVELS[-1]) for name in names))
