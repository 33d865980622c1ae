"""Searching the bytes of files that SQLite may have open, in another process.

POSIX drops all locks that a process has on a file as soon as the process closes it anywhere. Those of SQLite go too,
and the next process that opens the database takes it for unused and truncates the shared memory of this one, which ends
with SIGBUS. So no process opens these files itself while it may have the database open.
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
    """Those of the pieces that are in each of the files. The files may be larger than memory. Raises StoreError if they
    cannot be read."""
    found = _search(paths, {"pieces": [piece.decode(_ANY_BYTE) for piece in pieces]}) if pieces else []
    return [piece.encode(_ANY_BYTE) for piece in found]


def matches_in(paths: Iterable[Path], pattern: str) -> set[str]:
    """The texts in the files that match a regular expression of ASCII characters. Raises StoreError if they cannot be
    read."""
    return set(_search(paths, {"pattern": pattern}))


def _search(paths: Iterable[Path], wanted: dict[str, object]) -> list[str]:
    asked = json.dumps({"paths": [str(path.absolute()) for path in paths], **wanted})
    command = python_command("practicum.store.raw")
    done = subprocess.run(command, input=asked, capture_output=True, text=True, env=environment())
    if done.returncode:
        why = done.stderr.strip().rpartition("\n")[2] or f"signal {-done.returncode}"
        raise StoreError("store.unreadable", f"the files of the store cannot be searched ({why}): try again")
    found: list[str] = json.loads(done.stdout)
    return found


def _found(path: str, pieces: Sequence[str], pattern: str | None) -> Iterable[str]:
    """What of this is in a file, which may be gone meanwhile."""
    try:
        with open(path, "rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as raw:
            if pattern is not None:
                return {match.group().decode(_ANY_BYTE) for match in re.finditer(pattern.encode(), raw)}
            return [piece for piece in pieces if raw.find(piece.encode(_ANY_BYTE)) >= 0]
    # An empty file cannot be mapped.
    except (FileNotFoundError, ValueError):
        return []


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    wanted = asked.get("pieces", ()), asked.get("pattern")
    json.dump([one for path in asked["paths"] for one in _found(path, *wanted)], sys.stdout)
