"""The simulated upstream: its three protocols as real clients see them, and its faults."""

import asyncio
import json
import subprocess
import time
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

import aiohttp
import openai
import pytest

from practicum.core.subprocesses import environment, python_command
from practicum.testing.upstream import SLOW, TEXT, Upstream, UpstreamOptions, upstream

Body = dict[str, Any]
ASKED = [{"role": "user", "content": "What is 2 + 2?"}]
BODIES: dict[str, Body] = {
    "/chat/completions": {"model": "m", "messages": ASKED},
    "/responses": {"model": "m", "input": "What is 2 + 2?"},
    "/messages": {"model": "m", "max_tokens": 100, "messages": ASKED},
}
CALL = {"name": "add", "arguments": {"a": 2, "b": "ü"}}


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(**given: Any) -> None:
        asyncio.run(test(**given))

    return run


def client(running: Upstream, **options: Any) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=running.url, api_key="k", max_retries=0, **options)


async def post(url: str, body: Body, **headers: str) -> tuple[int, Any, bytes]:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    async with aiohttp.ClientSession() as session, session.post(url, json=body, headers=sent) as response:
        return response.status, response.headers, await response.read()


def events(raw: bytes) -> list[Body]:
    """The events of a stream, each of which names its type twice."""
    found = []
    for block in raw.decode().removesuffix("\n\n").split("\n\n"):
        named, data = block.split("\n")
        found.append(json.loads(data.removeprefix("data: ")))
        assert named == f"event: {found[-1]['type']}"
    return found


@in_loop
async def test_chat() -> None:
    async with upstream() as running, client(running) as openai_client:
        create = openai_client.chat.completions.create
        first, second = [await create(model="m", messages=ASKED) for _ in range(2)]
        assert first.choices[0].message.content == TEXT
        assert (first.model, first.choices[0].finish_reason) == ("m", "stop")
        assert first.id.startswith("chatcmpl-")
        assert first.id != second.id
        assert first.usage.completion_tokens == 60
        options = {"include_usage": True}
        chunks = [c async for c in await create(model="m", messages=ASKED, stream=True, stream_options=options)]
        assert "".join(c.choices[0].delta.content or "" for c in chunks[:-1]) == TEXT
        assert len(chunks) == 60 + 3
        assert chunks[-2].choices[0].finish_reason == "stop"
        assert chunks[-1].usage == first.usage
        assert len({c.id for c in chunks}) == 1
        bare = [c async for c in await create(model="m", messages=ASKED, stream=True)]
        assert len(bare) == 60 + 2
        assert all(c.usage is None for c in bare)


@in_loop
async def test_responses() -> None:
    async with upstream(UpstreamOptions(chunks=7)) as running, client(running) as openai_client:
        whole = await openai_client.responses.create(model="m", input="x", metadata={"case": "7"})
        assert whole.output_text == TEXT
        assert whole.metadata == {"case": "7"}
        assert whole.id.startswith("resp_")
        assert (await openai_client.responses.create(model="m", input="x")).metadata == {}
        async with openai_client.responses.stream(model="m", input="x", metadata={"case": "8"}) as stream:
            seen = [event async for event in stream]
            final = await stream.get_final_response()
        assert [event.sequence_number for event in seen] == list(range(len(seen)))
        assert sum(event.type == "response.output_text.delta" for event in seen) == 7
        assert (seen[0].type, seen[-1].type) == ("response.created", "response.completed")
        assert (final.output_text, final.metadata, final.usage.output_tokens) == (TEXT, {"case": "8"}, 7)


@in_loop
async def test_messages() -> None:
    async with upstream(UpstreamOptions(chunks=5)) as running:
        url, body = f"{running.url}/messages", BODIES["/messages"]
        _, _, raw = await post(url, body)
        whole = json.loads(raw)
        assert whole["content"] == [{"type": "text", "text": TEXT}]
        assert (whole["role"], whole["stop_reason"], whole["usage"]["output_tokens"]) == ("assistant", "end_turn", 5)
        _, headers, raw = await post(url, {**body, "stream": True})
        assert headers["content-type"].startswith("text/event-stream")
        stream = events(raw)
        assert [e["type"] for e in stream] == [
            "message_start", "content_block_start", "ping", *["content_block_delta"] * 5, "content_block_stop",
            "message_delta", "message_stop",
        ]  # fmt: skip
        assert "".join(e["delta"]["text"] for e in stream[3:8]) == TEXT
        assert stream[0]["message"]["id"].startswith("msg_")
        assert stream[-2]["delta"]["stop_reason"] == "end_turn"


@in_loop
async def test_a_responder_calls_a_tool_in_each_protocol() -> None:
    async with upstream(UpstreamOptions(responder=lambda body: CALL)) as running, client(running) as openai_client:
        chat = await openai_client.chat.completions.create(model="m", messages=ASKED)
        (call,) = chat.choices[0].message.tool_calls
        assert (call.function.name, json.loads(call.function.arguments)) == ("add", CALL["arguments"])
        assert chat.choices[0].finish_reason == "tool_calls"
        async with openai_client.chat.completions.stream(model="m", messages=ASKED) as stream:
            streamed = await stream.get_final_completion()
        assert streamed.choices[0].message.tool_calls[0].function.arguments == call.function.arguments
        (item,) = (await openai_client.responses.create(model="m", input="x")).output
        assert (item.type, item.name, json.loads(item.arguments)) == ("function_call", "add", CALL["arguments"])
        async with openai_client.responses.stream(model="m", input="x") as stream:
            (item,) = (await stream.get_final_response()).output
        assert json.loads(item.arguments) == CALL["arguments"]
        url, body = f"{running.url}/messages", BODIES["/messages"]
        (block,) = json.loads((await post(url, body))[2])["content"]
        assert (block["type"], block["name"], block["input"]) == ("tool_use", "add", CALL["arguments"])
        stream = events((await post(url, {**body, "stream": True}))[2])
        pieces = [e["delta"]["partial_json"] for e in stream if e["type"] == "content_block_delta"]
        assert json.loads("".join(pieces)) == CALL["arguments"]
        assert stream[1]["content_block"] == {**block, "id": stream[1]["content_block"]["id"], "input": {}}


@in_loop
async def test_a_responder_answers_what_was_asked_and_requests_are_kept() -> None:
    options = UpstreamOptions(responder=lambda body: body["messages"][-1]["content"].upper(), keep=True)
    async with upstream(options) as running:
        for text in ("one", "two"):
            body = {"model": "m", "messages": [{"role": "user", "content": text}]}
            _, _, raw = await post(f"{running.url}/chat/completions", body, x_mine=text)
            assert json.loads(raw)["choices"][0]["message"]["content"] == text.upper()
        assert [r.headers["x-mine"] for r in running.requests] == ["one", "two"]
        assert running.requests[1].path == "/v1/chat/completions"
        assert running.requests[1].json() == body


@in_loop
async def test_models_and_embeddings() -> None:
    async with upstream() as running, client(running) as openai_client:
        assert [model.id async for model in openai_client.models.list()] == ["sim"]
        found = await openai_client.embeddings.create(model="m", input="x")
        assert len(found.data[0].embedding) == 2


@pytest.mark.parametrize("path", BODIES)
@in_loop
async def test_errors_have_the_form_of_the_protocol(path: str) -> None:
    async with upstream() as running:
        url, body = running.url + path, BODIES[path]
        status, headers, raw = await post(url, body, x_sim_fault="429")
        assert (status, headers["retry-after"]) == (429, "1")
        assert json.loads(raw)["error"]["type"] == "rate_limit_error"
        assert ("type" in json.loads(raw)) == (path == "/messages")
        assert (await post(url, {**body, "stream": True}, x_sim_fault="500"))[0] == 500
        status, headers, raw = await post(url, body, x_sim_fault="html")
        assert (status, headers["content-type"]) == (200, "text/html")
        assert raw.startswith(b"<html>")
        status, _, raw = await post(url, body, x_sim_fault="flood")
        assert (status, "known are 429" in json.loads(raw)["error"]["message"]) == (400, True)
        assert (await post(url, {"model": "m"}))[0] == 400
        assert (await post(f"{url}/else", body))[0] == 404


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("stream", [False, True])
@in_loop
async def test_a_connection_dies_after_half_of_the_answer(path: str, stream: bool) -> None:
    async with upstream() as running, aiohttp.ClientSession() as session:
        body, fault = {**BODIES[path], "stream": stream}, {"x-sim-fault": "die"}
        async with session.post(running.url + path, json=body) as response:
            whole = await response.read()
        got = bytearray()

        async def read() -> None:
            async with session.post(running.url + path, json=body, headers=fault) as response:
                async for part in response.content.iter_any():
                    got.extend(part)

        with pytest.raises(aiohttp.ClientPayloadError):
            await read()
        assert 0.3 < len(got) / len(whole) < 0.7


@in_loop
async def test_hang_and_slow() -> None:
    async with upstream() as running, client(running, timeout=0.3) as openai_client:
        hangs = openai_client.with_options(default_headers={"x-sim-fault": "hang"})
        with pytest.raises(openai.APITimeoutError):
            await hangs.chat.completions.create(model="m", messages=ASKED)
        began = time.perf_counter()
        await post(f"{running.url}/responses", BODIES["/responses"], x_sim_fault="slow")
        assert time.perf_counter() - began >= SLOW
        # The upstream stops although a call hangs.
        hung = asyncio.create_task(post(f"{running.url}/messages", BODIES["/messages"], x_sim_fault="hang"))
        await asyncio.sleep(0.05)
    with pytest.raises(aiohttp.ClientError):
        await hung


@in_loop
async def test_delay_and_gap() -> None:
    async with upstream(UpstreamOptions(delay=0.1, gap=0.05, chunks=4)) as running, client(running) as openai_client:
        began = time.perf_counter()
        stream = await openai_client.chat.completions.create(model="m", messages=ASKED, stream=True)
        times = [time.perf_counter() - began async for _ in stream]
        assert times[0] >= 0.1
        assert times[-1] >= 0.1 + 5 * 0.05
        assert times == sorted(times)


def test_a_process_of_its_own() -> None:
    command = python_command("practicum.testing.upstream", "--chunks=3")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as process:
        try:
            url = process.stdout.readline().split()[-1]
            body = {**BODIES["/chat/completions"], "stream": True}
            _, _, raw = asyncio.run(post(f"{url}/chat/completions", body))
            assert raw.count(b"data: ") == 3 + 3
        finally:
            process.terminate()
    assert process.returncode == 0
