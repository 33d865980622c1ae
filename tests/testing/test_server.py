"""The simulated model server: its answers, counts and faults, as a client sees them."""

import asyncio
import json
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal

import openai
import pytest
from aiohttp import ClientSession, ServerDisconnectedError
from pydantic import BaseModel, ConfigDict, Field

from practicum.testing.behaviours import BEHAVIOURS
from practicum.testing.fill import fill
from practicum.testing.server import ServerOptions, SimulatedServer, main, serve, start_process

Body = dict[str, Any]
AT_ONCE: dict[str, Any] = {"latency": 0, "per_1k_prompt": 0, "per_output": 0}


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Cat(Strict):
    kind: Literal["cat"]
    lives: Annotated[int, Field(ge=1, le=9)]


class Dog(Strict):
    kind: Literal["dog"]


class Tree(Strict):
    name: Annotated[str, Field(max_length=7)]
    children: list["Tree"]
    parent: "Tree | None"


class Everything(Strict):
    text: str
    short: Annotated[str, Field(max_length=3)]
    long: Annotated[str, Field(min_length=200)]
    positive: Annotated[int, Field(gt=0)]
    negative: Annotated[int, Field(lt=-5)]
    share: Annotated[float, Field(gt=0, lt=1)]
    sure: bool
    colour: Colour
    pet: Cat | Dog
    tree: Tree
    several: Annotated[list[int], Field(min_length=2, max_length=5)]
    one: Annotated[list[str], Field(max_length=1)]
    none: Annotated[list[str], Field(max_length=0)]
    pair: tuple[int, str]
    perhaps: Cat | None
    optional: list[bool] = []
    nothing: None = None


class Deeper(Strict):
    left: "Expression"
    right: "Expression"


class Leaf(Strict):
    value: int


class Expression(Strict):
    inner: Deeper | Leaf


def ask(user: str = "hello", system: str = "Be brief.", **more: Any) -> Body:
    turns = [{"role": "system", "content": system}, {"role": "user", "content": user}]
    return {"model": "sim", "messages": turns, **more}


def shaped(model: type[BaseModel]) -> Body:
    schema = {"name": model.__name__, "schema": model.model_json_schema()}
    return {"response_format": {"type": "json_schema", "json_schema": schema}}


def tools(*names: str) -> list[Body]:
    parameters = Cat.model_json_schema()
    return [{"type": "function", "function": {"name": name, "parameters": parameters}} for name in names]


class Client:
    def __init__(self, server: SimulatedServer, session: ClientSession) -> None:
        self.server = server
        self._session = session

    async def completion(self, body: Body) -> Body:
        async with self._session.post(self.server.url + "/chat/completions", json=body) as response:
            assert response.status == 200
            return dict(await response.json())

    async def content(self, body: Body) -> str:
        return str((await self.completion(body))["choices"][0]["message"]["content"])

    async def cached(self, body: Body) -> int:
        return int((await self.completion(body))["usage"]["prompt_tokens_details"]["cached_tokens"])

    async def status(self, body: Body) -> int:
        async with self._session.post(self.server.url + "/chat/completions", json=body) as response:
            return response.status


@asynccontextmanager
async def simulated(**options: Any) -> AsyncIterator[Client]:
    async with serve(ServerOptions(**{**AT_ONCE, **options})) as server, ClientSession() as session:
        yield Client(server, session)


def openai_client(server: SimulatedServer) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=server.url, api_key="none", max_retries=0)


@pytest.mark.parametrize("model", [Everything, Tree, Expression])
def test_structured_answers_fit_their_schema(model: type[BaseModel]) -> None:
    async def go() -> None:
        async with simulated() as client:
            for number in range(20):
                model.model_validate_json(await client.content(ask(str(number), **shaped(model))))

    asyncio.run(go())


def test_optional_parts_are_filled() -> None:
    filled = Everything.model_validate_json(json.dumps(fill(Everything.model_json_schema(), 1)))
    assert filled.perhaps is not None
    assert 1 <= len(filled.optional) <= 2
    assert filled.none == []


def test_a_forced_tool_is_called_with_fitting_arguments() -> None:
    async def go() -> None:
        async with simulated() as client:
            named = {"type": "function", "function": {"name": "second"}}
            completion = await client.completion(ask(tools=tools("first", "second"), tool_choice=named))
            (choice,) = completion["choices"]
            (call,) = choice["message"]["tool_calls"]
            assert (choice["finish_reason"], call["function"]["name"]) == ("tool_calls", "second")
            Cat.model_validate_json(call["function"]["arguments"])

    asyncio.run(go())


def test_required_tools_are_called_in_turn_and_the_last_ends_it() -> None:
    async def go() -> list[str]:
        called = []
        async with simulated() as client:
            body = ask(tools=tools("look", "done"), tool_choice="required")
            for _ in range(3):
                message = (await client.completion(body))["choices"][0]["message"]
                called.append(message["tool_calls"][0]["function"]["name"])
                body["messages"] += [message, {"role": "tool", "tool_call_id": "x", "content": "seen"}]
        return called

    assert asyncio.run(go()) == ["look", "done", "done"]


def test_equal_requests_get_equal_answers_and_others_do_not() -> None:
    async def go() -> list[str]:
        async with simulated() as client:
            bodies = [ask("a"), ask("b"), ask("a", **shaped(Tree)), ask("b", **shaped(Tree))]
            return [await client.content(body) for body in bodies]

    first, again = asyncio.run(go()), asyncio.run(go())
    assert first == again
    assert len(set(first)) == 4


def test_the_prefix_cache_counts_leading_blocks_seen_before() -> None:
    two_blocks = "s" * (2 * 64 - len("system"))

    async def go() -> None:
        async with simulated() as client:
            assert await client.cached(ask("u" * 80, two_blocks)) == 0
            assert await client.cached(ask("v" * 80, two_blocks)) == 32
            assert await client.cached(ask("v" * 80, two_blocks)) == 48
            assert await client.cached(ask("v" * 80, "t" + two_blocks[1:])) == 0
            assert client.server.stats()["cached_tokens"] == 80
            client.server.reset()
            assert await client.cached(ask("v" * 80, two_blocks)) == 0

    asyncio.run(go())


def test_latency_follows_the_law_and_is_waited_for() -> None:
    options = {"latency": 0.01, "per_1k_prompt": 0.02, "per_output": 0.001, "output_tokens": 20}

    async def go() -> None:
        async with simulated(**options) as client:
            started = asyncio.get_running_loop().time()
            completion = await client.completion(ask("u" * 2000, "s" * 2000))
            elapsed = asyncio.get_running_loop().time() - started
            assert completion["usage"]["prompt_tokens"] == 1000
            assert completion["usage"]["completion_tokens"] == 20
            assert client.server.stats()["latency_sum"] == pytest.approx(0.05)
            assert elapsed >= 0.049  # the clocks of loop and timer may differ by their resolution

    asyncio.run(go())


def test_the_tail_spreads_latency_by_request_and_keeps_its_mean() -> None:
    plain, tailed = ServerOptions(), ServerOptions(tail=0.5, seed=3)
    latencies = [tailed.latency_of(str(number), 1000, 100) for number in range(4000)]
    assert latencies[7] == tailed.latency_of("7", 1000, 100)
    assert latencies[7] != ServerOptions(tail=0.5, seed=4).latency_of("7", 1000, 100)
    assert sum(latencies) / len(latencies) == pytest.approx(plain.latency_of("", 1000, 100), rel=0.05)
    logs = sorted(math.log(latency) for latency in latencies)
    assert logs[int(0.8413 * 4000)] - logs[2000] == pytest.approx(0.5, rel=0.1)


@pytest.mark.parametrize(
    ("kind", "expected", "code"),
    [
        ("429", openai.RateLimitError, "rate_limit_exceeded"),
        ("500", openai.InternalServerError, None),
        ("401", openai.AuthenticationError, "invalid_api_key"),
        ("404", openai.NotFoundError, "model_not_found"),
        ("context", openai.BadRequestError, "context_length_exceeded"),
    ],
)
def test_error_faults_are_what_openai_sends(kind: str, expected: type[openai.APIStatusError], code: str | None) -> None:
    async def go() -> None:
        async with simulated(behaviours=[(kind, 1)]) as client, openai_client(client.server) as model:
            with pytest.raises(expected) as caught:
                await model.chat.completions.create(**ask())
            assert caught.value.code == code
            assert caught.value.response.headers.get("retry-after") == ("0" if kind == "429" else None)

    asyncio.run(go())


def test_spoiled_answers() -> None:
    body = ask(**shaped(Everything))

    async def go() -> None:
        async with simulated(behaviours=[("cut", 2), ("garbage", 3)]) as client:
            whole, cut, garbage = [(await client.completion(body))["choices"][0] for _ in range(3)]
            assert cut["finish_reason"] == "length"
            assert whole["message"]["content"].startswith(cut["message"]["content"])
            for spoiled in (cut, garbage):
                with pytest.raises(json.JSONDecodeError):
                    json.loads(spoiled["message"]["content"])

    asyncio.run(go())


def test_a_page_instead_of_an_answer() -> None:
    async def go() -> None:
        async with (
            simulated(behaviours=[("html", 1)]) as client,
            ClientSession() as session,
            session.post(client.server.url + "/chat/completions", json=ask()) as response,
        ):
            assert (response.status, response.content_type) == (200, "text/html")

    asyncio.run(go())


def test_a_dropped_connection() -> None:
    async def go() -> None:
        async with simulated(behaviours=[("drop", 1)]) as client:
            with pytest.raises((ServerDisconnectedError, ConnectionResetError)):
                await client.completion(ask())

    asyncio.run(go())


def test_hung_calls_are_in_flight_until_their_clients_go_away() -> None:
    async def in_flight(client: Client, count: int) -> None:
        for _ in range(10_000):
            if client.server.stats()["in_flight"] == count:
                return
            await asyncio.sleep(0.001)
        raise AssertionError(f"never {count} calls in flight")

    async def go() -> None:
        async with simulated(behaviours=[("hang", 1)]) as client:
            calls = [asyncio.create_task(client.completion(ask(str(number)))) for number in range(5)]
            await in_flight(client, 5)
            for call in calls:
                call.cancel()
            await in_flight(client, 0)
            await asyncio.gather(*calls, return_exceptions=True)
            stats = client.server.stats()
            assert (stats["max_in_flight"], stats["faults"], stats["calls"]) == (5, 5, 0)

    asyncio.run(go())


def test_faults_come_every_so_many_requests_and_are_counted_apart() -> None:
    async def go() -> None:
        async with simulated(behaviours=[("429", 3), ("500", 2)]) as client:
            statuses = [await client.status(ask(str(number))) for number in range(6)]
            assert statuses == [200, 500, 429, 500, 200, 429]
            stats = client.server.stats()
            assert (stats["calls"], stats["faults"], stats["received"], stats["repeats"]) == (2, 4, 6, 0)

    asyncio.run(go())


def test_unknown_faults_are_refused() -> None:
    with pytest.raises(ValueError, match="flood:1 is unknown"):
        ServerOptions(behaviours=[("flood", 1)])


def test_stats_by_label_and_repeats() -> None:
    async def go() -> None:
        async with simulated() as client:
            for user in ("a", "b", "a", "a"):
                await client.completion(ask(user, "You solve. " + "s" * 60))
            await client.completion(ask("abc", "Judge."))
            stats = client.server.stats()
            judge = stats["by_label"]["Judge."]
            solve = stats["by_label"]["You solve. " + "s" * 29]
            assert (judge["calls"], judge["prompt_tokens"], judge["cached_tokens"]) == (1, 3, 0)
            assert (solve["calls"], solve["prompt_tokens"], solve["cached_tokens"]) == (4, 4 * 18, 3 * 16)
            for each in ("calls", "prompt_tokens", "cached_tokens", "output_tokens"):
                assert stats[each] == judge[each] + solve[each]
            assert stats["repeats"] == 2

    asyncio.run(go())


def test_the_log_has_a_line_for_every_request_received(tmp_path: Path) -> None:
    log = tmp_path / "requests.log"

    async def go() -> None:
        async with simulated(log=log, behaviours=[("500", 2)]) as client:
            for number, user in enumerate(("a", "b", "a"), start=1):
                await client.status(ask(user))
                assert len(log.read_text().splitlines()) == number

    asyncio.run(go())
    first, second, third = log.read_text().splitlines()
    assert first == third != second
    assert len(first) == 64


CHANGED: dict[str, tuple[Any, str]] = {
    "thoughts": ("<think>", "stop"),
    "thoughts-unopened": ("</think>", "stop"),
    "thoughts-unclosed": ("<think>", "length"),
    "reasoning-content": ("reasoning_content", "stop"),
    "reasoning": ("reasoning", "stop"),
    "only-reasoning-content": (None, "length"),
    "only-reasoning": ("", "length"),
    "empty": ("", "stop"),
    "null-content": (None, "stop"),
    "refusal": (None, "stop"),
    "filtered": ("", "content_filter"),
    "list-content": ("'type': 'text'", "stop"),
    "list-content-thinking": ("'type': 'thinking'", "stop"),
    "only-thinking-content": ("'type': 'thinking'", "length"),
    "cut": ("content", "length"),
    "garbage": ("Sure!", "stop"),
}


def test_every_answer_of_a_behaviour_is_the_same_streamed() -> None:
    changes = {name for name, behaviour in BEHAVIOURS.items() if behaviour.change}
    assert changes == CHANGED.keys() | {"no-choices", "error-in-200"}

    async def go(name: str, holds: Any, finish: str) -> None:
        async with simulated(behaviours=[(name, "Question")]) as client, openai_client(client.server) as model:
            for text, changed in (("Question?", True), ("Other?", False)):
                choice = (await client.completion(ask(text)))["choices"][0]
                message = choice["message"]
                assert choice["finish_reason"] == (finish if changed else "stop")
                assert not changed or (message["content"] == holds if not holds else holds in str(message))
                streamed: dict[str, Any] = {}
                async for chunk in await model.chat.completions.create(**ask(text), stream=True):
                    for field, value in chunk.choices[0].delta.model_dump(exclude_unset=True, warnings=False).items():
                        streamed[field] = streamed[field] + value if field in streamed else value
                assert {**streamed, "content": streamed.get("content") or message["content"]} == message

    for name, (holds, finish) in CHANGED.items():
        asyncio.run(go(name, holds, finish))


def test_a_responder_may_answer() -> None:
    def respond(body: Body) -> str | None:
        return "scripted" if body["messages"][-1]["content"] == "script" else None

    async def go() -> None:
        async with simulated(responder=respond) as client:
            assert await client.content(ask("script")) == "scripted"
            assert await client.content(ask("else")) != "scripted"

    asyncio.run(go())


@pytest.mark.parametrize("body", [{}, []])
def test_requests_it_cannot_answer_are_refused(body: Any) -> None:
    async def go() -> None:
        async with simulated() as client:
            assert await client.status(body) == 400

    asyncio.run(go())


def test_the_model_list() -> None:
    async def go() -> list[str]:
        async with simulated() as client, openai_client(client.server) as model:
            return [each.id async for each in model.models.list()]

    assert asyncio.run(go()) == ["sim"]


@pytest.mark.slow
def test_a_server_in_a_process_of_its_own(tmp_path: Path) -> None:
    log = tmp_path / "requests.log"
    with start_process(**AT_ONCE, output_tokens=7, behaviours=[("429", 2)], log=log) as server:
        with openai.OpenAI(base_url=server.url, api_key="none", max_retries=0) as model:
            model.chat.completions.create(**ask())
            with pytest.raises(openai.RateLimitError):
                model.chat.completions.create(**ask())
        stats = server.stats()
        assert (stats["calls"], stats["faults"], stats["repeats"]) == (1, 1, 1)
        assert (stats["output_tokens"], stats["latency_sum"]) == (7, 0)
        server.reset()
        assert server.stats()["calls"] == 0
    assert server.process.returncode == 0
    assert len(log.read_text().splitlines()) == 2


def test_a_wrong_command_line_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--behaviour", "flood:1"])
    assert "behaviour flood:1 is unknown" in capsys.readouterr().err
