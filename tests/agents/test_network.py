"""The recursion of a network of agents: who is asked for what, at once or in order, and what happens when one fails."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from practicum.agents.network import Network, Question, Solution, StepOutput, TaskPart, valid_parts
from practicum.agents.team import make_team
from practicum.core.counts import Count
from practicum.core.errors import AgentError

Answer = Callable[[Question], Any]


@dataclass
class Place:
    """A door that only knows its places, each of which is opened once."""

    opened: set[str] = field(default_factory=set)
    name: str = ""
    counts: Counter[str] = field(default_factory=Counter)

    def count(self, what: Count, number: int = 1) -> None:
        self.counts[what] += number

    def at(self, name: str) -> Place:
        place = f"{self.name}/{name}"
        assert place not in self.opened
        self.opened.add(place)
        return Place(self.opened, place, self.counts)

    async def gather(self, jobs: Sequence[tuple[str, Callable[[Any], Awaitable[Any]]]]) -> list[Any]:
        return list(await asyncio.gather(*(job(self.at(name)) for name, job in jobs)))


@dataclass
class Office:
    """Agents that answer from a function a kind; `most` is how many were asked at once."""

    answers: dict[str, Answer]
    asked: list[Question] = field(default_factory=list)
    busy: int = 0
    most: int = 0

    async def decide(self, question: Question, run: Any) -> StepOutput:
        self.asked.append(question)
        self.busy += 1
        self.most = max(self.most, self.busy)
        # Everything that may run at once is begun before anything ends.
        for _ in range(20):
            await asyncio.sleep(0)
        self.busy -= 1
        answer = self.answers[question.kind](question)
        if isinstance(answer, Exception):
            raise answer
        return StepOutput(str(answer), answer)


def divided(**how: Answer) -> dict[str, Answer]:
    """Only the first agent divides; everything is adequate at once."""
    return {
        "judge": lambda q: q.task != "",
        "decompose": lambda q: [TaskPart(f"first half {q.task}".strip()), TaskPart(f"second half {q.task}".strip())],
        "solve": lambda q: f"solved {q.task} by {q.agent}",
        "critique": lambda q: None,
        "aggregate": lambda q: "all together",
        **how,
    }  # fmt: skip


def solved(answers: dict[str, Answer], agents: int = 4, shape: str = "complete", **how: Any) -> tuple[Solution, Office]:
    office = Office(answers)
    network = Network(make_team(agents, shape), office.decide, **how)
    return asyncio.run(network.solve("the whole", Place())), office


@given(st.lists(st.sets(st.integers(0, 9), max_size=4), min_size=2, max_size=8))
def test_no_parts_wait_for_each_other(needs: list[set[int]]) -> None:
    made, dropped = valid_parts([TaskPart(f"part {n}", tuple(need)) for n, need in enumerate(needs)], "the whole")
    assert dropped == sum(map(len, needs)) - sum(len(part.needs) for part in made)
    done: set[int] = set()
    while len(done) < len(made):
        ready = {n for n, part in enumerate(made, 1) if n not in done and done >= {*part.needs}}
        assert ready
        done |= ready
    acyclic = all(n > need for n, part in enumerate(made, 1) for need in needs[n - 1] if 1 <= need <= len(made))
    if acyclic:
        assert [{*part.needs} for part in made] == [{n for n in need if 1 <= n <= len(made)} for need in needs]


@pytest.mark.parametrize("kind", ["judge", "decompose", "aggregate"])
def test_if_the_first_agent_fails_there_are_moves_and_no_answer(kind: str) -> None:
    solution, _ = solved(divided(**{kind: lambda q: AgentError("agent.failed", "broken")}))
    assert (solution.text, solution.error) == ("", "broken")
    assert len(solution.moves) == {"judge": 0, "decompose": 1, "aggregate": 6}[kind]
