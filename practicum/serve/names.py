"""The names of spaces."""

from __future__ import annotations

import re

from practicum.core.errors import UsageError

FORM = "a space is named by letters, digits, . _ and -, 64 at most"
SPACE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def require_space_name(name: str, error: type[UsageError] = UsageError) -> None:
    """Raise the error for what cannot be the name of a space."""
    if not SPACE_NAME.fullmatch(name):
        raise error("space.invalid_name", f"{name!r:.80} is no name of a space: {FORM}")


class UnknownSpace(UsageError):
    """There is no live space with this name, or no longer."""


def unknown(name: str) -> UnknownSpace:
    return UnknownSpace(
        "space.unknown", f"there is no space {name!r}: start the service with --space {name}", space=name
    )
