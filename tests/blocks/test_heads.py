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
ALIKE: dict[str, Any] = {"batch": 1, "curator": "edits", "learn_from": "all"}
"""Settings with which small models learn as others do."""


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


def case(call: Call) -> tuple[str, str]:
    """What a head reads before what it is told, in the order of the prompt."""
    if call.prompt.turns:
        return call.prompt.system.partition("\n\n")[2].partition("\n\n")[0], call.prompt.user
    return call.prompt.head, call.prompt.user.partition("\n\n# What to say of it\n")[0]


def told(call: Call) -> str:
    """What a head is told, beside what all heads are told."""
    if call.prompt.turns:
        return call.prompt.system.partition("\n\n")[2].partition("\n\n")[2]
    return call.prompt.user.partition("\n\n# What to say of it\n")[2]


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
def test_small_models_are_given_only_attributions_that_the_case_allows(
    tmp_path: Path, agent: Any, settings: dict[str, Any], kinds: list[str], head_calls: str
) -> None:
    how = {**HEADS, **settings, "head_calls": head_calls}
    run = learned(tmp_path, scripted(agent, diagnosed(GAP)), 1, how, seed_context=RULE, profile="small")
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


@pytest.mark.parametrize("profile", ["full", "small"])
def test_one_call_for_all_heads_gives_the_same_lessons(tmp_path: Path, profile: str) -> None:
    three, one = (
        learned(
            tmp_path / calls, scripted(citing, diagnosed("actionable_gap")), 2,
            {**HEADS, **ALIKE, "head_calls": calls}, seed_context=RULE, profile=profile,
        )
        for calls in ("three", "one")
    )  # fmt: skip
    assert list(map(shape, one.calls("reflector"))) == ["Diagnosis" if profile == "full" else "ShortDiagnosis"] * 2
    assert [x.data for r in one.reports for x in r.lessons] == [x.data for r in three.reports for x in r.lessons]
    assert one.texts == three.texts
    # What every head is told stands in the one call once, and then what each is told.
    assert set(map(case, one.calls("reflector"))) == set(map(case, three.calls("reflector")))
    words = sorted(set(map(told, three.calls("reflector"))))
    (whole,) = set(map(told, one.calls("reflector")))
    assert sorted(filter(None, re.split("|".join(map(re.escape, words)), f"{whole}"))) == ["\n\n"] * 2


@pytest.mark.parametrize(
    ("profile", "text"),
    [
        ("small", "Lesson 1: If it is message 0, answer word0.\n  why: it guessed"),
        (
            "full",
            "# Reflection 1\n"
            "Feedback on the attempt: The answer is wrong. The right answer is: word0\n"
            "Attribution: actionable_gap\nRoot cause: it guessed\nGap in the playbook: no rule for it\n"
            "Insight 1 (strategies): If it is message 0, answer word0.",
        ),
    ],
)
def test_the_curator_reads_the_cause(tmp_path: Path, profile: str, text: str) -> None:
    model = scripted(wrong, diagnosed("actionable_gap"))
    run = learned(tmp_path, model, 1, {**HEADS, **ALIKE}, profile=profile)
    assert text in run.prompts("curator")[0]


def test_a_head_reads_entries_that_the_attempt_did_not_cite(tmp_path: Path) -> None:
    """Whether the playbook has a gap cannot be said without the entry that was passed over."""
    passed_over = "If a message is odd:\n1. count its words\n2. answer the last one"
    seed = seed_context([("rules", "If in doubt, guess."), ("strategies", passed_over)])
    run = learned(tmp_path, scripted(citing, diagnosed("actionable_gap")), 1, HEADS, seed_context=seed)
    (gap,) = [call for call in run.calls("reflector") if shape(call) == "CoverageGap"]
    assert "\n".join(gap.prompt.pages[1:-1]) == (
        "[e0] (rules) If in doubt, guess.\n"
        "[e1] (strategies)\n  If a message is odd:\n  1. count its words\n  2. answer the last one"
    )
    assert "# Entries that the agent says it used\n[e0]\n\n" in gap.prompt.user


def test_a_success_is_reflected_on_by_the_plain_reflector_or_not_at_all(tmp_path: Path) -> None:
    all_ = learned(tmp_path / "all", scripted(right), 1, HEADS)
    small = learned(tmp_path / "small", scripted(right), 1, {**HEADS, **ALIKE}, profile="small")
    failures = learned(tmp_path / "failures", scripted(right), 1, {**HEADS, "learn_from": "failures"})
    assert list(map(shape, all_.calls("reflector"))) == ["Reflection"]
    assert list(map(shape, small.calls("reflector"))) == ["ShortReview"]
    assert failures.calls("reflector") == []


# ---- what the attribution decides


GATED = {**HEADS, "gated_heads": True}


def mixed(call: Call) -> dict[str, Any]:
    """Two gaps, a failure by chance, and one that no guidance could have prevented."""
    return dict(diagnosed((GAP, CHANCE, HOPELESS, GAP)[number(call)])(call))


@pytest.mark.parametrize("profile", ["full", "small"])
def test_only_gaps_reach_the_curator(tmp_path: Path, profile: str) -> None:
    settings = {**GATED, **ALIKE, "batch": 4, "harmful": 0}
    run = learned(tmp_path, scripted(citing, mixed), 4, settings, seed_context=RULE, profile=profile)
    (prompt,) = run.prompts("curator")
    assert set(re.findall(r"(?:Lesson|Insight) \d+(?: \(\w+\))?: .* message (\d)", prompt)) == {"0", "3"}
    assert "word1" not in prompt
    assert CHANCE not in prompt
    assert sorted(run.texts[1:]) == ["If it is message 0, answer word0.", "If it is message 3, answer word3."]
    rule = run.result.context.get("e0")
    assert rule is not None
    assert (rule.harmful, rule.uses) == (2, 4)
    found = {kind: run.result.errors[counter] for kind, counter in ATTRIBUTED.items()}
    assert found == {GAP: 2, CHANCE: 1, HOPELESS: 1}


def test_without_the_gate_the_curator_reads_the_attribution_and_decides(tmp_path: Path) -> None:
    """It adds what the failure by chance taught, and leaves out the one that no guidance could have prevented."""

    def deciding(call: Call) -> dict[str, Any]:
        found = re.findall(r"^Attribution: (\w+)$.*?^Insight (\d+)", call.prompt.user, re.MULTILINE | re.DOTALL)
        return {"decisions": [{"lesson": int(n), "op": "ADD"} for kind, n in found if kind != HOPELESS]}

    settings = {**HEADS, "batch": 4, "harmful": 2}
    run = learned(tmp_path, scripted(citing, mixed, deciding), 4, settings, seed_context=RULE)
    (prompt,) = run.prompts("curator")
    assert sorted(re.findall(r"^Attribution: (\w+)$", prompt, re.MULTILINE)) == sorted((GAP, GAP, CHANCE, HOPELESS))
    # The two gaps say that the rule harmed, which is enough to delete it; the others do not.
    assert [x.votes for x in run.reports[0].lessons].count({"e0": "neutral"}) == 2
    assert sorted(run.texts) == [f"If it is message {n}, answer word{n}." for n in (0, 1, 3)]
    assert run.result.errors["dropped_lessons"] == 1


@pytest.mark.parametrize("head", ["Attribution", "RootCause", "CoverageGap"])
@pytest.mark.parametrize("trouble", ["Sure!", ProviderError("provider.failed", "gone")], ids=["bad JSON", "provider"])
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


def test_an_attempt_without_a_reflection_votes_against_no_entry_and_is_counted(tmp_path: Path) -> None:
    """Four attempts used a rule and failed. Two are reflected on, and the rule is found to have harmed."""

    def forgetful(call: Call) -> dict[str, Any]:
        tags = [{"id": "e0", "verdict": "harmful"}]
        said = [{**one, "tags": tags} for one in each_case(call, (1, 2))["reflections"]]
        return {"reflections": [*said, {**FOREIGN, "attempt": 17}]}

    run = learned(tmp_path, scripted(citing, forgetful), 4, {**TOGETHER, "harmful": 0}, seed_context=RULE)
    assert len(run.texts) == 3
    assert run.result.errors["unreflected_attempts"] == 2
    rule = run.result.context.get("e0")
    assert rule is not None
    assert (rule.harmful, rule.uses) == (2, 4)


def test_each_of_several_reflections_may_have_several_insights_or_none(tmp_path: Path) -> None:
    def several(call: Call) -> dict[str, Any]:
        first, second = each_case(call)["reflections"]
        both = [
            {"section": "code", "text": f"last = words[-1]  # as in {first['insight']}\n\nif last:\n    print(last)"},
            {"section": "pitfalls", "text": first["insight"]},
        ]
        return {"reflections": [{**first, "insights": both}, {**second, "insights": []}]}

    run = learned(tmp_path, scripted(wrong, several), 2, {**TOGETHER, "batch": 2})
    said = several(run.calls("reflector")[0])["reflections"][0]["insights"]
    assert [{"section": e.section, "text": e.text} for e in run.result.context] == said
    # What was said of the second attempt reaches the curator, although there is nothing to keep.
    (prompt,) = run.prompts("curator")
    assert prompt.count("# Reflection ") == prompt.count("Diagnosis: so it was") == 2
    assert prompt.count("\nInsight ") == 2


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


def test_after_a_failed_call_only_successes_vote(tmp_path: Path) -> None:
    def some(call: Call) -> dict[str, Any]:
        return {"answer": right(call) if number(call) < 1 else "wrong", "used": ["e0"]}

    run = learned(
        tmp_path, scripted(some, lambda call: "Sure!", added), 4, {**TOGETHER, "harmful": 0}, seed_context=RULE
    )
    assert run.texts == ["If in doubt, guess."]
    assert run.result.errors["lost_reflections"] == 4
    rule = run.result.context.get("e0")
    assert rule is not None
    assert (rule.helpful, rule.harmful, rule.uses) == (1, 0, 4)
