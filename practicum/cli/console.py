"""Consoles whose encoding is not UTF-8."""

from __future__ import annotations

import codecs
import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

RESULT: ContextVar[dict[str, Any] | None] = ContextVar("RESULT", default=None)
"""Takes the result of a command with --json until the command ends, so that an error stands in the same JSON object."""


@contextmanager
def any_console() -> Iterator[None]:
    """While the block runs, characters that standard output cannot encode are printed as `?`, and standard input that
    is no terminal is read as UTF-8. At the end, a line on standard error counts what was replaced."""
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
            signs = "1 character is" if replaced == 1 else f"{replaced:,} characters are"
            print(
                f"practicum: {signs} shown as ?, because standard output is {stream.encoding}: set "
                "PYTHONIOENCODING=utf-8 to see all",
                file=sys.stderr,
            )


def is_utf8(encoding: str | None) -> bool:
    """Whether an encoding is UTF-8. A stream without one takes any text."""
    return encoding is None or codecs.lookup(encoding).name == "utf-8"
