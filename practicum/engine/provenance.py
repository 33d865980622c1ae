"""Provenance of learned text. The sources of a text that a model wrote are inferred from words that the text shares
with texts that the model read.

A model that is asked about one lesson has often read other lessons and the entries of the playbook. The model's edit
depends on the lessons that the edit names. If the edit also has rare words of a lesson or entry that the edit does not
name, and the named lessons do not have these words, the edit depends on that lesson or entry, too. So sources follow
the words: `forget` finds copies, and copying cannot raise the trust of a text. `core.shingles` defines rare words.
Paraphrases are not detected.
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
"""Maximum number of entries of a context that is compared as a whole. A larger context is not compared, because prompts
usually show fewer entries."""


def traced_lessons(
    lessons: Sequence[Lesson], attempts: Sequence[Attempt], context: Context, whole: bool
) -> list[Lesson]:
    """Add to each lesson the sources of the entries that share rare words with the lesson. Words that also appear in
    the tasks of the lesson do not count.

    `whole`: whether a reflector read the playbook. If no reflector read the playbook, lessons are compared only with
    the entries that were retrieved for an attempt or cited by an attempt. If no entry was retrieved, lessons are
    compared with all entries, because the agent saw all entries.
    """
    attempted = [one for attempt in attempts for one in attempt.group]
    shown = {id for one in attempted for id, _ in one.retrieved}
    cited = {id for one in attempted for id in one.trace.used}
    read = _Read(context, None if whole or not shown else shown | cited)
    tasks: dict[str, list[Task]] = {}
    for one in attempted:
        tasks.setdefault(one.task.sources[0], []).append(one.task)
    result = []
    for lesson in lessons:
        related_tasks = (task for source in lesson.sources for task in tasks.get(source, ()))
        own_tasks = [task for task in related_tasks if {*task.sources} <= {*lesson.sources}]
        task_texts = [text for task in own_tasks for text in (task.text, task.target or "")]
        sources = read.sources_of([lesson.text], lesson.sources, task_texts)
        result.append(lesson if sources == lesson.sources else replace(lesson, sources=sources))
    return result


def traced(delta: Delta, lessons: Sequence[Lesson], context: Context) -> Delta:
    """Add to each edit the sources of all texts that the edit depends on.

    An edit depends on the lessons that it names. An edit that names neither lessons nor sources depends on all of
    `lessons`. If an edit has rare words of other lessons, or of entries that the edit does not change, the sources of
    these lessons and entries are added to the edit.
    """
    read = _Read(context, None, lessons)
    lessons_with_sources = [(x, frozenset(x.sources)) for x in lessons]
    return replace(delta, edits=tuple(_traced(edit, lessons_with_sources, read) for edit in delta.edits))


def _traced(edit: Edit, lessons: Sequence[tuple[Lesson, frozenset[str]]], read: _Read) -> Edit:
    written = [getattr(edit, name, None) for name in ("text", "key", "data")]
    if not any(written):
        return edit
    basis = [x for x in read.lessons if x.id in edit.lessons] or ([] if edit.sources else read.lessons)
    own = ordered_union([edit.sources, *(x.sources for x in basis)])
    own_set = frozenset(own)
    named = [x for x, sources in lessons if sources <= own_set]
    # A text that code copied from a lesson is not compared: the text was compared already when the lesson was made.
    copied_texts = {text for x in named for text in (x.text, *strings(x.data))}
    new_texts = [text for text in strings(written) if text not in copied_texts]
    ids = changed_entries(edit)
    read_texts = [*(x.text for x in named), *(e.text for id in ids if (e := read.context.get(id)))]
    sources = read.sources_of(new_texts, own, read_texts, ids)
    return edit if sources == edit.sources else replace(edit, sources=sources)


@dataclass
class _Read:
    """Texts that a model read: lessons, and entries of a context. `ids` are the ids of the entries; None: all entries
    of the context, or no entry if the context has more than `WHOLE` entries."""

    context: Context
    ids: Collection[str] | None
    lessons: Sequence[Lesson] = ()

    def sources_of(
        self, texts: Sequence[str], own: tuple[str, ...], read_texts: Iterable[str], ids: Collection[str] = ()
    ) -> tuple[str, ...]:
        """Return `own`, and the sources of the lessons and entries that share rare pieces of text (see `core.shingles`)
        with `texts`. Entries in `ids` are left out. Pieces that also appear in `read_texts` are not compared, because
        `own` already has the sources of `read_texts`."""
        new_pieces = frozenset(chain.from_iterable(map(grams, texts)))
        if not new_pieces:
            return own
        new_pieces -= frozenset(chain.from_iterable(map(grams, read_texts)))
        holders: dict[str, list[Lesson | Entry]] = {}
        for piece in new_pieces & self._lessons.keys():
            holders[piece] = [*self._lessons[piece]]
        for page in self._pages:
            for piece in new_pieces & page.keys():
                entries = (entry for id in page[piece] if (entry := self.context.get(id)) is not None)
                holders.setdefault(piece, []).extend(entries)
        rare = (texts for _, texts in sorted(holders.items()) if len(texts) <= COMMON or _of_one_task(texts))
        # Take the sources of each lesson and entry once: most lessons and entries hold many of the pieces.
        sources_by_text = {id(x): x.sources for group in rare for x in group if x.id not in ids}
        return ordered_union([own, *sources_by_text.values()])

    @cached_property
    def _lessons(self) -> Mapping[str, Sequence[Lesson]]:
        return _by_piece((x, x.text, x.data) for x in self.lessons)

    @cached_property
    def _pages(self) -> Sequence[Mapping[str, Sequence[str]]]:
        """For each page of the context: piece → ids of the entries on this page that have the piece."""
        if self.ids is not None:
            return [_ids_by_piece(entry for id in sorted(self.ids) if (entry := self.context.get(id)) is not None)]
        return [page.rendered(_ids_by_piece) for page in self.context.pages] if len(self.context) <= WHOLE else []


def _ids_by_piece(entries: Iterable[Entry]) -> Mapping[str, Sequence[str]]:
    # Cache ids, not sources: the sources of an entry can change while its words stay.
    return _by_piece((entry.id, entry.text, entry.data) for entry in entries)


def _by_piece(items: Iterable[tuple[T, str, Mapping[str, Any]]]) -> dict[str, list[T]]:
    holders: dict[str, list[T]] = {}
    for item, text, data in items:
        for piece in frozenset(chain.from_iterable(map(_pieces, {text, *strings(data)}))):
            holders.setdefault(piece, []).append(item)
    return holders


# Pieces are cached, because an edit changes one page and nearly all texts of this page stay the same.
_pieces = lru_cache(maxsize=4 * PAGE)(pieces)


def _of_one_task(holders: Sequence[Lesson | Entry]) -> bool:
    """Return whether all these lessons and entries come from the same task. If a piece appears only in texts of one
    task, it was copied among these texts, so the piece counts as rare even if many texts have it."""
    first, *others = holders
    tasks = {source for source in first.sources if source.startswith("task:")}
    for other in others:
        # This usually ends the loop early: the first two texts mostly have no task in common.
        if not tasks:
            return False
        tasks.intersection_update(other.sources)
    return bool(tasks)
