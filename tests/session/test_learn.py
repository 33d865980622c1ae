"""Runs through the library: determinism, budgets, the best context, and what is refused before anything is paid."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers import client, make_tasks, world
from refusals import refused

import practicum
from practicum.core.context import seed_context
from practicum.core.errors import UsageError
from practicum.core.types import Task
from practicum.models.scripted import Call, ScriptedClient
from practicum.session.result import Result


def learn(folder: Path, model: ScriptedClient | None = None, n: int = 12, **config: Any) -> Result:
    parts = config.pop("parts", None) or practicum.Parts(clients={"agent": model or client()})
    tasks = config.pop("tasks", None) or make_tasks(n)
    return practicum.run_sync(practicum.learn(tasks, out=folder, parts=parts, **config))


def evaluate(tasks: list[Task], model: ScriptedClient, **config: Any) -> practicum.Evaluation:
    context = config.pop("context", seed_context([("rules", "Say the last word.")]))
    parts = config.pop("parts", practicum.Parts(clients={"agent": model}))
    return practicum.run_sync(practicum.evaluate(tasks, context, parts=parts, **config))


def test_without_scored_attempts_there_is_no_score(tmp_path: Path) -> None:
    def mumbling(call: Call) -> str:
        return "hm" if call.role == "judge" else world(call)

    with refused("attempts.all_failed"):
        evaluate(make_tasks(4), client(mumbling), scorer="judge")
    tasks = [Task("x", "Message 9: say word9")]
    result = learn(tmp_path / "run", client(mumbling), scorer="judge", tasks=tasks, test=make_tasks(4), method="none",
                   settings={})  # fmt: skip
    assert result.scores == {}


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "method": ({"method": "magic"}, "unknown method 'magic'"),
    "setting": ({"settings": {"batches": 3}}, "has no setting 'batches'"),
    "value": ({"settings": {"batch": "many"}}, "setting batch='many'"),
    "unused setting": ({"method": "icl", "settings": {"batch": 3}}, "method icl has no setting 'batch'"),
    "keyword": ({"concurency": 3}, "there is no setting 'concurency'"),
    "range": ({"concurrency": 0}, "concurrency=0"),
    "role": ({"roles": {"critic": "local"}}, "unknown role 'critic'"),
    "role twice": ({"roles": {"agent": "local", "generator": "local"}}, "two models"),
    "unused role": ({"method": "episodes", "roles": {"reflector": "local"}}, "asks no reflector"),
    "scorer": ({"scorer": "vibes"}, "unknown scorer 'vibes'"),
    "own scorer": ({"scorer": "nowhere:fn"}, "nowhere"),
    "agent": ({"agent": "robot"}, "known are chat"),
    "program": ({"agent": "command:/no/such/program"}, "no such program"),
    "labels": ({"method": "icl", "labels": False}, "cannot learn without labels"),
    "judge": ({"judged": True}, "add `labels=False`"),
    "before": ({"before": True}, "give `test`"),
    "validate": ({"validate_every": 2}, "give `val`"),
    "reasoning": ({"agent": "os.path:join", "reasoning": True}, "for the chat agent"),
    "epochs online": ({"settings": {"online": True, "epochs": 2}}, "online learning sees each task once"),
}


@pytest.mark.parametrize(("config", "words"), REFUSED.values(), ids=REFUSED)
def test_a_wrong_configuration_is_refused_before_a_folder_is_made(
    tmp_path: Path, config: dict[str, Any], words: str
) -> None:
    model = client()
    with pytest.raises(UsageError) as caught:
        learn(tmp_path / "run", model, **config)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2
    assert model.calls == []
    assert not (tmp_path / "run").exists()
