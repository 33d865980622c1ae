"""What a run is made of: its configuration, checked before anything is paid for, and its tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from practicum import methods
from practicum.agents.tools import MAX_TURNS, TOOL_TIMEOUT
from practicum.core.errors import TaskFileError, UsageError
from practicum.core.types import Task
from practicum.models.budget import BudgetLimits
from practicum.models.client import Structure
from practicum.models.registry import ROLES
from practicum.session.components import APPWORLD, TOOLS, Parts, make_agent, make_scorer
from practicum.tasks.load import require_meta, require_targets
from practicum.tasks.scoring.registry import JUDGED

UNGATED = {
    "none": "changes nothing that a gate could hold back",
    "gepa": "judges its candidates itself",
    "mipro": "judges its candidates itself",
}
"""Methods that take no gate, and why."""


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
    """chat, tools:module:name, appworld:URL, command:PROGRAM or module:function."""
    scorer: str | None = None
    """Name of the scorer; `appworld` for its agent, `choice` where choices are given, else `exact`."""
    instructions: str = ""
    """What the agent is told beside the task."""
    choices: tuple[str, ...] = ()
    """The answers there are, where they are few."""
    reasoning: bool = False
    """Whether the chat agent writes a line of thought before its answer."""
    max_turns: int = Field(default=MAX_TURNS, ge=1)
    """Most turns of an agent with tools, one model call each."""
    tool_timeout: float = Field(default=TOOL_TIMEOUT, gt=0)
    """Seconds a tool may take, and what it acts on to be opened or closed."""
    labels: bool = True
    """Whether learning may see targets and scores."""
    judged: bool = False
    """Without labels: whether a judge's verdict is the feedback."""
    seed: int = 0
    """Of every random choice."""
    concurrency: int = Field(default=16, ge=1)
    """Calls in flight at one endpoint, or attempts of an agent that is not ours."""
    structure: Structure = "native"
    """How models are asked for JSON: native schema, tool, or prompted."""
    temperature: float | None = Field(default=0.0, ge=0)
    """Of every role; None leaves it to the provider."""
    max_output_tokens: int = Field(default=1024, ge=1)
    """Most tokens a call may write."""
    timeout: float = Field(default=120.0, gt=0)
    """Seconds a call may take."""
    attempts: int = Field(default=6, ge=1)
    """Tries of a call that the provider failed."""
    window: int | None = Field(default=None, ge=256)
    """Tokens a model reads; None is 8192 for models in this process, and for others what is known of them."""
    embedder: str = "wordllama"
    """Name of the embedder."""
    validate_every: int = Field(default=1, ge=1)
    """Steps between validations, where there are validation tasks."""
    from_traces: bool = False
    """Whether the tasks carry recorded attempts to learn from, and nothing is run but evaluation."""
    trace_faults: int = Field(default=0, ge=0)
    """Times that something of the traces could not be read, or not as it stood; counted in the report."""
    before: bool = False
    """Whether the test tasks are also run with the context the run starts from."""
    max_calls: int | None = Field(default=None, ge=1)
    """Most model calls, over all resumes."""
    max_tokens: int | None = Field(default=None, ge=1)
    """Most tokens, input and output together."""
    max_usd: float | None = Field(default=None, gt=0)
    """Most US dollars."""
    max_minutes: float | None = Field(default=None, gt=0)
    """Most minutes of work."""

    @property
    def asks(self) -> bool:
        """Whether the agent is one of ours, which asks a model."""
        return self.agent == "chat" or self.agent.startswith((TOOLS, APPWORLD))

    @property
    def limits(self) -> BudgetLimits:
        return BudgetLimits(self.max_calls, self.max_tokens, self.max_usd, self.max_minutes)


@dataclass(frozen=True, slots=True)
class Splits:
    """The tasks of a run."""

    train: tuple[Task, ...]
    val: tuple[Task, ...] = ()
    test: tuple[Task, ...] = ()


def configured(values: Mapping[str, Any]) -> Config:
    """A configuration from keywords. Raises UsageError naming the one that is wrong."""
    try:
        return Config.model_validate(dict(values))
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"]))
        if first["type"] == "extra_forbidden":
            raise UsageError(f"there is no setting {name!r}: there are {', '.join(Config.model_fields)}") from error
        raise UsageError(f"{name}={first.get('input')!r}: {first['msg']}") from error


def raised(config: Config, limits: Mapping[str, Any]) -> Config:
    """The same run with higher limits. Raises UsageError for a lower one."""
    wanted = {name: value for name, value in limits.items() if value is not None}
    for name, value in wanted.items():
        old = getattr(config, name)
        if old is None or value < old:
            kept = "without bound" if old is None else old
            raise UsageError(
                f"--{name.replace('_', '-')} {value} is lower than this run's ({kept}): a resume may only raise it"
            )
    return configured({**config.model_dump(), **wanted})


def checked(config: Config, splits: Splits, parts: Parts, scored: bool = True) -> Config:
    """The configuration with its defaults filled in, or a UsageError, before anything is paid for. Where nothing is
    `scored`, targets may be missing."""
    if not splits.train and not splits.test:
        raise UsageError("there are no tasks")
    usual = "appworld" if config.agent.startswith(APPWORLD) else "choice" if config.choices else "exact"
    scorer = config.scorer or usual
    changes = {"scorer": scorer, "roles": _named_roles(config.roles), **parts.names()}
    config = config.model_copy(update=changes)
    if config.from_traces:
        _check_traces(config, splits)
    if scored:
        _check_targets(config, splits, parts)
    _check_use(config, splits, parts)
    return config.model_copy(update={"settings": methods.kept(config.method, config.settings)})


def _check_targets(config: Config, splits: Splits, parts: Parts) -> None:
    made = make_scorer(config, parts)
    named = ((splits.train, "the tasks"), (splits.val, "the validation tasks"), (splits.test, "the test tasks"))
    for split, where in named:
        _unique(split, where)
        learned_from = config.labels and not config.from_traces
        if made.needs_target and (split is not splits.train or learned_from):
            require_targets(split, made.name, where, config.choices or None)
        if split is not splits.train or learned_from:
            require_meta(split, made.name, where)


def _check_use(config: Config, splits: Splits, parts: Parts) -> None:
    """Refuse what would have no effect."""
    method = methods.build(config.method, config.settings)
    if lacks := methods.lacking(config.method):
        raise UsageError(f"method {config.method} needs the package {lacks}: pip install 'practicum[{lacks}]'")
    used = roles_used(config, config.asks and acts(config, splits), method.roles)
    if config.method == "icl" and not config.labels:
        raise UsageError("method icl shows right answers, so it cannot learn without labels")
    if config.judged and config.labels and not config.from_traces:
        raise UsageError("a judge's verdict is feedback for learning without labels: add --no-labels, or leave it out")
    _check_agent(config)
    if splits.train:
        _check_gate(config, splits)
    if config.before and not splits.test:
        raise UsageError("--before scores the test tasks: give --test, or leave it out")
    if config.validate_every > 1 and not splits.val:
        raise UsageError("--validate-every is for validation tasks: give --val, or leave it out")
    for role in config.roles:
        if role not in used and role != "agent" and splits.train:
            asked = ", ".join(used) or "none"
            raise UsageError(f"method {config.method} asks no {role} here: leave out --role {role} (asked: {asked})")
    make_agent(config, parts)


def _check_gate(config: Config, splits: Splits) -> None:
    if not methods.validated(config.method, config.settings).gate:
        return
    if why := UNGATED.get(config.method):
        raise UsageError(f"method {config.method} {why}: leave out gate=true")
    if not splits.val:
        raise UsageError("gate=true tries each delta on validation tasks: give --val, or leave it out")


def _check_agent(config: Config) -> None:
    if config.reasoning and config.agent != "chat":
        raise UsageError(f"--reasoning is for the chat agent, not for {config.agent}: leave it out")
    if config.scorer == "appworld" and not config.agent.startswith(APPWORLD):
        raise UsageError(f"scorer 'appworld' reads what the agent {APPWORLD}URL leaves, not what {config.agent} does")
    if config.choices and config.agent.startswith(APPWORLD):
        raise UsageError("what is done in AppWorld is no choice of answers: leave out --choices")
    if not config.agent.startswith((TOOLS, APPWORLD)):
        for name, default in (("max_turns", MAX_TURNS), ("tool_timeout", TOOL_TIMEOUT)):
            if getattr(config, name) != default:
                said = f"--{name.replace('_', '-')}"
                raise UsageError(f"{said} is for an agent with tools, not for {config.agent}: leave it out")


def _check_traces(config: Config, splits: Splits) -> None:
    """Refuse what needs attempts of its own."""
    if config.settings.get("online"):
        raise UsageError("--online predicts before it learns, and traces are there already: leave it out")
    values = methods.traced(config.method, config.settings)
    if unused := sorted({"rounds", "refine", "lessons"} & set(config.settings)):
        raise UsageError(f"nothing is tried again with --from-traces: leave out --set {unused[0]}=...")
    settings = methods.validated(config.method, values)
    again = {"group": 1, "twin": False, "replay": 0.0, "rollouts": None, "primitives": "given"}
    if on := {name: off for name, off in again.items() if getattr(settings, name, off) != off}:
        how = " ".join(f"--set {name}={str(off).lower()}" for name, off in on.items())
        raise UsageError(f"with --from-traces nothing is run, and {', '.join(on)} would run tasks again: use {how}")
    if any(task.recorded is None for task in splits.train):
        raise UsageError("some tasks have no recorded attempt: load them with load_traces, or leave out from_traces")


def acts(config: Config, splits: Splits) -> bool:
    """Whether the agent runs at all: not where there are stored traces to learn from and nothing to evaluate."""
    return not config.from_traces or bool(splits.val or splits.test)


def roles_used(config: Config, asks: bool, of_method: Sequence[str]) -> list[str]:
    """The roles whose models a run asks; `asks` says whether the agent does."""
    judged = config.judged or config.scorer in JUDGED
    roles = [*(["agent"] if asks else []), *of_method, *(["judge"] if judged else [])]
    return list(dict.fromkeys(roles))


def _named_roles(roles: Mapping[str, str]) -> dict[str, str]:
    named: dict[str, str] = {}
    for role, model in roles.items():
        if role not in ROLES:
            raise UsageError(f"unknown role {role!r}: known are {', '.join(ROLES)}")
        if ROLES[role] in named:
            raise UsageError(f"role {ROLES[role]} is given two models ({role} is another name of it)")
        named[ROLES[role]] = model
    return named


def _unique(tasks: Sequence[Task], where: str) -> None:
    seen: set[str] = set()
    for task in tasks:
        if task.id in seen:
            raise TaskFileError(f"two of {where} have the id {task.id!r}")
        seen.add(task.id)
