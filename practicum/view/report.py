"""Rendering of the report of a comparison (`report.json`) as markdown and as an HTML page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from practicum.core.counts import Count
from practicum.core.formats import UNKNOWN, count, decimal, money
from practicum.core.metrics import METRICS, of_kind
from practicum.view.charts import cost_chart, curves_chart, differences_chart
from practicum.view.kit import render

ReportData = Mapping[str, Any]

AXES = {
    "single_run_s": ("time", METRICS["comparison.single_run_s"].title),
    "usd": ("cost", "cost in US dollars"),
    "tokens": ("tokens", "tokens"),
}
"""Field of a report that contains a cost → the short name of the cost, and the title of the chart axis for the cost."""


def report_markdown(report: ReportData) -> str:
    """Render the report as markdown, without its charts."""
    return render("comparison.md", **_contents(report))


def report_html(report: ReportData) -> str:
    """Render the report as one self-contained HTML page."""
    return render("comparison.html", standalone=True, name="", links={}, **report_values(report))


def report_values(report: ReportData) -> dict[str, Any]:
    """Return the template values of the page of a comparison."""
    rows = report["variants"]
    learners = [row for row in rows if len(row["curve"]) > 1]
    # One validation score is enough for a variant to count as validated, because not every step has such a score.
    validated = bool(learners) and all(any(p["val"] is not None for p in row["curve"]) for row in learners)
    costs = {
        AXES[axis][0]: cost_chart(rows, axis, AXES[axis][1], METRICS[f"comparison.{axis}"].write)
        for axis in report["front"]
    }
    return {
        **_contents(report), "number": {row["name"]: i for i, row in enumerate(rows, 1)},
        "differences": [differences_chart(table["rows"], table["baseline"]) for table in report["tables"]],
        "cost_charts": {name: chart for name, chart in costs.items() if chart is not None},
        "learners": bool(learners), "validated": validated,
        "score_curves": curves_chart(rows, "val" if validated else "score", "score"),
        "size_curves": curves_chart(rows, "tokens", "tokens of the context"),
    }  # fmt: skip


def _contents(report: ReportData) -> dict[str, Any]:
    """Return the template values that the markdown and the HTML page share."""
    rows = report["variants"]
    roles = sorted({role for row in rows for role in row["by_role"]})
    # `best_of_k` is only measured when a method makes several attempts at a task.
    has_best_of_k = any(row["best_of_k"] is not None for row in rows)
    columns = [one for one in of_kind("comparison") if has_best_of_k or one.field != "best_of_k"]
    measured = list(dict.fromkeys(name for row in rows for name in row["measures"]))
    return {
        "report": report,
        "variants": {row["name"]: row for row in rows},
        "conditions": _conditions(report),
        "cost_table": (
            [*(one.title for one in columns), *measured],
            [
                [row["name"], *(one.write(row.get(one.field)) for one in columns)]
                + [decimal(row["measures"].get(name)) for name in measured]
                for row in rows
            ],
        ),
        "role_table": (roles, [[row["name"], *(_role_cost(row["by_role"].get(r)) for r in roles)] for row in rows]),
        "cost_names": {axis: names[0] for axis, names in AXES.items()},
        "problems": _problems(report),
    }


def _conditions(report: ReportData) -> list[str]:
    """Describe the models, tasks, seeds and budget that all runs share."""
    tasks, runs = report["tasks"], report["runs"]
    limits = [f"{report[f'max_{unit}']:,} {unit}" for unit in ("calls", "tokens") if report[f"max_{unit}"]]
    roles = "".join(f", {role}: {model}" for role, model in report["roles"].items())
    validation = f", {tasks['val']:,} validation tasks" if tasks["val"] else ""
    start, seeds = report["seed_context"], "1 seed" if report["seeds"] == 1 else f"{report['seeds']} seeds"
    lines = [
        f"model {report['model'] or 'by role'}{roles}; agent {report['agent']}; scorer {report['scorer']}",
        f"{tasks['train']:,} training tasks{validation}" + ("" if report["labels"] else ", without labels"),
        f"{seeds}; budget per run, including evaluation: {' and '.join(limits) or 'unlimited'}; at most "
        f"{report['concurrency']} concurrent calls over all runs",
    ]
    if start:
        lines.append(f"every run starts from the same playbook ({start['tokens']:,} tokens)")
    if runs["done"] < runs["planned"]:
        lines.append(f"incomplete: {runs['done']} of {runs['planned']} runs have a score")
    return lines


def _problems(report: ReportData) -> list[str]:
    """List the problems of a comparison, one per line: variants without a run, failed runs, runs that ended early, and
    counts of errors."""
    lines = []
    for row in report["variants"]:
        if row["missing"]:
            lines.append(f"{row['name']}: not run yet")
        lines += [f"{row['name']}, seed {seed}, failed: {reason}" for seed, reason in row["failed"].items()]
        early = {seed: reason for seed, reason in row["stopped"].items() if seed not in row["failed"]}
        lines += [f"{row['name']}, seed {seed}, ended early: {reason}" for seed, reason in early.items()]
        lines += [f"{row['name']}: {Count[key.upper()].text(n)}" for key, n in row["errors"].items()]
    return lines


def _role_cost(usage: Mapping[str, Any] | None) -> str:
    if usage is None:
        return UNKNOWN
    paid = f", {money(usage['usd'])}" if usage["usd"] else ""
    return f"{count(usage['calls'])} calls, {count(usage['input_tokens'] + usage['output_tokens'])} tokens{paid}"
