"""What forms do: each is an operation of the service, done as who is signed in.

A form that is done leads to a page that says so. One that is refused shows its page again, with what was wrong and with
the texts that were written.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import quote

from starlette.responses import Response

from practicum.core.errors import PracticumError, UsageError
from practicum.core.words import sentence
from practicum.session.outcomes import Conflict
from practicum.view.pages.corrections import corrections
from practicum.view.pages.entries import entries, entry
from practicum.view.pages.episode import episode
from practicum.view.pages.home import home
from practicum.view.pages.operations import operate
from practicum.view.pages.review import review
from practicum.view.visit import Visit

Page = Callable[[Visit, str, int], Awaitable[Response]]


async def _or_again(visit: Visit, page: Page, doing: Awaitable[Any], path: str, **said: str) -> Response:
    """Do something, and show the page at a path; if it is refused, the page again that says why."""
    try:
        await doing
    except PracticumError as error:
        status = visit.actions.status(error)[0]
        if status == 403:
            raise
        return await page(visit, sentence(error), status)
    return visit.to(path, **said)


def _whole(visit: Visit, name: str) -> int | None:
    """A number of a form. Raises UsageError for something else."""
    text = visit.form.get(name, "").strip()
    if text and not re.fullmatch(r"[0-9]{1,15}", text):
        raise UsageError("request.malformed", f"{name} must be a number")
    return int(text) if text else None


async def add_space(visit: Visit) -> Response:
    """Make a space."""
    name = visit.form.get("name", "").strip()
    doing = visit.perform("add_space", name=name)
    return await _or_again(visit, home, doing, f"/s/{quote(name)}")


async def decide_canary(visit: Visit) -> Response:
    """Make the version live that is on trial, or take it back."""
    version, decision = _whole(visit, "version"), visit.form.get("decision")
    if version is None or decision not in ("live", "back"):
        raise UsageError("request.malformed", "choose: make it live, or take it back")
    await visit.perform("decide_rollout", version=version, decision=decision)
    return visit.to(visit.url, did=decision, what=f"version {version}")


async def go_back(visit: Visit) -> Response:
    """Make another version live."""
    version, seen = _whole(visit, "version"), _whole(visit, "seen")
    if version is None:
        raise UsageError("request.malformed", "give the number of a version")
    if seen != visit.space.live:
        raise Conflict("rollout.decided", f"version {visit.space.live} has become live since: look at the page again")
    await visit.perform("rollback", version=version)
    return visit.to(visit.url, did="live", what=f"version {version}")


async def learn(visit: Visit) -> Response:
    """Begin a round of learning."""
    await visit.perform("learn")
    return visit.to(visit.url, did="learning", what="a round of learning")


async def add_entry(visit: Visit) -> Response:
    """Add an entry to the playbook."""
    form = visit.form
    doing = visit.perform("edit", text=form.get("text", ""), section=form.get("section", "").strip())
    return await _or_again(visit, entries, doing, f"{visit.url}/entries", did="added", what="the entry")


async def change_entry(visit: Visit) -> Response:
    """Change an entry of the playbook, or remove it."""
    form, id, seen = visit.form, visit.given("entry"), _whole(visit, "seen")
    if form.get("do") == "remove":
        doing = visit.perform("remove", id=id, seen=seen)
    else:
        section = form.get("section", "").strip() or None
        doing = visit.perform("edit", id=id, text=form.get("text"), section=section, seen=seen)
    did = "removed" if form.get("do") == "remove" else "edited"
    return await _or_again(visit, entry, doing, f"{visit.url}/entries/{quote(id)}", did=did, what=id)


async def decide(visit: Visit) -> Response:
    """Approve what waits for review, or reject it. A part of a page is answered with the decision alone."""
    form = visit.form
    id, decision, reason = form.get("id", ""), form.get("decision", ""), form.get("reason", "").strip()
    doing = visit.perform("decide", id=id, decision=decision, reason=reason)
    if not visit.partial:
        return await _or_again(visit, review, doing, f"{visit.url}/review", did=decision, what=id)
    told: dict[str, Any] = {}
    failed, status = "", 200
    try:
        told = (await doing).as_json()
    except PracticumError as error:
        failed, status = sentence(error), visit.actions.status(error)[0]
    return await visit.page(
        "decided.html", status, id=id, decision=decision, told=told, reason=reason, failed=failed,
        final=status in (200, 404) or (status == 409 and "before" in failed),
    )  # fmt: skip


async def report(visit: Visit) -> Response:
    """Report the outcome of an interaction."""
    form, id = visit.form, visit.given("episode")
    said: dict[str, Any] = {name: form[name].strip() for name in ("target", "comment") if form.get(name, "").strip()}
    score = {"right": 1.0, "wrong": 0.0}.get(form.get("score", ""))
    doing = visit.perform("report", interaction=id, score=score, **said)
    path = f"{visit.url}/episodes/{quote(id, safe='')}"
    return await _or_again(visit, episode, doing, path, did="reported", what="the report")


async def note(visit: Visit) -> Response:
    """Keep a note."""
    form = visit.form
    doing = visit.perform("remember", text=form.get("text", ""), about=form.get("about", ""))
    return await _or_again(visit, corrections, doing, f"{visit.url}/corrections", did="noted", what="the note")


async def withdraw(visit: Visit) -> Response:
    """Withdraw a correction or a note."""
    id = visit.form.get("id", "")
    doing = visit.perform("remove", id=id)
    return await _or_again(visit, corrections, doing, f"{visit.url}/corrections", did="withdrawn", what=id)


SPACE = "/s/{space}"

POSTS: Mapping[str, Callable[[Visit], Awaitable[Response]]] = {
    "/": add_space, f"{SPACE}/canary": decide_canary, f"{SPACE}/versions": go_back, f"{SPACE}/learn": learn,
    f"{SPACE}/entries": add_entry, f"{SPACE}/entries/{{entry}}": change_entry, f"{SPACE}/review": decide,
    f"{SPACE}/episodes/{{episode}}": report, f"{SPACE}/corrections": note, f"{SPACE}/corrections/withdraw": withdraw,
    f"{SPACE}/operations/{{operation}}": operate,
}  # fmt: skip
"""The forms, by the address that each is sent to."""
