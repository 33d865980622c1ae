"""What is reported to a space that is served: outcomes, corrections, notes, and what a review decides about these."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TypeVar

from practicum.core.edits import Delete
from practicum.core.trust import Trust
from practicum.serve import answers
from practicum.serve.service import Service
from practicum.serve.space import ServedSpace
from practicum.session.correcting import Corrector
from practicum.session.corrections import (
    TASK,
    WITHDRAWN,
    Correction,
    added,
    added_in,
    decide,
    page_of_reviewed,
    reviewed,
)
from practicum.session.outcomes import Conflict, Report, Unknown
from practicum.store import schema
from practicum.store.database import Store
from practicum.store.reviews import PENDING, REJECTED
from practicum.store.scope import Transaction
from practicum.store.versions import Version, read_versions

T = TypeVar("T")

LIVE, WAITING, REPLACED = "live", "waiting", "replaced"

STATES = (LIVE, WAITING, REPLACED, REJECTED)
"""The states of a correction or a note."""


async def report(
    service: Service, name: str, report: Report, trust: Trust, *, screened: bool = False
) -> answers.Reported:  # fmt: skip
    """Take a report of the operator (`own`) or of an end user (`user`); it is on the disk when this returns.
    `screened`: what the filter flags waits for review, whoever reports it. Raises Unknown for what this space does not
    know, and StoreError if it cannot be written."""
    space = await service.space(name)
    said = report.model_dump(include={"target", "comment", "answer"}, exclude_unset=True)
    report = report.model_copy(update=space.reader.redacted(said))
    async with space.lock:
        known = service.recent.get(f"{space.id} {report.interaction}") or await service.find(space.store, report)
        outcome, correction, holds = await _corrector(service, space).report(
            known, space.question(known.data), report, trust, screened=screened
        )
    service.counts["feedback"] += 1
    service.counts["interactions"] += outcome.status == "kept" and "purpose" in known.data
    if outcome.newly_waiting:
        service.wait_to_learn(space)
    if outcome.score is not None and outcome.before is None:
        space.scored += 1
        space.scores += outcome.score
        await service.count_scores(space)
    effect: answers.Effect | None = None if correction is None else _effect(holds)
    return {"interaction": known.id, "status": outcome.status, "score": outcome.score, "correction": effect}


async def note(
    service: Service, name: str, text: str, about: str, user: str | None, *, screened: bool = False
) -> answers.Noted:  # fmt: skip
    """Keep a note, which is shown to requests that it is about (empty: to all); it is on the disk when this returns. A
    `user`'s waits for review. `screened`: what the filter flags waits, whoever says it."""
    space = await service.space(name)
    text, about = space.reader.redacted((text, about))
    async with space.lock:
        new, holds = await _corrector(service, space).note(text, about, user, screened=screened)
    service.counts["notes"] += 1
    return {"id": new.id, "note": _effect(holds)}


def _corrector(service: Service, space: ServedSpace) -> Corrector:
    settings = service.settings
    return Corrector(space.store, space.corrections, settings.trusted, settings.review != "none")


def _effect(holds: bool) -> answers.Effect:
    return "in effect" if holds else "waits for review"


# Review


async def decide_correction(
    service: Service, name: str, number: int, approved: bool, reason: str = ""
) -> answers.Decided:  # fmt: skip
    """Let a correction or a note that waits for review hold, or reject one that waits or holds. Raises Unknown if there
    is none of this number, and Conflict if it was decided before."""
    space = await service.space(name)

    def found(at: Transaction | Store) -> Correction:
        state, correction = _find(at, space, number)
        if state != WAITING and (approved or state != LIVE):
            raise Conflict("review.decided", f"{correction.id} was decided before: it is {state}")
        return correction

    async def replaced() -> Sequence[int]:
        correction = await asyncio.to_thread(found, space.store)
        if approved:
            return await space.corrections.replaced_by(correction)
        return [number] if number in space.corrections else []

    def write(at: Transaction, gone: Sequence[int]) -> tuple[None, Version | None]:
        return None, decide(at, space.corrections.version, found(at), gone, approved, reason)

    async with space.lock:
        await space.read_corrections()
        await _corrector(service, space).written(replaced, write)
    return {"id": f"c{number}", "state": LIVE if approved else REJECTED, "version": None}


async def note_of(service: Service, name: str, number: int) -> Correction | None:
    """The note with this number; None if that is a correction. Raises Unknown if there is none."""
    space = await service.space(name)
    _, found = await asyncio.to_thread(_find, space.store, space, number)
    return found if found.note else None


def _find(at: Transaction | Store, space: ServedSpace, number: int) -> tuple[str, Correction]:
    """The state of a correction or a note, and what it says. Raises Unknown if there is none of this number."""
    if found := with_numbers(at, space, [number]):
        return found[0]
    raise Unknown("correction.unknown", f"there is no correction or note c{number} in space {space.name}")


def with_numbers(at: Transaction | Store, space: ServedSpace, numbers: Sequence[int]) -> list[tuple[str, Correction]]:
    """Corrections and notes by their numbers, in this order, with their states; those that are gone for good are left
    out. It may be called in any thread."""
    live = {number: (LIVE, one) for number in numbers if (one := space.corrections.get(number)) is not None}
    gone = [number for number in numbers if number not in live]
    known = {one.number: (REPLACED, one) for one in added_in(at, [f"c{number}" for number in gone])}
    for number in gone:
        for state, one in reviewed(at, number=number):
            known[number] = ({PENDING: WAITING, REJECTED: REJECTED}.get(state, REPLACED), one)
    known |= live
    return [known[number] for number in numbers if number in known]


# Lists


async def list_corrections(service: Service, name: str, state: str, after: int, limit: int) -> answers.CorrectionList:
    """Corrections and notes of a space in one of STATES, the oldest first, those after a number, and how many there are
    in all. Raises UnknownSpace."""
    space = await service.space(name)
    await space.follow_corrections()
    some, total = await asyncio.to_thread(listed, space, state, after, limit)
    found: list[answers.StoredCorrection] = [
        {
            "id": one.id, "interaction": one.interaction, "user": one.user, "query": one.query,
            "question": space.question({"query": one.query, "question": one.question}), "target": one.target,
            "comment": one.comment, "trust": one.trust, "note": one.note,
        }
        for one in some
    ]  # fmt: skip
    return {"space": name, "state": state, "total": total, "corrections": found}


def listed(
    space: ServedSpace, state: str, beyond: int | None, limit: int, *, newest: bool = False
) -> tuple[list[Correction], int]:
    """Corrections and notes in a state beyond a number, in the order of their numbers or the `newest` first, and how
    many there are in all. It may be called in any thread."""
    if state in (WAITING, REJECTED):
        return page_of_reviewed(space.store, PENDING if state == WAITING else REJECTED, beyond, limit, newest)
    if state == LIVE:
        found = [*space.corrections]
    else:
        applied = [done for one in read_versions(space.store, schema.corrections) for done in one.applied]
        gone = {done.id for done in applied if isinstance(done.edit, Delete) and done.edit.reason != WITHDRAWN}
        found = [one for one in added(applied) if one.id in gone]
    found.sort(key=lambda one: one.number, reverse=newest)
    far = [one for one in found if beyond is None or (one.number < beyond if newest else one.number > beyond)]
    return far[:limit], len(found)


def made_of(space: ServedSpace, interaction: str) -> list[tuple[str, Correction]]:
    """The corrections that were made of an interaction, with their states."""
    source = f"{TASK}{interaction}"
    waiting = (one for _, one in reviewed(space.store, source=source))
    numbers = {one.number for one in (*waiting, *added_in(space.store, [source]))}
    return with_numbers(space.store, space, sorted(numbers))
