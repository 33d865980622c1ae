"""A blocking library in a thread: an exception of it ends the iteration."""

from __future__ import annotations

import asyncio
import threading

import pytest

from practicum.plugins.rivals.bridge import bridged


async def answered(word: str) -> str:
    return f"{word} in {threading.current_thread().name}"


def test_what_the_library_raises_ends_the_iteration() -> None:
    async def work() -> None:
        async with bridged(lambda ask: 1 // 0) as results:
            async for _ in results:
                pass

    with pytest.raises(ZeroDivisionError):
        asyncio.run(work())
