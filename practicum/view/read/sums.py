"""Hourly sums of the requests and scores of a space, and its rollouts, alarms and credits. No function reads all
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
"""Number of newest interactions from which the percentiles of latency are computed."""

RANGES = (1, 7, 30, 90, 365)
"""Numbers of days that a page can show."""

STEPS = ((48, 1), (168, 6), (2160, 24), (24 * 365, 168))
"""Pairs (period, step) in hours. In the first pair whose `period` is longer than the time that the data covers, `step`
is the number of hours per point of the chart."""

PARTS = 4
"""Number of parts of the time axis. If the data covers less than the requested days, the number of points is a multiple
of PARTS, so that each part begins with a point."""

ALARMS = 50
"""Number of alarms per page."""


@dataclass
class Sums:
    """Sums over a period. `usd`: None if some of the tokens have no price. `total`: the sum of the scores."""

    requests: int = 0
    failed: int = 0
    seconds: float = 0.0
    input_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    scored: int = 0
    total: float = 0.0
    usd: float | None = 0.0

    def add(self, row: Any, price: Pricing) -> None:
        """Add a row of the table `hours`. `price` computes the cost of the row's model."""
        for name in SUMS:
            # PostgreSQL sums large integers as decimals.
            setattr(self, name, getattr(self, name) + type(getattr(self, name))(getattr(row, name) or 0))
        names = ("input_tokens", "cached_tokens", "output_tokens", "cache_write_tokens")
        tokens = {name: int(getattr(row, name) or 0) for name in names}
        cost = price(Usage(**tokens))
        unknown = cost is None and any(tokens.values())
        self.usd = None if unknown or self.usd is None else self.usd + (cost or 0.0)

    @property
    def mean(self) -> float | None:
        """Mean score; None without scores."""
        return self.total / self.scored if self.scored else None

    @property
    def latency(self) -> float | None:
        """Mean latency of a request (s); None without requests."""
        return self.seconds / self.requests if self.requests else None

    @property
    def cached(self) -> float | None:
        """Share of the input tokens that were cached; None without input."""
        return self.cached_tokens / self.input_tokens if self.input_tokens else None


@dataclass
class Course:
    """Sums of the requests of the last `days` days, as points of `step` hours each. `first`: the hour (since 1970) at
    which the first point begins. `points`: the sums over all models. `models`: model → sums of the model's requests."""

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
        """Sums by model, most requests first."""
        sums = {model: _sum(points) for model, points in self.models.items()}
        return dict(sorted(sums.items(), key=lambda pair: -pair[1].requests))

    def place(self, at: float) -> float | None:
        """Return the horizontal position of a Unix time (percent from the left); None if the time is
        before the first point or after the last point."""
        share = (at / HOUR - self.first) / (len(self.points) * self.step)
        return round(100 * share, 2) if 0 <= share <= 1 else None

    def began(self, number: int) -> float:
        """Return the Unix time at which the point with the index `number` begins."""
        return (self.first + number * self.step) * HOUR


def _sum(points: Iterable[Sums]) -> Sums:
    whole = Sums()
    for point in points:
        for name in SUMS:
            setattr(whole, name, getattr(whole, name) + getattr(point, name))
        whole.usd = None if whole.usd is None or point.usd is None else whole.usd + point.usd
    return whole


def course(store: Store, days: int, price_of: Callable[[str], Pricing]) -> Course:
    """Read the sums of the requests of the last `days` days. The course begins near the first request in these days."""
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
    course = Course(days, step, first, [Sums() for _ in range(number)])
    mine = h.c.hour >= first
    bucket = (h.c.hour // step).label("bucket")
    sums = [func.sum(h.c[column]).label(column) for column in SUMS]
    for row in store.rows(store.select(bucket, h.c.model, *sums).where(mine).group_by(bucket, h.c.model)):
        price = prices.setdefault(row.model, price_of(row.model))
        # Rows may be later than now if the clock was set back.
        at = min(row.bucket - first // step, number - 1)
        course.points[at].add(row, price)
        points = course.models.setdefault(row.model, [Sums() for _ in range(number)])
        points[at].add(row, price)
    return course


def first_shown(store: Store) -> dict[int, float]:
    """Return version → Unix time of the hour in which a request first saw the version, for versions without a
    rollout."""
    h, r = schema.hours, schema.rollouts
    rolled_out = store.select(r.c.version)
    mine = (h.c.requests > 0) & h.c.version.not_in(rolled_out)
    hours = store.select(h.c.version, func.min(h.c.hour)).where(mine)
    return {version: hour * HOUR for version, hour in store.rows(hours.group_by(h.c.version))}


def latencies(store: Store) -> tuple[float | None, float | None]:
    """Return the median and the 99th percentile of the latency (s) of the newest requests; None without requests."""
    i = schema.interactions
    rows = store.rows(store.select(i.c.data).order_by(i.c.number.desc()).limit(TIMED))
    timed = [from_json(row.data) for row in rows]
    seconds = sorted(one.get("seconds", 0.0) for one in timed if "purpose" not in one)
    if not seconds:
        return None, None
    return seconds[len(seconds) // 2], seconds[min(int(0.99 * len(seconds)), len(seconds) - 1)]


def rollouts(store: Store, most: int = 20) -> list[dict[str, Any]]:
    """Return up to `most` rollouts of a space, newest first."""
    r = schema.rollouts
    rows = store.rows(store.select(r).order_by(r.c.number.desc()).limit(most))
    return [
        {**json.loads(row.data), "number": row.number, "version": row.version, "base": row.base, "state": row.state}
        for row in rows
    ]


def alarms(store: Store, before: int | None, most: int = ALARMS) -> Sequence[Any]:
    """Return up to `most` alarms of a space, newest first. `before`: only alarms with a number below this number (None:
    all alarms)."""
    a = schema.alarms
    query = store.select(a).where(*([] if before is None else [a.c.number < before]))
    return store.rows(query.order_by(a.c.number.desc()).limit(most))


def credits(store: Store, items: Iterable[str]) -> dict[str, Any]:
    """Return item (an entry id or "version N") → number and mean score of the scored requests that saw the item."""
    c = schema.credits
    rows = store.rows(store.select(c).where(c.c.item.in_([*items])))
    return {row.item: {"scored": row.scored, "mean": row.total / max(row.scored, 1)} for row in rows}
