"""One model on several servers: routing of calls, and calls of a server that fails."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from math import ceil
from typing import Any

from helpers import asynchronous
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from practicum.core.counts import Count
from practicum.core.errors import ProviderError
from practicum.core.types import Prompt, Turn
from practicum.models.client import CallOptions, Reply
from practicum.models.registry import Models
from practicum.models.scripted import ScriptedClient
from practicum.models.spread import MORE_THAN_MEAN, SIDE_BY_SIDE, Server, Spread


class Held(ScriptedClient):
    """Reports each call, and answers when it is released."""

    def __init__(self, arrived: asyncio.Queue[None]) -> None:
        super().__init__(lambda call: "answer")
        self.arrived, self.release = arrived, asyncio.Event()

    async def complete(self, *call: Any) -> Reply:
        reply = await super().complete(*call)
        self.arrived.put_nowait(None)
        await self.release.wait()
        return reply


def spread(clients: Sequence[ScriptedClient], slots: int = 100, pause: float = 0.0) -> Spread:
    """A model on servers s0, s1, ..., one for each client."""
    servers = {Server(f"s{n}", slots): client for n, client in enumerate(clients)}
    return Spread(name="m", clients=servers, attempts=3, pause=pause)


def counts_of(model: Spread) -> dict[str, int]:
    """The calls that each server has had."""
    return {server.name: len(client.calls) for server, client in model.clients.items()}


@asynchronous
async def homes(model: Spread, *asked: Prompt) -> list[str]:
    """The servers that answer these prompts, one after another."""
    names = []
    for prompt in asked:
        before = counts_of(model)
        await model.complete("agent", prompt, None, CallOptions())
        names += [name for name, count in counts_of(model).items() if count > before[name]]
    return names


def idle(n: int) -> Spread:
    return spread([ScriptedClient(lambda call: "answer") for _ in range(n)])


async def ask(model: Spread, system: str, user: str = "question", *turns: Turn) -> Reply:
    return await model.complete("agent", Prompt(system, user, turns=turns), None, CallOptions())


prompts = st.builds(
    Prompt, st.text(max_size=20), st.text(max_size=20), st.lists(st.text(max_size=20), max_size=3).map(tuple)
)


@given(prompts, st.text(), st.text(), st.integers(1, 8))
def test_prompts_that_begin_alike_go_to_one_server(prompt: Prompt, user: str, closing: str, n: int) -> None:
    pages = ("page 1: " + "x" * 1000, "page 2")
    asked = Prompt(prompt.system, user, prompt.pages, closing=closing)
    assert len({*homes(idle(n), prompt, asked)}) == 1
    assert homes(idle(n), asked) == homes(idle(n), prompt)
    # Later versions of a playbook change later parts of the prompt.
    versions = [pages, (pages[0] + " and more", *pages[1:]), pages[:1]]
    assert len({*homes(idle(n), *(Prompt(prompt.system, user, version) for version in versions))}) == 1


@given(st.lists(prompts, max_size=8), st.integers(2, 8), st.data())
def test_a_missing_server_moves_only_its_own_calls(asked: list[Prompt], n: int, data: st.DataObject) -> None:
    whole, missing = idle(n), data.draw(st.integers(0, n - 1))
    left = {server: client for server, client in idle(n).clients.items() if server.name != f"s{missing}"}
    before, after = homes(whole, *asked), homes(Spread(name="m", clients=left, attempts=3), *asked)
    assert all(now == then or then == f"s{missing}" for then, now in zip(before, after, strict=True))


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


@asynchronous
async def test_a_conversation_stays_on_its_server_after_another_server_was_busy() -> None:
    arrived: asyncio.Queue[None] = asyncio.Queue()
    held = [Held(arrived), Held(arrived)]
    model = spread(held)
    busy = [asyncio.create_task(ask(model, "role")) for _ in range(SIDE_BY_SIDE)]
    for _ in busy:
        await arrived.get()
    (home,) = (n for n, client in enumerate(held) if client.calls)
    held[1 - home].release.set()
    await ask(model, "role", "a new question")
    held[home].release.set()
    await asyncio.gather(*busy)
    await ask(model, "role", "go on", Turn("a new question", "an answer"))
    assert [len(held[home].calls), len(held[1 - home].calls)] == [SIDE_BY_SIDE, 2]


def test_a_failed_server_is_skipped_and_its_calls_move_to_another() -> None:
    answers: list[str | Exception] = [ProviderError("provider.failed", "the server is down"), "back"]
    (home,) = homes(idle(2), Prompt("role", "question"))
    clients = [ScriptedClient(lambda call: "moved")]
    clients.insert(int(home[1:]), ScriptedClient(lambda call: answers.pop(0)))
    model = spread(clients, pause=60.0)

    async def work() -> list[tuple[str, bool]]:
        replies = [await ask(model, "role"), await ask(model, "role")]
        [*model.clients][int(home[1:])].down_until = 0.0
        replies.append(await ask(model, "role"))
        return [(reply.text, Count.MOVED_CALLS in reply.changed) for reply in replies]

    assert asyncio.run(work()) == [("moved", True), ("moved", False), ("back", False)]
    assert counts_of(model) == {home: 2, f"s{1 - int(home[1:])}": 2}


INVALID = (
    "http://a:8000/v1,http://b:8000/v1", "http://a:8000/v1,,http://b:8000/v1#m",
    "http://a:8000/v1#m,http://b:8000/v1#n", "http://a:8000/v1, HTTP://A:8000/v1/#m", "http://a/v1,http://a:80/v1#m",
    "http://a:8000/v1,b:8000/v1#m", "openai:gpt-4.1-mini,http://a:8000/v1#m", "http://a:8000/v1,http://b:port/v1#m",
    "http://a:8000/v1,http://[::1/v1#m",
)  # fmt: skip


def test_an_invalid_list_of_servers_is_refused() -> None:
    for name in INVALID:
        with refused("model.invalid_name"):
            Models().open(name)
