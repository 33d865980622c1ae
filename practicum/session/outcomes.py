"""Outcomes: what the agents of a program were shown of a run, and what the program reported about that later.

An outcome begins as a row with the query and the version that was shown. A report adds the answer, its score or a
correction. Once a step of the run has learned from it, it is closed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from sqlalchemy import select

from practicum.agents.external import read_answer
from practicum.core.errors import AgentError, UsageError
from practicum.core.thoughts import split_thoughts
from practicum.core.trust import Trust, least
from practicum.core.types import Recorded, Score, Task, Trace
from practicum.core.views import View
from practicum.core.visible import is_blank
from practicum.engine.attempts import TRACE
from practicum.store import schema
from practicum.store.database import Store
from practicum.store.dialects import ROW
from practicum.store.scope import Transaction
from practicum.tasks.scoring.registry import as_score

UNREPORTED = 100_000
"""Rows without a report that are kept: those of the newest queries."""


class _Anything:
    """Holds every id: which entries there are is known when the report is learned from."""

    def __contains__(self, id: object) -> bool:
        return True


@dataclass(frozen=True)
class Outcome:
    """A row: the query, what was shown for it and what was reported, as `data`, and the `step` that learned from it."""

    id: str
    data: Mapping[str, Any]
    raw: str
    step: int | None = None

    @property
    def teaches(self) -> bool:
        """Whether there is something to learn from: what the agent answered, or what it should have answered."""
        return "trace" in self.data or "correction" in self.data

    @property
    def scored(self) -> bool:
        """Whether its score is known without a scorer and without a judge."""
        return "score" in self.data or "trace" not in self.data

    def as_task(self, trust_tools: bool) -> Task:
        """A task with a recorded attempt. A correction without an answer counts as an answer that was right. What tools
        returned in the attempt is less trusted than the operator's own words, unless `trust_tools`."""
        data, correction = self.data, self.data.get("correction")
        score = Score(**data["score"]) if "score" in data else None
        if "trace" in data:
            trace = TRACE.validate_python(data["trace"])
        else:
            trace, score = Trace(str(correction)), Score(1.0, True)
        retrieved = tuple((id, similarity) for id, similarity in data["retrieved"])
        recorded = Recorded(trace, score, own=True, retrieved=retrieved)
        read: Trust = "tool" if not trust_tools and any(step.kind == "observation" for step in trace.steps) else "own"
        trust = least(data.get("trust", "user"), read)
        return Task(self.id, data["query"], correction, recorded=recorded, trust=trust)


def outcome_row(id: str, query: str, version: int, retrieved: Iterable[tuple[str, float]]) -> dict[str, Any]:
    """The row of an outcome that nothing was reported about."""
    data = {"query": query, "version": version, "retrieved": [*retrieved]}
    return {"id": id, "data": json.dumps(data, ensure_ascii=False)}


def read_report(answer: Any = None, score: Any = None, correction: str | None = None, note: str = "") -> dict[str, Any]:
    """What is reported, as JSON values. Raises UsageError that names what is wrong."""
    said: dict[str, Any] = {}
    try:
        if answer is not None:
            trace = read_answer(answer, "the report", View(ids=_Anything()))
            text, thoughts = split_thoughts(trace.answer)
            trace = replace(trace, answer=text, reasoning=trace.reasoning or thoughts)
            said["trace"] = TRACE.dump_python(trace, mode="json")
        if score is not None:
            said["score"] = asdict(as_score(score))
    except AgentError as error:
        raise UsageError("outcome.invalid", f"answer={answer!r:.60}: {error}") from error
    except (TypeError, ValueError) as error:
        raise UsageError(
            "outcome.invalid", f"score={score!r:.60} is not a number from 0 to 1, True, False or a Score"
        ) from error
    if note:
        if score is None:
            raise UsageError(
                "outcome.invalid", "a note says why an answer got its score: report it together with score=..."
            )
        said["score"]["note"] = note
    if correction is not None:
        if not isinstance(correction, str) or is_blank(correction):
            raise UsageError(
                "outcome.invalid", f"correction={correction!r:.60} must be the text that would have been right"
            )
        said["correction"] = correction
    if not said:
        raise UsageError("outcome.invalid", "the report is empty: give answer=..., score=... or correction=...")
    return said


def write_shown(store: Store, rows: Sequence[dict[str, Any]], prune: bool = False) -> None:
    """Keep what was shown; the oldest rows without a report are deleted where there are too many."""
    table = schema.outcomes
    with store.transaction() as at:
        at.insert_new(table, *rows)
        if prune:
            newest = select(ROW).select_from(table).where(at.mine(table)).order_by(ROW.desc())
            oldest = newest.limit(1).offset(UNREPORTED).scalar_subquery()
            unreported = table.c.step.is_(None) & table.c.data.not_like('%"reported"%')
            at.run(at.delete(table).where(oldest > ROW, unreported))


def write_report(store: Store, id: str, said: Mapping[str, Any]) -> None:
    """Add a report to an outcome; what was reported before and is not given anew stays.

    Raises UsageError if the outcome is unknown, or if it was learned from.
    """
    table = schema.outcomes
    with store.transaction() as at:
        row = at.first(at.select(table).where(table.c.id == id))
        if row is None:
            raise UsageError(
                "interaction.unknown",
                f"nothing is known of {id!r} in {store.folder}: report on the id that context_for gave, or on what it "
                "returned",
            )
        if row.step is not None:
            raise UsageError(
                "outcome.learned",
                f"step {row.step} of {store.folder} has learned from the report on {id!r}, which cannot be changed now",
            )
        data = json.dumps({**json.loads(row.data), "reported": True, **said}, ensure_ascii=False)
        at.run(at.update(table).where(table.c.id == id).values(data=data))


def waiting_outcomes(store: Store) -> list[Outcome]:
    """The outcomes that can be learned from and were not, in the order of writing."""
    table = schema.outcomes
    open_ = table.c.step.is_(None) & table.c.data.like('%"reported"%')
    rows = store.rows(store.select(table).where(open_).order_by(ROW))
    found = (Outcome(row.id, json.loads(row.data), row.data) for row in rows)
    return [outcome for outcome in found if outcome.teaches]


def close_outcomes(at: Transaction, outcomes: Iterable[Outcome], step: int) -> None:
    """Note the step that learned from outcomes. One that was reported on anew since it was read stays open."""
    table = schema.outcomes
    for outcome in outcomes:
        same = (table.c.id == outcome.id) & (table.c.data == outcome.raw)
        at.run(at.update(table).where(same).values(step=step))
