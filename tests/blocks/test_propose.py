"""Bullets before the attempt: what they are made from, how they are refined and tried, and how they are counted."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from helpers import client
from runs import indoors
from scripts import FORM

from practicum.blocks.act.show import AVOID, FOLLOW
from practicum.blocks.attempt.propose import (
    OUTCOMES,
    Keep,
    Proposer,
    curated,
    prepared,
    refinements,
    with_last_outcomes,
    with_outcomes,
)
from practicum.core.context import Context
from practicum.core.edits import Add, Delta
from practicum.core.errors import ProviderError
from practicum.core.types import Feedback, Lesson, Rollout, Task, Trace
from practicum.engine.run import Run
from practicum.models.scripted import Call, ScriptedClient

TASK = Task("t1", "The words of the task.")
SEEN = Context().apply(
    Delta((
        Add("rules", "If it rains, run.", sources=("task:t0",)),
        Add("memories", "Successful approach: words. look twice", sources=("task:t7", "tag:old")),
        Add(OUTCOMES, "Task: an old one", sources=("task:t8",)),
    ))
).context  # fmt: skip


def turn(call: Call) -> int:
    """Which pass a proposal is: 0 proposes, others refine."""
    return 0 if "Propose up to 10" in call.prompt.user else int(re.findall(r"turn(\d)", call.prompt.user)[-1]) + 1


def each_turn(call: Call) -> str:
    return json.dumps({**FORM, "bullets": [f" If turn{turn(call)}, go on. ", "If so, stay.", " "]})


LAST = 3


def proposer(passes: int = 2, bank: str = "memories", **how: Any) -> Proposer:
    how = {"least": 0, "most": 10, "outcomes": LAST, **how}
    return Proposer(passes=passes, memories=5, bank=bank, curate=curated("rules"), **how)


def proposed(
    respond: Callable[[Call], str | Exception] = each_turn, context: Context = SEEN, **how: Any
) -> tuple[list[Lesson], ScriptedClient, Run]:
    model = client(respond)
    run = indoors(model).at("here")
    return asyncio.run(proposer(**how)(TASK, context, run)), model, run


# ---- proposing


def test_a_proposal_is_refined_in_passes_that_share_their_prompt_except_for_its_end() -> None:
    found, model, run = proposed()
    assert [x.text for x in found] == ["If turn2, go on.", "If so, stay."]
    assert len(model.calls) == 3
    assert len({call.prompt.head for call in model.calls}) == 1
    users = [call.prompt.user for call in model.calls]
    shared = users[0].partition("# Now")[0]
    assert all(user.startswith(shared) for user in users)
    assert [word for user in users[1:] for word in ("clear", "act on") if word in user.rpartition("# Now")[2]] == [
        "clear", "act on",
    ]  # fmt: skip
    assert "- If turn0, go on.\n- If so, stay." in users[1]
    assert +run.counts == {}


def test_a_proposal_reads_task_memories_playbook_and_last_outcomes_in_order() -> None:
    _, model, _ = proposed()
    prompt = model.calls[0].prompt
    assert "[e0] (rules) If it rains, run." in prompt.head
    assert "look twice" not in prompt.head
    order = ["The words of the task.", "look twice", "Task: an old one", "Propose up to 10"]
    assert [prompt.user.index(part) for part in order] == sorted(prompt.user.index(part) for part in order)


def test_without_a_bank_no_memory_is_read() -> None:
    found, model, _ = proposed(bank="")
    assert "# Memories of similar tasks" not in model.calls[0].prompt.user
    assert {tuple(x.data["memories"]) for x in found} == {()}


@pytest.mark.parametrize(
    ("said", "lost"),
    [("no JSON", 1), (ProviderError("provider.failed", "down"), 1), ('{"bullets": []}', 0)],
    ids=["talk", "down", "none"],
)
@pytest.mark.parametrize("when", [0, 1, 2])
def test_if_a_pass_fails_the_bullets_of_the_pass_before_it_are_used(
    when: int, said: str | Exception, lost: int
) -> None:
    """One that says there is nothing to propose has not failed, and ends it too."""

    def respond(call: Call) -> str | Exception:
        if "That does not fit" in call.prompt.user:
            return said
        return said if turn(call) == when else each_turn(call)

    found, _, run = proposed(respond)
    assert [x.text for x in found] == ([f"If turn{when - 1}, go on.", "If so, stay."] if when else [])
    assert run.counts["lost_proposals"] == lost


LONG = """\
Before you pay, look the friend up:
1. `find_contact(name)` gives the address.
2. `find_user(address)` gives the id that `pay` asks for.

Check the amount twice: it is in cents."""


def test_capable_models_propose_bullets_of_several_lines_without_examples_at_a_temperature_of_their_own() -> None:
    model = client(lambda call: json.dumps({"bullets": [LONG, "Be brief."]}))
    run = indoors(model, profile="full").at("here")
    failed = Add("memories", "Failed approach (avoid): haste")
    context = SEEN.apply(Delta((failed,))).context
    found = asyncio.run(proposer(3, temperature=0.4, least=2)(TASK, context, run))
    assert [x.text for x in found] == [LONG, "Be brief."]
    assert {call.options.temperature for call in model.calls} == {0.4}
    first, *passes = [call.prompt for call in model.calls]
    assert {prompt.turns for prompt in (first, *passes)} == {()}
    assert "Propose 2 to 10 bullets" in first.user
    assert [prompt.user.rpartition("# Now\n")[2].partition("\n")[0] for prompt in passes] == [
        refinement.full for refinement in refinements(10)
    ]
    # The outcomes are seen in every pass, and what to follow stands apart from what to avoid.
    assert all("# What the last tasks came to\nTask: an old one" in prompt.user for prompt in passes)
    assert f"{FOLLOW}\n- Successful approach: words. look twice\n\n{AVOID}\n- Failed approach" in first.user
    assert "[e0] (rules) If it rains, run." in first.head
    assert "look twice" not in first.head
    assert "pattern" not in json.dumps(model.calls[0].schema)


def test_the_outcomes_of_capable_models_are_kept_whole() -> None:
    trace = Trace("a", reasoning="long " * 5_000)
    rollout = Rollout(TASK, trace, None, Feedback(False, "Found wrong."), "p")

    async def nothing(rollouts: object, context: Context, run: Run) -> list[Lesson]:
        return []

    (outcome,) = asyncio.run(with_outcomes(nothing, "all", LAST)([rollout], SEEN, indoors(each_turn, profile="full")))
    assert "long " * 5_000 in outcome.detail


# ---- trying


def attempted(context: Context = SEEN, used: tuple[str, ...] = (), success: bool | None = True) -> Rollout:
    seen: list[Context] = []

    async def act(task: Task, shown: Context, run: Run) -> Rollout:
        seen.append(shown)
        return Rollout(task, Trace("a", used=used), None, Feedback(success, "Found."), run.place)

    run = indoors(each_turn).at("here")
    rollout = asyncio.run(prepared(act, proposer())(TASK, context, run))
    assert [e.text for e in seen[0] if e.born > context.version] == ["If turn2, go on.", "If so, stay."]
    return rollout


def test_the_attempt_runs_under_a_draft_and_carries_its_bullets() -> None:
    rollout = attempted()
    assert [round.lesson.data["entry"] for round in rollout.rounds] == ["e3", "e4"]
    assert len(SEEN) == 3


def after(rollout: Rollout, keep: Keep, context: Context = SEEN) -> tuple[Context, dict[str, int]]:
    async def nothing(rollouts: object, context: Context, run: Run) -> list[Lesson]:
        return []

    run = indoors(each_turn)
    lessons = asyncio.run(with_outcomes(nothing, keep, LAST)([rollout], context, run))
    delta = asyncio.run(with_last_outcomes(curated("rules"), LAST)(lessons, context, run))
    return context.apply(delta).context, +run.counts


def rules(context: Context) -> list[tuple[str, int, int]]:
    return [(e.text, e.helpful, e.harmful) for e in context.in_section("rules")][1:]


@pytest.mark.parametrize(("success", "counts"), [(True, (1, 0)), (False, (0, 1)), (None, (0, 0))])
def test_bullets_are_counted_by_the_outcome_of_the_attempt(success: bool | None, counts: tuple[int, int]) -> None:
    rollout = attempted(used=("e4",), success=success)
    kept, counted = after(rollout, "all")
    assert rules(kept) == [("If turn2, go on.", 0, 0), ("If so, stay.", *counts)]
    assert counted == {}
    cited, counted = after(rollout, "relied_on")
    assert rules(cited) == [("If so, stay.", *counts)]
    assert counted == {"uncited_bullets": 1}


def test_the_bullets_of_a_lost_attempt_are_kept() -> None:
    rollout = attempted()
    lost = Rollout(TASK, Trace("", error="gone", lost=True), None, Feedback(False, "gone"), "p", rollout.rounds)
    kept, _ = after(lost, "all")
    assert len(rules(kept)) == 2
    assert [e.text for e in kept.in_section(OUTCOMES)] == ["Task: an old one"]
