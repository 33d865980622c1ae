"""Insights rise and fall by vote; operations on insights that do not exist change nothing and are counted."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from runs import indoors
from scripts import scripted

from practicum.blocks.update.insights import PAIR, VotedInsights
from practicum.core.context import Context, initial_context
from practicum.core.edits import Add
from practicum.core.errors import ProviderError
from practicum.core.types import Instructions, Lesson
from practicum.engine.run import Run
from practicum.models.scripted import ScriptedClient

SEED = initial_context([Add("insights", "Look twice.", helpful=2), Add("episodes", "an old case")])
LESSONS = [Lesson("l0", "", detail="Message 0", sources=("task:t0",)), Lesson("l1", "no detail")]


def after(model: ScriptedClient, lessons: list[Lesson], together: int = 8, most: int = 20) -> tuple[Context, Run]:
    run = indoors(model)
    compare, generalize = Instructions("Compare."), Instructions("Generalize.")
    update = VotedInsights(compare, generalize, "insights", "episodes", together, most)
    outcome = SEED.apply(asyncio.run(update(lessons, SEED, run)))
    assert not outcome.refused
    return outcome.context, run


def operating(*operations: dict[str, Any]) -> ScriptedClient:
    return scripted(curator=lambda call: {"operations": list(operations)})


@pytest.mark.parametrize(
    ("operation", "insight"),
    [
        ({"op": "AGREE", "id": "e0"}, ("Look twice.", 3, 0)),
        ({"op": "AGREE", "id": "[e0]"}, ("Look twice.", 3, 0)),
        ({"op": "REMOVE", "id": "e0"}, ("Look twice.", 2, 1)),
        ({"op": "EDIT", "id": "e0", "text": "Look thrice:\n- here\n- there "}, ("Look thrice:\n- here\n- there", 3, 0)),
    ],
)
def test_an_operation_changes_the_text_or_the_votes(operation: dict[str, Any], insight: tuple[str, int, int]) -> None:
    context, run = after(operating(operation), LESSONS)
    entry = context.get("e0")
    assert entry is not None
    assert (entry.text, entry.helpful, entry.harmful) == insight
    assert not run.counts.get("unknown_insights")


def test_a_new_insight_starts_with_two_votes_and_rests_on_the_attempts() -> None:
    context, _ = after(operating({"op": "ADD", "text": "Ask first."}, {"op": "ADD", "text": " "}), LESSONS)
    (entry,) = [e for e in context if e.number > 1]
    assert (entry.section, entry.text, entry.helpful, entry.sources) == ("insights", "Ask first.", 2, ("task:t0",))


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "AGREE", "id": "e7"},
        {"op": "REMOVE", "id": "e1"},
        {"op": "EDIT", "id": "e0", "text": ""},
        {"op": "EDIT", "id": "e0", "text": "Look twice."},
    ],
    ids=["no entry", "another section", "no text", "the same text"],
)
def test_an_operation_without_effect_is_counted(operation: dict[str, Any]) -> None:
    context, run = after(operating(operation), LESSONS)
    assert context == SEED
    assert run.counts["unknown_insights"] == 1


def test_the_prompt_shows_insights_and_attempts_but_no_other_section() -> None:
    model = operating()
    after(model, LESSONS)
    (call,) = model.calls
    assert "Look twice." in call.text
    assert "an old case" not in call.text
    assert "# Attempt 1\nMessage 0" in call.prompt.user
    assert "no detail" not in call.text


def test_without_attempts_no_call_is_made() -> None:
    model = operating()
    context, _ = after(model, LESSONS[1:])
    assert (context, model.calls) == (SEED, [])


def test_a_failed_call_is_counted() -> None:
    context, run = after(scripted(curator=lambda call: ProviderError("provider.failed", "away")), LESSONS)
    assert context == SEED
    assert run.counts["lost_updates"] == 1


def pair(n: int) -> Lesson:
    return Lesson(f"p{n}", "", detail=f"Pair {n}", sources=(f"task:t{n}",), data={PAIR: True})


def success(n: int) -> Lesson:
    return Lesson(f"s{n}", f"task {n}", detail=f"Success {n}", sources=(f"task:t{n}",))


def test_pairs_are_compared_one_by_one_and_successes_several_at_a_time() -> None:
    model = operating()
    after(model, [success(0), pair(1), success(1), success(2), pair(3)], together=2)
    read = [(call.prompt.system.partition("\n")[0], call.prompt.user) for call in model.calls]
    assert read == [
        ("Compare.", "# Attempt 1\nPair 1"),
        ("Compare.", "# Attempt 1\nPair 3"),
        ("Generalize.", "# Attempt 1\nSuccess 0\n\n# Attempt 2\nSuccess 1"),
        ("Generalize.", "# Attempt 1\nSuccess 2"),
    ]


def test_each_call_reads_what_the_call_before_it_did_and_can_change_it() -> None:
    said = iter([[{"op": "ADD", "text": "Ask first."}], [{"op": "EDIT", "id": "e2", "text": "Ask before all else."}]])
    model = scripted(curator=lambda call: {"operations": next(said)})
    context, _ = after(model, [pair(0), pair(1)])
    assert "Ask first." in model.calls[1].text
    (entry,) = [e for e in context if e.number > 1]
    assert (entry.text, entry.helpful, entry.sources) == ("Ask before all else.", 3, ("task:t0", "task:t1"))


@pytest.mark.parametrize(("most", "votes"), [(1, 3), (2, 1)])
def test_a_doubt_weighs_more_while_the_list_is_full(most: int, votes: int) -> None:
    model = operating({"op": "REMOVE", "id": "e0"})
    context, _ = after(model, LESSONS, most=most)
    entry = context.get("e0")
    assert entry is not None
    assert entry.harmful == votes
    assert ("list of insights is full" in model.calls[0].text) is (votes == 3)
