"""Corrections: what an operator said was wrong about an answer, and notes. They hold from the next request on.

Learning takes minutes and earns its way; a correction does not wait for it. It is an entry of a context of its own,
beside the versions: its text is the request, and `data` has the right answer and what was said. The entries nearest to
a request are shown last in its prompt. A new correction replaces an older one of the same request, and one that led to
the wrong answer.

A note is what an agent wants to remember: it is about no answer, and holds in the same way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from practicum.core.context import Context
from practicum.core.edits import Add, Delete, Delta
from practicum.core.trust import Trust
from practicum.core.views import behind, indented
from practicum.core.words import one_line
from practicum.retrieval.search import Filter, Retriever
from practicum.retrieval.vectors import Vectors
from practicum.tasks.scoring.rules import normalise

SHOWN, NOTES, GENERAL = 4, 8, 4
"""Corrections, notes, and notes about nothing in particular that a request is shown, at most."""

ALIKE = 0.1
"""The least similarity of a correction or a note that is shown (see `retrieval.search.Match`): of texts of different
sets of tasks, at most three pairs in a hundred are as similar, and requests of one kind in other words often reach no
more than 0.15."""

SAME = 0.9
"""The least cosine of two requests that ask the same in other words."""

SECTION, NOTE_SECTION, GENERAL_SECTION = "corrections", "notes", "general notes"

HEADING = """\
# Corrections of answers to earlier requests
Where the present request is the same as one of these, or asks about the same thing, the correction decides."""

NOTED = "# Notes from earlier work"


@dataclass(frozen=True)
class Correction:
    """What should have been answered: the right answer as `target`, or what was said about the answer as `words`. A
    note has what is to be remembered as `words`, and as `query` what it is about; if that is empty, it always
    matters."""

    number: int
    query: str
    target: str = ""
    words: str = ""
    trust: Trust = "own"
    note: bool = False

    @property
    def section(self) -> str:
        return SECTION if not self.note else NOTE_SECTION if self.query else GENERAL_SECTION

    @property
    def searched(self) -> str:
        """What it is found by."""
        return f"{self.query}\n{self.words}".strip() if self.note else self.query

    @property
    def text(self) -> str:
        """As a model is shown it."""
        if self.note:
            return behind(f"- About {one_line(self.query, 200)}:" if self.query else "-", self.words)
        said = [behind("Right answer:", self.target)] if self.target else []
        said += [behind("What was wrong:", self.words)] if self.words else []
        return f"{behind('- Request:', self.query)}\n{indented(chr(10).join(said))}"

    def as_data(self) -> dict[str, object]:
        """Plain values, without the number."""
        values = asdict(self)
        del values["number"]
        return values


class Corrections:
    """The corrections of a space that hold now."""

    def __init__(self, vectors: Vectors) -> None:
        self._retriever = Retriever(vectors)
        self._context = Context()
        self._entries: dict[int, str] = {}
        self._by_entry: dict[str, Correction] = {}
        self._by_query: dict[str, int] = {}
        self._count: Counter[str] = Counter()
        """Corrections and notes, by section."""
        self.changes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, number: object) -> bool:
        return number in self._entries

    def __iter__(self) -> Iterator[Correction]:
        return iter(self._by_entry.values())

    def change(self, removed: Iterable[int], added: Sequence[Correction]) -> None:
        """Take corrections away, and let others hold."""
        gone = [id for number in removed if (id := self._entries.pop(number, None)) is not None]
        outcome = self._context.apply(
            Delta((*map(Delete, gone), *(Add(each.section, each.searched, data=each.as_data()) for each in added)))
        )
        for id in gone:
            old = self._by_entry.pop(id)
            self._count[old.section] -= 1
            if self._by_query.get(normalise(old.searched)) == old.number:
                del self._by_query[normalise(old.searched)]
        self._context = outcome.context
        for correction, done in zip(added, outcome.applied[len(gone) :], strict=True):
            self._entries[correction.number] = done.id
            self._by_entry[done.id] = correction
            self._count[correction.section] += 1
            self._by_query[normalise(correction.searched)] = correction.number
        self.changes += 1

    async def near(self, query: str) -> list[Correction]:
        """The corrections and notes to be shown for a request, the nearest last."""
        if not self._entries:
            return []
        notes = await self._nearest(NOTE_SECTION, query, NOTES)
        general = await self._nearest(GENERAL_SECTION, query, GENERAL, -1.0)
        near = await self._nearest(SECTION, query, SHOWN)
        same = self._by_query.get(normalise(query))
        if same is not None:
            exact = self._by_entry[self._entries[same]]
            near = [exact, *(each for each in near if each is not exact)][:SHOWN]
        return [*general[::-1], *notes[::-1], *near[::-1]]

    async def _nearest(self, section: str, query: str, most: int, least: float = ALIKE) -> list[Correction]:
        if not self._count[section]:
            return []
        found = await self._retriever.nearest(self._context, query, most, Filter(section=section))
        return [self._by_entry[match.entry.id] for match in found.found if match.similarity >= least]

    async def replaced_by(self, query: str, target: str, answer: str) -> list[int]:
        """The corrections that one of this request replaces: that of the same request, and those of a request that asks
        the same in other words and whose right answer was given, and was wrong."""
        if not self._entries:
            return []
        same = self._by_query.get(normalise(query))
        replaced = [] if same is None else [same]
        found = await self._retriever.nearest(self._context, query, SHOWN, Filter(section=SECTION))
        vectors = self._retriever.vectors
        asked = await vectors.query(query)
        for match in found.found:
            old = self._by_entry[match.entry.id]
            misled = old.target and normalise(old.target) == normalise(answer) != normalise(target)
            if misled and old.number != same and float(np.dot(await vectors.query(old.query), asked)) >= SAME:
                replaced.append(old.number)
        return replaced
