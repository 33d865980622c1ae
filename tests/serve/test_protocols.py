"""Requests are taken apart and put together without a change; responses are read the same, whole or as streams."""

from __future__ import annotations

import json
from typing import Any

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


@given(data=st.data(), kind=KINDS)
def test_nothing_changes_where_nothing_is_put_in(data: st.DataObject, kind: Kind) -> None:
    body = data.draw(bodies(kind))
    raw = json.dumps(body).encode()
    assert json.loads(read_request(kind, raw).write("", {})) == body


@given(data=st.data(), kind=KINDS, fixed=TEXTS, note=st.text(min_size=1, max_size=30))
def test_insertions_change_no_other_value(data: st.DataObject, kind: Kind, fixed: str, note: str) -> None:
    body = data.draw(bodies(kind))
    request = read_request(kind, json.dumps(body).encode())
    changed = json.loads(request.write(fixed, {place: Insertion(note) for place, _ in request.points}))
    conversation = "input" if kind == "responses" else "messages"
    before, after = body[conversation], changed[conversation]
    if isinstance(before, str):
        assert after in (before, f"{note}\n\n{before}")
    else:
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
    assert changed["tools"] == body["tools"]


@given(data=st.data(), kind=KINDS)
def test_a_conversation_that_goes_on_keeps_the_digests_of_its_messages(data: st.DataObject, kind: Kind) -> None:
    body = data.draw(bodies(kind))
    conversation = "input" if kind == "responses" else "messages"
    if isinstance(body[conversation], str):
        return
    more = {**body, conversation: [*body[conversation], {"role": "user", "content": "And now?"}]}
    before = read_request(kind, json.dumps(body).encode()).points
    after = read_request(kind, json.dumps(more).encode()).points
    assert after[:-1] == before
    assert len({digest for _, digest in after}) == len(after)


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
    import aiohttp

    text = {"messages": [{"role": "user", "content": "?"}], "input": "?", "max_tokens": 9, "model": "m"}
    body = {name: value for name, value in text.items() if (name == "input") == (path == RESPONSES) or name == "model"}
    options = ServerOptions(responder=lambda _: answer, chunks=7)
    async with serve(options) as at, aiohttp.ClientSession() as http:
        url = at.url.removesuffix("/v1") + path
        async with http.post(url, json=body) as response:
            whole = read_answer(await response.read())
        async with http.post(url, json={**body, "stream": True, "stream_options": {"include_usage": True}}) as response:
            stream = read_stream(await response.read())
    assert whole is not None
    assert stream is not None
    assert stream.text == whole.text
    assert (stream.input_tokens, stream.output_tokens) == (whole.input_tokens, whole.output_tokens)
    assert whole.output_tokens > 0
    for one in (whole, stream):
        if isinstance(answer, str):
            assert one.text == answer
        else:
            assert [(name, json.loads(text)) for name, text in one.calls] == [("look_up", {"card": "lost"})]
    assert whole.id
    assert stream.id
    assert whole.id.partition("_")[0].partition("-")[0] == stream.id.partition("_")[0].partition("-")[0]


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


def output(*parts: dict[str, Any]) -> dict[str, Any]:
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
    (response(output({"type": "refusal", "refusal": "No."})), Count.REFUSED_ANSWERS),
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
