"""Writing files: as a whole or not at all, and for the user alone where they belong to a run."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import BinaryIO

from practicum.core.errors import StoreError

PRIVATE = 0o600
"""The mode of files that their user alone may read."""

PRIVATE_FOLDER = 0o700


def write_atomic(path: Path, content: str | bytes, *, private: bool = False) -> None:
    """Write a file, text as UTF-8, as a whole or not at all, with its folders. Its mode is that of the umask, or
    `private` to the user. Raises StoreError if it cannot be written."""
    part = path.with_name(f".{path.name[:64]}.{secrets.token_hex(8)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
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
        raise StoreError(f"cannot write {path}: {error.strerror}") from error


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


def _create(path: Path, mode: int) -> BinaryIO:
    # Unlike a mode that is set later, this one holds from the beginning; the umask takes away from it.
    return os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_BINARY", 0), mode), "wb")
