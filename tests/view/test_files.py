"""The pages of a run as files, which open from their folder, and on the server of `practicum view`."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from urllib.parse import unquote

import pytest
from helpers import make_tasks
from profiles import cases
from refusals import refused
from scripts import learned, scripted
from sites import Reader, opened, wrong_at_first

from practicum.view.files import write_pages
from practicum.view.library import Folders
from practicum.view.server import PageServer


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, model = tmp_path_factory.mktemp("runs"), scripted(wrong_at_first)
    return learned(folder, model, 1, {"batch": 1}, test=make_tasks(1, 8), review="none").folder


@pytest.fixture(scope="module")
def server(run: Path) -> Iterator[PageServer]:
    with opened([run]) as server:
        yield server


@pytest.mark.parametrize("most", cases([12, 1_000], 12))
def test_pages_are_files_that_lead_to_each_other_and_need_no_other_file(
    run: Path, most: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A link to a page above the limit is plain text."""
    monkeypatch.setattr("practicum.view.files.MOST_PAGES", most)
    number, incomplete = write_pages(Folders([run]), tmp_path / "pages")
    assert incomplete == 0
    files = [file for file in (tmp_path / "pages").rglob("*") if file.is_file()]
    assert number == len(files)
    written = {str(file.relative_to(tmp_path / "pages")): file.read_text(encoding="utf-8") for file in files}
    for name in ("index", "s/run/entries", "s/run/costs", "s/run/versions/1", "s/run/entries/e0", "s/run/steps/1",
                 "s/run/calls/1", "s/run/episodes/test.t8", "s/run/lessons", "s/run/diff/old-0=2Cnew-1"):  # fmt: skip
        assert f"{name}.html" in written or most < 1_000, name
    assert most == 1_000 or len(written) == most
    for name, page in written.items():
        for link in Reader(page).links:
            path = unquote(link.partition("#")[0])
            goal = posixpath.normpath(posixpath.join(posixpath.dirname(name), path)) if path else name
            assert goal in written, (name, link)
        # Nothing runs but the page's own script.
        policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
        assert policy
        assert "default-src" in policy[1]
        assert "unsafe" not in policy[1]
        assert not re.search(r'(?:src|href)="(?:https?:|/)', page)
        assert "<form method" not in page
    with refused("file.wrong_kind"):
        write_pages(Folders([run]), files[0])


def get(server: PageServer, path: str, method: str = "GET", **headers: str) -> HTTPResponse:
    with closing(HTTPConnection("127.0.0.1", server.port, timeout=10)) as connection:
        connection.putrequest(method, path, skip_host=True)
        for name, value in {"Host": f"127.0.0.1:{server.port}", **headers}.items():
            connection.putheader(name, value)
        connection.endheaders()
        response = connection.getresponse()
        response.read()
        return response


def test_an_answer_forbids_a_browser_to_load_frame_or_store(server: PageServer) -> None:
    response = get(server, "/s/run/episodes?q=x+y")
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


def test_the_server_listens_on_this_machine_only_and_refuses_other_hosts_forms_and_paths(
    server: PageServer, run: Path
) -> None:
    for host in ("evil.example", "127.0.0.1", "127.0.0.1:1", "localhost.evil.example", ""):
        assert get(server, "/", Host=host).status in (400, 421), host
    for path in ("/", "/s/run/entries", "/s/run/review", "/s/run/versions"):
        assert get(server, path, "POST").status == 405, path
    for path in ("/sign-in", "/../../etc/passwd"):
        assert get(server, path).status == 404, path
    assert server.address == f"http://127.0.0.1:{server.port}/"
    with refused("server.cannot_listen"):
        PageServer(Folders([run]), server.port)
