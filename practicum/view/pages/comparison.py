"""Page of a comparison: its report with links to the runs. Before the report exists, the page lists the runs."""

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
    """Show the comparison named in the URL."""
    library = visit.site.library
    place = library.find(visit.path_param("comparison")) if isinstance(library, Folders) else None
    if place is None or place.kind != "comparison":
        raise HTTPException(404)
    return await show_comparison(visit, place)


async def show_comparison(visit: Visit, place: SitePlace) -> Response:
    """Show a comparison."""

    def read() -> tuple[dict[str, Any] | None, dict[str, list[tuple[str, str]]]]:
        report = read_report(place.path)
        if report is None:
            return None, {}
        runs = {run.title: run.name for run in place.inside(_prefix(visit, place))}
        links: dict[str, list[tuple[str, str]]] = {}
        for row in report["variants"]:
            folders = {seed: run_folder(row["name"], seed).removeprefix("runs/") for seed in row["by_seed"]}
            links[row["name"]] = [
                (seed, f"/s/{quote(runs[name], safe='~')}") for seed, name in folders.items() if name in runs
            ]
        return report_values(report), links

    values, links = await visit.run(read)
    if values is not None:
        return await visit.page("comparison.html", name=place.title, links=links, **values)
    rows, kinds = await visit.run(
        visit.site.library.rows, "" if _prefix(visit, place) == "" else place.name, "", visit.page_number, ""
    )
    return await visit.page(
        "home.html", rows=rows, kinds=kinds, search="", page=visit.page_number,
        pages=pages_of(kinds.total(), LISTED), inside=place.name,
    )  # fmt: skip


def _prefix(visit: Visit, place: SitePlace) -> str:
    """Return the prefix of the names of the comparison's runs: empty if the comparison is the only place of the
    site."""
    library = visit.site.library
    is_only = isinstance(library, Folders) and len(library.paths) == 1 and library.first.kind == "comparison"
    return "" if is_only else f"{place.name}~"
