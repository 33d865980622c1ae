"""What a run is made of: its configuration and its tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from practicum.agents.tools import MAX_TURNS, TOOL_TIMEOUT
from practicum.blocks.sections import parse_sections
from practicum.core.errors import UsageError
from practicum.core.types import Profile, Task
from practicum.models.budget import BudgetLimits
from practicum.models.client import Structure

PYTHON = "python:"
"""Begins the name, in a configuration, of a Python object, which no name can bring back."""

TOOLS = "tools:"
"""Begins the name of the object that an agent with tools acts on."""

APPWORLD = "appworld:"
"""Begins the addresses of AppWorld's servers."""


def _read_sections(value: Any) -> Any:
    """Sections as a mapping, from a mapping or from lines."""
    if isinstance(value, Mapping):
        value = [f"{name}: {text}" for name, text in value.items()]
    return parse_sections(value.splitlines() if isinstance(value, str) else value)


OUTPUT_TOKENS: Mapping[Profile, int] = {"full": 4096, "small": 1024}
"""The most tokens of an answer in each profile: a small model that goes on and on should be cut off early."""


class Config(BaseModel):
    """Everything a run is made of, stored with it. Only the limits may change when a run is resumed."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    method: str = "ace"
    """The name of the method."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """The settings of the method."""
    model: str | None = None
    """The model of every role that has none of its own."""
    roles: dict[str, str] = Field(default_factory=dict)
    """Models by role."""
    profile: Profile | None = None
    """full: for capable models; small: short forms with worked examples. If None: small where the model that reflects,
    or else the agent's, runs in this process."""
    sections: Annotated[dict[str, str], BeforeValidator(_read_sections)] = Field(default_factory=dict)
    """The sections of a playbook, each with what belongs there; may be given as lines "name" or "name: description". If
    empty: those of the seed and a set for any task; in the profile small, the one section rules."""
    agent: str = "chat"
    """chat, tools:module:name, appworld:URL, command:PROGRAM, module:function, or the name of an installed agent."""
    scorer: str | None = None
    """The name of the scorer; if None: `appworld` for its agent, `choice` if choices are given, else `exact`."""
    instructions: str = ""
    """What the agent is instructed to do, beside the task."""
    choices: tuple[str, ...] = ()
    """The possible answers, where they are few."""
    reasoning: bool = False
    """Whether the chat agent writes a line of thought before its answer."""
    max_turns: int = Field(default=MAX_TURNS, ge=1)
    """The most turns of an agent with tools; each is one model call."""
    tool_timeout: float = Field(default=TOOL_TIMEOUT, gt=0)
    """Seconds that a tool may take, and that the tools' environment may take to open or close."""
    labels: bool = True
    """Whether learning may see targets and scores."""
    judged: bool = False
    """Without labels: whether a judge's verdict is the feedback."""
    seed: int = 0
    """The seed of every random choice."""
    concurrency: int = Field(default=16, ge=1)
    """The most calls in flight at one endpoint, or attempts of an agent of the user's own."""
    structure: Structure = "native"
    """How models are asked for JSON: native schema, tool, or prompted."""
    temperature: float | None = Field(default=0.0, ge=0)
    """The temperature of every role; None leaves it to the provider."""
    max_output_tokens: int | None = Field(default=None, ge=1)
    """The most tokens that a call may write; if None, 4096 in the profile full and 1024 in small."""
    timeout: float = Field(default=120.0, gt=0)
    """Seconds that a call may take."""
    attempts: int = Field(default=6, ge=1)
    """How often a call is tried if the provider fails."""
    window: int | None = Field(default=None, ge=256)
    """Tokens that a model reads; if None, 8192 for models in this process, and the known window for others."""
    embedder: str = "wordllama"
    """The name of the embedder."""
    validate_every: int = Field(default=1, ge=1)
    """Steps between validations, if there are validation tasks."""
    from_traces: bool = False
    """Whether the tasks carry recorded attempts to learn from, so that the agent runs in evaluations only."""
    trace_faults: int = Field(default=0, ge=0)
    """How many parts of the stored traces could not be parsed, or not completely; the report counts them."""
    before: bool = False
    """Whether the test tasks are also run with the context that the run starts from."""
    max_calls: int | None = Field(default=None, ge=1)
    """The most model calls, over all resumes."""
    max_tokens: int | None = Field(default=None, ge=1)
    """The most tokens, input and output together."""
    max_usd: float | None = Field(default=None, gt=0)
    """The most US dollars."""
    max_minutes: float | None = Field(default=None, gt=0)
    """The most minutes of work."""

    @property
    def asks(self) -> bool:
        """Whether the agent is a built-in one, which asks a model."""
        return self.agent == "chat" or self.agent.startswith((TOOLS, APPWORLD))

    @property
    def models(self) -> str:
        """The models of the run in words: the one of every role, otherwise that of each role."""
        return self.model or ", ".join(f"{name} ({role})" for role, name in self.roles.items()) or "none"

    def model_of(self, role: str) -> str:
        """The name of the model in a role. Raises UsageError if none is named."""
        name = self.roles.get(role, self.model)
        if name is None:
            raise UsageError(
                f"no model is named for the {role}: give `model`, for example `model=openai:gpt-4.1-mini`, "
                "`model=anthropic:claude-haiku-4-5` or `model=http://host:port/v1#NAME`; `model=local` is a small one "
                "(135M parameters) on this machine, which needs no key"
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
    """The tasks of a run."""

    train: tuple[Task, ...] = ()
    val: tuple[Task, ...] = ()
    test: tuple[Task, ...] = ()

    @property
    def by_name(self) -> dict[str, tuple[Task, ...]]:
        """The tasks by the name of their split."""
        return {"train": self.train, "val": self.val, "test": self.test}


def config_from(values: Mapping[str, Any]) -> Config:
    """A configuration from keywords. Raises UsageError that names the wrong one."""
    try:
        return Config.model_validate(dict(values))
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"]))
        if first["type"] == "extra_forbidden":
            raise UsageError(f"there is no setting {name!r}: known are {', '.join(Config.model_fields)}") from error
        raise UsageError(f"{name}={first.get('input')!r}: {first['msg']}") from error


def raise_limits(config: Config, limits: Mapping[str, Any]) -> Config:
    """The same configuration with higher limits. Raises UsageError for a lower one."""
    given = {name: value for name, value in limits.items() if value is not None}
    for name, value in given.items():
        old = getattr(config, name)
        if old is None or value < old:
            limit = "no limit" if old is None else old
            raise UsageError(
                f"--{name.replace('_', '-')} {value} is lower than the limit of this run ({limit}): a resume may only "
                "raise it"
            )
    return config_from({**config.model_dump(), **given})
