"""Sums by the hour of what a space was asked and how it was scored, and rows of its service. No function reads all
interactions."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import from_json
from sqlalchemy import func

from practicum.core.types import Usage
from practicum.models.prices import Pricing
from practicum.store import schema
from practicum.store.database import Store
from practicum.store.sums import HOUR, SUMS

TIMED = 1_000
"""The newest interactions, whose times are shown as percentiles."""

RANGES = (1, 7, 30, 90, 365)
"""Days that a page can show."""

STEPS = ((48, 1), (168, 6), (2160, 24), (24 * 365, 168))
"""Hours up to which a page shows points of so many hours."""

PARTS = 4
"""The number of points is a multiple of it, where data fills less than the days, so that an axis can be divided."""

ALARMS = 50
"""Alarms on a page."""


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


def course(store: Store, days: int, price_of: Callable[[str], Pricing]) -> Course:
    """How a space did in the last days, or since its first request in them."""
    h, now = schema.hours, int(time.time() // HOUR)
    begin = now - 24 * days + 1
    ((oldest,),) = store.rows(store.select(func.min(h.c.hour)).where(h.c.hour >= begin))
    oldest = min(begin if oldest is None else int(oldest), now)
    step = next(step for most, step in STEPS if now - oldest < most)
    last = now // step
    number = max(-(-(last - oldest // step + 1) // PARTS), 2) * PARTS
    number = min(number, 24 * days // step)
    first = (last - number + 1) * step
    prices: dict[str, Pricing] = {}
    made = Course(days, step, first, [Sums() for _ in range(number)])
    mine = h.c.hour >= first
    bucket = (h.c.hour // step).label("bucket")
    sums = [func.sum(h.c[column]).label(column) for column in SUMS]
    for row in store.rows(store.select(bucket, h.c.model, *sums).where(mine).group_by(bucket, h.c.model)):
        price = prices.setdefault(row.model, price_of(row.model))
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


def latencies(store: Store) -> tuple[float | None, float | None]:
    """The median and the 99th percentile of the times of the newest requests, in seconds."""
    i = schema.interactions
    rows = store.rows(store.select(i.c.data).order_by(i.c.number.desc()).limit(TIMED))
    timed = [from_json(row.data) for row in rows]
    found = sorted(one.get("seconds", 0.0) for one in timed if "purpose" not in one)
    if not found:
        return None, None
    return found[len(found) // 2], found[min(int(0.99 * len(found)), len(found) - 1)]


def rollouts(store: Store, most: int = 20) -> list[dict[str, Any]]:
    """The last rollouts of a space."""
    r = schema.rollouts
    rows = store.rows(store.select(r).order_by(r.c.number.desc()).limit(most))
    return [
        {**json.loads(row.data), "number": row.number, "version": row.version, "base": row.base, "state": row.state}
        for row in rows
    ]


def alarms(store: Store, before: int | None, most: int = ALARMS) -> Sequence[Any]:
    """The alarms of a space before a number, the newest first."""
    a = schema.alarms
    query = store.select(a).where(*([] if before is None else [a.c.number < before]))
    return store.rows(query.order_by(a.c.number.desc()).limit(most))


def credits(store: Store, items: Iterable[str]) -> dict[str, Any]:
    """How requests went that were shown these entries."""
    c = schema.credits
    rows = store.rows(store.select(c).where(c.c.item.in_([*items])))
    return {row.item: {"scored": row.scored, "mean": row.total / max(row.scored, 1)} for row in rows}
