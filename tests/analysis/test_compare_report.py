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
from practicum.analysis.compare.summary import front, summary
from practicum.analysis.compare.variants import of_methods
from practicum.bench.papers import TABLES
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


@given(st.floats(0, 1e5), st.floats(0, 1), st.integers(1, 64))
def test_the_time_alone_lies_between_the_critical_path_and_all_work(work: float, share: float, at_once: int) -> None:
    spent = RunCost(work=work)
    made = RunOutcome(variant="a", seed=0, learning=spent, critical=share * work, at_once=at_once)
    assert share * work <= made.alone <= work + 1e-6
    assert made.alone >= work / at_once - 1e-6
    assert RunOutcome(variant="a", seed=0, learning=spent, at_once=at_once).alone == pytest.approx(work)


def run_of(scores: Sequence[float], size: int = 10) -> list[CurvePoint]:
    return [CurvePoint(tasks=size * (i + 1), tried=size, score=s, tokens=100 * i) for i, s in enumerate(scores)]


@pytest.fixture
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages without their pictures, which take longer than everything else."""
    monkeypatch.setattr("practicum.analysis.compare.report.data_url", lambda figure: figure and "data:,")


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
