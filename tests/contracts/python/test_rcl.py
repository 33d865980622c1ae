"""RCL: optimization primitives, each on ACE's loop (METHODS, section 3)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from python_kit import Seen, learned, playbook, slow
from python_roles import OTHER, asks, change, citing, deciding, down, ignorant, knowing, model, reflecting, varying
from python_tasks import lesson, messages, number, word

BASE: dict[str, Any] = {
    "rounds": 0, "dedupe": "never", "learn_from": "failures", "merge": False, "batch": 1,
}  # fmt: skip
"""ACE as RCL's base: one reflection on one failure, no embeddings, no merges."""


def primitive(folder: Path, tasks: int, settings: dict[str, Any], method: str = "ace", **how: Any) -> Seen:
    rules = {"agent": ignorant, "reflector": lambda call: reflecting(lesson(number(call))), **how.pop("rules", {})}
    base = BASE if method == "ace" else {}
    return learned(folder, messages(*range(tasks)), model(**rules), method, {**base, **settings}, **how)


def annotated(call: Any) -> bool:
    """Whether it is the run with the annotated playbook."""
    return "<entry" in call.text or re.search(r"^(Doubts|Missing): <", call.prompt.system, re.MULTILINE) is not None


# ---- batching


@pytest.mark.parametrize(("reflection", "calls"), [slow("per_trace", 2), ("batched", 1)])
def test_a_step_attempts_many_and_reflects_on_a_few_failures(tmp_path: Path, reflection: str, calls: int) -> None:
    """R tasks are attempted, up to B failures reflected on, each in one call or all in one call."""

    def reflector(call: Any) -> Any:
        cases = re.findall(r"^# Case (\d+)$", call.prompt.user, re.MULTILINE)
        if not cases:
            return reflecting(lesson(number(call)))
        return {"reflections": [{**reflecting(f"See case {n}."), "attempt": int(n)} for n in cases]}

    answers = [ignorant] * 4 + [knowing] * 4
    rules = {"agent": lambda call: answers.pop(0)(call), "reflector": reflector}
    seen = primitive(tmp_path, 8, {"attempted": 4, "batch": 2, "reflection": reflection}, rules=rules)
    assert [len(report.attempts) for report in seen.steps] == [4, 4]
    # The second step has no failure: it causes no reflection and no edit.
    assert seen.roles == {"agent": 8, "reflector": calls, "curator": 1}
    assert len(seen.texts) == 2


@pytest.mark.slow
def test_only_attempts_that_were_reflected_on_may_vote_against_an_entry(tmp_path: Path) -> None:
    rules = {"agent": citing("e0"), "reflector": lambda call: reflecting(lesson(number(call)), tags={"e0": "harmful"})}
    seen = primitive(
        tmp_path, 6, {"attempted": 6, "batch": 1, "harmful": 0}, rules=rules, seed_context=playbook(tmp_path, "Look.")
    )
    rule = seen.result.context.get("e0")
    assert (rule.harmful, rule.uses) == (1, 6)


# ---- grouped attempts, and the annotated twin (dual-trace credit assignment)


def test_a_group_shows_a_contrast_and_its_annotated_twin_reaches_the_reflector_and_no_score(tmp_path: Path) -> None:
    def grouped(call: Any) -> Any:
        if annotated(call):
            return {**knowing(call), "used": ["e0"], "doubts": [], "missing": "A list of words."}
        return varying(call)

    seen = primitive(
        tmp_path, 1, {"group": 3, "twin": True}, rules={"agent": grouped}, seed_context=playbook(tmp_path, "Look.")
    )
    calls, (reflection,) = seen.calls("agent"), seen.calls("reflector")
    runs = sorted((annotated(call), call.options.temperature or 0) for call in calls)
    assert runs == [(False, 0), (False, 0.7), (False, 0.7), (True, 0)]
    assert any('<entry id="e0"' in call.text for call in calls)
    (attempt,) = seen.steps[0].attempts
    assert (len(attempt.group), attempt.twin.answer) == (3, word(0))
    assert all(text in reflection.text for text in ("Answer: unsure", f"Answer: {word(0)}", "A list of words."))
    # Reports count only the first run, which is made as in evaluation.
    assert attempt.score.value == 0.0
    assert seen.result.context.get("e0").helpful == 0


@pytest.mark.slow
def test_groups_with_contrast_are_reflected_on_first(tmp_path: Path) -> None:
    def one_of_them(call: Any) -> Any:
        return (varying if number(call) == 2 else ignorant)(call)

    seen = primitive(tmp_path, 4, {"group": 2, "attempted": 4, "batch": 1}, rules={"agent": one_of_them})
    assert [number(call) for call in seen.calls("reflector")] == [2]


# ---- heads


@pytest.mark.parametrize(("calls", "each"), [("three", 3), slow("one", 1)])
def test_three_heads_diagnose_a_failure(tmp_path: Path, calls: str, each: int) -> None:
    seen = primitive(tmp_path, 2, {"heads": True, "head_calls": calls})
    assert len(seen.calls("reflector")) == 2 * each
    heads = ("attribution", "cause", "gap")
    assert {field for call in seen.calls("reflector") for field in heads if asks(call, field)} == {*heads}
    assert seen.result.errors["actionable_gaps"] == 2
    assert sorted(seen.texts) == [lesson(0), lesson(1)]


def test_a_task_that_another_attempt_solved_is_not_intractable(tmp_path: Path) -> None:
    def sometimes(call: Any) -> Any:
        return (varying if number(call) == 1 else ignorant)(call)

    seen = primitive(tmp_path, 2, {"group": 2}, "rcl", rules={"agent": sometimes}, profile="small")
    # The choice of attributions is limited for a small model only.
    possible = {number(call): call.schema["properties"]["attribution"]["enum"] for call in seen.calls("reflector")
                if asks(call, "attribution")}  # fmt: skip
    assert possible == {0: ["actionable_gap", "intractable"], 1: ["actionable_gap", "execution_variance"]}


@pytest.mark.parametrize(
    ("attribution", "counter", "gated", "lessons"),
    [
        slow("execution_variance", "execution_variance", False, [lesson(0)]),
        ("intractable", "intractable_failures", True, []),
    ],
)
def test_chance_and_intractable_failures_vote_against_no_entry(
    tmp_path: Path, attribution: str, counter: str, gated: bool, lessons: list[str]
) -> None:
    def reflector(call: Any) -> Any:
        return reflecting(lesson(number(call)), tags={"e0": "harmful"}, attribution=attribution)

    seen = primitive(
        tmp_path, 1, {"heads": True, "gated_heads": gated}, rules={"agent": citing("e0"), "reflector": reflector},
        seed_context=playbook(tmp_path, "Look."),
    )  # fmt: skip
    assert seen.result.errors[counter] == 1
    assert seen.result.context.get("e0").harmful == 0
    assert seen.texts == ["Look.", *lessons]


# ---- failure replay


def test_half_of_a_step_is_drawn_from_earlier_failures(tmp_path: Path) -> None:
    seen = primitive(tmp_path, 12, {"attempted": 4, "replay": 0.5})
    assert [len(report.batch.data["replayed"]) for report in seen.steps][:3] == [0, 2, 2]
    assert all(len(report.attempts) == 4 for report in seen.steps)
    failed: set[str] = set()
    for report in seen.steps:
        assert set(report.batch.data["replayed"]) <= failed
        failed |= {attempt.task.id for attempt in report.attempts}
    assert failed == {f"t{n}" for n in range(12)}


# ---- optimizer state


def test_the_state_is_seen_only_by_the_mutator(tmp_path: Path) -> None:
    rules = {"state": lambda call: {"ledger": ["Added a rule for a word."], OTHER: ""}}
    seen = primitive(tmp_path, 3, {"state": True}, rules=rules)
    assert seen.roles == {"agent": 3, "reflector": 3, "curator": 3, "state": 3}
    noted = {role: ["Added a rule for a word." in call.text for call in seen.calls(role)] for role in seen.roles}
    assert noted == {
        "agent": [False] * 3, "reflector": [False] * 3, "curator": [False, True, True], "state": [False, True, True],
    }  # fmt: skip
    (state,) = [entry for entry in seen.result.context if entry.hidden]
    assert "Added a rule for a word." in state.text


@pytest.mark.slow
def test_a_state_that_fails_stays_unchanged(tmp_path: Path) -> None:
    seen = primitive(tmp_path, 2, {"state": True}, rules={"state": down})
    assert seen.result.errors["lost_states"] == 2
    assert len(seen.texts) == 2


# ---- the mutator


def test_the_mutator_changes_single_entries_with_a_reason_and_has_no_merge(tmp_path: Path) -> None:
    seen = primitive(
        tmp_path, 2, {}, "rcl", seed_context=playbook(tmp_path, "Look.", "Wait.", "Ask."),
        rules={"curator": deciding(change("UPDATE", "e0", text="Look twice."), change("DELETE", "e1", insights=(2,)))},
    )  # fmt: skip
    assert seen.texts == ["Look twice.", "Ask."]
    edits = [done.edit for done in seen.steps[0].applied if done.edit.op in ("update", "delete")]
    assert [edit.reason for edit in edits if not edit.id.startswith(".")][:2] == ["So it is."] * 2
    (call,) = seen.calls("curator")
    assert "MERGE" not in str(call.schema)
    assert "UPDATE" in str(call.schema)


# ---- all together


def test_rcl_is_ace_with_all_primitives_prompt_by_prompt(tmp_path: Path) -> None:
    """So rows of a comparison differ only by the primitive."""
    everything = {
        **BASE, "batch": 3, "attempted": "auto", "group": 3, "twin": True, "heads": True, "replay": 0.5, "state": True,
    }  # fmt: skip
    rcl = primitive(tmp_path / "rcl", 9, {}, "rcl")
    ace = primitive(tmp_path / "ace", 9, everything)
    assert [call.text for call in ace.model.calls] == [call.text for call in rcl.model.calls]
    assert ace.exported == rcl.exported
    second = rcl.steps[1]
    assert second.batch.data["replayed"]
    assert all(len(attempt.group) == 3 and attempt.twin is not None for attempt in second.attempts)
    assert len(rcl.calls("reflector")) == 3 * 3 * len(rcl.steps)
    assert any(entry.section == ".state" for entry in second.context)


@pytest.mark.slow
def test_adaptive_primitives_measure_before_they_choose(tmp_path: Path) -> None:
    seen = primitive(tmp_path, 16, {"primitives": "adaptive", "batch": 2, "curator": "edits"})
    assert [max(len(attempt.group) for attempt in report.attempts) for report in seen.steps][:3] == [3, 3, 3]
    # An agent that always fails shows no contrast, so groups are switched off after the probe.
    assert len(seen.steps[3].attempts[0].group) == 1
