"""The folder of a store, and where its rows are: in a file there, or in a database that a file there names.

A folder may be a stranger's, who could have our password sent to a server of theirs. So a database is used only if this
installation marked the file that names it.
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
STORE_FILE = "store.json"
SPACES = "spaces"
"""The folder with those of the spaces, in a store of many."""

LOCK_FILE, SERVING_FILE = "lock", "serving"
"""Held by who writes what a space learns, and by who serves from the folder."""

INDEX_FILES = "index.*"
"""The index of a space's entries, if it has many. It can be made again from the database."""

EARLIER_FILES = ("run.sqlite", "service.sqlite")
"""What an earlier practicum has written."""

LOG_FILE = "llama.log"
"""The log of a model in this process."""

FILES = (
    DATABASE_FILE, *(f"{DATABASE_FILE}-{part}" for part in ("wal", "shm", "journal")), STORE_FILE, LOCK_FILE,
    SERVING_FILE, LOG_FILE,
)  # fmt: skip
"""The files that are opened in a run folder, beside those of the index."""

_SUPER_JOURNAL = bytes.fromhex("d9d505f920a163d7")
"""Ends a journal that names another file."""


def is_store(folder: Path) -> bool:
    """Whether a folder is that of a store."""
    return (folder / DATABASE_FILE).is_file() or (folder / STORE_FILE).is_file()


def located(path: Path) -> tuple[Path, str | None]:
    """The folder of a store and the name of a space in it: None for the folder itself, where there is one space or one
    that is the default, and NAME for FOLDER/spaces/NAME. Raises NotARun if there is no store."""
    if is_store(path):
        return path, None
    if path.parent.name == SPACES and is_store(path.parent.parent):
        return path.parent.parent, path.name
    for file in EARLIER_FILES:
        if (path / file).exists():
            raise StoreError(
                "store.unknown_format",
                f"{path} was made by an earlier practicum (it has {file}), which this one does not read: open it with "
                "what made it, or start a new one elsewhere",
            )
    run, _, name = str(path).rpartition("@")
    if run and is_run(Path(run)):
        raise NotARun(
            "run.not_found", f"{path} is a version, and a whole run is wanted: give {run} (its version is {name})"
        )
    runs = sorted(inner.parent for file in (DATABASE_FILE, STORE_FILE) for inner in path.glob(f"*/{file}"))
    inside = f"; it holds runs, such as {runs[-1]}" if runs else "; give the folder of a run or of a store"
    raise NotARun("run.not_found", f"{path} is not a run folder: it has no {DATABASE_FILE}{inside}")


def is_run(path: Path) -> bool:
    """Whether a path is that of a store, or looks like that of a space in one."""
    return is_store(path) or (path.parent.name == SPACES and is_store(path.parent.parent))


def refuse_links(folder: Path) -> None:
    """Raises StoreError if a file that is opened in the folder of a store or of a space is a link, or leads out of the
    folder otherwise."""
    for path in (*(folder / name for name in FILES), *folder.glob(INDEX_FILES)):
        try:
            kind = path.lstat().st_mode
        except OSError:
            continue
        if not stat.S_ISREG(kind):
            what = "a symbolic link" if stat.S_ISLNK(kind) else "no file"
            raise StoreError(
                "store.unsafe",
                f"{folder} is not opened: its {path.name} is {what}, which practicum never makes: delete it",
            )
    journal = folder / f"{DATABASE_FILE}-journal"
    # SQLite would delete the file that the journal names.
    raw = journal.read_bytes() if journal.exists() else b""
    if raw.endswith(_SUPER_JOURNAL) and raw != _SUPER_JOURNAL:
        raise StoreError(
            "store.unsafe",
            f"{folder} is not opened: its {journal.name} names another file, which practicum never does: delete it",
        )


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A space whose rows are in a database: its URL, without a password, and the name of the space there."""

    store: str
    space: str


def read_elsewhere(folder: Path) -> Elsewhere | None:
    """The database that a folder names; None for a store whose rows are in the folder.

    Raises StoreError if this installation did not write that.
    """
    path = folder / STORE_FILE
    if not path.is_file():
        return None
    try:
        values = json.loads(path.read_bytes())
        found = Elsewhere(str(values["store"]), str(values["space"]))
        ours = is_marked(_marked(found), values.get("mark"))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise StoreError(
            "store.unreadable", f"{path} cannot be read: make the folder anew with practicum store connect"
        ) from error
    if not ours:
        raise StoreError(
            "run.untrusted",
            f"{path} was not written by you on this machine, so the database that it names is not asked (your password "
            f"would go there). If you know it, connect to the run in a new folder: practicum store connect "
            f"{found.store!r} {found.space!r} FOLDER",
        )
    return found


def remove_index_files(folder: Path, keep: Collection[str] = ()) -> None:
    """Delete the files of an index, except those with these names."""
    for path in folder.glob(INDEX_FILES):
        if path.name not in keep:
            # Windows does not delete a file that a process has mapped. The next writer of an index does.
            with suppress(PermissionError):
                path.unlink(missing_ok=True)


def empty_log(folder: Path) -> None:
    """Empty the log of a model, which may quote what the model was asked. Raises StoreError if that cannot be done."""
    path = folder / LOG_FILE
    try:
        if path.is_file():
            # The process that writes it appends.
            os.truncate(path, 0)
    except OSError as error:
        raise StoreError("store.unwritable", f"cannot empty {path}: {error.strerror}") from error


def write_elsewhere(folder: Path, elsewhere: Elsewhere) -> None:
    """Note in a folder where the rows of its space are."""
    values = {**asdict(elsewhere), "mark": mark(_marked(elsewhere))}
    write_atomic(folder / STORE_FILE, json.dumps(values, indent=2), private=True)


def _marked(elsewhere: Elsewhere) -> dict[str, str]:
    # Named, so that no other mark of this installation can stand for this one.
    return {"what": "store", **asdict(elsewhere)}
