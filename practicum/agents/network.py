"""A network of agents that divides a task, solves the parts, criticises them and aggregates (MAEL, section 2.1).

This is the procedure alone: which agent is asked for what, in which order, and what may run at once. A function,
`decide`, makes an agent's answer, so the procedure knows neither models nor experience.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, Literal, TypeVar

from practicum.agents.base import TeamRun
from practicum.agents.team import AgentTeam
from practicum.core.counts import Count
from practicum.core.errors import AgentError, OutputError, ProviderError, RequestError
from practicum.core.graph import distances
from practicum.core.words import folded

R = TypeVar("R", bound=TeamRun)

Kind = Literal["judge", "decompose", "solve", "critique", "aggregate"]

ACCEPTED = "adequate"
"""The text of a critique that accepts a solution."""

FAILURES = (AgentError, OutputError, ProviderError)
"""Failures of one agent; the network goes on without it."""


@dataclass(frozen=True, slots=True)
class Question:
    """What one agent is asked: a kind of step, and the state it acts on. `task` is the id of the (sub)task: "" is the
    whole, "2" its second part, "2.1" the first part of that. `again` holds the ids, down to its own, of subtasks that
    were handed back before: with `task` it identifies the attempt at a part. `colleagues` are the agents that may get
    the parts of a plan."""

    kind: Kind
    agent: str
    state: str
    task: str = ""
    round: int = 0
    again: tuple[str, ...] = ()
    colleagues: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StepOutput:
    """An agent's answer to a question: as text, and as the `output` that its kind asks for. `experience` is the id of
    the entry it was shown, of that `similarity` to the state; `form` is the form it filled in, as JSON."""

    text: str
    output: Any = None
    experience: str = ""
    similarity: float = 0.0
    form: str = ""


@dataclass(frozen=True, slots=True)
class Move:
    """A completed step, which becomes an experience once it has a reward. `to` are the agents that got the parts of a
    plan, in the order of the parts; none if the plan was discarded."""

    question: Question
    answer: StepOutput
    to: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TaskPart:
    """A part of a task, the numbers (from 1) of the parts whose results it needs, and the agent that the plan names for
    it, if any."""

    text: str
    needs: tuple[int, ...] = ()
    to: str = ""


@dataclass(frozen=True, slots=True)
class Assignment:
    """A (sub)task and the agent that works on it. `above` are the agents that divided it; `again` as in `Question`."""

    agent: str
    task: str
    id: str = ""
    above: tuple[str, ...] = ()
    again: tuple[str, ...] = ()

    def question(self, kind: Kind, state: str | None = None, round: int = 0) -> Question:
        """A question to the agent; the state is the task itself unless another is given."""
        return Question(kind, self.agent, self.task if state is None else state, self.id, round, self.again)


@dataclass(frozen=True, slots=True)
class Solution:
    """An answer and the moves that led to it, in the order of places. `rounds` is the most rounds of critique of any
    part, `error` says why there is no answer, and `lost` is True if that was a model's failure: `refused`, if the
    provider refused this request alone."""

    text: str
    moves: tuple[Move, ...]
    rounds: int = 0
    error: str = ""
    lost: bool = False
    refused: bool = False


@dataclass(frozen=True)
class Network(Generic[R]):
    """Solves tasks with a team. `depth` is the most levels of decomposition, `rounds` the most rounds of critique of a
    part. An agent hands parts only to neighbours that are not above it, so no task goes in circles."""

    team: AgentTeam
    decide: Callable[[Question, R], Awaitable[StepOutput]]
    rounds: int = 2
    depth: int = 1

    async def solve(self, task: str, run: R) -> Solution:
        """Solve a task. It enters at the agent of highest closeness centrality."""
        return await self._work(Assignment(self.team.entry, task), run)

    async def _work(self, assignment: Assignment, run: R) -> Solution:
        """Solve alone, or divide among neighbours. If the agent fails, the solution has an error."""
        helpers = [name for name in self.team.neighbours(assignment.agent) if name not in assignment.above]
        moves: list[Move] = []
        try:
            if helpers and len(assignment.above) < self.depth:
                able = await self._move(assignment.question("judge"), run, moves)
                if not able.output:
                    asked = replace(assignment.question("decompose"), colleagues=tuple(helpers))
                    plan = await self._move(asked, run, moves)
                    parts, dropped = valid_parts(plan.output, assignment.task)
                    run.count(Count.DROPPED_NEEDS, dropped)
                    if parts:
                        parts, unknown = assigned(parts, helpers)
                        run.count(Count.UNKNOWN_COLLEAGUES, unknown)
                        moves[-1] = replace(moves[-1], to=tuple(part.to for part in parts))
                        return await self._divide(assignment, parts, helpers, moves, run)
                    run.count(Count.DISCARDED_PLANS)
            solved = await self._move(assignment.question("solve"), run, moves)
            return Solution(solved.text, tuple(moves))
        except FAILURES as error:
            return _failure(error, moves)

    async def _divide(
        self, whole: Assignment, parts: Sequence[TaskPart], helpers: Sequence[str], moves: list[Move], run: R
    ) -> Solution:
        """Solve all parts at once, each as soon as the parts it needs are solved, then aggregate. If the agent of a
        part fails, the one after it among the `helpers` tries once."""
        loop = asyncio.get_running_loop()
        solved: list[asyncio.Future[Solution]] = [loop.create_future() for _ in parts]

        async def solve(n: int, run: R) -> Solution:
            try:
                needed = [(parts[m - 1].text, await solved[m - 1]) for m in parts[n].needs]
                results = "\n".join(f"- {text}: {solution.text or '(not solved)'}" for text, solution in needed)
                task = f"{parts[n].text}\n\n# Results it needs\n{results}" if results else parts[n].text
                id, above = f"{whole.id}.{n + 1}".lstrip("."), (*whole.above, whole.agent)
                part = Assignment(parts[n].to, task, id, above, whole.again)
                other = helpers[(helpers.index(part.agent) + 1) % len(helpers)]
                solution = await self._solve_part(whole, part, other, run)
            except BaseException as error:
                # The parts that wait for this one fail with it. Reading the exception marks it as retrieved.
                solved[n].set_exception(error)
                solved[n].exception()
                raise
            solved[n].set_result(solution)
            return solution

        jobs = [(f"part {n}", partial(solve, n)) for n in range(len(parts))]
        solutions: list[Solution] = await run.gather(jobs)
        moves += [move for solution in solutions for move in solution.moves]
        results = "\n\n".join(
            f"## Part {n}: {part.text}\n{solution.text or '(not solved)'}"
            for n, (part, solution) in enumerate(zip(parts, solutions, strict=True), 1)
        )
        rounds = max(solution.rounds for solution in solutions)
        state = f"{whole.task}\n\n# What came back\n{results}"
        try:
            aggregated = await self._move(whole.question("aggregate", state), run, moves)
        except FAILURES as error:
            return _failure(error, moves, rounds)
        return Solution(aggregated.text, tuple(moves), rounds)

    async def _solve_part(self, whole: Assignment, part: Assignment, other: str, run: R) -> Solution:
        """Have a neighbour solve the part, and refine its solution; if it fails, another neighbour tries once."""
        solution = await self._work(part, run.at(part.agent))
        if solution.error and other != part.agent:
            first, part = solution, replace(part, agent=other, again=(*part.again, part.id))
            solution = await self._work(part, run.at(f"{other} instead"))
            rounds = max(first.rounds, solution.rounds)
            solution = replace(solution, moves=first.moves + solution.moves, rounds=rounds)
        return solution if solution.error else await self._refine(whole, part, solution, run)

    async def _refine(self, whole: Assignment, part: Assignment, solution: Solution, run: R) -> Solution:
        """Criticise and refine a part's solution until it is adequate or the rounds are over. A failure ends it."""
        moves, text, round = list(solution.moves), solution.text, 0
        critic = replace(part, agent=whole.agent)
        for round in range(1, self.rounds + 1):
            at = run.at(f"round {round}")
            state = f"{whole.task}\n\n# A part of it\n{part.task}\n\n# Its solution\n{text}"
            try:
                critique = await self._move(critic.question("critique", state, round), at, moves)
                if critique.output is None:
                    break
                state = f"{part.task}\n\n# Your solution so far\n{text}\n\n# What is said of it\n{critique.output}"
                text = (await self._move(part.question("solve", state, round), at.at("refined"), moves)).text
            except FAILURES:
                break
        return Solution(text, tuple(moves), max(solution.rounds, round))

    async def _move(self, question: Question, run: R, moves: list[Move]) -> StepOutput:
        answer = await self.decide(question, run.at(question.kind))
        moves.append(Move(question, answer))
        return answer


def _failure(error: Exception, moves: Sequence[Move], rounds: int = 0) -> Solution:
    return Solution(
        "",
        tuple(moves),
        rounds,
        str(error),
        lost=not isinstance(error, AgentError),
        refused=isinstance(error, RequestError),
    )


def assigned(parts: Sequence[TaskPart], helpers: Sequence[str]) -> tuple[list[TaskPart], int]:
    """The parts, each for one of the helpers: the one that it names, or in turns the one that has the fewest parts.
    Returned beside them is the number of parts that name another agent."""
    known = {folded(helper): helper for helper in helpers}
    named = [known.get(folded(part.to)) for part in parts]
    load = Counter(name for name in named if name)
    made: list[TaskPart] = []
    for part, name in zip(parts, named, strict=True):
        if name is None:
            name = min(helpers, key=lambda helper: load[helper])
            load[name] += 1
        made.append(replace(part, to=name))
    return made, sum(name is None and bool(part.to.strip()) for name, part in zip(named, parts, strict=True))


def valid_parts(parts: Sequence[TaskPart], task: str) -> tuple[list[TaskPart], int]:
    """The parts that are neither empty nor the task itself; none if fewer than two remain. Each keeps the needs that
    can be met. Returned beside them is the number of needs that cannot: of the part itself, of a part that is not
    there, and those that would have parts wait for each other."""
    useless = ("", folded(task))
    kept = {n: part for n, part in enumerate(parts, 1) if folded(part.text) not in useless}
    if len(kept) < 2:
        return [], 0
    number = {old: new for new, old in enumerate(kept, 1)}
    needs = {number[n]: {number[m] for m in kept[n].needs if m in number and m != n} for n in kept}
    # Of two parts that wait for each other, the earlier one begins.
    acyclic = {n: sorted(m for m in needs[n] if m < n or n not in distances(m, needs)) for n in needs}
    valid = [replace(part, text=part.text.strip(), needs=tuple(acyclic[number[n]])) for n, part in kept.items()]
    return valid, sum(len({*part.needs}) for part in kept.values()) - sum(len(part.needs) for part in valid)
