"""The pages of one run: overview, steps, attempts, lessons, the playbook with its versions, entries and calls."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from sqlalchemy import func

from practicum.analysis.names import slug, unslug
from practicum.analysis.pages import render
from practicum.analysis.view.attempt import attempt_values
from practicum.analysis.view.curve import curve
from practicum.core.counts import counted
from practicum.core.edits import Applied, Refused
from practicum.core.errors import PracticumError, UsageError
from practicum.core.formats import money, percent
from practicum.core.intervals import mean_ci95
from practicum.core.views import render_full
from practicum.session.records import REFUSED
from practicum.session.story import AttemptLine, AttemptStory, CallStory, LessonStory, StepStory, Story
from practicum.store import schema
from practicum.store.changes import Piece, changes, marked
from practicum.store.journal import NOTE_ROLE
from practicum.store.names import read_names
from practicum.store.versions import EntryEvent, read_edits

ROWS = 200
"""Steps, attempts and calls on one page."""

CARDS = 50
"""Lessons on one page."""

MOST_WITH = 100
"""Attempts that are listed with an entry."""

MOST_CALLS = 5_000
"""Calls that have pages of their own as files. Of a longer run the calls of attempts are shown with these."""

MOST_ENTRIES = 20_000
"""Entries that the playbooks of all versions may have together to be written as files. Of a longer run the playbook of
the last version is written, and what each version changed."""

_LIST = re.compile(r"(?P<what>[\w~-]+?)(?P<failed>\.failed|\.errors)?(?:\.(?P<page>[1-9]\d{0,8}))?")

ONLY: Mapping[str, Callable[[AttemptLine], bool]] = {
    "": lambda line: True,
    ".failed": lambda line: line.failed,
    ".errors": lambda line: line.error is not None,
}
"""Which attempts a list has: all, those that went wrong, those that ended with an error."""

Made = tuple[str, dict[str, Any]] | None
"""The tab that a page belongs to, and the values of its template; None if there is no such page."""


@dataclass(frozen=True)
class Frame:
    """What is around a page: the name of the run, the way to it, the way back to the run's first page, and the query.
    `served` says whether queries are answered: files do not."""

    name: str
    crumbs: tuple[tuple[str, str], ...]
    root: str
    query: Mapping[str, str]
    served: bool


@dataclass(frozen=True)
class Leaf:
    """A page of a list: its rows, how many there are in all, its number, and the addresses of its neighbours."""

    rows: Sequence[Any]
    total: int
    page: int
    pages: int
    before: str | None
    after: str | None


class RunPages:
    """The pages of a run, read from its story as it is now."""

    def __init__(self, story: Story) -> None:
        self.story, self._store = story, story.store
        self._lines: dict[str, list[AttemptLine]] = {}

    def page(self, path: str, frame: Frame) -> str | None:
        """The page at a path within the run, or None if there is none."""
        folder, _, name = path.removesuffix(".html").rpartition("/")
        make: Callable[[str, Frame], Made] | None = {
            "": self._overview, "steps": self._steps, "step": self._step, "attempts": self._attempts,
            "attempt": self._attempt, "lessons": self._lessons, "playbook": self._playbook, "diff": self._diff,
            "entry": self._entry, "calls": self._calls, "call": self._call,
        }.get(folder)  # fmt: skip
        if make is None or not path.endswith(".html") or path.startswith("/"):
            return None
        try:
            made = make(name, frame)
        except (UsageError, OverflowError):
            # The run has no step, attempt, version, entry or call of this name or number.
            return None
        if made is None:
            return None
        here, values = made
        way = {"crumbs": (*frame.crumbs, (frame.name, f"{frame.root}index.html")), "root": frame.root}
        about = {
            "run": self.story.config, "served": frame.served, "whole": frame.served or self._whole_playbooks,
            "with_calls": frame.served or self._all_calls,
        }  # fmt: skip
        return render(f"view/{folder or 'overview'}.html", here=here, **way, **about, **values)

    def paths(self) -> Iterator[str]:
        """The paths of all pages, as files are written."""
        yield "index.html"
        yield from _leaves("steps", "all", len(self.steps), ROWS)
        yield from (f"step/{step}.html" for step in self.steps)
        for split in ("all", *self.splits):
            for only, chosen in ONLY.items():
                yield from _leaves("attempts", f"{split}{only}", sum(map(chosen, self.lines(split))), ROWS)
        yield from (f"attempt/{slug(line.id)}.html" for line in self.lines("all"))
        yield from _leaves("lessons", "all", self._lessons_in_all, CARDS)
        for role, number in self.calls_by_role.items():
            yield from _leaves("calls", role, number, ROWS)
        if self._all_calls:
            yield from (f"call/{call.id}.html" for call in self.story.calls())
        yield "playbook/last.html"
        if self._whole_playbooks:
            yield from (f"playbook/{version}.html" for version in self.versions)
        yield from (f"diff/{v.parent}-{version}.html" for version, v in self.versions.items() if v.parent is not None)
        yield f"diff/0-{max(self.versions, default=0)}.html"
        yield from (f"entry/e{number}.html" for number in range(self.story.context().next_number))

    # What is listed

    @cached_property
    def steps(self) -> dict[int, StepStory]:
        return {step.step: step for step in self.story.steps()}

    def lines(self, split: str) -> list[AttemptLine]:
        """The attempts of a split, or all of them."""
        if split not in self._lines:
            self._lines[split] = list(self.story.attempts(split=None if split == "all" else split))
        return self._lines[split]

    @cached_property
    def splits(self) -> list[str]:
        """The splits whose attempts are stored."""
        return self.story.splits

    @cached_property
    def calls_by_role(self) -> dict[str, int]:
        """The number of calls of each role, and of all."""
        t = schema.journal.c
        query = self._store.select(t.role, func.count()).where(t.role != NOTE_ROLE).group_by(t.role)
        found = {row[0]: row[1] for row in self._store.rows(query.order_by(t.role))}
        return {"all": sum(found.values()), **found}

    @cached_property
    def versions(self) -> dict[int, Any]:
        """For each version its parent, and the step that made it."""
        t = schema.versions.c
        rows = self._store.rows(self._store.select(t.version, t.parent, t.step).order_by(t.version))
        return {row.version: row for row in rows}

    @property
    def _lessons_in_all(self) -> int:
        return int(self._store.rows(self._store.select(func.count(schema.lessons.c.step)))[0][0])

    @property
    def _all_calls(self) -> bool:
        """Whether each call is written as a file."""
        return self.calls_by_role["all"] <= MOST_CALLS

    @cached_property
    def _whole_playbooks(self) -> bool:
        """Whether the playbook of every version is written as a file."""
        return len(self.versions) * len(self.story.context()) <= MOST_ENTRIES

    # The pages

    def _overview(self, name: str, frame: Frame) -> Made:
        if name != "index":
            return None
        info = self.story.info
        return "Overview", {
            "info": info,
            "scores": {name: self._interval(name) for name in info.scores},
            "counts": counted(info.counts),
            "refused": sum(step.refused for step in self.steps.values()),
            "curve": curve([*self.steps.values()]),
            "steps": [*self.steps.values()][-ROWS // 4 :],
            "in_all": len(self.steps),
            "context": self.story.context(),
            "tokens": render_full(self.story.context()).tokens,
            "roles": sorted(info.by_role.items(), key=lambda role: -role[1].tokens),
        }

    def _interval(self, name: str) -> tuple[float, float] | None:
        """The 95% interval of a score over its tasks, where their attempts are stored."""
        if name not in ("before", "test"):
            return None
        values = [line.score for line in self.lines(name) if line.number == 1 and line.score is not None]
        return mean_ci95(values) if values and all(0 <= value <= 1 for value in values) else None

    def _steps(self, name: str, frame: Frame) -> Made:
        if (listed := _list(name, "all")) is None:
            return None
        return "Overview", {"leaf": _leaf([*self.steps.values()], listed[1], ROWS, "all", frame.query)}

    def _step(self, name: str, frame: Frame) -> Made:
        if (step := self.steps.get(_number(name, 0) or 0)) is None:
            return None
        numbers = [*self.steps]
        at = numbers.index(step.step)
        applied, refused = self._edits(step.step)
        made = [row for row in self.versions.values() if row.step == step.step and row.version == step.version]
        context, parent = self.story.context(step.version), made[0].parent if made else None
        return "Overview", {
            "step": step,
            "lines": list(self.story.attempts(step=step.step)),
            "lessons": list(self.story.lessons(step.step)),
            "changes": [] if parent is None else changes(self.story.context(parent), context),
            "votes": [done for done in applied if done.edit.op == "vote"],
            "merges": list(self.story.merges(step.step)),
            "refused": refused,
            "calls": list(self.story.calls(step.step)),
            "parent": parent,
            "before": _turn("step", numbers[at - 1], f"{numbers[at - 1]}.html") if at else None,
            "after": _turn("step", numbers[at + 1], f"{numbers[at + 1]}.html") if at + 1 < len(numbers) else None,
        }

    def _edits(self, step: int) -> tuple[list[Applied], list[Refused]]:
        """The edits that a step applied, and those that it had to refuse."""
        made = [version for version, row in self.versions.items() if row.step == step and row.parent is not None]
        applied = [done for version in made for done in read_edits(self._store, version)]
        t = schema.steps.c
        rows = self._store.rows(self._store.select(t.refused).where(t.step == step))
        return applied, [edit for row in rows for edit in REFUSED.validate_json(row.refused)]

    def _attempts(self, name: str, frame: Frame) -> Made:
        if (found := _LIST.fullmatch(name)) is None or found["what"] not in ("all", *self.splits):
            return None
        split, only = found["what"], found["failed"] or ""
        lines = self.lines(split)
        shown = [line for line in lines if ONLY[only](line)]
        if wanted := frame.query.get("q", "").casefold():
            shown = [
                line for line in shown if any(
                    wanted in text.casefold()
                    for text in (line.id, line.input, line.answer, line.feedback, line.error or "")
                )
            ]  # fmt: skip
        leaf = _leaf(shown, int(found["page"] or 1), ROWS, split + only, frame.query)
        return "Attempts", {
            "leaf": leaf,
            "split": split,
            "splits": self.splits,
            "only": only,
            "numbers": {name: sum(map(chosen, lines)) for name, chosen in ONLY.items()},
            "wanted": frame.query.get("q", ""),
        }

    def _attempt(self, name: str, frame: Frame) -> Made:
        id = unslug(name) or next((line.id for line in self.lines("all") if slug(line.id) == name), None)
        if id is None:
            return None
        attempt = self.story.attempt(id)
        before, after = self._around(attempt)
        return "Attempts", {**attempt_values(self.story, attempt), "before": before, "after": after}

    def _around(self, attempt: AttemptStory) -> tuple[tuple[str, str] | None, tuple[str, str] | None]:
        """The attempts before and after one, in its step or its evaluation."""
        line = attempt.line
        if line.step is None:
            lines = self.lines(line.split)
        else:
            lines = self._lines.setdefault(f"step {line.step}", list(self.story.attempts(step=line.step)))
        ids = [other.id for other in lines]
        if line.id not in ids:
            return None, None
        at = ids.index(line.id)

        def link(at: int) -> tuple[str, str] | None:
            return (ids[at], f"{slug(ids[at])}.html") if 0 <= at < len(ids) else None

        return link(at - 1), link(at + 1)

    def _lessons(self, name: str, frame: Frame) -> Made:
        if (listed := _list(name, "all")) is None:
            return None
        return "Lessons", {
            "leaf": _leaf(
                self._lessons_from((listed[1] - 1) * CARDS), listed[1], CARDS, "all", frame.query, self._lessons_in_all
            )
        }

    def _lessons_from(self, first: int) -> list[LessonStory]:
        """The lessons of a page, which begins with this one (from 0). Steps before it are not read."""
        t, rows = schema.lessons.c, list[LessonStory]()
        numbers = self._store.select(t.step, func.count()).group_by(t.step).order_by(t.step)
        for step, number in self._store.rows(numbers):
            if first >= number:
                first -= number
                continue
            rows += islice(self.story.lessons(step), first, first + CARDS - len(rows))
            first = 0
            if len(rows) == CARDS:
                break
        return rows

    def _playbook(self, name: str, frame: Frame) -> Made:
        last = max(self.versions, default=0)
        version = _number(frame.query.get("version", "") or ("" if name == "last" else name), last)
        if version is None:
            return None
        context = self.story.context(version)
        row = self.versions.get(version)
        sections: dict[str, list[Any]] = {}
        for entry in context:
            sections.setdefault(entry.section, []).append(entry)
        return "Playbook", {
            "context": context, "sections": sections, "version": version, "row": row, "last": last,
            "tokens": render_full(context).tokens, "versions": self.versions, "names": self._names,
            "before": _turn("version", row.parent, f"{row.parent}.html") if row and row.parent is not None else None,
            "after": _turn("version", version + 1, f"{version + 1}.html") if version + 1 in self.versions else None,
        }  # fmt: skip

    @cached_property
    def _names(self) -> dict[int, list[str]]:
        """The names of versions, such as "prod"."""
        found = dict[int, list[str]]()
        for name, version in read_names(self._store).items():
            found.setdefault(version, []).append(name)
        return found

    def _diff(self, name: str, frame: Frame) -> Made:
        # A form on the server names the versions in the query.
        old, _, new = name.partition("-")
        first, second = (
            _number(frame.query.get(given, "") or part, -1)
            for given, part in (("old", "" if name == "of" else old), ("new", new))
        )
        if first not in self.versions or second not in self.versions:
            return None
        assert first is not None
        assert second is not None
        found = changes(self.story.context(first), self.story.context(second))
        row = self.versions[second]
        step = row.step if row.parent == first else None
        return "Playbook", {
            "old": first, "new": second, "changes": found, "step": step, "versions": self.versions,
            "before": self._step_back(first, second), "after": self._step_on(first, second),
        }  # fmt: skip

    def _step_back(self, old: int, new: int) -> tuple[str, str] | None:
        row = self.versions[old]
        adjacent = self.versions[new].parent == old and row.parent is not None
        return (f"version {row.parent} to {old}", f"{row.parent}-{old}.html") if adjacent else None

    def _step_on(self, old: int, new: int) -> tuple[str, str] | None:
        after = self.versions.get(new + 1)
        adjacent = self.versions[new].parent == old and after is not None and after.parent == new
        return (f"version {new} to {new + 1}", f"{new}-{new + 1}.html") if adjacent else None

    def _entry(self, name: str, frame: Frame) -> Made:
        if (id := unslug(name)) is None:
            return None
        entry = self.story.entry(id)
        lines = list(islice(self.story.attempts_with(id), MOST_WITH + 1))
        return "Playbook", {
            "entry": entry, "history": self._history(entry.events), "lines": lines[:MOST_WITH],
            "more": len(lines) > MOST_WITH,
        }  # fmt: skip

    def _history(self, events: Sequence[EntryEvent]) -> Iterator[dict[str, Any]]:
        """The edits of an entry, those of its text with what they changed, with the attempts they came from."""
        text = ""
        for event in events:
            edit = event.done.edit
            new = getattr(edit, "text", None)
            minus: Sequence[Piece] = ()
            plus: Sequence[Piece] = ()
            if new is not None and new != text:
                minus, plus = marked(text, new) if text else ((), [(new, False)])
                text = new
            row = self.versions.get(event.version)
            parent = None if row is None else row.parent
            attempts = self.story.attempts_of(edit.sources)
            yield {"event": event, "edit": edit, "minus": minus, "plus": plus, "parent": parent, "attempts": attempts}

    def _calls(self, name: str, frame: Frame) -> Made:
        if (found := _LIST.fullmatch(name)) is None or found["failed"] or found["what"] not in self.calls_by_role:
            return None
        role, page = found["what"], int(found["page"] or 1)
        calls: Iterator[CallStory] = self.story.calls(role=None if role == "all" else role)
        rows = list(islice(calls, (page - 1) * ROWS, page * ROWS))
        leaf = _leaf(rows, page, ROWS, role, frame.query, self.calls_by_role[role])
        return "Calls", {"leaf": leaf, "role": role, "roles": self.calls_by_role}

    def _call(self, name: str, frame: Frame) -> Made:
        return ("Calls", {"call": self.story.call(name)}) if name.isdecimal() else None


def _turn(what: str, number: int, url: str) -> tuple[str, str]:
    return f"{what} {number}", url


def _number(text: str, default: int) -> int | None:
    """A number of at most nine digits; None for another text."""
    if not text:
        return default
    return int(text) if re.fullmatch(r"[0-9]{1,9}", text) else None


def _list(name: str, *known: str) -> tuple[str, int] | None:
    """What a list is of, and the number of its page."""
    found = _LIST.fullmatch(name)
    if found is None or found["failed"] or found["what"] not in known:
        return None
    return found["what"], int(found["page"] or 1)


def _leaves(folder: str, name: str, total: int, size: int) -> Iterator[str]:
    """The paths of the pages of a list."""
    for page in range(1, max(-(-total // size), 1) + 1):
        yield f"{folder}/{_leaf_name(name, page)}"


def _leaf_name(name: str, page: int) -> str:
    return f"{name}.html" if page == 1 else f"{name}.{page}.html"


def _leaf(
    rows: Sequence[Any], page: int, size: int, name: str, query: Mapping[str, str], total: int | None = None
) -> Leaf:
    """A page of a list. With `total`, `rows` are those of the page alone."""
    if total is None:
        total, rows = len(rows), rows[(page - 1) * size : page * size]
    pages = max(-(-total // size), 1)
    asked = f"?{urlencode(query)}" if query else ""
    before = _leaf_name(name, page - 1) + asked if page > 1 else None
    after = _leaf_name(name, page + 1) + asked if page < pages else None
    return Leaf(rows, total, page, pages, before, after)


def run_row(folder: Path) -> dict[str, Any]:
    """A run in a line of a list. One that cannot be read says why."""
    try:
        with Story.open(folder) as story:
            info, size = story.info, len(story.context())
    except PracticumError as error:
        return {"state": "unreadable", "what": str(error), "steps": "", "entries": "", "score": "", "cost": ""}
    score = next((info.scores[name] for name in ("test", "online", "val_best") if name in info.scores), None)
    return {
        "state": info.state,
        "what": f"{info.method} with {info.model}" if info.model else info.method,
        "steps": f"{info.steps:,}",
        "entries": f"{size:,}",
        "score": "" if score is None else percent(score),
        "cost": money(info.usage.usd) if info.usage.usd else "",
    }
