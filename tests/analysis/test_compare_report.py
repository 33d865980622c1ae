"""The parts of a comparison's report: Pareto fronts, curves, times, and pictures with readable labels."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Sequence
from io import BytesIO
from itertools import combinations
from random import Random
from typing import Any

import pytest
from helpers import make_tasks
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image

from practicum.analysis.compare import figures
from practicum.analysis.compare.outcome import CurvePoint, RunCost, RunOutcome
from practicum.analysis.compare.plan import ComparisonPlan, make_plan
from practicum.analysis.compare.report import html, markdown
from practicum.analysis.compare.summary import claim, cost_axis, curve, front, summary
from practicum.analysis.compare.variants import of_methods
from practicum.bench.papers import TABLES
from practicum.core.formats import count, money, seconds
from practicum.session.components import Parts
from practicum.session.config import Splits

points = st.lists(st.tuples(st.floats(0.1, 1e6), st.floats(0, 1)), min_size=1, max_size=12)


@given(points)
def test_a_front_has_exactly_the_points_that_no_other_beats(values: list[tuple[float, float]]) -> None:
    found = front([(str(i), cost, score) for i, (cost, score) in enumerate(values)])

    def beats(a: tuple[float, float], b: tuple[float, float]) -> bool:
        return a[0] <= b[0] and a[1] >= b[1] and a != b

    for i, value in enumerate(values):
        assert (str(i) in found) == (not any(beats(other, value) for other in values))
    scores = [values[int(name)][1] for name in found]
    assert scores == sorted(scores)


def test_points_without_a_score_or_a_price_are_not_on_the_front() -> None:
    assert front([("a", None, 0.9), ("b", 3.0, None), ("c", 5.0, 0.1)]) == ["c"]
    assert cost_axis([{"score": 1.0, "usd": 0.2}, {"score": None, "usd": None}]) == "usd"
    assert cost_axis([{"score": 1.0, "usd": 0.2}, {"score": 1.0, "usd": None}]) == "tokens"
    assert cost_axis([{"score": 1.0, "usd": 0.0}]) == "tokens"


@given(st.floats(0, 1e5), st.floats(0, 1), st.integers(1, 64))
def test_the_time_alone_lies_between_the_critical_path_and_all_work(work: float, share: float, at_once: int) -> None:
    spent = RunCost(work=work)
    made = RunOutcome(variant="a", seed=0, learning=spent, critical=share * work, at_once=at_once)
    assert share * work <= made.alone <= work + 1e-6
    assert made.alone >= work / at_once - 1e-6
    assert RunOutcome(variant="a", seed=0, learning=spent, at_once=at_once).alone == pytest.approx(work)


def run_of(scores: Sequence[float], size: int = 10) -> list[CurvePoint]:
    return [CurvePoint(tasks=size * (i + 1), tried=size, score=s, tokens=100 * i) for i, s in enumerate(scores)]


def test_a_curve_is_the_mean_of_its_runs_over_the_last_tasks() -> None:
    found = curve([run_of([0.0, 1.0, 1.0]), run_of([0.0, 0.0, 0.0])])
    assert [p["tasks"] for p in found] == [10, 20, 30]
    assert [p["score"] for p in found] == pytest.approx([0.0, 0.25, 0.5])
    assert [p["tokens"] for p in found] == [0, 100, 200]
    assert [p["val"] for p in found] == [None] * 3
    assert len(curve([run_of([0.5] * 500)])) <= 61
    assert curve([]) == curve([[]]) == []


@pytest.fixture
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages without their pictures, which take longer than everything else."""
    monkeypatch.setattr("practicum.analysis.compare.report.data_url", lambda figure: figure and "data:,")


@pytest.mark.usefixtures("no_pictures")
def test_a_curve_of_validations_is_drawn_where_not_every_step_is_validated() -> None:
    run = [CurvePoint(tasks=i + 1, tried=1, score=0.0, tokens=i, val=i / 10 if i % 2 else None) for i in range(7)]
    assert [p["val"] for p in curve([run, run])] == pytest.approx([None, 0.1, 0.1, 0.3, 0.3, 0.5, 0.5])

    def validated(plan: ComparisonPlan) -> list[RunOutcome]:
        by_task = {task.id: 1.0 for task in plan.splits.test}
        return [RunOutcome(variant=r.variant.name, seed=r.seed, by_task=by_task, curve=run) for r in plan.runs]

    page = html(reported(["none", "ace"], validated))
    assert "Score on the validation tasks, against the number of training tasks tried" in page


def reported(names: Sequence[str], outcomes: Any, **how: Any) -> dict[str, Any]:
    splits = Splits(tuple(make_tasks(20)), (), tuple(make_tasks(how.pop("tests", 30), 100)))
    study = TABLES["rcl4"].study({}) if names == ["rcl"] else of_methods(names)
    plan = make_plan(study, splits, Parts(), seeds=2, model="scripted:x", **how)
    return summary(plan, outcomes(plan))


def invented(plan: ComparisonPlan) -> list[RunOutcome]:
    """Outcomes of every kind: dear and cheap, with and without curves, one that failed."""
    chance = Random(4)
    made = []
    for i, run in enumerate(plan.runs):
        base = chance.random()
        by_task = {task.id: float(chance.random() < base) for task in plan.splits.test}
        spent = RunCost(calls=i + 1, input_tokens=10 ** (i % 6 + 1), usd=0.001 * i, work=3.0**i)
        steps = run_of([chance.random() for _ in range(i % 5)])
        failed = "nobody < there" if i == 3 else None
        made.append(
            RunOutcome(
                variant=run.variant.name, seed=run.seed, by_task={} if failed else by_task, learning=spent,
                critical=2.0**i, at_once=4, curve=steps, failed=failed,
            )
        )  # fmt: skip
    return made


def overlapping(texts: Sequence[Text]) -> list[tuple[str, str]]:
    """The pairs of drawn texts that cover each other."""
    boxes = [(text.get_text(), text.get_window_extent()) for text in texts if text.get_visible() and text.get_text()]
    return [(a, b) for (a, box), (b, other) in combinations(boxes, 2) if box.overlaps(other)]


def check_figure(figure: Figure) -> None:
    """No text lies outside of the figure, and no two labels of an axis or of dots cover each other."""
    figure.draw_without_rendering()
    texts = [*figure.texts]
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            labels = [t.label1 for t in axis.get_major_ticks() if low <= t.get_loc() <= high]
            assert len(labels) <= 25
            assert overlapping(labels) == []
            texts += [*labels, axis.label]
        assert overlapping(list(axes.texts)) == []
        texts += axes.texts
    frame = figure.bbox.padded(1)
    for text in texts:
        box = text.get_window_extent()
        if text.get_visible() and text.get_text():
            assert frame.containsx(box.x0), text
            assert frame.containsx(box.x1), text
            assert frame.containsy(box.y0), text
            assert frame.containsy(box.y1), text


@pytest.mark.parametrize(
    "names",
    [
        ["none", "icl", "episodes", "ace"],
        pytest.param(["none", "icl", "episodes", "ace", "combee", "naive"], marks=pytest.mark.slow),
        pytest.param(["rcl"], marks=pytest.mark.slow),
    ],
)
@pytest.mark.slow
def test_the_pictures_of_a_report_are_whole_and_their_labels_readable(names: list[str]) -> None:
    report = reported(names, invented)
    page = html(report)
    pictures = re.findall(r'<img src="data:image/png;base64,([^"]+)" alt="[^"]+">', page)
    assert len(pictures) == page.count("<img") >= 2
    for data in pictures:
        with Image.open(BytesIO(b64decode(data))) as image:
            assert image.format == "PNG"
            assert len(image.convert("L").getcolors() or ()) > 10
    rows = report["variants"]
    for table in report["tables"]:
        check_figure(figures.differences_figure(table["rows"], table["baseline"]))
    for axis, names in report["front"].items():
        if (drawn := figures.cost_figure(rows, axis, names)) is not None:
            check_figure(drawn)
    for field in ("score", "tokens"):
        if (drawn := figures.curves_figure(rows, field, field)) is not None:
            check_figure(drawn)
    assert "nobody &lt; there" in page
    assert "nobody < there" in markdown(report)


def test_the_numbers_of_dots_that_lie_close_do_not_cover_each_other() -> None:
    rows = [{"name": f"m{i}", "tokens": 100.0 + i % 3, "score": 0.5 + 0.001 * i, "ci95": (0.4, 0.6)} for i in range(10)]
    figure = figures.cost_figure(rows, "tokens", ["m9"])
    assert figure is not None
    check_figure(figure)
    assert [text.get_text() for text in figure.axes[0].texts] == [str(i + 1) for i in range(10)]


@pytest.mark.parametrize(("low", "ratio"), [(0.004, 9.0), (7.0, 1.0), (8178.0, 3656.0), (13.0, 60.0)])
@pytest.mark.parametrize("axis", ["alone_s", "usd", "tokens"])
@pytest.mark.slow
def test_cost_axes_have_a_few_readable_labels(low: float, ratio: float, axis: str) -> None:
    rows = [{"name": f"m{x}", axis: x, "score": 0.5, "ci95": (0.4, 0.6)} for x in (low, low * ratio)]
    figure = figures.cost_figure(rows, axis, [rows[0]["name"]])
    assert figure is not None
    check_figure(figure)
    left, right = figure.axes[0].get_xlim()
    assert 1 <= sum(left <= tick <= right for tick in figure.axes[0].get_xticks()) <= 8


@pytest.mark.usefixtures("no_pictures")
def test_a_report_without_the_package_for_pictures_has_all_else(monkeypatch: pytest.MonkeyPatch) -> None:
    report = reported(["none", "ace"], invented)
    drawn = html(report)
    monkeypatch.setattr("practicum.analysis.png.find_spec", lambda name: None)
    page = html(report)
    assert (drawn.count("<img") > 0, page.count("<img")) == (True, 0)
    assert "pip install" in page
    assert drawn.count("<table") == page.count("<table")


def test_a_report_without_any_score_says_so() -> None:
    def lost(plan: ComparisonPlan) -> list[RunOutcome]:
        return [RunOutcome(variant=run.variant.name, seed=run.seed, failed="away") for run in plan.runs]

    report = reported(["none", "ace"], lost)
    assert "not complete: 0 of 4 runs have a score" in markdown(report)
    assert "away" in html(report)
    nothing = reported(["none", "ace"], lambda plan: [])
    assert "ace: not run yet" in markdown(nothing)
    assert "ace: not run yet" in html(nothing)


def test_claims_in_words() -> None:
    row = {"effect": 0.2, "ci95": [0.1, 0.3], "p_holm": 0.0001, "n": 50, "verdict": "better"}
    assert claim(row, "none") == "better than none: +20.0 points (95%: +10.0 to +30.0), p < 0.001 after Holm"
    unsure = {**row, "ci95": [-0.1, 0.5], "p_holm": 0.2, "verdict": "unclear"}
    assert claim(unsure, "none").startswith("no claim can be made, because the interval includes 0: ")
    many = {**row, "p_holm": 0.07, "verdict": "unclear"}
    assert claim(many, "none").startswith("no claim can be made, because chance explains it after Holm: ")
    assert claim({**row, "n": 9, "verdict": "unclear"}, "none").startswith("no claim can be made with 9 tasks")


def test_numbers_are_written_for_people() -> None:
    assert [count(v) for v in (None, 0, 3.4, 12, 9_999, 12_345, 1.234e6)] == [
        "–", "0", "3.4", "12", "9,999", "12.3k", "1.23M",
    ]  # fmt: skip
    assert [seconds(v) for v in (0.0123, 60, 120, 7200)] == ["0.0123 s", "60 s", "2 min", "2 h"]
    assert [money(v) for v in (None, 0.0, 0.0123, 12.3)] == ["–", "$0", "$0.0123", "$12.30"]
