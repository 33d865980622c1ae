"""Which format a record has, told by what it holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PRACTICUM = "practicum"
CHAT = "chat"
OTEL = "otel"
SWE_AGENT = "swe-agent"
MINI_SWE_AGENT = "mini-swe-agent"
ATIF = "atif"
CLAUDE_CODE = "claude-code"

HARBOR_RESULT = "harbor-result"
"""No trace, but what goes with one: how Harbor scored a trial."""

_SPAN_IDS = ("traceId", "trace_id")
_SPAN_FIELDS = frozenset({"spanId", "span_id", "attributes", "context", "eventName", "event_name"})
_STEP_FIELDS = frozenset({"thought", "action", "observation", "response"})


def format_of(record: Any, before: str | None = None) -> str | None:
    """The record's format, None for none that is known. `before` is the format of the record before it in its file."""
    if is_messages(record):
        return CHAT
    if not isinstance(record, Mapping):
        return None
    for name, fits in _FITS.items():
        if fits(record):
            return name
    # Claude Code writes new types of lines with every release; among its lines they are its own.
    return CLAUDE_CODE if before == CLAUDE_CODE and isinstance(record.get("type"), str) else None


def is_messages(value: Any) -> bool:
    """Whether this is a bare list of messages."""
    if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
        return False
    return any(isinstance(item.get("role"), str) and "messages" not in item for item in value)


def _is_atif(record: Mapping[str, Any]) -> bool:
    return str(record.get("schema_version")).startswith("ATIF-")


def _is_mini(record: Mapping[str, Any]) -> bool:
    if str(record.get("trajectory_format")).startswith("mini-swe-agent"):
        return True
    info = record.get("info")
    named = isinstance(info, Mapping) and not info.keys().isdisjoint({"exit_status", "submission"})
    return named and isinstance(record.get("messages"), list)


def _is_swe(record: Mapping[str, Any]) -> bool:
    steps = record.get("trajectory", record.get("attempts"))
    if not isinstance(steps, list):
        return False
    if "history" in record or "info" in record:
        return True
    return any(isinstance(s, Mapping) and ("trajectory" in s or not _STEP_FIELDS.isdisjoint(s)) for s in steps)


def _is_chat(record: Mapping[str, Any]) -> bool:
    return isinstance(record.get("messages"), list)


def _is_otel(record: Mapping[str, Any]) -> bool:
    if any(isinstance(record.get(key), list) for key in ("resourceSpans", "resourceLogs")):
        return True
    context = record.get("context")
    holders = [record, context] if isinstance(context, Mapping) else [record]
    named = any(isinstance(part.get(key), str) for part in holders for key in _SPAN_IDS)
    return named and not _SPAN_FIELDS.isdisjoint(record)


def _is_claude_code(record: Mapping[str, Any]) -> bool:
    kind = record.get("type")
    if not isinstance(kind, str):
        return False
    named = isinstance(record.get("sessionId"), str) or ("uuid" in record and "message" in record)
    return named or "leafUuid" in record or kind == "file-history-snapshot"


def _is_harbor_result(record: Mapping[str, Any]) -> bool:
    return "verifier_result" in record or ("trial_name" in record and "step_results" in record)


_FITS = {
    ATIF: _is_atif,
    MINI_SWE_AGENT: _is_mini,
    SWE_AGENT: _is_swe,
    CHAT: _is_chat,
    OTEL: _is_otel,
    CLAUDE_CODE: _is_claude_code,
    HARBOR_RESULT: _is_harbor_result,
}
"""In this order: the more particular first."""
