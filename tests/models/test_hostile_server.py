"""A model server that sends any bytes at any speed: each reply is an answer or a failed call."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from helpers import asynchronous
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples
from raw_server import Sent, completion, ok, raw_server

from practicum.core.counts import Count
from practicum.core.errors import ModelError, PracticumError, ProviderError
from practicum.core.types import Prompt, Usage
from practicum.core.views import count_tokens
from practicum.models import provider as provider_module
from practicum.models.client import CallOptions, Reply
from practicum.models.receiving import received
from practicum.models.registry import ClientSettings, Models


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(provider_module, "_pause", lambda error, tries: 0)


@asynccontextmanager
async def opened(sent: Sent, attempts: int = 1, **settings: Any) -> AsyncIterator[tuple[Any, list[str]]]:
    """A client of a server, and the requests."""
    async with raw_server(sent) as (address, requests):
        models = Models(ClientSettings(attempts=attempts, **settings))
        try:
            yield models.open(f"{address}#m"), requests
        finally:
            await models.close()


async def reply_of(client: Any, limit: float = 20.0) -> Reply | PracticumError:
    try:
        call = client.complete("agent", Prompt("", "2+2?"), None, CallOptions(timeout=limit))
        reply: Reply = await asyncio.wait_for(call, 20)
        return reply
    except PracticumError as error:
        return error


@asynchronous
async def ask(sent: Sent, limit: float = 20.0, **settings: Any) -> tuple[Reply | PracticumError, int]:
    """The reply or the failure of a call to a server, and the number of requests."""
    async with opened(sent, **settings) as (client, requests):
        return await reply_of(client, limit), len(requests)


async def _drip(writer: asyncio.StreamWriter) -> None:
    """A reply that sends a byte every hundredth of a second."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n")
    while True:
        writer.write(b" ")
        await writer.drain()
        await asyncio.sleep(0.01)


async def _endless(writer: asyncio.StreamWriter) -> None:
    """A reply that never ends, as fast as the client reads."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"10000\r\n" + b" " * 0x10000 + b"\r\n")
        await writer.drain()


def test_the_timeout_is_that_of_a_whole_try() -> None:
    failure, requests = ask(_drip, attempts=2, limit=0.2)
    assert isinstance(failure, ProviderError)
    assert "the call took longer than `timeout` allows" in str(failure)
    assert requests == 2


@pytest.mark.parametrize("sent", [_endless, ok(b" " * 1_100_000)], ids=["endless", "long"])
def test_a_reply_is_read_up_to_its_limit_and_is_not_asked_for_again(sent: Sent) -> None:
    failure, requests = ask(sent, attempts=3, max_reply_mb=1)
    assert isinstance(failure, ProviderError)
    assert "the reply has more than 1 MB (see `max_reply_mb`)" in str(failure)
    assert requests == 1


def nested(depth: int) -> bytes:
    return b'{"choices": ' + b"[" * depth + b"]" * depth + b"}"


CHOICES: tuple[Any, ...] = ([], None, [7], [{"message": None}], [{"message": {"content": 5}}])
NO_ANSWERS: tuple[bytes, ...] = (
    *(ok(completion(choices=choices)) for choices in CHOICES),
    *map(ok, (nested(100_000), b"null", b"", b"<html>", b"\xff\xfe\x00")),
    ok(gzip.compress(json.dumps(completion()).encode()), "Content-Encoding: gzip"),
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10\r\n{}",
    b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{}", b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n{}",
    b"\x00\x01\x02", b"", b"HTTP/1.1 500 " + b"x" * 100_000 + b"\r\n\r\n",
)  # fmt: skip


@asynchronous
async def test_a_reply_without_an_answer_is_a_failed_call() -> None:
    left = [*NO_ANSWERS]

    async def send(writer: asyncio.StreamWriter) -> None:
        writer.write(left.pop(0))
        await writer.drain()

    async with opened(send) as (client, _):
        for sent in NO_ANSWERS:
            failure = await reply_of(client)
            assert isinstance(failure, ProviderError), sent[:200]
            assert len(str(failure).splitlines()) == 1
            assert len(str(failure)) < 600
            assert b"[[[" not in sent or "nested too deeply" in str(failure)
            assert b"gzip" not in sent or "compressed" in str(failure)
    assert left == []


def test_an_overlong_answer_is_cut_and_an_implausible_count_is_estimated() -> None:
    estimated, overlong = Count.ESTIMATED_USAGE, Count.OVERLONG_ANSWERS
    for words, counted, lengths, changes in (
        (20, 20, (20, 20), set()), (20, 900_000, (20, 20), {estimated}), (20, -1, (20, 20), {estimated}),
        (5_000, 5_000, (1_024, 5_000), {overlong}), (50_000, 1, (1_024, 50_000), {overlong, estimated}),
    ):  # fmt: skip
        body = completion(usage={"prompt_tokens": 10, "completion_tokens": counted})
        body["choices"][0]["message"]["content"] = " word" * words
        sent, _ = ask(ok(body))
        assert isinstance(sent, Reply)
        reply = received(sent, 10, 1024, lambda usage: None)
        assert {*reply.changed} == changes
        assert reply.cut == (words > 1024)
        assert (count_tokens(reply.text), reply.usage.output_tokens) == pytest.approx(lengths, rel=0.3)


def test_an_implausible_count_of_a_prompt_is_estimated() -> None:
    for prompt, counted, input_tokens in ((20_000, 9_000, 9_000), (20_000, 1, 20_000), (10, 900_000, 10), (10, 60, 60)):
        reply = received(Reply("word", Usage(1, counted, 0, 1, 0.0)), prompt, 1024, lambda usage: None)
        assert reply.usage.input_tokens == input_tokens


def test_characters_that_cannot_be_stored_are_replaced() -> None:
    reply = received(Reply("a\0b\ud800c", Usage(1, 10, 0, 5, 0.0)), 10, 1024, lambda usage: None)
    assert (reply.text, reply.changed) == ("a\ufffdb\ufffdc", (Count.MENDED_TEXTS,))


ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=())),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS = ("choices", "usage", "created", "id", "model", "object", "error", "service_tier")
OF_A_CHOICE = ("message", "finish_reason", "index", "logprobs", "delta")
OF_A_MESSAGE = ("role", "content", "refusal", "tool_calls", "reasoning", "reasoning_content", "annotations", "audio")


@st.composite
def spoiled(draw: st.DrawFn) -> bytes:
    """A completion with odd values in some of its fields."""
    body: dict[str, Any] = completion()
    choice = body["choices"][0]
    for within, names in ((choice["message"], OF_A_MESSAGE), (choice, OF_A_CHOICE), (body, FIELDS)):
        within.update(draw(st.dictionaries(st.sampled_from(names), ODD, max_size=2)))
    return json.dumps(body).encode()


@pytest.mark.slow
@asynchronous
async def test_any_reply_is_an_answer_that_can_be_stored_or_a_failed_call() -> None:
    body = b""

    async def send(writer: asyncio.StreamWriter) -> None:
        writer.write(ok(body))
        await writer.drain()

    async with opened(send) as (client, _):
        loop = asyncio.get_running_loop()

        @settings(max_examples=examples(300), deadline=None)
        @given(spoiled() | st.binary(max_size=200))
        def check(sent: bytes) -> None:
            nonlocal body
            body = sent
            reply = asyncio.run_coroutine_threadsafe(reply_of(client), loop).result(20)
            if isinstance(reply, Reply):
                read = received(reply, 10, 1024, client.cost)
                assert read.text.encode().decode() == read.text
                assert 0 < read.usage.tokens < 2**54
            else:
                assert isinstance(reply, ProviderError | ModelError)

        await asyncio.to_thread(check)
