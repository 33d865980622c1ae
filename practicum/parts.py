"""From names in a configuration to the objects they mean; Python callers may pass the objects instead."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from practicum.agents.chat import ChatAgent
from practicum.agents.command import CommandAgent
from practicum.agents.function import FunctionAgent
from practicum.embed import Embedder
from practicum.errors import UsageError
from practicum.judge import JudgeScorer
from practicum.models.client import Client
from practicum.run import Agent, Run
from practicum.tasks import scorers
from practicum.types import Score, Task, Trace

if TYPE_CHECKING:
    from practicum.session import Config


@dataclass(frozen=True)
class Parts:
    """Objects in place of names. `agent` is any callable `(input, context) -> answer`; `scorer` any callable
    `(task, answer) -> float | bool | Score`; `clients` by role, "agent" serving every role without one of its own."""

    agent: Callable[..., Any] | None = None
    scorer: Callable[..., Any] | None = None
    clients: Mapping[str, Client] = field(default_factory=dict)
    embedder: Embedder | None = None
    progress: Callable[[int, int], None] | None = None


@dataclass(frozen=True)
class PlainScorer:
    """A scorer of `tasks.scorers` as a Run calls it."""

    rule: scorers.Scorer
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


def make_scorer(config: Config, parts: Parts) -> PlainScorer | JudgeScorer | None:
    """The scorer a configuration names."""
    if parts.scorer is not None:
        return PlainScorer(scorers.Function("function", parts.scorer), pure=False)
    name = config.scorer or "exact"
    if name == "judge":
        return JudgeScorer()
    return PlainScorer(scorers.load_scorer(name, config.choices or None), pure=":" not in name)


def make_agent(config: Config, parts: Parts) -> Agent:
    """The agent a configuration names."""
    if parts.agent is not None:
        return FunctionAgent(parts.agent)
    if config.agent == "chat":
        return ChatAgent(config.instructions, config.choices, config.reasoning)
    kind, _, rest = config.agent.partition(":")
    if kind == "command":
        return CommandAgent(rest, config.instructions, config.timeout, config.concurrency)
    if not rest:
        raise UsageError(f"--agent {config.agent} is none of chat, command:PROGRAM, module:function")
    return FunctionAgent(named(config.agent))


def named(reference: str) -> Callable[..., Any]:
    """The callable behind `module:function`, looked for in the current folder too."""
    module_name, _, attribute = reference.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"cannot find {reference}: {error}") from error
    if not callable(found):
        raise UsageError(f"{reference} is a {type(found).__name__}, not something to call")
    return found  # type: ignore[no-any-return]
