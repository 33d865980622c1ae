"""First page: the list of spaces, runs, comparisons and folders. If the site has only one run or only one comparison,
the first page shows this run or comparison."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.responses import Response

from practicum.view.library import LISTED, Folders
from practicum.view.pages.comparison import show_comparison
from practicum.view.pages.overview import overview
from practicum.view.pages.shared import pages_of
from practicum.view.stored import open_stored
from practicum.view.visit import Visit


async def home(visit: Visit, failed: str = "", status: int = 200) -> Response:
    """Show all places of the site, or only the space that the visitor's key is for."""
    library = visit.site.library
    if isinstance(library, Folders):
        first = library.first
        if first.kind == "space":
            visit.request.path_params["space"] = first.name
            visit.opened = await visit.site.run(open_stored, first.path, first.name)
            return await overview(visit)
        if first.kind == "comparison":
            return await show_comparison(visit, first)
    return await _list(visit, "", failed, status)


async def folder(visit: Visit) -> Response:
    """Show the places in a folder, or the spaces of a store."""
    library, name = visit.site.library, visit.path_param("folder")
    place = library.find(name) if isinstance(library, Folders) else None
    if place is None or place.kind not in ("folder", "store"):
        raise HTTPException(404)
    return await _list(visit, name, "", 200)


async def _list(visit: Visit, inside: str, failed: str, status: int) -> Response:
    search, page = visit.query_param("q").strip(), visit.page_number
    only = visit.visitor.space if visit.visitor is not None else ""
    rows, kinds = await visit.run(visit.site.library.rows, inside, search.casefold(), page, only)
    return await visit.page(
        "home.html", status, rows=rows, kinds=kinds, search=search, page=page, pages=pages_of(kinds.total(), LISTED),
        failed=failed, inside=inside,
    )  # fmt: skip
