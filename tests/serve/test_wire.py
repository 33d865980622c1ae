"""Requests and answers as clients and model servers send them: line ends, encodings, malformed bodies, failures, and
housekeeping requests of clients."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from needs import needs
from serving import CHAT, MESSAGES, RESPONSES, TEXT, Served, asynchronous, prompt, served
from sqlalchemy import select
from users import stored

from practicum.serve.protocols import Unreadable, read_request
from practicum.serve.spans import Spans
from practicum.serve.upstream import decoded
from practicum.store import schema as tables

QUESTION = "Which team handles lost cards?"
ASKED: dict[str, dict[str, Any]] = {
    CHAT: {"messages": [{"role": "user", "content": QUESTION}]},
    RESPONSES: {"input": QUESTION},
    MESSAGES: {"messages": [{"role": "user", "content": QUESTION}], "max_tokens": 9},
}


# Answers


def test_a_packed_answer_is_read_up_to_its_limit() -> None:
    packed = gzip.compress(b"abcd")
    assert (
        decoded(packed, "gzip", 4) == decoded(packed[:-8], "gzip", 4) == decoded(packed[10:-8], "deflate", 4) == b"abcd"
    )
    unread = (decoded(packed, "gzip", 3), decoded(b"text", "br", 9), decoded(b"text", "gzip", 9))
    assert (decoded(b"text", "identity", 9), *unread) == (b"text", None, None, None)


@asynchronous
async def test_a_stream_keeps_its_line_ends(tmp_path: Path) -> None:
    async with served(tmp_path) as at:
        reply = await at.send("POST", RESPONSES, {**ASKED[RESPONSES], "stream": True}, {"x-sim-fault": "crlf"})
        assert reply.body.count(b"practicum_interaction") == 3
        assert reply.body.count(b"\n") == reply.body.count(b"\r\n")
        assert [one["answer"] for one in await stored(at)] == [TEXT]


# Bodies


USE = {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "f", "input": {}}]}
ODD = (None, True, 7, "", [], ["a"], [[]], {}, {"type": "text"}, {"text": 5})


def mutants(value: Any, rng: random.Random) -> Iterator[Any]:
    """The value with each part once replaced, and each field once deleted."""
    yield rng.choice(ODD)
    if isinstance(value, dict):
        for name, part in value.items():
            yield {key: other for key, other in value.items() if key != name}
            yield from ({**value, name: other} for other in mutants(part, rng))
    elif isinstance(value, list):
        for n, part in enumerate(value):
            yield from ([*value[:n], other, *value[n + 1 :]] for other in mutants(part, rng))


@asynchronous
async def test_every_body_reaches_the_upstream_and_an_unreadable_one_byte_for_byte(tmp_path: Path) -> None:
    rng, kinds, unread = random.Random(0), {CHAT: "chat", RESPONSES: "responses", MESSAGES: "messages"}, 0
    async with served(tmp_path) as at:
        for path, asked in ASKED.items():
            turns = [{"role": "user", "content": [{"type": "text", "text": QUESTION}]}, USE]
            whole = {**asked, "tools": [{"type": "function"}], "input" if path == RESPONSES else "messages": turns}
            reply = await at.send("POST", path, whole)
            assert (await at.report(interaction=reply.interaction, target="the blue team")).status == 200
            await at.send("POST", path, whole)
            assert "the blue team" in prompt(at.upstream.requests[-1].body)
            raw = json.dumps({**whole, "user": "x"}).encode()
            broken = [raw.replace(b'"x"', b'"\xed\xa0\x80"'), raw[:-9], raw + b"\x00", raw[:30] + b"{" + raw[30:]]
            tried = rng.sample([*mutants(whole, rng)], 16)
            for body in [*broken, *(json.dumps(one).encode() for one in tried)]:
                before = len(at.upstream.requests)
                reply = await at.send("POST", path, body)
                (sent,) = at.upstream.requests[before:]
                try:
                    read_request(kinds[path], body)  # type: ignore[arg-type]
                except Unreadable:
                    unread += 1
                    assert sent.body == body
                else:
                    changed = {"messages", "input", "system", "instructions", "model"}
                    was, is_now = (
                        {name: value for name, value in json.loads(raw).items() if name not in changed}
                        for raw in (body, sent.body)
                    )
                    assert is_now == was
                # The upstream's own answer to this body.
                async with at.http.post(at.upstream.url.removesuffix("/v1") + path, data=sent.body) as direct:
                    assert reply.status == direct.status
        assert unread > 12
        assert at.service.counts["unread_requests"] == unread
        assert at.service.counts["failed_open"] == 0


@asynchronous
async def test_a_failure_while_a_request_is_prepared_or_stored_is_counted_and_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("broken")

    body = json.dumps({"model": "sim", **ASKED[CHAT]}).encode()
    exporters = needs("opentelemetry.sdk.trace.export.in_memory_span_exporter", "otel")
    async with served(tmp_path, spans=Spans(exporters.InMemorySpanExporter())) as at:
        for place in ("proxy.read_request", "relay.is_housekeeping", "proxy.Span"):
            with monkeypatch.context() as patch:
                patch.setattr(f"practicum.serve.{place}", broken)
                for asked in (body, body[:-1] + b', "stream": true}'):
                    assert (await at.send("POST", CHAT, asked, {"x-practicum-session": "s"})).status == 200
                    assert at.upstream.requests[-1].body == asked
        assert at.service.counts["failed_open"] == 6
        assert at.service.counts["unchanged_requests"] == 2
        assert b"practicum_failed_open_total 6.0" in (await at.send("GET", "/metrics")).body
        # Without the span, nothing else is missing.
        assert len(await stored(at)) == 2
    failures = [record for record in caplog.records if "failed_open" in record.getMessage()]
    assert len(failures) == 3


# Housekeeping of clients


TITLES: dict[str, tuple[str, dict[str, Any]]] = {
    # The words of different clients, shortened.
    "opencode": (CHAT, {"messages": [
        {"role": "system", "content": "You are a title generator. You output ONLY a thread title. Nothing else."},
        {"role": "user", "content": "Generate a title for this conversation:\n"}, {"role": "user", "content": QUESTION},
    ]}),
    "claude code": (MESSAGES, {**ASKED[MESSAGES], "tools": [], "system": [
        {"type": "text", "text": "You are Claude Code, Anthropic's official CLI for Claude."},
        {"type": "text", "text": "Generate a concise, sentence-case title (3-7 words) that captures the main topic or "
                                 "goal of this coding session."},
    ]}),
    "compaction": (MESSAGES, {"max_tokens": 9, "system": "You are an assistant tasked with summarizing conversations.",
        "messages": [{"role": "user", "content": QUESTION}, {"role": "assistant", "content": "The blue team."},
                     {"role": "user", "content": "Your task is to create a detailed summary."}]}),
}  # fmt: skip
OTHERS: dict[str, dict[str, Any]] = {
    "memory": {"messages": [{"role": "system", "content": "Be short. Summary of the conversation: a card was lost."},
                            {"role": "user", "content": QUESTION}, {"role": "assistant", "content": "The blue one."},
                            {"role": "user", "content": "Sure?"}]},
    "an agent": {"messages": [{"role": "system", "content": "Generate a title for each chat, and answer."},
                              {"role": "user", "content": QUESTION}], "tools": [{"type": "function"}]},
}  # fmt: skip


@asynchronous
async def test_titles_and_contexts_count_as_requests_once_they_have_an_outcome(tmp_path: Path) -> None:
    async with served(tmp_path) as at:
        headers = {"x-practicum-session": "s"}
        await at.ask(QUESTION, headers)
        for path, body in TITLES.values():
            await at.send("POST", path, body, headers)
        context = await at.send("POST", "/v1/context", {"input": QUESTION})
        purposes = [one.get("purpose") for one in await stored(at)]
        assert purposes == [None, *["title"] * len(TITLES), "context"]
        assert requests_of(at) == at.service.counts["interactions"] == 1
        assert len((await at.send("GET", "/v1/interactions")).json["interactions"]) == 2
        for body in OTHERS.values():
            assert (await at.send("POST", CHAT, body, headers)).status == 200
        await stored(at)
        assert requests_of(at) == at.service.counts["interactions"] == 1 + len(OTHERS)
        # A report on a session is about its last request, not about a title.
        titled = await at.send("POST", CHAT, TITLES["opencode"][1], headers)
        report = await at.report(session="s", score=1.0)
        assert report.json["interaction"] not in (titled.interaction, context.json["interaction"])
        for _ in range(2):
            await at.report(interaction=context.json["interaction"], score=0.5)
        assert requests_of(at) == at.service.counts["interactions"] == 2 + len(OTHERS)


def requests_of(at: Served) -> int:
    """The requests that the overview of the space counts."""
    return sum(row.requests for row in at.service.database.rows(select(tables.hours)))
