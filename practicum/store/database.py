"""Open databases with spaces (`Database`), and the rows of one space in a database (`Store`).

A write returns once its rows are durable. One thread does all writes of a process to a database (see `writer`). Any
number of processes may read a space; one process at a time has the lease to write what the space learns.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from sqlalchemy import URL, Select, Table, select

from practicum.core.errors import NotARun, StoreError, UsageError
from practicum.core.files import make_folder
from practicum.core.words import error_line, one_line
from practicum.store import schema
from practicum.store.backend import STORES, Backend, store_at
from practicum.store.dialects import ROW
from practicum.store.flight import FLIGHT_FILE, Flight, key_of, left_in_flight
from practicum.store.folder import (
    SPACES,
    STORE_FILE,
    Elsewhere,
    empty_log,
    is_run,
    is_store,
    located,
    read_elsewhere,
    refuse_links,
    remove_index_files,
    write_elsewhere,
)
from practicum.store.schema import IN_FLIGHT
from practicum.store.scope import RowValues, Scope, Transaction, is_empty
from practicum.store.spaces import DEFAULT, SPACE_NAME, remove_space, require_space_name, reserve_space
from practicum.store.sqlite import SqliteBackend
from practicum.store.writer import Writer, Writing

T = TypeVar("T")

PART = 1_000
"""Number of rows that are read at a time."""


class Database:
    """An open database with spaces. `folder` is the folder of the database file; for a database at a URL, `folder` is a
    local folder for logs and for files that can be rebuilt."""

    def __init__(self, folder: Path, backend: Backend) -> None:
        self.folder, self.backend = folder, backend
        self.writer = Writer(backend)
        self.waits = True
        """Whether reads wait for a database that cannot be reached at the moment."""

    @classmethod
    def at(cls, place: Path | URL, folder: Path, *, create: bool = False) -> Database:
        """Open the database of a service. `place` is the folder or the URL of the database; `folder` is the local
        folder (see `Database`) if `place` is a URL. Raises StoreError if the database cannot be opened."""
        _make(folder)
        if isinstance(place, Path):
            _refuse_earlier(place)
            return cls(place, SqliteBackend(place, create=create or not is_store(place)))
        return cls(folder, STORES.load(place.get_backend_name()).open(place, create=create))

    @property
    def shared(self) -> bool:
        """Whether other machines also write to the database."""
        return self.backend.shared

    def rows(self, query: Any) -> list[Any]:
        """Return the rows of a query, as named tuples."""
        return self.backend.rows(query, self.waits)

    def do(self, change: Callable[[Transaction], T], space: str = "") -> Future[T]:
        """Make a change (see `Writer.do`)."""
        return self.writer.do(change, space)

    def find(self, name: str) -> Any:
        """Return the row of the space with this name, or None."""
        t = schema.spaces
        return next(iter(self.rows(select(t).where(t.c.name == name))), None)

    def live(self, name: str) -> str | None:
        """Return the id of the live space with this name, or None."""
        row = self.find(name)
        return None if row is None or row.state != "live" else str(row.space)

    def require(self, name: str) -> Any:
        """Return the row of the space with this name. Raises NotARun if no space has the name."""
        if (row := self.find(name)) is None:
            names = self.names()
            listed = f": use one of {', '.join(names[:5])}{', ...' if names[5:] else ''}" if names else ""
            raise NotARun("run.not_found", f"{self.backend.name} has no space named {name}{listed}")
        return row

    def names(self) -> list[str]:
        """Return the names of the live spaces, sorted."""
        t = schema.spaces
        return sorted(row.name for row in self.rows(select(t.c.name).where(t.c.state == "live")))

    def names_of(self, ids: Collection[str]) -> dict[str, str]:
        """Return the names of the spaces with these ids, by id."""
        t = schema.spaces
        return {row.space: row.name for row in self.rows(self.of_spaces(t, ids, (t.c.name,)))}

    def named_as(self, names: Iterable[str]) -> Select[Any]:
        """Build a query for the names and ids of the spaces with these names."""
        t = schema.spaces
        return select(t.c.name, t.c.space).where(t.c.name.in_([*names]))

    def of_spaces(self, table: Table, spaces: Iterable[str], columns: Sequence[Any] = ()) -> Select[Any]:
        """Build a query for rows of several spaces; the first column is the id of the space."""
        return select(table.c.space, *columns).where(table.c.space.in_([*spaces]))

    def files(self, name: str, space: str) -> Path:
        """Return the folder with the caches and logs of a space. The folder may not exist. For a space in a database
        file, raises StoreError if the name is not valid, because a path with such a name may lead out of the folder of
        the database."""
        if self.shared:
            return self.folder / SPACES / f"{quote(name, safe='')}.{space}"
        if not SPACE_NAME.fullmatch(name):
            raise StoreError(
                "store.unsafe",
                f"{self.folder} was not opened, because its space name {name!r:.80} is not valid",
            )
        return self.folder if name == DEFAULT else self.folder / SPACES / name

    def store(self, name: str, space: str) -> Store:
        """Return the rows of a space, for reading and for short writes. The database stays open when the returned store
        is closed."""
        files = self.files(name, space)
        return Store(self, name, space, self.folder if files == self.folder else self.folder / SPACES / name, files)

    def named(self, name: str) -> Store:
        """Return the rows of the space with this name. Raises NotARun if no space has the name."""
        return self.store(name, self.require(name).space)

    def create(self, name: str) -> Store:
        """Reserve a space with this name and open it for writing, so that the caller can write the first version of the
        space. Raises StoreError if a live space has this name, RunBusy if another process is creating the space."""
        row = self.do(lambda at: reserve_space(at.db, name)).result()
        if row.state == "live":
            raise StoreError("run.exists", f"{self.backend.name} already has a space named {name}: choose another name")
        files = self.files(name, row.space)
        if files != self.folder:
            # Delete the files of an earlier space with this name.
            shutil.rmtree(files, ignore_errors=True)
        return self.store(name, row.space).leased()

    def remove(self, store: Store) -> int:
        """Remove a space with all its data, and return the number of removed rows."""

        def change(at: Transaction) -> int:
            self.backend.drop_index(at.db, store.space)
            at.shows = True
            return remove_space(at.db, store.space)

        removed = store.change(change)
        if store.files == self.folder:
            remove_index_files(store.files)
            (store.files / FLIGHT_FILE).unlink(missing_ok=True)
            empty_log(store.files)
        else:
            shutil.rmtree(store.files, ignore_errors=True)
        return removed

    def close(self) -> None:
        """Write all queued rows, and close the database."""
        self.writer.close()
        self.backend.close()


class Store(Scope):
    """The rows of one space in an open database.

    `folder` is the path of the space as the user wrote it; `files` is the folder with the caches and logs of the space.
    """

    def __init__(
        self, database: Database, name: str, space: str, folder: Path, files: Path, *, read_only: bool = False,
        owns: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(space)
        self.database, self.name, self.folder, self.files = database, name, folder, files
        self.read_only = read_only
        self.trusted = True
        """Whether the index of the space may be opened. A crafted index file can crash the library that reads index
        files."""
        self.flight = Flight()
        self.has_forgotten = False
        """Whether an interrupted `forget` was completed when the store was opened."""
        self._owns = owns
        self._writing: Writing | None = None

    @classmethod
    def create(cls, folder: Path, url: str | None = None, name: str | None = None) -> Store:
        """Create a space and open it for writing. The space is the only space of a new store in `folder`; if `folder`
        is STORE/spaces/NAME, it is a space of the existing store STORE. With `url`, the rows are stored in a PostgreSQL
        database, under `name` (None: the name of the folder).

        A space without rows, which a killed process may leave, is taken over. Raises StoreError if the folder already
        contains a space, the name is in use, or the store cannot be created; UsageError for a URL that is not valid.
        """
        kind, where = (None, None) if url is None else store_at(url)
        path, elsewhere = folder, None
        if where is None and folder.parent.name == SPACES and is_store(folder.parent.parent):
            folder, name = folder.parent.parent, folder.name
            require_space_name(name)
        _make(folder)
        _refuse_earlier(folder)
        exists = f"{path} already contains a run: continue the run (practicum space resume {path}) or use another `out`"
        if kind is None or where is None:
            if (folder / STORE_FILE).exists():
                raise StoreError("run.exists", exists)
            refuse_links(folder)
            database, name = Database(folder, SqliteBackend(folder, create=True)), name or DEFAULT
        else:
            name = name or folder.resolve().name
            elsewhere = Elsewhere(kind.address(where), name)
            if is_store(folder) and read_elsewhere(folder) != elsewhere:
                raise StoreError("run.exists", exists)
            database = Database(folder, kind.open(where, create=True))
            exists = (
                f"{elsewhere.store} already has a run named {name}: use another folder name for the new run, or "
                "continue the existing run in a folder created by practicum store connect"
            )
        try:
            row = database.do(lambda at: reserve_space(at.db, name)).result()
            if row.state == "live":
                raise StoreError("run.exists", exists)
            files = folder if database.shared else database.files(name, row.space)
            store = cls(database, name, row.space, path, files, owns=True)._take()
            if not store.change(is_empty):
                store.close()
                raise StoreError("run.exists", exists)
            if elsewhere is not None:
                write_elsewhere(folder, elsewhere)
            return store
        except BaseException:
            database.close()
            raise

    @classmethod
    def connect(cls, folder: Path, url: str, name: str) -> Store:
        """Create a folder for a space in a PostgreSQL database, and open the space read-only.

        Raises NotARun if the database has no space with this name, UsageError for a URL that is not valid or a folder
        that exists.
        """
        kind, where = store_at(url)
        if folder.exists():
            raise UsageError("file.exists", f"{folder} exists: use a new folder")
        database = Database(folder, kind.open(where, create=False))
        try:
            database.require(name)
            make_folder(folder)
            write_elsewhere(folder, Elsewhere(kind.address(where), name))
        finally:
            database.close()
        return cls.read(folder)

    @classmethod
    def open(cls, path: Path) -> Store:
        """Open an existing space for writing, and migrate its database to the newest format.

        Raises NotARun if the space does not exist, RunBusy if another process has opened the space for writing.
        """
        store = cls._at(path, create=True)
        try:
            return store._take()
        except BaseException:
            store.database.close()
            raise

    @classmethod
    def read(cls, path: Path) -> Store:
        """Open an existing space read-only.

        Raises NotARun if the space does not exist, StoreError if this version of practicum cannot read the format of
        the store.
        """
        return cls._at(path, read_only=True)

    @classmethod
    def open_shared(cls, path: Path) -> Store:
        """Open an existing space for short writes, also while another process has the lease.

        Raises NotARun if the space does not exist, StoreError if the store cannot be opened for writing.
        """
        return cls._at(path)

    @classmethod
    def _at(cls, path: Path, *, create: bool = False, read_only: bool = False) -> Store:
        folder, name = located(path)
        refuse_links(folder)
        elsewhere = read_elsewhere(folder)
        if elsewhere is None:
            database = Database(folder, SqliteBackend(folder, create=create, read_only=read_only))
        else:
            kind, url = store_at(elsewhere.store)
            database, name = Database(folder, kind.open(url, create=create)), elsewhere.space
        try:
            with as_stored(folder):
                row = _the_space(database, name, path)
            files = folder if elsewhere is not None else database.files(row.name, row.space)
            refuse_links(files)
            return cls(database, row.name, row.space, path, files, read_only=read_only, owns=True)
        except BaseException:
            database.close()
            raise

    def leased(self) -> Store:
        """Return the same space as a store that is open for writing. Closing the returned store releases the lease.
        Raises RunBusy if another process has the lease."""
        return Store(self.database, self.name, self.space, self.folder, self.files)._take()

    def _take(self) -> Store:
        refuse_links(self.files)
        self._writing = Writing(self.space, self.database.backend.lease(self.space, self.files))
        try:
            with as_stored(self.folder):
                self._book_left_in_flight()
            (self.files / FLIGHT_FILE).unlink(missing_ok=True)
            self.has_forgotten = self.finish_forgetting()
            _make(self.files)
        except BaseException:
            self._writing.lease.close()
            raise
        self.flight = Flight(self.files)
        return self

    @property
    def learns(self) -> bool:
        """Whether the space is open for writing by a learner."""
        return self._writing is not None

    @property
    def is_written(self) -> bool:
        """Whether another process has the lease to write what the space learns."""
        return self._writing is None and self.database.backend.is_leased(self.space, self.files)

    @property
    def is_served(self) -> bool:
        """Whether another process serves the space (see `Backend.is_served`). A process that serves the space tests new
        versions before all agents see them."""
        return self.database.backend.is_served()

    def changes(self) -> int:
        """Return a number that changes with each change of the content that the space shows (see `Backend.changes`)."""
        return self.database.backend.changes(self.space)

    def rows(self, query: Any) -> list[Any]:
        """Return the rows of a query, as named tuples."""
        return self.database.backend.rows(query, self.learns or self.database.waits)

    def do(self, change: Callable[[Transaction], T]) -> Future[T]:
        """Change the space, excluding other writers. The future completes when the change is on disk."""
        if self.read_only:
            raise StoreError("store.unwritable", f"{self.folder} is open read-only")
        self._raise_failure()
        return self.database.writer.do(change, self.space, self._writing)

    def change(self, change: Callable[[Transaction], T]) -> T:
        """Make a change, and wait until it is on disk."""
        return self.do(change).result()

    async def write(self, table: Table, rows: Sequence[RowValues]) -> None:
        """Insert or replace rows, and return when they are on disk."""
        await asyncio.wrap_future(self._put(table, rows))

    def post(self, table: Table, rows: Sequence[RowValues]) -> None:
        """Insert or replace rows without waiting. The rows are written before any later write, at the latest on close.

        Use `post` for rows that a resume can create again, and for rows that only later writes depend on. If the rows
        cannot be written, the next write raises the error. If no write follows, the end of the store's `with` block
        raises the error.
        """
        if rows:
            self._raise_failure()
            self._put(table, rows)

    def _put(self, table: Table, rows: Sequence[RowValues]) -> Future[None]:
        if self._writing is None:
            raise StoreError("store.unwritable", f"{self.folder} is not open for writing by a learner")
        return self.database.writer.write(table, self.of_space(rows), self._writing)

    async def flush(self) -> None:
        """Wait until all posted rows are on disk."""
        await self.write(schema.steps, [])

    def _raise_failure(self) -> None:
        """If an earlier write failed, raise the error of that write, because later writes may depend on the rows of
        that write."""
        if self._writing is not None and self._writing.failure is not None:
            raise self._writing.failure

    def all_files(self) -> list[Path]:
        """Return the files that may contain data of the space: all files in the folder of the space and in the folder
        of the database."""
        folders = {self.files, self.database.folder}
        return [path for folder in folders if folder.is_dir() for path in folder.iterdir() if path.is_file()]

    def in_other_spaces(self, pieces: Collection[bytes]) -> set[bytes]:
        """Return the items of `pieces` that occur in rows of spaces other than this space."""
        matches, remaining = set[bytes](), {*pieces}
        for table in schema.metadata.sorted_tables if remaining else ():
            others = select(table).where(table.c.space != self.space).execution_options(yield_per=PART)
            with self.database.backend.engine.connect() as db:
                for row in db.execute(others):
                    text = "\0".join(value for value in row if isinstance(value, str)).encode(errors="replace")
                    matching = {piece for piece in remaining if piece in text}
                    matches |= matching
                    remaining -= matching
        return matches

    def remove_index(self) -> None:
        """Delete the index of the space in the folder and in the database. The index can be rebuilt."""
        remove_index_files(self.files)
        self.change(lambda at: self.database.backend.drop_index(at.db, self.space))

    def scrub(self) -> None:
        """Overwrite deleted rows, so that no deleted text remains in the database file or its write-ahead log. All
        processes that have the space open then load the space again. A PostgreSQL server only marks the storage of the
        rows as free, and overwrites it later.

        Raises StoreError if another process is reading the database file, because SQLite then cannot truncate the
        write-ahead log.
        """
        t = schema.spaces
        self.change(lambda at: at.run(at.update(t).values(rewritten=t.c.rewritten + 1)))
        self.database.backend.scrub()

    @property
    def is_forgetting(self) -> bool:
        """Whether rows were permanently removed from the space, but bytes of these rows may remain in files."""
        return [row.learning for row in self.rows(self.select(schema.spaces.c.learning))] == [schema.FORGETTING]

    def finish_forgetting(self) -> bool:
        """Scrub the space if rows were permanently removed after the last scrub. Returns whether the space was
        scrubbed. Raises StoreError on failure; then the next process that opens the space for writing tries again."""
        t = schema.spaces
        if not self.is_forgetting:
            return False
        self.scrub()
        empty_log(self.files)
        self.change(lambda at: at.run(at.update(t).values(learning=schema.FORGOTTEN)))
        return True

    def remove(self) -> int:
        """Remove all rows of the space, remove its name, and release the lease. Returns the number of removed rows."""
        removed = self.database.remove(self)
        if self._writing is not None:
            self._writing.lease.close()
            self._writing = None
        return removed

    def release(self) -> None:
        """Free the cache of the database."""
        self.database.backend.release()

    def close(self) -> None:
        """Write all queued rows, and close the space."""
        if self._writing is not None:
            with suppress(StoreError, UsageError):
                # All posted rows are written before the lease is released.
                self._put(schema.steps, []).result()
        self.flight.close()
        if self._writing is not None:
            self._writing.lease.close()
        if self._owns:
            self.database.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, *_: object) -> None:
        self.close()
        if self.read_only and error is not None:
            with as_stored(self.folder):
                raise error
        if kind is None:
            # Raise the error of the last posted rows if they could not be written: no later write has raised this
            # error.
            self._raise_failure()

    def batched(self) -> dict[str, Any]:
        """Return the last batch in which each request was sent, by the key of the request (`flight.key_of`, in
        hexadecimal digits). A batch is the value that `Journal.note_batch` received."""
        t = schema.journal.c
        noted = self.rows(self.select(t.answer, ROW).where(t.place.startswith(schema.BATCH)).order_by(ROW))
        notes = [json.loads(row.answer) for row in noted]
        return {key: note["batch"] for note in notes for key in note["keys"]}

    def _book_left_in_flight(self) -> None:
        """Record in the journal, as spent, the calls that were in flight when an earlier process was killed."""

        def paid() -> Iterable[bytes]:
            # The answers of a batch are collected later, so the call is recorded as spent when its answer is journaled.
            yield from (bytes.fromhex(key) for key in self.batched())
            t = schema.journal.c
            for row in self.rows(self.select(t.place, t.digest).where(t.calls > 0)):
                yield key_of(row[0], row[1])

        rows = [
            {
                "place": f"{IN_FLIGHT} {sent.id}", "role": IN_FLIGHT, "digest": "", "ok": 1,
                "answer": json.dumps(["", False]), "seconds": 0.0, "sources": "[]",
                **{name: getattr(sent.usage, name) for name in schema.USAGE},
            }
            for sent in left_in_flight(self.files, paid)
        ]  # fmt: skip
        if rows:
            # If this process is killed before it deletes FLIGHT_FILE, the next process replaces these rows by equal
            # rows.
            self.change(lambda at: at.put(schema.journal, *rows))


def _the_space(database: Database, name: str | None, path: Path) -> Any:
    """Return the row of the space with this name. If the name is None, return the row of the only space, or of the
    space DEFAULT if the database has several spaces. Raises NotARun without such a space."""
    t = schema.spaces
    if name is not None:
        return database.require(name)
    rows = {row.name: row for row in database.rows(select(t).order_by(t.c.name).limit(100))}
    if len(rows) == 1:
        return next(iter(rows.values()))
    if DEFAULT in rows:
        return rows[DEFAULT]
    if not rows:
        raise NotARun(
            "run.not_found",
            f"{path} contains no run: the run was stopped before it wrote anything; start the run again",
        )
    names = [*rows]
    raise NotARun(
        "space.required",
        f"{path} contains several spaces ({', '.join(names[:5])}): use the path of one space, such as "
        f"{path / SPACES / names[0]}",
    )


def is_space(path: Path) -> bool:
    """Whether a path is a store, or an existing space of a store. If the path is a store, its database is not
    opened."""
    if is_store(path) or not is_run(path):
        return is_store(path)
    database = Database(path.parent.parent, SqliteBackend(path.parent.parent, read_only=True))
    try:
        return database.find(path.name) is not None
    finally:
        database.close()


def _make(folder: Path) -> None:
    try:
        make_folder(folder)
    except OSError as error:
        raise StoreError("store.unwritable", f"cannot create the folder {folder}: {error.strerror}") from error


def _refuse_earlier(folder: Path) -> None:
    """Raise StoreError if an earlier version of practicum created the folder."""
    if not is_store(folder):
        with suppress(NotARun):
            located(folder)


DAMAGED = (ValueError, TypeError, LookupError, AttributeError, RecursionError, ArithmeticError, AssertionError)
"""Errors raised by code that reads rows with unexpected values."""


@contextmanager
def as_stored(folder: Path) -> Iterator[None]:
    """Convert the errors that unexpected values in rows cause (DAMAGED) into StoreError."""
    try:
        yield
    except DAMAGED as error:
        raise StoreError(
            "store.damaged",
            f"{folder} contains values that practicum never writes ({one_line(error_line(error), 200)}): restore the "
            "folder from a copy. If no other program changed the folder, this is a bug in practicum (--debug shows "
            "where)",
        ) from error
