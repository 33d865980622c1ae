"""The pages of runs, by their paths: of one run, of the runs in a folder, of comparisons.

A page has the same path and the same links on the server and as a file. Links are relative, so that files can be opened
where they lie. Parameters of a query (a text to search for, two versions to compare) work on the server only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from practicum.analysis.compare.plan import PLAN_FILE, run_folder
from practicum.analysis.compare.report import html
from practicum.analysis.pages import render
from practicum.analysis.view.run import Frame, RunPages, run_row
from practicum.core.errors import StoreError, UsageError
from practicum.session.story import Story
from practicum.store.folder import DATABASE_FILE, STORE_FILE, is_run

Kind = Literal["run", "comparison", "folder"]

INDEX = "index.html"
REPORT_FILE = "report.json"

Query = Mapping[str, str]


@dataclass(frozen=True)
class SitePlace:
    """A run, a comparison, or a folder of them: its name, and its path on the disk (None for a list of several)."""

    name: str
    folder: Path | None
    kind: Kind
    inside: Mapping[str, SitePlace]


def kind_of(folder: Path) -> Kind | None:
    """What a folder holds; None if it is neither a run nor a comparison and has neither in it."""
    if is_run(folder):
        return "run"
    if (folder / PLAN_FILE).is_file():
        return "comparison"
    if folder.is_dir() and any(
        (child / name).is_file() for child in folder.iterdir() for name in (DATABASE_FILE, STORE_FILE, PLAN_FILE)
    ):
        return "folder"
    return None


def place_of(folder: Path, name: str) -> SitePlace:
    """A folder with the runs and comparisons that it holds now, the last changed first."""
    kind = kind_of(folder) or "folder"
    around = folder / "runs" if kind == "comparison" else folder
    inside = {}
    if kind != "run" and around.is_dir():
        found = [child for child in around.iterdir() if kind_of(child) in ("run", "comparison")]
        for child in sorted(found, key=lambda child: (-_changed(child), child.name)):
            inside[child.name] = place_of(child, child.name)
    return SitePlace(name, folder, kind, inside)


def _changed(folder: Path) -> float:
    """When a run or a comparison last changed."""
    files = (folder / name for name in (f"{DATABASE_FILE}-wal", DATABASE_FILE, STORE_FILE, REPORT_FILE, PLAN_FILE))
    return max((file.stat().st_mtime for file in files if file.exists()), default=0.0)


class Site:
    """The pages of these folders; `served` says whether queries are answered. Raises UsageError for a folder that holds
    no run and no comparison."""

    def __init__(self, folders: Sequence[Path], served: bool = True) -> None:
        for folder in folders:
            if kind_of(folder) is None:
                what = f"holds no run (no {DATABASE_FILE})" if folder.is_dir() else "is no folder"
                raise UsageError(
                    "run.not_found", f"{folder} {what}: give the folder of a run, of a comparison, or one that has runs"
                )
        self.folders = folders
        self.served = served

    @property
    def top(self) -> SitePlace:
        """What is shown first: the only folder, or a list of several."""
        named: dict[str, SitePlace] = {}
        for folder in self.folders:
            name = folder.resolve().name or "runs"
            unique = next(n for i in range(1, len(named) + 2) if (n := name if i == 1 else f"{name}-{i}") not in named)
            named[unique] = place_of(folder, unique)
        return next(iter(named.values())) if len(named) == 1 else SitePlace("runs", None, "folder", named)

    def page(self, path: str, query: Query | None = None) -> str | None:
        place, parents, parts = self.top, list[SitePlace](), (path or INDEX).split("/")
        while place.kind != "run" and len(parts) > 1:
            if parts[0] not in place.inside:
                return None
            parents.append(place)
            place = place.inside[parts.pop(0)]
        local = "/".join(parts) or INDEX
        if place.kind != "run":
            return self._list(place, parents) if local == INDEX else None
        assert place.folder is not None
        with Story.open(place.folder) as story:
            return RunPages(story).page(local, self._frame(place, parents, local, query or {}))

    def write(self, folder: Path) -> int:
        """Write all pages as files into a folder, and return how many. Raises UsageError if it is a file."""
        if folder.exists() and not folder.is_dir():
            raise UsageError("file.wrong_kind", f"{folder} is a file: give a folder for the pages")
        written = 0
        for path, page in self._pages(self.top, [], ""):
            file = folder / path
            try:
                # Thousands of files are not waited for one by one: what a crash cuts short is written again.
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(page, encoding="utf-8", errors="replace")
            except OSError as error:
                raise StoreError("file.unwritable", f"cannot write {file}: {error.strerror}") from error
            written += 1
        return written

    def _pages(self, place: SitePlace, parents: list[SitePlace], prefix: str) -> Iterator[tuple[str, str]]:
        if place.kind == "run":
            assert place.folder is not None
            with Story.open(place.folder) as story:
                pages = RunPages(story)
                for path in pages.paths():
                    page = pages.page(path, self._frame(place, parents, path, {}))
                    if page is not None:  # a forgotten entry leaves its number and has no page
                        yield prefix + path, page
            return
        yield prefix + INDEX, self._list(place, parents)
        for name, inside in place.inside.items():
            yield from self._pages(inside, [*parents, place], f"{prefix}{name}/")

    def _frame(self, place: SitePlace, parents: Sequence[SitePlace], path: str, query: Query) -> Frame:
        root = "../" * path.count("/")
        return Frame(place.name, _crumbs(parents, root), root, query, self.served)

    def _list(self, place: SitePlace, parents: Sequence[SitePlace]) -> str:
        """The report of a comparison with links to its runs; otherwise a list of runs."""
        crumbs = (*_crumbs(parents, ""), (place.name, ""))
        report = _report(place) if place.kind == "comparison" else None
        if report is None:
            rows = [_row(inside) for inside in place.inside.values()]
            return render("view/home.html", name=place.name, crumbs=crumbs, rows=rows)
        links: dict[str, list[tuple[str, str]]] = {}
        for row in report["variants"]:
            folders = {seed: run_folder(row["name"], seed).removeprefix("runs/") for seed in row["by_seed"]}
            links[row["name"]] = [(s, f"{quote(name)}/{INDEX}") for s, name in folders.items() if name in place.inside]
        return html(report, links, crumbs=crumbs)


def _crumbs(parents: Sequence[SitePlace], root: str) -> tuple[tuple[str, str], ...]:
    """The way to a page: the names of what it lies in, and their addresses."""
    return tuple((p.name, f"{root}{'../' * (len(parents) - i)}{INDEX}") for i, p in enumerate(parents))


def _row(place: SitePlace) -> dict[str, Any]:
    """A line of a list of runs."""
    assert place.folder is not None
    about = run_row(place.folder) if place.kind == "run" else _comparison_row(place)
    return {"name": place.name, "url": f"{quote(place.name)}/{INDEX}", **about}


def _comparison_row(place: SitePlace) -> dict[str, Any]:
    report = _report(place)
    what, state = f"comparison of {len(place.inside)} runs", "begun"
    if report is not None:
        what = f"comparison of {', '.join(row['name'] for row in report['variants'])}"
        state = "done" if report["runs"]["done"] == report["runs"]["planned"] else "incomplete"
    return {"state": state, "what": what, "steps": "", "entries": "", "score": "", "cost": ""}


def _report(place: SitePlace) -> dict[str, Any] | None:
    """The report of a comparison; None before there is one."""
    assert place.folder is not None
    file = place.folder / REPORT_FILE
    if not file.is_file():
        return None
    try:
        report: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StoreError(
            "comparison.damaged", f"cannot read {file}: {error}; the same compare command writes it again"
        ) from error
    return report
