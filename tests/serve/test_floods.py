"""Floods from either side: what is too large passes unread, what is kept is bounded, what is wrong is lost alone."""

from __future__ import annotations

import asyncio
import json
import threading
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from serving import CHAT, MESSAGES, RESPONSES, Place, Served, asynchronous, served, serving, until
from sqlalchemy import make_url, select

from practicum.serve import app, log, protocols, service, space, tables
from practicum.serve.bounded import Bounded
from practicum.serve.identities import add_space
from practicum.serve.log import Database, FolderDatabase, Log
from practicum.serve.protocols import MOST_TEXT, StreamReader, read_answer, read_request, read_stream

MB = 2**20
QUESTION, RIGHT = "Which team handles lost cards?", "the blue team"
Send = Callable[[Any], Awaitable[None]]
JSON, EVENTS = b"application/json", b"text/event-stream"


@asynccontextmanager
async def answering(kind: bytes, parts: Iterable[bytes], go: asyncio.Event | None = None) -> AsyncIterator[str]:
    """The address of an upstream that answers everything with these parts, and waits for `go` before the last one."""

    async def upstream(scope: Any, receive: Any, send: Send) -> None:
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]})
        *first, last = parts
        for part in first:
            await send({"type": "http.response.body", "body": part, "more_body": True})
        if go is not None:
            await go.wait()
        await send({"type": "http.response.body", "body": last})

    async with serving(upstream) as url:
        yield f"{url}/v1"


def delta(text: str, **more: Any) -> bytes:
    return b"data: " + json.dumps({"choices": [{"index": 0, "delta": {"content": text}}], **more}).encode() + b"\n\n"


def whole(text: str = "Fine.", **more: Any) -> bytes:
    message = {"role": "assistant", "content": text}
    return json.dumps({"id": "r1", "choices": [{"index": 0, "message": message}], **more}).encode()


async def kept(at: Served) -> list[dict[str, Any]]:
    """The stored interactions, the oldest first."""
    await asyncio.wrap_future(at.service.log.do(lambda db: None))
    i = tables.interactions
    return [
        {**row._mapping, **json.loads(row.data)}
        for row in at.service.log.rows(select(i).where(i.c.run_id == at.service.spaces["default"].id).order_by(i.c.id))
    ]


# Answers


@asynchronous
async def test_an_answer_that_is_too_large_and_breaks_off_is_not_taken_for_whole(tmp_path: Path) -> None:
    async def upstream(scope: Any, receive: Any, send: Send) -> None:
        headers = [(b"content-type", JSON), (b"content-length", b"3000000")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"a" * 2_000_000, "more_body": True})

    async with serving(upstream) as url, served(tmp_path, address=f"{url}/v1", max_read=1) as at:
        with pytest.raises(aiohttp.ClientError):
            await at.ask(QUESTION)
        await until(lambda: at.service.counts["upstream failures"])


@pytest.mark.parametrize("stream", [True, False])
@asynchronous
async def test_a_long_stream_is_read_to_its_end_whatever_it_is_called(stream: bool, tmp_path: Path) -> None:
    usage = {"prompt_tokens": 7, "completion_tokens": 3}
    parts = [delta("abcdefgh") * 1_000 for _ in range(30)] + [delta("", usage=usage) + b"data: [DONE]\n\n"]
    async with answering(EVENTS, parts) as address, served(tmp_path, address=address, max_read=1) as at:
        reply = await at.ask(QUESTION, stream=stream)
        assert reply.body == b"".join(parts)
        assert len(reply.body) > MB
        ((row),) = await kept(at)
        assert row["answer"] == ("abcdefgh" * 30_000)[:MOST_TEXT]
        assert row["tokens"] == [7, 0, 3]
        assert not at.service.counts["unread answers"]


@pytest.mark.parametrize("path", [CHAT, RESPONSES])
@asynchronous
async def test_an_event_that_is_too_large_passes_unread_and_those_after_it_are_read(path: str, tmp_path: Path) -> None:
    large = b'data: {"type": "x", "response": {"metadata": {}}, "choices": "' + b"a" * (3 * MB // 2) + b'"}\n\n'
    parts = [delta("before"), large[:MB], large[MB:], delta(" after"), b"data: [DONE]\n\n"]
    async with answering(EVENTS, parts) as address, served(tmp_path, address=address, max_read=1) as at:
        asked = {"messages": [{"role": "user", "content": QUESTION}], "input": QUESTION, "stream": True}
        reply = await at.send("POST", path, asked)
        assert reply.body == b"".join(parts)
        ((row),) = await kept(at)
        assert row["answer"] == "before after"
        assert at.service.counts["unread answers"] == 1


@asynchronous
async def test_many_events_at_once_are_read_in_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken, take = list[int](), StreamReader.take
    monkeypatch.setattr(StreamReader, "take", lambda self, data: (taken.append(len(data)), take(self, data)))
    parts = [b"data: {}\n\n" * 50_000, delta("Fine."), b"data: [DONE]\n\n"]
    async with answering(EVENTS, parts) as address, served(tmp_path, address=address) as at:
        await at.ask(QUESTION, stream=True)
        ((row),) = await kept(at)
    assert row["answer"] == "Fine."
    assert max(taken) <= app.SLICE


def test_a_stream_without_an_end_takes_no_memory() -> None:
    reader, text, event = StreamReader(MB), delta("a" * 100) * 100, b"data: " + b"a" * 2**16
    call = {"tool_calls": [{"function": {"name": "f", "arguments": "a" * 100}}]}
    calls = b"data: " + json.dumps({"choices": [{"delta": call}]}).encode() + b"\n\n"
    reader.take(text)
    tracemalloc.start()
    for _ in range(300):
        reader.take(text)
        reader.take(calls * 100)
    for _ in range(300):
        reader.take(event)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 * MB
    answer = reader.end()
    assert answer is not None
    assert answer.text == "a" * MOST_TEXT
    assert (len(answer.calls), answer.unread) == (protocols.MOST_CALLS, True)


@given(st.data())
@settings(max_examples=60)
def test_a_stream_is_read_alike_however_it_is_cut(data: st.DataObject) -> None:
    ends = st.sampled_from([b"\n\n", b"\r\n\r\n", b"\r\r"])
    lines = st.sampled_from(
        [delta("ab ").strip(), delta("é").strip(), b": ping", b"event: x", b"data: {oops", b"data: 1"]
    )
    stream = b"".join(data.draw(lines) + data.draw(ends) for _ in range(data.draw(st.integers(0, 8))))
    reader, rest = StreamReader(), stream
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        reader.take(rest[:size])
        rest = rest[size:]
    assert reader.end() == read_stream(stream)


# Requests


def conversation(size: int) -> dict[str, Any]:
    """A chat of a coding agent, whose last message is QUESTION."""
    code = json.dumps({"lines": [f"def f{n}(x): return [x, {n}]" for n in range(60)]})
    call = {"id": "c", "type": "function", "function": {"name": "read", "arguments": '{"path": "a.py"}'}}
    turn = [
        {"role": "user", "content": "Go on."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": code},
    ]
    turns = size // len(json.dumps(turn))
    return {"messages": [*turn * turns, {"role": "user", "content": QUESTION}]}


@asynchronous
async def test_a_long_conversation_is_read_and_changed_in_another_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = list[int]()

    def reading(*given: Any) -> Any:
        threads.append(threading.get_ident())
        return read_request(*given)

    monkeypatch.setattr(app, "read_request", reading)
    async with served(tmp_path) as at:
        first = await at.ask(QUESTION)
        await at.report(interaction=first.interaction, target=RIGHT)
        reply = await at.send("POST", CHAT, conversation(2 * MB))
        assert reply.status == 200
        assert RIGHT in at.upstream.requests[-1].json()["messages"][-1]["content"]
        assert (await kept(at))[-1]["question"] == QUESTION
        assert not at.service.counts["unread requests"]
    assert threads[0] == threading.get_ident() != threads[1]


@asynchronous
async def test_what_cannot_be_checked_for_what_it_goes_on_from_is_refused(tmp_path: Path) -> None:
    many = b",".join(b"1" for _ in range(protocols.MOST_VALUES + 2))
    key = "k" * 16
    async with served(tmp_path, keys=(f"default={key}",)) as at:
        headers = {"authorization": f"Bearer {key}"}
        body = b'{"input": [%s], "previous_response_id": "r"}' % many
        assert (await at.send("POST", RESPONSES, body, headers)).status == 413
        body = body.replace(b"previous_response_id", b"x")
        assert (await at.send("POST", RESPONSES, body, headers)).status == 200
        assert [one.body for one in at.upstream.requests] == [body]


@asynchronous
async def test_all_that_is_under_way_has_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("practicum.serve.call.MOST_HELD", 2_000)
    async with answering(JSON, [whole("a" * 3_000)]) as address, served(tmp_path, address=address) as at:
        refused = await at.ask("a" * 3_000)
        assert (refused.status, at.service.counts["refused requests"]) == (429, 1)
        assert int(refused.headers["retry-after"]) > 0
        for n in range(1, 3):
            # What was held is free again, after a refusal and after an answer that did not fit.
            assert (await at.ask(QUESTION)).body == whole("a" * 3_000)
            assert at.service.counts["oversized answers"] == n
        assert [row["answer"] for row in await kept(at)] == ["", ""]


# What is kept


@asynchronous
async def test_every_text_of_an_interaction_has_a_bound(place: Place) -> None:
    long = "ab" * MOST_TEXT
    calls = [{"id": "c", "type": "function", "function": {"name": long, "arguments": long}}] * 60
    message = {"role": "assistant", "content": long, "reasoning_content": long, "tool_calls": calls}
    answer = json.dumps({"id": long, "model": long, "choices": [{"message": message, "finish_reason": long}]}).encode()
    steps = [{"role": "assistant", "content": long, "tool_calls": calls[:1]}, {"role": "tool", "content": long}] * 20
    async with answering(JSON, [b"", answer]) as address, served(**place, address=address) as at:
        asked = {"model": long, "messages": [{"role": "user", "content": long}, *steps], "user": long}
        assert (await at.send("POST", CHAT, asked)).status == 200
        assert (await at.send("POST", "/v1/context", {"input": long})).status == 200
        row, context = await kept(at)
        assert row["model"] == long[: protocols.MOST_NAME]
        assert row["response"] is None
        assert max(len(row[name]) for name in ("query", "question", "answer", "thoughts")) <= MOST_TEXT
        assert max(len(context[name]) for name in ("query", "question")) <= MOST_TEXT
        assert [(len(name), len(arguments)) for name, arguments in row["calls"]] == [(200, MOST_TEXT)] * 50
        assert {len(text) for _, text in row["steps"]} == {MOST_TEXT}
        assert len(row["steps"]) == protocols.MOST_STEPS
        assert (at.service.log.lost, at.service.counts["failed open"]) == (0, 0)


@asynchronous
async def test_what_memory_forgets_is_found_in_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "RECENT_BYTES", 20_000)
    monkeypatch.setattr(space, "POINTS_BYTES", 20_000)
    async with served(tmp_path) as at:
        asked = [await at.ask(f"{n} " + "a" * 5_000) for n in range(9)]
        assert 0 < at.service.recent.bytes <= 20_000
        assert 0 < at.service.spaces["default"]._points.bytes <= 20_000
        told = await at.report(interaction=asked[0].interaction, target=RIGHT)
        assert (told.status, told.json["status"]) == (200, "kept")


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 40))))
def test_what_is_bounded_keeps_the_newest_values_that_fit(puts: list[tuple[str, int]]) -> None:
    known, expected = Bounded[int](3, 50), dict[str, int]()
    for key, size in puts:
        known.put(key, size, size)
        expected.pop(key, None)
        expected[key] = size
        while len(expected) > 3 or sum(expected.values()) > 50:
            del expected[next(iter(expected))]
        assert known.items() == [*expected.items()]
        assert (len(known), known.bytes) == (len(expected), sum(expected.values()))


def waiting(opened: Log) -> tuple[threading.Event, Any]:
    """Let the thread of a log wait, so that all rows that are added then are written with one transaction."""
    begun, goes_on = threading.Event(), threading.Event()
    done = opened.do(lambda db: (begun.set(), goes_on.wait(30)))
    assert begun.wait(30)
    return goes_on, done


def made(opened: Log) -> str:
    """The identity of a live space of a log."""
    return str(opened.do(lambda db: add_space(db, "s", "live").run_id).result(30))


def alarm(id: str, number: int, text: str = "t") -> dict[str, Any]:
    return {"run_id": id, "number": number, "at": 0.0, "kind": "k", "text": text}


def test_rows_that_wait_have_a_bound_in_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "UNWRITTEN_BYTES", 50_000)
    opened = Log(FolderDatabase(tmp_path))
    try:
        id = made(opened)
        goes_on, _ = waiting(opened)
        for number in range(10):
            opened.post(tables.alarms, alarm(id, number, "a" * 10_000))
        assert (opened.unwritten, opened.lost) == (4, 6)
        goes_on.set()
        opened.do(lambda db: None).result(30)
        assert [row.number for row in opened.rows(select(tables.alarms.c.number))] == [6, 7, 8, 9]
    finally:
        opened.close()


# Numbers and characters


NUMBERS = [9223372036854775807, 10**30, 10**9 + 1, -1, 1.5, 120.0, True, "120", [], {}, float("nan"), float("inf")]


@asynchronous
async def test_numbers_that_cannot_be_right_count_as_unknown_and_lose_nothing(place: Place) -> None:
    usages = [{"prompt_tokens": 5, "completion_tokens": number} for number in NUMBERS]
    usages += [{"prompt_tokens": 5, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": -3}}] * 20
    given = iter(usages)

    async def upstream(scope: Any, receive: Any, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", JSON)]})
        await send({"type": "http.response.body", "body": whole(usage=next(given))})

    async with serving(upstream) as url, served(**place, address=f"{url}/v1") as at:
        for n in range(len(usages)):
            assert (await at.ask(f"Question {n}?")).status == 200
        rows = await kept(at)
        assert [row["tokens"] for row in rows] == [[5, 0, 0]] * len(NUMBERS) + [[5, 0, 2]] * 20
        assert at.service.counts["wrong numbers"] == len(usages)
        assert (at.service.log.lost, at.service.counts["unread answers"]) == (0, 0)
        ((written,),) = at.service.log.rows(select(tables.hours.c.output_tokens))
        assert written == 40
        assert "practicum_wrong_numbers_total 32.0" in (await at.send("GET", "/metrics")).body.decode()


@pytest.mark.parametrize("path", [CHAT, "/v1/embeddings"])
@asynchronous
async def test_a_status_that_http_lacks_is_a_failure_of_the_upstream(path: str, tmp_path: Path) -> None:
    statuses = [b"000", b"099", b"600", b"999"]
    left = iter(statuses)

    async def upstream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 %s X\r\ncontent-length: 2\r\n\r\n{}" % next(left))
        writer.close()

    server = await asyncio.start_server(upstream, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, served(tmp_path, address=f"http://127.0.0.1:{port}/v1") as at:
        for _ in statuses:
            assert (await at.send("POST", path, {"messages": [{"role": "user", "content": QUESTION}]})).status == 502
        assert (at.service.counts["wrong numbers"], at.service.counts["upstream failures"]) == (4, 4)


@pytest.mark.parametrize("path", [CHAT, RESPONSES, MESSAGES])
@pytest.mark.parametrize("stream", [False, True])
def test_wrong_numbers_are_named_in_every_protocol(path: str, stream: bool) -> None:
    usage = {CHAT: {"prompt_tokens": -1, "completion_tokens": True}}.get(
        path, {"input_tokens": -1, "output_tokens": True}
    )
    response = {"id": "r", "choices": [], "output": [], "content": [], "usage": usage}
    event = {"type": "response.completed", "response": response} if path == RESPONSES else response
    answer = (
        read_stream(b"data: " + json.dumps(event).encode() + b"\n\n")
        if stream
        else read_answer(json.dumps(response).encode())
    )
    assert answer is not None
    assert answer.wrong == set(usage)
    assert (answer.input_tokens, answer.output_tokens) == (0, 0)


ODD = ["a\0b", "a\ud800b", "\udc00", "a\x1ab", "\ud83d\ude00"]


@pytest.mark.parametrize("stream", [False, True])
@asynchronous
async def test_characters_that_a_database_cannot_hold_lose_nothing(stream: bool, place: Place) -> None:
    def answer(odd: str) -> bytes:
        call = {"index": 0, "id": "c", "type": "function", "function": {"name": odd, "arguments": odd}}
        message = {"role": "assistant", "content": odd, "reasoning_content": odd, "tool_calls": [call]}
        choice = {"index": 0, "delta" if stream else "message": message, "finish_reason": odd}
        said = json.dumps({"id": odd, "model": odd, "choices": [choice]}).encode()
        return b"data: " + said + b"\n\ndata: [DONE]\n\n" if stream else said

    answers = iter([answer(odd) for odd in ODD])

    async def upstream(scope: Any, receive: Any, send: Send) -> None:
        kind = EVENTS if stream else JSON
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]})
        await send({"type": "http.response.body", "body": next(answers)})

    async with serving(upstream) as url, served(**place, address=f"{url}/v1") as at:
        for odd in ODD:
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
            told = await at.report(interaction=reply.interaction, target="a\0b", comment="c\0")
            assert told.json["status"] == "kept"
        rows = await kept(at)
        assert [row["answer"] for row in rows] == ["a\0b", "a\ufffdb", "\ufffd", "a\x1ab", "\U0001f600"]
        assert [row["query"] for row in rows][1] == "Is it a\ufffdb?"
        assert [len(row["steps"]) for row in rows] == [2] * len(ODD)
        counts = at.service.counts
        assert (at.service.log.lost, counts["refused rows"], counts["failed open"], counts["unread requests"]) == (
            0,
        ) * 4
        for name in ("interaction", "session"):
            assert (await at.report(**{name: "x\0y"}, score=1.0)).status == 404


@asynchronous
async def test_a_row_that_the_database_refuses_is_lost_alone_and_raises_an_alarm(place: Place) -> None:
    async with served(**place) as at:
        opened, id = at.service.log, at.service.spaces["default"].id
        bad: dict[int, dict[str, Any]] = {
            0: {"kind": "\ud800"}, 3: {"at": "no number"}, 4: {"number": 2**70}, 7: {"text": None},
            9: {"kind": object()},
        }  # fmt: skip
        goes_on, _ = waiting(opened)
        for number in range(12):
            opened.post(tables.alarms, {**alarm(id, number), **bad.get(number, {})})
        told = opened.do(lambda db: 5)
        goes_on.set()
        assert await asyncio.wrap_future(told) == 5
        await until(lambda: at.service.counts["alarms"])
        rows = opened.rows(select(tables.alarms).where(tables.alarms.c.run_id == id).order_by(tables.alarms.c.number))
        assert [row.number for row in rows if row.kind == "k"] == [1, 2, 5, 6, 8, 10, 11]
        assert [row.kind for row in rows if row.kind != "k"] == ["store"]
        assert (opened.lost, opened.unwritten, at.service.counts["refused rows"]) == (len(bad), 0, len(bad))


@pytest.mark.postgres
@asynchronous
async def test_a_row_that_is_too_long_for_an_index_does_not_count_as_a_database_that_is_away(
    postgresql: str, tmp_path: Path
) -> None:
    from practicum.plugins.postgres.service import SharedDatabase

    database: Database = SharedDatabase(make_url(postgresql))
    opened = Log(database)
    try:
        id = await asyncio.to_thread(made, opened)
        goes_on, _ = waiting(opened)
        long = "".join(Random(0).choices("0123456789abcdefghijklmnopqrstuvwxyz", k=20_000))
        row = {"run_id": id, "at": 0.0, "version": 0, "data": "{}"}
        for number in range(4):
            opened.post(
                tables.interactions,
                {**row, "id": f"i{number}", "number": number, "session": long if number == 1 else "s"},
            )
        goes_on.set()
        await asyncio.wrap_future(opened.do(lambda db: None))
        found = [row.id for row in opened.rows(select(tables.interactions.c.id).order_by(tables.interactions.c.id))]
        assert (found, opened.lost, opened.unwritten) == (["i0", "i2", "i3"], 1, 0)
    finally:
        opened.close()


@pytest.mark.postgres
@asynchronous
async def test_a_session_that_the_database_refuses_takes_no_others_along(postgresql: str) -> None:
    from practicum.plugins.postgres.service import Sessions, SharedDatabase

    database = SharedDatabase(make_url(postgresql))
    sessions, opened = Sessions(database, 60.0), Log(database)
    try:
        id = await asyncio.to_thread(made, opened)
        names = ["a", "\ud800", "b\0"]
        assert await asyncio.gather(*(sessions.claim(id, name, 1, None, 30.0) for name in names)) == [1, None, 1]
        sessions._away = 0.0
        assert await sessions.claim(id, "c", 1, None, 30.0) == 1
    finally:
        await asyncio.to_thread(sessions.close)
        await asyncio.to_thread(opened.close)


@asynchronous
async def test_an_answer_that_takes_long_to_read_is_read_in_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads, settle = list[int](), protocols.Answer.settle

    def settling(self: protocols.Answer, *given: Any) -> None:
        threads.append(threading.get_ident())
        settle(self, *given)

    monkeypatch.setattr(protocols.Answer, "settle", settling)
    said = "<think>" + "Hm. " * 100_000 + "</think>Fine."
    for kind, parts in ((JSON, [whole(said)]), (EVENTS, [delta(said), b"data: [DONE]\n\n"])):
        async with answering(kind, parts) as address, served(tmp_path / str(len(threads)), address=address) as at:
            await at.ask(QUESTION, stream=kind == EVENTS)
            ((row),) = await kept(at)
            assert (row["answer"], row["thoughts"]) == ("Fine.", ("Hm. " * 100_000)[:MOST_TEXT])
    assert threading.get_ident() not in threads
    assert len(threads) == 2


@pytest.mark.parametrize("score", ["NaN", "Infinity", "-1", "2", "1e400", '"1"', "[]"])
@asynchronous
async def test_a_score_that_is_none_is_refused(score: str, tmp_path: Path) -> None:
    async with served(tmp_path) as at:
        reply = await at.ask(QUESTION)
        body = f'{{"interaction": "{reply.interaction}", "score": {score}}}'.encode()
        assert (await at.send("POST", "/v1/feedback", body)).status == 400
        assert at.service.log.rows(select(tables.outcomes)) == []
