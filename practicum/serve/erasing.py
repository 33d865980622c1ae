"""Deletion and export of one user's data while the service runs. `session.users` deletes the data from the store, and
this module deletes the data from the memory of the service."""

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
    """Parts of the service that the deletion of user data uses."""

    database: Database
    spaces: OpenSpaces
    recorder: Recorder

    def paused(self) -> AbstractAsyncContextManager[None]: ...

    def call_soon(self, work: Any) -> Any: ...

    async def hold_back(self, error: Unfinished) -> None: ...

    async def read_messages(self, space: ServedSpace) -> None: ...

    async def refresh(self, space: ServedSpace) -> None: ...


async def export_user(service: ErasingHost, space: str, user: str) -> list[dict[str, Any]]:
    """Return all data of a user in a space, as plain values. Raise Unknown if the user has no data,
    UnknownSpace if the space does not exist, and StoreError if the space cannot be read."""
    at = await service.spaces.opened(space)
    items = await asyncio.to_thread(lambda: [*users.export_user(at.store, user)])
    return [{**item, "space": space} for item in items]


async def forget_user(service: ErasingHost, space: str, user: str, *, alike: bool = False) -> Forgotten:
    """Delete a user's data from a space (see `session.users.forget_user`, also for `alike`). A round of learning is
    interrupted, and continued after the deletion; requests are served during the deletion. Raise Unknown if the user
    has no data, and UnknownSpace if the space does not exist."""
    if space not in service.spaces.unfinished:
        await service.spaces.opened(space)
    # Shield the deletion against cancellation: if the deletion stopped halfway, the service would have no learner.
    done = await asyncio.shield(_erase_served(service, space, user, alike))
    if done is None:
        raise users.unknown_user(user, space)
    return done


async def finish_erasures(service: ErasingHost) -> None:
    """Finish interrupted deletions of user data in all spaces. If a deletion fails, an alarm is raised, and the
    deletion is tried again later. If another process writes to a closed space, that process may be deleting the data,
    so the space stays closed."""
    stores = {store.name: store for store in await asyncio.to_thread(users.unfinished_spaces, service.database)}
    for space, store in stores.items():
        if not await asyncio.to_thread(attrgetter("is_written"), store):
            with suppress(Unfinished, RunBusy):
                await asyncio.shield(_erase_served(service, space))
                logger.warning("space %s: finished an interrupted deletion of a user's data", space)
        elif space not in service.spaces:
            busy = RunBusy("store.busy", "another node is deleting the user's data")
            service.spaces.unfinished.setdefault(space, Unfinished(space, store.space, True, busy))
    for space in {*service.spaces.unfinished}.difference(stores):
        # Another node has finished the deletion, or the space was deleted.
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
                clean=lambda data: service.call_soon(_clean(service, space, user, data)) if space else None,
                rewritten=lambda: service.call_soon(_reload(service, space)) if space else None,
            )  # fmt: skip
            service.spaces.unfinished.pop(name, None)
            return done
        except Unfinished as error:
            await service.hold_back(error)
            raise


async def _clean(service: ErasingHost, space: ServedSpace, user: str | None, data: users.StoredUserData) -> None:
    """Remove a user's data from the memory of the service, after the user's rows were deleted from the store."""
    # Hold the lock, because feedback on the deleted data may be in progress.
    async with space.lock:
        for key, interaction in service.recorder.recent.items():
            if interaction.user == user and key.startswith(f"{space.id} "):
                del service.recorder.recent[key]
    space.conversations.forget(data.pins)
    if space.rollout is not None:
        space.rollout.sessions.difference_update(data.pins)
    await service.read_messages(space)
    # Read corrections and waiting outcomes again, as after a change by another node.
    await service.refresh(space)


async def _reload(service: ErasingHost, space: ServedSpace) -> None:
    """Read the versions of a space again, after text that was learned from a user was removed from the versions."""
    await asyncio.to_thread(space.read_versions)
    await service.refresh(space)
