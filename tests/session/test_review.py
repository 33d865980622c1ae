"""Reviewing what waits: it is in no prompt before it is approved, and decisions hold."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers import make_tasks, run_command
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples
from rows import execute, put
from scripts import number, right, scripted
from sqlalchemy import select

import practicum
from practicum.core.context import Context
from practicum.core.edits import Add, Delete, Delta, Edit, Merge, Update, Vote
from practicum.engine.admission import held
from practicum.models.scripted import Call, ScriptedClient
from practicum.session.amend import apply_edits
from practicum.session.records import HELD, create_seed, load_context
from practicum.session.review import approve, find_reviews
from practicum.session.trial import try_reviews
from practicum.store import schema
from practicum.store.database import Store
from practicum.store.reviews import PENDING

FOREIGN = ("task:t", "trust:foreign")


def waiting(folder: Path, groups: Sequence[Sequence[Edit]], start: Sequence[Add] = ()) -> Path:
    """A run with these entries, in which these edits wait; each is of a step of its own, from 1."""
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


def decide(folder: Path, decision: Any, *ids: str, **how: Any) -> Any:
    with Store.open(folder) as store:
        return decision(store, find_reviews(store, ids, how.pop("states", (PENDING,))), *how.values())


def states(folder: Path) -> dict[str, str]:
    with Store.read(folder) as store:
        return {row.id: row.state for row in store.rows(select(schema.reviews))}


def test_an_edit_of_an_entry_that_changed_or_is_gone_waits_still(tmp_path: Path) -> None:
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
    approval = decide(run, approve, "1.1", "2.1", "3.1", "4.1", "5.1")
    assert dict(approval.refused) == {
        "2.1": "e1 was changed since step 2", "3.1": "e2 was removed since step 3",
        "5.1": "e0 was changed since step 5",
    }  # fmt: skip
    assert [(e.text, e.helpful) for e in load_context(run)] == [("other", 0), ("mine", 1)]
    assert [id for id, state in states(run).items() if state == PENDING] == ["2.1", "3.1", "5.1"]


@given(st.data())
@settings(max_examples=examples(20), deadline=None)
@pytest.mark.slow
def test_approved_in_any_order_it_is_the_context_that_there_is_without_review(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Edits that do not conflict: each entry is changed by one edit at most."""
    start = [Add("rules", f"rule {n}") for n in range(4)]
    of_entry = st.sampled_from(("update", "delete", "vote", None))
    edits: list[Edit] = []
    for n in range(4):
        match data.draw(of_entry):
            case "update":
                edits.append(Update(f"e{n}", f"new {n}", sources=FOREIGN))
            case "delete":
                edits.append(Delete(f"e{n}", sources=FOREIGN))
            case "vote":
                edits.append(Vote(f"e{n}", helpful=n + 1, sources=FOREIGN))
    edits += [Add("notes", f"note {n}", sources=FOREIGN) for n in range(data.draw(st.integers(0, 3)))]
    run = waiting(tmp_path_factory.mktemp("any") / "run", [[edit] for edit in edits], start)
    for id in data.draw(st.permutations([f"{n}.1" for n in range(1, len(edits) + 1)])):
        assert not decide(run, approve, id).refused
    wanted = load_context(run, 0).apply(Delta(tuple(edits))).context

    def plain(context: Context) -> list[Any]:
        return sorted((e.section, e.text, e.helpful, e.sources) for e in context)

    assert plain(load_context(run)) == plain(wanted)


# Trying


def answers(call: Call) -> str:
    """Right at every second task; where a rule says to look at all, where one says to be quick at none."""
    looks = "look first" in call.text or number(call) % 2
    return right(call) if looks and "be quick" not in call.text else "wrong"


EDITS: list[list[Edit]] = [
    [Add("rules", "Always look first.", sources=FOREIGN)],
    [Add("rules", "Always be quick.", sources=FOREIGN)],
    [Add("rules", "Never mind.", sources=FOREIGN)],
    [Add("rules", "Look at http://a.example/b", sources=FOREIGN)],
    [Vote("e0", helpful=1, sources=FOREIGN)],
]


def tried(run: Path, tasks: int, *ids: str, **how: Any) -> tuple[Any, ScriptedClient]:
    model = scripted(answers)
    parts = practicum.Parts(clients={"agent": model})
    work = try_reviews(run, ids or None, val=make_tasks(tasks), parts=parts, **how)
    return practicum.run_sync(work), model


@pytest.mark.slow
def test_edits_are_tried_together_and_then_one_by_one(tmp_path: Path) -> None:
    run = waiting(tmp_path / "run", EDITS, [Add("rules", "Be kind.")])
    done, model = tried(run, 8)
    assert {review.id: review.tried["together"] for review in done.reviews} == {"1.1": 1, "2.1": 1, "3.1": 1}
    assert {review.id: (review.tried["without"], review.tried["mean"]) for review in done.reviews} == {
        "1.1": (0.5, 0.5), "2.1": (0.5, -0.5), "3.1": (0.5, 0.0),
    }  # fmt: skip
    assert done.untried == {"5.1": "it does not change the agent's view"}
    assert not any("http" in call.text for call in model.calls)
    again, model = tried(run, 8)
    assert not model.calls
    assert [review.tried for review in again.reviews] == [review.tried for review in done.reviews]
    assert states(run) == dict.fromkeys(states(run), PENDING)
    assert "pages written" in run_command(["view", str(run), "--output", "pages"], tmp_path).out
    assert "tried: 100.0% with it and 50.0% without, on 8 tasks" in run_command(["review", str(run)], tmp_path).out


def test_a_damaged_row_is_told_of(tmp_path: Path) -> None:
    run = waiting(tmp_path / "run", EDITS[:1])
    with Store.open(run) as store:
        execute(store, schema.reviews.update().values(data='{"edits": [], "trust": "foreign", "base": "x"}'))
    assert "'1.1' is damaged" in run_command(["review", str(run)], tmp_path).err
