"""The tables of a run. All carry `space`, since a PostgreSQL database holds many runs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import partial
from typing import Any

from sqlalchemy import BigInteger, Column, Float, Index, Integer, LargeBinary, MetaData, Table

from practicum.store.dialects import NAME, TEXT
from practicum.store.migrations import Format

metadata = MetaData()

FORMAT = Format(0x70526E31, partial(metadata.create_all, checkfirst=False))
"""The format of a run in a file of its own."""

IN_FLIGHT = "in flight"
"""The role, in the journal, of calls that were in flight when their process was killed."""

FORGETTING, FORGOTTEN = "forgetting", "forgotten"
"""States of a run from which something was removed: its rows alone, or its bytes in all files, too."""

USAGE = ("calls", "input_tokens", "cached_tokens", "output_tokens", "usd")
"""The columns of the journal that are fields of `Usage`."""


def _table(name: str, *items: Column[Any] | Index, **options: Any) -> Table:
    return Table(name, metadata, Column("space", NAME, primary_key=True), *items, **options)


def _in_order(name: str) -> Index:
    """The index by which SQLite reads the rows of a space in the order of writing, since it ends with their numbers."""
    return Index(f"{name}_in_order", "space")


def _required(kind: Any, *names: str) -> Iterator[Column[Any]]:
    return (Column(name, kind, nullable=False) for name in names)


runs = _table(
    "runs",
    *_required(TEXT, "config"),  # the whole configuration as JSON, enough to resume from
    *_required(NAME, "state"),  # running, stopped, done, forgetting, forgotten, ...
    *_required(Float, "seconds"),  # spent over all resumes
    *_required(TEXT, "mark"),  # of the installation that wrote `config`; empty for that of a stranger
    Column("result", TEXT),  # the last report as JSON; None until the run ended once
)

tasks = _table(
    "tasks",
    Column("split", NAME, primary_key=True),  # train, val, test
    Column("position", Integer, primary_key=True),
    *_required(NAME, "task_id"),
    *_required(TEXT, "data"),  # the task as JSON
    Index("tasks_by_id", "space", "task_id"),
)

journal = _table(
    "journal",
    Column("place", NAME, primary_key=True),
    *_required(NAME, "role", "digest"),
    *_required(Integer, "ok"),
    *_required(TEXT, "answer"),
    *_required(Integer, "calls", "input_tokens", "cached_tokens", "output_tokens"),
    Column("usd", Float),
    *_required(Float, "seconds"),
    *_required(TEXT, "sources"),  # JSON list of the tasks, rollouts and tags it is about, for unlearning
    _in_order("journal"),
)

steps = _table(
    "steps",
    Column("step", Integer, primary_key=True),
    *_required(TEXT, "data"),  # numbers of the step as JSON
    *_required(TEXT, "refused"),  # JSON list of edits that could not be applied, with reasons
    _in_order("steps"),
)

rollouts = _table(
    "rollouts",
    Column("place", NAME, primary_key=True),
    *_required(Integer, "step"),  # 0 for an attempt of an evaluation
    *_required(TEXT, "sources", "data"),
    Index("rollouts_by_step", "space", "step"),
    _in_order("rollouts"),
)

lessons = _table(
    "lessons",
    Column("lesson_id", NAME, primary_key=True),
    *_required(Integer, "step"),
    *_required(TEXT, "sources", "data"),
    Index("lessons_by_step", "space", "step"),
    _in_order("lessons"),
)

versions = _table(
    "versions",
    Column("version", Integer, primary_key=True),
    Column("parent", Integer),  # None for the first; a rollback's parent is the version it went back to
    *_required(Integer, "step", "next_number"),
    *_required(TEXT, "applied"),  # JSON list of edits with the ids they got
    Index("versions_by_step", "space", "step"),
)

snapshots = _table(
    "snapshots",
    *_required(Integer, "version"),  # of the context that `entries` holds
    *_required(Integer, "next_number", "size"),
    *_required(Integer, "indexed"),  # vectors in the index of this context, 0 without an index
)

entries = _table(
    "entries",
    Column("number", Integer, primary_key=True),
    *_required(BigInteger, "hash"),  # of the text that its embedding is made from
    *_required(TEXT, "data"),  # the rest of the entry as a JSON list
    Index("entries_by_hash", "hash"),
    sqlite_with_rowid=False,
)

prompts = _table(
    "prompts",
    Column("place", NAME, primary_key=True),  # that of the journal's row
    *_required(TEXT, "parts"),  # JSON: the keys of its texts {"system", "pages", "turns", "user"}
)

texts = _table(
    "texts",
    Column("key", LargeBinary, primary_key=True),  # `text_key` of the text
    *_required(TEXT, "text"),
)

names = _table(
    "names",
    Column("name", NAME, primary_key=True),  # of a version, such as "prod"
    *_required(Integer, "version"),
)

outcomes = _table(
    "outcomes",
    Column("id", NAME, primary_key=True),  # of what the agent was shown
    *_required(TEXT, "data"),  # JSON: the query, what was shown, and what was reported about it
    Column("step", Integer),  # the step that learned from it; None as long as none did
    _in_order("outcomes"),
)

reviews = _table(
    "reviews",
    Column("id", NAME, primary_key=True),  # step and number, such as "3.1"
    *_required(Integer, "step"),
    *_required(NAME, "state"),  # pending, approved, rejected
    *_required(TEXT, "data"),  # JSON: the edits that wait for review, why they wait, and what is known of them
    *_required(TEXT, "reason"),  # of the decision
    Index("reviews_by_step", "space", "step"),
)

vectors = _table(
    "vectors",
    Column("embedder", NAME, primary_key=True),
    Column("key", LargeBinary, primary_key=True),  # `text_key` of the text
    *_required(LargeBinary, "vector"),  # float32
)


NUMBERED = (journal, steps, rollouts, lessons, outcomes)
"""The tables whose rows are read in the order of writing, in PostgreSQL too."""

_SQL = 'create table index on text varchar float integer bigint blob not null primary key without rowid ( ) , "'

WORDS = frozenset(_SQL.split()).union(
    *((table.name, *table.columns.keys()) for table in metadata.tables.values()),
    *((str(index.name) for index in table.indexes) for table in metadata.tables.values()),
)
"""All words and signs of the statements that make these tables and their indexes."""


def text_key(text: str) -> bytes:
    """The key of a text's vector: 16 bytes of its SHA-256."""
    return hashlib.sha256(text.encode()).digest()[:16]


def text_hash(text: str) -> int:
    """The key of a text in an index: 63 bits. The odds that two of a million texts share one are 1 to 18 million."""
    return int.from_bytes(text_key(text)[:8], "big") >> 1
