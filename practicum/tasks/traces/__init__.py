"""Reader of stored agent traces, so that an agent can learn from them without running anything.

The supported formats are practicum runs, chat messages (OpenAI style, also files for fine-tuning), OpenTelemetry GenAI
spans, traces of Langfuse, LangSmith, Phoenix and MLflow, SWE-agent and mini-swe-agent trajectories, ATIF (Harbor,
Terminal-Bench) and Claude Code sessions. Each format has a module, whose docstring describes it. Formats are detected
by content, never by file name.
"""

from practicum.tasks.traces.load import TraceStream, load_traces
from practicum.tasks.traces.trace import Problem, Traces

__all__ = ["Problem", "TraceStream", "Traces", "load_traces"]
