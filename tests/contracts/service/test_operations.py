"""Operations (docs/serve/operations.md): health, readiness, metrics, limits, and the stop."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import pytest
from service_kit import BODIES, CHAT, QUESTION, Client, process, serving, serving_here, slow, unique, until
from service_model import FAULT, Model


def test_health_takes_no_key_and_metrics_a_key_for_all_spaces(locked: Client) -> None:
    stranger = Client(locked.url, locked.model)
    assert stranger.get("/health") == {"status": "ok"}
    assert stranger.get("/ready") == {"status": "ready"}
    locked.correct()
    user = locked.as_user("anna")
    user.report(user.ask(), target="the red team")
    locked.add_entry("A rule.")
    health = locked.health()
    counts = {"version": 1, "entries": 1, "corrections": 1, "candidate": None}
    assert {name: value for name, value in health.items() if name != "waiting"} == counts
    reply = locked.send("GET", "/metrics")
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    key = locked.post("/v1/keys", name=unique("key"), space=locked.space, roles=["admin"])["key"]
    stranger.send("GET", "/metrics").refused("key.missing")
    stranger.with_key(key).send("GET", "/metrics").refused("key.forbidden")


def test_metrics_count_requests_outcomes_and_failures(space: Client) -> None:
    def values() -> dict[str, float]:
        names = ("interactions_total", "feedback_total", "upstream_failures_total", "unread_requests_total",
                 "unread_answers_total", "uncounted_interactions_total")  # fmt: skip
        metrics = space.metrics()
        counts = {name: metrics.value(f"practicum_{name}") for name in names}
        for route in ("chat", "responses", "messages", "report"):
            for status in ("200", "404", "429", "502"):
                counts[f"{route} {status}"] = metrics.value("practicum_requests_total", route=route, status=status)
        for kind in ("input", "cached", "output"):
            counts[kind] = metrics.value(f"practicum_{kind}_tokens_total")
        return counts

    before = values()
    replies = [space.send("POST", path, body) for path, body in BODIES.items()]
    usage = replies[0].json["usage"]
    for fault in ("429", "die", "odd"):
        space.send("POST", CHAT, BODIES[CHAT], **{FAULT: fault})
    space.send("POST", CHAT, b"no json")
    space.post("/v1/context", input=QUESTION)
    space.report(replies[0], score=0.25)
    space.report(replies[1], score=1.0)
    space.try_report("unknown", score=1.0).refused("interaction.unknown")
    after = values()
    grown = {name: after[name] - before[name] for name in after if after[name] != before[name]}
    tokens = {kind: grown.pop(kind, 0) for kind in ("input", "cached", "output")}
    assert grown == {
        "interactions_total": 4, "feedback_total": 2, "upstream_failures_total": 1, "unread_requests_total": 1,
        "unread_answers_total": 1, "uncounted_interactions_total": 1, "chat 200": 2, "chat 429": 1, "chat 502": 1,
        "responses 200": 1, "messages 200": 1, "report 200": 2, "report 404": 1,
    }  # fmt: skip
    assert tokens["input"] >= 3 * usage["prompt_tokens"]
    assert tokens["output"] >= 3 * usage["completion_tokens"]
    assert tokens["cached"] <= tokens["input"]
    metrics = space.metrics()
    names = ("score_sum", "score_count", "live_version")
    assert [metrics.value(f"practicum_{name}", space=space.space) for name in names] == [1.25, 2, 0]
    assert metrics.value("practicum_lost_rows_total") == 0


def test_a_slow_upstream_does_not_delay_other_requests(untaught: Client) -> None:
    for path in BODIES:
        with untaught.streaming(path, {**BODIES[path], "stream": True}, **{FAULT: "hang"}):
            assert {untaught.ask(f"{QUESTION} {number}").status for number in range(3)} == {200}


@slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_waits_for_streams_and_loses_nothing(number: signal.Signals, model: Model, tmp_path: Path) -> None:
    with serving(model, tmp_path / "store") as service:
        replies = []
        late = threading.Thread(
            target=lambda: replies.append(service.client.send("POST", CHAT, BODIES[CHAT], **{FAULT: "slow"}))
        )
        before = len(model.received())
        late.start()
        until(lambda: len(model.received()) > before)
        assert service.stop(number) == 0
        late.join()
        assert replies[0].status == 200
    with serving_here(model, tmp_path / "store") as service:
        assert service.client.report(replies[0], score=1.0)["status"] == "kept"


@slow
def test_one_process_serves_from_a_store(model: Model, tmp_path: Path) -> None:
    with serving(model, tmp_path / "store") as service:
        done = process("serve", "--upstream", model.url, tmp_path / "store", "--port", 0)
        assert (done.code != 0, len(done.err.splitlines())) == (True, 1)
        port = service.client.url.rpartition(":")[2]
        done = process("serve", "--upstream", model.url, tmp_path / "more", "--port", port)
        assert done.code != 0
        assert "--port" in done.err
        # A refused start leaves nothing behind.
        assert not (tmp_path / "more").exists()
