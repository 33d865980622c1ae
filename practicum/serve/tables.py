"""The tables of the service: what was asked and answered in each space, what was reported about it, what follows.

What a space learned is in a run folder of its own. `run_id` is the name of the space.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Column, Float, Index, Integer, MetaData, Table

from practicum.store.dialects import NAME, TEXT

FORMAT = 2
"""Counted in SQLite's `user_version`; another practicum may write another one. 2 has `spaces` and `sessions` more."""

metadata = MetaData()


def _table(name: str, *items: Column[Any] | Index) -> Table:
    return Table(name, metadata, Column("run_id", NAME, primary_key=True), *items)


interactions = _table(
    "interactions",
    Column("id", NAME, primary_key=True),  # in the order of asking
    Column("at", Float, nullable=False),  # seconds since 1970
    Column("session", NAME),
    Column("user", NAME),
    Column("response", NAME),  # the id that the upstream gave its response
    Column("version", Integer, nullable=False),  # that was shown
    Column("rollout", Integer),  # the rollout whose candidate or control it was, if one was under way
    Column("kind", Integer),  # of the request, during a rollout
    Column("data", TEXT, nullable=False),  # JSON: query, steps, answer, what was shown, usage, status
    Index("interactions_by_session", "run_id", "session", "id"),
    Index("interactions_by_response", "run_id", "response", "id"),
    Index("interactions_by_rollout", "run_id", "rollout", "id"),
    Index("interactions_by_user", "run_id", "user", "id"),
)

outcomes = _table(
    "outcomes",
    Column("id", NAME, primary_key=True),  # of the interaction; of a session's last one
    Column("at", Float, nullable=False),  # of the first report, then of the first score; no two of a space are equal
    Column("revision", Integer, nullable=False),  # grows with each report that changed something
    Column("score", Float),
    Column("trust", NAME, nullable=False),  # own or user: whose word is learned from
    Column("state", NAME, nullable=False),  # waiting, held out, learned, nothing (there is nothing to learn)
    Column("data", TEXT, nullable=False),  # JSON: what the operator and what users said, session, the last reports
    Index("outcomes_by_state", "run_id", "state", "id"),
    Index("outcomes_by_time", "run_id", "at"),
)

credits = _table(
    "credits",
    Column("item", NAME, primary_key=True),  # the id of an entry that was looked up, or "version 7"
    Column("scored", Integer, nullable=False),  # interactions with a score that were shown it
    Column("total", Float, nullable=False),  # the sum of these scores
)

corrections = _table(
    "corrections",
    Column("number", Integer, primary_key=True),  # counted in the space
    Column("interaction", NAME, nullable=False),
    Column("state", NAME, nullable=False),  # live, waiting, replaced, rejected
    Column("data", TEXT, nullable=False),  # JSON: query, target, words, trust, at, reason
    Index("corrections_by_state", "run_id", "state", "number"),
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
    Column("kind", NAME, nullable=False),  # outcomes, inputs, retrieval, rollout, learning
    Column("text", TEXT, nullable=False),
)

spaces = _table(
    "spaces",
    Column("corrected", Integer, nullable=False),  # changes of what corrections hold
)

sessions = _table(
    "sessions",
    Column("session", NAME, primary_key=True),
    Column("version", Integer, nullable=False),  # that it sees on all nodes
    Column("at", Float, nullable=False),  # when a node asked last
    Index("sessions_by_time", "at"),
)
