"""Laws under kills, full disks and damaged files: no acknowledged report is lost or learned twice, and requests
continue."""

from __future__ import annotations

import json
import resource
import signal
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from http.client import HTTPException
from pathlib import Path
from random import Random
from typing import Any

import pytest
from service_kit import BODIES, CHAT, LEARNING, QUESTION, RIGHT, Client, serving, serving_here, unique, until
from service_model import Model

pytestmark = [pytest.mark.slow]

KILLS, WORKERS = 2, 4


def work(space: Client, number: int, acknowledged: dict[str, dict[str, Any]], corrections: dict[str, str]) -> None:
    """Ask and report until the service is killed. Acknowledged outcomes are recorded."""
    random = Random(number)
    with suppress(OSError, HTTPException):
        for count in range(10_000):
            question = f"Which team handles case {count} of office {number}?"
            reply = space.in_session(f"{number}-{count // 5}").ask(question)
            if reply.headers["x-practicum-interaction"] is None:
                continue
            outcome = {"score": random.random()} if count % 2 else {"target": f"team {number}x{count}x"}
            space.report(reply, **outcome)
            acknowledged[reply.interaction] = outcome
            if "target" in outcome:
                corrections[question] = str(outcome["target"])


@pytest.mark.durable
def test_acknowledged_reports_survive_kills_and_are_learned_from_once(model: Model, tmp_path: Path) -> None:
    store, options = tmp_path / "store", (*LEARNING, "--learn-every", 6)
    acknowledged: dict[str, dict[str, Any]] = {}
    corrections: dict[str, str] = {}
    for kill in range(KILLS + 1):
        with serving(model, store, *options) as service:
            client = service.client
            for id, outcome in acknowledged.items():
                assert client.report(id, **outcome)["status"] == "repeated", (id, outcome)
            for question, target in Random(kill).sample(sorted(corrections.items()), min(5, len(corrections))):
                assert target in client.shown(question)
            if kill == KILLS:
                # Each solved question is one entry of each version.
                client.post("/v1/learn")
                for version in {client.health()["version"], until(lambda client=client: client.health()["candidate"])}:
                    if client.health()["version"] != version:
                        client.post("/v1/rollback", version=version)
                    texts = client.entries()
                    assert len(texts) == len(set(texts))
                break
            goal = len(acknowledged) + Random(kill).randrange(10, 40)
            with ThreadPoolExecutor(WORKERS) as pool:
                numbers = range(kill * WORKERS, (kill + 1) * WORKERS)
                works = [pool.submit(work, client, number, acknowledged, corrections) for number in numbers]
                until(lambda goal=goal: len(acknowledged) >= goal)
                assert service.stop(signal.SIGKILL) == -signal.SIGKILL
            for one in works:
                one.result()
    assert len(acknowledged) >= 10 * KILLS
    with sqlite3.connect(f"file:{store / 'practicum.sqlite'}?mode=ro", uri=True) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    db.close()


def room(pid: int, size: int) -> None:
    """Limit the size of the files of a process, as a full disk does."""
    _, most = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, most))


def test_on_a_full_disk_only_reports_are_refused_until_there_is_room(model: Model, tmp_path: Path) -> None:
    with serving(model, tmp_path / "store") as service:
        client, pid = service.client, service.pid
        first = client.correct()
        files = [path for path in (tmp_path / "store").iterdir() if path.name.startswith("practicum.sqlite")]
        room(pid, max(path.stat().st_size for path in files))
        replies = [client.ask(f"Which team handles case {number}?") for number in range(20)]
        assert {reply.status for reply in replies} == {200}
        client.try_report(replies[0], target="the red team").refused("store.unwritable")
        client.send("POST", "/v1/notes", {"text": "x"}).refused("store.unwritable")
        # A refused report has no effect, and an acknowledged one has.
        assert "the red team" not in client.shown("Which team handles case 0?")
        assert RIGHT in client.shown()
        room(pid, resource.RLIM_INFINITY)
        assert client.report(replies[0], target="the red team")["status"] == "kept"
        assert client.report(first, target=RIGHT)["status"] == "repeated"
        for reply in replies[1:]:
            assert client.report(reply, score=1.0)["status"] == "kept"
        assert client.get("/health")["lost"] == 0


def test_requests_of_a_space_that_cannot_be_read_pass_unchanged(model: Model, tmp_path: Path) -> None:
    store = tmp_path / "store"
    with serving_here(model, store) as service:
        service.client.post("/v1/spaces", name="broken")
        service.client.in_space("broken").correct()
    with closing(sqlite3.connect(store / "practicum.sqlite")) as db, db:
        db.execute("UPDATE spaces SET config = 'no JSON' WHERE name = 'broken'")
    with serving_here(model, store) as service:
        space = service.client.in_space("broken")
        raw = json.dumps({"model": "sim", **BODIES[CHAT]}).encode()
        reply = space.send("POST", CHAT, raw)
        assert (reply.status, reply.sent.body) == (200, raw)
        assert reply.headers["x-practicum-interaction"] is None
        assert space.metric("practicum_unchanged_requests_total") == 1
        # Other spaces are served as before.
        assert service.client.ask().headers["x-practicum-interaction"]


def test_a_round_that_is_killed_continues_and_pays_for_no_call_twice(model: Model, tmp_path: Path) -> None:
    store, word = tmp_path / "store", unique("paid")
    options = ("--learn-every", 1_000_000, "--method", "ace", "--profile", "full", "--canary", 0.5)
    calls: list[str] = []
    held, rule = threading.Event(), {"text": f"A rule about {word}.", "section": "strategies"}
    form = {"reasoning": "", "diagnosis": "", "cause": "", "correction": "", "tags": [], "insights": [rule]}

    def write(body: dict[str, Any]) -> str:
        calls.append(json.dumps(body.get("messages"), sort_keys=True))
        if len(calls) == 4:
            held.wait(60)
        return json.dumps({**form, "changes": [{"op": "ADD", "insights": [n]} for n in range(1, 9)]})

    model.answers['"response_format"'] = write
    try:
        with serving(model, store, *options) as service:
            service.client.teach(8, word)
            service.client.post("/v1/learn")
            until(lambda: len(calls) >= 4)
            service.stop(signal.SIGKILL)
        held.set()
        answered = calls[:3]
        del calls[:]
        with serving_here(model, store, *options) as service:
            service.client.post("/v1/learn")
            until(lambda: service.client.health()["candidate"])
            assert not {*answered} & {*calls}
            assert RIGHT not in service.client.shown(QUESTION)
    finally:
        held.set()
        del model.answers['"response_format"']
