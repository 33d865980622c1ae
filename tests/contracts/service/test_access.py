"""Access to a service (docs/serve/operations.md): keys, roles, spaces, and the OpenAPI document."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from service_kit import (
    BODIES,
    CHAT,
    MESSAGES,
    QUESTION,
    RESPONSES,
    Client,
    Reply,
    Service,
    code_of,
    files_with,
    process,
    run_json,
    serving_here,
    slow,
    unique,
    until,
)
from service_model import Model

Route = tuple[str, str]

ROLES = {
    "ask": f"POST {CHAT} POST {RESPONSES} POST {MESSAGES} POST /v1/context GET /v1/playbook GET /v1/history",
    "report": "POST /v1/feedback POST /v1/notes POST /v1/remove",
    "review": "GET /v1/interactions GET /v1/corrections GET /v1/review POST /v1/review POST /v1/playbook "
    "POST /v1/rollback POST /v1/rollout POST /v1/learn",
    "admin": "GET /v1/user DELETE /v1/user GET /v1/keys POST /v1/keys DELETE /v1/keys",
    "ask, for all spaces": "GET /metrics GET /v1/spaces",
    "admin, for all spaces": "POST /v1/spaces DELETE /v1/spaces",
}  # fmt: skip
ROUTES: dict[Route, str] = {
    (words[n], words[n + 1]): role for role, text in ROLES.items() for words in [text.split()]
    for n in range(0, len(words), 2)
}  # fmt: skip
"""Each route with the role of its key."""

ADMIN = "admin-0123456789abcdef"

OPEN: tuple[Route, ...] = (("GET", "/health"), ("GET", "/ready"))
"""Routes without a key."""


def bare(client: Client) -> Client:
    """The same service without a key."""
    return Client(client.url, client.model)


def key(admin: Client, *roles: str, space: str = "", **more: Any) -> str:
    """A new key; without a space it is for all."""
    return str(admin.post("/v1/keys", name=unique("key"), space=space, roles=roles, **more)["key"])


def visit(client: Client, route: Route) -> Reply:
    """A request at a route that changes nothing: operations get malformed JSON."""
    method, path = route
    body = None if method == "GET" else json.dumps(BODIES[path]).encode() if path in BODIES else b"no json"
    return client.send(method, path, body)


@pytest.mark.parametrize("role", ["ask", "report", "review", "admin"])
def test_a_role_opens_its_routes_in_its_space_and_no_others(role: str, keyed: Service) -> None:
    admin, stranger = keyed.client, bare(keyed.client)
    own, whole = key(admin, role, space="default"), key(admin, role)
    wrong: dict[tuple[Route, str], int] = {}
    for number, (route, needed) in enumerate(ROUTES.items()):
        may = role in (needed.partition(",")[0], "admin")
        here = may and ", for all" not in needed
        # Each header of a key, with and without the name of the space.
        mine = [stranger.with_key(own), stranger.with_key(own).in_space("default"),
                stranger.with_headers(x_api_key=own), stranger.with_headers(x_practicum_key=own)]  # fmt: skip
        expected = {
            "its space": (mine[number % len(mine)], here),
            "the other space": (stranger.with_key(own).in_space("other"), False),
            "a key for all": (stranger.with_key(whole).in_space(["default", "other"][number % 2]), may),
        }
        for case, (client, allowed) in expected.items():
            status = visit(client, route).status
            if (status != 403) != allowed or status in (401, 429) or status >= 500:
                wrong[route, case] = status
    assert wrong == {}
    health = [stranger.with_key(one).get("/health") for one in (own, whole)]
    assert health[0] == {"status": "ok"}
    assert ("spaces" in health[1]) == (role in ("ask", "admin"))


def test_without_a_valid_key_every_route_is_closed_and_more_than_60_wrong_keys_per_minute_have_to_wait(
    keyed: Service,
) -> None:
    admin, stranger = keyed.client, bare(keyed.client)
    removed = stranger.with_key(admin.post("/v1/keys", name="gone", roles=["admin"])["key"])
    assert removed.ask().status == 200
    assert admin.send("DELETE", "/v1/keys", {"name": "gone"}).status == 200
    cases = [(stranger, "key.missing"), (stranger.with_key("w" * 40), "key.wrong"), (removed, "key.wrong"),
             (stranger.with_key(key(admin, "admin", days=1e-9)), "key.expired")]  # fmt: skip
    for number, (client, code) in enumerate(cases):
        # Wrong keys are counted by address, which a proxy on this machine may name.
        away = client.with_headers(x_forwarded_for=f"203.0.113.{number}")
        for route in ROUTES:
            reply = visit(away, route)
            reply.refused(code)
            assert reply.headers["www-authenticate"] == "Bearer"
    assert stranger.get("/health") == {"status": "ok"}
    away = stranger.with_key("w" * 40).with_headers(x_forwarded_for="203.0.113.99")
    replies = [away.send("GET", "/v1/history") for _ in range(62)]
    assert {reply.status for reply in replies[:60]} == {401}
    replies[-1].refused("request.too_many")
    assert int(replies[-1].headers["retry-after"]) >= 1
    # Other addresses do not wait.
    assert admin.send("GET", "/v1/history").status == 200


def test_a_key_is_stored_as_its_digest_and_may_send_its_number_of_requests_per_minute(keyed: Service) -> None:
    secret = key(keyed.client, "ask", space="default", days=7, per_minute=3)
    listed = keyed.client.get("/v1/keys")["keys"]
    assert secret not in json.dumps(listed)
    (one,) = (each for each in listed if each["per_minute"] == 3)
    assert (one["space"], one["roles"]) == ("default", ["ask"])
    assert one["expires"] is not None
    assert files_with(keyed.store, secret) == []
    client = bare(keyed.client).with_key(secret)
    assert [client.send("POST", path, BODIES[path]).status for path in BODIES] == [200, 200, 200]
    for path in BODIES:
        reply = client.send("POST", path, BODIES[path])
        reply.refused("request.too_many")
        assert (reply.json.get("type") == "error") == (path == MESSAGES)
        assert 1 <= int(reply.headers["retry-after"]) <= 60
        assert not reply.received
    # An admin of one space manages keys of that space only.
    local = bare(keyed.client).with_key(key(keyed.client, "admin", space="other"))
    assert local.post("/v1/keys", name=unique("key"), roles=["ask"])["space"] == "other"
    assert {one["space"] for one in local.get("/v1/keys")["keys"]} == {"other"}
    local.send("POST", "/v1/keys", {"name": "x", "space": "default", "roles": ["ask"]}).refused("key.forbidden")
    local.send("DELETE", "/v1/keys", {"name": "x", "space": "default"}).refused("key.forbidden")


@slow
def test_a_service_without_a_key_listens_on_this_machine_only_and_one_that_had_a_key_stays_locked(
    model: Model, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    done = process("serve", "--upstream", model.url, store, "--host", "0.0.0.0", "--port", 0, "--json")
    assert done.json["error"]["code"] == "key.not_configured"
    run_json("key", "add", "only", "--store", store, "--grant", "ask")
    with serving_here(model, store) as service:
        service.client.send("POST", CHAT, BODIES[CHAT]).refused("key.missing")
        run_json("key", "remove", "only", "--store", store)
        service.client.send("POST", CHAT, BODIES[CHAT]).refused("key.missing")


@slow
def test_a_service_starts_with_spaces_keys_and_a_context_and_its_files_are_private(
    model: Model, tmp_path: Path
) -> None:
    store, context = tmp_path / "store", tmp_path / "playbook.md"
    for short in ("short", "with space 0123456789"):
        assert code_of("serve", "--upstream", model.url, store, "--port", 0, "--key", short) == "key.invalid"
    context.write_text("## rules\n\n- Name the team.\n")
    keys = ("--key", "support=support-0123456789", "--key", ADMIN)
    with serving_here(model, store, "--space", "default", "--space", "support", "--context", context, *keys) as service:
        client = service.client.with_key("support-0123456789")
        assert [visit(client, route).status != 403 for route in ROUTES] == [
            ", for all" not in needed for needed in ROUTES.values()
        ]
        visit(client.in_space("default"), ("POST", CHAT)).refused("key.forbidden")
        assert "Name the team." in service.client.with_key(ADMIN).shown()
    assert {stat.S_IMODE(path.stat().st_mode) & 0o077 for path in [store, *store.rglob("*")]} == {0}


def test_spaces_share_nothing_and_the_first_is_that_of_requests_without_a_space(keyed: Service) -> None:
    admin, name, word = keyed.client, unique("short"), unique("albatross")
    question, answer = f"Which team handles {word}?", f"team {word}"
    admin.post("/v1/spaces", name=name)
    admin.post("/v1/spaces", name=name)
    space, agent = admin.in_space(name), bare(admin).with_key(key(admin, "ask", "report", space=name))
    reply = space.correct(question, answer)
    space.add_entry(f"The {word} flies.")
    space.post("/v1/notes", text=f"A note of the {word}.")
    assert f"team {word}" in space.shown(question)
    for other in (admin, admin.in_space("other"), admin.new_space()):
        assert other.shown(question).count(word) == 1
        assert word not in json.dumps([other.entries(), other.get("/v1/corrections", state="live")])
        other.try_report(reply, score=1.0).refused("interaction.unknown")
        assert reply.interaction not in json.dumps(other.get("/v1/interactions"))
    admin.correct(question, f"first {word}")
    assert [f"first {word}" in admin.in_space(name).shown(question) for name in ("default", "other")] == [True, False]
    # A space is deleted with all its data.
    asked = agent.ask()
    assert name in admin.get("/v1/spaces")["spaces"]
    assert admin.send("DELETE", "/v1/spaces", {"name": name}).json["name"] == name
    assert name not in admin.get("/v1/spaces")["spaces"]
    assert not (keyed.store / "spaces" / name).exists()
    space.try_report(asked, score=1.0).refused("space.unknown")
    # A new space of the same name is empty, and the old key does not open it.
    admin.post("/v1/spaces", name=name)
    assert answer not in space.shown(question)
    assert space.entries() == []
    assert agent.send("POST", CHAT, BODIES[CHAT]).status in (401, 403)
    space.try_report(asked, score=1.0).refused("interaction.unknown")


def test_an_unknown_space_is_an_error_and_a_space_of_the_start_is_not_deleted(keyed: Service) -> None:
    invalid = "space.invalid_name"
    for name, code in (("none", "space.unknown"), ("../etc", invalid), ("a" * 65, invalid)):
        keyed.client.in_space(name).send("POST", CHAT, BODIES[CHAT]).refused(code)
        keyed.client.in_space(name).send("GET", "/v1/history").refused(code)
    for name, code in (("default", "space.in_use"), ("none", "space.unknown"), ("a\n", "request.malformed")):
        keyed.client.send("DELETE", "/v1/spaces", {"name": name}).refused(code)


def closed(schema: Any) -> Any:
    """A schema that allows no other fields."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {name: closed(one) for name, one in schema.items()}
    return {"additionalProperties": False, **inner} if "properties" in inner else inner


class Document:
    """The OpenAPI document of a service, by which answers are checked."""

    def __init__(self, client: Client) -> None:
        self.raw = bare(client).get("/openapi.json")
        self.routes = {(method.upper(), path) for path, methods in self.raw["paths"].items() for method in methods}
        self.components = {"schemas": closed(self.raw["components"]["schemas"])}
        self.checked: set[Route] = set()

    def operation(self, route: Route) -> Any:
        return self.raw["paths"][route[1]][route[0].lower()]

    def check(self, method: str, path: str, reply: Reply) -> None:
        """Require that an answer has the form of the document, and no other fields."""
        answers = self.operation((method, path))["responses"]
        form = answers[str(reply.status)]
        if "$ref" in form:
            form = self.raw["components"]["responses"][form["$ref"].rpartition("/")[2]]
        (kind,) = form["content"].keys() & {"application/json", "text/plain"}
        assert reply.headers["content-type"].startswith(kind)
        if kind == "application/json":
            schema = {**closed(form["content"][kind]["schema"]), "components": self.components}
            Draft202012Validator(schema).validate(reply.json)
        if reply.status < 300:
            self.checked.add((method, path))


@pytest.fixture(scope="module")
def document(keyed: Service) -> Document:
    return Document(keyed.client)


def test_each_operation_has_its_role_and_answers_in_the_form_of_the_document(
    document: Document, locked: Client
) -> None:
    assert document.raw["openapi"].startswith("3.1")
    assert document.routes == ROUTES.keys() | {*OPEN}
    for route, needed in ROUTES.items():
        schemes = document.operation(route)["security"]
        assert {name for one in schemes for name in one} == {"bearer", "x-api-key", "x-practicum-key"}
        assert all([*one.values()] == [[needed.partition(",")[0]]] for one in schemes)
    assert [document.operation(route)["security"] for route in OPEN] == [[], []]

    def send(method: str, path: str, body: Any = None, query: str = "", client: Client = locked) -> Any:
        reply = client.send(method, path + query, body)
        assert reply.status in (200, 202), reply.body
        document.check(method, path, reply)
        return reply.json if reply.headers["content-type"].startswith("application/json") else None

    user, name = locked.as_user("u"), unique("more")
    send("POST", "/v1/playbook", {"text": "Cards go to the blue team.", "section": "rules"})
    send("POST", "/v1/playbook", {"id": "e0", "text": "Lost cards go to the blue team.", "seen": 1})
    assert send("GET", "/v1/playbook", query="?search=cards&section=rules&skip=0&limit=5")["entries"][0]["id"] == "e0"
    assert send("POST", "/v1/context", {"input": QUESTION})["interaction"]
    send("POST", "/v1/notes", {"text": "Ask for the number.", "about": "cards"})
    send("POST", "/v1/notes", {"text": "Cards are free.", "about": "cards"}, client=user)
    (note,) = send("GET", "/v1/corrections", query="?state=waiting&limit=5")["corrections"]
    send("POST", "/v1/review", {"id": note["id"], "decision": "approve"})
    send("POST", "/v1/remove", {"id": note["id"]})
    for number in range(6):
        asked = user.ask(f"Which team handles case {number}?")
        send("POST", "/v1/feedback", {"interaction": asked.interaction, "target": f"team {number}"}, client=user)
    assert len(send("GET", "/v1/interactions", query="?user=u&limit=5")["interactions"]) == 5
    send("POST", "/v1/learn")
    (edits, *_) = until(lambda: send("GET", "/v1/review")["edits"])
    version = send("POST", "/v1/review", {"id": edits["id"], "decision": "approve"})["version"]
    until(lambda: locked.health()["candidate"] == version)
    send("GET", "/health")
    send("POST", "/v1/rollout", {"version": version, "decision": "back"})
    send("POST", "/v1/rollback", {})
    assert send("GET", "/v1/history")["rollouts"][0]["state"] == "taken back"
    send("POST", "/v1/remove", {"id": "e0"})
    assert send("GET", "/v1/user", query="?user=u")["items"]
    assert send("DELETE", "/v1/user", {"user": "u"})["left"] == 0
    send("POST", "/v1/keys", {"name": name, "roles": ["ask"], "days": 90})
    send("GET", "/v1/keys")
    send("DELETE", "/v1/keys", {"name": name})
    send("POST", "/v1/spaces", {"name": name})
    assert name in send("GET", "/v1/spaces")["spaces"]
    send("DELETE", "/v1/spaces", {"name": name})
    for path in ("/ready", "/metrics"):
        send("GET", path)
    for path, body in BODIES.items():
        assert {"x-practicum-interaction", "x-practicum-version"} <= document.operation(("POST", path))["responses"][
            "200"
        ]["headers"].keys()
        assert send("POST", path, body)
    assert document.routes - document.checked == set()


ODD: list[tuple[str, str, bytes | None, str]] = [
    ("POST", "/v1/notes", b'{"text": "\\u0000"}', "request.malformed"),
    ("POST", "/v1/notes", b'{"text": "\\ud800"}', "request.malformed"),
    ("POST", "/v1/notes", b'{"text": "\xff"}', "request.malformed"),
    ("POST", "/v1/notes", b"[" * 100_000, "request.malformed"),
    ("POST", "/v1/notes", b"{" + b",".join(b'"f%d": 1' % n for n in range(101)) + b"}", "request.malformed"),
    ("POST", "/v1/notes", b'{"text": "%s"}' % (b"x" * 2**20), "request.too_large"),
    ("POST", "/v1/rollback", b'{"version": 1' + b"0" * 5_000 + b"}", "request.malformed"),
    ("POST", "/v1/remove", b'{"id": "e999999999"}', "entry.unknown"),
    ("GET", "/v1/playbook?limit=" + "9" * 5_000, None, "request.malformed"),
    ("POST", "/v1/keys", '{"name": "a\u202eb", "roles": ["ask"]}'.encode(), "key.invalid"),
    ("GET", "/v1/interactions?since=yesterday", None, "request.malformed"),
]  # fmt: skip


def test_wrong_fields_methods_and_odd_values_are_errors_in_the_form_of_the_document(
    document: Document, locked: Client
) -> None:
    for method, path in sorted(document.routes - {*OPEN, ("GET", "/metrics")} - {("POST", path) for path in BODIES}):
        if method == "GET":
            reply = locked.send(method, f"{path}?no-such-field=1")
        else:
            reply = locked.send(method, path, {"no-such-field": 1})
        document.check(method, path, reply)
        reply.refused("outcome.invalid" if path == "/v1/feedback" else "request.malformed")
    for path in {*document.raw["paths"]} - {*BODIES}:
        locked.send("PUT", path, b"{}").refused("request.wrong_verb")
        for method in ("GET", "POST", "DELETE"):
            if (method, path) not in document.routes:
                locked.send(method, path, b"{}" if method != "GET" else None).refused("request.wrong_verb")
    bare(locked).send("POST", "/openapi.json", b"{}").refused("request.wrong_verb")
    for method, path, body, code in ODD:
        reply = locked.send(method, path, body)
        document.check(method, path.partition("?")[0], reply)
        reply.refused(code)
        assert len(reply.json["error"]["message"]) < 500
    assert locked.send("GET", "/v1/playbook?search=%ff%ED%A0%80&limit=5").status == 200
