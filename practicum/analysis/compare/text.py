"""The report as markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from practicum.analysis.compare.numbers import (
    COSTS,
    READING,
    between,
    chance,
    circumstances,
    headline,
    percent,
    points,
    roles,
    said,
    troubles,
    usage,
)


def markdown(report: Mapping[str, Any]) -> str:
    """The whole report."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: Mapping[str, Any]) -> Iterator[str]:
    yield f"# {headline(report)}\n"
    yield from (f"- {line}" for line in circumstances(report))
    yield from (f"\n**{warning}**" for warning in report["warnings"])
    by_name = {row["name"]: row for row in report["variants"]}
    for table in report["tables"]:
        yield f"\n## {table['title']}\n"
        heads = ("", "score", "95%", f"less {table['baseline']}", "95%", "p (Holm)", "better / worse", "")
        yield from _table(heads, [_scored(by_name[row["name"]], row) for row in table["rows"]])
    yield "\n## What each costs (means over the seeds)\n"
    yield from _table(
        ("", *(title for title, _, _ in COSTS)),
        [[row["name"], *(write(row[field]) for _, field, write in COSTS)] for row in report["variants"]],
    )
    if asked := roles(report):
        yield "\n## What each role costs (means over the seeds)\n"
        yield from _table(
            ("", *asked),
            [[row["name"], *(usage(row["by_role"].get(role)) for role in asked)] for row in report["variants"]],
        )
    for axis, names in report["front"].items():
        yield f"\nPareto front of score against {AXES[axis]}: {', '.join(names) or 'nothing was scored'}."
    if found := troubles(report):
        yield "\n## To know\n"
        yield from (f"- {line}" for line in found)
    yield "\n## How to read this\n"
    yield from (f"- {line}" for line in READING)


AXES = {"alone_s": "time", "usd": "cost", "tokens": "tokens"}
"""What a front is drawn against, in a word."""


def _scored(variant: Mapping[str, Any], row: Mapping[str, Any]) -> list[str]:
    known = "effect" in row
    return [
        variant["name"],
        percent(variant["score"]),
        between(variant["ci95"]),
        points(row["effect"]) if known else "",
        between(row["ci95"], signed=True) if known else "",
        chance(row["p_holm"]) if known else "",
        f"{row['better']} / {row['worse']} of {row['n']}" if known else "",
        said(row),
    ]


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield "| " + " | ".join(heads) + " |"
    yield "|" + "---|" * len(heads)
    for row in rows:
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"
