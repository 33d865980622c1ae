"""The calls a run is told to take hold what a judge is asked, as feedback or as scorer; so does the budget it needs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers import client, make_tasks, number_of, world
from scripts import Learned, added, insight, learned, memory, scripted, wrong

from practicum.core.errors import UsageError
from practicum.core.types import Recorded, Score, Task, Trace
from practicum.models.scripted import Call

HEARD: dict[str, Any] = {"labels": False, "judged": True}
"""A judge's verdict is the feedback."""

SCORED: dict[str, Any] = {"scorer": "judge"}
"""A judge's verdict is the score."""

PLAIN = {"replay": 0.0, "rollouts": "none"}


def verdict(call: Call) -> dict[str, Any]:
    """Right or wrong, about as often."""
    return {"right": number_of(call.text) % 2 == 0}


def playing(**roles: Any) -> Any:
    return scripted(lambda call: f"word{number_of(call.text) % 5}", **{"judge": verdict, **roles})


def run(folder: Path, method: str, settings: dict[str, Any], **how: Any) -> Learned:
    """Four tasks, in a world where any role of any method says something that fits."""
    return learned(folder, client(world), 4, {"batch": 2, **settings}, method, **how)


@pytest.mark.parametrize(
    ("method", "settings", "heard", "scored"),
    [
        ("ace", {}, (4, 16), (4, 16)),
        ("ace", {"rounds": 1}, (4, 8), (4, 8)),
        ("ace", {"refine": "critique"}, (4, 4), (4, 4)),
        ("ace", {"reflector": False}, (4, 4), (4, 4)),
        ("ace", {"online": True}, (4, 16), (4, 16)),
        ("combee", {"rounds": 0}, (4, 4), (4, 4)),
        ("naive", {"rounds": 0}, (4, 4), (4, 4)),
        ("rcl", {**PLAIN, "group": 2}, (8, 8), (12, 12)),
        ("rcl", {**PLAIN, "twin": False}, (12, 12), (12, 12)),
        ("ace", {"primitives": "adaptive"}, (4, 12), (4, 16)),
        ("episodes", {}, (4, 4), (4, 4)),
        ("expel", {"rounds": 2}, (4, 12), (4, 12)),
        ("tf_grpo", {"group": 3, "epochs": 1}, (12, 12), (12, 12)),
        ("opro", {"candidates": 2}, (4, 12), (4, 12)),
        ("reasoning_bank", {}, (0, 0), (12, 12)),
        ("unified", {"scaling": "none"}, (0, 0), (4, 4)),
        ("mael", {}, (0, 0), (4, 4)),
    ],
    ids=str,
)
def test_what_a_judge_is_asked_of_a_methods_attempts_is_expected(
    tmp_path: Path, method: str, settings: dict[str, Any], heard: tuple[int, int], scored: tuple[int, int]
) -> None:
    alone = run(tmp_path / "alone", method, settings)
    for name, how, more in (("heard", HEARD, heard), ("scored", SCORED, scored)):
        made = run(tmp_path / name, method, settings, **how)
        assert made.expected == (alone.expected[0] + more[0], alone.expected[1] + more[1])
        assert made.expected[0] <= made.result.usage.calls <= made.expected[1]
        assert made.calls("judge")


@pytest.mark.parametrize("how", [HEARD, SCORED, {**HEARD, **SCORED}], ids=str)
@pytest.mark.parametrize("settings", [{}, {"replay": 1.0}, {"batch": 2, "rollouts": 3}, {"epochs": 3}], ids=str)
def test_the_calls_of_rcl_lie_within_what_was_told(
    tmp_path: Path, settings: dict[str, Any], how: dict[str, Any]
) -> None:
    made = learned(tmp_path, playing(), 8, settings, "rcl", **how)
    assert made.expected[0] <= len(made.model.calls) <= made.expected[1]


# ---- stored traces


def recorded(n: int, score: Score | None = None, error: str | None = None) -> list[Task]:
    """Tasks with an attempt each, of which nobody knows the right answer."""
    trace = Trace("an answer", error=error)
    return [replace(task, target=None, recorded=Recorded(trace, score)) for task in make_tasks(n)]


def read(folder: Path, tasks: list[Task], method: str = "naive", **how: Any) -> Learned:
    model = playing(reflector=lambda call: {**insight(call), **memory("a way")}, curator=added)
    return learned(folder, model, tasks, {"batch": 8}, method, from_traces=True, **how)


@pytest.mark.parametrize("judged", [HEARD, {"judged": True}, SCORED], ids=str)
def test_verdicts_on_stored_traces_are_expected_and_a_budget_without_them_is_refused(
    tmp_path: Path, judged: dict[str, Any]
) -> None:
    made = read(tmp_path / "whole", recorded(8), **judged)
    assert made.expected == (16, 17)
    assert (len(made.calls("judge")), len(made.model.calls)) == (8, 17)
    with pytest.raises(UsageError, match=r"the budget of 9 calls does not reach for one step .* which need 16 calls"):
        read(tmp_path / "short", recorded(8), max_calls=9, **judged)
    assert not (tmp_path / "short" / "run").exists()


@pytest.mark.parametrize(
    ("tasks", "how", "low", "high"),
    [
        (recorded(3, Score(1.0, True)), {"judged": True}, 0, 0),
        (recorded(3, Score(1.0, True)), HEARD, 3, 3),
        (recorded(3, Score(1.0, True)), SCORED, 0, 0),
        (recorded(3, error="it broke"), HEARD, 0, 0),
        (recorded(3, error="it broke"), SCORED, 0, 0),
        ([*recorded(2), *recorded(4, Score(1.0, True))[2:]], {"judged": True}, 0, 4),
        (recorded(3), {**HEARD, **SCORED}, 6, 6),
    ],
    ids=["scores", "scores kept back", "scores, scored", "errors", "errors, scored", "some scores", "both"],
)
def test_a_judge_is_expected_only_where_nothing_else_tells_of_a_trace(
    tmp_path: Path, tasks: list[Task], how: dict[str, Any], low: int, high: int
) -> None:
    plain, made = read(tmp_path / "plain", tasks), read(tmp_path / "judged", tasks, **how)
    assert made.expected == (plain.expected[0] + low, plain.expected[1] + high)
    assert low <= len(made.calls("judge")) <= high
    assert made.expected[0] <= len(made.model.calls) <= made.expected[1]


@pytest.mark.parametrize("method", ["reasoning_bank", "unified"])
def test_a_bank_that_reads_traces_asks_the_judge_it_is_told_of_and_no_other(tmp_path: Path, method: str) -> None:
    assert read(tmp_path / "alone", recorded(4), method).expected == (0, 4)
    made = read(tmp_path / "judged", recorded(4), method, **HEARD)
    assert made.expected == (4, 8)
    assert (len(made.calls("judge")), len(made.model.calls)) == (4, 8)


# ---- steps whose size is worked out on the way


@pytest.mark.parametrize(
    ("method", "settings", "needed"),
    [
        ("rcl", {}, 8 * 4),
        ("rcl", {"rollouts": 5}, 5 * 4),
        ("combee", {"batch": "auto"}, 3 * 2),
        ("combee", {"batch": "auto", "max_batch": 2}, 2 * 2),
        ("combee", {"asynchronous": True, "batch": 6}, 3 * 2),
    ],
    ids=str,
)
def test_a_budget_has_to_reach_for_the_first_step_as_it_will_be(
    tmp_path: Path, method: str, settings: dict[str, Any], needed: int
) -> None:
    with pytest.raises(UsageError, match=rf"does not reach for one step .* which need {needed} calls"):
        learned(tmp_path / "short", scripted(), 12, settings, method, max_calls=needed - 1)
    made = learned(tmp_path / "enough", scripted(), 12, settings, method, max_calls=needed)
    assert len(made.model.calls) == needed


@pytest.mark.parametrize("val", [[], make_tasks(2, 50)], ids=["", "val"])
@pytest.mark.parametrize("n", [1, 4, 7, 12])
@pytest.mark.parametrize(
    "settings",
    [
        {"asynchronous": True, "batch": 6},
        {"asynchronous": True, "batch": 6, "rounds": 0, "fan_in": 3},
        {"asynchronous": True, "batch": 12, "copies": 3, "epochs": 2},
        {"asynchronous": True, "batch": 6, "accounting": False},
        {"asynchronous": True, "batch": 6, "curator": "append"},
        {"batch": "auto"},
    ],
    ids=str,
)
def test_combee_takes_no_more_calls_than_were_told_where_all_fails_and_all_is_left_out(
    tmp_path: Path, settings: dict[str, Any], n: int, val: list[Task]
) -> None:
    model = scripted(wrong, curator=lambda call: {"decisions": [{"lesson": 99, "op": "ADD"}]})
    made = learned(tmp_path, model, n, settings, "combee", val=val)
    assert made.expected[0] <= len(made.model.calls) <= made.expected[1]


def test_the_calls_of_a_curator_that_rewrites_hold_none_about_lessons_left_out(tmp_path: Path) -> None:
    made = learned(tmp_path, client(world), 12, {"batch": 12, "rounds": 0, "curator": "rewrite"}, "combee")
    groups = 3
    assert made.expected == (24, 24 + 2 * groups)
