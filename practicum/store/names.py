"""Names of versions, such as "prod" and "candidate". Wherever a version is wanted, its name will do."""

from __future__ import annotations

import re

from sqlalchemy import delete, func, select

from practicum.core.errors import UsageError
from practicum.store import schema
from practicum.store.database import Store

_NAME = re.compile(r"[A-Za-z][\w.-]*")


def read_names(store: Store, run_id: str) -> dict[str, int]:
    """The named versions of a run, by name."""
    table = schema.names
    if store.read_only and not store.has_table(table):
        return {}
    rows = store.rows(select(table).where(table.c.run_id == run_id).order_by(table.c.name))
    return {row.name: row.version for row in rows}


def find_version(store: Store, run_id: str, version: int | str | None) -> int | None:
    """The number of a version, given its number, the number as a text, or its name; None stays None.

    Raises UsageError for an unknown name. A number is not looked up.
    """
    if not isinstance(version, str):
        return version
    if version.isdecimal():
        return int(version)
    names = read_names(store, run_id)
    if version not in names:
        known = ", ".join(f"{name} ({number})" for name, number in names.items()) or "none"
        raise UsageError(f"{store.folder} has no version named {version!r}: the named ones are {known}")
    return names[version]


def name_version(store: Store, run_id: str, name: str, version: int | str | None = None) -> int:
    """Give a version (None: the last) a name, which another one may have had; returns its number.

    Raises UsageError if there is no such version, or if the name could be taken for a number.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} cannot name a version: begin with a letter, then letters, digits, . _ and -")
    number, table = find_version(store, run_id, version), schema.versions
    last = store.rows(select(func.max(table.c.version)).where(table.c.run_id == run_id))[0][0]
    number = last if number is None else number
    if not store.rows(select(table.c.version).where(table.c.run_id == run_id, table.c.version == number)):
        raise UsageError(f"there is no version {number}: this run has 0 to {last}")
    with store.transaction() as db:
        db.execute(schema.names.insert().prefix_with("OR REPLACE").values(run_id=run_id, name=name, version=number))
    return int(number)


def delete_name(store: Store, run_id: str, name: str) -> None:
    """Take a name away; its version stays. Raises UsageError if no version has it."""
    table = schema.names
    find_version(store, run_id, name)
    with store.transaction() as db:
        db.execute(delete(table).where(table.c.run_id == run_id, table.c.name == name))
