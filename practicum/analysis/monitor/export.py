"""A watched run as OpenTelemetry metrics, sent over OTLP (HTTP, protobuf) to where the usual variables say.

Each step's values are dated by the time the step ended, so that last night's run is seen where it was, and sending it
twice sends the same points. What is known of the whole run alone is dated now. Attributes are in a namespace of their
own but where the conventions for generative AI have a name (`gen_ai.token.type`).
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from practicum.analysis.monitor import Report
from practicum.analysis.monitor.attempts import ALL
from practicum.analysis.monitor.series import Column
from practicum.core.errors import PracticumError, UsageError

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import Metric

ENDPOINTS = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")

NEEDED = ("opentelemetry.sdk.metrics", "opentelemetry.exporter.otlp.proto.http.metric_exporter")

AT_ONCE = 5_000
"""Points of one request."""

NANO = 1_000_000_000

STEPWISE: tuple[tuple[str, str, str, str, Mapping[str, str]], ...] = (
    ("practicum.success_rate", "1", "success", "rate", {"practicum.domain": ALL}),
    ("practicum.attempts", "{attempt}", "success", "attempts", {}),
    ("practicum.errors", "{attempt}", "success", "errors", {}),
    ("practicum.memory.entries", "{entry}", "memory", "successes", {"practicum.outcome": "success"}),
    ("practicum.memory.entries", "{entry}", "memory", "failures", {"practicum.outcome": "failure"}),
    ("practicum.memory.entries", "{entry}", "memory", "others", {"practicum.outcome": "other"}),
    ("practicum.retrieval.similarity", "1", "retrieval", "similarity", {}),
    ("practicum.retrieval.relied_on", "1", "retrieval", "relied_on", {}),
    ("practicum.context.entries", "{entry}", "context", "entries", {}),
    ("practicum.context.tokens", "{token}", "context", "tokens", {}),
    ("practicum.context.drift", "1", "context", "drift", {}),
    ("practicum.context.from_first", "1", "context", "from_first", {}),
    ("practicum.context.coherence", "1", "context", "coherence", {}),
    ("practicum.contrast.agreement", "1", "contrast", "agreement", {}),
    ("practicum.agent.actions", "{action}", "agent", "actions", {}),
    ("practicum.attempt.duration", "s", "latency", "attempt_seconds", {}),
    ("practicum.step.duration", "s", "latency", "step_seconds", {}),
)
"""Name, unit, part, column and attributes of what there is for each step."""


class ExportError(PracticumError):
    """Metrics could not be sent: the endpoint is away, or refuses them."""


@dataclass(frozen=True, slots=True)
class Point:
    """One value; `at` in nanoseconds since 1970."""

    at: int
    value: float
    attributes: Mapping[str, str]


@dataclass(slots=True)
class Series:
    """A metric with its points. A `total` only grows over a run; other values come and go."""

    unit: str
    total: bool = False
    points: list[Point] = field(default_factory=list)


def endpoint() -> str | None:
    """Where metrics go, as the environment says; None where it says nothing, or that nothing is to be sent."""
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    return _first(ENDPOINTS)


def _first(names: tuple[str, ...]) -> str | None:
    return next((value for name in names if (value := os.environ.get(name, "").strip())), None)


def missing() -> str | None:
    """What keeps metrics from being sent, in one line; None where nothing does."""
    protocol = _first(PROTOCOLS) or "http/protobuf"
    if protocol != "http/protobuf":
        return f"metrics go out as http/protobuf only, and {PROTOCOLS[1]} asks for {protocol}"
    try:
        there = all(find_spec(name) is not None for name in NEEDED)
    except ModuleNotFoundError:
        there = False
    return None if there else "metrics need packages that are missing: pip install 'practicum[otel]'"


def series_of(report: Report) -> dict[str, Series]:
    """Everything of a run that has a value, by metric. Of a step whose end is not known nothing is told."""
    about = {"practicum.run": report.run.absolute().name, "practicum.method": report.method}
    found: dict[str, Series] = {}
    for name, unit, total, point in (*_stepwise(report), *_whole(report, time.time_ns())):
        series = found.setdefault(name, Series(unit, total))
        series.points.append(Point(point.at, point.value, {**about, **point.attributes}))
    return found


Told = tuple[str, str, bool, Point]
"""The name and unit of a metric, whether it is a total, and one point of it."""


def _stepwise(report: Report) -> Iterator[Told]:
    for name, unit, part, wanted, attributes in STEPWISE:
        if part in report.parts and wanted in report.parts[part].by_step:
            yield from _dated(report, name, unit, report.parts[part].by_step[wanted], attributes)
    if "tokens" in report.parts:
        for role, column in report.parts["tokens"].by_step.items():
            if role != "tokens":
                yield from _dated(report, "practicum.task.tokens", "{token}", column, {"practicum.role": role})
    domains: Mapping[str, Any] = report.parts["learning"].numbers["domains"] if "learning" in report.parts else {}
    for domain, told in domains.items():
        if domain != ALL:
            # The last attempt of a step stands for it.
            rate = dict(zip(told["by_attempt"]["step"], told["by_attempt"]["rate"], strict=True))
            curve = [rate.get(step) for step in report.steps]
            yield from _dated(report, "practicum.success_rate", "1", curve, {"practicum.domain": domain})


def _dated(report: Report, name: str, unit: str, column: Column, attributes: Mapping[str, str]) -> Iterator[Told]:
    for step, value in zip(report.steps, column, strict=True):
        if value is not None and step in report.ended:
            yield name, unit, False, Point(int(report.ended[step] * NANO), value, attributes)


def _whole(report: Report, now: int) -> Iterator[Told]:
    """What is known of the whole run."""

    def told(name: str, unit: str, value: float | None, total: bool = False, **attributes: str) -> Iterator[Told]:
        if value is not None:
            named = {key.replace("__", "."): said for key, said in attributes.items()}
            yield name, unit, total, Point(now, value, named)

    parts = report.parts
    for row in parts["latency"].numbers["components"]:
        of = {"practicum__component": row["component"], "practicum__stage": row["stage"]}
        yield from told("practicum.component.time", "s", row["seconds"], True, **of)
        for name, quantile in (("median", "0.5"), ("p95", "0.95")):
            yield from told("practicum.component.duration", "s", row.get(name), practicum__quantile=quantile, **of)
    for stage, cost in parts["tokens"].numbers.items() if "tokens" in parts else ():
        for role, usage in cost["by_role"].items():
            of = {"practicum__role": role, "practicum__stage": stage}
            for kind in ("input", "output"):
                spent = usage[f"{kind}_tokens"]
                yield from told("practicum.tokens", "{token}", spent, True, gen_ai__token__type=kind, **of)
            yield from told("practicum.tokens.cached", "{token}", usage["cached_tokens"], True, **of)
            yield from told("practicum.calls", "{call}", usage["calls"], True, **of)
            yield from told("practicum.cost", "USD", usage.get("usd"), True, **of)
    for against, numbers in parts["judge"].numbers.items() if "judge" in parts else ():
        yield from told(
            "practicum.judge.consistency",
            "1",
            numbers.get("same"),
            practicum__against=against.removeprefix("against_"),
        )


def send(report: Report) -> int:
    """Send a run to the `endpoint`; gives the number of points. Raises UsageError where something is `missing`, and
    ExportError where they did not arrive."""
    if (why := missing()) is not None:
        raise UsageError(why)
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics.export import MetricExportResult, MetricsData, ResourceMetrics, ScopeMetrics
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    from practicum import __version__

    series = series_of(report)
    began = int(min(report.ended.values(), default=time.time()) * NANO)
    # A name that the environment gives goes before ours.
    resource = Resource({"service.name": "practicum"}).merge(OTELResourceDetector().detect())
    scope = InstrumentationScope("practicum", __version__)
    metrics = [_metric(name, one, began) for name, one in series.items()]
    data = MetricsData([ResourceMetrics(resource, [ScopeMetrics(scope, metrics, "")], "")])
    exporter = OTLPMetricExporter(max_export_batch_size=AT_ONCE)
    with _complaints() as complaints:
        try:
            arrived = exporter.export(data) is MetricExportResult.SUCCESS
        finally:
            exporter.shutdown()
    if not arrived:
        said = f": {complaints[-1]}" if complaints else ""
        raise ExportError(f"the metrics did not arrive at {endpoint()}{said}")
    return sum(len(one.points) for one in series.values())


def _metric(name: str, series: Series, began: int) -> Metric:
    from opentelemetry.sdk.metrics.export import AggregationTemporality, Gauge, Metric, NumberDataPoint, Sum

    points = [NumberDataPoint(point.attributes, began, point.at, point.value) for point in series.points]
    kept = Sum(points, AggregationTemporality.CUMULATIVE, True) if series.total else Gauge(points)
    return Metric(name, None, series.unit, kept)


class _Kept(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(" ".join(record.getMessage().split()))


@contextmanager
def _complaints() -> Iterator[list[str]]:
    """What the exporter logs, which is all it tells of a failure, kept from the terminal while it works."""
    logger, kept = logging.getLogger("opentelemetry"), _Kept()
    before = logger.propagate
    logger.addHandler(kept)
    logger.propagate = False
    try:
        yield kept.said
    finally:
        logger.removeHandler(kept)
        logger.propagate = before
