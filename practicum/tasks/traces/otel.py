"""OpenTelemetry GenAI spans: all spans with the same trace id, in order of time, are one trace.

A file holds OTLP as JSON (`resourceSpans`, `resourceLogs`), or one flat span object per record. A log record becomes a
span with one event, because older conventions store messages in logs.

The messages of a span come from the first of these sources that holds a message: `gen_ai.input.messages`,
`gen_ai.output.messages` and `gen_ai.system_instructions` (on the span, or on its event
`gen_ai.client.inference.operation.details`); the indexed `gen_ai.prompt.N.*` and `gen_ai.completion.N.*`; the older
events `gen_ai.{system,user,assistant,tool}.message` and `gen_ai.choice`; the oldest `gen_ai.prompt` and
`gen_ai.completion`. A tool's span has `gen_ai.tool.name`, `gen_ai.tool.call.arguments` and `gen_ai.tool.call.result`.
The input of a span gets the start time of the span, and the output gets the end time, so that the output of an outer
span comes after the output of its inner spans.

Each model call repeats the conversation before the call. An item of a span is added to the trace only if the span holds
this item more often than the trace does so far. So a model call that repeats an earlier prompt and answer adds nothing.
A tool call or result with an id that was read before is not added. The score is the mean of the scores in the events
`gen_ai.evaluation.result`.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from math import isfinite
from typing import Any, NamedTuple

from practicum.core.types import Task
from practicum.tasks.traces.fields import Warn, decoded, object_at, objects_in, recorded_score, text_at, value_at
from practicum.tasks.traces.messages import action_item, items_of_content, items_of_messages, result_text
from practicum.tasks.traces.trace import Item, RecordPlace, nonempty_values

_INDEXED = re.compile(r"gen_ai\.(prompt|completion)\.(\d{1,9})\.(?:tool_calls\.(\d{1,9})\.)?(\w+)")
_ROLE_OF_EVENT = {f"gen_ai.{role}.message": role for role in ("system", "user", "assistant", "tool")}
_CONTENT_EVENTS = ("gen_ai.content.prompt", "gen_ai.content.completion")
_VALUES = {"stringValue", "intValue", "doubleValue", "boolValue", "arrayValue", "kvlistValue", "bytesValue"}
_START_FIELDS = (
    *("startTimeUnixNano", "start_time_unix_nano", "start_time", "startTime"),
    *("timeUnixNano", "time_unix_nano", "observedTimeUnixNano", "timestamp"),  # of log records
)
_END_FIELDS = ("endTimeUnixNano", "end_time_unix_nano", "end_time", "endTime")


def matches(record: Mapping[str, Any]) -> bool:
    """Return whether a record has this format."""
    if any(isinstance(record.get(key), list) for key in ("resourceSpans", "resourceLogs")):
        return True
    ids = ("traceId", "trace_id", "context/traceId", "context/trace_id")
    has_trace_id = any(isinstance(value_at(record, path), str) for path in ids)
    fields = {"spanId", "span_id", "attributes", "context", "eventName", "event_name"}
    return has_trace_id and not fields.isdisjoint(record)


class _Event(NamedTuple):
    """Event of a span. `body` is the body of the event, such as the content of a log record; None if the event has no
    body."""

    name: str
    attributes: Mapping[str, Any]
    body: Any = None


class _Span(NamedTuple):
    """One span. Times are in the unit of the file and only determine the order."""

    trace: str
    start: float | None
    end: float | None
    attributes: Mapping[str, Any]
    events: Sequence[_Event]
    error: str


class _SpanItems(NamedTuple):
    start: float
    end: float
    input: list[Item]
    output: list[Item]
    is_tool: bool


@dataclass(slots=True)
class _Trace:
    place: RecordPlace
    spans: list[_SpanItems] = field(default_factory=list)
    evaluations: dict[str, Any] = field(default_factory=dict)
    meta: dict[str, Any] = field(default_factory=dict)

    def add(self, span: _Span, warn: Warn) -> None:
        attributes = span.attributes
        is_tool = attributes.get("gen_ai.operation.name") == "execute_tool" or "gen_ai.tool.call.result" in attributes
        input, output = _tool_items(span, warn) if is_tool else _message_items(span, warn)
        start = span.start if span.start is not None else 0.0
        self.spans.append(_SpanItems(start, span.end if span.end is not None else start, input, output, is_tool))
        if (input or output) and span.start is None:
            warn("a span without a time is read before all spans with a time")
        for event in span.events:
            if event.name == "gen_ai.evaluation.result":
                value = event.attributes.get("gen_ai.evaluation.score.value")
                if value is None:
                    label = text_at(event.attributes, "gen_ai.evaluation.score.label").lower()
                    value = {"pass": True, "fail": False}.get(label, label)
                self.evaluations[text_at(event.attributes, "gen_ai.evaluation.name") or "evaluation"] = value
        meta = {
            "model": text_at(attributes, "gen_ai.response.model", "gen_ai.request.model"),
            "session": text_at(attributes, "gen_ai.conversation.id"),
            "agent": text_at(attributes, "gen_ai.agent.name"),
        }
        self.meta = nonempty_values(meta) | self.meta


class OtelReader:
    """Reader that collects the spans of a file, and at the end converts each trace to a task."""

    def __init__(self) -> None:
        self._traces: dict[str, _Trace] = {}

    def add(self, record: Mapping[str, Any], place: RecordPlace) -> None:
        """Add a record of the file."""
        for span in _spans(record, place.warn):
            self._traces.setdefault(span.trace, _Trace(place)).add(span, place.warn)

    def tasks(self) -> Iterator[Task]:
        """Yield the tasks, in the order of their traces' first spans in the file."""
        for id, trace in self._traces.items():
            score = recorded_score(trace.evaluations, trace.place.warn)
            yield from trace.place.task(_merge(trace.spans), id=id, score=score, meta=trace.meta)


def _spans(record: Mapping[str, Any], warn: Warn) -> Iterator[_Span]:
    """Yield the spans of a record. A span without a trace id is skipped and reported."""
    if "resourceSpans" not in record and "resourceLogs" not in record:
        yield from _span(record, warn)
        return
    empty = True
    for resources, scopes, leaves in (
        ("resourceSpans", ("scopeSpans", "instrumentationLibrarySpans"), "spans"),
        ("resourceLogs", ("scopeLogs",), "logRecords"),
    ):
        for resource in objects_in(record, resources, warn):
            for scope in (scope for key in scopes for scope in objects_in(resource, key, warn)):
                for leaf in objects_in(scope, leaves, warn):
                    empty = False
                    yield from _span(leaf, warn)
    if empty:
        warn("a record without a span")


def _span(record: Mapping[str, Any], warn: Warn) -> Iterator[_Span]:
    attributes = _attributes(record.get("attributes"))
    conversation = text_at(attributes, "gen_ai.conversation.id")
    trace = text_at(record, "traceId", "trace_id", "context/trace_id", "context/traceId") or conversation
    if not trace:
        warn("a span without a trace id is left out")
        return
    events = [
        _Event(text_at(event, "name"), _attributes(event.get("attributes")), _unwrap(event.get("body")))
        for event in objects_in(record, "events", warn)
    ]
    # In older conventions, the event name of a log record is an attribute and not a field.
    if name := text_at(record, "eventName", "event_name") or text_at(attributes, "event.name"):
        events.append(_Event(name, attributes, _unwrap(record.get("body"))))
    start, end = _time(record, _START_FIELDS), _time(record, _END_FIELDS)
    error = text_at(attributes, "error.type") or text_at(record, "status/message", "status/description")
    yield _Span(trace.removeprefix("0x"), start, end, attributes, events, error)


def _unwrap(value: Any) -> Any:
    """Remove OTLP's wrapper ({"stringValue": ...}) from a value. Return any other value unchanged."""
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
    """Return the value of the first of `keys` that the record has: a date as nanoseconds, a number unchanged. Return
    None if the value is invalid or the record has none of `keys`."""
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


def _tool_items(span: _Span, warn: Warn) -> tuple[list[Item], list[Item]]:
    attributes = span.attributes
    id = text_at(attributes, "gen_ai.tool.call.id")
    call = action_item(attributes.get("gen_ai.tool.name"), attributes.get("gen_ai.tool.call.arguments") or "", id)
    result = result_text(decoded(attributes.get("gen_ai.tool.call.result")), warn) or span.error
    return [call], [Item("observation", result, id)] if result else []


def _message_items(span: _Span, warn: Warn) -> tuple[list[Item], list[Item]]:
    """Return the model's input and output, each from the first source that holds a message, in the order of the
    module's docstring."""
    details = next((e.attributes for e in span.events if e.name == "gen_ai.client.inference.operation.details"), {})
    attributes = {**details, **span.attributes}
    oldest = {key: value for e in span.events if e.name in _CONTENT_EVENTS for key, value in e.attributes.items()}
    oldest |= attributes
    indexed, in_events = _indexed_messages(attributes), _event_messages(span.events)
    input, output = (
        _parse_items(attributes.get(f"gen_ai.{key}.messages"), kind, warn)
        or list(items_of_messages(indexed[side], warn))
        or list(items_of_messages(in_events[side], warn))
        or _parse_items(oldest.get(f"gen_ai.{side}"), kind, warn)
        for key, side, kind in (("input", "prompt", "user"), ("output", "completion", "message"))
    )
    return _parse_items(attributes.get("gen_ai.system_instructions"), "system", warn) + input, output


def _parse_items(value: Any, kind: str, warn: Warn) -> list[Item]:
    """Return the items of messages, or of the parts of one message. The value may be a JSON string."""
    value = decoded(value)
    if isinstance(value, list) and any(isinstance(item, Mapping) and "role" in item for item in value):
        return list(items_of_messages(map(_decode_content, value), warn))
    return list(items_of_content(value, kind, warn))


def _indexed_messages(attributes: Mapping[str, Any]) -> dict[str, list[Mapping[str, Any]]]:
    """Return the messages in attributes such as `gen_ai.prompt.0.role`."""
    messages: dict[str, dict[int, dict[str, Any]]] = {"prompt": {}, "completion": {}}
    calls: dict[tuple[str, int], dict[int, dict[str, Any]]] = {}
    for key, value in attributes.items():
        if match := _INDEXED.fullmatch(key):
            side, number, call, name = match[1], int(match[2]), match[3], match[4]
            message = messages[side].setdefault(number, {"role": "user" if side == "prompt" else "assistant"})
            if call is None:
                message[name] = value
            else:
                calls.setdefault((side, number), {}).setdefault(int(call), {})[name] = value
    for (side, number), by_number in calls.items():
        messages[side][number]["tool_calls"] = [by_number[n] for n in sorted(by_number)]
    return {side: [_decode_content(numbered[n]) for n in sorted(numbered)] for side, numbered in messages.items()}


def _event_messages(events: Sequence[_Event]) -> dict[str, list[Mapping[str, Any]]]:
    """Return the messages in events such as `gen_ai.user.message`; `gen_ai.choice` is the completion. The content of an
    event is the body of the event, else its attribute `gen_ai.event.content` (JSON), else all its attributes."""
    messages: dict[str, list[Mapping[str, Any]]] = {"prompt": [], "completion": []}
    for event in events:
        body = event.body if event.body is not None else decoded(event.attributes.get("gen_ai.event.content"))
        if not isinstance(body, Mapping):
            body = {"content": body} if isinstance(body, str) and body else event.attributes
        if role := _ROLE_OF_EVENT.get(event.name):
            # The role in the event may be application-specific ("customer"), so the role comes from the event's name.
            messages["prompt"].append(_decode_content({**body, "role": role}))
        elif event.name == "gen_ai.choice":
            message = decoded(body.get("message"))
            message = message if isinstance(message, Mapping) else {"content": message or body.get("content")}
            calls = message.get("tool_calls") or decoded(body.get("tool_calls"))
            messages["completion"].append(_decode_content({**message, "role": "assistant", "tool_calls": calls}))
    return messages


def _decode_content(message: Any) -> Any:
    """Parse a message's content if it is a JSON string of parts. Return any other value unchanged."""
    if not isinstance(message, Mapping) or not isinstance(message.get("content"), str):
        return message
    parts = decoded(message["content"])
    keys = {"type", "text", "toolUse", "toolResult"}
    are_parts = isinstance(parts, list) and parts and all(isinstance(p, Mapping) and keys & p.keys() for p in parts)
    return {**message, "content": parts} if are_parts else message


def _merge(spans: list[_SpanItems]) -> list[Item]:
    """Merge the items of all spans in order of time, without repetitions."""
    moments: list[tuple[tuple[float, int, int, int], list[Item], int]] = []
    for rank, n in enumerate(sorted(range(len(spans)), key=lambda n: spans[n].start)):
        span = spans[n]
        # At equal times, inner spans end before outer spans, and spans end before other spans start.
        end = (span.end, 0, -rank, 1) if span.end > span.start else (span.start, 1, rank, 1)
        source = -1 if span.is_tool else n  # all tool spans count as one span, because they do not repeat each other
        moments += [((span.start, 1, rank, 0), span.input, source), (end, span.output, source)]
    merged: list[Item] = []
    total: Counter[tuple[str, str]] = Counter()
    by_source: defaultdict[int, Counter[tuple[str, str]]] = defaultdict(Counter)
    merged_calls: set[tuple[str, str]] = set()
    for _, items, source in sorted(moments, key=lambda moment: moment[0]):
        for item in items:
            text, call = (item.kind, item.text), (item.kind, item.call)
            by_source[source][text] += 1
            if item.call and call in merged_calls:
                continue
            merged_calls.add(call)
            if by_source[source][text] > total[text]:
                total[text] += 1
                merged.append(item)
    return merged
