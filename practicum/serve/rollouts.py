"""Rollouts of versions: count the scores of a candidate, store the decision about the candidate, set the live version.

`session.rollout.Rollout.take` makes the decision.

A score counts for the version that its request was shown, even if the score was reported to another node. All nodes
count scores in the same order, so they make the same decision. The first node that decides writes the decision.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from practicum.core.errors import PracticumError, StoreError, UsageError
from practicum.serve.alarms import Alarms
from practicum.serve.counts import ServiceCounts
from practicum.serve.space import ServedSpace
from practicum.serve.watch import Alarm
from practicum.session.rollout import (
    BY_HAND,
    CANARY,
    PROMOTED,
    TAKEN_BACK,
    Rollout,
    RolloutDecision,
    begin_rollout,
    end_rollout,
    ended_text,
)
from practicum.store import schema
from practicum.store.backend import Sessions
from practicum.store.database import Database
from practicum.store.names import LIVE, name_version
from practicum.store.scope import Transaction

logger = logging.getLogger("practicum.serve")


class Rollouts:
    """Rollouts of the open `spaces`. `ended` is called when a rollout has ended."""

    def __init__(
        self, database: Database, spaces: Mapping[str, ServedSpace], alarms: Alarms, counts: ServiceCounts,
        ended: Callable[[], None],
    ) -> None:  # fmt: skip
        self._database, self._spaces, self._alarms, self._counts = database, spaces, alarms, counts
        self._ended = ended

    async def read(self, space: ServedSpace) -> None:
        """Load the rollout of a space, which any node may have begun, and count the stored scores of the rollout."""
        r = schema.rollouts
        for row in await asyncio.to_thread(self._database.rows, space.store.select(r).where(r.c.state == CANARY)):
            if space.rollout is None or space.rollout.number != row.number:
                await self._continue(space, row)
            return
        if space.rollout is not None:
            # Another node has ended the rollout.
            await asyncio.to_thread(space.read_versions)
            space.rollout = None

    async def _continue(self, space: ServedSpace, row: Any) -> None:
        rollout = Rollout.stored(row)
        await asyncio.to_thread(space.read_versions)
        if space.live == rollout.version:
            # The service ended after it made the version live, and before it recorded the end of the rollout.
            ended = partial(end_rollout, row=rollout.row(PROMOTED, "promoted"))
            await asyncio.wrap_future(space.store.do(ended))
            return
        i, o = schema.interactions, schema.outcomes
        of_rollout = self._scored(space).where(i.c.rollout == rollout.number).order_by(o.c.number)
        for scored in await asyncio.to_thread(self._database.rows, of_rollout):
            rollout.take(scored.version, scored.score, scored.kind, json.loads(scored.data)["pin"])
            rollout.seen = scored.number
        await asyncio.to_thread(space.context, rollout.version)
        space.rollout = rollout

    def _scored(self, space: ServedSpace) -> Any:
        """Return a query of the scored interactions of a space, with their scores."""
        i, o = schema.interactions, schema.outcomes
        columns = (o.c.number, o.c.score, i.c.version, i.c.rollout, i.c.kind, i.c.data)
        return space.store.select(*columns).where(o.c.id == i.c.id, o.c.score.is_not(None))

    async def count_scores(self, space: ServedSpace) -> None:
        """Count new scores, reported to any node, in the same order on all nodes. The scores may decide a rollout.
        If outcomes got worse, raise an alarm."""
        number = schema.outcomes.c.number
        async with space.counting:
            new = self._scored(space).where(number > space.counted).order_by(number)
            for row in await asyncio.to_thread(self._database.rows, new):
                space.counted = row.number
                if alarm := self._alarms.watcher(space.name).outcome(row.score):
                    self._alarms.add(space.id, alarm)
                rollout = space.rollout
                if rollout is None or row.rollout != rollout.number or row.number <= rollout.seen:
                    continue
                decision = rollout.take(row.version, row.score, row.kind, json.loads(row.data)["pin"])
                if decision is not None:
                    await self._decide_scored(space, rollout, decision)

    async def claim(
        self, sessions: Sessions, late: float, space: ServedSpace, session: str, version: int
    ) -> int | None:
        """Return the version that all nodes show to a session: `version`, unless another node has shown the
        session a different version. Return None if the session's version is not known within `late` seconds."""
        claimed = await sessions.claim(space.id, session, version, None, late)
        if claimed is None or space.is_valid(claimed):
            return claimed
        # The version was taken back, or this node has not read the rollout of the version yet.
        try:
            async with asyncio.timeout(late), space.counting:
                await self.read(space)
        except (TimeoutError, StoreError):
            return None
        if space.is_valid(claimed):
            return claimed
        return await sessions.claim(space.id, session, version, claimed, late)

    async def _decide_scored(self, space: ServedSpace, rollout: Rollout, decision: RolloutDecision) -> None:
        try:
            await self.decide(space, rollout, decision)
        except PracticumError as error:
            # The feedback is stored; the next score triggers the decision again.
            self._counts["failed_decisions"] += 1
            logger.error(
                "space %s: version %d cannot be %s, will retry: %s", space.name, rollout.version, decision.state, error
            )

    async def decide(self, space: ServedSpace, rollout: Rollout, decision: RolloutDecision) -> None:
        """Promote the candidate of a rollout, or take the candidate back (`decision`). The decision is stored and takes
        effect with the next request. If several nodes decide at the same time, the first decision counts."""
        if space.rollout is not rollout or rollout.decided:
            return
        rollout.decided = True
        row = rollout.row(decision.state, decision.reason)

        def end(at: Transaction) -> bool:
            first = end_rollout(at, row)
            if first and decision.state == PROMOTED:
                at.put(schema.names, {"name": LIVE, "version": rollout.version})
            return first

        try:
            first = await asyncio.wrap_future(space.store.do(end))
            await asyncio.to_thread(space.read_versions)
        except BaseException:
            rollout.decided = False
            raise
        space.rollout = None
        if first:
            text = ended_text(rollout.version, decision.state, decision.reason)
            self._alarms.add(space.id, Alarm(space.name, "rollout", text))
        self._ended()

    async def begin(self, space: ServedSpace, rollout: Rollout) -> bool:
        """Show a candidate to the rollout's share of the sessions. Return False if the rollout did not begin, because
        another version was made live, another node has begun a rollout, or the space was closed."""
        async with space.counting:
            began = partial(begin_rollout, row=rollout.row())
            if self._spaces.get(space.name) is not space or space.live != rollout.base:
                return False
            if not await asyncio.wrap_future(space.store.do(began)):
                return False
            space.context(rollout.version)
            space.rollout = rollout
        return True

    async def roll_back(self, space: ServedSpace, version: int | None) -> int:
        """Make `version` live, and end the rollout under way. Without a `version`, only end the rollout; if no rollout
        is under way, make the version before the live version live. Return the number of the new live version."""
        await asyncio.to_thread(space.read_versions)
        async with space.counting:
            await self.read(space)
        if space.rollout is not None:
            await self.decide(space, space.rollout, RolloutDecision(TAKEN_BACK, "by hand"))
            if version is None:
                return space.live
        if version is None:
            t = schema.rollouts
            mine = space.store.select(t.c.base).where(t.c.version == space.live, t.c.state == PROMOTED)
            rows = await asyncio.to_thread(self._database.rows, mine.order_by(t.c.number.desc()))
            version = rows[0].base if rows else space.parent
            if version is None:
                first = f"version {space.live} of space {space.name} is the first: no earlier version to return to"
                raise UsageError("version.unknown", first)
        if version == space.live:
            raise UsageError("version.unchanged", f"version {version} of space {space.name} is already live")
        await asyncio.to_thread(name_version, space.store, LIVE, version)
        await asyncio.to_thread(space.read_versions)
        self._alarms.add(space.id, Alarm(space.name, "rollout", f"version {version} {BY_HAND}"))
        return space.live

    async def follow(self, space: ServedSpace) -> None:
        """End the rollout of a space if a person has made a version live since the rollout began: the live version is
        then not the version that the candidate is compared with."""
        rollout = space.rollout
        if rollout is None or space.live == rollout.base:
            return
        reason = f"version {space.live} was made live by hand"
        promoted = space.live == rollout.version
        try:
            await self.decide(space, rollout, RolloutDecision(PROMOTED if promoted else TAKEN_BACK, reason))
        except PracticumError as error:
            logger.warning("the rollout of space %s continues, because ending it failed: %s", space.name, error)
