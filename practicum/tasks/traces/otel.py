"""OpenTelemetry GenAI spans: those of one trace id, in their order of time, are one trace.

Of each span are read, in this order of preference: `gen_ai.input.messages`, `gen_ai.output.messages` and
`gen_ai.system_instructions` (on the span, or on its event `gen_ai.client.inference.operation.details`); the indexed
`gen_ai.prompt.N.*` and `gen_ai.completion.N.*`; the older events `gen_ai.{system,user,assistant,tool}.message` and
`gen_ai.choice`; the oldest `gen_ai.prompt` and `gen_ai.completion`. A tool's span gives `gen_ai.tool.name`,
`gen_ai.tool.call.arguments` and `gen_ai.tool.call.result`. What was given to a model counts from the start of its
span, what it gave from the end, so that a span around others does not have the last word before they speak.

Each call to a model repeats the conversation before it. A message is new only if its span has it more often than
the trace so far; a tool call or result whose id is known is not new. So the same prompt answered alike twice is
one. The score is that of the events `gen_ai.evaluation.result`, the mean where there are several.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import from_json

from practicum.tasks.traces.messages import action, of_content, of_message, of_messages, plain
from practicum.tasks.traces.otlp import Event, Span, spans
from practicum.tasks.traces.scores import mean_of
from practicum.tasks.traces.trace import (
    MESSAGE,
    OBSERVATION,
    SYSTEM,
    USER,
    Found,
    Notes,
    Odd,
    Place,
    Word,
    text_of,
    told,
)

_INDEXED = re.compile(r"gen_ai\.(prompt|completion)\.(\d{1,9})\.(?:tool_calls\.(\d{1,9})\.)?(\w+)")
_ROLE_EVENTS = {f"gen_ai.{role}.message": role for role in ("system", "user", "assistant", "tool")}
_DETAILS = "gen_ai.client.inference.operation.details"
_EVALUATION = "gen_ai.evaluation.result"


@dataclass(frozen=True, slots=True)
class _Heard:
    """The words of one span: given to it and given by it."""

    start: float
    end: float
    given: list[Word]
    gave: list[Word]
    tool: bool


@dataclass(slots=True)
class _Spans:
    """What is known of one trace."""

    place: Place
    heard: list[_Heard] = field(default_factory=list)
    marks: dict[str, Any] = field(default_factory=dict)
    meta: dict[str, Any] = field(default_factory=dict)


class Otel:
    """Reads spans, and makes traces of them when the file ends."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._traces: dict[str, _Spans] = {}

    def take(self, place: Place, record: Mapping[str, Any]) -> Iterator[Found]:
        """Nothing yet: later lines may belong to the same trace."""
        odd = self._notes.at(place.line)
        for span in spans(record, odd):
            _hear(self._traces.setdefault(span.trace, _Spans(place)), span, odd)
        return iter(())

    def end(self) -> Iterator[Found]:
        """The traces, in the order in which they first came up."""
        for id, trace in self._traces.items():
            score = mean_of(trace.marks, self._notes.at(trace.place.line))
            words = _merged(trace.heard)
            yield from told(words, trace.place, self._notes, id=id, score=score, meta=trace.meta)


def _hear(trace: _Spans, span: Span, odd: Odd) -> None:
    attributes = span.attributes
    tool = _is_tool(attributes)
    given, gave = _tool(span, odd) if tool else _messages(span, odd)
    start = span.start if span.start is not None else 0.0
    trace.heard.append(_Heard(start, span.end if span.end is not None else start, given, gave, tool))
    if (given or gave) and span.start is None:
        odd("a span without a time; it keeps its place in the file")
    for event in span.events:
        if event.name == _EVALUATION:
            mark = event.attributes.get("gen_ai.evaluation.score.value")
            name = text_of(event.attributes, "gen_ai.evaluation.name") or "evaluation"
            trace.marks[name] = _verdict(event.attributes) if mark is None else mark
    known = {
        "model": text_of(attributes, "gen_ai.response.model", "gen_ai.request.model"),
        "session": text_of(attributes, "gen_ai.conversation.id"),
        "agent": text_of(attributes, "gen_ai.agent.name"),
    }
    trace.meta = {key: value for key, value in known.items() if value} | trace.meta


def _verdict(attributes: Mapping[str, Any]) -> Any:
    label = text_of(attributes, "gen_ai.evaluation.score.label").lower()
    return {"pass": True, "fail": False}.get(label, label)


def _is_tool(attributes: Mapping[str, Any]) -> bool:
    return attributes.get("gen_ai.operation.name") == "execute_tool" or "gen_ai.tool.call.result" in attributes


def _tool(span: Span, odd: Odd) -> tuple[list[Word], list[Word]]:
    attributes = span.attributes
    id = text_of(attributes, "gen_ai.tool.call.id")
    call = action(attributes.get("gen_ai.tool.name"), attributes.get("gen_ai.tool.call.arguments") or "", id)
    result = plain(_decoded(attributes.get("gen_ai.tool.call.result")), odd) or span.error
    return [call], [Word(OBSERVATION, result, id)] if result else []


def _messages(span: Span, odd: Odd) -> tuple[list[Word], list[Word]]:
    """What the model was given and what it gave, from the first source of each that says anything."""
    details = next((event.attributes for event in span.events if event.name == _DETAILS), {})
    attributes = {**details, **span.attributes}
    indexed = _indexed(attributes)
    old = {**_old(span.events), **attributes}
    given = (
        _listed(attributes.get("gen_ai.input.messages"), USER, odd)
        or list(of_messages(indexed["prompt"], odd))
        or [word for event in span.events for word in _of_event(event, odd)]
        or _listed(old.get("gen_ai.prompt"), USER, odd)
    )
    gave = (
        _listed(attributes.get("gen_ai.output.messages"), MESSAGE, odd)
        or list(of_messages(indexed["completion"], odd))
        or [word for event in span.events for word in _of_choice(event, odd)]
        or _listed(old.get("gen_ai.completion"), MESSAGE, odd)
    )
    system = _listed(attributes.get("gen_ai.system_instructions"), SYSTEM, odd)
    return [*system, *given], gave


def _listed(value: Any, kind: str, odd: Odd) -> list[Word]:
    """Messages, or parts of one message, which on a span may stand as a JSON string."""
    value = _decoded(value)
    if isinstance(value, list) and any(isinstance(item, Mapping) and "role" in item for item in value):
        return list(of_messages(map(_with_content, value), odd))
    return list(of_content(value, kind, odd))


def _with_content(message: Any) -> Any:
    """A message whose content may be a JSON string of parts."""
    if not isinstance(message, Mapping) or not isinstance(message.get("content"), str):
        return message
    return {**message, "content": _parts(message["content"])}


def _indexed(attributes: Mapping[str, Any]) -> dict[str, list[Mapping[str, Any]]]:
    """`gen_ai.prompt.0.role` and its like as messages."""
    found: dict[str, dict[int, dict[str, Any]]] = {"prompt": {}, "completion": {}}
    calls: dict[tuple[str, int], dict[int, dict[str, Any]]] = {}
    for key, value in attributes.items():
        if named := _INDEXED.fullmatch(key):
            side, number, call, name = named[1], int(named[2]), named[3], named[4]
            message = found[side].setdefault(number, {"role": "user" if side == "prompt" else "assistant"})
            if call is None:
                message[name] = value
            else:
                calls.setdefault((side, number), {}).setdefault(int(call), {})[name] = value
    for (side, number), by_number in calls.items():
        found[side][number]["tool_calls"] = [by_number[n] for n in sorted(by_number)]
    return {side: [_with_content(of[n]) for n in sorted(of)] for side, of in found.items()}


def _of_event(event: Event, odd: Odd) -> Iterator[Word]:
    if role := _ROLE_EVENTS.get(event.name):
        said = _said(event)
        # A role of its own ("customer") is told where it differs; the event's name says which of ours it is.
        yield from of_message(_with_content({**said, "role": role}), odd)


def _of_choice(event: Event, odd: Odd) -> Iterator[Word]:
    if event.name != "gen_ai.choice":
        return
    said = _said(event)
    message = _decoded(said.get("message"))
    message = message if isinstance(message, Mapping) else {"content": message if message else said.get("content")}
    calls = message.get("tool_calls") or _decoded(said.get("tool_calls"))
    yield from of_message(_with_content({**message, "role": "assistant", "tool_calls": calls}), odd)


def _said(event: Event) -> Mapping[str, Any]:
    """What an event says: its body, the attribute that holds it as JSON, or the attributes themselves."""
    body = event.body if event.body is not None else _decoded(event.attributes.get("gen_ai.event.content"))
    if isinstance(body, Mapping):
        return body
    return {"content": body} if isinstance(body, str) and body else event.attributes


def _old(events: Iterable[Event]) -> dict[str, Any]:
    named = ("gen_ai.content.prompt", "gen_ai.content.completion")
    return {key: value for event in events if event.name in named for key, value in event.attributes.items()}


def _decoded(value: Any) -> Any:
    """A JSON object or list that stands as a string; anything else as it is."""
    if not isinstance(value, str) or value.lstrip()[:1] not in ("[", "{"):
        return value
    try:
        return from_json(value)
    except ValueError:
        return value


def _parts(text: str) -> Any:
    """The parts that a content string spells out; the string itself where it is no such thing."""
    value = _decoded(text)
    keys = {"type", "text", "toolUse", "toolResult"}
    spelt = isinstance(value, list) and value and all(isinstance(p, Mapping) and not keys.isdisjoint(p) for p in value)
    return value if spelt else text


def _merged(heard: list[_Heard]) -> list[Word]:
    """The words of all spans in order of time, each said once."""
    order = sorted(range(len(heard)), key=lambda n: heard[n].start)
    moments: list[tuple[tuple[float, int, int, int], list[Word], int]] = []
    for rank, n in enumerate(order):
        span = heard[n]
        # At one moment inner spans end before outer ones, and all that end do so before others start.
        closing = (span.end, 0, -rank, 1) if span.end > span.start else (span.start, 1, rank, 1)
        counted = -1 if span.tool else n
        moments += [((span.start, 1, rank, 0), span.given, counted), (closing, span.gave, counted)]
    so_far = _SoFar()
    for _, words, counted in sorted(moments, key=lambda moment: moment[0]):
        so_far.add(words, counted)
    return so_far.words


class _SoFar:
    """A trace as far as it is known, which takes up only what is new."""

    def __init__(self) -> None:
        self.words: list[Word] = []
        self._times: Counter[tuple[str, str]] = Counter()
        self._calls: set[tuple[str, str]] = set()
        self._within: dict[int, Counter[tuple[str, str]]] = {}

    def add(self, words: Iterable[Word], source: int) -> None:
        """Take up words of one source: of a span, or of all tool spans together, which repeat nothing."""
        within = self._within.setdefault(source, Counter())
        for word in words:
            said, call = (word.kind, word.text), (word.kind, word.call)
            within[said] += 1
            if word.call and call in self._calls:
                continue
            if word.call:
                self._calls.add(call)
            if within[said] > self._times[said]:
                self._times[said] += 1
                self.words.append(word)
