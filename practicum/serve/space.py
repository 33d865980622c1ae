"""Open space: its versions, the version of each session, and the view of each request.

The data that most requests need is in memory, and a separate task (`Service`) polls the store for changes, so a slow or
missing store does not delay these requests.
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
from practicum.core.tool_texts import ToolTexts
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
    nearest_answer,
)
from practicum.store.database import Store
from practicum.store.names import EDITED, LIVE, read_every_name, read_head
from practicum.store.versions import lineage, read_parents

PINNED = 1_800.0
"""Idle time (s) after which a session no longer keeps its version, and after which an unused space is closed."""

SESSIONS, POINTS, VERSIONS = 100_000, 10_000, 8
"""Largest numbers of cached items of a space: sessions with their versions, views of earlier messages, and contexts."""

POINTS_BYTES = 32 * 2**20
"""Largest size (bytes) of all texts in cached views of earlier messages."""

FIXED, ENTRY, CHARACTER, SESSION, POINT = 500_000, 500, 3, 300, 3_000
"""Approximate memory of a space (bytes): a fixed part; per entry without the vector; per character of an entry; per
session, answer or piece of a message; per message. Measured on spaces of 1,000 entries of 150 characters, which take
2.4 MB."""

Claim = Callable[[str, int], Awaitable[int | None]]
"""Function that takes a session and a version, and returns the version that all nodes show to the session. This is the
passed version, unless another node has shown the session a different version. None: the version of the
session is not known now."""

READ = 2.0
"""Time (s) that a request waits to load a version from the database."""


@dataclass(frozen=True)
class RequestView:
    """View of a request. `fixed` follows the system message; `learned` maps positions of user messages to insertions;
    `tools` are descriptions of tools that replace the descriptions in the request. `question` is the question of the
    last message. `entries` (with similarities) and `corrections` (numbers) were looked up for this question. `rollout`
    is the number of the rollout that counts the score of the request (None: no rollout counts the score), and `kind`
    the kind of the request in this rollout."""

    version: int
    session: str = ""
    session_from: str = ""
    """Source of the session's name (see `sessions`)."""
    fixed: str = ""
    tools: ToolTexts = field(default_factory=dict)
    learned: dict[int, Insertion] = field(default_factory=dict)
    entries: tuple[tuple[str, float], ...] = ()
    corrections: tuple[int, ...] = ()
    question: str = ""
    rollout: int | None = None
    kind: int | None = None
    vector: np.ndarray | None = field(default=None, compare=False)
    space: str = ""
    """Identity of the space."""
    redactor: Redactor | None = field(default=None, compare=False)
    """Redactor for everything that the space stores."""


@dataclass(frozen=True)
class _Pin:
    """Version of a session: `at` is the time of the session's last request and `settled` the time when the version was
    chosen (monotonic, s). `among` has the live version and the candidate at the last request; (-1,
    None) if the version that all nodes show was not known."""

    version: int
    at: float
    settled: float
    among: tuple[int, int | None]


@dataclass(frozen=True)
class _Point:
    """View of a user's message, the fixed text, and the descriptions of tools. All were made for the request in which
    the message was the last user message. `version` is the version of the context, and `changes` the change counter of
    the corrections, at that time."""

    fixed: str
    tools: ToolTexts
    learned: Insertion
    entries: tuple[tuple[str, float], ...]
    corrections: tuple[int, ...]
    question: str
    version: int
    changes: int


class ServedSpace:
    """Open space. `open` may run in any thread; after that, only the thread of the event loop may use the space. All
    rows of the space carry its identity `id`; a later space of the same name has a different identity."""

    def __init__(self, store: Store, reader: Reader) -> None:
        self.name, self.id = store.name, store.space
        self.store, self.reader = store, reader
        self.questions = Questions()
        self.corrections = Corrections(reader.retriever, self.questions, SIMILAR["small" if self.small else "full"])
        self.rollout: Rollout | None = None
        self.waiting = 0
        """Number of outcomes that the learner has not used yet."""
        self.waiting_since = 0.0
        """Start of the waiting time of the outcomes in `waiting` (monotonic, s)."""
        self.scored, self.scores = 0, 0.0
        """Number of interactions that got their first score since the space was opened, and the sum of these scores."""
        self.used = time.monotonic()
        self.lock = asyncio.Lock()
        """Protects the corrections."""
        self.counting = asyncio.Lock()
        self.counted = 0
        """Sequence number of the last counted outcome."""
        self.announced = 0
        """Value of the change counter up to which changes by other nodes were read (see
        `store.backend.Backend.changes`)."""
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
        """The live version, and the newest version."""
        self._line: list[int] = []
        self._edited = 0

    @classmethod
    def open(cls, store: Store, parts: Parts) -> ServedSpace:
        """Open a space. Raise StoreError or UsageError if the space cannot be used."""
        space = cls(store, Reader(store, store, None, {}, parts, False))
        space.read_versions()
        # Warm the caches, so that the first request does not wait.
        asyncio.run(space.view("warm up", space._contexts[space.live]))
        space.reader.store.release()
        return space

    @property
    def megabytes(self) -> float:
        """Approximate memory of the space (MB)."""
        vectors = self.reader.retriever.vectors
        if len(vectors.texts) != self._measured[0]:
            self._measured = len(vectors.texts), sum(map(len, vectors.texts))
        entries, characters = self._measured
        bytes_used = SESSION * (len(self._pins) + len(self.conversations) + len(self.questions))
        bytes_used += max(POINT * len(self._points), self._points.bytes)
        return (FIXED + entries * (ENTRY + 4 * vectors.matrix.dims) + characters * CHARACTER + bytes_used) / 1e6

    @property
    def is_busy(self) -> bool:
        """Whether the space must stay open: for learning, a rollout, a change, or a session with an older version."""
        busy = self.rollout is not None or self.waiting or self.last != self.live
        now = time.monotonic()
        return bool(
            busy or self.lock.locked() or self.counting.locked()
            or any(pin.version != self.live and now - pin.at <= PINNED for pin in self._pins.values())
        )  # fmt: skip

    @property
    def small(self) -> bool:
        """Whether a small model answers the requests."""
        return self.reader.config.profile == "small"

    @property
    def asks_to_show(self) -> bool:
        """Whether the method would call a model to choose the view. The service skips that part of the method."""
        return bool(self.reader.method.show_roles)

    @property
    def nonce(self) -> str:
        """Nonce of the marks around notes (see `engine.framing`)."""
        return self.reader.config.nonce

    @property
    def waits(self) -> bool:
        """Whether a view needs a remote embedder, so that a request for a view waits for this embedder."""
        return ":" in self.reader.config.embedder

    async def view(self, query: str, context: Context) -> View:
        """Return the method's view for a query. No model is called: the part of the view that needs a model is left
        out."""
        return await self.reader.view(query, context)

    # Versions

    def look(self) -> bool:
        """Read the versions if the run of the space has changed since the last read. A database may report a change
        with some delay. Return whether rows of the run were deleted for good."""
        with self._reading:
            return self.reader.store.changes() != self._changes and self._read_versions()

    def read_versions(self) -> None:
        """Read the versions and the name of the live version from the store."""
        with self._reading:
            self._read_versions()

    def _read_versions(self) -> bool:
        store = self.reader.store
        # Read the change counter first, so that the next poll notices a write during this read.
        changes = store.changes()
        head = read_head(store, None)
        rewritten = head is not None and head.of_run != self._of_run and bool(self._of_run)
        if rewritten:
            # The run was replaced, for example by `forget`, so data that was read before may be deleted.
            self.reader.reopen()
            store = self.reader.store
            changes = store.changes()
        parents = read_parents(store)
        if not parents:
            raise StoreError("store.not_found", f"space {self.name} has no stored run: it may have been deleted")
        names = read_every_name(store)
        live = names.get(LIVE, max(parents))
        required = {live} | ({self.rollout.version} if self.rollout and self.rollout.version in parents else set())
        cached = {} if rewritten else self._contexts
        contexts = {number: cached.get(number) or self.reader.version(number) for number in required}
        self._line, self.last = lineage(parents, live), max(parents)
        self._edited = edited if (edited := names.get(EDITED)) in self._line else 0
        self._contexts.update(contexts)
        self.live, self._changes = live, changes
        if rewritten:
            # Drop the old contexts only now, so that a concurrent request always has the live version.
            self._contexts = OrderedDict(contexts)
            self._points.clear()
            self._pins.clear()
        if head is not None:
            self._of_run = head.of_run
        return rewritten

    @property
    def newest(self) -> Context | None:
        """Context of the newest version, or None if this context is not in memory."""
        return self._contexts.get(self.last)

    @property
    def parent(self) -> int | None:
        """Version from which the live version was made. None if the live version is the first."""
        return self._line[-2] if len(self._line) > 1 else None

    def context(self, version: int) -> Context:
        """Return the context of a version. If the version was removed, such as by `forget`, return the live context."""
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
        """Return the version of a session. The version stays the same during the session, on all nodes, unless the
        version was taken back or replaced by an edit by hand. So prefix caches apply, and a conversation is
        consistent."""
        now, pin = time.monotonic(), self._pins.get(session)
        candidate = self.rollout.version if self.rollout is not None else None
        among = self.live, candidate
        chosen = self.rollout is not None and drawn(f"{self.rollout.number} {session}", self.rollout.share)
        version = candidate if chosen and candidate is not None else self.live
        settled = now
        if pin is not None and now - pin.at <= PINNED and self.is_valid(pin.version):
            version, settled = pin.version, pin.settled
        if self.claim is not None and (pin is None or pin.among != among or now - pin.settled > PINNED / 2):
            claimed = await self.claim(session, version)
            version, settled = (version, settled) if claimed is None else (claimed, now)
            # If the version of the session is not known now, the next request asks again.
            among = among if claimed is not None else (-1, None)
        self._pins[session] = _Pin(version, now, settled, among)
        self._pins.move_to_end(session)
        if len(self._pins) > SESSIONS:
            self._pins.popitem(last=False)
        return version

    def is_valid(self, version: int) -> bool:
        """Return whether a session may keep a version: the version was neither taken back nor replaced by an edit by
        hand."""
        candidate = self.rollout is not None and version == self.rollout.version
        return candidate or (version in self._line and version >= self._edited)

    async def read_corrections(self) -> None:
        """Reload the corrections. The caller holds `lock`."""
        await self.corrections.follow(self.store)

    async def follow_corrections(self) -> None:
        """Reload the corrections, because any node may have changed them."""
        async with self.lock:
            await self.read_corrections()

    # Views

    async def show(self, request: Request, session: str) -> RequestView:
        """Return the view of a request of a session."""
        self.used = time.monotonic()
        version = await self.version_for(session)
        if version not in self._contexts and self.claim is not None:
            # Load the version in a thread, because the database may not respond.
            async with asyncio.timeout(READ):
                await asyncio.to_thread(self.context, version)
        context = self.context(version)
        if context is self._contexts[self.live]:
            version = self.live
        if not request.points:
            view = await self.view("-", context)
            return RequestView(
                version, session, fixed=self._fixed_text(view), tools=view.tools, space=self.id,
                redactor=self.reader.redactor,
            )  # fmt: skip
        *earlier, (place, digest) = request.points
        learned = {spot: old.learned for spot, key in earlier if (old := self._still_valid(key, version, context))}
        point = self._points.get(digest)
        if point is None or (point.version, point.changes) != (version, self.corrections.changes):
            asked, pieces = self.questions.ask(self.reader.redacted(request.query))
            self.corrections.reconsider(pieces)
            question = asked.text
            view = await self.view(question, context)
            changes, near = self.corrections.changes, await self.corrections.near(question)
            numbers = tuple(each.correction.number for each in near)
            shown, fixed = self._learned(view, near), self._fixed_text(view)
            point = _Point(fixed, view.tools, shown, view.retrieved, numbers, question, version, changes)
            texts = (shown.note, question, *(text for turn in shown.turns for text in (turn.user, turn.assistant)))
            self._points.put(digest, point, size_of(texts))
        if point.learned.note or point.learned.turns:
            learned[place] = point.learned
        vector = await self.reader.retriever.vectors.query(point.question)
        rollout = self.rollout
        counted = rollout is not None and version in (rollout.version, rollout.base)
        return RequestView(
            version, session, "", point.fixed, point.tools, learned, point.entries, point.corrections, point.question,
            rollout.number if rollout is not None and counted else None,
            rollout.kind_of(vector) if rollout is not None and counted else None, vector, self.id,
            self.reader.redactor,
        )  # fmt: skip

    async def show_again(
        self, question: str, context: Context, corrections: Sequence[Correction]
    ) -> tuple[str, Insertion, tuple[tuple[str, float], ...]]:
        """Return the parts of a past view of this question, for a version and these corrections: the fixed text, the
        insertion, and the entries that were looked up, with their similarities."""
        view = await self.view(question, context)
        near = [Near(each, await self.corrections.is_same(question, each)) for each in corrections]
        return self._fixed_text(view), self._learned(view, near), view.retrieved

    def question(self, data: Mapping[str, Any]) -> str:
        """Return the question of a stored interaction or correction. The question is found again in the text, by
        comparison with the messages that are stored now. Thread safe."""
        match = self.questions.of(data["query"])
        return match.text if match.neighbours else str(data["question"] or data["query"])

    def _still_valid(self, digest: str, version: int, context: Context) -> _Point | None:
        """Return the view of an earlier message. None if the view is not cached, or if an entry or correction in
        the view has changed."""
        point = self._points.get(digest)
        if point is None:
            return None
        entries = (context.get(id) for id, _ in point.entries)
        same = point.version == version or all(e is not None and e.changed <= point.version for e in entries)
        return point if same and all(number in self.corrections for number in point.corrections) else None

    def _fixed_text(self, view: View) -> str:
        """Return the part of a view that is the same for all requests, from a cache if possible."""
        pages = view.pages[: view.fixed]
        if self._fixed[0] != pages:
            text = "\n\n".join(pages) if view.instructing else self._notes(pages, view.citable)
            self._fixed = pages, text
        return self._fixed[1]

    def _learned(self, view: View, near: Sequence[Near]) -> Insertion:
        """Return the part of a view that was looked up for a request, with the corrections `near`. A small model gets
        solved tasks as turns, any other model as text."""
        looked_up = [*view.pages[view.fixed :], *([view.note] if view.note else [])]
        introduced = bool(looked_up) and view.citable and not view.fixed
        view = corrected_view(replace(view, pages=tuple(looked_up)), near, self.small)
        solved = [exchanges(view.turns)] if view.turns and not self.small else []
        return Insertion(
            self._notes([*view.pages, *solved], introduced), view.turns if self.small else (), nearest_answer(near)
        )

    def _notes(self, pages: Sequence[str], introduced: bool) -> str:
        """Return the text of pages, each between marks. If `introduced`, put the chat agent's introduction of entries
        before the pages."""
        text = "\n".join(framed(pages, self.nonce))
        return f"{USING}\n\n{text}" if introduced and pages else text

    async def close(self) -> None:
        """Close the run of the space. If another thread is reading versions, wait until this thread has read them."""
        await asyncio.to_thread(self._reading.acquire)
        try:
            await self.reader.close()
        finally:
            self._reading.release()
