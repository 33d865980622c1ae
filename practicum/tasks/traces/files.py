"""The records of a file: a JSON document, or JSON lines, which are read one at a time."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import IO, Any

from pydantic_core import from_json

from practicum.tasks.traces.trace import Place, Source


def records(source: Source) -> Iterator[tuple[Place, Any]]:
    """Place and value of each record. What cannot be read is a problem, and the rest is read."""
    try:
        with source.path.open("rb") as file:
            first, second, *_ = (*islice((line for _, line in _lines(file)), 2), b"", b"")
            file.seek(0)
            if second and not _is_json(first) and (first.strip() in (b"[", b"{") or not _is_json(second, dict)):
                raw = file.read().removeprefix(codecs.BOM_UTF8)
                if _is_json(raw) or not any(_is_json(line, dict) for line in raw.split(b"\n")):
                    yield from _parsed(raw, Place(source))
                    return
                file.seek(0)  # these are JSON lines, the first of which are broken
            for number, line in _lines(file):
                yield from _parsed(line, Place(source, number, f":{number}"))
    except OSError as error:
        Place(source).warn(f"cannot be read ({error.strerror or error})")


def _lines(file: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """Number and text of each line that is not blank."""
    for number, line in enumerate(file, 1):
        text = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
        if text.strip():
            yield number, text


def _is_json(raw: bytes, kind: type = object) -> bool:
    try:
        return isinstance(from_json(raw), kind)
    except ValueError:
        return False


def _parsed(raw: bytes, place: Place) -> Iterator[tuple[Place, Any]]:
    """The record; none, and a problem, if this is not JSON."""
    try:
        yield place, from_json(raw.decode())
    except UnicodeDecodeError as error:
        replace(place, line=place.line or raw.count(b"\n", 0, error.start) + 1).warn("not UTF-8 text")
    except ValueError as error:
        line = re.search(r" at line (\d+)", str(error))
        detail = re.sub(r" at line \d+ column", " at column", str(error))
        reason = "JSON that ends too early" if detail.startswith("EOF") else "not JSON"
        replace(place, line=place.line or (int(line[1]) if line else None)).warn(reason, detail)
