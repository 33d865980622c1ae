"""Reflection: what the reflector reads, its verdicts as votes, and lessons without a model."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from typing import Any

import pytest
from helpers import client
from runs import indoors

from practicum.blocks.reflect.evidence import evidence
from practicum.blocks.reflect.per_trace import as_experience, by_model, per_trace, without_reflector
from practicum.core.context import Context, seed_context
from practicum.core.errors import ProviderError
from practicum.core.types import Feedback, Instructions, Lesson, Profile, Rollout, Round, Step, Task, Trace, Turn
from practicum.engine.loop import ReflectSeam
from practicum.models.scripted import ScriptedClient

CONTEXT = seed_context([("rules", "If it is red, stop."), ("rules", "If it is green, go.")])
RIGHT = Feedback(True, "The answer is right.", "x")
WRONG = Feedback(False, "The answer is wrong. The right answer is: x", "x")
UNKNOWN = Feedback(None, "Nothing is known about whether the answer is right.")
EXAMPLES = (Turn("an attempt", "a reflection"),)


def rollout(said: Feedback = WRONG, n: int = 0, **trace: Any) -> Rollout:
    made = Trace(**{"answer": "y", "used": ("e0",), **trace})
    return Rollout(Task(f"t{n}", f"What is {n}?", "x", {"tags": "old"}), made, None, said, f"step 1/{n}")


def reflection(insight: str = "If it is red, wait.", **tags: str) -> str:
    verdicts = [{"id": id, "verdict": verdict} for id, verdict in tags.items()]
    return json.dumps(
        {"kind": "a light", "correction": "x", "insight": insight, "diagnosis": "ran", "tags": verdicts}
    )  # fmt: skip


def reflected(
    reflect: ReflectSeam, rollouts: Sequence[Rollout], model: ScriptedClient | None = None, profile: Profile = "small",
    context: Context = CONTEXT,
) -> tuple[list[Lesson], dict[str, int]]:  # fmt: skip
    run = indoors(model or client(), profile=profile).at("reflect")
    return asyncio.run(reflect(rollouts, context, run)), dict(run.counts)


MODEL = by_model(Instructions("Reflect.", examples=EXAMPLES))


def test_a_small_reflector_is_shown_the_attempt_its_feedback_and_only_the_rules_it_relied_on() -> None:
    model = client(lambda call: reflection())
    steps = (Step("action", "looked"),)
    ((lesson,), _) = reflected(per_trace(MODEL), [rollout(reasoning="hm", steps=steps)], model)
    (call,) = model.calls
    assert (call.role, call.prompt.system, call.prompt.turns, call.prompt.pages) == (
        "reflector", "Reflect.", EXAMPLES, (),
    )  # fmt: skip
    for part in ("What is 0?", "Action: looked", "Reasoning: hm", "Answer: y", WRONG.text, "[e0] (rules) If it is red"):
        assert part in call.prompt.user
    assert "If it is green" not in call.prompt.user
    assert lesson.text == "If it is red, wait."
    assert lesson.sources == ("task:t0", "rollout:step 1/0", "tag:old")
    assert lesson.detail == evidence(rollout(reasoning="hm", steps=steps))
    assert dict(lesson.data) == {"kind": "a light", "diagnosis": "ran", "correction": "x"}


STEPS = "When it is red:\n1. slow down\n2. stop at the line"
CODE = "if light == 'red':\n    # at the line\n    stop()"


def whole(*insights: tuple[str, str], **tags: str) -> str:
    """A reflection as a capable model writes it."""
    return json.dumps({
        "reasoning": "It saw red.\n\nIt went on.", "diagnosis": "ran", "cause": "haste", "correction": "x",
        "tags": [{"id": id, "verdict": verdict} for id, verdict in tags.items()],
        "insights": [{"section": section, "text": text} for section, text in insights],
    })  # fmt: skip


def test_a_capable_reflector_is_shown_the_playbook_its_sections_and_the_whole_attempt() -> None:
    model = client(lambda call: whole())
    steps = (Step("action", 'look {"at": "light"}'), Step("observation", "red\n" * 3_000 + "at last green"))
    reflected(per_trace(MODEL), [rollout(reasoning="hm", steps=steps)], model, "full")
    (call,) = model.calls
    assert call.prompt.system.startswith("Reflect.\n\n# The sections of the playbook\n- strategies: how to go about")
    assert "\n".join(call.prompt.pages) == "[e0] (rules) If it is red, stop.\n[e1] (rules) If it is green, go."
    assert call.prompt.turns == ()
    assert call.prompt.user == (
        "# Entries that the agent says it used\n[e0]\n\n"
        f"# The attempt\nTask: What is 0?\nAction: {steps[0].text}\nObservation: {steps[1].text}\n"
        f"Reasoning: hm\nAnswer: y\nFeedback: {WRONG.text}"
    )
    assert call.schema is not None
    assert not {"pattern", "maxLength", "maxItems"} & set(re.findall(r'"(\w+)":', json.dumps(call.schema)))


def test_each_insight_of_a_reflection_is_a_lesson_of_its_section_word_for_word() -> None:
    model = client(lambda call: whole(("Strategy", STEPS), ("code", f"\n{CODE}  \n"), ("pitfalls", " "), e0="harmful"))
    (first, second), counts = reflected(per_trace(MODEL), [rollout()], model, "full")
    assert [(x.section, x.text) for x in (first, second)] == [("strategies", STEPS), ("code", CODE)]
    # It is one reflection, which votes once.
    assert (dict(first.votes), dict(second.votes)) == ({"e0": "harmful"}, {})
    assert (first.of, second.of) == ("", first.id)
    assert first.id != second.id
    assert first.sources == second.sources == ("task:t0", "rollout:step 1/0", "tag:old")
    assert first.data == second.data == {
        "reasoning": "It saw red.\n\nIt went on.", "diagnosis": "ran", "cause": "haste", "correction": "x",
        "feedback": WRONG.text, "verdicts": {"e0": "harmful"},
    }  # fmt: skip
    assert not any(counts.values())


@pytest.mark.parametrize("said", [RIGHT, WRONG, UNKNOWN], ids=["right", "wrong", "unknown"])
def test_a_capable_reflector_need_not_teach_anything_and_still_votes(said: Feedback) -> None:
    model = client(lambda call: whole(e0="helpful"))
    ((lesson,), _) = reflected(per_trace(MODEL), [rollout(said)], model, "full")
    assert (lesson.text, dict(lesson.votes), lesson.data["cause"]) == ("", {"e0": "helpful"}, "haste")
    assert len(model.calls) == 1


def test_without_rules_a_capable_reflector_reads_the_sections_alone_and_the_outcome_votes() -> None:
    model = client(lambda call: whole(e0="helpful"))
    reflect = per_trace(by_model(Instructions("Reflect."), rules_shown=False))
    ((lesson,), _) = reflected(reflect, [rollout()], model, "full")
    (call,) = model.calls
    assert call.prompt.pages == ()
    assert "- pitfalls: " in call.prompt.system
    assert "e0" not in call.text
    assert dict(lesson.votes) == {"e0": "harmful"}


def test_a_playbook_above_the_window_is_shown_in_part_what_was_used_and_what_is_near() -> None:
    filler = [f"If drawer {n} of the old cabinet is open, close it." * 4 for n in range(200)]
    context = seed_context([("rules", text) for text in (*filler, "What is 0? The first number.", "Be brief.")])
    model = client(lambda call: whole(), window=8192)
    _, counts = reflected(per_trace(MODEL), [rollout(used=("e77",))], model, "full", context)
    (call,) = model.calls
    assert call.prompt.pages[0] == "(of 202 entries, those used or nearest to this)"
    shown = re.findall(r"^\[(e\d+)\]", "\n".join(call.prompt.pages), re.MULTILINE)
    assert {"e77", "e200"} < set(shown)
    assert len(shown) < 100
    assert counts["shortened_playbooks"] == 1
    assert "shortened_prompts" not in counts
    # One that fits is shown whole.
    _, counts = reflected(per_trace(MODEL), [rollout()], client(lambda call: whole(), window=8192), "full")
    assert "shortened_playbooks" not in counts


def test_votes_are_for_entries_that_were_used_and_no_others() -> None:
    model = client(lambda call: reflection(e0="harmful", e1="helpful", e9="harmful"))
    ((lesson,), counts) = reflected(per_trace(MODEL), [rollout(used=("e0",))], model)
    assert dict(lesson.votes) == {"e0": "harmful"}
    assert counts["unknown_tags"] == 2
    ((lesson,), counts) = reflected(per_trace(MODEL), [rollout(used=("e0", "e1"))],
                                    client(lambda call: reflection(e1="helpful")))  # fmt: skip
    assert dict(lesson.votes) == {"e0": "neutral", "e1": "helpful"}


def test_a_success_may_teach_nothing_and_a_failure_has_to() -> None:
    model = client(lambda call: reflection(""))
    reflected(per_trace(MODEL), [rollout(RIGHT), rollout(WRONG, 1), rollout(UNKNOWN, 2)], model)
    patterns = {
        call.prompt.user.split("What is ")[1][0]: (call.schema or {})["properties"]["insight"]["pattern"]
        for call in model.calls
    }
    assert [patterns[n].endswith(")?$") for n in "012"] == [True, False, True]


def test_each_attempt_of_a_batch_is_reflected_on_by_itself_in_order() -> None:
    model = client(lambda call: reflection("If " + call.prompt.user.split("What is ")[1][0] + ", wait."))
    lessons, _ = reflected(per_trace(MODEL), [rollout(n=n) for n in range(5)], model)
    assert len(model.calls) == 5
    assert [lesson.text for lesson in lessons] == [f"If {n}, wait." for n in range(5)]
    assert len({lesson.id for lesson in lessons}) == 5


@pytest.mark.parametrize(
    ("answer", "calls"), [("no JSON", 3), (ProviderError("provider.failed", "gone"), 1)], ids=["bad", "gone"]
)
def test_a_lost_reflection_is_counted_and_the_others_are_kept(answer: str | Exception, calls: int) -> None:
    model = client(lambda call: answer if "What is 1" in call.text else reflection())
    lessons, counts = reflected(per_trace(MODEL), [rollout(n=n) for n in range(3)], model)
    assert [lesson.sources[0] for lesson in lessons] == ["task:t0", "task:t2"]
    assert counts["lost_reflections"] == 1
    assert len(model.calls) == 2 + calls


def test_nothing_is_learned_from_a_lost_attempt() -> None:
    gone = rollout(Feedback(False, "The attempt failed: gone"), lost=True, error="gone")
    for reflect in (per_trace(MODEL), per_trace(without_reflector), as_experience):
        model = client(lambda call: reflection())
        assert reflected(reflect, [gone], model) == ([], {})
        assert model.calls == []


def with_rounds(*confirmed: bool) -> Rollout:
    lessons = [
        Lesson(f"l{n}", f"insight {n}", votes={"e0": "harmful"}, confirmed=sure) for n, sure in enumerate(confirmed)
    ]
    first = rollout()
    return Rollout(first.task, first.trace, None, WRONG, first.place, tuple(Round(lesson) for lesson in lessons))


@pytest.mark.parametrize(("only_confirmed", "texts"), [(False, ["insight 0", "insight 1"]), (True, ["", "insight 1"])])
def test_reflections_made_during_the_attempt_are_kept_as_they_are(only_confirmed: bool, texts: list[str]) -> None:
    model = client(lambda call: reflection())
    reflect = per_trace(MODEL, "all", only_confirmed)
    lessons, _ = reflected(reflect, [with_rounds(False, True)], model)
    assert [lesson.text for lesson in lessons] == texts
    assert [dict(lesson.votes) for lesson in lessons] == [{"e0": "harmful"}] * 2
    assert model.calls == []


@pytest.mark.parametrize(("said", "verdict"), [(RIGHT, "helpful"), (WRONG, "harmful"), (UNKNOWN, "neutral")])
def test_without_a_reflector_the_outcome_votes_and_the_attempt_is_the_lesson(said: Feedback, verdict: str) -> None:
    model = client()
    ((lesson,), _) = reflected(per_trace(without_reflector), [rollout(said)], model)
    assert model.calls == []
    assert dict(lesson.votes) == {"e0": verdict}
    assert lesson.text == evidence(rollout(said))


def test_a_success_only_votes_if_only_failures_are_learned_from() -> None:
    model = client(lambda call: reflection())
    rollouts = [rollout(RIGHT), rollout(UNKNOWN, 1)]
    (first, second), _ = reflected(per_trace(MODEL, "failures"), rollouts, model)
    assert (first.text, dict(first.votes)) == ("", {"e0": "helpful"})
    assert second.text
    assert len(model.calls) == 1


@pytest.mark.parametrize(
    ("said", "answer", "good", "corrected"),
    [
        (RIGHT, "y", True, False),
        (WRONG, "x", True, True),
        (Feedback(False, "The attempt failed"), "y", False, False),
        (UNKNOWN, "y", False, False),
    ],
    ids=["right", "wrong with its target", "wrong without", "unknown"],
)
def test_an_experience_is_the_task_with_its_right_answer(
    said: Feedback, answer: str, good: bool, corrected: bool
) -> None:
    ((lesson,), _) = reflected(as_experience, [rollout(said)])
    assert lesson.text == "What is 0?"
    assert dict(lesson.data) == {"answer": answer, "good": good, "corrected": corrected}
