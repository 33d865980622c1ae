"""How far the origin of something can be trusted.

Trust travels among the sources of everything that is learned, as a marker such as "trust:foreign". So every lesson,
edit, entry and journal row that rests on a source has its trust, and nothing has to pass it on. What has no marker is
the operator's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, get_args

Trust = Literal["own", "labelled", "tool", "user", "foreign"]
"""Where something comes from, the most trusted first.

own: the operator, such as a task file that a command names. labelled: somebody else, but its scores and right answers
are the operator's. tool: what tools and pages returned to an agent. user: what end users said. foreign: traces that
somebody else recorded.
"""

Review = Literal["none", "foreign", "all"]
"""Which edits wait: none; those from less than own sources and those that are flagged; or all that change a text."""

LEVELS: tuple[Trust, ...] = get_args(Trust)

ORIGIN: Mapping[Trust, str] = {
    "own": "your own tasks", "labelled": "tasks of somebody else, with your labels",
    "tool": "what tools returned", "user": "what end users said", "foreign": "what somebody else wrote or recorded",
}  # fmt: skip
"""The sources of a level, in words."""

MARK = "trust:"


def markers(*levels: Trust) -> tuple[str, ...]:
    """The sources that say so, each once; none for the operator's own."""
    return tuple(dict.fromkeys(f"{MARK}{level}" for level in levels if level != "own"))


def least(*levels: Trust) -> Trust:
    """The least trusted of these."""
    return max(levels, key=LEVELS.index)


def trust_of(sources: Iterable[str]) -> Trust:
    """The least trust among these sources. A marker that is unknown here counts as foreign."""
    found = [source.removeprefix(MARK) for source in sources if source.startswith(MARK)]
    return least("own", *(next((level for level in LEVELS if level == name), LEVELS[-1]) for name in found))
