"""The service as a process: killed under load, on a full disk, rolled back from outside, started wrongly."""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest
from loads import CLIENTS, Load, in_front, live_corrections
from serving import asynchronous, until

from practicum.session.shown_corrections import HEADING
from practicum.store.folder import DATABASE_FILE

QUESTION, RIGHT = "Which team handles lost cards?", "the blue team"


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
    back, answered, forgotten = list[float](), 0, 0
    async with in_front() as server, AsyncExitStack() as stack:
        load = Load(server, rng)
        errors = stack.enter_context((folder / "errors").open("wb"))
        command = [
            sys.executable, "-m", "practicum.cli.app", "serve", "--upstream", f"{server.behind.url}#sim",
            str(store), "--port", str(server.port), "--method", "episodes", "--learn-every", "4",
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
            forgotten += await look(load, store / DATABASE_FILE)
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


async def look(load: Load, file: Path) -> int:
    """Look whether all is there that was acknowledged. Returns how many answered interactions are not."""
    assert undamaged(file)
    with reading(file) as db:
        rows = db.execute("SELECT id, score, data FROM outcomes")
        outcomes = {id: (score, json.loads(data)) for id, score, data in rows}
        known = {id for (id,) in db.execute("SELECT id FROM interactions")}
        ((canaries,),) = db.execute("SELECT count(*) FROM rollouts WHERE state = 'canary'")
        corrections = db.execute("SELECT applied FROM corrections ORDER BY version")
        live = [one.query for one in live_corrections(applied for (applied,) in corrections)]
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
