"""The service as a process: killed under load, on a full disk, rolled back from outside, started wrongly."""

from __future__ import annotations

import asyncio
import json
import resource
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
import numpy as np
import pytest
from helpers import Launcher
from serving import Reply, Served, asynchronous, prompt, served, until

from practicum.core.context import Context
from practicum.core.edits import Add, Delta
from practicum.serve.corrections import HEADING
from practicum.serve.log import DATABASE_FILE, Log
from practicum.serve.rollout import Rollout
from practicum.session.amend import apply_edits, writing
from practicum.session.records import create_seed
from practicum.store.folder import DATABASE_FILE as RUN_FILE
from practicum.store.names import name_version
from practicum.testing.upstream import Upstream, UpstreamOptions, upstream

QUESTION, RIGHT = "Which team handles lost cards?", "the blue team"
NOBODY = "http://127.0.0.1:9/v1#sim"
"""An upstream that is never asked."""

KILLS, CLIENTS, CASES = 10, 6, 4
BACK = 120.0
"""Seconds until a server must answer again: 5, and as many more as other tests on the same cores may take from it."""


# A process and its clients


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def reading(file: Path) -> Iterator[sqlite3.Connection]:
    """A database, without a change to it."""
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as db:
        yield db


def undamaged(file: Path) -> bool:
    with reading(file) as db:
        return bool(db.execute("PRAGMA integrity_check").fetchall() == [("ok",)])


@dataclass
class Server:
    """A server at a port, whichever process it is, in front of an upstream of this process."""

    port: int
    behind: Upstream
    http: aiohttp.ClientSession

    async def send(self, method: str, path: str, body: Any = None, **headers: str) -> Reply:
        """Headers are written with _ for -."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        url = f"http://127.0.0.1:{self.port}{path}"
        async with self.http.request(method, url, json=body, headers=named) as response:
            return Reply(response.status, response.headers, await response.read())

    async def ask(self, text: str, **headers: str) -> Reply:
        body = {"messages": [{"role": "user", "content": text}]}
        return await self.send("POST", "/v1/chat/completions", body, **headers)

    async def report(self, **said: Any) -> Reply:
        return await self.send("POST", "/v1/feedback", said)

    async def shown(self, text: str) -> str:
        """What the upstream is sent for a question. A mark tells it from what the learner asks at the same time."""
        mark = str(len(self.behind.requests))
        assert (await self.ask(text, x_mark=mark)).status == 200
        (sent,) = (each for each in self.behind.requests if each.headers.get("x-mark") == mark)
        return prompt(sent.body)

    async def ready(self, ended: Callable[[], object]) -> None:
        """Wait until it answers."""
        async with asyncio.timeout(BACK):
            while True:
                assert not ended(), "the server ended"
                with suppress(aiohttp.ClientError):
                    if (await self.send("GET", "/health")).status == 200:
                        return
                await asyncio.sleep(0.01)


@asynccontextmanager
async def in_front() -> AsyncIterator[Server]:
    """A port, and what a server at it would need."""
    async with upstream(UpstreamOptions(keep=True, chunks=8)) as behind, aiohttp.ClientSession() as http:
        yield Server(free_port(), behind, http)


# Kills


@dataclass
class Load:
    """Clients at work, and what they know: of each report whether it was acknowledged."""

    server: Server
    rng: Random
    up: asyncio.Event = field(default_factory=asyncio.Event)
    parked: int = 0
    replies: int = 0
    answered: set[str] = field(default_factory=set)
    """Interactions whose answer arrived, since the last start."""
    reports: dict[str, list[tuple[str, Any]]] = field(default_factory=dict)
    """By interaction: what was acknowledged, in order."""
    unsure: set[Any] = field(default_factory=set)
    """Scores and targets that were sent when the server was killed: they may be known, or not."""
    hold: dict[str, list[str]] = field(default_factory=dict)
    """By question: the correction that was acknowledged last ("" for none), and those of `unsure` since."""
    sent: dict[str, list[str]] = field(default_factory=dict)
    """By question: all corrections, in order."""
    versions: set[int] = field(default_factory=set)
    sends: int = 0

    async def work(self, client: int) -> None:
        """One client: it asks, and reports what came of it, one request after the other."""
        while True:
            if not self.up.is_set():
                self.parked += 1
                await self.up.wait()
                self.parked -= 1
            question = f"Which team handles case {self.rng.randrange(CASES)} of office {client}?"
            # A canary counts sessions, so there have to be new ones.
            session = f"{client} {self.sends // 20}"
            try:
                reply = await self.server.ask(question, x_practicum_session=session)
            except aiohttp.ClientError:
                await self.gone()
                continue
            assert reply.status == 200
            self.replies += 1
            self.versions.add(int(reply.headers["x-practicum-version"]))
            self.answered.add(reply.interaction)
            self.sends += 1
            match self.rng.randrange(4):
                case 0:
                    await self.report("score", self.rng.random(), session=session)
                case 1:
                    await self.report("score", self.rng.random(), interaction=reply.interaction)
                case _:
                    target = f"team {client}x{self.sends}x"
                    self.sent.setdefault(question, []).append(target)
                    if await self.report("target", target, interaction=reply.interaction):
                        self.hold[question] = [target]
                    else:
                        self.hold.setdefault(question, [""]).append(target)

    async def report(self, name: str, value: Any, **about: str) -> bool:
        """Send a report; returns whether it was acknowledged."""
        try:
            reply = await self.server.report(**about, **{name: value})
        except aiohttp.ClientError:
            self.unsure.add(value)
            await self.gone()
            return False
        assert reply.status == 200, reply.body
        self.replies += 1
        self.reports.setdefault(reply.json["interaction"], []).append((name, value))
        return True

    async def gone(self) -> None:
        """A connection broke. Only a kill may break one."""
        assert not self.up.is_set(), "the server broke a connection that nobody killed"


@dataclass(frozen=True)
class Killed:
    """What came of many kills: seconds until the server was back, each time, and how many interactions that were
    answered were not on the disk yet. Nobody is promised that these are."""

    back: list[float]
    answered: int
    forgotten: int
    reports: int
    corrections: int
    versions: int


async def killed(folder: Path, kills: int, seed: int, told: Callable[[str], object] = lambda _: None) -> Killed:
    """Kill a server under load so often, and look each time whether all that it acknowledged is there."""
    rng, store = Random(seed), folder / "store"
    run = store / "spaces/default" / RUN_FILE
    back, answered, forgotten = list[float](), 0, 0
    async with in_front() as server, AsyncExitStack() as stack:
        load = Load(server, rng)
        errors = stack.enter_context((folder / "errors").open("wb"))
        command = [
            sys.executable, "-m", "practicum.cli.app", "serve", "--upstream", f"{server.behind.url}#sim",
            "--store", str(store), "--port", str(server.port), "--method", "episodes", "--learn-every", "4",
            "--canary", "0.5", "--canary-length", "20",
        ]  # fmt: skip

        async def start() -> subprocess.Popen[bytes]:
            # Not asyncio's: its child watchers would have a thread more for each of 200 processes.
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors)  # noqa: ASYNC220
            stack.callback(end, process)
            return process

        def end(process: subprocess.Popen[bytes]) -> None:
            process.send_signal(signal.SIGKILL)
            process.wait()

        clients = [asyncio.create_task(load.work(n)) for n in range(CLIENTS)]
        for client in clients:
            stack.callback(client.cancel)
        for number in range(kills + 1):
            if number % 4 == 3:
                # One kill in four hits the start: at any moment of it, so there is nothing to wait for.
                process = await start()
                await asyncio.sleep(rng.uniform(0, 1.5 * back[-1]))
                end(process)
            began = time.monotonic()
            process = await start()
            await server.ready(process.poll)
            back.append(time.monotonic() - began)
            await until(lambda: load.parked == CLIENTS)
            forgotten += await look(load, store, run)
            answered += len(load.answered)
            load.answered.clear()
            # Prompts that were looked at are not needed again.
            server.behind.requests.clear()
            told(f"{number} kills, back after {back[-1]:.2f} s, {forgotten} of {answered} interactions forgotten")
            if number < kills:
                goal = load.replies + rng.randrange(3, 150)
                load.up.set()
                await until(lambda goal=goal: load.replies >= goal or any(client.done() for client in clients))
                load.up.clear()
                end(process)
            for client in clients:
                if client.done():
                    client.result()
    assert b"Traceback" not in (folder / "errors").read_bytes()
    count = sum(len(said) for said in load.reports.values())
    corrections = sum(name == "target" for said in load.reports.values() for name, _ in said)
    return Killed(back, answered, forgotten, count, corrections, len(load.versions))


async def look(load: Load, store: Path, run: Path) -> int:
    """Look whether all is there that was acknowledged. Returns how many answered interactions are not."""
    assert undamaged(store / DATABASE_FILE)
    assert undamaged(run)
    with reading(store / DATABASE_FILE) as db:
        rows = db.execute("SELECT id, score, data FROM outcomes")
        outcomes = {id: (score, json.loads(data)) for id, score, data in rows}
        known = {id for (id,) in db.execute("SELECT id FROM interactions")}
        ((canaries,),) = db.execute("SELECT count(*) FROM rollouts WHERE state = 'canary'")
        corrections = db.execute("SELECT data FROM corrections WHERE state = 'live'")
        live = [json.loads(data)["query"] for (data,) in corrections]
    with reading(run) as db:
        versions = {version for (version,) in db.execute("SELECT version FROM versions")}
    assert load.versions <= versions
    assert canaries <= 1
    assert len(live) == len(set(live))
    assert outcomes.keys() <= known
    for id, said in load.reports.items():
        score, data = outcomes[id]
        reported = [(name, each[name]) for each in data["reports"] for name in ("score", "target") if name in each]
        assert [each for each in reported if each in said] == said
        assert all(each in said or each[1] in load.unsure for each in reported)
        last = dict(reported)
        assert data["own"] == last
        assert score == last.get("score", 0.0)
    for id in load.rng.sample(sorted(load.reports), min(4, len(load.reports))):
        name, value = load.reports[id][-1]
        if outcomes[id][1]["own"][name] == value:
            assert (await load.server.report(interaction=id, **{name: value})).json["status"] == "repeated"
    for question, hold in load.hold.items():
        # Before them is what was learned, of which an older correction may be a part.
        _, _, shown = (await load.server.shown(question)).rpartition(HEADING)
        found = [target for target in load.sent[question] if target in shown]
        # One holds: that of the same request before it was replaced. Without an acknowledged one, none may.
        assert found in [[target] if target else [] for target in hold]
    return len(load.answered - known)


@pytest.mark.slow
@pytest.mark.durable
@pytest.mark.timeout(900)
@asynchronous
async def test_nothing_that_was_acknowledged_is_lost_by_kills(tmp_path: Path) -> None:
    result = await killed(tmp_path, KILLS, seed=1)
    # Otherwise nothing was tested.
    assert result.reports > 10 * KILLS
    assert result.corrections > 5 * KILLS
    assert result.versions > 1


# A full disk


@asynccontextmanager
async def launched(launcher: Launcher, folder: Path) -> AsyncIterator[tuple[Server, int]]:
    """A server as a process, and its id."""
    async with in_front() as server:
        command = ["serve", "--upstream", f"{server.behind.url}#sim", "--store", "store", "--port", server.port]
        running = launcher.start([*command, "--no-learning"], folder)
        try:
            await server.ready(running.ended)
            yield server, running.pid
        finally:
            running.kill()
            await asyncio.to_thread(running.end)
        assert "Traceback" not in running.errors


def room(pid: int, size: int) -> None:
    """Let no file of a process grow beyond a size in bytes."""
    _, most = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, most))


@asynchronous
async def test_a_full_disk_refuses_feedback_alone_and_room_is_all_it_takes(launcher: Launcher, tmp_path: Path) -> None:
    async with launched(launcher, tmp_path) as (server, pid):
        first = await server.ask(QUESTION, x_practicum_session="s")
        assert (await server.report(interaction=first.interaction, target=RIGHT)).status == 200
        room(pid, (tmp_path / "store" / f"{DATABASE_FILE}-wal").stat().st_size)
        meanwhile = [await server.ask(f"Which team handles case {n}?") for n in range(20)]
        assert {reply.status for reply in meanwhile} == {200}
        report = {"interaction": meanwhile[0].interaction, "target": "the red team"}
        for _ in range(3):
            refused = await server.report(**report)
            assert refused.status == 507
            assert "cannot write to the store" in refused.said
            assert "\n" not in refused.said
        assert (await server.report(interaction=first.interaction, target="the red team")).status == 507
        # What is refused does not hold, and what was acknowledged does.
        assert "the red team" not in await server.shown("Which team handles case 0?")
        assert RIGHT in await server.shown(QUESTION)
        room(pid, resource.RLIM_INFINITY)
        assert (await server.report(**report)).status == 200
        assert "the red team" in await server.shown("Which team handles case 0?")
        assert (await server.report(interaction=first.interaction, target=RIGHT)).json["status"] == "repeated"
        for reply in meanwhile[1:]:
            assert (await server.report(interaction=reply.interaction, score=1.0)).json["status"] == "kept"
        assert (await server.send("GET", "/health")).json["lost"] == 0
    assert undamaged(tmp_path / "store" / DATABASE_FILE)
    with reading(tmp_path / "store" / DATABASE_FILE) as db:
        ids = {id for (id,) in db.execute("SELECT id FROM interactions")}
    assert {reply.interaction for reply in meanwhile} <= ids


# Rollbacks from outside

SESSIONS = 24
SOON = 5.0
"""Seconds within which a rollback is in effect: one, on cores that have nothing else to do."""


@asynccontextmanager
async def with_candidate(folder: Path) -> AsyncIterator[Served]:
    """A service whose versions are 0, 1 and 2: 1 is live, and half of the sessions see 2."""
    create_seed(folder / "seed", Context().apply(Delta((Add("rules", "Name the team alone."),))).context)
    async with served(folder / "store", context=str(folder / "seed")) as at:
        space = at.service.spaces["default"]
        async with writing(space.folder) as store:
            for text in ("Lost cards are of the green team.", "Lost cards are of the red team."):
                apply_edits(store, lambda _, text=text: Delta((Add("rules", text),)))
            name_version(store, store.run_id, "live", 1)
        space.read_versions()
        await at.service.begin_rollout(space, Rollout.begin(1, 2, 1, 0.5, 200, np.zeros((0, 1)), {}))
        assert await seen(at) == {1, 2}
        yield at


async def seen(at: Served, sessions: range = range(SESSIONS)) -> set[int]:
    """The versions that sessions see."""
    replies = [await at.ask(QUESTION, {"x-practicum-session": f"s{n}"}) for n in sessions]
    return {int(reply.headers["x-practicum-version"]) for reply in replies}


async def name_live(launcher: Launcher, at: Served, version: int) -> None:
    """The command of an operator, in another process."""
    space = at.service.spaces["default"]
    running = launcher.start(["name", str(space.folder), "live", str(version)], space.folder)
    assert (await asyncio.to_thread(running.end)).code == 0


@asynchronous
async def test_a_rollback_by_request_is_in_effect_in_the_next_one(tmp_path: Path) -> None:
    async with with_candidate(tmp_path) as at:
        assert (await at.send("POST", "/v1/rollback", {"version": 0})).json == {"version": 0}
        assert await seen(at) == {0}


@asynchronous
async def test_a_rollback_by_the_command_line_is_soon_in_effect(launcher: Launcher, tmp_path: Path) -> None:
    async with with_candidate(tmp_path) as at:
        await name_live(launcher, at, 0)
        async with asyncio.timeout(SOON):
            while 1 in await seen(at):
                pass
        assert 0 in await seen(at)


@asynchronous
async def test_a_rollback_by_the_command_line_takes_the_candidate_back(launcher: Launcher, tmp_path: Path) -> None:
    async with with_candidate(tmp_path) as at:
        await name_live(launcher, at, 0)
        async with asyncio.timeout(SOON):
            while await seen(at) != {0}:
                pass
        assert at.service.spaces["default"].rollout is None


@asynchronous
async def test_a_rollback_by_the_command_line_is_seen_without_requests(launcher: Launcher, tmp_path: Path) -> None:
    async with with_candidate(tmp_path) as at:
        space = at.service.spaces["default"]
        await until(lambda: not space.touched)
        await name_live(launcher, at, 0)
        async with asyncio.timeout(SOON):
            while (await at.send("GET", "/health")).json["spaces"]["default"]["version"] != 0:
                pass


# Starts that cannot be


def refusal(launcher: Launcher, folder: Path, *arguments: object) -> str:
    """The one line with which a server refuses to start."""
    running = launcher.start(["serve", "--upstream", NOBODY, *map(str, arguments)], folder)
    try:
        assert running.launcher.poll(60.0), "it serves"
    finally:
        # One that serves would hold the launcher up.
        if running.done is None and not running.ended():
            running.kill()
        done = running.end()
    assert done.code in (1, 2)
    assert not done.out
    assert done.err.count("\n") == 1
    return done.line


def test_the_second_server_on_a_store_ends_with_one_line(launcher: Launcher, tmp_path: Path) -> None:
    with closing(Log(tmp_path / "store")):
        assert "another practicum serve uses the store" in refusal(launcher, tmp_path, "--store", "store", "--port", 0)


def test_a_port_in_use_ends_with_one_line(launcher: Launcher, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = refusal(launcher, tmp_path, "--port", port)
    assert f"cannot listen on 127.0.0.1:{port}" in said
    assert "--port" in said
    # What could not be served left nothing behind.
    assert not (tmp_path / "practicum-store").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--host", "0.0.0.0"], "give a key"),
        (["--context", "seed@missing"], "no version named 'missing'"),
        (["--context", "nothing"], "nothing"),
        (["--method", "unheard"], "unheard"),
        (["--set", "unheard=1"], "unheard"),
        (["--key", "short"], "at least 16 characters"),
        (["--space", "../x"], "no name of a space"),
        (["--host", "no.such.host.invalid", "--key", "k" * 16], "cannot listen on no.such.host.invalid"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_served_ends_with_one_line(
    arguments: list[str], says: str, launcher: Launcher, tmp_path: Path
) -> None:
    create_seed(tmp_path / "seed", Context().apply(Delta((Add("rules", "Name the team alone."),))).context)
    assert says in refusal(launcher, tmp_path, "--port", 0, *arguments)
