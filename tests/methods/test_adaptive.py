"""Primitives chosen from what a run shows: each switch, its reason, and what it changes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers import context_bytes
from scripts import Learned, annotated, insight, learned, number, resumed, right, scripted, shape, warm, wrong

from practicum import methods
from practicum.core.context import Context, seed_context
from practicum.core.types import Feedback, Lesson, Rollout, Task, Trace
from practicum.engine.loop import Batch, StepReport
from practicum.methods.adaptive import PERIOD, PROBE, Choice, Relapses, decide
from practicum.models.scripted import Call

RULE = seed_context([("rules", "If in doubt, guess.")])


def tried(task: str, *passed: bool, used: bool = False) -> Rollout:
    """A task with the outcomes of its runs."""
    runs = [
        Rollout(Task(task, "?"), Trace("", used=("e0",) if used else ()), None, Feedback(ok, ""), f"{task}/{n}")
        for n, ok in enumerate(passed)
    ]
    return replace(runs[0], siblings=tuple(runs[1:]))


def steps(*batches: tuple[list[Rollout], list[str]]) -> list[StepReport]:
    """Reports of these rollouts and attributions."""
    return [
        StepReport(
            n, Batch(tuple(r.task for r in rollouts)), tuple(rollouts),
            tuple(Lesson(f"l{n}.{i}", "", data={"attribution": kind}) for i, kind in enumerate(kinds)),
            Context(), (), (), (), None,
        )
        for n, (rollouts, kinds) in enumerate(batches, 1)
    ]  # fmt: skip


def chosen(history: list[StepReport]) -> tuple[Choice, str]:
    """What follows from these steps; the same whether they are read at once or as they come."""
    relapses = Relapses()
    for n in range(len(history)):
        decide(history[:n], relapses)
    made = decide(history, relapses)
    assert made == decide(history, Relapses())
    return made


GAP, CHANCE, HOPELESS = "actionable_gap", "execution_variance", "intractable"
QUIET = ([tried("a", False, False)], [GAP])
"""A failure that nothing but a better rule would prevent."""

OFF = Choice(group=False, twin=False, heads=False, state=False)


def test_at_the_start_of_each_period_groups_and_heads_are_tried() -> None:
    for n in range(2 * PERIOD + 1):
        choice, why = chosen(steps(*[QUIET] * n))
        probing = n % PERIOD < PROBE
        assert (choice.group, choice.heads) == (probing, probing)
        assert why.startswith("probing: ") is probing


EVIDENCE: dict[str, tuple[list[tuple[list[Rollout], list[str]]], str, str]] = {
    "groups that differ within": (
        [([tried("a", False, True), tried("b", False, False)], [])], "group", "groups on (25% of failing groups"),
    "chance": ([([], [CHANCE])], "heads", "heads on (33% of failures"),
    "the impossible": ([([], [HOPELESS, HOPELESS])], "heads", "heads on (50% of failures"),
    "entries in use": ([([tried("a", False, used=True)] * 3, [])], "twin", "twin on (60% of failures"),
    "what passed fails again": (
        [([tried("b", True)], []), ([tried("b", False)], [])], "state", "state on (50% of tasks tried again"),
}  # fmt: skip


@pytest.mark.parametrize(("more", "switch", "words"), EVIDENCE.values(), ids=EVIDENCE)
def test_each_switch_follows_its_evidence_and_says_so(
    more: list[tuple[list[Rollout], list[str]]], switch: str, words: str
) -> None:
    assert chosen(steps(*[QUIET] * PROBE))[0] == OFF
    choice, why = chosen(steps(QUIET, QUIET, *more))
    assert choice == replace(OFF, **{switch: True})
    assert words in why


def test_a_group_without_failures_is_no_evidence_for_contrasts() -> None:
    choice, why = chosen(steps(QUIET, QUIET, ([tried("c", True, True)] * 9 + [tried("b", True, False)], [])))
    assert choice.group
    assert "(33% of failing groups had a success)" in why


def test_only_the_last_period_speaks_for_groups_heads_and_twin() -> None:
    loud = ([tried("a", False, True, used=True)], [CHANCE])
    assert all(getattr(chosen(steps(*[loud] * PROBE))[0], name) for name in ("group", "heads", "twin"))
    choice, _ = chosen(steps(loud, *[QUIET] * (PERIOD + PROBE)))
    assert choice == OFF


# ---- in a run

ADAPTIVE: dict[str, Any] = {"primitives": "adaptive"}


def test_it_is_off_by_default(tmp_path: Path) -> None:
    for name in ("ace", "rcl"):
        assert methods.setting_docs(name)["primitives"][0] == "given"
    run = learned(tmp_path, scripted(), 3)
    assert not [report for report in run.reports if {"primitives", "why"} & set(report.batch.data)]


def used(run: Learned) -> list[tuple[int, bool, bool]]:
    """Of each step: runs of a task, and whether there were a twin and heads."""
    return [
        (
            len(report.rollouts[0].group),
            report.rollouts[0].twin is not None,
            any("attribution" in lesson.data for lesson in report.lessons),
        )
        for report in run.reports
    ]


def test_each_step_runs_on_what_was_chosen_and_its_row_says_why(tmp_path: Path) -> None:
    run = learned(tmp_path, scripted(wrong), 6, ADAPTIVE)
    assert used(run) == [(3, False, True)] * 3 + [(1, False, False)] * 3
    for report in run.reports:
        chosen = report.batch.data["primitives"]
        assert set(chosen) == {"group", "twin", "heads", "state"}
        assert ("groups on" in report.batch.data["why"]) is chosen["group"]
    assert run.reports[3].batch.data["why"] == (
        "groups off (0% of failing groups had a success); heads off (0% of failures were chance or intractable); "
        "twin off (0% of failures had relied on an entry); "
        "state off (0% of tasks tried again had passed before and failed)"
    )


def test_useful_primitives_stay_on(tmp_path: Path) -> None:
    def agent(call: Call) -> dict[str, Any]:
        return {"answer": right(call) if warm(call) else "wrong", "used": ["e0"]}

    def reflector(call: Call) -> dict[str, Any]:
        return {**insight(call), "attribution": CHANCE}

    run = learned(tmp_path, scripted(agent, reflector), 6, ADAPTIVE, seed_context=RULE)
    # The twin is no part of the probing: it follows what is known after the first step.
    assert used(run) == [(3, False, True)] + [(3, True, True)] * 5


def test_relapses_switch_the_state_on(tmp_path: Path) -> None:
    def relapsing(call: Call) -> str:
        return right(call) if "word" not in call.prompt.head else "wrong"

    run = learned(tmp_path, scripted(relapsing), 3, {**ADAPTIVE, "epochs": 4, "batch": 3})
    flags = [report.batch.data["primitives"]["state"] for report in run.reports]
    assert flags == [False, False, True, True]
    assert any(call.role == "state" for call in run.model.calls)


def test_it_says_why_beside_what_the_sampler_says(tmp_path: Path) -> None:
    run = learned(tmp_path, scripted(wrong), 12, {**ADAPTIVE, "rollouts": "auto"})
    assert all("at a failure rate of" in r.batch.data["why"] for r in run.reports)
    assert all("groups o" in r.batch.data["why"] for r in run.reports)


@pytest.mark.parametrize("calls", [15, 40])
def test_a_resume_chooses_the_same(tmp_path: Path, calls: int) -> None:
    def agent(call: Call) -> dict[str, Any]:
        lucky = (call.options.seed or 0) % 3 == 0
        return {"answer": right(call) if lucky else "wrong", "used": ["e0"] if number(call) % 2 else []}

    def reflector(call: Call) -> dict[str, Any]:
        return {**insight(call), "attribution": (GAP, CHANCE, HOPELESS)[number(call) % 3]}

    settings = {**ADAPTIVE, "epochs": 2}
    whole = learned(tmp_path / "whole", scripted(agent, reflector), 8, settings, seed_context=RULE)
    model = scripted(agent, reflector)
    cut = learned(tmp_path / "cut", model, 8, settings, seed_context=RULE, max_calls=calls)
    again = resumed(cut, model, max_calls=1000)
    assert [r.batch for r in again.reports] == [r.batch for r in whole.reports]
    assert context_bytes(again.result) == context_bytes(whole.result)
    assert len(model.calls) == len(whole.model.calls)
    assert len({str(r.batch.data["primitives"]) for r in whole.reports}) > 1


def test_no_twin_runs_where_no_failure_relied_on_an_entry(tmp_path: Path) -> None:
    run = learned(tmp_path, scripted(wrong), 8, ADAPTIVE)
    assert not [call for call in run.model.calls if annotated(call)]
    assert {shape(call) for call in run.calls("reflector")} == {"Attribution", "RootCause", "CoverageGap", "Reflection"}
