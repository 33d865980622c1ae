"""The spaces of a store: each has a name, which may be used again, and an id, which never is.

All rows of a space carry its id. A space is reserved while nothing but its name and its keys is there, and live from
the moment at which what it starts from is written, so what a killed process leaves is reserved or whole.
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
"""The name of the space of a folder in which no other one was named."""

FORM = "a space is named by letters, digits, . _ and -, 64 at most"
SPACE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class UnknownSpace(UsageError):
    """There is no live space with this name, or no longer."""


def require_space_name(name: str, error: type[UsageError] = UsageError) -> None:
    """Raise the error for what cannot be the name of a space."""
    if not SPACE_NAME.fullmatch(name):
        raise error("space.invalid_name", f"{name!r:.80} is no name of a space: {FORM}")


def unknown(name: str) -> UnknownSpace:
    return UnknownSpace(
        "space.unknown",
        f"there is no space {name!r}: make it (practicum space add-space, or practicum serve --space {name})",
        space=name,
    )


# All that follows happens in a transaction.


def find_space(db: Connection, name: str) -> Any:
    """The row of the space with this name; None if there is none. It does not change until the transaction ends."""
    t = schema.spaces
    return db.execute(select(t).where(t.c.name == name).with_for_update(read=True, key_share=True)).first()


def reserve_space(db: Connection, name: str) -> Any:
    """The row of the space with this name, which is reserved if there is none."""
    row = {"space": secrets.token_hex(8), "name": name, "state": "reserved"}
    numbers = dict.fromkeys(("token", "rewritten", "changed", "numbered"), 0)
    db.execute(insert_new(schema.spaces, db.dialect.name), {**row, **numbers})
    return find_space(db, name)


def remove_space(db: Connection, space: str) -> int:
    """Remove all rows of a space, with its keys and its name; returns how many rows that were."""
    t = schema.spaces
    # Waits for those transactions that rely on the space, so that their rows are seen below.
    db.execute(select(t.c.name).where(t.c.space == space).with_for_update()).all()
    others = [table for table in schema.metadata.tables.values() if table is not t]
    removed = sum(db.execute(delete(table).where(table.c.space == space)).rowcount for table in others)
    db.execute(delete(t).where(t.c.space == space))
    return removed


def take_token(db: Connection, space: str) -> int | None:
    """The token of a new holder of a space's lease; None if there is no such space."""
    t = schema.spaces
    # Waits for those transactions that found an earlier token.
    db.execute(select(t.c.token).where(t.c.space == space).with_for_update()).all()
    db.execute(update(t).where(t.c.space == space).values(token=t.c.token + 1))
    return db.execute(select(t.c.token).where(t.c.space == space)).scalar()
