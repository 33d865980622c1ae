"""The pages: what each reads, and what it shows."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import Response

from practicum.core.context import Context
from practicum.core.edits import Applied, Entry
from practicum.core.forms import read_form
from practicum.core.thoughts import SILENCES
from practicum.core.types import Usage
from practicum.engine.door import said
from practicum.serve.operations import Listing, find_entries
from practicum.serve.pages import reads
from practicum.serve.pages.reads import Course, Sums
from practicum.serve.pages.visit import Visit
from practicum.serve.space import ServedSpace
from practicum.session.correcting import STATES, WAITING, listed, made_of, with_numbers
from practicum.session.corrections import LETTER, Correction
from practicum.session.review import Effect, Present, read_reviews
from practicum.session.story import Story
from practicum.store import schema
from practicum.store.changes import in_pieces, marked
from practicum.store.database import Store
from practicum.store.snapshot import read_context
from practicum.store.versions import EDITS, lineage, read_parents

WEEK = 7
"""Days that a page shows, if nobody wants others."""

MARKS = 40
"""Marks in a picture, at most: the newest ones."""

NEAR = 4.0
"""Percent of the width within which two marks do not both get a label."""

QUEUE = 20
"""Decisions on a page, of each kind."""

MARKED = 4_000
"""Characters of an answer and of what is said to be right, up to which the words that differ are marked: a user may
send texts for which that takes a third of a second each."""

LESSONS = 10
"""Lessons that an entry or an edit shows, at most."""

DID = {
    "approve": "approved", "reject": "rejected", "edited": "changed", "added": "added", "removed": "removed",
    "live": "live", "back": "taken back", "noted": "kept", "reported": "kept", "withdrawn": "withdrawn",
    "learning": "asked for",
}  # fmt: skip
"""What a page may say was done, by a word in its address."""


def done(visit: Visit) -> str:
    """What was done just now, as an address says it: nobody else can make a page say something."""
    did, what = visit.asked("did"), visit.asked("what")
    if did not in DID or not re.fullmatch(r"[a-z0-9.\- ]{1,40}", what, re.IGNORECASE):
        return ""
    return f"{what} {'is' if did in ('live', 'learning') else 'was'} {DID[did]}"


def page_number(visit: Visit) -> int:
    """The number of a page of a list."""
    text = visit.asked("page")
    return max(int(text), 1) if re.fullmatch(r"[0-9]{1,6}", text) else 1


def number(visit: Visit, name: str) -> int | None:
    """A number in the query; None if there is none."""
    text = visit.asked(name)
    return int(text) if re.fullmatch(r"[0-9]{1,12}", text) else None


# Spaces


async def spaces(visit: Visit, failed: str = "", status: int = 200) -> Response:
    """All spaces, or the one that the key is for."""
    wanted, page = visit.asked("q").strip(), page_number(visit)
    rows, total = await visit.run(reads.space_rows, visit.service, wanted.casefold(), page, visit.grant.space)
    return await visit.page(
        "spaces.html", status, rows=rows, total=total, wanted=wanted, page=page, pages=-(-total // reads.SPACES) or 1,
        failed=failed, said=done(visit),
    )  # fmt: skip


# Overview


async def overview(visit: Visit) -> Response:
    """How a space does."""
    return await _overview(visit, "overview.html")


async def live(visit: Visit) -> Response:
    """The part of the overview that an open page asks for again and again."""
    return await _overview(visit, "live.html")


async def _overview(visit: Visit, template: str) -> Response:
    space = visit.opened
    days = number(visit, "days")
    days = days if days in reads.RANGES else WEEK

    def read() -> dict[str, Any]:
        found = reads.course(visit.service, space.store, days)
        values = {"course": found, "latencies": reads.latencies(space.store)}
        if template == "live.html":
            return values
        rollouts, alarms = reads.rollouts(space.store), reads.alarms(space.store, None)
        marks = _marks(found, rollouts, alarms, reads.first_shown(space.store))
        return {**values, "rollouts": rollouts, "alarms": alarms[:5], "marks": marks,
                "line": _lines([point.mean for point in found.points]),
                "bars": _bars([point.requests for point in found.points])}  # fmt: skip

    values = await visit.run(read)
    return await visit.page(
        template, here="Overview", days=days, ranges=[*reads.RANGES], live=space.live, canary=_canary(space),
        entries=len(space.context(space.live)), learning=visit.service.learner.status,
        learns=visit.service.settings.learn, waiting=space.waiting, corrections=len(space.corrections),
        said=done(visit), **values,
    )  # fmt: skip


def _canary(space: ServedSpace) -> dict[str, Any] | None:
    """The version that is being tried, with its evidence."""
    if (rollout := space.rollout) is None:
        return None
    both = rollout.test.all
    better = both.better
    return {
        "number": rollout.number, "version": rollout.version, "base": rollout.base, "share": rollout.share,
        "length": rollout.length, "began": rollout.began, "gate": rollout.gate,
        "canary": both.canary, "live": both.live, "worse": (both.worse.wealth, both.worse.goal),
        "better": None if better is None else (better.wealth, better.goal),
        "kinds": [kind for kind in rollout.test.kinds if kind.canary.count or kind.live.count],
    }  # fmt: skip


def _marks(
    course: Course, rollouts: Sequence[dict[str, Any]], alarms: Sequence[Any], begins: Mapping[int, float]
) -> list[dict[str, Any]]:
    """When versions began, were tried, and were taken back, within a course."""
    found = list[dict[str, Any]]()

    def mark(at: float | None, kind: str, label: str, title: str) -> None:
        x = None if at is None else course.place(at)
        if x is not None:
            found.append({"x": x, "kind": kind, "label": label, "title": title, "at": at})

    for row in rollouts:
        version, kind = f"v{row['version']}", {"promoted": "good", "taken back": "bad"}.get(row["state"], "")
        if kind:
            mark(row["ended"], kind, version, f"version {row['version']} {row['state']}: {row['reason']}")
        # An edit by hand is shown to all at once.
        if row["state"] != "dropped" and row["share"]:
            mark(row["began"], "tried", "", f"version {row['version']} tried on {100 * row['share']:.0f}%")
    for shown, at in begins.items():
        mark(at, "good", f"v{shown}", f"version {shown} live")
    for alarm in alarms:
        if alarm.kind == "rollout" and alarm.text.endswith("is live again, by hand"):
            mark(alarm.at, "bad", "↩", alarm.text)
    found.sort(key=lambda one: one["x"])
    # Of labels that are too near to each other the newest one stays, and none reaches beyond the sides.
    last = 100 + NEAR / 2
    for one in reversed(found[-MARKS:]):
        if last - one["x"] < NEAR or one["x"] < NEAR / 2:
            one["label"] = ""
        if one["label"]:
            last = one["x"]
    return found[-MARKS:]


def _lines(values: Sequence[float | None], top: float = 1.0) -> dict[str, Any]:
    """Values as lines in a square of 100 by 100, which are broken where there is no value, and single points."""
    width, lines, run, dots = 100 / len(values), list[str](), list[tuple[float, float]](), list[tuple[float, float]]()
    for at, value in enumerate([*values, None]):
        if value is not None:
            run.append((round((at + 0.5) * width, 2), round(100 - 100 * min(value / top, 1.0), 2)))
        elif run:
            if len(run) == 1:
                dots += run
            else:
                lines.append(" ".join(f"{x},{y}" for x, y in run))
            run = []
    return {"lines": lines, "dots": dots, "top": top}


def _bars(values: Sequence[float]) -> dict[str, Any]:
    """Values as bars in a square of 100 by 100."""
    width, top = 100 / len(values), max(values, default=0) or 1
    bars = [
        {"x": round(at * width + width * 0.1, 2), "width": round(width * 0.8, 2), "height": round(100 * value / top, 2)}
        for at, value in enumerate(values)
        if value
    ]
    return {"bars": bars, "top": top}


# Playbook


async def playbook(visit: Visit, failed: str = "", status: int = 200) -> Response:
    """The entries that are live."""
    space = visit.opened
    q, section, page = visit.asked("q", 2_000), visit.asked("section"), page_number(visit)
    context = space.context(space.live)
    asked = read_form(
        Listing,
        {"search": q, "section": section, "skip": (page - 1) * reads.ROWS, "limit": reads.ROWS},
    )
    entries, total = await find_entries(space.reader.retriever, context, asked)

    def read() -> tuple[dict[str, int], dict[str, Any]]:
        sections: dict[str, int] = {}
        for one in context:
            sections[one.section] = sections.get(one.section, 0) + 1
        return sections, reads.credits(space.store, (one.id for one in entries))

    sections, credits = await visit.run(read)
    return await visit.page(
        "playbook.html", status, here="Playbook", entries=entries, total=total, sections=sections, credits=credits,
        q=q, section=section, page=page, pages=-(-total // reads.ROWS) or 1, live=space.live, failed=failed,
        said=done(visit), wrote=visit.form,
    )  # fmt: skip


async def entry(visit: Visit, failed: str = "", status: int = 200) -> Response:
    """An entry, a correction or a note: what it says, where it comes from, and what it said before."""
    space, id = visit.opened, str(visit.request.path_params["entry"])
    if not re.fullmatch(r"[ce][0-9]{1,12}", id):
        raise HTTPException(404)
    now = space.corrections.entry(id) if id.startswith(LETTER) else space.context(space.live).get(id)
    found = await visit.run(_entry, space.store, id, space.live)
    if found is None:
        raise HTTPException(404)

    def more() -> tuple[Any, Any]:
        ids = dict.fromkeys(match[1] for s in found["sources"] if (match := reads.ID.search(s)))
        return reads.credits(space.store, [id]), reads.interactions_at(space.store, [*ids][:LESSONS])

    credits, known = await visit.run(more)
    wrote = visit.form.get("text")
    between = None
    if status == 409 and wrote and now is not None:
        between = marked(now.text, wrote)
    return await visit.page(
        "entry.html", status, here="Corrections" if id.startswith(LETTER) else "Playbook", id=id, now=now,
        live=space.live, credit=credits.get(id), known=known,
        wrote=wrote, between=between, failed=failed, said=done(visit), entry_section=visit.form.get("section"),
        **found,
    )  # fmt: skip


def _entry(store: Store, id: str, live: int) -> dict[str, Any] | None:
    """The history of an entry in its run; None if there was never one."""
    story = Story(store)
    # Each version of corrections follows the one before.
    line = None if id.startswith(LETTER) else {*lineage(read_parents(store), live)}
    history, sources, lessons, text = list[dict[str, Any]](), list[str](), list[str](), ""
    for version, done in _edits(store, id):
        edit = done.edit
        new = getattr(edit, "text", None) if line is not None else said(edit) or None
        pieces: tuple[Any, Any] = ((), ())
        if new is not None and new != text:
            pieces = marked(text, new) if text else ([], [(new, False)])
            text = new
        history.append({
            "version": version, "edit": edit, "pieces": pieces, "text": new, "stands": line is None or version in line,
            "lost": story.lost(version, done),
        })  # fmt: skip
        sources += edit.sources
        lessons += edit.lessons
    if not history:
        return None
    return {
        "history": history[::-1], "sources": [*dict.fromkeys(sources)],
        "lessons": story.lessons_with([*dict.fromkeys(lessons)][-LESSONS:]) if lessons else [],
    }  # fmt: skip


def _edits(store: Store, id: str) -> Iterator[tuple[int, Applied]]:
    """The edits of an entry, the oldest first, with their versions. Of a version that began with 10,000 entries, only
    those edits are read that name it."""
    table, name = schema.corrections if id.startswith(LETTER) else schema.versions, json.dumps(id)
    named = table.c.applied.contains(name, autoescape=True)
    query = store.select(table.c.version, table.c.applied).where(named).order_by(table.c.version)
    for row in store.rows(query):
        raw = (bytes(one) for one in msgspec.json.decode(row.applied, type=list[msgspec.Raw]))
        for done in EDITS.validate_json(b"[%s]" % b",".join(one for one in raw if name.encode() in one)):
            if done.id == id or id in getattr(done.edit, "ids", ()):
                yield row.version, done


# Review


async def review(visit: Visit, failed: str = "", status: int = 200) -> Response:
    """What waits for a decision."""
    space = visit.opened
    tried = None if space.rollout is None else space.rollout.version
    cards, more = await visit.run(_queue, space, space.newest)
    return await visit.page(
        "review.html", status, here="Review", cards=cards, more=more, live=space.live, failed=failed,
        said=done(visit), waits=len(cards) + more, tried=tried, asked=space.question,
    )  # fmt: skip


def _queue(space: ServedSpace, context: Context | None) -> tuple[list[dict[str, Any]], int]:
    """The first decisions that wait, and how many more there are."""
    waiting, number = listed(space.store, space.corrections, WAITING, None, QUEUE)
    asked = reads.interactions_at(space.store, (one.interaction for one in waiting if one.interaction))
    cards, effects = list[dict[str, Any]](), list[Effect]()
    pending = read_reviews(space.store, corrections=False)
    shown = pending[:QUEUE]
    if shown:
        present = Present(space.store, context)
        effects = [present.effect(one) for one in shown]
    lessons = dict[str, Any]()
    if wanted := [id for one in shown for id in one.lessons[:LESSONS]]:
        lessons = {one.id: one for one in Story(space.store).lessons_with(wanted)}
    for one, effect in zip(shown, effects, strict=True):
        cards.append({
            "id": one.id, "kind": "edits", "trust": one.held.trust, "flags": one.held.flags, "step": one.step,
            "changes": in_pieces(*effect.difference), "votes": effect.votes, "problem": effect.problem,
            "reasons": [edit.reason for edit in one.edits if edit.reason], "tried": one.tried,
            "lessons": [lessons[id] for id in one.lessons if id in lessons],
            "sources": [source for edit in one.edits for source in edit.sources],
        })  # fmt: skip
    cards += [_correction_card(one, asked.get(one.interaction)) for one in waiting]
    return cards, number - len(waiting) + len(pending) - len(shown)


def _correction_card(one: Correction, asked: dict[str, Any] | None) -> dict[str, Any]:
    answer, target = asked["answer"] if asked else "", one.target
    pieces = ([(answer, False)], [(target, False)])
    return {
        **_told(one), "kind": "note" if one.note else "correction", "answer": answer,
        "pieces": None if not target else marked(answer, target) if len(answer + target) <= MARKED else pieces,
        "flags": one.flags,
    }  # fmt: skip


def _told(one: Correction, state: str = "") -> dict[str, Any]:
    """A correction or a note as a page shows it."""
    return {**asdict(one), "id": one.id, "state": state}


# Interactions


async def interactions(visit: Visit) -> Response:
    """What was asked and answered, the newest first."""
    which = visit.asked("which") if visit.asked("which") in reads.FILTERS else reads.FILTERS[0]
    user, session, before = visit.asked("user"), visit.asked("session"), number(visit, "before")
    listed = await visit.run(
        reads.interactions, visit.opened.store, which, user, session, before
    )  # fmt: skip
    space = visit.opened
    return await visit.page(
        "interactions.html", here="Interactions", listed=listed, which=which, user=user, session=session, before=before,
        asked=space.question,
    )  # fmt: skip


async def interaction(visit: Visit, failed: str = "", status: int = 200) -> Response:
    """An interaction: what was asked, what was shown, what was answered, and what came of it."""
    space, id = visit.opened, str(visit.request.path_params["interaction"])
    found = await visit.run(reads.interaction, space.store, id) if reads.ID.fullmatch(id) else None
    if found is None:
        raise HTTPException(404)

    def read() -> tuple[Any, Any, Context | None, float | None]:
        shown = with_numbers(space.store, space.corrections, found["corrections"])
        made = [_told(one, state) for state, one in made_of(space.store, space.corrections, id)]
        price = reads.price_of(visit.service, found["model"])
        read_in, cached, written = found["tokens"]
        cost = price(Usage(1, read_in, cached, written)) if read_in or written else None
        return shown, made, None if found["version"] == space.live else _version(space.store, found["version"]), cost

    shown, made, context, cost = await visit.run(read)
    context = space.context(space.live) if found["version"] == space.live else context
    again, same = "", False
    if context is not None:
        again, same = await _shown_again(space, found, context, [one for _, one in shown])
    entries: list[tuple[str, float, Entry | None]] = [
        (entry_id, similarity, context.get(entry_id) if context else None) for entry_id, similarity in found["entries"]
    ]
    return await visit.page(
        "interaction.html", status, here="Interactions", one=found, entries=entries, made=made,
        shown=[_told(one, state) for state, one in shown],
        again=again, same=same, cost=cost, gone=context is None, failed=failed, said=done(visit), wrote=visit.form,
        thoughts=found.get("thoughts", ""), silence=SILENCES.get(found.get("silence", ""), "").partition(";")[0],
        asked=space.question,
        reports=[
            (report, reads.said(report)) for report in (found["outcome"] or {"reports": []})["reports"]
        ],
    )  # fmt: skip


def _version(store: Store, version: int) -> Context | None:
    """A version of a space; None if it is gone, such as by `forget`."""
    return read_context(store, version) if version in read_parents(store) else None


async def _shown_again(
    space: ServedSpace, found: dict[str, Any], context: Context, shown: Sequence[Correction]
) -> tuple[str, bool]:  # fmt: skip
    """What a request was shown, as text, made once more; and whether the same entries were looked up again."""
    fixed, learned, entries = await space.show_again(found["question"], context, shown)
    turns = [f"user: {turn.user}\nassistant: {turn.assistant}" for turn in learned.turns]
    same = [id for id, _ in entries] == [id for id, _ in found["entries"]] and len(shown) == len(found["corrections"])
    return "\n\n".join(filter(None, (fixed, learned.note, *turns))), same


# Corrections, costs, alarms


async def corrections(visit: Visit, failed: str = "", status: int = 200) -> Response:
    """The corrections and notes in a state."""
    space = visit.opened
    state = visit.asked("state") if visit.asked("state") in STATES else STATES[0]
    await space.follow_corrections()
    some, total = await visit.run(
        partial(listed, newest=True), space.store, space.corrections, state, number(visit, "before"), reads.ROWS
    )  # fmt: skip
    rows = [_told(one, state) for one in some]
    return await visit.page(
        "corrections.html", status, here="Corrections", rows=rows, total=total, state=state, states=STATES,
        more=rows[-1]["number"] if len(rows) == reads.ROWS else None, before=number(visit, "before"), failed=failed,
        said=done(visit), wrote=visit.form, asked=space.question,
    )  # fmt: skip


async def costs(visit: Visit) -> Response:
    """Cost, latency and the share of cached input over time, by model."""
    days = number(visit, "days")
    days = days if days in reads.RANGES else 30
    found = await visit.run(reads.course, visit.service, visit.opened.store, days)
    charts = await visit.run(_cost_charts, found)
    return await visit.page("costs.html", here="Costs", course=found, days=days, ranges=[*reads.RANGES], charts=charts)


def _cost_charts(course: Course) -> list[dict[str, Any]]:
    """The lines of each model, in the same colours in each picture."""
    kinds: tuple[tuple[str, str, Callable[[Sums], float | None], float | None], ...] = (
        ("cost", "money", lambda point: point.usd if point.requests else None, None),
        ("seconds a request", "seconds", lambda point: point.latency, None),
        ("input from the cache", "percent", lambda point: point.cached, 1.0),
        ("requests", "count", lambda point: point.requests or None, None),
    )
    charts = []
    for title, form, value, top in kinds:
        values = {model: [value(point) for point in course.models[model]] for model in [*course.by_model][:8]}
        most = top or max((one for line in values.values() for one in line if one is not None), default=0.0)
        if most:
            lines = {model: _lines(line, most) for model, line in values.items()}
            charts.append({"title": title, "form": form, "top": most, "lines": lines})
    return charts


async def alarms(visit: Visit) -> Response:
    """The alarms of a space."""
    rows = await visit.run(reads.alarms, visit.opened.store, number(visit, "before"))
    return await visit.page(
        "alarms.html", here="Alarms", rows=rows, before=number(visit, "before"),
        more=rows[-1].number if len(rows) == reads.ROWS else None,
    )  # fmt: skip
