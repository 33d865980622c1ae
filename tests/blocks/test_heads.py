"""Three heads about one failure, what their attribution decides, and one call about several attempts."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers import make_tasks
from scripts import added, insight, learned, number, right, scripted, shape, wrong

from practicum.blocks.reflect.heads import ATTRIBUTED, possible
from practicum.blocks.sample.replay import replay_buffer, task_results
from practicum.core.context import seed_context
from practicum.core.errors import ProviderError
from practicum.core.types import Feedback, Recorded, Rollout, Score, Task, Trace
from practicum.models.scripted import Call

RULE = seed_context([("rules", "If in doubt, guess.")])
HEADS: dict[str, Any] = {"heads": True, "rounds": 0}


def citing(call: Call) -> dict[str, Any]:
    return {"answer": "wrong", "used": ["e0"]}


def diagnosed(kind: str, **more: Any) -> Any:
    """Heads that say this of every failure, in full."""
    tags = [{"id": "e0", "verdict": "harmful"}]
    return lambda call: {
        "attribution": kind, "cause": "it guessed", "gap": "no rule for it", "kind": "a message", "tags": tags,
        **insight(call), **more,
    }  # fmt: skip


# ---- three calls or one


def test_three_heads_read_the_same_case_at_once(tmp_path: Path) -> None:
    run = learned(tmp_path, scripted(citing, diagnosed("actionable_gap")), 1, HEADS, seed_context=RULE)
    calls = run.calls("reflector")
    assert sorted(map(shape, calls)) == ["Attribution", "CoverageGap", "RootCause"]
    assert len({call.prompt.user for call in calls}) == 1
    assert len({call.prompt.system for call in calls}) == 3
    assert [call.role for call in run.model.calls] == ["agent", "reflector", "reflector", "reflector", "curator"]
    (lesson,) = run.reports[0].lessons
    assert lesson.text == "If it is message 0, answer word0."
    assert lesson.data == {
        "attribution": "actionable_gap", "cause": "it guessed", "gap": "no rule for it", "kind": "a message",
    }  # fmt: skip
    assert lesson.votes == {"e0": "harmful"}


GAP, CHANCE, HOPELESS = "actionable_gap", "execution_variance", "intractable"


@pytest.mark.parametrize("head_calls", ["three", "one"])
@pytest.mark.parametrize(
    ("agent", "settings", "kinds"),
    [
        (wrong, {}, [GAP, HOPELESS]),
        (citing, {}, [GAP, CHANCE, HOPELESS]),
        (lambda call: right(call) if call.options.temperature else "wrong", {"group": 2}, [GAP, CHANCE]),
    ],
    ids=["no rule", "a rule", "a run that succeeded"],
)
def test_only_attributions_that_the_case_allows_are_in_the_schema(
    tmp_path: Path, agent: Any, settings: dict[str, Any], kinds: list[str], head_calls: str
) -> None:
    how = {**HEADS, **settings, "head_calls": head_calls}
    run = learned(tmp_path, scripted(agent, diagnosed(GAP)), 1, how, seed_context=RULE)
    asked = [call.schema["properties"] for call in run.calls("reflector") if call.schema is not None]
    assert [form["attribution"]["enum"] for form in asked if "attribution" in form] == [kinds]


@pytest.mark.parametrize(
    ("rule", "target", "chance"),
    [
        ("If a card is lost, answer Drift.", "Drift", True),
        ("If a card is lost, answer Cobalt.", "Drift", False),
        ("If a card is lost, answer Cobalt, not Drift.", "Drift", True),
        ("Read it twice.", "Drift", True),
        ("If a card is lost, answer Cobalt.", None, True),
        ("If a card is lost, answer Basalt.", None, False),
        ("Read it twice.", None, True),
    ],
)  # fmt: skip
def test_a_rule_was_not_followed_only_if_it_names_the_right_choice(rule: str, target: str | None, chance: bool) -> None:
    """The agent answered Basalt. Without a label, a rule for the answer that was given was followed."""
    attempt = Rollout(
        Task("t", "My card is gone."), Trace("Basalt", used=("e0",)), None, Feedback(False, "wrong", target), "p"
    )
    kinds = possible(attempt, seed_context([("rules", rule)]), ("Basalt", "Cobalt", "Drift"))
    assert kinds == ((GAP, CHANCE, HOPELESS) if chance else (GAP, HOPELESS))
    assert possible(attempt, seed_context([("rules", rule)])) == (GAP, CHANCE, HOPELESS)


def test_one_call_for_all_heads_gives_the_same_lessons(tmp_path: Path) -> None:
    three = learned(tmp_path / "three", scripted(citing, diagnosed("actionable_gap")), 2, HEADS, seed_context=RULE)
    one = learned(
        tmp_path / "one", scripted(citing, diagnosed("actionable_gap")), 2, {**HEADS, "head_calls": "one"},
        seed_context=RULE,
    )  # fmt: skip
    assert list(map(shape, one.calls("reflector"))) == ["Diagnosis"] * 2
    assert [x.data for r in one.reports for x in r.lessons] == [x.data for r in three.reports for x in r.lessons]
    assert one.texts == three.texts
    assert {call.prompt.user for call in one.calls("reflector")} == {
        call.prompt.user for call in three.calls("reflector")
    }
    words = [call.prompt.system for call in three.calls("reflector")[:3]]
    # What every head is told stands in the one call once.
    shared = words[0].split("\n\n")[0]
    (system,) = {call.prompt.system for call in one.calls("reflector")}
    assert system.count(shared) == 1
    assert all(text.removeprefix(shared).strip() in system for text in words)


def test_the_curator_reads_the_cause(tmp_path: Path) -> None:
    run = learned(tmp_path, scripted(wrong, diagnosed("actionable_gap")), 1, HEADS)
    assert "Lesson 1: If it is message 0, answer word0.\n  why: it guessed" in run.prompts("curator")[0]


def test_a_success_is_reflected_on_by_the_plain_reflector_or_not_at_all(tmp_path: Path) -> None:
    all_ = learned(tmp_path / "all", scripted(right), 1, HEADS)
    failures = learned(tmp_path / "failures", scripted(right), 1, {**HEADS, "learn_from": "failures"})
    assert list(map(shape, all_.calls("reflector"))) == ["Review"]
    assert failures.calls("reflector") == []


# ---- what the attribution decides


@pytest.mark.parametrize("calls", ["three", "one"])
@pytest.mark.parametrize("kind", [CHANCE, HOPELESS])
def test_failures_by_chance_and_intractable_ones_edit_nothing_and_are_counted(
    tmp_path: Path, kind: str, calls: str
) -> None:
    """Nor do they wear a rule down: three such failures in a row leave what they relied on."""
    run = learned(
        tmp_path, scripted(citing, diagnosed(kind)), 4, {**HEADS, "head_calls": calls, "harmful": 3}, seed_context=RULE
    )
    assert run.texts == ["If in doubt, guess."]
    assert run.calls("curator") == []
    assert {a.edit.op for r in run.reports for a in r.applied} == {"vote"}
    rule = run.result.context.get("e0")
    assert rule is not None
    assert (rule.helpful, rule.harmful, rule.uses) == (0, 0, 4)
    assert run.result.errors[ATTRIBUTED[kind]] == 4


def test_only_gaps_reach_the_curator(tmp_path: Path) -> None:
    kinds = ("actionable_gap", "execution_variance", "intractable", "actionable_gap")

    def mixed(call: Call) -> dict[str, Any]:
        return dict(diagnosed(kinds[number(call)])(call))

    run = learned(tmp_path, scripted(citing, mixed), 4, {**HEADS, "batch": 4, "harmful": 0}, seed_context=RULE)
    (prompt,) = run.prompts("curator")
    assert set(re.findall(r"Lesson \d+: .* message (\d)", prompt)) == {"0", "3"}
    assert sorted(run.texts[1:]) == ["If it is message 0, answer word0.", "If it is message 3, answer word3."]
    rule = run.result.context.get("e0")
    assert rule is not None
    assert (rule.harmful, rule.uses) == (2, 4)
    found = {kind: run.result.errors[counter] for kind, counter in ATTRIBUTED.items()}
    assert found == {GAP: 2, CHANCE: 1, HOPELESS: 1}


@pytest.mark.parametrize("head", ["Attribution", "RootCause", "CoverageGap"])
@pytest.mark.parametrize("trouble", ["Sure!", ProviderError("gone")], ids=["bad JSON", "provider"])
def test_a_head_that_fails_loses_the_reflection_and_is_counted(
    tmp_path: Path, head: str, trouble: str | Exception
) -> None:
    def failing(call: Call) -> Any:
        broken = shape(call) == head and number(call) == 0
        return trouble if broken else diagnosed("actionable_gap")(call)

    run = learned(tmp_path, scripted(wrong, failing), 2, {**HEADS, "batch": 2})
    assert run.texts == ["If it is message 1, answer word1."]
    assert run.result.errors["lost_reflections"] == 1
    assert len(run.calls("reflector")) == (8 if isinstance(trouble, str) else 6)


# ---- several attempts in one call


def each_case(call: Call, leave_out: tuple[int, ...] = ()) -> dict[str, Any]:
    """A reflection on each case, by the message it is about."""
    found = re.findall(r"^# Case (\d+)\n.*?^Task: Message (\d+)", call.prompt.user, re.MULTILINE | re.DOTALL)
    return {
        "reflections": [
            {"attempt": int(n), "kind": "", "correction": "", "diagnosis": "so it was", "tags": [],
             "insight": f"If it is message {about}, answer word{about}."}
            for n, about in found if int(about) not in leave_out
        ]
    }  # fmt: skip


TOGETHER: dict[str, Any] = {"reflection": "batched", "batch": 4}


def test_one_call_reads_all_attempts_of_a_step_and_returns_a_reflection_on_each(tmp_path: Path) -> None:
    run = learned(tmp_path, scripted(wrong, each_case), 8, TOGETHER)
    assert list(map(shape, run.calls("reflector"))) == ["Reflections"] * 2
    assert all(call.prompt.user.count("# The attempt") == 4 for call in run.calls("reflector"))
    assert len(run.calls("agent")) == 8
    assert sorted(run.texts) == [f"If it is message {n}, answer word{n}." for n in range(8)]
    sources = [{s for s in e.sources if s.startswith("task:")} for e in run.result.context]
    # What was said with four attempts in view comes from all four.
    assert all(len(found) == 4 for found in sources)


def test_an_attempt_without_a_reflection_votes_by_its_outcome_and_is_counted(tmp_path: Path) -> None:
    def forgetful(call: Call) -> dict[str, Any]:
        return {"reflections": [*each_case(call, (1, 2))["reflections"], {**FOREIGN, "attempt": 17}]}

    run = learned(tmp_path, scripted(citing, forgetful), 4, {**TOGETHER, "harmful": 0}, seed_context=RULE)
    assert len(run.texts) == 3
    assert run.result.errors["unreflected_attempts"] == 2
    rule = run.result.context.get("e0")
    assert rule is not None
    assert (rule.harmful, rule.uses) == (2, 4)


def test_an_attempt_without_a_reflection_is_not_evicted_from_the_replay_buffer(tmp_path: Path) -> None:
    run = learned(tmp_path, scripted(wrong, lambda call: each_case(call, (1, 2))), 4, TOGETHER)
    (report,) = run.reports
    failures = {
        row.task: row.failures
        for row in replay_buffer(task_results(report.step, report.rollouts, report.lessons)).values()
    }
    assert failures == {"t0": 1, "t1": 0, "t2": 0, "t3": 1}


FOREIGN = {"kind": "", "correction": "", "diagnosis": "", "tags": [], "insight": "If it is nobody's, drop it."}


def test_with_groups_each_case_has_its_contrast(tmp_path: Path) -> None:
    def half(call: Call) -> str:
        return right(call) if call.options.temperature else "wrong"

    run = learned(tmp_path, scripted(half, each_case), 4, {**TOGETHER, "group": 2, "twin": True})
    (prompt,) = run.prompts("reflector")
    assert prompt.count("# Another attempt at it under the same rules, which succeeded") == 4
    assert prompt.count("# The agent's notes, from another run of the same task") == 4


def test_cases_that_are_too_long_together_are_all_cut_and_none_is_left_out(tmp_path: Path) -> None:
    traces = [Trace("wrong", reasoning=f"start {n} " + "word " * 3_000 + f"end {n}") for n in range(3)]
    tasks = [replace(t, recorded=Recorded(x, Score(0.0, False))) for t, x in zip(make_tasks(3), traces, strict=True)]
    run = learned(tmp_path, scripted(wrong, each_case, window=8192), tasks, {**TOGETHER, "batch": 3}, from_traces=True)
    (prompt,) = run.prompts("reflector")
    for n in range(3):
        case = prompt.partition(f"# Case {n + 1}\n")[2].partition("\n\n# Case")[0]
        assert case.startswith("# The attempt\nTask: Message")
        assert re.search(r"start (\d) word.*left out here.* end \1\nAnswer: wrong\nFeedback: ", case, re.DOTALL)
    assert run.result.errors["shortened_prompts"] == 1
    assert len(run.texts) == 3


def test_successes_are_not_in_the_call_if_only_failures_are_learned_from(tmp_path: Path) -> None:
    def some(call: Call) -> dict[str, Any]:
        return {"answer": right(call) if number(call) < 2 else "wrong", "used": ["e0"]}

    settings = {**TOGETHER, "learn_from": "failures", "harmful": 0}
    run = learned(tmp_path, scripted(some, each_case), 4, settings, seed_context=RULE)
    (prompt,) = run.prompts("reflector")
    assert set(re.findall(r"^Task: Message (\d)", prompt, re.MULTILINE)) == {"2", "3"}
    rule = run.result.context.get("e0")
    assert rule is not None
    assert (rule.helpful, rule.uses) == (2, 4)
    none = learned(tmp_path / "none", scripted(right, each_case), 4, settings)
    assert none.calls("reflector") == []


def test_no_more_failures_than_the_batch_size_are_read_together(tmp_path: Path) -> None:
    settings = {"reflection": "batched", "batch": 2, "rollouts": 6, "learn_from": "failures"}
    run = learned(tmp_path, scripted(wrong, each_case), 6, settings)
    (prompt,) = run.prompts("reflector")
    assert prompt.count("# Case ") == 2
    assert len(run.texts) == 2


def test_after_a_failed_call_all_attempts_vote_by_their_outcomes(tmp_path: Path) -> None:
    run = learned(
        tmp_path, scripted(citing, lambda call: "Sure!", added), 4, {**TOGETHER, "harmful": 0}, seed_context=RULE
    )
    assert run.texts == ["If in doubt, guess."]
    assert run.result.errors["lost_reflections"] == 4
    rule = run.result.context.get("e0")
    assert rule is not None
    assert (rule.harmful, rule.uses) == (4, 4)
