"""Metrics, spans and lines of the log, which hold no contents."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from needs import needs
from opentelemetry.trace import SpanKind, StatusCode
from prometheus_client.parser import text_string_to_metric_families
from serving import Place, Served, asynchronous, served, until

from practicum.serve import lines
from practicum.serve.spans import Spans
from practicum.store import schema

QUESTION = "Which team handles lost cards, and which of them handles those that were stolen abroad?"


SECRET = "zq-secret-words-zq"
"""Part of every text that no log may hold."""


# Metrics

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


async def scraped(at: Served) -> Samples:
    """All samples, by name and labels."""
    reply = await at.send("GET", "/metrics")
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = [*text_string_to_metric_families(reply.body.decode())]
    assert all(family.documentation and family.type != "unknown" for family in families)
    assert len(families) == len({family.name for family in families})
    return {(one.name, frozenset(one.labels.items())): one.value for family in families for one in family.samples}


@pytest.mark.slow
@asynchronous
async def test_the_cost_of_learning_today_is_counted_after_a_restart_too(place: Place) -> None:
    how = {"learn": True, "learn_every": 2, "method": "unified", "canary": 0.0}
    series = "practicum_learning_calls_today", frozenset({("space", "default")})
    async with served(responder=lambda body: "no idea", **place, **how) as at:
        for n in range(2):
            reply = await at.ask(f"{QUESTION} {n}")
            await at.report(interaction=reply.interaction, comment="It is the blue team.")
        counts = at.service.counts
        await until(lambda: counts["learning_rounds"] + counts["learning_failures"])
        calls = (await scraped(at))[series]
        assert calls > 0
    async with served(**place, method="unified") as at:
        assert (await scraped(at))[series] == calls


# Spans


@asynchronous
async def test_spans_name_the_failure_of_the_upstream(tmp_path: Path) -> None:
    exporter = needs("opentelemetry.sdk.trace.export.in_memory_span_exporter", "otel").InMemorySpanExporter()
    spans = Spans(exporter)
    async with served(tmp_path, spans=spans) as at:
        for fault in ("429", "500", "die"):
            await at.ask(QUESTION, {"x-sim-fault": fault})
        # Other requests have no span.
        assert (await at.report(interaction="unknown", score=1.0)).status == 404
    spans.close()
    finished = exporter.get_finished_spans()
    outer = {span.context.span_id: span for span in finished if span.kind is SpanKind.SERVER}
    below = [span for span in finished if span.kind is SpanKind.CLIENT]
    assert (len(outer), len(below)) == (3, 3)
    assert [span.attributes.get("error.type") for span in below] == ["429", "500", "ClientPayloadError"]
    above = [outer[span.parent.span_id] for span in below]
    assert [span.attributes["http.response.status_code"] for span in above] == [429, 500, 502]
    assert [span.status.status_code is StatusCode.ERROR for span in above] == [False, True, True]


# Lines


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """The standard error of a service with `--log json`."""
    root, out = logging.getLogger(), io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(lines.JsonLines())
    root.addHandler(handler)
    lines.requests.setLevel(logging.INFO)
    yield out
    root.removeHandler(handler)
    lines.requests.setLevel(logging.NOTSET)


@asynchronous
async def test_each_request_has_one_line(log: io.StringIO, tmp_path: Path) -> None:
    key = f"{SECRET}-key"
    async with served(tmp_path, keys=(key,)) as at:
        own = {"authorization": f"Bearer {key}", "x-practicum-session": SECRET, "x-practicum-user": SECRET}
        reply = await at.ask(SECRET, own, model=SECRET)
        await at.report(own, interaction=reply.interaction, comment=SECRET)
        await at.send("GET", f"/v1/{SECRET}?{SECRET}", headers=own)
        await at.send("GET", f"/{SECRET}", headers={"authorization": f"Bearer {SECRET}"})
        await at.ask(SECRET)
        await at.send("POST", "/v1/feedback", {SECRET: SECRET}, own)
        counted = at.upstream.stats()
    assert SECRET not in log.getvalue()
    first, *others = map(json.loads, log.getvalue().splitlines())
    assert [(line["method"], line["route"], line["status"]) for line in others] == [
        ("POST", "report", 200), ("GET", "upstream", 403), ("GET", "other", 404), ("POST", "chat", 401),
        ("POST", "report", 400),
    ]  # fmt: skip
    assert first.pop("time").endswith("+00:00")
    assert first.pop("seconds") > 0
    assert first == {
        "level": "info", "logger": "practicum.requests", "method": "POST", "route": "chat", "status": 200,
        "space": "default", "key": "--key", "interaction": reply.interaction, "version": 0,
        "input_tokens": counted["prompt_tokens"], "cached_tokens": 0, "output_tokens": 8,
    }  # fmt: skip
    assert (others[0]["interaction"], others[3]["key"]) == (reply.interaction, None)


@asynchronous
async def test_no_failure_puts_contents_into_the_log(
    log: io.StringIO, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, root = io.StringIO(), logging.getLogger()
    handler = logging.StreamHandler(plain)
    handler.setFormatter(lines.LineFormatter("%(message)s"))
    root.addHandler(handler)
    async with served(tmp_path) as at:
        space = at.service.spaces["default"]

        async def fails(request: Any, session: str) -> None:
            try:
                raise KeyError(request.query)
            except KeyError as error:
                raise RuntimeError(f"cannot show {request.query}") from error

        with monkeypatch.context() as patch:
            patch.setattr(space, "show", fails)
            assert (await at.ask(SECRET)).status == 200
        # A row that the database refuses, and a row that no driver can send.
        reply = await at.ask(SECRET)
        await until(lambda: not at.service.database.writer.unwritten)
        for row in ({"id": None, "data": SECRET}, {"id": object(), "data": SECRET}):
            at.service.database.writer.post(space.id, schema.interactions, {"at": 0.0, "version": 0, **row})
            await until(lambda: not at.service.database.writer.unwritten)
        assert (await at.report(interaction=reply.interaction, score=1.0)).status == 200
        assert at.service.database.writer.lost == 2
    root.removeHandler(handler)
    for text in (log.getvalue(), plain.getvalue()):
        for part in ("passed on unchanged", "KeyError", "the database refuses its content"):
            assert part in text
        assert SECRET not in text
