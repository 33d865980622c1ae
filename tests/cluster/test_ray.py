"""Attempts on a real Ray: a run there is the run that one machine makes, whatever becomes of nodes and workers."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from helpers import client, context_bytes, make_tasks, wait_until, world
from remote_work import Counters, dying, failing, guess, lenient
from sqlalchemy import select

import practicum
from practicum.core.context import Context
from practicum.models.scripted import Call
from practicum.store import schema
from practicum.store.database import Store

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.usefixtures("cluster")]

SMALL = {"num_cpus": 2, "object_store_memory": 80 * 2**20}
SHARED = "cpu=0.1"
TIMES = ("/ended", "/seconds")


def learned(folder: Path, parts: practicum.Parts, n: int = 8, **config: Any) -> practicum.Result:
    how: dict[str, Any] = {"method": "ace", "settings": {"rounds": 1, "batch": 4}, "concurrency": 6, **config}
    return practicum.run_sync(
        practicum.learn(make_tasks(n), test=make_tasks(6, start=50), out=folder, parts=parts, **how)
    )


def journal(folder: Path) -> list[tuple[str, str, str]]:
    """What the journal holds of each effect, apart from when it was and how long it took."""
    with Store.read(folder) as store:
        rows = store.rows(select(schema.journal.c.place, schema.journal.c.digest, schema.journal.c.answer))
    return sorted((row.place, row.digest, row.answer) for row in rows if not row.place.endswith(TIMES))


def acting(call: Call) -> str:
    """Counts twice, then says what it counted; any other role as in `world`. Its first answer does not fit."""
    if call.role != "agent":
        return world(call)
    assert call.schema is not None
    if not call.prompt.turns:
        return "I count."
    turn = 1 + sum('"action"' in turn.assistant for turn in call.prompt.turns)
    action = {"count": {"by": turn}} if turn < 3 else {"finish": {"answer": call.prompt.user.split("\n")[0]}}
    said = {"used": [], "thought": f"turn {turn}", "action": action}
    return json.dumps({name: value for name, value in said.items() if name in call.schema["properties"]})


@pytest.mark.parametrize("resources", ["cpu=1", "cpu=0.1"])
def test_a_run_with_a_function_is_the_same_on_a_cluster(tmp_path: Path, resources: str) -> None:
    parts = practicum.Parts(agent=guess, scorer=lenient, clients={"agent": client()})
    here = learned(tmp_path / "here", parts)
    there = learned(tmp_path / "there", parts, engine="ray", resources=resources)
    assert context_bytes(here) == context_bytes(there)
    assert here.scores == there.scores
    assert journal(tmp_path / "here") == journal(tmp_path / "there")
    assert len(here.context) > 0


def test_a_run_with_tools_is_the_same_on_a_cluster(tmp_path: Path) -> None:
    results = []
    for name, config in (("here", {}), ("there", {"engine": "ray", "resources": SHARED})):
        (tmp_path / f"{name}.d").mkdir()
        (tmp_path / f"{name}.d" / "go").touch()
        parts = practicum.Parts(tools=Counters(str(tmp_path / f"{name}.d")), clients={"agent": client(acting)})
        results.append(learned(tmp_path / name, parts, **config))
    assert context_bytes(results[0]) == context_bytes(results[1])
    assert journal(tmp_path / "here") == journal(tmp_path / "there")
    made = {line.split()[0] for log in (tmp_path / "there.d").glob("*.log") for line in log.read_text().splitlines()}
    assert made
    assert str(os.getpid()) not in made


def test_failures_come_back_as_they_are_on_one_machine(tmp_path: Path) -> None:
    parts = practicum.Parts(agent=failing, clients={"agent": client()})
    here = learned(tmp_path / "here", parts)
    there = learned(tmp_path / "there", parts, engine="ray", resources=SHARED)
    errors = [[r.trace.error for r in result.rollouts["test"]] for result in (here, there)]
    assert errors[0] == errors[1]
    assert any(error and "LookupError: no such page" in error for error in errors[0])
    assert journal(tmp_path / "here") == journal(tmp_path / "there")


def test_a_node_that_is_lost_costs_nothing_that_was_answered(tmp_path: Path, cluster: Any) -> None:
    """The node is removed amid attempts. They are made again elsewhere, and no model is asked again."""
    config: dict[str, Any] = {"method": "none", "settings": {}, "concurrency": 6}
    here, logs = client(acting), tmp_path / "logs"
    logs.mkdir()
    (logs / "go").touch()
    parts = practicum.Parts(tools=Counters(str(logs)), clients={"agent": here})
    expected = learned(tmp_path / "here", parts, **config)

    node, there, logs = cluster.add_node(**SMALL), client(acting), tmp_path / "held"
    logs.mkdir()
    parts = practicum.Parts(tools=Counters(str(logs)), clients={"agent": there})

    def lose() -> None:
        # Each of the six processors has an attempt, which has been answered three times.
        wait_until(lambda: len([*logs.glob("*.log")]) == 6 and len(there.calls) == 18)
        workers = {int(log.read_text().split()[0]) for log in logs.glob("*.log")}
        cluster.remove_node(node, allow_graceful=False)
        wait_until(lambda: sum(not Path(f"/proc/{pid}").exists() for pid in workers) == 2)
        (logs / "go").touch()

    thread = threading.Thread(target=lose)
    thread.start()
    found = learned(tmp_path / "there", parts, engine="ray", **config)
    thread.join()
    assert context_bytes(found) == context_bytes(expected)
    assert journal(tmp_path / "there") == journal(tmp_path / "here")
    assert len(there.calls) == len(here.calls)
    twice = [log for log in logs.glob("*.log") if len({line.split()[0] for line in log.read_text().splitlines()}) == 2]
    assert len(twice) == 2


def test_an_attempt_that_ends_its_worker_is_a_failed_attempt(tmp_path: Path) -> None:
    parts = practicum.Parts(agent=dying, clients={"agent": client()})
    tried = practicum.run_sync(practicum.evaluate(make_tasks(3), Context(), parts=parts, engine="ray"))
    errors = [rollout.trace.error or "" for rollout in tried.rollouts]
    assert [bool(error) for error in errors] == [False, True, False]
    assert errors[1].startswith("the worker process ended 3 times under this attempt")
