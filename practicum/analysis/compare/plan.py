"""The runs of a comparison, checked as a whole before anything is paid for, and kept so that it can be continued."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from practicum.analysis.compare.variants import Study, Variant
from practicum.core.context import Context
from practicum.core.differences import MIN_TASKS
from practicum.core.edits import entry_json
from practicum.core.errors import StoreError, UsageError
from practicum.core.files import PRIVATE, make_folder, write_atomic
from practicum.core.intervals import MIN_SEEDS
from practicum.core.types import Task
from practicum.core.words import quantity
from practicum.models.registry import ROLES
from practicum.session.components import Parts
from practicum.session.config import Config, Splits, config_from
from practicum.session.setup import build_setup, set_up, strangers
from practicum.store.folder import is_run
from practicum.store.journal import digest
from practicum.tasks.stored import levels
from practicum.view.library import PLAN_FILE
from practicum.view.names import run_folder

MOST_LISTED = 20
"""How many ids an error message lists."""


@dataclass(frozen=True)
class PlannedRun:
    """One run: a variant with a seed, its whole configuration, its tasks and the objects that it is made of."""

    variant: Variant
    seed: int
    config: Config
    splits: Splits
    parts: Parts

    @property
    def folder(self) -> str:
        """The run's folder, relative to the comparison's."""
        return run_folder(self.variant.name, self.seed)

    @property
    def start(self) -> str:
        """The folder of the run whose result this one starts from; empty if there is none."""
        return run_folder(self.variant.after, self.seed) if self.variant.after else ""


@dataclass(frozen=True)
class ComparisonPlan:
    """A whole comparison. With `online` the training tasks are a stream, and the predictions on it are scored. All runs
    start from `seed_context`, but those that start from another run's result."""

    study: Study
    splits: Splits
    runs: tuple[PlannedRun, ...]
    seeds: int
    online: bool
    common: Mapping[str, Any]
    seed_context: Context = field(default_factory=Context)
    warnings: tuple[str, ...] = field(default=())

    @property
    def scored(self) -> Sequence[Task]:
        """The tasks whose scores are compared."""
        return self.splits.train if self.online else self.splits.test

    def as_json(self) -> dict[str, Any]:
        """What must stay the same for a comparison to be continued; variants and seeds may be added."""
        tasks = (self.splits.train, self.splits.val, self.splits.test)
        runs = {
            run.folder: {
                "method": run.config.method, "settings": run.config.settings,
                "stream": run.variant.stream, "after": run.variant.after,
                "part": [*run.variant.part], "options": dict(run.variant.options),
            }
            for run in self.runs
        }  # fmt: skip
        return {
            "format": 1,
            "tasks": digest([[[t.id, t.input, t.target] for t in split] for split in tasks]),
            # Scorers read it: the tests of code, the rules of an answer.
            "meta": digest([[dict(t.meta) for t in split] for split in tasks]),
            "seed": digest([entry_json(entry) for entry in self.seed_context]) if len(self.seed_context) else None,
            "common": dict(self.common),
            "runs": runs,
        }


def make_plan(
    study: Study, splits: Splits, parts: Parts, *, seeds: int = 3, online: bool = False,
    seed_context: Context | None = None, **common: Any,
) -> ComparisonPlan:  # fmt: skip
    """Plan a comparison. `common` are fields of `Config` that all runs share. Raises UsageError for everything that
    would go wrong later: overlapping splits, unknown methods or settings, methods that cannot run with these tasks."""
    if seeds < 1:
        raise UsageError("settings.invalid", f"`seeds={seeds}`: at least one seed is needed", setting="seeds")
    if common.get("max_calls") is not None and common.get("max_tokens") is not None:
        raise UsageError("settings.conflict", "calls and tokens are two budgets: give only one of them")
    _check_splits(splits, online)
    variants = study.variants
    if online and any(variant.stream for variant in variants):
        raise UsageError(
            "settings.conflict",
            "some of these variants take the test tasks as a stream: leave out `online`, and give `test`",
        )
    folders = [run_folder(v.name, 0) for v in variants]
    if twice := sorted(v.name for v, folder in zip(variants, folders, strict=True) if folders.count(folder) > 1):
        raise UsageError("comparison.duplicate", f"{' and '.join(twice)} would share one folder: rename one of them")
    tasks = {v.name: _tasks(v, splits) for v in variants}
    configs = {v.name: _config(v, tasks[v.name], parts, common) for v in variants}
    used = dict.fromkeys(["agent", *(role for *_, asked in configs.values() for role in asked)])
    for role in common.get("roles", {}):
        if role not in ROLES:
            raise UsageError(
                "role.unknown", f"unknown role {role!r}: known roles are {', '.join(ROLES)}", role=role, known=[*ROLES]
            )
        if ROLES[role] not in used:
            raise UsageError(
                "role.unused", f"no method here asks a {role}: leave it out of `roles` (asked: {', '.join(used)})"
            )
    # All variants with one seed come before the next seed, so that early results say something about each variant.
    runs = [
        PlannedRun(v, seed, config.model_copy(update={"seed": seed}), tasks[v.name], own)
        for seed in range(seeds)
        for v, (config, own, _) in zip(variants, configs.values(), strict=True)
    ]
    first, *_ = configs[min(variants, key=lambda v: len(v.options)).name]
    shared = first.model_dump(exclude={"method", "settings", "seed", "roles"}, mode="json")
    shared["roles"] = dict(common.get("roles", {}))
    scored, warnings = len(splits.train if online else splits.test), []
    if scored < MIN_TASKS:
        warnings.append(f"{quantity(scored, 'task')} scored, fewer than {MIN_TASKS}: no claim can be made")
    if seeds < MIN_SEEDS:
        warnings.append(
            f"{quantity(seeds, 'seed')}: the report can speak of these runs only; a claim about a method needs "
            f"{MIN_SEEDS} (`seeds={MIN_SEEDS}`)"
        )
    waiting = [run.config for run in runs if run.config.review == "foreign" and run.config.method != "none"]
    if waiting and (whose := strangers(waiting[0], levels(splits.train))):
        warnings.append(
            f"what is learned from {whose} waits for review, so it is in no score: give `review=none` if nobody will "
            "review it"
        )
    if splits.val and not online:
        warnings.append(
            "the best context of each method is chosen by `val`; the method pays for this within its budget"
        )
    started = seed_context or Context()
    return ComparisonPlan(study, splits, tuple(runs), seeds, online, shared, started, tuple(warnings))


def _tasks(variant: Variant, splits: Splits) -> Splits:
    """The tasks of a variant. A stream predicts the test tasks one by one, and learns from them alone."""
    if variant.stream:
        return Splits(splits.test)
    first, last = (round(share * len(splits.train)) for share in variant.part)
    return replace(splits, train=splits.train[first:last])


def _config(
    variant: Variant, splits: Splits, parts: Parts, common: Mapping[str, Any]
) -> tuple[Config, Parts, Sequence[str]]:
    """The configuration of a variant, its parts, and the roles that it asks; it has no models for other roles."""
    values = {**common, **variant.options, "method": variant.method, "settings": dict(variant.settings)}
    if variant.stream:
        values["validate_every"] = 1
    try:
        asked = build_setup(config_from({**values, **parts.names(), "roles": {}}), splits, parts).roles
        roles = {role: m for role, m in common.get("roles", {}).items() if ROLES.get(role) in (*asked, "agent")}
        setup = set_up({**values, "roles": roles}, splits, parts)
        if variant.change is not None:
            changed = replace(parts, method=variant.change(setup.method))
            setup = set_up({**values, "roles": roles, "settings": {}}, splits, changed)
        return setup.config, setup.parts, asked
    except UsageError as error:
        raise type(error)(error.code, f"{variant.name}: {error}", **error.fields) from error


def _check_splits(splits: Splits, online: bool) -> None:
    if online and (splits.test or splits.val):
        raise UsageError(
            "settings.conflict", "`online` scores the predictions on the tasks themselves: leave out `test` and `val`"
        )
    if not online and not splits.test:
        raise UsageError(
            "tasks.missing",
            "scores need tasks that were not used for learning or for choosing contexts: give `test` (`val` will "
            "not do, since contexts are chosen by it), or `online` to score the predictions on the tasks before "
            "learning from each of them",
        )
    for name, seen in (("training", splits.train), ("validation", splits.val)):
        # An id made from a line number says nothing about the task.
        ids = {task.id for task in seen if not re.fullmatch(r"line-\d+", task.id)}
        inputs = {" ".join(task.input.split()) for task in seen}
        if leaks := [t.id for t in splits.test if t.id in ids or " ".join(t.input.split()) in inputs]:
            more = f" and {len(leaks) - MOST_LISTED} more" if len(leaks) > MOST_LISTED else ""
            raise UsageError(
                "tasks.overlap",
                f"{len(leaks)} of the {len(splits.test)} test tasks are also {name} tasks (same id or same input): "
                f"{', '.join(leaks[:MOST_LISTED])}{more}; remove them from one of the files",
                tasks=[*leaks],
            )


def locked(folder: Path) -> AbstractContextManager[object]:
    """Hold the comparison's folder, made where it does not exist, against other processes until the block ends. Raises
    StoreError at once where another process holds it, or where the folder cannot be written to."""
    try:
        make_folder(folder)
        return FileLock(folder / "lock", mode=PRIVATE).acquire(blocking=False)
    except Timeout as error:
        raise StoreError(
            "comparison.busy", f"{folder} is in use by another comparison: wait for it, or give another `out`"
        ) from error
    except OSError as error:
        raise StoreError("file.unwritable", f"cannot write to {folder}: {error.strerror}") from error


def save_plan(plan: ComparisonPlan, folder: Path) -> None:
    """Write the plan, or check it against the one that was begun here. Raises UsageError naming what differs."""
    path = folder / PLAN_FILE
    # As JSON reads it back: a tuple becomes a list.
    now = json.loads(json.dumps(plan.as_json()))
    before = _read_plan(path) or now
    begun = {run: made for run, made in before["runs"].items() if (folder / run).is_dir()}
    if begun and (what := next(_differences(before, now, begun), None)) is not None:
        raise UsageError(
            "comparison.mismatch",
            f"{folder} holds a comparison with another value of {what}: give the same value again, or another `out`",
        )
    now["runs"] = {**begun, **now["runs"]}
    write_atomic(path, json.dumps(now, ensure_ascii=False, indent=1))


def _differences(before: Mapping[str, Any], now: Mapping[str, Any], begun: Mapping[str, Any]) -> Iterator[str]:
    if before["tasks"] != now["tasks"]:
        yield "the tasks"
    if before["meta"] != now["meta"]:
        yield "the tasks' meta"
    if before["seed"] != now["seed"]:
        yield "the context that the runs start from (`seed_context`)"
    for name in sorted({*before["common"], *now["common"]}):
        old, new = before["common"].get(name), now["common"].get(name)
        if old != new:
            yield f"{name} ({old!r}, now {new!r})"
    for run, made in begun.items():
        if now["runs"].get(run, made) != made:
            yield f"{run} ({json.dumps(made)})"


def _read_plan(path: Path) -> dict[str, Any] | None:
    if not path.exists():
        if any(map(is_run, path.parent.glob("runs/*"))):
            raise UsageError(
                "file.exists", f"{path.parent} holds runs that belong to no comparison: give another `out`"
            )
        return None
    try:
        plan: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if plan["format"] != 1:
            raise StoreError(
                "store.unknown_format", f"{path} has format {plan['format']}; this version of practicum reads format 1"
            )
        return plan
    except (OSError, ValueError, KeyError) as error:
        raise StoreError("comparison.damaged", f"cannot read {path}: {error}") from error
