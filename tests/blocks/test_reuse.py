"""Reuse of attempts under the same context: what is reused, how long, and how it is counted."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest
from helpers import context_bytes, make_tasks, world
from runs import indoors
from scripts import Learned, annotated, insight, learned, number, resumed, right, scripted, warm, wrong

from practicum.blocks.act.show import reused
from practicum.core.context import Context, seed_context
from practicum.core.errors import ProviderError
from practicum.core.types import Feedback, Rollout, Task, Trace
from practicum.engine.run import Run
from practicum.models.scripted import Call
from practicum.session.forget import forget
from practicum.session.records import step_records
from practicum.store.database import Store

RULE = seed_context([("rules", "If in doubt, guess.")])
REUSED = "reused_attempts"
GATED: dict[str, Any] = {"heads": True, "gated_heads": True}
"""A failure by chance teaches nothing, so that the playbook stays as it is."""


def by_chance(call: Call) -> dict[str, Any]:
    """A diagnosis of chance."""
    return {**insight(call), "attribution": "execution_variance"}


def citing(call: Call) -> dict[str, Any]:
    return {"answer": right(call), "used": ["e0"]}


def silent(call: Call) -> dict[str, Any]:
    """Decides about a lesson that there is not."""
    return {"decisions": [{"lesson": 99, "op": "ADD"}]}


def found_wrong(call: Call) -> dict[str, Any]:
    return {"right": False}


def twice(tmp_path: Path, agent: Any, settings: dict[str, Any], reflector: Any = by_chance, **how: Any) -> Learned:
    """Four tasks in two epochs."""
    model = scripted(agent, reflector, **{key: how.pop(key) for key in ("curator", "judge") if key in how})
    return learned(tmp_path, model, 4, {"epochs": 2, "batch": 4, **settings}, **how)


def test_an_attempt_costs_the_same_however_many_were_made_before() -> None:
    class Shown:
        """A context that counts how often it is compared."""

        looks = 0

        @property
        def digest(self) -> str:
            self.looks += 1
            return "the same"

    async def act(task: Task, context: Context, run: Run, note: str = "") -> Rollout:
        return Rollout(task, Trace(""), None, Feedback(True, ""), "")

    def looked(n: int) -> int:
        shown, run = Shown(), indoors(world)
        for task in make_tasks(n):
            asyncio.run(reused(act)(task, cast(Context, shown), run))
        return shown.looks

    assert looked(60) == 2 * looked(30)


@pytest.mark.parametrize(
    "how", [{}, {"labels": False, "judged": True, "judge": found_wrong}], ids=["labels", "a judge"]
)
def test_members_of_a_group_and_the_twin_are_reused_separately(tmp_path: Path, how: dict[str, Any]) -> None:
    def by_seed(call: Call) -> str:
        return f"wrong {(call.options.seed or 0) % 1000}" if warm(call) else "wrong"

    run = twice(tmp_path, by_seed, {**GATED, "group": 3, "twin": True}, **how)
    assert len(run.calls("agent")) == 4 * 4
    assert sum(map(annotated, run.calls("agent"))) == 4
    assert run.result.errors[REUSED] == 4 * 4
    first = {r.task.id: r for r in run.reports[0].rollouts}
    for rollout in run.reports[1].rollouts:
        old = first[rollout.task.id]
        assert [r.trace for r in rollout.group] == [r.trace for r in old.group]
        assert len({r.trace.answer for r in rollout.group}) == 3
        assert rollout.twin == old.twin


def test_tasks_are_attempted_again_under_a_changed_context(tmp_path: Path) -> None:
    run = twice(tmp_path, wrong, {**GATED}, insight)
    assert len(run.calls("agent")) == 8
    assert REUSED not in run.result.errors


def test_a_replayed_task_is_not_attempted_again_before_something_was_learned(tmp_path: Path) -> None:
    run = learned(tmp_path, scripted(wrong, by_chance), 6, {**GATED, "replay": 0.5, "batch": 2})
    assert len(run.calls("agent")) == 6
    assert sum(len(report.rollouts) for report in run.reports) == 6 + run.result.errors[REUSED] > 6


def test_the_entries_of_a_reused_attempt_are_counted_once(tmp_path: Path) -> None:
    run = twice(tmp_path, citing, {"learn_from": "failures", "rounds": 0}, seed_context=RULE)
    (entry,) = run.result.context
    assert (entry.helpful, entry.uses) == (4, 4)
    assert run.result.errors[REUSED] == 4


def test_tries_with_a_reflection_are_made_again(tmp_path: Path) -> None:
    run = twice(tmp_path, wrong, {"rounds": 1, "uncovered": "drop"}, insight, curator=silent)
    assert run.result.errors[REUSED] == 4
    assert len(run.calls("agent")) == 4 + 2 * 4
    places = [lesson.id for report in run.reports for lesson in report.lessons]
    assert len(set(places)) == len(places) == 8


@pytest.mark.parametrize("settings", [{**GATED}, {**GATED, "group": 2}], ids=["alone", "in a group"])
def test_a_lost_attempt_is_made_again(tmp_path: Path, settings: dict[str, Any]) -> None:
    away = [1]

    def agent(call: Call) -> str | Exception:
        return ProviderError("provider.failed", "away") if number(call) == 1 and away and away.pop() else "wrong"

    run = twice(tmp_path, agent, settings)
    tries = settings.get("group", 1) * 4
    assert run.result.errors[REUSED] == tries - 1
    assert len(run.calls("agent")) == tries + 1
    assert not any(r.trace.lost for r in run.reports[1].rollouts)


@pytest.mark.parametrize("calls", [10, 19, 30])
def test_a_resumed_run_reuses_the_same_attempts(tmp_path: Path, calls: int) -> None:
    settings = {**GATED, "epochs": 3, "batch": 2, "group": 2}
    whole = learned(tmp_path / "whole", scripted(wrong, by_chance), 4, settings)
    model = scripted(wrong, by_chance)
    cut = learned(tmp_path / "cut", model, 4, settings, max_calls=calls)
    assert cut.result.stopped is not None
    done = resumed(cut, model, max_calls=1000)
    assert context_bytes(done.result) == context_bytes(whole.result)
    assert done.rollouts == whole.rollouts
    assert len(model.calls) == len(whole.model.calls)
    assert done.result.errors[REUSED] == whole.result.errors[REUSED]


def test_forgetting_an_attempt_forgets_where_it_was_reused(tmp_path: Path) -> None:
    run = twice(tmp_path, wrong, {**GATED})
    place = run.reports[0].rollouts[0].place
    task = run.reports[0].rollouts[0].task.id
    with Store.open(run.folder) as store:
        forget(store, "run", sources=[f"rollout:{place}"])
        left = [rollout.task.id for _, rollouts, _ in step_records(store) for rollout in rollouts]
    assert task not in left
    assert len(left) == 6
