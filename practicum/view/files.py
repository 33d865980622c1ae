"""Writer of the pages of a site as HTML files with relative links.

The writer requests each page from the site, so a file has the same content as the page of a server. The writer starts
at the first page and follows the links. The name of a file is made from the path and the query of the page's URL.
"""

from __future__ import annotations

import asyncio
import posixpath
import re
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from html import escape, unescape
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urljoin, urlsplit

from starlette.types import Message, Scope

from practicum.core.errors import StoreError, UsageError
from practicum.view.app import Site
from practicum.view.library import Folders
from practicum.view.names import slug

MOST_PAGES = 50_000
"""Maximum number of pages. A link to a page that is not written becomes plain text."""


_LINK = re.compile(r'<a ([^>]*?)href="([^"]*)"')


def write_pages(folders: Folders, out: Path) -> tuple[int, int]:
    """Write all pages as files into a folder. Returns the number of pages, and the number of incomplete pages: pages
    that failed or have parts that cannot be read. Raises UsageError if `out` is a file, and StoreError if a file cannot
    be written."""
    if out.exists() and not out.is_dir():
        raise UsageError("file.wrong_kind", f"{out} is a file: pass a folder for the pages")
    with ThreadPoolExecutor(1, "practicum-pages") as threads:
        site = Site(folders, threads, standalone=True)
        try:
            return asyncio.run(_write(site, out)), site.incomplete
        finally:
            threads.submit(site.close).result()


async def _write(site: Site, out: Path) -> int:
    files, queue = {"/": "index.html"}, deque(["/"])
    written: dict[str, str] = {}
    while queue and len(written) < MOST_PAGES:
        address = queue.popleft()
        status, page = await _ask(site, address)
        # A page with any other error status is written, because the page shows the error.
        if status == 404:
            continue
        written[address] = files[address]
        _save(out / files[address], page)
        for link in _links(page, address):
            if link not in files:
                files[link] = _file_of(link)
                queue.append(link)
    for address, file in written.items():
        path = out / file
        _save(path, _relative(path.read_text(encoding="utf-8"), address, file, written))
    return len(written)


async def _ask(site: Site, address: str) -> tuple[int, str]:
    """Request a page of the site. Returns its HTTP status and its text."""
    parts, messages = urlsplit(address), list[Message]()
    scope: Scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http",
        "path": unquote(parts.path), "raw_path": parts.path.encode(), "query_string": parts.query.encode(),
        "root_path": "", "headers": [(b"host", b"127.0.0.1"), (b"accept", b"text/html")],
        "server": ("127.0.0.1", 80), "client": None,
    }  # fmt: skip

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        messages.append(message)

    await site(scope, receive, send)
    body = b"".join(message.get("body", b"") for message in messages)
    return int(messages[0]["status"]), body.decode(errors="replace")


def _links(page: str, address: str) -> list[str]:
    """Return the URLs of the pages that a page links to."""
    links = (_address(unescape(match[2]), address) for match in _LINK.finditer(page))
    return [link for link in dict.fromkeys(links) if link]


def _address(link: str, address: str) -> str:
    """Resolve a link on the page with the URL `address`. Returns the path and the query of the link, without the
    fragment. Empty for a link to a place on the same page."""
    if link.startswith("#"):
        return ""
    parts = urlsplit(urljoin(address, link))
    query = "&".join(f"{name}={quote(value, safe='')}" for name, value in parse_qsl(parts.query))
    return f"{parts.path}?{query}" if query else parts.path


def _file_of(address: str) -> str:
    """Return the name of the file of a page, made from the path and the query of the page's URL."""
    parts = urlsplit(address)
    query = ",".join(f"{name}-{value}" for name, value in parse_qsl(parts.query))
    names = [slug(unquote(name)) for name in parts.path.strip("/").split("/")]
    # The suffix .html keeps the name of a file different from the name of a folder.
    return "/".join([*names, slug(query) + ".html"]) if query else "/".join(names) + ".html"


def _relative(page: str, address: str, file: str, written: dict[str, str]) -> str:
    """Replace the links of a page by relative links to files. A link to a page that is not written becomes plain text.

    `address`: the URL of the page. `file`: the file of the page. `written`: URL of a written page → file."""

    def link(match: re.Match[str]) -> str:
        target = unescape(match[2])
        goal = _address(target, address)
        if not goal:
            return match[0]
        if goal not in written:
            return f"<a {match[1]}"
        place = urlsplit(target).fragment
        path = quote(posixpath.relpath(written[goal], posixpath.dirname(file) or "."), safe="/~=-._,")
        return f'<a {match[1]}href="{escape(path)}{"#" + place if place else ""}"'

    return _LINK.sub(link, page)


def _save(path: Path, page: str) -> None:
    try:
        # Do not sync the file: syncing thousands of files is slow. After a crash, the user can write the pages again.
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page, encoding="utf-8", errors="replace")
    except OSError as error:
        raise StoreError("file.unwritable", f"cannot write {path}: {error.strerror}") from error
