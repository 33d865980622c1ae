"""Names of versions, such as "prod" and "candidate". Wherever a version is wanted, its name will do."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, text

from practicum.core.errors import UsageError
from practicum.store import schema
from practicum.store.database import Store, as_stored

LIVE = "live"
"""The name of the version that a service shows to all who see no candidate."""

EDITED = "edited"
"""The name of the version that a person edited last: no session stays on an earlier one."""

_NAME = re.compile(r"[A-Za-z][\w.-]*")


def read_names(store: Store) -> dict[str, int]:
    """The named versions of a run, by name; without the version that was edited last, whose name is our own."""
    return {name: version for name, version in read_every_name(store).items() if name != EDITED}


def read_every_name(store: Store) -> dict[str, int]:
    """All named versions of a run, by name."""
    table = schema.names
    rows = store.rows(store.select(table).order_by(table.c.name))
    return {row.name: row.version for row in rows}


def shown_version(store: Store, version: int | str | None = None) -> int | None:
    """The number of a version, given as `find_version` takes it. None: of a space that is served, the live one, which
    agents see; otherwise None, the last."""
    return find_version(store, version) if version is not None else read_names(store).get(LIVE)


def newest_version(store: Store) -> int:
    """The number of the last version."""
    with as_stored(store.folder):
        return int(store.rows(store.select(func.max(schema.versions.c.version)))[0][0])


def find_version(store: Store, version: int | str | None) -> int | None:
    """The number of a version, given its number, the number as a text, or its name; None stays None.

    Raises UsageError for an unknown name. A number is not looked up.
    """
    if not isinstance(version, str):
        return version
    if version.isdecimal():
        return int(version)
    names = read_every_name(store)
    if version not in names:
        known = ", ".join(f"{name} ({number})" for name, number in names.items()) or "none"
        raise UsageError(
            "version.unknown",
            f"{store.folder} has no version named {version!r}: the named ones are {known}",
            version=version,
        )
    return names[version]


@dataclass(frozen=True, slots=True)
class Head:
    """A version as it is now: what it was made from and when, and how long the run has worked. `of_run` tells whether
    the run's configuration, its snapshot or its whole file is another one."""

    version: int
    made: tuple[Any, ...]
    of_run: tuple[Any, ...]


_HEAD = """
SELECT v.version, v.parent, v.step, v.next_number, r.seconds, r.config,
       (SELECT max(version) FROM snapshots WHERE space = :space), r.rewritten
FROM spaces r JOIN versions v ON v.space = r.space WHERE r.space = :space AND v.version = {version}"""
_SHOWN = text(_HEAD.format(version=f"""
coalesce((SELECT version FROM names WHERE space = :space AND name = '{LIVE}'),
         (SELECT max(version) FROM versions WHERE space = :space))"""))  # fmt: skip
_NUMBERED = text(_HEAD.format(version=":version"))
_NAMED = text(_HEAD.format(version="(SELECT version FROM names WHERE space = :space AND name = :version)"))


def read_head(store: Store, version: int | str | None) -> Head | None:
    """A version (None: the one that agents see) in one short query; None if there is none of this number or name."""
    if isinstance(version, str) and version.isdecimal():
        version = int(version)
    query = _SHOWN if version is None else _NAMED if isinstance(version, str) else _NUMBERED
    values = {"space": store.space} | ({} if version is None else {"version": version})
    for row in store.rows(query.bindparams(**values)):
        return Head(row[0], tuple(row[1:5]), tuple(row[5:]))
    return None


def edits_size(store: Store, version: int) -> int | None:
    """How many characters the edits of a version have in the log; None if it does not exist."""
    table = schema.versions
    size = store.select(func.length(table.c.applied)).where(table.c.version == version)
    return next((row[0] for row in store.rows(size)), None)


def name_version(store: Store, name: str, version: int | str | None = None) -> int:
    """Give a version (None: the last) a name, which another one may have had; returns its number.

    Raises UsageError if there is no such version, or if the name could be taken for a number.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(
            "version.invalid_name",
            f"{name!r} cannot name a version: begin with a letter, then letters, digits, . _ and -",
        )
    number, table = find_version(store, version), schema.versions
    last = newest_version(store)
    number = last if number is None else number
    if not store.rows(store.select(table.c.version).where(table.c.version == number)):
        raise UsageError(
            "version.unknown", f"there is no version {number}: this run has 0 to {last}", version=number, last=last
        )
    store.change(lambda at: at.put(schema.names, {"name": name, "version": number}))
    return number


def delete_name(store: Store, name: str) -> None:
    """Take a name away; its version stays. Raises UsageError if no version has it."""
    table = schema.names
    find_version(store, name)
    store.change(lambda at: at.run(at.delete(table).where(table.c.name == name)))
