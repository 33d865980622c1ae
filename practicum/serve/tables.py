"""The tables of the service: what was asked and answered in each space, what was reported about it, what follows.

What a space learned is in a run folder of its own. `space` is the identity of the space (see `identities`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Float,
    Identity,
    Index,
    Integer,
    MetaData,
    Table,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from practicum.store.dialects import NAME, TEXT, insert_adding
from practicum.store.migrations import Format

metadata = MetaData()

FORMAT = Format(0x70537631, metadata.create_all)
"""The format of a service's file."""


class _next_interaction(FunctionElement[int]):
    """The number of an interaction that is inserted: larger than all others in SQLite, the next of PostgreSQL's."""

    type = BigInteger()
    inherit_cache = True


@compiles(_next_interaction)
def _(element: _next_interaction, compiler: Any, **how: Any) -> str:
    return "(SELECT coalesce(max(number), 0) + 1 FROM interactions)"


@compiles(_next_interaction, "postgresql")
def _(element: _next_interaction, compiler: Any, **how: Any) -> str:
    return "DEFAULT"


def _table(name: str, *items: Column[Any] | Index) -> Table:
    return Table(name, metadata, Column("space", NAME, primary_key=True), *items)


interactions = _table(
    "interactions",
    Column("id", NAME, primary_key=True),
    # The order of writing. No clock decides what came last: clocks go back, and those of nodes differ.
    Column("number", BigInteger, Identity(), default=_next_interaction()),
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

corrections = _table(
    "corrections",
    Column("number", Integer, primary_key=True),  # counted in the space, and never given twice
    Column("interaction", NAME, nullable=False),  # of a note: see `note_by`
    Column("state", NAME, nullable=False),  # live, waiting, replaced, rejected
    Column("data", TEXT, nullable=False),  # JSON: query, target, words, trust, note
    Index("corrections_by_state", "space", "state", "number"),
    Index("corrections_by_interaction", "space", "interaction"),
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

spaces = Table(
    "spaces",
    metadata,
    Column("name", NAME, primary_key=True),
    Column("space", NAME, nullable=False),  # its identity, random
    Column("state", NAME, nullable=False),  # reserved, making, live, deleted (see `identities`)
    Column("corrected", Integer, nullable=False),  # changes of what corrections hold
    Column("numbered", Integer, nullable=False),  # the last number of a correction or a note, removed or not
    Index("spaces_by_identity", "space"),
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

SUMS = ("requests", "failed", "seconds", "input_tokens", "cached_tokens", "output_tokens", "scored", "total")
"""The columns of `hours` that are added up."""

HOUR = 3_600.0

LONGEST_NAME = 200
"""Characters of a name from outside, such as that of a model, that are in an index: PostgreSQL takes no long ones."""


def note_by(user: str | None) -> str:
    """What a note has as its interaction: it is about none, and may be a user's."""
    return "" if user is None else f"user:{user}"


def count_later(db: Connection, added: Mapping[str, Any]) -> None:
    """Let a transaction of the log add numbers to `hours` at its end. All nodes add theirs there in the same order, so
    that none waits for another in a circle."""
    db.info.setdefault("hours", []).append(added)


def add_to_hours(db: Connection, added: Iterable[Mapping[str, Any]]) -> None:
    """Add numbers to rows of `hours`. Each has space, version, model, when it was (`at`, in seconds), and numbers."""
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
        "space": row["space"], "at": row["at"], "version": row["version"], "model": data["counted"],
        "requests": int(counted), "failed": int(counted and data["status"] >= 400),
        "seconds": data["seconds"] if counted else 0.0, "input_tokens": read,
        "cached_tokens": cached, "output_tokens": written,
    }  # fmt: skip
