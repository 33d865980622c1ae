"""The index of a run's entries: mapped files beside the database, by which a search finds entries without reading them.

A file holds, for the entries that changed from one version to another, their vectors with 8 bits a number in lists
(see `lists`), and postings of their words, sections, tags, trust and outcome (see `postings`). The first file begins
with the run; each later one says what changed after the one before, and hides the older state of that. Files of about
one size are merged in the background, so that each entry is rewritten a few times only, and a search looks at few
files. A file is written beside the others and then renamed, and its name says which versions it is about, so that
whatever is killed leaves a sound index. All of it can be made again from the database, and is, if it does not fit.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import struct
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np

from practicum.core.edits import Entry
from practicum.core.files import create_private
from practicum.plugins.index.postings import Postings, counts_of, merged, rows_of
from practicum.retrieval.lists import AT_ONCE, Lists, Order, Rows, arrange, highest_places
from practicum.retrieval.rough import rounded
from practicum.retrieval.search import Filter
from practicum.retrieval.words import MOST_COUNT, WordQuery, word_keys
from practicum.store.folder import INDEX_FILES

NAME = re.compile(r"index\.(\d+)\.(\d+)")
"""The name of a file: the first and the last version that it is about."""

MAGIC = b"practicum index 1\n"

GROWTH, SMALL = 4, 1_024
"""A file is merged with the next if it is not this many times as large; smaller files count as being of one size."""

WORK = 2**18
"""Postings of the query's rarest words whose rows are proposed, at most."""

SHARE = 2**16 - 2**6
"""What all words of a query count where rows are proposed. There the share of the words is a number of 16 bits and the
length one of 8, because a search is as slow as the memory that it reads."""

FEW = 4_096
"""If at most this many rows are wanted, all are compared by their words."""

FILTERS = 16
"""Filters whose rows are kept."""

DTYPES: Mapping[str, np.dtype[Any]] = {
    name: np.dtype(kind)
    for name, kind in {
        "numbers": "<i4", "prints": "<i8", "touched": "<i4", "lengths": "<i4", "rows": "<i4", "offsets": "<i8",
        "centres": "<f4", "codes": "i1", "scales": "<f4", "keys": "<i8", "starts": "<i8", "packed": "<u4",
    }.items()
}  # fmt: skip
"""The arrays of a file."""


@lru_cache(maxsize=2**16)
def facet(name: str, value: str = "") -> int:
    """The key of something that an entry can be filtered by."""
    return int.from_bytes(blake2b(f"{name}\0{value}".encode("utf-8", "replace"), digest_size=8).digest(), "big") >> 1


VISIBLE_FACET = facet("visible")

Chunk = tuple[Sequence[Entry], np.ndarray]
"""Entries in the order of their numbers, and their vectors, shape (n, d)."""


def facets(entry: Entry) -> list[int]:
    """All that an entry can be filtered by."""
    found = [facet("section", entry.section), facet("trust", entry.trust)]
    if isinstance(outcome := entry.data.get("outcome"), str):
        found.append(facet("outcome", outcome))
    found += [facet("tag", source[4:]) for source in dict.fromkeys(entry.sources) if source.startswith("tag:")]
    return found if entry.hidden else [*found, VISIBLE_FACET]


def filter_facets(where: Filter) -> tuple[int, ...]:
    """The facets of the entries that a filter keeps."""
    found = [VISIBLE_FACET if where.section is None else facet("section", where.section)]
    found += [facet("tag", tag) for tag in where.tags]
    given = (("outcome", where.outcome), ("trust", where.trust))
    return (*found, *(facet(name, value) for name, value in given if value is not None))


def fingerprint(entry: Entry) -> int:
    """63 bits of all that an index knows of an entry."""
    known = repr((entry.embedded_text, sorted(facets(entry))))
    return int.from_bytes(blake2b(known.encode("utf-8", "replace"), digest_size=8).digest(), "big") >> 1


@dataclass(frozen=True, kw_only=True)
class Covers:
    """What a file is about: changes of a run from version `first` to `last`, by the vectors of an embedder."""

    space: str
    embedder: str
    first: int
    last: int

    @property
    def name(self) -> str:
        return f"index.{self.first}.{self.last}"


class Part:
    """Some entries, each in a row, by number: what one file holds. `touched` are the numbers of all entries that were
    changed or removed."""

    def __init__(self, covers: Covers, arrays: Mapping[str, np.ndarray]) -> None:
        self.covers = covers
        self.numbers, self.prints = arrays["numbers"], arrays["prints"]
        self.touched, self.lengths = arrays["touched"], arrays["lengths"]
        order = Order(arrays["centres"], arrays["offsets"], arrays["rows"])
        self.vectors = Lists(order, arrays["codes"], arrays["scales"])
        self.postings = Postings(arrays["keys"], arrays["starts"], arrays["packed"])
        self._rows: OrderedDict[tuple[int, ...], Rows | None] = OrderedDict()

    def __len__(self) -> int:
        return len(self.numbers)

    @classmethod
    def of(cls, covers: Covers, entries: Sequence[Entry], vectors: np.ndarray, touched: np.ndarray) -> Part:
        """Entries in the order of their numbers, with their vectors of shape (n, d)."""
        words = [word_keys(entry.embedded_text) for entry in entries]
        postings = Postings.count([[*keys, *facets(entry)] for keys, entry in zip(words, entries, strict=True)])
        lists = Lists.flat(vectors)
        return cls(
            covers,
            {
                "numbers": np.array([entry.number for entry in entries], dtype=np.int32),
                "prints": np.array([fingerprint(entry) for entry in entries], dtype=np.int64),
                "touched": touched.astype(np.int32),
                "lengths": np.array([len(keys) for keys in words], dtype=np.int32),
                "rows": lists.order.rows, "offsets": lists.order.offsets, "centres": lists.order.centres,
                "codes": lists.codes, "scales": lists.scales,
                "keys": postings.keys, "starts": postings.starts, "packed": postings.packed,
            },
        )  # fmt: skip

    @classmethod
    def open(cls, path: Path) -> Part | None:
        """A file, mapped and not read; None if it is missing or damaged."""
        try:
            with path.open("rb") as file:
                return cls.map(file)
        except (OSError, ValueError, KeyError, TypeError):
            return None

    @classmethod
    def map(cls, file: BinaryIO) -> Part:
        """A file that `write` wrote. Raises ValueError, KeyError or TypeError if it is damaged."""
        size = os.fstat(file.fileno()).st_size
        tail = struct.calcsize("<Q") + len(MAGIC)
        if size < tail:
            raise ValueError("this is no index")
        file.seek(size - tail)
        (head,), magic = struct.unpack("<Q", file.read(8)), file.read()
        if magic != MAGIC or not 0 <= head <= size - tail:
            raise ValueError("this is no index")
        file.seek(head)
        said = json.loads(file.read(size - tail - head))
        raw = np.memmap(file, np.uint8, "r", 0, (head,))
        arrays = {}
        for name, dtype in DTYPES.items():
            start, *shape = map(int, said["arrays"][name])
            end = start + dtype.itemsize * int(np.prod(shape, dtype=object))
            if min(start, *shape) < 0 or start % 64 or end > head:
                raise ValueError(f"{name} does not fit into the file")
            arrays[name] = raw[start:end].view(dtype).reshape(shape).view(np.ndarray)
        part = cls(Covers(**said["covers"]), arrays)
        part._check(arrays)
        return part

    def _check(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Raises ValueError if the arrays do not belong together. What a search goes by is in bounds after this."""
        n, order, postings = len(self), self.vectors.order, self.postings
        lists = len(order.centres)
        shapes = {
            "prints": (n,), "lengths": (n,), "rows": (n,), "scales": (n,), "codes": (n, order.centres.shape[1]),
            "offsets": (lists + 1,), "starts": (len(postings.keys) + 1,),
        }  # fmt: skip
        sound = all(arrays[name].shape == shape for name, shape in shapes.items())
        for starts, end in ((order.offsets, n), (postings.starts, len(postings.packed))):
            sound = sound and starts[0] == 0 and starts[-1] == end and bool((starts[1:] >= starts[:-1]).all())
        if not sound:
            raise ValueError("the arrays of the index do not belong together")

    def rows_by_number(self, numbers: np.ndarray) -> np.ndarray:
        """The row of each of these entries, -1 if it has none here."""
        if not len(self):
            return np.full(len(numbers), -1)
        at = np.minimum(np.searchsorted(self.numbers, numbers), len(self) - 1)
        return np.where(self.numbers[at] == numbers, at, -1)

    def rows_with(self, keys: tuple[int, ...]) -> Rows | None:
        """The rows that have all of these facets; None: every one has them."""
        if keys in self._rows:
            self._rows.move_to_end(keys)
            return self._rows[keys]
        found = None
        for packed in sorted((self.postings.of(key) for key in keys), key=len):
            if len(packed) == len(self):
                continue
            mask = np.zeros(len(self), dtype=bool)
            mask[rows_of(packed)] = True
            found = mask if found is None else found & mask
        self._rows[keys] = None if found is None else Rows(found)
        if len(self._rows) > FILTERS:
            self._rows.popitem(last=False)
        return self._rows[keys]

    @cached_property
    def words(self) -> int:
        """The words of all entries."""
        return int(self.lengths.sum())

    def nearest(
        self, vector: np.ndarray, query: WordQuery, n: int, wanted: Rows | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """About n rows with most of a query's words, and n that are nearest to its vector: the rows, their cosines,
        which the rounding to 8 bits makes inexact, and the share of the words that each has."""
        if not len(self) or (wanted is not None and not wanted.count):
            none = np.zeros(0, dtype=np.int64)
            return none, none.astype(np.float32), none.astype(float)
        # Where a few are not wanted, it is quicker to leave them out of what is proposed.
        nearly_all = wanted is not None and 8 * (len(self) - wanted.count) <= n
        among = None if nearly_all else wanted
        near = self.vectors.near(vector, n, among).astype(np.int64)
        rows = _distinct(np.append(near, self._with_words(query, n, among)))
        if nearly_all and wanted is not None:
            rows = rows[wanted.of(rows)]
        cosines = np.einsum("ij,j->i", self.vectors.read(rows), vector)
        return rows, cosines, self.shares(query, rows)

    def having(self, key: int, dead_rows: np.ndarray, dead: np.ndarray | None) -> int:
        """How many rows have a key, without those that are dead, which are given as rows and as a mask."""
        packed = self.postings.of(key)
        if dead is None:
            return len(packed)
        if len(packed) < len(dead_rows):
            return len(packed) - int(np.count_nonzero(dead[rows_of(packed)]))
        return len(packed) - int(np.count_nonzero(counts_of(packed, dead_rows)))

    def shares(self, query: WordQuery, rows: np.ndarray) -> np.ndarray:
        """The share of a query that each of some rows has."""
        found = np.zeros(len(rows))
        for key in query.weights:
            found += query.part(key, counts_of(self.postings.of(key), rows), self.lengths[rows])
        return query.shares(found)

    def _with_words(self, query: WordQuery, n: int, wanted: Rows | None) -> np.ndarray:
        """The rows that have most of a query's rarest words, or all rows that are wanted, if they are few."""
        if wanted is not None and wanted.count <= FEW:
            return wanted.rows()
        by_key = sorted(((key, self.postings.of(key)) for key in query.weights), key=lambda item: len(item[1]))
        left, found, shares, scores = WORK, list[np.ndarray](), list[np.ndarray](), self._scores
        try:
            for key, packed in by_key:
                if len(packed) > left and found:
                    break
                packed = packed[:left]
                left -= len(packed)
                if wanted is not None:
                    packed = packed[wanted.of(rows_of(packed))]
                # NumPy would convert other numbers at each use.
                rows = rows_of(packed).astype(np.intp)
                found.append(rows)
                counts, lengths = packed & MOST_COUNT, self._short[rows]
                share = SHARE * query.part(key, counts.astype(np.float32), lengths.astype(np.float32))
                scores[rows] = now = scores[rows] + share.astype(np.uint16)
                shares.append(now)
            if not found:
                return np.zeros(0, dtype=np.intp)
            # A row stands here once for each of its words, with the share of those up to it.
            some: np.ndarray = _distinct(np.concatenate(found)[highest_places(np.concatenate(shares), n * len(found))])
            some = some[highest_places(scores[some], n)]
        finally:
            for rows in found:
                scores[rows] = 0
        return some

    @cached_property
    def _scores(self) -> np.ndarray:
        """Zeros, between two searches."""
        return np.zeros(len(self), dtype=np.uint16)

    @cached_property
    def _short(self) -> np.ndarray:
        """The lengths, up to 255."""
        short: np.ndarray = np.minimum(self.lengths, 255).astype(np.uint8)
        return short

    def spilled(self, folder: Path) -> Part:
        """The same part on the disk, in a file without a name, which is gone when nobody has it open."""
        with tempfile.TemporaryFile(dir=folder) as file:
            self.write(file)
            return Part.map(file)

    def write(self, file: BinaryIO) -> None:
        """Write it as it is."""
        arrays = {
            "numbers": self.numbers, "prints": self.prints, "touched": self.touched, "lengths": self.lengths,
            "rows": self.vectors.order.rows, "offsets": self.vectors.order.offsets,
            "centres": self.vectors.order.centres, "codes": self.vectors.codes, "scales": self.vectors.scales,
            "keys": self.postings.keys, "starts": self.postings.starts, "packed": self.postings.packed,
        }  # fmt: skip
        with _Writer(file, self.covers) as writer:
            for name, array in arrays.items():
                writer.array(name, array)


class _Writer:
    """Arrays one after the other, and then where each stands."""

    def __init__(self, file: BinaryIO, covers: Covers) -> None:
        self._file, self._covers = file, covers
        self._arrays: dict[str, list[int]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            head = self._file.tell()
            self._file.write(json.dumps({"covers": vars(self._covers), "arrays": self._arrays}).encode())
            self._file.write(struct.pack("<Q", head) + MAGIC)
            self._file.flush()

    def begin(self, name: str) -> None:
        self._file.write(bytes(-self._file.tell() % 64))
        self._arrays[name] = [self._file.tell()]

    def append(self, array: np.ndarray) -> None:
        """More of the array that was begun last."""
        name, said = next(reversed(self._arrays.items()))
        self._file.write(np.ascontiguousarray(array, dtype=DTYPES[name]).data if array.size else b"")
        said[1:] = [said[1] + len(array) if len(said) > 1 else len(array), *array.shape[1:]]

    def array(self, name: str, array: np.ndarray) -> None:
        self.begin(name)
        self.append(array)


def _distinct(rows: np.ndarray) -> np.ndarray:
    """Each row once, ascending. `np.unique` takes several times as long."""
    ordered = np.sort(rows)
    found: np.ndarray = ordered[np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)]]
    return found


def merge(parts: Sequence[Part], file: BinaryIO) -> None:
    """Write one part that says what these say, the oldest first. It takes memory for some numbers an entry, and not for
    their vectors and words."""
    first, last = parts[0], parts[-1]
    covers = replace(last.covers, first=first.covers.first)
    alive = [np.arange(len(part)) if dead is None else np.flatnonzero(~dead) for part, dead in _hidden(parts)]
    numbers = np.concatenate([part.numbers[rows] for part, rows in zip(parts, alive, strict=True)])
    order = np.argsort(numbers, kind="stable")
    # The part and the row there of each new row, and the new row of each row of a part.
    of = np.repeat(np.arange(len(parts), dtype=np.int32), [len(rows) for rows in alive])[order]
    row = np.concatenate(alive)[order].astype(np.int32)
    new = [np.full(len(part), -1, dtype=np.int32) for part in parts]
    for i in range(len(parts)):
        here = np.flatnonzero(of == i)
        new[i][row[here]] = here

    def column(name: str) -> np.ndarray:
        return np.concatenate([getattr(p, name)[rows] for p, rows in zip(parts, alive, strict=True)])[order]

    def read(rows: np.ndarray) -> np.ndarray:
        vectors = np.empty((len(rows), largest.vectors.codes.shape[1]), dtype=np.float32)
        of_part = of[rows]
        for i in np.unique(of_part):
            here = of_part == i
            vectors[here] = parts[i].vectors.read(row[rows[here]])
        return vectors

    largest = max(parts, key=len)
    known = np.full(len(order), -1, dtype=np.int32)
    mine = np.flatnonzero(of == parts.index(largest))
    known[mine] = largest.vectors.list_of(row[mine])
    lists = arrange(len(order), read, largest.vectors.order.centres, known)
    with _Writer(file, covers) as writer:
        writer.array("numbers", numbers[order])
        writer.array("prints", column("prints"))
        touched = np.unique(np.concatenate([part.touched for part in parts])) if covers.first else first.touched[:0]
        writer.array("touched", touched)
        writer.array("lengths", column("lengths"))
        writer.array("rows", lists.rows)
        writer.array("offsets", lists.offsets)
        writer.array("centres", lists.centres)
        scales = np.empty(len(order), dtype=np.float32)
        writer.begin("codes")
        writer.append(np.zeros((0, lists.centres.shape[1]), dtype=np.int8))
        for start in range(0, len(order), AT_ONCE):
            block = slice(start, start + AT_ONCE)
            codes, scales[block] = rounded(read(lists.rows[block]))
            writer.append(codes)
        writer.array("scales", scales)
        writer.begin("packed")
        writer.append(np.zeros(0, dtype=np.uint32))
        keys, starts = merged([(p.postings, numbers) for p, numbers in zip(parts, new, strict=True)], writer.append)
        writer.array("keys", keys)
        writer.array("starts", starts)


def _hidden(parts: Sequence[Part]) -> Iterator[tuple[Part, np.ndarray | None]]:
    """Each part with a mask of the rows that a later part hides, shape (n,); None if it hides none."""
    for i, part in enumerate(parts):
        later = [rows for after in parts[i + 1 :] if len(rows := part.rows_by_number(after.touched))]
        rows = np.concatenate(later) if later else np.zeros(0, dtype=np.int64)
        rows = rows[rows >= 0]
        dead = np.zeros(len(part), dtype=bool)
        dead[rows] = True
        yield part, dead if len(rows) else None


@dataclass(frozen=True)
class Index:
    """The parts of an index, the oldest first. `hidden` are the rows of each that a later one hides, as a mask of shape
    (n,), None for none."""

    folder: Path
    parts: tuple[Part, ...]
    hidden: tuple[np.ndarray | None, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "hidden", tuple(dead for _, dead in _hidden(self.parts)))

    @classmethod
    def open(cls, folder: Path, space: str, embedder: str, version: int) -> Index | None:
        """The index of a run at a version; None if there is none, or if a file is missing or damaged."""
        by_first: dict[int, list[int]] = {}
        for path in folder.glob(INDEX_FILES):
            if name := NAME.fullmatch(path.name):
                by_first.setdefault(int(name[1]), []).append(int(name[2]))
        parts: list[Part] = []
        while not parts or parts[-1].covers.last < version:
            first = parts[-1].covers.last + 1 if parts else 0
            lasts = [last for last in by_first.get(first, ()) if first <= last <= version]
            if not lasts:
                return None
            covers = Covers(space=space, embedder=embedder, first=first, last=max(lasts))
            part = Part.open(folder / covers.name)
            if part is None or part.covers != covers:
                return None
            parts.append(part)
        return cls(folder, tuple(parts))

    def __len__(self) -> int:
        return sum(len(part) for part in self.parts) - sum(int(d.sum()) for d in self.hidden if d is not None)

    @property
    def last(self) -> int:
        return self.parts[-1].covers.last

    @property
    def dims(self) -> int:
        return int(self.parts[0].vectors.codes.shape[1])

    def prints(self, numbers: np.ndarray) -> np.ndarray:
        """The fingerprints of entries by number, -1 for one that is not there; shape (n,)."""
        found = np.full(len(numbers), -1, dtype=np.int64)
        for part, dead in zip(self.parts, self.hidden, strict=True):
            rows = part.rows_by_number(numbers)
            here = np.flatnonzero(rows >= 0)
            if dead is not None:
                here = here[~dead[rows[here]]]
            found[here] = part.prints[rows[here]]
        return found

    def numbers_between(self, first: int, end: int) -> np.ndarray:
        """The numbers of all entries from `first` to below `end`."""
        found = []
        for part, dead in zip(self.parts, self.hidden, strict=True):
            start, stop = np.searchsorted(part.numbers, (first, end))
            here = part.numbers[start:stop]
            found.append(here if dead is None else here[~dead[start:stop]])
        return np.concatenate(found)

    def extended(self, parts: Sequence[Part]) -> Index:
        """With what these parts say as one more part, which is written."""
        (covers,) = {part.covers for part in parts}
        write = parts[0].write if len(parts) == 1 else lambda file: merge(parts, file)
        return Index(self.folder, (*self.parts, _saved(self.folder, covers, write)))

    def due(self) -> int:
        """How many of the last parts are to be merged; 0 if none are."""
        sizes = [len(part) + len(part.touched) + SMALL for part in self.parts]
        total, many = sizes[-1], 1
        while many < len(sizes) and sizes[-many - 1] < GROWTH * total:
            total += sizes[-many - 1]
            many += 1
        return many if many > 1 else 0

    def merge(self, many: int) -> Index:
        """With the last parts merged. The files that were merged are deleted."""
        kept, old = self.parts[:-many], self.parts[-many:]
        covers = replace(old[-1].covers, first=old[0].covers.first)
        made = Index(self.folder, (*kept, _saved(self.folder, covers, lambda file: merge(old, file))))
        for part in old:
            with suppress(PermissionError):
                (self.folder / part.covers.name).unlink(missing_ok=True)
        return made


def _saved(folder: Path, covers: Covers, write: Callable[[BinaryIO], None]) -> Part:
    """A part that is written beside the others as a whole or not at all, and mapped."""
    path = folder / covers.name
    unfinished = folder / f"{covers.name}.{secrets.token_hex(4)}.part"
    try:
        with create_private(unfinished) as file:
            write(file)
            os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    with path.open("rb") as file:
        return Part.map(file)
