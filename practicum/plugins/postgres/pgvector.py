"""Search index of a run in the run's PostgreSQL database, shared by all nodes. Vectors are indexed by pgvector (HNSW).

Each index has its own table. A row has the vector of an entry (16 bits per number), and the keys of the entry's words
and facets (properties to filter by), indexed with GIN. A second table counts the entries that have each key. A search
reads the rows whose vectors are nearest to the query's vector, and the rows with the rarest words of the query. The
scan of the HNSW index continues until enough rows pass the filter. If few entries match the filter, the search compares
all matching entries exactly. The table `indexes` stores the version that an index covers. A build or a change of an
index becomes visible in one transaction. Queries of a process that opened the index before the change then raise
IndexMoved.
"""

from __future__ import annotations

import asyncio
import secrets
import struct
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sqlalchemy import Connection, func, select, text

from practicum.core.context import PAGE
from practicum.core.edits import Entry
from practicum.core.errors import StoreError
from practicum.plugins.index.index import Chunk, Covers, facets, fingerprint
from practicum.plugins.index.postings import Postings
from practicum.plugins.index.stored import IndexMoved, StoredSearch
from practicum.plugins.postgres.database import DatabaseServer, lock_number, retried
from practicum.plugins.postgres.driver import psycopg
from practicum.plugins.postgres.store import PostgresqlBackend, drop_index, indexes
from practicum.retrieval.search import SavedIndex
from practicum.retrieval.vectors import Vectors
from practicum.retrieval.words import MOST_COUNT, WordIndex, WordQuery, word_keys

MOST_DIMS = 4_000
"""Maximum number of vector dimensions that pgvector can index with HNSW, at 16 bits per number."""

NEAR = 8
"""Of n requested entries, n / NEAR are proposed by their vectors. This suffices, because the order by HNSW is nearly
exact."""

LIST, MOST_LIST = 200, 1_000
"""Minimum and maximum number of candidates that HNSW holds during a search (`hnsw.ef_search`)."""

FEW = 1_024
"""If at most this many entries match the filter, all matching entries are proposed."""

SPARSE = 3_000
"""A search compares all entries that match the filter exactly if the square of their number is at most SPARSE times the
number of all entries: the HNSW index would then be slower."""

WORK = 2**12
"""Maximum number of entries that are proposed because they have the query's rarest words."""

CACHED = 2**16
"""Maximum number of keys whose entry counts are cached."""

KEY = np.dtype([("size", ">i4"), ("key", ">i8")])
"""Layout of a key in an array in PostgreSQL's binary format."""

ARRAY_HEAD = 20
"""Number of bytes before the first item of an array in PostgreSQL's binary format: dimensions, flags, item type, number
of items, index of the first item."""

INT8 = 20
"""PostgreSQL's type number (OID) of int8, the type of keys."""

NODE, MOST_BUILD = 1_024, 2**21
"""Memory (bytes) that the HNSW build needs for each entry in addition to the vector, and maximum memory (kB) of the
build."""

Question = tuple[str, Sequence[Any]]


class Pgvector:
    """Opens, builds and extends the index of a run in a database."""

    def __init__(self, database: DatabaseServer, space: str) -> None:
        self._database, self._space = database, space

    @property
    def writable(self) -> bool:
        allowed = "SELECT has_schema_privilege(current_schema(), 'CREATE') AND NOT pg_is_in_recovery()"
        return bool(self._database.rows(text(allowed))[0][0])

    def open(self, space: str, embedder: str, version: int) -> PgvectorIndex | None:
        with self._database.begin() as db:
            return self._opened(db, embedder, version)

    def _opened(self, db: Connection, embedder: str, version: int) -> PgvectorIndex | None:
        if db.execute(select(func.to_regclass(indexes.name))).scalar_one() is None:
            return None
        query = select(indexes, func.to_regclass(indexes.c.table).label("there"), _EXTENSION_SCHEMA)
        row = db.execute(query.where(indexes.c.space == self._space)).first()
        if row is None or row.there is None or row.embedder != embedder or not row.first <= version <= row.last:
            return None
        path = f'"{self._database.schema}", "{row.extension}"'
        return PgvectorIndex(
            self._database, self._space, row.table, path, version, row.last, row.dims, row.entries, row.words
        )

    async def build(self, covers: Covers, chunks: AsyncIterator[Chunk]) -> PgvectorIndex:
        with self._database.begin() as db:
            db.execute(select(func.pg_advisory_xact_lock(lock_number("indexes"))))
            indexes.metadata.create_all(db)
        with self._database.begin() as db:
            # Only one node builds the index. The other nodes wait for the lock, then open the finished index.
            lock = select(func.pg_advisory_xact_lock(lock_number(f"index {self._space}")))
            await asyncio.to_thread(db.execute, lock)
            if (ready := self._opened(db, covers.embedder, covers.last)) is not None:
                return ready
            table = f"index_{secrets.token_hex(8)}"
            dims, entries, words = 0, 0, 0
            async for chunk, vectors in chunks:
                if not dims:
                    dims = vectors.shape[1]
                    await asyncio.to_thread(_make, db, table, dims)
                words += await asyncio.to_thread(_add, db, table, covers.last, chunk, vectors)
                entries += len(chunk)
            await asyncio.to_thread(_finish, db, table, entries, dims)
            drop_index(db, self._space)
            row = {"space": self._space, "table": table, "embedder": covers.embedder, "dims": dims}
            row |= {"first": covers.last, "last": covers.last, "entries": entries, "words": words}
            db.execute(indexes.insert(), row)
            index = self._opened(db, covers.embedder, covers.last)
            assert index is not None
            return index

    async def extend(
        self, index: PgvectorIndex, version: int, chunks: AsyncIterator[Chunk], touched: np.ndarray
    ) -> PgvectorIndex:
        table = index.table
        with self._database.begin() as db:
            own = indexes.c.space == self._space
            row = db.execute(select(indexes).where(own).with_for_update()).first()
            if row is None or (row.table, row.last) != (table, index.last):
                raise IndexMoved
            raw = _raw(db)
            # Delete the rows that mark entries as removed at or before `index.version`. Only a process that opens the
            # index for an earlier snapshot needs these rows, and no process opens an earlier snapshot any more.
            raw.execute(f'DELETE FROM "{table}" WHERE vector IS NULL AND since <= %s', (index.version,))
            cursor = raw.cursor(binary=True)
            cursor.execute(
                f'DELETE FROM "{table}" WHERE number = ANY(%s::int4[]) RETURNING length, keys, vector IS NOT NULL',
                (touched.tolist(),),
            )
            replaced = [(length, keys) for length, keys, live in cursor if live]
            _count(db, table, [keys for _, keys in replaced], -1)
            words, numbers = -sum(length for length, _ in replaced), list[int]()
            async for chunk, vectors in chunks:
                index.check_dims(vectors)
                words += await asyncio.to_thread(_add, db, table, version, chunk, vectors)
                numbers += [entry.number for entry in chunk]
            removed = np.setdiff1d(touched, numbers).tolist()
            raw.execute(f'INSERT INTO "{table}" {_REMOVED}', (version, removed))
            entries = row.entries - len(replaced) + len(numbers)
            values = {"last": version, "entries": entries, "words": row.words + words}
            db.execute(indexes.update().where(own).values(values))
            extended = self._opened(db, row.embedder, version)
            assert extended is not None
            return extended

    def settle(self) -> None:
        """Do nothing: this index has no background work."""


_EXTENSION_SCHEMA = text(
    "(SELECT nspname FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace WHERE extname = 'vector') "
    "AS extension"
)

_REMOVED = "SELECT number, -1, %s, 0, '{}', NULL FROM unnest(%s::int4[]) number"
"""Query for rows that mark entries as removed. Their column `since` has the version that removed the entries."""


@dataclass(frozen=True)
class PgvectorIndex:
    """Index in a database, opened for the snapshot of version `version`. The index covers the versions up to `last`."""

    database: DatabaseServer
    space: str
    table: str
    path: str
    version: int
    last: int
    dims: int
    entries: int
    words: int

    def __len__(self) -> int:
        return self.entries

    def changed_after(self, version: int) -> np.ndarray:
        query = f'SELECT number FROM "{self.table}" WHERE since > %s ORDER BY number'
        (rows,) = self.ask((query, (version,))) if version < self.last else [()]
        return np.array([number for (number,) in rows], dtype=np.int32)

    def prints(self, pages: Sequence[int]) -> list[dict[int, int]]:
        prints: dict[int, dict[int, int]] = {page: {} for page in pages}
        query = (
            f'SELECT number, print FROM unnest(%s::int4[]) page JOIN "{self.table}" '
            f"ON number >= page * {PAGE} AND number < (page + 1) * {PAGE} WHERE vector IS NOT NULL"
        )
        (rows,) = self.ask((query, (list(pages),))) if pages else [()]
        for number, print_ in rows:
            prints[number // PAGE][number] = print_
        return list(prints.values())

    def without(self, touched: np.ndarray) -> UnchangedPgvectorEntries:
        query = f'SELECT number, length, keys FROM "{self.table}" WHERE number = ANY(%s::int4[]) AND vector IS NOT NULL'
        (rows,) = self.ask((query, (touched.tolist(),))) if len(touched) else [()]
        numbers, lengths, keys = zip(*rows, strict=True) if rows else ((), (), ())
        having = Postings.count(keys)
        dead = dict(zip(having.keys.tolist(), np.diff(having.starts).tolist(), strict=True))
        return UnchangedPgvectorEntries(self, list(numbers), sum(lengths), dead)

    def check_dims(self, vectors: np.ndarray) -> None:
        if vectors.shape[-1] != self.dims and vectors.size:
            raise StoreError(
                "embedder.mismatch",
                f"the index of {self.space} in {self.database.name} has vectors of {self.dims} dimensions, but the "
                f"embedder returns {vectors.shape[-1]}: embed the entries again with practicum space memory reembed",
            )

    def ask(self, *queries: Question, near: int = LIST) -> list[list[Any]]:
        """Return the rows of each query, read from the state in which this index was opened. `near` is the number of
        rows that a query by HNSW needs.

        Raises IndexMoved if the index was changed or replaced since it was opened.
        """
        current = 'SELECT "table", last FROM indexes WHERE space = %s'
        settings = {
            "search_path": self.path, "hnsw.iterative_scan": "relaxed_order", "hnsw.max_scan_tuples": 2**31 - 1,
            "hnsw.scan_mem_multiplier": 1_000, "hnsw.ef_search": min(max(near, LIST), MOST_LIST),
        }  # fmt: skip
        parameters = [str(each) for item in settings.items() for each in item]
        sets = "SELECT " + ", ".join(["set_config(%s, %s, true)"] * len(settings))

        def read() -> list[list[Any]]:
            with self.database.engine.connect() as db:
                raw = _raw(db)
                with raw.pipeline():
                    # The state of the index is read last. If the state is unchanged since the index was opened, all
                    # earlier queries have read the index in this state. Statements are not prepared: the best plan
                    # depends on how many rows match the values.
                    cursors = [raw.cursor(binary=True) for _ in range(len(queries) + 2)]
                    everything = ((sets, parameters), *queries, (current, (self.space,)))
                    for cursor, (query, values) in zip(cursors, everything, strict=True):
                        cursor.execute(query, values, prepare=False)
                *rows, state = [cursor.fetchall() for cursor in cursors[1:]]
                if state != [(self.table, self.last)]:
                    raise IndexMoved
                return rows

        with self.database.errors():
            try:
                return retried(read)
            except psycopg.errors.UndefinedTable as error:
                raise IndexMoved from error


@dataclass(frozen=True)
class UnchangedPgvectorEntries:
    """Entries of an index except the `dead` entries, which are changed or removed in the searched context."""

    index: PgvectorIndex
    dead: list[int]
    """Numbers of the dead entries."""

    dead_words: int
    """Number of words in all dead entries."""

    dead_having: dict[int, int]
    """For each key, the number of dead entries that have the key."""

    _having: dict[int, int] = field(default_factory=dict)
    _matching: dict[tuple[int, ...], int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.index) - len(self.dead)

    @property
    def words(self) -> float:
        return self.index.words - self.dead_words

    def having(self, keys: Sequence[int]) -> np.ndarray:
        if missing := [key for key in keys if key not in self._having]:
            if len(self._having) > CACHED:
                self._having.clear()
                missing = list(keys)
            query = f'SELECT key, n FROM "{self.index.table}_counts" WHERE key = ANY(%s::int8[])'
            (rows,) = self.index.ask((query, (missing,)))
            self._having.update(dict.fromkeys(missing, 0) | dict(rows))
        return np.array([self._having[key] - self.dead_having.get(key, 0) for key in keys], dtype=float)

    def propose(
        self, vector: np.ndarray, query: WordQuery, n: int, keys: tuple[int, ...] | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        self.index.check_dims(vector)
        having = dict(zip(keys or (), self.having(keys or ()).tolist(), strict=True))
        selective = [key for key in having if having[key] < len(self)]
        matching = self._count(selective, min([len(self), *having.values()]))
        near = max(n // NEAR, 1)
        filters = ["vector IS NOT NULL"] + ["keys @> %s::int8[]"] * bool(selective)
        filters += ["number <> ALL(%s::int4[])"] * bool(self.dead)
        where, values = " AND ".join(filters), [*[selective] * bool(selective), *[self.dead] * bool(self.dead)]
        table, code = self.index.table, str(vector.tolist())
        row = "number, -(vector <#> %s::halfvec), length, array_send(keys)"
        nearest = f'SELECT {row} FROM "{table}" WHERE {where}'
        if matching <= FEW:
            queries: list[Question] = [(nearest, [code, *values])]
        else:
            # PostgreSQL cannot use the HNSW index for a sum, so "+ 0" makes PostgreSQL compare all matching rows.
            exactly = " + 0" if matching**2 <= SPARSE * len(self.index) else ""
            order = f" ORDER BY (vector <#> %s::halfvec){exactly} LIMIT %s"
            queries = [(nearest + order, [code, *values, code, near])]
        if matching > FEW and (rarest := self._rarest(query)):
            words = f'SELECT {row} FROM "{table}" WHERE keys && %s::int8[] AND {where} LIMIT {WORK}'
            queries.append((words, [code, rarest, *values]))
        rows = {row[0]: row for rows in self.index.ask(*queries, near=near) for row in rows}
        numbers, cosines, lengths, arrays = zip(*rows.values(), strict=True) if rows else ((), (), (), ())
        return (
            np.array(numbers, dtype=np.int64),
            np.array(cosines, dtype=np.float32),
            _shares(query, np.array(lengths), arrays),
        )

    def _rarest(self, query: WordQuery) -> list[int]:
        """Return the rarest words of a query. In total, at most about WORK entries have these words."""
        words = [*query.weights]
        rarest, left = list[int](), WORK
        for having, key in sorted(zip(self.having(words).tolist(), words, strict=True)):
            if having and (having <= left or not rarest):
                rarest.append(key)
            left -= having
        return rarest

    def _count(self, keys: Sequence[int], most: int) -> int:
        """Return the number of entries that have all of these keys. `most` is an upper bound of this number. `most` is
        returned without counting if `most` is at most FEW, or if `keys` has fewer than two keys."""
        if len(keys) < 2 or most <= FEW:
            return most
        key = tuple(sorted(keys))
        if key not in self._matching:
            query = f'SELECT count(*) FROM "{self.index.table}" WHERE keys @> %s::int8[]'
            ((row,),) = self.index.ask((query, (list(keys),)))
            self._matching[key] = row[0]
        return self._matching[key]


def _shares(query: WordQuery, lengths: np.ndarray, arrays: Sequence[bytes]) -> np.ndarray:
    """Return the share of the query's words that each entry has. `lengths` has the number of words of each entry, and
    `arrays` the keys of each entry in PostgreSQL's binary format."""
    keys = np.frombuffer(b"".join(each[ARRAY_HEAD:] for each in arrays), dtype=KEY)["key"].astype(np.int64)
    row = np.repeat(np.arange(len(arrays)), [(len(each) - ARRAY_HEAD) // KEY.itemsize for each in arrays])
    parts = np.zeros(len(arrays))
    for key in query.weights:
        counts = np.minimum(np.bincount(row[keys == key], minlength=len(arrays)), MOST_COUNT)
        parts += query.part(key, counts, lengths)
    return query.shares(parts)


def _raw(db: Connection) -> psycopg.Connection[Any]:
    """Return the psycopg connection, for operations that SQLAlchemy does not offer."""
    raw = db.connection.driver_connection
    assert isinstance(raw, psycopg.Connection)
    return raw


def _make(db: Connection, table: str, dims: int) -> None:
    """Create an empty index table for vectors of `dims` dimensions, and the table that counts the entries of each
    key."""
    if dims > MOST_DIMS:
        raise StoreError(
            "embedder.unusable",
            f"the embedder returns {dims} dimensions, but pgvector indexes at most {MOST_DIMS}: use another "
            "embedder, or remove ?index=pgvector from the store URL",
        )
    schema = db.execute(select(_EXTENSION_SCHEMA)).scalar_one()
    db.execute(
        text(
            f'CREATE TABLE "{table}" (number int4 NOT NULL, print int8 NOT NULL, since int8 NOT NULL, '
            f'length int4 NOT NULL, keys int8[] NOT NULL, vector "{schema}".halfvec({dims}))'
        )
    )
    db.execute(text(f'CREATE TABLE "{table}_counts" (key int8 PRIMARY KEY, n int8 NOT NULL)'))


def _finish(db: Connection, table: str, entries: int, dims: int) -> None:
    """Create the indexes of a new, filled table."""
    setting = int(db.execute(text("SELECT setting FROM pg_settings WHERE name = 'maintenance_work_mem'")).scalar_one())
    needed = min(entries * (2 * dims + NODE) // 1_024, MOST_BUILD)
    if needed > setting:
        # An HNSW graph that does not fit into this memory takes twice as long to build. Parallel workers would need the
        # memory as shared memory, and containers have little shared memory.
        db.execute(text(f"SET LOCAL maintenance_work_mem = {needed}"))
        db.execute(text("SET LOCAL max_parallel_maintenance_workers = 0"))
    schema = db.execute(select(_EXTENSION_SCHEMA)).scalar_one()
    db.execute(text(f'ALTER TABLE "{table}" ADD PRIMARY KEY (number)'))
    db.execute(text(f'CREATE INDEX ON "{table}" (since)'))
    db.execute(text(f'CREATE INDEX ON "{table}" USING gin (keys) WITH (fastupdate = off)'))
    db.execute(text(f'CREATE INDEX ON "{table}" USING hnsw (vector "{schema}".halfvec_ip_ops)'))
    db.execute(text(f'ANALYZE "{table}"'))


def _add(db: Connection, table: str, since: int, entries: Sequence[Entry], vectors: np.ndarray) -> int:
    """Add entries with their vectors to an index table, as entries of version `since`. Return the total number of words
    in the added entries."""
    words = [word_keys(entry.embedded_text) for entry in entries]
    keys = [facets(entry) + own for entry, own in zip(entries, words, strict=True)]
    halves = vectors.astype(">f2")
    with _raw(db).cursor() as cursor, cursor.copy(f'COPY "{table}" FROM STDIN (FORMAT BINARY)') as copy:
        copy.write(b"PGCOPY\n\xff\r\n\0" + bytes(8))
        for entry, own, listed, vector in zip(entries, keys, words, halves, strict=True):
            copy.write(_row(entry, since, len(listed), own, vector))
        copy.write(b"\xff\xff")
    _count(db, table, keys, 1)
    return sum(map(len, words))


def _row(entry: Entry, since: int, length: int, keys: Sequence[int], vector: np.ndarray) -> bytes:
    """Return the row of an entry in an index table, in the binary format of COPY."""
    fields = struct.pack(">hiiiqiqii", 6, 4, entry.number, 8, fingerprint(entry), 8, since, 4, length)
    listed = np.empty(len(keys), dtype=KEY)
    listed["size"], listed["key"] = 8, keys
    array = struct.pack(">iiiii", 1, 0, INT8, len(keys), 1) + listed.tobytes()
    half = struct.pack(">hh", len(vector), 0) + vector.tobytes()
    return fields + struct.pack(">i", len(array)) + array + struct.pack(">i", len(half)) + half


def _count(db: Connection, table: str, keys: Sequence[Sequence[int]], sign: int) -> None:
    """Update the table of counts after entries were added (`sign` is 1) or removed (`sign` is -1). `keys` has the keys
    of each of these entries."""
    having = Postings.count(keys)
    _raw(db).execute(
        f'INSERT INTO "{table}_counts" AS c SELECT * FROM unnest(%s::int8[], %s::int8[]) '
        "ON CONFLICT (key) DO UPDATE SET n = c.n + excluded.n",
        (having.keys.tolist(), (sign * np.diff(having.starts)).tolist()),
    )


def open_index(vectors: Vectors, words: WordIndex, weight: float) -> SavedIndex:
    """Return the search of the run that owns `vectors`. The search index is stored in the run's database."""
    assert vectors.store is not None
    backend = vectors.store.database.backend
    assert isinstance(backend, PostgresqlBackend)
    return StoredSearch(vectors, words, weight, Pgvector(backend.server, vectors.store.space))
