"""Reading files from outside. Writing files: as a whole or not at all, and for the user alone where a run has them."""

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
"""The mode of files that their user alone may read."""

PRIVATE_FOLDER = 0o700

MOST_BYTES = 2**30
"""The most bytes of a file that is read as a whole."""


def open_file(path: Path | str) -> BinaryIO:
    """Open a file for reading. Raises OSError for what is none: a folder, a device, which may never end, and a pipe,
    which may never begin. A shell's own pipes are read: standard input, and `<(...)`."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        kind = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(kind):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        shells = str(path).startswith(("/dev/stdin", "/dev/fd/", "/proc/self/fd/"))
        if not stat.S_ISREG(kind) and not (shells and stat.S_ISFIFO(kind)):
            raise OSError(errno.EINVAL, "a device or a pipe is no file", str(path))
        os.set_blocking(descriptor, True)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_bytes(path: Path | str, most: int = MOST_BYTES) -> bytes:
    """The content of a file. Raises OSError as `open_file` does, and for a file of more than `most` bytes."""
    with open_file(path) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"it has more than {most // 2**20:,} MB", str(path))
    return content


def read_text(path: Path | str) -> str:
    """The text of a UTF-8 file, with or without a byte order mark, and with plain ends of lines. Raises OSError and
    UnicodeDecodeError."""
    return io.TextIOWrapper(io.BytesIO(read_bytes(path)), encoding="utf-8-sig").read()


def make_folder(path: Path) -> None:
    """Make a folder and its missing parents, for this user alone whatever the umask. A folder that exists keeps its
    mode. Raises OSError."""
    for folder in (*reversed(path.parents), path):
        if not folder.is_dir():
            # `parents=True` would give the parents the mode of the umask.
            folder.mkdir(PRIVATE_FOLDER, exist_ok=True)


def sync_folder(path: Path) -> None:
    """Write the entries of a folder to the disk, so that a file that was made or renamed there survives a power
    failure. Raises OSError."""
    if os.name != "posix":  # Windows opens no folders
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomic(path: Path, content: str | bytes, *, private: bool = False) -> None:
    """Write a file, text as UTF-8, as a whole or not at all, with its folders. Their modes are those of the umask, or
    `private` to the user. Raises StoreError if it cannot be written."""
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
    """A new file that its user alone may read. Raises FileExistsError if there is one."""
    return _create(path, PRIVATE)


def append_private(path: Path) -> BinaryIO:
    """A file to append to, which its user alone may read if it is new. Raises OSError for a symbolic link."""
    flags = os.O_CREAT | os.O_APPEND | os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0)
    return os.fdopen(os.open(path, flags, PRIVATE), "ab")


def ensure_private(path: Path) -> None:
    """Make an empty file that its user alone may read, if there is none. What is written to it keeps the mode."""
    if not os.path.lexists(path):
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, PRIVATE))


def others_may_read(path: Path) -> bool:
    """Whether the mode of a file lets other users read or change it. False on Windows, where modes do not say that."""
    return os.name == "posix" and bool(path.stat().st_mode & 0o077)


def _create(path: Path, mode: int) -> BinaryIO:
    # Unlike a mode that is set later, this one holds from the beginning; the umask takes away from it.
    return os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_BINARY", 0), mode), "wb")


def allow_many_files() -> None:
    """Raise this process's limit of open files as far as it may go: each connection is one, too."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
