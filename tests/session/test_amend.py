"""Forgetting and reviews of a stored run: a text leaves the prompts of other users, a later leg has new places, and
edits of changed entries stay pending."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import scripts
from helpers import client, run_command
from rows import execute, put
from scripts import number, scripted
from sqlalchemy import select

from practicum.core.context import seed_context
from practicum.core.edits import Add, Delete, Delta, Edit, Merge, Update, Vote
from practicum.core.types import Prompt, Task, Turn
from practicum.engine.admission import held
from practicum.session.amend import apply_edits, roll_back
from practicum.session.components import Parts
from practicum.session.forget import forget
from practicum.session.learn import learn
from practicum.session.records import HELD, create_seed, load_context
from practicum.session.review import approve, find_reviews
from practicum.store import schema
from practicum.store.database import Store
from practicum.store.journal import Journal, JournalRow
from practicum.store.reviews import PENDING

SECRET = "Message 1: how does the quetzal nest?"


def test_a_text_that_returns_is_forgotten_again(tmp_path: Path) -> None:
    """A prompt of another user, which remains, showed the text. The second request is not a task, as in a trial of a
    service on requests that it held out."""
    folder = tmp_path / "run"
    tasks = [Task("t1", SECRET, "marzipan"), Task("t2", "Message 2: and the albatross?", "fish")]
    parts = Parts(clients={"agent": client(lambda call: {"answer": ["marzipan", "fish"][number(call) - 1]})})
    asyncio.run(learn(tasks, method="episodes", out=folder, parts=parts))

    def ask(place: str, prompt: Prompt, source: str) -> None:
        with Store.open(folder) as store:
            row = JournalRow(place, "agent", place, '"yes"', sources=(source,), prompt=prompt)
            asyncio.run(Journal(store).write(row))

    def texts_without(source: str) -> list[str]:
        with Store.open(folder) as store:
            assert forget(store, sources=[source]).left == 0
            return [row.text for row in store.rows(store.select(schema.texts))]

    ask("more/a", Prompt("Answer.", "And the heron?", turns=(Turn(SECRET, "marzipan"),)), "task:t2")
    assert SECRET not in texts_without("task:t1")
    ask("more/b", Prompt("Answer.", SECRET), "task:t3")
    assert SECRET not in texts_without("task:t3")
    with Store.read(folder) as store:
        remaining = Journal(store).prompt("more/a")
    assert remaining is not None
    assert (remaining.system, remaining.user) == ("Answer.", "And the heron?")
    assert SECRET not in str(remaining)


def test_a_leg_after_a_removal_has_new_places(tmp_path: Path) -> None:
    """The ids of the tasks are long enough to be searched for, and the note about a leg names them."""
    tasks = [Task(f"ticket-00000{n}", f"Message {n}: say word{n}", f"word{n}") for n in range(3)]
    run = scripts.learned(tmp_path, scripted(scripts.wrong), tasks, {"batch": 1, "rounds": 0})

    def next_leg() -> list[str]:
        with Store.open(run.folder) as store:
            roll_back(store, 1)
        return [r.place for r in scripts.resumed(run, scripted(scripts.wrong)).attempts]

    places = next_leg()
    with Store.open(run.folder) as store:
        assert forget(store, tasks=[places[-1].partition(".")[2]]).left == 0
    assert not {*places} & {*next_leg()}


FOREIGN = ("task:t", "trust:foreign")


def test_an_edit_of_an_entry_that_changed_or_was_removed_stays_pending_and_a_damaged_row_is_named(
    tmp_path: Path,
) -> None:
    edits: list[list[Edit]] = [
        [Update("e0", "other", sources=FOREIGN)], [Update("e1", "other", sources=FOREIGN)],
        [Delete("e2", sources=FOREIGN)], [Vote("e1", helpful=1, sources=FOREIGN)],
        [Add("rules", "twin", ref="new0", sources=FOREIGN), Merge(("e0", "new0"))],
    ]  # fmt: skip
    create_seed(run := tmp_path / "run", seed_context([("rules", text) for text in ("first", "second", "third")]))
    texts = [json.dumps({**HELD.dump_python(held(each), mode="json"), "base": 0}) for each in edits]
    same = {"space": "run", "state": PENDING, "reason": ""}
    rows = [{**same, "step": n, "id": f"{n}.1", "data": text} for n, text in enumerate(texts, 1)]
    with Store.open(run) as store:
        put(store, schema.reviews, rows)
        apply_edits(store, lambda last: Delta((Update("e1", "mine"), Delete("e2"))))
        done = approve(store, find_reviews(store, [f"{n}.1" for n in range(1, 6)], (PENDING,)))
        pending = [row.id for row in store.rows(select(schema.reviews)) if row.state == PENDING]
        assert [*dict(done.refused)] == pending == ["2.1", "3.1", "5.1"]
        execute(store, schema.reviews.update().values(data='{"edits": [], "trust": "foreign", "base": "x"}'))
    assert [(e.text, e.helpful) for e in load_context(run)] == [("other", 0), ("mine", 1)]
    assert "'2.1' is damaged" in run_command(["review", str(run)], tmp_path).err
