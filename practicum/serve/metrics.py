"""What the service measures, as Prometheus reads it.

Requests are counted when they end. All else is read when somebody asks: from the counts of the service, from the spaces
that are open, and from the database.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress

from prometheus_client import CollectorRegistry, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector
from sqlalchemy import func

from practicum.core.errors import StoreError
from practicum.core.thoughts import SILENCES
from practicum.serve.learner import Spent
from practicum.serve.recording import TOKENS
from practicum.serve.service import Service
from practicum.serve.space import ServedSpace
from practicum.session.corrections import LETTER
from practicum.store import schema
from practicum.store.reviews import PENDING

AT_ONCE = 1_000
"""Rows that are asked for by their keys in one query, at most."""

TIMES = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Seconds of whole requests, as bounds of the histogram."""

ADDED = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5)
"""Seconds that practicum adds, as bounds of the histogram."""

COUNTS = {
    "interactions": ("interactions", "Requests that were answered, and kept."),
    "uncounted_interactions": ("uncounted interactions", "Titles that clients asked for, and contexts."),
    "unchanged_requests": ("unchanged requests", "Requests that went on without what was learned."),
    "views_without_a_model": ("views without a model", "Requests whose method asks a model to show, and was not let."),
    "unread_requests": ("unread requests", "Requests that are not of their protocol, which went on as they came."),
    "unread_answers": ("unread answers", "Answers that could not be read, or not all of them."),
    "oversized_requests": ("oversized requests", "Requests too large to be read, which went on as they came."),
    "oversized_answers": ("oversized answers", "Answers too large to be read, which passed as they came."),
    "refused_rows": ("refused rows", "Rows that the database refused because of what is in them; they are lost."),
    "wrong_numbers": ("wrong numbers", "Numbers of answers that cannot be right, and count as unknown."),
    **{
        key: (key.replace("_", " "), f"A model's answer that {why.partition(';')[0]}.") for key, why in SILENCES.items()
    },
    "failed_open": ("failed open", "Failures in practicum that no request noticed."),
    "upstream_failures": ("upstream failures", "Requests that the model server did not answer, or not whole."),
    "client_departures": ("clients that left", "Requests whose client left before the end."),
    "feedback": ("feedback", "Reports that were taken."),
    "learning_rounds": ("rounds", "Rounds of learning that ended."),
    "learning_failures": ("rounds that failed", "Rounds of learning that failed."),
    "alarms": ("alarms", "Alarms that were raised."),
}
"""Counters by their names: the count of the service, and what it is."""


class Metrics(Collector):
    """The metrics of a service."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._ended: Counter[tuple[str, int]] = Counter()
        self.registry = CollectorRegistry()
        self.registry.register(self)
        ProcessCollector(registry=self.registry)
        name, what = "practicum_request_duration_seconds", "From a request to the end of its answer."
        self._seconds = Histogram(name, what, ("route",), buckets=TIMES, registry=self.registry)
        name, what = "practicum_added_duration_seconds", "Before a request goes to the model server."
        self._added = Histogram(name, what, ("route",), buckets=ADDED, registry=self.registry)
        self._times: dict[str, Histogram] = {}

    def count(self, route: str, status: int, seconds: float, added: float | None) -> None:
        """Count a request that ended; `added` is None if it was none to a model."""
        self._ended[route, status] += 1
        if (known := self._times.get(route)) is None:
            known = self._times[route] = self._seconds.labels(route)
        known.observe(seconds)
        if added is not None:
            self._added.labels(route).observe(added)

    def text(self) -> bytes:
        """All values, in the format of Prometheus; it may be called in any thread. While the database cannot be read,
        those that are in it are missing."""
        return generate_latest(self.registry)

    def describe(self) -> list[Metric]:
        # Without this, making the registry would read the database.
        return []

    def collect(self) -> Iterator[Metric]:
        service = self._service
        requests = CounterMetricFamily(
            "practicum_requests", "Requests that ended, by what was asked and the status.", labels=("route", "status")
        )
        for (route, status), number in [*self._ended.items()]:
            requests.add_metric((route, str(status)), number)
        yield requests
        tokens = CounterMetricFamily(
            "practicum_tokens", "Tokens of models; cached ones are among those of the input.", labels=("type",)
        )
        for kind in TOKENS:
            tokens.add_metric((kind,), service.counts[f"{kind} tokens"])
        yield tokens
        for name, (count, what) in COUNTS.items():
            yield CounterMetricFamily(f"practicum_{name}", what, value=service.counts[count])
        writer = service.database.writer
        yield CounterMetricFamily("practicum_lost_rows", "Rows that could not be written.", value=writer.lost)
        yield CounterMetricFamily("practicum_late_rows", "Rows of spaces that were deleted.", value=writer.late)
        yield _gauge("practicum_unwritten_rows", "Rows that wait to be written.", writer.unwritten)
        spaces = [*service.spaces.values()]
        yield _gauge("practicum_open_spaces", "Spaces that are open.", len(spaces))
        used = 1e6 * sum(space.megabytes for space in spaces)
        yield _gauge("practicum_open_spaces_bytes", "Memory that open spaces take, about.", used)
        yield from self._of_spaces(spaces)

    def _of_spaces(self, spaces: list[ServedSpace]) -> Iterator[Metric]:
        """The metrics with the label `space`."""
        label = ("space",)
        scores = SummaryMetricFamily("practicum_score", "First scores of interactions.", labels=label)
        live = GaugeMetricFamily("practicum_live_version", "The version that all see.", labels=label)
        canary = GaugeMetricFamily(
            "practicum_canary_version", "The version that a share of sessions sees.", labels=label
        )
        outcomes = GaugeMetricFamily("practicum_outcomes_waiting", "Outcomes to learn from.", labels=label)
        said = GaugeMetricFamily("practicum_corrections_waiting", "Corrections and notes to review.", labels=label)
        calls = GaugeMetricFamily("practicum_learning_calls_today", "Model calls of learning, today.", labels=label)
        usd = GaugeMetricFamily("practicum_learning_usd_today", "US dollars of learning, today.", labels=label)
        for space in spaces:
            named = (space.name,)
            scores.add_metric(named, space.scored, space.scores)
            live.add_metric(named, space.live)
            if (rollout := space.rollout) is not None:
                canary.add_metric(named, rollout.version)
            outcomes.add_metric(named, space.waiting)
        with suppress(StoreError):
            waiting, spent = self._waiting(spaces), self._service.learner.spent_today(spaces)
            for space in spaces:
                said.add_metric((space.name,), waiting[space.id])
                cost = spent.get(space.id, Spent(0, 0.0))
                calls.add_metric((space.name,), cost.calls)
                usd.add_metric((space.name,), cost.usd)
        yield from (scores, live, canary, outcomes, said, calls, usd)

    def _waiting(self, spaces: list[ServedSpace]) -> Counter[str]:
        """The corrections and notes that wait for review, by the identity of their space."""
        t, found, database = schema.reviews, Counter[str](), self._service.database
        for start in range(0, len(spaces), AT_ONCE):
            some = [space.id for space in spaces[start : start + AT_ONCE]]
            waiting = database.of_spaces(t, some, (func.count(),)).group_by(t.c.space)
            waiting = waiting.where(t.c.state == PENDING, t.c.id.startswith(LETTER))
            found.update(dict(map(tuple, database.rows(waiting))))
        return found


def _gauge(name: str, what: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, what, value=value)
