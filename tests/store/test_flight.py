"""Calls in flight at a kill count as spent, once, so that budgets hold over any number of kills."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from practicum.core.types import Usage
from practicum.store.database import Store
from practicum.store.flight import FLIGHT_FILE
from practicum.store.journal import Journal, JournalRow

MOST = Usage(1, 100, 0, 50, 0.5)


def killed(store: Store) -> None:
    """Leave the folder as a kill of the process would, with the queue written."""
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


def test_an_answer_counts_its_cost_whether_it_is_journaled_or_not(tmp_path: Path) -> None:
    store, cost = opened(tmp_path), Usage(1, 90, 10, 5, 0.1)
    store.flight.received(store.flight.start("a", "digest", MOST), cost)
    store.flight.start("b", "digest", MOST)
    asyncio.run(Journal(store).write(JournalRow("b", "agent", "digest", '["", false]', cost)))
    # A resume asks another question at a place that is journaled.
    store.flight.start("b", "another digest", MOST)
    store.flight.end(store.flight.start("c", "digest", MOST))
    killed(store)
    opened(tmp_path).close()
    assert spent(tmp_path) == cost + cost + MOST


def test_slots_are_used_again_and_a_run_that_ends_leaves_no_file(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        for n in range(200):
            first, second = (store.flight.start(f"{n}/{k}", "digest", MOST) for k in range(2))
            store.flight.end(first)
            store.flight.end(second)
        assert (tmp_path / FLIGHT_FILE).stat().st_size < 500
    assert not (tmp_path / FLIGHT_FILE).exists()
    assert spent(tmp_path).calls == 0


@pytest.mark.parametrize("data", [b"", b"\x01" + b"\xff" * 86, bytes(range(256)) * 3], ids=len)
def test_a_run_with_a_damaged_file_opens(tmp_path: Path, data: bytes) -> None:
    opened(tmp_path).close()
    (tmp_path / FLIGHT_FILE).write_bytes(data)
    opened(tmp_path).close()
    assert spent(tmp_path).tokens >= 0
