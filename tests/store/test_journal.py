"""The journal: calls that were done and paid for are returned, and another question at their place is refused."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from refusals import refused
from sqlalchemy import select

from practicum.core.types import Prompt, Turn, Usage
from practicum.store import schema
from practicum.store.database import Store
from practicum.store.journal import Journal, JournalRow, digest

PARTS = st.lists(st.text('aé"1', max_size=3), max_size=4)

ONE = JournalRow("step 1/a", "agent", "d1", '["é", false]', Usage(1, 10, 4, 2, 0.5), 1.5, True, ("task:t1", "tag:x"))
BAD = JournalRow("step 1/b", "reflector", "d2", "the provider failed", ok=False)


def test_records_are_whole_in_a_reopened_store_and_their_prompts_share_texts(
    tmp_path: Path, shared_url: str | None
) -> None:
    page, turn = "[e1] (rules) Look first.", Turn("a", "b")
    first, second = Prompt("be brief", "one", (page,), (turn,)), Prompt("be brief", "two", (page,))
    with Store.create(tmp_path, shared_url) as store:
        journal = Journal(store)
        assert journal.find(ONE.place, ONE.digest) is None

        async def write() -> None:
            await asyncio.gather(*(journal.write(record) for record in (replace(ONE, prompt=first), BAD)))

        asyncio.run(write())
    with Store.open(tmp_path) as store:
        journal = Journal(store)
        assert journal.before == ONE.usage
        assert [journal.find(row.place, row.digest) for row in (ONE, BAD)] == [ONE, BAD]
        assert journal.find("step 2/a", "d1") is None
        assert journal.hits == 2
        assert journal.by_role() == {"agent": ONE.usage}
        with refused("journal.mismatch"):
            Journal(store).find(ONE.place, "other")
        asyncio.run(journal.write(replace(ONE, place="step 2/a", usage=Usage(1, 1, 0, 1, None), prompt=second)))
        assert Journal(store).before == Usage(2, 11, 4, 3, None)
        texts = [row.text for row in store.rows(select(schema.texts))]
        assert sorted(texts) == sorted({"be brief", "one", "two", page, "a", "b"})
        prompts = [Journal(store).prompt(place) for place in (ONE.place, "step 2/a", BAD.place)]
        assert prompts == [first, second, None]


@given(PARTS, PARTS)
def test_digests_of_different_parts_differ(one: list[str], other: list[str]) -> None:
    assert (digest(*one) == digest(*other)) == (one == other)


def test_digests_of_values_ignore_the_order_of_keys() -> None:
    assert digest({"a": 1, "b": [2]}) == digest({"b": [2], "a": 1})
    assert digest({"a": 1}) != digest({"a": 2})
