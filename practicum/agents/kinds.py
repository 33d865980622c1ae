"""Agents that packages register (entry point group `practicum.agents`).

A package registers a function (see `agents.external.FunctionAgent`), or an `AgentKind`, whose agents are named
`NAME:ARGUMENT`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from practicum.agents.base import Agent
from practicum.agents.guard import Approve
from practicum.agents.limits import GuardTools
from practicum.core.plugins import Group


@dataclass(frozen=True)
class AgentOptions:
    """Settings of a run that apply to an agent with tools. See `session.keywords.RunOptions`."""

    instructions: str
    max_turns: int
    tool_timeout: float
    guard_tools: GuardTools
    approve: Approve | None


@dataclass(frozen=True)
class AgentKind:
    """Kind of agents that call the model of the run and act with tools in turns. Such an agent is named by its kind and
    an argument, as in `appworld:URL`.

    `make`: function that makes an agent from the text after the colon; raises UsageError if the text is invalid.
    `scorer`: default scorer of the attempts of these agents.
    """

    make: Callable[[str, AgentOptions], Agent]
    scorer: str | None = None


def _lacks(plugin: object) -> Sequence[str]:
    return (
        [] if isinstance(plugin, AgentKind) or callable(plugin)
        else ["a way to call the agent (a plug-in must be a function or an AgentKind)"]
    )  # fmt: skip


AGENTS: Group[Any] = Group(
    "practicum.agents",
    "agent",
    _lacks,
    dict.fromkeys(("chat", "tools", "command", "cli")),
    unknown="agent.unknown",
    advice="; pass tools:module:name, cli:claude, cli:codex, command:PROGRAM, or module:function for your own agent",
)


def kind_of(name: str) -> AgentKind | None:
    """Return the registered kind of an agent named `KIND:ARGUMENT`, or None for other names."""
    kind, colon, _ = name.partition(":")
    plugin = AGENTS.load(kind) if colon and kind in AGENTS.registered() else None
    return plugin if isinstance(plugin, AgentKind) else None
