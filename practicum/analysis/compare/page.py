"""The report as one page of HTML that needs nothing else, and reads well on a phone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from html import escape
from typing import Any

from practicum.analysis.compare.numbers import (
    COSTS,
    READING,
    between,
    chance,
    circumstances,
    count,
    headline,
    money,
    percent,
    points,
    roles,
    said,
    seconds,
    thousands,
    troubles,
    usage,
)
from practicum.analysis.compare.svg import Dot, Scale, colour, curves, forest, scatter, share, whole_percent
from practicum.analysis.compare.text import AXES

Row = Mapping[str, Any]

TIMES = (
    *(unit * n for unit in (0.01, 0.1) for n in (1, 2, 5)),
    *(unit * n for unit in (1, 60) for n in (1, 2, 5, 10, 20)),
    *(3600 * n for n in (1, 2, 5, 10, 20, 50, 100)),
)
"""Seconds that are round to people."""

AXIS_TITLES: Mapping[str, tuple[str, Callable[[float], str], Sequence[float]]] = {
    "alone_s": ("time alone, test included", seconds, TIMES),
    "usd": ("cost, test included", money, ()),
    "tokens": ("tokens, test included", count, ()),
}
"""What scores are drawn against, how it is written, and which values are round."""


def page(report: Mapping[str, Any]) -> str:
    """The whole page."""
    title = escape(headline(report))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{STYLE}</style></head>\n"
        f"<body><main><h1>{title}</h1>\n{chr(10).join(_sections(report))}\n</main></body></html>\n"
    )


def _sections(report: Mapping[str, Any]) -> Iterator[str]:
    rows = report["variants"]
    number = {row["name"]: i for i, row in enumerate(rows, 1)}
    yield _list(circumstances(report), "soft")
    yield from (f'<p class="warning">{escape(warning)}</p>' for warning in report["warnings"])
    for table in report["tables"]:
        yield f"<h2>{escape(table['title'])}</h2>{_scores(table, {row['name']: row for row in rows}, number)}"
        if any("effect" in row for row in table["rows"]):
            yield _figure(forest(table["rows"], table["baseline"], f"Differences from {table['baseline']}"), FOREST)
    yield from _scatters(report, number)
    yield from _curves(rows)
    costs = [(title, partial(_cost, field, write)) for title, field, write in COSTS]
    yield f"<h2>What each costs</h2>{_costs(rows, number, costs)}"
    if asked := roles(report):
        by_role = [(role, partial(_role, role)) for role in asked]
        yield f"<h2>What each role costs</h2>{_costs(rows, number, by_role)}"
    if found := troubles(report):
        yield f"<h2>To know</h2>{_list(found)}"
    yield f"<h2>How to read this</h2>{_list(READING, 'soft')}"


FOREST = "95% intervals. Filled: a claim can be made, after Holm's correction."


def _list(lines: Sequence[str], kind: str = "") -> str:
    return f'<ul class="{kind}">' + "".join(f"<li>{escape(line)}</li>" for line in lines) + "</ul>"


def _figure(picture: str, caption: str) -> str:
    return f"<figure>{picture}<figcaption>{escape(caption)}</figcaption></figure>"


def _name(name: str, number: Mapping[str, int]) -> str:
    return f'<b class="n" style="--c:{colour(number[name] - 1)}">{number[name]}</b> {escape(name)}'


def _scores(table: Row, by_name: Mapping[str, Row], number: Mapping[str, int]) -> str:
    """A table's scores and differences: on a phone two lines a row."""
    cells = []
    for row in table["rows"]:
        known, variant = "effect" in row, by_name[row["name"]]
        low, high = variant["ci95"] or (0.0, 0.0)
        bar = (
            f'<span class="bar"><i style="width:{100 * variant["score"]:.1f}%"></i>'
            f'<u style="left:{100 * low:.1f}%;width:{100 * (high - low):.1f}%"></u></span>'
            if variant["score"] is not None else ""
        )  # fmt: skip
        told = (
            f"{points(row['effect'])} <small>({between(row['ci95'], signed=True)}; p {chance(row['p_holm'])}; "
            f"{row['better']} tasks better, {row['worse']} worse)</small>"
            if known else ""
        )  # fmt: skip
        cells.append(
            f"<tr><td>{_name(row['name'], number)}</td><td class='score'>{percent(variant['score'])} "
            f"<small>{between(variant['ci95'])}</small>{bar}</td>"
            f"<td>{told} <em class='{row['verdict']}'>{said(row)}</em></td></tr>"
        )
    heads = f"<tr><th></th><th>score <small>95%</small></th><th>less {escape(table['baseline'])}</th></tr>"
    return f"<table class='scores'>{heads}{''.join(cells)}</table>"


def _scatters(report: Mapping[str, Any], number: Mapping[str, int]) -> Iterator[str]:
    for axis, front in report["front"].items():
        title, write, marks = AXIS_TITLES[axis]
        dots = [
            Dot(number[row["name"]], row["name"], row[axis], row["score"], row["ci95"])
            for row in report["variants"]
            if row["score"] is not None and row[axis] is not None
        ]
        if len(dots) > 1:
            named = ", ".join(f"{number[name]} {name}" for name in front)
            caption = f"Filled and joined: the Pareto front ({named}). Bars: 95% intervals."
            yield f"<h2>Score against {AXES[axis]}</h2>"
            yield _figure(scatter(dots, front, title, write, marks), caption)


def _curves(rows: Sequence[Row]) -> Iterator[str]:
    learners = [(i, row) for i, row in enumerate(rows) if len(row["curve"]) > 1]
    if not learners:
        return
    # Not every step need be validated.
    validated = all(any(point["val"] is not None for point in row["curve"]) for _, row in learners)
    field, what = ("val", "on the validation tasks") if validated else ("score", "on the last 20 or more tasks tried")
    yield f"<h2>Learning curves</h2><p class='soft'>Score {what}, by training tasks tried. Grey: the others.</p>"
    yield _grid(learners, field, whole_percent, shares=True)
    yield "<h2>Context size</h2><p class='soft'>Tokens of what was learned, by training tasks tried.</p>"
    yield _grid(learners, "tokens", thousands, shares=False)


def _grid(learners: Sequence[tuple[int, Row]], field: str, write: Callable[[float], str], shares: bool) -> str:
    """A small picture for each, all on the same scales."""
    lines = {row["name"]: [(p["tasks"], p[field]) for p in row["curve"] if p[field] is not None] for _, row in learners}
    values = [value for drawn in lines.values() for _, value in drawn]
    if not values:
        return "<p>Nothing was scored on the way.</p>"
    y = share(values, 140, 12) if shares else Scale(0.0, max(*values, 1.0) * 1.08, 140, 12)
    ends = [place for drawn in lines.values() for place, _ in drawn]
    x = Scale(0.0, max(ends) * 1.02, 52, 350)
    cells = []
    for i, row in learners:
        others = [drawn for name, drawn in lines.items() if name != row["name"] and drawn]
        picture = curves(lines[row["name"]], others, colour(i), f"{row['name']}: {field}", (x, y), count, write)
        cells.append(f"<figure><figcaption>{_name(row['name'], {row['name']: i + 1})}</figcaption>{picture}</figure>")
    return f'<div class="grid">{"".join(cells)}</div>'


def _cost(field: str, write: Callable[[Any], str], row: Row) -> str:
    return write(row[field])


def _role(role: str, row: Row) -> str:
    return usage(row["by_role"].get(role))


def _costs(rows: Sequence[Row], number: Mapping[str, int], columns: Sequence[tuple[str, Callable[[Row], str]]]) -> str:
    """A table with a row for each variant, and columns of these titles."""
    heads = "".join(f"<th>{escape(title)}</th>" for title, _ in columns)
    body = "".join(
        f"<tr><td>{_name(row['name'], number)}</td>"
        + "".join(f"<td>{escape(told(row))}</td>" for _, told in columns)
        + "</tr>"
        for row in rows
    )
    return f'<div class="wide"><table class="costs"><tr><th></th>{heads}</tr>{body}</table></div>'


STYLE = """
:root{--page:#fff;--ink:#1a1a1a;--soft:#6b7280;--line:#e2e4e8;--good:#00785a;--bad:#b3400a;--tint:#f4f5f7;
color-scheme:light dark}
@media(prefers-color-scheme:dark){:root{
--page:#15171a;--ink:#e8e8e8;--soft:#9aa1ab;--line:#31353b;--good:#3fc79a;--bad:#ff8a5c;--tint:#1e2125}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:16px/1.45 system-ui,sans-serif}
main{max-width:58rem;margin:0 auto;padding:1rem}
h1{font-size:1.35rem;line-height:1.25;margin:.5rem 0}
h2{font-size:1.1rem;margin:2rem 0 .5rem}
ul{padding-left:1.1rem;margin:.5rem 0}
li{margin:.2rem 0;overflow-wrap:anywhere}
.soft,small,figcaption{color:var(--soft);font-size:.86rem}
.warning{border-left:4px solid var(--bad);padding:.4rem .7rem;background:var(--tint)}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th{text-align:left;font-weight:600;font-size:.86rem;color:var(--soft);vertical-align:bottom}
td,th{padding:.4rem .6rem .4rem 0;border-bottom:1px solid var(--line);vertical-align:top}
.score{min-width:8.5rem}
.scores td:nth-child(-n+2){white-space:nowrap}
.bar{display:block;position:relative;height:6px;margin-top:5px;background:var(--line);border-radius:3px}
.bar i{position:absolute;inset:0 auto 0 0;background:var(--soft);border-radius:3px}
.bar u{position:absolute;top:2px;height:2px;background:var(--ink)}
em{font-style:normal;font-weight:600;white-space:nowrap}
em.better{color:var(--good)}em.worse{color:var(--bad)}
em.unclear,em.missing,em.alone,em.baseline{color:var(--soft);font-weight:400}
.n{display:inline-block;min-width:1.35em;padding:0 .25em;text-align:center;font-size:.8rem;
border-radius:1em;color:#fff;background:var(--c)}
.wide{overflow-x:auto}
.costs td,.costs th{text-align:right;white-space:nowrap}
.costs th{white-space:normal;min-width:4rem}
.costs td:first-child,.costs th:first-child{text-align:left;position:sticky;left:0;background:var(--page)}
figure{margin:.5rem 0;max-width:34rem}
.grid{display:grid;grid-template-columns:repeat(auto-fill,minmax(165px,1fr));gap:.8rem}
.grid figure{margin:0}
svg{display:block;width:100%;height:auto;font:12px system-ui,sans-serif}
.grid svg{font-size:20px}
svg text{fill:var(--ink)}
svg .soft{fill:var(--soft)}
svg .number{font-weight:700}
svg .halo{paint-order:stroke;stroke:var(--page);stroke-width:3px}
svg .grid{stroke:var(--line)}
svg .axis{stroke:var(--soft)}
svg path{fill:none;stroke-width:2;stroke-linejoin:round}
svg line,svg circle{stroke-width:2}
svg .grid,svg .axis{stroke-width:1}
svg .front{stroke:var(--soft);stroke-dasharray:5 4}
@media(max-width:560px){
.scores,.scores tbody{display:block}
.scores tr{display:grid;grid-template-columns:1fr 1fr;column-gap:.8rem;
border-bottom:1px solid var(--line);padding:.5rem 0}
.scores td,.scores th{border:0;padding:0}
.scores td:nth-child(3),.scores th:nth-child(3){grid-column:1/-1;padding-top:.25rem}
.scores th:first-child{display:none}.scores th:nth-child(3){text-align:right;grid-column:auto;padding:0}
}
"""
