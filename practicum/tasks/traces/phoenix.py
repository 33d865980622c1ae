"""Spans of Arize Phoenix, and the attributes of OpenInference. For how spans become a task, see `spans`.

A file holds spans of the REST API or of the Python client (a list, lines, or a page with `data`), rows of
`get_spans_dataframe` (JSON or Parquet), or traces of the command line (`spans`). Attributes are flat
(`llm.input_messages.0.message.role`), half nested (rows) or nested; all are read as nested.

The input of a model call is `llm.input_messages`, else `llm.prompts`, else the request in `input.value`; the output
likewise. Other spans have `input.value` and `output.value`. Scores are annotations, on a span or a trace or as separate
records, never in the spans themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from practicum.tasks.traces.exchanges import request_items, response_items, unquoted
from practicum.tasks.traces.fields import Warn, first_at, object_at, text_at, value_at
from practicum.tasks.traces.spans import (
    MODEL,
    SKIPPED,
    TOOL,
    SpanFormat,
    Verdict,
    attributes_of,
    status_error,
)  # fmt: skip
from practicum.tasks.traces.trace import Item

_SPAN_ID = "context/span_id|span_id|spanId"
_MOST_NESTED = 30


def is_openinference(attributes: Mapping[str, Any]) -> bool:
    """Return whether the attributes of a span follow OpenInference."""
    return "openinference.span.kind" in attributes or any(key.startswith("llm.input_messages") for key in attributes)


def _rewritten(record: Mapping[str, Any], warn: Warn) -> Mapping[str, Any]:
    """Return a span with nested attributes. The columns of a row are `context.trace_id`, `attributes.input.value`."""
    if "annotator_kind" in record:
        return record
    if "context.trace_id" in record:
        columns = {key: value for key, value in record.items() if key.startswith(("attributes.", "context."))}
        return {**record, **_listed(_nested(columns))}
    return {**record, "attributes": _listed(_nested(attributes_of(record.get("attributes"))))}


def _nested(value: Any) -> Any:
    """Return a value in which a key such as "a.b" is two objects, without values that are null."""
    if isinstance(value, list):
        return [_nested(item) for item in value if item is not None]
    if not isinstance(value, Mapping):
        return value
    tree: dict[str, Any] = {}
    for key, item in value.items():
        *path, last = key.split(".", _MOST_NESTED)
        node = tree
        for name in path:
            if not isinstance(node.get(name), dict):
                node[name] = {}
            node = node[name]
        if item is not None:
            inner = _nested(item)
            both = isinstance(inner, dict) and isinstance(node.get(last), dict)
            node[last] = {**node[last], **inner} if both else inner
    return tree


def _listed(value: Any) -> Any:
    """Return a value in which an object with the keys 0, 1, 2 ... is a list."""
    if isinstance(value, list):
        return [_listed(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value and all(key.isdecimal() and len(key) < 10 for key in value):
        return [_listed(value[key]) for key in sorted(value, key=int)]
    return {key: _listed(item) for key, item in value.items()}


def _items(row: Mapping[str, Any], warn: Warn) -> tuple[list[Item], list[Item]]:
    input, output = (_messages(row, f"attributes/llm/{side}_messages") for side in ("input", "output"))
    prompts = _messages(row, "attributes/llm/prompts", "prompt/text")
    choices = _messages(row, "attributes/llm/choices", "completion/text")
    return request_items(input or prompts, warn), response_items(output or choices[:1], warn)


def _messages(row: Mapping[str, Any], path: str, text: str = "") -> list[Any]:
    """Return the messages at a path in the form of OpenAI, or the texts of prompts or choices."""
    values = unquoted(value_at(row, path))
    items = values if isinstance(values, list) else []
    if text:
        return [text_at(item, text) or item for item in items]
    return [_message(item) for item in items if isinstance(item, Mapping)]


def _message(item: Mapping[str, Any]) -> Mapping[str, Any]:
    message = object_at(item, "message") or item
    calls = message.get("tool_calls")
    contents = message.get("contents")
    parts = [part for part in contents if isinstance(part, Mapping)] if isinstance(contents, list) else []
    more: dict[str, Any] = {}
    if isinstance(calls, list):
        more["tool_calls"] = [object_at(call, "tool_call") or call for call in calls]
    if name := message.get("function_call_name"):
        more["function_call"] = {"name": name, "arguments": message.get("function_call_arguments_json")}
    if parts and not message.get("content"):
        more["content"] = [_part(object_at(part, "message_content") or part) for part in parts]
    return {**message, **more}


def _part(part: Mapping[str, Any]) -> Mapping[str, Any]:
    if part.get("type") == "reasoning":
        return {"type": "thinking", "thinking": text_at(part, "text")}
    return part


def _verdicts(row: Mapping[str, Any]) -> Iterator[Verdict]:
    name = text_at(row, "name", "annotation_name")
    if "annotator_kind" not in row or name == "note":
        return
    result = object_at(row, "result") or {key.removeprefix("result."): value for key, value in row.items()}
    score, comment = result.get("score"), text_at(result, "explanation")
    span = str(first_at(row, _SPAN_ID) or "")
    yield Verdict(text_at(row, "trace_id"), span, name, result.get("label") if score is None else score, comment)


FORMAT = SpanFormat(
    signs=(
        ("span_kind", "context/trace_id", "attributes"),
        ("context.trace_id", "context.span_id"),
        ("dropped_attributes_count", "trace_id", "span_id", "attributes"),
        ("attributes/openinference.span.kind|attributes/openinference", "traceId|trace_id|context/trace_id"),
    ),
    verdict_signs=(("annotator_kind", "result|result.score"),),
    parts=("data", "spans", "annotations"),
    inherited={"trace_id": "context/trace_id|trace_id|traceId", "span_id": "context/span_id|span_id"},
    rewritten=_rewritten,
    trace="context/trace_id|trace_id|traceId",
    id=_SPAN_ID,
    parent="parent_id|parent_span_id|parentSpanId",
    kind="span_kind|attributes/openinference/span/kind",
    kinds={
        "llm": MODEL,
        "tool": TOOL,
        "retriever": TOOL,
        **dict.fromkeys(("evaluator", "guardrail", "embedding", "reranker"), SKIPPED),
    },
    start="start_time|start_time_unix_nano|startTimeUnixNano",
    end="end_time|end_time_unix_nano|endTimeUnixNano",
    input="attributes/input/value",
    output="attributes/output/value|attributes/retrieval",
    items=_items,
    tool="attributes/tool/name|name",
    call="attributes/tool/id|attributes/tool_call/id",
    error=status_error,
    model="attributes/llm/response/model_name|attributes/llm/model_name|attributes/llm/request/model_name",
    agent="attributes/agent/name|name",
    tokens="attributes/llm/token_count/total|attributes/llm/token_count/prompt+attributes/llm/token_count/completion",
    meta={"session": "attributes/session/id", "user": "attributes/user/id", "tags": "attributes/tag/tags"},
    verdicts=_verdicts,
)
