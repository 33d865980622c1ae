"""Where learned text comes from: the sources of what the model read, as far as its words show it.

A model that is asked about one lesson has often read others, and the entries of the playbook beside them. What it
writes rests on the lessons that it names and, if it has rare words of another lesson or entry that those do not
explain, on that too. So sources follow the words: `forget` finds what was copied, and trust cannot be washed off by
copying. `core.shingles` says what is rare, and what is not found: paraphrases.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import chain
from typing import Any, TypeVar

from practicum.core.context import PAGE, Context
from practicum.core.edits import Delta, Edit, Entry, changed_entries, ordered_union
from practicum.core.shingles import COMMON, grams, pieces
from practicum.core.types import Attempt, Lesson, Task
from practicum.core.words import strings

T = TypeVar("T")

WHOLE = 5_000
"""Entries of the largest context that is compared as a whole, more than prompts usually show."""


def traced_lessons(
    lessons: Sequence[Lesson], attempts: Sequence[Attempt], context: Context, whole: bool
) -> list[Lesson]:
    """The lessons, with the sources of the entries whose rare words they have and their tasks do not explain.

    `whole` says that a reflector read the playbook. If none did, only the entries that were looked up for an attempt,
    or cited by it, are compared; if nothing was looked up, the agent was shown all.
    """
    made = [one for attempt in attempts for one in attempt.group]
    shown = {id for one in made for id, _ in one.retrieved}
    cited = {id for one in made for id in one.trace.used}
    read = _Read(context, None if whole or not shown else shown | cited)
    tasks: dict[str, list[Task]] = {}
    for one in made:
        tasks.setdefault(one.task.sources[0], []).append(one.task)
    result = []
    for lesson in lessons:
        near = (task for source in lesson.sources for task in tasks.get(source, ()))
        own = [task for task in near if {*task.sources} <= {*lesson.sources}]
        known = [text for task in own for text in (task.input, task.target or "")]
        sources = read.sources_of([lesson.text], lesson.sources, known)
        result.append(lesson if sources == lesson.sources else replace(lesson, sources=sources))
    return result


def traced(delta: Delta, lessons: Sequence[Lesson], context: Context) -> Delta:
    """The delta, with the sources of all that its edits rest on.

    An edit rests on the lessons that it names and, if it has no sources at all, on every lesson. The sources of other
    lessons and of entries that the edit does not change join, if it has rare words of them.
    """
    read = _Read(context, None, lessons)
    those = [(x, frozenset(x.sources)) for x in lessons]
    return replace(delta, edits=tuple(_traced(edit, those, read) for edit in delta.edits))


def _traced(edit: Edit, lessons: Sequence[tuple[Lesson, frozenset[str]]], read: _Read) -> Edit:
    written = [getattr(edit, name, None) for name in ("text", "key", "data")]
    if not any(written):
        return edit
    rests_on = [x for x in read.lessons if x.id in edit.lessons] or ([] if edit.sources else read.lessons)
    own = ordered_union([edit.sources, *(x.sources for x in rests_on)])
    all_own = frozenset(own)
    named = [x for x, sources in lessons if sources <= all_own]
    # What code took from a lesson as it is was looked at when the lesson was made.
    taken = {text for x in named for text in (x.text, *strings(x.data))}
    new = [text for text in strings(written) if text not in taken]
    ids = changed_entries(edit)
    known = [*(x.text for x in named), *(e.text for id in ids if (e := read.context.get(id)))]
    sources = read.sources_of(new, own, known, ids)
    return edit if sources == edit.sources else replace(edit, sources=sources)


@dataclass
class _Read:
    """What a model read: the entries of a context with these ids, or any (None) if they are few; and lessons."""

    context: Context
    ids: Collection[str] | None
    lessons: Sequence[Lesson] = ()

    def sources_of(
        self, texts: Sequence[str], own: tuple[str, ...], known: Iterable[str], ids: Collection[str] = ()
    ) -> tuple[str, ...]:
        """`own`, and the sources of whatever else has rare pieces of these texts, except entries with these ids. Pieces
        of a text that is known to be read come from there."""
        found = frozenset(chain.from_iterable(map(grams, texts)))
        if not found:
            return own
        found -= frozenset(chain.from_iterable(map(grams, known)))
        holders: dict[str, list[Lesson | Entry]] = {}
        for piece in found & self._lessons.keys():
            holders[piece] = [*self._lessons[piece]]
        for page in self._pages:
            for piece in found & page.keys():
                entries = (entry for id in page[piece] if (entry := self.context.get(id)) is not None)
                holders.setdefault(piece, []).extend(entries)
        rare = (those for _, those in sorted(holders.items()) if len(those) <= COMMON or _of_one_task(those))
        # Most hold many of the pieces.
        held = {id(x): x.sources for those in rare for x in those if x.id not in ids}
        return ordered_union([own, *held.values()])

    @cached_property
    def _lessons(self) -> Mapping[str, Sequence[Lesson]]:
        return _by_piece((x, x.text, x.data) for x in self.lessons)

    @cached_property
    def _pages(self) -> Sequence[Mapping[str, Sequence[str]]]:
        """The ids of the entries that have a piece, by page."""
        if self.ids is not None:
            return [_ids_by_piece(entry for id in sorted(self.ids) if (entry := self.context.get(id)) is not None)]
        return [page.rendered(_ids_by_piece) for page in self.context.pages] if len(self.context) <= WHOLE else []


def _ids_by_piece(entries: Iterable[Entry]) -> Mapping[str, Sequence[str]]:
    # Sources are not kept here: they change while the words stay.
    return _by_piece((entry.id, entry.text, entry.data) for entry in entries)


def _by_piece(items: Iterable[tuple[T, str, Mapping[str, Any]]]) -> dict[str, list[T]]:
    found: dict[str, list[T]] = {}
    for item, text, data in items:
        for piece in frozenset(chain.from_iterable(map(_pieces, {text, *strings(data)}))):
            found.setdefault(piece, []).append(item)
    return found


# An edit changes a page, and nearly all texts of the page stay.
_pieces = lru_cache(maxsize=4 * PAGE)(pieces)


def _of_one_task(holders: Sequence[Lesson | Entry]) -> bool:
    """Whether all rest on the same task: words that are in many texts because they were copied are not common."""
    first, *others = holders
    tasks = {source for source in first.sources if source.startswith("task:")}
    for other in others:
        # Most have none in common with the second.
        if not tasks:
            return False
        tasks.intersection_update(other.sources)
    return bool(tasks)
