"""Episodes of a space in one list: first the interactions, newest first, then the attempts, newest first.

A page reads rows by an index. For a filter without an index, the page searches a limited number of rows and reports
this number; the next page continues after these rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from pydantic_core import from_json
from sqlalchemy import ColumnElement, select

from practicum.session.records import ATTEMPT
from practicum.store import schema
from practicum.store.database import Store
from practicum.store.dialects import ROW
from practicum.view.read.naming import EvaluationScope, in_order
from practicum.view.read.parts import AttemptLine
from practicum.view.read.story import Story

ROWS = 50
"""Number of episodes per page."""

SEARCHED = 5_000
"""Maximum number of interactions that a page searches for matches of a filter."""

SEARCHED_TEXTS = 2_000
"""Maximum number of interactions that a page searches if the filter needs their texts or status."""

SEARCHED_ATTEMPTS = 1_000
"""Maximum number of attempts that a page searches."""

WRONG = 0.5
"""Answers with a score below this value count as wrong."""

ONLY = ("all", "failed", "errors", "wrong", "open")
"""Values of the filter `only`. `failed`: wrong or with an error. `errors`: with an error. `wrong`: with a wrong answer.
`open`: without an outcome."""


@dataclass(frozen=True)
class EpisodeFilter:
    """Filter of a list of episodes; empty fields match all.

    `kind`: all, attempts or interactions. `only`: one of ONLY. `split`: the split of attempts. `user` and `session`:
    the user and the session of interactions. `text`: a text that the episode must contain."""

    kind: str = "all"
    only: str = "all"
    split: str = ""
    user: str = ""
    session: str = ""
    text: str = ""

    def query(self, **changed: str) -> str:
        """Return the query string of a URL with this filter, with some fields changed."""
        fields = {
            "kind": self.kind, "only": self.only, "split": self.split, "user": self.user, "session": self.session,
            "q": self.text, **changed,
        }  # fmt: skip
        query = urlencode({name: value for name, value in fields.items() if value not in ("", "all")})
        return f"?{query}" if query else ""

    @property
    def interactions(self) -> bool:
        """Whether interactions can match this filter."""
        return self.kind != "attempts" and not self.split

    @property
    def attempts(self) -> bool:
        """Whether attempts can match this filter."""
        return self.kind != "interactions" and not (self.user or self.session)


@dataclass(frozen=True)
class Listed:
    """A page of episodes.

    `before`: where the next page starts, a letter (i: interactions, a: attempts) and a number; empty on the last page.
    `searched`: the number of rows searched, if the search stopped before the last row; else 0."""

    rows: Sequence[Any]
    before: str
    searched: int = 0


def episodes(store: Store, story: Story | None, filters: EpisodeFilter, before: str) -> Listed:
    """Return a page of the episodes of a space that match a filter. Without a `story`: only interactions.

    `before`: the value of `Listed.before` of the previous page; empty for the first page."""
    searched = 0
    if filters.interactions and before[:1] != "a":
        page = interactions(store, filters, int(before[1:]) if before else None)
        if page.rows or page.before:
            more = "a" if filters.attempts and story is not None and has_attempts(store) else ""
            return Listed(page.rows, page.before or more, page.searched)
        searched = page.searched
    if story is None or not filters.attempts:
        return Listed((), "", searched)
    return attempts(story, filters, int(before[1:]) if before[1:] and before[0] == "a" else None)


def has_attempts(store: Store) -> bool:
    """Whether a space has attempts."""
    return bool(store.rows(store.select(schema.attempts.c.step).limit(1)))


def has_interactions(store: Store) -> bool:
    """Whether a space has interactions."""
    return bool(store.rows(store.select(schema.interactions.c.id).limit(1)))


def interactions(store: Store, filters: EpisodeFilter, before: int | None = None) -> Listed:
    """Return a page of the interactions of a space that match a filter, newest first."""
    i = schema.interactions
    mine: list[ColumnElement[bool]] = [] if before is None else [i.c.number < before]
    if filters.user:
        mine.append(i.c.user == filters.user)
    if filters.session:
        mine.append(i.c.session == filters.session)
    query = store.select(i.c.id, i.c.number).where(*mine).order_by(i.c.number.desc())
    if filters.only == "all" and not filters.text:
        rows = store.rows(query.limit(ROWS + 1))
        return Listed(_lines(store, rows[:ROWS]), f"i{rows[ROWS - 1].number}" if len(rows) > ROWS else "")
    most = SEARCHED_TEXTS if filters.text or filters.only in ("failed", "errors") else SEARCHED
    rows = _searched(store, filters, mine, most)
    passed = [row for row in rows if _passes(row, filters)]
    if len(passed) > ROWS:
        return Listed(_lines(store, passed[:ROWS]), f"i{passed[ROWS - 1].number}")
    end = rows[-1].number if len(rows) == most else None
    return Listed(_lines(store, passed), "" if end is None else f"i{end}", 0 if end is None else most)


def _searched(store: Store, filters: EpisodeFilter, mine: Sequence[ColumnElement[bool]], most: int) -> list[Any]:
    """Return the newest `most` interactions that meet the conditions `mine`: ids, numbers and scores, and the data if
    the filter needs the data. The caller applies the filter to the returned rows."""
    i, o = schema.interactions, schema.outcomes
    columns = [i.c.id, i.c.number]
    if filters.text or filters.only in ("failed", "errors"):
        columns.append(i.c.data)
    near = store.select(*columns).where(*mine).order_by(i.c.number.desc()).limit(most).subquery()
    both = select(near, o.c.score).outerjoin(o, store.mine(o, o.c.id == near.c.id))
    return store.rows(both.order_by(near.c.number.desc()))


def _passes(row: Any, filters: EpisodeFilter) -> bool:
    wrong = row.score is not None and row.score < WRONG
    if filters.only in ("wrong", "open"):
        passes = wrong if filters.only == "wrong" else row.score is None
    elif filters.only == "all" or (wrong and filters.only == "failed"):
        passes = True
    else:
        passes = from_json(row.data)["status"] >= 400
    if not passes or not filters.text:
        return passes
    data = from_json(row.data)
    return _has(filters.text, row.id, str(data["query"]), str(data["answer"]))


def _has(text: str, *others: str) -> bool:
    words = text.casefold()
    return any(words in other.casefold() for other in others)


def _lines(store: Store, listed: Sequence[Any]) -> list[dict[str, Any]]:
    i, o, ids = schema.interactions, schema.outcomes, [row.id for row in listed]
    scores = {row.id: row.score for row in store.rows(store.select(o.c.id, o.c.score).where(o.c.id.in_(ids)))}
    rows = {row.id: row for row in store.rows(store.select(i).where(i.c.id.in_(ids)))}
    return [{**_interaction(rows[id]), "score": scores.get(id)} for id in ids if id in rows]


def interaction(store: Store, id: str) -> dict[str, Any] | None:
    """Return the interaction with this id, with its outcome; None if the interaction does not exist."""
    i, o = schema.interactions, schema.outcomes
    rows = store.rows(store.select(i).where(i.c.id == id))
    if not rows:
        return None
    outcomes = store.rows(store.select(o).where(o.c.id == id))
    return {**_interaction(rows[0]), "outcome": _outcome(outcomes[0]) if outcomes else None}


def interactions_at(store: Store, ids: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return id → interaction for these ids."""
    i = schema.interactions
    rows = store.rows(store.select(i).where(i.c.id.in_([*ids])))
    return {row.id: _interaction(row) for row in rows}


def _interaction(row: Any) -> dict[str, Any]:
    columns = ("id", "at", "session", "user", "version", "rollout")
    return {**json.loads(row.data), **{column: getattr(row, column) for column in columns}}


def _outcome(row: Any) -> dict[str, Any]:
    return {
        **json.loads(row.data), "score": row.score, "trust": row.trust, "state": row.state, "revision": row.revision,
    }  # fmt: skip


def reported(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a report without its time and trust level."""
    return {name: value for name, value in report.items() if name not in ("at", "trust")}


# Attempts


def attempts(story: Story, filters: EpisodeFilter, before: int | None = None) -> Listed:
    """Return a page of the attempts of a space that match a filter, newest first."""
    t, store = schema.attempts, story.store
    mine: list[ColumnElement[bool]] = [] if before is None else [before > ROW]
    if filters.split:
        mine.append(t.c.step > 0 if filters.split == "train" else t.c.step == 0)
    query = store.select(ROW.label("number"), t.c.place, t.c.step, t.c.data).where(*mine).order_by(ROW.desc())
    all_pass = filters == EpisodeFilter(filters.kind, split="train" if filters.split == "train" else "")
    most = ROWS if all_pass else SEARCHED_ATTEMPTS
    rows = store.rows(query.limit(most + 1))
    lines = list[AttemptLine]()
    passes = _attempt_passes(filters)
    for n, row in enumerate(rows[:most]):
        raw = from_json(row.data)
        if all_pass or (_in_split(story, row, filters.split) and any(map(passes, (raw, *raw["siblings"])))):
            lines += [line for line in lines_of(story, row) if all_pass or _line_passes(line, filters)][::-1]
        if len(lines) >= ROWS and n + 1 < len(rows):
            return Listed(lines, f"a{row.number}")
    if len(rows) > most:
        return Listed(lines, f"a{rows[most - 1].number}", 0 if all_pass else most)
    return Listed(lines, "")


def _in_split(story: Story, row: Any, split: str) -> bool:
    if not split or row.step:
        return True
    one = EvaluationScope.at(row.place)
    return split in (story.names.label(one), story.names.split(one))


def _attempt_passes(filters: EpisodeFilter) -> Callable[[Any], bool]:
    """Return a predicate on the raw data of an attempt. Testing raw data is cheaper than validating the attempt
    first."""

    def passes(raw: Any) -> bool:
        error = raw["trace"]["error"] is not None
        success = raw["feedback"]["success"] if raw["score"] is None else raw["score"]["correct"]
        by_name = {
            "failed": error or success is False,
            "errors": error,
            "wrong": success is False,
            "open": success is None,
        }
        return by_name.get(filters.only, True)

    return passes


def _line_passes(line: AttemptLine, filters: EpisodeFilter) -> bool:
    passes = {
        "failed": line.failed, "errors": line.error is not None, "wrong": line.outcome == "wrong",
        "open": line.outcome == "unknown",
    }.get(filters.only, True)  # fmt: skip
    return passes and (
        not filters.text or _has(filters.text, line.id, line.input, line.answer, line.feedback, line.error or "")
    )


def lines_of(story: Story, row: Any) -> list[AttemptLine]:
    """Return the summaries of the attempts that a row of the store contains."""
    scope = row.step or EvaluationScope.at(row.place)
    attempt = ATTEMPT.validate_json(row.data)
    ids = story.names.ids_of(scope, attempt)
    return story.names.lines(scope, attempt, ids)


def lines_with(story: Story, entry: str, most: int) -> list[AttemptLine]:
    """Return up to `most` attempts that looked up or cited an entry, newest first, among the last SEARCHED attempts."""
    t, store = schema.attempts, story.store
    newest = store.rows(store.select(ROW.label("number"), t.c.place).order_by(ROW.desc()).limit(1))
    if not newest:
        return []
    mentions = t.c.data.contains(json.dumps(entry), autoescape=True)
    query = store.select(ROW.label("number"), t.c.place, t.c.step, t.c.data)
    query = query.where(newest[0].number - SEARCHED < ROW, mentions)
    lines = list[AttemptLine]()
    for row in store.rows(query.order_by(ROW.desc()).limit(2 * most)):
        members = zip(lines_of(story, row), in_order(ATTEMPT.validate_json(row.data)), strict=True)
        lines += [line for line, member in members if entry in member.trace.used or entry in dict(member.retrieved)]
    return lines[:most]
