"""Runs of LangSmith. For how spans become a task, see `spans`; a run is a span.

A file holds runs (lines or a list), a page of them (`runs`, `items`), runs with nested `child_runs`, rows of a bulk
export (Parquet), or the bodies that the SDK sends (`post`, `patch`). Model calls and tool calls are runs of type `llm`
and `tool`, with the messages of LangChain or of a provider. If only the root was exported, its `outputs` hold
the messages of the whole trace.

Scores are the means in `feedback_stats` of the root, or feedback records in the same file; a correction is the right
answer. An error of LangGraph that only interrupts the graph or moves to another node is not an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from practicum.tasks.traces.exchanges import unquoted
from practicum.tasks.traces.fields import Warn, first_at, object_at, objects_in, text_at, value_at
from practicum.tasks.traces.messages import as_json
from practicum.tasks.traces.spans import (
    MODEL,
    SKIPPED,
    TOOL,
    UNFINISHED,
    SpanFormat,
    Verdict,
)  # fmt: skip

_CONTROL_FLOW = ("GraphInterrupt", "NodeInterrupt", "ParentCommand")


def _rewritten(record: Mapping[str, Any], warn: Warn) -> Mapping[str, Any]:
    """Return a run with its trace, its parent, its metadata, and its decoded inputs and outputs."""
    if "post" in record or "patch" in record:
        return {"runs": _joined([*objects_in(record, "post", warn), *objects_in(record, "patch", warn)])}
    if "run_type" not in record:
        return record
    if (record.get("inputs_s3_urls") or record.get("outputs_s3_urls")) and not record.get("inputs"):
        warn("the inputs and outputs of a run are stored outside of the file")
    # `dotted_order` joins the start and the id of each ancestor and of the run itself.
    order = [part.partition("Z")[2] for part in text_at(record, "dotted_order").split(".") if part]
    parents = record.get("parent_run_ids")
    above = [*(parents if isinstance(parents, list) else ()), *order[:-1]]
    extra, outputs = unquoted(record.get("extra")), unquoted(record.get("outputs"))
    return {
        **record,
        "trace": text_at(record, "trace_id") or next(iter([*above, *order]), "") or first_at(record, "id|run_id"),
        "parent": text_at(record, "parent_run_id") or (above[-1] if above else ""),
        "extra": extra,
        "metadata": first_at({**record, "extra": extra}, "extra/metadata|metadata|custom_metadata"),
        "outputs": outputs,
        "usage": _usage(outputs),
    }


def _joined(bodies: list[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return runs that were sent when they started, and again with their outputs when they ended."""
    runs: dict[str, dict[str, Any]] = {}
    for body in bodies:
        run = runs.setdefault(text_at(body, "id"), {})
        run |= {key: value for key, value in body.items() if key not in run or value not in (None, "", [], {})}
    return list(runs.values())


def _usage(outputs: Any) -> Any:
    """Return the token counts in the outputs of a model call."""
    generations = value_at(outputs, "generations")
    while isinstance(generations, list) and generations:
        generations = generations[0]
    return first_at(generations, "message/kwargs/usage_metadata") or first_at(outputs, "usage_metadata|usage")


def _error(row: Mapping[str, Any]) -> str:
    error = text_at(row, "error").partition("Traceback (most recent call last)")[0].strip()
    if error.startswith(_CONTROL_FLOW):
        return ""
    return error or (UNFINISHED if text_at(row, "status").lower() == "pending" else "")


def _verdicts(row: Mapping[str, Any]) -> Iterator[Verdict]:
    if "key" in row:
        trace, run, name = text_at(row, "trace_id"), text_at(row, "run_id"), text_at(row, "key")
        if correction := unquoted(row.get("correction")):
            values = list(correction.values()) if isinstance(correction, Mapping) else [correction]
            text = values[0] if len(values) == 1 and isinstance(values[0], str) else as_json(correction)
            yield Verdict(trace, run, name, expected=text)
        value, comment = first_at(row, "score|value"), text_at(row, "comment")
        if comment or value is not None:
            yield Verdict(trace, run, name, value, comment)
        return
    for name, stats in object_at(row, "feedback_stats").items():
        value = value_at(stats, "avg")
        labels = object_at(stats, "values")
        if value is None and len(labels) == 1:
            value = next(iter(labels))
        if value is not None or labels:
            yield Verdict(str(row.get("trace", "")), str(first_at(row, "id|run_id") or ""), name, value)


FORMAT = SpanFormat(
    signs=(("run_type", "dotted_order|trace_id|session_id|parent_run_id|parent_run_ids"),),
    verdict_signs=(("key", "run_id|trace_id", "score|value|comment|correction"),),
    parts=("runs", "items", "traces", "post", "patch", "child_runs"),
    inherited={"trace_id": "trace", "parent_run_id": "id|run_id"},
    rewritten=_rewritten,
    trace="trace",
    id="id|run_id",
    parent="parent",
    kind="run_type",
    kinds={"llm": MODEL, "tool": TOOL, "retriever": TOOL, "embedding": SKIPPED},
    start="start_time",
    end="end_time",
    input="inputs",
    output="outputs",
    tool="name",
    call="extra/tool_call_id",
    error=_error,
    model="metadata/ls_model_name|extra/invocation_params/model|extra/invocation_params/model_name",
    agent="metadata/lc_agent_name|name",
    tokens="total_tokens|prompt_tokens+completion_tokens|usage/total_tokens|usage/input_tokens+usage/output_tokens",
    meta={
        "session": "metadata/thread_id|metadata/session_id|metadata/conversation_id|thread_id",
        "user": "metadata/user_id", "version": "metadata/revision_id", "tags": "tags",
        "example": "reference_example_id",
    },
    verdicts=_verdicts,
)  # fmt: skip
