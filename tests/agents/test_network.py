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

from practicum.agents.network import Move, Network, Question, Solution, StepOutput, TaskPart, valid_parts
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


def parts(*texts: str, **needs: tuple[int, ...]) -> Answer:
    made = [TaskPart(text, needs.get(f"of{n}", ())) for n, text in enumerate(texts, 1)]
    return lambda question: made


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


def kinds(moves: Sequence[Move]) -> list[tuple[str, str, str]]:
    return [(m.question.kind, m.question.agent, m.question.task) for m in moves]


def test_an_agent_that_can_solve_a_task_alone_does() -> None:
    solution, _ = solved(divided(judge=lambda q: True))
    assert kinds(solution.moves) == [("judge", "agent1", ""), ("solve", "agent1", "")]
    assert (solution.text, solution.rounds, solution.error) == ("solved  by agent1", 0, "")


@pytest.mark.parametrize(("agents", "depth"), [(1, 1), (4, 0)])
def test_an_agent_without_neighbours_is_not_asked_whether_it_can_solve_a_task_alone(agents: int, depth: int) -> None:
    solution, _ = solved(divided(), agents, depth=depth)
    assert kinds(solution.moves) == [("solve", "agent1", "")]


def test_a_task_is_divided_solved_criticised_and_aggregated() -> None:
    solution, office = solved(divided())
    assert kinds(solution.moves) == [
        ("judge", "agent1", ""), ("decompose", "agent1", ""),
        ("solve", "agent2", "1"), ("critique", "agent1", "1"),
        ("solve", "agent3", "2"), ("critique", "agent1", "2"),
        ("aggregate", "agent1", ""),
    ]  # fmt: skip
    assert solution.moves[1].to == ("agent2", "agent3")
    assert solution.text == "all together"
    whole = next(q for q in office.asked if q.kind == "aggregate")
    assert "## Part 1: first half\nsolved 1 by agent2" in whole.state
    critique = next(q for q in office.asked if q.kind == "critique" and q.task == "2")
    assert critique.state == "the whole\n\n# A part of it\nsecond half\n\n# Its solution\nsolved 2 by agent3"
    assert office.most == 2


def test_neighbours_take_turns_if_there_are_more_parts() -> None:
    solution, office = solved(divided(decompose=parts(*(f"part {n}" for n in range(5)))), agents=3)
    assert solution.moves[1].to == ("agent2", "agent3", "agent2", "agent3", "agent2")
    assert [q.agent for q in office.asked if q.kind == "solve"] == ["agent2", "agent3", "agent2", "agent3", "agent2"]
    assert office.most == 5


def test_a_part_waits_only_for_the_parts_it_needs() -> None:
    needing = parts("base", "on top", "aside", of2=(1,))
    solution, office = solved(divided(decompose=needing))
    order = [(q.kind, q.task) for q in office.asked if q.task]
    # The part that needs nothing is solved beside the first; the second begins when the first stands.
    assert order[:2] == [("solve", "1"), ("solve", "3")]
    assert order.index(("solve", "2")) > order.index(("critique", "1"))
    state = next(q.state for q in office.asked if q.kind == "solve" and q.task == "2")
    assert state == "on top\n\n# Results it needs\n- base: solved 1 by agent2"
    assert [m.question.task for m in solution.moves if m.question.kind == "solve"] == ["1", "2", "3"]


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


@pytest.mark.parametrize(
    "plan",
    [parts(), parts("only one"), parts("the whole", "The  WHOLE"), parts(" ", "\n"), parts("The whole", "one more")],
    ids=["nothing", "one", "itself", "empty", "itself and one"],
)
def test_an_unusable_plan_leaves_the_task_whole(plan: Answer) -> None:
    solution, _ = solved(divided(decompose=plan))
    assert [kind for kind, _, _ in kinds(solution.moves)] == ["judge", "decompose", "solve"]
    assert solution.moves[1].to == ()


def test_an_inadequate_solution_is_refined_until_it_is_adequate() -> None:
    def critique(question: Question) -> Any:
        return None if "better" in question.state or question.task == "2" else "say more"

    def solve(question: Question) -> str:
        return "better" if "What is said of it\nsay more" in question.state else f"solved {question.task}"

    solution, office = solved(divided(critique=critique, solve=solve))
    first = [(q.kind, q.agent, q.round) for q in office.asked if q.task == "1"]
    assert first == [
        ("solve", "agent2", 0), ("critique", "agent1", 1), ("solve", "agent2", 1), ("critique", "agent1", 2),
    ]  # fmt: skip
    assert solution.rounds == 2
    assert "first half\nbetter" in office.asked[-1].state


def test_the_rounds_of_critique_are_bounded() -> None:
    solution, office = solved(divided(critique=lambda q: "never enough"), rounds=3)
    assert [(q.kind, q.round) for q in office.asked if q.task == "1"] == [
        ("solve", 0), *((kind, n) for n in (1, 2, 3) for kind in ("critique", "solve")),
    ]  # fmt: skip
    assert solution.rounds == 3
    assert [q.kind for q in solved(divided(), rounds=0)[1].asked].count("critique") == 0


@pytest.mark.parametrize("failing", ["", "agent2"], ids=["solved", "handed back"])
def test_the_rounds_of_nested_parts_count(failing: str) -> None:
    """Only inner parts are criticised; where an agent cannot put its own together, another takes the part alone."""
    deep = divided(
        judge=lambda q: q.task != "" and q.agent != "agent2",
        critique=lambda q: "mend it" if "." in q.task else None,
        aggregate=lambda q: AgentError("agent.failed", "broken") if q.agent == failing else "all together",
    )
    solution, _ = solved(deep, depth=2, rounds=3)
    assert solution.rounds == max(m.question.round for m in solution.moves) == 3


def test_a_deeper_network_divides_parts_again_without_circles() -> None:
    _, office = solved(divided(judge=lambda q: False), shape="ring", depth=2)
    above = {q.task: q.agent for q in office.asked if q.kind == "decompose"}
    assert above == {"": "agent1", "1": "agent2", "2": "agent4"}
    assert {(q.task, q.agent) for q in office.asked if q.kind == "solve"} == {
        ("1.1", "agent3"), ("1.2", "agent3"), ("2.1", "agent3"), ("2.2", "agent3"),
    }  # fmt: skip
    deep, office = solved(divided(judge=lambda q: False), agents=3, shape="chain", depth=9)
    assert {q.kind for q in office.asked if q.agent != "agent2"} == {"solve"}
    assert deep.text == "all together"


def test_the_part_of_a_failed_agent_is_tried_once_by_another() -> None:
    def solve(question: Question) -> Any:
        return (
            AgentError("agent.failed", "broken")
            if question.agent == "agent2"
            else f"solved {question.task} by {question.agent}"
        )

    solution, office = solved(divided(solve=solve))
    assert [q.agent for q in office.asked if q.kind == "solve" and q.task == "1"] == ["agent2", "agent3"]
    assert "solved 1 by agent3" in office.asked[-1].state
    assert solution.error == ""


def test_a_part_that_nobody_solved_is_reported_as_missing() -> None:
    def solve(question: Question) -> Any:
        return AgentError("agent.failed", "broken") if question.task == "1" else "solved"

    solution, office = solved(divided(solve=solve))
    assert [q.agent for q in office.asked if q.kind == "solve" and q.task == "1"] == ["agent2", "agent3"]
    assert not [q for q in office.asked if q.kind == "critique" and q.task == "1"]
    assert "## Part 1: first half\n(not solved)" in office.asked[-1].state
    assert solution.text == "all together"


@pytest.mark.parametrize("kind", ["judge", "decompose", "aggregate"])
def test_if_the_first_agent_fails_there_are_moves_and_no_answer(kind: str) -> None:
    solution, _ = solved(divided(**{kind: lambda q: AgentError("agent.failed", "broken")}))
    assert (solution.text, solution.error) == ("", "broken")
    assert len(solution.moves) == {"judge": 0, "decompose": 1, "aggregate": 6}[kind]


def test_a_failed_critic_leaves_the_solution_unchanged() -> None:
    solution, office = solved(divided(critique=lambda q: AgentError("agent.failed", "broken")))
    assert "solved 1 by agent2" in office.asked[-1].state
    assert solution.error == ""


def test_an_error_that_is_no_agents_failure_ends_all_parts_that_wait_for_it() -> None:
    needing = parts("on top", "base", of1=(2,))

    def solve(question: Question) -> Any:
        return KeyError("a bug") if question.task == "2" else "solved"

    with pytest.raises(KeyError, match="a bug"):
        solved(divided(decompose=needing, solve=solve))
