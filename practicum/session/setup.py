"""Setup of a run: the configuration is checked once, and the run uses the objects that the check built."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from practicum import methods
from practicum.agents.base import Agent
from practicum.agents.kinds import kind_of
from practicum.core.clashes import ON, Clash, refuse
from practicum.core.errors import TaskFileError, UsageError
from practicum.core.installation import derived_key
from practicum.core.redact import Redactor
from practicum.core.requirements import pip_install
from practicum.core.trust import LEVELS, Trust
from practicum.engine.framing import nonce_for
from practicum.engine.loop import Method
from practicum.engine.resources import LOCAL
from practicum.engine.state import Scorer
from practicum.engine.workers import ENGINES, scorer_moves
from practicum.methods.settings import GateSettings
from practicum.models.client import Client
from practicum.models.keys import hosts
from practicum.models.prices import UNLISTED
from practicum.models.registry import ROLES, is_local
from practicum.session.components import Parts, make_agent, make_method, make_scorer, make_settings
from practicum.session.config import CLASHES as OF_CONFIG
from practicum.session.config import FREE, Config, Splits, config_from, require_tasks
from practicum.store.journal import digest
from practicum.tasks.load import require_meta, require_targets
from practicum.tasks.scoring.registry import JUDGED
from practicum.tasks.stored import TASK, StoredTasks, survey
from practicum.tasks.survey import Survey

REPEATED_ATTEMPTS = ("lessons", "refine", "rounds")
"""Settings of repeated attempts at a task, which stored traces do not allow."""

SINGLE_ATTEMPT: Mapping[str, Any] = {"group": 1, "twin": False, "replay": 0.0, "attempted": None, "primitives": "given"}
"""Settings of methods, each with the value that disables repeated attempts."""


CLASHES: tuple[Clash, ...] = (
    Clash(
        lambda s: s.config.from_traces and getattr(s.settings, "online", False),
        "with `online`, a task is attempted before the run learns from the task, but stored traces already contain the "
        "attempts: leave out `online`",
        code="settings.conflict",
    ),
    Clash(
        {"config.from_traces": True}, "with `from_traces` no task is attempted: leave out `settings: {setting}=...`",
        REPEATED_ATTEMPTS, code="settings.unused",
    ),
    Clash(
        {"settings.NEEDS_LABELS": True, "config.labels": False},
        "method {s.config.method} shows right answers and cannot learn without labels: choose another method",
        code="method.unsuitable",
    ),
    Clash(
        {"settings.gate": True, "settings.NO_GATE": ON, "splits.train": ON},
        "method {s.config.method} {s.settings.NO_GATE}: leave out gate=true", code="method.unsuitable",
    ),
    Clash(
        {"settings.gate": True, "splits.train": ON},
        "gate=true tests each delta on validation tasks: pass `val`, or leave out gate=true",
        unless={"splits.val": ON}, code="tasks.missing", fields={"tasks": "val"},
    ),
    Clash(
        lambda s: s.config.learn_tools and "curator" not in s.method.roles,
        "method {s.config.method} has no curator that edits descriptions of tools: choose ace or combee, or leave out "
        "`learn_tools`",
        code="method.unsuitable",
    ),
    Clash(
        lambda s: s.config.batch_api and s.parts.clients,
        "`batch_api` only applies to models by name, not to clients in Parts: leave out `batch_api`",
        code="settings.unused", fields={"setting": "batch_api"},
    ),
    Clash(
        {"config.before": True}, "`before` scores the test tasks: pass `test`, or leave out `before`",
        unless={"splits.test": ON}, code="tasks.missing", fields={"tasks": "test"},
    ),
    Clash(
        {}, "`validate_every` only applies with validation tasks: pass `val`, or leave out `validate_every`",
        unless={"config.validate_every": 1, "splits.val": ON}, code="tasks.missing", fields={"tasks": "val"},
    ),
    Clash(
        lambda s: (kind := getattr(s.scorer, "agent", None)) and not s.config.agent.startswith(f"{kind}:"),
        "scorer {s.config.scorer!r} needs the agent {s.scorer.agent}:ARGUMENT, not {s.config.agent}",
        code="settings.conflict",
    ),
    Clash(
        {"config.api_key_env": ON},
        "`api_key_env` only applies to models at an address (http://host:port/v1#NAME): leave out `api_key_env`",
        unless={"models": hosts}, code="settings.unused", fields={"setting": "api_key_env"},
    ),
)  # fmt: skip
"""Combinations of settings that are refused because they conflict with the run's method or tasks."""


@dataclass(frozen=True)
class Setup:
    """Run that is ready to start: its configuration and tasks, and the objects that were built from them.

    `roles` are the roles whose models the run calls, and `act_roles` are the roles that the attempts of an evaluation
    call.
    """

    config: Config
    splits: Splits
    parts: Parts
    settings: GateSettings
    method: Method
    agent: Agent
    scorer: Scorer
    roles: tuple[str, ...]
    act_roles: tuple[str, ...]
    redactor: Redactor | None = None
    train_survey: Survey | None = None

    @property
    def survey(self) -> Survey:
        """Summary of the training tasks."""
        return self.train_survey or survey(self.splits.train)

    @property
    def unlabelled(self) -> int:
        """Number of tasks of a stream that have no target, and so no score. 0 if the run needs no targets, or if it
        needs a target for every task: if it is not a stream, or if no task has a target."""
        config, survey = self.config, self.survey
        optional = getattr(self.settings, "online", False) and survey.unlabelled < survey.count
        return survey.unlabelled if optional and self.scorer.needs_target and config.labels else 0

    @property
    def models(self) -> set[str | None]:
        """Names of the models that the run calls, or could call. Contains None if `model` is not set."""
        return {self.config.model, *self.config.roles.values(), *self.method.models.values()}

    @property
    def reads_sessions(self) -> bool:
        """Whether a judge reads recorded sessions before learning (`engine.sessions`)."""
        return "judge" in self.roles and self.config.profile != "small"

    def digest(self, *parts: Any) -> str:
        """Return a digest of strings or JSON values, and of the settings that results depend on. A place in the journal
        with this digest in the place's name holds only results for the same `parts` and the same settings."""
        return digest(*parts, self.config.model_dump(mode="json", exclude=FREE))[:12]

    def test_name(self, name: str) -> str:
        """Return the name of an evaluation of the test tasks. Test tasks with other ids or other texts give the
        evaluation another name."""
        return f"{name}-{self.digest([TASK.dump_python(task, mode='json') for task in self.splits.test])}"

    def were_set(self, *names: str) -> tuple[str, ...]:
        """Return the named settings of the method that the user set."""
        return tuple(name for name in names if name in self.config.settings)

    def client(self, role: str) -> Client | None:
        """Return the client that the caller passed for a role, or None if no client was passed."""
        return passed_client(self.config, self.parts, role)


def passed_client(config: Config, parts: Parts, role: str) -> Client | None:
    """Return the client in `parts` that serves a role, or None."""
    return parts.clients.get(role) or (None if role in config.roles else parts.clients.get("agent"))


def set_up(values: Mapping[str, Any], splits: Splits, parts: Parts | None = None, *, scored: bool = True) -> Setup:
    """Check the configuration of a run, and build its objects.

    `values` are fields of `Config`; `method` may be a Method, and `settings` its Settings. If `scored` is false,
    targets may be missing. Raises UsageError or TaskFileError before the first paid call.
    """
    for tasks in splits.by_name.values():
        require_tasks(() if isinstance(tasks, StoredTasks) else tasks)
    values, parts = take_objects(values, parts or Parts())
    config = config_from({**values, **parts.names()})
    if not splits.train and not splits.test:
        raise UsageError("tasks.missing", "no tasks: pass tasks to learn from or to test on")
    setup = build_setup(with_defaults(config, parts), splits, parts)
    refuse(setup.config, OF_CONFIG)
    refuse(setup, CLASHES)
    setup = replace(setup, train_survey=survey(setup.splits.train))
    # A run that began earlier keeps its nonce.
    if "nonce" not in values:
        digests = (setup.survey.content, *(survey(tasks).content for tasks in (setup.splits.val, setup.splits.test)))
        setup = replace(setup, config=setup.config.model_copy(update={"nonce": nonce_for(digests)}))
    if config.from_traces:
        _check_traces(setup)
    if scored:
        _check_tasks(setup)
    _check_method(setup)
    check_engine(setup)
    roles = _check_roles(setup)
    for role in setup.roles if splits.train else setup.act_roles:
        if setup.client(role) is None:
            config.model_copy(update={"roles": roles}).model_of(role)
    if unknown := [name for name in config.prices if name not in (*setup.models, UNLISTED)]:
        available = ", ".join(sorted(filter(None, setup.models))) or "none"
        raise UsageError(
            "settings.unused",
            f"`prices` names {unknown[0]!r}, which is not a model of this run (models of this run: {available})",
            setting="prices",
        )
    # A run stores the settings that the user set, as JSON values of their types.
    values_set = setup.settings.model_dump(mode="json")
    settings = {name: values_set[name] for name in config.settings}
    return replace(setup, config=setup.config.model_copy(update={"settings": settings, "roles": roles}))


def with_defaults(config: Config, parts: Parts) -> Config:
    """Return the configuration, in which an unset scorer or profile is derived from the other settings."""
    kind = kind_of(config.agent)
    default = (kind.scorer if kind else None) or ("choice" if config.choices else "exact")
    learner = config.roles.get("reflector") or config.model or config.roles.get("agent") or ""
    small = is_local(learner) and parts.clients.get("agent") is None
    profile = config.profile or ("small" if small else "full")
    return config.model_copy(update={"scorer": config.scorer or default, "profile": profile})


def take_objects(values: Mapping[str, Any], parts: Parts) -> tuple[dict[str, Any], Parts]:
    """Return the values and the parts. A Method object in the values is moved to the parts, and a Settings object is
    replaced by plain values."""
    values = dict(values)
    if isinstance(settings := values.get("settings"), GateSettings):
        values["settings"] = settings.model_dump(exclude_unset=True)
    if isinstance(method := values.get("method"), Method):
        parts = replace(parts, method=method)
        values["method"] = parts.names()["method"]
    return values, parts


def build_setup(config: Config, splits: Splits, parts: Parts) -> Setup:
    """Build the objects of a run, without the checks of `set_up`. Raises UsageError if the configuration names a Python
    object that is not in `parts`."""
    redactor = make_redactor(config)
    if redactor is not None:
        splits = redactor(splits)
        redacted = {"instructions": redactor(config.instructions), "choices": redactor(config.choices)}
        config = config.model_copy(update=redacted)
    settings = make_settings(config)
    method = make_method(config, settings, splits, parts)
    # If learning uses stored traces, the agent runs in evaluations only.
    agent = ("agent",) if config.asks else ()
    runs = agent if not config.from_traces or splits.val or splits.test else ()
    judge = ("judge",) if config.judged or config.scorer in JUDGED else ()
    return Setup(
        config=config,
        splits=splits,
        parts=parts,
        settings=settings,
        method=method,
        agent=make_agent(config, parts),
        scorer=make_scorer(config, parts),
        roles=tuple(dict.fromkeys((*runs, *method.roles, *judge))),
        act_roles=tuple(dict.fromkeys((*agent, *method.act_roles, *judge))),
        redactor=redactor,
    )


def make_redactor(config: Config) -> Redactor | None:
    """Return the redactor of a run, or None if the run redacts nothing."""
    if not config.redact:
        return None
    return Redactor(config.redact, derived_key("redact"), Path(config.redact_map) if config.redact_map else None)


def _check_tasks(setup: Setup) -> None:
    """Refuse tasks with the same id, and tasks without the target or meta that the scorer needs."""
    config, scorer, splits = setup.config, setup.scorer, setup.splits
    names = {"train": "the tasks", "val": "the validation tasks", "test": "the test tasks"}
    for split, tasks in splits.by_name.items():
        where = names[split]
        if (twice := (setup.survey if split == "train" else survey(tasks)).repeated) is not None:
            raise TaskFileError(
                "tasks.duplicate_id",
                f"two of {where} have the id {tasks[twice].id!r}: change the id of one of the two",
                id=tasks[twice].id,
            )
        if split == "train" and (config.from_traces or not config.labels):
            continue
        if scorer.needs_target:
            labelled = (task for task in tasks if task.target is not None)
            some = split == "train" and setup.unlabelled
            require_targets(labelled if some else tasks, scorer.name, where, config.choices or None)
        require_meta(tasks, scorer.name, where)


def _check_method(setup: Setup) -> None:
    """Refuse a method that needs a missing package, and a method that cannot let edits wait, if the run's edits must
    wait for review."""
    config = setup.config
    if extra := methods.missing_extra(config.method):
        raise UsageError(
            "extra.missing", f"method {config.method} needs the package {extra}: {pip_install(extra)}", package=extra
        )
    tries_at_once = setup.settings.NO_GATE and setup.method.roles and setup.splits.train
    if config.review != "none" and tries_at_once and strangers(config, setup.survey.levels):
        raise UsageError(
            "review.impossible",
            f"method {config.method} uses its edits at once, so lessons from untrusted sources cannot wait for review: "
            "pass `review=none`, or learn with another method",
        )


def strangers(config: Config, levels: Set[Trust]) -> str:
    """Return the sources of a run that are less trusted than the operator's own, as text, or "" if no source is less
    trusted."""
    sources = [
        f"{level} {'traces' if config.from_traces else 'tasks'}" for level in LEVELS if level in levels - {"own"}
    ]
    if config.uses_tools and not (config.trust_tools or config.from_traces):
        sources.append("tool results (set `trust_tools` if all tool results are your own)")
    return " and ".join(sources)


def check_engine(setup: Setup) -> None:
    """Raise UsageError for an unknown engine, or if the run has no work for the engine."""
    config = setup.config
    if config.engine == LOCAL:
        return
    ENGINES.load(config.engine)
    # Workers load local models.
    loads_models = any(is_local(name) for name in (config.model, *config.roles.values()) if name)
    if not (setup.agent.moves or scorer_moves(setup.scorer) or loads_models):
        raise UsageError(
            "settings.unused",
            f"`engine={config.engine}` has no work for the agent {config.agent} and the scorer {config.scorer}, which "
            "only call models and servers: leave out `engine`",
        )


def _check_roles(setup: Setup) -> dict[str, str]:
    """Return the models by canonical role name. Raises UsageError for a role that the run does not call."""
    models: dict[str, str] = {}
    for role, model in setup.config.roles.items():
        name = role if role in setup.roles else ROLES.get(role)
        if name is None:
            raise UsageError(
                "role.unknown", f"unknown role {role!r}: the roles are {', '.join(ROLES)}", role=role, valid=[*ROLES]
            )
        if name in models:
            raise UsageError("role.duplicate", f"role {name} has two models: {role} is another name for this role")
        if name not in (*setup.roles, "agent") and setup.splits.train:
            called = ", ".join(setup.roles) or "none"
            raise UsageError(
                "role.unused",
                f"this run does not call a {name} (this run calls: {called}): leave the {name} out of `roles`",
            )
        models[name] = model
    return models


def _check_traces(setup: Setup) -> None:
    """Refuse settings that attempt tasks again, and tasks without recorded attempts."""
    if on := {name: off for name, off in SINGLE_ATTEMPT.items() if getattr(setup.settings, name, off) != off}:
        replacements = ", ".join(f"`settings: {name}={str(off).lower()}`" for name, off in on.items())
        raise UsageError(
            "settings.conflict",
            f"with `from_traces` no task is attempted, but {', '.join(on)} would attempt tasks: use {replacements}",
        )
    if not setup.survey.recorded:
        raise UsageError(
            "traces.missing",
            "some tasks have no recorded attempt: load the tasks with load_traces, or leave out `from_traces`",
        )
