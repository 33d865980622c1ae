"""Reports and notes, written with the corrections that follow from them: the same from a service and from a program.

A question that an end user asked is the user's, and so is a report in a user's name. What tools returned, and documents
that a client attached, were written by anybody. The trust of what is shown or learned is the least of all that it was
made of; the operator says explicitly whom else to trust (`Trusted`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from practicum.core.edits import Delete
from practicum.core.trust import Trust, least
from practicum.session.corrections import (
    TASK,
    WITHDRAWN,
    Correction,
    CorrectionsInEffect,
    added,
    added_in,
    decide,
    hold,
    last_version,
    next_correction,
    page_of_reviewed,
    reviewed,
    write_review,
)
from practicum.session.outcomes import (
    Conflict,
    Effect,
    Interaction,
    Outcome,
    Report,
    Trusted,
    Unknown,
    said_by,
    write_outcome,
)
from practicum.session.shown_corrections import Corrections
from practicum.store import schema
from practicum.store.database import Store
from practicum.store.reviews import PENDING, REJECTED
from practicum.store.scope import Transaction
from practicum.store.versions import Version, read_versions

T = TypeVar("T")

LIVE, WAITING, REPLACED = "live", "waiting", "replaced"

STATES = (LIVE, WAITING, REPLACED, REJECTED)
"""The states of a correction or a note."""

HELD_OUT = 0.2
"""The share of outcomes with a right answer that teach nothing and are kept for the replay gate."""


def effect(holds: bool) -> Effect:
    """What becomes of a correction or a note."""
    return "in effect" if holds else "waits for review"


@dataclass(frozen=True)
class Corrector:
    """Writes what is reported to a space, whose `corrections` are known here. `reviewed`: what is not the operator's
    own waits for review. `held_out` is the share of outcomes with a right answer that teach nothing and are kept for
    the replay gate of a service."""

    store: Store
    corrections: Corrections
    trusted: Trusted
    reviewed: bool
    held_out: float = 0.0

    async def report(
        self, known: Interaction, question: str, report: Report, trust: Trust, *, screened: bool = False,
        beside: Mapping[str, Any] | None = None,
    ) -> Outcome:  # fmt: skip
        """Write a report of the operator (`own`) or of an end user (`user`) on an interaction that asks a `question`.
        A right answer or a comment makes a correction, in place of the reporter's earlier one; a score of 1 withdraws
        that. `screened`: what the filter flags waits for review, whoever reports it. Raises Unknown for an interaction
        that was forgotten."""
        draft = Correction(
            0, known.query, report.target or "", report.comment or "", least(trust, self.trusted.question(known.user)),
            question=question, interaction=known.id,
        )  # fmt: skip
        foreign = screened or trust != "own" or known.user is not None or "screened" in known.data
        holds = self._holds(draft, foreign)
        answer = (report.answer or known.answer) if report.target or report.comment else ""

        async def replaced() -> list[int]:
            return await self.corrections.replaced_by(draft, answer) if holds else []

        def write(at: Transaction, gone: Sequence[int]) -> tuple[Outcome, Version | None]:
            i = schema.interactions
            if at.first(at.select(i.c.id).where(i.c.id == known.id)) is None:
                # Forgotten, perhaps by another node, and the memory of this one does not know it yet.
                raise Unknown("interaction.unknown", f"this space knows nothing of interaction {known.id!r} any more")
            outcome = write_outcome(at, known, report, trust, beside, held_out=self.held_out)
            right = outcome.score == 1.0 or not (outcome.target or outcome.comment) or not known.query.strip()
            if outcome.status not in ("kept", "changed") or not (outcome.corrects or right):
                return outcome, None
            earlier = self._earlier(at, known.id, trust) if outcome.status == "changed" else []
            if right:
                return outcome, hold(at, self.corrections.version, None, earlier, WITHDRAWN) if earlier else None
            new = replace(draft, number=next_correction(at), target=outcome.target, comment=outcome.comment)
            version = self._write(at, new, [*dict.fromkeys((*gone, *earlier))] if holds else [], holds)
            return replace(outcome, correction=effect(holds)), version

        return await self.written(replaced, write)

    def _earlier(self, at: Transaction, interaction: str, trust: Trust) -> list[int]:
        """The numbers of the corrections that hold and that the same reporter, the operator or a user, made of an
        interaction. One that waits for review is not decided about any more."""

        def same(one: Correction) -> bool:
            return one.interaction == interaction and (one.trust == "user") == (trust == "user")

        for state, one in [*reviewed(at, source=TASK + interaction)]:
            if state == PENDING and same(one):
                write_review(at, one, REJECTED, WITHDRAWN)
        return [one.number for one in self.corrections if same(one)]

    async def note(
        self, text: str, about: str, user: str | None, *, screened: bool = False
    ) -> tuple[Correction, Effect]:  # fmt: skip
        """Write a note. Returns it, and what becomes of it: a `user`'s waits for review. `screened`: what the filter
        flags waits, whoever says it."""
        draft = Correction(0, about, comment=text, trust=said_by(user), note=True, user=user)
        holds = self._holds(draft, screened or user is not None)

        async def replaced() -> list[int]:
            return await self.corrections.replaced_by(draft) if holds else []

        def write(at: Transaction, gone: Sequence[int]) -> tuple[Correction, Version | None]:
            new = replace(draft, number=next_correction(at))
            return new, self._write(at, new, gone, holds)

        return await self.written(replaced, write), effect(holds)

    async def decide(self, number: int, approved: bool, reason: str = "") -> None:
        """Let a correction or a note that waits for review hold, or reject one that waits or holds. Raises Unknown if
        there is none of this number, and Conflict if it was decided before."""
        known = self.corrections

        def found(at: Transaction | Store) -> Correction:
            state, correction = find_correction(at, known, number)
            if state != WAITING and (approved or state != LIVE):
                raise Conflict("review.decided", f"{correction.id} was decided before: it is {state}")
            return correction

        async def replaced() -> Sequence[int]:
            correction = await asyncio.to_thread(found, self.store)
            if approved:
                return await known.replaced_by(correction)
            return [number] if number in known else []

        def write(at: Transaction, gone: Sequence[int]) -> tuple[None, Version | None]:
            return None, decide(at, known.version, found(at), gone, approved, reason)

        await self.written(replaced, write)

    def _holds(self, draft: Correction, foreign: bool) -> bool:
        """Whether a correction or a note need not wait for review: it is the operator's own, or nothing waits here, and
        the filter flags none of its words, where some of them are `foreign`, or an agent's that speaks for itself."""
        return (draft.trust == "own" or not self.reviewed) and not (foreign and draft.flags)

    def _write(self, at: Transaction, new: Correction, gone: Sequence[int], holds: bool) -> Version | None:
        """Let a new correction or note hold, or wait for review."""
        if holds:
            return hold(at, self.corrections.version, new, gone)
        write_review(at, new, PENDING)
        return None

    async def written(
        self, replaced: Callable[[], Awaitable[Sequence[int]]],
        write: Callable[[Transaction, Sequence[int]], tuple[T, Version | None]],
    ) -> T:  # fmt: skip
        """Write what changes the corrections that hold, and let it hold here. What is `replaced` is known from those
        that are known here: if somebody else changed them meanwhile, they are read and looked at again."""
        while True:
            gone = await replaced()

            def change(at: Transaction, gone: Sequence[int] = gone) -> tuple[T, Version | None] | None:
                return write(at, gone) if last_version(at) == self.corrections.version else None

            if (done := await asyncio.wrap_future(self.store.do(change))) is not None:
                result, version = done
                if version is not None:
                    self.corrections.read([version])
                return result
            await self.corrections.follow(self.store)


# States


def find_correction(at: Transaction | Store, known: CorrectionsInEffect, number: int) -> tuple[str, Correction]:
    """The state of a correction or a note, and what it says. Raises Unknown if there is none of this number."""
    if found := with_numbers(at, known, [number]):
        return found[0]
    raise Unknown("correction.unknown", f"there is no correction or note c{number}")


def with_numbers(
    at: Transaction | Store, known: CorrectionsInEffect, numbers: Sequence[int]
) -> list[tuple[str, Correction]]:
    """Corrections and notes by their numbers, in this order, with their states; those that are gone for good are left
    out. It may be called in any thread."""
    live = {number: (LIVE, one) for number in numbers if (one := known.get(number)) is not None}
    gone = [number for number in numbers if number not in live]
    found = {one.number: (REPLACED, one) for one in added_in(at, [f"c{number}" for number in gone])}
    for number in gone:
        for state, one in reviewed(at, number=number):
            found[number] = ({PENDING: WAITING, REJECTED: REJECTED}.get(state, REPLACED), one)
    found |= live
    return [found[number] for number in numbers if number in found]


def listed(
    store: Store, known: CorrectionsInEffect, state: str, beyond: int | None, limit: int, *, newest: bool = False
) -> tuple[list[Correction], int]:
    """Corrections and notes in a state beyond a number, in the order of their numbers or the `newest` first, and how
    many there are in all. It may be called in any thread."""
    if state in (WAITING, REJECTED):
        return page_of_reviewed(store, PENDING if state == WAITING else REJECTED, beyond, limit, newest)
    if state == LIVE:
        found = [*known]
    else:
        applied = [done for one in read_versions(store, schema.corrections) for done in one.applied]
        gone = {
            done.id for done in applied if isinstance(done.edit, Delete) and not done.edit.reason.startswith(WITHDRAWN)
        }
        found = [one for one in added(applied) if one.id in gone]
    found.sort(key=lambda one: one.number, reverse=newest)
    far = [one for one in found if beyond is None or (one.number < beyond if newest else one.number > beyond)]
    return far[:limit], len(found)


def made_of(store: Store, known: CorrectionsInEffect, interaction: str) -> list[tuple[str, Correction]]:
    """The corrections that were made of an interaction, with their states."""
    source = f"{TASK}{interaction}"
    waiting = (one for _, one in reviewed(store, source=source))
    numbers = {one.number for one in (*waiting, *added_in(store, [source]))}
    return with_numbers(store, known, sorted(numbers))
