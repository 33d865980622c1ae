"""What was done and paid for, and what happens when the program asks something else."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from practicum.errors import JournalMismatch
from practicum.journal import Journal, Record, digest
from practicum.store.store import Store
from practicum.types import Usage

PARTS = st.lists(st.text('aé"1', max_size=3), max_size=4)

ONE = Record("step 1/a", "agent", "d1", '["é", false]', Usage(1, 10, 4, 2, 0.5), 1.5, True, ("task:t1", "tag:x"))
BAD = Record("step 1/b", "reflector", "d2", "the provider failed", ok=False)


def test_records_come_back_whole_from_a_reopened_store(tmp_path: Path) -> None:
    with Store.create(tmp_path) as store:
        journal = Journal(store, "run")
        assert journal.find(ONE.place, ONE.digest) is None

        async def write() -> None:
            await asyncio.gather(*(journal.write(record) for record in (ONE, BAD)))

        asyncio.run(write())
    with Store.open(tmp_path) as store:
        journal = Journal(store, "run")
        assert journal.before == ONE.usage
        assert journal.find(ONE.place, "d1") == ONE
        assert journal.find(BAD.place, "d2") == BAD
        assert journal.find("step 2/a", "d1") is None
        assert journal.hits == 2
        assert journal.by_role() == {"agent": ONE.usage}
        assert Journal(store, "another").find(ONE.place, "d1") is None


def test_another_question_at_a_place_names_the_place(tmp_path: Path) -> None:
    with Store.create(tmp_path) as store:
        asyncio.run(Journal(store, "run").write(ONE))
        with pytest.raises(JournalMismatch, match="another question at 'step 1/a'"):
            Journal(store, "run").find("step 1/a", "other")


def test_an_unknown_price_makes_the_sum_unknown(tmp_path: Path) -> None:
    with Store.create(tmp_path) as store:
        journal = Journal(store, "run")
        asyncio.run(journal.write(ONE))
        asyncio.run(journal.write(Record("p", "agent", "d", "x", Usage(1, 1, 0, 1, None))))
        assert Journal(store, "run").before == Usage(2, 11, 4, 3, None)


@given(PARTS, PARTS)
def test_digests_tell_parts_apart(one: list[str], other: list[str]) -> None:
    assert (digest(*one) == digest(*other)) == (one == other)


def test_digests_of_values_ignore_the_order_of_keys() -> None:
    assert digest({"a": 1, "b": [2]}) == digest({"b": [2], "a": 1})
    assert digest({"a": 1}) != digest({"a": 2})
