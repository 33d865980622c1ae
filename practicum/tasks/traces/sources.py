"""Sources of stored traces: local files and folders, archives, and objects of a store that fsspec reaches by a URL.

Each file, file in an archive, or object is a `Source`. An unreadable local file is reported as a problem, and the other
files are read. A failing object store ends the reading with an error, because the missing objects would be unknown. A
failed read is retried once from the position where it failed, in addition to fsspec's retries. No error shows a
password or a signature.
"""

from __future__ import annotations

import errno
import gzip
import io
import logging
import os
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from lzma import LZMAError
from pathlib import Path, PurePath, PurePosixPath
from typing import TYPE_CHECKING, Any, BinaryIO, cast
from urllib.parse import urlsplit

from practicum.core.errors import TaskFileError
from practicum.core.files import open_file
from practicum.core.requirements import pip_install
from practicum.core.words import error_line, one_line
from practicum.store.folder import DATABASE_FILE, STORE_FILE
from practicum.tasks.traces.trace import Problem, Source

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

SUFFIXES = (".json", ".jsonl", ".ndjson", ".traj", ".parquet")
"""Suffixes of the files that are read in a folder, each also followed by `.gz`. A file whose path is passed directly
may have any name."""

ARCHIVES = (".zip", ".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tar.xz")
"""Suffixes of local archives. Their files are read as the files of a folder, without unpacking to the disk."""

RUN_FILES = (DATABASE_FILE, STORE_FILE)
"""Files that mark a run folder: the database, or the file with the address of the store."""

PARQUET, GZIP, ZSTD = b"PAR1", b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
"""First bytes of Parquet, gzip and Zstandard files."""

DAMAGED = (OSError, EOFError, zlib.error, LZMAError, tarfile.TarError, zipfile.BadZipFile, NotImplementedError)
"""Errors of files and archives that cannot be read or unpacked."""

BUFFER = 2**20

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_URLS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://[^\s'\"<>()]*")
_CREDENTIALS = re.compile(r"[^\s'\"<>()/@:]+:[^\s'\"<>()/@]*@")
_GLOB = re.compile(r"[*?\[]")
_WEB = ("http", "https")
_DENIED, _MISSING = (401, 403), 404
_LOGGERS = ("fsspec", "gcsfs", "s3fs", "adlfs")

_VERSION = ("size", "ETag", "etag", "generation")
"""Details of a stored object that differ between versions of the object."""


def shown(address: Path | str) -> str:
    """Return the address for messages. A URL is shown without user name, password, query and fragment."""
    if not isinstance(address, str) or not _URL.match(address):
        return str(address)
    parts = (urlsplit(part) for part in address.split("::"))
    return "::".join(f"{p.scheme}://{p.netloc.rpartition('@')[2]}{p.path}" if p.scheme else p.path for p in parts)


def find(address: Path | str, problem: Callable[[Problem], None]) -> Iterator[Source]:
    """Yield the sources at the path of a file or a folder, or at a URL, sorted by name. Call
    `problem` for each unreadable file, each link that is not followed, and each run in an object store.

    Raises TaskFileError if nothing exists at the address, or the store cannot be reached.
    """
    if isinstance(address, str) and _URL.match(address):
        yield from _remote(address, problem)
    else:
        yield from _local(Path(address), problem)


def unpacked(file: BinaryIO) -> io.BufferedReader:
    """Return a reader of the file's content, unpacked if it is gzipped."""
    buffered = io.BufferedReader(cast(Any, file), BUFFER)
    if not buffered.peek(len(GZIP)).startswith(GZIP):
        return buffered
    return io.BufferedReader(cast(Any, gzip.GzipFile(fileobj=buffered)), BUFFER)


def _is_readable(name: str) -> bool:
    return PurePosixPath(name.lower().removesuffix(".gz").removesuffix(".zst")).suffix in SUFFIXES


def _local(root: Path, problem: Callable[[Problem], None]) -> Iterator[Source]:
    try:
        root.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise TaskFileError(
            "traces.not_found", f"{root}: no such file or folder; pass the path of stored traces"
        ) from None
    except OSError as error:
        raise TaskFileError("traces.unreadable", f"{root}: cannot be read ({error.strerror})") from None
    for file in _files(root, problem):
        is_run = file.name in RUN_FILES
        path = file.parent if is_run else file
        name = path.relative_to(root).as_posix() if root.is_dir() else path.name
        name = root.absolute().name if name == "." else name
        if file.name.lower().endswith(ARCHIVES):
            yield from _archive(file, name, problem)
            continue
        yield Source(path.absolute(), name, str(path), _opened, _opened, is_run)


def _opened(path: PurePath) -> BinaryIO:
    return open_file(Path(path))


def _archive(path: Path, name: str, problem: Callable[[Problem], None]) -> Iterator[Source]:
    """Yield the files of an archive. Links and other special members are left out, because they could name any file."""
    try:
        with open_file(path) as file, ExitStack() as stack:
            if zipfile.is_zipfile(file):
                archive = stack.enter_context(zipfile.ZipFile(file))
                names = sorted(info.filename for info in archive.infolist() if not info.is_dir())
                read: Callable[[str], Any] = archive.open
            else:
                file.seek(0)
                packed = stack.enter_context(tarfile.open(fileobj=file))
                names = [info.name for info in packed if info.isfile()]  # in order, since reading back is slow
                read = packed.extractfile
            members = {PurePosixPath(member): member for member in names}

            def opened(inner: PurePath) -> BinaryIO:
                if inner not in members:
                    raise FileNotFoundError(errno.ENOENT, "not in the archive", str(inner))
                try:
                    return cast(BinaryIO, read(members[PurePosixPath(inner)]))
                except RuntimeError as error:  # the file is encrypted
                    raise OSError(errno.EACCES, str(error)) from error

            for member in filter(_is_readable, map(str, members)):
                yield Source(PurePosixPath(member), f"{name}/{member}", f"{path}/{member}", opened, opened)
    except DAMAGED as error:
        problem(Problem(str(path), None, f"the archive cannot be read ({error_line(error)})"))


def _files(root: Path, problem: Callable[[Problem], None]) -> Iterator[Path]:
    """Yield the files to read. Unreadable files and links out of the folder are reported as problems. With a link out
    of the folder, the author of the folder could select any local file, and the file would be sent to a model."""
    if not root.is_dir():
        yield root
        return

    def report(path: object, reason: str) -> None:
        problem(Problem(str(path), None, reason))

    whole = root.resolve()
    for folder, folders, names in os.walk(root, onerror=lambda e: report(e.filename, f"cannot be read ({e.strerror})")):
        folders.sort()
        for inner in (Path(folder, name) for name in folders):
            if inner.is_symlink():
                report(inner, "links to folders are not followed")
        for file in (Path(folder, name) for name in sorted(names)):
            if not _is_readable(file.name) and file.name not in RUN_FILES and not file.name.lower().endswith(ARCHIVES):
                continue
            if file.is_symlink() and not Path(os.path.realpath(file)).is_relative_to(whole):
                report(file, "links out of the folder are not followed")
            elif not file.is_file():
                report(file, "not a regular file, but a device, a pipe or a broken link")
            else:
                yield file


def _remote(url: str, problem: Callable[[Problem], None]) -> Iterator[Source]:
    address = shown(url)
    try:
        import fsspec
    except ImportError:
        raise TaskFileError(
            "extra.missing", f"{address}: reading from an object store needs a package: {pip_install('cloud')}"
        ) from None
    for name in _LOGGERS:
        # Without a handler, these loggers would print the traceback of an error that is raised anyway.
        if not (logger := logging.getLogger(name)).handlers:
            logger.addHandler(logging.NullHandler())
    scheme = urlsplit(url).scheme.lower()
    try:
        system, path = fsspec.core.url_to_fs(url)
        if scheme in ("file", "local"):
            # Local folders are read by `_local`, which checks links.
            for place in sorted(system.glob(path)) if _GLOB.search(path) else [path]:
                yield from _local(Path(place), problem)
            return
        if scheme in _WEB:
            part = PurePosixPath(urlsplit(url).path)
            yield _object(system, url, part, part.name or urlsplit(url).hostname or scheme, address)
            return
        roots = sorted(system.glob(path)) if _GLOB.search(path) else [path]
        if not roots:
            raise FileNotFoundError(path)
        base = PurePosixPath(path[: glob.start()].rpartition("/")[0] if (glob := _GLOB.search(path)) else path)
        for root in roots:
            if system.info(root)["type"] != "directory":
                name = _relative(root, base)
                yield _object(system, root, PurePosixPath(root), name, _named(scheme, root))
                continue
            for folder, folders, names in system.walk(root, on_error="raise"):
                # Sort `folders` in place, so that the walk visits them in this order, as in `os.walk`. If `folders` is
                # a dict, it is sorted already.
                if isinstance(folders, list):
                    folders.sort()
                for file in sorted(names):
                    place = f"{folder.rstrip('/')}/{file}"
                    if file in RUN_FILES:
                        reason = "runs can only be read from a local folder: copy the run to this machine"
                        problem(Problem(_named(scheme, place), None, reason))
                    elif _is_readable(file):
                        yield _object(
                            system, place, PurePosixPath(place), _relative(place, base), _named(scheme, place)
                        )
    except TaskFileError:
        raise
    except ImportError as error:
        raise TaskFileError(
            "extra.missing", f"{address}: reading {scheme}:// needs a package: {_package(scheme, error)}"
        ) from None
    # A store may raise exceptions of any type.
    except Exception as error:
        raise _failure(address, error) from None


def _relative(place: str, base: PurePosixPath) -> str:
    path = PurePosixPath(place)
    return path.name if path == base or not path.is_relative_to(base) else path.relative_to(base).as_posix()


def _named(scheme: str, place: str) -> str:
    return f"{scheme}://{place.lstrip('/')}"


def _object(system: AbstractFileSystem, location: str, path: PurePosixPath, name: str, address: str) -> Source:
    def opened(file: PurePath, **options: Any) -> BinaryIO:
        web = location.startswith(tuple(f"{scheme}://" for scheme in _WEB))
        if web and file != path:
            raise FileNotFoundError(str(file))  # a URL gives access to this file only
        raw = _Object(system, location if file == path else str(file), address, options if web else {})
        return io.BufferedReader(raw, BUFFER)

    def as_stream(file: PurePath) -> BinaryIO:
        # Read with a single request, not one per block. A single request also works with servers without ranges.
        return opened(file, block_size=0)

    return Source(path, name, address, as_stream, opened)


class _Object(io.RawIOBase):
    """Reader of an object of a store. A failed read is retried once from the same position; a second failure raises
    TaskFileError. Raises FileNotFoundError if the object does not exist."""

    def __init__(self, system: AbstractFileSystem, path: str, address: str, options: dict[str, Any]) -> None:
        self._system, self._path, self._address, self._options = system, path, address, options
        self._at = 0
        try:
            self._file = system.open(path, "rb", **options)
        except Exception as error:  # a store may raise exceptions of any type
            # fsspec raises FileNotFoundError for every failure of a web server.
            why = error.__cause__ if isinstance(error, FileNotFoundError) and error.__cause__ else error
            if isinstance(why, FileNotFoundError) or _status(why) == _MISSING:
                raise FileNotFoundError(errno.ENOENT, "no such object", address) from None
            raise _failure(address, why) from None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return bool(self._file.seekable())

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = int(self._file.seek(offset, whence))
        return self._at

    def readinto(self, buffer: Any) -> int:
        try:
            data = self._file.read(len(buffer))
        except Exception as error:  # a store may raise exceptions of any type
            data = self._again(len(buffer), error)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def _again(self, most: int, first: Exception) -> bytes:
        try:
            before, _ = self._version(), self._file.close()
            # Cached details of the object may be outdated.
            self._system.invalidate_cache(self._path)
            self._file = self._system.open(self._path, "rb")
            now = self._version()
            if any(before[key] != now[key] for key in before.keys() & now.keys()):
                raise TaskFileError(
                    "traces.changed", f"{self._address}: changed during the read; run the command again"
                )
            self._file.seek(self._at)
            return bytes(self._file.read(most))
        except TaskFileError:
            raise
        except Exception as error:  # the error below reports `first`, the failure before the retry
            if isinstance(error, FileNotFoundError) or _status(error) == _MISSING:
                why = "deleted during the read; nothing was learned from it"
                raise TaskFileError("traces.changed", f"{self._address}: {why}; run the command again") from None
            raise _failure(self._address, first, self._at) from None

    def _version(self) -> dict[str, Any]:
        values = {"size": getattr(self._file, "size", None), **(getattr(self._file, "details", None) or {})}
        return {key: values[key] for key in _VERSION if values.get(key) is not None}


def _failure(address: str, error: BaseException, at: int = 0) -> TaskFileError:
    """Return the error for a failure of a store, in one line without secrets."""
    if isinstance(error, FileNotFoundError):
        return TaskFileError("traces.not_found", f"{address}: no such object; pass the address of stored traces")
    if isinstance(error, PermissionError) or _status(error) in _DENIED:
        return TaskFileError("traces.unreadable", f"{address}: access is denied; set the credentials of this store")
    reason = _URLS.sub(lambda url: shown(url[0]), f"{type(error).__name__}: {error}".rstrip(": "))
    reason = _CREDENTIALS.sub("", reason)
    after = f" after {at:,} bytes" if at else ""
    return TaskFileError(
        "traces.unreadable", f"{address}: cannot be read{after} ({one_line(reason, 200)}); nothing was learned from it"
    )


def _status(error: BaseException) -> int | None:
    """Return the HTTP status of an error, from the attribute that the store's package uses; None without such an
    attribute."""
    values = (getattr(error, name, None) for name in ("status", "status_code", "code"))
    return next((value for value in values if isinstance(value, int)), None)


def _package(scheme: str, error: ImportError) -> str:
    from fsspec.registry import known_implementations

    package = str(known_implementations.get(scheme, {}).get("class", "")).partition(".")[0]
    return f"pip install {package}" if package not in ("", "fsspec") else one_line(error, 200)
