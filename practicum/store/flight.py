"""Calls that were sent but not journaled yet, in a file next to the database, so that budgets hold after any number of
kills.

A call takes a slot before it is sent, and frees it after its answer is journaled. The next process that opens the
folder for writing records the calls in all taken slots as spent in the journal, because their results are unknown.
The file survives a kill of the process, because the operating system has the written data. The file is not flushed to
the disk, so a power failure may lose the calls in flight at that moment.
"""

from __future__ import annotations

import errno
import hashlib
import math
import os
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from practicum.core.errors import StoreError
from practicum.core.types import MOST_TOKENS, Usage

FLIGHT_FILE = "flight"
"""Name of the file with the slots, in the folder of a space."""

MOST_SLOTS = 100_000
"""Maximum number of slots that are read, because the file may come from an untrusted source."""

_SLOT = struct.Struct("<?7x16s16x16s3qd")
"""Format of a slot: whether the slot is taken, an id, an empty field, the key of the call, its tokens (input, cached,
output), its cost in dollars."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A call that was sent: an id, the key of its request (see `key_of`), and its usage. The usage of a call without an
    answer is the highest possible usage."""

    id: str
    key: bytes
    usage: Usage


def key_of(place: str, digest: str) -> bytes:
    """Return a short key for the request with this digest at a place of the run."""
    return hashlib.sha256(f"{place}\0{digest}".encode()).digest()[:16]


class Flight:
    """The calls of this process that are in flight, in a file of a run folder. Without a folder, nothing is written."""

    def __init__(self, folder: Path | None = None) -> None:
        self._path = None if folder is None else folder / FLIGHT_FILE
        self._file = -1
        self._process = os.urandom(8)
        self._started = 0
        self._taken: dict[int, tuple[bytes, bytes]] = {}
        self._free: list[int] = []

    def start(self, place: str, digest: str, most: Usage) -> int:
        """Take a slot for a call that is about to be sent and costs at most `most`. Raises StoreError if the file
        cannot be written."""
        slot = self._free.pop() if self._free else len(self._taken)
        self._started += 1
        self._taken[slot] = (self._process + self._started.to_bytes(8, "big"), key_of(place, digest))
        self._write(slot, most)
        return slot

    def received(self, slot: int, usage: Usage) -> None:
        """Record the usage of an answered call whose answer is not journaled yet."""
        self._write(slot, usage)

    def end(self, slot: int) -> None:
        """Free the slot of a call that is journaled, or that failed without cost."""
        self._put(slot * _SLOT.size, b"\0")
        del self._taken[slot]
        self._free.append(slot)

    def close(self) -> None:
        """Close the file, and delete it unless calls are in flight."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
            if self._path is not None and not self._taken:
                self._path.unlink(missing_ok=True)

    def _write(self, slot: int, usage: Usage) -> None:
        id, key = self._taken[slot]
        usd = math.nan if usage.usd is None else usage.usd
        tokens = (min(n, MOST_TOKENS) for n in (usage.input_tokens, usage.cached_tokens, usage.output_tokens))
        self._put(slot * _SLOT.size, _SLOT.pack(True, id, key, *tokens, usd))

    def _put(self, offset: int, data: bytes) -> None:
        if self._path is None:
            return
        try:
            if self._file < 0:
                self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
            os.lseek(self._file, offset, os.SEEK_SET)
            if os.write(self._file, data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise StoreError(
                "store.unwritable", f"cannot write {self._path}: {error.strerror}; free disk space and resume the run"
            ) from error


def left_in_flight(folder: Path, journaled: Callable[[], Iterable[bytes]]) -> list[Sent]:
    """Return the calls that an earlier process sent and that are not journaled. `journaled` yields the key of each call
    that is in the journal or was sent in a noted batch. It is only called if the file contains calls."""
    try:
        with (folder / FLIGHT_FILE).open("rb") as file:
            data = file.read(MOST_SLOTS * _SLOT.size)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreError("store.unreadable", f"cannot read {folder / FLIGHT_FILE}: {error.strerror}") from error
    calls = []
    for taken, id, key, *tokens, usd in _SLOT.iter_unpack(data[: len(data) - len(data) % _SLOT.size]):
        if taken:
            read, cached, written = (min(max(n, 0), MOST_TOKENS) for n in tokens)
            usage = Usage(1, read, cached, written, usd if 0 <= usd < math.inf else None)
            calls.append(Sent(id.hex(), key, usage))
    journaled_keys = {*journaled()} if calls else set()
    return [sent for sent in calls if sent.key not in journaled_keys]
