"""An open run: its rows in a database, behind one writer thread, and one writing process at a time.

A write returns once its rows are safe. Writes that arrive during a commit share the next one, so many calls in flight
cost one flush and not one each.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

from sqlalchemy import Connection, Select, Table, TextClause

from practicum.core.errors import StoreError, UsageError
from practicum.core.files import make_folder
from practicum.core.words import error_line, one_line
from practicum.store import schema
from practicum.store.backend import Backend, store_at
from practicum.store.dialects import upsert
from practicum.store.flight import FLIGHT_FILE, Flight, left_in_flight
from practicum.store.folder import (
    STORE_FILE,
    Elsewhere,
    empty_log,
    is_run,
    must_be_run,
    read_elsewhere,
    refuse_links,
    remove_index_files,
    write_elsewhere,
)
from practicum.store.schema import IN_FLIGHT
from practicum.store.scope import RowValues, Scope, Transaction
from practicum.store.sqlite import SqliteRun


class _Write(NamedTuple):
    table: Table
    rows: Sequence[RowValues]
    done: asyncio.Future[None] | None


class Store(Scope):
    """An open run. Any number of processes may have it open read-only, also while one writes to it.

    `folder` is that of the run, with its logs and caches; its rows are there or in a database that it names.
    """

    def __init__(self, folder: Path, backend: Backend, *, read_only: bool = False) -> None:
        super().__init__(backend.space)
        self.folder = folder
        self.read_only = read_only
        self.trusted = True
        """Whether its index may be opened. A library reads it that a crafted file can crash."""
        self.backend = backend
        self.flight = Flight()
        self.has_forgotten = False
        """Whether a `forget` that was interrupted was finished when this was opened."""
        self._queue: SimpleQueue[_Write | None] = SimpleQueue()
        self._failure: StoreError | None = None
        self._thread: threading.Thread | None = None

    @classmethod
    def create(cls, folder: Path, url: str | None = None, name: str | None = None) -> Store:
        """Make a new run folder. With `url` its rows are in a PostgreSQL database, under a name (the folder's if None).

        A run without rows, which a killed process may leave, is taken over. Raises StoreError if the folder holds a run
        already, if the name is taken, or if it cannot be made; UsageError for a wrong URL.
        """
        kind, where = (None, None) if url is None else store_at(url)
        try:
            make_folder(folder)
        except OSError as error:
            raise StoreError("store.unwritable", f"cannot make the run folder {folder}: {error.strerror}") from error
        if kind is None or where is None:
            if (folder / STORE_FILE).exists():
                raise StoreError(
                    "run.exists", f"{folder} already holds a run: continue it with practicum resume {folder}"
                )
            return cls._write_to(folder, new=True)
        elsewhere = Elsewhere(kind.address(where), name or folder.resolve().name)
        begun = is_run(folder)
        if (begun and read_elsewhere(folder) != elsewhere) or not kind.reserve(where, elsewhere.run):
            if begun:
                raise StoreError(
                    "run.exists",
                    f"{folder} already holds a run: continue it with practicum resume {folder}, or give another `out`",
                )
            raise StoreError(
                "run.exists",
                f"{elsewhere.store} has a run named {elsewhere.run} already: give the new one another folder name, or "
                "continue that one in a folder that practicum store connect makes",
            )
        write_elsewhere(folder, elsewhere)
        return cls._write_to(folder)

    @classmethod
    def connect(cls, folder: Path, url: str, name: str) -> Store:
        """Make a folder for a run that is in a PostgreSQL database, and open it read-only.

        Raises NotARun if the database has no run of this name, UsageError for a wrong URL or a folder that is there.
        """
        kind, where = store_at(url)
        if folder.exists():
            raise UsageError("file.exists", f"{folder} exists: give a new folder")
        backend = kind.open(where, name, writer=False, read_only=True)
        make_folder(folder)
        write_elsewhere(folder, Elsewhere(kind.address(where), name))
        return cls(folder, backend, read_only=True)

    @classmethod
    def open(cls, folder: Path) -> Store:
        """Open an existing run for writing and bring its format up to date.

        Raises NotARun if there is none, RunBusy if it is open for writing elsewhere.
        """
        must_be_run(folder)
        return cls._write_to(folder)

    @classmethod
    def read(cls, folder: Path) -> Store:
        """Open an existing run read-only.

        Raises NotARun if there is none, StoreError if this version does not read its format.
        """
        must_be_run(folder)
        return cls(folder, _backend(folder, writer=False, read_only=True), read_only=True)

    @classmethod
    def beside(cls, folder: Path) -> Store:
        """Open an existing run for short writes to tables that a run itself never writes, also while another process
        has it open for writing.

        Raises NotARun if there is none, StoreError if it cannot be written to.
        """
        must_be_run(folder)
        return cls(folder, _backend(folder, writer=False))

    @classmethod
    def _write_to(cls, folder: Path, new: bool = False) -> Store:
        refuse_links(folder)
        store = cls(folder, _backend(folder, writer=True, new=new))
        try:
            with as_stored(folder):
                store._book_left_in_flight()
            (folder / FLIGHT_FILE).unlink(missing_ok=True)
            store.has_forgotten = store.finish_forgetting()
        except BaseException:
            store.backend.close()
            raise
        store.flight = Flight(folder)
        return store

    @property
    def is_written(self) -> bool:
        """Whether another process has it open for writing."""
        return self.backend.is_written()

    @property
    def is_file(self) -> bool:
        """Whether its rows are in a file of the folder."""
        return isinstance(self.backend, SqliteRun)

    def changes(self) -> int:
        """A number that is another one after each write by somebody else, for some microseconds' work. On PostgreSQL it
        may be the old one for a moment after a write."""
        return self.backend.changes()

    def rows(self, query: Select[*tuple[Any, ...]] | TextClause) -> list[Any]:
        """The rows of a query, as named tuples."""
        return self.backend.rows(query)

    async def write(self, table: Table, rows: Sequence[RowValues]) -> None:
        """Insert or replace rows, and return once they are on the disk."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._enqueue(_Write(table, self.of_space(rows), done))
        await done

    def post(self, table: Table, rows: Sequence[RowValues]) -> None:
        """Insert or replace rows without waiting: they are written before any later write, at the latest on close.

        For rows that a resume can make again, and for rows that only later writes depend on. An error is raised by the
        next write, at the latest by the end of the store's `with` block.
        """
        if rows:
            self._enqueue(_Write(table, self.of_space(rows), None))

    async def flush(self) -> None:
        """Wait until all posted rows are on the disk."""
        await self.write(schema.runs, [])

    def _raise_failure(self) -> None:
        """Raise the error of an earlier write, on which what is written now may depend."""
        if self._failure is not None:
            raise self._failure

    def _enqueue(self, write: _Write) -> None:
        self._raise_failure()
        if self._thread is None:
            self._thread = threading.Thread(target=self._write_loop, name="practicum-store", daemon=True)
            self._thread.start()
        self._queue.put(write)

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """A transaction beside which nobody else writes to this space. It is on the disk when the block ends."""
        self._raise_failure()
        with self.backend.begin(alone=True) as db:
            yield Transaction(db, self.space)

    def remove_index(self) -> None:
        """Delete the index of the run, wherever it is. It can be made again."""
        remove_index_files(self.folder)
        self.backend.drop_index()

    def scrub(self) -> None:
        """Overwrite deleted rows, so that no deleted text stays in the database file or its write-ahead log. A
        PostgreSQL server only makes their space free, and writes over it later.

        Raises StoreError if another process reads the file of the run and so keeps the log from being truncated.
        """
        self.backend.scrub()

    def finish_forgetting(self) -> bool:
        """Scrub the run if rows were removed from it for good and it was not scrubbed since. Returns whether they were.
        Raises StoreError, and the next one who opens the run for writing tries again, if that cannot be done."""
        if [row.state for row in self.rows(self.select(schema.runs.c.state))] != [schema.FORGETTING]:
            return False
        self.scrub()
        empty_log(self.folder)
        with self.transaction() as at:
            at.run(at.update(schema.runs).values(state=schema.FORGOTTEN))
        return True

    def remove(self) -> None:
        """Remove all rows of the run, with its name in a database."""
        self.backend.remove()

    def release(self) -> None:
        """Give back the memory that keeps what was read quick to read again."""
        self.backend.release()

    def close(self) -> None:
        """Write what is queued and release the run."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._thread = None
        self.flight.close()
        self.backend.close()

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

    def _write_loop(self) -> None:
        """The writer thread: take all waiting writes, commit them together, wake their callers."""
        running = True
        while running:
            batch = [self._queue.get()]
            while not self._queue.empty():
                batch.append(self._queue.get())
            writes = [write for write in batch if write is not None]
            running = len(writes) == len(batch)
            if writes:
                _wake_callers(writes, self._commit(writes))

    def _commit(self, writes: Sequence[_Write]) -> StoreError | None:
        """Write these rows in one transaction. After the first failure nothing more is written."""
        if self._failure is not None:
            return self._failure
        by_table: dict[str, tuple[Table, list[RowValues]]] = {}
        for write in writes:
            by_table.setdefault(write.table.name, (write.table, []))[1].extend(write.rows)

        def work(db: Connection) -> None:
            for table, rows in by_table.values():
                if rows:
                    db.execute(upsert(table, db.dialect.name), rows)

        try:
            self.backend.write(work)
        except StoreError as error:
            self._failure = error
        # Any exception: the callers wait for an outcome, and nobody sees what this thread raises.
        except Exception as error:
            self._failure = self.backend.failure(error)
        return self._failure

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
            for sent in left_in_flight(self.folder, paid)
        ]  # fmt: skip
        if rows:
            with self.transaction() as at:
                # The same again, should this process be killed before the file is gone.
                at.put(schema.journal, *rows)


def _backend(folder: Path, *, writer: bool, read_only: bool = False, new: bool = False) -> Backend:
    """The rows of the run in a folder."""
    if (elsewhere := read_elsewhere(folder)) is None:
        return SqliteRun(folder, writer=writer, read_only=read_only, new=new)
    kind, url = store_at(elsewhere.store)
    return kind.open(url, elsewhere.run, writer=writer, read_only=read_only)


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


def _wake_callers(writes: Iterable[_Write], failure: StoreError | None) -> None:
    """Resolve the futures of each event loop with one call; a closed loop has no callers left."""
    by_loop: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
    for write in writes:
        if write.done is not None:
            by_loop.setdefault(write.done.get_loop(), []).append(write.done)
    for loop, futures in by_loop.items():
        if not loop.is_closed():
            loop.call_soon_threadsafe(_resolve, futures, failure)


def _resolve(futures: Iterable[asyncio.Future[None]], failure: StoreError | None) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None) if failure is None else future.set_exception(failure)
