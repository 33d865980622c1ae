"""Runs that are killed, stopped or cut short, and continued: nothing is paid twice, and the result is the same."""

from __future__ import annotations

import signal
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from gate import gated_server
from helpers import Launcher, client, make_tasks, wait_until, world, write_tasks
from refusals import refused

import practicum
from practicum.core.errors import ProviderError
from practicum.models.scripted import Call, ScriptedClient
from practicum.session.result import Result
from practicum.store import sqlite
from practicum.store.database import Store

ACE: dict[str, Any] = {"method": "ace", "settings": {"batch": 3}, "temperature": 0.0}


"""Bytes of a line in the server's log."""


def learn(folder: Path, model: ScriptedClient, n: int = 12, **config: Any) -> Result:
    parts = practicum.Parts(clients={"agent": model})
    return practicum.run_sync(practicum.learn(make_tasks(n), out=folder, parts=parts, **{**ACE, **config}))


def resume(folder: Path, model: ScriptedClient, **limits: Any) -> Result:
    parts = practicum.Parts(clients={"agent": model})
    return practicum.run_sync(practicum.resume(folder, **limits, parts=parts))


def rows(folder: Path, query: str) -> list[tuple[Any, ...]]:
    with sqlite3.connect(folder / "practicum.sqlite") as db:
        values = db.execute(query).fetchall()
    db.close()
    return values


def test_an_unwritable_database_loses_no_paid_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "BUSY_SECONDS", 0.05)
    learn(tmp_path / "whole", whole := client(), n=6)
    blocking = list[sqlite3.Connection]()

    def respond(call: Call) -> str | Exception:
        if len(model.calls) == len(whole.calls) // 2:
            # From here on every write fails.
            blocking.append(sqlite3.connect(tmp_path / "cut" / "practicum.sqlite", isolation_level=None))
            blocking[0].execute("BEGIN IMMEDIATE")
        return world(call)

    with refused("store.unwritable"):
        learn(tmp_path / "cut", model := client(respond), n=6)
    blocking[0].close()
    resume(tmp_path / "cut", again := client())
    assert len(whole.calls) <= len(model.calls) + len(again.calls) <= len(whole.calls) + ACE["settings"]["batch"]
    assert rows(tmp_path / "cut", "select max(version) from versions") == rows(
        tmp_path / "whole", "select max(version) from versions"
    )


def test_a_run_killed_before_its_row_was_written_can_be_started_again(tmp_path: Path) -> None:
    folder = tmp_path / "run"

    Store.create(folder).close()
    with refused("run.not_found"):
        resume(folder, client())
    assert learn(folder, client(), n=3).steps == 1
    with refused("run.exists"):
        learn(folder, client(), n=3)


def test_a_failed_reflector_stops_the_run_early(tmp_path: Path) -> None:
    def away(call: Call) -> str | Exception:
        return ProviderError("provider.failed", "down") if call.role == "reflector" else world(call)

    model = client(away)
    with refused("attempts.all_failed"):
        learn(tmp_path / "run", model, settings={"batch": 2, "rounds": 0})
    assert sum(call.role == "agent" for call in model.calls) == 6
    assert resume(tmp_path / "run", client()).steps == 6


@pytest.mark.slow
def test_ctrl_c_ends_waits_for_a_provider_and_loses_nothing(tmp_path: Path, launcher: Launcher) -> None:
    """The provider asks for two minutes of patience, in the middle of a step and in the evaluation."""
    write_tasks(tmp_path / "tasks.jsonl", make_tasks(6))
    write_tasks(tmp_path / "test.jsonl", make_tasks(3, 50))
    options = ("--method", "ace", "--batch-size", "3", "--test", "test.jsonl", "--json", "--seed", "1")
    with gated_server() as server:
        server.answer()
        command = ("learn", "tasks.jsonl", *options, "--model", f"{server.url}#sim", "--out")
        whole = launcher.run((*command, "whole"), tmp_path).json
        once = server.received

        def stop_after(calls: int, *command: str) -> None:
            """Press Ctrl-C while the provider refuses all further calls after this number."""
            most = server.received + calls
            server.refuse = lambda number: 429 if number > most else None
            (tmp_path / ".stderr").write_text("")  # without the waits of the previous command
            running = launcher.start(command, tmp_path)
            wait_until(lambda: "waiting" in running.errors or running.ended(), event="the wait")
            running.kill(signal.SIGINT)
            stopped = running.end(60)
            assert stopped.code == 130, stopped.err

        stop_after(2, *command, "run")
        stop_after(once - 6, "space", "resume", "run", "--json")
        server.refuse = None
        done = launcher.run(("space", "resume", "run", "--json"), tmp_path).json
    assert (done["entries"], done["scores"], done["version"]) == (whole["entries"], whole["scores"], whole["version"])
    assert not [name for name in done["errors"] if "lost" in name]
    assert done["usage"]["calls"] == whole["usage"]["calls"] == once
