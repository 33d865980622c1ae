"""Changes of a space by hand: edits of its playbook, decisions of a review, and deletion of the space.

An edit of the playbook by a person makes a version that is live for all sessions at once. Edits that are approved in a
review were learned, so the version with these edits is tested like any learned version. Both kinds of edits apply to
the live version, and are refused during a rollout."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from practicum.core.context import Context
from practicum.core.edits import Add, Delete, Delta, Edit, Update
from practicum.core.errors import RunBusy, UsageError
from practicum.serve.answers import Decided, Edited, LiveVersion, SpaceRemoved
from practicum.serve.reporting import decide_correction
from practicum.serve.service import Service
from practicum.serve.space import ServedSpace
from practicum.session import review as reviews
from practicum.session.amend import BY_HAND, apply_edits, show_at_once, writing
from practicum.session.corrections import BY_REVIEW
from practicum.session.outcomes import Conflict, Unknown
from practicum.session.records import to_the_end
from practicum.session.rollout import PROMOTED, TAKEN_BACK, RolloutDecision
from practicum.store.database import Store
from practicum.store.reviews import APPROVED, PENDING, REJECTED
from practicum.store.spaces import unknown
from practicum.store.versions import entry_history, read_versions

PATIENCE = 5.0
"""Time (s) that a change waits while another process writes to the space. After this time, the change is refused."""


@asynccontextmanager
async def _changing(service: Service, space: ServedSpace) -> AsyncIterator[Store]:
    """Open the run of a space to change the versions of the space. After the block, read the versions again and wake
    the learner. Raise Conflict while the space learns, and UnknownSpace if the space was deleted."""
    async with _writing(service, space) as store:
        yield store
    await asyncio.to_thread(space.read_versions)
    service.learner.wake()


@asynccontextmanager
async def _writing(service: Service, space: ServedSpace) -> AsyncIterator[Store]:
    """Open the run of a space for writing. The space is not deleted inside the block. Raise Conflict while the space
    learns, and UnknownSpace if the space was deleted: the run may then belong to a later space of this name."""
    async with AsyncExitStack() as stack:
        try:
            async with asyncio.timeout(PATIENCE):
                store = await stack.enter_async_context(writing(space.store, PATIENCE))
        except (TimeoutError, RunBusy):
            raise Conflict("space.learning", f"space {space.name} is learning: try again in a minute") from None
        if not await asyncio.to_thread(service.spaces.is_live, space):
            raise unknown(space.name)
        yield store


async def edit_entry(
    service: Service, name: str, id: str | None, text: str | None, section: str | None, seen: int | None
) -> Edited:
    """Add an entry (if `id` is None), change the text or section of the entry `id`, or delete the entry `id` (if `text`
    and `section` are None). `seen` is the version in which the editor has seen the entry. The version with the edit is
    live at once.

    Raises Unknown if the entry never existed, and Conflict if the entry was deleted, or changed after `seen`.
    """
    space = await service.spaces.opened(name)
    async with _changing(service, space) as store:

        def edits(context: Context) -> Delta:
            if id is None:
                return Delta((Add(section or "", text or "", reason=BY_HAND),))
            if (entry := context.get(id)) is None:
                raise _no_entry(store, id)
            if seen is not None and entry.changed > seen:
                raise Conflict(
                    "entry.changed",
                    f"{id} was changed in version {entry.changed}, after you read {id}: read it again, then edit it",
                    entry=id,
                    version=entry.changed,
                )
            change: Edit = Update(id, text, section, reason=BY_HAND)
            return Delta((change if text is not None or section is not None else Delete(id, reason=BY_HAND),))

        def write() -> Edited:
            # Without a learner no version is tested, so the edits may be based on an untested version.
            outcome = apply_edits(store, edits, on_untried=not service.settings.learn)
            if outcome.refused:
                raise UsageError("edit.refused", outcome.refused[0].reason)
            if not outcome.applied:
                raise UsageError("edit.empty", f"the edit does not change {id}")
            return Edited(id=outcome.applied[0].id, version=outcome.context.version)

        return await to_the_end(write)


def _no_entry(store: Store, id: str) -> UsageError:
    events = entry_history(read_versions(store), id)
    if not events:
        return Unknown("entry.unknown", f"no entry {id!r:.80}: take an id that the playbook lists", entry=id)
    return Conflict(
        "entry.deleted",
        f"entry {id} was removed in version {events[-1].version}",
        entry=id,
        version=events[-1].version,
    )


async def decide_review(service: Service, name: str, id: str, approved: bool, reason: str) -> Decided:
    """Approve or reject a review. `id` names a correction or a note, such as `c5`, or learned edits, such as `3.1`.
    `reason` is stored with a rejection. Raise Unknown if the review does not exist, and Conflict if the review was
    decided before, or if learned edits can no longer be applied."""
    if id[:1] == "c" and id[1:].isdecimal():
        return await decide_correction(service, name, int(id[1:]), approved, reason)
    space = await service.spaces.opened(name)
    if not approved:
        async with _writing(service, space) as store:
            await to_the_end(lambda: reviews.reject(store, _waiting(store, id), reason or "rejected"))
        return Decided(id=id, state=REJECTED, version=None)
    async with _changing(service, space) as store:

        def approve() -> int:
            approval = reviews.approve(store, _waiting(store, id))
            if id in approval.refused:
                raise Conflict("edit.refused", f"the edits {id} can no longer be applied: {approval.refused[id]}")
            version = approval.context.version
            if not service.settings.learn:
                # No learner tests the version, so make it live now.
                store.change(lambda at: show_at_once(at, version, BY_REVIEW))
            return version

        return Decided(id=id, state=APPROVED, version=await to_the_end(approve))


async def decide_rollout(service: Service, name: str, version: int, promoted: bool) -> LiveVersion:
    """Promote `version`, which is in rollout, or take the version back (if `promoted` is False). Raise Conflict if the
    rollout was decided before."""
    space = await service.spaces.opened(name)
    await service.refresh(space)
    async with space.counting:
        rollout = space.rollout
        if rollout is None or rollout.version != version:
            raise Conflict("rollout.decided", f"already decided: version {space.live} is live")
        await service.rollouts.decide(space, rollout, RolloutDecision(PROMOTED if promoted else TAKEN_BACK, "by hand"))
    return LiveVersion(version=space.live)


def _waiting(store: Store, id: str) -> list[reviews.Review]:
    stored = {one.id: one for one in reviews.read_reviews(store, (PENDING, APPROVED, REJECTED))}
    if id not in stored:
        raise Unknown("review.unknown", f"no review {id!r:.80}: take an id that the list of reviews shows")
    if (one := stored[id]).state != PENDING:
        result = f" as version {one.version}" if one.version is not None else f": {one.reason}" if one.reason else ""
        raise Conflict("review.decided", f"{id} is already {one.state}{result}")
    return [one]


async def remove_space(service: Service, name: str) -> SpaceRemoved:
    """Delete a space with its interactions, outcomes, versions and keys. Raise UnknownSpace if the space does not
    exist, and Conflict if the settings of the service name the space, or while the space learns."""
    if name in service.settings.spaces:
        raise Conflict(
            "space.in_use",
            f"the service was started with the space {name}: restart the service without --space {name} first",
        )
    # Shield the deletion against cancellation. If the process is killed, the next start of the service finishes the
    # deletion.
    return await asyncio.shield(_remove_space(service, name))


async def _remove_space(service: Service, name: str) -> SpaceRemoved:
    backend = service.database.backend
    async with service.making, AsyncExitStack() as stack:
        # Lock and unlock in threads, because locking may wait for other nodes.
        lock = backend.exclusive(f"making space {name}")
        await asyncio.to_thread(lock.__enter__)
        stack.push_async_callback(asyncio.to_thread, lock.__exit__, None, None, None)
        space = await service.spaces.opened(name)
        async with _writing(service, space) as store:
            stack.enter_context(service.deleting(space))
            removed = await to_the_end(store.remove)
            await space.close()
    return SpaceRemoved(name=name, rows=removed)
