"""The server of `practicum view`: its clients, and the rights of a browser with an answer."""

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


def test_an_answer_forbids_a_browser_to_load_frame_or_store(server: PageServer) -> None:
    response, _ = get(server, "/s/run/episodes?q=x+y")
    assert response.status == 200
    policy = str(response.headers["Content-Security-Policy"])
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    expected = {
        "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Cross-Origin-Resource-Policy": "same-origin",
        "Access-Control-Allow-Origin": None, "Server": None,
    }  # fmt: skip
    assert {name: response.headers[name] for name in expected} == expected


def test_other_names_forms_and_unknown_paths_are_refused(server: PageServer) -> None:
    for host in ("evil.example", "127.0.0.1", "127.0.0.1:1", "localhost.evil.example", ""):
        assert get(server, "/", Host=host)[0].status in (400, 421), host
    for path in ("/", "/s/run/entries", "/s/run/review", "/s/run/versions"):
        assert get(server, path, "POST")[0].status == 405, path
    for path in ("/sign-in", "/../../etc/passwd"):
        assert get(server, path)[0].status == 404, path


def test_it_listens_on_this_machine_only_and_a_taken_port_is_refused(server: PageServer, run: Path) -> None:
    assert server.address == f"http://127.0.0.1:{server.port}/"
    with refused("server.cannot_listen"):
        PageServer(Folders([run]), server.port)
