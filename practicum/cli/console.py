"""Support for consoles whose encoding is not UTF-8."""

from __future__ import annotations

import codecs
import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

RESULT: ContextVar[dict[str, Any] | None] = ContextVar("RESULT", default=None)
"""Result of a command with --json, collected until the command ends. If the command fails, the error is added to this
result."""


@contextmanager
def any_console() -> Iterator[None]:
    """While the block runs, print `?` for characters that standard output cannot encode, and read standard input as
    UTF-8 unless it is a terminal. At the end, print the number of replaced characters on standard error."""
    replaced, stream = 0, sys.stdout

    def replace(error: UnicodeError) -> tuple[str, int]:
        nonlocal replaced
        if not isinstance(error, UnicodeEncodeError):
            raise error
        replaced += error.end - error.start
        return "?" * (error.end - error.start), error.end

    codecs.register_error("practicum", replace)
    if isinstance(sys.stdin, io.TextIOWrapper) and not (is_utf8(sys.stdin.encoding) or sys.stdin.isatty()):
        sys.stdin.reconfigure(encoding="utf-8", errors="strict")
    if not isinstance(stream, io.TextIOWrapper) or (is_utf8(stream.encoding) and stream.errors != "strict"):
        yield
        return
    before = stream.errors
    stream.reconfigure(errors="practicum")
    try:
        yield
    finally:
        stream.flush()
        stream.reconfigure(errors=before)
        if replaced:
            characters = "1 character is" if replaced == 1 else f"{replaced:,} characters are"
            print(
                f"practicum: {characters} shown as ?, because standard output is encoded as {stream.encoding}: set "
                "PYTHONIOENCODING=utf-8",
                file=sys.stderr,
            )


def is_utf8(encoding: str | None) -> bool:
    """Whether an encoding is UTF-8. None, the encoding of a stream that takes any text, counts as UTF-8."""
    return encoding is None or codecs.lookup(encoding).name == "utf-8"
