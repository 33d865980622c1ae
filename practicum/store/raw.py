"""Searches the bytes of files that SQLite may have open, in a separate process.

POSIX drops all locks of a process on a file, including the locks of SQLite, as soon as any code of the process closes
the file. The next process that opens the database then assumes that no process uses it, and truncates the shared memory
that the first process uses, which kills the first process with SIGBUS. So a process that may have the database open
must not open the files of the database itself, but only through SQLite.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from mmap import ACCESS_READ, mmap
from pathlib import Path

from practicum.core.errors import StoreError
from practicum.core.subprocesses import environment, python_command

_ANY_BYTE = "latin-1"


def pieces_in(paths: Iterable[Path], pieces: Sequence[bytes]) -> list[bytes]:
    """Search files for pieces of text. Returns a piece once for each file that contains it. The files may be larger
    than memory. Raises StoreError if a file cannot be read."""
    matches = _search(paths, {"pieces": [piece.decode(_ANY_BYTE) for piece in pieces]}) if pieces else []
    return [piece.encode(_ANY_BYTE) for piece in matches]


def matches_in(paths: Iterable[Path], pattern: str) -> set[str]:
    """Return all texts in the files that match a regular expression. The expression consists of ASCII characters.
    Raises StoreError if a file cannot be read."""
    return set(_search(paths, {"pattern": pattern}))


def _search(paths: Iterable[Path], query: dict[str, object]) -> list[str]:
    request = json.dumps({"paths": [str(path.absolute()) for path in paths], **query})
    command = python_command("practicum.store.raw")
    done = subprocess.run(command, input=request, capture_output=True, text=True, env=environment())
    if done.returncode:
        reason = done.stderr.strip().rpartition("\n")[2] or f"signal {-done.returncode}"
        raise StoreError("store.unreadable", f"cannot search the files of the store ({reason}): try again")
    matches: list[str] = json.loads(done.stdout)
    return matches


def _matches(path: str, pieces: Sequence[str], pattern: str | None) -> Iterable[str]:
    """Return the matches of the pattern in a file or, without a pattern, the pieces that the file contains. Returns
    nothing if the file was deleted."""
    try:
        with open(path, "rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as raw:
            if pattern is not None:
                return {match.group().decode(_ANY_BYTE) for match in re.finditer(pattern.encode(), raw)}
            return [piece for piece in pieces if raw.find(piece.encode(_ANY_BYTE)) >= 0]
    # An empty file cannot be mapped.
    except (FileNotFoundError, ValueError):
        return []


if __name__ == "__main__":
    request = json.load(sys.stdin)
    query = request.get("pieces", ()), request.get("pattern")
    json.dump([match for path in request["paths"] for match in _matches(path, *query)], sys.stdout)
