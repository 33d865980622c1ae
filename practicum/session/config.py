"""Configuration and tasks of a run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
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
from practicum.models.prices import UNLISTED, Price, PricesArgument, read_prices
from practicum.models.refused import Structure
from practicum.models.transport import MAX_REPLY_MB

T = TypeVar("T")

PYTHON = "python:"
"""Prefix of the name of a Python object in a configuration; a resume cannot create the object from its name."""

TOOLS = "tools:"
"""Prefix of the name of the object that an agent with tools acts on."""


def _read_sections(value: Any) -> Any:
    """Return sections as a mapping, from a mapping or from lines."""
    if isinstance(value, Mapping):
        value = [f"{name}: {text}" for name, text in value.items()]
    return parse_sections(value.splitlines() if isinstance(value, str) else value)


def _read_path(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value


def _read_kinds(value: Any) -> Any:
    """Return kinds of sensitive values, from a list or a text such as "secrets,emails" or "all"."""
    value = [name.strip() for name in value.split(",")] if isinstance(value, str) else value
    if value in (["all"], ("all",)):
        return KINDS
    if isinstance(value, (list, tuple)) and (unknown := [name for name in value if name not in KINDS]):
        raise ValueError(f"unknown kind {unknown[0]!r}: pass all, or some of {', '.join(KINDS)}")
    return value


OUTPUT_TOKENS: Mapping[Profile, int] = {"full": 4096, "small": 1024}
"""Maximum number of tokens of an answer, by profile. The number for small is lower, so that a small model that does not
stop is cut off early."""


class Config(BaseModel):
    """Configuration of a run, which is stored with the run. `method` is the method's name and `settings` are its
    settings."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    # fmt: off
    method: Annotated[str, Setting(
        "Learning method: one of the methods that `practicum bench methods` lists.", Panel.METHOD, first=True,
    )] = "ace"
    settings: Annotated[dict[str, Any], Setting(
        "Settings of the method, as NAME=VALUE; repeatable.", Panel.METHOD,
        option="--set", metavar="NAME=VALUE", typed=list[str],
    )] = Field(default_factory=dict)
    model: Annotated[str | None, Setting(
        "Model of all roles without a model in `roles`: openai:NAME, anthropic:NAME, http://host:port/v1#NAME, local "
        "or local:PATH.", Panel.MODEL, resume=Resume.NO_ANSWER, first=True,
        note="Default: the variable PRACTICUM_MODEL.",
    )] = None
    roles: Annotated[dict[str, str], Setting(
        "Models by role (agent, reflector, curator, judge, state), as ROLE=MODEL; repeatable.", Panel.MODEL,
        option="--role", metavar="ROLE=MODEL", accepts=Mapping[str, str], typed=list[str], resume=Resume.NO_ANSWER,
    )] = Field(default_factory=dict)
    profile: Annotated[Profile | None, Setting(
        "Prompts and formats for capable models (full) or for small models (small).", Panel.MODEL, inert=True,
        note="None: small if the reflector's model runs in this process, otherwise full. Without a model for the "
        "reflector, the agent's model decides.",
    )] = None
    sections: Annotated[dict[str, str], BeforeValidator(_read_sections), Setting(
        "Sections of the playbook with their descriptions (NAME: DESCRIPTION), or only names.", Panel.METHOD,
        accepts=Mapping[str, str] | Sequence[str], inert=True, use="learning",
        note="On the command line a file with lines NAME: DESCRIPTION, or names as a,b,c. Without names, the profile "
        "full uses the sections of the seed and a few general sections; the profile small uses only `rules`.",
    )] = Field(default_factory=dict)
    agent: Annotated[str, Setting(
        "Agent: chat, tools:module:name, cli:PROGRAM, command:PROGRAM, module:function, or an agent of a plug-in.",
        Panel.MODEL, resume=Resume.NO_ATTEMPT, first=True,
    )] = "chat"
    scorer: Annotated[str | None, Setting(
        "Scorer: exact, numeric, tests, ... (see docs/learn/tasks.md) or module:function.", Panel.TASKS, first=True,
        note="None: the scorer of the agent's plug-in; otherwise choice if `choices` is set, else exact.",
    )] = None
    instructions: Annotated[str, Setting(
        "Text that the agent sees with each task, or @FILE.", Panel.MODEL, inert=True, first=True,
    )] = ""
    choices: Annotated[tuple[str, ...], Setting(
        "Possible answers, as a,b,c, @FILE with one answer a line, or auto (the targets of the tasks).",
        Panel.TASKS, accepts=Sequence[str], inert=True, first=True,
    )] = ()
    reasoning: Annotated[bool, Setting(
        "The chat agent writes its reasoning before the answer.", Panel.MODEL, option="--reasoning/--no-reasoning",
        inert=True,
    )] = False
    max_turns: Annotated[int, Setting(
        "Maximum number of model calls of an agent with tools in one attempt.", Panel.MODEL, unit="calls", inert=True,
        use="tools",
    )] = Field(default=MAX_TURNS, ge=1)
    learn_tools: Annotated[bool, Setting(
        "Also learn the descriptions of the agent's tools and their parameters: they become entries, which the curator "
        "edits.",
        Panel.METHOD, inert=True, use="tools",
    )] = False
    tool_timeout: Annotated[float, Setting(
        "Timeout (s) of a tool call, and of opening or closing the tools' environment.", Panel.MODEL,
        unit="s", inert=True, use="tools",
    )] = Field(default=TOOL_TIMEOUT, gt=0)
    guard_tools: Annotated[GuardTools, Setting(
        "Handling of tool calls whose text comes only from untrusted sources: off (no check), refuse, or ask "
        "(for approval).",
        Panel.MODEL,
        resume=Resume.NO_ATTEMPT, use="tools",
        note="Approval comes from `Parts(approve=...)` or the terminal; if neither is available, the call is refused "
        "(`agents.guard`).",
    )] = "off"
    labels: Annotated[bool, Setting(
        "Learning uses targets and scores; --no-labels hides both.", Panel.TASKS, inert=True, use="training",
    )] = True
    targets: Annotated[bool, Setting(
        "Learning sees right answers; --no-targets shows it only whether an answer is right.", Panel.TASKS, inert=True,
        use="training",
    )] = True
    judged: Annotated[bool, Setting(
        "A judge's verdict is the feedback; for learning without labels or scores.", Panel.TASKS, option="--judge",
        inert=True, use="training",
    )] = False
    seed: Annotated[int, Setting("Seed of all random choices.", Panel.METHOD, inert=True)] = 0
    concurrency: Annotated[int, Setting(
        "Maximum number of concurrent calls to one endpoint, or concurrent attempts of your own agent.", Panel.MODEL,
        unit="calls", resume=Resume.FREE, inert=True, first=True,
    )] = Field(default=16, ge=1)
    batch_api: Annotated[bool, Setting(
        "Send calls through the batch API of openai:NAME and anthropic:NAME: half the price, answers within a day.",
        Panel.MODEL, option="--batch/--no-batch", resume=Resume.FREE, inert=True, use="batches",
        note="A run that was stopped while a batch was under way collects its answers on resume.",
    )] = False
    engine: Annotated[str, Setting(
        "Where attempts run: local (this process), ray (a cluster), or the engine of a plug-in.", Panel.CLUSTER,
        resume=Resume.FREE, use="cluster",
        note="Everything except attempts runs in this process, and so do attempts of an agent that makes one model "
        "call.",
    )] = LOCAL
    ray_address: Annotated[str | None, Setting(
        "Address of the cluster's head as HOST:PORT, or auto: the cluster of this machine.", Panel.CLUSTER,
        metavar="HOST:PORT", resume=Resume.FREE, use="cluster",
        note="None: RAY_ADDRESS, or else a local Ray that is started for this run.",
    )] = None
    resources: Annotated[Resources, Setting(
        "Resources of an attempt on a cluster, such as cpu=2,gpu=0.5,memory=4gb,image=NAME.", Panel.CLUSTER,
        metavar="cpu=X,gpu=X", accepts=Resources | Mapping[str, Any] | str, resume=Resume.FREE, use="cluster",
        note="Default: one CPU. Attempts that need less than one CPU share a process.",
    )] = Resources()
    structure: Annotated[Structure, Setting(
        "How JSON is requested from models.", Panel.MODEL, resume=Resume.LATER, inert=True,
        note="native: a schema in the request; tool: a tool call; prompted: in the prompt; grammar: for llama.cpp. "
        "If tasks have choices, `grammar` cannot be set or replaced after the first stored attempt.",
    )] = "native"
    temperature: Annotated[float | None, Setting(
        "Sampling temperature of every role.", Panel.MODEL,
        note="None (Python only): the provider's default.",
        resume=Resume.NOTHING, inert=True,
    )] = Field(default=0.0, ge=0)
    max_output_tokens: Annotated[int | None, Setting(
        "Maximum number of output tokens of one call.", Panel.MODEL, unit="tokens", inert=True,
        note="None: 4,096 in the profile full and 1,024 in small.",
    )] = Field(default=None, ge=1)
    timeout: Annotated[float, Setting(
        "Timeout (s) of one try of a call, from the connection to the last byte.", Panel.MODEL, unit="s",
        resume=Resume.FREE, inert=True,
    )] = Field(default=120.0, gt=0)
    retries: Annotated[int, Setting(
        "Number of retries after a provider error.", Panel.MODEL, unit="calls", resume=Resume.FREE,
        inert=True,
    )] = Field(default=5, ge=0)
    api_key_env: Annotated[str | None, Setting(
        "Environment variable with the key of a model at an address; the key is never stored.", Panel.MODEL,
        metavar="NAME", resume=Resume.FREE,
    )] = Field(default=None, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    max_reply_mb: Annotated[float, Setting(
        "Maximum size (MB) of a reply; a larger reply is a failed call.", Panel.MODEL, unit="MB", resume=Resume.FREE,
        inert=True,
    )] = Field(default=MAX_REPLY_MB, gt=0)
    model_options: Annotated[ModelOptions, BeforeValidator(read_json), Setting(
        'Options of every request, as JSON: {"extra_body": {...}, "headers": {NAME: "env:NAME"}}.', Panel.MODEL,
        metavar="JSON", accepts=ModelOptions | Mapping[str, Any] | str, resume=Resume.FREE,
        note="Write a secret in a header as env:NAME, the name of an environment variable; the secret is not stored.",
    )] = ModelOptions()
    window: Annotated[int | None, Setting(
        "Size (tokens) of the model's context window.", Panel.MODEL, unit="tokens", resume=Resume.LATER,
        inert=True, note="None: 8,192 for models in this process, and the published window for other models.",
    )] = Field(default=None, ge=256)
    prices: Annotated[dict[str, Price], BeforeValidator(read_prices), Setting(
        "Prices (USD per million tokens), in=X,cached=X,out=X; 'NAME in=X,out=X' for one model.", Panel.MODEL,
        option="--price", metavar="in=X,out=X", accepts=PricesArgument, typed=list[str], unit="USD", resume=Resume.FREE,
        inert=True,
        note="For models that genai-prices does not list. In Python also a mapping by model name; the price of the "
        "key * applies to every model without another price.",
    )] = Field(default_factory=dict)
    embedder: Annotated[str, Setting(
        "Embedder: wordllama, granite, or an embedder of pydantic-ai (openai:text-embedding-3-small).", Panel.MODEL,
    )] = "wordllama"
    validate_every: Annotated[int, Setting(
        "Number of steps between two validations, if there are validation tasks.", Panel.TASKS, unit="steps",
        inert=True, use="training",
    )] = Field(default=1, ge=1)
    review: Annotated[Review, Setting(
        "Edits that wait for `practicum review`: none, foreign (not from your own tasks, or flagged), or all.",
        Panel.METHOD, use="learning",
    )] = "foreign"
    trust_tools: Annotated[bool, Setting(
        "Trust tool results like your own tasks.", Panel.METHOD, use="learning",
    )] = False
    redact: Annotated[tuple[Kind, ...], BeforeValidator(_read_kinds), Setting(
        "Kinds of values to replace by placeholders: secrets, emails, cards, ibans, ids, phones, ips, or all.",
        Panel.TASKS, metavar="KINDS", accepts=Sequence[Kind] | str, inert=True,
    )] = ()
    redact_map: Annotated[str | None, BeforeValidator(_read_path), Setting(
        "File, outside the run's folder, that stores the redacted values, so that tools and programs receive the real "
        "values.",
        Panel.TASKS, metavar="FILE", accepts=str | Path | None,
    )] = None
    nonce: Annotated[str, Setting(
        "Word in the markers around entries and material in prompts; empty: no markers.", Panel.METHOD,
        option=None, note="By default derived from the tasks (`engine.framing`).",
    )] = ""
    from_traces: Annotated[bool, Setting(
        "Learn from attempts stored in the tasks; the agent runs in evaluations only.", Panel.TASKS,
        option=None, inert=True, use="traces",
    )] = False
    trace_faults: Annotated[int, Setting(
        "Number of parts of the stored traces that could not be read in full; the report shows this number.",
        Panel.TASKS, option=None, unit="parts", inert=True, use="training",
    )] = Field(default=0, ge=0)
    before: Annotated[bool, Setting(
        "Also score the test tasks before learning.", Panel.TASKS, inert=True, use="training",
    )] = False
    max_calls: Annotated[int | None, Setting(
        "Maximum number of model calls, over all resumes.", Panel.BUDGET, unit="calls",
        resume=Resume.FREE, inert=True, use="budget", first=True,
    )] = Field(default=None, ge=1)
    max_tokens: Annotated[int | None, Setting(
        "Maximum number of tokens, input and output together.", Panel.BUDGET, unit="tokens",
        resume=Resume.FREE, inert=True, use="budget",
    )] = Field(default=None, ge=1)
    max_usd: Annotated[float | None, Setting(
        "Maximum cost (USD).", Panel.BUDGET, unit="USD", resume=Resume.FREE, inert=True,
        use="budget", first=True,
    )] = Field(default=None, gt=0)
    max_minutes: Annotated[float | None, Setting(
        "Maximum work time (min), over all resumes.", Panel.BUDGET, unit="min", resume=Resume.FREE, inert=True,
        use="budget",
    )] = Field(default=None, gt=0)
    # fmt: on

    def were_set(self, *names: str) -> tuple[str, ...]:
        """Return the named settings that differ from their defaults."""
        defaults = type(self).model_fields
        return tuple(name for name in names if getattr(self, name) != defaults[name].default)

    @property
    def asks(self) -> bool:
        """Whether the agent is built in and calls a model."""
        return self.agent == "chat" or self.uses_tools

    @property
    def uses_tools(self) -> bool:
        """Whether the agent is built in and calls tools."""
        return self.agent.startswith(TOOLS) or kind_of(self.agent) is not None

    @property
    def limits_turns(self) -> bool:
        """Whether `max_turns` applies to the agent."""
        return self.uses_tools or self.agent.startswith("cli:claude")

    @property
    def executing(self) -> dict[str, Any]:
        """Settings that decide what the run executes and which servers the run calls, as plain values; settings at
        their default are left out."""
        return self.model_dump(mode="json", include={*EXECUTING}, exclude_defaults=True)

    @property
    def models(self) -> str:
        """Models of the run as text: the name in `model`, or else the model of each role in `roles`."""
        return self.model or ", ".join(f"{name} ({role})" for role, name in self.roles.items()) or "none"

    @property
    def hosts(self) -> set[str]:
        """Servers of the models that are named by an address."""
        return hosts((self.model, *self.roles.values()))

    @property
    def servers(self) -> set[str]:
        """Servers and providers of the models."""
        return servers((self.model, *self.roles.values()))

    def model_of(self, role: str) -> str:
        """Return the name of the model of a role. Raises UsageError if the configuration names no model for the
        role."""
        name = self.roles.get(role, self.model)
        if name is None:
            raise UsageError(
                "model.missing",
                f"no model for the {role}: pass `model`, for example `model=openai:gpt-4.1-mini`, "
                "`model=anthropic:claude-haiku-4-5` or `model=http://host:port/v1#NAME`, or set the variable "
                f"{MODEL_VARIABLE}; `model=local` is a small model (135M parameters) on this machine, without a key",
            )
        return name

    @property
    def output_tokens(self) -> int:
        """Maximum number of output tokens of a call."""
        return self.max_output_tokens or OUTPUT_TOKENS[self.profile or "full"]

    @property
    def limits(self) -> BudgetLimits:
        """Budget of the run."""
        return BudgetLimits(self.max_calls, self.max_tokens, self.max_usd, self.max_minutes)


SETTINGS = settings_of(Config)
"""The settings of a run by name."""


def used_by(*uses: Use) -> tuple[str, ...]:
    """Return the names of the settings that have one of these uses."""
    return tuple(name for name, field in SETTINGS.items() if field.setting.use in uses)


ARGUMENTS = ("method", "settings")
"""Settings that are arguments of `learn` and similar functions, and therefore not keywords of `RunOptions`."""

RESUMABLE = tuple(name for name, field in SETTINGS.items() if field.setting.resume is not Resume.NEVER)
"""Settings that a resume may change, some of them only under a condition."""

FREE = {name for name, field in SETTINGS.items() if field.setting.resume is Resume.FREE}
"""Settings that no result depends on. These settings may change when an interrupted evaluation or query is
continued."""

EXECUTING = tuple(name for name, field in SETTINGS.items() if not field.setting.inert)
"""Settings that decide what a run executes and which servers the run calls. In a run from another machine, the caller
must replace these settings or trust the run. An installation recognizes its own runs by a mark, which is computed from
these settings."""

CLASHES: tuple[Clash, ...] = (
    Clash(
        {}, "`redact_map` stores redacted values, but nothing is redacted: add `redact=all`, or leave out `redact_map`",
        ("redact_map",), {"redact": ON}, code="settings.unused",
    ),
    Clash(
        {"labels": True, "from_traces": False},
        "a judge's verdict is feedback for learning without labels: add `labels=False`, or leave out `judged`",
        ("judged",), code="settings.unused",
    ),
    Clash(
        {"labels": False}, "without labels, learning sees no targets either: leave out `targets`",
        ("targets",), code="settings.unused",
    ),
    Clash(
        {}, "`reasoning` only applies to the chat agent, not to {s.agent}: leave out `reasoning`",
        ("reasoning",), {"agent": "chat"}, code="settings.unused",
    ),
    Clash(
        {"agent": "chat", "from_traces": False},
        "`trust_tools` only applies to an agent with tools, and the chat agent has no tools: leave out `trust_tools`",
        ("trust_tools",), code="settings.unused",
    ),
    Clash(
        {}, "`{setting}` only applies to an agent with tools, not to {s.agent}: leave out `{setting}`",
        tuple(name for name in used_by("tools") if name != "max_turns"), {"uses_tools": True}, code="settings.unused",
    ),
    Clash(
        {}, "`max_turns` does not apply to {s.agent}: leave out `max_turns`", ("max_turns",), {"limits_turns": True},
        code="settings.unused",
    ),
    Clash(
        lambda s: s.batch_api and s.model_options.headers,
        "requests in a batch have no headers: leave out the headers in `model_options`, or `batch_api`",
        code="settings.conflict", fields={"setting": "model_options"},
    ),
    Clash(
        lambda s: s.choices and kind_of(s.agent) is not None,
        "the tasks of {s.agent} have no list of possible answers: leave out `choices`", code="settings.conflict",
    ),
    Clash(
        {"engine": LOCAL}, "`{setting}` only applies with `engine=ray`: add `engine=ray`, or leave out `{setting}`",
        tuple(name for name in used_by("cluster") if name != "engine"), code="settings.unused",
    ),
)  # fmt: skip
"""Combinations of settings that are refused, because the settings exclude each other or one setting has no effect. The
checks do not depend on the run's tasks and method."""


@dataclass(frozen=True, slots=True)
class Splits:
    """Tasks of a run, by split. If the training tasks are stored in the run, `train` reads a task from the store when
    the task is used."""

    train: Sequence[Task] = ()
    val: tuple[Task, ...] = ()
    test: tuple[Task, ...] = ()

    @property
    def by_name(self) -> dict[str, Sequence[Task]]:
        return {"train": self.train, "val": self.val, "test": self.test}


def require_tasks(tasks: Iterable[object]) -> None:
    """Raise UsageError for an object that is not a Task."""
    for task in tasks:
        if not isinstance(task, Task):
            raise UsageError(
                "tasks.invalid_field",
                f"a task must be a Task, not {type(task).__name__}: read tasks with practicum.load_tasks",
            )


def require_keywords(function: Callable[..., object], keywords: Mapping[str, object]) -> None:
    """Raise UsageError for a keyword that is neither an argument of the function nor in `RunOptions`."""
    own = [p.name for p in signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY]
    require_names(keywords, [*own, *(name for name in SETTINGS if name not in ARGUMENTS)])


def require_names(keywords: Mapping[str, object], names: Iterable[str]) -> None:
    """Raise UsageError for a keyword that is not in `names`."""
    names = [*names]
    for name in keywords:
        if name not in names:
            raise UsageError(
                "settings.unknown",
                f"no setting named {name!r}{closest(name, names)}: the settings are {', '.join(names)}",
                setting=name,
                valid=names,
            )


MODEL_VARIABLE = "PRACTICUM_MODEL"
"""Environment variable with the model of configurations that name no model."""


def config_from(values: Mapping[str, Any]) -> Config:
    """Return a configuration from keywords. Raises UsageError that names the invalid keyword."""
    try:
        # The values of a stored run always have `model`, which may be None, so the variable does not change a stored
        # run.
        return Config.model_validate({"model": os.environ.get(MODEL_VARIABLE) or None, **values})
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"]))
        value, message = first.get("input"), first["msg"].removeprefix("Value error, ")
        if name.startswith("resources."):
            name, value = "resources", f"{name.removeprefix('resources.')}={value}"
        if hasattr(value, "complete"):
            message = 'pass clients as parts=Parts(clients={"agent": client})'
        if first["type"] == "string_pattern_mismatch":
            message = "not a valid name of an environment variable"
        if name == "choices" and isinstance(value, str):
            message = "pass a list of answers, such as practicum.tasks.load.choices_from(tasks)"
        if name.startswith("model_options"):
            raise UsageError(
                "settings.invalid", f"`model_options`: {message}", setting="model_options"
            ) from None  # a header may hold a secret
        raise UsageError("settings.invalid", f"`{name}={one_line(repr(value))}`: {message}", setting=name) from error


def prices_for(prices: Mapping[str, T], model: str | None, roles: Mapping[str, str]) -> dict[str, T]:
    """Return the prices of `model` and of the models of `roles`, and the price with the key `*`, which applies to every
    model without another price."""
    names = (UNLISTED, model, *roles.values())
    return {name: price for name, price in prices.items() if name in names}
