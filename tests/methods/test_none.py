"""The agent without learning: no call while learning, and nothing ever kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from helpers import client, context_bytes, make_tasks

import practicum
from practicum.core.context import seed_context
from practicum.models.scripted import ScriptedClient
from practicum.session.result import Result

SEED = seed_context([("rules", "Say the last word.")])


def learn(folder: Path, model: ScriptedClient, **how: Any) -> Result:
    parts = practicum.Parts(clients={"agent": model})
    return practicum.run_sync(practicum.learn(make_tasks(6), out=folder, method="none", parts=parts, **how))


def test_no_call_is_made_but_for_the_evaluation(tmp_path: Path) -> None:
    model = client()
    result = learn(tmp_path / "run", model, test=make_tasks(4, 50), before=True)
    assert (result.steps, len(result.context)) == (0, 0)
    assert result.scores["before"] == result.scores["test"]
    # Before and after are the same context, which is evaluated once.
    assert len(model.calls) == 4


def test_a_seed_is_shown_and_stays_as_it_is(tmp_path: Path) -> None:
    model = client()
    result = learn(tmp_path / "run", model, test=make_tasks(4, 50), seed_context=SEED)
    assert [e.text for e in result.context] == ["Say the last word."]
    assert all("Say the last word." in call.prompt.head for call in model.calls)


def test_online_each_task_is_predicted_once_in_order(tmp_path: Path) -> None:
    model = client()
    result = learn(tmp_path / "run", model, settings={"online": True}, seed_context=SEED)
    assert [call.prompt.user for call in model.calls] == [t.input for t in make_tasks(6)]
    assert {call.role for call in model.calls} == {"agent"}
    assert 0 <= result.scores["online"] <= 1
    assert context_bytes(result) == context_bytes(learn(tmp_path / "offline", client(), seed_context=SEED))
