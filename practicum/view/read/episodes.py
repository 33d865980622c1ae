"""Attempts and interactions as one list, the newest first: interactions, and then attempts.

A page reads rows by their indexes. For a filter that no index serves, it looks through a number of rows and says so;
the next page goes on from there.
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
"""Episodes on a page."""

SEARCHED = 5_000
"""Interactions that a page looks through for those that a filter lets pass."""

SEARCHED_TEXTS = 2_000
"""Interactions that it looks through if it has to read what was asked and answered, or the status."""

SEARCHED_ATTEMPTS = 1_000
"""Attempts that a page looks through."""

WRONG = 0.5
"""Answers with a score below this are wrong."""

ONLY = ("all", "failed", "errors", "wrong", "open")
"""Which episodes a list has: all; those that went wrong or ended with an error; those that ended with an error; those
that were wrong; those without an outcome."""


@dataclass(frozen=True)
class EpisodeFilter:
    """Which episodes are listed: `kind` is all, attempts or interactions, `only` one of ONLY, `split` that of attempts,
    `user` and `session` those of interactions, `text` words that one of its texts has."""

    kind: str = "all"
    only: str = "all"
    split: str = ""
    user: str = ""
    session: str = ""
    text: str = ""

    def query(self, **changed: str) -> str:
        """The query of an address with this filter, in which some parts are changed."""
        named = {
            "kind": self.kind, "only": self.only, "split": self.split, "user": self.user, "session": self.session,
            "q": self.text, **changed,
        }  # fmt: skip
        asked = urlencode({name: value for name, value in named.items() if value not in ("", "all")})
        return f"?{asked}" if asked else ""

    @property
    def interactions(self) -> bool:
        """Whether interactions can pass it."""
        return self.kind != "attempts" and not self.split

    @property
    def attempts(self) -> bool:
        """Whether attempts can pass it."""
        return self.kind != "interactions" and not (self.user or self.session)


@dataclass(frozen=True)
class Listed:
    """Episodes of a page, and the place before which the next page begins: a letter (i or a) and a number; empty for
    the last one. `searched` is how many were looked through for them, if not all those before were."""

    rows: Sequence[Any]
    before: str
    searched: int = 0


def episodes(store: Store, story: Story | None, wanted: EpisodeFilter, before: str) -> Listed:
    """A page of the episodes of a space. Without a `story` it has no attempts."""
    searched = 0
    if wanted.interactions and before[:1] != "a":
        found = interactions(store, wanted, int(before[1:]) if before else None)
        if found.rows or found.before:
            more = "a" if wanted.attempts and story is not None and has_attempts(store) else ""
            return Listed(found.rows, found.before or more, found.searched)
        searched = found.searched
    if story is None or not wanted.attempts:
        return Listed((), "", searched)
    return attempts(story, wanted, int(before[1:]) if before[1:] and before[0] == "a" else None)


def has_attempts(store: Store) -> bool:
    """Whether a space has attempts."""
    return bool(store.rows(store.select(schema.attempts.c.step).limit(1)))


def has_interactions(store: Store) -> bool:
    """Whether a space has interactions."""
    return bool(store.rows(store.select(schema.interactions.c.id).limit(1)))


def interactions(store: Store, wanted: EpisodeFilter, before: int | None = None) -> Listed:
    """Interactions of a space, the newest first."""
    i = schema.interactions
    mine: list[ColumnElement[bool]] = [] if before is None else [i.c.number < before]
    if wanted.user:
        mine.append(i.c.user == wanted.user)
    if wanted.session:
        mine.append(i.c.session == wanted.session)
    near = store.select(i.c.id, i.c.number).where(*mine).order_by(i.c.number.desc())
    if wanted.only == "all" and not wanted.text:
        rows = store.rows(near.limit(ROWS + 1))
        return Listed(_lines(store, rows[:ROWS]), f"i{rows[ROWS - 1].number}" if len(rows) > ROWS else "")
    most = SEARCHED_TEXTS if wanted.text or wanted.only in ("failed", "errors") else SEARCHED
    rows = _searched(store, wanted, mine, most)
    passed = [row for row in rows if _passes(row, wanted)]
    if len(passed) > ROWS:
        return Listed(_lines(store, passed[:ROWS]), f"i{passed[ROWS - 1].number}")
    end = rows[-1].number if len(rows) == most else None
    return Listed(_lines(store, passed), "" if end is None else f"i{end}", 0 if end is None else most)


def _searched(store: Store, wanted: EpisodeFilter, mine: Sequence[ColumnElement[bool]], most: int) -> list[Any]:
    """The rows that a filter looks through, with their scores, and with their data if it is about that."""
    i, o = schema.interactions, schema.outcomes
    columns = [i.c.id, i.c.number]
    if wanted.text or wanted.only in ("failed", "errors"):
        columns.append(i.c.data)
    near = store.select(*columns).where(*mine).order_by(i.c.number.desc()).limit(most).subquery()
    both = select(near, o.c.score).outerjoin(o, store.mine(o, o.c.id == near.c.id))
    return store.rows(both.order_by(near.c.number.desc()))


def _passes(row: Any, wanted: EpisodeFilter) -> bool:
    wrong = row.score is not None and row.score < WRONG
    if wanted.only in ("wrong", "open"):
        kept = wrong if wanted.only == "wrong" else row.score is None
    elif wanted.only == "all" or (wrong and wanted.only == "failed"):
        kept = True
    else:
        kept = from_json(row.data)["status"] >= 400
    if not kept or not wanted.text:
        return kept
    data = from_json(row.data)
    return _has(wanted.text, row.id, str(data["query"]), str(data["answer"]))


def _has(text: str, *others: str) -> bool:
    words = text.casefold()
    return any(words in other.casefold() for other in others)


def _lines(store: Store, listed: Sequence[Any]) -> list[dict[str, Any]]:
    i, o, ids = schema.interactions, schema.outcomes, [row.id for row in listed]
    scores = {row.id: row.score for row in store.rows(store.select(o.c.id, o.c.score).where(o.c.id.in_(ids)))}
    rows = {row.id: row for row in store.rows(store.select(i).where(i.c.id.in_(ids)))}
    return [{**_interaction(rows[id]), "score": scores.get(id)} for id in ids if id in rows]


def interaction(store: Store, id: str) -> dict[str, Any] | None:
    """An interaction with its outcome; None if there is none of this id."""
    i, o = schema.interactions, schema.outcomes
    rows = store.rows(store.select(i).where(i.c.id == id))
    if not rows:
        return None
    outcomes = store.rows(store.select(o).where(o.c.id == id))
    return {**_interaction(rows[0]), "outcome": _outcome(outcomes[0]) if outcomes else None}


def interactions_at(store: Store, ids: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Interactions by their ids."""
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
    """The values of a report."""
    return {name: value for name, value in report.items() if name not in ("at", "trust")}


# Attempts


def attempts(story: Story, wanted: EpisodeFilter, before: int | None = None) -> Listed:
    """Attempts of a space, the newest first."""
    t, store = schema.attempts, story.store
    mine: list[ColumnElement[bool]] = [] if before is None else [before > ROW]
    if wanted.split:
        mine.append(t.c.step > 0 if wanted.split == "train" else t.c.step == 0)
    query = store.select(ROW.label("number"), t.c.place, t.c.step, t.c.data).where(*mine).order_by(ROW.desc())
    all_pass = wanted == EpisodeFilter(wanted.kind, split="train" if wanted.split == "train" else "")
    most = ROWS if all_pass else SEARCHED_ATTEMPTS
    rows = store.rows(query.limit(most + 1))
    lines = list[AttemptLine]()
    passes = _attempt_passes(wanted)
    for n, row in enumerate(rows[:most]):
        raw = from_json(row.data)
        if all_pass or (_in_split(story, row, wanted.split) and any(map(passes, (raw, *raw["siblings"])))):
            lines += [line for line in lines_of(story, row) if all_pass or _line_passes(line, wanted)][::-1]
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


def _attempt_passes(wanted: EpisodeFilter) -> Callable[[Any], bool]:
    """A quick look at the data of an attempt, before it is read as one."""

    def passes(raw: Any) -> bool:
        error = raw["trace"]["error"] is not None
        known = raw["feedback"]["success"] if raw["score"] is None else raw["score"]["correct"]
        found = {"failed": error or known is False, "errors": error, "wrong": known is False, "open": known is None}
        return found.get(wanted.only, True)

    return passes


def _line_passes(line: AttemptLine, wanted: EpisodeFilter) -> bool:
    kept = {
        "failed": line.failed, "errors": line.error is not None, "wrong": line.outcome == "wrong",
        "open": line.outcome == "unknown",
    }.get(wanted.only, True)  # fmt: skip
    return kept and (
        not wanted.text or _has(wanted.text, line.id, line.input, line.answer, line.feedback, line.error or "")
    )


def lines_of(story: Story, row: Any) -> list[AttemptLine]:
    """The attempts that a row of the store holds, each in a line."""
    scope = row.step or EvaluationScope.at(row.place)
    attempt = ATTEMPT.validate_json(row.data)
    ids = story.names.ids_of(scope, attempt)
    return story.names.lines(scope, attempt, ids)


def lines_with(story: Story, entry: str, most: int) -> list[AttemptLine]:
    """The newest attempts that an entry was looked up for, or that cite it, of those that a page looks through."""
    t, store = schema.attempts, story.store
    newest = store.rows(store.select(ROW.label("number"), t.c.place).order_by(ROW.desc()).limit(1))
    if not newest:
        return []
    named = t.c.data.contains(json.dumps(entry), autoescape=True)
    query = store.select(ROW.label("number"), t.c.place, t.c.step, t.c.data)
    query = query.where(newest[0].number - SEARCHED < ROW, named)
    found = list[AttemptLine]()
    for row in store.rows(query.order_by(ROW.desc()).limit(2 * most)):
        members = zip(lines_of(story, row), in_order(ATTEMPT.validate_json(row.data)), strict=True)
        found += [line for line, one in members if entry in one.trace.used or entry in dict(one.retrieved)]
    return found[:most]
