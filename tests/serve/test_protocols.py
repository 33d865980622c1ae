"""Requests are taken apart and put together without a change; responses are read the same, whole or as streams."""

from __future__ import annotations

import json
import re
from typing import Any

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from serving import CHAT, MESSAGES, RESPONSES, asynchronous

from practicum.core.counts import Count
from practicum.serve.protocols import (
    Insertion,
    Kind,
    Unreadable,
    read_answer,
    read_request,
    read_stream,
    with_metadata,
)
from practicum.testing import Answer, ServerOptions, serve

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
TEXTS = st.text(max_size=30)


@st.composite
def bodies(draw: st.DrawFn, kind: Kind) -> dict[str, Any]:
    """A request with anything in the places that practicum does not know."""
    parts = st.lists(
        st.fixed_dictionaries({"type": st.just("text"), "text": TEXTS}, optional={"more": JSON}), max_size=3
    )
    message = st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "system"]), "content": TEXTS | parts}, optional={"x": JSON}
    )
    conversation = "input" if kind == "responses" else "messages"
    body: dict[str, Any] = {conversation: draw(st.lists(message, max_size=5)), "tools": draw(JSON)}
    if kind == "responses" and draw(st.booleans()):
        body[conversation] = draw(TEXTS)
    system = {"chat": None, "responses": "instructions", "messages": "system"}[kind]
    if system and draw(st.booleans()):
        body[system] = draw(TEXTS)
    return body


KINDS = st.sampled_from(["chat", "responses", "messages"])


@given(data=st.data(), kind=KINDS, fixed=TEXTS, note=st.text(min_size=1, max_size=30))
def test_a_request_is_written_with_its_insertions_only_and_a_longer_one_keeps_the_digests_of_its_messages(
    data: st.DataObject, kind: Kind, fixed: str, note: str
) -> None:
    body = data.draw(bodies(kind))
    request = read_request(kind, json.dumps(body).encode())
    assert json.loads(request.write("", {})) == body
    changed = json.loads(request.write(fixed, {place: Insertion(note) for place, _ in request.points}))
    assert changed["tools"] == body["tools"]
    conversation = "input" if kind == "responses" else "messages"
    before, after = body[conversation], changed[conversation]
    if isinstance(before, str):
        assert after in (before, f"{note}\n\n{before}")
        return
    # A system message may have come first.
    after = after[len(after) - len(before) :]
    users = {place for place, _ in request.points}
    for place, (old, new) in enumerate(zip(before, after, strict=True)):
        assert {k: v for k, v in old.items() if k != "content"} == {k: v for k, v in new.items() if k != "content"}
        if place in users:
            content = new["content"]
            texts = [content] if isinstance(content, str) else [part["text"] for part in content]
            assert any(text.startswith(note) for text in texts)
        elif old["role"] != "system":
            assert new == old
    longer = {**body, conversation: [*before, {"role": "user", "content": "And now?"}]}
    points = read_request(kind, json.dumps(longer).encode()).points
    assert points[:-1] == request.points
    assert len({digest for _, digest in points}) == len(points)


@given(st.binary(max_size=60) | JSON.map(lambda value: json.dumps(value).encode()), KINDS)
def test_any_bytes_are_read_or_refused(body: bytes, kind: Kind) -> None:
    try:
        request = read_request(kind, body)
    except Unreadable:
        return
    assert json.loads(request.write("", {})) is not None


@given(st.binary(max_size=80) | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_response_is_read_or_not_of_the_protocol(body: bytes) -> None:
    for read in (read_answer(body), read_stream(body), read_stream(b"data: " + body)):
        assert read is None or isinstance(read.text, str)
    assert with_metadata(b"not json", {"a": "b"}) == b"not json"


CALL = {"name": "look_up", "arguments": {"card": "lost"}}


@pytest.mark.parametrize("answer", ["A text\nof lines, \u00e9\U0001f600.", CALL], ids=["text", "call"])
@pytest.mark.parametrize("path", [CHAT, RESPONSES, MESSAGES])
@asynchronous
async def test_a_stream_is_read_as_the_whole_response(path: str, answer: Answer) -> None:
    asked = {"messages": [{"role": "user", "content": "?"}], "max_tokens": 9} if path != RESPONSES else {"input": "?"}
    body = {"model": "m", **asked}
    options = ServerOptions(responder=lambda _: answer, chunks=7)
    async with serve(options) as at, aiohttp.ClientSession() as http:
        url = at.url.removesuffix("/v1") + path
        async with http.post(url, json=body) as response:
            whole = read_answer(await response.read())
        async with http.post(url, json={**body, "stream": True, "stream_options": {"include_usage": True}}) as response:
            stream = read_stream(await response.read())
    assert whole is not None
    assert stream is not None
    assert (stream.text, stream.input_tokens, stream.output_tokens) == (
        whole.text, whole.input_tokens, whole.output_tokens
    )  # fmt: skip
    assert whole.output_tokens > 0
    for one in (whole, stream):
        if isinstance(answer, str):
            assert one.text == answer
        else:
            assert [(name, json.loads(text)) for name, text in one.calls] == [("look_up", {"card": "lost"})]
    kinds = [re.split("[-_]", one.id)[0] for one in (whole, stream)]
    assert kinds == [{CHAT: "chatcmpl", RESPONSES: "resp", MESSAGES: "msg"}[path]] * 2


# Answers without text


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


THINKING = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Eagle?"}], "content": []}
LIMIT, FILTER = {"reason": "max_output_tokens"}, {"reason": "content_filter"}
SILENT: list[tuple[dict[str, Any] | bytes, Count]] = [
    (chat(content=None), Count.EMPTY_ANSWERS),
    (chat(content="<think>Eagle?"), Count.UNSAID_THOUGHTS),
    (chat(content=None, reasoning_content="Eagle?"), Count.UNSAID_THOUGHTS),
    (chat("length", content=None, reasoning="Eagle?"), Count.SILENT_CUTS),
    (chat(content=None, refusal="No."), Count.REFUSED_ANSWERS),
    (chat("content_filter", content="Fal"), Count.FILTERED_ANSWERS),
    (claude(stop="refusal"), Count.REFUSED_ANSWERS),
    (claude({"type": "thinking", "thinking": "Eagle?"}, stop="max_tokens"), Count.SILENT_CUTS),
    (response({"type": "message", "content": [{"type": "refusal", "refusal": "No."}]}), Count.REFUSED_ANSWERS),
    (response(THINKING, status="incomplete", incomplete_details=LIMIT), Count.SILENT_CUTS),
    (response(status="incomplete", incomplete_details=FILTER), Count.FILTERED_ANSWERS),
    (chunks("stop", {"refusal": "No."}), Count.REFUSED_ANSWERS),
    (chunks("length", {"reasoning": "Eagle?"}), Count.SILENT_CUTS),
    (sse({"type": "message_delta", "delta": {"stop_reason": "refusal"}}, {"type": "message_stop"}),
     Count.REFUSED_ANSWERS),
    (sse({"type": "response.incomplete", "response": response(THINKING, incomplete_details=LIMIT)}),
     Count.SILENT_CUTS),
]  # fmt: skip


def test_an_answer_that_says_nothing_has_a_kind() -> None:
    for body, kind in SILENT:
        answer = read_stream(body) if isinstance(body, bytes) else read_answer(json.dumps(body).encode())
        assert (body, answer and answer.silence) == (body, kind)
