"""From names in a configuration to the objects they mean; Python callers may pass the objects instead."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from practicum.agents.appworld import AppWorldAgent
from practicum.agents.base import Agent
from practicum.agents.chat import ChatAgent
from practicum.agents.command import CommandAgent
from practicum.agents.function import FunctionAgent
from practicum.agents.tools import ToolsAgent
from practicum.core.errors import UsageError
from practicum.core.importing import import_function, import_object
from practicum.core.types import Score, Task, Trace
from practicum.engine.judge import JudgeScorer
from practicum.engine.quality import CommonGenScorer, SoftwareScorer
from practicum.engine.run import Run
from practicum.engine.state import Scorer
from practicum.models.client import Client
from practicum.retrieval.vectors import Embedder
from practicum.tasks.appworld import parse_addresses
from practicum.tasks.scoring import registry

if TYPE_CHECKING:
    from practicum.session.config import Config

PYTHON = "python:"
"""Marks in a configuration what was passed as an object, which no name can bring back."""

TOOLS = "tools:"
"""Begins the name of what an agent with tools acts on."""

APPWORLD = "appworld:"
"""Begins the addresses of AppWorld's servers."""


@dataclass(frozen=True)
class Parts:
    """Objects in place of names. `agent` is any callable `(input, context) -> answer`; `tools` what the agent with
    tools acts on, see `agents.world`; `scorer` any callable `(task, answer) -> float | bool | Score`, with `trace` as a
    third parameter where it wants to see the steps or the state; `clients` by role, "agent" serving every role without
    one of its own, and as "agent:NAME" for an agent of a network that has a model of its own."""

    agent: Callable[..., Any] | None = None
    tools: object = None
    scorer: Callable[..., Any] | None = None
    clients: Mapping[str, Client] = field(default_factory=dict)
    embedder: Embedder | None = None
    progress: Callable[[int, int], None] | None = None

    def names(self) -> dict[str, Any]:
        """What a configuration says of these objects, so that a resume without them is refused."""
        found: dict[str, Any] = {}
        if self.agent is not None:
            found["agent"] = PYTHON + FunctionAgent(self.agent).name
        if self.tools is not None:
            found["agent"] = f"{TOOLS}{PYTHON}{getattr(self.tools, '__qualname__', type(self.tools).__name__)}"
        if self.scorer is not None:
            found["scorer"] = PYTHON + getattr(self.scorer, "__qualname__", type(self.scorer).__name__)
        if "agent" in self.clients:
            found["model"] = self.clients["agent"].name
        return found


@dataclass(frozen=True)
class PlainScorer:
    """A scorer of `tasks.scoring` as a Run calls it."""

    rule: registry.AnswerScorer
    pure: bool

    @property
    def name(self) -> str:
        return self.rule.name

    @property
    def needs_target(self) -> bool:
        return self.rule.needs_target

    async def __call__(self, task: Task, trace: Trace, run: Run) -> Score:
        score = self.rule(task, trace)
        return await score if inspect.isawaitable(score) else score


def make_scorer(config: Config, parts: Parts) -> Scorer:
    """The scorer a configuration names."""
    if parts.scorer is not None:
        return PlainScorer(registry.function_scorer("function", parts.scorer), pure=False)
    name = config.scorer or "exact"
    if name.startswith(PYTHON):
        raise _object_missing("scorer", name)
    match name:
        case "judge":
            return JudgeScorer()
        case "commongen":
            return CommonGenScorer()
        case "software":
            software = SoftwareScorer()
            software.sandbox.require()
            return software
        case _:
            pure = name in registry.COMPARING or name in ("coverage", "appworld")
            return PlainScorer(registry.load_scorer(name, config.choices or None), pure=pure)


def make_agent(config: Config, parts: Parts) -> Agent:
    """The agent a configuration names."""
    if parts.agent is not None and parts.tools is not None:
        raise UsageError("Parts(agent=..., tools=...) names two agents: an agent of your own brings its own tools")
    if parts.agent is not None:
        return FunctionAgent(parts.agent, config.instructions)
    if config.agent == "chat":
        return ChatAgent(config.instructions, config.choices, config.reasoning)
    if config.agent.startswith(TOOLS):
        return _tools_agent(config, parts)
    if config.agent.startswith(APPWORLD):
        addresses = parse_addresses(config.agent.removeprefix(APPWORLD))
        return AppWorldAgent(addresses, config.instructions, config.max_turns, config.tool_timeout)
    if config.agent.startswith(PYTHON):
        raise _object_missing("agent", config.agent)
    kind, _, rest = config.agent.partition(":")
    if kind == "command":
        return CommandAgent(rest, config.instructions, config.timeout)
    if not rest:
        raise UsageError(
            f"--agent {config.agent} is none of chat, tools:module:name, appworld:URL, command:PROGRAM, module:function"
        )
    return FunctionAgent(import_function(config.agent), config.instructions)


def _tools_agent(config: Config, parts: Parts) -> ToolsAgent:
    name = config.agent.removeprefix(TOOLS)
    if name.startswith(PYTHON) and parts.tools is None:
        raise UsageError(
            f"the tools of this run were the Python object {name.removeprefix(PYTHON)}: go on from Python with "
            "Parts(tools=...), or name them as --agent tools:module:name in a new run"
        )
    source = import_object(name) if parts.tools is None else parts.tools
    return ToolsAgent(source, name, config.instructions, config.choices, config.max_turns, config.tool_timeout)


def _object_missing(what: str, name: str) -> UsageError:
    return UsageError(
        f"the {what} of this run was the Python object {name.removeprefix(PYTHON)}: "
        f"go on from Python with Parts({what}=...), or name it as --{what} module:function in a new run"
    )
