"""Traces and observations of Langfuse. For how spans become a task, see `spans`; an observation is a span.

A file holds a trace that was downloaded in the web application or got from the API (`trace`, `observations`, `scores`),
a page of the API (`data`), or rows of an export of traces, observations and scores, with field names in camel case or
snake case. Input and output are JSON values or JSON texts, also encoded twice.

The scores of the trace and of its root are read, and a correction is the right answer. Exports of traces have a column
for each score.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from practicum.tasks.traces.exchanges import unquoted
from practicum.tasks.traces.fields import Warn, first_at, object_at, text_at
from practicum.tasks.traces.spans import (
    MODEL,
    ROW,
    SKIPPED,
    TOOL,
    SpanFormat,
    Verdict,
    has,
)  # fmt: skip

_ROW_SIGNS = "bookmarked|htmlPath|html_path"
_SCORE = ("name", "source", "dataType|data_type", "traceId|trace_id|sessionId|session_id")
_LISTS = ("tags", "observations", "scores", "corrections", "comments")
_USAGE = ("usageDetails", "usage_details", "usage", "totalUsage", "inputUsage", "outputUsage")
_ATTRIBUTES = "metadata/attributes/"


def _rewritten(record: Mapping[str, Any], warn: Warn) -> Mapping[str, Any]:
    """Return an observation, or the record of a trace as a span, with decoded input, output and metadata."""
    if has(record, "dataType|data_type"):
        return record
    row = {**record, **{key: unquoted(record.get(key)) for key in ("input", "output", "metadata")}}
    if has(record, _ROW_SIGNS) and "type" not in record:
        observations = record.get("observations")
        if isinstance(observations, list) and any(isinstance(item, str) for item in observations):
            warn("the observations of a trace are in another file")
        return {**row, "type": ROW, "traceId": first_at(record, "id"), "id": ""}
    attributes = object_at(row, "metadata/attributes")
    if record.get("type") == "SPAN" and attributes.keys() & {"gen_ai.tool.name", "ai.toolCall.name"}:
        row["type"] = "TOOL"
    if record.get("type") != "GENERATION":  # an agent repeats the tokens of its generations
        row = {key: value for key, value in row.items() if key not in _USAGE}
    return row


def _error(row: Mapping[str, Any]) -> str:
    return (text_at(row, "statusMessage", "status_message") or "error") if row.get("level") == "ERROR" else ""


def _verdicts(row: Mapping[str, Any]) -> Iterator[Verdict]:
    if all(has(row, paths) for paths in _SCORE):
        trace, span = text_at(row, "traceId", "trace_id"), text_at(row, "observationId", "observation_id")
        text = text_at(row, "stringValue", "string_value", "longStringValue", "long_string_value")
        kind = text_at(row, "dataType", "data_type")
        name, comment = text_at(row, "name"), text_at(row, "comment")
        if kind == "CORRECTION":
            yield Verdict(trace, span, name, expected=text)
        elif kind == "TEXT":
            yield Verdict(trace, span, name, None, ": ".join(filter(None, (text, comment))))
        else:
            yield Verdict(trace, span, name, text if kind == "CATEGORICAL" else row.get("value"), comment)
    elif row.get("type") == ROW:
        for name, values in row.items():  # columns of scores
            value = values[0] if isinstance(values, list) and len(values) == 1 and name not in _LISTS else None
            if isinstance(value, int | float | str):
                yield Verdict(str(row["traceId"]), "", name, value)


FORMAT = SpanFormat(
    signs=(
        ("type", "traceId|trace_id", "parentObservationId|parent_observation_id"),
        ("timestamp", _ROW_SIGNS),
    ),
    verdict_signs=(_SCORE,),
    parts=("trace", "data", "observations", "scores", "corrections"),
    inherited={"traceId": "traceId"},
    rewritten=_rewritten,
    trace="traceId|trace_id",
    id="id",
    parent="parentObservationId|parent_observation_id",
    kind="type",
    kinds={
        ROW: ROW, "generation": MODEL, "tool": TOOL, "retriever": TOOL,
        **dict.fromkeys(("evaluator", "guardrail", "embedding", "event"), SKIPPED),
    },
    start="startTime|start_time|timestamp",
    end="endTime|end_time",
    input="input",
    output=f"output|{_ATTRIBUTES}gcp.vertex.agent.tool_response",
    tool=f"{_ATTRIBUTES}gen_ai.tool.name|{_ATTRIBUTES}ai.toolCall.name|name",
    call=f"{_ATTRIBUTES}gen_ai.tool.call.id|{_ATTRIBUTES}ai.toolCall.id",
    error=_error,
    model="model|providedModelName|provided_model_name",
    agent="name",
    tokens="usageDetails/total|usageDetails/input+usageDetails/output|usage_details/total"
    "|usage_details/input+usage_details/output|usage/total"
    "|usage/input+usage/output|totalUsage|totalTokens|promptTokens+completionTokens",
    meta={
        "session": "sessionId|session_id", "user": "userId|user_id", "environment": "environment",
        "release": "release", "version": "version", "tags": "tags", "prompt": "promptName|prompt_name",
    },
    verdicts=_verdicts,
)  # fmt: skip
