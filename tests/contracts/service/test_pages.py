"""Pages (docs/serve/pages.md): the pages of the service, read and used without JavaScript."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing

from service_kit import Browser, Client, Service, unique, until
from service_model import Model

HOSTILE = "<script>document.title='taken'</script><img src=x onerror=alert(1)>\u202egnp.exe"

PAGES = (
    "", "/live", "/entries", "/entries?q=refund&section=rules", "/review", "/episodes",
    "/episodes?only=wrong", "/episodes?only=open", "/episodes?user=u1&session=s1", "/corrections",
    "/corrections?state=rejected", "/costs", "/costs?days=365", "/alarms", "/operations", "/operations/report",
)  # fmt: skip


def browser_of(space: Client) -> tuple[Browser, str]:
    """A browser on this machine, and the address of the pages of a space."""
    return Browser(space), f"/s/{space.space}"


def reviewer(locked: Client, space: str = "") -> Browser:
    """A browser with a session of a new key for reviews."""
    key = locked.post("/v1/keys", name=unique("reviewer"), space=space, roles=["review"])["key"]
    browser = Browser(locked)
    assert browser.sign_in(key).status == 303
    return browser


def test_without_keys_this_machine_sees_all_pages_and_they_load_nothing_of_other_sites(untaught: Client) -> None:
    browser, at = browser_of(untaught)
    for path in ("/", *(f"{at}{page}" for page in PAGES)):
        page = browser.get(path)
        assert page.status == 200, (path, page.words)
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert page.headers["cache-control"] == "no-store"
        assert page.headers["x-content-type-options"] == "nosniff"
        assert not re.search(r"<script>|<script [^>]*>[^<]| style=| on\w+=", page.text)
        assert not re.findall(r'(?:href|src|action)="(?:https?:)?//', page.text)
    files = re.findall(r'(?:href|src)="(/static/[^"]+)"', browser.get(at).text)
    assert files
    assert {browser.get(file).status for file in files} == {200}
    assert browser.get("/sign-in").headers["location"] == "/"
    assert browser.get("/", host="example.org").status == 403


def test_a_key_with_the_role_review_signs_in_and_sees_its_space(locked: Client) -> None:
    at = f"/s/{locked.space}"
    key = locked.post("/v1/keys", name=unique("ben"), space=locked.space, roles=["review"])["key"]
    browser = Browser(locked)
    assert browser.get(f"{at}?days=30").headers["location"] == f"/sign-in?next=%2Fs%2F{locked.space}%3Fdays%3D30"
    browser.get("/sign-in")
    done = browser.post("/sign-in", key=key, next=f"{at}?days=30")
    assert (done.status, done.headers["location"]) == (303, f"{at}?days=30")
    (cookie,) = (one for one in done.headers.get_all("set-cookie", []) if not one.startswith("practicum-form"))
    assert {"httponly", "path=/", "samesite=strict"} <= {*cookie.lower().split("; ")}
    assert key not in cookie
    listed = browser.get("/")
    assert locked.space in listed.text
    assert ">other<" not in listed.text
    assert browser.get(at).status == 200
    assert browser.get("/s/other").status == 403
    # Only an admin makes spaces.
    browser.get("/")
    assert browser.post("/", name="mine").status == 403
    browser.get("/")
    assert browser.post("/sign-out").headers["location"] == "/sign-in"
    assert browser.get(at).status == 303
    # Over a different host, cookies are for HTTPS only.
    cookie = Browser(locked).get("/sign-in", host="practicum.example.org").headers["set-cookie"]
    assert cookie.startswith("__Host-")
    assert "Secure" in cookie


def test_signing_in_needs_a_valid_key_with_the_role_review_and_ends_with_the_key(locked: Client) -> None:
    def key(*roles: str, **more: object) -> str:
        return str(locked.post("/v1/keys", **{"name": unique("key"), "roles": roles, **more})["key"])

    at = f"/s/{locked.space}"
    cases = ((key("ask", "report"), 403), (key("review", days=1e-9), 401), ("pk-nothing", 401), ("", 401))
    for wrong, status in cases:
        browser = Browser(locked)
        page = browser.sign_in(wrong)
        assert page.status == status
        assert not wrong or wrong not in page.text
        assert browser.get(at).status == 303
    valid = key("review", name="leaving")
    # It takes the token of its page, and leads to pages of this service only.
    browser = Browser(locked)
    page = browser.post("/sign-in", key=valid, token="x")
    assert (page.status, "allow cookies" in page.words) == (403, True)
    for way in ("https://example.org", "//example.org", "/\\example.org", "/s/x\r\na: b", "/v1/x"):
        browser.get("/sign-in")
        page = browser.post("/sign-in", key=valid, token="x")
        assert (page.status, "out of date" in page.words) == (403, True)
        assert browser.post("/sign-in", key=valid, next=way).headers["location"] == "/"
        browser = Browser(locked)
    browser.sign_in(valid)
    assert browser.get(at).status == 200
    assert locked.send("DELETE", "/v1/keys", {"name": "leaving"}).status == 200
    assert browser.get(at).status == 303
    # The live part of an open page polls no more.
    part = browser.get(f"{at}/live", **{"hx-request": "true"})
    assert (part.status, "hx-get" in part.text) == (401, False)


def test_a_reviewer_is_signed_out_when_the_login_expires(locked: Client, keyed: Service) -> None:
    browser, at = reviewer(locked), f"/s/{locked.space}"
    assert browser.get(at).status == 200
    # A link from another site reaches the page although browsers send no cookie with it.
    page = Browser(locked).get(f"{at}?days=30", **{"sec-fetch-site": "cross-site"})
    assert (page.status, f'content="0;url={at}?days=30"' in page.text) == (200, True)
    with closing(sqlite3.connect(keyed.store / "practicum.sqlite")) as db, db:
        db.execute("UPDATE logins SET expires = 1.0")
    assert browser.get(at).status == 303
    # A page that is open reports this, and requests its part no more.
    part = browser.get(f"{at}/live", **{"hx-request": "true"})
    assert (part.status, part.headers["hx-reswap"], "hx-get" in part.text) == (401, "outerHTML", False)


def test_a_form_needs_the_token_of_its_page_and_shows_its_text_again(locked: Client, space: Client) -> None:
    fields = {"text": "a text that took long", "section": "rules"}
    for where, browser in ((locked, reviewer(locked)), (space, Browser(space))):
        path = f"/s/{where.space}/entries"
        token = browser.get(path).token
        for headers, sent, reason in (
            ({}, "", "out of date"), ({}, "é" * 64, "out of date"), ({}, "0" * 64, "out of date"),
            ({"sec-fetch-site": "cross-site"}, token, "another site"),
            ({"sec-fetch-site": "same-site"}, token, "another site"),
            ({"origin": "http://127.0.0.1:1"}, token, "another site"),
        ):  # fmt: skip
            page = browser.post(path, headers, token=sent, **fields)
            assert page.status == 403
            assert reason in page.words
            assert "a text that took long" in page.words
            assert f'<a href="{path}">Open the page</a>' in page.text
        if where is locked:
            assert Browser(locked).post(path, token=token, **fields).status == 401
            assert reviewer(locked).post(path, token=token, **fields).status == 403
        assert where.entries() == []
        assert browser.post(path, token=token, **fields).status == 303
        assert where.entries() == ["a text that took long"]


def test_no_text_of_a_client_becomes_markup(space: Client, model: Model) -> None:
    word, (browser, at) = unique("hostile"), browser_of(space)
    text = f"{HOSTILE} {word}"
    model.answers[word] = text
    browser.get(f"{at}/entries")
    assert browser.post(f"{at}/entries", text=text, section="r<b>ules").status == 303
    user = space.as_user("u<b>1").in_session("s<b>1")
    reply = user.ask(text, model="m<b>odel")
    user.report(reply, target=text)
    space.report(reply, comment=text)
    space.post("/v1/notes", text=text, about=text)
    until(lambda: space.get("/v1/interactions")["interactions"])
    seen = 0
    for path in [*PAGES, "/entries/e0", f"/episodes/{reply.interaction}", "/episodes?user=u%3Cb%3E1"]:
        page = browser.get(f"{at}{path}")
        assert page.status == 200, (path, page.words)
        for raw in ("<script>document", "<img", "<b>1", "<b>ules", "<b>odel", "\u202e"):
            assert raw not in page.text, (path, raw)
        seen += "&lt;script&gt;document.title" in page.text and "\\u{202e}" in page.text
    assert seen >= 5


def test_pages_take_reports_and_edits_and_the_overview_has_the_sums(space: Client) -> None:
    browser, at = browser_of(space)
    space.add_entry("Refunds take 14 days.")
    for number in range(9):
        space.report(space.ask(f"question {number}"), score=float(number < 7))
    reply = space.as_user("u1").in_session("s1").ask("How long does a refund take?")
    path = f"{at}/episodes/{reply.interaction}"
    until(lambda: browser.get(path).status == 200)
    page = browser.get(path)
    for text in ("How long does a refund take?", "Refunds take 14 days.", "I do not know.", "u1", "s1"):
        assert text in page.words
    assert browser.post(path, score="wrong", target="in 30 days", comment="it is 30").status == 303
    assert "in 30 days" in browser.get(path).words
    assert reply.interaction in browser.get(f"{at}/episodes?only=wrong").text
    browser.get(path)
    assert browser.post(path, score="", target="", comment="").status == 400
    assert "70.0%" in browser.get(at).words
    assert "I do not know" not in browser.get(f"{at}/costs").words
    # An entry is changed, restored and removed. The second of two editors sees both texts.
    path = f"{at}/entries/e0"
    first = browser.get(path).field("seen")

    def send(**fields: str) -> int:
        return browser.post(path, seen=browser.get(path).field("seen"), **fields).status

    assert send(text="Refunds take 30 days.", section="rules") == 303
    assert space.entries() == ["Refunds take 30 days."]
    page = browser.post(path, text="Refunds take 21 days.", section="rules", seen=first)
    assert page.status == 409
    assert re.search(r"<textarea[^>]*>Refunds take 21 days.</textarea>", page.text)
    assert "Refunds take 30 days." in page.words
    assert "e0 was changed." in browser.get(f"{path}?did=edited&subject=e0").words
    earlier = re.findall(r"hidden>(.*?)</textarea>", browser.get(path).text)
    assert "Refunds take 14 days." in earlier
    assert send(text="Refunds take 14 days.", section="rules") == 303
    assert browser.post(path, do="remove", seen=first).status == 409
    assert send(do="remove") == 303
    assert space.entries() == []


def test_a_correction_and_a_rollout_are_decided_by_hand_and_a_second_decision_is_refused(locked: Client) -> None:
    browser, second, at = reviewer(locked), reviewer(locked), f"/s/{locked.space}"
    user, path = locked.as_user("anna"), f"{at}/review"
    for number in range(2):
        user.report(user.ask(f"Which team handles the {'xy'[number] * 9}?"), target=f"team {number}x")
    assert "team 0x" in browser.get(path).words
    second.get(path)
    assert browser.post(path, id="c1", decision="approve").status == 303
    assert second.post(path, id="c1", decision="approve").status == 409
    assert second.post(path, id="c2", decision="reject", reason="no").status == 303
    assert "team 0x" in locked.shown("Which team handles the xxxxxxxxx?")
    assert locked.get("/v1/corrections")["total"] == 0
    locked.teach(6)
    browser.get(at)
    assert browser.post(f"{at}/learn").status == 303
    version = until(lambda: locked.health()["candidate"])
    assert f"version {version}" in browser.get(at).words.lower()
    assert browser.post(f"{at}/canary", decision="live", version=str(version)).status == 303
    assert locked.health()["version"] == version
    assert browser.post(f"{at}/canary", decision="back", version=str(version)).status == 409
    # So is a rollback from an earlier version.
    assert browser.post(f"{at}/versions", version="0", seen="0").status == 409
    assert browser.post(f"{at}/versions", version="0", seen=str(version)).status == 303
    assert locked.health()["version"] == 0
    assert f"version {version}" in browser.get(f"{at}/alarms").words.lower()


def test_a_space_is_added_searched_and_deleted_with_its_pages_and_an_unknown_address_is_404(plain: Service) -> None:
    browser, name = Browser(plain.client), unique("short")
    browser.get("/")
    at = browser.post("/", name=name).headers["location"]
    assert at == f"/s/{name}"
    page = browser.get(f"/?q={name.upper()}")
    assert at in page.text
    assert "/s/default" not in page.text
    for path in ("/nothing", "/s/none", f"{at}/x", f"{at}/entries/e9", f"{at}/episodes/x", "/static/x"):
        page = browser.get(path, accept="text/html")
        assert (page.status, "<html" in page.text) == (404, True), path
    assert plain.client.send("DELETE", "/v1/spaces", {"name": name}).status == 200
    for path in PAGES:
        assert browser.get(f"{at}{path}").status == 404
    part = browser.get(f"{at}/live", **{"hx-request": "true"})
    assert (part.status, "hx-get" in part.text) == (404, False)


def test_an_operation_of_the_keys_roles_has_a_form_and_shows_its_answer(locked: Client) -> None:
    browser, at = reviewer(locked), f"/s/{locked.space}/operations"
    listed = browser.get(at).words
    for name in ("recall", "report", "remember", "decide", "decide rollout", "rollback", "edit"):
        assert name in listed
    # Operations of the role admin, and with a key for all spaces.
    assert "export user" not in listed
    assert "add space" not in listed
    browser.get(f"{at}/remember")
    done = browser.post(f"{at}/remember", text="Ask for the number.", about="lost cards")
    assert done.status == 200
    assert "The note is kept as c1" in done.words
    assert "Ask for the number." in locked.shown()
    # Operations need the role of the key.
    page = browser.get(f"{at}/add_key")
    assert (page.status, "add_key needs the role admin" in page.words) == (403, True)
    browser.get(at)
    assert browser.post(f"{at}/add_key", name="mine", **{"roles.ask": "on"}).status == 403
    # A key that a page adds is for the space of the page.
    admin = locked.post("/v1/keys", name=unique("admin"), roles=["admin"])["key"]
    name = unique("agent")
    assert browser.sign_in(admin).status == 303
    path = f"/s/{locked.space}/operations/add_key"
    assert f"to the space {locked.space}" in browser.get(path).words
    assert browser.post(path, name=name, **{"roles.ask": "on"}).status == 200
    spaces = {key["name"]: key["space"] for key in locked.get("/v1/keys")["keys"]}
    assert spaces[name] == locked.space
    browser.get(path)
    assert browser.post(path, name=unique("other"), space="", **{"roles.ask": "on"}).status == 400
