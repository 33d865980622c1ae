"""The server of `practicum view`: to whom it answers, and what a browser may do with the answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path

import pytest
from helpers import make_tasks
from refusals import refused
from scripts import learned, scripted
from sites import opened

from practicum.view.library import Folders
from practicum.view.server import PageServer


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return learned(tmp_path_factory.mktemp("run"), scripted(), make_tasks(1), method="none").folder


@pytest.fixture(scope="module")
def server(run: Path) -> Iterator[PageServer]:
    with opened([run]) as server:
        yield server


def get(server: PageServer, path: str, method: str = "GET", **headers: str) -> tuple[HTTPResponse, str]:
    with closing(HTTPConnection("127.0.0.1", server.port, timeout=10)) as connection:
        connection.putrequest(method, path, skip_host=True)
        for name, value in {"Host": f"127.0.0.1:{server.port}", **headers}.items():
            connection.putheader(name, value)
        connection.endheaders()
        response = connection.getresponse()
        return response, response.read().decode()


def test_an_answer_says_what_a_browser_may_do_with_it(server: PageServer) -> None:
    response, _ = get(server, "/s/run/episodes?q=x+y")
    assert response.status == 200
    policy = str(response.headers["Content-Security-Policy"])
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert response.headers["Cache-Control"] == "no-store"
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert response.headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert response.headers["Access-Control-Allow-Origin"] is None
    assert response.headers["Server"] is None


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:1", "localhost.evil.example", ""])
def test_a_request_to_another_name_is_refused(host: str, server: PageServer) -> None:
    assert get(server, "/", Host=host)[0].status in (400, 421)


def test_it_takes_no_form_and_has_no_page_for_signing_in(server: PageServer) -> None:
    for path in ("/", "/s/run/entries", "/s/run/review", "/s/run/versions"):
        assert get(server, path, "POST")[0].status == 405
    assert get(server, "/sign-in")[0].status == 404


def test_a_page_that_is_not_there_says_so(server: PageServer) -> None:
    response, text = get(server, "/../../etc/passwd")
    assert response.status == 404
    assert "Page not found" in text


def test_it_listens_on_this_machine_only_and_says_that_a_port_is_taken(server: PageServer, run: Path) -> None:
    assert server.address == f"http://127.0.0.1:{server.port}/"
    with refused("server.cannot_listen"):
        PageServer(Folders([run]), server.port)
