"""Changing what a space shows by hand: edits of its playbook, decisions of a review, and notes.

An edit of the playbook is a version that all sessions see at once, since a person made it. What is approved in a review
was learned, so it is a version that has to earn its way like any other. Both go on from the live version, and wait
while another version is being tried.
"""

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
"""Seconds that a change waits for another process that writes to the run of the space."""


@asynccontextmanager
async def _changing(service: Service, space: ServedSpace) -> AsyncIterator[Store]:
    """The run of a space, whose versions are changed. Raises Conflict while the space learns."""
    async with _writing(service, space) as store:
        yield store
    await asyncio.to_thread(space.read_versions)
    service.learner.wake()


@asynccontextmanager
async def _writing(service: Service, space: ServedSpace) -> AsyncIterator[Store]:
    """The run of a space, open for writing. The space is not deleted until the block ends. Raises Conflict while it
    learns, and UnknownSpace if it was deleted: the run may be that of another space with its name."""
    async with AsyncExitStack() as stack:
        try:
            async with asyncio.timeout(PATIENCE):
                store = await stack.enter_async_context(writing(space.store, PATIENCE))
        except (TimeoutError, RunBusy):
            raise Conflict("space.learning", f"space {space.name} is learning now: try again in a minute") from None
        if not await asyncio.to_thread(service.spaces.is_live, space):
            raise unknown(space.name)
        yield store


async def edit_entry(
    service: Service, name: str, id: str | None, text: str | None, section: str | None, seen: int | None
) -> Edited:
    """Add an entry (`id` is None), change its text or section, or delete it (`text` and `section` are None). `seen` is
    the version in which whoever edits has seen the entry. The edit makes a version, which is live.

    Raises Unknown if there is no such entry, and Conflict if it was changed since.
    """
    space = await service.spaces.opened(name)
    async with _changing(service, space) as store:

        def edits(context: Context) -> Delta:
            if id is None:
                return Delta((Add(section or "", text or "", reason=BY_HAND),))
            if (entry := context.get(id)) is None:
                raise _gone(store, id)
            if seen is not None and entry.changed > seen:
                raise Conflict(
                    "entry.changed",
                    f"{id} was changed in version {entry.changed}, after you looked at it: look at it again",
                    entry=id,
                    version=entry.changed,
                )
            change: Edit = Update(id, text, section, reason=BY_HAND)
            return Delta((change if text is not None or section is not None else Delete(id, reason=BY_HAND),))

        def write() -> Edited:
            # Without a learner, nobody tries the last version.
            outcome = apply_edits(store, edits, on_untried=not service.settings.learn)
            if outcome.refused:
                raise UsageError("edit.refused", outcome.refused[0].reason)
            if not outcome.applied:
                raise UsageError("edit.empty", f"this changes nothing of {id}")
            return Edited(id=outcome.applied[0].id, version=outcome.context.version)

        return await to_the_end(write)


def _gone(store: Store, id: str) -> UsageError:
    events = entry_history(read_versions(store), id)
    if not events:
        return Unknown("entry.unknown", f"there has never been an entry {id!r:.80}: the playbook lists them", entry=id)
    return Conflict(
        "entry.deleted",
        f"there is no entry {id} any more: it was removed in version {events[-1].version}",
        entry=id,
        version=events[-1].version,
    )


async def decide_review(service: Service, name: str, id: str, approved: bool, reason: str) -> Decided:
    """Approve what waits for review, or reject it, for a reason that is kept: c5 is a correction or a note, 3.1 are
    edits that were learned. Raises Unknown if there is no such thing, and Conflict if it was decided before or cannot
    be applied any more."""
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
                raise Conflict("edit.refused", f"{id} cannot be applied any more: {approval.refused[id]}")
            version = approval.context.version
            if not service.settings.learn:
                # There is no learner to try it.
                store.change(lambda at: show_at_once(at, version, BY_REVIEW))
            return version

        return Decided(id=id, state=APPROVED, version=await to_the_end(approve))


async def decide_rollout(service: Service, name: str, version: int, promoted: bool) -> LiveVersion:
    """Make the version live that a rollout tries, or take it back. Raises Conflict if that was decided before."""
    space = await service.spaces.opened(name)
    await service.refresh(space)
    async with space.counting:
        rollout = space.rollout
        if rollout is None or rollout.version != version:
            raise Conflict("rollout.decided", f"it was decided before: version {space.live} is live")
        await service.rollouts.decide(space, rollout, RolloutDecision(PROMOTED if promoted else TAKEN_BACK, "by hand"))
    return LiveVersion(version=space.live)


def _waiting(store: Store, id: str) -> list[reviews.Review]:
    known = {one.id: one for one in reviews.read_reviews(store, (PENDING, APPROVED, REJECTED))}
    if id not in known:
        raise Unknown("review.unknown", f"nothing with the id {id!r:.80} waits for review")
    if (one := known[id]).state != PENDING:
        made = f" as version {one.version}" if one.version is not None else f": {one.reason}" if one.reason else ""
        raise Conflict("review.decided", f"{id} was {one.state} before{made}")
    return [one]


async def remove_space(service: Service, name: str) -> SpaceRemoved:
    """Delete a space with all that was asked, reported and learned in it, and its keys. Raises UnknownSpace if there is
    none, and Conflict if the service was started with it, or while it learns."""
    if name in service.settings.spaces:
        raise Conflict(
            "space.in_use", f"the service was started with the space {name}: start it without --space {name} first"
        )
    # It ends even if nobody waits for it any longer. What a kill leaves of it is finished at the next start.
    return await asyncio.shield(_remove_space(service, name))


async def _remove_space(service: Service, name: str) -> SpaceRemoved:
    backend = service.database.backend
    async with service.making, AsyncExitStack() as stack:
        # In threads, since it waits for other nodes.
        alone = backend.alone(f"making space {name}")
        await asyncio.to_thread(alone.__enter__)
        stack.push_async_callback(asyncio.to_thread, alone.__exit__, None, None, None)
        space = await service.spaces.opened(name)
        async with _writing(service, space) as store:
            stack.enter_context(service.deleting(space))
            removed = await to_the_end(store.remove)
            await space.close()
    return SpaceRemoved(name=name, rows=removed)
