"""Asking a run: one query is answered with what was learned and, if wanted, learned from (`practicum run`).

Answering alone changes nothing and blocks nobody. Learning from a query is one more step of the run's method, with the
query as its only task. Its calls are journaled under a place of their own, and its rows are written as a whole or not
at all: after an interruption the same query continues and pays for nothing twice.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Unpack

from practicum import methods
from practicum.blocks.act.scaling import number_of
from practicum.core.context import Context
from practicum.core.edits import Applied, Entry
from practicum.core.errors import ProviderError, Stopped, UsageError
from practicum.core.types import Rollout, Task, Usage
from practicum.engine.loop import Method, StepReport
from practicum.engine.run import Run
from practicum.engine.state import RunState
from practicum.methods.settings import GateSettings
from practicum.models.budget import Budget
from practicum.retrieval.search import Match
from practicum.session.amend import add_step, next_step, require_ended, save_snapshot
from practicum.session.components import Parts
from practicum.session.config import RunOptions, Splits, config_from, require_known
from practicum.session.opening import open_state
from practicum.session.records import RUN, load_context, override_config, run_config
from practicum.session.result import INTERRUPTED, RunInfo, Watch, usage_json
from practicum.session.setup import Setup, build_setup, set_up, take_objects
from practicum.store.database import DATABASE_FILE, Store
from practicum.store.journal import digest
from practicum.store.snapshot import read_context

CHANGEABLE = {"concurrency", "max_calls", "max_tokens", "max_usd", "max_minutes", "timeout", "attempts"}
"""Settings that may change when a query is asked again after an interruption."""


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

    rollout: Rollout
    context: Context
    usage: Usage
    seconds: float
    hits: int = 0
    learned: Learned | None = None
    trouble: str = ""

    @property
    def text(self) -> str:
        """The answer."""
        return self.rollout.trace.answer

    @property
    def retrieved(self) -> list[Match]:
        """Entries that were retrieved for the query, the most similar first."""
        return [Match(entry, s) for id, s in self.rollout.retrieved if (entry := self._entry(id)) is not None]

    @property
    def used(self) -> list[Entry]:
        """Entries that the answer cites."""
        return [entry for id in self.rollout.trace.used if (entry := self._entry(id)) is not None]

    @property
    def attempts(self) -> list[Rollout]:
        """All attempts in the order of their numbers; one of them is `rollout`."""
        group = self.rollout.group
        return sorted(group, key=number_of) if self.rollout.choice else list(group)

    def as_json(self) -> dict[str, Any]:
        """Plain values, as `--json` prints them."""
        return {
            "answer": self.text,
            "error": self.rollout.trace.error,
            "version": self.context.version,
            "memories": [{**_brief(f.entry), "similarity": f.similarity} for f in self.retrieved],
            "used": [_brief(entry) for entry in self.used],
            "attempts": [
                {"answer": r.trace.answer, "error": r.trace.error, "chosen": r is self.rollout} for r in self.attempts
            ],
            "choice": dict(self.rollout.choice),
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


async def ask(
    query: str,
    context: Path | str | Context,
    *,
    method: str | Method | None = None,
    settings: Mapping[str, Any] | GateSettings | None = None,
    learn: bool = False,
    target: str | None = None,
    parts: Parts | None = None,
    watch: Watch | None = None,
    **config: Unpack[RunOptions],
) -> Answered:
    """Answer one query under the context of a run, of a playbook file, or this one; with `learn` also learn from it.

    Keywords are those of `learn`; those not given are the run's. Learning needs the folder of a run. The feedback is
    the score, if `target` is the right answer or the scorer needs none, and otherwise a judge's verdict. `watch` is
    told of calls and waits, and of `began` where something is learned; after a stop the same query pays for nothing
    twice.

    Raises UsageError before anything is paid for if something does not fit, and ProviderError if there is no answer.
    """
    text = query.strip()
    require_known(ask, config)
    values, parts = take_objects({**config, "method": method, "settings": settings}, parts or Parts())
    if not text:
        raise UsageError("the query is empty")
    if learn:
        return await _learn(text, context, target, parts, watch or Watch(), values)
    if target is not None:
        raise UsageError("a target is feedback to learn from: ask with --learn, or score with practicum eval")
    return await _answer(text, context, parts, watch or Watch(), values)


async def _answer(
    query: str, context: Path | str | Context, parts: Parts, watch: Watch, given: Mapping[str, Any]
) -> Answered:
    """Run the method's `act` alone, exactly as in evaluation; nothing is scored."""
    base = {} if isinstance(context, Context) else run_config(Path(context))
    learned = context if isinstance(context, Context) else load_context(context)
    task, parts = Task("query", query), replace(parts, scorer=None)
    values = {**override_config(base, given), "scorer": None, "from_traces": False}
    setup = set_up(values, Splits(test=(task,)), parts, scored=False)
    with ExitStack() as open_:
        folder = Path(open_.enter_context(tempfile.TemporaryDirectory(prefix="practicum-run-")))
        store = open_.enter_context(Store.create(folder / "run"))
        asked = open_.enter_context(Store.read(run)) if (run := _run_folder(context)) is not None else None
        async with open_state(store, RUN, folder, setup, act_only=True, vectors=asked) as state:
            state.observer = watch
            at = Run(state, "query", (f"task:{task.id}",), teaches=False)
            try:
                rollout = _require_answer(await setup.method.act(task, learned, at))
            except Stopped as stop:
                raise _stopped(stop) from stop
            return Answered(rollout, learned, state.budget.spent, state.budget.elapsed)


async def _learn(
    query: str, context: Path | str | Context, target: str | None, parts: Parts, watch: Watch, given: Mapping[str, Any]
) -> Answered:
    """Add one step to the run."""
    if (folder := _run_folder(context)) is None:
        where = "a context" if isinstance(context, Context) else f"{context}, which is no run"
        raise UsageError(
            f"what is learned from a query is kept in a run, not in {where}: make a run of a playbook file first "
            "(practicum import FILE --out RUN)"
        )
    with Store.open(folder) as store:
        require_ended(store)
        before = read_context(store, RUN)
        step, id = next_step(store)
        task = Task(id, query, target)
        setup = _set_up_to_learn(override_config(run_config(folder), given), task, parts)
        method = setup.method
        # The run's limits were set for learning its tasks.
        budget = Budget(setup.config.limits)
        async with open_state(store, RUN, folder, setup, budget=budget) as state:
            watch.began(RunInfo(folder, setup.config, setup.splits, budget, context=before))
            state.observer = watch
            # Only the same query, under the same configuration and context, continues what was interrupted.
            values = setup.config.model_dump(mode="json", exclude=CHANGEABLE)
            root = Run(state).at(f"ask {step} {digest(query, target or '', before.version, values)[:12]}")
            report, trouble = await _only_step(method.schedule(method, (task,), before, root, None), state)
            learned, usage, seconds = None, budget.spent, budget.elapsed
            if not (trouble and state.failures):
                await state.write()
                add_step(store, task, before, replace(report, step=step), budget.elapsed)
                await save_snapshot(store, report.context, state.retriever)
                learned = Learned(step, report.context, report.applied, len(report.refused))
            return Answered(report.rollouts[0], before, usage, seconds, state.journal.hits, learned, trouble)


def _run_folder(context: Path | str | Context) -> Path | None:
    """The folder of the run, if the context is a run's."""
    return Path(context) if not isinstance(context, Context) and (Path(context) / DATABASE_FILE).is_file() else None


def _set_up_to_learn(values: dict[str, Any], task: Task, parts: Parts) -> Setup:
    """The feedback on a query is a score if its scorer can give one, and otherwise a judge's verdict."""
    name, splits = values["method"], Splits((task,))
    methods.read_settings(name, values["settings"], values["profile"])
    values = {**values, "settings": methods.for_one_task(name, values["settings"]), "from_traces": False}
    try:
        setup = build_setup(config_from(values), splits, parts)
    except UsageError as error:
        raise UsageError(
            f"method {name} cannot learn from one query, choose another one with --method: {error}"
        ) from error
    if name == "none":
        raise UsageError("method none keeps nothing: choose another one with --method to learn from a query")
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
        raise UsageError("this method does not learn from a query: choose another one with --method")
    _require_answer(report.rollouts[0])
    return report, trouble


def _require_answer(rollout: Rollout) -> Rollout:
    """The rollout. Raises ProviderError if it has no answer."""
    if rollout.trace.lost:
        raise ProviderError(f"the query could not be answered: {rollout.trace.error}")
    return rollout


def _stopped(stop: Stopped) -> UsageError:
    return UsageError(f"the query was not answered: {stop.reason}; raise the limit and ask again")


def _brief(entry: Entry) -> dict[str, Any]:
    return {"id": entry.id, "section": entry.section, "text": entry.text}
