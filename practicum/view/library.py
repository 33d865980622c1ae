"""Places that a site shows: spaces in the database of a service, or in folders on this machine.

The name of a place in a URL is the name of its folder. The name of a place inside another place contains both names,
as in `outer~inner`.
A folder may contain runs and comparisons, a comparison contains runs, and a store may contain several spaces.
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
"""File names of the plan and the report in the folder of a comparison."""

LISTED = 25
"""Number of places per page."""

Kind = Literal["space", "comparison", "folder", "store"]

Row = Mapping[str, Any]
"""Row of a place in a list: name, title, kind and state. The row of a space also has scores, requests, pending reviews
and the last alarm."""

SCORES = ("test", "online", "val_best")
"""Names of scores by preference: a list shows the first of these scores that a space has."""


class Library(Protocol):
    """Places of a site."""

    def rows(self, inside: str, search: str, page: int, only: str) -> tuple[list[Row], Counter[str]]:
        """Return one page of the list of places, and the number of places on all pages by kind.

        `inside`: list the places inside this place ("": all places of the site). `search`: list only places whose names
        contain this text. `only`: list only this space ("": all places)."""
        ...


@dataclass(frozen=True)
class SpacesOf:
    """Library of the spaces of a database."""

    database: Database

    def rows(self, inside: str, search: str, page: int, only: str) -> tuple[list[Row], Counter[str]]:
        names = [only] if only else [name for name in self.database.names() if search in name.casefold()]
        return space_rows(self.database, names[(page - 1) * LISTED : page * LISTED]), Counter(space=len(names))


def space_rows(database: Database, names: Sequence[str]) -> list[Row]:
    """Return the rows in a list of the spaces with these names."""
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
    """Return the state of learning to show for a space. `space`: the id of the space. `state`: the stored state. A
    stored state "done" is shown as "new" if the space has no attempt, no interaction and no version except version
    0."""
    v, a, i = schema.versions, schema.attempts, schema.interactions
    of = partial(database.of_spaces, spaces=[space])
    used = (of(i), of(a), of(v).where(v.c.version > 0))
    return "new" if state == "done" and not any(database.rows(one.limit(1)) for one in used) else state


def _learned(row: Any) -> dict[str, Any]:
    """Return the state, the method, the model and the score of the learning in a space, from the row of the space."""
    config = json.loads(row.config) if row is not None and row.config else {}
    result = json.loads(row.result) if row is not None and row.result else {}
    scores = result.get("scores", {})
    score = next((name for name in SCORES if name in scores), None)
    model = f" with {config['model']}" if config.get("model") else ""
    return {
        "state": str(row.learning or "") if row is not None else "", "summary": f"{config.get('method', '')}{model}",
        "score": scores.get(score), "score_name": score,
    }  # fmt: skip


@dataclass(frozen=True)
class SitePlace:
    """Place of a site: a run or space, a store, a comparison, or a folder of runs and comparisons."""

    name: str
    title: str
    path: Path
    kind: Kind

    @property
    def changed(self) -> float:
        """Unix time of the last change; 0 if the place has no files."""
        files = (f"{DATABASE_FILE}-wal", DATABASE_FILE, STORE_FILE, REPORT_FILE, PLAN_FILE)
        paths = (self.path / name for name in files)
        return max((file.stat().st_mtime for file in paths if file.exists()), default=0.0)

    def inside(self, prefix: str) -> Iterator[SitePlace]:
        """Yield the places inside this place: the spaces of a store by name, other places with the last changed first.
        `prefix`: the beginning of the names of the yielded places."""
        if self.kind == "store":
            names = _names_in(self.path)
            yield from (SitePlace(f"{prefix}{name}", name, self.path / SPACES / name, "space") for name in names)
            return
        folder = self.path / "runs" if self.kind == "comparison" else self.path
        children = list[SitePlace]()
        for child in folder.iterdir() if self.kind != "space" and folder.is_dir() else ():
            kind = kind_of(child)
            if kind in ("space", "store", "comparison"):
                children.append(SitePlace(f"{prefix}{child.name}", child.name, child, kind))
        yield from sorted(children, key=lambda child: (-child.changed, child.name))


def kind_of(path: Path) -> Kind | None:
    """Return the kind of the place at a path: a run or space, a store, a comparison, or a folder that directly contains
    some of these. None for any other path."""
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
    """Return the names of the spaces in a store."""
    database = Database(folder, SqliteBackend(folder, read_only=True))
    try:
        return database.names()
    finally:
        database.close()


class Folders:
    """Library of the places in folders. Raises UsageError for a folder without a run or a comparison."""

    def __init__(self, paths: Sequence[Path]) -> None:
        for path in paths:
            if kind_of(path) is None:
                problem = f"has no run (no {DATABASE_FILE})" if path.is_dir() else "is not a folder"
                raise UsageError(
                    "run.not_found", f"{path} {problem}: pass the folder of a run or a comparison, or a folder of runs"
                )
        self.paths = paths

    @property
    def first(self) -> SitePlace:
        """Place that the first page shows: the only path, or a folder of all paths."""
        if len(self.paths) == 1:
            path = self.paths[0]
            name = path.resolve().name or "runs"
            return SitePlace(name, name, path, kind_of(path) or "folder")
        return SitePlace("", "runs", Path(), "folder")

    def places(self, inside: str = "") -> list[SitePlace]:
        """Return the places inside the place named `inside`; without `inside`, the places of the first page."""
        if inside:
            place = self.find(inside)
            return [] if place is None else [*place.inside(f"{inside}~")]
        first = self.first
        if first.kind == "space":
            return [first]
        if len(self.paths) == 1:
            return [*first.inside("")]
        places = dict[str, SitePlace]()
        for path in self.paths:
            title = path.resolve().name or "runs"
            name = next(
                n for i in range(1, len(places) + 2) if (n := title if i == 1 else f"{title}-{i}") not in places
            )
            places[name] = SitePlace(name, title, path, kind_of(path) or "folder")
        return [*places.values()]

    def find(self, name: str) -> SitePlace | None:
        """Return the place with this name in URLs; None if no place has this name."""
        only_name = self.first.name if len(self.paths) == 1 else ""
        if name and name == only_name:
            return self.first
        for place in self.places():
            if place.name == name:
                return place
            if name.startswith(f"{place.name}~"):
                match = next((one for one in place.inside(f"{place.name}~") if one.name == name), None)
                if match is None and place.kind in ("folder", "comparison"):
                    match = _below(place, name)
                if match is not None:
                    return match
        return None

    def rows(self, inside: str, search: str, page: int, only: str) -> tuple[list[Row], Counter[str]]:
        places = [place for place in self.places(inside) if search in place.title.casefold()]
        kinds = Counter[str](place.kind for place in places)
        return [_row(place) for place in places[(page - 1) * LISTED : page * LISTED]], kinds


def _below(place: SitePlace, name: str) -> SitePlace | None:
    """Return the place with this name at any depth inside `place`; None if no such place exists."""
    for child in place.inside(f"{place.name}~"):
        if child.name == name:
            return child
        if name.startswith(f"{child.name}~") and (match := _below(child, name)) is not None:
            return match
    return None


EMPTY: Row = {
    "state": "", "summary": "", "score": None, "score_name": None, "live": None, "requests": 0, "scored": 0,
    "mean": None, "waits": 0, "canary": None, "alarm": None, "problem": "",
}  # fmt: skip


def _row(place: SitePlace) -> Row:
    """Return the row of a place in a list. If the place cannot be read, `problem` is the reason."""
    row_of_place = {**EMPTY, "name": place.name, "title": place.title, "kind": place.kind}
    try:
        if place.kind == "space":
            with Store.read(place.path) as store:
                (row,) = space_rows(store.database, [store.name])
                state = "stopped" if row["state"] == "running" and not store.is_written else row["state"]
                return {**row, **{name: row_of_place[name] for name in ("name", "title", "kind")}, "state": state}
        if place.kind == "comparison":
            return {**row_of_place, **_comparison(place)}
        number = len([*place.inside("")])
        return {
            **row_of_place,
            "summary": in_number(
                number, f"{number:,} {'space[|s]' if place.kind == 'store' else 'run[|s] and comparisons'}"
            ),
        }
    except PracticumError as error:
        return {**row_of_place, "state": "unreadable", "problem": str(error)}


def _comparison(place: SitePlace) -> dict[str, Any]:
    report = read_report(place.path)
    if report is None:
        return {"summary": f"comparison of {len([*place.inside('')])} runs", "state": "begun"}
    done = report["runs"]["done"] == report["runs"]["planned"]
    names = ", ".join(row["name"] for row in report["variants"])
    return {"summary": f"comparison of {names}", "state": "done" if done else "incomplete"}


def read_report(folder: Path) -> dict[str, Any] | None:
    """Read the report of a comparison; None if no report is written yet. Raises StoreError if the report cannot
    be read."""
    file = folder / REPORT_FILE
    if not file.is_file():
        return None
    try:
        report: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StoreError(
            "comparison.damaged",
            f"cannot read {file}: {error}; run the same compare command again to rewrite this file",
        ) from error
    return report
