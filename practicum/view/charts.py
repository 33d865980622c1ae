"""Charts: shapes in a square of 100 by 100 units, with axes, a legend (`key`), and a table of the values.

One template, `chart.html`, draws every `Chart`. The coordinates of points are 0 to 100, from the left and from the top.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import ceil, floor, log10
from typing import Any

from practicum.core.formats import count, interval, money, percent, points, seconds
from practicum.core.intervals import total_ci95
from practicum.core.windows import window_size, windows
from practicum.core.words import quantity
from practicum.session.rollout import BY_HAND, PROMOTED, TAKEN_BACK, ended_text
from practicum.view.kit import when
from practicum.view.read.parts import StepStory
from practicum.view.read.sums import Course, Sums

MOST_POINTS = 400
"""Maximum number of points of a line."""

MARKS = 40
"""Maximum number of marks of a chart: older marks are left out."""

NEAR = 4.0
"""Minimum distance between the labels of two marks (percent of the width of the chart)."""

MODELS = 8
"""Maximum number of models with a line in a chart."""

Point = tuple[float, float]
Table = tuple[tuple[str, ...], Sequence[Sequence[str]]]


@dataclass(frozen=True)
class Axis:
    """An axis: its title with the unit, and the labels of its evenly spaced grid lines, from the bottom or the left.

    `between`: whether the labels name rows. The label of a row is placed between two grid lines."""

    title: str
    labels: tuple[str, ...]
    between: bool = False


@dataclass(frozen=True)
class Series:
    """Values of one kind: lines (broken at missing values), single points, and the areas of 95% intervals.

    `kind`: the CSS class."""

    name: str
    kind: str
    lines: tuple[str, ...] = ()
    dots: tuple[Point, ...] = ()
    bands: tuple[str, ...] = ()


@dataclass(frozen=True)
class Bar:
    """A bar that begins at the bottom of the chart."""

    x: float
    width: float
    height: float


@dataclass(frozen=True)
class Mark:
    """A vertical line with a label above the line, for example at the time at which a version became live. `x`: the
    position. `at`: the Unix time."""

    x: float
    kind: str
    title: str
    label: str = ""
    at: float = 0.0


@dataclass(frozen=True)
class Chart:
    """A chart: its description in a sentence (`about`), axes, shapes, legend (`key`), and the table of its values."""

    about: str
    x: Axis
    y: Axis
    series: tuple[Series, ...] = ()
    bars: tuple[Bar, ...] = ()
    marks: tuple[Mark, ...] = ()
    key: tuple[tuple[str, str], ...] = ()
    table: Table = ((), ())
    title: str = ""
    small: bool = False
    rows: int = 0


def percent_axis(title: str) -> Axis:
    """Return an axis from 0 to 100%."""
    return Axis(title, ("0%", "25%", "50%", "75%", "100%"))


def count_axis(title: str, top: float, write: Callable[[float], str] = count) -> Axis:
    """Return an axis from 0 to `top`. `write` formats the labels."""
    return Axis(title, ("0", write(top / 2), write(top)))


def path(points: Sequence[Point]) -> str:
    """Format points as the SVG attribute of a line or an area."""
    return " ".join(f"{x:.2f},{y:.2f}" for x, y in points)


def broken(name: str, kind: str, values: Sequence[float | None], top: float = 1.0, bands: Sequence[Any] = ()) -> Series:
    """Return evenly spaced values as lines that are broken at missing values. `top`: the value at the top of the chart.
    `bands`: the low and the high end of the interval of each value."""
    width, lines, dots, areas = 100 / len(values), list[str](), list[Point](), list[str]()
    run: list[tuple[Point, Any]] = []
    for at, value in enumerate([*values, None]):
        if value is not None:
            x = round((at + 0.5) * width, 2)
            run.append(((x, _up(value / top)), bands[at] if bands else None))
            continue
        if len(run) == 1:
            dots.append(run[0][0])
        elif run:
            lines.append(path([point for point, _ in run]))
        if len(run) > 1 and bands:
            lows = [(point[0], _up(ends[0] / top)) for point, ends in run]
            highs = [(point[0], _up(ends[1] / top)) for point, ends in run]
            areas.append(path([*lows, *reversed(highs)]))
        run = []
    return Series(name, kind, tuple(lines), tuple(dots), tuple(areas))


def _up(share: float) -> float:
    return round(100 - 100 * min(max(share, 0.0), 1.0), 2)


def bars(values: Sequence[float], part: float = 1.0) -> tuple[Bar, ...]:
    """Return evenly spaced values as bars. The highest bar takes the share `part` of the height of the
    chart."""
    width, top = 100 / len(values), max(values, default=0) or 1
    return tuple(
        Bar(round((at + 0.1) * width, 2), round(0.8 * width, 2), round(100 * part * value / top, 2))
        for at, value in enumerate(values)
        if value
    )


# Charts of a space


def learning_curve(steps: Sequence[StepStory], scores: Mapping[str, float]) -> Chart | None:
    """Plot scores against the number of training tasks tried: the mean over a window of tasks with its 95% interval,
    validation scores, and the test scores before and after learning. None for fewer than two steps with a score."""
    tried = [*accumulate(len(step.tasks) for step in steps)]
    scored = [(at, len(one.tasks), one.score) for at, one in zip(tried, steps, strict=True)
              if one.tasks and one.score is not None]  # fmt: skip
    if len(scored) < 2:
        return None
    total, every = sum(size for _, size, _ in scored), ceil(len(scored) / MOST_POINTS)
    window, last = window_size(total), tried[-1]
    totals = [0.0, *accumulate(size * score for _, size, score in scored)]
    means, lows, highs, rows = list[Point](), list[Point](), list[Point](), list[tuple[str, ...]]()
    for i, (first, n) in enumerate(windows([size for _, size, _ in scored], window)):
        if i % every and i != len(scored) - 1:
            continue
        at, reached = scored[i][0], totals[i + 1] - totals[first]
        low, high = total_ci95(reached, n)
        x, mean = 100 * at / last, min(max(reached / n, 0.0), 1.0)
        means.append((x, _up(mean)))
        lows.append((x, _up(low)))
        highs.append((x, _up(high)))
        rows.append((f"{at:,}", percent(mean), interval((low, high)), f"{n:,}"))
    series = [Series(f"mean of the last {window} tasks, with its 95% interval", "curve", (path(means),),
                     bands=(path([*lows, *reversed(highs)]),))]  # fmt: skip
    val = [(round(100 * at / last, 2), _up(one.val)) for at, one in zip(tried, steps, strict=True)
           if one.val is not None]  # fmt: skip
    if val:
        series.append(Series("validation score", "val", dots=tuple(val)))
    for name, kind, title in (("before", "start", "test score before"), ("test", "level", "test score after")):
        if name in scores:
            height = _up(scores[name])
            series.append(Series(f"{title}: {percent(scores[name])}", kind, (f"0,{height} 100,{height}",)))
    return Chart(
        f"Score against training tasks tried, {last:,} in total", Axis("training tasks tried", ("0", f"{last:,}")),
        percent_axis("score"), tuple(series), key=tuple((one.kind, one.name) for one in series),
        table=(("tasks tried", "mean score", "95% interval", "tasks in the mean"), rows[::-1]),
    )  # fmt: skip


def outcomes_chart(course: Course, marks: Sequence[Mark]) -> Chart:
    """Plot outcomes and requests over time, with marks where versions were tried, became live or were taken back."""
    values = [point.mean for point in course.points]
    bands = [total_ci95(point.total, point.scored) if point.scored else None for point in course.points]
    requests = [point.requests for point in course.points]
    rows = [
        (when(course.began(n)), f"{p.requests:,}", f"{p.scored:,}", percent(p.mean),
         "" if bands[n] is None else interval(bands[n]))
        for n, p in enumerate(course.points) if p.requests or p.scored
    ]  # fmt: skip
    most = f" (at most {count(max(requests))})" if any(requests) else ""
    return Chart(
        f"Mean outcome over the last {quantity(course.days, 'day')}",
        time_axis(course), percent_axis("mean outcome"),
        (broken("mean outcome, with its 95% interval", "curve", values, bands=bands),), bars(requests, 0.3),
        tuple(marks),
        (("curve", "mean outcome, with its 95% interval"), ("count", f"requests{most}"),
         ("mark tried", "trial of a version begins"), ("mark good", "version live"),
         ("mark bad", "version taken back")),
        (("from", "requests", "scored", "mean outcome", "95% interval"), rows[::-1]),
    )  # fmt: skip


def time_axis(course: Course) -> Axis:
    """Return the time axis of a course, from the first point of the course to now. Each grid line is at the beginning
    of a point."""
    number = len(course.points)
    parts = 4 if number % 4 == 0 else 3
    days, hours = zip(*(when(course.began(number * n // parts)).split() for n in range(parts)), strict=True)
    if course.step >= 24:
        # Each point begins at midnight: label it with the date only.
        labels = [days[0], *(day[5:] for day in days[1:])]
    else:
        # Label the first grid line of each day with the date and the hour, the other grid lines with the hour.
        labels = [hour if day == before else f"{day[5:]} {hour}"
                  for before, day, hour in zip(("", *days), days, hours, strict=False)]  # fmt: skip
    return Axis(f"time (UTC), by {by(course)}", (*labels, "now"))


def by(course: Course) -> str:
    """Name the time covered by one point of a course, such as "day" or "6 hours"."""
    return {1: "hour", 24: "day", 168: "week"}.get(course.step, f"{course.step} hours")


def version_marks(
    course: Course, rollouts: Sequence[Mapping[str, Any]], alarms: Sequence[Any], begins: Mapping[int, float]
) -> list[Mark]:
    """Return marks on the time axis of a course: when versions became live, were tried, or were taken back.

    `begins`: for versions without a rollout, version → Unix time at which a request first saw the version."""
    marks = list[Mark]()

    def mark(at: float | None, kind: str, label: str, title: str) -> None:
        x = None if at is None else course.place(at)
        if x is not None and at is not None:
            marks.append(Mark(x, kind, title, label, at))

    for row in rollouts:
        if kind := {PROMOTED: "good", TAKEN_BACK: "bad"}.get(row["state"]):
            text = ended_text(row["version"], row["state"], row["reason"])
            mark(row["ended"], kind, f"v{row['version']}", text)
        # The version of a manual edit is not tried on a share of the requests: all requests see this version at once.
        if row["state"] != "dropped" and row["share"]:
            mark(row["began"], "tried", "", f"version {row['version']} tried on {100 * row['share']:.0f}%")
    for shown, at in begins.items():
        mark(at, "good", f"v{shown}", f"version {shown} live")
    for alarm in alarms:
        if alarm.kind == "rollout" and alarm.text.endswith(BY_HAND):
            mark(alarm.at, "bad", "↩", alarm.text)
    marks = sorted(marks, key=lambda one: one.x)[-MARKS:]
    # Of labels that are too close to each other, keep the newest. No label may extend beyond the sides of the chart.
    last = 100 + NEAR / 2
    for n in reversed(range(len(marks))):
        one = marks[n]
        if last - one.x < NEAR or one.x < NEAR / 2:
            marks[n] = one = replace(one, label="")
        last = one.x if one.label else last
    return marks


def cost_charts(course: Course) -> list[Chart]:
    """Plot cost, latency, share of cached input, and requests over time, in one chart each. Every chart has one line
    per model, and a model has the same colour in all charts."""
    kinds: tuple[tuple[str, Callable[[float | None], str], Callable[[Sums], float | None], float | None], ...] = (
        ("cost in US dollars", money, lambda point: point.usd if point.requests else None, None),
        ("seconds per request", seconds, lambda point: point.latency, None),
        ("input from the cache", percent, lambda point: point.cached, 1.0),
        ("requests", count, lambda point: point.requests or None, None),
    )
    charts, models = list[Chart](), [*course.by_model][:MODELS]
    times = [when(course.began(n)) for n in range(len(course.points))]
    for title, write, value, top in kinds:
        values = {model: [value(point) for point in course.models[model]] for model in models}
        most = top or max((one for line in values.values() for one in line if one is not None), default=0.0)
        if not most:
            continue
        series = tuple(broken(model or "no name", f"curve s{n}", values[model], most)
                       for n, model in enumerate(models))  # fmt: skip
        rows = [
            (time, *(write(values[model][n]) for model in models))
            for n, time in enumerate(times) if any(values[model][n] is not None for model in models)
        ]  # fmt: skip
        charts.append(Chart(
            f"{title} over time", time_axis(course), count_axis(title, most, write), series,
            title=title[:1].upper() + title[1:], small=True,
            table=(("from", *(model or "no name" for model in models)), rows[::-1]),
        ))  # fmt: skip
    return charts


# Charts of a comparison


def differences_chart(rows: Sequence[Mapping[str, Any]], baseline: str) -> Chart | None:
    """Plot the difference of each variant from the baseline with its 95% interval, the largest difference on top. None
    if no row has a difference."""
    shown = sorted((row for row in rows if "effect" in row), key=lambda row: row["effect"])
    if not shown:
        return None
    reach = max(0.01, *(abs(end) for row in shown for end in row["ci95"]))
    reach = ceil(20 * reach) / 20
    series = []
    for n, row in enumerate(reversed(shown)):
        y, x = 100 * (n + 0.5) / len(shown), [50 + 50 * value / reach for value in (*row["ci95"], row["effect"])]
        style = "claim" if row["verdict"] in ("better", "worse") else "runs"
        tint = {"better": "good", "runs higher": "good", "worse": "bad", "runs lower": "bad"}.get(row["verdict"], "")
        series.append(Series(row["name"], f"effect {tint} {style}", (path([(x[0], y), (x[1], y)]),), ((x[2], y),)))
    zero = Series("no difference", "start", ("50,0 50,100",))
    return Chart(
        f"Differences from {baseline}",
        Axis(f"difference from {baseline}, percentage points", (points(-reach), "0", points(reach))),
        Axis("", tuple(row["name"] for row in shown), between=True), (zero, *series), rows=len(shown),
        key=(("effect good claim", "claim about the methods: better than the baseline"),
             ("effect bad claim", "claim about the methods: worse than the baseline"),
             ("effect runs", "difference of these runs only, or no claim; bars: 95% intervals")),
    )  # fmt: skip


def cost_chart(rows: Sequence[Mapping[str, Any]], axis: str, title: str, write: Callable[[float], str]) -> Chart | None:
    """Plot scores with their 95% intervals against a cost. The axis of the cost is logarithmic if the highest cost is
    more than 8 times the lowest. None for fewer than two variants with a score and a cost."""
    complete = [(i, row) for i, row in enumerate(rows) if row["score"] is not None and row[axis] is not None]
    if len(complete) < 2:
        return None
    costs = [row[axis] for _, row in complete]
    logarithmic = min(costs) > 0 and max(costs) > 8 * min(costs)
    scale = log10 if logarithmic else float
    low, high = scale(min(costs)), scale(max(costs))
    room = 0.1 * (high - low) or 0.1 * abs(high) or 1.0
    low, high = (low - room if logarithmic or low > room else 0.0), high + room
    series = []
    for i, row in complete:
        x = round(100 * (scale(row[axis]) - low) / (high - low), 2)
        ends = path([(x, _up(row["ci95"][0])), (x, _up(row["ci95"][1]))])
        series.append(Series(row["name"], f"curve s{i % MODELS}", (ends,), ((x, _up(row["score"])),)))
    ticks = [low + (high - low) * n / 2 for n in range(3)]
    labels = tuple(write(_rounded(10**tick if logarithmic else tick)) for tick in ticks)
    log = ", logarithmic axis" if logarithmic else ""
    return Chart(
        f"Score against {title}", Axis(f"{title}, test included{log}", labels), percent_axis("score"), tuple(series),
        table=(("variant", "score", "95% interval", title),
               [(row["name"], percent(row["score"]), interval(row["ci95"]), write(row[axis])) for _, row in complete]),
    )  # fmt: skip


def _rounded(value: float) -> float:
    """Round a value to two significant digits."""
    if not value:
        return 0.0
    size: float = 10.0 ** (floor(log10(abs(value))) - 1)
    return round(value / size) * size


def curves_chart(rows: Sequence[Mapping[str, Any]], name: str, title: str) -> Chart | None:
    """Plot one line per variant that learned in steps, against the number of training tasks tried. `name`: the values
    to plot, "score" or "val" (from 0 to 1) or "tokens". Returns None if no variant has such a value."""
    curves = {
        i: [(point["tasks"], point[name]) for point in row["curve"] if point[name] is not None]
        for i, row in enumerate(rows) if len(row["curve"]) > 1
    }  # fmt: skip
    values = [value for curve in curves.values() for _, value in curve]
    if not values:
        return None
    last = max(at for curve in curves.values() for at, _ in curve) or 1
    top = 1.0 if name != "tokens" else max(*values, 1)
    series, table = [], []
    for i, curve in curves.items():
        drawn = [(round(100 * at / last, 2), _up(value / top)) for at, value in curve]
        lines, dots = ((path(drawn),), ()) if len(drawn) > 1 else ((), tuple(drawn))
        series.append(Series(rows[i]["name"], f"curve s{i % MODELS}", lines, dots))
        write = count if name == "tokens" else percent
        table += [(rows[i]["name"], f"{at:,}", write(value)) for at, value in curve[-1:]]
    y = count_axis(title, top) if name == "tokens" else percent_axis(title)
    return Chart(
        f"{title} against training tasks tried", Axis("training tasks tried", ("0", f"{last:,}")), y, tuple(series),
        table=(("variant", "tasks tried", f"last {title}"), table),
    )  # fmt: skip
