"""Open spaces of a service, by name. The first request for a space opens the space; an unused space is closed."""

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
"""Time (s) after a request for a space during which the space stays open, because the request may still use the
space."""

ENDED = 5_000
"""Largest number of names of deleted spaces that are remembered."""


class OpenSpaces(dict[str, ServedSpace]):
    """Open spaces by name. `prepare` makes a space that was just opened ready for requests."""

    def __init__(self, database: Database, parts: Parts, prepare: Callable[[ServedSpace], Awaitable[None]]) -> None:
        super().__init__()
        self._database, self._parts, self._prepare = database, parts, prepare
        self._slots = asyncio.Semaphore(2)
        self._opening: dict[str, asyncio.Task[ServedSpace]] = {}
        self.unfinished: dict[str, Unfinished] = {}
        """Unfinished deletions of user data, by name of the space. A space that may still show text learned from the
        user stays closed."""
        self._deleting = set[str]()
        """Names of spaces that are being deleted."""
        self._ended: OrderedDict[str, int] = OrderedDict()
        """Value of `endings` after the last deletion of a space with a name, by this name."""
        self.endings = 0
        """Counter that increases with each deletion of a space."""

    async def opened(self, name: str) -> ServedSpace:
        """Return the space named `name`, and open the space if it is closed. Raise UnknownSpace if no space has this
        name, and StoreError if the space stays closed because a deletion of user data is unfinished."""
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
        # Open few spaces at a time: more would delay each other and the requests of open spaces.
        async with self._slots:
            space = await asyncio.to_thread(ServedSpace.open, self._database.store(name, id), self._parts)
        await self._prepare(space)
        # Another node may have deleted the space while it was opened.
        if name in self._deleting or not await asyncio.to_thread(self.is_live, space):
            await space.close()
            raise unknown(name)
        self[name] = space
        return space

    async def close(self) -> None:
        """Close all spaces at the end of the service."""
        opening = [*self._opening.values()]
        for task in opening:
            task.cancel()
        await asyncio.gather(*opening, return_exceptions=True)
        for space in self.values():
            await space.close()

    def is_live(self, space: ServedSpace) -> bool:
        """Return whether an open space still exists. Thread safe."""
        t = schema.spaces
        return bool(self._database.rows(space.store.select(t.c.name).where(t.c.state == "live")))

    def require_since(self, name: str, endings: int) -> None:
        """Raise UnknownSpace if a space of this name was deleted after the counter `self.endings` had the value
        `endings`. A request that arrived when the counter had this value was for the deleted space, not for a new space
        of the same name."""
        if self._ended.get(name, 0) > endings:
            raise unknown(name)

    async def current(self, name: str, endings: int, grant: Grant) -> ServedSpace:
        """Return the space of a request that arrived when the counter `self.endings` had the value `endings`. Raise
        UnknownSpace if the space was deleted after the request arrived, and Forbidden if the key of `grant` is for an
        earlier space with this name."""
        self.require_since(name, endings)
        space = await self.opened(name)
        require_key_of(space.id, grant)
        return space

    @contextmanager
    def deleting(self, name: str) -> Iterator[None]:
        """Keep a space from being opened while the block deletes the space."""
        self._deleting.add(name)
        try:
            yield
        finally:
            # Requests that arrived during the deletion must not reach a new space of this name either.
            self.end(name)
            self._deleting.discard(name)

    def end(self, name: str) -> None:
        """Record that the requests that have arrived so far must not reach a new space of this name."""
        self.endings += 1
        self._ended[name] = self.endings
        self._ended.move_to_end(name)
        if len(self._ended) > ENDED:
            self._ended.popitem(last=False)

    def unused(self, memory: float, keep: Collection[str]) -> list[ServedSpace]:
        """Return the spaces to close: spaces that have been idle for PINNED seconds. If the open spaces together take
        more than `memory` megabytes, also return spaces that have been idle for a shorter time, least recently used
        first, until the remaining spaces fit. Spaces named in `keep` stay open. The next request opens a closed space
        again."""
        result = list[ServedSpace]()
        over = sum(space.megabytes for space in self.values()) - memory
        for space in sorted(self.values(), key=lambda space: space.used):
            unused = time.monotonic() - space.used
            if unused <= (IN_USE if over > 0 else PINNED):
                break
            if space.name not in keep and not space.is_busy:
                result.append(space)
                over -= space.megabytes
        return result
