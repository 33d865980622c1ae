"""Spaces of a store: each has a name, which can be reused, and an id, which is never reused.

All rows of a space have the id of the space. A space is reserved while only its name and its keys exist, and live after
its first version is written. So a killed process leaves a space either reserved or complete.
"""

from __future__ import annotations

import re
import secrets
from typing import Any

from sqlalchemy import Connection, delete, select, update

from practicum.core.errors import UsageError
from practicum.store import schema
from practicum.store.dialects import insert_new

DEFAULT = "default"
"""Name of a space in a folder if the user gave no other name."""

FORM = "use at most 64 letters, digits, . _ and -, beginning with a letter or a digit"
SPACE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class UnknownSpace(UsageError):
    """No live space has this name, or the space was deleted."""


def require_space_name(name: str, error: type[UsageError] = UsageError) -> None:
    """Raise an error of the type `error` if a name is not a valid name of a space."""
    if not SPACE_NAME.fullmatch(name):
        raise error("space.invalid_name", f"{name!r:.80} is not a valid name of a space: {FORM}")


def unknown(name: str) -> UnknownSpace:
    return UnknownSpace(
        "space.unknown",
        f"no space named {name!r}: create the space with practicum space add-space or practicum serve --space {name}",
        space=name,
    )


# The following functions run inside a transaction.


def find_space(db: Connection, name: str) -> Any:
    """Return the row of the space with this name, or None. No other transaction can remove the row until this
    transaction ends."""
    t = schema.spaces
    return db.execute(select(t).where(t.c.name == name).with_for_update(read=True, key_share=True)).first()


def reserve_space(db: Connection, name: str) -> Any:
    """Return the row of the space with this name. If no space has the name, first reserve a space with the name."""
    row = {"space": secrets.token_hex(8), "name": name, "state": "reserved"}
    numbers = dict.fromkeys(("token", "rewritten", "changed", "numbered"), 0)
    db.execute(insert_new(schema.spaces, db.dialect.name), {**row, **numbers})
    return find_space(db, name)


def remove_space(db: Connection, space: str) -> int:
    """Remove all rows of a space, with its keys and its name. Returns the number of removed rows."""
    t = schema.spaces
    # Wait for transactions that use the space, so that their rows are visible below.
    db.execute(select(t.c.name).where(t.c.space == space).with_for_update()).all()
    others = [table for table in schema.metadata.tables.values() if table is not t]
    removed = sum(db.execute(delete(table).where(table.c.space == space)).rowcount for table in others)
    db.execute(delete(t).where(t.c.space == space))
    return removed


def take_token(db: Connection, space: str) -> int | None:
    """Increase the token of a space, and return the new token, for the process that takes the lease. Returns None if
    the space does not exist."""
    t = schema.spaces
    # Wait for transactions that read an earlier token.
    db.execute(select(t.c.token).where(t.c.space == space).with_for_update()).all()
    db.execute(update(t).where(t.c.space == space).values(token=t.c.token + 1))
    return db.execute(select(t.c.token).where(t.c.space == space)).scalar()
