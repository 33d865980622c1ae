"""Metrics of the service, for Prometheus.

Requests are counted when they end. All other values are read on demand: from the counters of the service, from open
spaces, and from the database.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress

from prometheus_client import CollectorRegistry, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector
from sqlalchemy import func

from practicum.core.errors import StoreError
from practicum.core.metrics import METRICS, MetricKind, of_kind
from practicum.serve.learner import Spent
from practicum.serve.service import Service
from practicum.serve.space import ServedSpace
from practicum.session.corrections import LETTER
from practicum.store import schema
from practicum.store.reviews import PENDING

AT_ONCE = 1_000
"""Largest number of spaces in one query."""

TIMES = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Bounds (s) of the histogram of request durations."""

ADDED = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5)
"""Bounds (s) of the histogram of the time that practicum adds."""

Value = tuple[tuple[str, ...], float]
"""Values of the labels of a metric, and the value of the metric for these labels."""


class Metrics(Collector):
    """Collector of the metrics of a service."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._ended: Counter[tuple[str, int]] = Counter()
        self.registry = CollectorRegistry()
        self.registry.register(self)
        ProcessCollector(registry=self.registry)
        self._seconds = self._histogram("service.request_duration_seconds", TIMES)
        self._added = self._histogram("service.added_duration_seconds", ADDED)
        self._times: dict[str, Histogram] = {}

    def _histogram(self, name: str, bounds: tuple[float, ...]) -> Histogram:
        metric = METRICS[name]
        return Histogram(metric.prometheus, metric.about, metric.labels, buckets=bounds, registry=self.registry)

    def count(self, route: str, status: int, seconds: float, added: float | None) -> None:
        """Count a request that ended. `added` is None if the request was not sent to a model."""
        self._ended[route, status] += 1
        if (histogram := self._times.get(route)) is None:
            histogram = self._times[route] = self._seconds.labels(route)
        histogram.observe(seconds)
        if added is not None:
            self._added.labels(route).observe(added)

    def text(self) -> bytes:
        """Return all metrics in the format of Prometheus. Thread safe. Metrics from the database are missing while
        the database cannot be read."""
        return generate_latest(self.registry)

    def describe(self) -> list[Metric]:
        # Without this method, the registry would call `collect`, which reads the database, when the collector is
        # registered.
        return []

    def collect(self) -> Iterator[Metric]:
        for metric in of_kind("counter"):
            family = CounterMetricFamily(metric.prometheus, metric.about, labels=metric.labels)
            for labels, value in self._counts(metric):
                family.add_metric(labels, value)
            yield family
        spaces = [*self._service.spaces.values()]
        values = self._gauges(spaces)
        for metric in of_kind("gauge"):
            gauge = GaugeMetricFamily(metric.prometheus, metric.about, labels=metric.labels)
            for labels, value in values.get(metric.field, ()):
                gauge.add_metric(labels, value)
            yield gauge
        (score,) = of_kind("summary")
        scores = SummaryMetricFamily(score.prometheus, score.about, labels=score.labels)
        for space in spaces:
            scores.add_metric((space.name,), space.scored, space.scores)
        yield scores

    def _counts(self, metric: MetricKind) -> Iterable[Value]:
        """Return the values of a counter, each with its labels."""
        service, writer = self._service, self._service.database.writer
        match metric.field:
            case "requests":
                return [((route, str(status)), number) for (route, status), number in [*self._ended.items()]]
            case "lost_rows":
                return [((), writer.lost)]
            case "late_rows":
                return [((), writer.late)]
        return [((), service.counts[metric.field])]

    def _gauges(self, spaces: list[ServedSpace]) -> dict[str, list[Value]]:
        """Return the values of gauges by name, each with its labels. Gauges from the database are missing while
        the database cannot be read."""
        service = self._service
        values: dict[str, list[Value]] = {
            "unwritten_rows": [((), service.database.writer.unwritten)],
            "open_spaces": [((), len(spaces))],
            "open_spaces_bytes": [((), 1e6 * sum(space.megabytes for space in spaces))],
            "live_version": [((space.name,), space.live) for space in spaces],
            "canary_version": [((one.name,), one.rollout.version) for one in spaces if one.rollout is not None],
            "outcomes_waiting": [((space.name,), space.waiting) for space in spaces],
        }
        with suppress(StoreError):
            waiting, spent = self._waiting(spaces), service.learner.spent_today(spaces)
            costs = {space.name: spent.get(space.id, Spent(0, 0.0)) for space in spaces}
            values |= {
                "corrections_waiting": [((space.name,), waiting[space.id]) for space in spaces],
                "learning_calls_today": [((name,), cost.calls) for name, cost in costs.items()],
                "learning_usd_today": [((name,), cost.usd) for name, cost in costs.items()],
            }
        return values

    def _waiting(self, spaces: list[ServedSpace]) -> Counter[str]:
        """Return the number of corrections and notes that wait for review, by identity of the space."""
        t, counts, database = schema.reviews, Counter[str](), self._service.database
        for start in range(0, len(spaces), AT_ONCE):
            some = [space.id for space in spaces[start : start + AT_ONCE]]
            waiting = database.of_spaces(t, some, (func.count(),)).group_by(t.c.space)
            waiting = waiting.where(t.c.state == PENDING, t.c.id.startswith(LETTER))
            counts.update(dict(map(tuple, database.rows(waiting))))
        return counts
