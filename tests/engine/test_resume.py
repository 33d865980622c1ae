"""Runs that are killed, stopped, cut short or have a broken agent, and are continued: nothing is paid twice, and the
result is the same."""

from __future__ import annotations

import json
import math
import signal
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from anyio.from_thread import start_blocking_portal
from helpers import Launcher, client, context_bytes, make_tasks, wait_until, world, write_tasks
from profiles import cases
from refusals import refused
from scripts import Learned, learned, resumed
from serving import serving

import practicum
from practicum.core.errors import ProviderError
from practicum.models.scripted import Call, ScriptedClient
from practicum.session.result import Result
from practicum.store import schema, sqlite
from practicum.store.database import Store
from practicum.testing import Receive, Send, SimulatedServer


def learn(folder: Path, model: ScriptedClient, n: int = 4, batch: int = 2) -> Result:
    parts, settings = practicum.Parts(clients={"agent": model}), {"batch": batch, "rounds": 0}
    return practicum.run_sync(practicum.learn(make_tasks(n), out=folder, parts=parts, settings=settings))


def resume(folder: Path, model: ScriptedClient) -> Result:
    return practicum.run_sync(practicum.resume(folder, parts=practicum.Parts(clients={"agent": model})))


def test_an_unwritable_database_loses_no_paid_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "BUSY_SECONDS", 0.01)
    done = learn(tmp_path / "whole", whole := client())
    blocking = list[sqlite3.Connection]()

    def respond(call: Call) -> str | Exception:
        if len(model.calls) == len(whole.calls) // 2:
            # From here on every write fails.
            blocking.append(sqlite3.connect(tmp_path / "cut" / "practicum.sqlite", isolation_level=None))
            blocking[0].execute("BEGIN IMMEDIATE")
        return world(call)

    with refused("store.unwritable"):
        learn(tmp_path / "cut", model := client(respond))
    blocking[0].close()
    resumed = resume(tmp_path / "cut", again := client())
    assert len(whole.calls) <= len(model.calls) + len(again.calls) <= len(whole.calls) + 2
    assert context_bytes(resumed) == context_bytes(done)


def test_a_run_killed_before_its_row_was_written_can_be_started_again(tmp_path: Path) -> None:
    Store.create(tmp_path / "run").close()
    with refused("run.not_found"):
        resume(tmp_path / "run", client())
    assert learn(tmp_path / "run", client(), 1).steps == 1


def test_a_failed_reflector_stops_the_run_early(tmp_path: Path) -> None:
    def away(call: Call) -> str | Exception:
        return ProviderError("provider.failed", "down") if call.role == "reflector" else world(call)

    model = client(away)
    with refused("attempts.all_failed"):
        learn(tmp_path / "run", model, batch=1)
    assert sum(call.role == "agent" for call in model.calls) == 3
    assert resume(tmp_path / "run", client()).steps == 4


class Limited:
    """A simulated server that counts the requests it receives, and refuses each one after the first `most`."""

    received, most = 0, math.inf

    def __init__(self) -> None:
        self.server = SimulatedServer()

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        self.received += 1
        if self.received <= self.most:
            await self.server(scope, receive, send)
        else:
            headers = [(b"content-type", b"application/json"), (b"retry-after", b"120")]
            error = {"error": {"message": "not now", "type": "requests", "code": "rate_limit_exceeded"}}
            await send({"type": "http.response.start", "status": 429, "headers": headers})
            await send({"type": "http.response.body", "body": json.dumps(error).encode()})


@pytest.mark.slow
def test_ctrl_c_ends_waits_for_a_provider_and_loses_nothing(tmp_path: Path, launcher: Launcher) -> None:
    """The provider asks for two minutes of patience, in the middle of a step and in the evaluation."""
    write_tasks(tmp_path / "tasks.jsonl", make_tasks(6))
    write_tasks(tmp_path / "test.jsonl", make_tasks(3, 50))
    options = ("--method", "ace", "--batch-size", "3", "--test", "test.jsonl", "--json", "--seed", "1")
    server = Limited()
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(serving(server)) as address:
        command = ("learn", "tasks.jsonl", *options, "--model", f"{address}/v1#sim", "--out")
        whole = launcher.run((*command, "whole"), tmp_path).json
        once = server.received

        def stop_after(calls: int, *command: str) -> None:
            """Press Ctrl-C while the provider refuses all further calls after this number."""
            server.most = server.received + calls
            (tmp_path / ".stderr").write_text("")  # without the waits of the previous command
            running = launcher.start(command, tmp_path)
            wait_until(lambda: "waiting" in running.errors or running.ended(), event="the wait")
            running.kill(signal.SIGINT)
            stopped = running.end(60)
            assert stopped.code == 130, stopped.err

        stop_after(2, *command, "run")
        stop_after(once - 6, "space", "resume", "run", "--json")
        server.most = math.inf
        done = launcher.run(("space", "resume", "run", "--json"), tmp_path).json
    assert (done["entries"], done["scores"], done["version"]) == (whole["entries"], whole["scores"], whole["version"])
    assert not [name for name in done["errors"] if "lost" in name]
    assert done["usage"]["calls"] == whole["usage"]["calls"] == once


BATCH: dict[str, Any] = {"settings": {"batch": 4, "rounds": 0}}
RUNS: dict[str, dict[str, Any]] = {
    "a batch": BATCH,
    "groups": {"method": "rcl", "settings": {"batch": 2}},
    "without a barrier": {
        "method": "combee", "settings": {"asynchronous": True, "batch": 4, "rounds": 0}, "concurrency": 8
    },
    "before": {**BATCH, "test": make_tasks(7, 50), "before": True},
    "validation": {**BATCH, "val": make_tasks(3, 50)},
}  # fmt: skip


@pytest.mark.parametrize("name", cases(RUNS, "a batch", "without a barrier"))
def test_a_broken_agent_stops_before_anything_is_learned_and_a_corrected_one_continues(
    tmp_path: Path, name: str
) -> None:
    corrected, tried = False, list[str]()

    def act(input: str, context: str) -> str:
        tried.append(input)
        return input.split()[-1] if corrected else str(1 // 0)

    model, how = client(), {**RUNS[name], "parts": {"agent": act}}
    with refused("agent.always_failed"):
        learned(tmp_path, model, 8, **how)
    with Store.read(tmp_path / "run") as store:
        attempts = [row for row in store.rows(store.select(schema.journal)) if row.role == "agent"]
    assert (model.calls, attempts) == ([], [])
    assert len(tried) <= 16
    corrected = True
    done = resumed(Learned(model, tmp_path / "run"), model, how["parts"])
    assert done.result.errors.get("failed_attempts", 0) == 0
    if name != "without a barrier":  # there, the order in which threads end decides
        whole = learned(tmp_path / "whole", client(), 8, **how)
        assert context_bytes(done.result) == context_bytes(whole.result)
