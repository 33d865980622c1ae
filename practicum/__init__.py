"""practicum: LLM agents that learn from experience by changing their context, never their weights.

import practicum

tasks = practicum.load_tasks("tasks.jsonl")
result = practicum.run_sync(practicum.learn(tasks, method="ace", model="openai:gpt-4.1-mini"))
print(practicum.export(result.context, "markdown"))
"""

from __future__ import annotations

from collections.abc import Coroutine
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from practicum.analysis.compare.harness import Comparison, compare
    from practicum.core.context import Context
    from practicum.core.counts import Count
    from practicum.core.edits import Add, Applied, Delete, Delta, Entry, Merge, Refused, Update, Vote
    from practicum.core.errors import PracticumError, ProviderError, RunBusy, UsageError
    from practicum.core.playbook import PlaybookWarning, export, load
    from practicum.core.types import Attempt, Feedback, Lesson, Prompt, Score, Task, Trace, Usage
    from practicum.core.views import View
    from practicum.engine.loop import (
        AcceptSeam,
        AttemptSeam,
        Batch,
        Method,
        ReflectSeam,
        SampleSeam,
        StepReport,
        UpdateSeam,
    )
    from practicum.engine.run import ActSeam, Run
    from practicum.engine.state import ModelCall
    from practicum.methods.settings import GateSettings, MethodSettings, RetrievalSettings
    from practicum.models.client import Wait
    from practicum.models.scripted import ScriptedClient
    from practicum.retrieval.search import Match
    from practicum.session.ask import Answered, Learned
    from practicum.session.components import Parts
    from practicum.session.config import Config, Splits
    from practicum.session.evaluate import evaluate
    from practicum.session.keywords import ResumeOptions, RunOptions
    from practicum.session.learn import learn, resume
    from practicum.session.outcome_tasks import load_outcomes
    from practicum.session.records import load_context
    from practicum.session.result import Evaluation, Progress, Result, RunInfo, Watch
    from practicum.session.space import Shown, Space, ask, open
    from practicum.tasks.load import load_tasks
    from practicum.tasks.traces import TraceStream, load_traces

__version__ = "0.2.0"

T = TypeVar("T")

_HOMES = {
    "analysis.compare.harness": ("Comparison", "compare"),
    "core.context": ("Context",),
    "core.counts": ("Count",),
    "core.edits": ("Add", "Applied", "Delete", "Delta", "Entry", "Merge", "Refused", "Update", "Vote"),
    "core.errors": ("PracticumError", "ProviderError", "RunBusy", "UsageError"),
    "core.playbook": ("PlaybookWarning", "export", "load"),
    "core.types": ("Attempt", "Feedback", "Lesson", "Prompt", "Score", "Task", "Trace", "Usage"),
    "core.views": ("View",),
    "engine.loop": (
        "AcceptSeam", "AttemptSeam", "Batch", "Method", "ReflectSeam", "SampleSeam", "StepReport", "UpdateSeam",
    ),
    "engine.run": ("ActSeam", "Run"),
    "engine.state": ("ModelCall",),
    "methods.settings": ("GateSettings", "MethodSettings", "RetrievalSettings"),
    "models.client": ("Wait",),
    "models.scripted": ("ScriptedClient",),
    "retrieval.search": ("Match",),
    "session.ask": ("Answered", "Learned"),
    "session.components": ("Parts",),
    "session.config": ("Config", "Splits"),
    "session.evaluate": ("evaluate",),
    "session.keywords": ("ResumeOptions", "RunOptions"),
    "session.learn": ("learn", "resume"),
    "session.outcome_tasks": ("load_outcomes",),
    "session.records": ("load_context",),
    "session.result": ("Evaluation", "Progress", "Result", "RunInfo", "Watch"),
    "session.space": ("Shown", "Space", "ask", "open"),
    "tasks.load": ("load_tasks",),
    "tasks.traces": ("TraceStream", "load_traces"),
}  # fmt: skip
_HOME = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that `import practicum` is fast."""
    if name == "trackers":
        return import_module("practicum.plugins.trackers")
    if name not in _HOME:
        raise AttributeError(f"module 'practicum' has no attribute {name!r}")
    return getattr(import_module(f"practicum.{_HOME[name]}"), name)


def run_sync(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine from synchronous code and return its result.

    A PracticumError is raised without the traceback below this call, because its message is sufficient;
    `python -X dev` keeps the whole traceback. Raises RuntimeError inside a running event loop (in a notebook, for
    example): use `await` there.
    """
    import asyncio
    import sys

    from practicum.core.errors import AgentError, MethodError, PracticumError

    loop = None
    with suppress(RuntimeError):
        loop = asyncio.get_running_loop()
    if loop is not None:
        work.close()
        name = getattr(work, "__name__", "learn")
        raise RuntimeError(
            f"an event loop is already running, as in a notebook: use `await practicum.{name}(...)` instead"
        )
    try:
        return asyncio.run(work)
    except (AgentError, MethodError):
        # The cause is user code, so the traceback is needed.
        raise
    except PracticumError as error:
        if sys.flags.dev_mode:
            raise
        raise error.with_traceback(None) from None


__all__ = [
    "AcceptSeam",
    "ActSeam",
    "Add",
    "Answered",
    "Applied",
    "Attempt",
    "AttemptSeam",
    "Batch",
    "Comparison",
    "Config",
    "Context",
    "Count",
    "Delete",
    "Delta",
    "Entry",
    "Evaluation",
    "Feedback",
    "GateSettings",
    "Learned",
    "Lesson",
    "Match",
    "Merge",
    "Method",
    "MethodSettings",
    "ModelCall",
    "Parts",
    "PlaybookWarning",
    "PracticumError",
    "Progress",
    "Prompt",
    "ProviderError",
    "ReflectSeam",
    "Refused",
    "Result",
    "ResumeOptions",
    "RetrievalSettings",
    "Run",
    "RunBusy",
    "RunInfo",
    "RunOptions",
    "SampleSeam",
    "Score",
    "ScriptedClient",
    "Shown",
    "Space",
    "Splits",
    "StepReport",
    "Task",
    "Trace",
    "TraceStream",
    "Update",
    "UpdateSeam",
    "Usage",
    "UsageError",
    "View",
    "Vote",
    "Wait",
    "Watch",
    "ask",
    "compare",
    "evaluate",
    "export",
    "learn",
    "load",
    "load_context",
    "load_outcomes",
    "load_tasks",
    "load_traces",
    "open",
    "resume",
    "run_sync",
    "trackers",
]
