"""From a file to its records, as data sets are published: bytes, unpacked; what they hold; its records.

What a file holds is told from its content, never from its name: JSON lines, JSON values one after another, a JSON
array, an object around one, CSV, parquet or arrow, each as it is or in gzip. A file comes from outside: what it unpacks
to is bounded, and every error says where in it something is wrong.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import count, islice
from math import isfinite
from os.path import isfile
from pathlib import Path
from typing import Any

from pydantic_core import PydanticSerializationError, from_json, to_json

from practicum.core.errors import TaskFileError
from practicum.core.files import MOST_BYTES, read_bytes
from practicum.core.requirements import pip_install
from practicum.core.words import one_line, quantity

MOST_RECORDS = 1_000_000
"""More records than this are not read: a small file may unpack to any number of them."""

FIRST = 20
"""Records that tell what a file holds."""

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
"""The names of lettered choices."""

_ARCHIVES = {b"PK\x03\x04": "zip", b"BZh": "bzip2", b"\xfd7zXZ\0": "xz", b"\x28\xb5\x2f\xfd": "zstd"}
_PARQUET, _ARROW_FILE, _ARROW_STREAM = b"PAR1", b"ARROW1", b"\xff\xff\xff\xff"

_BATCH = 1000
"""Rows of a table that are unpacked at once."""

_TOO_LARGE = f"{{}}: it unpacks to more than {MOST_BYTES // 2**20:,} MB; write those records to use to a file"


def read_records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Place and fields of each record of a file, or of a folder that `datasets.save_to_disk` wrote. The place is
    "line 7" in JSON lines and CSV, where a record begins, else "record 7"; both count from 1.

    A cell of a table that is empty, null or no number is a field that the record does not have. Raises TaskFileError
    where something cannot be read, after the records before it.
    """
    for number, (place, record) in enumerate(_values(path)):
        if number == MOST_RECORDS:
            raise TaskFileError(
                "tasks.too_large",
                f"{path}: it has more than {MOST_RECORDS:,} records; write those to use to a file",
                file=str(path),
                limit=MOST_RECORDS,
            )
        if not isinstance(record, dict):
            raise TaskFileError(
                "tasks.malformed",
                f"{path} {place}: expected a JSON object, not {type_name(record)}",
                file=str(path),
                place=place,
            )
        yield place, record


def read_text(path: Path) -> str:
    """The text of a UTF-8 file. Raises TaskFileError when it cannot be read."""
    return _utf8(_content(path), path).decode()


def _values(path: Path) -> Iterator[tuple[str, Any]]:
    if isfile(path / "state.json"):
        yield from _table(map(_content, sorted(path.glob("*.arrow"))), path)
        return
    content = _content(path)
    if content.startswith((_PARQUET, _ARROW_FILE, _ARROW_STREAM)):
        yield from _table([content], path)
        return
    content = _utf8(content, path)
    if not re.match(rb"\s*[{[]", content) and (delimiter := _delimiter(content)):
        yield from _rows(content, delimiter, path)
        return
    yield from _json(content, path)


def _content(path: Path) -> bytes:
    """The bytes of a file, unpacked if they are gzip. Raises TaskFileError."""
    try:
        raw = read_bytes(path)
    except IsADirectoryError:
        parts = sorted(state.parent for state in path.glob("*/state.json"))
        advice = f"give one of its parts, such as {parts[0]}" if parts else "give the path of a file of tasks"
        raise TaskFileError("tasks.not_found", f"{path}: is a folder; {advice}", file=str(path)) from None
    except FileNotFoundError:
        raise TaskFileError(
            "tasks.not_found", f"{path}: no such file; give the path of a file of tasks", file=str(path)
        ) from None
    except OSError as error:
        raise TaskFileError("tasks.unreadable", f"{path}: cannot be read ({error.strerror})", file=str(path)) from None
    if archive := next((kind for magic, kind in _ARCHIVES.items() if raw.startswith(magic)), None):
        raise TaskFileError(
            "tasks.unknown_format",
            f"{path}: is packed as {archive}, which is not read; unpack it and give the file itself",
            file=str(path),
        )
    if not raw.startswith(b"\x1f\x8b"):
        return raw
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(raw)) as packed:
            content = packed.read(MOST_BYTES + 1)
    except (EOFError, OSError, zlib.error) as error:
        raise TaskFileError(
            "tasks.damaged", f"{path}: the gzip is damaged ({error}); download or copy the file again", file=str(path)
        ) from None
    if len(content) > MOST_BYTES:
        raise TaskFileError("tasks.too_large", _TOO_LARGE.format(path))
    return content


def _utf8(content: bytes, path: Path) -> bytes:
    """The bytes of a UTF-8 text without a byte order mark. Raises TaskFileError for others."""
    try:
        content.decode()
    except UnicodeDecodeError as error:
        number = content.count(b"\n", 0, error.start) + 1
        raise TaskFileError("text.not_utf8", f"{path} line {number}: not UTF-8 text; save the file as UTF-8") from None
    return content.removeprefix(codecs.BOM_UTF8)


def _json(content: bytes, path: Path) -> Iterator[tuple[str, Any]]:
    # Unlike splitlines(), this keeps U+2028 and similar characters, which a JSON string may hold unescaped.
    lines = ((number, line) for number, line in enumerate(io.BytesIO(content), 1) if line.strip())
    head = list(islice(lines, 2))
    if len(head) == 1 or (head and not _is_object(head[0][1])):
        try:
            document = from_json(content, allow_inf_nan=False)
        except ValueError:
            if len(head) == 1 or not _is_object(head[1][1]):
                yield from _one_after_another(content.rstrip().decode(), path)
                return
            # These are JSON lines, the first of which is broken.
        else:
            yield from _members(document, f"line {head[0][0]}", path)
            return
    for number, line in (*head, *lines):
        yield f"line {number}", _parsed(line.rstrip(), number, path)


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(from_json(line), dict)
    except ValueError:
        return False


def _parsed(text: str | bytes, number: int, path: Path) -> Any:
    """The JSON value that begins on line `number`."""
    try:
        # Unlike `json`, this refuses NaN and halves of surrogate pairs, which neither a store nor a server accepts.
        return from_json(text, allow_inf_nan=False)
    except ValueError as error:
        reason, _, place = str(error).partition(" at line ")
        line, _, column = place.partition(" column ")
        where = f"{path} line {number + int(line or 1) - 1}"
        known = "known are JSON lines, a JSON array of objects, CSV with a header, parquet and arrow"
        raise TaskFileError(
            "tasks.malformed", f"{where}: not JSON ({reason} at column {column or 1}); {known}"
        ) from None


def _one_after_another(text: str, path: Path) -> Iterator[tuple[str, Any]]:
    """JSON values that may take several lines, with nothing but white space between them."""
    decoder, begin = json.JSONDecoder(), re.compile(r"[^ \t\r\n]")
    end, line = 0, 1
    for number in count(1):
        found = begin.search(text, end)
        if found is None:
            return
        line, start = line + text.count("\n", end, found.start()), found.start()
        try:
            _, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            end = len(text)  # the stricter parser says what is wrong
        yield f"record {number}", _parsed(text[start:end], line, path)
        line += text.count("\n", start, end)


def _members(document: Any, place: str, path: Path) -> Iterator[tuple[str, Any]]:
    """The records of one JSON document: an array, an object around one list of objects, or a record."""
    if isinstance(document, dict) and "input" not in document:
        lists = [name for name, value in document.items() if isinstance(value, list) and _are_objects(value)]
        if len(lists) > 1:
            names = field_names(dict.fromkeys(lists))
            raise TaskFileError(
                "tasks.ambiguous_format", f"{path}: it has lists of records in {names}; write the one to use to a file"
            )
        document = document[lists[0]] if lists else document
    if isinstance(document, list):
        yield from ((f"record {number}", record) for number, record in enumerate(document, 1))
    else:
        yield place, document


def _are_objects(values: list[Any]) -> bool:
    return bool(values) and all(isinstance(value, dict) for value in values)


def _delimiter(content: bytes) -> str | None:
    """The sign that divides each of the first records of CSV into the same columns, else the one that divides the first
    into most; None if none divides it."""

    line = content.lstrip().partition(b"\n")[0].decode()

    def columns(delimiter: str) -> tuple[bool, int]:
        found = []
        with suppress(csv.Error):  # the record is named when it is read
            for row in filter(None, islice(_reader(content, delimiter), FIRST)):
                found.append(len(row))
        return len({*found}) == 1 and found[0] > 1, found[0] if found else line.count(delimiter) + 1

    best = max(",\t;", key=columns)
    return best if columns(best)[1] > 1 else None


def _reader(content: bytes, delimiter: str) -> Any:
    return csv.reader(io.TextIOWrapper(io.BytesIO(content), "utf-8", newline=""), delimiter=delimiter, strict=True)


def _rows(content: bytes, delimiter: str, path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The records of CSV, with the names of its header."""
    reader = _reader(content, delimiter)
    names: list[str] = []
    ended = 0
    try:
        for row in reader:
            place, ended = f"line {ended + 1}", reader.line_num
            if not row:
                continue
            lettered = len(row) > 3 and row[-1].strip() in tuple(LETTERS[: len(row) - 2])
            if not names and lettered and "question" not in map(str.lower, row):
                # MMLU's own files have no header: a question, its choices, the letter of one.
                names = ["question", *LETTERS[: len(row) - 2], "answer"]
            elif not names:
                names = row
                if twice := next((name for name in names if name and names.count(name) > 1), None):
                    raise TaskFileError(
                        "tasks.malformed",
                        f"{path} {place}: two columns have the name {twice[:40]!r}; names must differ",
                        file=str(path),
                        place=place,
                    )
                continue
            if len(row) != len(names):
                header = field_names(dict.fromkeys(names))
                raise TaskFileError(
                    "tasks.malformed",
                    f"{path} {place}: {quantity(len(row), 'column')}, not the {len(names)} of {header}",
                    file=str(path),
                    place=place,
                )
            # A column without a name is an index, as pandas writes it.
            yield place, {name: cell for name, cell in zip(names, row, strict=True) if name and cell}
    except csv.Error as error:
        raise TaskFileError(
            "tasks.malformed",
            f"{path} line {ended + 1}: not CSV ({error}); check the quotes from there on",
            file=str(path),
            place=f"line {ended + 1}",
        ) from None


def _table(parts: Iterable[bytes], path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows of parquet and arrow."""
    try:
        import pyarrow
        from pyarrow import ipc, parquet
    except ImportError:
        raise TaskFileError(
            "extra.missing", f"{path}: parquet and arrow need a package: {pip_install('parquet')}"
        ) from None
    size = number = 0
    for part in parts:
        try:
            if part.startswith(_PARQUET):
                file = parquet.ParquetFile(pyarrow.BufferReader(part))
                schema, batches = file.schema_arrow, file.iter_batches(_BATCH)
            elif part.startswith(_ARROW_FILE):
                file = ipc.open_file(part)
                schema, batches = file.schema, map(file.get_batch, range(file.num_record_batches))
            else:
                batches = ipc.open_stream(part)
                schema = batches.schema
            if twice := next((name for name in schema.names if schema.names.count(name) > 1), None):
                raise TaskFileError(
                    "tasks.malformed", f"{path}: two columns have the name {twice[:40]!r}; names must differ"
                )
            classes = _class_names(schema.metadata)
            for batch in batches:
                batch.validate(full=True)
                for start in range(0, batch.num_rows, _BATCH):
                    # Through JSON, because a row holds dates, decimals and numbers that are none.
                    rows = as_json(batch.slice(start, _BATCH).to_pylist())
                    if (size := size + len(rows)) > MOST_BYTES:
                        raise TaskFileError("tasks.too_large", _TOO_LARGE.format(path))
                    for row in from_json(rows):
                        number += 1
                        named = {name: _named(value, classes.get(name)) for name, value in row.items()}
                        yield f"record {number}", {name: value for name, value in named.items() if value is not None}
        except (pyarrow.ArrowException, OSError, ValueError) as error:
            reason = one_line(error, 200)
            raise TaskFileError(
                "tasks.damaged", f"{path} after record {number}: damaged or of an unknown kind ({reason})"
            ) from None


def as_json(rows: list[dict[str, Any]]) -> bytes:
    """The rows of a table as a JSON list: times and decimals as text, numbers that are none as null, bytes that are no
    text in base64."""
    try:
        return to_json(rows, inf_nan_mode="null", fallback=str)
    except PydanticSerializationError:  # bytes that are no text, such as a picture
        return to_json(rows, inf_nan_mode="null", fallback=str, bytes_mode="base64")


def _class_names(metadata: Mapping[bytes, bytes] | None) -> dict[str, list[str]]:
    """By column, the names of the classes that its numbers stand for, which `datasets` writes into a table's schema."""
    try:
        columns = json.loads((metadata or {})[b"huggingface"])["info"]["features"].items()
        return {name: column["names"] for name, column in columns if "names" in column}
    except (LookupError, ValueError, TypeError, AttributeError):
        return {}


def _named(value: Any, classes: list[str] | None) -> Any:
    """The name of a class by its number; None for -1, which stands for an unknown one. Other values as they are."""
    if classes is None or type(value) is not int:
        return value
    return classes[value] if 0 <= value < len(classes) else None


def field_names(record: Mapping[str, Any], most: int = 10) -> str:
    """The names of a record's fields, for error messages."""
    more = f" and {len(record) - most} more" if len(record) > most else ""
    return (", ".join(repr(key[:40]) for key in list(record)[:most]) or "no fields") + more


_TYPE_NAMES = {dict: "an object", str: "a string", type(None): "null", bool: "true or false", int: "a number"}


def type_name(value: Any) -> str:
    """The type of a JSON value, for error messages."""
    if isinstance(value, list):
        others = [type_name(item) for item in value if not isinstance(item, str)]
        return f"a list with {others[0]}" if others else "a list"
    if isinstance(value, float):
        return "a number" if isfinite(value) else "a number too large to hold"
    return _TYPE_NAMES[type(value)]
