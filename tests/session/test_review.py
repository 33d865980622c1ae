"""Review: pending edits enter the context on approval only, and decisions hold."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from helpers import run_command
from rows import execute, put
from sqlalchemy import select

from practicum.core.context import Context
from practicum.core.edits import Add, Delete, Delta, Edit, Merge, Update, Vote
from practicum.engine.admission import held
from practicum.session.amend import apply_edits
from practicum.session.records import HELD, create_seed, load_context
from practicum.session.review import approve, find_reviews
from practicum.store import schema
from practicum.store.database import Store
from practicum.store.reviews import PENDING

FOREIGN = ("task:t", "trust:foreign")


def waiting(folder: Path, groups: Sequence[Sequence[Edit]], start: Sequence[Add] = ()) -> Path:
    """A run with these entries and these pending edits: each group is of another step, from 1."""
    create_seed(folder, replace(Context().apply(Delta(tuple(start))).context, version=0))
    rows = [
        {
            "space": "run", "step": n, "id": f"{n}.1", "state": PENDING, "reason": "",
            "data": json.dumps({**HELD.dump_python(held(edits), mode="json"), "base": 0}),
        }
        for n, edits in enumerate(groups, 1)
    ]  # fmt: skip
    with Store.open(folder) as store:
        put(store, schema.reviews, rows)
    return folder


def approved(folder: Path, *ids: str) -> Any:
    with Store.open(folder) as store:
        return approve(store, find_reviews(store, ids, (PENDING,)))


def test_an_edit_of_an_entry_that_changed_or_was_removed_stays_pending(tmp_path: Path) -> None:
    edits = [
        [Update("e0", "other", sources=FOREIGN)],
        [Update("e1", "other", sources=FOREIGN)],
        [Delete("e2", sources=FOREIGN)],
        [Vote("e1", helpful=1, sources=FOREIGN)],
        [Add("rules", "twin", ref="new0", sources=FOREIGN), Merge(("e0", "new0"))],
    ]
    run = waiting(tmp_path / "run", edits, [Add("rules", text) for text in ("first", "second", "third")])
    with Store.open(run) as store:
        apply_edits(store, lambda last: Delta((Update("e1", "mine"), Delete("e2"))))
    assert dict(approved(run, "1.1", "2.1", "3.1", "4.1", "5.1").refused) == {
        "2.1": "e1 was changed since step 2", "3.1": "e2 was removed since step 3",
        "5.1": "e0 was changed since step 5",
    }  # fmt: skip
    assert [(e.text, e.helpful) for e in load_context(run)] == [("other", 0), ("mine", 1)]
    with Store.read(run) as store:
        pending = [row.id for row in store.rows(select(schema.reviews)) if row.state == PENDING]
    assert pending == ["2.1", "3.1", "5.1"]


def test_a_damaged_row_is_named(tmp_path: Path) -> None:
    run = waiting(tmp_path / "run", [[Add("rules", "Always look first.", sources=FOREIGN)]])
    with Store.open(run) as store:
        execute(store, schema.reviews.update().values(data='{"edits": [], "trust": "foreign", "base": "x"}'))
    assert "'1.1' is damaged" in run_command(["review", str(run)], tmp_path).err
