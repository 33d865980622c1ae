"""Queries to a run (`practicum run`): answer a query with the run's context and, optionally, learn from the query.

Answering changes nothing and takes no lock. Learning from a query adds one step of the run's method, with the query as
its only task. The step's calls are journaled under the place of the step, and the step's rows are written in one
transaction: after an interruption, the same query continues the step, and no call is paid for twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from practicum.core.context import Context
from practicum.core.edits import Applied, Entry
from practicum.core.errors import ProviderError, Stopped, UsageError, error_body
from practicum.core.html import card, table
from practicum.core.types import Attempt, Task, Usage
from practicum.core.views import View
from practicum.core.words import one_line, usage_text
from practicum.engine.run import Run
from practicum.engine.state import RunState
from practicum.methods.blocks.scaling import number_of
from practicum.retrieval.search import Match
from practicum.session.amend import next_step, require_ended, restore_live_version, task_id
from practicum.session.components import Parts
from practicum.session.foreign import Origin
from practicum.session.further import FurtherLearning, as_outcome
from practicum.session.opening import Shared
from practicum.session.result import INTERRUPTED, Watch, usage_facts, usage_json
from practicum.session.setup import Setup
from practicum.store.database import Store


@dataclass(frozen=True)
class Learned:
    """Result of learning from a query: the number of the added step, the context after the step, the applied edits, and
    the number of refused edits."""

    step: int
    context: Context
    applied: tuple[Applied, ...]
    refused: int

    def as_json(self) -> dict[str, Any]:
        """Return plain values, as `--json` prints them."""
        edits = [{**asdict(done.edit), "id": done.id} for done in self.applied]
        return {"step": self.step, "version": self.context.version, "applied": edits, "refused": self.refused}


@dataclass(frozen=True)
class Answered:
    """Answer to a query, with its attempt and cost.

    `context` is the context of the attempt; `corrections` are the ids of the corrections and notes that were shown with
    the context. `hits` is the number of call results that were read from the journal, because an earlier call with the
    same query stored these results before it was interrupted. `trouble` is the reason why learning from the query
    failed, or "".
    """

    attempt: Attempt
    context: Context
    corrections: tuple[str, ...]
    usage: Usage
    seconds: float
    hits: int = 0
    learned: Learned | None = None
    trouble: str = ""

    def __repr__(self) -> str:
        facts = ("version", self.context.version), ("relies on", self.used), ("usage", usage_text(self.usage))
        return f"<Answered {one_line(self.text)!r}: {'; '.join(f'{name} {value}' for name, value in facts)}>"

    def _repr_html_(self) -> str:
        """Return the answer, and the entries that were retrieved or cited, as HTML for notebooks."""
        used = {entry.id for entry in self.used}
        near = {match.entry.id: f"{match.similarity:.2f}" for match in self.retrieved}
        entries = {entry.id: entry for entry in (*self.used, *(match.entry for match in self.retrieved))}
        rows = [(e.id, e.solved, near.get(e.id), "yes" if e.id in used else "") for e in entries.values()]
        reasoning = self.attempt.trace.reasoning
        facts = {"failed": self.error, "reasoning": reasoning, **usage_facts(self.usage, self.seconds)}
        return card(self.text, facts, table(("id", "text", "similarity", "used"), rows) if rows else "")

    @property
    def text(self) -> str:
        return self.attempt.trace.answer

    @property
    def error(self) -> str | None:
        """Reason why the agent failed; None if the agent did not fail."""
        return self.attempt.trace.error

    @property
    def retrieved(self) -> list[Match]:
        """Entries retrieved for the query, most similar first."""
        return [Match(entry, s) for id, s in self.attempt.retrieved if (entry := self._entry(id)) is not None]

    @property
    def used(self) -> list[Entry]:
        """Entries cited in the answer."""
        return [entry for id in self.attempt.trace.used if (entry := self._entry(id)) is not None]

    @property
    def attempts(self) -> list[Attempt]:
        """All attempts at the query, in the order of their numbers, including `attempt`."""
        group = self.attempt.group
        return sorted(group, key=number_of) if self.attempt.choice else list(group)

    def as_json(self) -> dict[str, Any]:
        """Return plain values, as `--json` prints them."""
        return {
            "answer": self.text,
            "error": None if self.error is None else error_body("agent.failed", self.error),
            "version": self.context.version,
            "memories": [{**_brief(f.entry), "similarity": f.similarity} for f in self.retrieved],
            "used": [_brief(entry) for entry in self.used],
            "corrections": [*self.corrections],
            "attempts": [
                {"answer": r.trace.answer, "error": r.trace.error, "chosen": r is self.attempt} for r in self.attempts
            ],
            "choice": dict(self.attempt.choice),
            "usage": usage_json(self.usage),
            "seconds": round(self.seconds, 3),
            "journal": {"hits": self.hits},
            "learned": None if self.learned is None else self.learned.as_json(),
            **({"trouble": self.trouble} if self.trouble else {}),
        }

    def _entry(self, id: str) -> Entry | None:
        """Return the entry with this id: from the context of the attempt, or else from the context after learning.
        Return None if neither context has the entry."""
        entry = self.context.get(id)
        return entry if entry is not None or self.learned is None else self.learned.context.get(id)


async def answer_query(
    query: str, context: Context, setup: Setup, state: RunState, corrections: Sequence[str] = ()
) -> Answered:
    """Answer a query with the method's `act`, as in evaluation, but without a score.

    `corrections` are the ids of the corrections that the agent's view shows in addition to the context.
    """
    task = Task("query", query)
    at = Run(state, "query", (f"task:{task.id}",), teaches=False)
    try:
        attempt = _require_answer(await setup.method.act(task, context, at))
    except Stopped as stop:
        raise _stopped(stop.reason) from stop
    return Answered(attempt, context, tuple(corrections), state.budget.spent, state.budget.elapsed)


async def learn_query(
    query: str, store: Store, target: str | None, parts: Parts, watch: Watch, overrides: Mapping[str, Any],
    shared: Shared | None = None, trust_run: bool = False, corrections: Sequence[str] = (),
    complete: Callable[[View], View] | None = None,
) -> Answered:  # fmt: skip
    """Answer a query and learn from the query, as one more step of a run that has ended.

    `complete` adds corrections to the agent's view; `corrections` are the ids of these corrections.
    """
    require_ended(store)
    restore_live_version(store)
    values = Origin.of(store, overrides, parts, trust_run).acting_values(learns=True)
    if values["method"] == "none":
        raise UsageError(
            "method.unsuitable", "method none stores no lessons: choose another `method` to learn from a query"
        )
    step = next_step(store)
    learning = FurtherLearning(store, values, parts, watch, shared, complete, at_once=not store.is_served)
    before, trouble = learning.progress.context, ""
    try:
        await learning.learn([as_outcome(Task(task_id(store, step), query, target), *corrections)])
    except ProviderError as error:
        if not learning.last:
            raise
        trouble = learning.last_error or str(error)
    if learning.stopped == INTERRUPTED:
        raise Stopped("run.stopped", INTERRUPTED)
    if learning.stopped:
        raise _stopped(learning.stopped)
    report = learning.last[0]
    attempt = _require_answer(report.attempts[0])
    learned = None if trouble else Learned(step, report.context, report.applied, len(report.refused))
    usage, seconds = learning.budget.spent, learning.budget.elapsed
    return Answered(attempt, before, tuple(corrections), usage, seconds, learning.hits, learned, trouble)


def _require_answer(attempt: Attempt) -> Attempt:
    """Return the attempt. Raises ProviderError if the attempt has no answer because the provider failed."""
    if attempt.trace.lost:
        raise ProviderError("attempts.all_failed", f"the query could not be answered: {attempt.trace.error}")
    return attempt


def _stopped(reason: str) -> UsageError:
    return UsageError("budget.spent", f"the query was not answered: {reason}; raise the limit and ask again")


def _brief(entry: Entry) -> dict[str, Any]:
    return {"id": entry.id, "section": entry.section, "text": entry.text}
