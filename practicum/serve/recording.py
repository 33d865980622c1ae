"""Recording of interactions: request, view and answer are stored. The newest interactions also stay in memory."""

from __future__ import annotations

import asyncio
import json
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from practicum.core.keeping import Bounded, size_of
from practicum.serve import answers
from practicum.serve.alarms import Alarms
from practicum.serve.counts import ServiceCounts
from practicum.serve.interactions import list_interactions
from practicum.serve.protocols import Request, UpstreamAnswer
from practicum.serve.purpose import Purpose
from practicum.serve.space import RequestView, ServedSpace
from practicum.serve.upstream import OTHER, Upstream
from practicum.session.outcomes import WAITING, Interaction, Report, Unknown, drawn, find_interaction, trust_of
from practicum.store import schema
from practicum.store.database import Database
from practicum.store.sums import LONGEST_NAME, interaction_sums
from practicum.store.writer import WINDOW

REDACTED = ("query", "question", "steps", "answer", "calls", "thoughts")
"""Fields of an interaction's data that are redacted."""

RECENT, RECENT_BYTES = 5_000, 64 * 2**20
"""Limits of the interactions in memory (count, bytes of text). Most feedback is about a recent interaction."""

PAUSES = (2 * WINDOW, 0.1, 0.4)
"""Pauses (s) between lookups of an interaction that another node may be about to write."""

MOST_IMAGES = 2**20
"""Largest size of the images of an interaction (characters of their addresses). Larger images are not stored, so that
learning has only their marks."""

TOKENS = ("input", "cached", "output", "cache_write")
"""Kinds of tokens of an interaction. `cached` and `cache_write` tokens are included in `input`."""


class Recorder:
    """Recorder of the interactions of a service. A judge scores the share `judged` of the answers without an
    outcome. `waits` is called with an open space when a new outcome of the space waits for learning. `shared`: other
    nodes write interactions too."""

    def __init__(
        self, database: Database, spaces: Mapping[str, ServedSpace], upstream: Upstream | None, judged: float,
        alarms: Alarms, counts: ServiceCounts, waits: Callable[[ServedSpace], None], shared: bool,
    ) -> None:  # fmt: skip
        self._database, self._spaces, self._upstream, self._judged = database, spaces, upstream, judged
        self._alarms, self._counts, self._waits, self._shared = alarms, counts, waits, shared
        self.recent: Bounded[Interaction] = Bounded(RECENT, RECENT_BYTES)
        """Recent interactions. Each has two keys: the identity of the space with the id of the interaction, and the
        identity of the space with the id of the response."""
        self._responses: OrderedDict[str, None] = OrderedDict()
        """Names of spaces, each with the id of a response of the space that has no interaction. Oldest first."""

    def keep(
        self, space: str, id: str, request: Request | None, query: str, steps: Any, shown: RequestView,
        answer: UpstreamAnswer | None, *, user: str | None, status: int, seconds: float, purpose: Purpose | None = None,
        screened: bool = False,
    ) -> None:  # fmt: skip
        """Record an interaction: request, view (`shown`) and answer. With a `purpose`, the interaction is not a request
        of a user. The interaction is dropped if its space was deleted. `screened`: an agent wrote the question."""
        at = self._spaces.get(space)
        # Keep nothing in memory for a closed space.
        at = at if at is not None and at.id == shown.space else None
        if request is not None and answer is not None and at is not None and purpose != "title":
            at.conversations.add(request, user, answer, shown.session)
        # A request for a title is not a turn of the conversation.
        answer, session = answer or UpstreamAnswer(), None if purpose == "title" else shown.session
        model = (request.model if request else "") or (self._upstream.model if self._upstream else "")
        data = {
            "query": query, "question": shown.question or query, "steps": steps, "answer": answer.text,
            "calls": answer.calls, "entries": shown.entries, "corrections": shown.corrections, "pin": shown.session,
            "session_from": shown.session_from,
            "status": status, "seconds": round(seconds, 3),
            "model": model, "counted": self._upstream.counted(model, answer.model) if self._upstream else OTHER,
            "tokens": [getattr(answer, f"{kind}_tokens") for kind in TOKENS],
        }  # fmt: skip
        if (request is not None and request.material) or answer.material:
            data["material"] = True
        # Redaction cannot find sensitive data in an image.
        images = request.images if request is not None and shown.redactor is None else {}
        if images and sum(map(len, images.values())) <= MOST_IMAGES:
            data["images"] = dict(images)
        if screened:
            data["screened"] = True
        if answer.thoughts:
            data["thoughts"] = answer.thoughts
        if shown.redactor is not None:
            data |= shown.redactor({name: data[name] for name in REDACTED if name in data})
        if answer.silence is not None and status < 300:
            data["silence"] = answer.silence
            self._counts[answer.silence] += purpose is None
        if purpose is not None:
            data["purpose"] = purpose
        row = {
            "id": id, "at": time.time(), "session": session, "user": user,
            "response": answer.id if 0 < len(answer.id) <= LONGEST_NAME else None,
            "version": shown.version, "rollout": shown.rollout, "kind": shown.kind,
            "data": json.dumps(data, ensure_ascii=False),
        }  # fmt: skip
        self._database.writer.post(shown.space, schema.interactions, row, sums=interaction_sums(row, data))
        interaction = Interaction(id, session, user, shown.version, shown.rollout, shown.kind, data)
        for key in filter(None, (id, answer.id) if at is not None else ()):
            # The size of the stored data approximates the size in memory.
            self.recent.put(f"{shown.space} {key}", interaction, size_of([row["data"]]))
        self._counts["interactions" if purpose is None else "uncounted_interactions"] += 1
        for kind, number in zip(TOKENS, data["tokens"], strict=True):
            self._counts[f"{kind}_tokens"] += number
        if answer.text and answer.silence is None and purpose is None and drawn(id, self._judged):
            self._judge_later(interaction, shown.space, at)
        if shown.vector is not None and purpose != "title" and at is not None:
            watcher = self._alarms.watcher(space)
            best = shown.entries[0][1] if shown.entries else None
            for alarm in watcher.request(shown.vector, best):
                self._alarms.add(at.id, alarm)

    def _judge_later(self, interaction: Interaction, id: str, space: ServedSpace | None) -> None:
        """Store an outcome that waits for a judge's score, unless an outcome was already reported."""
        row = {
            "id": interaction.id, "at": time.time(), "revision": 1, "trust": trust_of(interaction.user),
            "state": WAITING, "data": json.dumps({"reports": [], "own": {}, "user": {}}),
        }  # fmt: skip
        self._database.writer.post(id, schema.outcomes, row, announce=True)
        if space is not None:
            self._waits(space)

    async def listed(
        self, space: ServedSpace, session: str | None, user: str | None, since: float | None, limit: int
    ) -> answers.Interactions:
        """Return the newest interactions of a space, after the interactions that wait for writing are written."""
        read = partial(list_interactions, session=session, user=user, since=since, limit=limit)
        return answers.Interactions(space=space.name, interactions=await asyncio.wrap_future(space.store.do(read)))

    def remember_response(self, name: str, id: str) -> None:
        """Remember a response that has no interaction, so that a later request of the space may continue the response.
        This node remembers the newest RECENT responses until it stops."""
        if 0 < len(id) <= LONGEST_NAME:
            self._responses[f"{name} {id}"] = None
        while len(self._responses) > RECENT:
            self._responses.popitem(last=False)

    async def has_response(self, space: ServedSpace, id: str) -> bool:
        """Return whether the upstream gave this response to a request of this space. Raise StoreError if the store
        cannot be read."""
        if f"{space.name} {id}" in self._responses or f"{space.id} {id}" in self.recent:
            return True
        try:
            await self.find_written(space, Report.model_construct(interaction=id))
        except Unknown:
            return False
        return True

    async def find(self, space: ServedSpace, report: Report) -> Interaction:
        """Return the interaction that a report is about. Raise Unknown if this interaction does not exist."""
        if (recent := self.recent.get(f"{space.id} {report.interaction}")) is not None:
            return recent
        return await asyncio.wrap_future(space.store.do(partial(find_interaction, report=report)))

    async def find_written(self, space: ServedSpace, report: Report) -> Interaction:
        """Return the interaction that a report is about. If other nodes write interactions too, and the interaction is
        not found, look it up again after each of the PAUSES. Raise Unknown if the interaction does not exist."""
        for pause in PAUSES if self._shared else ():
            with suppress(Unknown):
                return await self.find(space, report)
            await asyncio.sleep(pause)
        return await self.find(space, report)

    def forget(self, space: ServedSpace, *, responses: bool = True) -> None:
        """Drop the interactions of a space from memory, and with `responses` the ids of responses too."""
        for key in [key for key in self.recent if key.startswith(f"{space.id} ")]:
            del self.recent[key]
        for key in [key for key in self._responses if responses and key.startswith(f"{space.name} ")]:
            del self._responses[key]
