"""The server of pages: to whom it answers, what a browser may do with the answer, and the command that starts it."""

from __future__ import annotations

import json
import signal
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from time import monotonic, sleep
from urllib.parse import urlsplit

import pytest
from helpers import Launcher, make_tasks, run_command
from scripts import learned, scripted

from practicum.analysis.view.server import Server
from practicum.core.errors import StoreError, UsageError


def pages(path: str, query: Mapping[str, str]) -> str | None:
    if path == "damaged":
        raise StoreError("store.unwritable", "the file is <damaged>")
    if path == "bug":
        raise KeyError("oops")
    return f"page {path!r} {dict(query)}" if path in ("", "a/b ü.html") else None


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(pages) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def get(server: Server, path: str, method: str = "GET", **headers: str) -> tuple[HTTPResponse, str]:
    with closing(HTTPConnection("127.0.0.1", server.server_port, timeout=10)) as connection:
        connection.putrequest(method, path, skip_host=True)
        for name, value in {"Host": f"127.0.0.1:{server.server_port}", **headers}.items():
            connection.putheader(name, value)
        connection.endheaders()
        response = connection.getresponse()
        return response, response.read().decode()


def test_a_page_is_answered_with_what_a_browser_may_do_with_it(server: Server) -> None:
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


@pytest.mark.parametrize("host", ["127.0.0.1:{port}", "localhost:{port}", "[::1]:{port}"])
def test_it_answers_to_its_own_names(server: Server, host: str) -> None:
    assert get(server, "/", Host=host.format(port=server.server_port))[0].status == 200


@pytest.mark.parametrize(
    "host", ["evil.example:{port}", "127.0.0.1", "127.0.0.1:{port}.evil.example", "", "localhost:1"]
)
def test_it_answers_to_no_foreign_name(server: Server, host: str) -> None:
    response, text = get(server, "/", Host=host.format(port=server.server_port))
    assert response.status == 421
    assert "page ''" not in text


def test_it_only_reads(server: Server) -> None:
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        assert get(server, "/", method)[0].status == 501
    assert get(server, "/", "HEAD") [1] == ""  # fmt: skip


def test_what_is_not_there_or_not_readable_is_a_page_that_says_so(server: Server) -> None:
    response, text = get(server, "/../../etc/passwd")
    assert response.status == 404
    assert "There is no such page" in text
    response, text = get(server, "/damaged")
    assert response.status == 500
    assert "the file is &lt;damaged&gt;" in text
    response, text = get(server, "/bug")
    assert response.status == 500
    assert "KeyError" in text


def test_it_listens_on_this_machine_only_and_says_that_a_port_is_taken(server: Server) -> None:
    assert server.address == f"http://127.0.0.1:{server.server_port}/"
    assert server.socket.getsockname()[0] == "127.0.0.1"
    with pytest.raises(UsageError, match="leave out `port`"):
        Server(pages, server.server_port)


# ---- the command


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return learned(tmp_path_factory.mktemp("run"), scripted(), make_tasks(2), test=make_tasks(1, 5)).folder


@pytest.mark.slow
def test_the_command_prints_its_address_and_ends_with_ctrl_c(run: Path, launcher: Launcher, tmp_path: Path) -> None:
    started = launcher.start(["view", run, "--no-open", "--json"], tmp_path)
    until, said = monotonic() + 60, started.files[0]
    while not (said.exists() and said.read_text(encoding="utf-8").endswith("\n")):
        assert monotonic() < until
        sleep(0.01)
    address = json.loads(said.read_text(encoding="utf-8"))["address"]
    parts = urlsplit(address)
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=10) as connection:
        connection.sendall(f"GET /index.html HTTP/1.0\r\nHost: {parts.netloc}\r\n\r\n".encode())
        assert connection.recv(20).startswith(b"HTTP/1.1 200 OK")
    started.kill(signal.SIGINT)
    done = started.end()
    assert (done.code, done.err.count("Traceback")) == (0, 0)


def test_the_command_writes_files_that_need_no_server(run: Path, tmp_path: Path) -> None:
    done = run_command(("view", run, "--output", "pages"), tmp_path)
    assert done.code == 0, done.err
    assert done.out.endswith("pages written: open pages/index.html\n")
    assert "<form" in (tmp_path / "pages/attempts/all.html").read_text(encoding="utf-8")
    assert "of.html" not in (tmp_path / "pages/playbook/last.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nowhere",), "nowhere is no folder"),
        (("empty",), "empty holds no run"),
        (("RUN", "--output", "x", "--port", "1"), "leave out --port"),
        (("RUN", "--output", "file"), "file is a file"),
        ((), "RUN"),
    ],
)
def test_wrong_use_is_one_line(run: Path, tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("", encoding="utf-8")
    done = run_command(("view", *(run if word == "RUN" else word for word in words)), tmp_path)
    assert (done.code, done.out, len(done.err.splitlines())) == (2, "", 1)
    assert said in done.err
