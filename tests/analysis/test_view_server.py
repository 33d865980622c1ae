"""The server of pages: to whom it answers, what a browser may do with the answer, and the command that starts it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import closing
from http.client import HTTPConnection, HTTPResponse

import pytest
from refusals import refused

from practicum.analysis.view.server import PageServer
from practicum.core.errors import StoreError


def pages(path: str, query: Mapping[str, str]) -> str | None:
    if path == "damaged":
        raise StoreError("store.unwritable", "the file is <damaged>")
    if path == "bug":
        raise KeyError("oops")
    return f"page {path!r} {dict(query)}" if path in ("", "a/b ü.html") else None


@pytest.fixture(scope="module")
def server() -> Iterator[PageServer]:
    with PageServer(pages) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def get(server: PageServer, path: str, method: str = "GET", **headers: str) -> tuple[HTTPResponse, str]:
    with closing(HTTPConnection("127.0.0.1", server.server_port, timeout=10)) as connection:
        connection.putrequest(method, path, skip_host=True)
        for name, value in {"Host": f"127.0.0.1:{server.server_port}", **headers}.items():
            connection.putheader(name, value)
        connection.endheaders()
        response = connection.getresponse()
        return response, response.read().decode()


def test_a_page_is_answered_with_what_a_browser_may_do_with_it(server: PageServer) -> None:
    response, text = get(server, "/a/b%20%C3%BC.html?q=x+y&q2=%26")
    assert (response.status, text) == (200, "page 'a/b ü.html' {'q': 'x y', 'q2': '&'}")
    policy = str(response.headers["Content-Security-Policy"])
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert response.headers["Cache-Control"] == "no-store"
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert response.headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert response.headers["Access-Control-Allow-Origin"] is None


def test_what_is_not_there_or_not_readable_is_a_page_that_says_so(server: PageServer) -> None:
    response, text = get(server, "/../../etc/passwd")
    assert response.status == 404
    assert "There is no such page" in text
    response, text = get(server, "/damaged")
    assert response.status == 500
    assert "the file is &lt;damaged&gt;" in text
    response, text = get(server, "/bug")
    assert response.status == 500
    assert "KeyError" in text


def test_it_listens_on_this_machine_only_and_says_that_a_port_is_taken(server: PageServer) -> None:
    assert server.address == f"http://127.0.0.1:{server.server_port}/"
    assert server.socket.getsockname()[0] == "127.0.0.1"
    with refused("server.cannot_listen"):
        PageServer(pages, server.server_port)
