"""ReasoningBank and memory-aware test-time scaling (METHODS, section 4), and the loop with ACE's rules (section 5)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from python_kit import Seen, in_space, learned, playbook, slow
from python_roles import agent, asks, ignorant, knowing, model, reflecting
from python_tasks import lesson, message, messages, number, word

ONE = messages(0)


def bank(folder: Path, tasks: Any = ONE, settings: Mapping[str, Any] | None = None, **how: Any) -> Seen:
    rules = {"reflector": distilling, **how.pop("rules", {})}
    return learned(folder, tasks, model(**rules), "reasoning_bank", settings or {}, **how)


def distilling(call: Any) -> Any:
    """An extraction gives one memory of its message; a contrast finds a rule that holds."""
    item = {"title": f"Message {number(call)}", "description": "It asks for a word.", "content": lesson(number(call))}
    return {**reflecting(holds=["Care."], why="It shows.", best=1), "items": [item]}


def differing() -> Any:
    """An agent whose answers all differ and are wrong: guess a, guess b, …"""
    answers = iter("abcdefghijklmnopqrstuvwxyz")
    times = "Looked {} times.".format
    return lambda call: {"answer": f"guess {next(answers)}", "note": times(call.prompt.user.count("Looked"))}


def second_is_right() -> Any:
    """An agent whose second attempt at each message is right, with any memory."""
    tries: Counter[int] = Counter()

    def rule(call: Any) -> Any:
        tries[number(call)] += 1
        return (knowing if tries[number(call)] == 2 else ignorant)(call)

    return rule


def refusing(call: Any) -> Any:
    return {"right": False, "reason": "It is a guess."}


# ---- memories


@pytest.mark.parametrize(
    ("extract", "outcomes"),
    [("all", ["failure", "success"]), slow("successes", ["success"]), slow("chosen", ["success"])],
)
def test_memories_have_a_form_for_success_and_for_failure(tmp_path: Path, extract: str, outcomes: list[str]) -> None:
    seen = bank(tmp_path, settings={"extract": extract}, rules={"agent": second_is_right()})
    assert sorted(entry.data["outcome"] for entry in seen.result.context) == outcomes
    begins = {"success": "Successful approach: ", "failure": "Failed approach (avoid): "}
    fields = {"title": "Message 0", "description": "It asks for a word.", "content": lesson(0)}
    for entry in seen.result.context:
        assert entry.section == "memories"
        assert entry.text == f"{begins[entry.data['outcome']]}Message 0 (It asks for a word.) {lesson(0)}"
        assert {name: entry.data[name] for name in fields} == fields
        assert "task:t0" in entry.sources


def test_a_bank_is_searched_by_the_words_of_memories_or_by_their_tasks(tmp_path: Path) -> None:
    for index, words in {"memory": f"Message 0. It asks for a word. {lesson(0)}", "task": ONE[0].input}.items():
        seen = bank(tmp_path / index, settings={"scaling": "none", "index": index})
        assert [entry.embedded_text for entry in seen.result.context] == [words]


@pytest.mark.parametrize(("settings", "most"), [({}, 3), slow({"items": 1}, 1)], ids=str)
def test_an_attempt_gives_at_most_three_memories(tmp_path: Path, settings: dict[str, Any], most: int) -> None:
    many = [{"title": f"Title {n}", "description": "Such tasks.", "content": f"Do step {n}."} for n in range(7)]
    seen = bank(tmp_path, settings={"scaling": "none", **settings}, rules={"reflector": lambda call: {"items": many}})
    assert len(seen.texts) == most
    assert seen.result.errors["excess_memories"] == 7 - most


@pytest.mark.parametrize(
    ("consolidate", "agent", "memories"), [(False, ignorant, 2), slow(True, ignorant, 1), (True, "one fails", 2)]
)
def test_the_bank_is_append_only_unless_it_consolidates(
    tmp_path: Path, consolidate: bool, agent: Any, memories: int
) -> None:
    """A memory of a success and a memory of a failure are never merged."""
    same = {"items": [{"title": "Looking", "description": "Such tasks.", "content": "Look twice."}]}
    settings = {"scaling": "none", "consolidate": consolidate}
    plays = agent if callable(agent) else lambda call: (knowing if number(call) else ignorant)(call)
    seen = bank(tmp_path, messages(0, 1), settings, rules={"agent": plays, "reflector": lambda call: same})
    assert len(seen.texts) == memories
    assert {"task:t0", "task:t1"} <= {source for entry in seen.result.context for source in entry.sources}


@pytest.mark.parametrize(("settings", "shown"), [slow({}, 5), ({"memories": 3}, 3)], ids=str)
def test_the_most_similar_memories_are_instructions(tmp_path: Path, settings: dict[str, Any], shown: int) -> None:
    """Approaches to follow are shown apart from those to avoid."""

    def odd(call: Any) -> Any:
        return (knowing if number(call) % 2 else ignorant)(call)

    seen = bank(
        tmp_path, messages(*range(shown + 2)), {"scaling": "none", **settings}, rules={"agent": odd},
        instructions="Be kind.",
    )  # fmt: skip
    head = seen.calls("agent")[-1].prompt.head
    assert head.startswith("Be kind.")
    assert len(re.findall(r"^\[e\d+\] \(memories\)", head, re.MULTILINE)) == shown
    nearness = [similarity for _, similarity in seen.steps[-1].attempts[0].retrieved]
    assert len(nearness) == shown
    assert nearness == sorted(nearness, reverse=True)
    good, bad = head.index("Successful approach: "), head.index("Failed approach (avoid): ")
    assert "\n# " in head[good:bad]


# ---- scaling


@pytest.mark.parametrize(
    ("settings", "labels", "calls"),
    [
        slow({"scaling": "none"}, False, {"agent": 1, "reflector": 1, "judge": 1}),
        ({}, True, {"agent": 3, "reflector": 1 + 3}),
        slow({"k": 5, "extract": "chosen"}, True, {"agent": 5, "reflector": 1 + 1}),
        slow({"contrast": False}, True, {"agent": 3, "reflector": 3}),
        slow({"scaling": "sequential"}, True, {"agent": 6, "reflector": 6}),
        ({"scaling": "sequential", "k": 2, "until": "judge"}, True, {"agent": 3, "reflector": 3, "judge": 3}),
        slow({"preset": "routine"}, True, {"agent": 1, "reflector": 1}),
        slow({"preset": "critical"}, False, {"agent": 5, "reflector": 1 + 5, "judge": 5}),
    ],
    ids=str,
)
def test_a_task_costs_its_attempts_verdicts_a_contrast_and_extractions(
    tmp_path: Path, settings: dict[str, Any], labels: bool, calls: dict[str, int]
) -> None:
    """For an agent whose answers all differ."""
    rules = {"agent": differing(), "judge": refusing}
    assert bank(tmp_path, settings=settings, rules=rules, labels=labels).roles == calls


def test_parallel_attempts_have_one_prompt_and_a_temperature_and_an_answer_is_judged_once(tmp_path: Path) -> None:
    """The judge has temperature zero and never sees the target; equal answers are judged and learned from once."""
    seen = bank(tmp_path, settings={"k": 4}, rules={"agent": ignorant, "judge": refusing}, labels=False)
    assert len({call.prompt for call in seen.calls("agent")}) == 1
    assert [call.options.temperature for call in seen.calls("agent")] == [0.7] * 4
    assert len({call.options.seed for call in seen.calls("agent")}) == 4
    extraction = [call.options.temperature for call in seen.calls("reflector") if asks(call, "content")]
    assert extraction == [1.0]
    (verdict,) = seen.calls("judge")
    assert verdict.options.temperature == 0.0
    assert word(0) not in verdict.text


def test_each_pass_of_a_sequence_reads_the_attempts_and_notes_before_it(tmp_path: Path) -> None:
    settings = {"scaling": "sequential", "k": 2, "notes": True}
    seen = bank(tmp_path, settings=settings, rules={"agent": differing()})
    first, second, third = (call.prompt.user for call in seen.calls("agent"))
    assert ("guess a" in second, "guess a" in third, "guess b" in third) == (True, True, True)
    assert "guess" not in first
    assert ["Looked 0 times." in user for user in (first, second, third)] == [False, True, True]
    assert all("Looked 1 times." in call.text for call in seen.calls("reflector"))
    # The verdict on an answer is not known yet.
    assert "found wrong" not in second + third


@pytest.mark.parametrize(
    ("until", "plays", "attempts"),
    [
        ("judge", knowing, 1),
        slow("score", knowing, 1),
        slow("agreement", ignorant, 2),
        slow("k", knowing, 4),
    ],
)
def test_a_sequence_ends_as_it_is_set_to(tmp_path: Path, until: str, plays: Any, attempts: int) -> None:
    seen = bank(tmp_path, settings={"scaling": "sequential", "k": 3, "until": until}, rules={"agent": plays})
    assert len(seen.calls("agent")) == attempts


@pytest.mark.parametrize(("judge", "best"), [(None, 1.0), slow(refusing, 0.0)])
def test_reports_count_first_attempts_and_the_best_of_k_separately(tmp_path: Path, judge: Any, best: float) -> None:
    """An attempt chosen by its score does not measure the lessons: in a test, a judge chooses."""
    rules = {"agent": second_is_right(), **({"judge": judge} if judge else {})}
    seen = bank(tmp_path, messages(0, 1), rules=rules, test=messages(80, 81))
    attempts = [attempt for report in seen.steps for attempt in report.attempts]
    assert [(r.choice["number"], r.score.value, r.first.score.value) for r in attempts] == [(2, 1.0, 0.0)] * 2
    assert {attempt.choice["by"] for attempt in attempts} == {"score"}
    assert "score" not in {attempt.choice["by"] for attempt in seen.result.attempts["test"]}
    assert seen.result.scores == {"test": 0.0, "test_best_of_k": best}


@pytest.mark.parametrize(("labels", "by"), [(True, "agreement"), (False, "contrast")])
def test_a_contrast_that_read_the_scores_chooses_no_prediction(tmp_path: Path, labels: bool, by: str) -> None:
    rules = {"agent": differing(), "judge": refusing}
    seen = bank(tmp_path, settings={"online": True}, rules=rules, labels=labels)
    assert seen.steps[0].attempts[0].choice["by"] == by


def test_an_unknown_outcome_teaches_nothing(tmp_path: Path) -> None:
    seen = bank(tmp_path, rules={"judge": lambda call: "no JSON"}, labels=False)
    assert len(seen.result.context) == 0
    assert seen.result.errors["unjudged_attempts"] > 0
    assert seen.result.errors["unknown_outcomes"] > 0


# ---- unified: memories and a playbook in one loop

PLAIN: dict[str, Any] = {"examples": 0, "weigh": False, "delta_min": 1}
"""No solved tasks and no comparisons; a proposal may have one bullet."""

SUBJECTS = ("apple", "bridge", "candle", "donkey", "engine", "feather")


def proposing(call: Any) -> Any:
    """A bullet on another subject for each message."""
    if asks(call, "bullets"):
        newest = max(map(int, re.findall(r"Message (\d+)", call.prompt.user)))
        return reflecting(f"If it is about the {SUBJECTS[newest % 6]}, say so.")
    return distilling(call)


def unified(folder: Path, tasks: Any = ONE, settings: Mapping[str, Any] | None = None, **how: Any) -> Seen:
    rules = {"reflector": proposing, **how.pop("rules", {})}
    return learned(folder, tasks, model(**rules), "unified", {**PLAIN, **(settings or {})}, **how)


def test_bullets_are_proposed_before_the_attempt_and_guide_it(tmp_path: Path) -> None:
    seen = unified(tmp_path, messages(0, 1), {"online": True, "outcomes": 0}, test=messages(80))
    assert seen.model.calls[0].role == "reflector"
    learning, tested = ([c for c in seen.model.calls if (number(c) < 80) is part] for part in (True, False))
    first, *_, last = (call for call in learning if call.role == "agent")
    assert "(rules) If it is about the apple, say so." in first.prompt.head
    assert [entry.text for entry in seen.result.context if entry.section == "rules"] == [
        "If it is about the apple, say so.", "If it is about the bridge, say so.",
    ]  # fmt: skip
    # The playbook is before the memories, for an agent and for a program.
    shown = in_space(seen, lambda space: space.show(message(5).input))
    for head in (last.prompt.head, shown.text):
        assert 0 < head.index("(rules)") < head.index("(memories)")
    # The second bullet was proposed from the memories of the first task.
    assert {"task:t0", "task:t1"} <= set(seen.entry("bridge").sources)
    # Evaluation proposes nothing and changes nothing.
    assert [call.role for call in tested] == ["agent"] * 3
    assert seen.result.context == seen.steps[-1].context


@pytest.mark.parametrize(
    ("proposed", "added", "counts", "requests"),
    [slow(7, 7, {}, 1), (40, 10, {"excess_bullets": 30}, 1), slow(2, 2, {"short_deltas": 1}, 2)],
)
def test_a_delta_has_five_to_ten_bullets(
    tmp_path: Path, proposed: int, added: int, counts: dict[str, int], requests: int
) -> None:
    """More are dropped, fewer are requested once more and then accepted; both are counted."""
    bullets = [f"If it is about number {n}, say {n}." for n in range(proposed)]
    seen = unified(
        tmp_path, settings={"passes": 0, "scaling": "none", "delta_min": 5, "memory": False},
        rules={"reflector": lambda call: reflecting(*bullets)},
    )  # fmt: skip
    assert [entry.text for entry in seen.result.context if entry.section == "rules"] == bullets[:added]
    assert {name: seen.result.errors.get(name, 0) for name in counts} == counts
    assert len(seen.calls("reflector")) == requests


@pytest.mark.slow
def test_outcomes_of_the_last_three_attempts_are_read_only_by_the_next_proposal(tmp_path: Path) -> None:
    seen = unified(
        tmp_path, messages(*range(5)), {"online": True, "scaling": "none", "passes": 0, "memory": False},
        rules={"agent": ignorant},
    )  # fmt: skip
    read = [sorted(set(re.findall(r"answer is: (word\d)", call.prompt.user))) for call in seen.calls("reflector")]
    assert read == [[], ["word0"], ["word0", "word1"], ["word0", "word1", "word2"], ["word1", "word2", "word3"]]
    assert not any("answer is:" in call.text for call in seen.calls("agent"))
    assert len([entry for entry in seen.result.context if entry.section == ".outcomes"]) == 3


@pytest.mark.slow
def test_a_bullet_that_a_rule_says_already_joins_it(tmp_path: Path) -> None:
    seen = unified(
        tmp_path, messages(0, 1), {"memory": False, "scaling": "none", "passes": 0},
        rules={"reflector": lambda call: reflecting("If in doubt, look twice.")},
    )  # fmt: skip
    (rule,) = [entry for entry in seen.result.context if entry.section == "rules"]
    assert rule.id == "e0"
    assert {"task:t0", "task:t1"} <= set(rule.sources)


def test_solved_tasks_are_shown_as_earlier_turns_where_they_pay(tmp_path: Path) -> None:
    settings = {"examples": 4, "scaling": "none", "memory": False, "passes": 0}
    seen = unified(tmp_path, messages(0, 1, 2), {**settings, "online": True})
    assert [len(call.prompt.turns) for call in seen.calls("agent")] == [0, 1, 2]
    assert {entry.section for entry in seen.result.context if not entry.hidden} == {"rules", "episodes"}


def test_a_hidden_part_that_would_help_comes_back(tmp_path: Path) -> None:
    """The agent is right where it is shown rules, which harmed more often than they helped so far."""
    seed = playbook(
        tmp_path, "Look.", {"section": ".parts", "text": "rules", "harmful": 4}
    )  # fmt: skip
    settings = {"weigh": True, "memory": False, "scaling": "none", "passes": 0}
    rules = {"agent": lambda call: (knowing if "(rules)" in call.text else ignorant)(call)}
    seen = unified(tmp_path, messages(0, 1, 2), settings, rules=rules, seed_context=seed)
    (record,) = [entry for entry in seen.result.context if entry.section == ".parts" and entry.text == "rules"]
    assert (record.helpful, record.harmful) == (3, 4)
    assert "(rules)" in in_space(seen, lambda space: space.show(message(5).input)).text


@pytest.mark.slow
def test_the_preset_specification_is_the_specification_s_learner_alone(tmp_path: Path) -> None:
    rules = {"agent": second_is_right(), "reflector": proposing}
    seen = learned(tmp_path, messages(0, 1), model(**rules), "unified", {"preset": "specification"})
    assert "episodes" not in seen.sections
    assert ".parts" not in seen.sections
    assert seen.roles["agent"] == 2 * 3
    # Memories come from the chosen attempt only.
    assert seen.sections["memories"] == 2


@pytest.mark.slow
def test_rules_of_a_small_profile_come_from_failures(tmp_path: Path) -> None:
    """Each is kept if the next try succeeds with it."""
    played = model(agent=agent, reflector=lambda call: reflecting(lesson(number(call))))
    how: dict[str, Any] = {"settings": {"weigh": False, "examples": 0}, "profile": "small"}
    seen = learned(tmp_path, messages(0, 1), played, "unified", **how)
    assert sorted(seen.texts) == [lesson(0), lesson(1)]
    assert seen.roles["reflector"] == 2
