"""Nodes as processes on one PostgreSQL server, whose kills and whose server's kills lose nothing acknowledged."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
import psycopg
import pytest
from loads import CLIENTS, Load, Server, free_port
from postgres import Server as Postgres
from serving import asynchronous, until
from sqlalchemy import make_url

from practicum.serve.shared import SCHEMA
from practicum.store.postgresql import lock_number
from practicum.testing.upstream import UpstreamOptions, upstream

pytestmark = [pytest.mark.postgres, pytest.mark.slow, pytest.mark.timeout(900)]

KILLS = 4
ENOUGH = 30
"""Replies that a node gives between two kills, at least."""


@dataclass
class Node(Load):
    """A node as a process, and its clients. The database may be away, which they are told."""

    process: subprocess.Popen[bytes] | None = None
    refused: int = 0
    waiting: bool = False

    async def report(self, name: str, value: Any, **about: str) -> bool:
        try:
            reply = await self.server.report(**about, **{name: value})
        except aiohttp.ClientError:
            await self.gone()
            return False
        if reply.status == 503:
            assert int(reply.headers["retry-after"]) > 0
            self.refused += 1
            return False
        # An interaction that was not written when its node was killed is not known.
        assert reply.status == 200 or (reply.status == 404 and "session" in about), reply.body
        if reply.status == 200:
            self.reports.setdefault(reply.json["interaction"], []).append((name, value))
        return reply.status == 200

    async def start(self, command: list[str]) -> None:
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: ASYNC220
        await self.server.ready(self.process.poll)
        self.up.set()

    async def kill(self) -> None:
        """Kill it between two requests of its clients: a request that it does not answer tells nothing."""
        self.up.clear()
        await until(lambda: self.parked == CLIENTS)
        self.end()

    def end(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()


def stored(url: str, query: str) -> list[Any]:
    with psycopg.connect(url) as db:
        return db.execute(query).fetchall()


def check(url: str, nodes: list[Node]) -> None:
    """Look whether all is there that was acknowledged, on whichever node."""
    outcomes = {id: json.loads(data) for id, data in stored(url, "SELECT id, data FROM practicum_service.outcomes")}
    for node in nodes:
        for id, said in node.reports.items():
            reports = outcomes[id]["reports"]
            reported = [(name, each[name]) for each in reports for name in ("score", "target") if name in each]
            assert [each for each in reported if each in said] == said
    corrections = stored(url, "SELECT data FROM practicum_service.corrections WHERE state = 'live'")
    live = [json.loads(data)["query"] for (data,) in corrections]
    assert len(live) == len(set(live))
    assert stored(url, "SELECT count(*) FROM practicum_service.rollouts WHERE state = 'canary'")[0][0] <= 1


@asynccontextmanager
async def nodes_at(url: str, folder: Path, seed: int) -> AsyncIterator[tuple[list[Node], Callable[[Node], list[str]]]]:
    """Two nodes that are not started yet, with clients, and the command that starts one."""
    async with AsyncExitStack() as stack:
        behind = await stack.enter_async_context(upstream(UpstreamOptions(chunks=8)))
        http = await stack.enter_async_context(aiohttp.ClientSession())
        nodes = [Node(Server(free_port(), behind, http), Random(seed + n)) for n in range(2)]

        def command(node: Node) -> list[str]:
            return [
                sys.executable, "-m", "practicum.cli.app", "serve", "--upstream", f"{behind.url}#sim", "--store", url,
                "--folder", str(folder / str(node.server.port)), "--port", str(node.server.port), "--method",
                "episodes", "--learn-every", "4", "--canary", "0.5", "--canary-length", "20",
            ]  # fmt: skip

        for node in nodes:
            stack.callback(node.end)
            for client in range(CLIENTS):
                task = asyncio.create_task(node.work(client))
                stack.callback(task.cancel)
                task.add_done_callback(lambda task: None if task.cancelled() else task.result())
        yield nodes, command


@asynccontextmanager
async def at_work(url: str, folder: Path, seed: int) -> AsyncIterator[tuple[list[Node], Callable[[Node], list[str]]]]:
    """Two nodes with clients at work, and the command that starts one."""
    async with nodes_at(url, folder, seed) as (nodes, command):
        for node in nodes:
            await node.start(command(node))
        yield nodes, command


async def more(*nodes: Node) -> None:
    """Wait until nodes have answered some more."""
    goals = [node.replies + ENOUGH for node in nodes]
    await until(lambda: all(node.replies >= goal for node, goal in zip(nodes, goals, strict=True)))


@asynchronous
async def test_a_killed_node_loses_nothing_acknowledged_and_the_others_go_on(postgresql: str, tmp_path: Path) -> None:
    async with at_work(postgresql, tmp_path, 1) as (nodes, command):
        for number in range(KILLS):
            await more(*nodes)
            node, other = nodes[number % 2], nodes[1 - number % 2]
            await node.kill()
            await more(other)
            await node.start(command(node))
        await more(*nodes)
        check(postgresql, nodes)
        assert sum(node.refused for node in nodes) == 0
        versions = stored(postgresql, "SELECT version FROM practicum.versions WHERE run_id = 'spaces/default'")
        assert set.union(*(node.versions for node in nodes)) <= {version for (version,) in versions}
        assert len(versions) > 1


@asynchronous
async def test_a_killed_server_of_the_database_stops_no_request(tmp_path: Path) -> None:
    server = Postgres(Path(tempfile.mkdtemp()) / "postgres")
    server.folder.parent.chmod(0o755)
    server.make()
    server.start()
    try:
        url = make_url(server.url).render_as_string(hide_password=False)
        async with at_work(url, tmp_path, 2) as (nodes, _):
            for _ in range(KILLS // 2):
                await more(*nodes)
                server.kill()
                # Every one of these is answered while nothing can be written.
                await more(*nodes)
                await asyncio.to_thread(server.start)
                refused = [node.refused for node in nodes]
                assert all(refused)
                said = [sum(map(len, node.reports.values())) for node in nodes]
                await until(
                    lambda said=said: all(
                        sum(map(len, n.reports.values())) > s for n, s in zip(nodes, said, strict=True)
                    )
                )
            check(url, nodes)
            known = {id for (id,) in stored(url, "SELECT id FROM practicum_service.interactions")}
            for node in nodes:
                await until(lambda node=node: not node.process or node.process.poll() is None)
                health = await node.server.send("GET", "/health")
                assert health.json["lost"] == 0
            assert known
    finally:
        server.stop()


LEARNS = f"""SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1
AND (classid::bigint << 32 | objid::bigint) = {lock_number(f"{SCHEMA} learning in default")}"""
"""The connection of the node that learns."""


@asynchronous
async def test_a_node_that_loses_its_connection_while_it_learns_writes_no_more(postgresql: str, tmp_path: Path) -> None:
    async with nodes_at(postgresql, tmp_path, 3) as ((cut, other), command):
        await cut.start(command(cut))
        assert cut.process is not None
        async with asyncio.timeout(120):
            while not stored(postgresql, LEARNS):  # noqa: ASYNC110
                await asyncio.sleep(0)
            cut.process.send_signal(signal.SIGSTOP)
        # It is in a round, and does not notice that all its connections end.
        mine = "pid <> pg_backend_pid() AND datname = current_database()"
        ended = stored(postgresql, f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {mine}")
        assert ended
        await until(lambda: not stored(postgresql, LEARNS))
        tokens = "SELECT token FROM practicum.leases WHERE run_id = 'spaces/default'"
        ((before,),) = stored(postgresql, tokens)
        await other.start(command(other))
        rollouts = "SELECT number, version, state FROM practicum_service.rollouts ORDER BY number"
        await until(lambda: stored(postgresql, rollouts))
        assert stored(postgresql, tokens)[0][0] > before
        cut.process.send_signal(signal.SIGCONT)
        await more(cut, other)
        check(postgresql, [cut, other])
        found = stored(postgresql, rollouts)
        assert len({version for _, version, _ in found}) == len(found)
