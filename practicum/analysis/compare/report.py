"""The report of a comparison as three files: data (JSON), text (markdown), and one page of HTML with its pictures."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from practicum.analysis.compare import figures
from practicum.analysis.formats import (
    UNKNOWN,
    count,
    interval,
    money,
    p_value,
    percent,
    points,
    seconds,
    verdict_label,
)
from practicum.analysis.pages import render
from practicum.analysis.png import data_url
from practicum.core.counts import Count
from practicum.core.files import write_atomic

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Report = Mapping[str, Any]

COSTS = (
    ("calls", "calls", count),
    ("calls to learn", "learning_calls", count),
    ("tokens", "tokens", count),
    ("cached", "cached_share", percent),
    ("cost", "usd", money),
    ("time alone", "alone_s", seconds),
    ("work", "work_s", seconds),
    ("wall", "wall_s", seconds),
    ("context, tokens", "context_tokens", count),
    ("entries", "entries", count),
    ("tokens per test task", "tokens_a_test_task", count),
)
"""Columns of the table of costs: title, field, and how it is written."""

LIMITS = {"max_calls": "calls", "max_tokens": "tokens"}

MEANINGS: Mapping[str, str] = {counter.value: counter.meaning for counter in Count}

COST_NAMES = {"alone_s": "time", "usd": "cost", "tokens": "tokens"}
"""What scores are drawn against, in one word."""

READING = (
    "Score: the mean over the tasks, each averaged over the seeds, with its 95% interval over the tasks.",
    "Difference: from the baseline on the same tasks, with its own 95% interval. p: McNemar's exact test where every "
    "score is 0 or 1 and there is one seed, otherwise a studentised paired bootstrap; corrected by Holm's method for "
    "the rows of the table. A claim needs ten tasks, a corrected p of at most 0.05, and an interval without 0. More "
    "seeds make the score of a task more certain, but they are not more tasks.",
    "Calls, tokens and cost: means over the runs with a score, final evaluation included.",
    "Time alone: an upper bound (Brent's) on how long a run takes with nothing beside it: the longest chain of calls "
    "that wait for each other, plus the rest of the work divided by the number of calls allowed at once. Work: the sum "
    "of the durations of all calls. Wall: how long the run took here, beside the other runs; this is not comparable.",
    "Pareto front: no other variant is both cheaper and better.",
)
"""How to read the numbers."""


def write_report(report: Report, folder: Path) -> None:
    """Write report.json, report.md and report.html, each whole or not at all."""
    write_atomic(folder / "report.json", json.dumps(report, ensure_ascii=False, indent=1))
    write_atomic(folder / "report.md", markdown(report))
    write_atomic(folder / "report.html", html(report))


def markdown(report: Report) -> str:
    """The whole report but its pictures, as markdown."""
    return render("comparison.md", **_contents(report))


def html(report: Report) -> str:
    """The whole report as one page that needs no other file."""
    rows = report["variants"]
    learners = [row for row in rows if len(row["curve"]) > 1]
    # Not every step need be validated.
    validated = bool(learners) and all(any(p["val"] is not None for p in row["curve"]) for row in learners)
    costs = {axis: _picture(figures.cost_figure(rows, axis, front)) for axis, front in report["front"].items()}
    return render(
        "comparison.html",
        **_contents(report),
        number={row["name"]: i for i, row in enumerate(rows, 1)},
        colour=figures.colour,
        difference_pictures=[
            _picture(figures.differences_figure(table["rows"], table["baseline"])) for table in report["tables"]
        ],
        cost_pictures={axis: url for axis, url in costs.items() if url is not None},
        learners=bool(learners),
        validated=validated,
        score_curves=_picture(figures.curves_figure(rows, "val" if validated else "score", "score")),
        size_curves=_picture(figures.curves_figure(rows, "tokens", "tokens")),
    )


def _picture(figure: Figure | None) -> str | None:
    return None if figure is None else data_url(figure)


def _contents(report: Report) -> dict[str, Any]:
    """The values that both templates show."""
    by_name = {row["name"]: row for row in report["variants"]}
    roles = sorted({role for row in report["variants"] for role in row["by_role"]})
    kind = "tasks of a stream, each predicted before it was learned from" if report["online"] else "test tasks"
    return {
        "title": f"{len(by_name)} variants on {report['tasks']['scored']:,} {kind}",
        "conditions": _conditions(report),
        "warnings": report["warnings"],
        "tables": [
            {**table, "rows": [_score_row(by_name[row["name"]], row) for row in table["rows"]]}
            for table in report["tables"]
        ],
        "cost_table": (
            [title for title, _, _ in COSTS],
            [[row["name"], *(write(row[field]) for _, field, write in COSTS)] for row in report["variants"]],
        ),
        "role_table": (
            roles,
            [[row["name"], *(_role_cost(row["by_role"].get(role)) for role in roles)] for row in report["variants"]],
        ),
        "front": report["front"],
        "cost_names": COST_NAMES,
        "problems": _problems(report),
        "reading": READING,
    }


def _score_row(variant: Report, row: Report) -> dict[str, Any]:
    """The score of one variant, and what is known of its difference from the table's baseline."""
    cells = {
        "name": variant["name"],
        "share": variant["score"],
        "ends": variant["ci95"],
        "score": percent(variant["score"]),
        "score_interval": interval(variant["ci95"]),
        **dict.fromkeys(("difference", "difference_interval", "p", "better_worse"), ""),
        "verdict": row["verdict"],
        "label": verdict_label(row["verdict"]),
    }
    if "effect" in row:
        cells["difference"] = points(row["effect"])
        cells["difference_interval"] = interval(row["ci95"], signed=True)
        cells["p"] = p_value(row["p_holm"])
        cells["better_worse"] = f"{row['better']} / {row['worse']} of {row['n']}"
    return cells


def _conditions(report: Report) -> list[str]:
    """The models, tasks, seeds and budget that all runs share."""
    tasks, runs = report["tasks"], report["runs"]
    limits = [f"{report[name]:,} {unit}" for name, unit in LIMITS.items() if report[name]]
    roles = "".join(f", {role}: {model}" for role, model in report["roles"].items())
    validation = f", {tasks['val']:,} validation tasks" if tasks["val"] else ""
    lines = [
        f"model {report['model']}{roles}; agent {report['agent']}; scorer {report['scorer']}",
        f"{tasks['train']:,} training tasks{validation}" + ("" if report["labels"] else ", without labels"),
        f"{report['seeds']} seeds; budget of each run, evaluation included: {''.join(limits) or 'unlimited'}; at most "
        f"{report['concurrency']} calls at once over all runs",
    ]
    if runs["done"] < runs["planned"]:
        lines.append(f"not complete: {runs['done']} of {runs['planned']} runs have a score")
    return lines


def _problems(report: Report) -> list[str]:
    """What failed or ended early, one line for each run."""
    lines = []
    for row in report["variants"]:
        if row["missing"]:
            lines.append(f"{row['name']}: not run yet")
        lines += [f"{row['name']}, seed {seed}, failed: {why}" for seed, why in row["failed"].items()]
        early = {seed: why for seed, why in row["stopped"].items() if seed not in row["failed"]}
        lines += [f"{row['name']}, seed {seed}, ended early: {why}" for seed, why in early.items()]
        # Outcomes that earlier versions kept have the words themselves.
        lines += [f"{row['name']}: {n} {MEANINGS.get(key, key)}" for key, n in row["errors"].items()]
    return lines


def _role_cost(usage: Mapping[str, Any] | None) -> str:
    if usage is None:
        return UNKNOWN
    paid = f", {money(usage['usd'])}" if usage["usd"] else ""
    return f"{count(usage['calls'])} calls, {count(usage['input_tokens'] + usage['output_tokens'])} tokens{paid}"
