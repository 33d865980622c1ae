"""OpenTelemetry GenAI spans. For how spans become a task, see `spans`.

A file holds OTLP as JSON (`resourceSpans`, `resourceLogs`), or one flat span object per record. A log record becomes a
span with one event, because older conventions store messages in logs.

The messages of a span come from the first of these sources that holds a message: `gen_ai.input.messages`,
`gen_ai.output.messages` and `gen_ai.system_instructions` (on the span, or on its event
`gen_ai.client.inference.operation.details`); the indexed `gen_ai.prompt.N.*` and `gen_ai.completion.N.*`; the older
events `gen_ai.{system,user,assistant,tool}.message` and `gen_ai.choice`; the oldest `gen_ai.prompt` and
`gen_ai.completion`. A tool's span has `gen_ai.tool.name`, `gen_ai.tool.call.arguments` and `gen_ai.tool.call.result`.
A span with the attributes of OpenInference instead is read as in `phoenix`.

The scores are in the events `gen_ai.evaluation.result`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from practicum.tasks.traces import phoenix
from practicum.tasks.traces.fields import Warn, decoded, objects_in, text_at, value_at
from practicum.tasks.traces.messages import action_item, items_of_content, items_of_messages, result_text
from practicum.tasks.traces.spans import (
    MODEL,
    TOOL,
    Span,
    SpanReader,
    Verdict,
    attributes_of,
    time_of,
    unwrapped,
)
from practicum.tasks.traces.trace import Item, nonempty_values

_INDEXED = re.compile(r"gen_ai\.(prompt|completion)\.(\d{1,9})\.(?:tool_calls\.(\d{1,9})\.)?(\w+)")
_ROLE_OF_EVENT = {f"gen_ai.{role}.message": role for role in ("system", "user", "assistant", "tool")}
_CONTENT_EVENTS = ("gen_ai.content.prompt", "gen_ai.content.completion")
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


def reader() -> SpanReader:
    """Return a reader of the records of a file."""
    return SpanReader(_spans)


def _spans(record: Mapping[str, Any], warn: Warn) -> Iterator[Span | Verdict]:
    """Yield the spans of a record, and the evaluations in their events."""
    for leaf in _leaves(record, warn):
        yield from _span(leaf, warn)


def _leaves(record: Mapping[str, Any], warn: Warn) -> Iterator[Mapping[str, Any]]:
    """Yield the spans and log records of a record."""
    if "resourceSpans" not in record and "resourceLogs" not in record:
        yield record
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
                    yield leaf
    if empty:
        warn("a record without a span")


def _span(record: Mapping[str, Any], warn: Warn) -> Iterator[Span | Verdict]:
    """Yield the span, and its evaluations. A span without a trace id is skipped and reported."""
    attributes = attributes_of(record.get("attributes"))
    conversation = text_at(attributes, "gen_ai.conversation.id")
    trace = text_at(record, "traceId", "trace_id", "context/trace_id", "context/traceId") or conversation
    if not trace:
        warn("a span without a trace id is left out")
        return
    trace = trace.removeprefix("0x")
    events = [
        _Event(text_at(event, "name"), attributes_of(event.get("attributes")), unwrapped(event.get("body")))
        for event in objects_in(record, "events", warn)
    ]
    id = text_at(record, "spanId", "span_id", "context/span_id", "context/spanId")
    parent = text_at(record, "parentSpanId", "parent_span_id", "parent_id", "parentId")
    # In older conventions, the event name of a log record is an attribute and not a field.
    if name := text_at(record, "eventName", "event_name") or text_at(attributes, "event.name"):
        events.append(_Event(name, attributes, unwrapped(record.get("body"))))
        id, parent = "", id
    for event in events:
        if event.name == "gen_ai.evaluation.result":
            value = event.attributes.get("gen_ai.evaluation.score.value")
            label = text_at(event.attributes, "gen_ai.evaluation.score.label")
            name = text_at(event.attributes, "gen_ai.evaluation.name") or "evaluation"
            comment = text_at(event.attributes, "gen_ai.evaluation.explanation")
            yield Verdict(trace, "", name, label if value is None else value, comment)
    error = text_at(attributes, "error.type") or text_at(record, "status/message", "status/description")
    start, end = (_first_time(record, fields) for fields in (_START_FIELDS, _END_FIELDS))
    span = Span(trace, id, parent, "", start, end, error=error, meta=_meta(attributes))
    if attributes.get("gen_ai.operation.name") == "execute_tool" or "gen_ai.tool.call.result" in attributes:
        input, output = _tool_items(attributes, error, warn)
        yield span._replace(kind=TOOL, input=input, output=output)
        return
    input, output = _message_items(attributes, events, warn)
    if not input and not output and phoenix.is_openinference(attributes):
        yield from phoenix.FORMAT.spans({**record, "attributes": attributes}, warn)
        return
    yield span._replace(kind=MODEL if input or output else "", input=input, output=output)


def _meta(attributes: Mapping[str, Any]) -> dict[str, Any]:
    meta = {
        "model": text_at(attributes, "gen_ai.response.model", "gen_ai.request.model"),
        "session": text_at(attributes, "gen_ai.conversation.id"),
        "agent": text_at(attributes, "gen_ai.agent.name"),
    }
    return nonempty_values(meta)


def _first_time(record: Mapping[str, Any], keys: Sequence[str]) -> float | None:
    return time_of(next((record[key] for key in keys if record.get(key) is not None), None))


def _tool_items(attributes: Mapping[str, Any], error: str, warn: Warn) -> tuple[list[Item], list[Item]]:
    id = text_at(attributes, "gen_ai.tool.call.id")
    call = action_item(attributes.get("gen_ai.tool.name"), attributes.get("gen_ai.tool.call.arguments") or "", id)
    result = result_text(decoded(attributes.get("gen_ai.tool.call.result")), warn) or error
    return [call], [Item("observation", result, id)] if result else []


def _message_items(
    attributes: Mapping[str, Any], events: Sequence[_Event], warn: Warn
) -> tuple[list[Item], list[Item]]:
    """Return the model's input and output, each from the first source that holds a message, in the order of the
    module's docstring."""
    details = next((e.attributes for e in events if e.name == "gen_ai.client.inference.operation.details"), {})
    attributes = {**details, **attributes}
    oldest = {key: value for e in events if e.name in _CONTENT_EVENTS for key, value in e.attributes.items()}
    oldest |= attributes
    indexed, in_events = _indexed_messages(attributes), _event_messages(events)
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
