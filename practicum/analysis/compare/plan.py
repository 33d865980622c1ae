"""Plan of a comparison: all runs, checked before any paid call, and stored so that the comparison can be resumed."""

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
"""Maximum number of task ids that an error message lists."""


@dataclass(frozen=True)
class PlannedRun:
    """One run of a comparison: a variant, a seed, the configuration, the tasks and the Python objects (`parts`)."""

    variant: Variant
    seed: int
    config: Config
    splits: Splits
    parts: Parts

    @property
    def folder(self) -> str:
        """Folder of the run, relative to the folder of the comparison."""
        return run_folder(self.variant.name, self.seed)

    @property
    def start(self) -> str:
        """Folder of the run whose result this run starts from; empty if this run starts from `seed_context`."""
        return run_folder(self.variant.after, self.seed) if self.variant.after else ""


@dataclass(frozen=True)
class ComparisonPlan:
    """Plan of a comparison.

    `online`: whether the training tasks are a stream. In a stream, a run predicts each task before it learns from the
    task, and the predictions are scored. `seed_context`: the context that runs start from, except runs that start from
    the result of another run. `common`: the configuration that all runs share."""

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
        """Tasks whose scores are compared."""
        return self.splits.train if self.online else self.splits.test

    def as_json(self) -> dict[str, Any]:
        """Return the JSON values that are stored with the comparison. A resumed comparison must have the same values,
        but runs that have not begun may be changed or added."""
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
            "tasks": digest([[[t.id, t.text, t.target] for t in split] for split in tasks]),
            # Scorers use the meta, for example for the tests of code or the rules of an answer.
            "meta": digest([[dict(t.meta) for t in split] for split in tasks]),
            "seed": digest([entry_json(entry) for entry in self.seed_context]) if len(self.seed_context) else None,
            "common": dict(self.common),
            "runs": runs,
        }


def make_plan(
    study: Study, splits: Splits, parts: Parts, *, seeds: int = 3, online: bool = False,
    seed_context: Context | None = None, **common: Any,
) -> ComparisonPlan:  # fmt: skip
    """Plan a comparison. `common`: fields of `Config` that all runs share.

    Raises UsageError for problems that would stop a run later: overlapping splits, unknown methods or settings, methods
    that cannot run with these tasks."""
    if seeds < 1:
        raise UsageError("settings.invalid", f"`seeds={seeds}`: pass at least 1", setting="seeds")
    if common.get("max_calls") is not None and common.get("max_tokens") is not None:
        raise UsageError("settings.conflict", "`max_calls` and `max_tokens` are both set: pass only one budget")
    _check_splits(splits, online)
    variants = study.variants
    if online and any(variant.stream for variant in variants):
        raise UsageError(
            "settings.conflict",
            "some of these variants use the test tasks as a stream: leave out `online`, and pass `test`",
        )
    folders = [run_folder(v.name, 0) for v in variants]
    if duplicates := sorted(v.name for v, folder in zip(variants, folders, strict=True) if folders.count(folder) > 1):
        raise UsageError(
            "comparison.duplicate", f"{' and '.join(duplicates)} would share one folder: rename one of them"
        )
    tasks = {v.name: _tasks(v, splits) for v in variants}
    configs = {v.name: _config(v, tasks[v.name], parts, common) for v in variants}
    used = dict.fromkeys(["agent", *(role for *_, roles_used in configs.values() for role in roles_used)])
    for role in common.get("roles", {}):
        if role not in ROLES:
            raise UsageError(
                "role.unknown", f"unknown role {role!r}: known roles are {', '.join(ROLES)}", role=role, valid=[*ROLES]
            )
        if ROLES[role] not in used:
            raise UsageError(
                "role.unused",
                f"no method of this comparison uses the role {role}: leave this role out of `roles` "
                f"(used: {', '.join(used)})",
            )
    # Run all variants with one seed before the next seed, so that early results cover each variant.
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
        warnings.append(f"{quantity(scored, 'task')} scored: claims need at least {MIN_TASKS} tasks")
    if seeds < MIN_SEEDS:
        warnings.append(
            f"{quantity(seeds, 'seed')}: results hold for these runs only; claims about methods need at least "
            f"{MIN_SEEDS} seeds (`seeds={MIN_SEEDS}`)"
        )
    reviewed = [run.config for run in runs if run.config.review == "foreign" and run.config.method != "none"]
    if reviewed and (strangers_of_run := strangers(reviewed[0], levels(splits.train))):
        warnings.append(
            f"lessons from {strangers_of_run} wait for review and do not affect any score: pass `review=none` to apply "
            "them without review"
        )
    if splits.val and not online:
        warnings.append(
            "`val` selects the best context of each method; evaluations on `val` count towards the budget of each run"
        )
    start = seed_context or Context()
    return ComparisonPlan(study, splits, tuple(runs), seeds, online, shared, start, tuple(warnings))


def _tasks(variant: Variant, splits: Splits) -> Splits:
    """Return the tasks of a variant. A variant with `stream` gets only the test tasks: it predicts each test task, then
    learns from this task. Other variants get their `part` of the training tasks, and all validation and test tasks."""
    if variant.stream:
        return Splits(splits.test)
    first, last = (round(share * len(splits.train)) for share in variant.part)
    return replace(splits, train=splits.train[first:last])


def _config(
    variant: Variant, splits: Splits, parts: Parts, common: Mapping[str, Any]
) -> tuple[Config, Parts, Sequence[str]]:
    """Return the configuration of a variant (with models only for the roles that the variant uses), its Python objects,
    and the names of these roles."""
    values = {**common, **variant.options, "method": variant.method, "settings": dict(variant.settings)}
    if variant.stream:
        values["validate_every"] = 1
    try:
        roles_used = build_setup(config_from({**values, **parts.names(), "roles": {}}), splits, parts).roles
        roles = {role: m for role, m in common.get("roles", {}).items() if ROLES.get(role) in (*roles_used, "agent")}
        setup = set_up({**values, "roles": roles}, splits, parts)
        if variant.change is not None:
            changed = replace(parts, method=variant.change(setup.method))
            setup = set_up({**values, "roles": roles, "settings": {}}, splits, changed)
        return setup.config, setup.parts, roles_used
    except UsageError as error:
        raise type(error)(error.code, f"{variant.name}: {error}", **error.fields) from error


def _check_splits(splits: Splits, online: bool) -> None:
    if online and (splits.test or splits.val):
        raise UsageError(
            "settings.conflict", "`online` scores the predictions on the training tasks: leave out `test` and `val`"
        )
    if not online and not splits.test:
        raise UsageError(
            "tasks.missing",
            "no test tasks: scores need tasks that are not used to learn or to select contexts. Pass `test` (`val` is "
            "not enough, because it selects contexts), or `online` to score the prediction on each task before "
            "learning from it",
        )
    for name, split in (("training", splits.train), ("validation", splits.val)):
        # An id made from a line number does not identify a task: the same line number exists in every file.
        ids = {task.id for task in split if not re.fullmatch(r"line-\d+", task.id)}
        inputs = {" ".join(task.text.split()) for task in split}
        if leaks := [t.id for t in splits.test if t.id in ids or " ".join(t.input.split()) in inputs]:
            more = f" and {len(leaks) - MOST_LISTED} more" if len(leaks) > MOST_LISTED else ""
            raise UsageError(
                "tasks.overlap",
                f"{len(leaks)} of the {len(splits.test)} test tasks are also {name} tasks (same id or same input): "
                f"{', '.join(leaks[:MOST_LISTED])}{more}; remove them from one of the files",
                tasks=[*leaks],
            )


def locked(folder: Path) -> AbstractContextManager[object]:
    """Lock the comparison's folder against other processes until the `with` block ends. Creates the folder if it is
    missing.

    Raises StoreError immediately if another process holds the lock, or if the folder cannot be written."""
    try:
        make_folder(folder)
        return FileLock(folder / "lock", mode=PRIVATE).acquire(blocking=False)
    except Timeout as error:
        raise StoreError(
            "comparison.busy",
            f"{folder} is in use by another comparison: wait until that comparison ends, or pass another `out`",
        ) from error
    except OSError as error:
        raise StoreError("file.unwritable", f"cannot write to {folder}: {error.strerror}") from error


def save_plan(plan: ComparisonPlan, folder: Path) -> None:
    """Write the plan to the folder of the comparison. If the folder holds an older plan whose runs have begun, the new
    plan must agree with the older plan. If the two plans disagree, raises UsageError, which names the first
    difference."""
    path = folder / PLAN_FILE
    # Convert tuples to lists, as in the stored plan.
    plan_json = json.loads(json.dumps(plan.as_json()))
    stored = _read_plan(path) or plan_json
    begun = {run: data for run, data in stored["runs"].items() if (folder / run).is_dir()}
    if begun and (difference := next(_differences(stored, plan_json, begun), None)) is not None:
        raise UsageError(
            "comparison.mismatch",
            f"{folder} contains a comparison with another value of {difference}: pass the same value, or another `out`",
        )
    plan_json["runs"] = {**begun, **plan_json["runs"]}
    write_atomic(path, json.dumps(plan_json, ensure_ascii=False, indent=1))


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
    for run, stored in begun.items():
        if now["runs"].get(run, stored) != stored:
            yield f"{run} ({json.dumps(stored)})"


def _read_plan(path: Path) -> dict[str, Any] | None:
    if not path.exists():
        if any(map(is_run, path.parent.glob("runs/*"))):
            raise UsageError(
                "file.exists", f"{path.parent} contains runs that do not belong to a comparison: pass another `out`"
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
