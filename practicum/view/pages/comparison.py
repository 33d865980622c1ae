"""A comparison: its report with links to the runs; the runs alone, as long as there is no report."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.responses import Response

from practicum.view.library import LISTED, Folders, SitePlace, read_report
from practicum.view.names import run_folder
from practicum.view.pages.shared import pages_of
from practicum.view.report import report_values
from practicum.view.visit import Visit


async def comparison(visit: Visit) -> Response:
    """The comparison at an address."""
    library = visit.site.library
    place = library.find(visit.given("comparison")) if isinstance(library, Folders) else None
    if place is None or place.kind != "comparison":
        raise HTTPException(404)
    return await show_comparison(visit, place)


async def show_comparison(visit: Visit, place: SitePlace) -> Response:
    """The page of a comparison."""

    def read() -> tuple[dict[str, Any] | None, dict[str, list[tuple[str, str]]]]:
        report = read_report(place.path)
        if report is None:
            return None, {}
        there = {run.title: run.name for run in place.inside(_prefix(visit, place))}
        links: dict[str, list[tuple[str, str]]] = {}
        for row in report["variants"]:
            folders = {seed: run_folder(row["name"], seed).removeprefix("runs/") for seed in row["by_seed"]}
            links[row["name"]] = [
                (seed, f"/s/{quote(there[name], safe='~')}") for seed, name in folders.items() if name in there
            ]
        return report_values(report), links

    values, links = await visit.run(read)
    if values is not None:
        return await visit.page("comparison.html", name=place.title, links=links, **values)
    rows, kinds = await visit.run(
        visit.site.library.rows, "" if _prefix(visit, place) == "" else place.name, "", visit.page_number, ""
    )
    return await visit.page(
        "home.html", rows=rows, kinds=kinds, wanted="", page=visit.page_number,
        pages=pages_of(kinds.total(), LISTED), inside=place.name,
    )  # fmt: skip


def _prefix(visit: Visit, place: SitePlace) -> str:
    """What the names of its runs begin with: nothing, on a site of this comparison alone."""
    library = visit.site.library
    alone = isinstance(library, Folders) and len(library.paths) == 1 and library.first.kind == "comparison"
    return "" if alone else f"{place.name}~"
