"""Parallel scan aggregation: many lessons become one delta without any one model call having to read them all
(Combee, sections 3.1 and 3.2).

The lessons are copied, dealt into groups, and each group goes through the wrapped update by itself, all at once; then
the deltas of the groups are joined (see `join`). Any update can be wrapped: edits of a playbook, appended memories, a
rewritten prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import isqrt
from random import Random
from typing import Literal

from practicum.blocks.update.append import votes
from practicum.blocks.update.join import Join
from practicum.core.context import Context
from practicum.core.counts import Count
from practicum.core.edits import Delta
from practicum.core.types import Lesson
from practicum.engine.loop import UpdateSeam
from practicum.engine.run import Run

Shuffle = Literal["stratified", "random"]

FEW = 4
"""Fewer lessons than this are one plain update."""


@dataclass(frozen=True, kw_only=True)
class Dealing:
    """How n lessons are dealt into groups.

    `groups` is a number, or "sqrt" for the square root of n; each lesson is copied `copies` times. `fan_in` is the
    most lessons a group may have: where the groups would be larger, there are more of them; None sets no bound. Raises
    ValueError for what cannot be.
    """

    groups: int | Literal["sqrt"] = "sqrt"
    copies: int = 2
    shuffle: Shuffle = "stratified"
    fan_in: int | None = 20

    def __post_init__(self) -> None:
        groups = self.copies if self.groups == "sqrt" else self.groups
        fan_in = self.copies if self.fan_in is None else self.fan_in
        if not 1 <= self.copies <= min(groups, fan_in):
            raise ValueError("copies must be at least 1, and at most as many as the groups and as fan_in")

    def count(self, n: int) -> int:
        """Number of groups for n lessons, between 1 and n."""
        k = isqrt(n) if self.groups == "sqrt" else min(self.groups, n)
        if self.fan_in is not None:
            # Each copy of the lessons fills the groups evenly, so a group has `copies` times n / k of them, rounded up.
            k = max(k, -(-n // max(self.fan_in // self.copies, 1)))
        return max(min(k, n), 1)

    def size(self, n: int) -> int:
        """Most lessons in a group, where n of them are dealt."""
        k = self.count(n)
        return -(-n * self.copies // k) if self.shuffle == "random" else min(self.copies, k) * -(-n // k)

    def deal(self, n: int, rng: Random) -> list[list[int]]:
        """Groups of lesson numbers, in linear time; lesson i is in `copies` groups (in each once, if stratified)."""
        k = self.count(n)
        if self.shuffle == "random":
            pool = [i for i in range(n) for _ in range(self.copies)]
            rng.shuffle(pool)
            return [pool[g::k] for g in range(k)]
        copies = min(self.copies, k)
        order = list(range(n))
        rng.shuffle(order)
        groups: list[list[int]] = [[] for _ in range(k)]
        for start in range(0, n, k):
            # A row of k lessons lands once in each group per copy. The rows are turned by different amounts, so that
            # the copies of a lesson have other neighbours than it has.
            turns = [0, *rng.sample(range(1, k), copies - 1)]
            for column, lesson in enumerate(order[start : start + k]):
                for turn in turns:
                    groups[(column + turn) % k].append(lesson)
        return groups


def scan(update: UpdateSeam, dealing: Dealing, join: Join) -> UpdateSeam:
    """`update` on groups of lessons, all at once, and `join` of what they give.

    Votes are counted once for each lesson, before it is copied. Fewer than four lessons are one plain update.
    """

    async def wrapped(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        silent = [replace(lesson, votes={}) for lesson in lessons if lesson.text]
        if len(silent) < FEW:
            return await update(lessons, context, run)
        _tell(dealing, len(silent), run)
        groups = dealing.deal(len(silent), run.rng("shuffle"))
        jobs = [(f"group {g}", partial(update, [silent[i] for i in group], context)) for g, group in enumerate(groups)]
        deltas = await run.gather(jobs)
        return votes(lessons) + await join(deltas, context, run.at("join"))

    return wrapped


def _tell(dealing: Dealing, n: int, run: Run) -> None:
    """Count where a batch could not be dealt as was asked for."""
    k = dealing.count(n)
    asked = k if dealing.groups == "sqrt" else dealing.groups
    run.count(Count.GROUPS_LOWERED, asked > k)
    run.count(Count.GROUPS_RAISED, asked < k)
    run.count(Count.COPIES_LOWERED, dealing.shuffle == "stratified" and dealing.copies > k)
