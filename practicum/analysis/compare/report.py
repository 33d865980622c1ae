"""The report of a comparison as three files: data (JSON), text (markdown), and one page of HTML with its pictures."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

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
from practicum.core.files import write_atomic

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
    tables = [
        data_url(figures.differences_figure(table["rows"], table["baseline"]))
        if any("effect" in row for row in table["rows"])
        else None
        for table in report["tables"]
    ]
    costs = {
        axis: data_url(figure)
        for axis, front in report["front"].items()
        if (figure := figures.cost_figure(rows, axis, front)) is not None
    }
    learners = [row for row in rows if len(row["curve"]) > 1]
    # Not every step need be validated.
    validated = bool(learners) and all(any(p["val"] is not None for p in row["curve"]) for row in learners)
    scores = figures.curves_figure(rows, "val" if validated else "score", "score")
    sizes = figures.curves_figure(rows, "tokens", "tokens")
    return render(
        "comparison.html",
        **_contents(report),
        number={row["name"]: i for i, row in enumerate(rows, 1)},
        colour=figures.colour,
        difference_pictures=tables,
        cost_pictures=costs,
        learners=bool(learners),
        validated=validated,
        score_curves=scores and data_url(scores),
        size_curves=sizes and data_url(sizes),
    )


def _contents(report: Report) -> dict[str, Any]:
    """What both templates show."""
    by_name = {row["name"]: row for row in report["variants"]}
    roles = sorted({role for row in report["variants"] for role in row["by_role"]})
    return {
        "title": _title(report),
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
    compared = "effect" in row
    return {
        "name": variant["name"],
        "share": variant["score"],
        "ends": variant["ci95"],
        "score": percent(variant["score"]),
        "score_interval": interval(variant["ci95"]),
        "difference": points(row["effect"]) if compared else "",
        "difference_interval": interval(row["ci95"], signed=True) if compared else "",
        "p": p_value(row["p_holm"]) if compared else "",
        "better_worse": f"{row['better']} / {row['worse']} of {row['n']}" if compared else "",
        "verdict": row["verdict"],
        "label": verdict_label(row["verdict"]),
    }


def _title(report: Report) -> str:
    kind = "tasks of a stream, each predicted before it was learned from" if report["online"] else "test tasks"
    return f"{len(report['variants'])} variants on {report['tasks']['scored']:,} {kind}"


def _conditions(report: Report) -> list[str]:
    """The models, tasks, seeds and budget that all runs share."""
    tasks, runs = report["tasks"], report["runs"]
    budget = (
        f"{report['max_calls']:,} calls" if report["max_calls"]
        else f"{report['max_tokens']:,} tokens" if report["max_tokens"] else "unlimited"
    )  # fmt: skip
    roles = "".join(f", {role}: {model}" for role, model in report["roles"].items())
    lines = [
        f"model {report['model']}{roles}; agent {report['agent']}; scorer {report['scorer']}",
        f"{tasks['train']:,} training tasks" + (f", {tasks['val']:,} validation tasks" if tasks["val"] else "")
        + ("" if report["labels"] else ", without labels"),
        f"{report['seeds']} seeds; budget of each run, evaluation included: {budget}; at most "
        f"{report['concurrency']} calls at once over all runs",
    ]  # fmt: skip
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
        if row["errors"]:
            lines.append(f"{row['name']}: " + ", ".join(f"{n} {what}" for what, n in row["errors"].items()))
    return lines


def _role_cost(usage: Mapping[str, Any] | None) -> str:
    if usage is None:
        return UNKNOWN
    paid = f", {money(usage['usd'])}" if usage["usd"] else ""
    return f"{count(usage['calls'])} calls, {count(usage['input_tokens'] + usage['output_tokens'])} tokens{paid}"
