"""Where a site finds its spaces: in the database of a service, or in folders on this machine.

A place has a name in addresses: that of its folder, or behind `~` that of a place inside it. A folder may hold runs and
comparisons, a comparison its runs, and a store several spaces.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol

from sqlalchemy import func

from practicum.core.errors import PracticumError, StoreError, UsageError
from practicum.core.words import in_number
from practicum.session.rollout import CANARY
from practicum.store import schema
from practicum.store.database import Database, Store
from practicum.store.folder import DATABASE_FILE, SPACES, STORE_FILE, is_run, is_store
from practicum.store.names import LIVE
from practicum.store.reviews import PENDING
from practicum.store.sqlite import SqliteBackend
from practicum.store.sums import HOUR

PLAN_FILE, REPORT_FILE = "compare.json", "report.json"
"""The plan and the report of a comparison, in its folder."""

LISTED = 25
"""Places on a page."""

Kind = Literal["space", "comparison", "folder", "store"]

Row = Mapping[str, Any]
"""A place in a list: its name, title, kind and state, and for a space its scores, requests and what needs attention."""

SCORES = ("test", "online", "val_best")
"""The scores that a list shows, the first one that there is."""


class Library(Protocol):
    """The places of a site."""

    def rows(self, inside: str, wanted: str, page: int, only: str) -> tuple[list[Row], Counter[str]]:
        """A page of the places inside one ("" for the first page) whose names have these letters, and the number of all
        such places by their kinds; `only` is the space that a key is for."""
        ...


@dataclass(frozen=True)
class SpacesOf:
    """The spaces of a database."""

    database: Database

    def rows(self, inside: str, wanted: str, page: int, only: str) -> tuple[list[Row], Counter[str]]:
        names = [only] if only else [name for name in self.database.names() if wanted in name.casefold()]
        return space_rows(self.database, names[(page - 1) * LISTED : page * LISTED]), Counter(space=len(names))


def space_rows(database: Database, names: Sequence[str]) -> list[Row]:
    """Spaces of a database as rows of a list."""
    since = int(time.time() // HOUR) - 24
    s, h, v, r, a, n = (
        schema.spaces, schema.hours, schema.reviews, schema.rollouts, schema.alarms, schema.names,
    )  # fmt: skip
    ids = {row.name: row.space for row in database.rows(database.named_as(names))}
    of = partial(database.of_spaces, spaces=[*ids.values()])

    def by_space(query: Any) -> dict[str, Any]:
        return {row.space: row for row in database.rows(query)}

    runs = by_space(of(s, columns=(s.c.config, s.c.learning, s.c.result)))
    day = of(h, columns=(func.sum(h.c.requests).label("requests"), func.sum(h.c.scored).label("scored"),
                         func.sum(h.c.total).label("total")))  # fmt: skip
    days = by_space(day.where(h.c.hour > since).group_by(h.c.space))
    pending = of(v, columns=(func.count().label("number"),)).where(v.c.state == PENDING).group_by(v.c.space)
    waits = Counter[str]({id: row.number for id, row in by_space(pending).items()})
    tried = by_space(of(r, columns=(r.c.version,)).where(r.c.state == CANARY))
    last = of(a, columns=(func.max(a.c.number).label("number"),)).group_by(a.c.space).subquery()
    newest = of(a, columns=(a.c.at, a.c.text, a.c.kind))
    alarms = by_space(newest.join(last, (a.c.space == last.c.space) & (a.c.number == last.c.number)))
    live = by_space(of(n, columns=(n.c.version,)).where(n.c.name == LIVE))
    rows = list[Row]()
    for name in names:
        id, one = ids.get(name, ""), days.get(ids.get(name, ""))
        scored, learned = int(one.scored) if one else 0, _learned(runs.get(id))
        rows.append({
            **learned, "name": name, "title": name, "kind": "space",
            "state": shown_state(database, id, learned["state"]),
            "live": live[id].version if id in live else None, "requests": int(one.requests) if one else 0,
            "scored": scored, "mean": float(one.total) / scored if one and scored else None, "waits": waits[id],
            "canary": tried[id].version if id in tried else None, "alarm": alarms.get(id), "problem": "",
        })  # fmt: skip
    return rows


def shown_state(database: Database, space: str, state: str) -> str:
    """The state of learning in a space, given by its id. A space without an attempt, an interaction or a change is
    new."""
    v, a, i = schema.versions, schema.attempts, schema.interactions
    of = partial(database.of_spaces, spaces=[space])
    used = (of(i), of(a), of(v).where(v.c.version > 0))
    return "new" if state == "done" and not any(database.rows(one.limit(1)) for one in used) else state


def _learned(row: Any) -> dict[str, Any]:
    """The state of learning in a space, its method and model, and its score."""
    config = json.loads(row.config) if row is not None and row.config else {}
    result = json.loads(row.result) if row is not None and row.result else {}
    scores = result.get("scores", {})
    score = next((name for name in SCORES if name in scores), None)
    model = f" with {config['model']}" if config.get("model") else ""
    return {
        "state": str(row.learning or "") if row is not None else "", "what": f"{config.get('method', '')}{model}",
        "score": scores.get(score), "score_name": score,
    }  # fmt: skip


@dataclass(frozen=True)
class SitePlace:
    """A run, a store, a comparison, or a folder of them: its name, path, and when it changed last."""

    name: str
    title: str
    path: Path
    kind: Kind

    @property
    def changed(self) -> float:
        files = (f"{DATABASE_FILE}-wal", DATABASE_FILE, STORE_FILE, REPORT_FILE, PLAN_FILE)
        found = (self.path / name for name in files)
        return max((file.stat().st_mtime for file in found if file.exists()), default=0.0)

    def inside(self, prefix: str) -> Iterator[SitePlace]:
        """The places inside it, the last changed first."""
        if self.kind == "store":
            names = _names_in(self.path)
            yield from (SitePlace(f"{prefix}{name}", name, self.path / SPACES / name, "space") for name in names)
            return
        around = self.path / "runs" if self.kind == "comparison" else self.path
        children = list[SitePlace]()
        for child in around.iterdir() if self.kind != "space" and around.is_dir() else ():
            kind = kind_of(child)
            if kind in ("space", "store", "comparison"):
                children.append(SitePlace(f"{prefix}{child.name}", child.name, child, kind))
        yield from sorted(children, key=lambda child: (-child.changed, child.name))


def kind_of(path: Path) -> Kind | None:
    """What a path holds; None if it is neither a run nor a comparison and has neither in it."""
    if is_store(path):
        return "store" if (path / SPACES).is_dir() else "space"
    if is_run(path):
        return "space"
    if (path / PLAN_FILE).is_file():
        return "comparison"
    if path.is_dir() and any((child / file).is_file() for child in path.iterdir()
                             for file in (DATABASE_FILE, STORE_FILE, PLAN_FILE)):  # fmt: skip
        return "folder"
    return None


def _names_in(folder: Path) -> list[str]:
    """The names of the spaces in a store."""
    database = Database(folder, SqliteBackend(folder, read_only=True))
    try:
        return database.names()
    finally:
        database.close()


class Folders:
    """The places in folders. Raises UsageError for a folder that holds no run and no comparison."""

    def __init__(self, paths: Sequence[Path]) -> None:
        for path in paths:
            if kind_of(path) is None:
                what = f"holds no run (no {DATABASE_FILE})" if path.is_dir() else "is no folder"
                raise UsageError(
                    "run.not_found", f"{path} {what}: give the folder of a run, of a comparison, or one that has runs"
                )
        self.paths = paths

    @property
    def first(self) -> SitePlace:
        """The place of the first page: the only path, or all of them."""
        if len(self.paths) == 1:
            path = self.paths[0]
            name = path.resolve().name or "runs"
            return SitePlace(name, name, path, kind_of(path) or "folder")
        return SitePlace("", "runs", Path(), "folder")

    def places(self, inside: str = "") -> list[SitePlace]:
        """The places inside one; of the first page, if it has no name."""
        if inside:
            place = self.find(inside)
            return [] if place is None else [*place.inside(f"{inside}~")]
        first = self.first
        if first.kind == "space":
            return [first]
        if len(self.paths) == 1:
            return [*first.inside("")]
        found = dict[str, SitePlace]()
        for path in self.paths:
            title = path.resolve().name or "runs"
            name = next(n for i in range(1, len(found) + 2) if (n := title if i == 1 else f"{title}-{i}") not in found)
            found[name] = SitePlace(name, title, path, kind_of(path) or "folder")
        return [*found.values()]

    def find(self, name: str) -> SitePlace | None:
        """The place of a name in an address; None if there is none."""
        known = self.first.name if len(self.paths) == 1 else ""
        if name and name == known:
            return self.first
        for place in self.places():
            if place.name == name:
                return place
            if name.startswith(f"{place.name}~"):
                found = next((one for one in place.inside(f"{place.name}~") if one.name == name), None)
                if found is None and place.kind in ("folder", "comparison"):
                    found = _below(place, name)
                if found is not None:
                    return found
        return None

    def rows(self, inside: str, wanted: str, page: int, only: str) -> tuple[list[Row], Counter[str]]:
        places = [place for place in self.places(inside) if wanted in place.title.casefold()]
        kinds = Counter[str](place.kind for place in places)
        return [_row(place) for place in places[(page - 1) * LISTED : page * LISTED]], kinds


def _below(place: SitePlace, name: str) -> SitePlace | None:
    """The place of a name further below one."""
    for child in place.inside(f"{place.name}~"):
        if child.name == name:
            return child
        if name.startswith(f"{child.name}~") and (found := _below(child, name)) is not None:
            return found
    return None


EMPTY: Row = {
    "state": "", "what": "", "score": None, "score_name": None, "live": None, "requests": 0, "scored": 0, "mean": None,
    "waits": 0, "canary": None, "alarm": None, "problem": "",
}  # fmt: skip


def _row(place: SitePlace) -> Row:
    """A place as a row of a list. One that cannot be read says why."""
    about = {**EMPTY, "name": place.name, "title": place.title, "kind": place.kind}
    try:
        if place.kind == "space":
            with Store.read(place.path) as store:
                (row,) = space_rows(store.database, [store.name])
                state = "stopped" if row["state"] == "running" and not store.is_written else row["state"]
                return {**row, **{name: about[name] for name in ("name", "title", "kind")}, "state": state}
        if place.kind == "comparison":
            return {**about, **_comparison(place)}
        number = len([*place.inside("")])
        return {
            **about,
            "what": in_number(
                number, f"{number:,} {'space[|s]' if place.kind == 'store' else 'run[|s] and comparisons'}"
            ),
        }
    except PracticumError as error:
        return {**about, "state": "unreadable", "problem": str(error)}


def _comparison(place: SitePlace) -> dict[str, Any]:
    report = read_report(place.path)
    if report is None:
        return {"what": f"comparison of {len([*place.inside('')])} runs", "state": "begun"}
    done = report["runs"]["done"] == report["runs"]["planned"]
    names = ", ".join(row["name"] for row in report["variants"])
    return {"what": f"comparison of {names}", "state": "done" if done else "incomplete"}


def read_report(folder: Path) -> dict[str, Any] | None:
    """The report of a comparison; None before there is one. Raises StoreError if it cannot be read."""
    file = folder / REPORT_FILE
    if not file.is_file():
        return None
    try:
        report: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StoreError(
            "comparison.damaged", f"cannot read {file}: {error}; the same compare command writes it again"
        ) from error
    return report
