"""Selection of the corrections and notes that are shown with a request (see `session.corrections` for their
definition).

Learning takes minutes and is tested; a correction takes effect at once. Corrections of the present request are shown
last in the prompt. If corrections belong to requests that are only similar to the present request, a heading says so,
and the most similar one is first (as earlier turns of a conversation, it is last). A new correction replaces an older
correction of the same request, and an older correction that caused the wrong answer.

`session.correcting.Corrector` puts a correction in effect, and `serve.space.ServedSpace.show` adds corrections to a
request.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np

from practicum.core.context import Context
from practicum.core.edits import Delta, Entry, Update
from practicum.core.types import Profile, Turn
from practicum.core.views import View, count_tokens, exchanges
from practicum.core.visible import visible_to_model
from practicum.engine.specifics import differ_in_particulars
from practicum.retrieval.scripts import script, shared_characters
from practicum.retrieval.search import Filter, Retrieval, Retriever
from practicum.session.corrections import GENERAL_SECTION, LETTER, NOTE_SECTION, SECTION, Correction
from practicum.session.questions import EVIDENCE, Questions, pieces_of
from practicum.store import schema
from practicum.store.database import Store
from practicum.store.versions import Version, read_versions
from practicum.tasks.scoring.rules import normalise

SHOWN, NOTES, GENERAL = 4, 8, 4
"""Maximum numbers of corrections, of notes about a subject, and of general notes that a request is shown."""

SIMILAR: Mapping[Profile, float] = {"full": 0.22, "small": 0.5}
"""Minimum cosine between the question of a request and the question of a correction, by profile. With a lower cosine,
the request is not shown the correction.

A capable model can judge whether a correction applies: at most 3% of pairs of unrelated requests reach the threshold
for full. A small model repeats the text it is shown: the threshold for small is the one at which corrections of the
same topic are best separated from other corrections. Both thresholds were chosen on two sets of tasks and measured on
other sets (docs/results.md).
"""

ALIKE: Mapping[Retrieval, float] = {"cosine": 0.22, "words": 0.08, "mixed": 0.12}
"""Minimum similarity between a question and a note, by retrieval measure. A note with a lower similarity is not shown
with the question. At most 3% of pairs of unrelated texts reach this similarity. The values were chosen and measured
like `SIMILAR`."""

SAME = 0.9
"""Minimum cosine at which two questions count as paraphrases of one question, if their numbers, names and negations
agree."""

UNSETTLED = 100
"""Maximum number of corrections whose questions are derived again while the space has few messages."""

HEADING = """\
# Corrections of answers to this request
It was asked before. The correction decides."""

SIMILAR_HEADING = "# Right answers to similar requests, the most similar first"
"""Heading of corrections of similar requests. Small models follow the answers below it; a heading with a reservation
("answer as if it were not here") loses a fifth of the right answers (docs/results.md)."""

SIMILAR_TURN = "Another request, which is only similar to the next one:"
"""Text before the question of a similar request that a small model is shown as an earlier turn."""

NOTED = "# Notes from earlier work"


@dataclass(frozen=True)
class Near:
    """Correction or note for a request. If `same`, the correction is of the question that the request asks. `cosine` is
    the cosine of the questions of a correction and of the request. The right answer `recurs` if several corrections
    have it."""

    correction: Correction
    same: bool = False
    cosine: float = 0.0
    recurs: bool = False


def corrected_view(view: View, near: Sequence[Near], small: bool) -> View:
    """Return a view with the corrections and notes for the view's task added after the retrieved entries.

    A small model gets right answers and solved tasks as earlier turns of a conversation, which the model can continue.
    A capable model gets right answers and solved tasks as pages of text, so that the conversation contains only the
    user's turns.
    """
    pages, turns = [*view.pages], view.turns
    if small:
        answered = [each for each in near if each.correction.target]
        turns += tuple(map(_turn, answered))
        near = [each for each in near if each not in answered]
    elif turns and near:
        pages, turns = [*pages, exchanges(turns)], ()
    notes = [each.correction.text for each in near if each.correction.note]
    similar = [each.correction.text for each in reversed(near) if not each.same and not each.correction.note]
    same = [each.correction.text for each in near if each.same]
    for heading, texts in ((NOTED, notes), (SIMILAR_HEADING, similar), (HEADING, same)):
        if texts:
            pages.append("\n".join([heading, *texts]))
    more = sum(map(count_tokens, pages[len(view.pages) :]))
    return replace(view, pages=tuple(pages), turns=turns, tokens=view.tokens + more)


def nearest_answer(near: Sequence[Near]) -> str:
    """Return the answer to the most similar of the requests that were corrected, as a sentence to show after the
    request. Small models follow this sentence more than a list. So it is empty if this request may be about something
    else, if no other request had the answer, for an answer of several lines, and after a correction of the request
    itself. The most similar correction in `near` is the last one."""
    corrections = [each for each in near if not each.correction.note]
    if not corrections or any(each.same for each in corrections):
        return ""
    nearest = corrections[-1]
    answer = visible_to_model(nearest.correction.target)
    if nearest.cosine < SIMILAR["small"] or not nearest.recurs or not answer or "\n" in answer:
        return ""
    return f"The right answer to the most similar earlier request was: {answer}"


def _turn(near: Near) -> Turn:
    """Return a correction as an earlier turn of a conversation."""
    asked = near.correction.asked if near.same else f"{SIMILAR_TURN}\n{near.correction.asked}"
    return Turn(visible_to_model(asked), visible_to_model(near.correction.target))


class Corrections:
    """Corrections and notes of a space that are in effect, retrieved by `retriever` like the entries of a playbook.

    `questions` derives the question of each request. A request is shown the corrections of the same question, and the
    corrections of questions whose cosine with the request's question is at least `similar`.
    """

    def __init__(self, retriever: Retriever, questions: Questions, similar: float) -> None:
        # A retriever caches the columns of one context, so the corrections need a separate retriever.
        self._retriever = Retriever(retriever.vectors, retrieval=retriever.retrieval)
        self._similar = similar
        self._questions = questions
        self._unsettled: OrderedDict[int, frozenset[int]] = OrderedDict()
        """Pieces of the requests of unsettled corrections (see `_settled`), by the number of the correction."""
        self._clear()
        self._rewritten = 0
        self.changes = 0
        """Number of changes of the corrections in memory."""

    def _clear(self) -> None:
        self._context = Context(letter=LETTER)
        """Entries, each with the currently derived question as its key."""
        self._live: dict[int, Correction] = {}
        self._by_key: dict[tuple[bool, str], int] = {}
        """Numbers of corrections, by `Correction.key`."""
        self._count: Counter[str] = Counter()
        """Counts of corrections and notes, by section."""
        self._targets: Counter[str] = Counter()
        """Counts of corrections, by right answer."""
        self._ending: dict[int, Correction] = {}
        """Notes that have a last day, by number."""
        self._unsettled.clear()

    @property
    def version(self) -> int:
        """Number of the last version of corrections that was read."""
        return self._context.version

    def __len__(self) -> int:
        return len(self._live)

    def __contains__(self, number: object) -> bool:
        return number in self._live

    def __iter__(self) -> Iterator[Correction]:
        """Iterate in the order of the numbers; safe in any thread."""
        return (one for entry in self._context if (one := self._live.get(entry.number)) is not None)

    def get(self, number: int) -> Correction | None:
        """Return the correction or note with this number, if it is in effect."""
        return self._live.get(number)

    def entry(self, id: str) -> Entry | None:
        """Return the entry with this id, if it is in effect."""
        return self._context.get(id)

    async def follow(self, store: Store) -> None:
        """Read changes from the store. If rows were removed permanently since the last call, all corrections are read
        again."""

        def unread() -> tuple[int, list[Version]]:
            t = schema.spaces
            # The counter of removals is read before the versions, so that the next call notices a removal in between.
            rewritten = next((row.rewritten for row in store.rows(store.select(t.c.rewritten))), 0)
            last_read = self.version if rewritten == self._rewritten else -1
            return rewritten, read_versions(store, schema.corrections, last_read)

        rewritten, versions = await asyncio.to_thread(unread)
        if versions or rewritten != self._rewritten:
            self.read(versions, from_start=rewritten != self._rewritten)
        self._rewritten = rewritten

    def read(self, versions: Sequence[Version], *, from_start: bool = False) -> None:
        """Apply the versions that follow the last version read, or, with `from_start`, all versions."""
        if from_start:
            self._clear()
        before, live = self._context, self._live
        for version in versions:
            self._context = self._context.replay(version.applied, version.version)
        named = {done.id for version in versions for done in version.applied}
        for id in named:
            number = int(id[1:])
            if before.get(id) is not None and id not in self._context:
                old = live.pop(number)
                self._ending.pop(number, None)
                self._targets[normalise(old.target)] -= 1
                self._count[old.section] -= 1
                self._unsettled.pop(number, None)
                if self._by_key.get(old.key) == number:
                    del self._by_key[old.key]
        new = [entry for id in named if (entry := self._context.get(id)) is not None and id not in before]
        added = [Correction.of(entry.number, entry) for entry in sorted(new, key=lambda entry: entry.number)]
        older = max(len(added) - UNSETTLED, 0)
        for correction in added:
            self._count[correction.section] += 1
            self._targets[normalise(correction.target)] += 1
            if correction.until is not None:
                self._ending[correction.number] = correction
        self._put([*added[:older], *map(self._settled, added[older:])])

    def _put(self, corrections: Sequence[Correction]) -> None:
        """Store corrections in memory under their currently derived questions."""
        edits = list[Update]()
        for correction in corrections:
            if (old := self._live.get(correction.number)) is not None and self._by_key.get(old.key) == old.number:
                del self._by_key[old.key]
            self._live[correction.number] = correction
            self._by_key[correction.key] = correction.number
            entry = self._context.get(correction.id)
            assert entry is not None
            if entry.embedded_text != correction.searched:
                edits.append(Update(correction.id, key=correction.searched))
        # The version number stays equal to the version number in the store.
        self._context = replace(self._context.apply(Delta(tuple(edits))).context, version=self._context.version)
        self.changes += 1

    def reconsider(self, pieces: frozenset[int]) -> None:
        """Derive the questions of unsettled corrections again, because a new message may show more clearly which part
        of a request is the question. `pieces` are the pieces of the new message. Corrections without any of these
        pieces are left unchanged."""
        shared = [number for number, own in self._unsettled.items() if not own.isdisjoint(pieces)]
        old = [self._live[number] for number in shared]
        new = [self._settled(each) for each in old]
        if changed := [now for before, now in zip(old, new, strict=True) if now.asked != before.asked]:
            self._put(changed)

    def _settled(self, correction: Correction) -> Correction:
        """Return a correction with the currently derived question.

        If the correction's request has few neighbours (see `session.questions`), the correction is unsettled: the
        question is derived again later.
        """
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
        """Return the corrections and notes to show for a question.

        The order is general notes, notes, corrections of similar requests, corrections of the same request; in each of
        these four parts, the nearest correction or note is last.
        """
        if not self._live:
            return []
        exact = self._exact((False, normalise(question)))
        candidates = [
            each for each, _ in await self._nearest(SECTION, question, SHOWN) if each == exact or each.is_quotable
        ]
        if exact is not None and exact not in candidates:
            candidates = [exact, *candidates][:SHOWN]
        compared = [(each, await self._compare(question, each)) for each in candidates]
        near = [
            Near(each, same, cosine, self._targets[normalise(each.target)] > 1)
            for each, (cosine, same) in compared
            if same or cosine >= self._similar
        ]
        near.sort(key=lambda each: not each.same)
        threshold = ALIKE[self._retriever.retrieval]
        notes = [
            note for note, similarity in await self._nearest(NOTE_SECTION, question, NOTES) if similarity >= threshold
        ]
        general = [note for note, _ in await self._nearest(GENERAL_SECTION, question, GENERAL)]
        return [*map(Near, general[::-1]), *map(Near, notes[::-1]), *near[::-1]]

    async def is_same(self, question: str, correction: Correction) -> bool:
        """Return whether a correction is of this question, perhaps in other words."""
        return not correction.note and (await self._compare(question, correction))[1]

    def _exact(self, key: tuple[bool, str]) -> Correction | None:
        number = self._by_key.get(key)
        return None if number is None else self._live[number]

    async def _compare(self, question: str, correction: Correction) -> tuple[float, bool]:
        """Return the cosine between `question` and the question of a correction, and whether both are the same
        question, perhaps in other words."""
        if normalise(question) == normalise(correction.asked):
            return 1.0, True
        vectors = self._retriever.vectors
        cosine = float(np.dot(await vectors.query(question), await vectors.query(correction.asked)))
        if script(question) or script(correction.asked):
            # An embedder maps all texts of an unknown script to nearly the same vector.
            cosine = min(cosine, shared_characters(question, correction.asked))
        return cosine, cosine >= SAME and not differ_in_particulars(question, correction.asked)

    async def _nearest(self, section: str, question: str, most: int) -> list[tuple[Correction, float]]:
        if not self._count[section]:
            return []
        today = datetime.now(UTC).date()
        ended = sum(not one.holds(today) for one in self._ending.values())
        result = await self._retriever.nearest(self._context, question, most + ended, Filter(section=section))
        # Leave out corrections that were removed while the vectors were computed.
        pairs = ((self._live.get(match.entry.number), match.similarity) for match in result.matches)
        holding = [(one, similarity) for one, similarity in pairs if one is not None and one.holds(today)]
        return holding[:most]

    async def replaced_by(self, new: Correction, answer: str = "") -> list[int]:
        """Return the numbers of the corrections that a new correction of an `answer` replaces.

        Replaced are the correction of the same question, and each correction of a paraphrase of the question that
        misled the model. An old correction misled the model if its right answer equals the `answer`, but not the right
        answer of the new correction.
        """
        if not self._live:
            return []
        exact = self._exact(new.key)
        replaced = [] if exact is None else [exact]
        for old, _ in await self._nearest(SECTION, new.searched, SHOWN) if answer else ():
            misled = normalise(old.target) == normalise(answer) != normalise(new.target)
            if misled and old not in replaced and await self.is_same(new.searched, old):
                replaced.append(old)
        return [each.number for each in replaced]
