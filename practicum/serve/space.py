"""A space at work: the versions that it shows, which session sees which, and what a request is shown.

All that a request needs is in memory. The run folder is looked at beside the requests, so a store that is slow or gone
delays none of them.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from practicum.agents.chat import USING
from practicum.core.context import Context
from practicum.core.errors import StoreError, UsageError
from practicum.core.keeping import Bounded, size_of
from practicum.core.redact import Redactor
from practicum.core.views import View, exchanges
from practicum.engine.framing import framed
from practicum.serve.protocols import Insertion, Request
from practicum.serve.sessions import Conversations
from practicum.session.components import Parts
from practicum.session.corrections import Correction
from practicum.session.outcomes import drawn
from practicum.session.questions import Questions
from practicum.session.reader import Reader
from practicum.session.rollout import Rollout
from practicum.session.shown_corrections import (
    SIMILAR,
    Corrections,
    Near,
    corrected_view,
)
from practicum.store.database import Store
from practicum.store.names import EDITED, LIVE, read_every_name, read_head
from practicum.store.versions import lineage, read_parents

PINNED = 1_800.0
"""Seconds without a request after which a session sees the newest version."""

SESSIONS, POINTS, VERSIONS = 100_000, 10_000, 8
"""What is kept in memory of a space: the versions of sessions, what earlier messages were shown, and contexts."""

POINTS_BYTES = 32 * 2**20
"""Bytes that the texts which earlier messages were shown may take."""

FIXED, ENTRY, CHARACTER, SESSION, POINT = 500_000, 500, 3, 300, 3_000
"""Bytes that a space takes, and more for each entry beside its vector, each character of its text, each session,
answer and piece of a message, and each message, about: measured on spaces of 1,000 entries of 150 characters, which
take 2.4 MB."""

Claim = Callable[[str, int], Awaitable[int | None]]
"""Asks which version a session sees on all nodes: this one, unless another node showed it another one. None: that is
not known now."""

READ = 2.0
"""Seconds that a request waits for a version that is in a database and not in memory."""


@dataclass(frozen=True)
class RequestView:
    """What a request is shown: `fixed` behind the system message, `learned` by the places of user messages. `question`
    is what the last one asks; `entries` were looked up for it, with their similarities, and so were the corrections of
    these numbers."""

    version: int
    session: str = ""
    session_from: str = ""
    """What named the session (see `sessions`)."""
    fixed: str = ""
    learned: dict[int, Insertion] = field(default_factory=dict)
    entries: tuple[tuple[str, float], ...] = ()
    corrections: tuple[int, ...] = ()
    question: str = ""
    rollout: int | None = None
    kind: int | None = None
    vector: np.ndarray | None = field(default=None, compare=False)
    space: str = ""
    """The identity of the space that showed it."""
    redactor: Redactor | None = field(default=None, compare=False)
    """What the space keeps goes through it."""


@dataclass(frozen=True)
class _Pin:
    """The version that a session sees: when it asked last and when that was settled, in seconds, and what the space
    showed to others then."""

    version: int
    at: float
    settled: float
    among: tuple[int, int | None]


@dataclass(frozen=True)
class _Point:
    """What a user's message was shown when it was the last one, and all requests beside it."""

    fixed: str
    learned: Insertion
    entries: tuple[tuple[str, float], ...]
    corrections: tuple[int, ...]
    question: str
    version: int
    changes: int


class ServedSpace:
    """An open space. `open` makes one in any thread; afterwards it belongs to the thread of the event loop. `id` is its
    identity, which all its rows carry: a space that is made under the same name later has another one."""

    def __init__(self, store: Store, reader: Reader) -> None:
        self.name, self.id = store.name, store.space
        self.store, self.reader = store, reader
        self.questions = Questions()
        self.corrections = Corrections(reader.retriever, self.questions, SIMILAR["small" if self.small else "full"])
        self.rollout: Rollout | None = None
        self.waiting = 0
        """Outcomes that can be learned from and were not."""
        self.waiting_since = 0.0
        """Since when the first of them waits, by the monotonic clock (s)."""
        self.scored, self.scores = 0, 0.0
        """Interactions that got their first score here since it was opened, and the sum of these scores."""
        self.used = time.monotonic()
        self.lock = asyncio.Lock()
        """Of corrections."""
        self.counting = asyncio.Lock()
        self.counted = 0
        """The number of the last outcome that was counted."""
        self.announced = 0
        """The number of the changes by other nodes that are known here (see `store.backend.Backend.changes`)."""
        self.claim: Claim | None = None
        self.conversations = Conversations()
        self._reading = threading.Lock()
        self._pins: OrderedDict[str, _Pin] = OrderedDict()
        self._points: Bounded[_Point] = Bounded(POINTS, POINTS_BYTES)
        self._contexts: OrderedDict[int, Context] = OrderedDict()
        self._fixed: tuple[tuple[str, ...], str] = ((), "")
        self._measured = 0, 0
        self._changes = -1
        self._of_run: tuple[Any, ...] = ()
        self.live = self.last = 0
        """The version that is live, and the newest one of the run."""
        self._line: list[int] = []
        self._edited = 0

    @classmethod
    def open(cls, store: Store, parts: Parts) -> ServedSpace:
        """Open a space. Raises StoreError or UsageError if it cannot be used."""
        space = cls(store, Reader(store, store, None, {}, parts, False))
        space.read_versions()
        # Whatever the first request would wait for is made now.
        asyncio.run(space.view("warm up", space._contexts[space.live]))
        space.reader.store.release()
        return space

    @property
    def megabytes(self) -> float:
        """The memory that it takes, about."""
        vectors = self.reader.retriever.vectors
        if len(vectors.texts) != self._measured[0]:
            self._measured = len(vectors.texts), sum(map(len, vectors.texts))
        entries, characters = self._measured
        kept = SESSION * (len(self._pins) + len(self.conversations) + len(self.questions))
        kept += max(POINT * len(self._points), self._points.bytes)
        return (FIXED + entries * (ENTRY + 4 * vectors.matrix.dims) + characters * CHARACTER + kept) / 1e6

    @property
    def is_busy(self) -> bool:
        """Whether something goes on that needs it open: learning, a rollout, a change, or a session that sees an older
        version."""
        going_on = self.rollout is not None or self.waiting or self.last != self.live
        now = time.monotonic()
        return bool(
            going_on or self.lock.locked() or self.counting.locked()
            or any(pin.version != self.live and now - pin.at <= PINNED for pin in self._pins.values())
        )  # fmt: skip

    @property
    def small(self) -> bool:
        """Whether the model that answers is a small one."""
        return self.reader.config.profile == "small"

    @property
    def asks_to_show(self) -> bool:
        """Whether the method asks a model to show; here it shows the rest."""
        return bool(self.reader.method.show_roles)

    @property
    def nonce(self) -> str:
        """That of the marks around notes (see `engine.framing`)."""
        return self.reader.config.nonce

    @property
    def waits(self) -> bool:
        """Whether showing waits for anybody: for an embedder elsewhere. Otherwise all it needs is in memory."""
        return ":" in self.reader.config.embedder

    async def view(self, query: str, context: Context) -> View:
        """What the method shows for a query. It asks no model: a method that would shows the rest."""
        return await self.reader.view(query, context)

    # Versions

    def look(self) -> bool:
        """Read the versions if a write to the run was noticed, which a database may tell of some time after it. Returns
        whether rows were removed for good."""
        with self._reading:
            return self.reader.store.changes() != self._changes and self._read_versions()

    def read_versions(self) -> None:
        """Read which version is live, as it is in the store now."""
        with self._reading:
            self._read_versions()

    def _read_versions(self) -> bool:
        store = self.reader.store
        # First the number: a write that comes later is noticed by the next look.
        changes = store.changes()
        head = read_head(store, None)
        rewritten = head is not None and head.of_run != self._of_run and bool(self._of_run)
        if rewritten:
            # Such as by `forget`: what was read of the run may be gone.
            self.reader.reopen()
            store = self.reader.store
            changes = store.changes()
        parents = read_parents(store)
        if not parents:
            raise StoreError("store.not_found", f"the run of space {self.name} is gone")
        names = read_every_name(store)
        live = names.get(LIVE, max(parents))
        wanted = {live} | ({self.rollout.version} if self.rollout and self.rollout.version in parents else set())
        kept = {} if rewritten else self._contexts
        known = {number: kept.get(number) or self.reader.version(number) for number in wanted}
        self._line, self.last = lineage(parents, live), max(parents)
        self._edited = edited if (edited := names.get(EDITED)) in self._line else 0
        self._contexts.update(known)
        self.live, self._changes = live, changes
        if rewritten:
            # Only now: a request that is shown something meanwhile always finds the live version.
            self._contexts = OrderedDict(known)
            self._points.clear()
            self._pins.clear()
        if head is not None:
            self._of_run = head.of_run
        return rewritten

    @property
    def newest(self) -> Context | None:
        """The newest version, if it is at hand."""
        return self._contexts.get(self.last)

    @property
    def parent(self) -> int | None:
        """The version that the live one was made from; None for the first."""
        return self._line[-2] if len(self._line) > 1 else None

    def context(self, version: int) -> Context:
        """A version. One that is gone, such as by `forget`, is replaced by the live one."""
        contexts = self._contexts
        if version in contexts:
            contexts.move_to_end(version)
            return contexts[version]
        try:
            context = self.reader.version(version)
        except UsageError:
            return self._contexts[self.live]
        self._contexts[version] = context
        needed = {self.live, version, self.rollout.version if self.rollout else self.live}
        for old in [number for number in [*self._contexts] if number not in needed][: len(self._contexts) - VERSIONS]:
            self._contexts.pop(old, None)
        return context

    async def version_for(self, session: str) -> int:
        """The version that a session sees. It stays the same while the session lasts, for prefix caches and so that no
        conversation changes its mind, unless the version was taken back; on all nodes, where there are several."""
        now, pin = time.monotonic(), self._pins.get(session)
        candidate = self.rollout.version if self.rollout is not None else None
        among = self.live, candidate
        chosen = self.rollout is not None and drawn(f"{self.rollout.number} {session}", self.rollout.share)
        version = candidate if chosen and candidate is not None else self.live
        settled = now
        if pin is not None and now - pin.at <= PINNED and self.stands(pin.version):
            version, settled = pin.version, pin.settled
        if self.claim is not None and (pin is None or pin.among != among or now - pin.settled > PINNED / 2):
            found = await self.claim(session, version)
            version, settled = (version, settled) if found is None else (found, now)
            # What is not known now is asked for again with the next request.
            among = among if found is not None else (-1, None)
        self._pins[session] = _Pin(version, now, settled, among)
        self._pins.move_to_end(session)
        if len(self._pins) > SESSIONS:
            self._pins.popitem(last=False)
        return version

    def stands(self, version: int) -> bool:
        """Whether a session may go on with a version: it was not taken back, and nobody edited it since."""
        candidate = self.rollout is not None and version == self.rollout.version
        return candidate or (version in self._line and version >= self._edited)

    async def read_corrections(self) -> None:
        """Let those corrections hold that are stored; whoever calls has the space's lock."""
        await self.corrections.follow(self.store)

    async def follow_corrections(self) -> None:
        """Know the corrections that hold now, whichever node took the last one."""
        async with self.lock:
            await self.read_corrections()

    # Showing

    async def show(self, request: Request, session: str) -> RequestView:
        """What a request of a session is shown."""
        self.used = time.monotonic()
        version = await self.version_for(session)
        if version not in self._contexts and self.claim is not None:
            # In a thread, since the database may be away.
            async with asyncio.timeout(READ):
                await asyncio.to_thread(self.context, version)
        context = self.context(version)
        if context is self._contexts[self.live]:
            version = self.live
        if not request.points:
            view = await self.view("-", context)
            return RequestView(
                version, session, fixed=self._fixed_text(view), space=self.id, redactor=self.reader.redactor
            )
        *earlier, (place, digest) = request.points
        learned = {where: old.learned for where, key in earlier if (old := self._still_true(key, version, context))}
        point = self._points.get(digest)
        if point is None or (point.version, point.changes) != (version, self.corrections.changes):
            asked, pieces = self.questions.ask(self.reader.redacted(request.query))
            self.corrections.reconsider(pieces)
            question = asked.text
            view = await self.view(question, context)
            changes, near = self.corrections.changes, await self.corrections.near(question)
            numbers = tuple(each.correction.number for each in near)
            shown, fixed = self._learned(view, near), self._fixed_text(view)
            point = _Point(fixed, shown, view.retrieved, numbers, question, version, changes)
            texts = (shown.note, question, *(text for turn in shown.turns for text in (turn.user, turn.assistant)))
            self._points.put(digest, point, size_of(texts))
        if point.learned.note or point.learned.turns:
            learned[place] = point.learned
        vector = await self.reader.retriever.vectors.query(point.question)
        rollout = self.rollout
        counted = rollout is not None and version in (rollout.version, rollout.base)
        return RequestView(
            version, session, "", point.fixed, learned, point.entries, point.corrections, point.question,
            rollout.number if rollout is not None and counted else None,
            rollout.kind_of(vector) if rollout is not None and counted else None, vector, self.id,
            self.reader.redactor,
        )  # fmt: skip

    async def show_again(
        self, question: str, context: Context, corrections: Sequence[Correction]
    ) -> tuple[str, Insertion, tuple[tuple[str, float], ...]]:
        """What a request with this question was shown of a version and of these corrections: the fixed part, what was
        looked up for it, and the entries that it was."""
        view = await self.view(question, context)
        near = [Near(each, await self.corrections.is_same(question, each)) for each in corrections]
        return self._fixed_text(view), self._learned(view, near), view.retrieved

    def question(self, data: Mapping[str, Any]) -> str:
        """The question of a stored interaction or correction, as it is known now; it may be called in any thread."""
        found = self.questions.of(data["query"])
        return found.text if found.neighbours else str(data["question"] or data["query"])

    def _still_true(self, digest: str, version: int, context: Context) -> _Point | None:
        """What an earlier message was shown, unless some of it holds no longer."""
        point = self._points.get(digest)
        if point is None:
            return None
        entries = (context.get(id) for id, _ in point.entries)
        same = point.version == version or all(e is not None and e.changed <= point.version for e in entries)
        return point if same and all(number in self.corrections for number in point.corrections) else None

    def _fixed_text(self, view: View) -> str:
        """What all requests are shown of a version, made once."""
        pages = view.pages[: view.fixed]
        if self._fixed[0] != pages:
            text = "\n\n".join(pages) if view.instructing else self._notes(pages, view.citable)
            self._fixed = pages, text
        return self._fixed[1]

    def _learned(self, view: View, near: Sequence[Near]) -> Insertion:
        """What was looked up for a request."""
        looked_up = [*view.pages[view.fixed :], *([view.note] if view.note else [])]
        introduced = bool(looked_up) and view.citable and not view.fixed
        view = corrected_view(replace(view, pages=tuple(looked_up)), near, self.small)
        solved = [exchanges(view.turns)] if view.turns and not self.small else []
        return Insertion(self._notes([*view.pages, *solved], introduced), view.turns if self.small else ())

    def _notes(self, pages: Sequence[str], introduced: bool) -> str:
        """Pages between marks; after the words with which the chat agent is shown entries, if they are `introduced`."""
        text = "\n".join(framed(pages, self.nonce))
        return f"{USING}\n\n{text}" if introduced and pages else text

    async def close(self) -> None:
        """Close the run, after a look at it that is under way in a thread."""
        await asyncio.to_thread(self._reading.acquire)
        try:
            await self.reader.close()
        finally:
            self._reading.release()
