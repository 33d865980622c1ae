"""Corrections: what an operator said was wrong about an answer, and notes. They hold from the next request on.

Learning takes minutes and earns its way; a correction does not wait for it. It is an entry of a context of its own,
beside the versions: its text is the question of the request (see `questions`), and `data` has the right answer and what
was said. The entries nearest to a request are shown last in its prompt, and those that are only similar are shown as
such. A new correction replaces an older one of the same request, and one that led to the wrong answer.

A note is what an agent wants to remember: it is about no answer, and holds in the same way.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property

import numpy as np

from practicum.core.context import Context
from practicum.core.edits import Add, Delete, Delta
from practicum.core.screen import steers
from practicum.core.trust import Trust
from practicum.core.types import Profile
from practicum.core.views import behind, indented
from practicum.core.words import one_line
from practicum.engine.specifics import tell_apart
from practicum.retrieval.scripts import script, shared_characters
from practicum.retrieval.search import Filter, Retrieval, Retriever
from practicum.serve.questions import EVIDENCE, Questions, pieces_of
from practicum.tasks.scoring.rules import normalise

SHOWN, NOTES, GENERAL = 4, 8, 4
"""Corrections, notes, and notes about nothing in particular that a request is shown, at most."""

SIMILAR: Mapping[Profile, float] = {"full": 0.22, "small": 0.5}
"""The least cosine of a question and the question of a correction that is shown. A capable model can judge whether a
correction applies: at most three of a hundred pairs of unrelated requests reach its cosine. A small model repeats what
it is shown: at its cosine, corrections of the same topic are distinguished best from others. Both were chosen on two
sets of tasks and are reported on others (docs/results.md)."""

ALIKE: Mapping[Retrieval, float] = {"cosine": 0.22, "words": 0.08, "mixed": 0.12}
"""The least similarity of a note that is shown, which at most three of a hundred pairs of unrelated texts reach. Chosen
and reported as `SIMILAR` is."""

SAME = 0.9
"""The least cosine of two questions that are the same in other words, if numbers, names and negations agree."""

UNSETTLED = 100
"""Corrections whose questions are derived anew while the messages of their space are still few, at most."""

SECTION, NOTE_SECTION, GENERAL_SECTION = "corrections", "notes", "general notes"

HEADING = """\
# Corrections of answers to this request
It was asked before. The correction decides."""

SIMILAR_HEADING = """\
# Corrections of answers to other requests
These requests are only similar. A correction applies where the present request asks about the same thing. Otherwise
answer as if it were not here."""

SIMILAR_TURN = "Another request, which is only similar to the next one:"
"""Before the question of a similar request that a small model is shown as an earlier turn."""

NOTED = "# Notes from earlier work"


def note_by(user: str | None) -> str:
    """What a note has as its interaction: it is about none, and may be a user's."""
    return "" if user is None else f"user:{user}"


@dataclass(frozen=True)
class Correction:
    """What should have been answered: the right answer as `target`, or what was said about the answer as `words`.
    `query` is the text of the request, and `question` what it asks. A note has what is to be remembered as `words`,
    and as `query` what it is about; if that is empty, it always matters."""

    number: int
    query: str
    target: str = ""
    words: str = ""
    trust: Trust = "own"
    note: bool = False
    question: str = ""

    @property
    def asked(self) -> str:
        """The question, or the whole text while no question is known."""
        return self.question or self.query

    @cached_property
    def is_quotable(self) -> bool:
        """Whether its question may be shown to who did not ask the very same: it does not steer a model."""
        return self.note or not steers(self.asked)

    @property
    def section(self) -> str:
        return SECTION if not self.note else NOTE_SECTION if self.query else GENERAL_SECTION

    @property
    def searched(self) -> str:
        """What it is found by."""
        return f"{self.query}\n{self.words}".strip() if self.note else self.asked

    @property
    def text(self) -> str:
        """As a model is shown it."""
        if self.note:
            return behind(f"- About {one_line(self.query, 200)}:" if self.query else "-", self.words)
        said = [behind("Right answer:", self.target)] if self.target else []
        said += [behind("What was wrong:", self.words)] if self.words else []
        return f"{behind('- Request:', self.asked)}\n{indented(chr(10).join(said))}"

    def as_data(self) -> dict[str, object]:
        """Plain values, without the number."""
        values = asdict(self)
        del values["number"]
        return values


@dataclass(frozen=True)
class Near:
    """A correction or a note for a request, and whether it corrects an answer to the same request."""

    correction: Correction
    same: bool = False


class Corrections:
    """The corrections of a space that hold now, retrieved as its entries are by `retriever`. `questions` are those of
    its requests. Those of other requests are shown from the cosine `similar` on."""

    def __init__(self, retriever: Retriever, questions: Questions, similar: float) -> None:
        # A retriever keeps the columns of one context.
        self._retriever = Retriever(retriever.vectors, retrieval=retriever.retrieval)
        self._similar = similar
        self._questions = questions
        self._unsettled: OrderedDict[int, frozenset[int]] = OrderedDict()
        """The pieces of corrections whose requests had few neighbours."""
        self._context = Context()
        self._entries: dict[int, str] = {}
        self._by_entry: dict[str, Correction] = {}
        self._by_question: dict[tuple[bool, str], int] = {}
        """Numbers, by whether it is a note and by what it is found by."""
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
        removed = [*removed]
        for number in removed:
            self._unsettled.pop(number, None)
        older = max(len(added) - UNSETTLED, 0)
        self._exchange(removed, [*added[:older], *map(self._settled, added[older:])])

    def _exchange(self, removed: Iterable[int], added: Sequence[Correction]) -> None:
        gone = [id for number in removed if (id := self._entries.pop(number, None)) is not None]
        outcome = self._context.apply(
            Delta((*map(Delete, gone), *(Add(each.section, each.searched, data=each.as_data()) for each in added)))
        )
        for id in gone:
            old = self._by_entry.pop(id)
            self._count[old.section] -= 1
            if self._by_question.get(_key(old)) == old.number:
                del self._by_question[_key(old)]
        self._context = outcome.context
        for correction, done in zip(added, outcome.applied[len(gone) :], strict=True):
            self._entries[correction.number] = done.id
            self._by_entry[done.id] = correction
            self._count[correction.section] += 1
            self._by_question[_key(correction)] = correction.number
        self.changes += 1

    def reconsider(self, pieces: frozenset[int]) -> None:
        """Derive the questions of unsettled corrections anew that share pieces with a new message of the space."""
        shared = [number for number, own in self._unsettled.items() if not own.isdisjoint(pieces)]
        old = [self._by_entry[self._entries[number]] for number in shared]
        new = [self._settled(each) for each in old]
        changed = [now for before, now in zip(old, new, strict=True) if now.asked != before.asked]
        if changed:
            self._exchange([each.number for each in changed], changed)

    def _settled(self, correction: Correction) -> Correction:
        """A correction with the question of its request as it is known now. With few neighbours it stays unsettled."""
        if correction.note or not (pieces := pieces_of(correction.query)):
            return correction
        question = self._questions.of(correction.query)
        if question.neighbours > EVIDENCE / 2:
            self._unsettled.pop(correction.number, None)
        else:
            self._unsettled[correction.number] = pieces
            while len(self._unsettled) > UNSETTLED:
                self._unsettled.popitem(last=False)
        return replace(correction, question=question.text) if question.neighbours else correction

    async def near(self, question: str) -> list[Near]:
        """The corrections and notes to be shown for a question: general notes, notes, corrections of similar requests,
        corrections of the same request; of each the nearest last."""
        if not self._entries:
            return []
        exact = self._exact((False, normalise(question)))
        found = [each for each, _ in await self._nearest(SECTION, question, SHOWN) if each == exact or each.is_quotable]
        if exact is not None and exact not in found:
            found = [exact, *found][:SHOWN]
        compared = [(each, await self._compare(question, each)) for each in found]
        near = [Near(each, same) for each, (cosine, same) in compared if same or cosine >= self._similar]
        near.sort(key=lambda each: not each.same)
        least = ALIKE[self._retriever.retrieval]
        notes = [note for note, similarity in await self._nearest(NOTE_SECTION, question, NOTES) if similarity >= least]
        general = [note for note, _ in await self._nearest(GENERAL_SECTION, question, GENERAL)]
        return [*map(Near, general[::-1]), *map(Near, notes[::-1]), *near[::-1]]

    async def is_same(self, question: str, correction: Correction) -> bool:
        """Whether a correction is of the same question, perhaps in other words."""
        return not correction.note and (await self._compare(question, correction))[1]

    def _exact(self, key: tuple[bool, str]) -> Correction | None:
        number = self._by_question.get(key)
        return None if number is None else self._by_entry[self._entries[number]]

    async def _compare(self, question: str, correction: Correction) -> tuple[float, bool]:
        """The similarity of two questions as a cosine, and whether they are the same, perhaps in other words."""
        if normalise(question) == normalise(correction.asked):
            return 1.0, True
        vectors = self._retriever.vectors
        cosine = float(np.dot(await vectors.query(question), await vectors.query(correction.asked)))
        if script(question) or script(correction.asked):
            # An embedder gives all texts of a script that it does not know nearly one vector.
            cosine = min(cosine, shared_characters(question, correction.asked))
        return cosine, cosine >= SAME and not tell_apart(question, correction.asked)

    async def _nearest(self, section: str, question: str, most: int) -> list[tuple[Correction, float]]:
        if not self._count[section]:
            return []
        found = await self._retriever.nearest(self._context, question, most, Filter(section=section))
        # One that was taken away while vectors were awaited is left out.
        known = ((self._by_entry.get(match.entry.id), match.similarity) for match in found.found)
        return [(correction, similarity) for correction, similarity in known if correction is not None]

    async def replaced_by(self, new: Correction, answer: str = "") -> list[int]:
        """The corrections that a new one of an `answer` replaces: that of the equal question, and those of a question
        that is the same in other words and whose right answer was given, and was wrong."""
        if not self._entries:
            return []
        exact = self._exact(_key(new))
        replaced = [] if exact is None else [exact]
        for old, _ in await self._nearest(SECTION, new.searched, SHOWN) if answer else ():
            misled = normalise(old.target) == normalise(answer) != normalise(new.target)
            if misled and old not in replaced and await self.is_same(new.searched, old):
                replaced.append(old)
        return [each.number for each in replaced]


def _key(correction: Correction) -> tuple[bool, str]:
    return correction.note, normalise(correction.searched)
