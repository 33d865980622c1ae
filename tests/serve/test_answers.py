"""What a model answers behind the proxy: thoughts are no answer, and an answer without text is not a wrong one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from serving import Served, asynchronous, served

from practicum.core.counts import Count
from practicum.serve import tables
from practicum.serve.protocols import read_answer, read_stream
from practicum.testing import BEHAVIOURS, ServerOptions, serve


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


TEXT = {"type": "output_text", "text": "Falcon"}
THINKING = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Eagle?"}], "content": []}
LIMIT = {"reason": "max_output_tokens"}
FILTER = {"reason": "content_filter"}

SAID = [
    chat(content="<think>Eagle?</think>\n\nFalcon"),
    chat(content="Eagle?</think>Falcon"),
    chat(content="Falcon", reasoning_content="Eagle?"),
    chat(content="Falcon", reasoning="Eagle?"),
    chat(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "Eagle?"}]},
                  {"type": "text", "text": "Falcon"}]),
    claude({"type": "thinking", "thinking": "Eagle?"}, {"type": "text", "text": "Falcon"}),
    response(THINKING, message(TEXT)),
    chunks("stop", {"content": "<thi"}, {"content": "nk>Eagle?</th"}, {"content": "ink>\n\nFal"}, {"content": "con"}),
    chunks("stop", {"reasoning_content": "Eag"}, {"reasoning_content": "le?"}, {"content": "Falcon"}),
    sse(
        {"type": "content_block_delta", "delta": {"type": "thinking_delta", "thinking": "Eagle?"}},
        {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "Falcon"}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}, {"type": "message_stop"},
    ),
    sse({"type": "response.completed", "response": response(THINKING, message(TEXT))}),
]  # fmt: skip

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


@pytest.mark.parametrize("body", SAID)
def test_an_answer_is_read_without_its_thoughts(body: dict[str, Any] | bytes) -> None:
    answer = read(body)
    assert (answer.text, answer.thoughts, answer.silence) == ("Falcon", "Eagle?", None)


@pytest.mark.parametrize(("body", "kind"), SILENT)
def test_an_answer_that_says_nothing_has_a_kind(body: dict[str, Any] | bytes, kind: Count) -> None:
    assert read(body).silence == kind


def test_a_call_of_a_tool_says_something_and_so_may_what_is_not_whole() -> None:
    call = {"function": {"name": "ls", "arguments": "{}"}}
    assert read(chat("tool_calls", content=None, tool_calls=[call])).silence is None
    assert read(sse({"choices": [{"index": 0, "delta": {"content": ""}}]})).silence is None


def test_long_thoughts_leave_room_for_the_answer() -> None:
    assert read(chat(content=f"<think>{'hm ' * 20_000}</think>Falcon")).text == "Falcon"


def kept(on: Served, interaction: str) -> dict[str, Any]:
    t = tables.interactions
    on.service.log.do(lambda db: None).result()
    (row,) = on.service.log.rows(t.select().where(t.c.id == interaction))
    found: dict[str, Any] = json.loads(row.data)
    return found


@pytest.mark.parametrize("behaviour", ["thoughts-unclosed", "only-reasoning-content", "empty", "refusal", "filtered"])
@asynchronous
async def test_an_answer_that_says_nothing_is_counted_and_not_scored_and_its_correction_holds(
    tmp_path: Path, behaviour: str
) -> None:
    assert behaviour in BEHAVIOURS
    options = ServerOptions(behaviours=[(behaviour, 1)], responder=lambda body: "Falcon")
    async with serve(options) as model, served(tmp_path, address=model.url) as on:
        reply = await on.ask("Which team?", model="sim")
        silence = kept(on, reply.interaction)["silence"]
        metrics = (await on.send("GET", "/metrics")).body.decode()
        assert f"practicum_{silence}_total 1.0" in metrics
        told = (await on.report(interaction=reply.interaction, target="Falcon")).json
        assert (told["score"], told["correction"]) == (None, "in effect")
        # Unless the answer was given elsewhere.
        told = (await on.report(interaction=reply.interaction, answer="<think>hm</think>Falcon")).json
        assert told["score"] == 1.0
