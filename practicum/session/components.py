"""Construction of a run's objects from the names in the run's configuration; Python callers may pass objects in place
of names."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from practicum import methods
from practicum.agents.base import Agent
from practicum.agents.chat import ChatAgent
from practicum.agents.external import CommandAgent, FunctionAgent
from practicum.agents.guard import Approve
from practicum.agents.kinds import AGENTS, AgentKind, AgentOptions, kind_of
from practicum.agents.tools import ToolsAgent
from practicum.core.errors import UsageError
from practicum.core.plugins import import_function, import_object
from practicum.core.types import Usage
from practicum.engine.judge import JudgeScorer
from practicum.engine.loop import Method
from practicum.engine.scorers import CommonGenScorer, SoftwareScorer
from practicum.engine.state import Scorer
from practicum.methods.blocks.attempt import stored
from practicum.methods.blocks.gate import gate
from practicum.methods.settings import GateSettings
from practicum.models.client import Client
from practicum.models.programs import CLI, program_of
from practicum.models.registry import price_of
from practicum.retrieval.vectors import Embedder
from practicum.session.config import PYTHON, TOOLS, Config, Splits
from practicum.tasks.scoring import registry


@dataclass(frozen=True)
class Parts:
    """Python objects that replace names in the configuration.

    `method` is a Method. `agent` is any callable `(input, context) -> answer`. `tools` is the object that the agent
    with tools acts on (see `agents.environment`). `scorer` is any callable `(task, answer) -> float | bool | Score`; a
    third parameter named `trace` receives the trace of the attempt. `clients` are clients of models by role: the client
    of "agent" serves every role without a client, and the key "agent:NAME" is for the agent NAME of a network.
    `approve` decides on the tool calls that need approval with `guard_tools="ask"` (see `agents.guard`). `progress` is
    called during the download of the local model, with the number of bytes received and the total number of bytes.
    """

    method: Method | None = None
    agent: Callable[..., Any] | None = None
    tools: object = None
    scorer: Callable[..., Any] | None = None
    clients: Mapping[str, Client] = field(default_factory=dict)
    embedder: Embedder | None = None
    approve: Approve | None = None
    progress: Callable[[int, int], None] | None = None

    def names(self) -> dict[str, str]:
        """Return the names that a configuration stores for these objects, so that a resume without the objects can be
        refused."""
        names = {}
        if self.method is not None:
            names["method"] = PYTHON + self.method.name
        if self.agent is not None:
            names["agent"] = PYTHON + FunctionAgent(self.agent).name
        if self.tools is not None:
            names["agent"] = TOOLS + PYTHON + _qualified_name(self.tools)
        if self.scorer is not None:
            names["scorer"] = PYTHON + _qualified_name(self.scorer)
        if "agent" in self.clients:
            names["model"] = self.clients["agent"].name
        return names


def _qualified_name(value: object) -> str:
    return str(getattr(value, "__qualname__", type(value).__qualname__))


def make_settings(config: Config) -> GateSettings:
    """Return the settings of the configured method."""
    values = methods.for_traces(config.method, config.settings) if config.from_traces else config.settings
    return methods.read_settings(config.method, values, config.profile or "full")


def make_method(config: Config, settings: GateSettings, splits: Splits, parts: Parts) -> Method:
    """Return the configured method. If the setting `gate` is on, the method tests each delta on the validation tasks.
    If the configuration has `from_traces`, the method learns from stored attempts."""
    if parts.method is None and config.method.startswith(PYTHON):
        raise _missing_object("method", config.method, "NAME")
    method = parts.method or methods.build(config.method, settings)
    if settings.gate:
        method = replace(method, accept=gate(method.accept, method.act, splits.val, settings.gate_alpha))
    # With stored traces, no task is attempted.
    return replace(method, attempt=stored()) if config.from_traces else method


def make_scorer(config: Config, parts: Parts) -> Scorer:
    """Return the configured scorer."""
    if parts.scorer is not None:
        return registry.function_scorer("function", parts.scorer)
    name = config.scorer or "exact"
    if name.startswith(PYTHON):
        raise _missing_object("scorer", name, "module:function")
    if name == "software":
        software = SoftwareScorer()
        software.sandbox.require()
        return software
    asking: Mapping[str, Scorer] = {"judge": JudgeScorer(), "commongen": CommonGenScorer()}
    return asking.get(name) or registry.load_scorer(name, config.choices or None)


def make_agent(config: Config, parts: Parts) -> Agent:
    """Return the configured agent."""
    name = config.agent
    if parts.agent is not None and parts.tools is not None:
        raise UsageError(
            "settings.conflict",
            "pass either agent or tools to Parts, not both: tools are for the built-in agent",
        )
    if parts.agent is not None:
        return FunctionAgent(parts.agent, config.instructions)
    if name == "chat":
        return ChatAgent(config.instructions, config.choices, config.reasoning)
    if name.startswith(TOOLS):
        source = name.removeprefix(TOOLS)
        if parts.tools is None and source.startswith(PYTHON):
            raise _missing_object("tools", source, "module:name", "agent tools:")
        tools = import_object(source) if parts.tools is None else parts.tools
        return ToolsAgent(
            tools, source, config.instructions, config.choices, config.max_turns, config.tool_timeout,
            guard_tools=config.guard_tools, approve=parts.approve,
        )  # fmt: skip
    if name.startswith(PYTHON):
        raise _missing_object("agent", name, "module:function")
    kind, _, rest = name.partition(":")
    if kind == "command":
        return CommandAgent(rest, config.instructions, config.timeout)
    if name.startswith(CLI):
        return _repository_agent(config)
    if (plugin := kind_of(name)) is not None:
        options = AgentOptions(
            config.instructions, config.max_turns, config.tool_timeout, config.guard_tools, parts.approve
        )
        return plugin.make(rest, options)
    if rest:
        return FunctionAgent(import_function(name), config.instructions)
    if isinstance(registered := AGENTS.load(name), AgentKind):
        raise UsageError("agent.invalid", f"the agent {name} needs an argument: write {name}:ARGUMENT")
    return FunctionAgent(registered, config.instructions)


def _repository_agent(config: Config) -> Agent:
    from practicum.agents.repository import RepositoryAgent

    program, model = program_of(config.agent)
    program.require(f"agent {config.agent!r}")
    if shutil.which("git") is None:
        raise UsageError("program.missing", f"agent {config.agent!r} needs git, which is not on the PATH: install git")
    price = price_of(config.agent, config.prices)
    if config.max_usd is not None and not program.reports_cost and price(Usage(1, 1000, 0, 100)) is None:
        raise UsageError(
            "price.unknown",
            f"the price of {config.agent} is unknown, so the budget of {config.max_usd:g} USD cannot be enforced: name "
            f"a model ({CLI}{program.name}/MODEL), or limit the tokens instead (`max_tokens`)",
        )
    return RepositoryAgent(
        program, model, price, config.instructions, config.timeout,
        config.max_turns if config.limits_turns else None, config.max_usd,
    )  # fmt: skip


def _missing_object(part: str, name: str, form: str, option: str = "") -> UsageError:
    return UsageError(
        "run.needs_objects",
        f"the {part} of this run was the Python object {name.removeprefix(PYTHON)}: continue the run from "
        f"Python with Parts({part}=...), or start a new run with --{option or f'{part} '}{form}",
    )
