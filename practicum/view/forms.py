"""Handlers of submitted forms. Each handler runs an operation of the service as the signed-in visitor.

After success, a handler redirects to a page that shows a notice. If the operation is refused, the handler shows the
page of the form again, with the error and the submitted texts.
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


async def _or_again(visit: Visit, page: Page, operation: Awaitable[Any], path: str, **notice: str) -> Response:
    """Await an operation and redirect to `path` with the query `notice`. If the operation is refused, show `page` with
    the error; if the visitor may not run the operation, raise the error."""
    try:
        await operation
    except PracticumError as error:
        status = visit.actions.status(error)[0]
        if status == 403:
            raise
        return await page(visit, sentence(error), status)
    return visit.to(path, **notice)


def _whole(visit: Visit, name: str) -> int | None:
    """Parse a form field as a whole number; None if the field is empty. Raises UsageError for any other text."""
    text = visit.form.get(name, "").strip()
    if text and not re.fullmatch(r"[0-9]{1,15}", text):
        raise UsageError("request.malformed", f"{name} must be a number, not {text!r:.80}")
    return int(text) if text else None


async def add_space(visit: Visit) -> Response:
    """Create a space."""
    name = visit.form.get("name", "").strip()
    operation = visit.perform("add_space", name=name)
    return await _or_again(visit, home, operation, f"/s/{quote(name)}")


async def decide_canary(visit: Visit) -> Response:
    """Make the version on trial the live version, or take this version back."""
    version, decision = _whole(visit, "version"), visit.form.get("decision")
    if version is None or decision not in ("live", "back"):
        raise UsageError(
            "request.malformed", "no decision: choose to make the version live or to take the version back"
        )
    await visit.perform("decide_rollout", version=version, decision=decision)
    return visit.to(visit.url, did=decision, subject=f"version {version}")


async def go_back(visit: Visit) -> Response:
    """Roll back to the version whose number the visitor entered."""
    version, seen = _whole(visit, "version"), _whole(visit, "seen")
    if version is None:
        raise UsageError("request.malformed", "no version: enter the number of a version")
    if seen != visit.space.live:
        raise Conflict(
            "rollout.decided", f"version {visit.space.live} has become live since this page was loaded: reload the page"
        )
    await visit.perform("rollback", version=version)
    return visit.to(visit.url, did="live", subject=f"version {version}")


async def learn(visit: Visit) -> Response:
    """Start a round of learning."""
    await visit.perform("learn")
    return visit.to(visit.url, did="learning", subject="a round of learning")


async def add_entry(visit: Visit) -> Response:
    """Add an entry to the playbook."""
    form = visit.form
    operation = visit.perform("edit", text=form.get("text", ""), section=form.get("section", "").strip())
    return await _or_again(visit, entries, operation, f"{visit.url}/entries", did="added", subject="the entry")


async def change_entry(visit: Visit) -> Response:
    """Edit or remove an entry of the playbook."""
    form, id, seen = visit.form, visit.path_param("entry"), _whole(visit, "seen")
    if form.get("do") == "remove":
        operation = visit.perform("remove", id=id, seen=seen)
    else:
        section = form.get("section", "").strip() or None
        operation = visit.perform("edit", id=id, text=form.get("text"), section=section, seen=seen)
    did = "removed" if form.get("do") == "remove" else "edited"
    return await _or_again(visit, entry, operation, f"{visit.url}/entries/{quote(id)}", did=did, subject=id)


async def decide(visit: Visit) -> Response:
    """Approve or reject a pending review. If htmx requests a part of a page, return only the part with the decision."""
    form = visit.form
    id, decision, reason = form.get("id", ""), form.get("decision", ""), form.get("reason", "").strip()
    operation = visit.perform("decide", id=id, decision=decision, reason=reason)
    if not visit.partial:
        return await _or_again(visit, review, operation, f"{visit.url}/review", did=decision, subject=id)
    result: dict[str, Any] = {}
    failed, code, status = "", "", 200
    try:
        result = (await operation).as_json()
    except PracticumError as error:
        failed, code, status = sentence(error), error.code, visit.actions.status(error)[0]
    return await visit.page(
        "decided.html", status, id=id, decision=decision, result=result, reason=reason, failed=failed,
        final=status in (200, 404) or code == "review.decided",
    )  # fmt: skip


async def report(visit: Visit) -> Response:
    """Report the outcome of an interaction."""
    form, id = visit.form, visit.path_param("episode")
    texts: dict[str, Any] = {name: form[name].strip() for name in ("target", "comment") if form.get(name, "").strip()}
    score = {"right": 1.0, "wrong": 0.0}.get(form.get("score", ""))
    operation = visit.perform("report", interaction=id, score=score, **texts)
    path = f"{visit.url}/episodes/{quote(id, safe='')}"
    return await _or_again(visit, episode, operation, path, did="reported", subject="the report")


async def note(visit: Visit) -> Response:
    """Store a note."""
    form = visit.form
    operation = visit.perform("remember", text=form.get("text", ""), about=form.get("about", ""))
    return await _or_again(visit, corrections, operation, f"{visit.url}/corrections", did="noted", subject="the note")


async def withdraw(visit: Visit) -> Response:
    """Withdraw a correction or a note."""
    id = visit.form.get("id", "")
    operation = visit.perform("remove", id=id)
    return await _or_again(visit, corrections, operation, f"{visit.url}/corrections", did="withdrawn", subject=id)


SPACE = "/s/{space}"

POSTS: Mapping[str, Callable[[Visit], Awaitable[Response]]] = {
    "/": add_space, f"{SPACE}/canary": decide_canary, f"{SPACE}/versions": go_back, f"{SPACE}/learn": learn,
    f"{SPACE}/entries": add_entry, f"{SPACE}/entries/{{entry}}": change_entry, f"{SPACE}/review": decide,
    f"{SPACE}/episodes/{{episode}}": report, f"{SPACE}/corrections": note, f"{SPACE}/corrections/withdraw": withdraw,
    f"{SPACE}/operations/{{operation}}": operate,
}  # fmt: skip
"""URL path that a form is submitted to → handler of the form."""
