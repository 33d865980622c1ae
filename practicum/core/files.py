"""Reading of external files, and atomic writing of files, which can be private to the user."""

from __future__ import annotations

import errno
import io
import os
import secrets
import stat
from pathlib import Path
from typing import BinaryIO

from practicum.core.errors import StoreError

PRIVATE = 0o600
"""Mode of files that only their user can read."""

PRIVATE_FOLDER = 0o700
"""Mode of folders that only their user can read."""

MOST_BYTES = 2**30
"""Maximum bytes of a file that is read into memory."""


def open_file(path: Path | str) -> BinaryIO:
    """Open a file for reading. Raises OSError for a folder, for a device (reading a device may never end), and for a
    pipe (reading a pipe may never begin). The pipes of a shell can be read: standard input, and `<(...)`."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        kind = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(kind):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        shells = str(path).startswith(("/dev/stdin", "/dev/fd/", "/proc/self/fd/"))
        if not stat.S_ISREG(kind) and not (shells and stat.S_ISFIFO(kind)):
            raise OSError(errno.EINVAL, "not a file but a device or a pipe", str(path))
        os.set_blocking(descriptor, True)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_bytes(path: Path | str, most: int = MOST_BYTES) -> bytes:
    """Return the content of a file. Raises OSError as `open_file` does, and for a file of more than `most` bytes."""
    with open_file(path) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"it has more than {most // 2**20:,} MB", str(path))
    return content


def read_text(path: Path | str) -> str:
    r"""Return the text of a UTF-8 file, without a byte order mark and with \n as line ends. Raises OSError and
    UnicodeDecodeError."""
    return io.TextIOWrapper(io.BytesIO(read_bytes(path)), encoding="utf-8-sig").read()


def make_folder(path: Path) -> None:
    """Create a folder and its missing parents, readable by this user only, regardless of the umask. A folder that
    exists keeps its mode. Raises OSError."""
    for folder in (*reversed(path.parents), path):
        if not folder.is_dir():
            # `parents=True` would give the parents the mode of the umask.
            folder.mkdir(PRIVATE_FOLDER, exist_ok=True)


def write_atomic(path: Path, content: str | bytes, *, private: bool = False) -> None:
    """Write a file atomically, and create its missing folders; a text is encoded as UTF-8. With `private`, only the
    user can read the file and these folders; otherwise their modes follow the umask. Raises StoreError if the file
    cannot be written."""
    part = path.with_name(f".{path.name[:64]}.{secrets.token_hex(8)}")
    try:
        make_folder(path.parent) if private else path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with _create(part, PRIVATE if private else 0o666) as file:
                file.write(content if isinstance(content, bytes) else content.encode())
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise StoreError("file.unwritable", f"cannot write {path}: {error.strerror}") from error


def create_private(path: Path) -> BinaryIO:
    """Create a file that only its user can read. Raises FileExistsError if the file exists."""
    return _create(path, PRIVATE)


def append_private(path: Path) -> BinaryIO:
    """Open a file for appending. A new file can be read by its user only. Raises OSError for a symbolic link."""
    flags = os.O_CREAT | os.O_APPEND | os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0)
    return os.fdopen(os.open(path, flags, PRIVATE), "ab")


def ensure_private(path: Path) -> None:
    """Create an empty file that only its user can read, unless the file exists. Later writes to the file keep this
    mode."""
    if not os.path.lexists(path):
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, PRIVATE))


def others_may_read(path: Path) -> bool:
    """Whether the mode of a file lets other users read or change it. False on Windows, where modes do not show this."""
    return os.name == "posix" and bool(path.stat().st_mode & 0o077)


def _create(path: Path, mode: int) -> BinaryIO:
    # Set the mode at creation, so that it holds from the beginning. The umask still applies.
    return os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_BINARY", 0), mode), "wb")


def allow_many_files() -> None:
    """Raise this process's limit of open files to the hard limit. Each connection counts as an open file."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
