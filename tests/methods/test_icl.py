"""In-context learning: as many examples as fit, the same for every task, and no call to learn them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers import client, make_tasks

import practicum
from practicum.blocks.act.show import TURN_FRAME
from practicum.core.types import Task
from practicum.core.views import count_tokens
from practicum.models.scripted import Call, ScriptedClient
from practicum.session.result import Result

HELD = make_tasks(3, 50)


def learn(folder: Path, model: ScriptedClient, tasks: list[Task], **how: Any) -> Result:
    how.setdefault("parts", practicum.Parts(clients={"agent": model}))
    return practicum.run_sync(practicum.learn(tasks, out=folder, method="icl", **how))


def turns(call: Call) -> list[tuple[str, str]]:
    return [(turn.user, turn.assistant) for turn in call.prompt.turns]


@pytest.mark.parametrize("fit", [0, 1, 4, 9, 20])
def test_as_many_as_fit_are_shown_oldest_first_to_every_task_alike(tmp_path: Path, fit: int) -> None:
    tasks = make_tasks(9)
    sizes = [count_tokens(t.input) + count_tokens(t.target or "") + TURN_FRAME for t in tasks]
    window = max(sum(sizes[:fit]) + (sizes[fit] - 1 if fit < 9 else 0), 1)
    model = client()
    learn(tmp_path / "run", model, tasks, test=HELD, settings={"window": window})
    assert len(model.calls) == len(HELD)
    for call in model.calls:
        assert turns(call) == [(t.input, t.target) for t in tasks[:fit]]


def anything(task: Task, answer: str) -> bool:
    """A scorer that needs no target."""
    return answer == "good"


def test_tasks_without_a_known_answer_are_not_shown(tmp_path: Path) -> None:
    tasks = [Task("a", "First?"), Task("b", "Second?", "good")]
    model = client(lambda call: "bad" if "First" in call.prompt.user else "good")
    parts = practicum.Parts(clients={"agent": model}, scorer=anything)
    learn(tmp_path / "offline", model, tasks, test=HELD[:1], parts=parts)
    learn(tmp_path / "online", model, [*tasks, Task("c", "Third?")], settings={"online": True}, parts=parts)
    assert [turns(call) for call in model.calls] == [[], [("Second?", "good")], [], [], [("Second?", "good")]]
