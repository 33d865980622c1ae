"""A network of agents that divides, solves, criticises and puts together again (MAEL, section 2.1).

This is the procedure alone: who is asked for what, in which order, and what may run at once. What an agent makes of a
question is up to a `Decide`, which is given to it; so the procedure knows neither models nor experience.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, Protocol

from practicum.agents.team import Team
from practicum.core.errors import AgentError, OutputError, ProviderError

Kind = Literal["judge", "decompose", "solve", "critique", "aggregate"]

MAX_PARTS = 8
"""Most parts of one decomposition; what comes after them is left out."""

FAILURES = (AgentError, OutputError, ProviderError)
"""What an agent may fail with; the network goes on without it."""


class Door(Protocol):
    """The part of a Run the procedure needs."""

    def at(self, name: str) -> Any: ...

    async def gather(self, jobs: Sequence[tuple[str, Callable[[Any], Awaitable[Any]]]]) -> list[Any]: ...


@dataclass(frozen=True, slots=True)
class Question:
    """What one agent is asked: a kind of step, and the state it acts on. `task` is the id of the (sub)task it belongs
    to: "" is the whole, "2" its second part, "2.1" the first part of that. `again` are the ids, down to its own, of
    those that were handed back before: with `task` it says which try of a part this is."""

    kind: Kind
    agent: str
    state: str
    task: str = ""
    round: int = 0
    again: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Decision:
    """What an agent made of a question: as text, and as the `output` its kind asks for; `experience` is the entry it
    was shown, of that `similarity` to the state, `said` the form it filled in, as JSON."""

    text: str
    output: Any = None
    experience: str = ""
    similarity: float = 0.0
    said: str = ""


@dataclass(frozen=True, slots=True)
class Move:
    """One step that was made: an experience once it has a reward. `to` are the agents that parts went to."""

    question: Question
    decision: Decision
    to: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a task, and the numbers (from 1) of the parts whose results it needs."""

    text: str
    needs: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Job:
    """A (sub)task in the hands of an agent; `above` are those who divided it, the rest is as in a `Question`."""

    agent: str
    task: str
    id: str = ""
    above: tuple[str, ...] = ()
    again: tuple[str, ...] = ()

    def asks(self, kind: Kind, state: str | None = None, round: int = 0) -> Question:
        """What the agent is asked; of the task itself where no other state is given."""
        return Question(kind, self.agent, self.task if state is None else state, self.id, round, self.again)


@dataclass(frozen=True, slots=True)
class Solution:
    """An answer and the moves that led to it, in the order of places; `rounds` of critique are the most on any part,
    `error` stands where there is no answer, `lost` where that was the fault of a model."""

    text: str
    moves: tuple[Move, ...]
    rounds: int = 0
    error: str = ""
    lost: bool = False


Decide = Callable[[Question, Any], Awaitable[Decision]]


@dataclass(frozen=True)
class Network:
    """`depth` levels of decomposition; at most `rounds` of critique on each part.

    Each agent hands parts only to neighbours that are not above it, so no task goes in circles.
    """

    team: Team
    decide: Decide
    rounds: int = 2
    depth: int = 1

    async def solve(self, task: str, run: Door) -> Solution:
        """Solve a task, entering at the agent of highest closeness centrality."""
        return await self._work(Job(self.team.entry, task), run)

    async def _work(self, job: Job, run: Door) -> Solution:
        """Solve alone, or divide among neighbours. An agent that fails gives a solution with an error."""
        helpers = [name for name in self.team.neighbours(job.agent) if name not in job.above]
        moves: list[Move] = []
        try:
            if helpers and len(job.above) < self.depth:
                able = await self._move(job.asks("judge"), run, moves)
                if not able.output:
                    plan = await self._move(job.asks("decompose"), run, moves)
                    if parts := sensible(plan.output, job.task):
                        moves[-1] = Move(moves[-1].question, plan, self._assigned(len(parts), helpers))
                        return await self._divided(job, parts, helpers, moves, run)
            solved = await self._move(job.asks("solve"), run, moves)
            return Solution(solved.text, tuple(moves))
        except FAILURES as error:
            return _failed(error, moves)

    async def _divided(
        self, job: Job, parts: Sequence[Part], helpers: Sequence[str], moves: list[Move], run: Door
    ) -> Solution:
        """All parts at once, each as soon as the parts it needs are there; then put together."""
        done: list[asyncio.Future[Solution]] = [asyncio.get_running_loop().create_future() for _ in parts]
        shared = _Shared(job, parts, helpers, done)
        jobs = [(f"part {n}", partial(self._part, shared, n)) for n in range(len(parts))]
        solutions: list[Solution] = await run.gather(jobs)
        moves += [move for solution in solutions for move in solution.moves]
        told = "\n\n".join(
            f"## Part {n}: {part.text}\n{solution.text or '(not solved)'}"
            for n, (part, solution) in enumerate(zip(parts, solutions, strict=True), 1)
        )
        rounds = max(solution.rounds for solution in solutions)
        try:
            whole = await self._move(job.asks("aggregate", f"{job.task}\n\n# What came back\n{told}"), run, moves)
        except FAILURES as error:
            return _failed(error, moves, rounds)
        return Solution(whole.text, tuple(moves), rounds)

    async def _part(self, of: _Shared, number: int, run: Any) -> Solution:
        part = of.parts[number]
        try:
            needed = [await of.done[n - 1] for n in part.needs]
            known = "\n".join(f"- {of.parts[n - 1].text}: {s.text}" for n, s in zip(part.needs, needed, strict=True))
            task = f"{part.text}\n\n# Results it needs\n{known}" if known else part.text
            job, solution = await self._assigned_to_one(of, number, task, run)
            if not solution.error:
                solution = await self._criticised(of, job, solution, run)
        except BaseException as error:
            # Parts that wait for this one fail with it; where none does, nobody need ask.
            of.done[number].set_exception(error)
            of.done[number].exception()
            raise
        of.done[number].set_result(solution)
        return solution

    async def _assigned_to_one(self, of: _Shared, number: int, task: str, run: Any) -> tuple[Job, Solution]:
        """The part solved by its neighbour; one that fails hands it back, once, to another."""
        first, *others = [of.helpers[(number + n) % len(of.helpers)] for n in range(len(of.helpers))]
        id = f"{of.job.id}.{number + 1}".lstrip(".")
        job = Job(first, task, id, (*of.job.above, of.job.agent), of.job.again)
        solution = await self._work(job, run.at(first))
        if not solution.error or not others:
            return job, solution
        job = replace(job, agent=others[0], again=(*job.again, id))
        again = await self._work(job, run.at(f"{others[0]} instead"))
        rounds = max(solution.rounds, again.rounds)
        return job, replace(again, moves=solution.moves + again.moves, rounds=rounds)

    async def _criticised(self, of: _Shared, job: Job, solution: Solution, run: Any) -> Solution:
        """Critique and refinement until it is adequate, or the rounds are over. A critic that fails ends it."""
        moves, text, round = list(solution.moves), solution.text, 0
        critic = replace(job, agent=of.job.agent)
        for round in range(1, self.rounds + 1):
            at = run.at(f"round {round}")
            state = f"{of.job.task}\n\n# A part of it\n{job.task}\n\n# Its solution\n{text}"
            try:
                said = await self._move(critic.asks("critique", state, round), at, moves)
                if said.output is None:
                    break
                state = f"{job.task}\n\n# Your solution so far\n{text}\n\n# What is said of it\n{said.output}"
                text = (await self._move(job.asks("solve", state, round), at.at("refined"), moves)).text
            except FAILURES:
                break
        return Solution(text, tuple(moves), max(solution.rounds, round))

    async def _move(self, question: Question, run: Any, moves: list[Move]) -> Decision:
        decision = await self.decide(question, run.at(question.kind))
        moves.append(Move(question, decision))
        return decision

    @staticmethod
    def _assigned(parts: int, helpers: Sequence[str]) -> tuple[str, ...]:
        """Who gets which part: neighbours in turn, so that more parts than neighbours are shared out."""
        return tuple(helpers[n % len(helpers)] for n in range(parts))


@dataclass(frozen=True)
class _Shared:
    """What the parts of one job have in common; `done` holds the solution of each as it comes."""

    job: Job
    parts: Sequence[Part]
    helpers: Sequence[str]
    done: list[asyncio.Future[Solution]] = field(repr=False)


def _failed(error: Exception, moves: Sequence[Move], rounds: int = 0) -> Solution:
    return Solution("", tuple(moves), rounds, str(error), lost=not isinstance(error, AgentError))


def sensible(parts: Sequence[Part], task: str) -> list[Part]:
    """Parts that are something, and something else than the task itself; what they need is another, earlier part or,
    in any order, none that would have them wait for each other. Fewer than two are no decomposition."""
    whole = ("", _plain(task))
    kept = {n: part for n, part in enumerate(parts[:MAX_PARTS], 1) if _plain(part.text) not in whole}
    if len(kept) < 2:
        return []
    number = {old: new for new, old in enumerate(kept, 1)}
    needs = {number[n]: {number[m] for m in part.needs if m in number and m != n} for n, part in kept.items()}
    return [Part(part.text.strip(), tuple(sorted(_acyclic(number[n], needs)))) for n, part in kept.items()]


def _acyclic(part: int, needs: dict[int, set[int]]) -> set[int]:
    """What a part needs, less later parts that need it in turn: of two that wait for each other the earlier begins."""

    def reach(start: int) -> set[int]:
        seen, todo = set[int](), [start]
        while todo:
            for n in needs[todo.pop()] - seen:
                seen.add(n)
                todo.append(n)
        return seen

    return {n for n in needs[part] if n < part or part not in reach(n)}


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())
