"""Asking a run: one query answered with what was learned and, where wanted, learned from (`practicum run`).

Answering alone changes nothing and holds nobody up. Learning from a query is one more step of the run's method, with
the query as its only task. What it pays for is journaled under a place of its own, and its rows are written whole or
not at all: where it was cut off, asking the same again goes on, and pays for nothing twice.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from practicum import methods
from practicum.blocks.act.scaling import number_of
from practicum.core.context import Context
from practicum.core.edits import Applied, Entry
from practicum.core.errors import ProviderError, Stopped, UsageError
from practicum.core.types import Rollout, Task, Usage
from practicum.engine.loop import StepReport
from practicum.engine.run import Run
from practicum.engine.state import RunState
from practicum.models.budget import Budget
from practicum.retrieval.search import Match
from practicum.session.components import Parts, make_scorer
from practicum.session.config import Config, Splits, checked, configured
from practicum.session.learn import INTERRUPTED
from practicum.session.opening import furnished, furnished_to_act
from practicum.session.records import RUN, load_context, over, run_config
from practicum.session.result import usage_json
from practicum.session.revise import fresh_id, learned, must_have_ended, next_step
from practicum.session.upkeep import keep
from practicum.store.database import DATABASE_FILE, Store
from practicum.store.journal import digest
from practicum.store.snapshot import read_context


@dataclass(frozen=True)
class Learned:
    """What a query taught: the step it is in the run, the context after it, and the edits that were applied."""

    step: int
    context: Context
    applied: tuple[Applied, ...]
    refused: int


@dataclass(frozen=True)
class Answered:
    """An answer and how it came about. `context` is what it was given under; `hits` counts results found in the journal
    of an earlier try; `trouble` says why a query that should have been learned from was not."""

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
        """Entries that were looked up for the query, the most similar first."""
        return [Match(entry, s) for id, s in self.rollout.retrieved if (entry := self._entry(id)) is not None]

    @property
    def used(self) -> list[Entry]:
        """Entries the answer says it relies on."""
        return [entry for id in self.rollout.trace.used if (entry := self._entry(id)) is not None]

    @property
    def attempts(self) -> list[Rollout]:
        """All attempts, in the order they were made; one of them is `rollout`."""
        made = self.rollout.group
        return sorted(made, key=number_of) if self.rollout.choice else list(made)

    def as_json(self) -> dict[str, Any]:
        """Plain values, as `--json` prints them."""
        taught = self.learned
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
            "learned": None if taught is None else _taught(taught),
            **({"trouble": self.trouble} if self.trouble else {}),
        }

    def _entry(self, id: str) -> Entry | None:
        """An entry of this id, which a step may have made before its attempt."""
        known = self.context.get(id)
        return known if known is not None or self.learned is None else self.learned.context.get(id)


async def ask(
    query: str,
    context: Path | str | Context,
    *,
    learn: bool = False,
    target: str | None = None,
    parts: Parts | None = None,
    on_state: Callable[[RunState], None] | None = None,
    **config: Any,
) -> Answered:
    """Answer one query under a run's context, a playbook file's, or this one; with `learn` learn from it, too.

    Keywords are fields of `Config`; what is not given is as the run has it. Learning takes a run's folder. What it
    hears of the answer is what the scorer says where `target` is the right answer, or the scorer needs none; else what
    a judge says. `on_state` gets the state of a query that is learned from; Stopped comes of stopping its budget, and
    what was paid for until then is not paid again by the same query.

    Raises UsageError before anything is paid for where something does not fit, and ProviderError where no answer came.
    """
    text, parts = query.strip(), parts or Parts()
    if not text:
        raise UsageError("the query is empty")
    if learn:
        return await _learning(text, context, target, parts, on_state, config)
    if target is not None:
        raise UsageError("a target is feedback to learn from: ask with --learn, or score with practicum eval")
    return await _answering(text, context, parts, config)


async def _answering(query: str, context: Path | str | Context, parts: Parts, given: Mapping[str, Any]) -> Answered:
    """The method's `act` alone, exactly as in evaluation, and nothing scored."""
    base = {} if isinstance(context, Context) else run_config(Path(context))
    task, parts = Task("query", query), replace(parts, scorer=None)
    made = configured({**over(base, given), "scorer": None, "from_traces": False})
    made = checked(made, Splits((), (), (task,)), parts, scored=False)
    method = methods.build(made.method, made.settings)
    with ExitStack() as open_:
        folder = Path(open_.enter_context(tempfile.TemporaryDirectory(prefix="practicum-run-")))
        store = open_.enter_context(Store.create(folder / "run"))
        lent = open_.enter_context(Store.read(run)) if (run := _run_of(context)) is not None else None
        if isinstance(context, Context):
            learned = context
        else:
            learned = read_context(lent, RUN) if lent is not None else load_context(context)
        async with furnished_to_act(store, RUN, folder, made, parts, method, lent=lent) as state:
            at = Run(state, "query", (f"task:{task.id}",), teaches=False)
            try:
                rollout = _sound(await method.act(task, learned, at))
            except Stopped as stop:
                raise _cut_off(stop) from stop
            return Answered(rollout, learned, state.budget.spent, state.budget.elapsed)


async def _learning(
    query: str,
    context: Path | str | Context,
    target: str | None,
    parts: Parts,
    on_state: Callable[[RunState], None] | None,
    given: Mapping[str, Any],
) -> Answered:
    """One more step of the run."""
    if (folder := _run_of(context)) is None:
        where = "a context" if isinstance(context, Context) else f"{context}, which is no run"
        raise UsageError(
            f"what a query teaches is kept in a run, not in {where}: make a run of a playbook file first "
            "(practicum import FILE --out RUN)"
        )
    with Store.open(folder) as store:
        must_have_ended(store)
        before, step = read_context(store, RUN), next_step(store)
        task = Task(fresh_id(store, step), query, target)
        made = _to_learn(over(run_config(folder), given), task, parts)
        method = methods.build(made.method, made.settings)
        # The run's limits were set for learning its tasks.
        budget = Budget(made.limits)
        async with furnished(
            store, RUN, folder, made, parts, roles=method.roles, seats=method.models, budget=budget
        ) as state:
            if on_state is not None:
                on_state(state)
            root = Run(state).at(f"ask {step} {_name(made, task, before)}")
            report, trouble = await _step(method.schedule(method, (task,), before, root, None), state)
            answered = Answered(
                report.rollouts[0], before, state.budget.spent, state.budget.elapsed, state.journal.hits, None, trouble
            )
            if trouble and state.failures:
                return answered
            await state.write()
            report = replace(report, step=step)
            learned(store, task, before, report, state.budget.elapsed)
            await keep(store, report.context, state.retriever)
            taught = Learned(step, report.context, report.applied, len(report.refused))
            return replace(answered, learned=taught)


def _run_of(context: Path | str | Context) -> Path | None:
    """The run's folder, where the context is one's."""
    return Path(context) if not isinstance(context, Context) and (Path(context) / DATABASE_FILE).is_file() else None


def _to_learn(values: dict[str, Any], task: Task, parts: Parts) -> Config:
    """How a query is learned from: with a score where its scorer can give one, else by a judge's word."""
    name = values["method"]
    methods.build(name, values["settings"])
    settings = methods.alone(name, values["settings"])
    try:
        method = methods.build(name, settings)
    except UsageError as error:
        raise UsageError(
            f"method {name} cannot learn from one query, name another one with --method: {error}"
        ) from error
    if name == "none":
        raise UsageError("method none keeps nothing: name another one with --method to learn from a query")
    made = configured({**values, "settings": settings, "from_traces": False})
    labels = task.target is not None or not make_scorer(made, parts).needs_target
    judged = not labels and "judge" not in method.roles
    made = configured({**made.model_dump(), "labels": labels, "judged": judged})
    return checked(made, Splits((task,)), parts)


def _name(config: Config, task: Task, before: Context) -> str:
    """Names what is asked, how and under which context: only the same again may go on with what a kill left behind."""
    how = config.model_dump(
        mode="json", exclude={"concurrency", "max_calls", "max_tokens", "max_usd", "max_minutes", "timeout", "attempts"}
    )
    return digest(task.input, task.target or "", before.version, how)[:12]


async def _step(steps: AsyncIterator[StepReport], state: RunState) -> tuple[StepReport, str]:
    """The one step, and why nothing was learned where that was no choice of the method's. Raises ProviderError where
    there is no answer."""
    report: StepReport | None = None
    trouble = ""
    try:
        async for made in steps:
            report = made
    except Stopped as stop:
        if stop.reason == INTERRUPTED:
            raise
        raise _cut_off(stop) from stop
    except ProviderError as error:
        trouble = state.last_error or str(error)
        if report is None:
            raise
    if report is None:
        raise UsageError("this method makes no step of a query: name another one with --method")
    _sound(report.rollouts[0])
    return report, trouble


def _sound(rollout: Rollout) -> Rollout:
    """The attempt, where there was one."""
    if rollout.trace.lost:
        raise ProviderError(f"the query could not be answered: {rollout.trace.error}")
    return rollout


def _cut_off(stop: Stopped) -> UsageError:
    return UsageError(f"the query was not answered: {stop.reason}; raise the limit and ask again")


def _brief(entry: Entry) -> dict[str, Any]:
    return {"id": entry.id, "section": entry.section, "text": entry.text}


def _taught(learned: Learned) -> dict[str, Any]:
    edits = [{**asdict(done.edit), "id": done.id} for done in learned.applied]
    return {"step": learned.step, "version": learned.context.version, "applied": edits, "refused": learned.refused}
