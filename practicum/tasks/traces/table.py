"""Reader of Parquet files. It holds one batch of rows in memory at a time, for files of any size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, BinaryIO

from pydantic_core import from_json

from practicum.core.errors import TaskFileError
from practicum.core.requirements import pip_install
from practicum.core.words import one_line
from practicum.tasks.records import as_json
from practicum.tasks.traces.fields import decoded
from practicum.tasks.traces.trace import MOST_DOCUMENT, RecordPlace

BATCH_ROWS = 64
"""Rows per batch."""

BUFFER = 2**20


def rows(file: BinaryIO, place: RecordPlace) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the number of each row, counted from 1, and the fields of the row as JSON values. Null fields are omitted.
    A string that holds a JSON list or object, as some data sets store messages, is parsed. A damaged file is reported
    as a problem at `place`.

    Raises TaskFileError if pyarrow is not installed.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise TaskFileError(
            "extra.missing", f"{place.source.shown}: reading Parquet needs a package: {pip_install('parquet')}"
        ) from None
    number = 0
    try:
        # With a buffer and without read-ahead, the pages of a row group are read one by one instead of all at once.
        table = parquet.ParquetFile(file, buffer_size=BUFFER, pre_buffer=False)
        # One iterator per row group: an iterator over all groups keeps every group that it has read in memory.
        groups = (table.iter_batches(BATCH_ROWS, [group], use_threads=False) for group in range(table.num_row_groups))
        for batch in chain.from_iterable(groups):
            batch.validate(full=True)
            raw = as_json(batch.to_pylist()) if batch.nbytes <= MOST_DOCUMENT else b""
            if not 0 < len(raw) <= MOST_DOCUMENT:
                place.warn(f"{BATCH_ROWS} rows of more than {MOST_DOCUMENT // 2**20} MB are left out")
                number += batch.num_rows
                continue
            for row in from_json(raw):
                number += 1
                yield number, {name: decoded(value) for name, value in row.items() if value is not None}
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        place.warn(f"damaged after row {number}", one_line(error, 200))
