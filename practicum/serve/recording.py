"""Interactions as they are recorded: what was asked, shown and answered, kept in memory for a while and stored."""

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
from practicum.session.outcomes import WAITING, Interaction, Report, Unknown, drawn, find_interaction, said_by
from practicum.store import schema
from practicum.store.database import Database
from practicum.store.sums import LONGEST_NAME, interaction_sums
from practicum.store.writer import WINDOW

TOLD = ("query", "question", "steps", "answer", "calls", "thoughts")
"""What of an interaction's data is redacted."""

RECENT, RECENT_BYTES = 5_000, 64 * 2**20
"""Interactions that are kept in memory, since most feedback is about one of them, and bytes of their texts."""

PAUSES = (2 * WINDOW, 0.1, 0.4)
"""Seconds between looks for an interaction that another node may be about to write."""

TOKENS = ("input", "cached", "output")
"""The kinds of tokens of an interaction, in order: cached ones are among those of the input."""


class Recorder:
    """Records the interactions of a service. `judged` is the share of answers without an outcome that a judge scores,
    and `waits` is called with an open space in which an outcome waits to be learned from. `shared`: other nodes write
    interactions, too."""

    def __init__(
        self, database: Database, spaces: Mapping[str, ServedSpace], upstream: Upstream | None, judged: float,
        alarms: Alarms, counts: ServiceCounts, waits: Callable[[ServedSpace], None], shared: bool,
    ) -> None:  # fmt: skip
        self._database, self._spaces, self._upstream, self._judged = database, spaces, upstream, judged
        self._alarms, self._counts, self._waits, self._shared = alarms, counts, waits, shared
        self.recent: Bounded[Interaction] = Bounded(RECENT, RECENT_BYTES)
        """By the id of the space and that of the interaction, or of the response."""
        self._unkept: OrderedDict[str, None] = OrderedDict()
        """Responses that no interaction has, by the name of the space and the id of the response."""

    def keep(
        self, space: str, id: str, request: Request | None, query: str, steps: Any, shown: RequestView,
        answer: UpstreamAnswer | None, *, user: str | None, status: int, seconds: float, purpose: Purpose | None = None,
        screened: bool = False,
    ) -> None:  # fmt: skip
        """Keep an interaction: what was asked, shown and answered. One with a `purpose` is no request of a user. One of
        a space that was deleted since is dropped. `screened`: an agent wrote the question."""
        at = self._spaces.get(space)
        # Of a space that is closed now, nothing is kept in memory.
        at = at if at is not None and at.id == shown.space else None
        if request is not None and answer is not None and at is not None and purpose != "title":
            at.conversations.add(request, user, answer, shown.session)
        # A title is no turn of the conversation that it is about.
        answer, session = answer or UpstreamAnswer(), None if purpose == "title" else shown.session
        model = (request.model if request else "") or (self._upstream.model if self._upstream else "")
        data = {
            "query": query, "question": shown.question or query, "steps": steps, "answer": answer.text,
            "calls": answer.calls, "entries": shown.entries, "corrections": shown.corrections, "pin": shown.session,
            "session_from": shown.session_from,
            "status": status, "seconds": round(seconds, 3),
            "model": model, "counted": self._upstream.counted(model, answer.model) if self._upstream else OTHER,
            "tokens": [answer.input_tokens, answer.cached_tokens, answer.output_tokens],
        }  # fmt: skip
        if (request is not None and request.material) or answer.material:
            data["material"] = True
        if screened:
            data["screened"] = True
        if answer.thoughts:
            data["thoughts"] = answer.thoughts
        if shown.redactor is not None:
            data |= shown.redactor({name: data[name] for name in TOLD if name in data})
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
        known = Interaction(id, session, user, shown.version, shown.rollout, shown.kind, data)
        for key in filter(None, (id, answer.id) if at is not None else ()):
            # About as large as what is stored.
            self.recent.put(f"{shown.space} {key}", known, size_of([row["data"]]))
        self._counts["interactions" if purpose is None else "uncounted_interactions"] += 1
        for kind, number in zip(TOKENS, data["tokens"], strict=True):
            self._counts[f"{kind}_tokens"] += number
        if answer.text and answer.silence is None and purpose is None and drawn(id, self._judged):
            self._judge_later(known, shown.space, at)
        if shown.vector is not None and purpose != "title" and at is not None:
            watcher = self._alarms.watcher(space)
            best = shown.entries[0][1] if shown.entries else None
            for alarm in watcher.request(shown.vector, best):
                self._alarms.add(at.id, alarm)

    def _judge_later(self, known: Interaction, id: str, space: ServedSpace | None) -> None:
        """Let an answer be learned from by a judge's verdict, unless an outcome is reported before."""
        row = {
            "id": known.id, "at": time.time(), "revision": 1, "trust": said_by(known.user),
            "state": WAITING, "data": json.dumps({"reports": [], "own": {}, "user": {}}),
        }  # fmt: skip
        self._database.writer.post(id, schema.outcomes, row, told=True)
        if space is not None:
            self._waits(space)

    async def listed(
        self, space: ServedSpace, session: str | None, user: str | None, since: float | None, limit: int
    ) -> answers.Interactions:
        """The newest interactions of a space, those included that wait to be written."""
        read = partial(list_interactions, session=session, user=user, since=since, limit=limit)
        return answers.Interactions(space=space.name, interactions=await asyncio.wrap_future(space.store.do(read)))

    def remember_response(self, name: str, id: str) -> None:
        """Remember that a request of the space of this name got the response with this id, which no interaction has: it
        may go on from it. The newest ones are known, on this node, until it stops."""
        if 0 < len(id) <= LONGEST_NAME:
            self._unkept[f"{name} {id}"] = None
        while len(self._unkept) > RECENT:
            self._unkept.popitem(last=False)

    async def made_response(self, space: ServedSpace, id: str) -> bool:
        """Whether the upstream made the response with this id for a request of this space. Raises StoreError."""
        if f"{space.name} {id}" in self._unkept or f"{space.id} {id}" in self.recent:
            return True
        try:
            await self.find_written(space, Report.model_construct(interaction=id))
        except Unknown:
            return False
        return True

    async def find(self, space: ServedSpace, report: Report) -> Interaction:
        """The interaction that a report is about. Raises Unknown."""
        if (known := self.recent.get(f"{space.id} {report.interaction}")) is not None:
            return known
        return await asyncio.wrap_future(space.store.do(partial(find_interaction, report=report)))

    async def find_written(self, space: ServedSpace, report: Report) -> Interaction:
        """The same, after a moment if another node is about to write it."""
        for pause in PAUSES if self._shared else ():
            with suppress(Unknown):
                return await self.find(space, report)
            await asyncio.sleep(pause)
        return await self.find(space, report)

    def forget(self, space: ServedSpace, *, responses: bool = True) -> None:
        """Keep nothing of a space in memory; but for `responses`, of which only the ids are known."""
        for key in [key for key in self.recent if key.startswith(f"{space.id} ")]:
            del self.recent[key]
        for key in [key for key in self._unkept if responses and key.startswith(f"{space.name} ")]:
            del self._unkept[key]
