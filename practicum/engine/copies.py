"""The copies of lessons that are reduced in several groups without a barrier (see `asynchronous`).

The groups of a lesson's copies end at different times, so their deltas are not joined. A lesson is covered when one of
its copies is covered, and counts as left out only after its last copy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

from practicum.core.edits import Add, Delta, Edit, Resolution
from practicum.core.types import Lesson


@dataclass
class Copies:
    """`held` counts the copies of each lesson that are not applied yet; `covered` are lessons of which an applied copy
    was covered.

    A lesson is removed with its last copy, so this never holds more than the groups do.
    """

    held: Counter[str] = field(default_factory=Counter)
    covered: set[str] = field(default_factory=set)

    def fresh(self, delta: Delta) -> tuple[Delta, int]:
        """The delta without additions for lessons that another copy covered, and without resolutions that name an entry
        which it deletes; and the number of removed additions.

        Other edits stay: a change of an entry may say more than the other copy's. An addition that the delta itself
        refers to stays as well.
        """
        edits = tuple(edit for edit in delta.edits if not self._repeats(edit))
        gone = delta.deleted
        resolutions = tuple(resolution for resolution in delta.resolutions if resolution.entry not in gone)
        return replace(delta, edits=edits, resolutions=resolutions), len(delta.edits) - len(edits)

    def _repeats(self, edit: Edit) -> bool:
        return isinstance(edit, Add) and not edit.ref and bool(edit.lessons) and self.covered.issuperset(edit.lessons)

    def last(self, lessons: Iterable[Lesson]) -> list[Lesson]:
        """The lessons with no other copy to come, none of whose copies was covered."""
        return [x for x in lessons if x.text and self.held[x.id] == 1 and x.id not in self.covered]

    def through(self, lessons: Sequence[Lesson], delta: Delta, asked: Collection[str]) -> tuple[Resolution, ...]:
        """Count these lessons as applied with this delta, except those `asked` about again, and return the resolutions
        that are final: a lesson is reported as dropped with its last copy, and as covered only once."""
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
