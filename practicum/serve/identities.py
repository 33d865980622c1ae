"""Spaces of a service: each has a name, which may be used again, and an identity, which never is.

All rows of a space carry its identity as `space`. The row in `spaces` is written before the run of a space is made and
deleted after it is removed, so what a killed process leaves of either is known by its state: nothing but a live space
has a run that counts.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import Any, Literal

from sqlalchemy import Connection, delete, select, update

from practicum.serve import tables
from practicum.store.dialects import insert_new

State = Literal["reserved", "making", "live", "deleted"]
"""reserved: it has keys, and its run is yet to be made. making: its run is half made. deleted: its rows are gone, and
its run may be there."""

HALF = ("making", "deleted")
"""The states of spaces that are half made or half deleted."""


# All that follows happens in a transaction of the log.


def find_space(db: Connection, name: str) -> Any:
    """The row of the space with this name, None if there is none. It does not change until the transaction ends."""
    t = tables.spaces
    return db.execute(select(t).where(t.c.name == name).with_for_update(read=True, key_share=True)).first()


def living(db: Connection, ids: Iterable[str]) -> set[str]:
    """Those of these identities that are live. They stay so until the transaction ends."""
    t = tables.spaces
    mine = select(t.c.space).where(t.c.space.in_({*ids}), t.c.state == "live").order_by(t.c.space)
    return {*db.execute(mine.with_for_update(read=True, key_share=True)).scalars()}


def add_space(db: Connection, name: str, state: State) -> Any:
    """The row of the space with this name, made in this state if there is none."""
    row = {"name": name, "space": secrets.token_hex(8), "state": state, "corrected": 0, "numbered": 0}
    db.execute(insert_new(tables.spaces, db.dialect.name), row)
    return find_space(db, name)


def set_state(db: Connection, id: str, state: State) -> None:
    """Change the state of a space that is not deleted."""
    t = tables.spaces
    db.execute(update(t).where(t.c.space == id, t.c.state != "deleted").values(state=state))


def bury_space(db: Connection, id: str) -> int:
    """Remove all rows of a space, with its keys; returns how many. Its name stays taken until `end_space`."""
    t = tables.spaces
    # Waits for those transactions that rely on the space being live, so that their rows are seen below.
    db.execute(select(t.c.name).where(t.c.space == id).with_for_update()).all()
    db.execute(update(t).where(t.c.space == id).values(state="deleted"))
    return _remove_rows(db, id)


def end_space(db: Connection, id: str) -> None:
    """Free the name of a deleted space, whose run is removed."""
    # Once more: changes that were in the transaction of `bury_space` may have come after it.
    _remove_rows(db, id)
    db.execute(delete(tables.spaces).where(tables.spaces.c.space == id))


def _remove_rows(db: Connection, id: str) -> int:
    mine = [table for table in tables.metadata.tables.values() if table is not tables.spaces]
    return sum(db.execute(delete(table).where(table.c.space == id)).rowcount for table in mine)
