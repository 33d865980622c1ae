"""Rows of a run in the run's store: configuration, tasks and steps."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter
from sqlalchemy import Table, func

from practicum import methods
from practicum.core import instructions, playbook, skills
from practicum.core.context import Context
from practicum.core.edits import Add, Applied, Delete, Delta, Refused
from practicum.core.errors import ContextFileError, NotARun, PracticumError, StoreError, UsageError
from practicum.core.installation import is_marked, mark
from practicum.core.redact import Redactor
from practicum.core.trust import Trust, trust_of
from practicum.core.types import Attempt, Lesson, Task, Usage
from practicum.core.views import render_full
from practicum.engine.admission import Admission, Held, held
from practicum.engine.loop import StepReport, best_of_k, mean_score
from practicum.models.keys import hosts, servers
from practicum.models.options import ModelOptions
from practicum.models.prices import read_prices
from practicum.models.registry import is_local
from practicum.session.config import Config, Splits, prices_for, require_tasks, used_by
from practicum.session.identity import identified
from practicum.session.registries import is_prompt, load_prompt
from practicum.store import schema
from practicum.store.database import Store, as_stored, is_space
from practicum.store.folder import DATABASE_FILE, Elsewhere, is_run
from practicum.store.journal import Journal
from practicum.store.names import find_version, shown_version
from practicum.store.reviews import PENDING
from practicum.store.scope import Transaction
from practicum.store.snapshot import read_context
from practicum.store.versions import Version, original, read_versions, rebuild, seed_version, version_row
from practicum.tasks.stored import StoredTasks, task_row
from practicum.tasks.survey import Survey

T = TypeVar("T")

CHANGED = (schema.FORGETTING, schema.FORGOTTEN, "rolled back", "edited", "learned on", "reviewed")
"""States of a run whose last version does not follow from the run's journal, so that a resume begins a new leg
(`session.legs`)."""

ATTEMPT: TypeAdapter[Attempt] = TypeAdapter(Attempt)
LESSON: TypeAdapter[Lesson] = TypeAdapter(Lesson)
HELD: TypeAdapter[Held] = TypeAdapter(Held)
REFUSED: TypeAdapter[tuple[Refused, ...]] = TypeAdapter(tuple[Refused, ...])

ROWS = 1000
"""Maximum number of tasks that are written at once. Fewer tasks are written at once if the texts of the tasks reach
CHUNK characters."""

CHUNK = 2**23


@dataclass(frozen=True)
class StoredResults:
    """Stored results of a stopped run.

    `answers` and `failures` are the numbers of results and failures in the run's journal, by role. `versions` is the
    number of versions, from learning or from other changes. `spent` is the usage of the run so far, and `seconds` the
    work time so far.
    """

    answers: Mapping[str, int]
    failures: Mapping[str, int]
    versions: int
    spent: Usage
    seconds: float

    @property
    def is_empty(self) -> bool:
        """Whether nothing was paid for or created."""
        return not self.answers and not self.versions

    def of(self, role: str) -> str:
        """Return the counts of a role's results and failures as text, or "" if nothing is stored."""
        if self.is_empty:
            return ""
        counts = {"answer": self.answers.get(role, 0), "failure": self.failures.get(role, 0)}
        return " and ".join(f"{n} {noun}{'s' if n > 1 else ''}" for noun, n in counts.items() if n)


def new_folder(name: str) -> Path:
    """Return a path for a new run under ./runs, named after the method and the time."""
    return free_folder(Path("runs") / f"{name.replace('/', '-')}-{datetime.now(UTC).astimezone():%Y%m%d-%H%M%S}")


def free_folder(path: Path) -> Path:
    """Return the path, or the path with a number appended if it exists already."""
    folder, number = path, 2
    while folder.exists():
        folder = path.with_name(f"{path.name}-{number}")
        number += 1
    return folder


def create(folder: Path, where: str | Elsewhere | None = None) -> Store:
    """Create the store of a new run.

    The store is in the folder, or in the PostgreSQL database that `where` names. If `where` is a URL, the run is stored
    under the name of the folder. An Elsewhere holds a URL and the name of the run. If the folder holds a run that was
    stopped before it paid for or created anything, this run is replaced, and the failures and notes in the journal of
    this run are discarded.
    """
    if (store := _opened(folder)) is not None:
        (row,) = store.rows(store.select(schema.spaces.c.learning))
        if row.learning in (None, "running", "stopped") and read_stored_results(store).is_empty:
            discard_journal(store)
            return store
        store.close()
        if row.learning == "done":
            raise StoreError(
                "run.exists",
                f"{folder} already holds a finished run: pass another `out`; to start from the context of the finished "
                f"run, also pass `seed_context={folder}`",
            )
    if isinstance(where, Elsewhere):
        return Store.create(folder, where.store, where.space)
    return Store.create(folder, where)


def _opened(folder: Path) -> Store | None:
    """Return the space in a folder, opened for writing, or None if the folder holds no space, as after a kill or a full
    disk."""
    try:
        return Store.open(folder) if is_space(folder) else None
    except NotARun as error:
        if error.code != "run.not_found":
            raise
        return None


def discard_unbegun(folder: Path) -> None:
    """Remove the folder of a run that did not begin.

    A run that cannot be opened stays: it may have begun, and another process may be writing to it.
    """
    if is_space(folder):
        try:
            with Store.open(folder) as store:
                if is_begun(store):
                    return
                store.remove()
        except PracticumError:
            return
    shutil.rmtree(folder, ignore_errors=True)


def read_stored_results(store: Store, leg: int | None = 1) -> StoredResults:
    """Return the stored results of a run.

    Of the results in the journal, only the results of the leg with the number `leg` are counted. If `leg` is None, no
    result is counted, because a new leg begins.
    """
    journal, versions, asked = Journal(store), schema.versions.c, schema.journal.c
    answers, failures = ({}, {}) if leg is None else journal.results("" if leg == 1 else f"leg {leg}/")
    # A step that was lost completely leaves neither a result nor a version.
    version_rows = store.rows(store.select(versions.version).where(versions.version > 0))
    version_rows += store.rows(store.select(asked.place).where(asked.place.startswith("leg ")).limit(1))
    return StoredResults(answers, failures, len(version_rows), journal.before, seconds_spent(store))


def discard_journal(store: Store) -> None:
    """Remove the calls of a run and the results of these calls.

    The run's configuration, tasks and versions stay, and so do the calls that were in flight when the run was killed,
    and the batches that were sent, because they may have been paid for.
    """
    journal = schema.journal
    of_places = (schema.prompts, schema.texts, schema.steps, schema.attempts, schema.lessons, schema.reviews)

    def change(at: Transaction) -> None:
        paid = (journal.c.role == schema.IN_FLIGHT) | journal.c.place.startswith(schema.BATCH)
        at.run(at.delete(journal).where(~paid))
        for table in of_places:
            at.run(at.delete(table))

    store.change(change)


def is_begun(store: Store) -> bool:
    """Return whether an open store holds a run that has begun."""
    return store.rows(store.select(schema.spaces.c.learning))[0].learning is not None


def begin(
    store: Store, config: Config, splits: Splits, seed: Context, learning: str = "running",
    held_edits: Sequence[Held] = (),
) -> None:  # fmt: skip
    """Write the start of a run in one transaction: the configuration, the tasks and the seed of the run, and the edits
    that wait for review.

    An earlier run in the store is replaced. Tasks of the new run that `store_tasks` has written stay.
    """
    stored_splits = [split for split, tasks in splits.by_name.items() if isinstance(tasks, StoredTasks)]

    def change(at: Transaction) -> None:
        _remove(at, stored_splits)
        for split, tasks in splits.by_name.items():
            rows = (task_row(task, split, place) for place, task in enumerate(tasks) if split not in stored_splits)
            while chunk := list(islice(rows, ROWS)):
                at.insert(schema.tasks, *chunk)
        at.insert(schema.reviews, *review_rows(0, held_edits, seed))
        at.insert(schema.versions, version_row(seed_version(seed)))
        change_run(at, **config_columns(config), state="live", learning=learning, seconds=0.0)

    store.change(change)


async def store_tasks(
    store: Store, tasks: Iterator[Task], redactor: Redactor | None, on_progress: Callable[[int], None]
) -> StoredTasks:
    """Write the training tasks as they arrive, a few megabytes at a time, and return them as a sequence read on demand.

    The tasks replace any earlier run in the store. Until `begin` is called, the folder holds no run, so nothing is
    learned from the tasks of an interrupted call. `on_progress` is called with the number of tasks that are written so
    far.
    """
    survey = Survey()

    def write() -> bool:
        rows, size = [], 0
        for task in tasks:
            require_tasks([task])
            task = task if redactor is None else redactor(task)
            rows.append(task_row(task, "train", survey.count))
            survey.add(task)
            size += len(rows[-1]["data"])
            if len(rows) == ROWS or size >= CHUNK:
                break
        store.change(lambda at: at.insert(schema.tasks, *rows))
        return bool(rows)

    store.change(lambda at: _remove(at))
    # The tasks are written in a thread, so that Ctrl-C is handled while a store is slow.
    while await to_the_end(write):
        on_progress(survey.count)
    stored_tasks = StoredTasks(store, "train", range(survey.count))
    stored_tasks.survey = survey
    return stored_tasks


async def to_the_end(work: Callable[[], T]) -> T:
    """Run work in a thread and return its result. If the asyncio task is cancelled, wait for the end of the work,
    because the work uses the store."""
    job = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(job)
    except asyncio.CancelledError:
        await asyncio.wait([job])
        raise


def _remove(at: Transaction, keep: Sequence[str] = ()) -> None:
    """Remove the configuration, versions and tasks of a run, except the tasks of the splits in `keep`."""
    at.run(at.delete(schema.versions))
    change_run(at, config=None, mark=None, learning=None, seconds=None, result=None)
    at.run(at.delete(schema.tasks).where(schema.tasks.c.split.not_in(keep)))


def config_columns(config: Config) -> dict[str, str]:
    """Return the columns of a run's configuration, and of the mark by which this installation trusts the run."""
    return {"config": config.model_dump_json(), "mark": mark(config.executing)}


def create_seed(
    folder: Path, context: Context, trust: Trust = "own", config: Config | None = None, store: str | None = None,
    flag: bool = True,
) -> int:  # fmt: skip
    """Create a run that holds a context of this trust and has not learned, in the folder or in the database `store`.

    Entries that are flagged, or are not the operator's own, wait for review without their votes. Without `flag`, the
    operator's own entries do not wait: the files of a skill would lose parts. Returns the number of waiting entries.
    """
    seed, waiting = seed_rows(context, trust, flag)
    with create(folder, store) as opened:
        begin(opened, config or Config(method="none"), Splits(), seed, "done", waiting)
    return len(waiting)


def seed_rows(context: Context, trust: Trust, flag: bool = True) -> tuple[Context, list[Held]]:
    """Return a context of this trust as the seed of a space, and the edits that wait for review. These edits add the
    entries that the seed leaves out."""
    context = as_seed(context)
    adds = [(e.id, Add(e.section, e.text, e.key, e.data, sources=e.sources)) for e in context.marked(trust)]
    waits = Admission("foreign").waits if flag else lambda edit: trust_of(edit.sources) != "own"
    waiting = [(id, edit) for id, edit in adds if waits(edit)]
    seed = as_seed(context.apply(Delta(tuple(Delete(id) for id, _ in waiting))).context)
    return seed, [held([edit]) for _, edit in waiting]


def review_rows(step: int, waiting: Sequence[Held], context: Context) -> list[dict[str, Any]]:
    """Return rows of the review table for edits that wait for review since the step `step`; `context` is the context
    after the step."""
    return [
        {
            "step": step,
            "id": f"{step}.{n}",
            "state": PENDING,
            "reason": "",
            "data": json.dumps({**HELD.dump_python(one, mode="json"), "base": context.version}),
        }
        for n, one in enumerate(waiting, 1)
    ]


def as_seed(context: Context, redactor: Redactor | None = None) -> Context:
    """Return a learned context as the seed of another run: the same entries and ids, at version 0.

    Names that are unique within one run get an identity (`session.identity`).
    """
    seed = seed_version(replace(context, version=0))
    adds = identified([done.edit for done in seed.applied if isinstance(done.edit, Add)])
    # The edits that add entries come first, then the edits that set the counts of the entries.
    entries, uses = seed.applied[: len(adds)], seed.applied[len(adds) :]
    identified_edits = (Applied(add, done.id) for add, done in zip(adds, entries, strict=True))
    seed = replace(seed, applied=(*identified_edits, *uses))
    return rebuild([seed if redactor is None else redactor(seed)])


def change_run(at: Transaction, **values: Any) -> None:
    """Change columns of the space's row."""
    at.run(at.update(schema.spaces).values(**values))


def update_run(store: Store, **values: Any) -> None:
    """Change columns of the space's row, in a new transaction."""
    store.change(lambda at: change_run(at, **values))


def seconds_spent(store: Store | Transaction) -> float:
    """Return the seconds of work so far, over all resumes; 0 for a run that has not begun."""
    rows = store.rows(store.select(schema.spaces.c.seconds))
    return float(sum(row.seconds or 0.0 for row in rows))


def read_config(store: Store) -> tuple[Config, str]:
    """Return the configuration and the state of a run. Raises StoreError if the store holds no run."""
    rows = store.rows(store.select(schema.spaces.c.config, schema.spaces.c.learning))
    if not rows or rows[0].config is None:
        raise StoreError(
            "run.not_found",
            f"{store.folder} holds no run: learning was stopped before the first call, so nothing was paid for; start "
            "again",
        )
    with as_stored(store.folder):
        config = Config.model_validate_json(rows[0].config)
    # A run in the state "running" was killed if no process is writing to the run.
    state = str(rows[0].learning)
    return config, "stopped" if state == "running" and not store.is_written else state


def is_own(store: Store, config: Config) -> bool:
    """Return whether this installation wrote the configuration of a run, and set `store.trusted` to the result."""
    rows = store.rows(store.select(schema.spaces.c.mark))
    store.trusted = bool(rows) and is_marked(config.executing, rows[0].mark or "")
    return store.trusted


def read_run(store: Store) -> tuple[Config, Splits, str]:
    """Return the configuration, the tasks and the state of a run. Raises StoreError if the store holds no run."""
    config, state = read_config(store)
    train, val, test = (StoredTasks(store, split) for split in ("train", "val", "test"))
    return config, Splits(train, tuple(val), tuple(test)), state


def split_version(path: Path | str) -> tuple[Path, str | None]:
    """Return the folder of a run, and the version that is appended to the path (RUN@prod, RUN@12), or None."""
    folder, at, version = str(path).rpartition("@")
    if at and version and not Path(path).exists() and is_run(Path(folder)):
        return Path(folder), version
    return Path(path), None


def load_context(path: Path | str, version: int | str | None = None) -> Context:
    """Return the context of a run folder, of a playbook file (markdown or JSON), of an instruction file of coding
    agents (CLAUDE.md), of a folder of Agent Skills, or of a prompt in a registry (REGISTRY:PROMPT@VERSION, such as
    mlflow:support@prod).

    A version is a number or a name, and may also be appended to the folder: RUN@prod. Without a version, the version
    that agents see is returned: the live version of a served space, or else the last version. All entries of a run from
    another machine are foreign.
    """
    path, path_version = split_version(path)
    version = path_version if version is None else version
    if is_run(path):
        with Store.read(path) as store:
            return read_by_origin(store, shown_version(store, version))
    if version is not None:
        raise UsageError("version.unknown", f"{path} is not a run and has no version {version}", version=version)
    if skills.is_skills(path):
        return skills.read_skills(path)
    if path.is_dir():
        raise UsageError(
            "run.not_found", f"{path} is a folder but not a run (it has no {DATABASE_FILE} and no {skills.SKILL})"
        )
    if not path.exists():
        if is_prompt(path):
            return load_prompt(path)
        raise ContextFileError("playbook.not_found", f"no run and no playbook file at {path}")
    return instructions.load(path) if instructions.is_instructions(path) else playbook.load(path)


def read_by_origin(store: Store, version: int | None = None) -> Context:
    """Return a version of an open run (None: the last version). All entries of a run from another machine are
    foreign."""
    context = read_context(store, version)
    return context if is_own(store, read_config(store)[0]) else context.marked("foreign")


def load_versions(path: Path | str) -> list[Version]:
    """Return the versions of a run, oldest first, up to the version that is appended to the run's folder (RUN@prod); a
    playbook file has one version."""
    path, path_version = split_version(path)
    if is_run(path):
        with Store.read(path) as store:
            versions, last = read_versions(store), find_version(store, path_version)
            return [v for v in versions if last is None or v.version <= last]
    return [seed_version(load_context(path))]


def run_config(path: Path) -> dict[str, Any]:
    """Return the configuration of a run without the settings of learning; empty for a playbook file."""
    path, _ = split_version(path)
    if not is_run(path):
        return {}
    with Store.read(path) as store:
        return acting_config(read_config(store)[0])


def acting_config(config: Config) -> dict[str, Any]:
    """Return a configuration without the settings of learning, of the cluster, of batches and of the budget."""
    values = config.model_dump(exclude={*used_by("training", "cluster", "batches", "budget")})
    return {**values, "settings": {k: v for k, v in config.settings.items() if k not in ("online", "epochs", "steps")}}


def override_config(config: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration of a run with overrides. An override of None keeps the run's value.

    If the method is overridden, the settings of the run's method are dropped. A new `model` also replaces the run's
    model of the role `agent`. The window of a local model is dropped if the new model is not local.
    """
    changed = {
        name: value for name, value in overrides.items() if value is not None and name not in ("settings", "roles")
    }
    values = {**config, **changed}
    if "window" not in changed and "model" in changed and not is_local(changed["model"]):
        values["window"] = None
    method = values.get("method", Config.model_fields["method"].default)
    settings = config.get("settings", {}) if changed.get("method", method) == config.get("method", method) else {}
    roles = {r: m for r, m in config.get("roles", {}).items() if "model" not in changed or r != "agent"}
    settings = methods.override_settings(method, settings, overrides.get("settings") or {})
    roles |= overrides.get("roles") or {}
    prices = prices_for(config.get("prices") or {}, values.get("model"), roles) | read_prices(
        overrides.get("prices") or {}
    )
    if "api_key_env" not in changed and hosts((values.get("model"), *roles.values())) != hosts(
        (config.get("model"), *config.get("roles", {}).values())
    ):
        values["api_key_env"] = None  # the key belongs to another server
    if "model_options" not in changed and servers((values.get("model"), *roles.values())) != servers(
        (config.get("model"), *config.get("roles", {}).values())
    ):
        values["model_options"] = ModelOptions.model_validate(values.get("model_options") or {}).without_secrets()
    return {**values, "settings": settings, "roles": roles, "prices": prices}


def run_summary(store: Store, version: int | None = None) -> dict[str, Any]:
    """Return the scores of a version (None: the last version), the usage and the counts in the run's last report, and
    the numbers of steps and versions.

    The scores come from the last report if the report is about the requested version, or about a version with the same
    content (because of a rollback). Otherwise `scores` is empty.
    """
    last = last_report(store)
    scored = original(store, last.get("version")) == original(store, version) if last else False
    counts = {
        table.name: store.rows(store.select(func.count(table.c.step)))[0][0]
        for table in (schema.steps, schema.versions)
    }
    return {
        "scores": {name: float(score) for name, score in last["scores"].items()} if scored else {},
        "usage": last.get("usage", {}),
        "counts": last.get("errors", {}),
        **counts,
    }


def last_report(store: Store) -> dict[str, Any]:
    """Return the last report of the run, in the form of `Result.as_json`; {} if the run has not ended yet."""
    (row,) = store.rows(store.select(schema.spaces.c.result))
    return dict(json.loads(row.result)) if row.result else {}


def step_records(store: Store) -> Iterator[tuple[int, list[Attempt], list[Lesson]]]:
    """Yield each step with its attempts and its lessons, in order, as `step_rows` wrote them."""

    def by_step(table: Table) -> dict[int, list[str]]:
        rows_by_step: dict[int, list[str]] = defaultdict(list)
        query = store.select(table.c.step, table.c.data).where(table.c.step > 0)
        for row in store.rows(query.order_by(table.c.step)):
            rows_by_step[row.step].append(row.data)
        return rows_by_step

    attempts, lessons = by_step(schema.attempts), by_step(schema.lessons)
    for step, tried in attempts.items():
        yield step, [*map(ATTEMPT.validate_json, tried)], [*map(LESSON.validate_json, lessons.get(step, ()))]


def attempt_row(attempt: Attempt, step: int) -> dict[str, Any]:
    """Return an attempt as a row of the store; `step` is 0 in an evaluation."""
    data, sources = ATTEMPT.dump_json(attempt).decode(), json.dumps(attempt.sources)
    return {"step": step, "place": attempt.place, "sources": sources, "data": data}


def lesson_row(lesson: Lesson, step: int) -> dict[str, Any]:
    """Return a lesson as a row of the store."""
    data, sources = LESSON.dump_json(lesson).decode(), json.dumps(lesson.sources)
    return {"step": step, "lesson_id": lesson.id, "sources": sources, "data": data}


def step_rows(report: StepReport) -> Mapping[Any, list[dict[str, Any]]]:
    numbers = {
        "epoch": report.batch.epoch,
        "tasks": [t.id for t in report.batch.tasks],
        "score": mean_score(report.attempts),
        "best_of_k": best_of_k(report.attempts),
        "sampled": dict(report.batch.data),
        "lessons": len(report.lessons),
        "applied": len(report.applied),
        "refused": len(report.refused),
        "held": len(report.held),
        "fates": [asdict(resolution) for resolution in report.resolutions],
        "evidence": dict(report.evidence),
        "version": report.context.version,
        "entries": len(report.context),
        "tokens": render_full(report.context).tokens,
        "seconds": report.seconds,
        "val": report.val,
    }
    refused = REFUSED.dump_json(report.refused).decode()
    return {
        schema.steps: [{"step": report.step, "data": json.dumps(numbers), "refused": refused}],
        schema.attempts: [attempt_row(r, report.step) for r in report.attempts],
        schema.reviews: review_rows(report.step, report.held, report.context),
        schema.lessons: [lesson_row(lesson, report.step) for lesson in report.lessons],
    }
