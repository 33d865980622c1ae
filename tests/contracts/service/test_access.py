"""Access to a service (docs/serve/operations.md): keys, roles, spaces, and the OpenAPI document."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from service_kit import (
    BODIES,
    CHAT,
    MESSAGES,
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


def test_the_document_names_each_route_with_its_role(keyed: Service) -> None:
    document = bare(keyed.client).get("/openapi.json")
    assert document["openapi"].startswith("3.1")
    security = {
        (method.upper(), path): operation["security"]
        for path, methods in document["paths"].items() for method, operation in methods.items()
    }  # fmt: skip
    for route, needed in ROUTES.items():
        role = needed.partition(",")[0]
        assert security.pop(route) == [{"bearer": [role]}, {"x-api-key": [role]}, {"x-practicum-key": [role]}]
    assert security == {route: [] for route in OPEN}


WRONG: list[tuple[str, str, bytes | None, str]] = [
    ("POST", "/v1/notes", b'{"text": "\\ud800"}', "request.malformed"),
    ("POST", "/v1/notes", b"[" * 100_000, "request.malformed"),
    ("POST", "/v1/notes", b'{"text": "%s"}' % (b"x" * 2**20), "request.too_large"),
    ("GET", "/v1/playbook?limit=" + "9" * 5_000, None, "request.malformed"),
    ("PUT", "/v1/notes", b"{}", "request.wrong_verb"), ("GET", "/v1/feedback", None, "request.wrong_verb"),
]  # fmt: skip


def test_an_unknown_field_and_a_wrong_method_or_value_are_refused(locked: Client) -> None:
    for method, path in ROUTES.keys() - {("POST", path) for path in BODIES} - {("GET", "/metrics")}:
        unknown = (f"{path}?no-such-field=1", None) if method == "GET" else (path, {"no-such-field": 1})
        code = "outcome.invalid" if path == "/v1/feedback" else "request.malformed"
        locked.send(method, *unknown).refused(code)
    for method, path, body, code in WRONG:
        reply = locked.send(method, path, body)
        reply.refused(code)
        assert len(reply.json["error"]["message"]) < 500
