"""Without labels nothing that learns sees a target or a score; and `meta` is seen by nobody, ever."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers import client, make_tasks, world
from labels import changed, prompts

import practicum
from practicum.core.types import Task
from practicum.models.scripted import Call

SECRET = "xyzzy-meta"


def test_a_scoring_judge_sees_the_target_and_what_learns_does_not(tmp_path: Path) -> None:
    tasks = make_tasks(6)
    config: dict[str, Any] = {"method": "ace", "labels": False, "judged": True, "scorer": "judge"}
    before = [p for p in prompts(tmp_path / "a", tasks, **config) if "# Reference answer" not in p[1]]
    after = [p for p in prompts(tmp_path / "b", changed(tasks, "other"), **config) if "# Reference answer" not in p[1]]
    assert before == after
    assert any(role == "judge" for role, _ in before)


@pytest.mark.parametrize("labels", [True, False])
@pytest.mark.parametrize("method", ["ace", "episodes", "icl", "mael", "reasoning_bank", "unified"])
def test_meta_reaches_no_prompt(tmp_path: Path, method: str, labels: bool) -> None:
    if method == "icl" and not labels:
        pytest.skip("icl cannot learn without labels")
    tasks = make_tasks(6, note=SECRET, tags=[f"tag-{SECRET}"])
    held = make_tasks(2, 50, note=SECRET)
    model = client()
    work = practicum.learn(
        tasks, test=held, out=tmp_path / "run", method=method, labels=labels, scorer="exact",
        parts=practicum.Parts(clients={"agent": model}),
    )  # fmt: skip
    practicum.run_sync(work)
    assert model.calls
    assert not [call for call in model.calls if SECRET in call.text]


def test_an_external_agent_gets_neither_target_nor_meta(tmp_path: Path) -> None:
    seen: list[str] = []

    def agent(text: str, context: str) -> str:
        seen.append(text + context)
        return "x"

    tasks = [Task("t1", "What?", "the-target", {"note": SECRET})]
    parts = practicum.Parts(agent=agent, clients={"agent": client()})
    practicum.run_sync(practicum.learn(tasks, out=tmp_path / "run", parts=parts, labels=False))
    assert seen
    assert not [text for text in seen if SECRET in text or "the-target" in text]


def test_an_attempt_without_a_verdict_is_counted(tmp_path: Path) -> None:
    def mumbling(call: Call) -> str:
        return "hm" if call.role == "judge" else world(call)

    parts = practicum.Parts(clients={"agent": client(mumbling)})
    work = practicum.learn(make_tasks(3), out=tmp_path / "run", parts=parts, method="ace", labels=False, judged=True)
    result = practicum.run_sync(work)
    assert result.steps == 3
    assert result.errors["unjudged_attempts"] == 3
