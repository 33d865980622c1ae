"""Settings of agents with tools. They are in a separate module, so that code that reads a run's settings does not
import an agent."""

from __future__ import annotations

from typing import Literal

MAX_TURNS = 12
"""Maximum number of model calls in an attempt."""

TOOL_TIMEOUT = 20.0
"""Timeout (s) of a tool call, and of opening or closing the environment."""

GuardTools = Literal["off", "refuse", "ask"]
"""Handling of a tool call with text that only entries below the trust level `own` contain: make the call (`off`),
refuse the call (`refuse`), or ask for approval (`ask`)."""
