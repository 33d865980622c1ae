"""Table of the formats of stored traces. A format is recognized by the content of a record, never by a file name.

For a format whose records are whole traces, `Fields` or `Pair` gives the places of the parts of a trace. The other
formats have a reader in a module, whose docstring describes the format.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from practicum.core.types import Task
from practicum.tasks.traces import (
    atif,
    chat,
    claude_code,
    codex,
    cursor,
    gemini,
    langfuse,
    langsmith,
    lines,
    mlflow,
    opencode,
    otel,
    pairs,
    phoenix,
    swe_agent,
)
from practicum.tasks.traces.trace import RecordPlace

Record = Mapping[str, Any]


@dataclass(frozen=True)
class TraceFormat:
    """Format of stored traces.

    `matches` returns whether a record has the format. `read` is a function that reads the traces of a record. A format
    whose traces have several records has a `reader` in place of `read`: a function that returns an object that collects
    the records of a file and at the end yields the rest of the traces. With `joins`, the object collects the records of
    all files and at the end yields the problems of records without a counterpart. `continues` returns whether a record
    that no format matches belongs to the record of this format before it. If records of the format hold no trace,
    neither is set, and `advice` says where the traces are.
    """

    name: str
    matches: Callable[[Record], bool]
    read: Callable[[Any, RecordPlace], Iterator[Task]] | None = None
    reader: Callable[[], Any] | None = None
    continues: Callable[[Record], bool] | None = None
    advice: str = ""
    joins: bool = False


FORMATS = (
    TraceFormat("practicum", lines.matches, lines.read),
    TraceFormat("atif", atif.matches, atif.read),
    TraceFormat("harbor result", atif.is_trial_result),
    TraceFormat("mini-swe-agent", swe_agent.matches_mini, swe_agent.read_mini),
    TraceFormat("swe-agent", swe_agent.matches, swe_agent.read),
    TraceFormat("langsmith", langsmith.FORMAT.matches, reader=langsmith.FORMAT.reader),
    TraceFormat("langfuse", langfuse.FORMAT.matches, reader=langfuse.FORMAT.reader),
    TraceFormat("mlflow", mlflow.FORMAT.matches, mlflow.read),
    TraceFormat("phoenix", phoenix.FORMAT.matches, reader=phoenix.FORMAT.reader),
    TraceFormat("opencode", opencode.matches, opencode.read),
    TraceFormat("gemini-cli", gemini.matches, reader=gemini.GeminiReader, continues=gemini.continues),
    TraceFormat(
        "gemini-cli events", gemini.matches_events, reader=gemini.GeminiEventReader, continues=gemini.continues_events
    ),
    TraceFormat("codex", codex.matches, reader=codex.CodexReader, continues=codex.continues),
    TraceFormat("cursor", cursor.matches, reader=cursor.CursorReader, continues=cursor.continues),
    TraceFormat(
        "codex events", codex.matches_events, advice="the request is not in these events: read ~/.codex/sessions"
    ),
    TraceFormat(
        "opencode parts", opencode.matches_part, advice="a part of a session: read what `opencode export` writes"
    ),
    TraceFormat("batch", pairs.matches_batch, reader=pairs.BatchReader, joins=True),
    TraceFormat("pairs", pairs.matches, reader=pairs.PairReader),
    TraceFormat("chat", chat.CHAT.matches, chat.CHAT.read),
    TraceFormat("sharegpt", chat.SHAREGPT.matches, chat.SHAREGPT.read),
    TraceFormat("otel", otel.matches, reader=otel.reader),
    TraceFormat(
        "claude-code", claude_code.matches, reader=claude_code.ClaudeCodeReader, continues=claude_code.continues
    ),
)
"""The formats, the more specific ones first."""
