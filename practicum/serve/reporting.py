"""Reports to a served space: outcomes, corrections, notes, and review decisions about corrections and notes."""

from __future__ import annotations

import asyncio
from datetime import date
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
    """Store a report. `trust` is `own` for a report of the operator, and `user` for a report of an end user. The report
    is on disk when this function returns. `screened`: text that the injection filter flags waits for review, even in a
    report of the operator. Raise Unknown if the interaction does not exist, and StoreError if the report cannot be
    written."""
    space = await service.spaces.opened(name)
    texts = report.model_dump(include={"target", "comment", "answer"}, exclude_unset=True)
    report = report.model_copy(update=space.reader.redacted(texts))
    # Look up the interaction without the lock, because the look-up may wait for another node.
    await service.recorder.find_written(space, report)
    async with space.lock:
        interaction = await service.recorder.find(space, report)
        outcome = await _corrector(service, space).report(
            interaction, space.question(interaction.data), report, trust, screened=screened
        )
    service.counts["feedback"] += 1
    service.counts["interactions"] += outcome.status == "kept" and "purpose" in interaction.data
    if outcome.newly_waiting:
        service.wait_to_learn(space)
    if outcome.score is not None and outcome.before is None:
        space.scored += 1
        space.scores += outcome.score
        await service.rollouts.count_scores(space)
    return answers.Reported(
        interaction=interaction.id, status=outcome.status, score=outcome.score, correction=outcome.correction
    )  # fmt: skip


async def note(
    service: Service, name: str, text: str, about: str, user: str | None, until: date | None = None, *,
    screened: bool = False,
) -> answers.Noted:  # fmt: skip
    """Store a note. Requests about the subject `about` are shown the note; if `about` is empty, all requests; after the
    day `until`, none. The note is on disk when this function returns. A note of a `user` waits for review. `screened`:
    a note that the injection filter flags waits for review too."""
    space = await service.spaces.opened(name)
    text, about = space.reader.redacted((text, about))
    async with space.lock:
        new, effect = await _corrector(service, space).note(text, about, user, until, screened=screened)
    service.counts["notes"] += 1
    return answers.Noted(id=new.id, note=effect)


def _corrector(service: Service, space: ServedSpace) -> Corrector:
    reviewed = space.reader.config.review != "none"
    return Corrector(space.store, space.corrections, service.settings.trusted, reviewed, HELD_OUT)


# Review


async def decide_correction(
    service: Service, name: str, number: int, approved: bool, reason: str = ""
) -> answers.Decided:  # fmt: skip
    """Approve or reject a correction or a note that waits for review. A correction or a note in effect can be rejected
    too. Raise Unknown if no correction or note has this number, and Conflict if the review was decided before."""
    space = await service.spaces.opened(name)
    async with space.lock:
        await space.read_corrections()
        await _corrector(service, space).decide(number, approved, reason)
    return answers.Decided(id=f"c{number}", state=LIVE if approved else REJECTED, version=None)


async def note_of(service: Service, name: str, number: int) -> Correction | None:
    """Return the note with this number, or None if a correction has this number. Raise Unknown if neither a note nor a
    correction has this number."""
    space = await service.spaces.opened(name)
    _, correction = await asyncio.to_thread(find_correction, space.store, space.corrections, number)
    return correction if correction.note else None


# Lists


async def list_corrections(service: Service, name: str, state: str, after: int, limit: int) -> answers.CorrectionList:
    """Return the corrections and notes of a space that are in `state` (one of `session.correcting.STATES`) and have
    numbers above `after`: at most `limit`, oldest first. Also return the count of all corrections and notes in this
    state. Raise UnknownSpace if the space does not exist."""
    space = await service.spaces.opened(name)
    await space.follow_corrections()
    some, total = await asyncio.to_thread(listed, space.store, space.corrections, state, after, limit)
    rows = [
        answers.StoredCorrection(
            id=one.id, interaction=one.interaction, user=one.user, query=one.query,
            question=space.question({"query": one.query, "question": one.question}), target=one.target,
            comment=one.comment, trust=one.trust, note=one.note,
        )
        for one in some
    ]  # fmt: skip
    return answers.CorrectionList(space=name, state=state, total=total, corrections=rows)
