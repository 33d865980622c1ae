"""What forms do: each is an operation of the service, done by who is signed in.

A form that is done leads to a page that says so. One that is refused shows its page again, with what was wrong and with
what was written.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote

from starlette.responses import Response

from practicum.core.errors import PracticumError, UsageError
from practicum.core.words import sentence
from practicum.serve.access import Forbidden
from practicum.serve.pages import views
from practicum.serve.pages.visit import Visit
from practicum.serve.replies import status_of
from practicum.session.outcomes import Conflict

Page = Callable[[Visit, str, int], Awaitable[Response]]


async def _or_again(visit: Visit, page: Page, doing: Awaitable[Any], path: str, **said: str) -> Response:
    """Do something, and show what is at a path; if it is refused, the page again that says why."""
    try:
        await doing
    except Forbidden:
        raise
    except PracticumError as error:
        return await page(visit, sentence(error), status_of(error)[0])
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
    return await _or_again(visit, views.spaces, doing, f"/s/{quote(name)}")


async def decide_canary(visit: Visit) -> Response:
    """Make the version live that is being tried, or take it back."""
    version, decision = _whole(visit, "version"), visit.form.get("decision")
    if version is None or decision not in ("live", "back"):
        raise UsageError("request.malformed", "choose: make it live, or take it back")
    await visit.perform("decide_rollout", version=version, decision=decision)
    return visit.to(visit.url, did=decision, what=f"version {version}")


async def go_back(visit: Visit) -> Response:
    """Let all see another version."""
    version, seen = _whole(visit, "version"), _whole(visit, "seen")
    space = visit.opened
    if version is None:
        raise UsageError("request.malformed", "give the number of a version")
    if seen != space.live:
        raise Conflict("rollout.decided", f"version {space.live} has become live since: look at the page again")
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
    return await _or_again(visit, views.playbook, doing, f"{visit.url}/playbook", did="added", what="the entry")


async def change_entry(visit: Visit) -> Response:
    """Change an entry of the playbook, or remove it."""
    form, id, seen = visit.form, str(visit.request.path_params["entry"]), _whole(visit, "seen")
    if form.get("do") == "remove":
        doing = visit.perform("remove", id=id, seen=seen)
    else:
        section = form.get("section", "").strip() or None
        doing = visit.perform("edit", id=id, text=form.get("text"), section=section, seen=seen)
    did = "removed" if form.get("do") == "remove" else "edited"
    return await _or_again(visit, views.entry, doing, f"{visit.url}/playbook/{id}", did=did, what=id)


async def decide(visit: Visit) -> Response:
    """Approve what waits for review, or reject it. A part of a page is answered with the decision alone."""
    form = visit.form
    id, decision, reason = form.get("id", ""), form.get("decision", ""), form.get("reason", "").strip()
    doing = visit.perform("decide", id=id, decision=decision, reason=reason)
    if not visit.partial:
        return await _or_again(visit, views.review, doing, f"{visit.url}/review", did=decision, what=id)
    told: dict[str, Any] = {}
    failed, status = "", 200
    try:
        told = await doing
    except PracticumError as error:
        failed, status = sentence(error), status_of(error)[0]
    return await visit.page(
        "decided.html", status, id=id, decision=decision, told=told, reason=reason, failed=failed,
        final=status in (200, 404) or (status == 409 and "before" in failed),
    )  # fmt: skip


async def correct(visit: Visit) -> Response:
    """Say what came of an interaction."""
    form, id = visit.form, str(visit.request.path_params["interaction"])
    said: dict[str, Any] = {name: form[name].strip() for name in ("target", "comment") if form.get(name, "").strip()}
    score = {"right": 1.0, "wrong": 0.0}.get(form.get("score", ""))
    doing = visit.perform("report", interaction=id, score=score, **said)
    return await _or_again(
        visit, views.interaction, doing, f"{visit.url}/interactions/{id}", did="reported", what="the report"
    )


async def note(visit: Visit) -> Response:
    """Keep a note."""
    form = visit.form
    doing = visit.perform("remember", text=form.get("text", ""), about=form.get("about", ""))
    return await _or_again(visit, views.corrections, doing, f"{visit.url}/corrections", did="noted", what="the note")


async def withdraw(visit: Visit) -> Response:
    """Let a correction or a note hold no more."""
    id = visit.form.get("id", "")
    doing = visit.perform("remove", id=id)
    return await _or_again(visit, views.corrections, doing, f"{visit.url}/corrections", did="withdrawn", what=id)
