"""Whether the service is ready, and how it stops: as a process, by the signals of init systems and terminals."""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from helpers import Launcher, Running
from loads import Server, in_front
from serving import CHAT, asynchronous, served
from sqlalchemy.exc import OperationalError

from practicum.serve.log import DATABASE_FILE
from practicum.serve.service import LATELY, PROBE, Service

QUESTION = "Which team handles lost cards?"
ASKED = {"messages": [{"role": "user", "content": QUESTION}], "stream": True}


@asynccontextmanager
async def started(launcher: Launcher, folder: Path, server: Server, *more: object) -> AsyncIterator[Running]:
    """A service as a process, which is killed if the test does not end it."""
    command = ["serve", "--upstream", f"{server.behind.url}#sim", "--store", "store", "--port", server.port, *more]
    running = launcher.start(list(map(str, command)), folder)
    try:
        await server.ready(running.ended)
        yield running
    finally:
        if running.done is None and not running.ended():
            running.kill()
        await asyncio.to_thread(running.end)


def rows(folder: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(f"file:{folder / 'store' / DATABASE_FILE}?mode=ro", uri=True)) as db:
        return db.execute(query).fetchall()


@asynchronous
async def test_who_balances_the_load_is_told_first_and_a_second_signal_ends_at_once(
    launcher: Launcher, tmp_path: Path
) -> None:
    async with in_front() as server, started(launcher, tmp_path, server, "--no-learning") as running:
        assert (await server.send("GET", "/ready")).json == {"status": "ready"}
        running.kill(signal.SIGTERM)
        async with aiohttp.ClientSession() as http:
            # A connection of its own: new ones are taken until it was told.
            server.http, kept = http, server.http
            async with asyncio.timeout(30):
                while (told := await server.send("GET", "/ready")).status == 200:
                    pass
            assert (told.status, told.json) == (503, {"status": "the service stops"})
            assert (await server.send("GET", "/health")).json["status"] == "ok"
            assert (await server.ask(QUESTION)).status == 200
            server.http = kept
        running.kill(signal.SIGTERM)
        assert (await asyncio.to_thread(running.end)).code == 128 + signal.SIGTERM


@pytest.mark.slow
@asynchronous
async def test_what_takes_longer_than_the_stop_is_cut_and_kept(tmp_path: Path) -> None:
    async with in_front(0.5, 60) as server:
        command = ["serve", "--upstream", f"{server.behind.url}#sim", "--store", str(tmp_path / "store")]
        command += ["--port", str(server.port), "--no-learning"]
        short = "import practicum.serve.server as s; s.DRAIN = 1; from practicum.cli.app import main"
        program = f"{short}; main({command!r})"
        process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.DEVNULL)  # noqa: ASYNC220
        try:
            await server.ready(process.poll)
            async with server.http.post(f"http://127.0.0.1:{server.port}{CHAT}", json=ASKED) as response:
                await response.content.readany()
                process.send_signal(signal.SIGTERM)
                with pytest.raises(aiohttp.ClientPayloadError):
                    await response.read()
            assert await asyncio.to_thread(process.wait, 30) == 0
        finally:
            process.kill()
            process.wait()
        ((data,),) = rows(tmp_path, "SELECT data FROM interactions")
        assert json.loads(data)["status"] == 503
        assert json.loads(data)["answer"]


@asynchronous
async def test_a_service_whose_database_does_not_answer_is_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(tmp_path, keys=("k" * 16,)) as at:
        # It takes no key.
        assert (await at.send("GET", "/ready")).status == 200
        log, database = at.service.log, at.service.log.database

        def away(db: Any, spaces: Any) -> None:
            raise OperationalError("BEGIN", {}, Exception("gone"))

        monkeypatch.setattr(database, "begin", away)
        log.worked -= 2 * PROBE
        # A short failure takes no node away.
        assert (await at.send("GET", "/ready")).status == 200
        log.worked -= LATELY
        told = await at.send("GET", "/ready")
        assert told.status == 503
        assert "the database has not answered for" in told.json["status"]
        monkeypatch.undo()
        assert (await at.send("GET", "/ready")).status == 200


@asynchronous
async def test_a_service_without_its_spaces_is_not_ready(tmp_path: Path) -> None:
    async with served(tmp_path) as at:
        service: Service = at.service
        space = service.spaces.pop("default")
        assert await service.not_ready() == "space default is not open"
        service.spaces["default"] = space
        assert await service.not_ready() is None
