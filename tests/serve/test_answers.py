"""An answer without text behind the proxy has a kind."""

from __future__ import annotations

import json
from typing import Any

import pytest

from practicum.core.counts import Count
from practicum.serve.protocols import read_answer, read_stream


def sse(*events: Any) -> bytes:
    return b"".join(f"data: {json.dumps(event)}\n\n".encode() for event in events)


def chat(finish: str = "stop", **message: Any) -> dict[str, Any]:
    return {"id": "c", "choices": [{"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}]}


def chunks(finish: str, *deltas: dict[str, Any]) -> bytes:
    events = [{"id": "c", "choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    return sse(*events, {"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})


def claude(*blocks: dict[str, Any], stop: str = "end_turn") -> dict[str, Any]:
    return {"id": "m", "type": "message", "content": [*blocks], "stop_reason": stop}


def response(*output: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"id": "r", "object": "response", "status": "completed", "output": [*output], **more}


def message(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"type": "message", "content": [*parts]}


THINKING = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Eagle?"}], "content": []}
LIMIT = {"reason": "max_output_tokens"}
FILTER = {"reason": "content_filter"}


SILENT = [
    (chat(content=""), Count.EMPTY_ANSWERS),
    (chat(content=None), Count.EMPTY_ANSWERS),
    (chat(content="<think>Eagle?"), Count.UNSAID_THOUGHTS),
    (chat(content=None, reasoning_content="Eagle?"), Count.UNSAID_THOUGHTS),
    (chat("length", content="<think>Eagle?"), Count.SILENT_CUTS),
    (chat("length", content=None, reasoning="Eagle?"), Count.SILENT_CUTS),
    (chat(content=None, refusal="No."), Count.REFUSED_ANSWERS),
    (chat("content_filter", content="Fal"), Count.FILTERED_ANSWERS),
    (claude(stop="refusal"), Count.REFUSED_ANSWERS),
    (claude({"type": "thinking", "thinking": "Eagle?"}, stop="max_tokens"), Count.SILENT_CUTS),
    (response(message({"type": "refusal", "refusal": "No."})), Count.REFUSED_ANSWERS),
    (response(THINKING, status="incomplete", incomplete_details=LIMIT), Count.SILENT_CUTS),
    (response(status="incomplete", incomplete_details=FILTER), Count.FILTERED_ANSWERS),
    (chunks("stop", {"refusal": "No."}), Count.REFUSED_ANSWERS),
    (chunks("length", {"reasoning": "Eagle?"}), Count.SILENT_CUTS),
    (sse({"type": "message_delta", "delta": {"stop_reason": "refusal"}}, {"type": "message_stop"}),
     Count.REFUSED_ANSWERS),
    (sse({"type": "response.incomplete", "response": response(THINKING, incomplete_details=LIMIT)}),
     Count.SILENT_CUTS),
]  # fmt: skip


def read(body: dict[str, Any] | bytes) -> Any:
    return read_stream(body) if isinstance(body, bytes) else read_answer(json.dumps(body).encode())


@pytest.mark.parametrize(("body", "kind"), SILENT)
def test_an_answer_that_says_nothing_has_a_kind(body: dict[str, Any] | bytes, kind: Count) -> None:
    assert read(body).silence == kind
