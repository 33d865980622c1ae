"""A store that becomes read-only while the service runs: requests continue, writes are refused, nothing acknowledged is
lost, and an operator is notified. `bench/kills_bench.py` has the same faults under load."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from serving import Served, asynchronous, served, serving, until
from sqlalchemy import URL, event, make_url
from sqlalchemy.exc import OperationalError

from practicum.serve import alarms, learner
from practicum.store.database import Database
from practicum.store.scope import Transaction

RIGHT = "the blue team"
LEARNING: dict[str, Any] = {"method": "episodes", "learn": True, "learn_every": 3}


@contextmanager
def read_only_file(at: Served) -> Iterator[None]:
    """SQLite refuses writes as on a read-only file system."""
    query_only = ["ON"]

    @event.listens_for(at.service.database.backend.engine, "checkout")
    def refuse(connection: Any, *_: object) -> None:
        connection.execute(f"PRAGMA query_only = {query_only[0]}")

    yield
    query_only[0] = "OFF"


@contextmanager
def read_only_database(at: Served) -> Iterator[None]:
    """PostgreSQL refuses writes as a standby does."""
    url = at.service.settings.store
    assert isinstance(url, URL)

    import psycopg

    def turn(value: str) -> None:
        with psycopg.connect(url.render_as_string(hide_password=False), autocommit=True) as db:
            db.execute("SET default_transaction_read_only = off")
            db.execute(f"ALTER DATABASE {url.database} SET default_transaction_read_only = {value}")
            mine = "datname = current_database() AND pid <> pg_backend_pid()"
            db.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {mine}")

    turn("on")
    yield
    turn("off")


Fault = Callable[[Served], AbstractContextManager[None]]


async def refused_and_recovered(store: Path | URL, folder: Path, fault: Fault, log: pytest.LogCaptureFixture) -> None:
    log.set_level(logging.INFO, "practicum.serve")
    alarmed = list[Any]()

    async def hook(scope: Any, receive: Any, send: Any) -> None:
        alarmed.append(json.loads((await receive())["body"])["kind"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async with serving(hook) as url, served(store, folder=folder, webhook=url, **LEARNING) as at:
        first = await at.ask("Which team handles lost cards?")
        assert (await at.report(interaction=first.interaction, target=RIGHT)).status == 200
        with fault(at):
            replies = [await at.ask(f"Which team handles case {n}?") for n in range(3)]
            assert [reply.status for reply in replies] == [200] * 3
            for path, body in (
                ("/v1/feedback", {"interaction": first.interaction, "target": "the red team"}),
                ("/v1/notes", {"text": "Ask twice."}),
                ("/v1/keys", {"name": "agent", "roles": ["ask"]}),
                ("/v1/spaces", {"name": "other"}),
            ):
                refused = await at.send("POST", path, body)
                assert refused.status in (503, 507), refused.body
                assert "\n" not in refused.message
            await until(lambda: alarmed == ["store"])
            # A failed write of the learner is not a second alarm.
            assert (await at.send("POST", "/v1/learn", {})).status == 202
            await until(lambda: any(one.message.startswith("space default: cannot") for one in log.records))
            assert (await at.send("GET", "/health")).json["unwritten"] >= 3
        await until(lambda: alarmed == ["store", "store"])
        history = (await at.send("GET", "/v1/history")).json
        assert [alarm["kind"] for alarm in history["alarms"]] == ["store"]
        for reply in replies:
            assert (await at.report(interaction=reply.interaction, score=1.0)).json["status"] == "kept"
        assert (await at.report(interaction=first.interaction, target=RIGHT)).json["status"] == "repeated"
        shown = (await at.send("POST", "/v1/context", {"input": "Which team handles lost cards?"})).json["text"]
        assert RIGHT in shown
        assert "the red team" not in shown
        assert sum("cannot read the stored keys" in one.message for one in log.records) <= 1
        health = (await at.send("GET", "/health")).json
        assert (health["lost"], health["counts"].get("learning_failures", 0)) == (0, 0)
        # Learning continues without a request.
        await until(lambda: at.service.counts["learning_rounds"])
        await a_bug_is_counted(at)


async def a_bug_is_counted(at: Served) -> None:
    """Require that a bug is answered in the form of the protocol, without the message of the exception."""
    with patch("practicum.serve.reporting.note", side_effect=ZeroDivisionError("secret")):
        reply = await at.send("POST", "/v1/notes", {"text": "Ask twice."})
    assert reply.status == 500
    assert "ZeroDivisionError" in reply.message
    assert b"secret" not in reply.body
    assert (await at.send("GET", "/health")).json["counts"]["faults"] == 1


@pytest.fixture(autouse=True)
def _alarm_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alarms, "FAILING", 0.0)
    monkeypatch.setattr(learner, "TICK", 0.05)


@asynchronous
async def test_a_read_only_file_refuses_writes_and_loses_nothing_and_a_bug_is_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await refused_and_recovered(tmp_path, tmp_path, read_only_file, caplog)


@pytest.mark.slow
@pytest.mark.postgres
@asynchronous
async def test_a_database_that_refuses_writes_loses_nothing(
    postgresql: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await refused_and_recovered(make_url(postgresql), tmp_path, read_only_database, caplog)


class Deadlock(Exception):
    """The error of a driver when the database ends a transaction."""


def test_a_change_is_repeated_after_a_deadlock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened, attempts = Database.at(tmp_path, tmp_path, create=True), list[int]()
    # SQLite has no deadlocks.
    monkeypatch.setattr(opened.backend, "is_deadlock", lambda error: isinstance(error.orig, Deadlock))

    def change(_: Transaction) -> int:
        attempts.append(len(attempts))
        if len(attempts) == 1:
            raise OperationalError("DELETE", {}, Deadlock())
        return 5

    try:
        assert opened.do(change).result(30) == 5
        assert (attempts, opened.writer.failing) == ([0, 1], None)
    finally:
        opened.close()
