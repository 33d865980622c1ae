"""A cache for texts from outside, with a limit on the number of values and on their bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from sys import getsizeof
from typing import Generic, TypeVar

T = TypeVar("T")


def size_of(texts: Iterable[object]) -> int:
    """Return the bytes that the texts among these values take in memory."""
    return sum(getsizeof(text) for text in texts if isinstance(text, str))


class Bounded(Generic[T]):
    """Values by key, at most `most` values and `most_bytes` bytes. Beyond these limits, the oldest values are
    dropped."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._values: OrderedDict[str, tuple[T, int]] = OrderedDict()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[str]:
        return iter([*self._values])

    def put(self, key: str, value: T, size: int) -> None:
        """Store a value of `size` bytes as the newest."""
        if key in self._values:
            del self[key]
        self._values[key] = value, size
        self.bytes += size
        while self._values and (len(self._values) > self._most or self.bytes > self._most_bytes):
            del self[next(iter(self._values))]

    def get(self, key: str) -> T | None:
        """Return the value of a key, or None."""
        item = self._values.get(key)
        return None if item is None else item[0]

    def __delitem__(self, key: str) -> None:
        self.bytes -= self._values.pop(key)[1]

    def items(self) -> list[tuple[str, T]]:
        """Return all keys with their values, oldest first."""
        return [(key, value) for key, (value, _) in self._values.items()]

    def clear(self) -> None:
        """Drop all values."""
        self._values.clear()
        self.bytes = 0
