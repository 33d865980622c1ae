"""The folder of a run, and where its rows are: in a file there, or in a database that a file there names.

A folder may be a stranger's, who could have our password sent to a server of theirs. So a database is used only if this
installation marked the file that names it.
"""

from __future__ import annotations

import json
import os
import stat
from dataclasses import asdict, dataclass
from pathlib import Path

from practicum.core.errors import NotARun, StoreError
from practicum.core.files import write_atomic
from practicum.core.installation import is_marked, mark

DATABASE_FILE = "run.sqlite"
STORE_FILE = "store.json"
LOCK_FILE = "lock"
INDEX_FILES = "index.*"
"""The index of the run's entries, if it has many. It can be made again from the database."""

LOG_FILE = "llama.log"
"""The log of a model in this process."""

OLD_INDEX_FILES = ("vectors.usearch", "words.postings")
"""The files of an index that an earlier version of practicum made. They are not read any more."""

FILES = (
    DATABASE_FILE, *(f"{DATABASE_FILE}-{part}" for part in ("wal", "shm", "journal")), STORE_FILE, LOCK_FILE,
    LOG_FILE,
)  # fmt: skip
"""The files that are opened in a run folder, beside those of the index."""

_SUPER_JOURNAL = bytes.fromhex("d9d505f920a163d7")
"""Ends a journal that names another file."""


def is_run(folder: Path) -> bool:
    """Whether a folder is that of a run."""
    return (folder / DATABASE_FILE).is_file() or (folder / STORE_FILE).is_file()


def must_be_run(folder: Path) -> None:
    """Raises NotARun if a folder holds no run, StoreError if it holds what practicum does not make."""
    if not is_run(folder):
        run, _, name = str(folder).rpartition("@")
        if run and is_run(Path(run)):
            raise NotARun(
                "run.not_found", f"{folder} is a version, and a whole run is wanted: give {run} (its version is {name})"
            )
        runs = sorted(path.parent for file in (DATABASE_FILE, STORE_FILE) for path in folder.glob(f"*/{file}"))
        inside = f"; it holds runs, such as {runs[-1]}" if runs else ""
        raise NotARun("run.not_found", f"{folder} is not a run folder: it has no {DATABASE_FILE}{inside}")
    refuse_links(folder)


def refuse_links(folder: Path) -> None:
    """Raises StoreError if a file that is opened in a run folder is a link, or leads out of the folder otherwise."""
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
    """A run whose rows are in a database: its URL, without a password, and the run's id there."""

    store: str
    run: str


def read_elsewhere(folder: Path) -> Elsewhere | None:
    """The database that a folder names; None for a run whose rows are in the folder.

    Raises StoreError if this installation did not write that.
    """
    path = folder / STORE_FILE
    if not path.is_file():
        return None
    try:
        values = json.loads(path.read_bytes())
        found = Elsewhere(str(values["store"]), str(values["run"]))
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
            f"{found.store!r} {found.run!r} FOLDER",
        )
    return found


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
    """Note in a folder where the rows of its run are."""
    values = {**asdict(elsewhere), "mark": mark(_marked(elsewhere))}
    write_atomic(folder / STORE_FILE, json.dumps(values, indent=2), private=True)


def _marked(elsewhere: Elsewhere) -> dict[str, str]:
    # Named, so that no other mark of this installation can stand for this one.
    return {"what": "store", **asdict(elsewhere)}
