"""Traces of MLflow 2 and 3. For how spans become a task, see `spans`.

A file holds traces as `Trace.to_json` writes them (`info`, `data.spans`), a page of them (`traces`), rows of
`search_traces` (by row, by column, or Parquet), or the artifact `traces.json` (`spans`), which has no scores. A record
is a whole trace. The attributes of a span are JSON texts: `mlflow.spanInputs` and `mlflow.spanOutputs` are the request
and response of a model, the arguments and result of a tool, or any input and output of a function.

Feedback in `assessments` is a score, and the expectation `expected_response` is the right answer. Assessments that were
replaced, that failed, or that are about a span below the root are not read. A trace of a scorer is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from practicum.core.types import Task
from practicum.tasks.traces.exchanges import unquoted
from practicum.tasks.traces.fields import Warn, first_at, object_at, objects_in, text_at, value_at
from practicum.tasks.traces.messages import as_json
from practicum.tasks.traces.spans import (
    MODEL,
    ROW,
    SKIPPED,
    TOOL,
    UNFINISHED,
    SpanFormat,
    Verdict,
    attributes_of,
    status_error,
)  # fmt: skip
from practicum.tasks.traces.trace import RecordPlace

_REQUEST_ID = "mlflow.traceRequestId"


def _rewritten(record: Mapping[str, Any], warn: Warn) -> Mapping[str, Any]:
    """Return a trace as one object with the fields of `info` and the spans, and a span with decoded attributes."""
    record = trace if isinstance(trace := unquoted(record.get("trace")), Mapping) else record
    if "attributes" in record:
        attributes = {key: unquoted(value) for key, value in attributes_of(record["attributes"]).items()}
        # MLflow 2 numbers the spans of the same name.
        name = re.sub(r"_\d+$", "", text_at(record, "name")) if "context" in record else record.get("name")
        trace = record.get("trace_of") or attributes.get(_REQUEST_ID)
        return {**record, "attributes": attributes, "name": name, "trace_of": trace}
    info = object_at(record, "info") or object_at(record, "trace_info") or record
    if not (id := first_at(info, "trace_id|request_id")):
        return record
    metadata = object_at(info, "trace_metadata") or object_at(info, "request_metadata")
    assessments = [a for a in objects_in(info, "assessments", warn) if a.get("valid") is not False]
    row: dict[str, Any] = {**info, **object_at(record, "data"), "spans": first_at(record, "data/spans|spans")}
    row |= {"metadata": {**metadata, "usage": unquoted(metadata.get("mlflow.trace.tokenUsage"))}}
    row |= {"assessments": assessments, "trace_of": id, "kind": ROW}
    return row | {text_at(a, "assessment_name"): _expected(a) for a in assessments if "expectation" in a}


def _expected(assessment: Mapping[str, Any]) -> str:
    value = first_at(assessment, "expectation/value|expectation/serialized_value/value")
    return value if isinstance(value, str) else as_json(value)


def _error(row: Mapping[str, Any]) -> str:
    state = first_at(row, "state|status")
    if row.get("kind") == ROW:
        return {"ERROR": "error", "IN_PROGRESS": UNFINISHED}.get(state, "") if isinstance(state, str) else ""
    return status_error(row)


def _verdicts(row: Mapping[str, Any]) -> Iterator[Verdict]:
    for assessment in row.get("assessments") or () if row.get("kind") == ROW else ():
        name, span = text_at(assessment, "assessment_name"), text_at(assessment, "span_id")
        trace, comment = str(row["trace_of"] or ""), text_at(assessment, "rationale")
        if name == "expected_response" and "expectation" in assessment:
            yield Verdict(trace, span, name, expected=_expected(assessment))
        elif "feedback" in assessment and not value_at(assessment, "feedback/error"):
            yield Verdict(trace, span, name, value_at(assessment, "feedback/value"), comment)


FORMAT = SpanFormat(
    signs=(
        ("info/trace_id|info/request_id|trace_info/trace_id", "data/spans|spans"),
        ("trace|trace_metadata|request_metadata", "trace|spans", "trace_id|request_id"),
        ("trace_of",),
        (f"attributes/{_REQUEST_ID}",),
    ),
    verdict_signs=(),
    parts=("traces", "spans"),
    inherited={"trace_of": "trace_of"},
    rewritten=_rewritten,
    trace="trace_of",
    id="span_id|context/span_id",
    parent="parent_span_id|parent_id",
    kind="kind|attributes/mlflow.spanType",
    kinds={
        ROW: ROW, "chat_model": MODEL, "llm": MODEL, "tool": TOOL, "retriever": TOOL,
        **dict.fromkeys(("evaluator", "guardrail", "embedding", "reranker"), SKIPPED),
    },
    start="start_time_unix_nano|start_time|request_time|timestamp_ms",
    end="end_time_unix_nano|end_time",
    input="attributes/mlflow.spanInputs|request",
    output="attributes/mlflow.spanOutputs|response",
    tool="attributes/mlflow.spanFunctionName|name",
    call="attributes/tool_call_id",
    error=_error,
    model="attributes/mlflow.llm.model|attributes/model",
    agent="name",
    tokens="metadata/usage/total_tokens|attributes/mlflow.chat.tokenUsage/total_tokens",
    meta={
        "session": "metadata/mlflow.trace.session", "user": "metadata/mlflow.trace.user",
        "branch": "metadata/mlflow.source.git.branch", "commit": "metadata/mlflow.source.git.commit",
        "expected_facts": "expected_facts", "guidelines": "guidelines",
    },
    verdicts=_verdicts,
)  # fmt: skip


def read(record: Mapping[str, Any], place: RecordPlace) -> Iterator[Task]:
    """Yield the tasks of a record, which holds one whole trace or several."""
    if value_at(record, "info/tags/mlflow.trace.sourceScorer") or value_at(record, "tags/mlflow.trace.sourceScorer"):
        place.warn("a trace of a scorer is left out")
        return
    reader = FORMAT.reader()
    reader.add(record, place)
    yield from reader.tasks()
