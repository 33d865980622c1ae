"""What a run is made of: its configuration and its tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Annotated, Any, ClassVar, TypedDict, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from practicum.agents.guard import GuardTools
from practicum.agents.kinds import kind_of
from practicum.agents.tools import MAX_TURNS, TOOL_TIMEOUT
from practicum.core.clashes import ON, Clash
from practicum.core.errors import UsageError
from practicum.core.sensitive import KINDS, Kind
from practicum.core.types import Profile, Task
from practicum.core.words import closest, one_line
from practicum.engine.door import Review
from practicum.engine.resources import LOCAL, Resources
from practicum.methods.blocks.show import parse_sections
from practicum.models.budget import BudgetLimits
from practicum.models.keys import hosts, servers
from practicum.models.options import ModelOptions, read_json
from practicum.models.prices import UNLISTED, GivenPrices, Price, read_prices
from practicum.models.refused import Structure
from practicum.models.transport import MAX_REPLY_MB

T = TypeVar("T")

PYTHON = "python:"
"""Begins the name, in a configuration, of a Python object, which no name can bring back."""

TOOLS = "tools:"
"""Begins the name of the object that an agent with tools acts on."""


def _read_sections(value: Any) -> Any:
    """Sections as a mapping, from a mapping or from lines."""
    if isinstance(value, Mapping):
        value = [f"{name}: {text}" for name, text in value.items()]
    return parse_sections(value.splitlines() if isinstance(value, str) else value)


def _read_kinds(value: Any) -> Any:
    """Kinds of sensitive values, from a list or a text such as "secrets,emails" or "all"."""
    value = [name.strip() for name in value.split(",")] if isinstance(value, str) else value
    if value in (["all"], ("all",)):
        return KINDS
    if isinstance(value, (list, tuple)) and (unknown := [name for name in value if name not in KINDS]):
        raise ValueError(f"{unknown[0]!r} does not fit: give all, or some of {', '.join(KINDS)}")
    return value


INERT = frozenset({
    "profile", "sections", "instructions", "choices", "reasoning", "max_turns", "tool_timeout", "labels", "judged",
    "seed", "concurrency", "structure", "temperature", "max_output_tokens", "timeout", "attempts", "window", "prices",
    "validate_every", "from_traces", "trace_faults", "before", "max_calls", "max_tokens", "max_usd", "max_minutes",
    "max_reply_mb", "redact",
})  # fmt: skip
"""The fields of `Config` that run nothing, call nobody and open nothing, whatever they say. Every other field, and so
each new one, is part of the mark of a run, and a run that was made elsewhere is not obeyed in it."""

OUTPUT_TOKENS: Mapping[Profile, int] = {"full": 4096, "small": 1024}
"""The most tokens of an answer in each profile: a small model that goes on and on should be cut off early."""


class RunOptions(TypedDict, total=False):
    """The keywords that `learn`, `evaluate`, `compare` and `ask` share: the fields of `Config` that are no arguments of
    their own, with the types that a caller may give."""

    model: str | None
    """The model of every role that has none of its own."""
    roles: Mapping[str, str]
    """Models by role."""
    profile: Profile | None
    """full: for capable models; small: short forms with worked examples. If None: small where the model that reflects,
    or else the agent's, runs in this process."""
    sections: Mapping[str, str] | Sequence[str]
    """The sections of a playbook, each with what belongs there; may be given as lines "name" or "name: description". If
    empty: those of the seed and a set for any task; in the profile small, the one section rules."""
    agent: str
    """chat, tools:module:name, command:PROGRAM, module:function, or an agent of a plug-in, such as appworld:URL."""
    scorer: str | None
    """The name of the scorer; if None: that of the agent's plug-in, `choice` if choices are given, else `exact`."""
    instructions: str
    """What the agent is instructed to do, beside the task."""
    choices: Sequence[str]
    """The possible answers, where they are few."""
    reasoning: bool
    """Whether the chat agent writes a line of thought before its answer."""
    max_turns: int
    """The most turns of an agent with tools; each is one model call."""
    tool_timeout: float
    """Seconds that a tool may take, and that the tools' environment may take to open or close."""
    guard_tools: GuardTools
    """What happens to calls of tools that carry text of strangers alone (see `agents.guard`): refuse; ask: held for
    approval, by `Parts(approve=...)` or on the terminal, and refused where nobody can be asked; off."""
    labels: bool
    """Whether learning may see targets and scores."""
    judged: bool
    """Without labels: whether a judge's verdict is the feedback."""
    seed: int
    """The seed of every random choice."""
    concurrency: int
    """The most calls in flight at one endpoint, or attempts of an agent of the user's own."""
    engine: str
    """Where attempts are made: local: in this process; ray, or another plug-in: on the workers of a cluster. The rest
    of a run stays here, and so does an agent that makes one model call."""
    ray_address: str | None
    """HOST:PORT of the cluster's head, or auto for the cluster that this machine is part of. If None: what RAY_ADDRESS
    says, or else a Ray of this machine that is started for the run alone."""
    resources: Resources | Mapping[str, Any] | str
    """What an attempt on a cluster takes, such as "cpu=2,gpu=0.5,memory=4gb,image=NAME"; one processor if nothing is
    given. Attempts that take less than one share a process."""
    structure: Structure
    """How models are asked for JSON: native schema, tool, or prompted."""
    temperature: float | None
    """The temperature of every role; None leaves it to the provider."""
    max_output_tokens: int | None
    """The most tokens that a call may write; if None, 4096 in the profile full and 1024 in small."""
    timeout: float
    """Seconds that one try of a call may take, from the connection to the last byte."""
    attempts: int
    """How often a call is tried if the provider fails."""
    api_key_env: str | None
    """The name of the environment variable with the key for the models' address. The key itself is stored nowhere."""
    max_reply_mb: float
    """The most megabytes of a reply; a larger one is a failed call."""
    model_options: ModelOptions | Mapping[str, Any] | str
    """What every request to a model also has: {"extra_body": fields of its body, "headers": texts by name}; may be
    given as JSON. A secret in a header is written as env:NAME, the name of an environment variable, and is not stored.
    """
    window: int | None
    """Tokens that a model reads; if None, 8192 for models in this process, and the known window for others."""
    prices: GivenPrices
    """Prices of models that genai-prices does not list: "in=0.4,cached=0.1,out=1.6" in US dollars per million tokens,
    or such texts by the names of models; "*" stands for every model without a price."""
    embedder: str
    """The name of the embedder."""
    validate_every: int
    """Steps between validations, if there are validation tasks."""
    review: Review
    """Which edits wait until somebody approves them (`practicum review`): foreign: those that rest on less than the
    operator's own tasks, and those that the filter flags; all; none."""
    trust_tools: bool
    """Whether what tools return to the agent is as trusted as the operator's own tasks."""
    redact: Sequence[Kind] | str
    """What becomes a placeholder before it is stored or sent to a model: secrets, emails, cards, ibans, ids, phones,
    ips, or all of them ("all")."""
    redact_map: str | None
    """A file for the redacted values, outside the run. With it, tools and agents that are programs get them back."""
    nonce: str
    """What the marks carry between which models are shown entries and material (`engine.framing`); by default made of
    the tasks. Empty: no marks."""
    from_traces: bool
    """Whether the tasks carry recorded attempts to learn from, so that the agent runs in evaluations only."""
    trace_faults: int
    """How many parts of the stored traces could not be parsed, or not completely; the report counts them."""
    before: bool
    """Whether the test tasks are also run with the context that the run starts from."""
    max_calls: int | None
    """The most model calls, over all resumes."""
    max_tokens: int | None
    """The most tokens, input and output together."""
    max_usd: float | None
    """The most US dollars."""
    max_minutes: float | None
    """The most minutes of work."""


class Config(BaseModel):
    """Everything a run is made of, stored with it. `session.resume` says what may change when a run is resumed.

    `method` is the name of the method and `settings` are its own; `RunOptions` describes the other fields.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    method: str = "ace"
    settings: dict[str, Any] = Field(default_factory=dict)
    model: str | None = None
    roles: dict[str, str] = Field(default_factory=dict)
    profile: Profile | None = None
    sections: Annotated[dict[str, str], BeforeValidator(_read_sections)] = Field(default_factory=dict)
    agent: str = "chat"
    scorer: str | None = None
    instructions: str = ""
    choices: tuple[str, ...] = ()
    reasoning: bool = False
    max_turns: int = Field(default=MAX_TURNS, ge=1)
    tool_timeout: float = Field(default=TOOL_TIMEOUT, gt=0)
    guard_tools: GuardTools = "off"
    labels: bool = True
    judged: bool = False
    seed: int = 0
    concurrency: int = Field(default=16, ge=1)
    engine: str = LOCAL
    ray_address: str | None = None
    resources: Resources = Resources()
    structure: Structure = "native"
    temperature: float | None = Field(default=0.0, ge=0)
    max_output_tokens: int | None = Field(default=None, ge=1)
    timeout: float = Field(default=120.0, gt=0)
    attempts: int = Field(default=6, ge=1)
    api_key_env: str | None = Field(default=None, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    max_reply_mb: float = Field(default=MAX_REPLY_MB, gt=0)
    model_options: Annotated[ModelOptions, BeforeValidator(read_json)] = ModelOptions()
    window: int | None = Field(default=None, ge=256)
    prices: Annotated[dict[str, Price], BeforeValidator(read_prices)] = Field(default_factory=dict)
    embedder: str = "wordllama"
    validate_every: int = Field(default=1, ge=1)
    review: Review = "foreign"
    trust_tools: bool = False
    redact: Annotated[tuple[Kind, ...], BeforeValidator(_read_kinds)] = ()
    redact_map: str | None = None
    nonce: str = ""
    from_traces: bool = False
    trace_faults: int = Field(default=0, ge=0)
    before: bool = False
    max_calls: int | None = Field(default=None, ge=1)
    max_tokens: int | None = Field(default=None, ge=1)
    max_usd: float | None = Field(default=None, gt=0)
    max_minutes: float | None = Field(default=None, gt=0)

    CLASHES: ClassVar[tuple[Clash, ...]] = (
        Clash(
            {}, "`redact_map` keeps what is redacted: say what that is with `redact=all`, or leave it out",
            ("redact_map",), {"redact": ON}, code="settings.unused",
        ),
        Clash(
            {"labels": True, "from_traces": False},
            "a judge's verdict is feedback for learning without labels: add `labels=False`, or leave out `judged`",
            ("judged",), code="settings.unused",
        ),
        Clash(
            {}, "`reasoning` is for the chat agent, not for {s.agent}: leave it out",
            ("reasoning",), {"agent": "chat"}, code="settings.unused",
        ),
        Clash(
            {"agent": "chat", "from_traces": False},
            "`trust_tools` is for an agent with tools, and the chat agent has none: leave it out",
            ("trust_tools",), code="settings.unused",
        ),
        Clash(
            {}, "`{setting}` is for an agent with tools, not for {s.agent}: leave it out",
            ("max_turns", "tool_timeout", "guard_tools"), {"uses_tools": True}, code="settings.unused",
        ),
        Clash(
            lambda s: s.choices and kind_of(s.agent) is not None,
            "the tasks of {s.agent} have no choice of answers: leave out `choices`", code="settings.conflict",
        ),
        Clash(
            {"engine": LOCAL}, "`{setting}` is for `engine=ray`: give that too, or leave it out",
            ("ray_address", "resources"), code="settings.unused",
        ),
    )  # fmt: skip
    """Settings of a run that exclude each other or have no effect, whatever its tasks and its method are."""

    def given(self, *names: str) -> tuple[str, ...]:
        """Those of the named settings that differ from their defaults."""
        defaults = type(self).model_fields
        return tuple(name for name in names if getattr(self, name) != defaults[name].default)

    @property
    def asks(self) -> bool:
        """Whether the agent is a built-in one, which asks a model."""
        return self.agent == "chat" or self.uses_tools

    @property
    def uses_tools(self) -> bool:
        """Whether the agent is a built-in one that calls tools."""
        return self.agent.startswith(TOOLS) or kind_of(self.agent) is not None

    @property
    def executing(self) -> dict[str, Any]:
        """What the run executes and whom it calls, as plain values: all that is not inert and not a default."""
        return self.model_dump(mode="json", exclude={*INERT}, exclude_defaults=True)

    @property
    def models(self) -> str:
        """The models of the run in words: the one of every role, otherwise that of each role."""
        return self.model or ", ".join(f"{name} ({role})" for role, name in self.roles.items()) or "none"

    @property
    def hosts(self) -> set[str]:
        """The servers of the models that are named by an address."""
        return hosts((self.model, *self.roles.values()))

    @property
    def servers(self) -> set[str]:
        """The servers and the providers of the models."""
        return servers((self.model, *self.roles.values()))

    def model_of(self, role: str) -> str:
        """The name of the model in a role. Raises UsageError if none is named."""
        name = self.roles.get(role, self.model)
        if name is None:
            raise UsageError(
                "model.missing",
                f"no model is named for the {role}: give `model`, for example `model=openai:gpt-4.1-mini`, "
                "`model=anthropic:claude-haiku-4-5` or `model=http://host:port/v1#NAME`; `model=local` is a small one "
                "(135M parameters) on this machine, which needs no key",
            )
        return name

    @property
    def output_tokens(self) -> int:
        """The most tokens that a call may write."""
        return self.max_output_tokens or OUTPUT_TOKENS[self.profile or "full"]

    @property
    def limits(self) -> BudgetLimits:
        """What the run may spend."""
        return BudgetLimits(self.max_calls, self.max_tokens, self.max_usd, self.max_minutes)


@dataclass(frozen=True, slots=True)
class Splits:
    """The tasks of a run. Those to learn from may be stored ones, which are read where they are needed."""

    train: Sequence[Task] = ()
    val: tuple[Task, ...] = ()
    test: tuple[Task, ...] = ()

    @property
    def by_name(self) -> dict[str, Sequence[Task]]:
        return {"train": self.train, "val": self.val, "test": self.test}


def require_tasks(tasks: Iterable[object]) -> None:
    """Raises UsageError for what is no task."""
    for task in tasks:
        if not isinstance(task, Task):
            raise UsageError(
                "tasks.invalid_field",
                f"a task must be a Task, not {type(task).__name__}: read tasks with practicum.load_tasks",
            )


def require_known(function: Callable[..., object], given: Mapping[str, object]) -> None:
    """Raises UsageError for a keyword that is neither an argument of the function nor one of `RunOptions`."""
    own = [p.name for p in signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY]
    require_names(given, [*own, *RunOptions.__annotations__])


def require_names(given: Mapping[str, object], known: Iterable[str]) -> None:
    """Raises UsageError for a keyword that is not known."""
    known = [*known]
    for name in given:
        if name not in known:
            raise UsageError(
                "settings.unknown",
                f"there is no setting {name!r}{closest(name, known)}: known are {', '.join(known)}",
                setting=name,
                known=[*known],
            )


def config_from(values: Mapping[str, Any]) -> Config:
    """A configuration from keywords. Raises UsageError that names the wrong one."""
    try:
        return Config.model_validate(dict(values))
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"]))
        value, said = first.get("input"), first["msg"].removeprefix("Value error, ")
        if name.startswith("resources."):
            name, value = "resources", f"{name.removeprefix('resources.')}={value}"
        if hasattr(value, "complete"):
            said = 'clients are passed as parts=Parts(clients={"agent": client})'
        if first["type"] == "string_pattern_mismatch":
            said = "it is no name of an environment variable"
        if name == "choices" and isinstance(value, str):
            said = "give a list of answers, such as practicum.tasks.load.choices_from(tasks)"
        if name.startswith("model_options"):
            raise UsageError(
                "settings.invalid", f"`model_options`: {said}", setting="model_options"
            ) from None  # a header may hold a secret
        raise UsageError("settings.invalid", f"`{name}={one_line(repr(value))}`: {said}", setting=name) from error


def prices_for(prices: Mapping[str, T], model: str | None, roles: Mapping[str, str]) -> dict[str, T]:
    """Those prices that are of these models, or of all models without one."""
    names = (UNLISTED, model, *roles.values())
    return {name: price for name, price in prices.items() if name in names}
