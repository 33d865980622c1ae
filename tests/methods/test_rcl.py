"""RCL as a whole: its defaults, what its mutator may do, what learning may see, resume, and the cost by role."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from helpers import client, make_tasks
from scripts import added, insight, learned, number, right, scripted, shape, warm, wrong

import practicum
from practicum import methods
from practicum.core.context import seed_context
from practicum.core.types import Task
from practicum.models.scripted import Call
from practicum.store.database import Store

RULE = seed_context([("rules", "If in doubt, guess.")])


def test_the_defaults_are_those_of_the_paper() -> None:
    """METHODS, section 3: B 3, G 3, annotated twin, heads, replay 0.5 with both thresholds 3, state; rollouts sized by
    the failure rate; on ACE without de-duplication by embedding and with one reflection of failures."""
    defaults = {name: default for name, (default, _) in methods.setting_docs("rcl").items()}
    assert {
        name: defaults[name]
        for name in (
            "batch", "group", "twin", "heads", "replay", "graduate", "evict", "state", "rollouts", "reflection",
            "dedupe", "rounds", "learn_from", "primitives", "curator",
        )
    } == {
        "batch": 3, "group": 3, "twin": True, "heads": True, "replay": 0.5, "graduate": 3, "evict": 3, "state": True,
        "rollouts": "auto", "reflection": "per_trace", "dedupe": "never", "rounds": 0, "learn_from": "failures",
        "primitives": "given", "curator": "edits",
    }  # fmt: skip
    assert methods.build("rcl", {}).roles == ("reflector", "curator", "state")


def test_roles_can_be_models_of_their_own_and_are_counted_apart(tmp_path: Path) -> None:
    clients = {role: scripted(wrong, name=role) for role in ("agent", "reflector", "curator", "state")}
    work = practicum.learn(
        make_tasks(6), out=tmp_path / "run", method="rcl", settings={"rollouts": 6},
        parts=practicum.Parts(clients=clients),
    )  # fmt: skip
    result = practicum.run_sync(work)
    for role, model in clients.items():
        assert {call.role for call in model.calls} == {role}
        assert result.by_role[role].calls == len(model.calls)
    assert result.as_json()["by_role"]["state"]["calls"] == 1


# ---- the mutator


def test_a_lesson_it_leaves_out_is_dropped_and_counted(tmp_path: Path) -> None:
    def first_alone(call: Call) -> dict[str, Any]:
        return {"decisions": added(call)["decisions"][:1]}

    run = learned(tmp_path, scripted(wrong, curator=first_alone), 3, {"rollouts": 3}, "rcl")
    assert len(run.texts) == 1
    assert run.result.errors["dropped_lessons"] == 2
    assert sum(not resolution.entry for report in run.reports for resolution in report.resolutions) == 2


def test_it_sees_each_diagnosis_with_its_cause_and_its_own_changes_so_far(tmp_path: Path) -> None:
    def reflector(call: Call) -> dict[str, Any]:
        return {**insight(call), "cause": f"it never heard of {number(call)}"}

    def state(call: Call) -> dict[str, Any]:
        return {"ledger": ["added a rule for 0"], "phase": "convergent"}

    run = learned(tmp_path, scripted(wrong, reflector, state=state), 12, {"rollouts": 3}, "rcl")
    first, second = run.prompts("curator")[:2]
    noted = "# Your notes on your changes so far: build on them\nChanges so far:\n- added a rule for 0\n"
    assert (noted in first, noted in second) == (False, True)
    for prompt in (first, second):
        assert (
            len(
                re.findall(
                    r"^Root cause: it never heard of (\d+)\nInsight \d \(strategies\): If it is message \1, ",
                    prompt,
                    re.M,
                )
            )
            == 3
        )


# ---- what learning may see

RCL: dict[str, dict[str, Any]] = {
    "rcl": {"rollouts": 6},
    "auto": {},
    "one call": {"head_calls": "one", "rollouts": 4},
    "batched": {"heads": False, "reflection": "batched", "rollouts": 4},
    "adaptive": {"primitives": "adaptive", "rollouts": 4, "replay": 0.5},
    "stream": {"online": True, "replay": 0, "rollouts": "none"},
}


def test_meta_reaches_no_prompt(tmp_path: Path) -> None:
    model = client()
    run = learned(tmp_path, model, make_tasks(9, note="xyzzy-meta", tags=["tag-xyzzy-meta"]), {}, "rcl")
    assert run.model.calls
    assert not [call for call in model.calls if "xyzzy-meta" in call.text]


def test_no_try_and_no_twin_sees_the_target(tmp_path: Path) -> None:
    tasks = [Task(f"t{n}", f"Message {n}: which?", f"the-target-{n}") for n in range(6)]

    def vague(call: Call) -> dict[str, Any]:
        return {"insight": f"If it is message {number(call)}, think twice."}

    run = learned(tmp_path, scripted(wrong, vague), tasks, {}, "rcl")
    assert not [call for call in run.calls("agent") if "the-target" in call.text]
    assert [prompt for prompt in run.prompts("reflector") if "the-target" in prompt]


# ---- resume


def chancy(call: Call) -> dict[str, Any]:
    lucky = (call.options.seed or 0) % 3 == 0
    return {"answer": right(call) if lucky else "wrong", "used": ["e0"], "missing": "more"}


def attributing(call: Call) -> dict[str, Any]:
    kinds = ("actionable_gap", "execution_variance", "intractable")
    return {**insight(call), "attribution": kinds[number(call) % 3], "cause": "so it was"}


def noting(call: Call) -> dict[str, Any]:
    return {"ledger": [f"{len(call.text)} letters were read"]}


# ---- evaluation and streams


def test_a_score_is_that_of_one_plain_run(tmp_path: Path) -> None:
    """Neither groups nor twins nor what the optimizer remembers are in it."""
    run = learned(
        tmp_path, scripted(lambda call: right(call) if warm(call) else "wrong", state=noting), 6, {"rollouts": 6},
        "rcl", test=make_tasks(4, 50),
    )  # fmt: skip
    asked = [call for call in run.calls("agent") if number(call) >= 50]
    assert len(asked) == 4
    assert not [call for call in asked if warm(call) or "<entry" in call.text or "letters" in call.text]
    assert run.result.scores["test"] == 0.0


def test_a_step_is_kept_with_all_its_runs(tmp_path: Path) -> None:
    from practicum.session.records import step_records

    run = learned(tmp_path, scripted(chancy, attributing), 6, {"rollouts": 6}, "rcl", seed_context=RULE)
    with Store.open(run.folder) as store:
        kept = [rollout for _, rollouts, _ in step_records(store) for rollout in rollouts]
    assert [len(r.group) for r in kept] == [3] * len(kept)
    assert [r.twin.data["missing"] for r in kept if r.twin is not None] == ["more"] * len(kept)
    assert {shape(call) for call in run.calls("reflector")} == {"Attribution", "RootCause", "CoverageGap"}
