"""Whether the service is ready, and how it stops: as a process, by the signals of init systems and terminals."""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from loads import in_front
from serving import CHAT, TEXT, asynchronous, served
from sqlalchemy.exc import OperationalError

from practicum.serve.readiness import LATELY, PROBE
from practicum.store.folder import DATABASE_FILE

QUESTION = "Which team handles lost cards?"
ASKED = {"messages": [{"role": "user", "content": QUESTION}], "stream": True}


@pytest.mark.slow
@asynchronous
async def test_a_stream_that_outlasts_the_stop_is_cut_and_stored(tmp_path: Path) -> None:
    async with in_front(0.5, 60) as server:
        command = ["serve", "--upstream", f"{server.behind.url}#sim", str(tmp_path / "store")]
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
        with closing(sqlite3.connect(tmp_path / "store" / DATABASE_FILE)) as db:
            ((data,),) = db.execute("SELECT data FROM interactions").fetchall()
        row = json.loads(data)
        assert (row["status"], row["answer"] != "", TEXT.startswith(row["answer"])) == (503, True, True)


@asynchronous
async def test_a_service_is_not_ready_while_its_database_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(tmp_path, keys=("k" * 16,)) as at:
        # It takes no key.
        assert (await at.send("GET", "/ready")).status == 200
        writer, backend = at.service.database.writer, at.service.database.backend

        def away(db: Any, spaces: Any) -> None:
            raise OperationalError("BEGIN", {}, Exception("gone"))

        monkeypatch.setattr(backend, "begin", away)
        writer.worked -= 2 * PROBE
        # A short failure takes no node away.
        assert (await at.send("GET", "/ready")).status == 200
        writer.worked -= LATELY
        reply = await at.send("GET", "/ready")
        assert reply.status == 503
        assert "the database has not responded for" in reply.json["status"]
        monkeypatch.undo()
        assert (await at.send("GET", "/ready")).status == 200
