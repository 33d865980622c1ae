"""Agents that packages register (entry point group `practicum.agents`).

A package registers a function, as an agent of one's own is (`agents.external.FunctionAgent`), under its name; or an
`AgentKind`, whose agents are named `NAME:ARGUMENT`.
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
    """The settings of a run that an agent with tools obeys: see `session.keywords.RunOptions`."""

    instructions: str
    max_turns: int
    tool_timeout: float
    guard_tools: GuardTools
    approve: Approve | None


@dataclass(frozen=True)
class AgentKind:
    """Agents of one kind, such as `appworld:URL`. They ask the model of the run, and act with tools, turn by turn.

    `make` gets what stands after the colon, and raises UsageError if that is wrong. `scorer` is the scorer of their
    attempts unless another is named.
    """

    make: Callable[[str, AgentOptions], Agent]
    scorer: str | None = None


def _lacks(plugin: object) -> Sequence[str]:
    return [] if isinstance(plugin, AgentKind) or callable(plugin) else ["a call: it is neither function nor AgentKind"]


AGENTS: Group[Any] = Group(
    "practicum.agents",
    "agent",
    _lacks,
    dict.fromkeys(("chat", "tools", "command")),
    unknown="agent.unknown",
    advice="; write tools:module:name, command:PROGRAM, or module:function for your own",
)


def kind_of(name: str) -> AgentKind | None:
    """The registered kind of an agent that is named `KIND:ARGUMENT`; None for every other name."""
    kind, colon, _ = name.partition(":")
    plugin = AGENTS.load(kind) if colon and kind in AGENTS.registered() else None
    return plugin if isinstance(plugin, AgentKind) else None
