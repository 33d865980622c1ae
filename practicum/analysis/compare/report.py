"""Files of the report of a comparison: data (JSON), text (markdown), and an HTML page with charts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from practicum.analysis.compare.summary import THESE_RUNS
from practicum.core.files import write_atomic
from practicum.core.formats import count, effect, scored, verdict_label
from practicum.core.intervals import MIN_SEEDS
from practicum.view.report import ReportData, report_html, report_markdown


def write_report(report: ReportData, folder: Path) -> None:
    """Write report.json, report.md and report.html, each atomically."""
    write_atomic(folder / "report.json", json.dumps(report, ensure_ascii=False, indent=1))
    write_atomic(folder / "report.md", report_markdown(report))
    write_atomic(folder / "report.html", report_html(report))


def brief_tables(report: ReportData) -> Iterator[tuple[str, tuple[str, ...], list[tuple[str, ...]], str]]:
    """Yield each table of a report, reduced to a few columns so that it fits a terminal: title, columns, rows, and a
    note."""
    variants = {row["name"]: row for row in report["variants"]}
    for table in report["tables"]:
        about = {row["about"] for row in table["rows"] if "about" in row}
        # If all verdicts are about these runs only, the heading says so instead of each row, so that the table is
        # narrower.
        few = THESE_RUNS if about == {THESE_RUNS} else ""
        rows: list[tuple[str, ...]] = []
        for row in table["rows"]:
            variant = variants[row["name"]]
            score = scored(variant) if variant["ci95"] else ""
            verdict = verdict_label(row["verdict"]).removeprefix(f"{few}: ")
            rows.append((row["name"], score, effect(row), *map(count, _tokens(variant)), verdict))
        columns = ("", "score (95%)", f"minus {table['baseline']} (95%)", "learning", "a task", few)
        kind = "streamed" if report["online"] else "test"
        notes = [f"learning, a task: tokens to learn, and tokens of a {kind} task"]
        if THESE_RUNS in about:
            notes.append(f"{THESE_RUNS}: other runs may differ; a claim about a method needs {MIN_SEEDS} seeds")
        yield table["title"], columns, rows, "\n".join(notes)


def _tokens(variant: ReportData) -> tuple[float | None, float | None]:
    """Return the tokens to learn, and the tokens of a test task. A stream has only the tokens of a task, which are used
    to learn, too."""
    if variant["tokens_per_test_task"] is None and variant["n"] and variant["tokens"] is not None:
        return None, variant["tokens"] / variant["n"]
    return variant["learning_tokens"], variant["tokens_per_test_task"]
