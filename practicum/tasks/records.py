"""Reader of the records of a data file.

The file format is detected from the content, never from the file name: JSON lines, consecutive JSON values, a JSON
array, an object with one list of objects, CSV, parquet or arrow, each plain or gzipped. Texts are UTF-8, or UTF-16
with a byte order mark. A file is untrusted input: its unpacked size is limited, and every error names the position in
the file.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import re
import shlex
import warnings
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import count, islice
from math import isfinite
from os.path import isfile
from pathlib import Path
from typing import Any

from pydantic_core import PydanticSerializationError, from_json, to_json

from practicum.core.errors import PracticumWarning, TaskFileError
from practicum.core.files import MOST_BYTES, read_bytes
from practicum.core.requirements import pip_install
from practicum.core.surrogates import without_unpaired
from practicum.core.types import Task
from practicum.core.words import one_line, quantity

BY_POSITION = re.compile(
    r"(?:(?:line|record)-\d+|asked-\d+'*|.+\.(?:json|jsonl|ndjson|traj|parquet)(?:\.gz)?:[\d.]+)(?:#\d+)?"
)
"""Pattern of ids that only give a position: of a record or trace in a file, or of a query in a run. In another file or
run, the same id belongs to another task."""

MOST_RECORDS = 1_000_000
"""Maximum number of records that are read from a file. A small compressed file may unpack to any number of records."""

SAMPLED_RECORDS = 20
"""Number of records at the start of a file from which the format of the file is detected."""

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
"""Letters that label the choices of a task, in order."""

_ARCHIVES = {b"PK\x03\x04": "zip", b"BZh": "bzip2", b"\xfd7zXZ\0": "xz", b"\x28\xb5\x2f\xfd": "zstd"}
_PARQUET, _ARROW_FILE, _ARROW_STREAM = b"PAR1", b"ARROW1", b"\xff\xff\xff\xff"

_BATCH = 1000
"""Maximum number of rows of a table that are unpacked at once."""

_TOO_LARGE = f"{{}}: unpacks to more than {MOST_BYTES // 2**20:,} MB; write the records that you need to a smaller file"


def read_records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the place and the fields of each record of a file, or of a folder that `datasets.save_to_disk` wrote. The
    place is "line 7" in JSON lines and CSV (the first line of the record), and "record 7" in other formats. Lines
    and records count from 1.

    A table cell that is empty, null or not a number (NaN) is omitted from its record. Raises TaskFileError for
    unreadable content, after yielding the records before the unreadable content.
    """
    for number, (place, record) in enumerate(_values(path)):
        if number == MOST_RECORDS:
            raise TaskFileError(
                "tasks.too_large",
                f"{path}: more than {MOST_RECORDS:,} records; write the records that you need to a smaller file",
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
    """Return the text of a UTF-8 file. Raises TaskFileError when the file cannot be read or is not UTF-8."""
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
    if not re.match(rb"\s*[{[]", content):
        begin, named = _after_separator(content)
        if delimiter := named or _delimiter(content):
            yield from _rows(content[begin:], delimiter, path, content.count(b"\n", 0, begin))
            return
    content, replaced = without_unpaired(content)
    if replaced:
        warnings.warn(
            PracticumWarning(f"{path}: {quantity(replaced, 'unpaired surrogate')} replaced by U+FFFD"), stacklevel=2
        )
    yield from _json(content, path)


def _content(path: Path) -> bytes:
    """Return the bytes of a file, unpacked if gzipped. Raises TaskFileError if the file cannot be read or unpacked."""
    try:
        raw = read_bytes(path)
    except IsADirectoryError:
        parts = sorted(state.parent for state in path.glob("*/state.json"))
        advice = f"pass one of its splits, such as {parts[0]}" if parts else "pass the path of a task file"
        raise TaskFileError("tasks.not_found", f"{path}: is a folder; {advice}", file=str(path)) from None
    except FileNotFoundError:
        raise TaskFileError(
            "tasks.not_found", f"{path}: no such file; pass the path of a task file", file=str(path)
        ) from None
    except OSError as error:
        raise TaskFileError("tasks.unreadable", f"{path}: cannot be read ({error.strerror})", file=str(path)) from None
    if archive := next((kind for magic, kind in _ARCHIVES.items() if raw.startswith(magic)), None):
        raise TaskFileError(
            "tasks.unknown_format",
            f"{path}: {archive} files are not supported; unpack the file and pass the result",
            file=str(path),
        )
    if not raw.startswith(b"\x1f\x8b"):
        return raw
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(raw)) as packed:
            content = packed.read(MOST_BYTES + 1)
    except (EOFError, OSError, zlib.error) as error:
        raise TaskFileError(
            "tasks.damaged", f"{path}: damaged gzip file ({error}); download or copy the file again", file=str(path)
        ) from None
    if len(content) > MOST_BYTES:
        raise TaskFileError("tasks.too_large", _TOO_LARGE.format(path))
    return content


def _utf8(content: bytes, path: Path) -> bytes:
    """Return text in UTF-8 without a byte order mark. Raises TaskFileError for text that is neither UTF-8 nor UTF-16
    with a byte order mark."""
    try:
        if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            return content.decode("utf-16").encode()
        content.decode()
    except UnicodeDecodeError as error:
        number = content.count(b"\n", 0, error.start) + 1
        command = f"iconv -f WINDOWS-1252 -t UTF-8 {shlex.quote(str(path))} > utf8{path.suffix}"
        raise TaskFileError(
            "text.not_utf8", f"{path} line {number}: not UTF-8 text; convert a file of Windows with: {command}"
        ) from None
    return content.removeprefix(codecs.BOM_UTF8)


def _json(content: bytes, path: Path) -> Iterator[tuple[str, Any]]:
    # Unlike splitlines(), iteration over BytesIO does not split at U+2028 and the like, which a JSON string may hold
    # unescaped.
    lines = ((number, line) for number, line in enumerate(io.BytesIO(content), 1) if line.strip())
    head = list(islice(lines, 2))
    if len(head) == 1 or (head and not _is_object(head[0][1])):
        try:
            document = from_json(content, allow_inf_nan=False)
        except ValueError:
            if len(head) == 1 or not _is_object(head[1][1]):
                yield from _one_after_another(content.rstrip().decode(), path)
                return
            # The content is JSON lines, and the first line is malformed.
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
    """Parse a JSON value that begins on line `number`."""
    try:
        # Unlike `json`, `from_json` rejects NaN and unpaired surrogates, which neither a store nor a server accepts.
        return from_json(text, allow_inf_nan=False)
    except ValueError as error:
        reason, _, place = str(error).partition(" at line ")
        line, _, column = place.partition(" column ")
        where, at = f"{path} line {number + int(line or 1) - 1}", int(line or 1) - 1
        whole = text if isinstance(text, bytes) else text.encode()
        if re.match(rb"\s*(?://|/\*|#)", b"".join(whole.splitlines()[at : at + 1])):
            reason = "comments are not allowed"
        supported = "supported are JSON lines, a JSON array of objects, CSV with a header, parquet and arrow"
        raise TaskFileError(
            "tasks.malformed", f"{where}: not JSON ({reason} at column {column or 1}); {supported}"
        ) from None


def _one_after_another(text: str, path: Path) -> Iterator[tuple[str, Any]]:
    """Yield consecutive JSON values, each on one or more lines, separated by white space only."""
    decoder, begin = json.JSONDecoder(), re.compile(r"[^ \t\r\n]")
    end, line = 0, 1
    for number in count(1):
        match = begin.search(text, end)
        if match is None:
            return
        line, start = line + text.count("\n", end, match.start()), match.start()
        try:
            _, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            end = len(text)  # `_parsed` reports the error
        yield f"record {number}", _parsed(text[start:end], line, path)
        line += text.count("\n", start, end)


def _members(document: Any, place: str, path: Path) -> Iterator[tuple[str, Any]]:
    """Yield the records of a JSON document: an array, an object with one list of objects, or a single record. In a page
    of the datasets server, each row holds the record, and fields that the server cut are left out."""
    if isinstance(document, list) and _are_messages(document):
        document = {"messages": document}
    rows = document.get("rows") if isinstance(document, dict) else None
    if isinstance(rows, list) and _are_objects(rows) and all(isinstance(row.get("row"), dict) for row in rows):
        document = [
            {name: value for name, value in row["row"].items() if name not in (row.get("truncated_cells") or ())}
            for row in rows
        ]
    if isinstance(document, dict) and "input" not in document:
        values = [(name, value) for name, value in document.items() if isinstance(value, list)]
        lists = [name for name, value in values if _are_objects(value) and not _are_messages(value)]
        if len(lists) > 1:
            names = field_names(dict.fromkeys(lists))
            raise TaskFileError(
                "tasks.ambiguous_format",
                f"{path}: several fields hold records ({names}); write the records of one field to a file",
            )
        document = document[lists[0]] if lists else document
    if isinstance(document, list):
        yield from ((f"record {number}", record) for number, record in enumerate(document, 1))
    else:
        yield place, document


def _are_objects(values: list[Any]) -> bool:
    return bool(values) and all(isinstance(value, dict) for value in values)


def _are_messages(values: list[Any]) -> bool:
    """Return whether a list holds chat messages, which are not records."""
    return _are_objects(values) and not any({"role", "from"}.isdisjoint(value) for value in values)


def _delimiter(content: bytes) -> str | None:
    """Detect the delimiter of CSV: the character that splits all of the first records into the same number of columns,
    else the character that splits the first record into the most columns. None if no character splits the first
    record."""

    line = content.lstrip().partition(b"\n")[0].decode()

    def columns(delimiter: str) -> tuple[bool, int]:
        counts = []
        with suppress(csv.Error):  # `_rows` raises this error again, with the line
            for row in filter(None, islice(_reader(content, delimiter), SAMPLED_RECORDS)):
                counts.append(len(row))
        return len({*counts}) == 1 and counts[0] > 1, counts[0] if counts else line.count(delimiter) + 1

    best = max(",\t;", key=columns)
    return best if columns(best)[1] > 1 else None


def _reader(content: bytes, delimiter: str) -> Any:
    return csv.reader(io.TextIOWrapper(io.BytesIO(content), "utf-8", newline=""), delimiter=delimiter, strict=True)


def _after_separator(content: bytes) -> tuple[int, str]:
    """Return the position after Excel's first line `sep=;`, and the delimiter that the line names; 0 and an empty text
    without this line."""
    match = re.match(rb"sep=([,;|\t])\r?\n", content, re.IGNORECASE)
    return (match.end(), match[1].decode()) if match else (0, "")


def _rows(content: bytes, delimiter: str, path: Path, before: int = 0) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the records of CSV, with the header's names as fields. `before`: number of lines before the content."""
    reader = _reader(content, delimiter)
    names: list[str] = []
    ended = before
    try:
        for row in reader:
            place, ended = f"line {ended + 1}", reader.line_num + before
            if not row:
                continue
            lettered = len(row) > 3 and row[-1].strip() in tuple(LETTERS[: len(row) - 2])
            if not names and lettered and "question" not in map(str.lower, row):
                # MMLU's files have no header. Their columns: the question, its choices, the letter of the right choice.
                names = ["question", *LETTERS[: len(row) - 2], "answer"]
            elif not names:
                names = row
                if twice := next((name for name in names if name and names.count(name) > 1), None):
                    raise TaskFileError(
                        "tasks.malformed",
                        f"{path} {place}: two columns are named {twice[:40]!r}; names must be unique",
                        file=str(path),
                        place=place,
                    )
                continue
            if len(row) != len(names):
                header = field_names(dict.fromkeys(names))
                raise TaskFileError(
                    "tasks.malformed",
                    f"{path} {place}: {quantity(len(row), 'column')}, expected {len(names)} ({header})",
                    file=str(path),
                    place=place,
                )
            # A column without a name is an index column of pandas. It is omitted.
            yield place, {name: cell for name, cell in zip(names, row, strict=True) if name and cell}
    except csv.Error as error:
        raise TaskFileError(
            "tasks.malformed",
            f"{path} line {ended + 1}: not CSV ({error}); check the quotes in this line and in the lines after it",
            file=str(path),
            place=f"line {ended + 1}",
        ) from None


def _table(parts: Iterable[bytes], path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the rows of parquet and arrow files."""
    try:
        import pyarrow
        from pyarrow import ipc, parquet
    except ImportError:
        raise TaskFileError(
            "extra.missing", f"{path}: reading parquet and arrow needs a package: {pip_install('parquet')}"
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
                    "tasks.malformed", f"{path}: two columns are named {twice[:40]!r}; names must be unique"
                )
            classes = _class_names(schema.metadata)
            for batch in batches:
                batch.validate(full=True)
                for start in range(0, batch.num_rows, _BATCH):
                    # Convert to JSON and back, because a row may hold dates, decimals and NaN.
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
                "tasks.damaged", f"{path} after record {number}: damaged or unsupported table ({reason})"
            ) from None


def as_json(rows: list[dict[str, Any]]) -> bytes:
    """Return the rows of a table as a JSON list: times and decimals as text, NaN and infinity as null, bytes as text.
    If any bytes are not UTF-8, all bytes are in base64."""
    try:
        return to_json(rows, inf_nan_mode="null", fallback=str)
    except PydanticSerializationError:  # bytes that are not text, such as a picture
        return to_json(rows, inf_nan_mode="null", fallback=str, bytes_mode="base64")


def _class_names(metadata: Mapping[bytes, bytes] | None) -> dict[str, list[str]]:
    """Return the class names of each column with class labels, from the schema metadata that `datasets` writes."""
    try:
        columns = json.loads((metadata or {})[b"huggingface"])["info"]["features"].items()
        return {name: column["names"] for name, column in columns if "names" in column}
    except (LookupError, ValueError, TypeError, AttributeError):
        return {}


def _named(value: Any, classes: list[str] | None) -> Any:
    """Return the class name of a label, or None for an unknown class (-1). Return a value of a column without class
    names unchanged."""
    if classes is None or type(value) is not int:
        return value
    return classes[value] if 0 <= value < len(classes) else None


def all_fields(records: Iterable[tuple[str, Mapping[str, Any]]]) -> dict[str, Any]:
    """Return all fields of these records, each with its first value. One record is not enough to recognize the format
    of a file: a field whose cell is empty is missing from the record."""
    fields: dict[str, Any] = {}
    for _, record in records:
        fields = {**record, **fields}
    return fields


def unique_tasks(placed: Iterable[tuple[str, Task]], path: Path | str) -> list[Task]:
    """Return the tasks of (place, task) pairs. Raises TaskFileError if two tasks have the same id."""
    places: dict[str, str] = {}
    tasks = []
    for place, task in placed:
        if (first := places.setdefault(task.id, place)) != place:
            raise TaskFileError(
                "tasks.duplicate_id",
                f"{path} {place}: id {task.id!r} is already used in {first}; ids must be unique",
                file=str(path),
                place=place,
                id=task.id,
            )
        tasks.append(task)
    return tasks


def field_names(record: Mapping[str, Any], most: int = 10) -> str:
    """Return the names of a record's fields, for error messages."""
    more = f" and {len(record) - most} more" if len(record) > most else ""
    return (", ".join(repr(key[:40]) for key in list(record)[:most]) or "no fields") + more


_TYPE_NAMES = {dict: "an object", str: "a string", type(None): "null", bool: "true or false", int: "a number"}


def type_name(value: Any) -> str:
    """Return the type of a JSON value, for error messages."""
    if isinstance(value, list):
        others = [type_name(item) for item in value if not isinstance(item, str)]
        return f"a list with {others[0]}" if others else "a list"
    if isinstance(value, float):
        return "a number" if isfinite(value) else "a number too large to hold"
    return _TYPE_NAMES[type(value)]
