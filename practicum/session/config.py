"""What a run is made of: its configuration and its tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from practicum.agents.kinds import kind_of
from practicum.agents.limits import MAX_TURNS, TOOL_TIMEOUT, GuardTools
from practicum.core.clashes import ON, Clash
from practicum.core.errors import UsageError
from practicum.core.sections import parse_sections
from practicum.core.sensitive import KINDS, Kind
from practicum.core.settings import Panel, Resume, Setting, Use, settings_of
from practicum.core.trust import Review
from practicum.core.types import Profile, Task
from practicum.core.words import closest, one_line
from practicum.engine.resources import LOCAL, Resources
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


OUTPUT_TOKENS: Mapping[Profile, int] = {"full": 4096, "small": 1024}
"""The most tokens of an answer in each profile: a small model that goes on and on should be cut off early."""


class Config(BaseModel):
    """Everything a run is made of, stored with it. `method` is the name of the method and `settings` are its own."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    # fmt: off
    method: Annotated[str, Setting(
        "The method of learning: one of those that `practicum bench methods` lists.", Panel.METHOD, first=True,
    )] = "ace"
    settings: Annotated[dict[str, Any], Setting(
        "Settings of the method; typed as NAME=VALUE, repeatable.", Panel.METHOD,
        option="--set", metavar="NAME=VALUE", typed=list[str],
    )] = Field(default_factory=dict)
    model: Annotated[str | None, Setting(
        "The model of every role without its own: openai:NAME, anthropic:NAME, http://host:port/v1#NAME, local or "
        "local:PATH.", Panel.MODEL, resume=Resume.NO_ANSWER, first=True,
    )] = None
    roles: Annotated[dict[str, str], Setting(
        "Models by role (agent, reflector, curator, judge, state); typed as ROLE=MODEL, repeatable.", Panel.MODEL,
        option="--role", metavar="ROLE=MODEL", accepts=Mapping[str, str], typed=list[str], resume=Resume.NO_ANSWER,
    )] = Field(default_factory=dict)
    profile: Annotated[Profile | None, Setting(
        "Prompts and forms for capable models (full) or for small ones (small).", Panel.MODEL, inert=True,
        note="If it is None: small where the model that reflects, or else the agent's, runs in this process.",
    )] = None
    sections: Annotated[dict[str, str], BeforeValidator(_read_sections), Setting(
        "Sections of the playbook, with what belongs there: NAME: DESCRIPTION, or names alone.", Panel.METHOD,
        accepts=Mapping[str, str] | Sequence[str], inert=True, use="learning",
        note="Typed as a file of such lines, or a,b,c. If it is empty: those of the seed and a set for any "
        "task; in the profile small, the one section rules.",
    )] = Field(default_factory=dict)
    agent: Annotated[str, Setting(
        "The agent: chat, tools:module:name, command:PROGRAM, module:function, or one of a plug-in.", Panel.MODEL,
        resume=Resume.NO_ATTEMPT, first=True,
    )] = "chat"
    scorer: Annotated[str | None, Setting(
        "The scorer: exact, numeric, tests, ... (see docs/tasks.md) or module:function.", Panel.TASKS, first=True,
        note="If it is None: that of the agent's plug-in, choice if choices are given, else exact.",
    )] = None
    instructions: Annotated[str, Setting(
        "Text that the agent sees with each task; typed as it is, or as @FILE.", Panel.MODEL, inert=True, first=True,
    )] = ""
    choices: Annotated[tuple[str, ...], Setting(
        "The possible answers; typed as a,b,c, @FILE of lines, or auto (the targets of the tasks).",
        Panel.TASKS, accepts=Sequence[str], inert=True, first=True,
    )] = ()
    reasoning: Annotated[bool, Setting(
        "The chat agent writes its reasoning before the answer.", Panel.MODEL, option="--reasoning/--no-reasoning",
        inert=True,
    )] = False
    max_turns: Annotated[int, Setting(
        "Model calls of an agent with tools in one attempt, at most.", Panel.MODEL, unit="calls", inert=True,
        use="tools",
    )] = Field(default=MAX_TURNS, ge=1)
    tool_timeout: Annotated[float, Setting(
        "Seconds that a tool may take, and that the tools' environment may take to open or close.", Panel.MODEL,
        unit="s", inert=True, use="tools",
    )] = Field(default=TOOL_TIMEOUT, gt=0)
    guard_tools: Annotated[GuardTools, Setting(
        "Tool calls whose text only strangers wrote: off (made), refuse, or ask (held for approval).", Panel.MODEL,
        resume=Resume.NO_ATTEMPT, use="tools",
        note="Approval comes from `Parts(approve=...)` or the terminal; without either, the call is refused "
        "(`agents.guard`).",
    )] = "off"
    labels: Annotated[bool, Setting(
        "Learning sees targets and scores; --no-labels hides both.", Panel.TASKS, inert=True, use="training",
    )] = True
    judged: Annotated[bool, Setting(
        "Without labels or scores: a judge's verdict is the feedback.", Panel.TASKS, option="--judge", inert=True,
        use="training",
    )] = False
    seed: Annotated[int, Setting("The seed of every random choice.", Panel.METHOD, inert=True)] = 0
    concurrency: Annotated[int, Setting(
        "Calls in flight at one endpoint, or attempts of an agent of your own, at most.", Panel.MODEL, unit="calls",
        resume=Resume.FREE, inert=True, first=True,
    )] = Field(default=16, ge=1)
    engine: Annotated[str, Setting(
        "Where attempts are made: local (this process), ray (a cluster), or a plug-in's engine.", Panel.CLUSTER,
        resume=Resume.FREE, use="cluster",
        note="The rest of a run stays in this process, and so does an agent that makes one model call.",
    )] = LOCAL
    ray_address: Annotated[str | None, Setting(
        "The cluster's head as HOST:PORT, or auto: the cluster that this machine is part of.", Panel.CLUSTER,
        metavar="HOST:PORT", resume=Resume.FREE, use="cluster",
        note="If it is None: RAY_ADDRESS, or else a Ray of this machine that is started for the run alone.",
    )] = None
    resources: Annotated[Resources, Setting(
        "What an attempt on a cluster takes, such as cpu=2,gpu=0.5,memory=4gb,image=NAME.", Panel.CLUSTER,
        metavar="cpu=X,gpu=X", accepts=Resources | Mapping[str, Any] | str, resume=Resume.FREE, use="cluster",
        note="One processor if nothing is given. Attempts that take less than one share a process.",
    )] = Resources()
    structure: Annotated[Structure, Setting(
        "How models are asked for JSON.", Panel.MODEL, resume=Resume.LATER, inert=True,
        note="native: a schema in the request; tool: a tool call; prompted: in the prompt; grammar: for llama.cpp. "
        "With choices, grammar is fixed once an attempt is kept.",
    )] = "native"
    temperature: Annotated[float | None, Setting(
        "The sampling temperature of every role.", Panel.MODEL,
        note="If a program gives None, the provider chooses it.",
        resume=Resume.NOTHING, inert=True,
    )] = Field(default=0.0, ge=0)
    max_output_tokens: Annotated[int | None, Setting(
        "Tokens that one call may write, at most.", Panel.MODEL, unit="tokens", inert=True,
        note="If it is None: 4,096 in the profile full and 1,024 in small.",
    )] = Field(default=None, ge=1)
    timeout: Annotated[float, Setting(
        "Seconds that one try of a call may take, from the connection to the last byte.", Panel.MODEL, unit="s",
        resume=Resume.FREE, inert=True,
    )] = Field(default=120.0, gt=0)
    retries: Annotated[int, Setting(
        "How often a call that the provider failed is sent again.", Panel.MODEL, unit="calls", resume=Resume.FREE,
        inert=True,
    )] = Field(default=5, ge=0)
    api_key_env: Annotated[str | None, Setting(
        "The environment variable with the key of a model at an address; the key is stored nowhere.", Panel.MODEL,
        metavar="NAME", resume=Resume.FREE,
    )] = Field(default=None, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    max_reply_mb: Annotated[float, Setting(
        "Megabytes of a reply, at most; a larger one is a failed call.", Panel.MODEL, unit="MB", resume=Resume.FREE,
        inert=True,
    )] = Field(default=MAX_REPLY_MB, gt=0)
    model_options: Annotated[ModelOptions, BeforeValidator(read_json), Setting(
        'More for every request, as JSON: {"extra_body": {...}, "headers": {NAME: "env:NAME"}}.', Panel.MODEL,
        metavar="JSON", accepts=ModelOptions | Mapping[str, Any] | str, resume=Resume.FREE,
        note="A secret in a header is written as env:NAME, the name of an environment variable, and is not stored.",
    )] = ModelOptions()
    window: Annotated[int | None, Setting(
        "Tokens that fit into the model's context window.", Panel.MODEL, unit="tokens", resume=Resume.LATER,
        inert=True, note="If it is None: 8,192 for models in this process, and the known window for others.",
    )] = Field(default=None, ge=256)
    prices: Annotated[dict[str, Price], BeforeValidator(read_prices), Setting(
        "US dollars per million tokens, in=X,cached=X,out=X; 'NAME in=X,out=X' for one model.", Panel.MODEL,
        option="--price", metavar="in=X,out=X", accepts=GivenPrices, typed=list[str], unit="USD", resume=Resume.FREE,
        inert=True,
        note="For models that genai-prices does not list. In Python also a mapping by model names, in which * stands "
        "for every model without a price.",
    )] = Field(default_factory=dict)
    embedder: Annotated[str, Setting(
        "The embedder: wordllama, granite, or one of pydantic-ai (openai:text-embedding-3-small).", Panel.MODEL,
    )] = "wordllama"
    validate_every: Annotated[int, Setting(
        "Steps between two validations, if there are validation tasks.", Panel.TASKS, unit="steps", inert=True,
        use="training",
    )] = Field(default=1, ge=1)
    review: Annotated[Review, Setting(
        "Which edits wait for `practicum review`: none, foreign (not from your own tasks, or flagged), or all.",
        Panel.METHOD, use="learning",
    )] = "foreign"
    trust_tools: Annotated[bool, Setting(
        "What tools return is as trusted as your own tasks.", Panel.METHOD, use="learning",
    )] = False
    redact: Annotated[tuple[Kind, ...], BeforeValidator(_read_kinds), Setting(
        "Values that become placeholders: secrets, emails, cards, ibans, ids, phones, ips, or all.",
        Panel.TASKS, metavar="KINDS", accepts=Sequence[Kind] | str, inert=True,
    )] = ()
    redact_map: Annotated[str | None, Setting(
        "The file, outside the run, that keeps the redacted values; tools and programs then get them back.",
        Panel.TASKS, metavar="FILE",
    )] = None
    nonce: Annotated[str, Setting(
        "The word in the marks around entries and material that models are shown; empty: no marks.", Panel.METHOD,
        option=None, note="By default it is made of the tasks (`engine.framing`).",
    )] = ""
    from_traces: Annotated[bool, Setting(
        "Learning is from attempts that the tasks carry, so that the agent runs in evaluations only.", Panel.TASKS,
        option=None, inert=True, use="traces",
    )] = False
    trace_faults: Annotated[int, Setting(
        "Parts of the stored traces that could not be read in full; the report counts them.", Panel.TASKS,
        option=None, unit="parts", inert=True, use="training",
    )] = Field(default=0, ge=0)
    before: Annotated[bool, Setting(
        "The test tasks are also scored before learning.", Panel.TASKS, inert=True, use="training",
    )] = False
    max_calls: Annotated[int | None, Setting(
        "Stop before more model calls than this, over all resumes.", Panel.BUDGET, unit="calls",
        resume=Resume.FREE, inert=True, use="budget", first=True,
    )] = Field(default=None, ge=1)
    max_tokens: Annotated[int | None, Setting(
        "Stop before more tokens than this, input and output together.", Panel.BUDGET, unit="tokens",
        resume=Resume.FREE, inert=True, use="budget",
    )] = Field(default=None, ge=1)
    max_usd: Annotated[float | None, Setting(
        "Stop before it costs more US dollars than this.", Panel.BUDGET, unit="USD", resume=Resume.FREE, inert=True,
        use="budget", first=True,
    )] = Field(default=None, gt=0)
    max_minutes: Annotated[float | None, Setting(
        "Stop after this many minutes of work.", Panel.BUDGET, unit="min", resume=Resume.FREE, inert=True,
        use="budget",
    )] = Field(default=None, gt=0)
    # fmt: on

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
        return self.model_dump(mode="json", include={*EXECUTING}, exclude_defaults=True)

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


SETTINGS = settings_of(Config)
"""The settings of a run by name."""


def used_by(*uses: Use) -> tuple[str, ...]:
    """The names of the settings with these uses."""
    return tuple(name for name, field in SETTINGS.items() if field.setting.use in uses)


ARGUMENTS = ("method", "settings")
"""Settings that are arguments of `learn` and its like, and so are no keywords of `RunOptions`."""

RESUMABLE = tuple(name for name, field in SETTINGS.items() if field.setting.resume is not Resume.NEVER)
"""The settings that a resume may change, some under a condition."""

FREE = {name for name, field in SETTINGS.items() if field.setting.resume is Resume.FREE}
"""Settings on which no result depends: they may change when the same is asked again."""

EXECUTING = tuple(name for name, field in SETTINGS.items() if not field.setting.inert)
"""The settings in which a run that was made elsewhere is not obeyed; they are the mark of a run."""

CLASHES: tuple[Clash, ...] = (
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
        used_by("tools"), {"uses_tools": True}, code="settings.unused",
    ),
    Clash(
        lambda s: s.choices and kind_of(s.agent) is not None,
        "the tasks of {s.agent} have no choice of answers: leave out `choices`", code="settings.conflict",
    ),
    Clash(
        {"engine": LOCAL}, "`{setting}` is for `engine=ray`: give that too, or leave it out",
        tuple(name for name in used_by("cluster") if name != "engine"), code="settings.unused",
    ),
)  # fmt: skip
"""Settings of a run that exclude each other or have no effect, whatever its tasks and its method are."""


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
    require_names(given, [*own, *(name for name in SETTINGS if name not in ARGUMENTS)])


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
