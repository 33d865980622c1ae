"""Writing of reports, of the corrections that follow from reports, and of notes, for the service and for programs.

A question asked by an end user has the user's trust level, and so has a report in a user's name. Tool results and
documents attached by a client may have any author. A text that is shown or learned has the lowest trust of the texts
that it comes from; the operator can trust more sources explicitly (`Trusted`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
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
    trust_of,
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
"""Of the outcomes with a right answer, the share that is held out: the replay gate uses these outcomes, and learning
does not."""


def effect(holds: bool) -> Effect:
    """Return the effect of a new correction or note, which takes effect without review if `holds` is true."""
    return "in effect" if holds else "waits for review"


@dataclass(frozen=True)
class Corrector:
    """Writer of reports, notes and decisions to a space; `corrections` are the space's corrections in effect, held in
    memory.

    If `reviewed`, all corrections and notes except the operator's own wait for review. Of the outcomes with a right
    answer, the share `held_out` is used by the replay gate of a service and not by learning.
    """

    store: Store
    corrections: Corrections
    trusted: Trusted
    reviewed: bool
    held_out: float = 0.0

    async def report(
        self, interaction: Interaction, question: str, report: Report, trust: Trust, *, screened: bool = False,
        extra: Mapping[str, Any] | None = None,
    ) -> Outcome:  # fmt: skip
        """Write a report on an interaction in which `question` was asked. `trust` names the reporter: "own" for the
        operator, "user" for an end user.

        A right answer or a comment creates a correction that replaces the reporter's earlier correction of the
        interaction; a score of 1 withdraws that earlier correction. If `screened`, a correction with flags (see
        `core.screen`) waits for review, even if the operator reports the correction. Raises Unknown for an interaction
        that was forgotten.
        """
        draft = Correction(
            0, interaction.query, report.target or "", report.comment or "",
            least(trust, self.trusted.question(interaction.user)),
            question=question, interaction=interaction.id,
        )  # fmt: skip
        foreign = screened or trust != "own" or interaction.user is not None or "screened" in interaction.data
        holds = self._holds(draft, foreign)
        answer = (report.answer or interaction.answer) if report.target or report.comment else ""

        async def find_replaced() -> list[int]:
            return await self.corrections.replaced_by(draft, answer) if holds else []

        def write(at: Transaction, replaced: Sequence[int]) -> tuple[Outcome, Version | None]:
            i = schema.interactions
            if at.first(at.select(i.c.id).where(i.c.id == interaction.id)) is None:
                # The interaction was forgotten, perhaps by another node, and is still in this node's memory.
                raise Unknown("interaction.unknown", f"interaction {interaction.id!r} was removed from this space")
            outcome = write_outcome(at, interaction, report, trust, extra, held_out=self.held_out)
            right = outcome.score == 1.0 or not (outcome.target or outcome.comment) or not interaction.query.strip()
            if outcome.status not in ("kept", "changed") or not (outcome.corrects or right):
                return outcome, None
            earlier = self._earlier(at, interaction.id, trust) if outcome.status == "changed" else []
            if right:
                return outcome, hold(at, self.corrections.version, None, earlier, WITHDRAWN) if earlier else None
            new = replace(draft, number=next_correction(at), target=outcome.target, comment=outcome.comment)
            version = self._write(at, new, [*dict.fromkeys((*replaced, *earlier))] if holds else [], holds)
            return replace(outcome, correction=effect(holds)), version

        return await self.written(find_replaced, write)

    def _earlier(self, at: Transaction, interaction: str, trust: Trust) -> list[int]:
        """Return the numbers of a reporter's corrections of an interaction that are in effect.

        `trust` names the reporter: an end user if "user", otherwise the operator. The reporter's corrections of the
        interaction that wait for review are rejected as withdrawn.
        """

        def same(one: Correction) -> bool:
            return one.interaction == interaction and (one.trust == "user") == (trust == "user")

        for state, one in [*reviewed(at, source=TASK + interaction)]:
            if state == PENDING and same(one):
                write_review(at, one, REJECTED, WITHDRAWN)
        return [one.number for one in self.corrections if same(one)]

    async def note(
        self, text: str, about: str, user: str | None, until: date | None = None, *, screened: bool = False
    ) -> tuple[Correction, Effect]:  # fmt: skip
        """Write a note. Return the note and its effect.

        In a space that requires reviews, the note of a `user` waits for review. If `screened`, a note with flags (see
        `core.screen`) waits for review too, even if the operator writes the note.
        """
        draft = Correction(0, about, comment=text, trust=trust_of(user), note=True, user=user, until=until)
        holds = self._holds(draft, screened or user is not None)

        async def find_replaced() -> list[int]:
            return await self.corrections.replaced_by(draft) if holds else []

        def write(at: Transaction, replaced: Sequence[int]) -> tuple[Correction, Version | None]:
            new = replace(draft, number=next_correction(at))
            return new, self._write(at, new, replaced, holds)

        return await self.written(find_replaced, write), effect(holds)

    async def decide(self, number: int, approved: bool, reason: str = "") -> None:
        """Approve or reject a correction or a note that waits for review, or reject a correction or a note in effect.

        Raises Unknown for an unknown number, and Conflict if a decision on the correction or note was made before.
        """
        corrections = self.corrections

        def find_open(at: Transaction | Store) -> Correction:
            state, correction = find_correction(at, corrections, number)
            if state != WAITING and (approved or state != LIVE):
                raise Conflict("review.decided", f"{correction.id} is already decided: the state is {state}")
            return correction

        async def find_removed() -> Sequence[int]:
            correction = await asyncio.to_thread(find_open, self.store)
            if approved:
                return await corrections.replaced_by(correction)
            return [number] if number in corrections else []

        def write(at: Transaction, removed: Sequence[int]) -> tuple[None, Version | None]:
            return None, decide(at, corrections.version, find_open(at), removed, approved, reason)

        await self.written(find_removed, write)

    def _holds(self, draft: Correction, foreign: bool) -> bool:
        """Return whether a correction or a note takes effect without review.

        If the space requires reviews, only the operator's own drafts take effect without review. A `foreign` draft
        (some of the draft's text is not the operator's own) with flags always waits for review.
        """
        return (draft.trust == "own" or not self.reviewed) and not (foreign and draft.flags)

    def _write(self, at: Transaction, new: Correction, replaced: Sequence[int], holds: bool) -> Version | None:
        """If `holds`, put a new correction or note into effect in place of the `replaced` corrections, and return the
        new version. Otherwise store the new correction or note for review, and return None."""
        if holds:
            return hold(at, self.corrections.version, new, replaced)
        write_review(at, new, PENDING)
        return None

    async def written(
        self, find_removed: Callable[[], Awaitable[Sequence[int]]],
        write: Callable[[Transaction, Sequence[int]], tuple[T, Version | None]],
    ) -> T:  # fmt: skip
        """Write a change of the corrections in effect, and make the same change in memory.

        `find_removed` returns the numbers of the corrections to remove, computed from the corrections in memory. If
        another writer has changed the stored corrections since the last reading, the corrections are read again and
        `find_removed` is called again.
        """
        while True:
            removed = await find_removed()

            def change(at: Transaction, removed: Sequence[int] = removed) -> tuple[T, Version | None] | None:
                return write(at, removed) if last_version(at) == self.corrections.version else None

            if (done := await asyncio.wrap_future(self.store.do(change))) is not None:
                result, version = done
                if version is not None:
                    self.corrections.read([version])
                return result
            await self.corrections.follow(self.store)


# States


def find_correction(at: Transaction | Store, corrections: CorrectionsInEffect, number: int) -> tuple[str, Correction]:
    """Return the state of a correction or a note, and the correction. Raises Unknown for an unknown number."""
    if matches := with_numbers(at, corrections, [number]):
        return matches[0]
    raise Unknown("correction.unknown", f"no correction or note c{number} in this space")


def with_numbers(
    at: Transaction | Store, corrections: CorrectionsInEffect, numbers: Sequence[int]
) -> list[tuple[str, Correction]]:
    """Return corrections and notes with their states, in the order of `numbers`. Deleted corrections and notes are
    left out.

    Safe to call in any thread.
    """
    live = {number: (LIVE, one) for number in numbers if (one := corrections.get(number)) is not None}
    others = [number for number in numbers if number not in live]
    by_number = {one.number: (REPLACED, one) for one in added_in(at, [f"c{number}" for number in others])}
    for number in others:
        for state, one in reviewed(at, number=number):
            by_number[number] = ({PENDING: WAITING, REJECTED: REJECTED}.get(state, REPLACED), one)
    by_number |= live
    return [by_number[number] for number in numbers if number in by_number]


def listed(
    store: Store, corrections: CorrectionsInEffect, state: str, beyond: int | None, limit: int, *, newest: bool = False
) -> tuple[list[Correction], int]:
    """Return a page of the corrections and notes in a state, and the total number of corrections and notes in this
    state.

    The corrections and notes are in the order of their numbers (5 in the id c5), or with `newest` in the reverse order.
    The page begins after the number `beyond` and has up to `limit` corrections and notes. Safe to call in any thread.
    """
    if state in (WAITING, REJECTED):
        return page_of_reviewed(store, PENDING if state == WAITING else REJECTED, beyond, limit, newest)
    if state == LIVE:
        matches = [*corrections]
    else:
        applied = [done for one in read_versions(store, schema.corrections) for done in one.applied]
        removed_ids = {
            done.id for done in applied if isinstance(done.edit, Delete) and not done.edit.reason.startswith(WITHDRAWN)
        }
        matches = [one for one in added(applied) if one.id in removed_ids]
    matches.sort(key=lambda one: one.number, reverse=newest)
    far = [one for one in matches if beyond is None or (one.number < beyond if newest else one.number > beyond)]
    return far[:limit], len(matches)


def corrections_of(store: Store, corrections: CorrectionsInEffect, interaction: str) -> list[tuple[str, Correction]]:
    """Return all corrections of an interaction, with their states."""
    source = f"{TASK}{interaction}"
    waiting = (one for _, one in reviewed(store, source=source))
    numbers = {one.number for one in (*waiting, *added_in(store, [source]))}
    return with_numbers(store, corrections, sorted(numbers))
