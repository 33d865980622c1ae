"""Background learning: makes versions from outcomes, and tests each version before it goes live.

A round takes the waiting outcomes, learns from them (`session.further`, which resumes after a kill without paying for a
call twice), and tests the new version on held-out requests. Then a share of the sessions sees the version. A round
starts from the live version, whether or not the last candidate was promoted. No round starts during a rollout, so each
step of learning is tested separately.
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
"""Interval (s) between checks for a due round."""

PAUSE = 300.0
"""Time (s) after a failed round during which no new round starts in the same space, unless a round is requested."""

GATE_TASKS, GATE_LEAST = 40, 8
"""Largest and smallest number of held-out requests on which the replay gate tests a version. The newest held-out
requests are taken."""

GATE_ALPHA = 0.05
"""Of the tested versions that are not worse than the live version, the largest share that the replay gate drops."""

AT_ONCE = 200
"""Largest number of outcomes in a round, and of spaces in one query."""


@dataclass(frozen=True)
class Spent:
    """Cost of learning: number of model calls, and US dollars (calls without a known price count as 0)."""

    calls: int
    usd: float


def _spent(space: ServedSpace) -> Spent:
    """Return the total cost of learning in a space."""
    spent = Journal(space.store).before
    return Spent(spent.calls, spent.usd or 0.0)


def _today() -> str:
    return f"{datetime.now(UTC):%Y-%m-%d}"


class LearningHost(Protocol):
    """Parts of the service that the learner uses. `call_soon` runs a coroutine in the event loop of the service and
    returns its result. The coroutine methods of this class must run in that loop."""

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
    """Thread that learns in all open spaces, in a separate event loop."""

    def __init__(self, service: LearningHost) -> None:
        super().__init__(name="practicum-learner", daemon=True)
        self.service = service
        self.status = "off"
        self.at = ""
        """Name of the space of the current round, or empty."""
        upstream = service.upstream
        self.model = service.settings.learner or (upstream.name if upstream else "")
        self.parts = Parts()
        if upstream is not None and upstream.client is not None and not service.settings.learner:
            self.parts = Parts(clients={"agent": upstream.client})
        self._requested: set[str] = set()
        self._after: dict[str, float] = {}
        self._decided_versions: dict[str, int] = {}
        self._turns: Counter[str] = Counter()
        """Number of rounds by space. A round learns, or tests a version."""
        self._spent: dict[str, tuple[str, int, Spent]] = {}
        """Last computed cost of learning, by identity of the space: the day, the number of rounds of the space when the
        cost was computed, and the cost of learning on that day."""
        self._wake = threading.Event()
        self._ended = False

    def wake(self) -> None:
        """Check now, without waiting for the next TICK, whether a round is due."""
        self._wake.set()

    def want(self, space: str) -> None:
        """Start a round in the space named `space` as soon as possible, even if few outcomes wait."""
        self._requested.add(space)
        self._after.pop(space, None)
        self.wake()

    def forget(self, space: ServedSpace) -> None:
        """Drop the learner's data about a deleted space."""
        self._requested.discard(space.name)
        self._after.pop(space.name, None)
        for values in (self._decided_versions, self._spent):
            values.pop(space.id, None)

    def stop(self) -> None:
        """Stop the thread. A round under way is continued when the service starts again."""
        self._ended = True
        self.wake()
        if self.is_alive():
            self._loop.call_soon_threadsafe(self._round.cancel) if self._round is not None else None
            self.join()

    _round: asyncio.Task[None] | None = None

    def run(self) -> None:
        """Learn until `stop` is called."""
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
                # The lease prevents deletion of the space.
                async with writing(space.store) as store:
                    await self._catch_up(space)
                    if not self._due(space):
                        continue
                    self.status = f"learning in space {space.name}"
                    self._requested.discard(space.name)
                    self._round = asyncio.create_task(self._learn(space, store))
                    if self._ended:
                        # `stop` was called before the task existed.
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
                    # `Alarms.check_store` raises the alarm about the store.
                    self._pause(space, TICK)
                    logger.info("space %s: %s", space.name, error)
            except Exception as error:
                # The alarm has the type of the error only, because the message of the error may quote requests.
                logger.exception("learning in space %s failed", space.name)
                self._failed(space, f"{type(error).__name__}: see the log of the service")
            finally:
                self._round, self.status, self.at = None, "waiting", ""
                self._turns[space.name] += 1

    async def _catch_up(self, space: ServedSpace) -> None:
        """Read the changes that other processes have made in a space."""
        # Wait until all queued rows are written, so that outcomes among these rows are counted.
        self.service.database.do(lambda at: None).result()
        self.service.call_soon(self.service.refresh(space))

    def _pause(self, space: ServedSpace, seconds: float) -> None:
        """Start no round in a space for `seconds`, unless a round is requested."""
        self._after[space.name] = time.monotonic() + seconds

    def _failed(self, space: ServedSpace, message: str) -> None:
        self._pause(space, PAUSE)
        self.service.counts["learning_failures"] += 1
        self.service.call_soon(self._notify(space, Alarm(space.name, "learning", message)))

    async def _notify(self, space: ServedSpace, alarm: Alarm) -> None:
        self.service.alarms.add(space.id, alarm)

    def _due(self, space: ServedSpace) -> bool:
        if space.rollout is not None or time.monotonic() < self._after.get(space.name, 0.0):
            return False
        settings = self.service.settings
        late = time.monotonic() - space.waiting_since >= 60 * settings.learn_minutes
        many = space.waiting >= settings.learn_every or (space.waiting > 0 and late)
        return space.name in self._requested or many or self.is_untried(space)

    def is_untried(self, space: ServedSpace) -> bool:
        """Return whether the newest version of a space must still be tested."""
        return space.last != space.live and not self._decided(space)

    def _decided(self, space: ServedSpace) -> bool:
        """Return whether the newest version has a rollout, under way or ended."""
        if self._decided_versions.get(space.id) != space.last:
            t = schema.rollouts
            if not space.store.rows(space.store.select(t.c.number).where(t.c.version == space.last).limit(1)):
                return False
            self._decided_versions[space.id] = space.last
        return True

    # A round

    async def _learn(self, space: ServedSpace, store: Store) -> None:
        if space.last != space.live:
            if not self._decided(space):
                # The version was learned before this start of the service, approved in a review, or edited by a person.
                await self._test(space, store, ())
                return
            roll_back(store, space.live, by_hand=False)
            space.read_versions()
        budget = self._budget(space)
        if budget is None:
            self._pause(space, PAUSE)
            logger.info("space %s: today's budget is used up", space.name)
            return
        began = space.live
        limits = {"max_calls": budget.calls, "max_usd": budget.usd}
        values = {**self._models, **{name: most for name, most in limits.items() if most is not None}}
        trusted, o = self.service.settings.trusted, schema.outcomes
        waiting = [row.id for row in store.rows(store.select(o.c.id).where(o.c.state == WAITING))]
        result = await learn_further(
            store,
            self.parts,
            Watch(),
            values,
            trusted=trusted,
            question=space.question,
            most=AT_ONCE,
            served=True,
        )
        if held := result.errors.get(Count.HELD_EDITS, 0):
            # A space in a shared database has no folder.
            how = "see the page Review, or /v1/review" if store.database.shared else f"practicum review {store.folder}"
            text = in_number(held, f"{held} learned edit[|s] wait[s|] for review: {how}")
            self.service.call_soon(self._notify(space, Alarm(space.name, "review", text)))
        if result.stopped:
            self._pause(space, PAUSE)
            logger.info("space %s: learning stopped: %s", space.name, result.stopped)
        space.waiting, space.waiting_since = count_waiting(store), time.monotonic()
        self.service.counts["learning_rounds"] += 1
        space.read_versions()
        if space.live != began:
            self._drop_version(space, store, waiting)
        elif space.last != space.live:
            await self._test(space, store, waiting)

    @property
    def _models(self) -> dict[str, str]:
        """Settings that replace a space's stored settings while the service learns: `model`, or no setting."""
        return {"model": self.model} if self.model else {}

    def _budget(self, space: ServedSpace) -> BudgetLimits | None:
        """Return the unused part of today's budget, or None if the budget is used up."""
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
        """Return today's cost of learning on all nodes, by identity of the space. Thread safe. Raise StoreError if the
        cost cannot be read."""
        t, today, result = schema.days, _today(), dict[str, Spent]()
        database = self.service.database
        for start in range(0, len(spaces), AT_ONCE):
            some = {space.id: space for space in spaces[start : start + AT_ONCE]}
            for row in database.rows(database.of_spaces(t, some, (t.c.calls, t.c.usd)).where(t.c.day == today)):
                # With several nodes, another node may be learning in the space, so a cached cost may be too low.
                changes = some[row.space].name == self.at or database.shared
                cached, turns = self._spent.get(row.space), self._turns[some[row.space].name]
                if cached is None or cached[:2] != (today, turns) or changes:
                    now = _spent(some[row.space])
                    cached = today, turns, Spent(now.calls - row.calls, now.usd - row.usd)
                    self._spent[row.space] = cached
                result[row.space] = cached[2]
        return result

    def _drop_version(self, space: ServedSpace, store: Store, ids: Sequence[str]) -> None:
        """Drop the newest version, because a person made another version live while the newest version was learned or
        tested: the version that it is based on is no longer live. A later round learns from the outcomes `ids` of this
        round again."""
        o = schema.outcomes
        dropped = self._rollout(space, space.live, space.last, {"gate": "not run"}, np.zeros((0, 1)))
        row = dropped.row(DROPPED, "another version was made live by hand during the round")

        def wait_again(at: Transaction) -> None:
            for id in ids:
                again = at.update(o).where(o.c.id == id, o.c.state == LEARNED)
                at.run(again.values(state=WAITING, revision=o.c.revision + 1))
            begin_rollout(at, row)

        store.change(wait_again)
        space.waiting = count_waiting(store)

    # A candidate

    async def _test(self, space: ServedSpace, store: Store, ids: Sequence[str]) -> None:
        """Test the newest version on held-out requests. Then begin a rollout that shows the version to a share of the
        sessions, or drop the version if it is worse. `ids` are the outcomes that this round has learned the version
        from."""
        service, settings = self.service, self.service.settings
        base, version = space.live, space.last
        old, new = read_context(store, base), read_context(store, version)
        evidence: dict[str, Any] = {"gate": "both versions have the same content"}
        tasks = self._held_out(space) if old.digest != new.digest else []
        if len(tasks) >= GATE_LEAST:
            trial = await self._replay(space, store, tasks, base, version)
            evidence = trial.as_json()
            del evidence["differences"]
        elif old.digest != new.digest:
            evidence = {"gate": f"not run: {len(tasks)} of {GATE_LEAST} held-out requests with a right answer"}
        rollout = self._rollout(space, base, version, evidence, await self._vectors(space))
        reason = ""
        if evidence["gate"] == "dropped":
            reason = f"worse on {evidence['tasks']} held-out requests ({100 * evidence['mean']:+.1f} points)"
        elif not settings.canary and len(tasks) < GATE_LEAST and old.digest != new.digest:
            reason = f"untested: the canary is turned off, and the gate was {evidence['gate']}"
        if reason:
            if store.change(partial(begin_rollout, row=rollout.row(DROPPED, reason))):
                alarm = Alarm(space.name, "rollout", ended_text(version, DROPPED, reason))
                service.call_soon(self._notify(space, alarm))
            return
        if not service.call_soon(service.rollouts.begin(space, rollout)):
            if space.live != base:
                self._drop_version(space, store, ids)
            return
        if old.digest == new.digest or not settings.canary:
            reason = f"same content as version {base}" if old.digest == new.digest else "the canary is turned off"
            service.call_soon(service.rollouts.decide(space, rollout, RolloutDecision(PROMOTED, reason)))

    def _rollout(
        self, space: ServedSpace, base: int, version: int, evidence: dict[str, Any], vectors: np.ndarray
    ) -> Rollout:
        settings = self.service.settings
        number = space.store.change(partial(next_number, table=schema.rollouts))
        return Rollout.begin(number, version, base, settings.canary, settings.canary_length, vectors, evidence)

    def _held_out(self, space: ServedSpace) -> list[Task]:
        o, i, store = schema.outcomes, schema.interactions, space.store
        both = store.select(o.c.id, o.c.data, i.c.data.label("asked")).where(i.c.id == o.c.id, o.c.state == HELD)
        rows = store.rows(both.order_by(i.c.number.desc()).limit(GATE_TASKS))
        tasks = []
        # The journal keys calls by task id: with the digest, a changed question is asked again, and an unchanged
        # question is not.
        for row in rows:
            request, target = json.loads(row.asked), json.loads(row.data)["own"]["target"]
            question = space.question(request)
            id = f"{row.id}.{digest(question, target)[:8]}"
            tasks += [Task(id, question, target, images=request.get("images", {}))] if question else []
        return tasks

    async def _replay(self, space: ServedSpace, store: Store, tasks: Sequence[Task], base: int, version: int) -> Trial:
        """Compare `version` with `base` by the paired test of the replay gate, on held-out requests (`tasks`)."""
        values = Origin.of(store, self._models, self.parts, False).acting_values()
        setup = set_up(values, Splits(test=tuple(tasks)), self.parts)
        budget = Budget(self._budget(space) or BudgetLimits(calls=0))
        async with open_state(store, store.files, setup, act_only=True, budget=budget) as state:
            run = Run(state).at(f"gate {base} {version}")
            old, new = read_context(store, base), read_context(store, version)
            # If the model changes, the digest of the setup changes too, so all calls are made again.
            split = f"held-out-{setup.digest()}"
            return await tried(Trial(GATE_ALPHA), setup.method.act, split, tasks, old, new, run)

    async def _vectors(self, space: ServedSpace) -> np.ndarray:
        """Return the embeddings of the newest requests, as an array of shape (n, d)."""
        i = schema.interactions
        newest = space.store.select(i.c.data).order_by(i.c.number.desc()).limit(KINDS_FROM)
        questions = [space.question(json.loads(row.data)) for row in space.store.rows(newest)]
        questions = [cut(question) for question in questions if question]
        embedder = run_embedder(space.reader.config, self.parts)
        return await embedder.embed(questions) if questions else np.zeros((0, 1), dtype=np.float32)
