"""One model on several servers: where calls go, what happens to those of a server that fails, and what is cached."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from math import ceil
from pathlib import Path
from typing import Any

import pytest
from helpers import make_tasks
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

import practicum
from practicum.core.types import Prompt, Turn
from practicum.models.client import CallOptions, Reply
from practicum.models.registry import Models
from practicum.models.scripted import ScriptedClient
from practicum.models.spread import MORE_THAN_MEAN, SIDE_BY_SIDE, Server, Spread
from practicum.session.live import Live
from practicum.session.result import Result

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


def test_without_any_server_a_run_stops_as_with_one_that_is_down(tmp_path: Path) -> None:
    with refused("model.unreachable"):
        practicum.run_sync(learn(tmp_path / "run", [f"{DOWN}{port}/v1" for port in (1, 7)]))


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("http://a:8000/v1,http://b:8000/v1", "model.invalid_name"),
        ("http://a:8000/v1,http://b:8000/v1#", "model.invalid_name"),
        ("http://a:8000/v1,,http://b:8000/v1#m", "model.invalid_name"),
        ("http://a:8000/v1,#m", "model.invalid_name"),
        (",http://a:8000/v1#m", "model.invalid_name"),
        ("http://a:8000/v1#m,http://b:8000/v1#n", "model.invalid_name"),
        ("http://a:8000/v1,HTTP://A:8000/v1/#m", "model.invalid_name"),
        ("http://a:8000/v1, http://A:8000/v1/#m", "model.invalid_name"),
        ("http://a/v1,http://a:80/v1#m", "model.invalid_name"),
        ("http://a:8000/v1,b:8000/v1#m", "model.invalid_name"),
        ("b:8000/v1,http://a:8000/v1#m", "model.invalid_name"),
        ("openai:gpt-4.1-mini,http://a:8000/v1#m", "model.invalid_name"),
        ("http://a:8000/v1,http://b:port/v1#m", "model.invalid_name"),
        ("http://a:8000/v1,http://#m", "model.invalid_name"),
        ("http://a:8000/v1,http://[::1/v1#m", "model.invalid_name"),
        (",#m", "model.unknown"),
    ],
)
def test_a_list_that_is_none_is_refused_in_one_line(name: str, code: str) -> None:
    with refused(code) as caught:
        Models().open(name)
    assert "\n" not in str(caught.value)
