"""Names of versions, such as "prod" and "candidate". A name can be used in place of a version number."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, text

from practicum.core.errors import UsageError
from practicum.store import schema
from practicum.store.database import Store, as_stored

LIVE = "live"
"""Name of the version that a service shows to all sessions, except sessions that see a candidate."""

EDITED = "edited"
"""Name of the last version that a person wrote by an edit or made live. No session stays on a version earlier than that
version."""

_NAME = re.compile(r"[A-Za-z][\w.-]*")


def read_names(store: Store) -> dict[str, int]:
    """Return the numbers of the named versions of a run, by name. The name EDITED, which is internal, is left out."""
    return {name: version for name, version in read_every_name(store).items() if name != EDITED}


def read_every_name(store: Store) -> dict[str, int]:
    """Return the numbers of the named versions of a run, by name, including the name EDITED."""
    table = schema.names
    rows = store.rows(store.select(table).order_by(table.c.name))
    return {row.name: row.version for row in rows}


def shown_version(store: Store, version: int | str | None = None) -> int | None:
    """Return the number of a version (see `find_version`). Without `version`, return the number of the live version,
    which agents see. Return None, which means the last version, if the space was never served and so has no live
    version."""
    return find_version(store, version) if version is not None else read_names(store).get(LIVE)


def newest_version(store: Store) -> int:
    """Return the number of the last version."""
    with as_stored(store.folder):
        return int(store.rows(store.select(func.max(schema.versions.c.version)))[0][0])


def find_version(store: Store, version: int | str | None) -> int | None:
    """Return the number of a version, given its number, its number as a text, or its name. Returns None for None.

    Raises UsageError for an unknown name. Whether a version with the number exists is not checked.
    """
    if not isinstance(version, str):
        return version
    if version.isdecimal():
        return int(version)
    names = read_every_name(store)
    if version not in names:
        listed = ", ".join(f"{name} ({number})" for name, number in names.items())
        raise UsageError(
            "version.unknown",
            f"{store.folder} has no version named {version!r}: use {f'one of {listed}' if listed else 'a number'}",
            version=version,
        )
    return names[version]


@dataclass(frozen=True, slots=True)
class Head:
    """State of a version. `origin`: the parent, the step and the next entry number of the version, and the seconds that
    the run has spent on learning. `of_run`: values that change if the configuration or the snapshot of the run changes,
    or if rows of the run are permanently removed."""

    version: int
    origin: tuple[Any, ...]
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
    """Return the state of a version (None: the live version, or the last version if no version is live), with one short
    query. Returns None if the version does not exist."""
    if isinstance(version, str) and version.isdecimal():
        version = int(version)
    query = _SHOWN if version is None else _NAMED if isinstance(version, str) else _NUMBERED
    values = {"space": store.space} | ({} if version is None else {"version": version})
    for row in store.rows(query.bindparams(**values)):
        return Head(row[0], tuple(row[1:5]), tuple(row[5:]))
    return None


def edits_size(store: Store, version: int) -> int | None:
    """Return the length (characters) of the stored edits of a version; None if the version does not exist."""
    table = schema.versions
    size = store.select(func.length(table.c.applied)).where(table.c.version == version)
    return next((row[0] for row in store.rows(size)), None)


def name_version(store: Store, name: str, version: int | str | None = None) -> int:
    """Give a name to a version (None: the last), and return the version's number. If another version has the name, the
    name is moved. A version that gets the name LIVE also gets the name EDITED, so that no session stays on an earlier
    version.

    Raises UsageError if the version does not exist, or if the name is not valid.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(
            "version.invalid_name",
            f"{name!r} is not a valid name of a version: use letters, digits, . _ and -, beginning with a letter",
        )
    number, table = find_version(store, version), schema.versions
    last = newest_version(store)
    number = last if number is None else number
    if not store.rows(store.select(table.c.version).where(table.c.version == number)):
        raise UsageError(
            "version.unknown", f"no version {number}: this run has versions 0 to {last}", version=number, last=last
        )
    rows = [{"name": each, "version": number} for each in ((LIVE, EDITED) if name == LIVE else (name,))]
    store.change(lambda at: at.put(schema.names, *rows))
    return number


def delete_name(store: Store, name: str) -> None:
    """Delete the name of a version; the version remains. Raises UsageError if no version has this name."""
    table = schema.names
    find_version(store, name)
    store.change(lambda at: at.run(at.delete(table).where(table.c.name == name)))
