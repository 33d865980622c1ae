"""The spaces that a service has open, by name: opened by the first request, and closed when nobody needs them."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager

from practicum.core.errors import StoreError
from practicum.serve.access import Grant, require_key_of
from practicum.serve.space import PINNED, ServedSpace
from practicum.session.components import Parts
from practicum.session.users import Unfinished
from practicum.store import schema
from practicum.store.database import Database
from practicum.store.spaces import UnknownSpace, require_space_name, unknown

IN_USE = 1.0
"""Seconds since a request for a space within which it stays open, since the request may still use it."""

ENDED = 5_000
"""Spaces that have ended whose names are remembered."""


class OpenSpaces(dict[str, ServedSpace]):
    """The open spaces by name. `prepare` makes a space that was just opened ready for requests."""

    def __init__(self, database: Database, parts: Parts, prepare: Callable[[ServedSpace], Awaitable[None]]) -> None:
        super().__init__()
        self._database, self._parts, self._prepare = database, parts, prepare
        self._slots = asyncio.Semaphore(2)
        self._opening: dict[str, asyncio.Task[ServedSpace]] = {}
        self.unfinished: dict[str, Unfinished] = {}
        """Removals of users' data that failed, by space. A space that may show what was learned from the user is
        closed."""
        self._deleting = set[str]()
        """The names of spaces that are being deleted."""
        self._ended: OrderedDict[str, int] = OrderedDict()
        """What `endings` was when a space of a name had ended."""
        self.endings = 0
        """Counts the ends of spaces."""

    async def opened(self, name: str) -> ServedSpace:
        """A space, opened if it is not yet. Raises UnknownSpace if there is none of this name."""
        if name in self._deleting:
            raise unknown(name)
        if name in self.unfinished and self.unfinished[name].shows:
            raise StoreError("user.removal_unfinished", str(self.unfinished[name]))
        if (space := self.get(name)) is not None:
            space.used = time.monotonic()
            return space
        if name not in self._opening:
            require_space_name(name, UnknownSpace)
            task = self._opening[name] = asyncio.create_task(self._open(name))
            task.add_done_callback(lambda _: self._opening.pop(name, None))
        return await asyncio.shield(self._opening[name])

    async def _open(self, name: str) -> ServedSpace:
        if (id := await asyncio.to_thread(self._database.live, name)) is None:
            raise unknown(name)
        # A few at a time: more would hold up each other, and the requests of spaces that are open.
        async with self._slots:
            space = await asyncio.to_thread(ServedSpace.open, self._database.store(name, id), self._parts)
        await self._prepare(space)
        # Another node may have deleted it meanwhile.
        if name in self._deleting or not await asyncio.to_thread(self.is_live, space):
            await space.close()
            raise unknown(name)
        self[name] = space
        return space

    async def close(self) -> None:
        """Close all spaces, for the end of the service."""
        opening = [*self._opening.values()]
        for task in opening:
            task.cancel()
        await asyncio.gather(*opening, return_exceptions=True)
        for space in self.values():
            await space.close()

    def is_live(self, space: ServedSpace) -> bool:
        """Whether an open space is still there; it may be called in any thread."""
        t = schema.spaces
        return bool(self._database.rows(space.store.select(t.c.name).where(t.c.state == "live")))

    def require_since(self, name: str, endings: int) -> None:
        """Raises UnknownSpace if a space of this name was deleted since there were so many `endings`: a request that
        came before is not about the space that has the name now."""
        if self._ended.get(name, 0) > endings:
            raise unknown(name)

    async def current(self, name: str, endings: int, grant: Grant) -> ServedSpace:
        """The space of a request that came when there were so many `endings`. Raises UnknownSpace if that was deleted
        since, and Forbidden for a key of an earlier space with this name."""
        self.require_since(name, endings)
        space = await self.opened(name)
        require_key_of(space.id, grant)
        return space

    @contextmanager
    def deleting(self, name: str) -> Iterator[None]:
        """A block in which a space is deleted, and cannot be opened."""
        self._deleting.add(name)
        try:
            yield
        finally:
            # Requests that came meanwhile are not about the next space of this name either.
            self.end(name)
            self._deleting.discard(name)

    def end(self, name: str) -> None:
        """Note that the requests until now are not about the next space of this name."""
        self.endings += 1
        self._ended[name] = self.endings
        self._ended.move_to_end(name)
        if len(self._ended) > ENDED:
            self._ended.popitem(last=False)

    def unused(self, memory: float, kept: Collection[str]) -> list[ServedSpace]:
        """The spaces that are to be closed, and will be opened by the next request: those that were not asked for
        long, and if all take more than `memory` megabytes, more of those that were not asked for longest. Those with a
        `kept` name stay."""
        found = list[ServedSpace]()
        over = sum(space.megabytes for space in self.values()) - memory
        for space in sorted(self.values(), key=lambda space: space.used):
            unused = time.monotonic() - space.used
            if unused <= (IN_USE if over > 0 else PINNED):
                break
            if space.name not in kept and not space.is_busy:
                found.append(space)
                over -= space.megabytes
        return found
