"""The data of one end user in a service that runs: what is in memory goes with what is stored (`session.users`)."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AbstractAsyncContextManager, suppress
from operator import attrgetter
from typing import Any, Protocol

from practicum.core.errors import RunBusy
from practicum.serve.open_spaces import OpenSpaces
from practicum.serve.recording import Recorder
from practicum.serve.space import ServedSpace
from practicum.session import users
from practicum.session.users import Forgotten, Unfinished
from practicum.store.database import Database
from practicum.store.spaces import unknown

logger = logging.getLogger("practicum.serve")


class ErasingHost(Protocol):
    """What removing a user's data needs of a service that runs."""

    database: Database
    spaces: OpenSpaces
    recorder: Recorder

    def paused(self) -> AbstractAsyncContextManager[None]: ...

    def call_soon(self, work: Any) -> Any: ...

    async def hold_back(self, error: Unfinished) -> None: ...

    async def read_messages(self, space: ServedSpace) -> None: ...

    async def refresh(self, space: ServedSpace) -> None: ...


async def export_user(service: ErasingHost, space: str, user: str) -> list[dict[str, Any]]:
    """All that is kept of a user in a space, as plain values. Raises Unknown if that is nothing, UnknownSpace, and
    StoreError if it cannot be read."""
    at = await service.spaces.opened(space)
    found = await asyncio.to_thread(lambda: [*users.export_user(at.store, user)])
    return [{**item, "space": space} for item in found]


async def forget_user(service: ErasingHost, space: str, user: str, *, alike: bool = False) -> Forgotten:
    """Remove a user's data from a space (see `session.users.forget_user`). A round of learning is interrupted, and goes
    on afterwards. The space serves all the time. Raises UnknownSpace, too."""
    if space not in service.spaces.unfinished:
        await service.spaces.opened(space)
    # It ends even if nobody waits for it any longer: half of it would leave the service without its learner.
    done = await asyncio.shield(_erase_served(service, space, user, alike))
    if done is None:
        raise users.nothing_of(user, space)
    return done


async def finish_erasures(service: ErasingHost) -> None:
    """Finish what was interrupted of removals, in all spaces. One that fails raises an alarm, and is tried again. A
    space that is not open stays closed while another node is about it, or was until a moment ago."""
    stores = {store.name: store for store in await asyncio.to_thread(users.unfinished_spaces, service.database)}
    for space, store in stores.items():
        if not await asyncio.to_thread(attrgetter("is_written"), store):
            with suppress(Unfinished, RunBusy):
                await asyncio.shield(_erase_served(service, space))
                logger.warning("space %s: the removal of a user's data, which was interrupted, is done", space)
        elif space not in service.spaces:
            busy = RunBusy("store.busy", "another node is about it")
            service.spaces.unfinished.setdefault(space, Unfinished(space, store.space, True, busy))
    for space in {*service.spaces.unfinished}.difference(stores):
        # Another node has finished it, or the space was deleted.
        del service.spaces.unfinished[space]


async def _erase_served(
    service: ErasingHost, name: str, user: str | None = None, alike: bool = False
) -> Forgotten | None:
    async with service.paused():
        space = service.spaces.get(name)
        try:
            if (id := await asyncio.to_thread(service.database.live, name)) is None:
                raise unknown(name)
            done = await asyncio.to_thread(
                users.erase, service.database.store(name, id), user, alike,
                clean=lambda found: service.call_soon(_clean(service, space, user, found)) if space else None,
                rewritten=lambda: service.call_soon(_read_again(service, space)) if space else None,
            )  # fmt: skip
            service.spaces.unfinished.pop(name, None)
            return done
        except Unfinished as error:
            await service.hold_back(error)
            raise


async def _clean(service: ErasingHost, space: ServedSpace, user: str | None, found: users.KeptOfUser) -> None:
    """Remove what the service has of a user in memory, whose rows are removed."""
    # Beside no feedback, which may be about what is removed.
    async with space.lock:
        for key, known in service.recorder.recent.items():
            if known.user == user and key.startswith(f"{space.id} "):
                del service.recorder.recent[key]
    space.conversations.forget(found.pins)
    if space.rollout is not None:
        space.rollout.sessions.difference_update(found.pins)
    await service.read_messages(space)
    # Its corrections and what waits, as after a change by another node.
    await service.refresh(space)


async def _read_again(service: ErasingHost, space: ServedSpace) -> None:
    """Show nothing any more of what a space learned from a user."""
    await asyncio.to_thread(space.read_versions)
    await service.refresh(space)
