"""What is reported to a space that is served: outcomes, corrections, notes, and what a review decides about these."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from practicum.core.trust import Trust
from practicum.serve import answers
from practicum.serve.service import Service
from practicum.serve.space import ServedSpace
from practicum.session.correcting import HELD_OUT, LIVE, Corrector, find_correction, listed
from practicum.session.corrections import Correction
from practicum.session.outcomes import Report
from practicum.store.reviews import REJECTED

T = TypeVar("T")


async def report(
    service: Service, name: str, report: Report, trust: Trust, *, screened: bool = False
) -> answers.Reported:  # fmt: skip
    """Take a report of the operator (`own`) or of an end user (`user`); it is on the disk when this returns.
    `screened`: what the filter flags waits for review, whoever reports it. Raises Unknown for what this space does not
    know, and StoreError if it cannot be written."""
    space = await service.spaces.opened(name)
    said = report.model_dump(include={"target", "comment", "answer"}, exclude_unset=True)
    report = report.model_copy(update=space.reader.redacted(said))
    # It may wait for another node, so it does not hold the lock.
    await service.recorder.find_written(space, report)
    async with space.lock:
        known = await service.recorder.find(space, report)
        outcome = await _corrector(service, space).report(
            known, space.question(known.data), report, trust, screened=screened
        )
    service.counts["feedback"] += 1
    service.counts["interactions"] += outcome.status == "kept" and "purpose" in known.data
    if outcome.newly_waiting:
        service.wait_to_learn(space)
    if outcome.score is not None and outcome.before is None:
        space.scored += 1
        space.scores += outcome.score
        await service.rollouts.count_scores(space)
    return answers.Reported(
        interaction=known.id, status=outcome.status, score=outcome.score, correction=outcome.correction
    )  # fmt: skip


async def note(
    service: Service, name: str, text: str, about: str, user: str | None, *, screened: bool = False
) -> answers.Noted:  # fmt: skip
    """Keep a note, which is shown to requests that it is about (empty: to all); it is on the disk when this returns. A
    `user`'s waits for review. `screened`: what the filter flags waits, whoever says it."""
    space = await service.spaces.opened(name)
    text, about = space.reader.redacted((text, about))
    async with space.lock:
        new, becomes = await _corrector(service, space).note(text, about, user, screened=screened)
    service.counts["notes"] += 1
    return answers.Noted(id=new.id, note=becomes)


def _corrector(service: Service, space: ServedSpace) -> Corrector:
    reviewed = space.reader.config.review != "none"
    return Corrector(space.store, space.corrections, service.settings.trusted, reviewed, HELD_OUT)


# Review


async def decide_correction(
    service: Service, name: str, number: int, approved: bool, reason: str = ""
) -> answers.Decided:  # fmt: skip
    """Let a correction or a note that waits for review hold, or reject one that waits or holds. Raises Unknown if there
    is none of this number, and Conflict if it was decided before."""
    space = await service.spaces.opened(name)
    async with space.lock:
        await space.read_corrections()
        await _corrector(service, space).decide(number, approved, reason)
    return answers.Decided(id=f"c{number}", state=LIVE if approved else REJECTED, version=None)


async def note_of(service: Service, name: str, number: int) -> Correction | None:
    """The note with this number; None if that is a correction. Raises Unknown if there is none."""
    space = await service.spaces.opened(name)
    _, found = await asyncio.to_thread(find_correction, space.store, space.corrections, number)
    return found if found.note else None


# Lists


async def list_corrections(service: Service, name: str, state: str, after: int, limit: int) -> answers.CorrectionList:
    """Corrections and notes of a space in one of STATES, the oldest first, those after a number, and how many there are
    in all. Raises UnknownSpace."""
    space = await service.spaces.opened(name)
    await space.follow_corrections()
    some, total = await asyncio.to_thread(listed, space.store, space.corrections, state, after, limit)
    found = [
        answers.StoredCorrection(
            id=one.id, interaction=one.interaction, user=one.user, query=one.query,
            question=space.question({"query": one.query, "question": one.question}), target=one.target,
            comment=one.comment, trust=one.trust, note=one.note,
        )
        for one in some
    ]  # fmt: skip
    return answers.CorrectionList(space=name, state=state, total=total, corrections=found)
