"""Rewards of a network's steps (MAEL, section 2.2), and the experiences they make."""

from __future__ import annotations

from typing import Any

import pytest

from practicum.blocks.act.network import Experience
from practicum.blocks.reflect.rewards import Rewards


def move(kind: str, task: str = "", round: int = 0, *again: str, parts: int = 2) -> dict[str, Any]:
    """A move; a plan has so many parts, none if it was discarded."""
    to = ["b"] * parts if kind == "decompose" else []
    return {"kind": kind, "task": task, "round": round, "again": again, "agent": "a", "action": "", "to": to}


ALONE = [move("judge"), move("solve")]
DIVIDED = [
    move("judge"), move("decompose"),
    move("solve", "1"), move("critique", "1", 1), move("solve", "1", 1), move("critique", "1", 2),
    move("solve", "2"), move("critique", "2", 1),
    move("aggregate"),
]  # fmt: skip
QUALITIES = {2: 0.5, 4: 0.9, 6: 0.3, 8: 0.8}


def test_a_critique_that_made_the_solution_worse_has_reward_zero() -> None:
    assert Rewards(DIVIDED, {**QUALITIES, 4: 0.1}).of(3) == 0.0


def test_an_unknown_quality_gives_no_reward_and_leaves_every_mean_of_it_unknown() -> None:
    rewards = Rewards(DIVIDED, {**QUALITIES, 6: None})
    assert [rewards.of(n) for n in (6, 1, 0, 2)] == [None, None, None, 0.5]
    # The refined solution counts, not the one before it.
    assert Rewards(DIVIDED, {**QUALITIES, 4: None}).of(1) is None
    assert Rewards(DIVIDED, {8: None}).of(8) is None
    assert Rewards(ALONE, {1: None}).of(0) is None


@pytest.mark.parametrize(
    ("solved", "mean"), [({}, 0.0), ({1: 0.9}, 0.45), ({2: 0.9}, 0.45), ({1: 0.9, 2: 0.5}, 0.7)], ids=str
)
def test_an_unsolved_part_counts_zero_in_the_mean_of_all_parts(solved: dict[int, float], mean: float) -> None:
    moves = [move("judge"), move("decompose"), *(move("solve", str(n)) for n in solved), move("aggregate")]
    rewards = Rewards(moves, {**dict(enumerate(solved.values(), 2)), len(moves) - 1: 1.0})
    assert [rewards.of(n) for n in (0, 1)] == [mean, mean]


def test_parts_of_parts_count_for_their_own_task_only() -> None:
    deep = [
        move("judge"), move("decompose"),
        move("judge", "1"), move("decompose", "1"), move("solve", "1.1"), move("solve", "1.2"), move("aggregate", "1"),
        move("solve", "2"), move("aggregate"),
    ]  # fmt: skip
    rewards = Rewards(deep, {4: 0.2, 5: 0.4, 6: 1.0, 7: 0.0, 8: 0.5})
    assert rewards.of(3) == pytest.approx(0.3)
    assert rewards.of(1) == pytest.approx(0.5)


def test_each_try_at_a_part_that_was_handed_back_is_rewarded_by_its_own_solutions() -> None:
    """Who got part 1 first divided it and could not put it together; the other divided it too, and could."""
    tried = [
        move("decompose", parts=1),
        move("judge", "1"), move("decompose", "1"), move("solve", "1.1"), move("solve", "1.2"),
        move("judge", "1", 0, "1"), move("decompose", "1", 0, "1"), move("solve", "1.1", 0, "1"),
        move("solve", "1.2", 0, "1", "1.2"), move("aggregate", "1", 0, "1"),
        move("critique", "1", 1, "1"), move("solve", "1", 1, "1"), move("aggregate"),
    ]  # fmt: skip
    rewards = Rewards(tried, {3: 0.1, 4: 0.2, 7: 0.8, 8: 0.9, 9: 0.5, 11: 0.7, 12: 1.0})
    found = {n: rewards.of(n) for n in (0, 1, 2, 5, 6, 10)}
    assert found == pytest.approx({0: 0.7, 1: 0.15, 2: 0.15, 5: 0.85, 6: 0.85, 10: 0.2})


def test_the_retrieval_score_of_the_paper() -> None:
    assert Experience(alpha=0.25).score(0.8, 0.4) == pytest.approx(0.25 * 0.8 + 0.75 * 0.4)
    assert Experience(similarity="low", reward="low").score(0.8, 0.4) == pytest.approx(0.5 * 0.2 + 0.5 * 0.6)
    assert Experience(alpha=1).score(0.8, 0.4) == 0.8
