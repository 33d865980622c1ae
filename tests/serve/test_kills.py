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
from contextlib import AsyncExitStack, asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np
import pytest
from helpers import Launcher
from loads import CLIENTS, Load, Server, in_front
from serving import Served, asynchronous, served, until

from practicum.core.context import Context
from practicum.core.edits import Add, Delta
from practicum.serve.corrections import HEADING
from practicum.serve.log import DATABASE_FILE, FolderDatabase, Log
from practicum.serve.rollout import Rollout
from practicum.session.amend import apply_edits, writing
from practicum.session.records import create_seed
from practicum.store.folder import DATABASE_FILE as RUN_FILE
from practicum.store.names import name_version

QUESTION, RIGHT = "Which team handles lost cards?", "the blue team"
NOBODY = "http://127.0.0.1:9/v1#sim"
"""An upstream that is never asked."""

KILLS = 10


# A process and its clients


@contextmanager
def reading(file: Path) -> Iterator[sqlite3.Connection]:
    """A database, without a change to it."""
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as db:
        yield db


def undamaged(file: Path) -> bool:
    with reading(file) as db:
        return bool(db.execute("PRAGMA integrity_check").fetchall() == [("ok",)])


# Kills


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
    with closing(Log(FolderDatabase(tmp_path / "store"))):
        assert "mcp uses the store" in refusal(launcher, tmp_path, "--store", "store", "--port", 0)


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
        (["--store", "postgresql://me:hidden@127.0.0.1:9/none"], "cannot use postgresql://me@127.0.0.1:9/none"),
        (["--store", "mysql://me@127.0.0.1/none"], "postgresql://USER@HOST"),
        (["--log", "comet"], "known are json, otel"),
        (["--folder", "node"], "--folder is for a database"),
        (["--host", "no.such.host.invalid", "--key", "k" * 16], "cannot listen on no.such.host.invalid"),
        (["--host", "192.0.2.1", "--key", "k" * 16], "give another --host"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_served_ends_with_one_line(
    arguments: list[str], says: str, launcher: Launcher, tmp_path: Path
) -> None:
    create_seed(tmp_path / "seed", Context().apply(Delta((Add("rules", "Name the team alone."),))).context)
    said = refusal(launcher, tmp_path, "--port", 0, *arguments)
    assert says in said
    assert "hidden" not in said
