"""Spans from OpenTelemetry files: OTLP as JSON (`resourceSpans`, `resourceLogs`), or one flat span object per record.

A log record becomes a span that holds only that event, since older conventions keep messages in logs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import isfinite
from typing import Any

from practicum.tasks.traces.fields import Warn, object_at, objects_in, text_at

_VALUES = {"stringValue", "intValue", "doubleValue", "boolValue", "arrayValue", "kvlistValue", "bytesValue"}
_START_FIELDS = (
    *("startTimeUnixNano", "start_time_unix_nano", "start_time", "startTime"),
    *("timeUnixNano", "time_unix_nano", "observedTimeUnixNano", "timestamp"),  # of log records
)
_END_FIELDS = ("endTimeUnixNano", "end_time_unix_nano", "end_time", "endTime")


@dataclass(frozen=True, slots=True)
class SpanEvent:
    """An event within a span. `body` is the content of a log record."""

    name: str
    attributes: Mapping[str, Any]
    body: Any = None


@dataclass(frozen=True, slots=True)
class Span:
    """One operation. Times are in the unit of the file; they only give the order."""

    trace: str
    start: float | None
    end: float | None
    attributes: Mapping[str, Any]
    events: Sequence[SpanEvent] = ()
    error: str = ""


def spans(record: Mapping[str, Any], warn: Warn) -> Iterator[Span]:
    """The spans of a record; a span without a trace id is a problem, and left out."""
    if "resourceSpans" not in record and "resourceLogs" not in record:
        yield from _span(record, warn)
    for resources, scopes, leaves in (
        ("resourceSpans", ("scopeSpans", "instrumentationLibrarySpans"), "spans"),
        ("resourceLogs", ("scopeLogs",), "logRecords"),
    ):
        for resource in objects_in(record, resources, warn):
            for scope in (scope for key in scopes for scope in objects_in(resource, key, warn)):
                for leaf in objects_in(scope, leaves, warn):
                    yield from _span(leaf, warn)


def _span(record: Mapping[str, Any], warn: Warn) -> Iterator[Span]:
    attributes = _attributes(record.get("attributes"))
    conversation = text_at(attributes, "gen_ai.conversation.id")
    trace = text_at(record, "traceId", "trace_id", "context/trace_id", "context/traceId") or conversation
    if not trace:
        warn("a span without a trace id is left out")
        return
    events = [
        SpanEvent(text_at(event, "name"), _attributes(event.get("attributes")), _unwrap(event.get("body")))
        for event in objects_in(record, "events", warn)
    ]
    # The name of a log record's event was an attribute before it had a field of its own.
    if name := text_at(record, "eventName", "event_name") or text_at(attributes, "event.name"):
        events.append(SpanEvent(name, attributes, _unwrap(record.get("body"))))
    start, end = _time(record, _START_FIELDS), _time(record, _END_FIELDS)
    error = text_at(attributes, "error.type") or text_at(record, "status/message", "status/description")
    yield Span(trace.removeprefix("0x"), start, end, attributes, events, error)


def _unwrap(value: Any) -> Any:
    """A value without OTLP's wrapper ({"stringValue": ...}); any other value unchanged."""
    if isinstance(value, list):
        return [_unwrap(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    if len(value) != 1 or not _VALUES.issuperset(value):
        return {key: _unwrap(item) for key, item in value.items()}
    ((kind, inner),) = value.items()
    if kind == "arrayValue":
        return _unwrap(object_at(value, kind).get("values") or [])
    return _attributes(object_at(value, kind).get("values")) if kind == "kvlistValue" else inner


def _attributes(attributes: Any) -> dict[str, Any]:
    if isinstance(attributes, Mapping):
        return {key: _unwrap(value) for key, value in attributes.items()}
    pairs = [item for item in attributes if isinstance(item, Mapping)] if isinstance(attributes, list) else []
    return {item["key"]: _unwrap(item.get("value")) for item in pairs if isinstance(item.get("key"), str)}


def _time(record: Mapping[str, Any], keys: Sequence[str]) -> float | None:
    """The first of these times: a date in nanoseconds, a number unchanged."""
    value = next((record[key] for key in keys if record.get(key) is not None), None)
    if isinstance(value, str):
        try:
            if value.isdecimal():
                return int(value)
            moment = datetime.fromisoformat(value)
            moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
            return (moment - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1) * 1000
        except ValueError:
            return None
    return value if isinstance(value, int) or (isinstance(value, float) and isfinite(value)) else None
