"""What the service says about itself: metrics, spans and lines of the log, none of which hold contents."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from needs import needs
from opentelemetry.trace import SpanKind, StatusCode
from prometheus_client.parser import text_string_to_metric_families
from refusals import refused
from serving import Place, Served, asynchronous, served, until

from practicum.core.metrics import METRICS
from practicum.serve import lines
from practicum.serve.spans import Spans
from practicum.session.rollout import Rollout
from practicum.store import schema

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

QUESTION = "Which team handles lost cards, and which of them handles those that were stolen abroad?"


SECRET = "zq-secret-words-zq"
"""Stands in whatever nobody may see."""


# Metrics

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


async def scraped(at: Served, headers: Any = None) -> Samples:
    """All samples, by name and labels."""
    told = await at.send("GET", "/metrics", headers=headers)
    assert told.status == 200
    assert told.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = [*text_string_to_metric_families(told.body.decode())]
    assert all(family.documentation and family.type != "unknown" for family in families)
    names = [family.name for family in families]
    assert len(names) == len({*names})
    return {(one.name, frozenset(one.labels.items())): one.value for family in families for one in family.samples}


def sample(samples: Samples, name: str, **labels: str) -> float:
    return samples[f"practicum_{name}", frozenset(labels.items())]


@asynchronous
async def test_the_label_space_is_for_open_spaces_alone(tmp_path: Path) -> None:
    async with served(tmp_path, spaces=("default", "other")) as at:

        def spaces(found: Samples) -> set[str]:
            return {value for _, labels in found for name, value in labels if name == "space"}

        assert spaces(await scraped(at)) == {"default", "other"}
        at.service.close_space(at.service.spaces["other"])
        assert spaces(await scraped(at)) == {"default"}


@pytest.mark.slow
@asynchronous
async def test_what_learning_cost_today_is_told_also_after_a_new_start(place: Place) -> None:
    def answer(body: Any) -> str:
        return "no idea"

    how = {"learn": True, "learn_every": 2, "method": "unified", "canary": 0.0}
    async with served(responder=answer, **place, **how) as at:
        for n in range(2):
            reply = await at.ask(f"{QUESTION} {n}")
            await at.report(interaction=reply.interaction, comment="It is the blue team.")
        counts = at.service.counts
        await until(lambda: counts["learning_rounds"] + counts["learning_failures"])
        calls = sample(await scraped(at), "learning_calls_today", space="default")
        assert calls > 0
    async with served(responder=answer, **place, method="unified") as at:
        assert sample(await scraped(at), "learning_calls_today", space="default") == calls


@asynchronous
async def test_the_table_has_all_metrics_that_are_read(tmp_path: Path) -> None:
    async with served(tmp_path) as at:
        space = at.service.spaces["default"]
        space.rollout = Rollout.begin(1, 1, 0, 0.5, 20, np.zeros((0, 1)), {})
        await at.ask(QUESTION)
        told = await at.send("GET", "/metrics")
        space.rollout = None
    service = [metric for metric in METRICS.values() if metric.group == "service"]
    described = {metric.prometheus + ("_total" if metric.kind == "counter" else "") for metric in service}
    found = set[str]()
    for family in text_string_to_metric_families(told.body.decode()):
        if family.name.startswith("practicum_") and not family.name.endswith("_created"):
            found.add(f"{family.name}_total" if family.type == "counter" else family.name)
    assert described == found


# Spans

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def in_memory() -> InMemorySpanExporter:
    """Keeps spans. Without the extra `otel` the test is skipped."""
    exporter: InMemorySpanExporter = needs(
        "opentelemetry.sdk.trace.export.in_memory_span_exporter", "otel"
    ).InMemorySpanExporter()
    return exporter


def pairs(exporter: InMemorySpanExporter, spans: Spans) -> list[tuple[ReadableSpan, ReadableSpan]]:
    """The spans of each request: the outer one, and the one below it."""
    spans.close()
    found = exporter.get_finished_spans()
    by_id = {span.context.span_id: span for span in found if span.kind is SpanKind.SERVER}
    below = [span for span in found if span.kind is SpanKind.CLIENT]
    assert len(found) == 2 * len(below)
    return [(by_id[span.parent.span_id], span) for span in below if span.parent is not None]


@asynchronous
async def test_spans_say_how_the_upstream_failed(tmp_path: Path) -> None:
    exporter = in_memory()
    spans = Spans(exporter)
    async with served(tmp_path, spans=spans) as at:
        for fault in ("429", "500", "die"):
            await at.ask(QUESTION, {"x-sim-fault": fault})
        # Other requests have none.
        assert (await at.report(interaction="unknown", score=1.0)).status == 404
    found = pairs(exporter, spans)
    errors = [(inner.attributes or {}).get("error.type") for _, inner in found]
    assert errors == ["429", "500", "ClientPayloadError"]
    assert [(outer.attributes or {})["http.response.status_code"] for outer, _ in found] == [429, 500, 502]
    assert [outer.status.status_code is StatusCode.ERROR for outer, _ in found] == [False, True, True]


def test_spans_without_their_packages_are_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("practicum.models.otlp.find_spec", lambda name: None)
    with refused("extra.missing"):
        Spans()


# Lines


@pytest.fixture
def said() -> Iterator[io.StringIO]:
    """What is written to standard error with `--log json`."""
    root, out = logging.getLogger(), io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(lines.JsonLines())
    root.addHandler(handler)
    lines.requests.setLevel(logging.INFO)
    yield out
    root.removeHandler(handler)
    lines.requests.setLevel(logging.NOTSET)


def parsed(said: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in said.getvalue().splitlines()]


@asynchronous
async def test_each_request_has_one_line(said: io.StringIO, tmp_path: Path) -> None:
    key = f"{SECRET}-key"
    async with served(tmp_path, keys=(key,)) as at:
        own = {"authorization": f"Bearer {key}", "x-practicum-session": SECRET, "x-practicum-user": SECRET}
        reply = await at.ask(SECRET, own, model=SECRET)
        await at.report(own, interaction=reply.interaction, comment=SECRET)
        await at.send("GET", f"/v1/{SECRET}?{SECRET}", headers=own)
        await at.send("GET", f"/{SECRET}", headers={"authorization": f"Bearer {SECRET}"})
        await at.ask(SECRET)
        await at.send("POST", "/v1/feedback", SECRET.encode(), own)
        await at.send("POST", "/v1/feedback", {SECRET: SECRET}, own)
        counted = at.upstream.stats()
    found = parsed(said)
    assert SECRET not in said.getvalue()
    assert [(line["method"], line["route"], line["status"]) for line in found] == [
        ("POST", "chat", 200), ("POST", "report", 200), ("GET", "upstream", 403), ("GET", "other", 404),
        ("POST", "chat", 401), ("POST", "report", 400), ("POST", "report", 400),
    ]  # fmt: skip
    first = found[0]
    assert first.pop("time").endswith("+00:00")
    assert first.pop("seconds") > 0
    assert first == {
        "level": "info", "logger": "practicum.requests", "method": "POST", "route": "chat", "status": 200,
        "space": "default", "key": "--key", "interaction": reply.interaction, "version": 0,
        "input_tokens": counted["prompt_tokens"], "cached_tokens": 0, "output_tokens": 8,
    }  # fmt: skip
    assert found[1]["interaction"] == reply.interaction
    assert found[4]["key"] is None


@pytest.mark.parametrize("formatter", [lines.JsonLines(), lines.LineFormatter("%(message)s")], ids=["json", "text"])
@asynchronous
async def test_no_failure_puts_contents_into_the_log(
    formatter: logging.Formatter, said: io.StringIO, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = next(one for one in logging.getLogger().handlers if getattr(one, "stream", None) is said)
    handler.setFormatter(formatter)
    async with served(tmp_path) as at:
        space = at.service.spaces["default"]

        async def fails(request: Any, session: str) -> None:
            try:
                raise KeyError(request.query)
            except KeyError as error:
                raise RuntimeError(f"cannot show {request.query}") from error

        monkeypatch.setattr(space, "show", fails)
        assert (await at.ask(SECRET)).status == 200
        monkeypatch.undo()
        # A row that the database refuses, and one that it cannot even be asked to write.
        reply = await at.ask(SECRET)
        await until(lambda: not at.service.database.writer.unwritten)
        id = at.service.spaces["default"].id
        for row in ({"id": None, "data": SECRET}, {"id": object(), "data": SECRET}):
            at.service.database.writer.post(id, schema.interactions, {"at": 0.0, "version": 0, **row})
            await until(lambda: not at.service.database.writer.unwritten)
        assert (await at.report(interaction=reply.interaction, score=1.0)).status == 200
        assert at.service.database.writer.lost == 2
    text = said.getvalue()
    assert "passed on unchanged" in text
    assert "KeyError" in text
    assert "the database refuses its content" in text
    assert SECRET not in text
