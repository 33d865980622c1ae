"""MAEL: experience of single steps, in a network of agents (METHODS, section 6)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from python_kit import Seen, in_space, learned, refused, slow
from python_roles import asks, down, ignorant, knowing, model
from python_tasks import message, messages, number, word

ONE = messages(1)
HALVES = ("first half", "second half")
POORER, BETTER = "a poor solution", "a better solution"


def network(call: Any) -> Any:
    """A team in which no agent solves a message by itself. It has two halves; the first is refined once."""
    if asks(call, "alone"):
        return {"alone": False, "reason": "It has two parts."}
    if asks(call, "parts"):
        return {"parts": [{"text": f"{half} of message {number(call)}", "to": "", "needs": []} for half in HALVES]}
    if asks(call, "adequate"):
        poor = HALVES[0] in call.text and BETTER not in call.prompt.user
        return {"adequate": not poor, "feedback": "Say more." if poor else ""}
    if not of_part(call):
        return knowing(call)
    return {"answer": BETTER if "Say more." in call.text else POORER}


def of_part(call: Any) -> bool:
    """Whether an agent is to solve a part. The whole task and the aggregate get the word."""
    return call.schema is None and any(half in call.prompt.user for half in HALVES) and POORER not in (
        call.prompt.user if "Say more." not in call.text else ""
    )  # fmt: skip


def quality(call: Any) -> Any:
    """A judge of parts: a refined solution has 9 of 10 points, any other 5."""
    return {"points": 9 if BETTER in call.prompt.user else 5, "reason": "So it is."}


def mael(folder: Path, tasks: Any = ONE, settings: Mapping[str, Any] | None = None, **how: Any) -> Seen:
    rules = {"agent": network, "judge": quality, **how.pop("rules", {})}
    return learned(folder, tasks, model(**rules), "mael", settings or {}, **how)


def rewards(entries: Iterable[Any]) -> list[tuple[str, str, float]]:
    """Each experience: the agent whose pool it is in, its kind, its reward."""
    return [(e.section.removeprefix("pool "), e.data["kind"], e.data["reward"]) for e in entries]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """A run that learns from two messages, and is tested on a message."""
    return mael(tmp_path_factory.mktemp("whole"), messages(1, 3), test=messages(80))


def test_each_step_enters_the_pool_of_its_agent_with_its_reward(whole: Seen) -> None:
    """The first half was 0.5 and became 0.9, the second is 0.5, and the whole is right.

    A judgement and a plan have the mean of the parts; a critique has the improvement, or if it accepts, the quality of
    the accepted solution; an aggregate has the quality of the whole. A task costs a judgement, a plan, two solutions,
    three critiques, a refinement and an aggregate; the judge rewards each solution of a part.
    """
    for task in ("task:t1", "task:t3"):
        entries = [entry for entry in whole.result.context if entry.sources[0] == task]
        assert len({entry.data["trace"] for entry in entries}) == 1
        assert sorted(rewards(entries)) == sorted([
            ("agent1", "judge", 0.7), ("agent1", "decompose", 0.7), ("agent2", "solve", 0.5),
            ("agent1", "critique", 0.4), ("agent2", "solve", 0.9), ("agent1", "critique", 0.9),
            ("agent3", "solve", 0.5), ("agent1", "critique", 0.5), ("agent1", "aggregate", 1.0),
        ])  # fmt: skip
    assert whole.roles == {"agent": 3 * (1 + 1 + 2 + 3 + 1 + 1), "judge": 2 * 3}


def test_a_network_of_agents_is_asked_and_not_shown(whole: Seen) -> None:
    async def ask(space: Any) -> Any:
        with refused("method.unsuitable"):
            await space.show("Message 7: which word?")
        return await space.ask("Message 7: which word?")

    assert in_space(whole, ask, model(agent=knowing)).text == word(7)


def test_an_agent_that_solves_a_task_by_itself_takes_two_steps_rewarded_by_the_score(tmp_path: Path) -> None:
    def alone(call: Any) -> Any:
        return (knowing if number(call) == 1 else ignorant)(call)

    seen = mael(tmp_path, messages(1, 3), rules={"agent": alone})
    for task, score in (("task:t1", 1.0), ("task:t3", 0.0)):
        entries = [entry for entry in seen.result.context if entry.sources[0] == task]
        assert rewards(entries) == [("agent1", "judge", score), ("agent1", "solve", score)]
    assert seen.roles == {"agent": 2 * 2}


@pytest.mark.slow
def test_a_wrong_whole_gets_no_reward_and_its_parts_keep_their_rewards(tmp_path: Path) -> None:
    def failing(call: Any) -> Any:
        answer = network(call)
        return ignorant(call) if answer.get("answer") == word(number(call)) else answer

    by_kind = {kind: reward for _, kind, reward in rewards(mael(tmp_path, rules={"agent": failing}).result.context)}
    assert (by_kind["aggregate"], by_kind["decompose"], by_kind["judge"]) == (0.0, 0.7, 0.7)


@pytest.mark.parametrize(
    ("settings", "critiques", "solutions"),
    [slow({"rounds": 0}, [], 2), slow({"rounds": 1}, [0.4, 0.5], 3), ({"rounds": 2, "accepted": False}, [0.4], 3)],
    ids=str,
)
def test_a_part_is_criticised_up_to_the_limit_of_rounds(
    tmp_path: Path, settings: dict[str, Any], critiques: list[float], solutions: int
) -> None:
    """Accepting critiques can be left out of the experience."""
    pairs = [(kind, reward) for _, kind, reward in rewards(mael(tmp_path, settings=settings).result.context)]
    assert [reward for kind, reward in pairs if kind == "critique"] == critiques
    assert [kind for kind, _ in pairs].count("solve") == solutions


@pytest.mark.parametrize("settings", [slow({"depth": 0}), slow({"agents": 1})], ids=str)
def test_without_depth_or_colleagues_one_agent_answers_at_once(tmp_path: Path, settings: dict[str, Any]) -> None:
    seen = mael(tmp_path, settings=settings)
    assert seen.roles == {"agent": 1}
    assert rewards(seen.result.context) == [("agent1", "solve", 1.0)]


@pytest.mark.slow
def test_a_plan_of_fewer_than_two_parts_is_discarded_and_counted(tmp_path: Path) -> None:
    def planless(call: Any) -> Any:
        return {"parts": [{"text": "half of it", "to": "", "needs": []}]} if asks(call, "parts") else network(call)

    seen = mael(tmp_path, rules={"agent": planless})
    assert seen.result.errors["discarded_plans"] == 1
    assert rewards(seen.result.context) == [("agent1", "judge", 1.0), ("agent1", "solve", 1.0)]


def test_a_step_without_a_verdict_gives_no_experience(tmp_path: Path) -> None:
    seen = mael(tmp_path, rules={"judge": down})
    assert rewards(seen.result.context) == [("agent1", "aggregate", 1.0)]
    assert seen.result.errors["unjudged_attempts"] == 3


# ---- pools are read in inference, and frozen

SHOWN = "experience"


def moves(attempt: Any) -> list[Mapping[str, Any]]:
    return list(attempt.trace.data["moves"])


def test_evaluation_shows_each_step_experience_of_its_agent_and_kind_and_never_adds_any(whole: Seen) -> None:
    context = whole.result.context
    assert context == whole.steps[-1].context
    (tested,) = whole.result.attempts["test"]
    for move in moves(tested):
        entry = context.get(move[SHOWN])
        assert (entry.section, entry.data["kind"]) == (f"pool {move['agent']}", move["kind"])
    turns = [call.prompt.turns[-1] for call in whole.calls("agent") if call.prompt.turns]
    assert len(turns) == len(moves(tested))
    # The judge of parts is only for learning.
    assert not any(re.search(r"essage 80", call.text) for call in whole.calls("judge"))
    # No experience is shown while learning.
    assert not any(move[SHOWN] for move in moves(whole.steps[1].attempts[0]))


@pytest.mark.slow
@pytest.mark.parametrize("setting", ["while_learning", "online"])
def test_experience_is_shown_in_a_stream_and_on_request_while_learning(tmp_path: Path, setting: str) -> None:
    seen = mael(tmp_path, messages(1, 3), {setting: True})
    assert all(move[SHOWN] for move in moves(seen.steps[1].attempts[0]))


@pytest.mark.slow
@pytest.mark.parametrize(("experience", "traces"), [("task", 1), ("none", 0)])
def test_by_task_one_whole_trace_is_shown_and_by_none_nothing(tmp_path: Path, experience: str, traces: int) -> None:
    seen = mael(tmp_path, messages(1, 3), {"experience": experience}, test=messages(80))
    assert len(seen.result.context) == 2 * 9
    (tested,) = seen.result.attempts["test"]
    shown = [move[SHOWN] for move in moves(tested)]
    assert all(bool(id) is bool(traces) for id in shown)
    assert len({seen.result.context.get(id).data["trace"] for id in shown if id}) == traces


def as_shown(call: Any) -> Any:
    """An agent that repeats the experience that it is shown as an example to follow, and else is right."""
    shown = [turn.assistant for turn in call.prompt.turns if "an example to avoid" not in turn.user]
    return {"answer": shown[-1]} if shown else knowing(call)


def test_a_repeated_solution_is_a_vote_and_failures_in_a_row_retire_experience(tmp_path: Path) -> None:
    """The answer to a question changes after 30 tasks. Then each failure is experience to avoid."""
    tasks = [replace(message(1), id=f"s{n}", target=word(1 if n < 30 else 2)) for n in range(36)]
    seen = mael(tmp_path, tasks, {"online": True, "depth": 0}, rules={"agent": as_shown})
    assert [report.attempts[0].score.value for report in seen.steps] == [1.0] * 30 + [0.0] * 6
    old, *failures = seen.result.context
    assert (old.text, old.retired, old.helpful, old.uses) == (word(1), True, 29, 29 + old.harmful)
    assert 2 <= old.failing == old.harmful <= 4
    assert [(entry.data["reward"], entry.retired) for entry in failures] == [(0.0, False)] * 6


@pytest.mark.parametrize(("reward", "shown"), [("high", 0.9), slow("low", 0.5)])
def test_retrieval_weighs_similarity_against_reward(tmp_path: Path, reward: str, shown: float) -> None:
    """With α = 0 only the reward decides: agent2 solved its half as 0.5 first, and then as 0.9."""
    seen = mael(tmp_path, ONE, {"alpha": 0.0, "reward": reward}, test=messages(80))
    (tested,) = seen.result.attempts["test"]
    solve = next(move for move in moves(tested) if (move["kind"], move["agent"]) == ("solve", "agent2"))
    assert seen.result.context.get(solve[SHOWN]).data["reward"] == shown


def test_a_team_from_a_file_starts_at_its_centre_and_divides_among_neighbours(tmp_path: Path) -> None:
    def team(*names: str, links: list[list[str]]) -> dict[str, str]:
        """The setting for a team in a file."""
        agents = [{"name": name, "role": f"You are {name}."} for name in names]
        (tmp_path / "team.json").write_text(json.dumps({"agents": agents, "links": links}), encoding="utf-8")
        return {"topology": str(tmp_path / "team.json")}

    trio = team("coder", "lead", "tester", links=[["lead", "coder"], ["lead", "tester"]])
    by_kind = {(kind, agent) for agent, kind, _ in rewards(mael(tmp_path, settings=trio).result.context)}
    assert {("judge", "lead"), ("decompose", "lead"), ("aggregate", "lead")} <= by_kind
    assert {agent for kind, agent in by_kind if kind == "solve"} == {"coder", "tester"}
    for wrong in ([], [["lead", "missing"]]):
        with refused("team.invalid"):
            mael(tmp_path / "wrong", settings=team("lead", "coder", links=wrong))


@pytest.mark.slow
def test_without_labels_the_whole_is_judged_too(tmp_path: Path) -> None:
    seen = mael(tmp_path, labels=False)
    assert seen.roles["judge"] == 4
    assert not any(word(1) in call.text for call in seen.model.calls if asks(call, "alone"))
