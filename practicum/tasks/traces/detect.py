"""Recognises the format of a record by its fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

PRACTICUM = "practicum"
CHAT = "chat"
OTEL = "otel"
SWE_AGENT = "swe-agent"
MINI_SWE_AGENT = "mini-swe-agent"
ATIF = "atif"
CLAUDE_CODE = "claude-code"

HARBOR_RESULT = "harbor-result"
"""Not a trace, but Harbor's score of a trial, which belongs to an ATIF trace."""


def detect_format(record: Any, previous: str | None = None) -> str | None:
    """The format of a record, or None if it is unknown. `previous` is that of the record before it in its file."""
    if is_message_list(record):
        return CHAT
    if not isinstance(record, Mapping):
        return None
    for name, matches in _FORMATS.items():
        if matches(record):
            return name
    # New versions of Claude Code write new types of lines; among its own lines they are recognised.
    return CLAUDE_CODE if previous == CLAUDE_CODE and isinstance(record.get("type"), str) else None


def is_message_list(value: Any) -> bool:
    """Whether this is a bare list of messages."""
    if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
        return False
    return any(isinstance(item.get("role"), str) and "messages" not in item for item in value)


def _is_mini_swe_agent(record: Mapping[str, Any]) -> bool:
    if str(record.get("trajectory_format")).startswith("mini-swe-agent"):
        return True
    info = record.get("info")
    has_outcome = isinstance(info, Mapping) and not info.keys().isdisjoint({"exit_status", "submission"})
    return has_outcome and isinstance(record.get("messages"), list)


def _is_swe_agent(record: Mapping[str, Any]) -> bool:
    steps = record.get("trajectory", record.get("attempts"))
    if not isinstance(steps, list):
        return False
    if "history" in record or "info" in record:
        return True
    fields = {"trajectory", "thought", "action", "observation", "response"}
    return any(isinstance(step, Mapping) and not fields.isdisjoint(step) for step in steps)


def _is_otel(record: Mapping[str, Any]) -> bool:
    if any(isinstance(record.get(key), list) for key in ("resourceSpans", "resourceLogs")):
        return True
    context = record.get("context")
    parts = [record, context] if isinstance(context, Mapping) else [record]
    has_trace_id = any(isinstance(part.get(key), str) for part in parts for key in ("traceId", "trace_id"))
    fields = {"spanId", "span_id", "attributes", "context", "eventName", "event_name"}
    return has_trace_id and not fields.isdisjoint(record)


def _is_claude_code(record: Mapping[str, Any]) -> bool:
    kind = record.get("type")
    if not isinstance(kind, str):
        return False
    has_session = isinstance(record.get("sessionId"), str) or ("uuid" in record and "message" in record)
    return has_session or "leafUuid" in record or kind == "file-history-snapshot"


# The more specific formats come first.
_FORMATS: dict[str, Callable[[Mapping[str, Any]], bool]] = {
    ATIF: lambda record: str(record.get("schema_version")).startswith("ATIF-"),
    MINI_SWE_AGENT: _is_mini_swe_agent,
    SWE_AGENT: _is_swe_agent,
    CHAT: lambda record: isinstance(record.get("messages"), list),
    OTEL: _is_otel,
    CLAUDE_CODE: _is_claude_code,
    HARBOR_RESULT: lambda record: "verifier_result" in record or {"trial_name", "step_results"} <= record.keys(),
}
