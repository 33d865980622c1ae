"""Copies of a lesson that come through one by one, and what becomes of the lesson over all of them.

Without a barrier (see `asynchronous`) the groups of a lesson's copies end at different times, so that nothing joins
their deltas. A lesson that one copy covered is covered; nothing is said of its being left out before the last copy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

from practicum.core.edits import Add, Delta, Edit, Resolution
from practicum.core.types import Lesson


@dataclass
class Copies:
    """`held`: copies of each lesson that have not come through; `covered`: lessons that one which has did cover.

    A lesson is forgotten with its last copy, so this holds no more than what is in the groups.
    """

    held: Counter[str] = field(default_factory=Counter)
    covered: set[str] = field(default_factory=set)

    def fresh(self, delta: Delta) -> tuple[Delta, int]:
        """A delta without what another copy said before it, and how many additions that were; and without
        resolutions that rest on an entry it deletes.

        As where groups are joined, only additions are the same as another's: a change of an entry, made with that in
        view, may say more. One that the delta itself speaks of stays, or what it says of it would be about nothing.
        """
        edits = tuple(edit for edit in delta.edits if not self._said(edit))
        gone = delta.deleted
        resolutions = tuple(resolution for resolution in delta.resolutions if resolution.entry not in gone)
        return replace(delta, edits=edits, resolutions=resolutions), len(delta.edits) - len(edits)

    def _said(self, edit: Edit) -> bool:
        return isinstance(edit, Add) and not edit.ref and bool(edit.lessons) and self.covered.issuperset(edit.lessons)

    def last(self, lessons: Iterable[Lesson]) -> list[Lesson]:
        """Those of which no other copy is to come, and none covered them."""
        return [x for x in lessons if x.text and self.held[x.id] == 1 and x.id not in self.covered]

    def through(self, lessons: Sequence[Lesson], delta: Delta, asked: Collection[str]) -> tuple[Resolution, ...]:
        """These came through with this delta, and those `asked` about again are still to come: the resolutions that
        can be told. That a lesson was dropped is told with its last copy; one that was covered needs no word."""
        covered = delta.covered
        pending = {x.id for x in lessons if self.held[x.id] > 1} | {*asked} | covered
        new = [resolution for resolution in delta.resolutions if resolution.lesson not in self.covered]
        resolutions = tuple(
            resolution
            for resolution in new
            if (resolution.entry and resolution.lesson in covered) or resolution.lesson not in pending
        )
        for lesson in lessons:
            if lesson.text and lesson.id not in asked:
                self.held[lesson.id] -= 1
            if lesson.id in covered:
                self.covered.add(lesson.id)
            if not self.held[lesson.id]:
                del self.held[lesson.id]
                self.covered.discard(lesson.id)
        return resolutions
