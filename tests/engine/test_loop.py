"""The loop over six seams: what it passes on, in which order, and when it gives up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from helpers import client, make_tasks
from loops import method, reflect, steps
from refusals import refused

from practicum.core.context import Context
from practicum.core.edits import Add, Delete, Delta
from practicum.core.errors import MethodError, ProviderError
from practicum.core.types import Lesson, Rollout, Task
from practicum.engine.loop import Batch, History, Validation
from practicum.engine.run import Run
from practicum.models.scripted import ScriptedClient


def test_each_step_starts_where_the_last_one_ended(tmp_path: Path) -> None:
    reports = steps(tmp_path / "run", client(), method())
    assert [r.step for r in reports] == [1, 2, 3]
    assert [len(r.context) for r in reports] == [2, 4, 6]
    assert [r.context.version for r in reports] == [1, 2, 3]
    assert [a.id for r in reports for a in r.applied] == [f"e{n}" for n in range(6)]
    assert all("task:t0" in e.sources for e in list(reports[0].context))


def test_a_rejected_delta_changes_nothing(tmp_path: Path) -> None:
    async def never(context: Context, delta: Delta, rollouts: Sequence[Rollout], run: Run) -> Delta:
        return Delta()

    reports = steps(tmp_path / "run", client(), method(accept=never))
    assert [r.context.version for r in reports] == [0, 0, 0]


def test_an_edit_that_does_not_fit_comes_back_with_its_reason(tmp_path: Path) -> None:
    async def wrong(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        return Delta((Add("rules", run.place), *([Delete("e0")] if context.version else [])))

    reports = steps(tmp_path / "run", client(), method(update=wrong))
    assert [[r.edit for r in report.refused] for report in reports] == [[], [], [Delete("e0")]]
    assert "e0" in reports[2].refused[0].reason
    assert [len(r.context) for r in reports] == [1, 1, 2]


def reading(since: int) -> Any:
    """A sampler of 30 steps of one task. Before each, it reads the history from `since` steps before the end on."""

    def sample(tasks: Sequence[Task], history: History, run: Run) -> Iterator[Batch]:
        for step in range(1, 31):
            assert len(history) == step - 1
            assert [report.step for report in history[-since:]] == [*range(max(step - since, 1), step)]
            yield Batch(tuple(tasks[:1]))

    return sample


def test_a_history_counts_all_steps_and_keeps_the_last_ones(tmp_path: Path) -> None:
    assert len(steps(tmp_path / "run", client(), method(sample=reading(since=20)))) == 30


def test_a_step_that_is_no_longer_kept_is_named(tmp_path: Path) -> None:
    with refused("method.wrong_result"):
        steps(tmp_path / "run", client(), method(sample=reading(since=99)))


async def nothing(*given: object) -> None:
    """A seam that forgets to return something."""


async def words(*given: object) -> list[str]:
    return ["a lesson"]


async def broken(*given: object) -> Delta:
    raise KeyError("x")


async def unknown(*given: object) -> Delta:
    return Delta((Add("rules", "x"), Delete("e77")))


@pytest.mark.parametrize(
    ("seams", "said"),
    [
        (
            {"sample": lambda *given: iter([None])},
            "`sample` returned an iterator with None in step 1; it must return an iterator of Batch",
        ),
        ({"sample": lambda *given: None}, "`sample` returned None in step 1; it must return an iterator of Batch"),
        ({"reflect": lambda *given: []}, "`reflect` returned list in step 1; it must return an awaitable"),
        ({"reflect": list}, "`reflect` raised TypeError: "),
        ({"update": broken}, "`update` raised KeyError: 'x' in step 1"),
        ({"attempt": nothing}, "`attempt` returned None in step 1; it must return a list of Rollout"),
        ({"reflect": words}, "`reflect` returned a list with str in step 1; it must return a list of Lesson"),
        ({"update": words}, "`update` returned list in step 1; it must return a Delta"),
        ({"update": unknown}, "`update` edits entry 'e77' in step 1, which does not exist"),
        ({"accept": nothing}, "`accept` returned None in step 1; it must return a Delta"),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else "",
)
def test_a_seam_that_returns_the_wrong_thing_is_named_with_its_method_and_step(
    tmp_path: Path, seams: dict[str, Any], said: str
) -> None:
    with pytest.raises(MethodError) as caught:
        steps(tmp_path / "run", client(), method(**seams))
    assert str(caught.value).startswith(f"method 'mine': {said}")
    assert "What was paid for is kept" in str(caught.value)


def test_validation_scores_every_so_many_steps(tmp_path: Path) -> None:
    reports = steps(tmp_path / "run", client(), method(), n=8, validation=Validation(make_tasks(2, 50), every=2))
    assert [r.val is None for r in reports] == [True, False, True, False]


def test_three_lost_steps_in_a_row_are_the_end_and_two_are_not(tmp_path: Path) -> None:
    def dying(ids: set[int]) -> ScriptedClient:
        lost = {f"Message {n}:" for n in ids}
        return client(
            lambda call: (
                ProviderError("provider.failed", "gone") if call.prompt.user.split(" say")[0] in lost else "word"
            )
        )

    survived = steps(tmp_path / "two", dying({0, 1, 2, 3, 6, 7}), method(reflect=reflect), n=8)
    assert [len(r.lessons) for r in survived] == [0, 0, 2, 0]
    with refused("attempts.all_failed"):
        steps(tmp_path / "three", dying({2, 3, 4, 5, 6, 7}), method(), n=10)


def test_a_run_that_lost_every_step_raises(tmp_path: Path) -> None:
    dead = client(lambda call: ProviderError("provider.failed", "gone"))
    with refused("attempts.all_failed"):
        steps(tmp_path / "run", dead, method(), n=2)
