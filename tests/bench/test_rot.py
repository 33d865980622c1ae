"""The bench of a learned context over a long stream, on a small world."""

from __future__ import annotations

from typing import Any

import pytest
from rot_bench import ANSWERS, METHODS, Plan, World, clause, make_world, measure, rule, subject, summary

from practicum.core.intervals import share_ci95

SMALL = Plan(tasks=60, situations=6, window=15)


def results(method: str, **options: Any) -> tuple[World, dict[str, Any]]:
    plan = Plan(**{"tasks": 60, "situations": 6, "window": 15, **options})
    return make_world(plan, 0), measure(method, plan, 0)


def test_a_world_is_read_as_it_was_written() -> None:
    world, mislabelled = make_world(SMALL, 0), make_world(Plan(60, 6, wrong=0.2, missing=0.2), 0)
    assert sum(situation.changes for situation in world.situations) == 2
    assert all(subject(rule(situation.index, situation.old)) == situation.index for situation in world.situations)
    assert len({clause(situation.index) for situation in world.situations}) == 6
    for n, task in enumerate(world.tasks):
        index = subject(task.input)
        assert index is not None
        assert task.target == world.right[task.id] == world.answer(index, n + 1)
    assert [task.input for task in world.tasks] == [task.input for task in mislabelled.tasks]
    assert world.right == mislabelled.right
    labels = [(task.target, world.right[task.id]) for task in mislabelled.tasks]
    assert sum(label is None for label, _ in labels) == 10
    assert sum(label not in (None, right) for label, right in labels) == 12


def test_ace_answers_as_the_last_label_of_a_situation_says() -> None:
    """From the first task of a situation on, only a changed answer is a failure, and one failure corrects the entry."""
    for options in ({}, {"wrong": 0.2}):
        world, result = results("ace", **options)
        newest: dict[int, str | None] = {}
        for n, task in enumerate(world.tasks):
            index = subject(task.input)
            assert index is not None
            if index in newest:
                assert (result["answers"][n] == "1") == (newest[index] == world.right[task.id])
            newest[index] = task.target
        assert set(newest.values()) <= set(ANSWERS)
        wrong = sum(answer != world.answer(index, 60) for index, answer in newest.items())
        assert result["shares"]["end"]["entries"] == len(newest)
        assert result["shares"]["end"]["wrong"] == pytest.approx(wrong / len(newest))
        assert result["shares"]["end"]["contradicting"] == 0


FIGURES = {
    "ace": ([14, 14, 15], {"entries": 6, "never_shown": 0, "never_helped": 0, "contradicting": 0, "wrong": 1}, 67),
    "episodes": ([14, 14, 13], {"entries": 56, "never_shown": 1, "contradicting": 0, "outdated": 2, "wrong": 2}, 0),
    "ace with wrong labels": ([11, 13, 11], {"entries": 6, "contradicting": 0, "outdated": 1, "wrong": 3}, 83),
    "episodes with wrong labels": ([10, 14, 12], {"entries": 59, "contradicting": 54, "outdated": 4, "wrong": 14}, 0),
}
"""Case → right answers of 15 before the change, after it and at the end; numbers of entries at the end; learner's
calls."""


@pytest.mark.parametrize("case", FIGURES)
def test_figures_are_exact(case: str) -> None:
    hits, entries, calls = FIGURES[case]
    method, _, wrong = case.partition(" ")
    _, result = results(method, wrong=0.2 if wrong else 0.0)
    parts = result["accuracy"]
    assert [parts[name]["all"] for name in ("before", "after", "end")] == [[one, 15] for one in hits]
    for part in parts.values():
        assert [a + b for a, b in zip(part["changed"], part["unchanged"], strict=True)] == part["all"]
    shares = result["shares"]["end"]
    count = entries["entries"]
    assert {name: shares[name] for name in entries} == {
        name: count if name == "entries" else pytest.approx(n / count) for name, n in entries.items()
    }
    assert result["calls"] * SMALL.tasks == pytest.approx(calls)
    assert result["counts"].keys() <= {"pruned_entries"}


def test_a_summary_joins_seeds() -> None:
    runs = [measure("none", SMALL, seed) for seed in (0, 1)]
    joined = summary(runs)
    hits = sum(run["accuracy"]["end"]["all"][0] for run in runs)
    assert joined["accuracy"]["end"]["all"] == [hits / 30, *share_ci95(hits, 30)]
    assert joined["shares"]["end"]["entries"] == 0
    assert [span["calls"] for span in joined["over_time"]] == [0] * 4


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_every_method_runs_with_wrong_missing_and_late_labels(method: str) -> None:
    _, result = results(method, wrong=0.1, missing=0.1, late=3, noise=0.1, conflict="random")
    assert len(result["answers"]) == 60
    assert not [name for name in result["counts"] if name.startswith("lost")]
