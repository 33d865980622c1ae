"""Spans out of OpenTelemetry files: OTLP as JSON (`resourceSpans`, `resourceLogs`), or one flat span object a record.

A log record becomes a span that holds nothing but that event, since the older conventions keep messages in logs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import isfinite
from typing import Any

from practicum.tasks.traces.trace import Odd, items_of, part_of, text_of

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_VALUES = {"stringValue", "intValue", "doubleValue", "boolValue", "arrayValue", "kvlistValue", "bytesValue"}


@dataclass(frozen=True, slots=True)
class Event:
    """Something told within a span. `body` is what a log record says."""

    name: str
    attributes: Mapping[str, Any]
    body: Any = None


@dataclass(frozen=True, slots=True)
class Span:
    """One operation. Times are in whatever unit the file has them; they only order."""

    trace: str
    start: float | None
    end: float | None
    attributes: Mapping[str, Any]
    events: Sequence[Event] = ()
    error: str = ""


def spans(record: Mapping[str, Any], odd: Odd) -> Iterator[Span]:
    """The spans of a record; one without a trace id is odd, and left out."""
    if "resourceSpans" not in record and "resourceLogs" not in record:
        yield from _flat(record, odd)
    for resource in items_of(record, "resourceSpans", odd):
        for key in ("scopeSpans", "instrumentationLibrarySpans"):
            for scope in items_of(resource, key, odd):
                for span in items_of(scope, "spans", odd):
                    yield from _flat(span, odd)
    for resource in items_of(record, "resourceLogs", odd):
        for scope in items_of(resource, "scopeLogs", odd):
            for log in items_of(scope, "logRecords", odd):
                yield from _flat(log, odd)


def value_of(value: Any) -> Any:
    """A value as OTLP wraps it ({"stringValue": ...}), unwrapped; any other as it is."""
    if isinstance(value, list):
        return [value_of(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    if len(value) != 1 or not _VALUES.issuperset(value):
        return {key: value_of(item) for key, item in value.items()}
    ((kind, inner),) = value.items()
    if kind == "arrayValue":
        return value_of(part_of(value, kind).get("values") or [])
    return _attributes(part_of(value, kind).get("values")) if kind == "kvlistValue" else inner


def _flat(span: Mapping[str, Any], odd: Odd) -> Iterator[Span]:
    context, status = part_of(span, "context"), part_of(span, "status")
    attributes = _attributes(span.get("attributes"))
    conversation = text_of(attributes, "gen_ai.conversation.id")
    trace = text_of(span, "traceId", "trace_id") or text_of(context, "trace_id", "traceId") or conversation
    if not trace:
        odd("a span without a trace id; it is left out")
        return
    start = _time(span, "startTimeUnixNano", "start_time_unix_nano", "start_time", "startTime", *_TIMES)
    end = _time(span, "endTimeUnixNano", "end_time_unix_nano", "end_time", "endTime")
    failed = text_of(attributes, "error.type") or text_of(status, "message", "description")
    events = [*_events(span, odd), *_log(span, attributes)]
    yield Span(trace.removeprefix("0x"), start, end, attributes, events, failed)


_TIMES = ("timeUnixNano", "time_unix_nano", "observedTimeUnixNano", "timestamp")


def _events(span: Mapping[str, Any], odd: Odd) -> Iterator[Event]:
    for event in items_of(span, "events", odd):
        yield Event(text_of(event, "name"), _attributes(event.get("attributes")), value_of(event.get("body")))


def _log(record: Mapping[str, Any], attributes: Mapping[str, Any]) -> Iterator[Event]:
    """A log record's event; its name was an attribute before it had a field of its own."""
    name = text_of(record, "eventName", "event_name") or text_of(attributes, "event.name")
    if name:
        yield Event(name, attributes, value_of(record.get("body")))


def _attributes(given: Any) -> dict[str, Any]:
    if isinstance(given, Mapping):
        return {key: value_of(value) for key, value in given.items()}
    pairs = [item for item in given if isinstance(item, Mapping)] if isinstance(given, list) else []
    return {item["key"]: value_of(item.get("value")) for item in pairs if isinstance(item.get("key"), str)}


def _time(record: Mapping[str, Any], *keys: str) -> float | None:
    """A time in nanoseconds where it says so or is a date, else as it is."""
    given = next((record[key] for key in keys if record.get(key) is not None), None)
    if isinstance(given, str):
        try:
            return int(given) if given.isdecimal() else _nanoseconds(datetime.fromisoformat(given))
        except ValueError:
            return None
    return given if isinstance(given, int) or (isinstance(given, float) and isfinite(given)) else None


def _nanoseconds(moment: datetime) -> int:
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(microseconds=1) * 1000
