"""`Story`, the reader of all stored data of a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Self

from practicum.store.database import Store
from practicum.store.versions import EntryEvent
from practicum.view.read.attempts import StoredAttempts
from practicum.view.read.calls import StoredCalls
from practicum.view.read.entries import Entries
from practicum.view.read.gaps import Gaps
from practicum.view.read.lessons import Lessons
from practicum.view.read.naming import Names
from practicum.view.read.parts import AttemptLine, AttemptStory, CallStory, EntryStory, LessonStory
from practicum.view.read.run import StoredRun


class Story(StoredRun):
    """Reader of all data of a run. A context manager: `with Story.open(folder) as story`."""

    def __init__(self, store: Store, gaps: Gaps | None = None) -> None:
        super().__init__(store, gaps)
        self.names = Names(self)
        self.all_calls = StoredCalls(self, self.names)
        self.all_lessons = Lessons(self, self.names)
        self.all_attempts = StoredAttempts(self, self.names, self.all_calls, self.all_lessons)
        self.entries = Entries(self, self.names)

    @classmethod
    def open(cls, folder: Path | str) -> Story:
        """Open a run read-only. Raises NotARun or StoreError if the run cannot be read."""
        store = Store.read(Path(folder))
        try:
            story = cls(store)
            _ = story.config
            return story
        except BaseException:
            store.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, *_: object) -> None:
        self.store.__exit__(kind, error)

    def attempts(
        self, *, failed: bool = False, split: str | None = None, step: int | None = None, task: str | None = None
    ) -> Iterator[AttemptLine]:
        """Yield the attempts in the order in which they were stored (see `StoredAttempts.every`)."""
        return self.all_attempts.every(failed=failed, split=split, step=step, task=task)

    def attempt(self, id: str) -> AttemptStory:
        """Return one attempt, by its id or place. Raises UsageError, with similar ids, if the attempt does not
        exist."""
        return self.all_attempts.one(id)

    def attempt_line(self, id: str) -> AttemptLine:
        """Return the summary of one attempt, by its id or place. Raises UsageError, with similar ids, if the attempt
        does not exist."""
        return self.all_attempts.line(id)

    def attempts_with(self, entry: str) -> Iterator[AttemptLine]:
        """Yield the attempts that looked up or cited an entry."""
        return self.all_attempts.with_entry(entry)

    def attempts_of(self, sources: Iterable[str]) -> tuple[str, ...]:
        """Return the ids of the attempts among the sources of a lesson, an edit or a call."""
        return self.names.attempts_of(sources)

    def lessons(self, step: int | None = None) -> Iterator[LessonStory]:
        """Yield the lessons of a step, or of all steps, in the order in which they were stored."""
        return self.all_lessons.every(step)

    def lessons_with(self, ids: Sequence[str]) -> list[LessonStory]:
        """Return the lessons with these ids, in the order in which they were stored."""
        return self.all_lessons.with_ids(ids)

    def calls(self, step: int | None = None, role: str | None = None) -> Iterator[CallStory]:
        """Yield the calls of a step, or of the whole run, in the order in which they ended."""
        return self.all_calls.every(step, role)

    def call(self, id: str) -> CallStory:
        """Return one call, by its id or place. Raises UsageError if the call does not exist."""
        return self.all_calls.one(id)

    def entry(self, id: str) -> EntryStory:
        """Return one entry with its history. Raises UsageError if the id was never used."""
        return self.entries.one(id)

    def merges(self, step: int | None = None) -> Iterator[EntryEvent]:
        """Yield the merges of entries in one step or in all steps, with the texts of the entries that the merges
        removed."""
        return self.entries.merges(step)
