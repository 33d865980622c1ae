"""Agent and scorer that run on a cluster. A run uses them like a local agent and scorer.

The method, the journal, the budget and all model calls stay in the process of the run. The run sends the task and the
view to a worker, and answers the requests of the attempt at the same places as for a local agent. So the journal is the
same for any number of workers, and a resume may use a different number of workers.

Agents that make only one model call, and agents with a server as their environment, have no work that a worker could
do, so they stay local.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from practicum.agents.guard import Approve, approved
from practicum.agents.tools import ToolsAgent
from practicum.core.errors import PracticumError
from practicum.core.types import Score, Task, Trace
from practicum.core.views import View
from practicum.engine.run import Run
from practicum.engine.state import RunState
from practicum.engine.workers import scorer_moves
from practicum.plugins.ray.messages import Job, RayAnswer, RayRequest
from practicum.plugins.ray.pickling import pickled
from practicum.plugins.ray.pool import Cargo, Pool


@asynccontextmanager
async def spread(state: RunState, pool: Pool, agent_name: str, scorer_name: str) -> AsyncIterator[None]:
    """Run the agent and the scorer of a run on the pool within the block, each only if it has work that can move to a
    worker. Messages contain `agent_name` and `scorer_name`. Raises UsageError if the agent or the scorer cannot be
    pickled, or cannot be loaded on a node."""
    agent, scorer = state.agent, state.scorer
    if agent.moves:
        approve = agent.approve if isinstance(agent, ToolsAgent) else None
        bare = replace(agent, approve=None) if isinstance(agent, ToolsAgent) else agent
        cargo = await pool.cargo(f"the agent {agent_name}", pickled(bare, agent_name))
        remote = RemoteWork(pool, cargo, state)
        state.agent = RemoteAgent(remote, agent.journaled, agent.max_turns, agent.identity, approve)
    if scorer is not None and scorer_moves(scorer):
        cargo = await pool.cargo(f"the scorer {scorer_name}", pickled(scorer, scorer_name))
        remote = RemoteWork(pool, cargo, state)
        state.scorer = RemoteScorer(remote, scorer.name, scorer.pure, scorer.needs_target)
    with pool.warnings_to(lambda text: state.observer.warned(text)):
        yield


@dataclass(frozen=True)
class RemoteWork:
    """Jobs of a run on a pool, with the number of jobs in flight on each node."""

    pool: Pool
    cargo: Cargo
    state: RunState
    in_flight: Counter[str] = field(default_factory=Counter)

    async def __call__(self, job: Job, run: Run, approve: Approve | None = None) -> Any:
        exchange = _Exchange(run, approve)
        return await self.pool.run(self.cargo, job, exchange.answer, self.state.budget.check, self._moved)

    def _moved(self, node: str, by: int) -> None:
        self.in_flight[node] += by
        self.state.observer.spread({name: self.in_flight[name] for name in self.pool.nodes})


@dataclass(frozen=True)
class RemoteAgent:
    """Agent whose attempts run on a cluster."""

    remote: RemoteWork
    journaled: bool
    max_turns: int
    identity: str
    approve: Approve | None = None
    moves: bool = field(default=True, init=False)

    async def __call__(self, task: Task, view: View, run: Any) -> Trace:
        job = _job(run, task, view=view, approves=self.approve is not None)
        trace: Trace = await self.remote(job, run, self.approve)
        return trace


@dataclass(frozen=True)
class RemoteScorer:
    """Scorer whose work is done on a cluster."""

    remote: RemoteWork
    name: str
    pure: bool
    needs_target: bool

    async def __call__(self, task: Task, trace: Trace, run: Any) -> Score:
        score: Score = await self.remote(_job(run, task, trace=trace), run)
        return score


def _job(run: Run, task: Task, **fields: Any) -> Job:
    return Job(run.place, task, run.profile, run.room("agent"), redacted=run.values_of(task), **fields)


@dataclass(frozen=True)
class _Exchange:
    """The run's side of the exchange with an attempt. If the attempt is repeated on another worker, the repeated
    attempt gets the same answers."""

    run: Run
    approve: Approve | None
    places: dict[tuple[str, ...], Run] = field(default_factory=dict)
    answered: dict[tuple[str, tuple[str, ...], str], RayAnswer] = field(default_factory=dict)

    async def answer(self, request: RayRequest) -> RayAnswer:
        key = (request.kind, request.at, request.name)
        if key not in self.answered:
            try:
                value = await self._value(request)
                answer = RayAnswer(value, redacted=self.run.values_of(value.text) if request.kind == "reply" else {})
            except PracticumError as error:
                answer = RayAnswer(error=error)
            if request.kind == "recall":
                return answer
            self.answered[key] = answer
        return self.answered[key]

    async def _value(self, request: RayRequest) -> Any:
        at, args = self._at(request.at), request.args
        match request.kind:
            case "reply":
                role, prompt, form, options = args
                return await at.reply(role, prompt, form, **options)
            case "mended":
                return await at.mended(*args)
            case "give_up":
                return await at.give_up(*args)
            case "text":
                return await at.ask_text(*args)
            case "observed":
                return await at.observe(request.name, _returning(args[0]))
            case "recall":
                decided = self.answered.get(("decided", request.at, request.name))
                if decided is not None:
                    return decided.value
                if at.recall(request.name) is None:
                    return None
                # The decision was made before a resume, so the journal has its result. Open the place of the decision,
                # and store the result in `answered`, in case the attempt is repeated.
                value = await at.once(request.name, _returning(None))
                self.answered["decided", request.at, request.name] = RayAnswer(value)
                return value
            case "decided":
                return await at.once(request.name, _returning(args[0]))
            case "embed":
                return await at.embed(*args)
            case "approve":
                return await approved(args[0], self.approve, self.run)

    def _at(self, names: tuple[str, ...]) -> Run:
        """Return the run at the path `names` below the place of the attempt."""
        if not names:
            return self.run
        if names not in self.places:
            self.places[names] = self._at(names[:-1]).at(names[-1])
        return self.places[names]


def _returning(value: Any) -> Callable[[], Awaitable[Any]]:
    async def do() -> Any:
        return value

    return do
