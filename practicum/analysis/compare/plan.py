"""What a comparison will run, checked as a whole before anything is paid for, and kept so that it can go on."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from practicum import methods
from practicum.analysis.compare.variants import Study, Variant
from practicum.core.differences import FEWEST
from practicum.core.errors import StoreError, UsageError
from practicum.core.files import write_atomic
from practicum.core.types import Task
from practicum.models.registry import ROLES
from practicum.session.components import Parts
from practicum.session.config import Config, Splits, acts, checked, configured, roles_used
from practicum.store.journal import digest

PLAN = "compare.json"


@dataclass(frozen=True)
class Planned:
    """One run: a variant with a seed, and all that it is made of."""

    variant: Variant
    seed: int
    config: Config

    @property
    def folder(self) -> str:
        """Where it is kept, below the comparison's folder."""
        return f"runs/{self.variant.folder}-{self.seed}"


@dataclass(frozen=True)
class Plan:
    """A whole comparison. `online` says that the tasks are a stream, and that what counts are the predictions."""

    study: Study
    splits: Splits
    runs: tuple[Planned, ...]
    seeds: int
    online: bool
    common: Mapping[str, Any]
    warnings: tuple[str, ...] = field(default=())

    def splits_of(self, run: Planned) -> Splits:
        """The tasks of one run."""
        return _splits(run.variant, self.splits)

    def predicted(self, run: Planned) -> bool:
        """Whether what counts are the predictions made before learning from each task."""
        return self.online or run.variant.stream

    def before(self, run: Planned) -> Planned | None:
        """The run whose result this one starts from."""
        same = (r for r in self.runs if (r.variant.name, r.seed) == (run.variant.after, run.seed))
        return next(same) if run.variant.after else None

    @property
    def scored(self) -> tuple[Task, ...]:
        """The tasks whose scores are compared."""
        return self.splits.train if self.online else self.splits.test

    def as_json(self) -> dict[str, Any]:
        """What must be the same for a comparison to go on; variants and seeds may be added."""
        splits = (self.splits.train, self.splits.val, self.splits.test)
        tasks = [[[t.id, t.input, t.target] for t in split] for split in splits]
        # Scorers read it: the tests of code, the rules of an answer.
        meta = [[dict(t.meta) for t in split] for split in splits]
        made = {
            run.folder: {
                "method": run.config.method, "settings": run.config.settings,
                "stream": run.variant.stream, "after": run.variant.after,
            }
            for run in self.runs
        }  # fmt: skip
        same = {"tasks": digest(tasks), "meta": digest(meta)}
        return {"format": 1, **same, "common": dict(self.common), "runs": made}


def planned(study: Study, splits: Splits, parts: Parts, *, seeds: int = 3, online: bool = False, **common: Any) -> Plan:
    """The plan of a comparison. `common` are fields of `Config` that all runs share. Raises UsageError for whatever
    would go wrong later: a split that leaks, a method or setting that does not exist or cannot run with these tasks."""
    if seeds < 1:
        raise UsageError(f"--seeds {seeds}: at least one")
    if common.get("max_calls") is not None and common.get("max_tokens") is not None:
        raise UsageError("--budget-calls and --budget-tokens are two budgets: give one, the same for every method")
    _check_splits(splits, online)
    variants = study.variants
    if online and any(variant.stream for variant in variants):
        raise UsageError("some of these variants take the test tasks as a stream: leave out --online, and give --test")
    if twice := sorted({v.name for v in variants if sum(v.folder == w.folder for w in variants) > 1}):
        raise UsageError(f"{' and '.join(twice)} would be kept in one folder: give one another name")
    _check_roles(variants, splits, common)
    configs = {v.name: _configured(v, splits, parts, common) for v in variants}
    # All variants with one seed before the next, so that what is there early says something about each.
    runs = [
        Planned(v, seed, configs[v.name].model_copy(update={"seed": seed})) for seed in range(seeds) for v in variants
    ]
    kept = configs[variants[0].name].model_dump(exclude={"method", "settings", "seed", "roles"}, mode="json")
    asked = {**kept, "roles": dict(common.get("roles", {}))}
    return Plan(study, splits, tuple(runs), seeds, online, asked, tuple(_warnings(splits, online)))


def _configured(variant: Variant, splits: Splits, parts: Parts, common: Mapping[str, Any]) -> Config:
    """What a run of this variant is made of; a role it does not ask is no fault here, where others may."""
    values = {**common, "method": variant.method, "settings": dict(variant.settings)}
    if variant.stream:
        values["validate_every"] = 1
    roles = {
        r: m
        for r, m in common.get("roles", {}).items()
        if ROLES.get(r, r) in (*_asked(variant, splits, common), "agent")
    }
    try:
        return checked(configured({**values, "roles": roles}), _splits(variant, splits), parts)
    except UsageError as error:
        raise type(error)(f"{variant.name}: {error}") from error


def _splits(variant: Variant, splits: Splits) -> Splits:
    return Splits(splits.test) if variant.stream else splits


def _asked(variant: Variant, splits: Splits, common: Mapping[str, Any]) -> list[str]:
    config = configured({**common, "roles": {}, "method": variant.method, "settings": dict(variant.settings)})
    try:
        method = methods.build(variant.method, variant.settings)
    except UsageError as error:
        raise UsageError(f"{variant.name}: {error}") from error
    return roles_used(config, config.asks and acts(config, splits), method.roles)


def _check_roles(variants: Sequence[Variant], splits: Splits, common: Mapping[str, Any]) -> None:
    """Refuse a role that nobody knows, or that no variant asks."""
    used = dict.fromkeys(["agent", *(role for v in variants for role in _asked(v, splits, common))])
    for role in common.get("roles", {}):
        if role not in ROLES:
            raise UsageError(f"unknown role {role!r}: known are {', '.join(ROLES)}")
        if ROLES[role] not in used:
            raise UsageError(f"no method here asks a {role}: leave out --role {role} (asked: {', '.join(used)})")


def _check_splits(splits: Splits, online: bool) -> None:
    if online and (splits.test or splits.val):
        raise UsageError("--online scores the predictions on TASKS themselves: leave out --test and --val")
    if not online and not splits.test:
        raise UsageError(
            "scores need tasks that nothing was learned from or chosen by: give --test FILE (--val will not do, since "
            "contexts are chosen by it), or --online to score the predictions made on TASKS before learning from each"
        )
    for name, seen in (("training", splits.train), ("validation", splits.val)):
        if leaks := _overlap(splits.test, seen):
            shown = ", ".join(leaks[:SHOWN]) + (f" and {len(leaks) - SHOWN} more" if len(leaks) > SHOWN else "")
            raise UsageError(
                f"{len(leaks)} of the {len(splits.test)} test tasks are also {name} tasks (same id or same input): "
                f"{shown}; take them out of one of the files"
            )


SHOWN = 20
"""Ids that an error lists."""


def _overlap(test: Sequence[Task], seen: Sequence[Task]) -> list[str]:
    """Ids of the test tasks that were seen. An id made of a line's number says nothing about the task."""
    ids = {task.id for task in seen if not _numbered(task.id)}
    inputs = {" ".join(task.input.split()) for task in seen}
    return [t.id for t in test if t.id in ids or " ".join(t.input.split()) in inputs]


def _numbered(id: str) -> bool:
    return id.startswith("line-") and id[5:].isdigit()


def _warnings(splits: Splits, online: bool) -> Iterator[str]:
    scored = len(splits.train if online else splits.test)
    if scored < FEWEST:
        yield f"{scored} tasks are scored, fewer than {FEWEST}: no claim can be made"
    if splits.val and not online:
        yield "the best context is chosen by --val: methods pay for that within their budget"


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold the comparison's folder against other processes, made where it is not there; the system lets go when this
    one ends, however it ends."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "lock").open("a")
    except OSError as error:
        raise StoreError(f"cannot write to {folder}: {error.strerror}") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise StoreError(f"{folder} is in use by another comparison: wait for it, or give another --out") from error
        yield


def remember(plan: Plan, folder: Path) -> None:
    """Write the plan down, or see that it is the one that was begun here. Raises UsageError naming what differs."""
    path = folder / PLAN
    # As it is read back: a tuple is a list there.
    now = json.loads(json.dumps(plan.as_json()))
    known = _read(path) or now
    begun = {run: made for run, made in known["runs"].items() if (folder / run).is_dir()}
    if begun:
        if known["tasks"] != now["tasks"]:
            raise _other(folder, "the tasks")
        # A plan of before it was kept has none.
        if known.get("meta", now["meta"]) != now["meta"]:
            raise _other(folder, "the tasks' meta")
        for name in sorted({*known["common"], *now["common"]}):
            if known["common"].get(name) != now["common"].get(name):
                raise _other(folder, f"{name} ({known['common'].get(name)!r}, now {now['common'].get(name)!r})")
        for run, made in begun.items():
            if now["runs"].get(run, made) != made:
                raise _other(folder, f"{run} ({json.dumps(made)})")
    now["runs"] = {**begun, **now["runs"]}
    write_atomic(path, json.dumps(now, ensure_ascii=False, indent=1))


def _read(path: Path) -> dict[str, Any] | None:
    if not path.exists():
        if any(path.parent.glob("runs/*/run.sqlite")):
            raise UsageError(f"{path.parent} holds runs of something else: give another --out")
        return None
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if found["format"] != 1:
            raise StoreError(f"{path} is of format {found['format']}, this practicum reads 1")
        return found
    except (OSError, ValueError, KeyError) as error:
        raise StoreError(f"cannot read {path}: {error}") from error


def _other(folder: Path, what: str) -> UsageError:
    return UsageError(
        f"{folder} holds a comparison with another value of {what}: give the same again, or another --out"
    )
