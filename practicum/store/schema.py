"""Tables of a store. The column `space` has the id of the space that a row belongs to, or an empty text if the row
belongs to the whole store. Ids of spaces are never reused."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import partial
from typing import Any

from sqlalchemy import BigInteger, Column, Float, Identity, Index, Integer, LargeBinary, MetaData, Table

from practicum.store.dialects import NAME, TEXT, next_interaction
from practicum.store.migrations import StoreFormat

metadata = MetaData()

FORMAT = StoreFormat(0x70537032, partial(metadata.create_all, checkfirst=False))
"""Format of a store: of a SQLite file, and of the tables on a server."""

IN_FLIGHT = "in flight"
"""Role of the journal rows of calls that were in flight when their process was killed."""

BATCH = "batch "
"""Beginning of the places of the notes about batches that were sent to a provider, before the id of the batch."""

FORGETTING, FORGOTTEN = "forgetting", "forgotten"
"""States of a run with removed content: `forgetting` while only the rows are removed, `forgotten` when the bytes of the
rows are also removed from all files."""

USAGE = ("calls", "input_tokens", "cached_tokens", "output_tokens", "usd", "cache_write_tokens")
"""Columns of the journal that are fields of `Usage`, in the order of the fields."""


def _table(name: str, *items: Column[Any] | Index, **options: Any) -> Table:
    return Table(name, metadata, Column("space", NAME, primary_key=True), *items, **options)


def _in_order(name: str) -> Index:
    """Return an index on the column `space`. In SQLite every index ends with the row numbers, so this index gives the
    rows of a space in the order of writing."""
    return Index(f"{name}_in_order", "space")


def _required(kind: Any, *names: str) -> Iterator[Column[Any]]:
    return (Column(name, kind, nullable=False) for name in names)


spaces = _table(
    "spaces",
    *_required(NAME, "name"),
    *_required(NAME, "state"),  # `reserved` while only the name and the keys of the space exist, then `live`
    *_required(BigInteger, "token"),  # increases with each process that takes the lease (see `Lease.token`)
    *_required(BigInteger, "rewritten"),  # increases each time rows are permanently removed
    # Set to the highest value of all spaces plus one when the content that the space shows changes.
    *_required(BigInteger, "changed"),
    Column("config", TEXT),  # complete configuration of learning as JSON, enough to resume
    Column("mark", TEXT),  # mark of the installation that wrote `config`; empty if `config` is not trusted
    Column("learning", NAME),  # state of learning: running, stopped, done, forgetting, forgotten, ...
    Column("seconds", Float),  # spent on learning, over all resumes
    Column("result", TEXT),  # last report as JSON; None until learning has ended once
    *_required(Integer, "numbered"),  # highest number that a correction or a note ever had
    Index("spaces_by_name", "name", unique=True),
    Index("spaces_by_change", "changed"),
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
    *_required(Integer, "calls", "input_tokens", "cached_tokens", "cache_write_tokens", "output_tokens"),
    Column("usd", Float),
    *_required(Float, "seconds"),
    *_required(TEXT, "sources"),  # JSON list of the tasks, attempts and tags that the effect is about, for `forget`
    _in_order("journal"),
)

steps = _table(
    "steps",
    Column("step", Integer, primary_key=True),
    *_required(TEXT, "data"),  # measured values of the step as JSON
    *_required(TEXT, "refused"),  # JSON list of edits that could not be applied, with reasons
    _in_order("steps"),
)

attempts = _table(
    "attempts",
    Column("place", NAME, primary_key=True),
    *_required(Integer, "step"),  # 0 for an attempt of an evaluation
    *_required(TEXT, "sources", "data"),
    Index("attempts_by_step", "space", "step"),
    _in_order("attempts"),
)

lessons = _table(
    "lessons",
    Column("lesson_id", NAME, primary_key=True),
    *_required(Integer, "step"),
    *_required(TEXT, "sources", "data"),
    Index("lessons_by_step", "space", "step"),
    _in_order("lessons"),
)


def _versions(name: str) -> Table:
    """Return a table of versions. Each row has the edits that change the parent version into this version."""
    return _table(
        name,
        Column("version", Integer, primary_key=True),
        Column("parent", Integer),  # None for the first version; for a rollback, the version that it restored
        *_required(Integer, "step", "next_number"),
        *_required(TEXT, "applied"),  # JSON list of the edits, with the ids of the edited entries
        Index(f"{name}_by_step", "space", "step"),
    )


versions = _versions("versions")

corrections = _versions("corrections")
"""Versions of corrections and notes (see `session.corrections`)."""

snapshots = _table(
    "snapshots",
    *_required(Integer, "version"),  # version of the context in `entries`
    *_required(Integer, "next_number", "size"),
    *_required(Integer, "indexed"),  # number of vectors in the index of this context, 0 without an index
)

entries = _table(
    "entries",
    Column("number", Integer, primary_key=True),
    *_required(BigInteger, "hash"),  # `text_hash` of the entry's embedded text
    *_required(TEXT, "data"),  # the rest of the entry as a JSON list
    Index("entries_by_hash", "hash"),
    sqlite_with_rowid=False,
)

prompts = _table(
    "prompts",
    Column("place", NAME, primary_key=True),  # place of the journal row
    *_required(TEXT, "parts"),  # JSON: the keys of the prompt's texts {"system", "pages", "turns", "user"}
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

reviews = _table(
    "reviews",
    Column("id", NAME, primary_key=True),  # step and number, such as "3.1"; for a correction or a note, such as "c7"
    *_required(Integer, "step"),
    *_required(NAME, "state"),  # pending, approved, rejected
    *_required(TEXT, "data"),  # JSON: the edits, the reasons for a review, and evidence
    *_required(TEXT, "reason"),  # reason for the decision
    Index("reviews_by_step", "space", "step"),
)

interactions = _table(
    "interactions",
    Column("id", NAME, primary_key=True),
    # The order of writing. Clocks cannot give this order: they may go back, and differ between nodes.
    Column("number", BigInteger, Identity(), default=next_interaction()),
    Column("at", Float, nullable=False),  # seconds since 1970, by the clock of the node
    Column("session", NAME),
    Column("user", NAME),
    Column("response", NAME),  # id of the response, as the upstream gave it
    Column("version", Integer, nullable=False),  # version that was shown
    Column("rollout", Integer),  # number of the rollout whose candidate or control version was shown, or None
    Column("kind", Integer),  # kind of the request (a cluster of similar requests), only during a rollout
    Column("data", TEXT, nullable=False),  # JSON: query, steps, answer, shown entries, usage, status, purpose
    Index("interactions_by_number", "number"),
    Index("interactions_by_space", "space", "number"),
    Index("interactions_by_time", "space", "at", "number"),
    Index("interactions_by_session", "space", "session", "number"),
    Index("interactions_by_response", "space", "response", "number"),
    Index("interactions_by_rollout", "space", "rollout", "number"),
    Index("interactions_by_user", "space", "user", "number"),
)

outcomes = _table(
    "outcomes",
    # id of the interaction; for a report on a session, id of the last interaction of the session
    Column("id", NAME, primary_key=True),
    Column("at", Float, nullable=False),  # time of the first report; once there is a score, time of the first score
    Column("number", BigInteger),  # position in the order in which the values of `at` were set in the space
    Column("revision", Integer, nullable=False),  # increases with each report that changes the outcome
    Column("score", Float),
    Column("trust", NAME, nullable=False),  # trust level of the reports that learning uses: own or user
    Column("state", NAME, nullable=False),  # waiting, held out, learned, nothing (no data to learn from)
    Column("data", TEXT, nullable=False),  # JSON: reports of the operator and of users, session, last reports
    Index("outcomes_by_state", "space", "state", "id"),
    Index("outcomes_by_number", "space", "number"),
    Index("outcomes_by_score", "space", "score", "at"),
)

credits = _table(
    "credits",
    Column("item", NAME, primary_key=True),  # id of a retrieved entry, or "version 7"
    Column("scored", Integer, nullable=False),  # number of scored interactions in which the item was shown
    Column("total", Float, nullable=False),  # sum of the scores of these interactions
)

rollouts = _table(
    "rollouts",
    Column("number", Integer, primary_key=True),
    Column("version", Integer, nullable=False),  # the candidate
    Column("base", Integer, nullable=False),  # version that was live when the rollout began
    Column("state", NAME, nullable=False),  # canary, promoted, dropped (by the gate), taken back
    Column("data", TEXT, nullable=False),  # JSON: share, length, times, evidence, reason, centroids of the kinds
)

days = _table(
    "days",
    Column("day", NAME, primary_key=True),
    Column("calls", Integer, nullable=False),  # total calls of learning in the space before this day
    Column("usd", Float, nullable=False),  # total cost of learning in the space before this day
)

alarms = _table(
    "alarms",
    Column("number", Integer, primary_key=True),
    Column("at", Float, nullable=False),
    Column("kind", NAME, nullable=False),  # outcomes, inputs, retrieval, rollout, learning, store, review, erasure
    Column("text", TEXT, nullable=False),
)

sessions = _table(
    "sessions",
    Column("session", NAME, primary_key=True),
    Column("version", Integer, nullable=False),  # version that the session sees on all nodes
    Column("at", Float, nullable=False),  # time when a node last asked for the version
    Index("sessions_by_time", "at"),
)

hours = _table(
    "hours",
    Column("hour", Integer, primary_key=True),  # since 1970
    Column("version", Integer, primary_key=True),
    Column("model", NAME, primary_key=True),  # a known model, or `other` (see `upstream.Upstream.counted`)
    # Requests of users that began in this hour, and interactions with a `purpose` that got their first report in this
    # hour.
    Column("requests", Integer, nullable=False),
    Column("failed", Integer, nullable=False),  # requests with a status of 400 and more
    Column("seconds", Float, nullable=False),  # total time from the requests to the end of their answers
    Column("input_tokens", BigInteger, nullable=False),
    Column("cached_tokens", BigInteger, nullable=False),
    Column("cache_write_tokens", BigInteger, nullable=False),
    Column("output_tokens", BigInteger, nullable=False),
    Column("scored", Integer, nullable=False),  # interactions that got their first score in this hour
    Column("total", Float, nullable=False),  # sum of the current scores of these interactions
    Index("hours_by_hour", "hour"),
)
"""Sums for pages and measurements, so that pages and measurements need not read a million interactions."""

keys = _table(  # `space` is the id of the only space that a key is valid for; empty: the key is valid for all spaces
    "keys",
    Column("name", NAME, primary_key=True),
    Column("digest", NAME, nullable=False),  # SHA-256 of the key, in hexadecimal digits
    Column("roles", NAME, nullable=False),  # separated by commas
    Column("made", Float, nullable=False),
    Column("expires", Float),
    Column("per_minute", Integer),  # requests per minute; None: the limit of the service
)

logins = _table(  # `space` is empty: the key of a login determines the spaces that the user may use
    "logins",
    Column("token", NAME, primary_key=True),  # SHA-256 of the cookie, in hexadecimal digits
    Column("digest", NAME, nullable=False),  # SHA-256 of the key with which the user logged in
    Column("expires", Float, nullable=False),
)

erasures = _table(
    "erasures",
    Column("number", Integer, primary_key=True),  # number within the space
    # `removed` if the rows of the user are removed, `forgotten` if the learned entries are removed too, then `done`.
    Column("state", NAME, nullable=False),
    Column("user", NAME),  # a keyed digest of the user's name; None when the removal is done
    Column("began", Float, nullable=False),
    Column("ended", Float),
    Column("data", TEXT, nullable=False),  # JSON: counts and the input of the next stages; at the end only counts
)
"""Removals of users' data. An interrupted removal is completed from its row."""

vectors = _table(
    "vectors",
    Column("embedder", NAME, primary_key=True),
    Column("key", LargeBinary, primary_key=True),  # `text_key` of the text
    *_required(LargeBinary, "vector"),  # float32
)


NUMBERED = (journal, steps, attempts, lessons)
"""Tables whose rows are read in the order of writing, also in PostgreSQL."""

_SQL = 'create table unique index on text varchar float integer bigint blob not null primary key without rowid ( ) , "'

WORDS = frozenset(_SQL.split()).union(
    *((table.name, *table.columns.keys()) for table in metadata.tables.values()),
    *((str(index.name) for index in table.indexes) for table in metadata.tables.values()),
)
"""All words and signs of the statements that create these tables and their indexes."""


def text_key(text: str) -> bytes:
    """Return the key of a text and of its vector: 16 bytes of the SHA-256 of the text."""
    return hashlib.sha256(text.encode()).digest()[:16]


def text_hash(text: str) -> int:
    """Return the key of a text in an index: 63 bits. For a million texts, the probability of a collision is 1 in 18
    million."""
    return int.from_bytes(text_key(text)[:8], "big") >> 1
