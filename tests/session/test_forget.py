"""Forgetting: a text leaves the prompts of other users, and a later leg of the run gets new places."""

from __future__ import annotations

import asyncio
from pathlib import Path

import scripts
from helpers import client
from scripts import number, scripted

from practicum.core.types import Prompt, Task, Turn
from practicum.session.amend import roll_back
from practicum.session.components import Parts
from practicum.session.forget import forget
from practicum.session.learn import learn
from practicum.store import schema
from practicum.store.database import Store
from practicum.store.journal import Journal, JournalRow

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
