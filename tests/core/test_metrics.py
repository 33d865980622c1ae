"""The table of metrics, and docs/metrics.md, which is made from it.

`PRACTICUM_UPDATE_DOCS=1 pytest tests/core/test_metrics.py` writes the page.
"""

from __future__ import annotations

import os
from itertools import groupby
from pathlib import Path

from practicum.core.metrics import METRICS, UCUM, MetricKind

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"

HEAD = """\
# Metrics

Every metric of practicum, once. The page is made from `practicum/core/metrics.py`.

- Metrics of a **run by step** are in `practicum space monitor RUN --json` at `GROUP.by_step.NAME`, in its pictures, and
  in OpenTelemetry as `practicum.GROUP.NAME`. Those of `dynamics` are in `practicum space dynamics RUN --json` at
  `checkpoints[].NAME`. `tokens` also has the tokens of each role by its name.
- Metrics of a **run at work** are sent by [trackers](monitor.md#trackers) at the end of each step, with `_` for `.`.
- Metrics of a **comparison** are the columns of its tables of costs, and in `report.json` at `variants[].NAME`.
- Metrics of a **service** are read by Prometheus at [/metrics](operations.md#metrics), with `process_*`, which its
  Python client adds.
"""

GROUPS = {
    "series": "A run, by step", "progress": "A run at work", "comparison": "A comparison, by variant",
    "service": "A service",
}  # fmt: skip


def row(metric: MetricKind) -> str:
    name = metric.name
    if metric.group == "service":
        name = metric.prometheus + ("_total" if metric.kind == "counter" else "")
    kind = "" if metric.kind in ("series", "progress") else f" ({metric.kind})"
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    return f"| `{name}` | {metric.unit}{kind} | {labels} | {metric.about} |"


def page() -> str:
    parts = [HEAD]
    for group, metrics in groupby(METRICS.values(), lambda one: "service" if one.group == "service" else one.kind):
        parts += [f"## {GROUPS[group]}", "", "| name | unit | labels | what |", "|---|---|---|---|"]
        parts += [*map(row, metrics), ""]
    return "\n".join(parts)


def test_the_page_of_metrics_is_that_of_the_table() -> None:
    if os.environ.get("PRACTICUM_UPDATE_DOCS"):
        PAGE.write_text(page(), encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == page()


def test_each_metric_has_one_name_on_every_face_and_a_unit() -> None:
    for face in ("name", "otel", "tracker"):
        names = [getattr(metric, face) for metric in METRICS.values()]
        assert len({*names}) == len(names)
    service = [metric.prometheus for metric in METRICS.values() if metric.group == "service"]
    assert len({*service}) == len(service)
    assert all(metric.unit in UCUM and metric.about and metric.title for metric in METRICS.values())
