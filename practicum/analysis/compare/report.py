"""The report of a comparison as three files: data (JSON), text (markdown), and one page of HTML with its pictures."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from practicum.analysis.compare import figures
from practicum.analysis.compare.summary import THESE_RUNS
from practicum.analysis.pages import render
from practicum.analysis.png import can_draw, data_url, missing_package
from practicum.core.counts import Count
from practicum.core.files import write_atomic
from practicum.core.formats import UNKNOWN, count, decimal, effect, money, percent, scored, seconds, verdict_label
from practicum.core.intervals import MIN_SEEDS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ReportData = Mapping[str, Any]

BEST = ("best of k", "best_of_k", percent)
"""The first column of the table of costs, where an agent chose from several attempts."""

COSTS = (
    ("steps of an attempt", "agent_steps", count),
    ("calls", "calls", count),
    ("calls to learn", "learning_calls", count),
    ("tokens", "tokens", count),
    ("tokens to learn", "learning_tokens", count),
    ("cached", "cached_share", percent),
    ("cost", "usd", money),
    ("time alone", "alone_s", seconds),
    ("work", "work_s", seconds),
    ("wall", "wall_s", seconds),
    ("context, tokens", "context_tokens", count),
    ("entries", "entries", count),
    ("helpful hits", "helpful", count),
    ("tokens per test task", "tokens_a_test_task", count),
    ("written per test task", "written_a_test_task", count),
)
"""Columns of the table of costs: title, field, and how it is written."""

COST_NAMES = {"alone_s": "time", "usd": "cost", "tokens": "tokens"}
"""What scores are drawn against, in one word."""


def write_report(report: ReportData, folder: Path) -> None:
    """Write report.json, report.md and report.html, each whole or not at all."""
    write_atomic(folder / "report.json", json.dumps(report, ensure_ascii=False, indent=1))
    write_atomic(folder / "report.md", markdown(report))
    can_draw(folder / "report.html")
    write_atomic(folder / "report.html", html(report))


def brief_tables(report: ReportData) -> Iterator[tuple[str, tuple[str, ...], list[tuple[str, ...]], str]]:
    """The tables in the few columns that fit a terminal: title, columns, rows, and a note."""
    variants = {row["name"]: row for row in report["variants"]}
    for table in report["tables"]:
        about = {row["about"] for row in table["rows"] if "about" in row}
        # One heading where no row is about a method, so that the table is narrow.
        few = THESE_RUNS if about == {THESE_RUNS} else ""
        rows: list[tuple[str, ...]] = []
        for row in table["rows"]:
            variant = variants[row["name"]]
            score = scored(variant) if variant["ci95"] else ""
            rows.append((row["name"], score, effect(row), verdict_label(row["verdict"]).removeprefix(f"{few}: ")))
        columns = ("", "score (95%)", f"difference from {table['baseline']} (95%)", few)
        note = f"{THESE_RUNS}: others may differ; a claim about a method needs {MIN_SEEDS} seeds of it"
        yield table["title"], columns, rows, note if THESE_RUNS in about else ""


def markdown(report: ReportData) -> str:
    """The whole report but its pictures, as markdown."""
    return render("comparison.md", **_contents(report))


def html(report: ReportData, links: Mapping[str, Sequence[tuple[str, str]]] | None = None, **frame: Any) -> str:
    """The whole report as one page that needs no other file. `links` has for each variant the seeds of its runs with
    the addresses of their pages; `frame` is what the template takes beside the report."""
    rows = report["variants"]
    learners = [row for row in rows if len(row["curve"]) > 1]
    # Not every step need be validated.
    validated = bool(learners) and all(any(p["val"] is not None for p in row["curve"]) for row in learners)
    without_pictures = missing_package()

    def drawn(figure: Callable[..., Figure | None], *about: Any) -> str | None:
        return None if without_pictures else data_url(figure(*about))

    costs = {axis: drawn(figures.cost_figure, rows, axis, front) for axis, front in report["front"].items()}
    return render(
        "comparison.html",
        **_contents(report),
        **frame,
        links=links or {},
        number={row["name"]: i for i, row in enumerate(rows, 1)},
        difference_pictures=[
            drawn(figures.differences_figure, table["rows"], table["baseline"]) for table in report["tables"]
        ],
        cost_pictures={axis: url for axis, url in costs.items() if url is not None},
        learners=bool(learners),
        validated=validated,
        score_curves=drawn(figures.curves_figure, rows, "val" if validated else "score", "score"),
        size_curves=drawn(figures.curves_figure, rows, "tokens", "tokens"),
        without_pictures=without_pictures,
    )


def _contents(report: ReportData) -> dict[str, Any]:
    """The values that both templates show."""
    rows = report["variants"]
    roles = sorted({role for row in rows for role in row["by_role"]})
    columns = (*([BEST] if any(row["best_of_k"] is not None for row in rows) else []), *COSTS)
    measured = list(dict.fromkeys(name for row in rows for name in row["measures"]))
    return {
        "report": report,
        "variants": {row["name"]: row for row in rows},
        "conditions": _conditions(report),
        "cost_table": (
            [*(title for title, _, _ in columns), *measured],
            [
                [row["name"], *(write(row.get(field)) for _, field, write in columns)]
                + [decimal(row["measures"].get(name)) for name in measured]
                for row in rows
            ],
        ),
        "role_table": (roles, [[row["name"], *(_role_cost(row["by_role"].get(r)) for r in roles)] for row in rows]),
        "cost_names": COST_NAMES,
        "problems": _problems(report),
    }


def _conditions(report: ReportData) -> list[str]:
    """The models, tasks, seeds and budget that all runs share."""
    tasks, runs = report["tasks"], report["runs"]
    limits = [f"{report[f'max_{unit}']:,} {unit}" for unit in ("calls", "tokens") if report[f"max_{unit}"]]
    roles = "".join(f", {role}: {model}" for role, model in report["roles"].items())
    validation = f", {tasks['val']:,} validation tasks" if tasks["val"] else ""
    started, seeds = report["seed_context"], "1 seed" if report["seeds"] == 1 else f"{report['seeds']} seeds"
    lines = [
        f"model {report['model'] or 'by role'}{roles}; agent {report['agent']}; scorer {report['scorer']}",
        f"{tasks['train']:,} training tasks{validation}" + ("" if report["labels"] else ", without labels"),
        f"{seeds}; budget of each run, evaluation included: {''.join(limits) or 'unlimited'}; at most "
        f"{report['concurrency']} calls at once over all runs",
    ]
    if started:
        lines.append(f"every run starts from the same playbook ({started['tokens']:,} tokens)")
    if runs["done"] < runs["planned"]:
        lines.append(f"not complete: {runs['done']} of {runs['planned']} runs have a score")
    return lines


def _problems(report: ReportData) -> list[str]:
    """What failed or ended early, one line for each run."""
    lines = []
    for row in report["variants"]:
        if row["missing"]:
            lines.append(f"{row['name']}: not run yet")
        lines += [f"{row['name']}, seed {seed}, failed: {why}" for seed, why in row["failed"].items()]
        early = {seed: why for seed, why in row["stopped"].items() if seed not in row["failed"]}
        lines += [f"{row['name']}, seed {seed}, ended early: {why}" for seed, why in early.items()]
        lines += [f"{row['name']}: {Count[key.upper()].said(n)}" for key, n in row["errors"].items()]
    return lines


def _role_cost(usage: Mapping[str, Any] | None) -> str:
    if usage is None:
        return UNKNOWN
    paid = f", {money(usage['usd'])}" if usage["usd"] else ""
    return f"{count(usage['calls'])} calls, {count(usage['input_tokens'] + usage['output_tokens'])} tokens{paid}"
