"""A run from start to end: open the folder, seat the models, learn, evaluate, report. The library's front door.

`learn`, `resume` and `evaluate` are what the command line calls, and what five lines of Python call.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter
from sqlalchemy import select

from practicum import methods, playbook
from practicum.context import Context, Refused
from practicum.embed import Embedder, Vectors, open_embedder
from practicum.errors import Stopped, StoreError, TaskFileError, UsageError
from practicum.history import Version, entry_json, read_versions, rebuild, seed_version, version_row
from practicum.journal import Journal
from practicum.loop import Method, StepReport, Validation, mean_score
from practicum.loop import learn as loop
from practicum.models.budget import Budget, Limits, Need
from practicum.models.client import Client, Options, Structure
from practicum.models.names import ROLES, Models, Opening
from practicum.parts import Parts, make_agent, make_scorer
from practicum.run import House, Run, Seat, need_of
from practicum.store import schema
from practicum.store.store import FILE, Store
from practicum.types import Lesson, Rollout, Task, Usage
from practicum.views import count_tokens, full

RUN = "run"
"""The id of the run in a folder of its own."""


class Config(BaseModel):
    """Everything a run is made of, kept with it. Limits alone may change on resume."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    method: str = "ace"
    """Name of the method."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Settings of the method."""
    model: str = "local"
    """The model of every role that has none of its own."""
    roles: dict[str, str] = Field(default_factory=dict)
    """Models by role."""
    agent: str = "chat"
    """chat, command:PROGRAM or module:function."""
    scorer: str | None = None
    """Name of the scorer; `choice` where choices are given, else `exact`."""
    instructions: str = ""
    """What the agent is told beside the task."""
    choices: tuple[str, ...] = ()
    """The answers there are, where they are few."""
    reasoning: bool = False
    """Whether the chat agent writes a line of thought before its answer."""
    labels: bool = True
    """Whether learning may see targets and scores."""
    judged: bool = False
    """Without labels: whether a judge's verdict is the feedback."""
    seed: int = 0
    """Of every random choice."""
    concurrency: int = Field(default=16, ge=1)
    """Calls in flight at one endpoint."""
    structure: Structure = "native"
    """How models are asked for JSON: native schema, tool, or prompted."""
    temperature: float | None = 0.0
    """Of every role; None leaves it to the provider."""
    max_output_tokens: int = Field(default=1024, ge=1)
    """Most tokens a call may write."""
    timeout: float = Field(default=120.0, gt=0)
    """Seconds a call may take."""
    attempts: int = Field(default=6, ge=1)
    """Tries of a call that the provider failed."""
    window: int = Field(default=8192, ge=256)
    """Context of models in this process, in tokens."""
    embedder: str = "wordllama"
    """Name of the embedder."""
    validate_every: int = Field(default=1, ge=1)
    """Steps between validations, where there are validation tasks."""
    before: bool = False
    """Whether the test tasks are also run with the context the run starts from."""
    max_calls: int | None = Field(default=None, ge=1)
    max_tokens: int | None = Field(default=None, ge=1)
    max_usd: float | None = Field(default=None, gt=0)
    max_minutes: float | None = Field(default=None, gt=0)

    @property
    def limits(self) -> Limits:
        return Limits(self.max_calls, self.max_tokens, self.max_usd, self.max_minutes)


@dataclass(frozen=True, slots=True)
class Splits:
    """The tasks of a run."""

    train: tuple[Task, ...]
    val: tuple[Task, ...] = ()
    test: tuple[Task, ...] = ()


@dataclass(frozen=True)
class Result:
    """What came of a run. `scores` has before, val_best, test, online, each where it applies, in [0, 1]."""

    run: Path
    context: Context
    scores: dict[str, float]
    usage: Usage
    by_role: dict[str, Usage]
    seconds: float
    hits: int
    refused: int
    errors: dict[str, int]
    steps: int
    stopped: str | None = None
    interrupted: bool = False

    def as_json(self) -> dict[str, Any]:
        """Plain values, as `--json` prints them."""
        return {
            "run": str(self.run),
            "version": self.context.version,
            "entries": [entry_json(e) for e in self.context],
            "context_tokens": full(self.context).tokens,
            "seconds": round(self.seconds, 3),
            "scores": self.scores,
            "usage": usage_json(self.usage),
            "by_role": {role: usage_json(u) for role, u in self.by_role.items()},
            "journal": {"hits": self.hits},
            "refused": self.refused,
            "errors": self.errors,
            "steps": self.steps,
            "stopped": self.stopped,
        }


def usage_json(usage: Usage) -> dict[str, Any]:
    """Usage as plain values; `usd` is null where a price is unknown."""
    return {
        "calls": usage.calls,
        "input_tokens": usage.input_tokens,
        "cached_tokens": usage.cached_tokens,
        "output_tokens": usage.output_tokens,
        "usd": usage.usd,
    }


class Watch(Protocol):
    """Someone who looks on. Every method may be called often and must return at once."""

    def began(self, session: Session, low: int, high: int) -> None: ...

    def evaluating(self, session: Session, name: str, tasks: int) -> None: ...

    def evaluated(self, session: Session, name: str, score: float) -> None: ...

    def stepped(self, session: Session, report: StepReport) -> None: ...


class _Nobody:
    """Looks away."""

    def began(self, session: Session, low: int, high: int) -> None: ...

    def evaluating(self, session: Session, name: str, tasks: int) -> None: ...

    def evaluated(self, session: Session, name: str, score: float) -> None: ...

    def stepped(self, session: Session, report: StepReport) -> None: ...


@dataclass
class Session:
    """An open run: what it is made of and how far it is."""

    folder: Path
    config: Config
    splits: Splits
    method: Method
    house: House
    store: Store
    seed: Context
    watch: Watch = field(default_factory=_Nobody)
    context: Context = field(default_factory=Context)
    scores: dict[str, float] = field(default_factory=dict)
    steps: int = 0
    refused: int = 0
    attempts: int = 0
    points: float = 0.0

    @property
    def total_steps(self) -> int:
        """Steps the run will take, as far as that is known."""
        per_epoch = -(-len(self.splits.train) // self.method.batch)
        return per_epoch * self.method.epochs

    async def run(self) -> Result:
        """Learn, evaluate, report. A spent budget or an interrupt ends it early, with the best context so far."""
        began = time.monotonic()
        root = Run(self.house)
        self.context = self.seed
        low, high = self._estimate()
        self._refuse_small_budgets(low)
        self.watch.began(self, low, high)
        await self._save(seed_version(self.seed))
        stopped = None
        best, self._best_score = self.seed, -1.0
        try:
            if self.config.before and self.splits.test:
                self.scores["before"] = await self._evaluate(root, "test", self.seed, "before")
            best = await self._learn(root)
        except Stopped as stop:
            stopped = stop.reason
            best = self._best if self.splits.val else self.context
        stopped = await self._finish(root, best, stopped)
        result = Result(
            run=self.folder,
            context=best,
            scores=self.scores,
            usage=self.house.budget.spent,
            by_role=self.house.journal.by_role(),
            seconds=self.house.budget.elapsed,
            hits=self.house.journal.hits,
            refused=self.refused,
            errors={k: v for k, v in sorted(self.house.counts.items()) if v and k != "calls"},
            steps=self.steps,
            stopped=stopped,
            interrupted=stopped == INTERRUPTED,
        )
        self._close(result, time.monotonic() - began)
        return result

    async def _learn(self, root: Run) -> Context:
        validation = Validation(self.splits.val, self.config.validate_every) if self.splits.val else None
        self._best = self.seed
        if validation is not None:
            self._best_score = await validation.score(self.method, self.seed, root)
            self.scores["val_best"] = self._best_score
        async for report in loop(self.method, self.splits.train, self.seed, root, validation):
            await self._keep(report)
        return self._best if validation is not None else self.context

    async def _finish(self, root: Run, best: Context, stopped: str | None) -> str | None:
        """The final evaluation, on the share held back for it."""
        if best.version != self.context.version:
            version = self.context.version + 1
            await self._save(Version(version, best.version, self.steps, self.context.next_number, ()))
            best = replace(best, version=version, next_number=self.context.next_number)
        self._final = best
        if not self.splits.test or stopped == INTERRUPTED:
            return stopped
        self.house.budget.hold(Need())
        try:
            self.scores["test"] = await self._evaluate(root, "test", best, "test")
        except Stopped as stop:
            return stop.reason
        return stopped

    async def _evaluate(self, root: Run, split: str, context: Context, name: str) -> float:
        tasks = self.splits.test
        self.watch.evaluating(self, name, len(tasks))
        score = mean_score(await root.evaluate(self.method.act, split, tasks, context))
        self.watch.evaluated(self, name, score)
        return score

    async def _keep(self, report: StepReport) -> None:
        """Write a step down and count it."""
        parent = self.context
        self.context, self.steps = report.context, report.step
        self.refused += len(report.refused)
        for rollout in report.rollouts:
            self.attempts += 1
            self.points += rollout.score.value if rollout.score is not None else 0.0
        if self.config.settings.get("online") and self.attempts:
            self.scores["online"] = self.points / self.attempts
        if report.val is not None and report.val > self._best_score:
            self._best, self._best_score = report.context, report.val
            self.scores["val_best"] = report.val
        writes = [self.store.write(table, rows) for table, rows in _rows(report).items() if rows]
        if report.context.version != parent.version:
            made = Version(
                report.context.version, parent.version, report.step, report.context.next_number, report.applied
            )
            writes.append(self.store.write(schema.versions, [version_row(RUN, made)]))
        await asyncio.gather(*writes)
        self.house.budget.hold(self._final_need())
        self.watch.stepped(self, report)

    async def _save(self, version: Version) -> None:
        await self.store.write(schema.versions, [version_row(RUN, version)])

    def _estimate(self) -> tuple[int, int]:
        """Fewest and most model calls the run can take, without repairs of bad output."""
        n, per = len(self.splits.train), self.method.calls
        whole, rest = divmod(n, self.method.batch)
        low, high = (
            self.method.epochs * (whole * per(self.method.batch)[i] + (per(rest)[i] if rest else 0)) for i in (0, 1)
        )
        each = self._calls_per_evaluation()
        fixed = each * len(self.splits.test) * (1 + self.config.before)
        rounds = self.total_steps // self.config.validate_every
        val = each * len(self.splits.val)
        return low + fixed + val, high + fixed + val * (1 + rounds)

    def _calls_per_evaluation(self) -> int:
        asked = 0 if self.house.agent.journaled else 1
        return asked + (1 if self.config.scorer == "judge" else 0)

    def _one_call(self) -> Need:
        """The most one agent's call is expected to need."""
        seat = self.house.seat("agent")
        longest = max((len(t.input) for t in (*self.splits.train, *self.splits.test)), default=0)
        guess = count_tokens(self.config.instructions) + longest // 4 + full(self.seed).tokens + 64
        return need_of(seat.client, 1.25 * self.house.largest.get("agent", guess), seat.options.max_output_tokens)

    def _final_need(self) -> Need:
        """What the final evaluation may need. Outputs are taken as a quarter of what they may be, but for one call."""
        calls = self._calls_per_evaluation() * len(self.splits.test)
        if not calls:
            return Need()
        one = self._one_call()
        spare = int(self.house.seat("agent").options.max_output_tokens * 0.75)
        return Need(1, max(one.tokens - spare, 1), one.usd) * calls + Need(0, spare)

    def _refuse_small_budgets(self, low: int) -> None:
        budget = self.house.budget
        if not self.splits.train and not self.splits.test:
            return
        step = self._one_call() * max(self.method.calls(min(self.method.batch, len(self.splits.train) or 1))[0], 0)
        final = self._final_need()
        over = replace_spent(budget).fits(step + final) if budget.spent.calls == 0 else None
        if over is not None:
            raise UsageError(
                f"{over.replace(' is spent', '')} does not reach for one step and the final evaluation, which need "
                f"{(step + final).calls} calls and up to {(step + final).tokens} tokens: raise it, or leave out --test"
            )
        budget.hold(final)

    def _close(self, result: Result, seconds: float) -> None:
        state = "done" if result.stopped is None else "stopped"
        row = schema.runs.update().where(schema.runs.c.run_id == RUN)
        report = json.dumps(result.as_json(), ensure_ascii=False)
        self.store.change(row.values(state=state, seconds=self.house.budget.elapsed, result=report))


INTERRUPTED = "interrupted"


def replace_spent(budget: Budget) -> Budget:
    """The same limits with nothing spent or held."""
    return Budget(budget.limits)


_ROLLOUT: TypeAdapter[Rollout] = TypeAdapter(Rollout)
_LESSON: TypeAdapter[Lesson] = TypeAdapter(Lesson)
_REFUSED: TypeAdapter[tuple[Refused, ...]] = TypeAdapter(tuple[Refused, ...])
_TASK: TypeAdapter[Task] = TypeAdapter(Task)


def _rows(report: StepReport) -> dict[Any, list[dict[str, Any]]]:
    """A step as rows of the store."""
    numbers = {
        "epoch": report.batch.epoch,
        "tasks": [t.id for t in report.batch.tasks],
        "score": mean_score(report.rollouts),
        "lessons": len(report.lessons),
        "applied": len(report.applied),
        "refused": len(report.refused),
        "version": report.context.version,
        "entries": len(report.context),
        "tokens": full(report.context).tokens,
        "seconds": report.seconds,
        "val": report.val,
    }
    step = {"run_id": RUN, "step": report.step}
    return {
        schema.steps: [{**step, "data": json.dumps(numbers), "refused": _REFUSED.dump_json(report.refused).decode()}],
        schema.rollouts: [
            {**step, "place": r.place, "sources": json.dumps(r.sources), "data": _ROLLOUT.dump_json(r).decode()}
            for r in report.rollouts
        ],
        schema.lessons: [
            {**step, "lesson_id": x.id, "sources": json.dumps(x.sources), "data": _LESSON.dump_json(x).decode()}
            for x in report.lessons
        ],
    }


async def learn(
    tasks: Sequence[Task],
    *,
    val: Sequence[Task] = (),
    test: Sequence[Task] = (),
    out: Path | str | None = None,
    seed_context: Context | None = None,
    parts: Parts | None = None,
    watch: Watch | None = None,
    on_session: Callable[[Session], None] | None = None,
    **config: Any,
) -> Result:
    """Learn from `tasks` and keep everything in the folder `out` (a new one under ./runs where None).

    Keywords are the fields of `Config`; settings of the method go in `settings={...}`. `parts` takes Python objects
    in place of names: an agent, a scorer, model clients, an embedder. Raises UsageError before anything is paid for
    where something does not fit, and other PracticumErrors where the run cannot go on.
    """
    made = checked(Config.model_validate(config), tasks, val, test, parts or Parts())
    folder = Path(out) if out is not None else new_folder(made.method)
    store = Store.create(folder)
    with store:
        splits = Splits(tuple(tasks), tuple(val), tuple(test))
        seed = seed_context or Context()
        store.put(schema.runs, [{"run_id": RUN, "config": made.model_dump_json(), "state": "running", "seconds": 0.0}])
        store.put(schema.tasks, list(_task_rows(splits)))
        store.put(schema.versions, [version_row(RUN, seed_version(seed))])
        async with _opened(store, folder, made, splits, seed, parts or Parts(), watch) as session:
            if on_session is not None:
                on_session(session)
            return await session.run()


async def resume(
    folder: Path | str,
    *,
    limits: Mapping[str, Any] | None = None,
    parts: Parts | None = None,
    watch: Watch | None = None,
    on_session: Callable[[Session], None] | None = None,
) -> Result:
    """Go on with a run: its own tasks and settings, and no call again that its journal holds.

    `limits` (max_calls, max_tokens, max_usd, max_minutes) may only be raised.
    """
    folder = Path(folder)
    with Store.open(folder) as store:
        config, splits, state = read_run(store)
        if state == "forgotten":
            raise UsageError(
                f"{folder} was made to forget and cannot go on: start a new run with --seed-playbook {folder}"
            )
        config = _raised(config, limits or {})
        store.change(schema.runs.update().values(state="running", config=config.model_dump_json()))
        seed = rebuild([v for v in read_versions(store, RUN) if v.version == 0])
        async with _opened(store, folder, config, splits, seed, parts or Parts(), watch) as session:
            if on_session is not None:
                on_session(session)
            return await session.run()


def _raised(config: Config, limits: Mapping[str, Any]) -> Config:
    for name, value in limits.items():
        old = getattr(config, name)
        if value is not None and (old is None or value < old):
            kept = "without bound" if old is None else old
            raise UsageError(
                f"--{name.replace('_', '-')} {value} is lower than this run's ({kept}): a resume may only raise it"
            )
    return config.model_copy(update={k: v for k, v in limits.items() if v is not None})


def checked(config: Config, tasks: Sequence[Task], val: Sequence[Task], test: Sequence[Task], parts: Parts) -> Config:
    """The configuration with its defaults filled in, or a UsageError, before anything is paid for."""
    from practicum.tasks.load import require_targets

    if not tasks and not test:
        raise UsageError("there are no tasks")
    scorer = config.scorer or ("choice" if config.choices else "exact")
    config = config.model_copy(update={"scorer": scorer, "roles": _named_roles(config.roles)})
    methods.build(config.method, config.settings)
    made = make_scorer(config, parts)
    for split, where in ((tasks, "the tasks"), (val, "the validation tasks"), (test, "the test tasks")):
        _unique(split, where)
        needed = split is not tasks or config.labels
        if made is not None and made.needs_target and needed:
            require_targets(split, scorer, where, config.choices or None)
    if config.method == "icl" and not config.labels:
        raise UsageError("method icl shows right answers, so it cannot learn without labels")
    if config.judged and config.labels:
        raise UsageError("a judge's verdict is feedback for learning without labels: add --no-labels, or leave it out")
    return config


def _named_roles(roles: Mapping[str, str]) -> dict[str, str]:
    named = {}
    for role, model in roles.items():
        if role not in ROLES:
            raise UsageError(f"unknown role {role!r}: known are {', '.join(ROLES)}")
        named[ROLES[role]] = model
    return named


def _unique(tasks: Sequence[Task], where: str) -> None:
    seen: set[str] = set()
    for task in tasks:
        if task.id in seen:
            raise TaskFileError(f"two of {where} have the id {task.id!r}")
        seen.add(task.id)


@asynccontextmanager
async def _opened(
    store: Store, folder: Path, config: Config, splits: Splits, seed: Context, parts: Parts, watch: Watch | None
) -> AsyncIterator[Session]:
    """A session with its models open; whatever happens they are closed and the time spent is kept."""
    (before,) = store.rows(select(schema.runs.c.seconds).where(schema.runs.c.run_id == RUN))
    models = Models(opening(config, folder, parts))
    house = make_house(store, config, parts, models, before.seconds)
    try:
        yield Session(
            folder,
            config,
            splits,
            methods.build(config.method, config.settings),
            house,
            store,
            seed,
            watch or _Nobody(),
        )
    finally:
        await models.close()
        store.change(schema.runs.update().where(schema.runs.c.run_id == RUN).values(seconds=house.budget.elapsed))


def opening(config: Config, folder: Path, parts: Parts) -> Opening:
    return Opening(config.concurrency, config.structure, config.attempts, config.window, folder, parts.progress)


def make_house(store: Store, config: Config, parts: Parts, models: Models, seconds: float) -> House:
    """What all places of a run share, with every model that is needed open."""
    options = Options(config.temperature, config.max_output_tokens, config.timeout)
    opened: dict[str, Client] = dict(parts.clients)
    agent = make_agent(config, parts)
    needed = {"agent": config.model} if not agent.journaled or config.method == "ace" else {}
    for role, name in {**needed, **config.roles}.items():
        if role not in opened:
            opened[role] = models.open(config.roles.get(role, name))
    journal = Journal(store, RUN)
    budget = Budget(config.limits, spent=journal.before, seconds=seconds)
    if config.max_usd is not None:
        for role, client in opened.items():
            if not client.priced:
                raise UsageError(
                    f"the price of {client.name} ({role}) is not known, so --max-usd cannot be kept: use --max-tokens"
                )
    embedder: Embedder = parts.embedder or open_embedder(config.embedder)
    return House(
        journal=journal,
        seats={role: Seat(client, options) for role, client in opened.items()},
        agent=agent,
        scorer=make_scorer(config, parts),
        vectors=Vectors(embedder, store),
        instructions=config.instructions,
        labels=config.labels,
        judged=config.judged,
        seed=config.seed,
        budget=budget,
    )


def _task_rows(splits: Splits) -> list[dict[str, Any]]:
    return [
        {"run_id": RUN, "split": split, "position": i, "task_id": task.id, "data": _TASK.dump_json(task).decode()}
        for split in ("train", "val", "test")
        for i, task in enumerate(getattr(splits, split))
    ]


def read_run(store: Store) -> tuple[Config, Splits, str]:
    """What a run folder was started with, and its state."""
    found = store.rows(select(schema.runs).where(schema.runs.c.run_id == RUN))
    if not found:
        raise StoreError(f"{store.folder} holds no run: it was stopped before it began; delete it and start anew")
    table = schema.tasks
    rows = store.rows(select(table).where(table.c.run_id == RUN).order_by(table.c.position))
    by_split: dict[str, list[Task]] = {"train": [], "val": [], "test": []}
    for row in rows:
        by_split[row.split].append(_TASK.validate_json(row.data))
    splits = Splits(*(tuple(by_split[name]) for name in ("train", "val", "test")))
    return Config.model_validate_json(found[0].config), splits, found[0].state


def new_folder(name: str) -> Path:
    """A folder for a new run under ./runs, named by method and time."""
    stem = f"{name}-{datetime.now(UTC).astimezone():%Y%m%d-%H%M%S}"
    folder = Path("runs") / stem
    number = 2
    while folder.exists():
        folder = Path("runs") / f"{stem}-{number}"
        number += 1
    return folder


def load_context(path: Path | str, version: int | None = None) -> Context:
    """The context of a run folder (its last version where None), or of a playbook file (markdown or JSON)."""
    path = Path(path)
    if (path / FILE).exists():
        with Store.read(path) as store:
            return rebuild(read_versions(store, RUN), version)
    if version is not None:
        raise UsageError(f"{path} is not a run, so it has no version {version}")
    if path.is_dir():
        raise UsageError(f"{path} is a folder but not a run (it has no {FILE})")
    return playbook.load(path)


def run_config(path: Path) -> dict[str, Any]:
    """How a run was configured, less its limits, its stream and its validation; empty for a playbook file."""
    if not (path / FILE).exists():
        return {}
    with Store.read(path) as store:
        config, _, _ = read_run(store)
    kept = config.model_dump(exclude={"max_calls", "max_tokens", "max_usd", "max_minutes", "judged", "labels"})
    return {**kept, "settings": {k: v for k, v in config.settings.items() if k not in ("online", "epochs")}}


def run_summary(store: Store) -> dict[str, Any]:
    """Scores, usage and number of steps of a run, as its last sitting left them."""
    (row,) = store.rows(select(schema.runs.c.result).where(schema.runs.c.run_id == RUN))
    last = json.loads(row.result) if row.result else {}
    steps = store.rows(select(schema.steps.c.step).where(schema.steps.c.run_id == RUN))
    return {"scores": last.get("scores", {}), "usage": last.get("usage", {}), "steps": len(steps)}


def create_seed(folder: Path, context: Context) -> None:
    """A run that holds a context and has learned nothing yet."""
    with Store.create(folder) as store:
        config = Config(method="none")
        store.put(schema.runs, [{"run_id": RUN, "config": config.model_dump_json(), "state": "done", "seconds": 0.0}])
        store.put(schema.versions, [version_row(RUN, seed_version(context))])


def as_seed(context: Context) -> Context:
    """A learned context as the start of another run: the same entries and ids, at version 0."""
    return replace(context, version=0)
