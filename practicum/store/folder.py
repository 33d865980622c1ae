"""The folder of a store, and the location of its rows: a database file in the folder (DATABASE_FILE), or a database
whose URL is in a file in the folder (STORE_FILE).

A folder may come from someone else, and could make practicum send the user's password to a foreign server. So practicum
only connects to a database at a URL if this installation wrote the STORE_FILE. A mark in the file proves this.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Collection
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from practicum.core.errors import NotARun, StoreError
from practicum.core.files import write_atomic
from practicum.core.installation import is_marked, mark

DATABASE_FILE = "practicum.sqlite"
"""File with the rows of a store."""

STORE_FILE = "store.json"
"""File with the URL of the database that has the rows of the store."""

SPACES = "spaces"
"""Folder with the folders of the spaces, in a store of several spaces."""

LOCK_FILE, SERVING_FILE = "lock", "serving"
"""Lock files. The process that writes what a space learns locks LOCK_FILE; the process that serves from the folder
locks SERVING_FILE."""


INDEX_FILES = "index.*"
"""Files of the index of a space with many entries. The index can be rebuilt from the database."""

EARLIER_FILES = ("run.sqlite", "service.sqlite")
"""Files of an earlier version of practicum."""

LOG_FILE = "llama.log"
"""Log of a local model in this process."""

FILES = (
    DATABASE_FILE, *(f"{DATABASE_FILE}-{part}" for part in ("wal", "shm", "journal")), STORE_FILE, LOCK_FILE,
    SERVING_FILE, LOG_FILE,
)  # fmt: skip
"""Files that are opened in a run folder, except index files."""

_SUPER_JOURNAL = bytes.fromhex("d9d505f920a163d7")
"""Last bytes of a SQLite journal that contains the name of another file."""


def is_store(folder: Path) -> bool:
    """Whether a folder contains a store."""
    return (folder / DATABASE_FILE).is_file() or (folder / STORE_FILE).is_file()


def located(path: Path) -> tuple[Path, str | None]:
    """Split the path of a space into the folder of the store and the name of the space. For FOLDER/spaces/NAME, the
    name is NAME. For the path of a store, the name is None, which means the only space of the store or, in a store of
    several spaces, the default space. Raises NotARun for any other path."""
    if is_store(path):
        return path, None
    if path.parent.name == SPACES and is_store(path.parent.parent):
        return path.parent.parent, path.name
    for file in EARLIER_FILES:
        if (path / file).exists():
            raise StoreError(
                "store.unknown_format",
                f"{path} was created by an earlier version of practicum (the folder contains {file}), and this version "
                "cannot read the folder: open the folder with that version, or start a new run in another folder",
            )
    run, _, name = str(path).rpartition("@")
    if run and is_run(Path(run)):
        raise NotARun("run.not_found", f"{path} is version {name} of a run, but a run is needed: use {run}")
    runs = sorted(inner.parent for file in (DATABASE_FILE, STORE_FILE) for inner in path.glob(f"*/{file}"))
    advice = f": use a run in this folder, such as {runs[-1]}" if runs else ": use the folder of a run or of a store"
    raise NotARun("run.not_found", f"{path} is not a run folder, because it has no {DATABASE_FILE}{advice}")


def is_run(path: Path) -> bool:
    """Whether a path is a store, or has the form STORE/spaces/NAME. Whether the space exists is not checked."""
    return is_store(path) or (path.parent.name == SPACES and is_store(path.parent.parent))


def refuse_links(folder: Path) -> None:
    """Raise StoreError if the folder of a store or a space has a link in place of a file that practicum opens, or a
    SQLite journal that contains the name of another file."""
    for path in (*(folder / name for name in FILES), *folder.glob(INDEX_FILES)):
        try:
            kind = path.lstat().st_mode
        except OSError:
            continue
        if not stat.S_ISREG(kind):
            file_type = "a symbolic link" if stat.S_ISLNK(kind) else "not a regular file"
            raise StoreError(
                "store.unsafe",
                f"{folder} was not opened, because its {path.name} is {file_type}: delete {path.name}",
            )
    journal = folder / f"{DATABASE_FILE}-journal"
    # SQLite would delete the file that the journal names.
    raw = journal.read_bytes() if journal.exists() else b""
    if raw.endswith(_SUPER_JOURNAL) and raw != _SUPER_JOURNAL:
        raise StoreError(
            "store.unsafe",
            f"{folder} was not opened, because its {journal.name} names another file: delete {journal.name}",
        )


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Location of a space in a database: the URL of the database, without a password, and the name of the space."""

    store: str
    space: str


def read_elsewhere(folder: Path) -> Elsewhere | None:
    """Return the location of a store's rows, which the STORE_FILE of the folder contains. Returns None if the folder
    has no STORE_FILE, because the rows are then in the DATABASE_FILE of the folder.

    Raises StoreError if this installation did not write the STORE_FILE.
    """
    path = folder / STORE_FILE
    if not path.is_file():
        return None
    try:
        values = json.loads(path.read_bytes())
        elsewhere = Elsewhere(str(values["store"]), str(values["space"]))
        trusted = is_marked(_marked(elsewhere), values.get("mark"))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise StoreError(
            "store.unreadable", f"{path} cannot be read: create the folder again with practicum store connect"
        ) from error
    if not trusted:
        raise StoreError(
            "run.untrusted",
            f"{path} was not written by you on this machine, so practicum did not connect to the database at the URL "
            "in this file: the database would get your password. If you trust the URL, connect to the run in a new "
            f"folder: practicum store connect {elsewhere.store!r} {elsewhere.space!r} FOLDER",
        )
    return elsewhere


def remove_index_files(folder: Path, keep: Collection[str] = ()) -> None:
    """Delete the files of an index, except the files in `keep`."""
    for path in folder.glob(INDEX_FILES):
        if path.name not in keep:
            # Windows does not delete a file that a process has mapped. The next writer of an index deletes the file.
            with suppress(PermissionError):
                path.unlink(missing_ok=True)


def empty_log(folder: Path) -> None:
    """Empty the log of a local model, which may quote prompts. Raises StoreError on failure."""
    path = folder / LOG_FILE
    try:
        if path.is_file():
            # Truncating is safe, because the process that writes the log appends to it.
            os.truncate(path, 0)
    except OSError as error:
        raise StoreError("store.unwritable", f"cannot empty {path}: {error.strerror}") from error


def write_elsewhere(folder: Path, elsewhere: Elsewhere) -> None:
    """Write the location of a space's rows into a folder."""
    values = {**asdict(elsewhere), "mark": mark(_marked(elsewhere))}
    write_atomic(folder / STORE_FILE, json.dumps(values, indent=2), private=True)


def _marked(elsewhere: Elsewhere) -> dict[str, str]:
    # `kind` is the purpose of the mark, so that marks of this installation for other purposes are not valid here.
    return {"kind": "store", **asdict(elsewhere)}
