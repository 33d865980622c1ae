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

from practicum.core.context import Context, initial_context, seed_context
from practicum.core.counts import Count
from practicum.core.edits import Add, Vote
from practicum.core.errors import ProviderError
from practicum.core.types import Task
from practicum.core.views import render_full
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


def test_the_first_success_ends_the_retries_and_confirms_the_lesson(tmp_path: Path) -> None:
    run = learned(tmp_path, scripted(after_try(2), another), settings={"rounds": 5})
    assert [call.role for call in run.model.calls] == ["agent", *["reflector", "agent"] * 2, "curator"]
    (rollout,) = run.reports[0].rollouts
    assert [round.lesson.confirmed for round in rollout.rounds] == [False, True]
    assert rollout.score is not None
    assert rollout.score.value == 0.0
    assert run.texts == ["If it is message 0, follow try 1.", "If it is message 0, follow try 2."]
    told = run.calls("curator")[0].prompt.user.splitlines()
    assert ["(confirmed" in line for line in told if line.startswith("# Reflection")] == [False, True]


@pytest.mark.parametrize("rounds", [1, 3, 10])
def test_the_lessons_of_all_rounds_reach_the_curator(tmp_path: Path, rounds: int) -> None:
    run = learned(tmp_path, scripted(wrong, another), settings={"rounds": rounds})
    assert len(run.calls("reflector")) == rounds
    assert len(run.calls("agent")) == 1 + rounds
    assert len(run.calls("curator")) == 1
    prompt = run.calls("curator")[0].prompt.user
    assert all(f"follow try {n}." in prompt for n in range(1, rounds + 1))


def test_without_rounds_an_attempt_is_reflected_on_once(tmp_path: Path) -> None:
    run = learned(tmp_path, scripted(wrong), settings={"rounds": 0})
    assert [call.role for call in run.model.calls] == ["agent", "reflector", "curator"]


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


def test_the_next_try_is_shown_the_insight_and_not_the_target(tmp_path: Path) -> None:
    run = learned(tmp_path, scripted(wrong, another), HIDDEN)
    assert any("the-target" in call.text for call in run.calls("reflector"))
    tries = run.calls("agent")
    assert len(tries) == 4
    assert not [call for call in tries if "the-target" in call.text]
    assert ["follow try" in call.prompt.user for call in tries] == [False, True, True, True]


def test_an_insight_may_contain_the_target(tmp_path: Path) -> None:
    run = learned(tmp_path, scripted(wrong, lambda call: "If it is asked, answer the-target."), HIDDEN)
    assert ["the-target" in call.text for call in run.calls("agent")] == [False, True, True, True]


def test_critique_shows_the_reflector_its_earlier_insights_until_it_repeats_itself(tmp_path: Path) -> None:
    def improving(call: Call) -> str:
        return ("If a, answer b.", "If a or c, answer b.", "If a or c, answer b.")[earlier(call)]

    run = learned(tmp_path, scripted(wrong, improving), settings={"refine": "critique", "rounds": 5})
    assert [call.role for call in run.model.calls] == ["agent", "reflector", "reflector", "reflector", "curator"]
    prompts = [call.prompt.user for call in run.calls("reflector")]
    assert [("- If a, answer b." in p, "- If a or c, answer b." in p) for p in prompts] == [
        (False, False), (True, False), (True, True),
    ]  # fmt: skip
    assert run.texts == ["If a, answer b.", "If a or c, answer b."]


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


def test_from_failures_only_a_success_costs_no_reflection_and_counts_what_it_used(tmp_path: Path) -> None:
    def half(call: Call) -> tuple[str, list[str]]:
        return (right(call) if number(call) % 2 else "wrong"), ["e0"]

    run = learned(
        tmp_path, scripted(half), 4, {"learn_from": "failures", "rounds": 1, "batch": 4},
        seed_context=seed_context([("rules", "If in doubt, guess.")]),
    )  # fmt: skip
    assert {number(call) for call in run.calls("reflector")} == {0, 2}
    rule = run.result.context.get("e0")
    assert rule is not None
    assert (rule.helpful, rule.harmful, rule.uses) == (2, 0, 4)


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


@pytest.mark.parametrize("curator", ["edits", "append"])
def test_without_a_reflector_the_raw_attempt_is_the_lesson_and_no_try_sees_the_target(
    tmp_path: Path, curator: str
) -> None:
    tasks = [Task(f"t{n}", f"Message {n}: which?", f"the-target-{n}") for n in range(3)]
    settings = {"reflector": False, "curator": curator}
    run = learned(tmp_path, scripted(wrong), tasks, settings)
    assert run.calls("reflector") == []
    assert len(run.calls("agent")) == 3
    for call in run.calls("agent"):
        assert f"the-target-{number(call)}" not in call.text
    assert [text.splitlines()[-1] for text in run.texts] == [
        f"Feedback: The answer is wrong. The right answer is: {r.batch.tasks[0].target}" for r in run.reports
    ]


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
    ("decision", "rules"),
    [
        ({"op": "ADD"}, [RED, CRIMSON, BLUE, LESSON]),
        ({"op": "ADD", "text": "If it is  scarlet\n or so, answer Red."},
         [RED, CRIMSON, BLUE, "If it is  scarlet\n or so, answer Red."]),
        ({"op": "UPDATE", "ids": ["e0"], "text": BOTH}, [BOTH, CRIMSON, BLUE]),
        ({"op": "UPDATE", "ids": ["[e0]"], "text": BOTH}, [BOTH, CRIMSON, BLUE]),
        ({"op": "MERGE", "ids": ["e1", "e0"], "text": REDS}, [REDS, BLUE]),
        ({"op": "MERGE", "ids": ["e0", "e1"]}, [RED, BLUE]),
        ({"op": "DELETE", "ids": ["e2"]}, [RED, CRIMSON, LESSON]),
        ({"op": "COVERED", "ids": ["e0"]}, [RED, CRIMSON, BLUE]),
    ],
    ids=["add", "add better said", "update", "id in brackets", "merge", "merge as the oldest", "delete", "covered"],
)  # fmt: skip
def test_each_decision_is_carried_out(tmp_path: Path, decision: dict[str, Any], rules: list[str]) -> None:
    run = curated(tmp_path, {"lesson": 1, "reason": "because", **decision})
    assert run.texts == rules
    assert run.result.refused == 0
    changed = [a.edit for a in run.reports[0].applied if a.edit.op != "vote"]
    assert all(edit.lessons and "task:t0" in edit.sources for edit in changed)


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


def test_a_second_change_of_a_rule_does_not_undo_the_first_unseen(tmp_path: Path) -> None:
    first = {"lesson": 1, "op": "UPDATE", "ids": ["e0"], "text": BOTH}
    run = curated(tmp_path, first, {"lesson": 2, "op": "UPDATE", "ids": ["e0"], "text": RED}, lessons=2)
    assert run.result.errors["held_back_changed_entry"] == 1
    assert run.texts == [BOTH, CRIMSON, BLUE, "If it is navy, answer Blue."]


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


@pytest.mark.parametrize(("entries", "deleted", "refused"), [(4, 4, 4), (4, 3, 3), (2, 2, 2), (4, 2, 0), (1, 1, 0)])
def test_a_step_that_would_delete_most_of_the_playbook_deletes_nothing(
    tmp_path: Path, entries: int, deleted: int, refused: int
) -> None:
    seed = seed_context([("rules", f"Rule {n}.") for n in range(entries)])
    run = learned(
        tmp_path, scripted(wrong, curator=deleting(deleted)),
        settings={"rounds": 0, "uncovered": "keep"},
        seed_context=seed, profile="full",
    )  # fmt: skip
    kept = [f"Rule {n}." for n in range(0 if refused else deleted, entries)]
    # The lesson that a refused deletion rested on is not lost with it.
    assert run.texts == [*kept, *(["If it is message 0, answer word0."] if refused else [])]
    assert [one.edit.op for one in run.reports[0].refused] == ["delete"] * refused
    assert all("playbook" in one.reason for one in run.reports[0].refused)
    assert run.result.refused == refused
    errors = run.result.errors
    assert (errors.get("mass_deletions", 0), errors.get("held_back_mass_deletion", 0)) == (refused > 0, refused)


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


@pytest.mark.parametrize(
    ("uncovered", "counter", "entries"), [("keep", "kept_lessons", 2), ("drop", "dropped_lessons", 1)]
)
def test_a_lesson_the_curator_forgets_is_kept_or_dropped_and_counted(
    tmp_path: Path, uncovered: str, counter: str, entries: int
) -> None:
    run = learned(
        tmp_path, scripted(wrong, curator=lambda call: [{"lesson": 2, "op": "ADD"}]), 2,
        {"rounds": 0, "batch": 2, "uncovered": uncovered},
    )  # fmt: skip
    assert len(run.texts) == entries
    assert run.result.errors[counter] == 1


@pytest.mark.parametrize(
    "answer", ["Sure, here it is.", ProviderError("provider.failed", "gone")], ids=["bad JSON", "provider"]
)
def test_a_curator_that_fails_loses_neither_votes_nor_lessons(tmp_path: Path, answer: str | Exception) -> None:
    run = learned(
        tmp_path,
        scripted(lambda call: ("wrong", ["e0"]), lambda call: (insight(call), {"e0": "harmful"}), lambda call: answer),
        settings={"rounds": 0, "uncovered": "keep"}, seed_context=seed_context([("rules", "If in doubt, guess.")]),
    )  # fmt: skip
    assert len(run.calls("curator")) == (3 if isinstance(answer, str) else 1)
    assert run.result.errors["lost_updates"] == 1
    rule = run.result.context.get("e0")
    assert rule is not None
    assert (rule.harmful, rule.uses) == (1, 1)
    assert run.texts == ["If in doubt, guess.", "If it is message 0, answer word0."]


def test_appending_asks_no_curator(tmp_path: Path) -> None:
    run = learned(tmp_path, scripted(wrong), 3, {"curator": "append", "batch": 3})
    assert run.calls("curator") == []
    assert len(run.texts) == 9
    assert set(run.texts) == {f"If it is message {n}, answer word{n}." for n in range(3)}


def test_rewriting_replaces_everything_and_rests_on_everything(tmp_path: Path) -> None:
    whole = json.dumps({"entries": [{"section": "rules", "text": "All in one."}, {"section": "", "text": "More."}]})
    seed = seed_context([("rules", "If in doubt, guess."), ("rules", "If tired, rest.")])
    run = learned(
        tmp_path, scripted(wrong, curator=lambda call: whole), settings={"curator": "rewrite"}, seed_context=seed
    )
    assert run.texts == ["All in one.", "More."]
    for entry in run.result.context:
        assert entry.id not in ("e0", "e1")
        assert {"seed", "task:t0"} <= set(entry.sources)


# ---- grow and refine

SAME = "If it is any message at all, answer by its last word."


@pytest.mark.parametrize(
    ("settings", "ids"),
    [
        ({"dedupe": "proactive"}, ["e0"]),
        ({"dedupe": "lazy"}, ["e0", "e1", "e2"]),
        ({"dedupe": "lazy", "budget": 25}, ["e0"]),
        ({"dedupe": "never"}, ["e0", "e1", "e2"]),
        ({"dedupe": "never", "budget": 25}, ["e2"]),
    ],
    ids=["proactive", "lazy", "lazy over budget", "never", "never over budget"],
)
def test_duplicates_go_into_the_oldest(tmp_path: Path, settings: dict[str, Any], ids: list[str]) -> None:
    run = learned(tmp_path, scripted(wrong, lambda call: SAME), 3, {"rounds": 0, "batch": 3, **settings})
    entries = list(run.result.context)
    assert [e.id for e in entries] == ids
    if ids == ["e0"]:
        assert {"task:t0", "task:t1", "task:t2"} <= set(entries[0].sources)
        assert run.result.errors["duplicate_entries"] == 2


@pytest.mark.parametrize(("margin", "stays"), [(0, True), (3, False), (4, True)])
def test_an_entry_that_harms_by_a_margin_is_dropped(tmp_path: Path, margin: int, stays: bool) -> None:
    run = learned(
        tmp_path,
        scripted(lambda call: ("wrong", ["e0"]), lambda call: (insight(call), {"e0": "harmful"})), 3,
        {"rounds": 0, "batch": 3, "harmful": margin}, seed_context=seed_context([("rules", "If in doubt, guess.")]),
    )  # fmt: skip
    assert ("e0" in run.result.context) is stays
    assert run.result.errors.get("pruned_entries", 0) == (0 if stays else 1)


LEAVING = ["e1", "e4", "e2", "e3", "e0", "e5"]
"""Who goes in which order: the most harmful, the harmful, the unused by age, the used by how much they helped."""


def worn() -> Context:
    votes = [(0, 1), (0, 2), (0, 0), (0, 0), (1, 2), (3, 1)]
    adds = [
        Add("rules", f"If it is case number {n}, do it.", helpful=up, harmful=down)
        for n, (up, down) in enumerate(votes)
    ]
    used = [Vote(f"e{n}", uses=1) for n in (0, 1, 4, 5)]
    return initial_context([*adds, Vote("e0", helpful=2), *used])


@pytest.mark.parametrize("gone", range(7))
def test_the_budget_is_enforced_by_code_in_the_order_of_worth(tmp_path: Path, gone: int) -> None:
    seed = worn()
    stay = sorted(LEAVING[gone:])
    # What each entry takes is rounded down, so that it is only sure to be enough with a token of room for each.
    budget = (
        render_full(initial_context(Add("rules", e.text) for e in seed if e.id in stay)).tokens + gone if stay else 1
    )
    run = learned(tmp_path, scripted(reflector=lambda call: ""), settings={"budget": budget}, seed_context=seed)
    assert [e.id for e in run.result.context] == stay
    assert render_full(run.result.context).tokens <= budget
    assert run.result.errors.get("pruned_entries", 0) == gone


# ---- offline, online, validation


def order(calls: Sequence[Call]) -> list[int]:
    return [number(call) for call in calls]


def test_each_epoch_goes_through_all_tasks_in_another_order(tmp_path: Path) -> None:
    run = learned(tmp_path, scripted(), 12, {"epochs": 3, "batch": 5})
    assert [r.batch.epoch for r in run.reports] == [1] * 3 + [2] * 3 + [3] * 3
    seen = order(run.calls("agent"))
    epochs = [seen[start : start + 12] for start in (0, 12, 24)]
    assert all(sorted(epoch) == list(range(12)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3


def informed(call: Call) -> str:
    """Right where the playbook holds the rule for this very message."""
    return right(call) if f"If it is message {number(call)}, answer" in call.prompt.head else "wrong"


def test_online_each_prediction_is_made_before_its_own_update(tmp_path: Path) -> None:
    run = learned(tmp_path, scripted(informed), 6, {"online": True, "rounds": 0})
    calls = run.calls("agent")
    assert order(calls) == list(range(6))
    for n, call in enumerate(calls):
        assert [m for m in range(6) if f"message {m}, answer" in call.prompt.head] == list(range(n))
    assert run.result.scores["online"] == 0.0


def test_online_from_a_warm_start_uses_what_was_learned_offline(tmp_path: Path) -> None:
    settings = {"rounds": 0}
    offline = learned(tmp_path / "offline", scripted(informed), 4, settings)
    online = learned(
        tmp_path / "online", scripted(informed), 6, {"online": True, **settings}, seed_context=offline.result.context
    )
    scores = [r.rollouts[0].score.value for r in online.reports if r.rollouts[0].score is not None]
    assert scores == [1.0] * 4 + [0.0] * 2
    assert online.result.scores["online"] == pytest.approx(4 / 6)


def test_offline_there_is_no_validation(tmp_path: Path) -> None:
    run = learned(tmp_path, scripted(), 5, {"learn_from": "failures"})
    assert [call.role for call in run.model.calls] == ["agent"] * 5
    assert run.result.scores == {}
    assert all(r.val is None for r in run.reports)


def test_validation_keeps_the_earliest_of_the_best_and_comes_every_so_often(tmp_path: Path) -> None:
    def growing(call: Call) -> str:
        """Held-out messages are right with two or more rules, and wrong again with more than four."""
        rules = call.prompt.head.count("] (strategies)")
        return right(call) if number(call) >= 80 and 2 <= rules <= 4 else "wrong"

    run = learned(tmp_path, scripted(growing), 6, {"rounds": 0}, val=make_tasks(3, 80), validate_every=2)
    assert [r.val for r in run.reports] == [None, 1.0, None, 1.0, None, 0.0]
    assert sum(number(call) >= 80 for call in run.calls("agent")) == 3 * 4
    assert run.result.scores["val_best"] == 1.0
    assert len(run.texts) == 2


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
