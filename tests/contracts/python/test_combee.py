"""Combee: learning from many traces at once, by map, shuffle and reduce (METHODS, section 2)."""

from __future__ import annotations

from collections import Counter
from math import isqrt
from pathlib import Path
from typing import Any

import pytest
from python_kit import Seen, learned, playbook, slow
from python_roles import add, asks, change, citing, ignorant, insights_offered, model, reflecting
from python_tasks import messages, number
from runs import spelled

ONCE: dict[str, Any] = {"rounds": 0, "dedupe": "never"}


def insight(n: int) -> str:
    """An insight that differs for each message."""
    return f"If it is {spelled(n)}, answer {spelled(n)}."


def combee(folder: Path, tasks: int, settings: dict[str, Any] | None = None, name: str = "combee", **how: Any) -> Seen:
    """One batch of failures, each with a different insight."""
    rules = {
        "agent": ignorant, "reflector": lambda call: reflecting(insight(number(call))), **how.pop("rules", {}),
    }  # fmt: skip
    settings = {**ONCE, "batch": max(tasks, 1), **(settings or {})}
    return learned(folder, messages(*range(tasks)), model(**rules), name, settings, **how)


def read(seen: Seen) -> list[list[str]]:
    """The insights that each call of the curator decided about."""
    return [[text for _, text in insights_offered(call)] for call in seen.calls("curator")]


@pytest.mark.parametrize("n", [9, slow(40)])
def test_reflections_are_copied_twice_and_dealt_into_the_square_root_of_groups(tmp_path: Path, n: int) -> None:
    """Level 1 reads each group in one call; code joins the deltas, so level 2 costs no call and loses no insight."""
    seen, same, other = (combee(tmp_path / name, n, seed=seed) for name, seed in (("a", 1), ("b", 1), ("c", 2)))
    groups = read(seen)
    assert len(groups) == isqrt(n)
    assert Counter(text for group in groups for text in group) == {insight(i): 2 for i in range(n)}
    # Stratified: no copy is in the group of its original.
    assert all(len(set(group)) == len(group) for group in groups)
    assert max(map(len, groups)) - min(map(len, groups)) <= 2
    assert sorted(seen.texts) == sorted(insight(i) for i in range(n))
    assert seen.result.errors == {}
    assert seen.roles == {"agent": n, "reflector": n, "curator": isqrt(n)}
    assert [*map(set, groups)] == [*map(set, read(same))] != [*map(set, read(other))]


def test_fewer_than_four_reflections_are_one_plain_update(tmp_path: Path) -> None:
    assert [sorted(group) for group in read(combee(tmp_path, 3))] == [sorted(insight(i) for i in range(3))]


@pytest.mark.parametrize(
    "settings", [{"copies": 4}, *map(slow, ({}, {"join": "model"}, {"exact": True}, {"asynchronous": True}))], ids=str
)
def test_votes_count_once_a_reflection_for_any_number_of_copies(tmp_path: Path, settings: dict[str, Any]) -> None:
    rules = {
        "agent": citing("e0"), "reflector": lambda call: reflecting(insight(number(call)), tags={"e0": "helpful"}),
    }  # fmt: skip
    seen = combee(tmp_path, 9, settings, rules=rules, seed_context=playbook(tmp_path, "If in doubt, guess."))
    rule = seen.result.context.get("e0")
    assert (rule.helpful, rule.harmful, rule.uses) == (9, 0, 9)


@pytest.mark.slow
def test_the_paper_s_own_form_shuffles_blindly_and_joins_by_the_model(tmp_path: Path) -> None:
    *level1, level2 = read(combee(tmp_path, 16, {"exact": True}))
    assert [len(group) for group in level1] == [8] * 4
    assert any(len(set(group)) < len(group) for group in level1)
    assert len(level2) == 16


@pytest.mark.slow
def test_the_model_joins_level_by_level_within_the_fan_in(tmp_path: Path) -> None:
    def one(call: Any) -> Any:
        """Puts all insights into one entry."""
        offered = insights_offered(call)
        return {"changes": [add(*(n for n, _ in offered), text=" ".join(text for _, text in offered))]}

    settings = {"join": "model", "fan_in": 4, "copies": 1, "accounting": False}
    seen = combee(tmp_path, 16, settings, rules={"curator": one})
    assert [len(group) for group in read(seen)] == [4] * 4 + [4]
    (text,) = seen.texts
    assert all(insight(n) in text for n in range(16))


def first_only(call: Any) -> Any:
    """An overloaded curator: it keeps the first insight and omits the others."""
    return {"changes": [add(1)]}


def test_no_insight_is_lost_silently(tmp_path: Path) -> None:
    """A curator is shown omitted insights again, in smaller groups; the still omitted are kept word for word."""
    seen = combee(tmp_path, 36, rules={"curator": first_only})
    assert sorted(seen.texts) == sorted(insight(n) for n in range(36))
    assert seen.result.errors["repeated_lessons"] > 0
    assert seen.result.errors["kept_lessons"] > 0
    sizes = [len(group) for group in read(seen)]
    assert max(sizes[6:]) <= 10 < min(sizes[:6]) == 12
    assert "dropped_lessons" not in seen.result.errors


@pytest.mark.parametrize(
    "settings", [{"uncovered": "drop", "again": 0}, *map(slow, ({"accounting": False}, {"exact": True}))], ids=str
)
def test_dropped_insights_are_counted_and_named(tmp_path: Path, settings: dict[str, Any]) -> None:
    seen = combee(tmp_path, 16, settings, rules={"curator": first_only})
    dropped = [each for each in seen.steps[0].resolutions if not each.entry]
    assert seen.result.errors["dropped_lessons"] == len(dropped) == 16 - len(seen.texts) > 0
    assert all(each.reason for each in dropped)


def test_edits_in_conflict_go_to_the_model_together(tmp_path: Path) -> None:
    def into_one(call: Any) -> Any:
        """Each group gives the one entry another text."""
        numbers, texts = zip(*insights_offered(call), strict=True)
        return {"changes": [change("UPDATE", "e0", insights=numbers, text=" ".join(texts))]}

    seen = combee(tmp_path, 16, rules={"curator": into_one}, seed_context=playbook(tmp_path, "If in doubt, guess."))
    assert seen.result.errors["conflicting_edits"] == 4
    assert len(seen.calls("curator")) == 4 + 1
    assert len(seen.texts) == 1


@pytest.mark.slow
def test_the_batch_size_is_searched_in_steps_that_learn(tmp_path: Path) -> None:
    """10, 20, … up to a quarter of the tasks are each tried in one step; no step is discarded."""
    seen = combee(tmp_path, 80, {"batch": "auto", "curator": "append", "slope": 0.5})
    sizes = [len(report.batch.tasks) for report in seen.steps]
    assert sizes[:2] == [10, 20]
    assert sum(sizes) == 80
    assert all(report.batch.data["why"] for report in seen.steps)
    assert seen.steps[-1].batch.data["fit"]["tau"] == 0.5
    assert len(seen.texts) == 80


# ---- its baselines


def test_naive_asks_one_curator_for_all_and_loses_omitted_insights(tmp_path: Path) -> None:
    seen = combee(tmp_path, 20, name="naive", rules={"curator": first_only})
    assert [len(group) for group in read(seen)] == [20]
    assert len(seen.texts) == 1
    assert seen.result.errors["dropped_lessons"] == 19


@pytest.mark.parametrize(("settings", "shown"), [slow({}, 4), ({"k": 7}, 7)])
def test_top_k_shows_the_curator_one_of_each_cluster(tmp_path: Path, settings: dict[str, Any], shown: int) -> None:
    seen = combee(tmp_path, 20, settings, "top_k")
    assert [len(group) for group in read(seen)] == [shown]
    assert len(seen.texts) == shown
    assert seen.result.errors["lessons_outside_centers"] == 20 - shown


@pytest.mark.slow
def test_summarized_shows_the_curator_the_points_of_one_summary(tmp_path: Path) -> None:
    def summing(call: Any) -> Any:
        if asks(call, "points"):
            return {"points": ["Answer by the name.", "Wait for the rest."]}
        return {"changes": [add(n) for n, _ in insights_offered(call)]}

    seen = combee(tmp_path, 9, name="summarized", rules={"curator": summing})
    summary, curation = seen.calls("curator")
    assert all(insight(n) in summary.text for n in range(9))
    assert not any(insight(n) in curation.text for n in range(9))
    assert seen.texts == ["Answer by the name.", "Wait for the rest."]
    assert all({f"task:t{n}" for n in range(9)} <= set(entry.sources) for entry in seen.result.context)
