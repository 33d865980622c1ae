"""Pictures as SVG that stands in a page: text stays text, colours follow the page's, and a phone's width is enough."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, hypot, log10
from typing import Any

from practicum.analysis.compare.numbers import points as in_points

WIDTH = 360.0
"""Units of a picture's width, as many as a narrow phone has pixels."""

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#B8860B", "#56B4E9", "#8C564B", "#666666")
"""Told apart by people of any colour vision (after Okabe and Ito 2008)."""

Write = Callable[[float], str]


def colour(index: int) -> str:
    """Of a variant, by its place in the report."""
    return COLOURS[index % len(COLOURS)]


@dataclass(frozen=True)
class Scale:
    """From values to places along one axis."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False
    marks: Sequence[float] = ()
    """Values that are round on a log scale, where powers of ten are not."""

    def __call__(self, value: float) -> float:
        low, high, x = (log10(self.low), log10(self.high), log10(value)) if self.log else (self.low, self.high, value)
        return self.start + (self.end - self.start) * (x - low) / (high - low)

    def ticks(self, most: int = 7) -> list[float]:
        """Round values along the axis, at most so many."""
        if not self.log:
            step = _step((self.high - self.low) / (most - 1))
            first, last = ceil(self.low / step - 1e-9), floor(self.high / step + 1e-9)
            return [round(i * step, 10) for i in range(first, last + 1)]
        powers = range(floor(log10(self.low)), ceil(log10(self.high)) + 1)
        round_ = self.marks or [m * 10.0**power for power in powers for m in (1, 2, 5)]
        found = [mark for mark in round_ if self.low <= mark <= self.high]
        every = ceil(len(found) / most)
        return found[:: 3 if every == 2 and not self.marks else every] if every else []


def _step(width: float) -> float:
    size = 10.0 ** floor(log10(width))
    return next(m * size for m in (1, 2, 5, 10) if m * size >= width - 1e-12)


def reach(values: Sequence[float], start: float, end: float, marks: Sequence[float] = (), room: float = 0.08) -> Scale:
    """A scale with some room around these values; one of orders of magnitude where they span several."""
    low, high = min(values), max(values)
    if low > 0 and high > 8 * low:
        spare = max((high / low) ** room, 1.15)
        return Scale(low / spare, high * spare, start, end, True, marks)
    # Values that differ by rounding alone are one value.
    apart = high - low if high - low > 1e-9 * abs(high) else 0.0
    spare = apart * room or abs(high) * room or 1.0
    return Scale(low - spare if low < 0 or low - spare > 0 else 0.0, high + spare, start, end)


def share(values: Sequence[float], start: float, end: float) -> Scale:
    """A scale of shares, never beyond 0 and 1."""
    low, high = min(values), max(values)
    spare = max(0.05, 0.1 * (high - low))
    return Scale(max(0.0, low - spare), min(1.0, high + spare), start, end)


def drawn(height: float, title: str, parts: Iterator[str]) -> str:
    """A picture, with its title for those who cannot see it."""
    return (
        f'<svg viewBox="0 0 {WIDTH:g} {height:g}" role="img" aria-label="{escape(title)}" '
        f'xmlns="http://www.w3.org/2000/svg">{"".join(parts)}</svg>'
    )


def text(x: float, y: float, words: str, anchor: str = "start", kind: str = "") -> str:
    """A line of text."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{kind}">{escape(words)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, kind: str = "", style: str = "") -> str:
    """A straight line."""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}" style="{style}"/>'


def path(places: Sequence[tuple[float, float]], kind: str = "", style: str = "") -> str:
    """A line through these places."""
    drawn_ = " ".join(f"{'L' if i else 'M'}{x:.1f} {y:.1f}" for i, (x, y) in enumerate(places))
    return f'<path d="{drawn_}" class="{kind}" style="{style}"/>'


def axes(x: Scale, y: Scale, write_x: Write, write_y: Write, most: int = 7) -> Iterator[str]:
    """Grid and numbers of both axes; a number that would run into the one before it is left out."""
    for tick in y.ticks(most):
        yield line(x.start, y(tick), x.end, y(tick), "grid") + text(x.start - 5, y(tick) + 4, write_y(tick), "end")
    free = 0.0
    for tick in x.ticks(most):
        yield line(x(tick), y.start, x(tick), y.start + 4, "axis")
        half = LETTER * len(write_x(tick)) / 2
        if x(tick) - half > free and x(tick) + half < WIDTH:
            free = x(tick) + half + LETTER
            yield text(x(tick), y.start + 16, write_x(tick), "middle")
    yield line(x.start, y.start, x.end, y.start, "axis")


LETTER = 6.5
"""Width of a letter."""


def whole_percent(value: float) -> str:
    """A share on an axis."""
    return f"{100 * value:.0f}%"


# ---- score against what it costs


@dataclass(frozen=True)
class Dot:
    """A variant in a scatter plot; `number` is its place in the report, from 1."""

    number: int
    name: str
    x: float
    score: float
    ci95: Sequence[float]


def scatter(dots: Sequence[Dot], front: Sequence[str], x_title: str, write: Write, marks: Sequence[float] = ()) -> str:
    """Scores with their intervals against a cost, the Pareto front as steps through those that no other beats."""
    height = 300.0
    x = reach([d.x for d in dots], 42, WIDTH - 12, marks)
    y = share([end for d in dots for end in d.ci95], height - 44, 14)
    places = {d.name: (x(d.x), y(d.score)) for d in dots}

    def parts() -> Iterator[str]:
        yield from axes(x, y, write, whole_percent)
        yield text((x.start + x.end) / 2, height - 6, x_title + (", log scale" if x.log else ""), "middle")
        yield path(list(_steps([places[name] for name in front], x.end)), "front")
        for d in dots:
            yield line(x(d.x), y(d.ci95[0]), x(d.x), y(d.ci95[1]), "", f"stroke:{colour(d.number - 1)};opacity:.35")
        for d in dots:
            fill = colour(d.number - 1) if d.name in front else "var(--page)"
            cx, cy = places[d.name]
            style = f"fill:{fill};stroke:{colour(d.number - 1)}"
            yield f'<circle cx="{cx:.1f}" cy="{cy:.1f}" r="5" style="{style}"><title>{escape(d.name)}</title></circle>'
        yield from _numbers(dots, [places[d.name] for d in dots], (x.start, x.end, y.end, y.start))

    return drawn(height, f"Score against {x_title}", parts())


def _steps(corners: Sequence[tuple[float, float]], end: float) -> Iterator[tuple[float, float]]:
    """From the cheapest up: level until the next better one can be afforded."""
    for (cx, cy), following in zip(corners, [*corners[1:], None], strict=True):
        yield cx, cy
        yield (following[0] if following else end), cy


_AROUND = ((13, 0), (-13, 0), (10, -11), (-10, -11), (10, 11), (-10, 11), (0, -15), (0, 15))
"""Where a number may stand beside its dot, best first; then the same twice as far."""


def _numbers(
    dots: Sequence[Dot], places: Sequence[tuple[float, float]], within: tuple[float, float, float, float]
) -> Iterator[str]:
    """Each dot's number, where it covers nothing else."""
    left, right, top, bottom = within
    taken = list(places)
    for d, (cx, cy) in zip(dots, places, strict=True):
        spots = [(cx + f * dx, cy + f * dy) for f in (1, 2, 3) for dx, dy in _AROUND]
        inside = [(a, b) for a, b in spots if left < a < right and top < b < bottom] or spots
        free = (s for s in inside if all(hypot(s[0] - a, s[1] - b) > 12 for a, b in taken))
        a, b = next(free, inside[0])
        taken.append((a, b))
        if hypot(a - cx, b - cy) > 20:
            yield line(cx, cy, a, b, "", f"stroke:{colour(d.number - 1)};opacity:.5")
        yield text(a, b + 4, str(d.number), "middle", "number halo")


# ---- differences from a baseline


def forest(rows: Sequence[Mapping[str, Any]], baseline: str, title: str) -> str:
    """Differences with their intervals, a row each, best first; 0 is the baseline."""
    rows = sorted((row for row in rows if "effect" in row), key=lambda row: -row["effect"])
    height = 30.0 + 24.0 * len(rows) + 20
    ends = [end for row in rows for end in (*row["ci95"], 0.0)]
    x = Scale(min(ends) - 0.02, max(ends) + 0.02, 132, WIDTH - 10)

    def parts() -> Iterator[str]:
        for tick in x.ticks():
            yield line(x(tick), 14, x(tick), height - 34, "grid")
            yield text(x(tick), height - 20, f"{100 * tick:+.0f}".replace("-", "−") if tick else "0", "middle")
        yield line(x(0), 10, x(0), height - 34, "axis")
        yield text((x.start + x.end) / 2, height - 4, f"points more than {shortened(baseline)}", "middle")
        for i, row in enumerate(rows):
            yield from _range(row, x, 26.0 + 24 * i)

    return drawn(height, title, parts())


def _range(row: Mapping[str, Any], x: Scale, y: float) -> Iterator[str]:
    clear = row["verdict"] in ("better", "worse")
    tint = {"better": "var(--good)", "worse": "var(--bad)"}.get(row["verdict"], "var(--soft)")
    yield text(124, y + 4, shortened(row["name"]), "end", "" if clear else "soft")
    yield line(x(row["ci95"][0]), y, x(row["ci95"][1]), y, "", f"stroke:{tint};stroke-width:{3 if clear else 2}")
    style = f"fill:{tint if clear else 'var(--page)'};stroke:{tint}"
    name = f"<title>{in_points(row['effect'])} points</title>"
    yield f'<circle cx="{x(row["effect"]):.1f}" cy="{y:.1f}" r="4.5" style="{style}">{name}</circle>'


def shortened(name: str, most: int = 18) -> str:
    """A name that fits beside an axis."""
    return name if len(name) <= most else name[: most - 1] + "…"


# ---- curves


def curves(
    mine: Sequence[tuple[float, float]], others: Sequence[Sequence[tuple[float, float]]], tint: str, title: str,
    bounds: tuple[Scale, Scale], write_x: Write, write_y: Write,
) -> str:  # fmt: skip
    """One curve in colour, with the others behind it in grey, so that many can be told apart in a grid."""
    x, y = bounds

    def parts() -> Iterator[str]:
        yield from axes(x, y, write_x, write_y, most=4)
        for other in others:
            yield path([(x(a), y(b)) for a, b in other], "", "stroke:var(--soft);opacity:.3")
        yield path([(x(a), y(b)) for a, b in mine], "", f"stroke:{tint};stroke-width:3")

    return drawn(y.start + 22, title, parts())
