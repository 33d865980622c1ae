"""What a forgotten text leaves in the prompts of others."""

from __future__ import annotations

import asyncio
from pathlib import Path

from helpers import client
from scripts import number

from practicum.core.types import Prompt, Task, Turn
from practicum.session.components import Parts
from practicum.session.forget import forget
from practicum.session.learn import learn
from practicum.store import schema
from practicum.store.database import Store
from practicum.store.journal import Journal, JournalRow

SECRET = "Message 1: what does the quetzal eat?"


def test_a_text_that_is_said_again_is_forgotten_again(tmp_path: Path) -> None:
    """Somebody's prompt, which stays, showed the text; the request of the second time is no task, as in a trial of a
    service on requests that it held out."""
    folder = tmp_path / "run"
    tasks = [Task("t1", SECRET, "marzipan"), Task("t2", "Message 2: and the albatross?", "fish")]
    parts = Parts(clients={"agent": client(lambda call: {"answer": ["marzipan", "fish"][number(call) - 1]})})
    asyncio.run(learn(tasks, method="episodes", out=folder, parts=parts))

    def ask(place: str, prompt: Prompt, source: str) -> None:
        with Store.open(folder) as store:
            row = JournalRow(place, "agent", place, '"yes"', sources=(source,), prompt=prompt)
            asyncio.run(Journal(store).write(row))

    def forgotten(source: str) -> list[str]:
        with Store.open(folder) as store:
            assert forget(store, sources=[source]).left == 0
            return [row.text for row in store.rows(store.select(schema.texts))]

    shown = Prompt("Answer.", "And the heron?", turns=(Turn(SECRET, "marzipan"),))
    ask("more/a", shown, "task:t2")
    assert SECRET not in forgotten("task:t1")
    ask("more/b", Prompt("Answer.", SECRET), "task:t3")
    texts = forgotten("task:t3")
    assert SECRET not in texts
    with Store.read(folder) as store:
        stays = Journal(store).prompt("more/a")
    assert stays is not None
    assert (stays.system, stays.user) == ("Answer.", "And the heron?")
    assert SECRET not in str(stays)
