"""The records of a file: a JSON document, or JSON lines, which are read one at a time however many there are."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from pydantic_core import from_json

from practicum.tasks.traces.trace import Notes, Place

NOT_JSON = "not JSON"
CUT_OFF = "cut off in the middle of its JSON"
NOT_UTF8 = "not UTF-8 text"


def records(path: Path, notes: Notes) -> Iterator[tuple[Place, Any]]:
    """Place and value of each record. Whatever cannot be read is taken down, and the rest is read."""
    try:
        with path.open("rb") as file:
            document = _is_document(file)
            file.seek(0)
            yield from _document(file, notes) if document else _lines(file, notes)
    except OSError as error:
        notes.add(f"cannot be read ({error.strerror or error})")


def _is_document(file: IO[bytes]) -> bool:
    """Whether the file is to be tried as one document: its lines do not stand for themselves."""
    filled = (line for line in _numbered(file) if line[1].strip())
    first, second = next(filled, (0, b""))[1], next(filled, (0, b""))[1]
    if _parsed(first) is not None or not second:
        return False
    return first.strip() in (b"[", b"{") or not isinstance(_parsed(second), dict)


def _numbered(file: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    for number, line in enumerate(file, 1):
        yield number, line.removeprefix(codecs.BOM_UTF8) if number == 1 else line


def _parsed(raw: bytes) -> Any:
    try:
        return from_json(raw)
    except ValueError:
        return None


def _document(file: IO[bytes], notes: Notes) -> Iterator[tuple[Place, Any]]:
    raw = file.read().removeprefix(codecs.BOM_UTF8)
    try:
        value = from_json(raw.decode())
    except UnicodeDecodeError as error:
        notes.add(NOT_UTF8, raw.count(b"\n", 0, error.start) + 1)
    except ValueError as error:
        if any(isinstance(_parsed(line), dict) for line in raw.split(b"\n")):
            # JSON lines whose first ones are broken.
            file.seek(0)
            yield from _lines(file, notes)
        else:
            found = re.search(r" at line (\d+)", str(error))
            _note(notes, error, int(found[1]) if found else None)
    else:
        yield Place(), value


def _lines(file: IO[bytes], notes: Notes) -> Iterator[tuple[Place, Any]]:
    for number, raw in _numbered(file):
        if not raw.strip():
            continue
        try:
            value = from_json(raw.decode())
        except UnicodeDecodeError:
            notes.add(NOT_UTF8, number)
        except ValueError as error:
            _note(notes, error, number)
        else:
            yield Place(number, f":{number}"), value


def _note(notes: Notes, error: ValueError, line: int | None) -> None:
    detail = re.sub(r" at line \d+ column", " at column", str(error))
    notes.add(CUT_OFF if detail.startswith("EOF") else NOT_JSON, line, detail)
