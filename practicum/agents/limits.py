"""Settings of agents with tools, apart from the agents, so that reading a run's settings imports no agent."""

from __future__ import annotations

from typing import Literal

MAX_TURNS = 12
"""Model calls of one attempt, at most."""

TOOL_TIMEOUT = 20.0
"""Seconds that a tool may take, and that the tools' environment may take to open or close."""

GuardTools = Literal["off", "refuse", "ask"]
"""What happens to a call that carries text of entries below `own` alone: it is made, refused, or held for approval."""
