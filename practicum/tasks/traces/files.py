"""The records of a file: a JSON document, or JSON lines, which are read one at a time."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from pydantic_core import from_json

from practicum.tasks.traces.trace import Position, Problems


def records(path: Path, problems: Problems) -> Iterator[tuple[Position, Any]]:
    """Position and value of each record. What cannot be read is a problem, and the rest is read."""
    try:
        with path.open("rb") as file:
            document = _is_document(file)
            file.seek(0)
            yield from _document(file, problems) if document else _lines(file, problems)
    except OSError as error:
        problems.add(f"cannot be read ({error.strerror or error})")


def _is_document(file: IO[bytes]) -> bool:
    """Whether to try the file as one document, since its first two lines are not records of their own."""
    lines = (line for line in _numbered(file) if line[1].strip())
    first, second = next(lines, (0, b""))[1], next(lines, (0, b""))[1]
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


def _document(file: IO[bytes], problems: Problems) -> Iterator[tuple[Position, Any]]:
    raw = file.read().removeprefix(codecs.BOM_UTF8)
    try:
        value = from_json(raw.decode())
    except UnicodeDecodeError as error:
        problems.add("not UTF-8 text", raw.count(b"\n", 0, error.start) + 1)
    except ValueError as error:
        if any(isinstance(_parsed(line), dict) for line in raw.split(b"\n")):
            # JSON lines, the first of which are broken.
            file.seek(0)
            yield from _lines(file, problems)
        else:
            line = re.search(r" at line (\d+)", str(error))
            _add_json_error(problems, error, int(line[1]) if line else None)
    else:
        yield Position(), value


def _lines(file: IO[bytes], problems: Problems) -> Iterator[tuple[Position, Any]]:
    for number, raw in _numbered(file):
        if not raw.strip():
            continue
        try:
            value = from_json(raw.decode())
        except UnicodeDecodeError:
            problems.add("not UTF-8 text", number)
        except ValueError as error:
            _add_json_error(problems, error, number)
        else:
            yield Position(number, f":{number}"), value


def _add_json_error(problems: Problems, error: ValueError, line: int | None) -> None:
    detail = re.sub(r" at line \d+ column", " at column", str(error))
    problems.add("JSON that ends too early" if detail.startswith("EOF") else "not JSON", line, detail)
