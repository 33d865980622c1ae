"""The service: its spaces, what they show, what is reported, and what follows from that.

`app` is its HTTP face, and `practicum.client` uses it in process. All of it runs in one event loop; the log has a
thread that writes, and the learner a thread that learns.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import asdict, replace
from functools import partial
from secrets import token_hex
from shutil import rmtree
from typing import Any

import aiohttp
from sqlalchemy import func, select

from practicum import methods
from practicum.core.context import Context
from practicum.core.errors import PracticumError, RunBusy, StoreError, UsageError
from practicum.core.installation import home
from practicum.core.keeping import Bounded, size_of
from practicum.core.views import exchanges
from practicum.engine.door import Held
from practicum.engine.framing import framed
from practicum.retrieval.vectors import Vectors
from practicum.serve import answers
from practicum.serve.access import Grant, require_key_of
from practicum.serve.erasing import finish_erasures
from practicum.serve.faults import FaultCounter
from practicum.serve.interactions import list_interactions
from practicum.serve.learner import Learner
from practicum.serve.protocols import Request, UpstreamAnswer, text_request
from practicum.serve.purpose import Purpose
from practicum.serve.sessions import OPENING, OWN, Caller
from practicum.serve.settings import ServiceSettings
from practicum.serve.space import PINNED, RequestView, ServedSpace
from practicum.serve.upstream import OTHER, Upstream
from practicum.serve.watch import DRIFTS, Alarm, Watcher
from practicum.session.components import Parts
from practicum.session.config import Splits, config_from
from practicum.session.opening import run_embedder
from practicum.session.outcomes import (
    WAITING,
    Interaction,
    Report,
    Unknown,
    drawn,
    find_interaction,
    new_id,
    recent_messages,
    said_by,
)
from practicum.session.records import (
    as_seed,
    begin,
    config_columns,
    is_own,
    load_context,
    read_config,
    seed_rows,
    split_version,
    update_run,
)
from practicum.session.rollout import (
    CANARY,
    PROMOTED,
    TAKEN_BACK,
    Rollout,
    RolloutDecision,
    begin_rollout,
    end_rollout,
    next_number,
)
from practicum.session.users import Unfinished
from practicum.store import schema
from practicum.store.backend import Sessions
from practicum.store.database import Database, Store
from practicum.store.folder import is_run
from practicum.store.names import LIVE, name_version, read_names
from practicum.store.scope import Transaction
from practicum.store.spaces import UnknownSpace, require_space_name, unknown
from practicum.store.sums import LONGEST_NAME, interaction_sums
from practicum.store.writer import UNWRITTEN, WINDOW, Failing

logger = logging.getLogger("practicum.serve")

LATE = 0.02
"""Seconds that a request waits for the store or for an embedder elsewhere; then it goes on unchanged."""

OPENS = 0.5
"""Seconds that a request waits for a space that is not open; then it goes on unchanged."""

SAID = ("query", "question", "steps", "answer", "calls", "thoughts")
"""What of an interaction's data somebody said."""

SHOWS = 2.5
"""Seconds that a request waits for the view of an open space, which a method of another package may hold up; then it
goes on unchanged. It is longer than a version is read from a database (`space.READ`)."""

IN_USE = 1.0
"""Seconds since a request for a space within which it stays open, since the request may still use it."""

LOOK = 0.2
"""Poll interval (s)."""

ERASE_AGAIN = 30.0
"""Seconds until a removal of a user's data that failed is tried again."""

QUIET = 3_600.0
"""Seconds within which the same drift raises no second alarm. All nodes watch for drift, and notice it at about the
same time."""

AT_ONCE = 1_000
"""Rows that are asked for by their keys in one query, at most."""

RECENT, RECENT_BYTES = 5_000, 64 * 2**20
"""Interactions that are kept in memory, since most feedback is about one of them, and bytes of their texts."""

LATELY = 30.0
"""Seconds since the database answered within which the service is ready: a short failure takes no node away."""

PROBE = 1.0
"""Seconds since the database answered after which it is asked, and for which that is waited for."""

FAILING = 3.0
"""Seconds for which writes must fail before an alarm is raised: shorter failures pass by themselves."""

TOKENS = ("input", "cached", "output")
"""The kinds of tokens of an interaction, in order: cached ones are among those of the input."""


class Service:
    """An open service. Raises StoreError if another one uses the folder of the store, or if its database cannot be
    reached."""

    def __init__(self, settings: ServiceSettings, upstream: Upstream | None = None) -> None:
        self.settings = settings
        self.upstream = upstream
        self.late, self.opens = LATE, OPENS
        self.counts: Counter[str] = Counter()
        self.faults = FaultCounter(self.counts)
        self.began = time.monotonic()
        self.warnings: list[str] = []
        """What the operator should know after the start."""
        self.made: list[str] = []
        """The spaces that were made since the start."""
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
        self.database.writer.refused = self._row_refused
        self.sessions = self.database.backend.sessions(PINNED)
        self._refused_at: dict[str, float] = {}
        """When the last alarm of a refused row was raised, by space."""
        self.spaces: dict[str, ServedSpace] = {}
        self._opens = asyncio.Semaphore(2)
        self._opening: dict[str, asyncio.Task[ServedSpace]] = {}
        self._is_away = False
        self._fails: Failing | None = None
        """The failure of the store that an alarm was raised about; None while writes succeed."""
        self.stopping = False
        self._pausing = asyncio.Lock()
        self.unfinished: dict[str, Unfinished] = {}
        """Removals that failed, by space. A space that may show what was learned from the user is closed."""
        self._asked_ready = float("-inf")
        self._probe: Future[Any] | None = None
        self._watchers: dict[str, Watcher] = {}
        self.recent: Bounded[Interaction] = Bounded(RECENT, RECENT_BYTES)
        self._unkept: OrderedDict[str, None] = OrderedDict()
        self.making = asyncio.Lock()
        """Held while a space is made or deleted here: of those who wait for another node, one takes a thread."""
        self._deleting = set[str]()
        """The names of spaces that are being deleted."""
        self._ended: OrderedDict[str, int] = OrderedDict()
        """What `endings` was when a space of a name had ended."""
        self.endings = 0
        """Counts the ends of spaces."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self._parts = Parts()
        if upstream is not None and upstream.client is not None:
            self._parts = Parts(clients={"agent": upstream.client})
        self.learner = Learner(self)

    async def start(self) -> None:
        """Make the spaces that there are not yet, open them, and begin to learn. Raises UsageError or StoreError if one
        cannot be used; then close the service."""
        self._loop = asyncio.get_running_loop()
        if self.database.shared:
            await asyncio.to_thread(self._remove_old_folders)
        await finish_erasures(self)
        for number, name in enumerate(self.settings.spaces):
            if name in self.unfinished and self.unfinished[name].shows:
                self.warnings.append(f"requests of space {name} go on unchanged: {self.unfinished[name]}")
                continue
            await asyncio.to_thread(self._make_space, name, self.settings.context if number == 0 else None)
            await self.space(name)
        self._spawn(self._look())
        self._spawn(self._erase_again())
        if self.settings.learn:
            self.learner.start()

    async def close(self) -> None:
        """Stop learning, write what is left, and close everything."""
        self.stopping = True
        await asyncio.to_thread(self.learner.stop)
        for task in [*self._tasks, *self._opening.values()]:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for space in self.spaces.values():
            await space.close()
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

    def require_since(self, name: str, endings: int) -> None:
        """Raises UnknownSpace if a space of this name was deleted since there were so many `endings`: a request that
        came before is not about the space that has the name now."""
        if self._ended.get(name, 0) > endings:
            raise unknown(name)

    async def current(self, name: str, endings: int, grant: Grant) -> ServedSpace:
        """The space of a request that came when there were so many `endings`. Raises UnknownSpace if that was deleted
        since, and Forbidden for a key of an earlier space with this name."""
        self.require_since(name, endings)
        space = await self.space(name)
        require_key_of(space.id, grant)
        return space

    async def space(self, name: str) -> ServedSpace:
        """A space, opened if it is not yet. Raises UnknownSpace if there is none of this name."""
        if name in self._deleting:
            raise unknown(name)
        if name in self.unfinished and self.unfinished[name].shows:
            raise StoreError("user.removal_unfinished", str(self.unfinished[name]))
        if (space := self.spaces.get(name)) is not None:
            space.used = time.monotonic()
            return space
        if name not in self._opening:
            require_space_name(name, UnknownSpace)
            task = self._opening[name] = asyncio.create_task(self._open(name))
            task.add_done_callback(lambda _: self._opening.pop(name, None))
        return await asyncio.shield(self._opening[name])

    async def _open(self, name: str) -> ServedSpace:
        if (id := await asyncio.to_thread(self.identity, name)) is None:
            raise unknown(name)
        # A few at a time: more would hold up each other, and the requests of spaces that are open.
        async with self._opens:
            space = await asyncio.to_thread(ServedSpace.open, self.database.store(name, id), self._parts)
        newest = space.store.select(func.max(schema.outcomes.c.number))
        ((counted,),) = await asyncio.to_thread(self.database.rows, newest)
        space.counted = counted or 0
        await self.read_messages(space)
        # Whatever the first request would be late for.
        await space.show(text_request("warm up"), "")
        space.announced = space.store.changes()
        await self.refresh(space)
        if self.sessions is not None:
            space.claim = partial(self._claim, self.sessions, space)
        # Another node may have deleted it meanwhile.
        if name in self._deleting or not await asyncio.to_thread(self.is_live, space):
            await space.close()
            raise unknown(name)
        self.spaces[name] = space
        return space

    async def _forget_texts(self, space: ServedSpace) -> None:
        """Keep nothing in memory of what was asked in a space, since another process removed some of it for good."""
        async with space.lock:
            self._forget_recent(space)
        space.conversations.clear()
        await self.read_messages(space)

    def _forget_recent(self, space: ServedSpace) -> None:
        for key in [key for key in self.recent if key.startswith(f"{space.id} ")]:
            del self.recent[key]

    async def read_messages(self, space: ServedSpace) -> None:
        """Find questions by the messages that are stored, and by no others."""
        await asyncio.to_thread(lambda: space.questions.start(recent_messages(space.store)))

    def identity(self, name: str) -> str | None:
        """The id of the live space with this name; None if there is none."""
        row = self.database.find(name)
        return None if row is None or row.state != "live" else str(row.space)

    def is_live(self, space: ServedSpace) -> bool:
        """Whether an open space is still there; it may be called in any thread."""
        t = schema.spaces
        return bool(self.database.rows(space.store.select(t.c.name).where(t.c.state == "live")))

    async def add_space(self, name: str) -> None:
        """Make a space, unless there is one of this name, and open it."""
        async with self.making:
            await asyncio.to_thread(self._make_space, name, None)
        await self.space(name)

    @contextmanager
    def deleting(self, space: ServedSpace) -> Iterator[None]:
        """A block in which a space is deleted, and nobody opens it."""
        self._deleting.add(space.name)
        self._forget(space)
        try:
            yield
        finally:
            # Requests that came meanwhile are not about the next space of this name either.
            self._end(space.name)
            self._deleting.discard(space.name)

    def _end(self, name: str) -> None:
        """Note that the requests until now are not about the next space of this name."""
        self.endings += 1
        self._ended[name] = self.endings
        self._ended.move_to_end(name)
        if len(self._ended) > RECENT:
            self._ended.popitem(last=False)

    def _forget(self, space: ServedSpace) -> None:
        """Close a space that is deleted, and keep nothing of it in memory."""
        self.close_space(space)
        self._end(space.name)
        self.learner.forget(space)
        self._forget_recent(space)
        for key in [key for key in self._unkept if key.startswith(f"{space.name} ")]:
            del self._unkept[key]

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
        if error.name not in self.unfinished:
            self.alarm(error.id, Alarm(error.name, "erasure", str(error)))
        self.unfinished[error.name] = error
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
        """Let no request find a space open any more. What is known of its drift goes with it, since of many spaces it
        would fill the memory."""
        self.spaces.pop(space.name, None)
        self._watchers.pop(space.name, None)

    async def refresh(self, space: ServedSpace) -> None:
        """Bring what is known of a space up to date with what other nodes, or this one before its start, have written.
        Raises StoreError if it cannot be read."""
        async with space.lock:
            await space.read_corrections()
        async with space.counting:
            await self._read_rollout(space)
        o = schema.outcomes
        waiting = space.store.select(func.count(o.c.id), func.min(o.c.at)).where(o.c.state == WAITING)
        ((number, since),) = await asyncio.to_thread(self.database.rows, waiting)
        # What is known here of how long they wait stays, if a clock was set back.
        began = time.monotonic() - max(time.time() - (since or 0.0), 0.0)
        space.waiting_since = min(began, space.waiting_since) if space.waiting else began
        space.waiting = number
        await self.count_scores(space)
        self.learner.wake()

    async def _read_rollout(self, space: ServedSpace) -> None:
        """Go on with the rollout that is under way, whichever node began it: from the outcomes that are stored."""
        r = schema.rollouts
        for row in await asyncio.to_thread(self.database.rows, space.store.select(r).where(r.c.state == CANARY)):
            if space.rollout is None or space.rollout.number != row.number:
                await self._continue_rollout(space, row)
            return
        if space.rollout is not None:
            # Decided by another node.
            await asyncio.to_thread(space.read_versions)
            space.rollout = None

    async def _continue_rollout(self, space: ServedSpace, row: Any) -> None:
        rollout = Rollout.stored(row)
        await asyncio.to_thread(space.read_versions)
        if space.live == rollout.version:
            # The service ended between the promotion and its note.
            ended = partial(end_rollout, row=rollout.row(PROMOTED, "promoted"))
            await asyncio.wrap_future(space.store.do(ended))
            return
        i, o = schema.interactions, schema.outcomes
        of_rollout = self._scored(space).where(i.c.rollout == rollout.number).order_by(o.c.number)
        for scored in await asyncio.to_thread(self.database.rows, of_rollout):
            rollout.take(scored.version, scored.score, scored.kind, json.loads(scored.data)["pin"])
            rollout.seen = scored.number
        await asyncio.to_thread(space.context, rollout.version)
        space.rollout = rollout

    def _scored(self, space: ServedSpace) -> Any:
        """A query of the scores of interactions."""
        i, o = schema.interactions, schema.outcomes
        columns = (o.c.number, o.c.score, i.c.version, i.c.rollout, i.c.kind, i.c.data)
        return space.store.select(*columns).where(o.c.id == i.c.id, o.c.score.is_not(None))

    async def count_scores(self, space: ServedSpace) -> None:
        """Count the scores that came since, whichever node they were reported to, all nodes in the same order: of a
        rollout, which they may decide, and of all requests, which may have become worse."""
        number = schema.outcomes.c.number
        async with space.counting:
            new = self._scored(space).where(number > space.counted).order_by(number)
            for row in await asyncio.to_thread(self.database.rows, new):
                space.counted = row.number
                if alarm := self._watcher(space.name).outcome(row.score):
                    self.alarm(space.id, alarm)
                rollout = space.rollout
                if rollout is None or row.rollout != rollout.number or row.number <= rollout.seen:
                    continue
                decision = rollout.take(row.version, row.score, row.kind, json.loads(row.data)["pin"])
                if decision is not None:
                    await self._decide_scored(space, rollout, decision)

    async def _claim(self, sessions: Sessions, space: ServedSpace, session: str, version: int) -> int | None:
        found = await sessions.claim(space.id, session, version, None, self.late)
        if found is None or space.stands(found):
            return found
        # It was taken back, unless this node has not heard of it yet.
        try:
            async with asyncio.timeout(self.late), space.counting:
                await self._read_rollout(space)
        except (TimeoutError, StoreError):
            return None
        if space.stands(found):
            return found
        return await sessions.claim(space.id, session, version, found, self.late)

    def _remove_old_folders(self) -> None:
        """Remove the folders of this node for spaces that other nodes deleted."""
        live = {row.space for row in self.database.rows(select(schema.spaces.c.space))}
        for folder in (self.settings.folder / "spaces").glob("*.*"):
            if folder.suffix.removeprefix(".") not in live:
                rmtree(folder, ignore_errors=True)

    def _make_space(self, name: str, context: str | None) -> None:
        """Make a space, if there is none of this name yet."""
        require_space_name(name, UnknownSpace)
        with self.database.backend.alone(f"making space {name}"):
            if (id := self.identity(name)) is None:
                self._create_space(name, context)
                self.made.append(name)
                return
        if context is not None or self.settings.settings:
            self.warnings.append(f"space {name} is there already: --context and --set change nothing of it")
        try:
            with self.database.store(name, id).leased() as store:
                self._bring_up_to_date(name, store)
        except RunBusy:
            # Another node learns, and has done this.
            if not self.database.shared:
                raise
        except StoreError as error:
            if name not in self.unfinished:
                raise
            # It is served as it is, and learns nothing, until the removal can be finished.
            self.warnings.append(f"space {name} does not learn yet: {error}")

    def _bring_up_to_date(self, name: str, store: Store) -> None:
        """Let a space that was made before be served. Its agent, models and settings stay its own."""
        settings, (config, _) = self.settings, read_config(store)
        if not (own := is_own(store, config)):
            self.warnings.append(
                f"space {name} was made by another installation, so what it learned is shown as a stranger's: give all "
                f"nodes the same key (the folder {home()})"
            )
        if settings.method is not None and config.method != settings.method:
            raise UsageError(
                "method.mismatch",
                f"space {name} learns by {config.method}, not by {settings.method}: leave out --method, or serve "
                "another --space",
            )
        if own and settings.review not in (None, config.review):
            update_run(store, **config_columns(config.model_copy(update={"review": settings.review})))
        if LIVE not in read_names(store):
            name_version(store, LIVE)

    def _create_space(self, name: str, context: str | None) -> None:
        settings = self.settings
        small = self.upstream is not None and self.upstream.small
        profile = settings.profile or ("small" if small else "full")
        values: dict[str, Any] = {
            "method": settings.method or ("episodes" if profile == "small" else "unified"), "profile": profile,
            "settings": dict(settings.settings), "scorer": "contains", "nonce": token_hex(8),
        }  # fmt: skip
        own = False
        if context is not None:
            path, _ = split_version(context)
            if is_run(path):
                with Store.read(path) as store:
                    config, _ = read_config(store)
                    own = is_own(store, config)
                if own and settings.method is None and config.method != "none":
                    kept = ("method", "settings", "profile", "sections", "instructions", "embedder", "scorer")
                    values |= {name: getattr(config, name) for name in kept if getattr(config, name)}
        if not methods.is_own(values["method"]):
            raise UsageError(
                "method.unsuitable",
                f"method {values['method']!r} cannot serve: choose one that practicum methods lists",
            )
        config = config_from({**values, "model": self.learner.model or None, "review": settings.review or "foreign"})
        seed = load_context(context) if context is not None else None
        waiting = list[Held]()
        if seed is not None and not own:
            seed, waiting = seed_rows(seed, "own")
        seed = Context() if seed is None else as_seed(seed)
        with self.database.create(name) as store:
            begin(store, config, Splits(), seed, "done", waiting)
            name_version(store, LIVE)
            # Kept, so that the space opens quickly ever after.
            vectors = Vectors(run_embedder(config, self._parts), store)
            asyncio.run(vectors.ready(entry.embedded_text for entry in seed))

    # Requests

    async def show(self, name: str, request: Request, caller: Caller) -> RequestView | None:
        """What a request is shown; None if that cannot be known in time. Raises UnknownSpace."""
        try:
            space = self.spaces.get(name)
            limit = self.opens if space is None else self.late if space.waits else SHOWS
            async with asyncio.timeout(limit):
                space = space or await self.space(name)
                session = space.conversations.session(request, caller)
                shown = await space.show(request, session.name)
                self.counts["views without a model"] += space.asks_to_show
                return replace(shown, session_from=session.source)
        except UnknownSpace:
            raise
        except (TimeoutError, PracticumError, OSError) as error:
            self.counts["unchanged requests"] += 1
            logger.warning("a request of space %s goes on unchanged: %s", name, str(error) or "too late")
            return None
        except Exception as error:
            # Whatever is wrong here, the user's agent has to get its answer.
            self.counts["unchanged requests"] += 1
            self.faults.note("choosing what a request is shown", error)
            return None

    def keep(
        self, space: str, id: str, request: Request | None, query: str, steps: Any, shown: RequestView,
        answer: UpstreamAnswer | None, *, user: str | None, status: int, seconds: float, purpose: Purpose | None = None,
        screened: bool = False,
    ) -> None:  # fmt: skip
        """Keep an interaction: what was asked, shown and answered. One with a `purpose` is no request of a user. One of
        a space that was deleted since is dropped. `screened`: an agent wrote the question."""
        at = self.spaces.get(space)
        # Of a space that is closed now, nothing is kept in memory.
        at = at if at is not None and at.id == shown.space else None
        if request is not None and answer is not None and at is not None and purpose != "title":
            at.conversations.add(request, user, answer, shown.session)
        # A title is no turn of the conversation that it is about.
        answer, session = answer or UpstreamAnswer(), None if purpose == "title" else shown.session
        model = (request.model if request else "") or (self.upstream.model if self.upstream else "")
        data = {
            "query": query, "question": shown.question or query, "steps": steps, "answer": answer.text,
            "calls": answer.calls, "entries": shown.entries, "corrections": shown.corrections, "pin": shown.session,
            "session_from": shown.session_from,
            "status": status, "seconds": round(seconds, 3),
            "model": model, "counted": self.upstream.counted(model, answer.model) if self.upstream else OTHER,
            "tokens": [answer.input_tokens, answer.cached_tokens, answer.output_tokens],
        }  # fmt: skip
        if (request is not None and request.material) or answer.material:
            data["material"] = True
        if screened:
            data["screened"] = True
        if answer.thoughts:
            data["thoughts"] = answer.thoughts
        if shown.redactor is not None:
            data |= shown.redactor({name: data[name] for name in SAID if name in data})
        if answer.silence is not None and status < 300:
            data["silence"] = answer.silence
            self.counts[answer.silence.replace("_", " ")] += purpose is None
        if purpose is not None:
            data["purpose"] = purpose
        row = {
            "id": id, "at": time.time(), "session": session, "user": user,
            "response": answer.id if 0 < len(answer.id) <= LONGEST_NAME else None,
            "version": shown.version, "rollout": shown.rollout, "kind": shown.kind,
            "data": json.dumps(data, ensure_ascii=False),
        }  # fmt: skip
        self.database.writer.post(shown.space, schema.interactions, row, sums=interaction_sums(row, data))
        known = Interaction(id, session, user, shown.version, shown.rollout, shown.kind, data)
        for key in filter(None, (id, answer.id) if at is not None else ()):
            # About as large as what is stored.
            self.recent.put(f"{shown.space} {key}", known, size_of([row["data"]]))
        self.counts["interactions" if purpose is None else "uncounted interactions"] += 1
        for kind, number in zip(TOKENS, data["tokens"], strict=True):
            self.counts[f"{kind} tokens"] += number
        if answer.text and answer.silence is None and purpose is None and drawn(id, self.settings.judge):
            self._judge_later(known, shown.space, at)
        if shown.vector is not None and purpose != "title" and at is not None:
            watcher = self._watcher(space)
            best = shown.entries[0][1] if shown.entries else None
            for alarm in watcher.request(shown.vector, best):
                self.alarm(at.id, alarm)

    def _judge_later(self, known: Interaction, id: str, space: ServedSpace | None) -> None:
        """Let an answer be learned from by a judge's verdict, unless an outcome is reported before."""
        row = {
            "id": known.id, "at": time.time(), "revision": 1, "trust": said_by(known.user),
            "state": WAITING, "data": json.dumps({"reports": [], "own": {}, "user": {}}),
        }  # fmt: skip
        self.database.writer.post(id, schema.outcomes, row, told=True)
        if space is not None:
            self.wait_to_learn(space)

    def wait_to_learn(self, space: ServedSpace) -> None:
        """Count an outcome that can be learned from."""
        space.waiting_since = space.waiting_since if space.waiting else time.monotonic()
        space.waiting += 1
        self.learner.wake()

    async def show_text(
        self, name: str, query: str, session: str | None, user: str | None, *, screened: bool = False
    ) -> answers.ShownText:
        """What a task is shown, as one text for the prompt of an agent of one's own, and the interaction that begins.
        Raises UnknownSpace."""
        space = await self.space(name)
        request = text_request(query)
        id = new_id()
        shown = replace(await space.show(request, session or id), session_from=OWN if session else OPENING)
        self.keep(
            name, id, request, request.query, (), shown, None, user=user, status=200, seconds=0.0, purpose="context",
            screened=screened,
        )  # fmt: skip
        notes = [one.note for one in shown.learned.values()]
        turns = [turn for one in shown.learned.values() for turn in one.turns]
        solved = "\n".join(framed([exchanges(turns)], space.nonce)) if turns else ""
        text = "\n\n".join(filter(None, [shown.fixed, *notes, solved]))
        return {
            "interaction": id, "version": shown.version, "text": text,
            "entries": [[*pair] for pair in shown.entries], "corrections": [*shown.corrections],
        }  # fmt: skip

    # Interactions

    async def list_interactions(
        self, name: str, session: str | None, user: str | None, since: float | None, limit: int
    ) -> answers.Interactions:
        """The newest interactions of a space, those included that wait to be written. Raises UnknownSpace."""
        space = await self.space(name)
        read = partial(list_interactions, session=session, user=user, since=since, limit=limit)
        return {"space": name, "interactions": await asyncio.wrap_future(space.store.do(read))}

    def remember_response(self, name: str, id: str) -> None:
        """Remember that a request of this space got the response with this id, which no interaction has: it may go on
        from it. The newest ones are known, on this node, until it stops."""
        if 0 < len(id) <= LONGEST_NAME:
            self._unkept[f"{name} {id}"] = None
        while len(self._unkept) > RECENT:
            self._unkept.popitem(last=False)

    async def made_response(self, name: str, id: str) -> bool:
        """Whether the upstream made the response with this id for a request of this space. Raises StoreError."""
        if f"{name} {id}" in self._unkept:
            return True
        space = await self.space(name)
        if f"{space.id} {id}" in self.recent:
            return True
        try:
            await self.find(space.store, Report.model_construct(interaction=id))
        except Unknown:
            return False
        return True

    async def find(self, store: Store, report: Report) -> Interaction:
        """The interaction that a report is about; another node may be about to write it. Raises Unknown."""
        find = partial(find_interaction, report=report)
        try:
            return await asyncio.wrap_future(store.do(find))
        except Unknown:
            if self.sessions is None:
                raise
        await asyncio.sleep(2 * WINDOW)
        return await asyncio.wrap_future(store.do(find))

    async def _decide_scored(self, space: ServedSpace, rollout: Rollout, decision: RolloutDecision) -> None:
        try:
            await self.decide(space, rollout, decision)
        except PracticumError as error:
            # The feedback is stored all the same; the next score decides again.
            self.counts["decisions that failed"] += 1
            logger.error("space %s: version %d is not %s: %s", space.name, rollout.version, decision.state, error)

    async def history(self, name: str, most: int = 50) -> answers.SpaceHistory:
        """The last rollouts and alarms of a space, and what came of requests that were shown each entry."""
        space = await self.space(name)
        r, a, c, e = schema.rollouts, schema.alarms, schema.credits, schema.erasures
        queries = [
            space.store.select(table).order_by(order.desc()).limit(most)
            for table, order in ((r, r.c.number), (a, a.c.number), (c, c.c.scored), (e, e.c.number))
        ]
        rollouts, alarms, credits, erasures = [await asyncio.to_thread(self.database.rows, query) for query in queries]
        told: list[Any] = [
            {"version": x.version, "base": x.base, "state": x.state, **json.loads(x.data)} for x in rollouts
        ]
        for one in told:
            del one["centroids"]
        return {
            "space": name, "rollouts": told,
            "alarms": [{"at": x.at, "kind": x.kind, "text": x.text} for x in alarms],
            "credits": [{"item": x.item, "scored": x.scored, "mean": x.total / max(x.scored, 1)} for x in credits],
            "erasures": [{"began": x.began, "ended": x.ended, "state": x.state} for x in erasures],
        }  # fmt: skip

    # Rollouts

    async def decide(self, space: ServedSpace, rollout: Rollout, decision: RolloutDecision) -> None:
        """Promote a candidate, or take it back: written, and in effect with the next request. Of nodes that decide at
        the same time, the first one does."""
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
            what = f"version {rollout.version} {decision.state}: {decision.reason}"
            self.alarm(space.id, Alarm(space.name, "rollout", what))
        self.learner.wake()

    async def begin_rollout(self, space: ServedSpace, rollout: Rollout) -> bool:
        """Show a candidate to its share of the sessions. Returns whether it began: not if somebody has made another
        version live meanwhile, or another node has begun."""
        async with space.counting:
            began = partial(begin_rollout, row=rollout.row())
            if self.spaces.get(space.name) is not space or space.live != rollout.base:
                return False
            if not await asyncio.wrap_future(space.store.do(began)):
                return False
            space.context(rollout.version)
            space.rollout = rollout
        return True

    async def roll_back(self, name: str, version: int | None) -> answers.LiveVersion:
        """Make an earlier version live (None: the one before the live one), and take a candidate back."""
        space = await self.space(name)
        await asyncio.to_thread(space.read_versions)
        async with space.counting:
            await self._read_rollout(space)
        if space.rollout is not None:
            await self.decide(space, space.rollout, RolloutDecision(TAKEN_BACK, "by hand"))
            if version is None:
                return {"version": space.live}
        if version is None:
            t = schema.rollouts
            mine = space.store.select(t.c.base).where(t.c.version == space.live, t.c.state == PROMOTED)
            rows = await asyncio.to_thread(self.database.rows, mine.order_by(t.c.number.desc()))
            version = rows[0].base if rows else space.parent
            if version is None:
                raise UsageError(
                    "version.unknown", f"version {space.live} of space {name} is the first: there is none before it"
                )
        if version == space.live:
            raise UsageError("version.unchanged", f"version {version} of space {name} is live already")
        await asyncio.to_thread(name_version, space.store, LIVE, version)
        await asyncio.to_thread(space.read_versions)
        self.alarm(space.id, Alarm(name, "rollout", f"version {version} is live again, by hand"))
        return {"version": space.live}

    # Alarms

    def alarm(self, id: str, alarm: Alarm) -> None:
        """Record an alarm of the space with this identity, and notify the operator."""
        logger.warning("space %s: %s: %s", alarm.space, alarm.kind, alarm.text)
        t = schema.alarms

        def write(at: Transaction) -> bool:
            now = at.now()
            same = at.select(t.c.number).where(t.c.kind == alarm.kind, t.c.at.between(now - QUIET, now)).limit(1)
            if alarm.kind in DRIFTS and at.first(same) is not None:
                return False
            at.insert(t, {"number": next_number(at, t), "at": now, "kind": alarm.kind, "text": alarm.text})
            return True

        self._spawn(self._tell(alarm, self.database.do(write, id)))

    async def _tell(self, alarm: Alarm, written: Future[bool]) -> None:
        try:
            first = await asyncio.wrap_future(written)
        except UnknownSpace:
            return
        except StoreError as error:
            # Told all the same.
            first = True
            logger.error("an alarm is not stored: %s", error)
        self.counts["alarms"] += first
        if first and self.settings.webhook:
            await self._call_webhook(self.settings.webhook, asdict(alarm))

    async def _call_webhook(self, url: str, alarm: dict[str, Any]) -> None:
        try:
            timeout = aiohttp.ClientTimeout(total=10.0)
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.post(url, json=alarm, allow_redirects=False) as response,
            ):
                if response.status >= 300:
                    raise aiohttp.ClientError(f"status {response.status}")
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self.counts["webhooks that failed"] += 1
            logger.error("the webhook did not take an alarm: %s", error)

    def _row_refused(self, id: str, table: str, error: str) -> None:
        """Note a row that the database refused, of the space with this identity; called in the thread of the log."""
        # A loop that is closed has no alarms to raise.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._alarm_refused, id, table, error)

    def _alarm_refused(self, id: str, table: str, error: str) -> None:
        self.counts["refused rows"] += 1
        now = time.monotonic()
        if now - self._refused_at.get(id, float("-inf")) > QUIET:
            self._refused_at[id] = now
            text = f"the database refused a row of {table} ({error}): it is lost, and the others are written"
            name = next((space.name for space in self.spaces.values() if space.id == id), id)
            self.alarm(id, Alarm(name, "store", text))

    def _watcher(self, space: str) -> Watcher:
        if space not in self._watchers:
            self._watchers[space] = Watcher(space)
        return self._watchers[space]

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
                self.counts["looks that failed"] += 1
                logger.exception("a look at what others wrote failed")

    def _look_at_store(self) -> None:
        """Raise an alarm when the store cannot be written for `FAILING` seconds, and one when it can be again."""
        writer, failing = self.database.writer, self.database.writer.failing
        # It is of all spaces, and is kept in the first one, also while that is closed for a removal.
        first = self.settings.spaces[0]
        at = self.spaces.get(first) or self.unfinished.get(first) or next(iter(self.spaces.values()), None)
        if at is None:
            return
        if failing is None and self._fails is not None:
            seconds, self._fails = time.monotonic() - self._fails.since, None
            text = f"the store is written again after {seconds:.0f} s; {writer.lost} interactions were given up"
            self.alarm(at.id, Alarm(at.name, "store", text))
        elif failing is not None and self._fails is None and failing.last - failing.since >= FAILING:
            self._fails = failing
            text = (
                f"{failing.error}; requests go on, reports are refused, and {writer.unwritten} interactions wait in "
                f"memory ({UNWRITTEN:,} at most)"
            )
            self.alarm(at.id, Alarm(at.name, "store", text))

    async def _look_once(self) -> None:
        changes = self.database.backend.changes
        await asyncio.to_thread(changes, "")
        for space in [*self.spaces.values()]:
            if (announced := changes(space.id, fresh=False)) == space.announced:
                continue
            try:
                if await asyncio.to_thread(self.identity, space.name) != space.id:
                    await self._drop(space)
                    continue
                if await asyncio.to_thread(space.look):
                    await self._forget_texts(space)
                await self.refresh(space)
                await self._follow(space)
            except (PracticumError, OSError) as error:
                # Looked at once more, as all spaces are when the database is there again.
                self.counts["looks that failed"] += 1
                if not self._is_away:
                    logger.warning("what others changed is not known until later: %s", error)
                self._is_away = True
                return
            space.announced = announced
        self._is_away = False
        for space in self._unused():
            self.close_space(space)
            await space.close()

    def _unused(self) -> list[ServedSpace]:
        """The spaces that are to be closed, and will be opened by the next request: those that nobody asked for long,
        and if all take too much memory, more of those that nobody asked for longest."""
        found = list[ServedSpace]()
        over = sum(space.megabytes for space in self.spaces.values()) - self.settings.memory
        for space in sorted(self.spaces.values(), key=lambda space: space.used):
            unused = time.monotonic() - space.used
            if unused <= (IN_USE if over > 0 else PINNED):
                break
            if space.name not in (*self.settings.spaces, self.learner.at) and not space.is_busy:
                found.append(space)
                over -= space.megabytes
        return found

    async def _follow(self, space: ServedSpace) -> None:
        """End a rollout if somebody made another version live by hand."""
        rollout = space.rollout
        if rollout is None or space.live == rollout.base:
            return
        reason = f"version {space.live} was made live by hand"
        promoted = space.live == rollout.version
        try:
            await self.decide(space, rollout, RolloutDecision(PROMOTED if promoted else TAKEN_BACK, reason))
        except PracticumError as error:
            logger.warning("the rollout of space %s goes on: %s", space.name, error)

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def call_soon(self, work: Any) -> Any:
        """Run a coroutine in the event loop of the service, from another thread; returns its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    @property
    def is_watched(self) -> bool:
        """Whether somebody has asked lately whether the service is ready."""
        return time.monotonic() - self._asked_ready <= LATELY

    async def not_ready(self) -> str | None:
        """Why no more requests should be sent here; None if they should."""
        self._asked_ready = time.monotonic()
        if self.stopping:
            return "the service stops"
        if closed := [name for name in self.settings.spaces if name not in {*self.spaces, *self.unfinished}]:
            return f"space {closed[0]} is not open"
        if time.monotonic() - self.database.writer.worked > PROBE:
            # One question at a time, however often this is asked.
            if self._probe is None or self._probe.done():
                self._probe = self.database.do(lambda at: at.first(select(1)))
            with suppress(TimeoutError, StoreError):
                async with asyncio.timeout(PROBE):
                    await asyncio.shield(asyncio.wrap_future(self._probe))
        silent = time.monotonic() - self.database.writer.worked
        return f"the database has not answered for {silent:.0f} seconds" if silent > LATELY else None

    def health(self) -> answers.Health:
        """How the service is."""
        writer = self.database.writer
        spaces: dict[str, answers.SpaceHealth] = {
            space.name: {
                "version": space.live, "entries": len(space.context(space.live)), "corrections": len(space.corrections),
                "waiting": space.waiting,
                "candidate": None if space.rollout is None else space.rollout.version,
            }
            for space in self.spaces.values()
        }  # fmt: skip
        return {
            "status": "ok", "seconds": round(time.monotonic() - self.began, 1), "spaces": spaces,
            "counts": dict(self.counts), "unwritten": writer.unwritten, "lost": writer.lost, "late": writer.late,
            "learning": self.learner.status,
        }  # fmt: skip
