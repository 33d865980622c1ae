"""Parallel scan aggregation: many reflections become one delta, and no model call has to read them all (Combee,
sections 3.1 and 3.2).

The reflections, each with all its lessons, are copied and dealt into groups; each group goes through the wrapped
update, all at once; then the deltas of the groups are joined (see `join`). Any update can be wrapped: edits of a
playbook, appended memories, a rewritten prompt.
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
from practicum.engine.loop import UpdateSeam, by_reflection
from practicum.engine.run import Run

Shuffle = Literal["stratified", "random"]

FEW = 4
"""Fewer lessons than this are one plain update."""


@dataclass(frozen=True, kw_only=True)
class Dealing:
    """How n lessons are dealt into groups.

    `groups` is a number, or "sqrt" for the square root of n; each lesson goes to `copies` groups. `fan_in` is the most
    lessons of a group (None: no limit): if groups would be larger, there are more of them. Raises ValueError if
    `copies` does not fit.
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
        """The most lessons in a group if n of them are dealt."""
        k = self.count(n)
        return -(-n * self.copies // k) if self.shuffle == "random" else min(self.copies, k) * -(-n // k)

    def deal(self, n: int, rng: Random) -> list[list[int]]:
        """Groups of lesson numbers, in linear time. If stratified, a lesson is in a group at most once."""
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
            # Each copy of a row of k lessons puts one into each group. The copies are shifted by different amounts, so
            # that they meet other neighbours.
            shifts = [0, *rng.sample(range(1, k), copies - 1)]
            for column, lesson in enumerate(order[start : start + k]):
                for shift in shifts:
                    groups[(column + shift) % k].append(lesson)
        return groups


def scan(update: UpdateSeam, dealing: Dealing, join: Join) -> UpdateSeam:
    """`update` on groups of reflections, all at once, and `join` of their deltas. Votes are counted once for each
    reflection, before it is copied. Fewer than four reflections are one plain update."""

    async def wrapped(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        reflections = by_reflection(replace(lesson, votes={}) for lesson in lessons if lesson.text)
        if len(reflections) < FEW:
            return await update(lessons, context, run)
        k = dealing.count(len(reflections))
        asked = k if dealing.groups == "sqrt" else dealing.groups
        run.count(Count.GROUPS_LOWERED, asked > k)
        run.count(Count.GROUPS_RAISED, asked < k)
        run.count(Count.COPIES_LOWERED, dealing.shuffle == "stratified" and dealing.copies > k)
        dealt = dealing.deal(len(reflections), run.rng("shuffle"))
        groups = [[lesson for i in group for lesson in reflections[i]] for group in dealt]
        jobs = [(f"group {g}", partial(update, group, context)) for g, group in enumerate(groups)]
        return votes(lessons) + await join(await run.gather(jobs), context, run.at("join"))

    return wrapped
