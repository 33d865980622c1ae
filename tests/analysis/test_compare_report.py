"""What a report is made of: fronts, curves, times, and pictures that hold what they should."""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random
from typing import Any
from xml.etree import ElementTree

import pytest
from helpers import make_tasks
from hypothesis import given
from hypothesis import strategies as st

from practicum.analysis.compare.numbers import count, money, seconds
from practicum.analysis.compare.outcome import Outcome, Point, Spent
from practicum.analysis.compare.page import page
from practicum.analysis.compare.plan import Plan, planned
from practicum.analysis.compare.summary import claim, cost_axis, curve, front, summary
from practicum.analysis.compare.svg import Dot, reach, scatter
from practicum.analysis.compare.text import markdown
from practicum.analysis.compare.variants import of_ablation, of_methods
from practicum.session.components import Parts
from practicum.session.config import Splits

points = st.lists(st.tuples(st.floats(0.1, 1e6), st.floats(0, 1)), min_size=1, max_size=12)


@given(points)
def test_a_front_holds_all_that_nothing_beats_and_nothing_else(values: list[tuple[float, float]]) -> None:
    found = front([(str(i), cost, score) for i, (cost, score) in enumerate(values)])

    def beats(a: tuple[float, float], b: tuple[float, float]) -> bool:
        return a[0] <= b[0] and a[1] >= b[1] and a != b

    for i, value in enumerate(values):
        assert (str(i) in found) == (not any(beats(other, value) for other in values))
    scores = [values[int(name)][1] for name in found]
    assert scores == sorted(scores)


def test_what_has_no_score_or_no_price_is_on_no_front() -> None:
    assert front([("a", None, 0.9), ("b", 3.0, None), ("c", 5.0, 0.1)]) == ["c"]
    assert cost_axis([{"score": 1.0, "usd": 0.2}, {"score": None, "usd": None}]) == "usd"
    assert cost_axis([{"score": 1.0, "usd": 0.2}, {"score": 1.0, "usd": None}]) == "tokens"
    assert cost_axis([{"score": 1.0, "usd": 0.0}]) == "tokens"


@given(st.floats(0, 1e5), st.floats(0, 1), st.integers(1, 64))
def test_the_time_alone_lies_between_the_critical_path_and_all_work(work: float, share: float, at_once: int) -> None:
    spent = Spent(work=work)
    made = Outcome(variant="a", seed=0, learning=spent, critical=share * work, at_once=at_once)
    assert share * work <= made.alone <= work + 1e-6
    assert made.alone >= work / at_once - 1e-6
    assert Outcome(variant="a", seed=0, learning=spent, at_once=at_once).alone == pytest.approx(work)


def run_of(scores: Sequence[float], size: int = 10) -> list[Point]:
    return [Point(tasks=size * (i + 1), tried=size, score=s, tokens=100 * i) for i, s in enumerate(scores)]


def test_a_curve_is_the_mean_of_its_runs_over_the_last_tasks() -> None:
    found = curve([run_of([0.0, 1.0, 1.0]), run_of([0.0, 0.0, 0.0])])
    assert [p["tasks"] for p in found] == [10, 20, 30]
    assert [p["score"] for p in found] == pytest.approx([0.0, 0.25, 0.5])
    assert [p["tokens"] for p in found] == [0, 100, 200]
    assert [p["val"] for p in found] == [None] * 3
    assert len(curve([run_of([0.5] * 500)])) <= 61
    assert curve([]) == curve([[]]) == []


def test_a_curve_of_validations_is_drawn_where_not_every_step_is_validated() -> None:
    run = [Point(tasks=i + 1, tried=1, score=0.0, tokens=i, val=i / 10 if i % 2 else None) for i in range(7)]
    assert [p["val"] for p in curve([run, run])] == pytest.approx([None, 0.1, 0.1, 0.3, 0.3, 0.5, 0.5])

    def validated(plan: Plan) -> list[Outcome]:
        by_task = {task.id: 1.0 for task in plan.splits.test}
        return [Outcome(variant=r.variant.name, seed=r.seed, by_task=by_task, curve=run) for r in plan.runs]

    assert "Score on the validation tasks, by training tasks tried" in page(reported(["none", "ace"], validated))


def reported(names: Sequence[str], outcomes: Any, **how: Any) -> dict[str, Any]:
    splits = Splits(tuple(make_tasks(20)), (), tuple(make_tasks(how.pop("tests", 30), 100)))
    study = of_ablation(names[0]).settled({}) if names[0] == "rcl" and len(names) == 1 else of_methods(names)
    plan = planned(study, splits, Parts(), seeds=2, model="scripted:x", **how)
    return summary(plan, outcomes(plan))


def invented(plan: Plan) -> list[Outcome]:
    """Outcomes of every kind: dear and cheap, with and without curves, one that failed."""
    chance = Random(4)
    made = []
    for i, run in enumerate(plan.runs):
        base = chance.random()
        by_task = {task.id: float(chance.random() < base) for task in plan.splits.test}
        spent = Spent(calls=i + 1, input_tokens=10 ** (i % 6 + 1), usd=0.001 * i, work=3.0**i)
        steps = run_of([chance.random() for _ in range(i % 5)])
        failed = "nobody < there" if i == 3 else None
        made.append(
            Outcome(
                variant=run.variant.name, seed=run.seed, by_task={} if failed else by_task, learning=spent,
                critical=2.0**i, at_once=4, curve=steps, failed=failed,
            )
        )  # fmt: skip
    return made


@pytest.mark.parametrize("names", [["none", "icl"], ["none", "icl", "episodes", "ace", "combee", "naive"], ["rcl"]])
def test_pictures_are_whole_and_nothing_lies_outside_of_them(names: list[str]) -> None:
    report = reported(names, invented)
    drawn = page(report)
    pictures = re.findall(r"<svg.*?</svg>", drawn)
    assert len(pictures) >= 2
    for picture in pictures:
        root = ElementTree.fromstring(picture)
        _, _, width, height = map(float, root.attrib["viewBox"].split())
        for element in root.iter():
            for name, most in (("x", width), ("x1", width), ("x2", width), ("cx", width)):
                assert 0 <= float(element.attrib.get(name, 0)) <= most, ElementTree.tostring(element)
            for name in ("y", "y1", "y2", "cy"):
                assert 0 <= float(element.attrib.get(name, 0)) <= height, ElementTree.tostring(element)
            for place in re.findall(r"[ML]([-\d.]+) ([-\d.]+)", element.attrib.get("d", "")):
                assert 0 <= float(place[0]) <= width
                assert 0 <= float(place[1]) <= height
    assert "nan" not in drawn.lower().replace("finance", "")
    assert "nobody &lt; there" in drawn
    assert "nobody < there" in markdown(report)


def test_numbers_of_dots_do_not_cover_each_other() -> None:
    dots = [Dot(i + 1, f"m{i}", 100.0 + i % 3, 0.5 + 0.001 * i, (0.4, 0.6)) for i in range(10)]
    drawn = scatter(dots, ["m0"], "cost", count)
    found = re.findall(r'<text x="([\d.]+)" y="([\d.]+)"[^>]*class="number halo"', drawn)
    places = [(float(x), float(y)) for x, y in found]
    assert len(places) == 10
    assert all(abs(a - c) + abs(b - d) > 8 for i, (a, b) in enumerate(places) for c, d in places[:i])


@given(st.floats(1e-3, 1e7), st.floats(1.0, 1e5))
def test_axes_have_a_few_round_numbers(low: float, ratio: float) -> None:
    scale = reach([low, low * ratio], 40, 340)
    ticks = scale.ticks()
    assert 1 <= len(ticks) <= 8
    assert all(39 <= scale(tick) <= 341 for tick in ticks)


def test_a_report_without_any_score_says_so() -> None:
    def lost(plan: Plan) -> list[Outcome]:
        return [Outcome(variant=run.variant.name, seed=run.seed, failed="away") for run in plan.runs]

    report = reported(["none", "ace"], lost)
    assert "not complete: 0 of 4 runs have a score" in markdown(report)
    assert "away" in page(report)
    nothing = reported(["none", "ace"], lambda plan: [])
    assert "ace: not run yet" in markdown(nothing)
    assert "ace: not run yet" in page(nothing)


def test_claims_in_words() -> None:
    row = {"effect": 0.2, "ci95": [0.1, 0.3], "p_holm": 0.0001, "n": 50, "verdict": "better"}
    assert claim(row, "none") == "better than none: +20.0 points (95%: +10.0 to +30.0), p < 0.001 after Holm"
    unsure = {**row, "ci95": [-0.1, 0.5], "p_holm": 0.2, "verdict": "unclear"}
    assert claim(unsure, "none").startswith("no claim can be made, since the interval includes 0: ")
    many = {**row, "p_holm": 0.07, "verdict": "unclear"}
    assert claim(many, "none").startswith("no claim can be made, since chance explains it after Holm: ")
    assert claim({**row, "n": 9, "verdict": "unclear"}, "none").startswith("no claim can be made with 9 tasks")


def test_numbers_in_words() -> None:
    assert [count(v) for v in (None, 0, 3.4, 12, 9_999, 12_345, 1.234e6)] == [
        "–", "0", "3.4", "12", "9,999", "12.3k", "1.23M",
    ]  # fmt: skip
    assert [seconds(v) for v in (0.0123, 60, 120, 7200)] == ["0.0123 s", "60 s", "2 min", "2 h"]
    assert [money(v) for v in (None, 0.0, 0.0123, 12.3)] == ["–", "$0", "$0.0123", "$12.30"]
