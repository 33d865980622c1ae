"""Kills of nodes, which are processes on one PostgreSQL server, lose nothing acknowledged."""

from __future__ import annotations

from needs import needs

needs("psycopg", "postgres")

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
import psycopg
import pytest
from loads import CLIENTS, Load, Server, free_port, live_corrections
from serving import asynchronous, say_text, until

from practicum.plugins.postgres.database import lease_number
from practicum.testing import ServerOptions, serve

KILLS = int(os.environ.get("PRACTICUM_TEST_KILLS", "2"))

pytestmark = [pytest.mark.postgres, pytest.mark.slow, pytest.mark.timeout(600 + 60 * KILLS)]

ENOUGH = 30
"""Replies of a node between two kills, at least."""


@dataclass
class Node(Load):
    """A node as a process, and its clients."""

    process: subprocess.Popen[bytes] | None = None

    async def start(self, command: list[str]) -> None:
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: ASYNC220
        await self.server.ready(self.process.poll)
        self.up.set()

    async def kill(self) -> None:
        """Kill it during requests and reports. A report without an answer may have been stored."""
        self.up.clear()
        self.end()
        await until(lambda: self.parked == CLIENTS)

    def end(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()


def stored(url: str, query: str) -> list[Any]:
    with psycopg.connect(url) as db:
        return db.execute(query).fetchall()


@asynccontextmanager
async def resting(nodes: list[Node]) -> AsyncIterator[None]:
    """No client sends requests in this block."""
    for node in nodes:
        node.up.clear()
    await until(lambda: all(node.parked == CLIENTS for node in nodes))
    yield
    for node in nodes:
        node.up.set()


def check(url: str, nodes: list[Node], decided: dict[int, str]) -> None:
    """Require that all acknowledged reports of all nodes are stored, none twice. `decided` collects the final states of
    rollouts by their numbers."""
    outcomes = {id: json.loads(data) for id, data in stored(url, "SELECT id, data FROM practicum.outcomes")}
    stored_ids = {id for (id,) in stored(url, "SELECT id FROM practicum.interactions")}
    assert outcomes.keys() <= stored_ids
    corrections = stored(url, "SELECT applied FROM practicum.corrections ORDER BY version")
    live = [(one.query, one.target) for one in live_corrections(applied for (applied,) in corrections)]
    assert len(live) == len(dict(live))
    for node in nodes:
        for id, acknowledged in node.reports.items():
            reports = outcomes[id]["reports"]
            reported = [(name, each[name]) for each in reports for name in ("score", "target") if name in each]
            assert [each for each in reported if each in acknowledged] == acknowledged
            assert all(each in acknowledged or each[1] in node.unsure for each in reported)
            assert outcomes[id]["own"] == dict(reported)
        for question, hold in node.hold.items():
            assert dict(live).get(question, "") in hold
    assert len(set.union(*(node.answered for node in nodes))) == sum(len(node.answered) for node in nodes)
    states = dict(stored(url, "SELECT number, state FROM practicum.rollouts"))
    assert [*states.values()].count("canary") <= 1
    assert decided.items() <= states.items()
    decided.update((number, state) for number, state in states.items() if state != "canary")
    announced = [text.split()[1] for (text,) in stored(url, "SELECT text FROM practicum.alarms WHERE kind = 'rollout'")]
    assert len(announced) == len(set(announced)) <= len(decided)
    versions = stored(url, "SELECT version FROM practicum.versions")
    assert set.union(*(node.versions for node in nodes)) <= {version for (version,) in versions}


@asynccontextmanager
async def at_work(url: str, folder: Path) -> AsyncIterator[tuple[list[Node], list[list[str]]]]:
    """Two nodes that do not run yet, with clients that wait, and the commands that start them."""
    async with AsyncExitStack() as stack:
        behind = await stack.enter_async_context(serve(ServerOptions(responder=say_text, chunks=8)))
        http = await stack.enter_async_context(aiohttp.ClientSession())
        nodes = [Node(Server(free_port(), behind, http), Random(n)) for n in range(2)]
        commands = [
            [
                sys.executable, "-m", "practicum.cli.app", "serve", "--upstream", f"{behind.url}#sim", url,
                "--folder", str(folder / str(node.server.port)), "--port", str(node.server.port), "--method",
                "episodes", "--learn-every", "4", "--canary", "0.5", "--canary-length", "20",
            ] for node in nodes
        ]  # fmt: skip
        for number, node in enumerate(nodes):
            stack.callback(node.end)
            for client in range(CLIENTS):
                # Each question belongs to one client.
                task = asyncio.create_task(node.work(number * CLIENTS + client))
                stack.callback(task.cancel)
                task.add_done_callback(lambda task: None if task.cancelled() else task.result())
        yield nodes, commands


async def more(*nodes: Node, some: int = 0) -> None:
    """Wait until nodes have answered enough, and some more."""
    goals = [node.replies + ENOUGH + some for node in nodes]
    await until(lambda: all(node.replies >= goal for node, goal in zip(nodes, goals, strict=True)))


@asynchronous
async def test_a_killed_node_loses_nothing_acknowledged_and_the_others_go_on(postgresql: str, tmp_path: Path) -> None:
    rng, decided = Random(1), dict[int, str]()
    async with at_work(postgresql, tmp_path) as (nodes, commands):
        for node, command in zip(nodes, commands, strict=True):
            await node.start(command)
        for _ in range(KILLS):
            await more(*nodes, some=rng.randrange(ENOUGH))
            number = rng.randrange(2)
            await nodes[number].kill()
            await more(nodes[1 - number])
            await nodes[number].start(commands[number])
            async with resting(nodes):
                check(postgresql, nodes, decided)
        await more(*nodes)
        async with resting(nodes):
            check(postgresql, nodes, decided)
        while not decided:  # a rollout that began late needs more scores
            await more(*nodes)
            async with resting(nodes):
                check(postgresql, nodes, decided)
        assert sum(node.refused for node in nodes) == 0
        assert sum(len(node.reports) for node in nodes) > 10 * KILLS


def learns(url: str) -> bool:
    """Whether a node has the lease of the space's learner."""
    if stored(url, "SELECT to_regclass('practicum.spaces')") == [(None,)]:
        return False
    held = "SELECT classid::bigint << 32 | objid::bigint FROM pg_locks WHERE locktype = 'advisory' AND granted"
    leases = {number for (number,) in stored(url, f"{held} AND objsubid = 1")}
    spaces = stored(url, "SELECT space FROM practicum.spaces WHERE name = 'default'")
    return any(lease_number(space) in leases for (space,) in spaces)


@asynchronous
async def test_a_node_that_loses_its_connection_while_it_learns_writes_no_more(postgresql: str, tmp_path: Path) -> None:
    async with at_work(postgresql, tmp_path) as ((cut, other), commands):
        await cut.start(commands[0])
        assert cut.process is not None
        async with asyncio.timeout(120):
            while not learns(postgresql):  # noqa: ASYNC110
                await asyncio.sleep(0)
            cut.process.send_signal(signal.SIGSTOP)
        # It learns, and does not notice that all its connections end.
        mine = "pid <> pg_backend_pid() AND datname = current_database()"
        ended = stored(postgresql, f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {mine}")
        assert ended
        await until(lambda: not learns(postgresql))
        tokens = "SELECT token FROM practicum.spaces WHERE name = 'default'"
        ((before,),) = stored(postgresql, tokens)
        await other.start(commands[1])
        rollouts = "SELECT number, version, state FROM practicum.rollouts ORDER BY number"
        await until(lambda: stored(postgresql, rollouts))
        assert stored(postgresql, tokens)[0][0] > before
        cut.process.send_signal(signal.SIGCONT)
        await more(cut, other)
        async with resting([cut, other]):
            check(postgresql, [cut, other], {})
        decisions = stored(postgresql, rollouts)
        assert len({version for _, version, _ in decisions}) == len(decisions)
