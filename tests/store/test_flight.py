"""What is in flight at a kill counts as spent, once, so that budgets hold over any number of kills."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import practicum
from practicum.core.types import Usage
from practicum.store.database import Store
from practicum.store.flight import FLIGHT_FILE, key_of
from practicum.store.journal import Journal, JournalRow

MOST = Usage(1, 100, 0, 50, 0.5)


def killed(store: Store) -> None:
    """What a kill of the process leaves: what is queued is written here, and nothing else is done."""
    asyncio.run(store.flush())
    store._writing.lease.close()
    store.database.close()


def opened(folder: Path) -> Store:
    return Store.open(folder) if (folder / "practicum.sqlite").exists() else Store.create(folder)


def spent(folder: Path) -> Usage:
    with Store.read(folder) as store:
        return Journal(store).before


def test_a_call_in_flight_counts_as_spent_once_however_often_the_folder_is_opened(tmp_path: Path) -> None:
    for n in (1, 2):
        store = opened(tmp_path)
        store.flight.start("step 1/agent", "digest", MOST)
        killed(store)
        opened(tmp_path).close()
        opened(tmp_path).close()
        assert spent(tmp_path) == Usage(n, n * 100, 0, n * 50, n * 0.5)
    assert not (tmp_path / FLIGHT_FILE).exists()


def test_a_file_that_outlives_its_booking_is_booked_once(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.flight.start("step 1/agent", "digest", MOST)
    killed(store)
    left = (tmp_path / FLIGHT_FILE).read_bytes()
    killed(opened(tmp_path))
    (tmp_path / FLIGHT_FILE).write_bytes(left)
    opened(tmp_path).close()
    assert spent(tmp_path).calls == 1


def test_an_answer_counts_as_what_it_cost_whether_it_is_journaled_or_not(tmp_path: Path) -> None:
    store, cost = opened(tmp_path), Usage(1, 90, 10, 5, 0.1)
    received = store.flight.start("a", "digest", MOST)
    store.flight.received(received, cost)
    store.flight.start("b", "digest", MOST)
    journal = Journal(store)
    asyncio.run(journal.write(JournalRow("b", "agent", "digest", '["", false]', cost)))
    # A resume asks something else at a place that is journaled.
    store.flight.start("b", "another digest", MOST)
    done = store.flight.start("c", "digest", MOST)
    store.flight.end(done)
    killed(store)
    opened(tmp_path).close()
    assert spent(tmp_path) == cost + cost + MOST


def test_slots_are_used_again_and_a_run_that_ends_leaves_no_file(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        for n in range(1000):
            first, second = (store.flight.start(f"{n}/{k}", "digest", MOST) for k in range(2))
            store.flight.end(first)
            store.flight.end(second)
        assert (tmp_path / FLIGHT_FILE).stat().st_size < 500
    assert not (tmp_path / FLIGHT_FILE).exists()
    assert spent(tmp_path).calls == 0


@pytest.mark.parametrize("data", [b"", b"\xff" * 10_000, b"\x01" + b"\xff" * 86, bytes(range(256)) * 3], ids=len)
def test_a_damaged_file_is_no_reason_not_to_open_a_run(tmp_path: Path, data: bytes) -> None:
    opened(tmp_path).close()
    (tmp_path / FLIGHT_FILE).write_bytes(data)
    opened(tmp_path).close()
    assert spent(tmp_path).tokens >= 0


def test_the_key_of_a_call_is_that_of_its_place_and_its_question() -> None:
    assert len({key_of("a", "b"), key_of("ab", ""), key_of("a", "c"), key_of("", "ab")}) == 4


KILLED = """
import json, os, signal, sys
import practicum
from practicum.models.scripted import ScriptedClient

folder, log, last = sys.argv[1:]
asked = 0

def respond(call):
    global asked
    asked += 1
    with open(log, "a") as file:
        file.write("1\\n")
    if asked == int(last):
        os.kill(os.getpid(), signal.SIGKILL)
    return json.dumps({"answer": "4", "used": []}) if call.role == "agent" else "{}"

parts = practicum.Parts(clients={"agent": ScriptedClient(respond)})
if os.path.exists(folder + "/practicum.sqlite"):
    try:
        result = practicum.run_sync(practicum.resume(folder, parts=parts))
    except practicum.UsageError as error:
        sys.exit(f"refused: {error}")
else:
    tasks = [practicum.Task(f"t{n}", f"2+{n}?", "4") for n in range(40)]
    work = practicum.learn(
        tasks, method="ace", settings={"rounds": 0}, out=folder, parts=parts, max_calls=30, concurrency=8
    )
    result = practicum.run_sync(work)
print(json.dumps([result.stopped, result.usage.calls, result.errors.get("left_in_flight", 0)]))
"""


@pytest.mark.slow
def test_calls_are_limited_over_any_number_of_kills(tmp_path: Path) -> None:
    script, log = tmp_path / "killed.py", tmp_path / "log"
    script.write_text(KILLED)
    for last in (1, 5, 3, 1, 2, 7, 1, 1, 4, 2, 1, 1, 6, 1, 1, 1, 1, 1, 1, 1):
        command = [sys.executable, str(script), str(tmp_path / "run"), str(log), str(last)]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ})
        if done.returncode != -signal.SIGKILL:
            break
    assert done.returncode == 0, done.stderr
    stopped, calls, left = json.loads(done.stdout)
    assert stopped == "the budget of 30 calls is spent"
    assert calls == 30
    assert left > 0
    assert len(log.read_text().splitlines()) <= 30
    assert practicum.load_context(tmp_path / "run") is not None
