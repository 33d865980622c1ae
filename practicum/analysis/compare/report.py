"""The report of a comparison as three files: data, text, and one page that needs nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from practicum.analysis.compare.page import page
from practicum.analysis.compare.text import markdown
from practicum.core.files import write_atomic


def write_report(report: Mapping[str, Any], folder: Path) -> None:
    """report.json, report.md and report.html, each whole or not at all."""
    write_atomic(folder / "report.json", json.dumps(report, ensure_ascii=False, indent=1))
    write_atomic(folder / "report.md", markdown(report))
    write_atomic(folder / "report.html", page(report))
