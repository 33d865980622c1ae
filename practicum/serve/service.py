"""The service: its open spaces, requests to them, and what others change in the store meanwhile.

`app` is its HTTP face, and `practicum.client` uses it in process. All of it runs in one event loop; the store has a
thread that writes, and the learner a thread that learns.
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
from practicum.engine.framing import framed
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
"""Seconds that a request waits for the store or for an embedder elsewhere; then it goes on unchanged."""

OPENS = 0.5
"""Seconds that a request waits for a space that is not open; then it goes on unchanged."""

SHOWS = 2.5
"""Seconds that a request waits for the view of an open space, which a method of another package may hold up; then it
goes on unchanged. It is longer than a version is read from a database (`space.READ`)."""

LOOK = 0.2
"""Poll interval (s)."""

ERASE_AGAIN = 30.0
"""Seconds until a removal of a user's data that failed is tried again."""


class Service:
    """An open service. Raises StoreError if another one uses the folder of the store, or if its database cannot be
    reached."""

    def __init__(self, settings: ServiceSettings, upstream: Upstream | None = None) -> None:
        self.settings = settings
        self.upstream = upstream
        self.late, self.opens = LATE, OPENS
        self.counts = ServiceCounts()
        self.faults = FaultCounter(self.counts)
        self.began = time.monotonic()
        self._held = ExitStack()
        self.database = Database.at(settings.store, settings.folder, create=True)
        # Requests wait for what is read, or for a lock that is held meanwhile.
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
        """Held while a space is made or deleted here: of those who wait for another node, one takes a thread."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self.learner = Learner(self)
        small = upstream is not None and upstream.small
        self.maker = SpaceMaker(self.database, settings, self.learner.model, small, parts)

    async def start(self) -> None:
        """Make the spaces that there are not yet, open them, and begin to learn. Raises UsageError or StoreError if one
        cannot be used; then close the service."""
        self._loop = asyncio.get_running_loop()
        self.alarms.start()
        if self.database.shared:
            await asyncio.to_thread(self.maker.remove_old_folders)
        await finish_erasures(self)
        unfinished = self.spaces.unfinished
        for number, name in enumerate(self.settings.spaces):
            if name in unfinished and unfinished[name].shows:
                self.maker.warnings.append(f"requests of space {name} go on unchanged: {unfinished[name]}")
                continue
            context = self.settings.context if number == 0 else None
            await asyncio.to_thread(self.maker.make, name, context, unfinished)
            await self.spaces.opened(name)
        self._spawn(self._look())
        self._spawn(self._erase_again())
        if self.settings.learn:
            self.learner.start()

    async def close(self) -> None:
        """Stop learning, write what is left, and close everything."""
        self.stopping = True
        await asyncio.to_thread(self.learner.stop)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.spaces.close()
        if self.sessions is not None:
            await asyncio.to_thread(self.sessions.close)
        # What is being made or deleted comes to its end.
        async with self.making:
            await asyncio.to_thread(self._held.close)

    @asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        """A block in which nothing is learned. A round under way is interrupted, and continued afterwards."""
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
        """Make a space ready for requests that was just opened."""
        newest = space.store.select(func.max(schema.outcomes.c.number))
        ((counted,),) = await asyncio.to_thread(self.database.rows, newest)
        space.counted = counted or 0
        await self.read_messages(space)
        # Whatever the first request would be late for.
        await space.show(text_request("warm up"), "")
        space.announced = space.store.changes()
        await self.refresh(space)
        if (sessions := self.sessions) is not None:
            space.claim = lambda session, version: self.rollouts.claim(sessions, self.late, space, session, version)

    async def add_space(self, name: str) -> None:
        """Make a space, unless there is one of this name, and open it."""
        async with self.making:
            await asyncio.to_thread(self.maker.make, name)
        await self.spaces.opened(name)

    @contextmanager
    def deleting(self, space: ServedSpace) -> Iterator[None]:
        """A block in which a space is deleted, and cannot be opened."""
        with self.spaces.deleting(space.name):
            self._forget(space)
            yield

    def _forget(self, space: ServedSpace) -> None:
        """Close a space that is deleted, and keep nothing of it in memory."""
        self.close_space(space)
        self.spaces.end(space.name)
        self.learner.forget(space)
        self.recorder.forget(space)

    async def _drop(self, space: ServedSpace) -> None:
        """Close a space that another node deleted."""
        logger.warning("space %s is gone", space.name)
        self._forget(space)
        await space.close()
        if self.database.shared:
            await asyncio.to_thread(rmtree, space.store.files, ignore_errors=True)

    async def hold_back(self, error: Unfinished) -> None:
        """Raise an alarm for a removal that is not finished, and close its space if that may show what was learned from
        the user."""
        if error.name not in self.spaces.unfinished:
            self.alarms.add(error.id, Alarm(error.name, "erasure", str(error)))
        self.spaces.unfinished[error.name] = error
        if error.shows and (space := self.spaces.get(error.name)) is not None:
            self.close_space(space)
            await space.close()

    async def _erase_again(self) -> None:
        """Finish removals that failed, here or on a node that ended."""
        while True:
            await asyncio.sleep(ERASE_AGAIN)
            try:
                await finish_erasures(self)
            except PracticumError as error:
                logger.warning("whether all removals are finished is not known: %s", error)

    def close_space(self, space: ServedSpace) -> None:
        """Let no request find a space open any more."""
        self.spaces.pop(space.name, None)
        self.alarms.forget(space.name)

    async def read_messages(self, space: ServedSpace) -> None:
        """Find questions by the messages that are stored, and by no others."""
        await asyncio.to_thread(lambda: space.questions.start(recent_messages(space.store)))

    async def _forget_texts(self, space: ServedSpace) -> None:
        """Keep nothing in memory of what was asked in a space, since another process removed some of it for good."""
        async with space.lock:
            self.recorder.forget(space, responses=False)
        space.conversations.clear()
        await self.read_messages(space)

    async def refresh(self, space: ServedSpace) -> None:
        """Bring what is known of a space up to date with what other nodes, or this one before its start, have written.
        Raises StoreError if it cannot be read."""
        async with space.lock:
            await space.read_corrections()
        async with space.counting:
            await self.rollouts.read(space)
        o = schema.outcomes
        waiting = space.store.select(func.count(o.c.id), func.min(o.c.at)).where(o.c.state == WAITING)
        ((number, since),) = await asyncio.to_thread(self.database.rows, waiting)
        # What is known here of how long they wait stays, if a clock was set back.
        began = time.monotonic() - max(time.time() - (since or 0.0), 0.0)
        space.waiting_since = min(began, space.waiting_since) if space.waiting else began
        space.waiting = number
        await self.rollouts.count_scores(space)
        self.learner.wake()

    # Requests

    async def show(self, name: str, request: Request, caller: Caller) -> RequestView | None:
        """What a request is shown; None if that cannot be known in time. Raises UnknownSpace."""
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
            logger.warning("a request of space %s goes on unchanged: %s", name, str(error) or "too late")
            return None
        except Exception as error:
            # Whatever is wrong here, the user's agent has to get its answer.
            self.counts["unchanged_requests"] += 1
            self.faults.note("choosing what a request is shown", error)
            return None

    async def show_text(
        self, name: str, query: str, session: str | None, user: str | None, *, screened: bool = False
    ) -> answers.ShownText:
        """What a task is shown, as one text for the prompt of an agent of one's own, and the interaction that begins.
        Raises UnknownSpace."""
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
        return answers.ShownText(
            interaction=id, version=shown.version, text=text, entries=[[*pair] for pair in shown.entries],
            corrections=[*shown.corrections],
        )  # fmt: skip

    def wait_to_learn(self, space: ServedSpace) -> None:
        """Count an outcome that can be learned from."""
        space.waiting_since = space.waiting_since if space.waiting else time.monotonic()
        space.waiting += 1
        self.learner.wake()

    # What others change

    async def _look(self) -> None:
        """Notice what others write, such as a rollback, an approval or an edit, here or on other nodes. Close spaces
        that are not used."""
        while True:
            await asyncio.sleep(LOOK)
            try:
                self._look_at_store()
                await self._look_once()
            except Exception:
                # The next look finds what this one was to find.
                self.counts["failed_polls"] += 1
                logger.exception("a look at what others wrote failed")

    def _look_at_store(self) -> None:
        """Raise an alarm when the store cannot be written, in the first space, also while that is closed for a
        removal."""
        first = self.settings.spaces[0]
        at = self.spaces.get(first) or self.spaces.unfinished.get(first) or next(iter(self.spaces.values()), None)
        if at is not None:
            self.alarms.look_at_store(at.name, at.id)

    async def _look_once(self) -> None:
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
                # Looked at once more, as all spaces are when the database is there again.
                self.counts["failed_polls"] += 1
                if not self._is_away:
                    logger.warning("what others changed is not known until later: %s", error)
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
        """Run a coroutine in the event loop of the service, from another thread; returns its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def health(self) -> answers.Health:
        """How the service is."""
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
