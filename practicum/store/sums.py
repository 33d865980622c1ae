"""Sums by the hour of what was asked, answered and scored, which pages and measurements read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Connection

from practicum.store.dialects import insert_adding
from practicum.store.schema import hours

SUMS = ("requests", "failed", "seconds", "input_tokens", "cached_tokens", "output_tokens", "scored", "total")
"""The columns of `hours` that are added up."""

HOUR = 3_600.0

LONGEST_NAME = 200
"""Characters of a name from outside, such as that of a model, that are in an index: PostgreSQL takes no long ones."""


def add_to_hours(db: Connection, added: Iterable[Mapping[str, Any]]) -> None:
    """Add numbers to rows of `hours`. Each has space, version, model, when it was (`at`, in seconds), and numbers. All
    nodes add in the same order, so that none waits for another in a circle."""
    sums: dict[tuple[Any, ...], dict[str, float]] = defaultdict(lambda: dict.fromkeys(SUMS, 0))
    for one in added:
        row = sums[one["space"], int(one["at"] // HOUR), one["version"], one["model"][:LONGEST_NAME]]
        for name in SUMS:
            row[name] += one.get(name, 0)
    if sums:
        keys = ("space", "hour", "version", "model")
        rows = [{**dict(zip(keys, key, strict=True)), **sums[key]} for key in sorted(sums)]
        db.execute(insert_adding(hours, db.dialect.name, SUMS), rows)


def interaction_sums(row: Mapping[str, Any], data: Mapping[str, Any]) -> dict[str, Any]:
    """What an interaction adds to `hours`. One that is no request of a user adds its tokens alone."""
    read, cached, written = data["tokens"]
    counted = "purpose" not in data
    return {
        "at": row["at"], "version": row["version"], "model": data["counted"],
        "requests": int(counted), "failed": int(counted and data["status"] >= 400),
        "seconds": data["seconds"] if counted else 0.0, "input_tokens": read,
        "cached_tokens": cached, "output_tokens": written,
    }  # fmt: skip
