"""Send the metrics of a run as OpenTelemetry metrics over OTLP (HTTP, protobuf), where the usual variables say.

The values of a step are dated by the end of the step, so that last night's run is shown where it was, and sending it
twice sends the same points. What is known only of the whole run is dated now. Attributes have the prefix "practicum."
except where the conventions for generative AI have a name (`gen_ai.token.type`).
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from practicum.analysis.monitor.attempts import ALL_DOMAINS
from practicum.analysis.monitor.report import MonitorReport
from practicum.analysis.monitor.series import Series
from practicum.core.errors import PracticumError, UsageError

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import Metric

ENDPOINTS = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")

REQUIRED_MODULES = ("opentelemetry.sdk.metrics", "opentelemetry.exporter.otlp.proto.http.metric_exporter")

POINTS_PER_REQUEST = 5_000

NANO = 1_000_000_000

STEP_METRICS: tuple[tuple[str, str, str, str, Mapping[str, str]], ...] = (
    ("practicum.success_rate", "1", "success", "rate", {"practicum.domain": ALL_DOMAINS}),
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
"""Metrics with a value for each step: name, unit, group, series and attributes."""


class ExportError(PracticumError):
    """Metrics could not be sent: the endpoint cannot be reached, or refuses them."""


@dataclass(frozen=True, slots=True)
class MetricPoint:
    """One value; `at` is in nanoseconds since 1970."""

    at: int
    value: float
    attributes: Mapping[str, str]


@dataclass(slots=True)
class ExportedMetric:
    """A metric with its points. A `total` only grows over a run."""

    unit: str
    total: bool = False
    points: list[MetricPoint] = field(default_factory=list)


def endpoint() -> str | None:
    """Where the environment says that metrics go; None where it does not say, or disables sending."""
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    return _first_set(ENDPOINTS)


def _first_set(names: tuple[str, ...]) -> str | None:
    return next((value for name in names if (value := os.environ.get(name, "").strip())), None)


def obstacle() -> str | None:
    """What prevents sending, in one line; None where nothing does."""
    protocol = _first_set(PROTOCOLS) or "http/protobuf"
    if protocol != "http/protobuf":
        return f"metrics are sent as http/protobuf only, but {PROTOCOLS[1]} asks for {protocol}"
    try:
        installed = all(find_spec(name) is not None for name in REQUIRED_MODULES)
    except ModuleNotFoundError:
        installed = False
    return None if installed else "metrics need packages that are not installed: pip install 'practicum[otel]'"


def exported_metrics(report: MonitorReport) -> dict[str, ExportedMetric]:
    """All metrics of a run by name. Steps whose end is not known are left out."""
    attributes = {"practicum.run": report.run.absolute().name, "practicum.method": report.method}
    metrics: dict[str, ExportedMetric] = {}
    for name, unit, total, point in (*_step_points(report), *_run_points(report, time.time_ns())):
        metric = metrics.setdefault(name, ExportedMetric(unit, total))
        metric.points.append(MetricPoint(point.at, point.value, {**attributes, **point.attributes}))
    return metrics


NamedPoint = tuple[str, str, bool, MetricPoint]
"""The name and unit of a metric, whether it is a total, and one of its points."""


def _step_points(report: MonitorReport) -> Iterator[NamedPoint]:
    groups = report.groups
    for name, unit, group, series, attributes in STEP_METRICS:
        if group in groups and series in groups[group].by_step:
            yield from _dated(report, name, unit, groups[group].by_step[series], attributes)
    if "tokens" in groups:
        for role, values in groups["tokens"].by_step.items():
            if role != "tokens":
                yield from _dated(report, "practicum.task.tokens", "{token}", values, {"practicum.role": role})
    domains: Mapping[str, Any] = groups["learning"].numbers["domains"] if "learning" in groups else {}
    for domain, curve in domains.items():
        if domain != ALL_DOMAINS:
            # The last attempt of a step stands for the step.
            rate = dict(zip(curve["by_attempt"]["step"], curve["by_attempt"]["rate"], strict=True))
            values = [rate.get(step) for step in report.steps]
            yield from _dated(report, "practicum.success_rate", "1", values, {"practicum.domain": domain})


def _dated(
    report: MonitorReport, name: str, unit: str, series: Series, attributes: Mapping[str, str]
) -> Iterator[NamedPoint]:
    for step, value in zip(report.steps, series, strict=True):
        if value is not None and step in report.ended:
            yield name, unit, False, MetricPoint(int(report.ended[step] * NANO), value, attributes)


def _run_points(report: MonitorReport, now: int) -> Iterator[NamedPoint]:
    """What is known of the whole run only."""
    groups = report.groups
    values: list[tuple[str, str, float | None, bool, Mapping[str, str]]] = []
    for row in groups["latency"].numbers["components"]:
        component = {"practicum.component": row["component"], "practicum.stage": row["stage"]}
        values.append(("practicum.component.time", "s", row["seconds"], True, component))
        for name, quantile in (("median", "0.5"), ("p95", "0.95")):
            at_quantile = {"practicum.quantile": quantile, **component}
            values.append(("practicum.component.duration", "s", row.get(name), False, at_quantile))
    for stage, costs in groups["tokens"].numbers.items() if "tokens" in groups else ():
        for role, usage in costs["by_role"].items():
            part = {"practicum.role": role, "practicum.stage": stage}
            for kind in ("input", "output"):
                of_kind = {"gen_ai.token.type": kind, **part}
                values.append(("practicum.tokens", "{token}", usage[f"{kind}_tokens"], True, of_kind))
            values += [
                ("practicum.tokens.cached", "{token}", usage["cached_tokens"], True, part),
                ("practicum.calls", "{call}", usage["calls"], True, part),
                ("practicum.cost", "USD", usage.get("usd"), True, part),
            ]
    for against, numbers in groups["judge"].numbers.items() if "judge" in groups else ():
        other = {"practicum.against": against.removeprefix("against_")}
        values.append(("practicum.judge.consistency", "1", numbers.get("same"), False, other))
    for name, unit, value, total, attributes in values:
        if value is not None:
            yield name, unit, total, MetricPoint(now, value, attributes)


def send(report: MonitorReport) -> int:
    """Send the metrics of a run to the `endpoint`; returns the number of points.

    Raises UsageError where there is an `obstacle`, and ExportError where they did not arrive.
    """
    if (why := obstacle()) is not None:
        raise UsageError(why)
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics.export import MetricExportResult, MetricsData, ResourceMetrics, ScopeMetrics
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    metrics = exported_metrics(report)
    began = int(min(report.ended.values(), default=time.time()) * NANO)
    # A name from the environment takes precedence over ours.
    resource = Resource({"service.name": "practicum"}).merge(OTELResourceDetector().detect())
    scope = ScopeMetrics(
        InstrumentationScope("practicum", version("practicum")),
        [_metric(name, metric, began) for name, metric in metrics.items()],
        "",
    )
    exporter = OTLPMetricExporter(max_export_batch_size=POINTS_PER_REQUEST)
    with _exporter_log() as messages:
        try:
            result = exporter.export(MetricsData([ResourceMetrics(resource, [scope], "")]))
        finally:
            exporter.shutdown()
    if result is not MetricExportResult.SUCCESS:
        reason = f": {messages[-1]}" if messages else ""
        raise ExportError(f"the metrics did not arrive at {endpoint()}{reason}")
    return sum(len(metric.points) for metric in metrics.values())


def _metric(name: str, metric: ExportedMetric, began: int) -> Metric:
    from opentelemetry.sdk.metrics.export import AggregationTemporality, Gauge, Metric, NumberDataPoint, Sum

    points = [NumberDataPoint(point.attributes, began, point.at, point.value) for point in metric.points]
    data = Sum(points, AggregationTemporality.CUMULATIVE, True) if metric.total else Gauge(points)
    return Metric(name, None, metric.unit, data)


class _Messages(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(" ".join(record.getMessage().split()))


@contextmanager
def _exporter_log() -> Iterator[list[str]]:
    """What the exporter logs, which is all it says about a failure, kept off the terminal while it works."""
    logger, handler = logging.getLogger("opentelemetry"), _Messages()
    propagate = logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield handler.messages
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagate
