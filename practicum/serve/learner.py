"""Learning in the background: outcomes become a version, which has to earn its way.

A round takes the outcomes that wait, learns from them (`session.further`, which resumes after a kill and pays for
nothing twice), and tries the new version on held-out requests. Only then a share of the sessions sees it. A round
begins from the live version, whatever became of the last candidate, and no round begins while a candidate is out: what
is learned is tested one step at a time.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Protocol

import numpy as np

from practicum.core.counts import Count
from practicum.core.errors import PracticumError, RunBusy, StoreAway
from practicum.core.types import Task
from practicum.core.words import in_number
from practicum.engine.run import Run
from practicum.methods.blocks.gate import Trial, tried
from practicum.models.budget import Budget, BudgetLimits
from practicum.retrieval.vectors import cut
from practicum.serve.alarms import Alarms
from practicum.serve.counts import ServiceCounts
from practicum.serve.open_spaces import OpenSpaces
from practicum.serve.rollouts import Rollouts
from practicum.serve.settings import ServiceSettings
from practicum.serve.space import ServedSpace
from practicum.serve.upstream import Upstream
from practicum.serve.watch import Alarm
from practicum.session.amend import roll_back, writing
from practicum.session.components import Parts
from practicum.session.config import Splits
from practicum.session.foreign import Origin
from practicum.session.further import learn_further
from practicum.session.opening import open_state, run_embedder
from practicum.session.outcomes import HELD, LEARNED, WAITING, count_waiting
from practicum.session.result import Watch
from practicum.session.rollout import (
    DROPPED,
    KINDS_FROM,
    PROMOTED,
    Rollout,
    RolloutDecision,
    begin_rollout,
    ended_text,
    next_number,
)
from practicum.session.setup import set_up
from practicum.store import schema
from practicum.store.database import Database, Store
from practicum.store.journal import Journal, digest
from practicum.store.scope import Transaction
from practicum.store.snapshot import read_context

logger = logging.getLogger("practicum.serve")

TICK = 5.0
"""Seconds between two looks at whether a round is due, if nothing wakes the learner."""

PAUSE = 300.0
"""Seconds after a round that failed, such as because the provider was away."""

GATE_TASKS, GATE_LEAST = 40, 8
"""Held-out requests on which the replay gate tries a version: the newest ones, and how many there must be."""

GATE_ALPHA = 0.05

AT_ONCE = 200
"""Outcomes that a round learns from, at most."""


@dataclass(frozen=True)
class Spent:
    """What learning cost: calls of models, and US dollars where they are known."""

    calls: int
    usd: float


def _spent(space: ServedSpace) -> Spent:
    """What learning has cost in a space until now."""
    spent = Journal(space.store).before
    return Spent(spent.calls, spent.usd or 0.0)


def _today() -> str:
    return f"{datetime.now(UTC):%Y-%m-%d}"


class LearningHost(Protocol):
    """What the learner needs of its service. `call_soon` runs a coroutine in the event loop of the service and returns
    its result; the coroutines here run there."""

    settings: ServiceSettings
    upstream: Upstream | None
    database: Database
    counts: ServiceCounts
    spaces: OpenSpaces
    alarms: Alarms
    rollouts: Rollouts

    def call_soon(self, work: Any) -> Any: ...

    async def refresh(self, space: ServedSpace) -> None: ...


class Learner(threading.Thread):
    """Learns in a thread with an event loop of its own."""

    def __init__(self, service: LearningHost) -> None:
        super().__init__(name="practicum-learner", daemon=True)
        self.service = service
        self.status = "off"
        self.at = ""
        """The space that it looks at."""
        upstream = service.upstream
        self.model = service.settings.learner or (upstream.name if upstream else "")
        self.parts = Parts()
        if upstream is not None and upstream.client is not None and not service.settings.learner:
            self.parts = Parts(clients={"agent": upstream.client})
        self._wanted: set[str] = set()
        self._after: dict[str, float] = {}
        self._known: dict[str, int] = {}
        self._turns: Counter[str] = Counter()
        """How often something was learned in each space, or tried."""
        self._spent: dict[str, tuple[str, int, Spent]] = {}
        """What learning cost in spaces: on which day, after how many turns."""
        self._wake = threading.Event()
        self._ended = False

    def wake(self) -> None:
        """Look now whether a round is due."""
        self._wake.set()

    def want(self, space: str) -> None:
        """Begin a round in this space as soon as possible, however few outcomes wait."""
        self._wanted.add(space)
        self._after.pop(space, None)
        self.wake()

    def forget(self, space: ServedSpace) -> None:
        """Know nothing of a space any more, which is deleted."""
        self._wanted.discard(space.name)
        self._after.pop(space.name, None)
        for known in (self._known, self._spent):
            known.pop(space.id, None)

    def stop(self) -> None:
        """End the thread. A round under way is continued when the service starts again."""
        self._ended = True
        self.wake()
        if self.is_alive():
            self._loop.call_soon_threadsafe(self._round.cancel) if self._round is not None else None
            self.join()

    _round: asyncio.Task[None] | None = None

    def run(self) -> None:
        """Learn until the service ends."""
        self.status = "waiting"
        with asyncio.Runner() as runner:
            self._loop = runner.get_loop()
            while not self._ended:
                runner.run(self._rounds())
                self._wake.wait(TICK)
                self._wake.clear()

    async def _rounds(self) -> None:
        for space in [*self.service.spaces.values()]:
            if self._ended or not self._due(space):
                continue
            self.at = space.name
            try:
                # While the lease lasts, the space is not deleted.
                async with writing(space.store) as store:
                    await self._catch_up(space)
                    if not self._due(space):
                        continue
                    self.status = f"learning in space {space.name}"
                    self._wanted.discard(space.name)
                    self._round = asyncio.create_task(self._learn(space, store))
                    if self._ended:
                        # `stop` came too early to cut it.
                        self._round.cancel()
                    await self._round
            except asyncio.CancelledError:
                if not self._ended:
                    raise
            except (RunBusy, StoreAway) as error:
                self._pause(space, TICK)
                logger.info("space %s: %s", space.name, error)
            except PracticumError as error:
                if self.service.database.writer.failing is None:
                    self._failed(space, str(error))
                else:
                    # The store raises an alarm of its own.
                    self._pause(space, TICK)
                    logger.info("space %s: %s", space.name, error)
            except Exception as error:
                # What it says may quote what was read, and alarms are logged.
                logger.exception("learning in space %s failed", space.name)
                self._failed(space, f"{type(error).__name__}: the log of the service says where")
            finally:
                self._round, self.status, self.at = None, "waiting", ""
                self._turns[space.name] += 1

    async def _catch_up(self, space: ServedSpace) -> None:
        """Learn what others did in a space."""
        # Written, so that they are counted.
        self.service.database.do(lambda at: None).result()
        self.service.call_soon(self.service.refresh(space))

    def _pause(self, space: ServedSpace, seconds: float) -> None:
        """Begin no round in a space for so long, unless one is wanted."""
        self._after[space.name] = time.monotonic() + seconds

    def _failed(self, space: ServedSpace, what: str) -> None:
        self._pause(space, PAUSE)
        self.service.counts["learning_failures"] += 1
        self.service.call_soon(self._tell(space, Alarm(space.name, "learning", what)))

    async def _tell(self, space: ServedSpace, alarm: Alarm) -> None:
        self.service.alarms.add(space.id, alarm)

    def _due(self, space: ServedSpace) -> bool:
        if space.rollout is not None or time.monotonic() < self._after.get(space.name, 0.0):
            return False
        settings = self.service.settings
        late = time.monotonic() - space.waiting_since >= 60 * settings.learn_minutes
        many = space.waiting >= settings.learn_every or (space.waiting > 0 and late)
        return space.name in self._wanted or many or self.is_untried(space)

    def is_untried(self, space: ServedSpace) -> bool:
        """Whether the newest version of a space is still to be tried."""
        return space.last != space.live and not self._decided(space)

    def _decided(self, space: ServedSpace) -> bool:
        """Whether it was decided before what becomes of the newest version."""
        if self._known.get(space.id) != space.last:
            t = schema.rollouts
            if not space.store.rows(space.store.select(t.c.number).where(t.c.version == space.last).limit(1)):
                return False
            self._known[space.id] = space.last
        return True

    # A round

    async def _learn(self, space: ServedSpace, store: Store) -> None:
        if space.last != space.live:
            if not self._decided(space):
                # It was learned before the service ended, approved in a review, or edited by hand.
                await self._try(space, store, space.last)
                return
            roll_back(store, space.live, by_hand=False)
            space.read_versions()
        budget = self._budget(space)
        if budget is None:
            self._pause(space, PAUSE)
            logger.info("space %s: the budget of today is spent", space.name)
            return
        began = space.live
        limits = {"max_calls": budget.calls, "max_usd": budget.usd}
        given = {**self._models, **{name: most for name, most in limits.items() if most is not None}}
        trusted, o = self.service.settings.trusted, schema.outcomes
        waiting = [row.id for row in store.rows(store.select(o.c.id).where(o.c.state == WAITING))]
        result = await learn_further(
            store,
            self.parts,
            Watch(),
            given,
            trusted=trusted,
            question=space.question,
            most=AT_ONCE,
            served=True,
        )
        if held := result.errors.get(Count.HELD_EDITS, 0):
            # The space has no folder of its own on a database.
            how = "see the page Review, or /v1/review" if store.database.shared else f"practicum review {store.folder}"
            waits = in_number(held, f"{held} learned edit[|s] wait[s|] for review: {how}")
            self.service.call_soon(self._tell(space, Alarm(space.name, "review", waits)))
        if result.stopped:
            self._pause(space, PAUSE)
            logger.info("space %s: learning stopped: %s", space.name, result.stopped)
        space.waiting, space.waiting_since = count_waiting(store), time.monotonic()
        self.service.counts["learning_rounds"] += 1
        space.read_versions()
        if space.live != began:
            self._give_up(space, store, waiting)
        elif space.last != space.live:
            await self._try(space, store, space.last)

    @property
    def _models(self) -> dict[str, str]:
        """The model that the service learns with, in place of the one that a space was made with."""
        return {"model": self.model} if self.model else {}

    def _budget(self, space: ServedSpace) -> BudgetLimits | None:
        """What is left of today's budget; None if nothing is."""
        settings, t = self.service.settings, schema.days
        spent = _spent(space)

        def first_today(at: Transaction) -> Any:
            at.insert_new(t, {"day": _today(), "calls": spent.calls, "usd": spent.usd})
            return at.first(at.select(t).where(t.c.day == _today()))

        began = space.store.change(first_today)
        calls, usd = settings.max_calls_day, settings.max_usd_day
        left_calls = None if calls is None else calls - (spent.calls - began.calls)
        left_usd = None if usd is None else usd - (spent.usd - began.usd)
        if (left_calls is not None and left_calls < 1) or (left_usd is not None and left_usd <= 0):
            return None
        return BudgetLimits(calls=left_calls, usd=left_usd)

    def spent_today(self, spaces: Sequence[ServedSpace]) -> dict[str, Spent]:
        """What learning has cost today in each of these spaces, by identity, on all nodes, in any thread. Raises
        StoreError if it cannot be read."""
        t, today, found = schema.days, _today(), dict[str, Spent]()
        database = self.service.database
        for start in range(0, len(spaces), AT_ONCE):
            some = {space.id: space for space in spaces[start : start + AT_ONCE]}
            for row in database.rows(database.of_spaces(t, some, (t.c.calls, t.c.usd)).where(t.c.day == today)):
                # On several nodes, another one may learn.
                changes = some[row.space].name == self.at or database.shared
                known, turns = self._spent.get(row.space), self._turns[some[row.space].name]
                if known is None or known[:2] != (today, turns) or changes:
                    now = _spent(some[row.space])
                    known = today, turns, Spent(now.calls - row.calls, now.usd - row.usd)
                    self._spent[row.space] = known
                found[row.space] = known[2]
        return found

    def _give_up(self, space: ServedSpace, store: Store, ids: Sequence[str]) -> None:
        """Drop what was learned while somebody made another version live by hand: it was made from the version that was
        taken back. The outcomes of the round, which had these `ids`, are learned from again."""
        o, dropped = schema.outcomes, self._rollout(space, space.last, {"gate": "not asked"}, np.zeros((0, 1)))
        row = dropped.row(DROPPED, "another version was made live by hand meanwhile")

        def wait_again(at: Transaction) -> None:
            for id in ids:
                again = at.update(o).where(o.c.id == id, o.c.state == LEARNED)
                at.run(again.values(state=WAITING, revision=o.c.revision + 1))
            begin_rollout(at, row)

        store.change(wait_again)
        space.waiting = count_waiting(store)

    # A candidate

    async def _try(self, space: ServedSpace, store: Store, version: int) -> None:
        """Try a version on held-out requests; then show it to a share of the sessions."""
        service, settings = self.service, self.service.settings
        base = space.live
        old, new = read_context(store, base), read_context(store, version)
        evidence: dict[str, Any] = {"gate": "nothing that is shown changes"}
        tasks = self._held_out(space) if old.digest != new.digest else []
        if len(tasks) >= GATE_LEAST:
            trial = await self._replay(space, store, tasks, base, version)
            evidence = trial.as_json()
            del evidence["differences"]
        elif old.digest != new.digest:
            evidence = {"gate": f"not asked: {len(tasks)} of {GATE_LEAST} held-out requests with a right answer"}
        rollout = self._rollout(space, version, evidence, await self._vectors(space))
        reason = ""
        if evidence["gate"] == "dropped":
            reason = f"worse on held-out requests ({100 * evidence['mean']:+.1f} points on {evidence['tasks']})"
        elif not settings.canary and len(tasks) < GATE_LEAST and old.digest != new.digest:
            reason = f"untested: there is no canary, and the gate was {evidence['gate']}"
        if reason:
            if store.change(partial(begin_rollout, row=rollout.row(DROPPED, reason))):
                alarm = Alarm(space.name, "rollout", ended_text(version, DROPPED, reason))
                service.call_soon(self._tell(space, alarm))
            return
        if not service.call_soon(service.rollouts.begin(space, rollout)):
            return
        if old.digest == new.digest or not settings.canary:
            reason = f"it shows what version {base} shows" if old.digest == new.digest else "no canary is wanted"
            service.call_soon(service.rollouts.decide(space, rollout, RolloutDecision(PROMOTED, reason)))

    def _rollout(self, space: ServedSpace, version: int, evidence: dict[str, Any], vectors: np.ndarray) -> Rollout:
        settings = self.service.settings
        number = space.store.change(partial(next_number, table=schema.rollouts))
        return Rollout.begin(number, version, space.live, settings.canary, settings.canary_length, vectors, evidence)

    def _held_out(self, space: ServedSpace) -> list[Task]:
        o, i, store = schema.outcomes, schema.interactions, space.store
        both = store.select(o.c.id, o.c.data, i.c.data.label("asked")).where(i.c.id == o.c.id, o.c.state == HELD)
        rows = store.rows(both.order_by(i.c.number.desc()).limit(GATE_TASKS))
        found = [(row.id, space.question(json.loads(row.asked)), json.loads(row.data)["own"]["target"]) for row in rows]
        # What was asked about a request stays known when others are removed, or their questions are seen anew.
        return [
            Task(f"{id}.{digest(question, target)[:8]}", question, target) for id, question, target in found if question
        ]

    async def _replay(self, space: ServedSpace, store: Store, tasks: Sequence[Task], base: int, version: int) -> Trial:
        """The paired test of the acceptance gate, on requests from which nothing was learned."""
        values = Origin.of(store, self._models, self.parts, False).acting_values()
        setup = set_up(values, Splits(test=tuple(tasks)), self.parts)
        budget = Budget(self._budget(space) or BudgetLimits(calls=0))
        async with open_state(store, store.files, setup, act_only=True, budget=budget) as state:
            run = Run(state).at(f"gate {base} {version}")
            old, new = read_context(store, base), read_context(store, version)
            # With another model they are asked again.
            split = f"held-out-{setup.digest()}"
            return await tried(Trial(GATE_ALPHA), setup.method.act, split, tasks, old, new, run)

    async def _vectors(self, space: ServedSpace) -> np.ndarray:
        """The vectors of the newest requests, shape (n, d)."""
        i = schema.interactions
        newest = space.store.select(i.c.data).order_by(i.c.number.desc()).limit(KINDS_FROM)
        questions = [space.question(json.loads(row.data)) for row in space.store.rows(newest)]
        questions = [cut(question) for question in questions if question]
        embedder = run_embedder(space.reader.config, self.parts)
        return await embedder.embed(questions) if questions else np.zeros((0, 1), dtype=np.float32)
