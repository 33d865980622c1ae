"""Stored traces of agents, read so that one can learn from them without running anything.

Read are runs of practicum, chat messages (OpenAI style, fine-tuning files too), OpenTelemetry GenAI spans,
SWE-agent and mini-swe-agent trajectories, ATIF (Harbor, Terminal-Bench) and Claude Code sessions; one module each
says what it takes from where. The format is told by content, never by the name of a file.
"""

from practicum.tasks.traces.load import load_traces
from practicum.tasks.traces.trace import Problem, Traces

__all__ = ["Problem", "Traces", "load_traces"]
