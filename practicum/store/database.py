"""Open stores: a database that holds spaces, and the rows of one space in it.

A write returns once its rows are safe. All writes of a process to a database go through one thread (see `writer`). Any
number of processes may read a space; one at a time has the lease to write what it learns.
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
from practicum.store.flight import FLIGHT_FILE, Flight, left_in_flight
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
"""Rows that are read at a time."""


class Database:
    """An open database with spaces. `folder` is that of its file, or one of this machine's own, for logs and for what
    can be made again."""

    def __init__(self, folder: Path, backend: Backend) -> None:
        self.folder, self.backend = folder, backend
        self.writer = Writer(backend)
        self.waits = True
        """Whether reads wait for a database that is away for a moment."""

    @classmethod
    def at(cls, place: Path | URL, folder: Path, *, create: bool = False) -> Database:
        """The database of a service: a folder, or at a URL, with a folder of this machine's own. Raises StoreError if
        it cannot be opened."""
        _make(folder)
        if isinstance(place, Path):
            _refuse_earlier(place)
            return cls(place, SqliteBackend(place, create=create or not is_store(place)))
        return cls(folder, STORES.load(place.get_backend_name()).open(place, create=create))

    @property
    def shared(self) -> bool:
        """Whether other machines write to it too."""
        return self.backend.shared

    def rows(self, query: Any) -> list[Any]:
        """The rows of a query, as named tuples."""
        return self.backend.rows(query, self.waits)

    def do(self, change: Callable[[Transaction], T], space: str = "") -> Future[T]:
        """Make a change (see `Writer.do`)."""
        return self.writer.do(change, space)

    def find(self, name: str) -> Any:
        """The row of the space with this name; None if there is none."""
        t = schema.spaces
        return next(iter(self.rows(select(t).where(t.c.name == name))), None)

    def live(self, name: str) -> str | None:
        """The id of the live space with this name; None if there is none."""
        row = self.find(name)
        return None if row is None or row.state != "live" else str(row.space)

    def require(self, name: str) -> Any:
        """The row of the space with this name. Raises NotARun if there is none."""
        if (row := self.find(name)) is None:
            names = self.names()
            known = f": it holds {', '.join(names[:5])}{', ...' if names[5:] else ''}" if names else ""
            raise NotARun("run.not_found", f"{self.backend.name} holds no space named {name}{known}")
        return row

    def names(self) -> list[str]:
        """The live spaces, in the order of their names."""
        t = schema.spaces
        return sorted(row.name for row in self.rows(select(t.c.name).where(t.c.state == "live")))

    def names_of(self, ids: Collection[str]) -> dict[str, str]:
        """The names of the spaces with these ids, by id."""
        t = schema.spaces
        return {row.space: row.name for row in self.rows(self.of_spaces(t, ids, (t.c.name,)))}

    def named_as(self, names: Iterable[str]) -> Select[Any]:
        """A query of the names and ids of spaces with these names."""
        t = schema.spaces
        return select(t.c.name, t.c.space).where(t.c.name.in_([*names]))

    def of_spaces(self, table: Table, spaces: Iterable[str], columns: Sequence[Any] = ()) -> Select[Any]:
        """A query of the rows of several spaces, whose results begin with the id of the space."""
        return select(table.c.space, *columns).where(table.c.space.in_([*spaces]))

    def files(self, name: str, space: str) -> Path:
        """The folder of a space, with its caches and logs. It need not be there. Raises StoreError for a name that
        practicum gives no space of a file, and that may lead out of the folder."""
        if self.shared:
            return self.folder / SPACES / f"{quote(name, safe='')}.{space}"
        if not SPACE_NAME.fullmatch(name):
            raise StoreError(
                "store.unsafe",
                f"{self.folder} is not opened: it has a space named {name!r:.80}, which practicum never makes",
            )
        return self.folder if name == DEFAULT else self.folder / SPACES / name

    def store(self, name: str, space: str) -> Store:
        """The rows of a space, for reading and for short writes. Closing it leaves the database open."""
        files = self.files(name, space)
        return Store(self, name, space, self.folder if files == self.folder else self.folder / SPACES / name, files)

    def named(self, name: str) -> Store:
        """The rows of the space with this name. Raises NotARun if there is none."""
        return self.store(name, self.require(name).space)

    def create(self, name: str) -> Store:
        """A space of this name that is reserved, open for writing, for who writes what it starts from. Raises
        StoreError if it is live, RunBusy if another process is making it."""
        row = self.do(lambda at: reserve_space(at.db, name)).result()
        if row.state == "live":
            raise StoreError("run.exists", f"{self.backend.name} has a space named {name} already")
        files = self.files(name, row.space)
        if files != self.folder:
            # What is left of an earlier space of this name.
            shutil.rmtree(files, ignore_errors=True)
        return self.store(name, row.space).leased()

    def remove(self, store: Store) -> int:
        """Remove a space with all that is kept of it; returns how many rows that were."""

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
        """Write what is queued, and release the database."""
        self.writer.close()
        self.backend.close()


class Store(Scope):
    """The rows of one space in an open database.

    `folder` is its path as a user gives it; `files` is the folder with its caches and logs.
    """

    def __init__(
        self, database: Database, name: str, space: str, folder: Path, files: Path, *, read_only: bool = False,
        owns: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(space)
        self.database, self.name, self.folder, self.files = database, name, folder, files
        self.read_only = read_only
        self.trusted = True
        """Whether its index may be opened. A library reads it that a crafted file can crash."""
        self.flight = Flight()
        self.has_forgotten = False
        """Whether a `forget` that was interrupted was finished when this was opened."""
        self._owns = owns
        self._writing: Writing | None = None

    @classmethod
    def create(cls, folder: Path, url: str | None = None, name: str | None = None) -> Store:
        """Make a new store with one space, or the space STORE/spaces/NAME in a store, open for writing. With `url` its
        rows are in a PostgreSQL database, under a name (the folder's if None).

        A space without rows, which a killed process may leave, is taken over. Raises StoreError if the folder holds a
        space already, if the name is taken, or if it cannot be made; UsageError for a wrong URL.
        """
        kind, where = (None, None) if url is None else store_at(url)
        path, elsewhere = folder, None
        if where is None and folder.parent.name == SPACES and is_store(folder.parent.parent):
            folder, name = folder.parent.parent, folder.name
            require_space_name(name)
        _make(folder)
        _refuse_earlier(folder)
        held = f"{path} already holds a run: continue it with practicum space resume {path}, or give another `out`"
        if kind is None or where is None:
            if (folder / STORE_FILE).exists():
                raise StoreError("run.exists", held)
            refuse_links(folder)
            database, name = Database(folder, SqliteBackend(folder, create=True)), name or DEFAULT
        else:
            name = name or folder.resolve().name
            elsewhere = Elsewhere(kind.address(where), name)
            if is_store(folder) and read_elsewhere(folder) != elsewhere:
                raise StoreError("run.exists", held)
            database = Database(folder, kind.open(where, create=True))
            held = (
                f"{elsewhere.store} has a run named {name} already: give the new one another folder name, or continue "
                "that one in a folder that practicum store connect makes"
            )
        try:
            row = database.do(lambda at: reserve_space(at.db, name)).result()
            if row.state == "live":
                raise StoreError("run.exists", held)
            files = folder if database.shared else database.files(name, row.space)
            store = cls(database, name, row.space, path, files, owns=True)._take()
            if not store.change(is_empty):
                store.close()
                raise StoreError("run.exists", held)
            if elsewhere is not None:
                write_elsewhere(folder, elsewhere)
            return store
        except BaseException:
            database.close()
            raise

    @classmethod
    def connect(cls, folder: Path, url: str, name: str) -> Store:
        """Make a folder for a space that is in a PostgreSQL database, and open it read-only.

        Raises NotARun if the database has no space of this name, UsageError for a wrong URL or a folder that is there.
        """
        kind, where = store_at(url)
        if folder.exists():
            raise UsageError("file.exists", f"{folder} exists: give a new folder")
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
        """Open an existing space for writing and bring the format of its database up to date.

        Raises NotARun if there is none, RunBusy if it is open for writing elsewhere.
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

        Raises NotARun if there is none, StoreError if this version does not read its format.
        """
        return cls._at(path, read_only=True)

    @classmethod
    def beside(cls, path: Path) -> Store:
        """Open an existing space for short writes, also while another process has the lease.

        Raises NotARun if there is none, StoreError if it cannot be written to.
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
        """The same space, open for writing; closing it gives the lease back. Raises RunBusy if somebody else has it."""
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
        """Whether it is open for writing what the space learns."""
        return self._writing is not None

    @property
    def is_written(self) -> bool:
        """Whether another process has the lease."""
        return self._writing is None and self.database.backend.is_leased(self.space, self.files)

    @property
    def is_served(self) -> bool:
        """Whether another process serves the space, or may: it tries what was learned before all agents see it."""
        return self.database.backend.is_served()

    def changes(self) -> int:
        """A number that differs after each change of what the space shows (see `Backend.changes`)."""
        return self.database.backend.changes(self.space)

    def rows(self, query: Any) -> list[Any]:
        """The rows of a query, as named tuples."""
        return self.database.backend.rows(query, self.learns or self.database.waits)

    def do(self, change: Callable[[Transaction], T]) -> Future[T]:
        """Make a change of the space beside nobody else's; the future ends when it is on the disk."""
        if self.read_only:
            raise StoreError("store.unwritable", f"{self.folder} is open for reading alone")
        self._raise_failure()
        return self.database.writer.do(change, self.space, self._writing)

    def change(self, change: Callable[[Transaction], T]) -> T:
        """Make a change, and wait until it is on the disk."""
        return self.do(change).result()

    async def write(self, table: Table, rows: Sequence[RowValues]) -> None:
        """Insert or replace rows, and return once they are on the disk."""
        await asyncio.wrap_future(self._put(table, rows))

    def post(self, table: Table, rows: Sequence[RowValues]) -> None:
        """Insert or replace rows without waiting: they are written before any later write, at the latest on close.

        For rows that a resume can make again, and for rows that only later writes depend on. An error is raised by the
        next write, at the latest by the end of the store's `with` block.
        """
        if rows:
            self._raise_failure()
            self._put(table, rows)

    def _put(self, table: Table, rows: Sequence[RowValues]) -> Future[None]:
        if self._writing is None:
            raise StoreError("store.unwritable", f"{self.folder} is not open for writing what it learns")
        return self.database.writer.write(table, self.of_space(rows), self._writing)

    async def flush(self) -> None:
        """Wait until all posted rows are on the disk."""
        await self.write(schema.steps, [])

    def _raise_failure(self) -> None:
        """Raise the error of an earlier write, on which what is written now may depend."""
        if self._writing is not None and self._writing.failure is not None:
            raise self._writing.failure

    def all_files(self) -> list[Path]:
        """The files that may hold something of the space: its own, and those of a database in the folder."""
        folders = {self.files, self.database.folder}
        return [path for folder in folders if folder.is_dir() for path in folder.iterdir() if path.is_file()]

    def said_elsewhere(self, pieces: Collection[bytes]) -> set[bytes]:
        """Those of some pieces of texts that rows of other spaces hold."""
        found, left = set[bytes](), {*pieces}
        for table in schema.metadata.sorted_tables if left else ():
            others = select(table).where(table.c.space != self.space).execution_options(yield_per=PART)
            with self.database.backend.engine.connect() as db:
                for row in db.execute(others):
                    text = "\0".join(value for value in row if isinstance(value, str)).encode(errors="replace")
                    here = {piece for piece in left if piece in text}
                    found |= here
                    left -= here
        return found

    def remove_index(self) -> None:
        """Delete the index of the space, wherever it is. It can be made again."""
        remove_index_files(self.files)
        self.change(lambda at: self.database.backend.drop_index(at.db, self.space))

    def scrub(self) -> None:
        """Overwrite deleted rows, so that no deleted text stays in the database file or its write-ahead log, and let
        all who have the space open read it anew. A PostgreSQL server only makes their space free, and writes over it
        later.

        Raises StoreError if another process reads the file and so keeps the log from being truncated.
        """
        t = schema.spaces
        self.change(lambda at: at.run(at.update(t).values(rewritten=t.c.rewritten + 1)))
        self.database.backend.scrub()

    @property
    def is_forgetting(self) -> bool:
        """Whether rows were removed from the space for good, and their bytes may be left."""
        return [row.learning for row in self.rows(self.select(schema.spaces.c.learning))] == [schema.FORGETTING]

    def finish_forgetting(self) -> bool:
        """Scrub the space if rows were removed from it for good and it was not scrubbed since. Returns whether they
        were. Raises StoreError, and the next one who opens it for writing tries again, if that cannot be done."""
        t = schema.spaces
        if not self.is_forgetting:
            return False
        self.scrub()
        empty_log(self.files)
        self.change(lambda at: at.run(at.update(t).values(learning=schema.FORGOTTEN)))
        return True

    def remove(self) -> int:
        """Remove all rows of the space, with its name, and give the lease back; returns how many rows that were."""
        removed = self.database.remove(self)
        if self._writing is not None:
            self._writing.lease.close()
            self._writing = None
        return removed

    def release(self) -> None:
        """Give back the memory that keeps what was read quick to read again."""
        self.database.backend.release()

    def close(self) -> None:
        """Write what is queued and release the space."""
        if self._writing is not None:
            with suppress(StoreError, UsageError):
                # All that was posted is written before the lease ends.
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
            # Nobody waited for the rows that were posted.
            self._raise_failure()

    def _book_left_in_flight(self) -> None:
        """Move what an earlier process had in flight when it was killed into the journal, as calls that are spent."""

        def paid() -> Iterable[tuple[str, str]]:
            t = schema.journal.c
            for row in self.rows(self.select(t.place, t.digest).where(t.calls > 0)):
                yield row[0], row[1]

        rows = [
            {
                "place": f"{IN_FLIGHT} {sent.id}", "role": IN_FLIGHT, "digest": "", "ok": 1,
                "answer": json.dumps(["", False]), "seconds": 0.0, "sources": "[]",
                **{name: getattr(sent.usage, name) for name in schema.USAGE},
            }
            for sent in left_in_flight(self.files, paid)
        ]  # fmt: skip
        if rows:
            # The same again, should this process be killed before the file is gone.
            self.change(lambda at: at.put(schema.journal, *rows))


def _the_space(database: Database, name: str | None, path: Path) -> Any:
    """The row of a space of a database: of this name, or of the only or the default one. Raises NotARun."""
    t = schema.spaces
    if name is not None:
        return database.require(name)
    found = {row.name: row for row in database.rows(select(t).order_by(t.c.name).limit(100))}
    if len(found) == 1:
        return next(iter(found.values()))
    if DEFAULT in found:
        return found[DEFAULT]
    if not found:
        raise NotARun(
            "run.not_found", f"{path} holds no run: it was stopped before anything was written; start it again"
        )
    names = [*found]
    raise NotARun(
        "space.required",
        f"{path} holds several spaces ({', '.join(names[:5])}): give one of them, such as {path / SPACES / names[0]}",
    )


def is_space(path: Path) -> bool:
    """Whether a path is that of a space, or of a store whose space is not known before it is opened."""
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
        raise StoreError("store.unwritable", f"cannot make the folder {folder}: {error.strerror}") from error


def _refuse_earlier(folder: Path) -> None:
    """Raises StoreError for a folder that an earlier practicum made."""
    if not is_store(folder):
        with suppress(NotARun):
            located(folder)


DAMAGED = (ValueError, TypeError, LookupError, AttributeError, RecursionError, ArithmeticError, AssertionError)
"""What code raises that reads rows with other values than it expects."""


@contextmanager
def as_stored(folder: Path) -> Iterator[None]:
    """Raise what comes of rows that are not as practicum writes them as StoreError."""
    try:
        yield
    except DAMAGED as error:
        raise StoreError(
            "store.damaged",
            f"{folder} holds something that practicum does not write ({one_line(error_line(error), 200)}): restore it "
            "from a copy; if nobody changed it, this is a bug in practicum (--debug shows where)",
        ) from error
