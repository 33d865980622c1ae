"""The report of a comparison as three files: data (JSON), text (markdown), and one page of HTML with its charts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from practicum.analysis.compare.summary import THESE_RUNS
from practicum.core.files import write_atomic
from practicum.core.formats import effect, scored, verdict_label
from practicum.core.intervals import MIN_SEEDS
from practicum.view.report import ReportData, report_html, report_markdown


def write_report(report: ReportData, folder: Path) -> None:
    """Write report.json, report.md and report.html, each whole or not at all."""
    write_atomic(folder / "report.json", json.dumps(report, ensure_ascii=False, indent=1))
    write_atomic(folder / "report.md", report_markdown(report))
    write_atomic(folder / "report.html", report_html(report))


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
