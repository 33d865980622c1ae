"""Asking a run: one query is answered with what was learned and, if wanted, learned from (`practicum run`).

Answering alone changes nothing and blocks nobody. Learning from a query is one more step of the run's method, with the
query as its only task. Its calls are journaled under a place of their own, and its rows are written as a whole or not
at all: after an interruption the same query continues and pays for nothing twice.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from practicum import methods
from practicum.core.context import Context
from practicum.core.edits import Applied, Entry
from practicum.core.errors import ProviderError, Stopped, UsageError, error_body
from practicum.core.html import card, table
from practicum.core.types import Attempt, Task, Usage
from practicum.core.words import one_line, usage_text
from practicum.engine.loop import StepReport
from practicum.engine.run import Run
from practicum.engine.state import RunState
from practicum.methods.blocks.scaling import number_of
from practicum.models.budget import Budget
from practicum.retrieval.search import Match
from practicum.session.amend import add_steps, next_step, require_ended, save_snapshot, task_id
from practicum.session.components import Parts
from practicum.session.config import Splits, config_from
from practicum.session.foreign import Origin
from practicum.session.opening import Shared, check_tasks, open_state
from practicum.session.records import read_by_origin
from practicum.session.result import INTERRUPTED, RunInfo, Watch, usage_facts, usage_json
from practicum.session.setup import Setup, build_setup, set_up
from practicum.store.database import Store


@dataclass(frozen=True)
class Learned:
    """What was learned from a query: the step that it is in the run, the context after it, and the applied edits."""

    step: int
    context: Context
    applied: tuple[Applied, ...]
    refused: int

    def as_json(self) -> dict[str, Any]:
        """Plain values, as `--json` prints them."""
        edits = [{**asdict(done.edit), "id": done.id} for done in self.applied]
        return {"step": self.step, "version": self.context.version, "applied": edits, "refused": self.refused}


@dataclass(frozen=True)
class Answered:
    """An answer and how it came about.

    `context` is the one that it was given under. `hits` counts results from the journal of an interrupted try.
    `trouble` says why a query that should have been learned from was not.
    """

    attempt: Attempt
    context: Context
    usage: Usage
    seconds: float
    hits: int = 0
    learned: Learned | None = None
    trouble: str = ""

    def __repr__(self) -> str:
        facts = ("version", self.context.version), ("relies on", self.used), ("usage", usage_text(self.usage))
        return f"<Answered {one_line(self.text)!r}: {'; '.join(f'{name} {value}' for name, value in facts)}>"

    def _repr_html_(self) -> str:
        """The answer and the entries behind it, for notebooks."""
        used = {entry.id for entry in self.used}
        near = {match.entry.id: f"{match.similarity:.2f}" for match in self.retrieved}
        entries = {entry.id: entry for entry in (*self.used, *(match.entry for match in self.retrieved))}
        rows = [(e.id, e.solved, near.get(e.id), "yes" if e.id in used else "") for e in entries.values()]
        trace = self.attempt.trace
        facts = {"failed": trace.error, "reasoning": trace.reasoning, **usage_facts(self.usage, self.seconds)}
        return card(self.text, facts, table(("id", "text", "similarity", "used"), rows) if rows else "")

    @property
    def text(self) -> str:
        return self.attempt.trace.answer

    @property
    def retrieved(self) -> list[Match]:
        """Entries that were retrieved for the query, the most similar first."""
        return [Match(entry, s) for id, s in self.attempt.retrieved if (entry := self._entry(id)) is not None]

    @property
    def used(self) -> list[Entry]:
        """Entries that the answer cites."""
        return [entry for id in self.attempt.trace.used if (entry := self._entry(id)) is not None]

    @property
    def attempts(self) -> list[Attempt]:
        """All attempts in the order of their numbers; one of them is `attempt`."""
        group = self.attempt.group
        return sorted(group, key=number_of) if self.attempt.choice else list(group)

    def as_json(self) -> dict[str, Any]:
        """Plain values, as `--json` prints them."""
        error = self.attempt.trace.error
        return {
            "answer": self.text,
            "error": None if error is None else error_body("agent.failed", error),
            "version": self.context.version,
            "memories": [{**_brief(f.entry), "similarity": f.similarity} for f in self.retrieved],
            "used": [_brief(entry) for entry in self.used],
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
        """The entry with this id, which the step may have added before its attempt."""
        known = self.context.get(id)
        return known if known is not None or self.learned is None else self.learned.context.get(id)


async def answer_query(query: str, context: Context, setup: Setup, state: RunState) -> Answered:
    """Run the method's `act` alone, exactly as in evaluation; nothing is scored."""
    task = Task("query", query)
    at = Run(state, "query", (f"task:{task.id}",), teaches=False)
    try:
        attempt = _require_answer(await setup.method.act(task, context, at))
    except Stopped as stop:
        raise _stopped(stop) from stop
    return Answered(attempt, context, state.budget.spent, state.budget.elapsed)


async def learn_query(
    query: str, store: Store, target: str | None, parts: Parts, watch: Watch, given: Mapping[str, Any],
    shared: Shared | None = None, trust_run: bool = False,
) -> Answered:  # fmt: skip
    """Answer a query and learn from it: one more step of the run, which must have ended."""
    require_ended(store)
    values = Origin.of(store, given, parts, trust_run).acting_values(learns=True)
    before = read_by_origin(store)
    step = next_step(store)
    task = Task(task_id(store, step), query, target)
    setup = _set_up_to_learn(values, task, parts)
    method = setup.method
    # The run's limits were set for learning its tasks.
    budget = Budget(setup.config.limits)
    async with open_state(store, store.files, setup, budget=budget, shared=shared) as state:
        state.observer = watch
        watch.began(RunInfo(store.folder, setup.config, setup.splits, budget, context=before))
        for warning in check_tasks([task], state):
            watch.warned(warning)
        # Only the same query, under the same configuration and context, continues what was interrupted.
        root = Run(state).at(f"ask {step} {setup.digest(query, target or '', before.version)}")
        report, trouble = await _only_step(method.schedule(method, (task,), before, root, None), state)
        learned, usage, seconds = None, budget.spent, budget.elapsed
        if not (trouble and state.lost):
            await state.journal.write(*state.settle([*state.lost]))
            store.change(lambda at: add_steps(at, [task], before, [replace(report, step=step)], budget.elapsed))
            await save_snapshot(store, report.context, state.retriever)
            learned = Learned(step, report.context, report.applied, len(report.refused))
        return Answered(report.attempts[0], before, usage, seconds, state.journal.hits, learned, trouble)


def _set_up_to_learn(values: dict[str, Any], task: Task, parts: Parts) -> Setup:
    """The feedback on a query is a score if its scorer can give one, and otherwise a judge's verdict."""
    name, splits = values["method"], Splits((task,))
    methods.read_settings(name, values["settings"], values["profile"])
    values = {**values, "settings": methods.for_one_task(name, values["settings"]), "from_traces": False}
    try:
        setup = build_setup(config_from(values), splits, parts)
    except UsageError as error:
        raise UsageError(
            "method.unsuitable", f"method {name} cannot learn from one query, choose another one with `method`: {error}"
        ) from error
    if name == "none":
        raise UsageError(
            "method.unsuitable", "method none keeps nothing: choose another one with `method` to learn from a query"
        )
    labels = task.target is not None or not setup.scorer.needs_target
    judged = not labels and "judge" not in setup.method.roles
    return set_up({**values, "labels": labels, "judged": judged}, splits, parts)


async def _only_step(steps: AsyncIterator[StepReport], state: RunState) -> tuple[StepReport, str]:
    """The only step, and the trouble that kept the method from learning. Raises ProviderError if there is no answer."""
    report: StepReport | None = None
    trouble = ""
    try:
        async for step in steps:
            report = step
    except Stopped as stop:
        if stop.reason == INTERRUPTED:
            raise
        raise _stopped(stop) from stop
    except ProviderError as error:
        trouble = state.last_error or str(error)
        if report is None:
            raise
    if report is None:
        raise UsageError(
            "method.unsuitable", "this method does not learn from a query: choose another one with `method`"
        )
    _require_answer(report.attempts[0])
    return report, trouble


def _require_answer(attempt: Attempt) -> Attempt:
    """The attempt. Raises ProviderError if it has no answer."""
    if attempt.trace.lost:
        raise ProviderError("attempts.all_failed", f"the query could not be answered: {attempt.trace.error}")
    return attempt


def _stopped(stop: Stopped) -> UsageError:
    return UsageError("budget.spent", f"the query was not answered: {stop.reason}; raise the limit and ask again")


def _brief(entry: Entry) -> dict[str, Any]:
    return {"id": entry.id, "section": entry.section, "text": entry.text}
