"""ACE as METHODS section 1 has it: refinement, lessons, curation, grow and refine, and online."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from helpers import client, make_tasks
from scripts import Learned, learned

from practicum.core.context import initial_context, seed_context
from practicum.core.counts import Count
from practicum.core.edits import Add
from practicum.core.types import Task
from practicum.models.scripted import Call, ScriptedClient, in_parts

Agent = Callable[[Call], str | tuple[str, list[str]]]
Reflector = Callable[[Call], str | tuple[str, Mapping[str, str]]]
Curator = Callable[[Call], Sequence[Mapping[str, Any]] | str | Exception]


def number(call: Call) -> int:
    """Which message this is about: the last one named, since worked examples come first."""
    return int(re.findall(r"Message (\d+)", call.prompt.user)[-1])


def right(call: Call) -> str:
    return f"word{number(call)}"


def wrong(call: Call) -> str:
    return "wrong"


def insight(call: Call) -> str:
    return f"If it is message {number(call)}, answer word{number(call)}."


def another(call: Call) -> str:
    """A new insight in each round."""
    return f"If it is message {number(call)}, follow try {earlier(call) + 1}."


def earlier(call: Call) -> int:
    return call.prompt.user.count("\n- If")


def added(call: Call) -> list[dict[str, Any]]:
    """Each lesson becomes a rule."""
    return [
        {"lesson": int(n), "op": "ADD"}
        for n in re.findall(r"^(?:Lesson|Insight) (\d+)", call.prompt.user, re.MULTILINE)
    ]


def scripted(agent: Agent = right, reflector: Reflector = insight, curator: Curator = added) -> ScriptedClient:
    """What each role says, as a function of what it is asked; the forms around it are filled in here."""

    def respond(call: Call) -> str | Exception:
        if call.role == "agent":
            said = agent(call)
            answer, used = (said, []) if isinstance(said, str) else said
            return in_parts(call.prompt, {"used": used, "answer": answer})
        if call.role == "reflector":
            told = reflector(call)
            text, tags = (told, {}) if isinstance(told, str) else told
            verdicts = [{"id": id, "verdict": verdict} for id, verdict in tags.items()]
            return json.dumps({"kind": "", "correction": "", "insight": text, "diagnosis": "", "tags": verdicts})
        decided = curator(call)
        return decided if isinstance(decided, str | Exception) else json.dumps({"decisions": decided})

    return client(respond)


def after_try(n: int) -> Agent:
    """Right once it is told the insight of round n."""
    return lambda call: right(call) if f"try {n}." in call.prompt.user else "wrong"


# ---- refinement


def test_only_confirmed_insights_stay_but_all_votes_count(tmp_path: Path) -> None:
    def citing(call: Call) -> tuple[str, list[str]]:
        return str(after_try(2)(call)), ["e0"]

    run = learned(
        tmp_path, scripted(citing, lambda call: (another(call), {"e0": "harmful"})),
        settings={"lessons": "confirmed", "harmful": 0}, seed_context=seed_context([("rules", "If in doubt, guess.")]),
    )  # fmt: skip
    assert run.texts == ["If in doubt, guess.", "If it is message 0, follow try 2."]
    assert "try 1" not in run.calls("curator")[0].text
    rule = run.result.context.get("e0")
    assert rule is not None
    assert (rule.helpful, rule.harmful, rule.uses) == (0, 2, 2)


HIDDEN = [Task("t0", "Message 0: which?", "the-target")]


def test_an_insight_may_contain_the_target(tmp_path: Path) -> None:
    run = learned(tmp_path, scripted(wrong, lambda call: "If it is asked, answer the-target."), HIDDEN)
    assert ["the-target" in call.text for call in run.calls("agent")] == [False, True, True, True]


def test_critique_is_bounded_and_counts_the_attempt_once(tmp_path: Path) -> None:
    run = learned(
        tmp_path,
        scripted(lambda call: ("wrong", ["e0"]), lambda call: (another(call), {"e0": "harmful"})),
        settings={"refine": "critique", "rounds": 3},
        seed_context=seed_context([("rules", "If in doubt, guess.")]),
    )
    assert len(run.calls("reflector")) == 3
    rule = run.result.context.get("e0")
    assert rule is not None
    assert (rule.harmful, rule.uses) == (1, 1)
    assert len(run.texts) == 4


# ---- what is learned from


def test_from_all_a_success_is_reflected_on_and_may_teach_nothing(tmp_path: Path) -> None:
    def known(call: Call) -> tuple[str, dict[str, str]]:
        return (insight(call) if number(call) else ""), {"e0": "helpful", "e77": "harmful"}

    run = learned(
        tmp_path, scripted(lambda call: (right(call), ["e0"]), known), 2, {"batch": 2},
        seed_context=seed_context([("rules", "If in doubt, guess.")]),
    )  # fmt: skip
    assert len(run.calls("reflector")) == 2
    assert run.texts == ["If in doubt, guess.", "If it is message 1, answer word1."]
    assert "Message 0" not in run.calls("curator")[0].prompt.user
    rule = run.result.context.get("e0")
    assert rule is not None
    assert (rule.helpful, rule.uses) == (2, 2)
    assert run.result.errors["unknown_tags"] == 2


def test_a_reflector_that_does_not_read_the_rules_leaves_the_votes_to_the_outcome(tmp_path: Path) -> None:
    def half(call: Call) -> tuple[str, list[str]]:
        return ("wrong", ["e0"]) if number(call) else (right(call), ["e1"])

    seed = seed_context([("rules", "If in doubt, guess."), ("rules", "If sure, say so.")])
    run = learned(tmp_path, scripted(half), 2, {"rules_shown": False, "rounds": 0, "batch": 2}, seed_context=seed)
    assert len(run.calls("reflector")) == 2
    assert not [call for call in run.calls("reflector") if "# The playbook" in call.text]
    entries = {e.id: e for e in run.result.context}
    assert [(entries[id].helpful, entries[id].harmful, entries[id].uses) for id in ("e0", "e1")] == [
        (0, 1, 1), (1, 0, 1),
    ]  # fmt: skip


# ---- curation: every decision is carried out, or held back, and each lesson is accounted for

RULES = (
    ("rules", "If it is red, answer Red."),
    ("rules", "If it is crimson, answer Red."),
    ("rules", "If it is blue, answer Blue."),
)
LESSON = "If it is scarlet, answer Red."


def curated(folder: Path, *decisions: dict[str, Any], lessons: int = 1, **settings: Any) -> Learned:
    """One step with a failure each of `lessons` messages, in which e2 misled."""
    tasks = [Task(f"t{n}", f"Message {n}: which?", "Red") for n in range(lessons)]

    def reflector(call: Call) -> tuple[str, dict[str, str]]:
        return LESSON if number(call) == 0 else "If it is navy, answer Blue.", {"e2": "harmful"}

    # The order within an epoch is a matter of chance; online it is the given one.
    return learned(
        folder, scripted(lambda call: ("Blue", ["e2"]), reflector, lambda call: decisions), tasks,
        {"rounds": 0, "batch": lessons, "online": True, "guards": True, "uncovered": "keep", **settings},
        seed_context=seed_context(RULES), choices=("Red", "Blue"), scorer="exact",
    )  # fmt: skip


RED, CRIMSON, BLUE = (text for _, text in RULES)
BOTH = "If it is red or scarlet, answer Red."
REDS = "If it is any red, answer Red."


@pytest.mark.parametrize(
    ("decision", "counter"),
    [
        ({"op": "UPDATE", "ids": ["e2"], "text": "If it is blue or scarlet, answer Blue."},
         Count.HELD_BACK_ANSWER_CONFLICT),
        ({"op": "UPDATE", "ids": ["e0"], "text": "If it is red or scarlet, answer Blue."},
         Count.HELD_BACK_ANSWER_CONFLICT),
        ({"op": "UPDATE", "ids": ["e0"], "text": " "}, Count.HELD_BACK_NO_TEXT),
        ({"op": "UPDATE", "ids": ["e9"], "text": BOTH}, Count.HELD_BACK_UNKNOWN_ENTRY),
        ({"op": "UPDATE", "ids": ["e9", "e0"], "text": BOTH}, Count.HELD_BACK_UNKNOWN_ENTRY),
        ({"op": "UPDATE", "text": BOTH}, Count.HELD_BACK_UNKNOWN_ENTRY),
        ({"op": "MERGE", "ids": ["e0", "e2"]}, Count.HELD_BACK_ANSWER_CONFLICT),
        ({"op": "MERGE", "ids": ["e0", "e1", "e9"]}, Count.HELD_BACK_UNKNOWN_ENTRY),
        ({"op": "MERGE", "ids": ["e0"], "text": REDS}, Count.HELD_BACK_SINGLE_MERGE),
        ({"op": "MERGE", "ids": ["e0", "e0"], "text": REDS}, Count.HELD_BACK_SINGLE_MERGE),
        ({"op": "DELETE", "ids": ["e0"]}, Count.HELD_BACK_HELPFUL_ENTRY),
        ({"op": "DELETE", "ids": ["e9"]}, Count.HELD_BACK_UNKNOWN_ENTRY),
        ({"op": "COVERED", "ids": ["e2"]}, Count.HELD_BACK_ANSWER_CONFLICT),
        ({"op": "COVERED"}, Count.HELD_BACK_UNKNOWN_ENTRY),
        ({"op": "COVERED", "ids": ["e9", "e0"]}, Count.HELD_BACK_UNKNOWN_ENTRY),
        ({"op": "ADD", "lesson": 7}, Count.HELD_BACK_UNKNOWN_LESSON),
    ],
)  # fmt: skip
def test_a_decision_that_would_harm_is_held_back_counted_and_the_lesson_kept(
    tmp_path: Path, decision: dict[str, Any], counter: Count
) -> None:
    run = curated(tmp_path, {"lesson": 1, **decision})
    assert run.texts == [RED, CRIMSON, BLUE, LESSON]
    assert run.result.errors == {counter: 1, Count.KEPT_LESSONS: 1}
    assert run.result.refused == 0


def test_a_lesson_whose_edit_is_held_back_is_kept(tmp_path: Path) -> None:
    """The curator wanted it in; only what it says nothing of is dropped where that is the setting."""
    wrong = {"op": "UPDATE", "ids": ["e2"], "text": "If it is blue or scarlet, answer Blue."}
    run = curated(tmp_path, {"lesson": 1, **wrong}, lessons=2, uncovered="drop")
    assert run.texts == [RED, CRIMSON, BLUE, LESSON]
    assert run.result.errors["kept_lessons"] == run.result.errors["dropped_lessons"] == 1


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"op": "DELETE", "ids": ["e2"]}, {"op": "UPDATE", "ids": ["e2"], "text": "If blue or navy, answer Blue."}),
        ({"op": "MERGE", "ids": ["e0", "e1"]}, {"op": "UPDATE", "ids": ["e1"], "text": "If crimson, answer Red."}),
    ],
    ids=["deleted", "merged away"],
)
def test_a_rule_removed_by_an_earlier_decision_takes_no_lesson(
    tmp_path: Path, first: dict[str, Any], second: dict[str, Any]
) -> None:
    run = curated(tmp_path, {"lesson": 1, **first}, {"lesson": 2, **second}, lessons=2)
    assert run.result.errors["held_back_unknown_entry"] == 1
    assert "If it is navy, answer Blue." in run.texts
    assert run.result.refused == 0


def test_a_rule_that_the_same_call_adds_cannot_be_addressed(tmp_path: Path) -> None:
    """Its id is not known to the curator: what it names so is a guess."""
    added, guessed = {"lesson": 1, "op": "ADD"}, {"lesson": 2, "op": "COVERED", "ids": ["e3"]}
    run = curated(tmp_path, added, guessed, lessons=2)
    assert run.result.errors["held_back_unknown_entry"] == 1
    assert run.texts == [RED, CRIMSON, BLUE, LESSON, "If it is navy, answer Blue."]


def test_a_rule_that_helped_is_not_deleted_for_one_harm(tmp_path: Path) -> None:
    seed = initial_context([Add("rules", BLUE, helpful=2)])
    run = learned(
        tmp_path,
        scripted(
            lambda call: ("Blue", ["e0"]),
            lambda call: (LESSON, {"e0": "harmful"}),
            lambda call: [{"lesson": 1, "op": "DELETE", "ids": ["e0"]}],
        ),
        [Task("t0", "Message 0", "Red")], {"rounds": 0, "guards": True, "uncovered": "keep"}, seed_context=seed,
    )  # fmt: skip
    assert run.texts == [BLUE, LESSON]


def deleting(number: int) -> Curator:
    """Deletes the first entries, each for the lesson."""
    return lambda call: [{"lesson": 1, "op": "DELETE", "ids": [f"e{n}"]} for n in range(number)]


@pytest.mark.parametrize("needed", [True, False])
def test_with_a_gate_the_validation_tasks_decide_on_a_mass_deletion(tmp_path: Path, needed: bool) -> None:
    def agent(call: Call) -> str:
        return right(call) if needed and "Rule" in call.text and "Message 5" in call.text else "wrong"

    run = learned(
        tmp_path, scripted(agent, curator=deleting(4)), settings={"rounds": 0, "gate": True}, profile="full",
        val=make_tasks(8, 50), seed_context=seed_context([("rules", f"Rule {n}.") for n in range(4)]),
    )  # fmt: skip
    assert len(run.reports[0].context) == (4 if needed else 0)
    errors = run.result.errors
    assert (errors["mass_deletions"], errors.get("gated_deltas", 0)) == (1, needed)
    assert "held_back_mass_deletion" not in errors


# ---- grow and refine


# ---- offline, online, validation


# ---- prompts


def test_the_curators_form_lets_it_name_only_rules_that_are_there(tmp_path: Path) -> None:
    settings = {"rounds": 0, "online": True, "curator": "edits", "batch": 1}
    run = learned(tmp_path, scripted(wrong), 2, settings, profile="small")
    first, second = (call.schema["$defs"]["Decision"]["properties"] for call in run.calls("curator"))
    assert first["op"]["enum"] == ["ADD"]
    assert first["ids"]["maxItems"] == 0
    assert set(second["op"]["enum"]) > {"ADD", "UPDATE"}
    assert second["ids"]["items"]["enum"] == ["e0"]


def test_without_a_reflector_a_long_attempt_is_read_in_part(tmp_path: Path) -> None:
    parts = {"agent": lambda text, context: f"begin {'a long story ' * 3000} end"}
    settings = {"reflector": False, "batch": 2, "curator": "edits"}
    run = learned(tmp_path, client(window=8192), 4, settings, parts=parts, profile="small")
    read = [call.prompt.user for call in run.model.calls if call.role == "curator"]
    assert len(read) >= 2
    assert all("Answer: begin a long story" in prompt and "a long story  end" in prompt for prompt in read)
    assert all(len(lesson.text) < 2_100 < len(lesson.detail) for r in run.reports for lesson in r.lessons)
