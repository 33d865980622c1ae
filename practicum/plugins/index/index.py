"""Search index of a run's entries in memory-mapped files. A search finds entries without reading every entry.

A file covers the entries that changed between two versions: the vectors of these entries (8 bits per number, in lists,
see `retrieval.lists`), and postings of their words, sections, tags, trust and outcome (see `postings`). The first file
covers the run from the first version. Each later file covers the changes after the previous file, and hides the states
that earlier files have of the changed entries. Files of similar size are merged in the background, so that each entry
is rewritten only a few times and a search reads few files. A file is written under a temporary name and then renamed,
so that a killed process leaves a valid index. The final name of a file states the versions that the file covers. The
index is rebuilt from the database if a file is missing or damaged, or if the index belongs to a run, version or
embedder that differs from the requested one.
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
"""Pattern of the name of an index file. The groups are the first and the last version that the file covers."""

MAGIC = b"practicum index 1\n"

GROWTH, SMALL = 4, 1_024
"""A file is merged with all later files if the file is less than GROWTH times as large as all later files together. The
size of a file is the number of its rows and touched entries, plus SMALL. SMALL causes small files to be merged."""

WORK = 2**18
"""Maximum number of postings that a search reads in each file to propose rows by their words. The proposed rows are
then compared with the query. Postings of the query's rarest words are read first."""

SHARE = 2**16 - 2**6
"""Score, while rows are proposed, of a row whose share of the query's words is 1. In this step, scores are stored in 16
bits and the lengths of entries in 8 bits, because the speed depends on the amount of memory read."""

FEW = 4_096
"""If at most this many rows match the filter, all matching rows are proposed."""

FILTERS = 16
"""Maximum number of filters whose matching rows are cached."""

DTYPES: Mapping[str, np.dtype[Any]] = {
    name: np.dtype(kind)
    for name, kind in {
        "numbers": "<i4", "prints": "<i8", "touched": "<i4", "lengths": "<i4", "rows": "<i4", "offsets": "<i8",
        "centres": "<f4", "codes": "i1", "scales": "<f4", "keys": "<i8", "starts": "<i8", "packed": "<u4",
    }.items()
}  # fmt: skip
"""Names of the arrays in a file, with the types of their items."""


@lru_cache(maxsize=2**16)
def facet(name: str, value: str = "") -> int:
    """Return the key of a facet: a property that entries can be filtered by."""
    return int.from_bytes(blake2b(f"{name}\0{value}".encode("utf-8", "replace"), digest_size=8).digest(), "big") >> 1


VISIBLE_FACET = facet("visible")

Chunk = tuple[Sequence[Entry], np.ndarray]
"""Entries sorted by number, and their vectors, shape (n, d)."""


def facets(entry: Entry) -> list[int]:
    """Return the keys of all facets of an entry: section, trust, outcome, tags and visibility."""
    keys = [facet("section", entry.section), facet("trust", entry.trust)]
    if isinstance(outcome := entry.data.get("outcome"), str):
        keys.append(facet("outcome", outcome))
    keys += [facet("tag", source[4:]) for source in dict.fromkeys(entry.sources) if source.startswith("tag:")]
    return keys if entry.hidden else [*keys, VISIBLE_FACET]


def filter_facets(where: Filter) -> tuple[int, ...]:
    """Return the keys of the facets that an entry must have to match a filter."""
    keys = [VISIBLE_FACET if where.section is None else facet("section", where.section)]
    keys += [facet("tag", tag) for tag in where.tags]
    optional = (("outcome", where.outcome), ("trust", where.trust))
    return (*keys, *(facet(name, value) for name, value in optional if value is not None))


def fingerprint(entry: Entry) -> int:
    """Return a hash (63 bits) of the indexed properties of an entry: its text and its facets."""
    indexed = repr((entry.embedded_text, sorted(facets(entry))))
    return int.from_bytes(blake2b(indexed.encode("utf-8", "replace"), digest_size=8).digest(), "big") >> 1


@dataclass(frozen=True, kw_only=True)
class Covers:
    """Range of versions that a file covers: the changes of the run `space` from version `first` to version `last`. The
    vectors in the file come from the embedder `embedder`."""

    space: str
    embedder: str
    first: int
    last: int

    @property
    def name(self) -> str:
        return f"index.{self.first}.{self.last}"


class Part:
    """Contents of one file: a row for each entry, sorted by entry number. `touched` has the numbers of all entries that
    were changed or removed after the versions that the previous file covers."""

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
        """Build a part from entries sorted by number, and their vectors, shape (n, d)."""
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
        """Map a file into memory without reading the arrays. Return None if the file is missing or damaged."""
        try:
            with path.open("rb") as file:
                return cls.map(file)
        except (OSError, ValueError, KeyError, TypeError):
            return None

    @classmethod
    def map(cls, file: BinaryIO) -> Part:
        """Map a file written by `write` into memory. Raise ValueError, KeyError or TypeError if the file is damaged."""
        size = os.fstat(file.fileno()).st_size
        tail = struct.calcsize("<Q") + len(MAGIC)
        if size < tail:
            raise ValueError("not an index file")
        file.seek(size - tail)
        (head,), magic = struct.unpack("<Q", file.read(8)), file.read()
        if magic != MAGIC or not 0 <= head <= size - tail:
            raise ValueError("not an index file")
        file.seek(head)
        header = json.loads(file.read(size - tail - head))
        raw = np.memmap(file, np.uint8, "r", 0, (head,))
        arrays = {}
        for name, dtype in DTYPES.items():
            start, *shape = map(int, header["arrays"][name])
            end = start + dtype.itemsize * int(np.prod(shape, dtype=object))
            if min(start, *shape) < 0 or start % 64 or end > head:
                raise ValueError(f"array {name!r} exceeds the file")
            arrays[name] = raw[start:end].view(dtype).reshape(shape).view(np.ndarray)
        part = cls(Covers(**header["covers"]), arrays)
        part._check(arrays)
        return part

    def _check(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Raise ValueError if the shapes of the arrays do not match. After this check, a search cannot read out of
        bounds."""
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
            raise ValueError("the shapes of the index arrays do not match")

    def rows_by_number(self, numbers: np.ndarray) -> np.ndarray:
        """Return the row of each entry in `numbers`; -1 for an entry that is not in this part."""
        if not len(self):
            return np.full(len(numbers), -1)
        at = np.minimum(np.searchsorted(self.numbers, numbers), len(self) - 1)
        return np.where(self.numbers[at] == numbers, at, -1)

    def rows_with(self, keys: tuple[int, ...]) -> Rows | None:
        """Return the rows that have all facets in `keys`, or None if all rows of the part have these facets."""
        if keys in self._rows:
            self._rows.move_to_end(keys)
            return self._rows[keys]
        matches = None
        for packed in sorted((self.postings.of(key) for key in keys), key=len):
            if len(packed) == len(self):
                continue
            mask = np.zeros(len(self), dtype=bool)
            mask[rows_of(packed)] = True
            matches = mask if matches is None else matches & mask
        self._rows[keys] = None if matches is None else Rows(matches)
        if len(self._rows) > FILTERS:
            self._rows.popitem(last=False)
        return self._rows[keys]

    @cached_property
    def words(self) -> int:
        """Total number of words in all entries."""
        return int(self.lengths.sum())

    def nearest(
        self, vector: np.ndarray, query: WordQuery, n: int, selected: Rows | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return about n rows with the largest share of a query's words, and the n rows nearest to `vector`.

        Returns the rows, the cosine of each row's vector with `vector` (inexact, because vectors are rounded to 8
        bits), and the share of the query's words that each row has. All returned rows are in `selected`; if `selected`
        is None, any row can be returned.
        """
        if not len(self) or (selected is not None and not selected.count):
            none = np.zeros(0, dtype=np.int64)
            return none, none.astype(np.float32), none.astype(float)
        # If only a few rows are excluded, it is faster to search all rows and to remove the excluded rows from the
        # result.
        nearly_all = selected is not None and 8 * (len(self) - selected.count) <= n
        among = None if nearly_all else selected
        near = self.vectors.near(vector, n, among).astype(np.int64)
        rows = _distinct(np.append(near, self._with_words(query, n, among)))
        if nearly_all and selected is not None:
            rows = rows[selected.of(rows)]
        cosines = np.einsum("ij,j->i", self.vectors.read(rows), vector)
        return rows, cosines, self.shares(query, rows)

    def having(self, key: int, dead_rows: np.ndarray, dead: np.ndarray | None) -> int:
        """Return the number of rows that have a key and are not dead. A row is dead if its entry was changed or removed
        later. The dead rows are passed twice: as row numbers (`dead_rows`), and as a mask (`dead`; None if no row is
        dead)."""
        packed = self.postings.of(key)
        if dead is None:
            return len(packed)
        if len(packed) < len(dead_rows):
            return len(packed) - int(np.count_nonzero(dead[rows_of(packed)]))
        return len(packed) - int(np.count_nonzero(counts_of(packed, dead_rows)))

    def shares(self, query: WordQuery, rows: np.ndarray) -> np.ndarray:
        """Return the share of a query's words that each row has."""
        parts = np.zeros(len(rows))
        for key in query.weights:
            parts += query.part(key, counts_of(self.postings.of(key), rows), self.lengths[rows])
        return query.shares(parts)

    def _with_words(self, query: WordQuery, n: int, selected: Rows | None) -> np.ndarray:
        """Return the n rows in `selected` with the largest share of a query's rarest words. If `selected` has at most
        FEW rows, return all rows in `selected`. If `selected` is None, any row can be returned."""
        if selected is not None and selected.count <= FEW:
            return selected.rows()
        by_key = sorted(((key, self.postings.of(key)) for key in query.weights), key=lambda item: len(item[1]))
        left, by_word, shares, scores = WORK, list[np.ndarray](), list[np.ndarray](), self._scores
        try:
            for key, packed in by_key:
                if len(packed) > left and by_word:
                    break
                packed = packed[:left]
                left -= len(packed)
                if selected is not None:
                    packed = packed[selected.of(rows_of(packed))]
                # Convert to `intp` once: as an index, NumPy would convert any other integer type at each use.
                rows = rows_of(packed).astype(np.intp)
                by_word.append(rows)
                counts, lengths = packed & MOST_COUNT, self._short[rows]
                share = SHARE * query.part(key, counts.astype(np.float32), lengths.astype(np.float32))
                scores[rows] = score = scores[rows] + share.astype(np.uint16)
                shares.append(score)
            if not by_word:
                return np.zeros(0, dtype=np.intp)
            # `by_word` has a row once for each query word that the row has. At the same position, `shares` has the
            # row's total score for this word and all words read before it.
            top = highest_places(np.concatenate(shares), n * len(by_word))
            best: np.ndarray = _distinct(np.concatenate(by_word)[top])
            best = best[highest_places(scores[best], n)]
        finally:
            for rows in by_word:
                scores[rows] = 0
        return best

    @cached_property
    def _scores(self) -> np.ndarray:
        """Scores of the rows during a search. All zeros between searches."""
        return np.zeros(len(self), dtype=np.uint16)

    @cached_property
    def _short(self) -> np.ndarray:
        """Lengths of the entries in words, at most 255."""
        short: np.ndarray = np.minimum(self.lengths, 255).astype(np.uint8)
        return short

    def spilled(self, folder: Path) -> Part:
        """Write the part to an unnamed temporary file, and return the part mapped from this file. The system deletes
        the file when the mapping ends."""
        with tempfile.TemporaryFile(dir=folder) as file:
            self.write(file)
            return Part.map(file)

    def write(self, file: BinaryIO) -> None:
        """Write the part to a file."""
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
    """Writer of an index file: the arrays, followed by a header with their offsets and shapes."""

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
        """Append rows to the array of the latest call of `begin`."""
        name, extent = next(reversed(self._arrays.items()))
        self._file.write(np.ascontiguousarray(array, dtype=DTYPES[name]).data if array.size else b"")
        extent[1:] = [extent[1] + len(array) if len(extent) > 1 else len(array), *array.shape[1:]]

    def array(self, name: str, array: np.ndarray) -> None:
        self.begin(name)
        self.append(array)


def _distinct(rows: np.ndarray) -> np.ndarray:
    """Return the distinct rows, sorted. `np.unique` is several times slower."""
    ordered = np.sort(rows)
    distinct: np.ndarray = ordered[np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)]]
    return distinct


def merge(parts: Sequence[Part], file: BinaryIO) -> None:
    """Merge parts, passed with the oldest first, into one part, and write this part to the file. Only a few numbers per
    entry are in memory; vectors and words are copied in blocks."""
    first, last = parts[0], parts[-1]
    covers = replace(last.covers, first=first.covers.first)
    alive = [np.arange(len(part)) if dead is None else np.flatnonzero(~dead) for part, dead in _hidden(parts)]
    numbers = np.concatenate([part.numbers[rows] for part, rows in zip(parts, alive, strict=True)])
    order = np.argsort(numbers, kind="stable")
    # `part_of` and `row_of` have, for each row of the merged part, the position in `parts` of the old part that has the
    # entry, and the entry's row in this old part. `new_rows` has, for each row of each old part, the row in the merged
    # part; -1 for a hidden row.
    part_of = np.repeat(np.arange(len(parts), dtype=np.int32), [len(rows) for rows in alive])[order]
    row_of = np.concatenate(alive)[order].astype(np.int32)
    new_rows = [np.full(len(part), -1, dtype=np.int32) for part in parts]
    for i in range(len(parts)):
        here = np.flatnonzero(part_of == i)
        new_rows[i][row_of[here]] = here

    def column(name: str) -> np.ndarray:
        return np.concatenate([getattr(p, name)[rows] for p, rows in zip(parts, alive, strict=True)])[order]

    def read(rows: np.ndarray) -> np.ndarray:
        vectors = np.empty((len(rows), largest.vectors.codes.shape[1]), dtype=np.float32)
        source = part_of[rows]
        for i in np.unique(source):
            here = source == i
            vectors[here] = parts[i].vectors.read(row_of[rows[here]])
        return vectors

    largest = max(parts, key=len)
    lists_of_rows = np.full(len(order), -1, dtype=np.int32)
    from_largest = np.flatnonzero(part_of == parts.index(largest))
    lists_of_rows[from_largest] = largest.vectors.list_of(row_of[from_largest])
    lists = arrange(len(order), read, largest.vectors.order.centres, lists_of_rows)
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
        renumbered = [(part.postings, rows) for part, rows in zip(parts, new_rows, strict=True)]
        keys, starts = merged(renumbered, writer.append)
        writer.array("keys", keys)
        writer.array("starts", starts)


def _hidden(parts: Sequence[Part]) -> Iterator[tuple[Part, np.ndarray | None]]:
    """Yield each part with a mask of the part's rows that later parts hide, shape (n,); None if later parts hide no
    rows."""
    for i, part in enumerate(parts):
        later = [rows for newer in parts[i + 1 :] if len(rows := part.rows_by_number(newer.touched))]
        rows = np.concatenate(later) if later else np.zeros(0, dtype=np.int64)
        rows = rows[rows >= 0]
        dead = np.zeros(len(part), dtype=bool)
        dead[rows] = True
        yield part, dead if len(rows) else None


@dataclass(frozen=True)
class Index:
    """Parts of an index, the oldest first. `hidden` has a mask for each part: the rows that later parts hide, shape
    (n,); None for a part without hidden rows."""

    folder: Path
    parts: tuple[Part, ...]
    hidden: tuple[np.ndarray | None, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "hidden", tuple(dead for _, dead in _hidden(self.parts)))

    @classmethod
    def open(cls, folder: Path, space: str, embedder: str, version: int) -> Index | None:
        """Open the index of a run at a version. Return None if a file is missing, is damaged, or belongs to another run
        or embedder."""
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
        """Return the fingerprints of entries by number, shape (n,); -1 for a missing entry."""
        prints = np.full(len(numbers), -1, dtype=np.int64)
        for part, dead in zip(self.parts, self.hidden, strict=True):
            rows = part.rows_by_number(numbers)
            here = np.flatnonzero(rows >= 0)
            if dead is not None:
                here = here[~dead[rows[here]]]
            prints[here] = part.prints[rows[here]]
        return prints

    def numbers_between(self, first: int, end: int) -> np.ndarray:
        """Return the numbers of all entries in the range from `first` up to, but not including, `end`."""
        numbers = []
        for part, dead in zip(self.parts, self.hidden, strict=True):
            start, stop = np.searchsorted(part.numbers, (first, end))
            here = part.numbers[start:stop]
            numbers.append(here if dead is None else here[~dead[start:stop]])
        return np.concatenate(numbers)

    def extended(self, parts: Sequence[Part]) -> Index:
        """Merge `parts` into one new part, write the new part to a file, and return this index with the new part."""
        (covers,) = {part.covers for part in parts}
        write = parts[0].write if len(parts) == 1 else lambda file: merge(parts, file)
        return Index(self.folder, (*self.parts, _saved(self.folder, covers, write)))

    def due(self) -> int:
        """Return how many of the newest parts should be merged now; 0 if no parts should be merged."""
        sizes = [len(part) + len(part.touched) + SMALL for part in self.parts]
        total, count = sizes[-1], 1
        while count < len(sizes) and sizes[-count - 1] < GROWTH * total:
            total += sizes[-count - 1]
            count += 1
        return count if count > 1 else 0

    def merge(self, count: int) -> Index:
        """Merge the newest `count` parts into one part, delete the files of the old parts, and return the new index."""
        unchanged, old = self.parts[:-count], self.parts[-count:]
        covers = replace(old[-1].covers, first=old[0].covers.first)
        merged_index = Index(self.folder, (*unchanged, _saved(self.folder, covers, lambda file: merge(old, file))))
        for part in old:
            with suppress(PermissionError):
                (self.folder / part.covers.name).unlink(missing_ok=True)
        return merged_index


def _saved(folder: Path, covers: Covers, write: Callable[[BinaryIO], None]) -> Part:
    """Write a part atomically to a file in the folder, and return the part mapped from this file."""
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
