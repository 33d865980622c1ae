"""Tables of papers and benchmarks as data. `practicum bench paper NAME` runs a table like `practicum compare`.

The core has the tables of the five papers, one file per paper. Installed packages register further tables.
"""

from __future__ import annotations

from collections.abc import Sequence

from practicum.bench.papers import ace, combee, mael, matts, rcl, unified
from practicum.bench.papers.table import PaperTable
from practicum.core.plugins import Group

TABLES: dict[str, PaperTable] = {
    table.name: table for paper in (ace, combee, rcl, mael, matts, unified) for table in paper.TABLES
}
"""Tables of the five papers."""


def _lacks(plugin: object) -> Sequence[str]:
    return [] if isinstance(plugin, PaperTable) else ["the interface of a table (a PaperTable)"]


MORE: Group[PaperTable] = Group(
    "practicum.tables",
    "table",
    _lacks,
    dict.fromkeys(TABLES),
    unknown="settings.invalid",
    advice="; practicum bench paper lists them",
)
"""Registered tables of other benchmarks."""


def all_tables() -> list[PaperTable]:
    """Return the tables of the papers, then the registered tables."""
    return [*TABLES.values(), *map(MORE.load, MORE.registered())]


def load_table(name: str) -> PaperTable:
    """Return the table with this name. Raises UsageError for an unknown name."""
    return TABLES[name] if name in TABLES else MORE.load(name)
