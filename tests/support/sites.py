"""The pages of folders: in this process, and on a server for a browser."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from scripts import right
from starlette.testclient import TestClient

from practicum.models.scripted import Call
from practicum.view.app import Site
from practicum.view.library import Folders
from practicum.view.server import PageServer


def wrong_at_first(call: Call) -> str:
    """Right when a reflection is shown."""
    return right(call) if "reflection" in call.prompt.user else "wrong"


class Reader(HTMLParser):
    """The contents of a page: its tags with their attributes, and its text outside of style and script."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._silent = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._silent = tag in ("style", "script")

    def handle_endtag(self, tag: str) -> None:
        self._silent = False

    def handle_data(self, data: str) -> None:
        self.text += "" if self._silent else data

    @property
    def links(self) -> list[str]:
        """The addresses that the page leads to, without the one to its content."""
        links = (attrs.get("href") for tag, attrs in self.tags if tag == "a")
        return [unescape(str(link)) for link in links if link and link != "#main"]

    @property
    def words(self) -> str:
        return " ".join(self.text.split())


@contextmanager
def site(*paths: Path, **how: Any) -> Iterator[TestClient]:
    """The pages of folders."""
    with ThreadPoolExecutor(1) as threads:
        app = Site(Folders(paths), threads, **how)
        yield TestClient(app, follow_redirects=False, headers={"accept": "text/html"}, raise_server_exceptions=True)
        app.close()


def read(client: TestClient, path: str) -> Reader:
    """A page with status 200."""
    answer = client.get(path)
    assert answer.status_code == 200, (path, answer.status_code, answer.text[-2_000:])
    return Reader(answer.text)


@contextmanager
def opened(paths: Sequence[Path], port: int = 0) -> Iterator[PageServer]:
    """The server of `practicum view`, in a thread."""
    server, ready = PageServer(Folders(paths), port), threading.Event()
    thread = threading.Thread(target=server.serve, args=(ready.set,))
    thread.start()
    assert ready.wait(60)
    try:
        yield server
    finally:
        server.stop()
        thread.join()
