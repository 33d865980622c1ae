"""Attempts on a real Ray: the run is the same as on one machine, also if nodes or workers are lost."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from helpers import client, context_bytes, make_tasks, wait_until, world
from refusals import refused
from remote_work import Counters, dying, guess, lenient, waiting
from sqlalchemy import select

import practicum
from practicum.core.context import Context
from practicum.core.types import Task, Trace
from practicum.models.scripted import Call, ScriptedClient
from practicum.session.result import RunInfo
from practicum.store import schema
from practicum.store.database import Store

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.usefixtures("cluster")]

SMALL = {"num_cpus": 2, "object_store_memory": 80 * 2**20}
TIMES = ("/ended", "/seconds")


def learned(folder: Path, parts: practicum.Parts, n: int = 6, **config: Any) -> practicum.Result:
    how: dict[str, Any] = {"method": "ace", "settings": {"rounds": 1, "batch": 4}, "concurrency": 6, **config}
    return practicum.run_sync(
        practicum.learn(make_tasks(n), test=make_tasks(6, start=50), out=folder, parts=parts, **how)
    )


def journal(folder: Path) -> list[tuple[str, str, str]]:
    """The effects in the journal, without times and durations."""
    with Store.read(folder) as store:
        rows = store.rows(select(schema.journal.c.place, schema.journal.c.digest, schema.journal.c.answer))
    return sorted((row.place, row.digest, row.answer) for row in rows if not row.place.endswith(TIMES))


def acting(call: Call) -> str:
    """Counts twice, then finishes; any other role as in `world`. Its first answer does not fit the schema."""
    if call.role != "agent":
        return world(call)
    assert call.schema is not None
    if not call.prompt.turns:
        return "I count."
    turn = 1 + sum('"action"' in turn.assistant for turn in call.prompt.turns)
    action = {"count": {"by": turn}} if turn < 3 else {"finish": {"answer": call.prompt.user.split("\n")[0]}}
    whole = {"used": [], "thought": f"turn {turn}", "action": action}
    return json.dumps({name: value for name, value in whole.items() if name in call.schema["properties"]})


def counting(folder: Path, model: ScriptedClient, go: bool = True) -> practicum.Parts:
    """An agent that counts with tools, which write to this folder; without `go` they wait for its file."""
    folder.mkdir()
    if go:
        (folder / "go").touch()
    return practicum.Parts(tools=Counters(str(folder)), clients={"agent": model})


def processes(log: Path) -> set[int]:
    return {int(line.split()[0]) for line in log.read_text().splitlines()}


def test_a_run_with_a_function_that_may_fail_is_the_same_on_a_cluster(tmp_path: Path) -> None:
    parts = practicum.Parts(agent=guess, scorer=lenient, clients={"agent": client()})
    here = learned(tmp_path / "here", parts)
    there = learned(tmp_path / "there", parts, engine="ray")
    assert (context_bytes(here), here.scores) == (context_bytes(there), there.scores)
    assert journal(tmp_path / "here") == journal(tmp_path / "there")
    errors = [[attempt.trace.error for attempt in result.attempts["test"]] for result in (here, there)]
    assert errors[0] == errors[1]
    assert any(error and "LookupError: no such page" in error for error in errors[0])
    assert len(here.context) > 0


def test_a_run_with_tools_is_the_same_on_a_cluster(tmp_path: Path) -> None:
    here = learned(tmp_path / "here", counting(tmp_path / "here.d", client(acting)))
    parts = counting(tmp_path / "there.d", client(acting))
    there = learned(tmp_path / "there", parts, engine="ray", resources="cpu=0.1")
    assert context_bytes(here) == context_bytes(there)
    assert journal(tmp_path / "here") == journal(tmp_path / "there")
    workers = set.union(*map(processes, (tmp_path / "there.d").glob("*.log")))
    assert os.getpid() not in workers


def test_a_lost_node_repeats_no_answered_call(tmp_path: Path, cluster: Any) -> None:
    """The node is removed amid attempts. They are made again elsewhere, and no model is asked again."""
    here, there, logs = client(acting), client(acting), tmp_path / "held"
    config: dict[str, Any] = {"method": "none", "settings": {}}
    expected = learned(tmp_path / "here", counting(tmp_path / "logs", here), **config)
    node, parts = cluster.add_node(**SMALL), counting(logs, there, go=False)

    def lose() -> None:
        # Each of the six processors has an attempt, which has been answered three times.
        wait_until(lambda: len([*logs.glob("*.log")]) == 6 and len(there.calls) == 18)
        workers = set.union(*map(processes, logs.glob("*.log")))
        cluster.remove_node(node, allow_graceful=False)
        wait_until(lambda: sum(not Path(f"/proc/{pid}").exists() for pid in workers) == 2)
        (logs / "go").touch()

    thread = threading.Thread(target=lose)
    thread.start()
    result = learned(tmp_path / "there", parts, engine="ray", **config)
    thread.join()
    assert context_bytes(result) == context_bytes(expected)
    assert journal(tmp_path / "there") == journal(tmp_path / "here")
    assert len(there.calls) == len(here.calls)
    assert sorted(len(processes(log)) for log in logs.glob("*.log")) == [1, 1, 1, 1, 2, 2]


def evaluated(agent: Any, n: int = 1, **config: Any) -> practicum.Evaluation:
    parts = practicum.Parts(agent=agent, clients={"agent": client()})
    return practicum.run_sync(practicum.evaluate(make_tasks(n), Context(), parts=parts, engine="ray", **config))


def test_an_attempt_that_ends_its_worker_is_a_failed_attempt() -> None:
    errors = [attempt.trace.error or "" for attempt in evaluated(dying, 3).attempts]
    assert [bool(error) for error in errors] == [False, True, False]
    assert errors[1].startswith("the worker process ended 3 times during this attempt")


def test_a_cluster_without_room_and_a_second_cluster_are_refused(cluster: Any) -> None:
    for resources in ("cpu=64", "memory=900gb", "fpga=1"):
        with refused("cluster.no_room"):
            evaluated(guess, resources=resources)
    for same in ("auto", f"localhost:{cluster.address.rpartition(':')[2]}"):
        assert evaluated(guess, ray_address=same).attempts[0].trace.error is None
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        with refused("cluster.mismatch"):
            evaluated(guess, ray_address=address)
    with refused("cluster.unreachable"):
        evaluated(guess, ray_address=address)


class Stops(practicum.Watch):
    """Stops the run after the first attempt."""

    def began(self, run: RunInfo) -> None:
        self.budget, self.nodes = run.budget, dict[str, int]()

    def spread(self, nodes: Mapping[str, int]) -> None:
        self.nodes = {**self.nodes, **nodes}

    def attempted(self, task: Task, trace: Trace) -> None:
        self.budget.stop("enough")


def test_a_stop_ends_waiting_attempts_and_a_resume_may_continue_on_one_machine(tmp_path: Path) -> None:
    parts, watch = practicum.Parts(agent=waiting, clients={"agent": client()}), Stops()
    stopped = learned(tmp_path / "run", parts, n=16, watch=watch, engine="ray", concurrency=16)
    assert stopped.stopped == "enough"
    assert watch.nodes.values()
    assert set(watch.nodes.values()) == {0}
    again = practicum.run_sync(practicum.resume(tmp_path / "run", parts=parts, engine="local", concurrency=16))
    whole = learned(tmp_path / "whole", parts, n=16, concurrency=16)
    assert context_bytes(again) == context_bytes(whole)
    assert journal(tmp_path / "run") == journal(tmp_path / "whole")
