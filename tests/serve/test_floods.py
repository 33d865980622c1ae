"""Floods from either side: large bodies pass unread, stored texts are bounded, and only wrong rows are lost."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from serving import CHAT, RESPONSES, Place, asynchronous, served, serving
from users import stored

from practicum.serve import protocols
from practicum.serve.protocols import MOST_TEXT, StreamReader

MB = 2**20
QUESTION = "Which team handles lost cards?"
Send = Callable[[Any], Awaitable[None]]
JSON, EVENTS = b"application/json", b"text/event-stream"


@asynccontextmanager
async def answering(kind: bytes, *parts: bytes, length: int | None = None) -> AsyncIterator[str]:
    """The address of an upstream that answers everything with these parts. With a length that is not theirs the answer
    breaks off."""

    async def upstream(scope: Any, receive: Any, send: Send) -> None:
        while (await receive()).get("more_body"):
            pass
        headers = [(b"content-type", kind)] + ([(b"content-length", b"%d" % length)] if length else [])
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for part in parts:
            await send({"type": "http.response.body", "body": part, "more_body": True})
        if length is None:
            await send({"type": "http.response.body", "body": b""})

    async with serving(upstream) as url:
        yield f"{url}/v1"


def delta(**message: Any) -> bytes:
    return b"data: " + json.dumps({"choices": [{"delta": message}]}).encode() + b"\n\n"


def whole(text: str) -> bytes:
    return json.dumps({"id": "r1", "choices": [{"message": {"role": "assistant", "content": text}}]}).encode()


# Answers


@asynchronous
async def test_an_event_that_is_too_large_passes_unread_and_later_events_are_read(tmp_path: Path) -> None:
    large = b'data: {"type": "x", "response": {"metadata": {}}, "choices": "' + b"a" * (3 * MB // 2) + b'"}\n\n'
    parts = [delta(content="before"), large[:MB], large[MB:], delta(content=" after"), b"data: [DONE]\n\n"]
    async with answering(EVENTS, *parts) as address, served(tmp_path, address=address, max_read=1) as at:
        for path in (CHAT, RESPONSES):
            asked = {"messages": [{"role": "user", "content": QUESTION}], "input": QUESTION, "stream": True}
            assert (await at.send("POST", path, asked)).body == b"".join(parts)
        assert [row["answer"] for row in await stored(at)] == ["before after"] * 2
        assert at.service.counts["unread_answers"] == 2


@pytest.mark.slow
def test_a_stream_without_an_end_takes_no_memory() -> None:
    reader, text, event = StreamReader(MB), delta(content="a" * 100) * 100, b"data: " + b"a" * 2**16
    calls = delta(tool_calls=[{"function": {"name": "f", "arguments": "a" * 100}}])
    reader.take(text)
    tracemalloc.start()
    for _ in range(120):
        reader.take(text)
        reader.take(calls * 100)
    for _ in range(120):
        reader.take(event)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 6 * MB
    answer = reader.end()
    assert answer is not None
    assert answer.text == "a" * MOST_TEXT
    assert (len(answer.calls), answer.unread) == (protocols.MOST_CALLS, True)


# Requests


@asynchronous
async def test_a_continuation_that_is_too_large_to_be_checked_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocols, "MOST_VALUES", 1_000)
    key, many = "k" * 16, b",".join(b"1" for _ in range(1_002))
    async with served(tmp_path, keys=(f"default={key}",)) as at:
        headers = {"authorization": f"Bearer {key}"}
        body = b'{"input": [%s], "previous_response_id": "r"}' % many
        assert (await at.send("POST", RESPONSES, body, headers)).status == 413
        body = body.replace(b"previous_response_id", b"x")
        assert (await at.send("POST", RESPONSES, body, headers)).status == 200
        assert [one.body for one in at.upstream.requests] == [body]


@asynchronous
async def test_the_memory_of_requests_in_progress_has_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("practicum.serve.call.MOST_HELD", 2_000)
    async with answering(JSON, whole("a" * 3_000)) as address, served(tmp_path, address=address) as at:
        refused = await at.ask("a" * 3_000)
        assert (refused.status, at.service.counts["refused_requests"]) == (429, 1)
        assert int(refused.headers["retry-after"]) > 0
        for n in range(1, 3):
            # The memory is free again, after a refusal and after an answer that did not fit.
            assert (await at.ask(QUESTION)).body == whole("a" * 3_000)
            assert at.service.counts["oversized_answers"] == n
        assert [row["answer"] for row in await stored(at)] == ["", ""]


# Stored texts


@pytest.mark.slow
@asynchronous
async def test_every_text_of_an_interaction_has_a_bound(place: Place) -> None:
    long = "ab" * MOST_TEXT
    calls = [{"id": "c", "type": "function", "function": {"name": long, "arguments": long}}] * 60
    message = {"role": "assistant", "content": long, "reasoning_content": long, "tool_calls": calls}
    answer = json.dumps({"id": long, "model": long, "choices": [{"message": message, "finish_reason": long}]}).encode()
    steps = [{"role": "assistant", "content": long, "tool_calls": calls[:1]}, {"role": "tool", "content": long}] * 20
    async with answering(JSON, answer) as address, served(**place, address=address) as at:
        asked = {"model": long, "messages": [{"role": "user", "content": long}, *steps], "user": long}
        assert (await at.send("POST", CHAT, asked)).status == 200
        assert (await at.send("POST", "/v1/context", {"input": long})).status == 200
        row, context = await stored(at)
        assert row["model"] == long[: protocols.MOST_NAME]
        assert row["response"] is None
        assert max(len(row[name]) for name in ("query", "question", "answer", "thoughts")) <= MOST_TEXT
        assert max(len(context[name]) for name in ("query", "question")) <= MOST_TEXT
        assert [(len(name), len(arguments)) for name, arguments in row["calls"]] == [(200, MOST_TEXT)] * 50
        assert {len(text) for _, text in row["steps"]} == {MOST_TEXT}
        assert len(row["steps"]) == protocols.MOST_STEPS
        assert (at.service.database.writer.lost, at.service.counts["failed_open"]) == (0, 0)


ODD = ["a\0b", "a\ud800b", "\udc00", "a\x1ab", "\ud83d\ude00"]


def odd_answer(odd: str, stream: bool) -> bytes:
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": odd, "arguments": odd}}
    message = {"role": "assistant", "content": odd, "reasoning_content": odd, "tool_calls": [call]}
    choice = {"index": 0, "delta" if stream else "message": message, "finish_reason": odd}
    raw = json.dumps({"id": odd, "model": odd, "choices": [choice]}).encode()
    return b"data: " + raw + b"\n\ndata: [DONE]\n\n" if stream else raw


@asynchronous
async def test_characters_that_a_database_cannot_store_lose_nothing(place: Place) -> None:
    tried = [(odd, stream) for stream in (False, True) for odd in ODD]
    answers = iter(tried)

    async def upstream(scope: Any, receive: Any, send: Send) -> None:
        odd, stream = next(answers)
        headers = [(b"content-type", EVENTS if stream else JSON)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": odd_answer(odd, stream)})

    async with serving(upstream) as url, served(**place, address=f"{url}/v1") as at:
        for odd, stream in tried:
            asked = {
                "model": odd, "user": odd, "conversation": odd, "metadata": {"session_id": odd}, "stream": stream,
                "messages": [
                    {"role": "user", "content": [{"type": "text", "text": f"Is it {odd}?"}]},
                    {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": odd}}]},
                    {"role": "tool", "content": odd},
                ],
            }  # fmt: skip
            reply = await at.send("POST", CHAT, json.dumps(asked).encode())
            assert reply.status == 200
            report = await at.report(interaction=reply.interaction, target="a\0b", comment="c\0")
            assert report.json["status"] == "kept"
        rows = await stored(at)
        assert [row["answer"] for row in rows] == ["a\0b", "a\ufffdb", "\ufffd", "a\x1ab", "\U0001f600"] * 2
        assert rows[1]["query"] == rows[6]["query"] == "Is it a\ufffdb?"
        assert [len(row["steps"]) for row in rows] == [2] * len(tried)
        counts, lost = at.service.counts, at.service.database.writer.lost
        assert (lost, counts["refused_rows"], counts["failed_open"], counts["unread_requests"]) == (0,) * 4
        for name in ("interaction", "session"):
            assert (await at.report(**{name: "x\0y"}, score=1.0)).status == 404
