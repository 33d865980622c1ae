"""One model on several servers: where calls go, what happens to those of a server that fails, and what is cached."""

from __future__ import annotations

import asyncio
import re
import runpy
from collections.abc import Sequence
from contextlib import AsyncExitStack
from math import ceil
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from helpers import make_tasks
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

import practicum
from practicum.core.counts import Count
from practicum.core.errors import ProviderError, UsageError
from practicum.core.types import Prompt, Turn
from practicum.models.client import CallOptions, Reply
from practicum.models.keys import KEYS_FILE_VARIABLE
from practicum.models.registry import ClientSettings, Models
from practicum.models.scripted import Call, ScriptedClient
from practicum.models.spread import MORE_THAN_MEAN, SIDE_BY_SIDE, Server, Spread
from practicum.session.live import Live
from practicum.session.result import Result
from practicum.testing import ServerOptions, serve

DOWN = "http://127.0.0.1:"


class Held(ScriptedClient):
    """Tells of each call, and answers when it is released."""

    def __init__(self, arrived: asyncio.Queue[None]) -> None:
        super().__init__(lambda call: "answer")
        self.arrived, self.release = arrived, asyncio.Event()

    async def complete(self, *call: Any) -> Reply:
        reply = await super().complete(*call)
        self.arrived.put_nowait(None)
        await self.release.wait()
        return reply


def spread(clients: Sequence[ScriptedClient], slots: int = 100, pause: float = 0.0) -> Spread:
    """A model on as many servers, which are named s0, s1, ..."""
    servers = {Server(f"s{n}", slots): client for n, client in enumerate(clients)}
    return Spread(name="m", clients=servers, attempts=3, pause=pause)


def counts_of(model: Spread) -> dict[str, int]:
    """The calls that each server has had."""
    return {server.name: len(client.calls) for server, client in model.clients.items()}


def homes(model: Spread, *asked: Prompt) -> list[str]:
    """The servers that answer these prompts, one after another."""

    async def work() -> list[str]:
        found = []
        for prompt in asked:
            before = counts_of(model)
            await model.complete("agent", prompt, None, CallOptions())
            found += [name for name, count in counts_of(model).items() if count > before[name]]
        return found

    return asyncio.run(work())


def idle(n: int) -> Spread:
    return spread([ScriptedClient(lambda call: "answer") for _ in range(n)])


async def ask(model: Spread, system: str, options: CallOptions | None = None, *turns: Turn) -> Reply:
    return await model.complete("agent", Prompt(system, "question", turns=turns), None, options or CallOptions())


prompts = st.builds(
    Prompt, st.text(max_size=20), st.text(max_size=20), st.lists(st.text(max_size=20), max_size=3).map(tuple)
)


@given(prompts, st.text(), st.text(), st.integers(1, 8))
def test_prompts_that_begin_alike_go_to_one_server(prompt: Prompt, user: str, closing: str, n: int) -> None:
    pages = ("page 1: " + "x" * 1000, "page 2")
    asked = Prompt(prompt.system, user, prompt.pages, closing=closing)
    assert len({*homes(idle(n), prompt, asked)}) == 1
    assert homes(idle(n), asked) == homes(idle(n), prompt)
    # Later versions of a playbook change what is further back.
    versions = [pages, (pages[0] + " and more", *pages[1:]), pages[:1]]
    assert len({*homes(idle(n), *(Prompt(prompt.system, user, version) for version in versions))}) == 1


@given(st.lists(prompts, max_size=8), st.integers(2, 8), st.data())
def test_a_server_that_goes_moves_its_own_calls_alone(asked: list[Prompt], n: int, data: st.DataObject) -> None:
    whole, gone = idle(n), data.draw(st.integers(0, n - 1))
    left = {server: client for server, client in idle(n).clients.items() if server.name != f"s{gone}"}
    before, after = homes(whole, *asked), homes(Spread(name="m", clients=left, attempts=3), *asked)
    assert all(now == then or then == f"s{gone}" for then, now in zip(before, after, strict=True))


@given(st.lists(st.integers(0, 3), min_size=1, max_size=40), st.integers(1, 6), st.integers(1, 30))
def test_no_server_has_many_more_calls_than_the_others(roles: list[int], n: int, slots: int) -> None:
    async def work() -> dict[str, int]:
        arrived: asyncio.Queue[None] = asyncio.Queue()
        held = [Held(arrived) for _ in range(n)]
        model = spread(held, slots)
        calls = []
        for total, role in enumerate(roles[: model.slots], 1):  # the engine lets no more in
            calls.append(asyncio.create_task(ask(model, f"role {role}")))
            await arrived.get()
            most = max(SIDE_BY_SIDE, ceil(MORE_THAN_MEAN * total / n))
            assert max(server.in_flight for server in model.clients) <= min(most, slots)
        for client in held:
            client.release.set()
        await asyncio.gather(*calls)
        assert [server.in_flight for server in model.clients] == [0] * n
        return counts_of(model)

    assert asyncio.run(work()) == asyncio.run(work())


def test_a_conversation_stays_where_its_turns_are_when_its_first_server_was_busy() -> None:
    async def work() -> list[int]:
        arrived: asyncio.Queue[None] = asyncio.Queue()
        held = [Held(arrived) for _ in range(2)]
        model = spread(held)
        busy = [asyncio.create_task(ask(model, "role")) for _ in range(SIDE_BY_SIDE)]
        for _ in busy:
            await arrived.get()
        (home,) = (n for n, client in enumerate(held) if client.calls)
        held[1 - home].release.set()
        prompt = Prompt("role", "a question of its own")
        await model.complete("agent", prompt, None, CallOptions())
        held[home].release.set()
        await asyncio.gather(*busy)
        turn = Turn(prompt.user, "an answer")
        await model.complete("agent", Prompt("role", "go on", turns=(turn,)), None, CallOptions())
        return [len(held[home].calls), len(held[1 - home].calls)]

    assert asyncio.run(work()) == [SIDE_BY_SIDE, 2]


class Said(Live):
    """Keeps the lines that stay."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)


async def learn(folder: Path, addresses: Sequence[str], watch: Said | None = None, **config: Any) -> Result:
    """A run of six steps with two attempts each."""
    config = {"settings": {"rounds": 0, "batch": 2}, "model": ",".join(addresses) + "#sim"} | config
    return await practicum.learn(make_tasks(12), out=folder, watch=watch, **config)


@pytest.mark.parametrize("fault", ["500", "drop", "html", "429", "refused"])
def test_a_run_goes_on_without_a_server_and_ends_with_the_same_context(tmp_path: Path, fault: str) -> None:
    async def work() -> None:
        async with AsyncExitStack() as stack:
            stacks = [await stack.enter_async_context(AsyncExitStack()) for _ in range(3)]
            servers = [await own.enter_async_context(serve(ServerOptions())) for own in stacks]
            addresses = [server.url for server in servers]
            whole = await learn(tmp_path / "whole", addresses)
            # The one that is asked most fails from now on.
            ill = max(range(3), key=lambda n: servers[n].stats()["calls"])
            await stacks[ill].aclose()
            if fault != "refused":
                port = urlsplit(addresses[ill]).port or 0
                await stack.enter_async_context(serve(ServerOptions(port=port, behaviours=[(fault, 1)])))
            said = Said()
            result = await learn(tmp_path / "run", addresses, said)
            assert [e.text for e in result.context] == [e.text for e in whole.context]
            assert result.usage.calls == whole.usage.calls
            assert "moved_calls" not in whole.errors
            assert result.errors["moved_calls"] > 0
            line = f"{addresses[ill]}#sim failed, so its calls go to the other servers: "
            # A server that only limits the rate of calls is not down.
            assert sum(text.startswith(line) for text in said.lines) == (fault != "429")

    practicum.run_sync(work())


def test_a_server_that_is_up_again_gets_its_calls_back() -> None:
    down = True

    def answer(call: Call) -> str | Exception:
        return ProviderError("provider.failed", "it is down") if down else "answer"

    async def work(pause: float) -> list[int]:
        nonlocal down
        down = True
        home = homes_of.index("s0") if "s0" in homes_of else 1
        clients = [ScriptedClient(answer), ScriptedClient(lambda call: "answer")]
        model = spread(clients if home == 0 else clients[::-1], pause=pause)
        moved = await ask(model, "role")
        assert moved.changed == (Count.MOVED_CALLS,)
        down = False
        for _ in range(3):
            assert (await ask(model, "role")).changed == ()
        return [len(client.calls) for client in clients]

    homes_of = homes(idle(2), Prompt("role", "question"))
    assert asyncio.run(work(pause=0.0)) == [4, 1]
    assert asyncio.run(work(pause=1000.0)) == [1, 4]


def test_without_any_server_a_run_stops_as_with_one_that_is_down(tmp_path: Path) -> None:
    with refused("model.unreachable"):
        practicum.run_sync(learn(tmp_path / "run", [f"{DOWN}{port}/v1" for port in (1, 7)]))


def test_a_run_is_resumed_on_other_servers(tmp_path: Path) -> None:
    """The servers are no part of what the journal knows a call by."""

    async def work() -> None:
        async with AsyncExitStack() as stack:
            servers = [await stack.enter_async_context(serve(ServerOptions())) for _ in range(4)]
            a, b, c, d = (server.url for server in servers)
            whole = await learn(tmp_path / "whole", [a, b])
            stopped = await learn(tmp_path / "run", [a, b], max_calls=5)
            assert stopped.stopped
            result = await practicum.resume(tmp_path / "run", model=f"{b}, {c},{d}#sim", max_calls=10_000)
            assert result.usage.calls == whole.usage.calls
            assert [e.text for e in result.context] == [e.text for e in whole.context]
            with refused("settings.fixed"):
                await practicum.resume(tmp_path / "run", model=f"{a},{b}#other")

    practicum.run_sync(work())


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("http://a:8000/v1,http://b:8000/v1", "lacks the model's name"),
        ("http://a:8000/v1,http://b:8000/v1#", "lacks the model's name"),
        ("http://a:8000/v1,,http://b:8000/v1#m", "a comma without an address beside it"),
        ("http://a:8000/v1,#m", "a comma without an address beside it"),
        (",http://a:8000/v1#m", "a comma without an address beside it"),
        ("http://a:8000/v1#m,http://b:8000/v1#n", "an address behind the model's name"),
        ("http://a:8000/v1,HTTP://A:8000/v1/#m", "is no address"),
        ("http://a:8000/v1, http://A:8000/v1/#m", "names the server http://A:8000/v1/ twice"),
        ("http://a/v1,http://a:80/v1#m", "names the server http://a:80/v1 twice"),
        ("http://a:8000/v1,b:8000/v1#m", "'b:8000/v1' is no address"),
        ("b:8000/v1,http://a:8000/v1#m", "'b:8000/v1' is no address"),
        ("openai:gpt-4.1-mini,http://a:8000/v1#m", "'openai:gpt-4.1-mini' is no address"),
        ("http://a:8000/v1,http://b:port/v1#m", "'http://b:port/v1' is no address"),
        ("http://a:8000/v1,http://#m", "'http://' is no address"),
        ("http://a:8000/v1,http://[::1/v1#m", "is no address"),
        (",#m", "unknown model"),
    ],
)
def test_a_list_that_is_none_is_refused_in_one_line(name: str, said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)) as caught:
        Models().open(name)
    assert "\n" not in str(caught.value)


def test_keys_go_to_a_server_of_a_list_as_to_one_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each server gets its own key, none over plain HTTP to another machine, and no two the one of `api_key_env`."""
    keys = tmp_path / "keys.toml"
    keys.write_text('"127.0.0.1:1" = "the key of one"\n"elsewhere.example" = "the key of another"\n')
    keys.chmod(0o600)
    monkeypatch.setenv(KEYS_FILE_VARIABLE, str(keys))
    monkeypatch.setenv("MY_KEY", "a key for one server")

    async def work() -> None:
        models = Models()
        model: Any = models.open("http://127.0.0.1:1/v1, http://127.0.0.1:2/v1 ,https://elsewhere.example/v1#m")
        assert [client.key for client in model.clients.values()] == ["the key of one", None, "the key of another"]
        await models.close()
        with refused("model.unsafe_key"):
            Models().open("https://elsewhere.example/v1,http://elsewhere.example/v1#m")
        with refused("model.unsafe_key"):
            Models(ClientSettings(api_key_env="MY_KEY")).open("https://a.example/v1,https://b.example/v1#m")

    asyncio.run(work())


def test_a_server_with_another_model_is_named(tmp_path: Path) -> None:
    async def work() -> None:
        async with (
            serve(ServerOptions(behaviours=[("404", 1)])) as a,
            serve(ServerOptions(behaviours=[("404", 1)])) as b,
        ):
            with refused("model.not_found"):
                await learn(tmp_path / "run", [a.url, b.url])

    practicum.run_sync(work())


def test_more_is_cached_than_in_turn() -> None:
    bench = runpy.run_path(str(Path(__file__).parents[2] / "bench" / "routing_bench.py"))
    ways = (None, Spread, bench["RoundRobin"])
    one, routed, turns = asyncio.run(bench["measure"](ways, servers=4, steps=3, batch=2))
    assert routed == one > turns + 0.2
