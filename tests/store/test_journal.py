"""The journal: calls that were done and paid for are returned and counted, and another question is refused."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from helpers import asynchronous
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from practicum.core.types import Prompt, Turn, Usage
from practicum.store import schema
from practicum.store.database import Store
from practicum.store.flight import FLIGHT_FILE
from practicum.store.journal import NOTE_ROLE, Journal, JournalRow, Outage, digest

PARTS = st.lists(st.text('aé"1', max_size=3), max_size=4)

ONE = JournalRow("step 1/a", "agent", "d1", '["é", false]', Usage(1, 10, 4, 2, 0.5), 1.5, True, ("task:t1", "tag:x"))
BAD = JournalRow("step 1/b", "reflector", "d2", "the provider failed", ok=False)


@asynchronous
async def test_records_are_whole_in_a_reopened_store_and_their_prompts_share_texts(
    tmp_path: Path, shared_url: str | None
) -> None:
    page, turn = "[e1] (rules) Look first.", Turn("a", "b")
    first, second = Prompt("be brief", "one", (page,), (turn,)), Prompt("be brief", "two", (page,))
    with Store.create(tmp_path, shared_url) as store:
        journal = Journal(store)
        assert journal.find(ONE.place, ONE.digest) is None
        await asyncio.gather(*(journal.write(record) for record in (replace(ONE, prompt=first), BAD)))
    with Store.open(tmp_path) as store:
        journal = Journal(store)
        assert journal.before == ONE.usage
        assert [journal.find(row.place, row.digest) for row in (ONE, BAD)] == [ONE, BAD]
        assert journal.find("step 2/a", "d1") is None
        assert journal.hits == 2
        assert journal.by_role() == {"agent": ONE.usage}
        with refused("journal.mismatch"):
            Journal(store).find(ONE.place, "other")
        await journal.write(replace(ONE, place="step 2/a", usage=Usage(1, 1, 0, 1, None), prompt=second))
        assert Journal(store).before == Usage(2, 11, 4, 3, None)
        texts = [row.text for row in store.rows(store.select(schema.texts.c.text))]
        assert sorted(texts) == sorted({"be brief", "one", "two", page, "a", "b"})
        prompts = [Journal(store).prompt(place) for place in (ONE.place, "step 2/a", BAD.place)]
        assert prompts == [first, second, None]


@given(PARTS, PARTS)
def test_digests_of_different_parts_differ(one: list[str], other: list[str]) -> None:
    assert (digest(*one) == digest(*other)) == (one == other)
    assert digest({"a": one, "b": other}) == digest({"b": other, "a": one})
    assert (digest({"a": one}) == digest({"a": other})) == (one == other)


# ---- calls in flight at a kill count as spent, once, so that budgets hold over any number of kills

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
        left = (tmp_path / FLIGHT_FILE).read_bytes()
        killed(opened(tmp_path))
        (tmp_path / FLIGHT_FILE).write_bytes(left)  # a file that outlives its booking
        opened(tmp_path).close()
        opened(tmp_path).close()
        assert spent(tmp_path) == Usage(n, n * 100, 0, n * 50, n * 0.5)
    assert not (tmp_path / FLIGHT_FILE).exists()


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
        for n in range(50):
            first, second = (store.flight.start(f"{n}/{k}", "digest", MOST) for k in range(2))
            store.flight.end(first)
            store.flight.end(second)
        assert (tmp_path / FLIGHT_FILE).stat().st_size < 500
    assert not (tmp_path / FLIGHT_FILE).exists()
    assert spent(tmp_path).calls == 0


def test_a_run_with_a_damaged_file_opens(tmp_path: Path) -> None:
    opened(tmp_path).close()
    for data in (b"", b"\x01" + b"\xff" * 86, bytes(range(256)) * 3):
        (tmp_path / FLIGHT_FILE).write_bytes(data)
        opened(tmp_path).close()
        assert spent(tmp_path).tokens >= 0


def test_an_outage_covers_the_effects_before_it_at_and_below_its_places() -> None:
    outage = Outage(5, ("step 1",), ())
    places = ("step 1", "agent", 4), ("step 1/a", "agent", 4), ("step 1/a", "agent", 6), ("step 1/a", NOTE_ROLE, 4)
    rows = [JournalRow(place, role, "", "", number=n) for place, role, n in (*places, ("step 10", "agent", 4))]
    assert [outage.covers(row) for row in rows] == [True, True, False, False, False]
