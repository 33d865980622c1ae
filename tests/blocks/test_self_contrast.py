"""Contrasts of several attempts: what is asked, what is left out, and when no call is made."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

import pytest
from helpers import client
from runs import indoors
from scripts import FORM

from practicum.blocks.reflect.self_contrast import Contrast, contrasted, in_words
from practicum.core.errors import ProviderError
from practicum.core.types import Feedback, Profile, Rollout, Task, Trace
from practicum.models.scripted import Call

WORDS = {False: "The answer is wrong.", True: "The answer is right.", None: "Nothing is known."}


def tried(answer: str, success: bool | None, reasoning: str = "", lost: bool = False) -> Rollout:
    trace = Trace(answer, reasoning, error="the line is dead" if lost else None, lost=lost)
    return Rollout(Task("t", "Say it."), trace, None, Feedback(success, WORDS[success]), "place")


def contrast(
    tries: Sequence[Rollout], said: str | Exception | None = None, window: int | None = None
) -> tuple[Contrast | None, list[Call], dict[str, int]]:
    whole = json.dumps({**FORM, "holds": ["both looked twice"], "spurious": ["the weather"], "best": 2, "why": "calm"})
    model = client(lambda call: whole if said is None else said, window=window)
    run = indoors(model)
    return asyncio.run(contrasted(tries, run)), model.calls, dict(run.counts)


def test_one_call_reads_all_attempts_with_their_outcomes() -> None:
    found, calls, counts = contrast([tried("a", True, "I looked."), tried("b", False), tried("c", None)])
    assert found is not None
    assert (found.best, found.why, found.findings["holds"]) == (2, "calm", ["both looked twice"])
    (call,) = calls
    heads = ["# Attempt 1: went well", "# Attempt 2: failed", "# Attempt 3: outcome unknown"]
    assert [line for line in call.prompt.user.splitlines() if line.startswith("#")] == heads
    assert "Reasoning: I looked." in call.prompt.user
    assert (call.role, counts) == ("reflector", {})
    assert (
        in_words(found.findings)
        == "Common to attempts that went well:\n- both looked twice\nMade no difference:\n- the weather"
    )
    assert in_words({}) == ""


def test_lost_attempts_are_not_shown_and_the_others_keep_their_numbers() -> None:
    _, calls, _ = contrast([tried("a", True), tried("", False, lost=True), tried("c", False)])
    shown = calls[0].prompt.user
    assert "# Attempt 2" not in shown
    assert "# Attempt 3: failed" in shown
    assert "the line is dead" not in calls[0].text


@pytest.mark.parametrize("tries", [[], [tried("a", True)], [tried("a", True), tried("", False, lost=True)]])
def test_fewer_than_two_answers_are_not_contrasted(tries: list[Rollout]) -> None:
    assert contrast(tries) == (None, [], {})


@pytest.mark.parametrize("said", ["nothing of use", ProviderError("provider.failed", "down"), '{"best": 0}'], ids=str)
def test_a_failed_contrast_is_counted(said: str | Exception) -> None:
    found, _, counts = contrast([tried("a", True), tried("b", False)], said)
    assert found is None
    assert counts["lost_contrasts"] == 1


def test_attempts_that_are_too_long_for_the_model_are_cut_alike_and_all_are_shown() -> None:
    long = [tried(f"answer {n}", n == 2, f"start {n} " + "word " * 20_000 + f" end {n}") for n in range(1, 5)]
    _, calls, counts = contrast([*long, tried("short", True, "a short one")], window=6000)
    shown = calls[0].prompt.user
    for n in range(1, 5):
        assert f"start {n}" in shown
        assert f"Answer: answer {n}" in shown
    assert "Reasoning: a short one\nAnswer: short" in shown
    assert shown.count("tokens left out here") == 4
    assert counts == {"shortened_prompts": 1}
    parts = [len(part) for part in shown.split("# Attempt")[1:5]]
    assert max(parts) - min(parts) < 50


@pytest.mark.parametrize(("profile", "examples"), [("full", 0), ("small", 4)])
def test_findings_of_several_lines_are_kept_in_full(profile: Profile, examples: int) -> None:
    finding = "They check the sum:\n  total = sum(parts)\nand only then answer. " + "So it goes. " * 100
    said = json.dumps({**FORM, "separates": [finding], "best": 1})
    model = client(lambda call: said)
    found = asyncio.run(contrasted([tried("a", True), tried("b", False)], indoors(model, profile=profile)))
    assert found is not None
    shown = in_words(found.findings)
    assert [line.strip() for line in shown.splitlines()[2:]] == [line.strip() for line in finding.splitlines()]
    assert len(model.calls[0].prompt.turns) == examples
