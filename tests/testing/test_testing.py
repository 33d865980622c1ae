"""The simulated server, as real clients see it: its protocols, answers, counts and behaviours."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, Literal, cast

import aiohttp
import openai
import pytest
from pydantic import BaseModel, ConfigDict, Field
from serving import TEXT, asynchronous

from practicum.testing import ServerOptions, SimulatedServer, fill, main, serve, start_process

Body = dict[str, Any]
ASKED = [{"role": "user", "content": "What is 2 + 2?"}]
PATHS: dict[str, Body] = {
    "/chat/completions": {"model": "m", "messages": ASKED},
    "/responses": {"model": "m", "input": "What is 2 + 2?"},
    "/messages": {"model": "m", "max_tokens": 100, "messages": ASKED},
}
CALL = {"name": "add", "arguments": {"a": 2, "b": "ü"}}


class Tree(BaseModel):
    name: Annotated[str, Field(max_length=7)]
    inner: "list[Tree] | Literal['leaf']"
    parent: "Tree | None"


class Everything(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    long: Annotated[str, Field(min_length=200)]
    negative: Annotated[int, Field(lt=-5)]
    share: Annotated[float, Field(gt=0, lt=1)]
    sure: bool
    tree: Tree
    several: Annotated[list[int], Field(min_length=2, max_length=5)]
    none: Annotated[list[str], Field(max_length=0)]
    pair: tuple[int, str]
    perhaps: Tree | None
    optional: list[bool] = []


async def message(server: SimulatedServer, stream: bool = False, **body: Any) -> Any:
    """The answer in Anthropic's protocol, built from its events if it is streamed."""
    status, headers, raw = await post(server, "/messages", {**PATHS["/messages"], "stream": stream, **body})
    assert status == 200
    whole = json.loads(raw) if not stream else {}
    if stream:
        assert headers["content-type"].startswith("text/event-stream")
        blocks = [block.split("\ndata: ") for block in raw.decode().removesuffix("\n\n").split("\n\n")]
        events = [json.loads(data) for _, data in blocks]
        assert [name for name, _ in blocks] == [f"event: {event['type']}" for event in events]
        first, start, *_, ends, last = events
        assert (first["type"], ends["type"], last["type"]) == ("message_start", "message_delta", "message_stop")
        deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
        text, block = "".join(delta.get("text", delta.get("partial_json")) for delta in deltas), start["content_block"]
        block |= {"input": json.loads(text)} if block["type"] == "tool_use" else {"text": text}
        whole = {**first["message"], **ends["delta"], "content": [block], "usage": ends["usage"]}
    return json.loads(json.dumps(whole), object_hook=lambda value: SimpleNamespace(**value))


@asynccontextmanager
async def simulated(**options: Any) -> AsyncIterator[tuple[SimulatedServer, openai.AsyncOpenAI]]:
    """A server, with OpenAI's client."""
    async with (
        serve(ServerOptions(**options)) as server,
        openai.AsyncOpenAI(base_url=server.url, api_key="k", max_retries=0) as client,
    ):
        yield server, client


async def post(server: SimulatedServer, path: str, body: Any, **headers: str) -> tuple[int, Any, bytes]:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    async with aiohttp.ClientSession() as session, session.post(server.url + path, json=body, headers=sent) as response:
        return response.status, response.headers, await response.read()


@asynchronous
async def test_structured_answers_fit_their_schema() -> None:
    schema = Everything.model_json_schema()
    form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    text = {"format": {"type": "json_schema", "name": "answer", "schema": schema}}
    tool = {"type": "function", "name": "answer", "parameters": schema}
    tools = [{"name": "answer", "input_schema": schema}]
    shown: Any = [*ASKED, {"role": "user", "content": json.dumps(schema)}]
    async with simulated() as (server, client):
        chat = await client.chat.completions.create(model="m", messages=shown[:1], response_format=form)
        in_prompt = await client.chat.completions.create(model="m", messages=shown)
        response = await client.responses.create(model="m", input="x", text=text)
        called = await client.responses.create(model="m", input="x", tools=[tool], tool_choice="required")
        used = await message(server, tools=tools, tool_choice={"type": "any"})
    for answer in (
        chat.choices[0].message.content, in_prompt.choices[0].message.content, response.output_text,
        called.output[0].arguments, json.dumps(used.content[0].input, default=vars),
    ):  # fmt: skip
        Everything.model_validate_json(answer)
    filled = Everything.model_validate(fill(schema, 1), strict=False)
    assert filled.perhaps is not None
    assert (len(filled.optional) > 0, filled.none) == (True, [])


@pytest.mark.parametrize("answer", [TEXT, CALL], ids=["text", "call"])
@asynchronous
async def test_each_protocol_gives_one_answer_whole_and_as_a_stream(answer: Any) -> None:
    def of_chat(chat: Any) -> Any:
        message = chat.choices[0].message
        called = [each.function for each in message.tool_calls or ()]
        return {"name": called[0].name, "arguments": json.loads(called[0].arguments)} if called else message.content

    def of_response(response: Any) -> Any:
        (item,) = response.output
        called = item.type == "function_call"
        return {"name": item.name, "arguments": json.loads(item.arguments)} if called else response.output_text

    def of_message(message: Any) -> Any:
        (block,) = message.content
        return block.text if block.type == "text" else {"name": block.name, "arguments": vars(block.input)}

    async with simulated(responder=lambda body: answer, chunks=7, output_tokens=9) as (server, client):
        chat: Any = {"model": "m", "messages": ASKED}
        response: Any = {"model": "m", "input": "x", "metadata": {"case": "7"}}
        wholes: list[Any] = [await client.chat.completions.create(**chat), await client.responses.create(**response)]
        wholes.append(await message(server))
        async with client.chat.completions.stream(**chat, stream_options={"include_usage": True}) as stream:
            streams: list[Any] = [await stream.get_final_completion()]
        async with client.responses.stream(**response) as stream:
            seen = [event async for event in stream]
            streams.append(await stream.get_final_response())
        streams.append(await message(server, stream=True))
        for read, whole, streamed in zip((of_chat, of_response, of_message), wholes, streams, strict=True):
            assert read(whole) == read(streamed) == answer
            assert whole.id != streamed.id
        assert [event.sequence_number for event in seen] == [*range(len(seen))]
        assert sum(event.type.endswith(".delta") for event in seen) == 7
        assert wholes[1].metadata == streams[1].metadata == {"case": "7"}
        assert wholes[2].stop_reason == streams[2].stop_reason == ("end_turn" if answer == TEXT else "tool_use")
        assert streams[0].usage.completion_tokens == 9
        assert [stream.usage.output_tokens for stream in streams[1:]] == [9, 9]
        events = [chunk async for chunk in await client.chat.completions.create(**chat, stream=True)]
        assert (len(events) in (7 + 2, 7 + 3), events[-1].usage) == (True, None)
        assert events[-1].choices[0].finish_reason == wholes[0].choices[0].finish_reason


@asynchronous
async def test_models_embeddings_counted_tokens_and_latency() -> None:
    async with simulated(latency=0.01, per_1k_prompt=0.02, per_output=0.001, output_tokens=20) as (server, client):
        assert [model.id async for model in client.models.list()] == ["sim"]
        first, other = (await client.embeddings.create(model="m", input=["a", "b"], dimensions=3)).data
        again = (await client.embeddings.create(model="m", input="a", dimensions=3)).data[0]
        assert sum(x * x for x in first.embedding) == pytest.approx(1)
        assert first.embedding == pytest.approx(again.embedding)
        assert other.embedding != first.embedding
        assert json.loads((await post(server, "/messages/count_tokens", PATHS["/messages"]))[2])["input_tokens"] > 0
        server.reset()
        asked: Any = [{"role": "user", "content": "u" * 4000}]
        usage = (await client.chat.completions.create(model="m", messages=asked)).usage
        assert (usage.prompt_tokens, usage.completion_tokens) == (1000, 20)
        assert server.stats()["latency_sum"] == pytest.approx(0.05)


@asynchronous
async def test_answers_depend_on_the_request_or_come_from_a_responder_and_requests_are_recorded() -> None:
    def respond(body: Body) -> str | None:
        return "scripted" if body["messages"][-1]["content"] == "script" else None

    answers = []
    for _ in range(2):
        async with simulated(responder=respond) as (server, client):
            for text in ("a", "b", "script"):
                asked: Any = [{"role": "user", "content": text}]
                chat = await client.chat.completions.create(model="m", messages=asked, extra_headers={"x-mine": text})
                answers.append(chat.choices[0].message.content)
            assert [request.headers["x-mine"] for request in server.requests] == ["a", "b", "script"]
            assert server.requests[2].path == "/v1/chat/completions"
            assert server.requests[2].json()["messages"] == asked
    assert answers[:3] == answers[3:]
    assert len({*answers}) == 3
    assert answers[2] == "scripted"


@asynchronous
async def test_errors_have_the_form_of_the_protocol_and_invalid_requests_are_refused() -> None:
    for name, kind, expected, code in (
        ("429", "rate_limit_error", openai.RateLimitError, "rate_limit_exceeded"),
        ("401", "authentication_error", openai.AuthenticationError, "invalid_api_key"),
        ("context", "invalid_request_error", openai.BadRequestError, "context_length_exceeded"),
    ):
        async with simulated(behaviours=[(name, 1)]) as (server, client):
            with pytest.raises(expected) as caught:
                await client.responses.create(model="m", input="x")
            assert caught.value.code == code
            assert caught.value.response.headers.get("retry-after") == ("0" if name == "429" else None)
            status, _, raw = await post(server, "/messages", PATHS["/messages"])
            error = json.loads(raw)
            assert (status, error["type"], error["error"]["type"]) == (caught.value.status_code, "error", kind)
    async with serve(ServerOptions()) as server:
        for path, body in (("/responses", {"model": "m"}), ("/responses", []), ("/else", {"model": "m", "input": "x"})):
            assert (await post(server, path, body))[0] == (404 if path == "/else" else 400)
        status, _, raw = await post(server, "/responses", PATHS["/responses"], x_sim_fault="flood")
        assert (status, b"flood" in raw) == (400, True)


@asynchronous
async def test_behaviours_come_every_n_requests_and_are_counted_separately() -> None:
    async with serve(ServerOptions(behaviours=[("429", 3), ("500", 2)])) as server:
        bodies = [{"model": "m", "messages": [{"role": "user", "content": str(n)}]} for n in range(6)]
        assert [(await post(server, "/chat/completions", body))[0] for body in bodies] == [200, 500, 429, 500, 200, 429]
        stats = server.stats()
        assert (stats["calls"], stats["faults"], stats["received"], stats["repeats"]) == (2, 4, 6, 0)
    with pytest.raises(ValueError, match="flood:1"):
        ServerOptions(behaviours=[("flood", 1)])


def test_a_process_of_its_own_keeps_a_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, asked = tmp_path / "requests.log", cast(Any, ASKED)
    with start_process(output_tokens=7, behaviours=[("429", 2)], log=log) as server:
        with openai.OpenAI(base_url=server.url, api_key="none", max_retries=0) as model:
            model.chat.completions.create(model="m", messages=asked)
            with pytest.raises(openai.RateLimitError):
                model.chat.completions.create(model="m", messages=asked)
        stats = server.stats()
        assert (stats["calls"], stats["faults"], stats["repeats"], stats["output_tokens"]) == (1, 1, 1, 7)
        server.reset()
        assert server.stats()["calls"] == 0
    assert server.process.returncode == 0
    first, second = log.read_text().splitlines()
    assert (first == second, len(first)) == (True, 64)
    with pytest.raises(SystemExit) as ended:
        main(["--behaviour", "flood:1"])
    assert ended.value.code == 2
    assert "flood:1" in capsys.readouterr().err
