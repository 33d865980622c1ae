"""The installation of a user: a secret key, and marks made with it.

A run folder says what it would execute and whom it would call. The mark in it tells whether this user of this machine
wrote that, or somebody else. Whoever holds the key can make marks, so it is readable by its user alone.
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
"""An environment variable that names the folder of the key, in place of `settings_folder()`."""

KEY_FILE = "key"

KEY_BYTES = 32


def home() -> Path:
    """The folder of the installation. Raises RuntimeError if the user has no home folder."""
    if given := os.environ.get(HOME_VARIABLE):
        return Path(given)
    return settings_folder()


def settings_folder() -> Path:
    """The folder of practicum among the user's settings. Raises RuntimeError if the user has no home folder."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser() / "practicum"


def mark(values: Any) -> str:
    """The mark of this installation on plain JSON values."""
    raw = json.dumps(values, sort_keys=True).encode()
    return hmac.new(_key(), raw, hashlib.sha256).hexdigest()


def is_marked(values: Any, found: str | None) -> bool:
    """Whether this installation made the mark on these values."""
    return isinstance(found, str) and hmac.compare_digest(mark(values).encode(), found.encode(errors="replace"))


def derived_key(purpose: str) -> bytes:
    """A secret key of this installation for one purpose alone, 32 bytes."""
    return hmac.new(_key(), purpose.encode(), hashlib.sha256).digest()


def _key() -> bytes:
    """The key, which is made when it is first needed. If it cannot be kept, it is one of this process."""
    try:
        path = home() / KEY_FILE
        found = path.read_bytes() if path.exists() else _made(path)
    except (OSError, RuntimeError) as error:
        return _of_process(getattr(error, "strerror", None) or str(error))
    if len(found) != KEY_BYTES:
        raise UsageError(
            "installation.damaged", f"{path} is no key of practicum ({len(found)} bytes, not {KEY_BYTES}): delete it"
        )
    return found


def _made(path: Path) -> bytes:
    """A new key at this path, or that of another process that was faster."""
    make_folder(path.parent)
    part = path.with_name(f"{KEY_FILE}.{secrets.token_hex(8)}")
    try:
        with create_private(part) as file:
            file.write(secrets.token_bytes(KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            # Unlike a rename, a link does not replace a key that was made meanwhile.
            os.link(part, path)
        return path.read_bytes()
    finally:
        part.unlink(missing_ok=True)


@cache
def _of_process(why: str) -> bytes:
    warnings.warn(
        f"the key of this installation cannot be kept ({why}), so runs made now count as made elsewhere later: name a "
        f"folder that can be written to with {HOME_VARIABLE}",
        RuntimeWarning,
        stacklevel=2,
    )
    return secrets.token_bytes(KEY_BYTES)
