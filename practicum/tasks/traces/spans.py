"""Traces that are stored as spans: OpenTelemetry, Langfuse, LangSmith, Phoenix and MLflow.

A span is a model call, a tool call, or a step around other spans. All spans with the same trace id are one trace. A
format yields `Span` and `Verdict` values: a `SpanFormat` says where these values are in a record, and `otel` parses
them. This module converts them to tasks.

Each model call repeats the conversation before the call. An item of a span is added to the trace only if the span holds
this item more often than the trace does so far. A tool call or result that was read before is not added: the call of a
tool's span is identified by its id, else by the name and the arguments of a call of the model. Input has the time at
which a span starts, and output the time at which it ends.

The task is what the user asked in this trace. Earlier turns of the session, which the first model call repeats, are
left out: the turn starts at the user's message that the root span names as its input, else at the user's last message.
A step around other spans is read only if no call holds the task or the answer. Spans below a tool's span are a separate
trace of a subagent, if a model call is among them.

The score is the mean of the scores of the trace and of its root span. A score whose name says that lower is better is
not part of the mean. An error counts if the root span has it.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from math import inf, isfinite
from statistics import fmean
from typing import Any, NamedTuple

from practicum.core.types import Score, Task
from practicum.tasks.traces.exchanges import is_tool_message, request_items, response_items, unquoted
from practicum.tasks.traces.fields import Warn, first_at, recorded_score, text_at, value_at
from practicum.tasks.traces.messages import action_item, as_json, result_text
from practicum.tasks.traces.trace import Item, RecordPlace, nonempty_values

MODEL, TOOL, ROW, SKIPPED = "model", "tool", "row", "skipped"
"""Kinds of spans. TOOL is also a search of documents. ROW is the record of a whole trace. SKIPPED is work that is not
the agent's (an evaluator, a guardrail), with all spans below it. Any other kind is a step around other spans."""

UNFINISHED = "the run is not finished"
"""Error of a span that has no end. It is ignored if the trace has an answer."""

_LABELS = {"pass": True, "passed": True, "yes": True, "true": True, "correct": True}
_LABELS |= {"fail": False, "failed": False, "no": False, "false": False, "incorrect": False}
_LOWER_IS_BETTER = re.compile(r"hallucinat|toxic|harmful|malicious|offensive|profan|jailbreak|(?<!un)bias|latency|cost")
_QUESTIONS = ("question", "query", "input", "prompt", "text", "message", "user_input")
_ANSWERS = ("output", "answer", "result", "response", "generated_response", "text")
_CALLS = ("action", "observation")
_HIDDEN = ("__REDACTED__", "[REDACTED]", "redacted-by-litellm")
_MOST_VERDICT, _MOST_DEPTH = 200, 200
_MEDIA = re.compile(r"@@@langfuseMedia:type=(\w+)/[^@]*@@@|data:(\w+)/[\w.+-]+;base64,[\w+/=-]*")
_OTLP_KINDS = ("string", "int", "double", "bool", "array", "kvlist", "bytes")
_OTLP = {f"{kind}{suffix}" for kind in _OTLP_KINDS for suffix in ("Value", "_value")}


class Span(NamedTuple):
    """One span. Times are in the unit of the file. `input` and `output` are the items of a model or tool call, `asked`
    and `answer` the values of a step around other spans. `error` is empty if the span has no error."""

    trace: str
    id: str = ""
    parent: str = ""
    kind: str = ""
    start: float | None = None
    end: float | None = None
    input: Sequence[Item] = ()
    output: Sequence[Item] = ()
    asked: Any = None
    answer: Any = None
    error: str = ""
    tokens: int = 0
    meta: Mapping[str, Any] = {}


class Verdict(NamedTuple):
    """A score of a trace, or of one of its spans if `span` is its id. `expected` is the right answer, if the verdict
    holds one. Without `trace`, the trace is that of the span."""

    trace: str
    span: str
    name: str
    value: Any = None
    comment: str = ""
    expected: str = ""


@dataclass(frozen=True)
class SpanFormat:
    """Where a format stores the values of a span. A path has alternatives separated by "|"; the path of a number may
    also be a sum, such as "a+b".

    `signs` are the paths that the record of a span must have, the rarest first; `verdict_signs` are the paths that a
    separate verdict must have. One of several groups is enough. `parts` are the paths of lists (pages, nested runs) or
    objects that hold further records; such a record takes the fields `inherited` from the record around it if it does
    not have them. `rewritten` brings a record to the form that the paths describe. `items` returns the input and output
    of a model call that stores them as messages; without messages, they are the provider's request and response.
    """

    signs: Sequence[Sequence[str]]
    verdict_signs: Sequence[Sequence[str]]
    parts: Sequence[str]
    trace: str
    id: str
    parent: str
    kind: str
    kinds: Mapping[str, str]
    start: str
    end: str
    input: str
    output: str
    tool: str
    call: str
    tokens: str
    model: str
    agent: str
    meta: Mapping[str, str]
    error: Callable[[Mapping[str, Any]], str]
    verdicts: Callable[[Mapping[str, Any]], Iterator[Verdict]]
    inherited: Mapping[str, str] = field(default_factory=dict)
    rewritten: Callable[[Mapping[str, Any], Warn], Mapping[str, Any]] = lambda record, warn: record
    items: Callable[[Mapping[str, Any], Warn], tuple[list[Item], list[Item]]] = lambda row, warn: ([], [])

    def matches(self, record: Mapping[str, Any]) -> bool:
        """Return whether a record has this format, or is a page whose first record has it."""
        # This test is made for each record of any format, so it looks at few keys.
        if self._keys.isdisjoint(record):
            return False
        for sign in (*self.signs, *self.verdict_signs):
            if has(record, sign[0]) and all(has(record, paths) for paths in sign):
                return True
        for path in self.parts:
            part = value_at(record, path)
            first = part[0] if isinstance(part, list) and part else part
            if isinstance(first, Mapping) and self.matches(first):
                return True
        return False

    @cached_property
    def _keys(self) -> frozenset[str]:
        """Keys of the first path of each group of signs, and of the parts. A record of this format has at least one."""
        firsts = (path for sign in (*self.signs, *self.verdict_signs) for path in sign[0].split("|"))
        return frozenset(path.partition("/")[0] for path in (*firsts, *self.parts))

    def reader(self) -> SpanReader:
        """Return a reader of the records of a file."""
        return SpanReader(self.spans)

    def spans(self, record: Mapping[str, Any], warn: Warn) -> Iterator[Span | Verdict]:
        """Yield the spans and verdicts of a record and of its parts."""
        if columns := _rows_of_columns(record):
            for values in columns:
                yield from self.spans(values, warn)
            return
        row = self.rewritten(record, warn)
        yield from self.verdicts(row)
        if any(all(has(row, paths) for paths in sign) for sign in self.signs):
            yield from self._span(row, warn)
        inherited = {key: value for key, paths in self.inherited.items() if (value := first_at(row, paths))}
        for part in (value_at(row, path) for path in self.parts):
            for inner in part if isinstance(part, list) else [part]:
                if isinstance(inner, Mapping):
                    yield from self.spans({**inherited, **inner}, warn)

    def _span(self, row: Mapping[str, Any], warn: Warn) -> Iterator[Span]:
        trace = str(first_at(row, self.trace) or "")
        if not trace:
            warn("a span without a trace id is left out")
            return
        kind = self.kinds.get(str(first_at(row, self.kind) or "").lower(), "")
        output, error = unquoted(first_at(row, self.output)), self.error(row)
        span = Span(
            trace, str(first_at(row, self.id) or ""), str(first_at(row, self.parent) or ""), kind,
            time_of(first_at(row, self.start)), time_of(first_at(row, self.end)),
            error=error, tokens=_number_at(row, self.tokens),
        )  # fmt: skip
        meta = {name: value for name, paths in self.meta.items() if _is_plain(value := first_at(row, paths))}
        if _is_plain(name := first_at(row, self.model if kind == MODEL else self.agent)) and kind != TOOL:
            meta |= {"model" if kind == MODEL else "agent": name}
        if kind == TOOL or (not kind and is_tool_message(output)):
            call, result = self._tool_items(row, output, error, warn)
            meta = nonempty_values(meta)
            yield span._replace(kind=TOOL, input=_shown(call, warn), output=_shown(result, warn), meta=meta)
        elif kind == MODEL:
            asked = first_at(row, self.input)
            input, answer = self.items(row, warn)
            input, answer = input or request_items(asked, warn), answer or response_items(output, warn)
            if asked and not input:
                warn("the input of a model call has no message")
            yield span._replace(input=_shown(input, warn), output=_shown(answer, warn), meta=nonempty_values(meta))
        else:
            yield span._replace(asked=first_at(row, self.input), answer=output, meta=nonempty_values(meta))

    def _tool_items(self, row: Mapping[str, Any], output: Any, error: str, warn: Warn) -> tuple[list[Item], list[Item]]:
        arguments = _unwrapped(unquoted(first_at(row, self.input)), ("input",))
        result = _unwrapped(output, ("output", "result", "content"))
        call = first_at(row, self.call)
        if is_tool_message(result):
            call, result = call or result["tool_call_id"], result.get("content")
        if isinstance(result, Mapping) and isinstance(result.get("documents"), list):
            result = [_document(document) for document in result["documents"]]
        text = "" if result in (None, {}, []) else result_text(result, warn)
        id = call if isinstance(call, str) else ""
        action = action_item(first_at(row, self.tool), "" if arguments in (None, {}, []) else arguments, id)
        return [action], [Item("observation", text or error, id)] if text or error else []


def has(record: Any, paths: str) -> bool:
    """Return whether a record has one of several paths; the value may be null."""
    for path in paths.split("|"):
        parent, _, key = path.rpartition("/")
        if isinstance(holder := value_at(record, parent) if parent else record, Mapping) and key in holder:
            return True
    return False


def status_error(row: Mapping[str, Any]) -> str:
    """Return the error of a span of OpenTelemetry: its status message, else its exception event."""
    if first_at(row, "status_code|status/code") not in (2, "ERROR", "STATUS_CODE_ERROR"):
        return ""
    if message := text_at(row, "status_message", "status/message"):
        return message
    events = row.get("events")
    for event in events if isinstance(events, list) else ():
        attributes = attributes_of(value_at(event, "attributes"))
        if "exception.message" in attributes:
            return ": ".join(str(attributes[k]) for k in ("exception.type", "exception.message") if attributes.get(k))
    return "error"


def time_of(value: Any) -> float | None:
    """Return a time as a number: a date as nanoseconds since 1970, a number unchanged. Return None if the value is not
    a time."""
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


def iso_time(time: float | None) -> str:
    """Return a time in seconds, milliseconds, microseconds or nanoseconds since 1970 as an ISO date; empty for a
    time before 1973."""
    for unit in (1, 10**3, 10**6, 10**9):
        if time is not None and 10**8 * unit <= time < 10**11 * unit:
            return datetime.fromtimestamp(time / unit, UTC).isoformat(timespec="milliseconds")
    return ""


def attributes_of(attributes: Any) -> dict[str, Any]:
    """Return the attributes of a span: an object, or OTLP's list of keys and values."""
    if isinstance(attributes, Mapping):
        return {key: unwrapped(value) for key, value in attributes.items()}
    pairs = [item for item in attributes if isinstance(item, Mapping)] if isinstance(attributes, list) else []
    return {item["key"]: unwrapped(item.get("value")) for item in pairs if isinstance(item.get("key"), str)}


def unwrapped(value: Any) -> Any:
    """Remove OTLP's wrapper ({"stringValue": ...}) from a value. Return any other value unchanged."""
    if isinstance(value, list):
        return [unwrapped(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    if not value or not _OTLP.issuperset(value):
        return {key: unwrapped(item) for key, item in value.items()}
    # Some writers also write the kinds that a value does not have, as null.
    kind, inner = next(((kind, inner) for kind, inner in value.items() if inner is not None), ("", None))
    if kind.startswith("array"):
        return unwrapped(value_at(inner, "values") or [])
    return attributes_of(value_at(inner, "values")) if kind.startswith("kvlist") else inner


def _rows_of_columns(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of a table that is stored by column, as `DataFrame.to_json` writes it; empty for any other
    record."""
    columns = list(record.values())
    first = columns[0] if len(columns) > 2 else None
    if not isinstance(first, Mapping) or not first:
        return []
    if not all(isinstance(column, Mapping) and column.keys() == first.keys() for column in columns):
        return []
    return [{name: column[key] for name, column in record.items()} for key in first]


def _is_plain(value: Any) -> bool:
    """Return whether a value can be in the meta of a task: a text, a number, or a list of texts."""
    texts = value if isinstance(value, list) else [value]
    return isinstance(value, int | float) or (value is not None and all(isinstance(text, str) for text in texts))


def _number_at(row: Mapping[str, Any], paths: str) -> int:
    for path in paths.split("|"):
        numbers = [value_at(row, part) for part in path.split("+")]
        numbers = [int(n) if isinstance(n, str) and n.isdecimal() and len(n) < 20 else n for n in numbers]
        if any(isinstance(n, int | float) for n in numbers):
            return int(sum(n for n in numbers if isinstance(n, int | float) and abs(n) < 2**63))
    return 0


def _step_items(value: Any, kind: str, warn: Warn) -> list[Item]:
    """Return the input or output of a step around other spans: its messages, else its text, else its JSON."""
    value = unquoted(value)
    if value is None:
        return []
    if items := (request_items if kind == "user" else response_items)(value, warn):
        return items
    keys = _QUESTIONS if kind == "user" else _ANSWERS
    text = first_at(value, "|".join(keys))
    if isinstance(text, str):
        return [Item(kind, text)]
    inner = value
    while isinstance(inner, list | Mapping) and len(inner) == 1:
        inner = next(iter(inner.values())) if isinstance(inner, Mapping) else inner[0]
    return [Item(kind, inner if isinstance(inner, str) else as_json(value))] if value not in ([], {}) else []


def _unwrapped(value: Any, keys: Sequence[str]) -> Any:
    """Return the value of an object whose only key is one of `keys`. Return any other value unchanged."""
    while isinstance(value, Mapping) and len(value) == 1 and (key := next(iter(value))) in keys:
        value = value[key]
    return value


def _document(document: Any) -> Any:
    text = first_at(document, "page_content|document/content|content|text")
    return text if isinstance(text, str) else document


def _shown(items: Iterable[Item], warn: Warn) -> list[Item]:
    """Return the items, without hidden texts, and with the kind of an image or sound in place of its data."""
    shown = []
    for item in items:
        if item.text in _HIDDEN:
            warn("a text was hidden by the program that wrote it")
            continue
        marked = "base64," in item.text or "@@@" in item.text
        shown.append(item._replace(text=_MEDIA.sub(r"[\1\2]", item.text)) if marked else item)
    return shown


class SpanReader:
    """Reader that collects the spans of a file, and at the end converts each trace to tasks. `spans` yields the spans
    and verdicts of a record."""

    def __init__(self, spans: Callable[[Mapping[str, Any], Warn], Iterator[Span | Verdict]]) -> None:
        self._spans = spans
        self._traces: dict[str, _Trace] = {}
        self._verdicts: list[tuple[Verdict, RecordPlace]] = []

    def add(self, record: Mapping[str, Any], place: RecordPlace) -> None:
        """Add a record of the file."""
        for value in self._spans(record, place.warn):
            if isinstance(value, Verdict):
                self._verdicts.append((value, place))
            else:
                self._traces.setdefault(value.trace, _Trace(value.trace, place)).add(value, place.warn)

    def tasks(self) -> Iterator[Task]:
        """Yield the tasks, in the order of their traces' first spans in the file."""
        spans = {span: trace.id for trace in self._traces.values() for span in trace.spans} if self._verdicts else {}
        for verdict, place in self._verdicts:
            if trace := self._traces.get(verdict.trace or spans.get(verdict.span, "")):
                trace.verdicts.append(verdict)
            else:
                place.warn("a score whose trace is not in the same file is left out")
        for trace in self._traces.values():
            yield from trace.tasks()


@dataclass(slots=True)
class _Trace:
    id: str
    place: RecordPlace
    spans: dict[str, Span] = field(default_factory=dict)
    verdicts: list[Verdict] = field(default_factory=list)

    def add(self, span: Span, warn: Warn) -> None:
        if (span.input or span.output) and span.start is None:
            warn("a span without a time is read before all spans with a time")
        key = span.id if span.id and span.kind != ROW else f"#{len(self.spans)}"
        if before := self.spans.get(key):  # pages overlap, and a span may be written when it starts and when it ends
            fields = zip(before, span, strict=True)
            span = Span(*(new if new not in (None, "", 0, (), [], {}) else old for old, new in fields))
            span = span._replace(meta={**before.meta, **span.meta})
        self.spans[key] = span

    def tasks(self) -> Iterator[Task]:
        """Yield the task of the main line, then a task for each subagent."""
        lines: dict[str, list[Span]] = {"": []}
        for span, line in self._lines():
            lines.setdefault(line, []).append(span)
        if not any(lines.values()):
            self.place.warn("a trace of an evaluator is left out")
        for line, spans in lines.items():
            if not line or any(span.kind == MODEL for span in spans):
                yield from self._task(line, spans)

    def _lines(self) -> Iterator[tuple[Span, str]]:
        """Yield the spans in order of time, each with the id of the tool's span above it; empty if no tool is above it.
        Spans at the same time are ordered from the root. Skipped spans are left out."""
        cache: dict[str, tuple[int, str | None]] = {"": (0, "")}

        def place_of(id: str, above: frozenset[str]) -> tuple[int, str | None]:
            """Return the depth and the line of the spans whose parent has this id."""
            if id not in cache:
                span = self.spans.get(id)
                if span is None or id in above or len(above) > _MOST_DEPTH:
                    return 0, ""
                depth, line = place_of(span.parent, above | {id})
                line = None if span.kind == SKIPPED or line is None else id if span.kind == TOOL else line
                cache[id] = depth + 1, line
            return cache[id]

        placed = [(span, *place_of(span.parent, frozenset())) for span in self.spans.values()]
        placed = [(span, depth, line) for span, depth, line in placed if line is not None and span.kind != SKIPPED]
        placed.sort(key=lambda item: (item[0].kind != ROW, item[0].start or 0.0, item[1]))
        return ((span, line) for span, _, line in placed if line is not None)

    def _task(self, line: str, spans: list[Span]) -> Iterator[Task]:
        tops = [span for span in spans if span.parent not in self.spans or span.parent == line != ""]
        roots = [span for span in tops if span.kind != ROW]
        around = [span for span in tops if span.kind not in (MODEL, TOOL)]
        if not any(span.kind == MODEL and (span.input or span.output) for span in spans):
            around += [span for span in spans if span.kind not in (MODEL, TOOL) and span not in tops]
        items, answered = _items([span for span in spans if span.kind in (MODEL, TOOL)], around, self.place.warn)
        roots = [span for span in roots if span.kind != TOOL]
        last = ([span for span in roots if not span.parent] or roots)[-1:]
        errors = [span.error for span in (*last, *tops) if span.kind == ROW or span in last]
        error = next((error for error in errors if error and not (answered and error == UNFINISHED)), None)
        own = {"", self.id, *(span.id for span in roots)} if not line else {span.id for span in roots}
        verdicts = [verdict for verdict in self.verdicts if verdict.span in own]
        score, feedback = _score(verdicts, self.place.warn)
        meta: dict[str, Any] = {"parent": self.id} if line else {}
        meta |= {"time": iso_time(tops[0].start)} if tops else {}
        meta |= {"feedback": feedback} if score is None and feedback else {}
        for span in tops:
            meta = {**span.meta, **meta}
        for span in spans:
            meta = {key: span.meta[key] for key in ("model", "session", "user") if key in span.meta} | meta
        target = next((verdict.expected for verdict in reversed(verdicts) if verdict.expected), None)
        id = f"{self.id}/{line}" if line else self.id
        meta |= {"tokens": _tokens(tops, spans) or ""}
        for task in self.place.task(items, id=id, error=error, score=score, meta=meta):
            yield replace(task, target=target)


def _tokens(tops: list[Span], spans: list[Span]) -> int:
    """Return the tokens of the whole trace if its record or root has them, else the sum of the model calls that hold no
    other model call."""
    outer = {span.parent for span in spans if span.kind == MODEL}
    total = next((span.tokens for span in tops if span.tokens and span.kind != MODEL), 0)
    return total or sum(span.tokens for span in spans if span.kind == MODEL and span.id not in outer)


def _score(verdicts: list[Verdict], warn: Warn) -> tuple[Score | None, str]:
    """Return the mean of the scores, and the text of all verdicts as one line."""
    scores, notes = list[Score](), list[str]()
    for name, value, comment in ((v.name, v.value, v.comment) for v in verdicts if not v.expected):
        value = _LABELS.get(value.strip().lower(), value) if isinstance(value, str) else value
        shown = name if value is None else f"{name} {value}"[:_MOST_VERDICT]
        if _LOWER_IS_BETTER.search(name.lower()):
            shown += " (lower is better)"
        elif value is not None and (score := recorded_score({name: value}, warn)):
            scores.append(score)
            shown = score.note
        notes.append(f"{shown}: {comment}" if comment else shown)
    note = "; ".join(notes)
    if not scores:
        return None, note
    return Score(fmean(s.value for s in scores), all(s.correct for s in scores), note), note


# The items of a trace.


def _items(calls: list[Span], around: list[Span], warn: Warn) -> tuple[list[Item], bool]:
    """Return the items of one line of a trace, and whether the agent answered. `calls` are the model and tool calls in
    order of time; `around` are the other spans, the root first."""
    outer = next(filter(None, (_shown(_step_items(span.asked, "user", warn), warn) for span in around)), [])
    asked = next((item.text for item in reversed(outer) if item.kind == "user"), "")
    numbered = _numbered(calls)
    first = next((n for n, (span, _, _) in enumerate(numbered) if any(i.kind == "user" for i in span.input)), None)
    history, task = list[Item](), list[Item]()
    if first is not None:
        _, input, _ = numbered[first]
        start = _turn(input, asked)
        # A prompt that only contains the question was filled in by the program: the question is the task.
        task = [Item("user", asked)] if _contains(input[start].text, asked) else []
        history = [item for item in input[:start] if item.kind != "system"]
    elif asked:
        task = [*(item for item in outer if item.kind == "system"), Item("user", asked)]
    merged = _merge(numbered, history)
    spoken = next((n for n in range(len(merged), 0, -1) if merged[n - 1].kind == "user"), 0)
    answered = any(item.kind == "message" and item.text.strip() for item in merged[spoken:])
    results = (_shown(_step_items(span.answer, "message", warn), warn) for span in around)
    if not answered and (result := next(filter(None, results), [])):
        # The output of a graph repeats its input.
        turn = next((n for n in range(len(result), 0, -1) if result[n - 1] == Item("user", asked)), 0)
        merged = _merge([*numbered, (Span("", start=inf), [], result[turn:])], history)
        answered = any(item.kind == "message" and item.text.strip() for item in result)
    begin = next((n for n, item in enumerate(merged) if item.kind != "system"), len(merged))
    return [*merged[:begin], *task, *merged[begin:]], answered


def _turn(input: Sequence[Item], asked: str) -> int:
    """Return the index of the user's message that began this turn: the last that equals or contains `asked`, else the
    first after the agent's last item before the user's last message."""
    users = [n for n, item in enumerate(input) if item.kind == "user"]
    equal = [n for n in users if input[n].text == asked]
    if same := equal or [n for n in users if _contains(input[n].text, asked)]:
        return same[-1]
    start = users[-1]
    while start - 1 in users or (start and input[start - 1].kind == "system"):
        start -= 1
    return start


def _contains(prompt: str, asked: str) -> bool:
    """Return whether a prompt holds the question and more. A single word may be there by chance."""
    return asked != prompt and " " in asked and asked in prompt


_Numbered = tuple[Span, Sequence[Item], Sequence[Item]]


def _numbered(spans: list[Span]) -> list[_Numbered]:
    """Return the input and output of each span, in which each call and its result share an id.

    Without an id, the calls of a model with the same name and arguments are counted, and results follow the order of
    the calls. The span of a tool has the id of a model's call with the same name and arguments.
    """
    own = [{item.call for item in (*span.input, *span.output) if item.kind in _CALLS} for span in spans]
    of_models = set().union(*(ids for span, ids in zip(spans, own, strict=True) if span.kind != TOOL))
    if not any("" in ids or (span.kind == TOOL and not ids <= of_models) for span, ids in zip(spans, own, strict=True)):
        return [(span, span.input, span.output) for span in spans]
    numbered = dict[int, _Numbered]()
    calls: defaultdict[str, list[str]] = defaultdict(list)
    for n, span in enumerate(spans):
        if span.kind != TOOL:
            counts, open = Counter[str](), list[str]()
            input, output = ([_with_id(item, counts, open) for item in items] for items in (span.input, span.output))
            numbered[n] = span, input, output
            for action in (item for item in (*input, *output) if item.kind == "action"):
                if action.call not in calls[key := _signature(action)]:
                    calls[key].append(action.call)
    ids = {id for same in calls.values() for id in same}
    taken = {item.call for span in spans if span.kind == TOOL for item in span.input if item.call in ids}
    counts = Counter()
    for n, span in enumerate(spans):
        if span.kind == TOOL:
            key, id = _signature(span.input[0]), span.input[0].call
            if id not in ids:
                counts[key] += 1
                id = next((call for call in calls[key] if call not in taken), id or f"{key} #{counts[key]}")
                taken.add(id)
            input, output = ([item._replace(call=id) for item in items] for items in (span.input, span.output))
            numbered[n] = span, input, output
    return [numbered[n] for n in range(len(spans))]


def _with_id(item: Item, counts: Counter[str], open: list[str]) -> Item:
    """Return the item with an id if it is a call without an id, or the result of one. `open` are the ids of such calls
    that have no result yet."""
    if item.kind == "action" and not item.call:
        key = _signature(item)
        counts[key] += 1
        open.append(f"{key} #{counts[key]}")
        return item._replace(call=open[-1])
    if item.kind == "observation" and not item.call and open:
        return item._replace(call=open.pop(0))
    return item


def _signature(action: Item) -> str:
    """Return the name and the arguments of a call, in one form for all ways to write the same JSON."""
    name, _, arguments = action.text.partition("(")
    value = unquoted(arguments[:-1])
    return f"{name}({as_json(dict(sorted(value.items()))) if isinstance(value, Mapping) and value else arguments[:-1]})"


def _merge(spans: list[_Numbered], history: list[Item]) -> list[Item]:
    """Merge the items of all spans in order of time, without repetitions, and without the items of `history`."""
    moments: list[tuple[tuple[float, int, int, int], Sequence[Item], int]] = []
    for rank, (span, input, output) in enumerate(spans):
        start = span.start if span.start is not None else 0.0
        stop = span.end if span.end is not None else start
        # At equal times, inner spans end before outer spans, and spans end before other spans start.
        end = (stop, 0, -rank, 1) if stop > start else (start, 1, rank, 1)
        source = -1 if span.kind == TOOL else rank  # all tool spans count as one span: they do not repeat each other
        moments += [((start, 1, rank, 0), input, source), (end, output, source)]
    merged: list[Item] = []
    total = Counter((item.kind, item.text) for item in history)
    by_source: defaultdict[int, Counter[tuple[str, str]]] = defaultdict(Counter)
    merged_calls = {(item.kind, item.call) for item in history}
    for _, items, source in sorted(moments, key=lambda moment: moment[0]):
        for item in items:
            text, call = (item.kind, item.text), (item.kind, item.call)
            by_source[source][text] += 1
            is_new = call not in merged_calls if item.call else by_source[source][text] > total[text]
            merged_calls.add(call)
            if is_new:
                total[text] += 1
                merged.append(item)
    return merged
