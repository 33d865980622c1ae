"""Service of spaces: opens spaces, answers requests, and notices changes that other processes make in the store.

`app` serves a Service over HTTP, and `practicum.client` uses a Service in process. A Service runs in one event loop,
except that the store writes in its own thread and the learner learns in its own thread.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from shutil import rmtree
from typing import Any

from sqlalchemy import func

from practicum.core.errors import PracticumError
from practicum.core.views import exchanges
from practicum.engine.framing import framed, framed_again
from practicum.serve import answers
from practicum.serve.alarms import Alarms
from practicum.serve.counts import FaultCounter, ServiceCounts
from practicum.serve.erasing import finish_erasures
from practicum.serve.learner import Learner
from practicum.serve.making import SpaceMaker
from practicum.serve.open_spaces import OpenSpaces
from practicum.serve.protocols import Request, text_request
from practicum.serve.readiness import Readiness
from practicum.serve.recording import Recorder
from practicum.serve.rollouts import Rollouts
from practicum.serve.sessions import OPENING, OWN, Caller
from practicum.serve.settings import ServiceSettings
from practicum.serve.space import PINNED, RequestView, ServedSpace
from practicum.serve.upstream import Upstream
from practicum.serve.watch import Alarm
from practicum.session.components import Parts
from practicum.session.outcomes import WAITING, new_id, recent_messages
from practicum.session.users import Unfinished
from practicum.store import schema
from practicum.store.database import Database
from practicum.store.spaces import UnknownSpace

logger = logging.getLogger("practicum.serve")

LATE = 0.02
"""Time limit (s) of the view of a request that needs the store or a remote embedder. After this time, the request is
passed on unchanged."""

OPENS = 0.5
"""Time (s) that a request waits for a closed space to open. After this time, the request is passed on unchanged."""

SHOWS = 2.5
"""Time (s) that a request waits for the view of an open space, because a method of another package may be slow. After
this time, the request is passed on unchanged. This limit is longer than the time limit for reading a version from a
database (`space.READ`)."""

POLL = 0.2
"""Interval (s) between two polls of the store for changes by other processes."""

ERASE_RETRY = 30.0
"""Time (s) until a failed deletion of user data is tried again."""


class Service:
    """Service with an open store. Raises StoreError if another process uses the folder of the store, or if the database
    of the store cannot be reached."""

    def __init__(self, settings: ServiceSettings, upstream: Upstream | None = None) -> None:
        self.settings = settings
        self.upstream = upstream
        self.late, self.opens = LATE, OPENS
        self.counts = ServiceCounts()
        self.faults = FaultCounter(self.counts)
        self.began = time.monotonic()
        self._held = ExitStack()
        self.database = Database.at(settings.store, settings.folder, create=True)
        # If the database cannot be reached, reads fail at once: requests wait for a read, or for a lock that is held
        # during a read.
        self.database.waits = False
        self._held.callback(self.database.close)
        try:
            self._held.enter_context(self.database.backend.serve())
        except BaseException:
            self._held.close()
            raise
        parts = Parts()
        if upstream is not None and upstream.client is not None:
            parts = Parts(clients={"agent": upstream.client})
        self.sessions = self.database.backend.sessions(PINNED)
        self.spaces = OpenSpaces(self.database, parts, self._prepare)
        self.alarms = Alarms(self.database, settings.webhook, self.counts, self._spawn)
        self.rollouts = Rollouts(
            self.database, self.spaces, self.alarms, self.counts, lambda: self.learner.wake()
        )  # fmt: skip
        self.recorder = Recorder(
            self.database, self.spaces, upstream, settings.judge_share, self.alarms, self.counts, self.wait_to_learn,
            shared=self.sessions is not None,
        )  # fmt: skip
        self.readiness = Readiness(self.database, settings.spaces)
        self._is_away = False
        self.stopping = False
        self._pausing = asyncio.Lock()
        self.making = asyncio.Lock()
        """Lock that is held while a space is created or deleted, so that at most one thread waits for another
        node."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self.learner = Learner(self)
        small = upstream is not None and upstream.small
        self.maker = SpaceMaker(self.database, settings, self.learner.model, small, parts)

    async def start(self) -> None:
        """Create missing spaces, open all spaces of the settings, and start learning. Raise UsageError or StoreError if
        a space cannot be used. After such an error, the caller must close the service."""
        self._loop = asyncio.get_running_loop()
        self.alarms.start()
        if self.database.shared:
            await asyncio.to_thread(self.maker.remove_old_folders)
        await finish_erasures(self)
        unfinished = self.spaces.unfinished
        for number, name in enumerate(self.settings.spaces):
            if name in unfinished and unfinished[name].shows:
                self.maker.warnings.append(f"requests of space {name} are passed on unchanged: {unfinished[name]}")
                continue
            context = self.settings.context if number == 0 else None
            await asyncio.to_thread(self.maker.make, name, context, unfinished)
            await self.spaces.opened(name)
        self._spawn(self._poll())
        self._spawn(self._retry_erasures())
        if self.settings.learn:
            self.learner.start()

    async def close(self) -> None:
        """Stop learning, write everything that is queued, and close all spaces and the store."""
        self.stopping = True
        await asyncio.to_thread(self.learner.stop)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.spaces.close()
        if self.sessions is not None:
            await asyncio.to_thread(self.sessions.close)
        # Close the store only after a space that is being created or deleted is finished.
        async with self.making:
            await asyncio.to_thread(self._held.close)

    @asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        """Stop learning while the block runs. A round under way is interrupted, and continued after the block."""
        async with self._pausing:
            learns = self.learner.is_alive()
            await asyncio.to_thread(self.learner.stop)
            try:
                yield
            finally:
                if learns and not self.stopping:
                    self.learner = Learner(self)
                    self.learner.start()

    # Spaces

    async def _prepare(self, space: ServedSpace) -> None:
        """Make a space that was just opened ready for requests."""
        newest = space.store.select(func.max(schema.outcomes.c.number))
        ((counted,),) = await asyncio.to_thread(self.database.rows, newest)
        space.counted = counted or 0
        await self.read_messages(space)
        # Warm the caches, so that the first request does not exceed its time limit.
        await space.show(text_request("warm up"), "")
        space.announced = space.store.changes()
        await self.refresh(space)
        if (sessions := self.sessions) is not None:
            space.claim = lambda session, version: self.rollouts.claim(sessions, self.late, space, session, version)

    async def add_space(self, name: str) -> None:
        """Open the space of this name. Create the space if it does not exist."""
        async with self.making:
            await asyncio.to_thread(self.maker.make, name)
        await self.spaces.opened(name)

    @contextmanager
    def deleting(self, space: ServedSpace) -> Iterator[None]:
        """Close a space, and keep it closed inside the `with` block, which deletes the space."""
        with self.spaces.deleting(space.name):
            self._forget(space)
            yield

    def _forget(self, space: ServedSpace) -> None:
        """Close a deleted space, and drop the data of the space from memory."""
        self.close_space(space)
        self.spaces.end(space.name)
        self.learner.forget(space)
        self.recorder.forget(space)

    async def _drop(self, space: ServedSpace) -> None:
        """Close a space that another node deleted."""
        logger.warning("space %s was deleted by another process", space.name)
        self._forget(space)
        await space.close()
        if self.database.shared:
            await asyncio.to_thread(rmtree, space.store.files, ignore_errors=True)

    async def hold_back(self, error: Unfinished) -> None:
        """Raise an alarm for an unfinished deletion of user data. Close the space if it may still show text that was
        learned from the user."""
        if error.name not in self.spaces.unfinished:
            self.alarms.add(error.id, Alarm(error.name, "erasure", str(error)))
        self.spaces.unfinished[error.name] = error
        if error.shows and (space := self.spaces.get(error.name)) is not None:
            self.close_space(space)
            await space.close()

    async def _retry_erasures(self) -> None:
        """Finish deletions of user data that failed on this node, or on a node that has ended."""
        while True:
            await asyncio.sleep(ERASE_RETRY)
            try:
                await finish_erasures(self)
            except PracticumError as error:
                logger.warning("cannot check for unfinished deletions of user data, will retry: %s", error)

    def close_space(self, space: ServedSpace) -> None:
        """Remove a space from the open spaces, so that no request finds it."""
        self.spaces.pop(space.name, None)
        self.alarms.forget(space.name)

    async def read_messages(self, space: ServedSpace) -> None:
        """Rebuild the index of a space's questions from the stored messages of the space."""
        await asyncio.to_thread(lambda: space.questions.start(recent_messages(space.store)))

    async def _forget_texts(self, space: ServedSpace) -> None:
        """Drop the texts of requests from memory, because another process deleted some of these texts from the
        store."""
        async with space.lock:
            self.recorder.forget(space, responses=False)
        space.conversations.clear()
        await self.read_messages(space)

    async def refresh(self, space: ServedSpace) -> None:
        """Read the changes that other nodes, or an earlier process of this node, have written to a space. Raise
        StoreError if the space cannot be read."""
        async with space.lock:
            await space.read_corrections()
        async with space.counting:
            await self.rollouts.read(space)
        o = schema.outcomes
        waiting = space.store.select(func.count(o.c.id), func.min(o.c.at)).where(o.c.state == WAITING)
        ((number, since),) = await asyncio.to_thread(self.database.rows, waiting)
        # Keep the longer waiting time, because a clock may have been set back.
        began = time.monotonic() - (max(time.time() - since, 0.0) if number else 0.0)
        space.waiting_since = min(began, space.waiting_since) if space.waiting else began
        space.waiting = number
        await self.rollouts.count_scores(space)
        self.learner.wake()

    # Requests

    async def show(self, name: str, request: Request, caller: Caller) -> RequestView | None:
        """Return the view of a request; None if the view fails or is not ready in time. Raise UnknownSpace if the space
        does not exist."""
        try:
            space = self.spaces.get(name)
            limit = self.opens if space is None else self.late if space.waits else SHOWS
            async with asyncio.timeout(limit):
                space = space or await self.spaces.opened(name)
                session = space.conversations.session(request, caller)
                shown = await space.show(request, session.name)
                self.counts["views_without_a_model"] += space.asks_to_show
                return replace(shown, session_from=session.source)
        except UnknownSpace:
            raise
        except (TimeoutError, PracticumError, OSError) as error:
            self.counts["unchanged_requests"] += 1
            logger.warning("a request of space %s is passed on unchanged: %s", name, str(error) or "timeout")
            return None
        except Exception as error:
            # A failure here must not fail the request: the request is passed on without a view.
            self.counts["unchanged_requests"] += 1
            self.faults.note("choosing the view of a request", error)
            return None

    async def show_text(
        self, name: str, query: str, session: str | None, user: str | None, *, screened: bool = False
    ) -> answers.ShownText:
        """Return the view of a task as one text for the prompt of your agent, with the id of a new interaction. Raise
        UnknownSpace if the space does not exist."""
        space = await self.spaces.opened(name)
        request = text_request(query)
        id = new_id()
        shown = replace(await space.show(request, session or id), session_from=OWN if session else OPENING)
        self.recorder.keep(
            name, id, request, request.query, (), shown, None, user=user, status=200, seconds=0.0, purpose="context",
            screened=screened,
        )  # fmt: skip
        notes = [one.note for one in shown.learned.values()]
        turns = [turn for one in shown.learned.values() for turn in one.turns]
        solved = "\n".join(framed([exchanges(turns)], space.nonce)) if turns else ""
        text = "\n\n".join(filter(None, [shown.fixed, *notes, solved]))
        (closing,) = [one.closing for one in shown.learned.values()][-1:] or [""]
        return answers.ShownText(
            interaction=id, version=shown.version, text=text, entries=[[*pair] for pair in shown.entries],
            corrections=[*shown.corrections], closing=framed_again(closing, space.nonce),
        )  # fmt: skip

    def wait_to_learn(self, space: ServedSpace) -> None:
        """Count a new outcome that waits for learning, and wake the learner."""
        space.waiting_since = space.waiting_since if space.waiting else time.monotonic()
        space.waiting += 1
        self.learner.wake()

    # Changes by other processes

    async def _poll(self) -> None:
        """Poll for changes by any process, such as a rollback, an approval or an edit. Close unused spaces."""
        while True:
            await asyncio.sleep(POLL)
            try:
                self._check_store()
                await self._poll_once()
            except Exception:
                # The next poll tries to read the same changes again.
                self.counts["failed_polls"] += 1
                logger.exception("polling for changes of other processes failed")

    def _check_store(self) -> None:
        """Raise an alarm if the store cannot be written. The alarm belongs to the first space, even while this space is
        closed for a deletion of user data."""
        first = self.settings.spaces[0]
        at = self.spaces.get(first) or self.spaces.unfinished.get(first) or next(iter(self.spaces.values()), None)
        if at is not None:
            self.alarms.check_store(at.name, at.id)

    async def _poll_once(self) -> None:
        changes = self.database.backend.changes
        await asyncio.to_thread(changes, "")
        for space in [*self.spaces.values()]:
            if (announced := changes(space.id, fresh=False)) == space.announced:
                continue
            try:
                if await asyncio.to_thread(self.database.live, space.name) != space.id:
                    await self._drop(space)
                    continue
                if await asyncio.to_thread(space.look):
                    await self._forget_texts(space)
                await self.refresh(space)
                await self.rollouts.follow(space)
            except (PracticumError, OSError) as error:
                # The next poll tries this space and the remaining spaces again.
                self.counts["failed_polls"] += 1
                if not self._is_away:
                    logger.warning("changes of other processes cannot be read, will retry: %s", error)
                self._is_away = True
                return
            space.announced = announced
        self._is_away = False
        for space in self.spaces.unused(self.settings.memory, (*self.settings.spaces, self.learner.at)):
            self.close_space(space)
            await space.close()

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def call_soon(self, work: Any) -> Any:
        """Run a coroutine in the event loop of the service, from another thread. Return its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def health(self) -> answers.Health:
        """Return the state of the service."""
        writer = self.database.writer
        spaces = {
            space.name: answers.SpaceHealth(
                version=space.live, entries=len(space.context(space.live)), corrections=len(space.corrections),
                waiting=space.waiting, candidate=None if space.rollout is None else space.rollout.version,
            )
            for space in self.spaces.values()
        }  # fmt: skip
        return answers.Health(
            status="ok", seconds=round(time.monotonic() - self.began, 1), spaces=spaces, counts=dict(self.counts),
            unwritten=writer.unwritten, lost=writer.lost, late=writer.late, learning=self.learner.status,
        )  # fmt: skip
