"""A network of agents that divides a task, solves the parts, criticises the solutions of the parts, and aggregates the
solutions (MAEL, section 2.1).

This module only defines the procedure: the questions to each agent, their order, and their concurrency. The function
`decide` answers a question, so the procedure depends neither on models nor on experience.
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
"""Text of a critique that accepts a solution."""

FAILURES = (AgentError, OutputError, ProviderError)
"""Errors of one agent. The network continues without the answer of that agent."""


@dataclass(frozen=True, slots=True)
class Question:
    """Question to one agent. `kind`: kind of step. `state`: the text that the agent works on. `task`: id of the
    (sub)task: "" is the whole task, "2" the second part of the whole task, "2.1" the first part of part 2. `again`: ids
    of the (sub)tasks on which a second agent works because the first agent failed. Only this (sub)task and the parts
    that contain this (sub)task are included. `colleagues`: agents that may get parts if the question asks for a
    plan."""

    kind: Kind
    agent: str
    state: str
    task: str = ""
    round: int = 0
    again: tuple[str, ...] = ()
    colleagues: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StepOutput:
    """Agent's answer to a question. `text`: the answer as text. `output`: the answer as a value, whose type depends on
    the kind of question. `experience`: id of the entry shown to the agent. `similarity`: similarity of that entry to
    the state. `form`: the form that the agent filled in, as JSON."""

    text: str
    output: Any = None
    experience: str = ""
    similarity: float = 0.0
    form: str = ""


@dataclass(frozen=True, slots=True)
class Move:
    """Completed step: a question and its answer. A move becomes an experience when it gets a reward. `to`: if the
    answer is a plan, the agents that got its parts, in the order of the parts; empty if the plan was discarded."""

    question: Question
    answer: StepOutput
    to: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TaskPart:
    """Part of a task. `needs`: indices (from 1) of the parts whose results this part needs. `to`: agent that the plan
    names for this part, or empty."""

    text: str
    needs: tuple[int, ...] = ()
    to: str = ""


@dataclass(frozen=True, slots=True)
class Assignment:
    """(Sub)task and the agent that works on it. `above`: agents that divided the whole task and then each part that
    contains this part. `again`: as in `Question`."""

    agent: str
    task: str
    id: str = ""
    above: tuple[str, ...] = ()
    again: tuple[str, ...] = ()

    def question(self, kind: Kind, state: str | None = None, round: int = 0) -> Question:
        """Return a question to the agent. The state defaults to the task."""
        return Question(kind, self.agent, self.task if state is None else state, self.id, round, self.again)


@dataclass(frozen=True, slots=True)
class Solution:
    """Answer to a (sub)task (`text`), and the moves that led to the answer, in the order of places. `rounds`: largest
    number of rounds of critique of a part. `error`: reason why the answer is missing, or empty. `lost`: whether the
    reason is a failure of a model, not of an agent. `refused`: whether the reason is that the provider refused this
    request, while other requests may succeed."""

    text: str
    moves: tuple[Move, ...]
    rounds: int = 0
    error: str = ""
    lost: bool = False
    refused: bool = False


@dataclass(frozen=True)
class Network(Generic[R]):
    """Solver of tasks with a team. `depth`: maximum levels of decomposition. `rounds`: maximum rounds of critique of a
    part. To prevent cycles, an agent only hands parts to neighbours that have not divided the task before (see
    `Assignment.above`)."""

    team: AgentTeam
    decide: Callable[[Question, R], Awaitable[StepOutput]]
    rounds: int = 2
    depth: int = 1

    async def solve(self, task: str, run: R) -> Solution:
        """Solve a task. The agent with the highest closeness centrality gets the task first."""
        return await self._work(Assignment(self.team.entry, task), run)

    async def _work(self, assignment: Assignment, run: R) -> Solution:
        """Solve a task with its agent, or divide the task among the agent's neighbours. If the agent fails, return a
        solution with an error."""
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
        """Solve all parts concurrently, but start a part only after the parts whose results it needs. Then aggregate
        the results. If the agent of a part fails, the next agent in `helpers` tries the part once."""
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
                # Parts that wait for this part fail too. If no part waits, asyncio would report that the exception was
                # never retrieved, so retrieve it here.
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
        """Solve a part with the agent in `part`, then refine the solution. If this agent fails, the agent `other` tries
        the part once."""
        solution = await self._work(part, run.at(part.agent))
        if solution.error and other != part.agent:
            first, part = solution, replace(part, agent=other, again=(*part.again, part.id))
            solution = await self._work(part, run.at(f"{other} instead"))
            rounds = max(first.rounds, solution.rounds)
            solution = replace(solution, moves=first.moves + solution.moves, rounds=rounds)
        return solution if solution.error else await self._refine(whole, part, solution, run)

    async def _refine(self, whole: Assignment, part: Assignment, solution: Solution, run: R) -> Solution:
        """Criticise and refine the solution of a part until the critique accepts it, an agent fails, or the rounds are
        used up."""
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
    """Assign each part to a helper: to the helper that the part names, otherwise to the helper with the fewest parts.
    Return the parts and the number of parts that name an unknown agent."""
    by_folded_name = {folded(helper): helper for helper in helpers}
    named = [by_folded_name.get(folded(part.to)) for part in parts]
    load = Counter(name for name in named if name)
    result: list[TaskPart] = []
    for part, name in zip(parts, named, strict=True):
        if name is None:
            name = min(helpers, key=lambda helper: load[helper])
            load[name] += 1
        result.append(replace(part, to=name))
    return result, sum(name is None and bool(part.to.strip()) for name, part in zip(named, parts, strict=True))


def valid_parts(parts: Sequence[TaskPart], task: str) -> tuple[list[TaskPart], int]:
    """Return the parts that are neither empty nor the task itself, and the number of dropped needs. Return no parts if
    fewer than two remain. A need is dropped if it names the part itself or a missing part, or if parts would wait for
    each other."""
    useless = ("", folded(task))
    remaining = {n: part for n, part in enumerate(parts, 1) if folded(part.text) not in useless}
    if len(remaining) < 2:
        return [], 0
    number = {old: new for new, old in enumerate(remaining, 1)}
    needs = {number[n]: {number[m] for m in remaining[n].needs if m in number and m != n} for n in remaining}
    # If two parts wait for each other, the earlier part starts first.
    acyclic = {n: sorted(m for m in needs[n] if m < n or n not in distances(m, needs)) for n in needs}
    valid = [replace(part, text=part.text.strip(), needs=tuple(acyclic[number[n]])) for n, part in remaining.items()]
    return valid, sum(len({*part.needs}) for part in remaining.values()) - sum(len(part.needs) for part in valid)
