"""Several nodes on one database (docs/serve/operations.md): two nodes on one PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from needs import needs
from service_kit import LEARNING, QUESTION, RIGHT, Client, serving, unique, until
from service_model import Model

pytestmark = [pytest.mark.postgres, pytest.mark.slow]


@dataclass(frozen=True)
class Nodes:
    """Two nodes, and their database."""

    a: Client
    b: Client
    database: str


@pytest.fixture
def nodes(postgresql: str, model: Model, tmp_path: Path) -> Iterator[Nodes]:
    with ExitStack() as stack:
        clients = [
            stack.enter_context(
                serving(model, postgresql, *LEARNING, "--trust-users", "--folder", tmp_path / f"node-{name}")
            ).client
            for name in "ab"
        ]
        yield Nodes(*clients, postgresql)


def seen(space: Client, sessions: int = 16) -> list[int]:
    return [space.in_session(f"s{number}").ask("Which?").version for number in range(sessions)]


def test_reports_reviews_edits_and_spaces_of_one_node_hold_on_the_other(nodes: Nodes) -> None:
    a, b = nodes.a, nodes.b
    # A report about an interaction of the other node.
    reply = a.ask()
    assert RIGHT not in b.shown()
    assert b.report(reply, target=RIGHT)["correction"] == "in effect"
    assert RIGHT in b.shown()
    until(lambda: RIGHT in a.shown())
    # A later correction replaces it on each node.
    a.report(b.ask(), target="the red team")
    until(lambda: "the red team" in b.shown())
    assert b.get("/v1/corrections", state="live")["total"] == 1
    b.as_user("anna").post("/v1/notes", text="A note of Anna.")
    (note,) = a.get("/v1/corrections")["corrections"]
    a.post("/v1/review", id=note["id"], decision="approve")
    until(lambda: "A note of Anna." in b.shown())
    a.add_entry("A rule.")
    until(lambda: b.entries() == ["A rule."])
    one = a.new_space()
    two = b.in_space(one.space)
    # Of corrections of one request at the same time, one is left.
    asked = [client.ask() for client in (one, two)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: (one, two)[n % 2].report(asked[n % 2], target=f"team {n}x"), range(10)))
    (live,) = one.get("/v1/corrections", state="live")["corrections"]
    for client in (one, two):
        until(lambda client=client: live["target"] in client.shown())
    assert two.get("/v1/corrections", state="live")["total"] == 1
    assert b.send("DELETE", "/v1/spaces", {"name": one.space}).status == 200
    until(lambda: one.send("GET", "/v1/history").status == 404)


def test_a_rollout_is_one_on_all_nodes_and_a_user_is_deleted_on_all(nodes: Nodes) -> None:
    a, b, word = nodes.a, nodes.b, unique("quetzal")
    ids = a.as_user("anna").teach(4, word)
    b.teach(4, start=50)
    candidate = a.learn()
    until(lambda: b.health()["candidate"] == candidate)
    # A session sees one version.
    on_a = seen(a)
    assert set(on_a) == {0, candidate}
    assert seen(b) == on_a
    # Both count the outcomes of both, and one decides.
    for number in range(200):
        node = (a, b)[number % 2].in_session(f"r{number}")
        node.report(node.ask("And this one?"), score=1.0)
        if number % 10 == 9 and a.health()["candidate"] is None:
            break
    until(lambda: (a.health()["version"], b.health()["version"]) == (candidate, candidate))
    assert [one["state"] for one in b.rollouts()] == ["promoted"]
    assert [one["kind"] for one in a.get("/v1/history")["alarms"]] == ["rollout"]
    until(lambda: word in b.shown(f"Which team handles {word} 3?").replace(f"{word} 3?", ""))
    # While the other node learns, the deletion is refused, and has to be requested again.
    replies = []
    until(lambda: replies.append(a.send("DELETE", "/v1/user", {"user": "anna"})) or replies[-1].status != 409)
    assert {reply.json["error"]["code"] for reply in replies[:-1]} <= {"store.busy"}
    assert (replies[-1].status, replies[-1].json["left"]) == (200, 0)
    until(lambda: f"{word} team" not in b.shown(f"Which team handles {word} 3?"))
    assert not [text for text in b.entries() if f"{word} team" in text]
    b.try_report(ids[0], target="x").refused("interaction.unknown")
    assert "case team 50" in b.shown("Which team handles case 50?")
    assert b.post("/v1/rollback", version=0) == {"version": 0}
    until(lambda: set(seen(a)) == {0})


def test_without_the_database_requests_continue_and_reports_are_refused(nodes: Nodes) -> None:
    psycopg = needs("psycopg", "postgres")
    a, b = nodes.a, nodes.b
    a.correct()
    until(lambda: RIGHT in b.shown())
    name = urlsplit(nodes.database).path.strip("/")
    admin = urlsplit(nodes.database)._replace(path="/postgres").geturl()

    def allow(value: bool) -> None:
        with psycopg.connect(admin, autocommit=True) as db:
            db.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS {value}")
            db.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))

    allow(False)
    try:
        reply = a.in_session("new").ask(f"{QUESTION} Now?")
        assert reply.status == 200
        refusal = until(lambda: (got := a.try_report(reply, score=1.0)).status == 503 and got)
        assert int(refusal.headers["retry-after"]) > 0
        assert b.ask("And this?").status == 200
        assert a.get("/ready") == {"status": "ready"}
    finally:
        allow(True)
    if reply.headers["x-practicum-interaction"]:
        until(lambda: a.try_report(reply, score=1.0).status == 200)
    until(lambda: a.try_report(a.ask(), score=1.0).status == 200)
    assert a.get("/health")["lost"] == 0
