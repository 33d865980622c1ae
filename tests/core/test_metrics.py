"""The table of metrics: one name on every face, and a unit."""

from __future__ import annotations

from practicum.core.metrics import METRICS, UCUM


def test_each_metric_has_one_name_on_every_face_and_a_unit() -> None:
    for face in ("name", "otel", "tracker"):
        names = [getattr(metric, face) for metric in METRICS.values()]
        assert len({*names}) == len(names)
    service = [metric.prometheus for metric in METRICS.values() if metric.group == "service"]
    assert len({*service}) == len(service)
    assert all(metric.unit in UCUM and metric.about and metric.title for metric in METRICS.values())
