"""The installation of a user: a secret key, and marks (keyed hashes) made with the key.

A run folder names the programs to execute and the addresses to call. A mark in the folder shows that this user wrote
these names and addresses on this machine. Anyone with the key can make marks, so the key file is readable only by the
user.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import warnings
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from practicum.core.errors import UsageError
from practicum.core.files import create_private, make_folder

HOME_VARIABLE = "PRACTICUM_HOME"
"""Environment variable that names the folder of the key. If it is not set, the folder is `settings_folder()`."""

KEY_FILE = "key"

KEY_BYTES = 32


def home() -> Path:
    """Return the folder of the installation. Raises RuntimeError if the user has no home folder."""
    if folder := os.environ.get(HOME_VARIABLE):
        return Path(folder)
    return settings_folder()


def settings_folder() -> Path:
    """Return practicum's folder in the user's settings. Raises RuntimeError if the user has no home folder."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser() / "practicum"


def mark(values: Any) -> str:
    """Return the mark of plain JSON values: a hash of the values, made with the key of this installation."""
    raw = json.dumps(values, sort_keys=True).encode()
    return hmac.new(_key(), raw, hashlib.sha256).hexdigest()


def is_marked(values: Any, candidate: str | None) -> bool:
    """Whether `candidate` is the mark that this installation makes for these values."""
    return isinstance(candidate, str) and hmac.compare_digest(mark(values).encode(), candidate.encode(errors="replace"))


def derived_key(purpose: str) -> bytes:
    """Return a secret key of this installation for one purpose, 32 bytes."""
    return hmac.new(_key(), purpose.encode(), hashlib.sha256).digest()


def _key() -> bytes:
    """Return the key of this installation; create it on first use. If the key cannot be read or stored, return a random
    key for this process only."""
    try:
        path = home() / KEY_FILE
        key = path.read_bytes() if path.exists() else _create_key(path)
    except (OSError, RuntimeError) as error:
        return _of_process(getattr(error, "strerror", None) or str(error))
    if len(key) != KEY_BYTES:
        raise UsageError(
            "installation.damaged",
            f"{path} is not a key of practicum ({len(key)} bytes, not {KEY_BYTES}): delete this file, and practicum "
            "creates a new key",
        )
    return key


def _create_key(path: Path) -> bytes:
    """Create a key at this path and return it. If another process creates a key at this path first, return the key of
    the other process."""
    make_folder(path.parent)
    part = path.with_name(f"{KEY_FILE}.{secrets.token_hex(8)}")
    try:
        with create_private(part) as file:
            file.write(secrets.token_bytes(KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            # Unlike a rename, a link does not replace a key that another process has created in between.
            os.link(part, path)
        return path.read_bytes()
    finally:
        part.unlink(missing_ok=True)


@cache
def _of_process(why: str) -> bytes:
    warnings.warn(
        f"the key of this installation cannot be stored ({why}), so practicum will later treat runs made now as runs "
        f"from another machine: set {HOME_VARIABLE} to a folder that can be written to",
        RuntimeWarning,
        stacklevel=2,
    )
    return secrets.token_bytes(KEY_BYTES)
