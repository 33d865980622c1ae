"""What pages read: sums by the hour, and rows by their indexes. Nothing here reads all interactions.

All functions are called in threads.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, func, select

from practicum.core.types import Usage
from practicum.models.prices import Pricing, address_price
from practicum.serve.service import Service
from practicum.session.rollout import CANARY
from practicum.store import schema
from practicum.store.database import Store
from practicum.store.names import LIVE
from practicum.store.reviews import PENDING
from practicum.store.sums import HOUR, SUMS

ID = re.compile(r"\b(i[0-9a-f]{13}-[0-9a-f]{12})(?:\.(\d+))?\b")
"""The id of an interaction and the revision of its outcome, as what was learned from it names them."""

SPACES = 25
"""Spaces on a page."""

ROWS = 50
"""Rows on a page."""

SEARCHED = 5_000
"""Interactions that a page looks through for those that a filter lets pass."""

TIMED = 1_000
"""The newest interactions, whose times are shown as percentiles."""

RANGES = {1: 1, 7: 6, 30: 24, 90: 24, 365: 168}
"""Days that a page shows, and the hours that it adds up for a point."""

WRONG = 0.5
"""Answers with a score below this are wrong."""


# Spaces


def space_rows(service: Service, wanted: str, page: int, only: str) -> tuple[list[dict[str, Any]], int]:
    """A page of the spaces whose name has these letters, and how many there are; `only` is the one a key is for."""
    database, since = service.database, int(time.time() // HOUR) - 24
    names = [only] if only else [name for name in database.names() if wanted in name.casefold()]
    shown = names[(page - 1) * SPACES : page * SPACES]
    h, v, r, a = schema.hours, schema.reviews, schema.rollouts, schema.alarms
    ids = {row.name: row.space for row in database.rows(database.named_as(shown))}
    of = partial(database.of_spaces, spaces=[*ids.values()])
    day = of(h, columns=(func.sum(h.c.requests), func.sum(h.c.scored), func.sum(h.c.total)))
    by_id = {row[0]: row[1:] for row in database.rows(day.where(h.c.hour > since).group_by(h.c.space))}
    counted = of(v, columns=(func.count(),)).where(v.c.state == PENDING).group_by(v.c.space)
    waits = Counter[str](dict(map(tuple, database.rows(counted))))
    tried = {row.space: row.version for row in database.rows(of(r, columns=(r.c.version,)).where(r.c.state == CANARY))}
    last = of(a, columns=(func.max(a.c.number).label("number"),)).group_by(a.c.space).subquery()
    newest = of(a, columns=(a,)).join(last, (a.c.space == last.c.space) & (a.c.number == last.c.number))
    alarms = {row.space: row for row in database.rows(newest)}
    named = schema.names
    live = dict(map(tuple, database.rows(of(named, columns=(named.c.version,)).where(named.c.name == LIVE))))
    rows = []
    for name in shown:
        id = ids.get(name, "")
        requests, scored, total = by_id.get(id, (0, 0, 0.0))
        rows.append({
            "name": name, "live": live.get(id), "requests": int(requests), "scored": int(scored),
            "mean": float(total) / int(scored) if scored else None, "waits": waits[id],
            "canary": tried.get(id), "alarm": alarms.get(id),
        })  # fmt: skip
    return rows, len(names)


# Sums


@dataclass
class Sums:
    """Sums over some time. `usd` is None if there is no price for some of the tokens."""

    requests: int = 0
    failed: int = 0
    seconds: float = 0.0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    scored: int = 0
    total: float = 0.0
    usd: float | None = 0.0

    def add(self, row: Any, price: Pricing) -> None:
        """Count a row of `hours`, of one model."""
        for name in SUMS:
            # PostgreSQL sums large integers as decimals.
            setattr(self, name, getattr(self, name) + type(getattr(self, name))(getattr(row, name) or 0))
        tokens = [int(row.input_tokens or 0), int(row.cached_tokens or 0), int(row.output_tokens or 0)]
        cost = price(Usage(0, *tokens))
        unknown = cost is None and any(tokens)
        self.usd = None if unknown or self.usd is None else self.usd + (cost or 0.0)

    @property
    def mean(self) -> float | None:
        """The mean score."""
        return self.total / self.scored if self.scored else None

    @property
    def latency(self) -> float | None:
        """Seconds a request."""
        return self.seconds / self.requests if self.requests else None

    @property
    def cached(self) -> float | None:
        """The share of the input that was cached."""
        return self.cached_tokens / self.input_tokens if self.input_tokens else None


@dataclass
class Course:
    """How a space did in the last `days`: points of `step` hours, from the hour `first`, and the same by model."""

    days: int
    step: int
    first: int
    points: list[Sums]
    models: dict[str, list[Sums]] = field(default_factory=dict)

    @property
    def whole(self) -> Sums:
        return _sum(self.points)

    @property
    def by_model(self) -> dict[str, Sums]:
        """The sums by model, the most requests first."""
        sums = {model: _sum(points) for model, points in self.models.items()}
        return dict(sorted(sums.items(), key=lambda pair: -pair[1].requests))

    def place(self, at: float) -> float | None:
        """Where a time is, from the left, in percent; None if it is not within these days."""
        share = (at / HOUR - self.first) / (len(self.points) * self.step)
        return round(100 * share, 2) if 0 <= share <= 1 else None

    def began(self, number: int) -> float:
        """The time at which a point begins."""
        return (self.first + number * self.step) * HOUR


def _sum(points: Iterable[Sums]) -> Sums:
    whole = Sums()
    for point in points:
        for name in SUMS:
            setattr(whole, name, getattr(whole, name) + getattr(point, name))
        whole.usd = None if whole.usd is None or point.usd is None else whole.usd + point.usd
    return whole


def course(service: Service, store: Store, days: int) -> Course:
    """How a space did in the last days."""
    h, step = schema.hours, RANGES[days]
    last = int(time.time() // HOUR) // step
    number = 24 * days // step
    first = (last - number + 1) * step
    prices: dict[str, Pricing] = {}
    made = Course(days, step, first, [Sums() for _ in range(number)])
    mine = h.c.hour >= first
    bucket = (h.c.hour // step).label("bucket")
    sums = [func.sum(h.c[column]).label(column) for column in SUMS]
    for row in store.rows(store.select(bucket, h.c.model, *sums).where(mine).group_by(bucket, h.c.model)):
        price = prices.setdefault(row.model, price_of(service, row.model))
        # A clock may have been set back.
        at = min(row.bucket - first // step, number - 1)
        made.points[at].add(row, price)
        points = made.models.setdefault(row.model, [Sums() for _ in range(number)])
        points[at].add(row, price)
    return made


def first_shown(store: Store) -> dict[int, float]:
    """The hour in which each version was first shown, of those that were live without a rollout."""
    h, r = schema.hours, schema.rollouts
    rolled_out = store.select(r.c.version)
    mine = (h.c.requests > 0) & h.c.version.not_in(rolled_out)
    hours = store.select(h.c.version, func.min(h.c.hour)).where(mine)
    return {version: hour * HOUR for version, hour in store.rows(hours.group_by(h.c.version))}


def price_of(service: Service, model: str) -> Pricing:
    """What a model costs at the upstream; a model on this machine is free."""
    upstream = service.upstream
    if upstream is None or upstream.small:
        return lambda usage: 0.0
    return address_price(model, upstream.address)


class _Timed(msgspec.Struct):
    seconds: float = 0.0
    purpose: str | None = None


def latencies(store: Store) -> tuple[float | None, float | None]:
    """The median and the 99th percentile of the times of the newest requests, in seconds."""
    i = schema.interactions
    rows = store.rows(store.select(i.c.data).order_by(i.c.number.desc()).limit(TIMED))
    timed = [msgspec.json.decode(row.data, type=_Timed) for row in rows]
    found = sorted(one.seconds for one in timed if one.purpose is None)
    if not found:
        return None, None
    return found[len(found) // 2], found[min(int(0.99 * len(found)), len(found) - 1)]


# Rows


def rollouts(store: Store, most: int = 20) -> list[dict[str, Any]]:
    """The last rollouts of a space."""
    r = schema.rollouts
    rows = store.rows(store.select(r).order_by(r.c.number.desc()).limit(most))
    return [
        {**json.loads(row.data), "number": row.number, "version": row.version, "base": row.base, "state": row.state}
        for row in rows
    ]


def alarms(store: Store, before: int | None, most: int = ROWS) -> Sequence[Any]:
    """The alarms of a space before a number, the newest first."""
    a = schema.alarms
    query = store.select(a).where(*([] if before is None else [a.c.number < before]))
    return store.rows(query.order_by(a.c.number.desc()).limit(most))


def credits(store: Store, items: Iterable[str]) -> dict[str, Any]:
    """How requests went that were shown these entries."""
    c = schema.credits
    rows = store.rows(store.select(c).where(c.c.item.in_([*items])))
    return {row.item: {"scored": row.scored, "mean": row.total / max(row.scored, 1)} for row in rows}


FILTERS = ("all", "open", "wrong")
"""Which interactions are listed: all, those without an outcome, or those that went wrong."""


@dataclass(frozen=True)
class Listed:
    """Interactions of a page, the newest first, and the number before which the next page begins; None for the last
    one. `searched` is how many were looked through for them, if not all those before were."""

    rows: list[dict[str, Any]]
    before: int | None
    searched: int | None = None


def interactions(
    store: Store, which: str = "all", user: str = "", session: str = "", before: int | None = None
) -> Listed:  # fmt: skip
    """Interactions of a space, the newest first."""
    i, o = schema.interactions, schema.outcomes
    mine: list[ColumnElement[bool]] = [] if before is None else [i.c.number < before]
    if user:
        mine.append(i.c.user == user)
    if session:
        mine.append(i.c.session == session)
    if which == "all":
        found = store.rows(store.select(i.c.id, i.c.number).where(*mine).order_by(i.c.number.desc()).limit(ROWS + 1))
        return Listed(_lines(store, found[:ROWS]), found[ROWS - 1].number if len(found) > ROWS else None)
    # So many are looked through, however few of them are wanted.
    near = store.select(i.c.id, i.c.number).where(*mine).order_by(i.c.number.desc()).limit(SEARCHED).subquery()
    both = select(near.c.id, near.c.number, o.c.score).outerjoin(o, store.mine(o, o.c.id == near.c.id))
    rows = store.rows(both.order_by(near.c.number.desc()))
    wanted = [row for row in rows if (row.score is None if which == "open" else (row.score or 0.0) < WRONG
                                      and row.score is not None)]  # fmt: skip
    if len(wanted) > ROWS:
        return Listed(_lines(store, wanted[:ROWS]), wanted[ROWS - 1].number)
    end = rows[-1].number if len(rows) == SEARCHED else None
    return Listed(_lines(store, wanted), end, None if end is None else SEARCHED)


def _lines(store: Store, found: Sequence[Any]) -> list[dict[str, Any]]:
    i, o, ids = schema.interactions, schema.outcomes, [row.id for row in found]
    scores = {row.id: row.score for row in store.rows(store.select(o.c.id, o.c.score).where(o.c.id.in_(ids)))}
    rows = {row.id: row for row in store.rows(store.select(i).where(i.c.id.in_(ids)))}
    return [{**_interaction(rows[id]), "score": scores.get(id)} for id in ids if id in rows]


def interaction(store: Store, id: str) -> dict[str, Any] | None:
    """An interaction with what came of it; None if there is none of this id."""
    i, o = schema.interactions, schema.outcomes
    rows = store.rows(store.select(i).where(i.c.id == id))
    if not rows:
        return None
    outcomes = store.rows(store.select(o).where(o.c.id == id))
    return {**_interaction(rows[0]), "outcome": _outcome(outcomes[0]) if outcomes else None}


def interactions_at(store: Store, ids: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Interactions by their ids."""
    i = schema.interactions
    rows = store.rows(store.select(i).where(i.c.id.in_([*ids])))
    return {row.id: _interaction(row) for row in rows}


def _interaction(row: Any) -> dict[str, Any]:
    columns = ("id", "at", "session", "user", "version", "rollout")
    return {**json.loads(row.data), **{column: getattr(row, column) for column in columns}}


def _outcome(row: Any) -> dict[str, Any]:
    return {
        **json.loads(row.data), "score": row.score, "trust": row.trust, "state": row.state, "revision": row.revision,
    }  # fmt: skip


def said(report: Mapping[str, Any]) -> dict[str, Any]:
    """What a report says."""
    return {name: value for name, value in report.items() if name not in ("at", "trust")}
