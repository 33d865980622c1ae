"""The tables of a store. `space` is the id of the space that a row is of, which is never given again; empty in rows
that are of no space."""

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
"""The format of a file, and of the tables in a database."""

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


spaces = _table(
    "spaces",
    *_required(NAME, "name"),
    *_required(NAME, "state"),  # reserved: nothing but its name and its keys is there; live
    *_required(BigInteger, "token"),  # goes up each time somebody begins to write (see `lease`)
    *_required(BigInteger, "rewritten"),  # goes up each time rows were removed for good
    *_required(BigInteger, "changed"),  # larger than all others after a change of what it shows
    Column("config", TEXT),  # how it learns: the whole configuration as JSON, enough to resume from
    Column("mark", TEXT),  # of the installation that wrote `config`; empty for that of a stranger
    Column("learning", NAME),  # running, stopped, done, forgetting, forgotten, ...
    Column("seconds", Float),  # spent on learning, over all resumes
    Column("result", TEXT),  # the last report as JSON; None until learning ended once
    *_required(Integer, "numbered"),  # the last number of a correction or a note, removed or not
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
    *_required(Integer, "calls", "input_tokens", "cached_tokens", "output_tokens"),
    Column("usd", Float),
    *_required(Float, "seconds"),
    *_required(TEXT, "sources"),  # JSON list of the tasks, attempts and tags it is about, for unlearning
    _in_order("journal"),
)

steps = _table(
    "steps",
    Column("step", Integer, primary_key=True),
    *_required(TEXT, "data"),  # numbers of the step as JSON
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
    """A table of versions: each is the edits that made it from its parent."""
    return _table(
        name,
        Column("version", Integer, primary_key=True),
        Column("parent", Integer),  # None for the first; a rollback's parent is the version it went back to
        *_required(Integer, "step", "next_number"),
        *_required(TEXT, "applied"),  # JSON list of edits with the ids they got
        Index(f"{name}_by_step", "space", "step"),
    )


versions = _versions("versions")

corrections = _versions("corrections")
"""The versions of corrections and notes (see `session.corrections`)."""

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

reviews = _table(
    "reviews",
    Column("id", NAME, primary_key=True),  # step and number, such as "3.1"; of a correction or a note, such as "c7"
    *_required(Integer, "step"),
    *_required(NAME, "state"),  # pending, approved, rejected
    *_required(TEXT, "data"),  # JSON: the edits that wait for review, why they wait, and what is known of them
    *_required(TEXT, "reason"),  # of the decision
    Index("reviews_by_step", "space", "step"),
)

interactions = _table(
    "interactions",
    Column("id", NAME, primary_key=True),
    # The order of writing. No clock decides what came last: clocks go back, and those of nodes differ.
    Column("number", BigInteger, Identity(), default=next_interaction()),
    Column("at", Float, nullable=False),  # seconds since 1970, by the clock of the node
    Column("session", NAME),
    Column("user", NAME),
    Column("response", NAME),  # the id that the upstream gave its response
    Column("version", Integer, nullable=False),  # that was shown
    Column("rollout", Integer),  # the rollout whose candidate or control it was, if one was under way
    Column("kind", Integer),  # of the request, during a rollout
    Column("data", TEXT, nullable=False),  # JSON: query, steps, answer, what was shown, usage, status, purpose
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
    Column("id", NAME, primary_key=True),  # of the interaction; of a session's last one
    Column("at", Float, nullable=False),  # of the first report, then of the first score
    Column("number", BigInteger),  # the order of first reports, then of first scores, counted in the space
    Column("revision", Integer, nullable=False),  # grows with each report that changed something
    Column("score", Float),
    Column("trust", NAME, nullable=False),  # own or user: whose word is learned from
    Column("state", NAME, nullable=False),  # waiting, held out, learned, nothing (there is nothing to learn)
    Column("data", TEXT, nullable=False),  # JSON: what the operator and what users said, session, the last reports
    Index("outcomes_by_state", "space", "state", "id"),
    Index("outcomes_by_number", "space", "number"),
    Index("outcomes_by_score", "space", "score", "at"),
)

credits = _table(
    "credits",
    Column("item", NAME, primary_key=True),  # the id of an entry that was looked up, or "version 7"
    Column("scored", Integer, nullable=False),  # interactions with a score that were shown it
    Column("total", Float, nullable=False),  # the sum of these scores
)

rollouts = _table(
    "rollouts",
    Column("number", Integer, primary_key=True),
    Column("version", Integer, nullable=False),  # the candidate
    Column("base", Integer, nullable=False),  # the version that was live when it began
    Column("state", NAME, nullable=False),  # canary, promoted, dropped (by the gate), taken back
    Column("data", TEXT, nullable=False),  # JSON: share, length, when, evidence, reason, centroids of the kinds
)

days = _table(
    "days",
    Column("day", NAME, primary_key=True),
    Column("calls", Integer, nullable=False),  # that learning had spent in the space when the day began
    Column("usd", Float, nullable=False),
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
    Column("version", Integer, nullable=False),  # that it sees on all nodes
    Column("at", Float, nullable=False),  # when a node asked last
    Index("sessions_by_time", "at"),
)

hours = _table(
    "hours",
    Column("hour", Integer, primary_key=True),  # since 1970
    Column("version", Integer, primary_key=True),
    Column("model", NAME, primary_key=True),  # one that is known, or `other` (see `upstream.Upstream.counted`)
    Column("requests", Integer, nullable=False),  # that began in this hour; of a `purpose`: that got an outcome in it
    Column("failed", Integer, nullable=False),  # of them: with a status of 400 and more
    Column("seconds", Float, nullable=False),  # from a request to the end of its answer, in all
    Column("input_tokens", BigInteger, nullable=False),
    Column("cached_tokens", BigInteger, nullable=False),
    Column("output_tokens", BigInteger, nullable=False),
    Column("scored", Integer, nullable=False),  # interactions whose first score came in this hour
    Column("total", Float, nullable=False),  # the sum of these scores, as they are now
    Index("hours_by_hour", "hour"),
)
"""What pages and measurements add up, so that nobody reads a million interactions."""

keys = _table(  # `space` is the identity of the space that a key is for; empty: all spaces
    "keys",
    Column("name", NAME, primary_key=True),
    Column("digest", NAME, nullable=False),  # SHA-256 of the key, in hexadecimal digits
    Column("roles", NAME, nullable=False),  # separated by commas
    Column("made", Float, nullable=False),
    Column("expires", Float),
    Column("a_minute", Integer),  # requests a minute; None: as the service limits keys
)

logins = _table(  # `space` is empty: who is signed in sees what the key is for
    "logins",
    Column("token", NAME, primary_key=True),  # SHA-256 of the cookie, in hexadecimal digits
    Column("digest", NAME, nullable=False),  # of the key that signed in
    Column("expires", Float, nullable=False),
)

erasures = _table(
    "erasures",
    Column("number", Integer, primary_key=True),  # counted in the space
    Column("state", NAME, nullable=False),  # removed (the rows of the user), forgotten (what was learned, too), done
    Column("user", NAME),  # a keyed digest of the user's name; None once it is done
    Column("began", Float, nullable=False),
    Column("ended", Float),
    Column("data", TEXT, nullable=False),  # JSON: what the next stages need, and counts; in the end counts alone
)
"""The removals of users' data. One that was interrupted is finished from its row."""

vectors = _table(
    "vectors",
    Column("embedder", NAME, primary_key=True),
    Column("key", LargeBinary, primary_key=True),  # `text_key` of the text
    *_required(LargeBinary, "vector"),  # float32
)


NUMBERED = (journal, steps, attempts, lessons)
"""The tables whose rows are read in the order of writing, in PostgreSQL too."""

_SQL = 'create table unique index on text varchar float integer bigint blob not null primary key without rowid ( ) , "'

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
