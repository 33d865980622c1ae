"""Page of pending reviews: learned edits with their origin and their effect on the playbook, then corrections and
notes."""

from __future__ import annotations

import re
from typing import Any

from starlette.responses import Response

from practicum.session.correcting import WAITING, listed
from practicum.session.corrections import LETTER, Correction
from practicum.session.review import Effect, Present, read_reviews
from practicum.store.changes import in_pieces, marked
from practicum.view.pages.shared import correction_row
from practicum.view.read.episodes import interactions_at
from practicum.view.visit import Visit

QUEUE = 20
"""Number of pending reviews per page."""

MARKED = 4_000
"""Maximum total length (characters) of an answer and the right answer whose differences are marked. To mark the
differences of longer texts, which users can send, would take a third of a second or more."""

LESSONS = 10
"""Maximum number of lessons shown with an edit."""


async def review(visit: Visit, failed: str = "", status: int = 200) -> Response:
    """Show the pending reviews."""
    space = visit.space
    tried = None if space.rollout is None else space.rollout.version
    newest = space.newest
    after = visit.query_param("after")
    after = after if re.fullmatch(rf"{LETTER}[0-9]{{1,9}}|[0-9]{{1,9}}\.[0-9]{{1,9}}", after) else ""
    cards, more, waits = await visit.run(_queue, visit, newest, after)
    return await visit.page(
        "review.html", status, here="Review", cards=cards, more=more, failed=failed, waits=waits, after=after,
        tried=tried, question=space.question,
    )  # fmt: skip


def _queue(visit: Visit, newest: Any, after: str) -> tuple[list[dict[str, Any]], bool, int]:
    """Return a page of the pending reviews after the id `after`, whether more reviews follow this page, and the
    number of all pending reviews. Learned edits come first, then corrections and notes."""
    store = visit.space.store
    cards, effects = list[dict[str, Any]](), list[Effect]()
    pending = read_reviews(store, corrections=False)
    corrects = after.startswith(LETTER)
    remaining = [one for one in pending if not after or _place(one.id) > _place(after)] if not corrects else []
    shown = remaining[:QUEUE]
    room = QUEUE - len(shown)
    last_number = int(after.removeprefix(LETTER)) if corrects else None
    waiting, number = listed(store, visit.space.corrections, WAITING, last_number, room + 1)
    more, waiting = len(remaining) > QUEUE or len(waiting) > room, waiting[:room]
    interactions = interactions_at(store, (one.interaction for one in waiting if one.interaction))
    if shown:
        present = Present(store, newest)
        effects = [present.effect(one) for one in shown]
    lessons = dict[str, Any]()
    if ids := [id for one in shown for id in one.lessons[:LESSONS]]:
        lessons = {one.id: one for one in visit.story.lessons_with(ids)}
    for one, effect in zip(shown, effects, strict=True):
        cards.append({
            "id": one.id, "kind": "edits", "why": one.why, "flags": one.held.flags, "step": one.step,
            "changes": in_pieces(*effect.difference), "votes": effect.votes, "problem": effect.problem,
            "reasons": [edit.reason for edit in one.edits if edit.reason], "tried": one.tried,
            "lessons": [lessons[id] for id in one.lessons if id in lessons],
            "sources": [source for edit in one.edits for source in edit.sources],
        })  # fmt: skip
    cards += [_correction_card(one, interactions.get(one.interaction)) for one in waiting]
    return cards, more, number + len(pending)


def _place(id: str) -> tuple[int, ...]:
    """Return the sort key of a review of learned edits: the step and the sequence number in the id of the review."""
    return tuple(map(int, id.split(".")))


def _correction_card(one: Correction, interaction: dict[str, Any] | None) -> dict[str, Any]:
    answer, target = interaction["answer"] if interaction else "", one.target
    pieces = ([(answer, False)], [(target, False)])
    return {
        **correction_row(one), "kind": "note" if one.note else "correction", "answer": answer,
        "pieces": None if not target else marked(answer, target) if len(answer + target) <= MARKED else pieces,
        "flags": one.flags,
    }  # fmt: skip
