"""Export of a run's metrics as OpenTelemetry metrics over OTLP (HTTP, protobuf) to the endpoint in the environment.

The time of a step's values is the end of the step, so that a past run appears at the time when the run was active, and
a second export of a run sends the same points as the first. Values about the whole run have the time of their export.
Attributes have the prefix "practicum.", except for names from the semantic conventions for generative AI
(`gen_ai.token.type`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from practicum.analysis.monitor.attempts import ALL_DOMAINS
from practicum.analysis.monitor.report import MonitorReport
from practicum.analysis.monitor.series import Series
from practicum.core.errors import PracticumError, UsageError
from practicum.core.metrics import METRICS, UCUM, of_kind
from practicum.core.requirements import pip_install
from practicum.models.otlp import NANO, exporter_log, first_set, resource, wrong_protocol

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import Metric, NumberDataPoint

ENDPOINTS = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")

POINTS_PER_REQUEST = 5_000

RATE = METRICS["success.rate"]


class ExportError(PracticumError):
    """The metrics could not be sent: the endpoint cannot be reached, or refused the metrics."""


def metrics_endpoint() -> str | None:
    """Return the endpoint for metrics from the environment; None if no endpoint is set, or if the OpenTelemetry SDK is
    disabled."""
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    return first_set(*ENDPOINTS)


def obstacle() -> str | None:
    """Return the reason why metrics cannot be sent, in one line; None if metrics can be sent."""
    if problem := wrong_protocol("metrics", "METRICS"):
        return problem
    try:
        import opentelemetry.exporter.otlp.proto.http.metric_exporter  # noqa: F401
    except ModuleNotFoundError:
        return f"metrics need packages that are not installed: {pip_install('otel')}"
    return None


def exported_metrics(report: MonitorReport) -> list[Metric]:
    """Return all metrics of a run. Steps without a recorded end are left out."""
    from opentelemetry.sdk.metrics.export import AggregationTemporality, Gauge, Metric, NumberDataPoint, Sum

    run = {"practicum.run": report.run.absolute().name, "practicum.method": report.method}
    began, now = int(min(report.ended.values(), default=time.time()) * NANO), time.time_ns()
    points: dict[tuple[str, str, bool], list[NumberDataPoint]] = {}

    def add(name: str, unit: str, total: bool, at: int, value: float | None, attributes: Mapping[str, str]) -> None:
        if value is not None:
            point = NumberDataPoint({**run, **attributes}, began, at, value)
            points.setdefault((name, unit, total), []).append(point)

    for name, unit, series, attributes in _step_series(report):
        for step, value in zip(report.steps, series, strict=True):
            if step in report.ended:
                add(name, unit, False, int(report.ended[step] * NANO), value, attributes)
    for name, unit, total, value, attributes in _run_values(report):
        add(name, unit, total, now, value, attributes)
    return [
        Metric(name, None, unit, Sum(own, AggregationTemporality.CUMULATIVE, True) if total else Gauge(own))
        for (name, unit, total), own in points.items()
    ]


def _step_series(report: MonitorReport) -> Iterator[tuple[str, str, Series, Mapping[str, str]]]:
    """Yield the metrics that have a value per step: name, unit, values by step, and attributes."""
    groups = report.groups
    for metric in of_kind("series"):
        if metric.group in groups and metric.field in groups[metric.group].by_step:
            attributes = {"practicum.domain": ALL_DOMAINS} if metric is RATE else {}
            yield metric.otel, UCUM[metric.unit], groups[metric.group].by_step[metric.field], attributes
    for role, values in groups["tokens"].by_step.items() if "tokens" in groups else ():
        if role != "tokens":
            yield METRICS["tokens.tokens"].otel, "{token}", values, {"practicum.role": role}
    domains: Mapping[str, Any] = groups["learning"].numbers["domains"] if "learning" in groups else {}
    for domain, numbers in domains.items():
        if domain != ALL_DOMAINS:
            # The value of a step is the rate after the last attempt of the step in this domain.
            rate = dict(zip(numbers["by_attempt"]["step"], numbers["by_attempt"]["rate"], strict=True))
            yield RATE.otel, UCUM[RATE.unit], [rate.get(step) for step in report.steps], {"practicum.domain": domain}


def _run_values(report: MonitorReport) -> Iterator[tuple[str, str, bool, float | None, Mapping[str, str]]]:
    """Yield the metrics of the whole run: name, unit, whether the value is a total, value, and attributes."""
    groups = report.groups
    for row in groups["latency"].numbers["components"]:
        part = {"practicum.component": row["component"], "practicum.stage": row["stage"]}
        yield "practicum.component.time", "s", True, row["seconds"], part
        for name, quantile in (("median", "0.5"), ("p95", "0.95")):
            yield "practicum.component.duration", "s", False, row.get(name), {"practicum.quantile": quantile, **part}
    for stage, costs in groups["tokens"].numbers.items() if "tokens" in groups else ():
        for role, usage in costs["by_role"].items():
            part = {"practicum.role": role, "practicum.stage": stage}
            for kind in ("input", "output"):
                yield "practicum.tokens", "{token}", True, usage[f"{kind}_tokens"], {"gen_ai.token.type": kind, **part}
            yield "practicum.tokens.cached", "{token}", True, usage["cached_tokens"], part
            yield "practicum.calls", "{call}", True, usage["calls"], part
            yield "practicum.cost", "USD", True, usage.get("usd"), part
    for against, numbers in groups["judge"].numbers.items() if "judge" in groups else ():
        other = {"practicum.against": against.removeprefix("against_")}
        yield "practicum.judge.consistency", "1", False, numbers.get("same"), other


def send(report: MonitorReport) -> int:
    """Send the metrics of a run to the `metrics_endpoint`. Returns the number of data points that were sent. Raises
    UsageError if `obstacle` returns a reason, and ExportError if the export failed."""
    if (problem := obstacle()) is not None:
        raise UsageError("telemetry.unavailable", problem)
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics.export import MetricExportResult, MetricsData, ResourceMetrics, ScopeMetrics
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    metrics = exported_metrics(report)
    scope = ScopeMetrics(InstrumentationScope("practicum", version("practicum")), metrics, "")
    exporter = OTLPMetricExporter(max_export_batch_size=POINTS_PER_REQUEST)
    with exporter_log("metric_exporter") as log:
        try:
            result = exporter.export(MetricsData([ResourceMetrics(resource(), [scope], "")]))
        finally:
            exporter.shutdown()
    if result is not MetricExportResult.SUCCESS:
        reason = f": {log[-1]}" if log else ""
        raise ExportError("telemetry.failed", f"cannot send the metrics to {metrics_endpoint()}{reason}")
    return sum(len(metric.data.data_points) for metric in metrics)
