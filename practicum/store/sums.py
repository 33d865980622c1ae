"""Hourly sums of requests, answers and scores, for pages and measurements."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Connection

from practicum.store.dialects import insert_adding
from practicum.store.schema import hours

SUMS = (
    "requests", "failed", "seconds", "input_tokens", "cached_tokens", "cache_write_tokens", "output_tokens", "scored",
    "total",
)  # fmt: skip
"""Columns of `hours` that are summed."""

HOUR = 3_600.0

LONGEST_NAME = 200
"""Maximum length (characters) of a name in a column with an index, if the name comes from outside practicum, such as
the name of a model. PostgreSQL limits the size of an index item."""


def add_to_hours(db: Connection, added: Iterable[Mapping[str, Any]]) -> None:
    """Add numbers to rows of `hours`. Each item of `added` has the space, the version, the model, the time (`at`, in
    seconds) and the numbers. All nodes write the rows in the same order, to avoid deadlocks."""
    sums: dict[tuple[Any, ...], dict[str, float]] = defaultdict(lambda: dict.fromkeys(SUMS, 0))
    for item in added:
        row = sums[item["space"], int(item["at"] // HOUR), item["version"], item["model"][:LONGEST_NAME]]
        for name in SUMS:
            row[name] += item.get(name, 0)
    if sums:
        keys = ("space", "hour", "version", "model")
        rows = [{**dict(zip(keys, key, strict=True)), **sums[key]} for key in sorted(sums)]
        db.execute(insert_adding(hours, db.dialect.name, SUMS), rows)


def interaction_sums(row: Mapping[str, Any], data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the numbers that an interaction adds to `hours`. An interaction with a `purpose` is not a request of a
    user, so it adds only the numbers of its tokens."""
    read, cached, output, written = data["tokens"]
    counted = "purpose" not in data
    return {
        "at": row["at"], "version": row["version"], "model": data["counted"],
        "requests": int(counted), "failed": int(counted and data["status"] >= 400),
        "seconds": data["seconds"] if counted else 0.0, "input_tokens": read,
        "cached_tokens": cached, "cache_write_tokens": written, "output_tokens": output,
    }  # fmt: skip
