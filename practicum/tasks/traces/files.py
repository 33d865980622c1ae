"""The records of a file: a JSON document, or JSON lines, which are read one at a time."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from typing import IO, Any

from pydantic_core import from_json

from practicum.tasks.traces.trace import Place, Source


def records(source: Source) -> Iterator[tuple[Place, Any]]:
    """Place and value of each record. What cannot be read is a problem, and the rest is read."""
    try:
        with source.path.open("rb") as file:
            texts = (raw for _, raw in _lines(file) if raw.strip())
            first, second = next(texts, b""), next(texts, b"")
            file.seek(0)
            is_lines = not second or _parsed(first) is not None
            is_lines = is_lines or (_is_record(second) and first.strip() not in (b"[", b"{"))
            yield from _line_records(file, source) if is_lines else _document_records(file, source)
    except OSError as error:
        Place(source).warn(f"cannot be read ({error.strerror or error})")


def _lines(file: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    for number, line in enumerate(file, 1):
        yield number, line.removeprefix(codecs.BOM_UTF8) if number == 1 else line


def _parsed(raw: bytes) -> Any:
    try:
        return from_json(raw)
    except ValueError:
        return None


def _is_record(raw: bytes) -> bool:
    return isinstance(_parsed(raw), dict)


def _document_records(file: IO[bytes], source: Source) -> Iterator[tuple[Place, Any]]:
    raw = file.read().removeprefix(codecs.BOM_UTF8)
    try:
        value = from_json(raw.decode())
    except UnicodeDecodeError as error:
        Place(source, raw.count(b"\n", 0, error.start) + 1).warn("not UTF-8 text")
    except ValueError as error:
        if any(map(_is_record, raw.split(b"\n"))):  # JSON lines, the first of which are broken
            file.seek(0)
            yield from _line_records(file, source)
        else:
            line = re.search(r" at line (\d+)", str(error))
            _warn_of(error, Place(source, int(line[1]) if line else None))
    else:
        yield Place(source), value


def _line_records(file: IO[bytes], source: Source) -> Iterator[tuple[Place, Any]]:
    for number, raw in _lines(file):
        place = Place(source, number, f":{number}")
        try:
            if raw.strip():
                yield place, from_json(raw.decode())
        except UnicodeDecodeError:
            place.warn("not UTF-8 text")
        except ValueError as error:
            _warn_of(error, place)


def _warn_of(error: ValueError, place: Place) -> None:
    detail = re.sub(r" at line \d+ column", " at column", str(error))
    place.warn("JSON that ends too early" if detail.startswith("EOF") else "not JSON", detail)
