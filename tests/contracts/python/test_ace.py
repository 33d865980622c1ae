"""ACE: generator, reflector and curator; a playbook that grows by small edits (METHODS, section 1)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from python_kit import LEARNED, TEST, Seen, in_space, learned, opened, playbook, slow
from python_roles import add, agent, change, citing, deciding, down, ignorant, knowing, model, reflecting
from python_tasks import lesson, messages, number, word

import practicum

ONE = messages(0)
ONCE: dict[str, Any] = {"rounds": 0}
"""One reflection on each attempt, after it."""
RED, CRIMSON, BLUE = "If it is red, stop.", "If it is crimson, stop.", "If it is blue, go."


def nth_insight(call: Any) -> Any:
    """A new insight in each round."""
    return reflecting(f"Insight of round {1 + len(set(re.findall(r'Insight of round (.)', call.text)))}.")


# ---- generator and reflector


def test_agent_and_reflector_read_the_whole_playbook_and_its_uses_and_tags_are_counted(tmp_path: Path) -> None:
    tags = {"e0": "helpful", "e1": "harmful", "e2": "neutral", "e9": "helpful"}
    played = model(agent=citing("e0", "e1", "e2", "e7", "e99"), reflector=lambda call: reflecting(lesson(0), tags=tags))
    seed = playbook(tmp_path, "Look.", "Wait.", "Ask.", "Go.")
    seen = learned(tmp_path, ONE, played, settings=ONCE, seed_context=seed)
    (attempt,), (reflection,) = seen.calls("agent"), seen.calls("reflector")
    for call in (attempt, reflection):
        assert "[e0] (rules) Look." in call.text
        assert "[e3] (rules) Go." in call.text
    assert all(part in reflection.text for part in ("Message 0: which word?", "unsure", word(0)))
    assert word(0) not in attempt.text
    assert not reflection.prompt.turns
    # Ids that the agent was not shown, and tags of entries that it did not use, are dropped and counted.
    assert seen.steps[0].attempts[0].trace.used == ("e0", "e1", "e2")
    assert (seen.result.errors["unknown_ids"], seen.result.errors["unknown_tags"]) == (2, 1)
    counts = [(e.helpful, e.harmful, e.uses) for e in seen.result.context]
    assert counts[:4] == [(1, 0, 1), (0, 1, 1), (0, 0, 1), (0, 0, 0)]


LONG = "Do it in steps:\n" + "\n".join(f"{n}. call api_{n}(name, count={n})" for n in range(60))
"""A text of about 2,000 characters, which no role shortens."""


@pytest.mark.parametrize(
    ("how", "sections"),
    [
        ({}, ["code", "strategies", "strategies"]),
        ({"sections": ["answers: what to say", "words: what words mean"]}, ["answers", "words", "answers"]),
    ],
)
def test_insights_of_any_length_are_put_into_sections(tmp_path: Path, how: dict[str, Any], sections: list[str]) -> None:
    texts = {"x = 1": "code", LONG: "words", "Wait.": "no such section"}
    insights = [{"section": section, "text": text} for text, section in texts.items()]
    played = model(agent=ignorant, reflector=lambda call: {**reflecting(), "insights": insights})
    seen = learned(tmp_path, ONE, played, settings=ONCE, **how)
    assert [(e.section, e.text) for e in seen.result.context] == [*zip(sections, texts, strict=True)]
    assert seen.result.errors["unknown_sections"] == 2
    (curation,) = seen.calls("curator")
    assert ("what words mean" in curation.text) is bool(how)
    assert all(line in curation.text for line in LONG.splitlines())


@pytest.mark.parametrize(("learn_from", "reflections"), [slow("all", 2), ("failures", 1)])
def test_successes_teach_too_unless_only_failures_do(tmp_path: Path, learn_from: str, reflections: int) -> None:
    """With `failures` a success only votes for the entries it used, without a call."""

    def even(call: Any) -> Any:
        return {**(knowing if number(call) == 0 else ignorant)(call), "used": ["e0"]}

    played = model(
        agent=even, reflector=lambda call: reflecting(tags={"e0": "helpful"} if "is right" in call.text else {})
    )
    seen = learned(
        tmp_path, messages(0, 1), played, settings={**ONCE, "learn_from": learn_from, "batch": 2},
        seed_context=playbook(tmp_path, "Look."),
    )  # fmt: skip
    assert len(seen.calls("reflector")) == reflections
    assert (seen.entry("Look.").helpful, seen.entry("Look.").uses) == (1, 2)


# ---- refinement


@pytest.mark.parametrize("rounds", [slow(0), slow(1), 3])
def test_a_failure_is_retried_with_the_insights_up_to_rounds(tmp_path: Path, rounds: int) -> None:
    """The insights of all rounds reach the curator, not only the last ones; the target reaches no agent."""
    seen = learned(tmp_path, ONE, model(agent=ignorant, reflector=nth_insight), settings={"rounds": rounds})
    reflections = max(rounds, 1)
    assert seen.roles == {"agent": 1 + rounds, "reflector": reflections, "curator": 1}
    assert seen.texts == [f"Insight of round {n}." for n in range(1, reflections + 1)]
    assert ["Insight of round" in call.text for call in seen.calls("agent")] == [False, *[True] * rounds]
    assert not any(word(0) in call.text for call in seen.calls("agent"))


@pytest.mark.parametrize(("lessons", "remaining"), [slow("all", ["1", "2"]), ("confirmed", ["2"])])
def test_the_first_success_ends_retries_and_confirms(tmp_path: Path, lessons: str, remaining: list[str]) -> None:
    def second(call: Any) -> Any:
        return (knowing if "Insight of round 2." in call.text else ignorant)(call)

    settings = {"rounds": 5, "lessons": lessons}
    seen = learned(tmp_path, ONE, model(agent=second, reflector=nth_insight), settings=settings)
    assert seen.roles == {"agent": 3, "reflector": 2, "curator": 1}
    (attempt,) = seen.steps[0].attempts
    assert [each.lesson.confirmed for each in attempt.rounds] == [False, True]
    # Reports count the first attempt, not a retry.
    assert attempt.score.value == 0.0
    assert seen.texts == [f"Insight of round {n}." for n in remaining]


@pytest.mark.slow
def test_critique_improves_the_insights_instead_until_they_stay_the_same(tmp_path: Path) -> None:
    says = iter(["First.", "Better.", "Better."])
    seen = learned(
        tmp_path, ONE, model(agent=ignorant, reflector=lambda call: reflecting(next(says))),
        settings={"refine": "critique", "rounds": 5},
    )  # fmt: skip
    assert seen.roles == {"agent": 1, "reflector": 3, "curator": 1}
    assert ["First." in call.prompt.user for call in seen.calls("reflector")] == [False, True, True]
    assert seen.texts == ["First.", "Better."]


@pytest.mark.slow
def test_without_a_reflector_the_curator_reads_the_attempt_and_there_is_no_retry(tmp_path: Path) -> None:
    seen = learned(tmp_path, settings={"reflector": False, "curator": "append"})
    assert seen.roles == {"agent": 3}
    assert all("unsure" in text and "Message" in text for text in seen.texts)


# ---- the curator: each edit has its effect

NEW, OTHER_NEW = "If it is scarlet, stop.", "If it is navy, go."


def curated(folder: Path, *decisions: Mapping[str, Any], more: tuple[str, ...] = (), **settings: Any) -> Seen:
    """One step over a playbook of three or more entries, with two insights, each from its own message."""
    played = model(
        agent=citing("e0"), curator=deciding(*decisions),
        reflector=lambda call: reflecting(NEW if number(call) == 0 else OTHER_NEW, tags={"e0": "helpful"}),
    )  # fmt: skip
    return learned(
        folder, messages(0, 1), played, settings={**ONCE, "batch": 2, "online": True, "dedupe": "never", **settings},
        seed_context=playbook(folder, RED, CRIMSON, BLUE, *more),
    )  # fmt: skip


def test_each_edit_of_the_curator_has_its_effect_and_names_its_reason_insights_and_tasks(tmp_path: Path) -> None:
    seen = curated(
        tmp_path, change("UPDATE", "e1", text="If it is crimson, wait.", reason="It is finer."),
        change("MERGE", "e3", "e2", text="All blues go."), change("MERGE", "e4", "e0"),
        change("DELETE", "e6", insights=()), change("COVERED", "e5", insights=()), add(1, 2), add(2, text="In one."),
        more=("If it is azure, go.", "If it is ruby, stop.", "If it is green, ask.", "If it is last, wait."),
    )  # fmt: skip
    assert {entry.id: entry.text for entry in seen.result.context} == {
        # A merge goes into the oldest entry. The id of a deleted entry is not used again.
        "e0": RED, "e1": "If it is crimson, wait.", "e2": "All blues go.", "e5": "If it is green, ask.",
        "e7": NEW, "e8": OTHER_NEW, "e9": "In one.",
    }  # fmt: skip
    assert "dropped_lessons" not in seen.result.errors
    assert seen.result.refused == 0
    merged = seen.result.context.get("e0")
    assert (merged.helpful, merged.uses) == (2, 2)
    edits = {done.edit.reason: done.edit for done in seen.steps[0].applied if done.edit.op == "update"}
    first, second = (x.id for x in seen.steps[0].lessons)
    assert edits["It is finer."].lessons == (first,)
    assert "task:t0" in edits["It is finer."].sources
    (in_one,) = [done.edit for done in seen.steps[0].applied if done.id == "e9"]
    assert in_one.lessons == (second,)
    assert "task:t1" in in_one.sources
    assert [(e.born, e.changed) for e in map(seen.result.context.get, ("e1", "e5", "e7"))] == [(0, 1), (0, 0), (1, 1)]


@pytest.mark.parametrize(("uncovered", "added"), [("drop", []), ("keep", [OTHER_NEW])])
def test_invalid_edits_are_counted_and_lose_nothing_silently(tmp_path: Path, uncovered: str, added: list[str]) -> None:
    seen = curated(
        tmp_path, change("UPDATE", "e9", text=NEW), change("DELETE"), change("COVERED"),
        change("MERGE", "e0", "e9", text=NEW), change("UPDATE", "e1"), change("MERGE", "e0", text=NEW), add(7),
        # The author of the second change did not know the first one's text.
        change("UPDATE", "e2", text="Go."), change("UPDATE", "e2", insights=(2,), text="Wait."), uncovered=uncovered,
    )  # fmt: skip
    assert seen.texts == [RED, CRIMSON, "Go.", *added]
    assert seen.result.errors == {
        "held_back_unknown_entry": 4, "held_back_no_text": 1, "held_back_single_merge": 1,
        "held_back_unknown_lesson": 1, "held_back_changed_entry": 1,
        "kept_lessons" if added else "dropped_lessons": 1,
    }  # fmt: skip


def test_a_step_never_deletes_most_of_the_playbook(tmp_path: Path) -> None:
    seen = curated(tmp_path, change("DELETE", "e0"), change("DELETE", "e1"))
    assert len(seen.result.context) == 3
    assert seen.result.refused == 2
    assert all(each.reason for each in seen.steps[0].refused)
    assert seen.result.errors["mass_deletions"] == 1


def test_a_curator_that_fails_costs_no_vote_and_no_insight_to_keep(tmp_path: Path) -> None:
    played = model(agent=citing("e0"), curator=down, reflector=lambda call: reflecting(NEW, tags={"e0": "harmful"}))
    settings = {**ONCE, "uncovered": "keep"}
    seen = learned(tmp_path, ONE, played, settings=settings, seed_context=playbook(tmp_path, RED), retries=0)
    assert seen.texts == [RED, NEW]
    assert seen.entry(RED).harmful == 1
    assert seen.result.errors["lost_updates"] == 1


def test_rewrite_replaces_the_whole_playbook_and_has_all_its_sources(tmp_path: Path) -> None:
    whole = {"entries": [{"section": "rules", "text": "All in one."}]}
    seen = learned(
        tmp_path, ONE, model(curator=lambda call: whole), settings={**ONCE, "curator": "rewrite"},
        seed_context=playbook(tmp_path, RED, BLUE),
    )  # fmt: skip
    (entry,) = seen.result.context
    assert (entry.id, entry.text) == ("e2", "All in one.")
    assert {"seed", "task:t0"} <= {source.partition(" ")[0] for source in entry.sources}


def test_the_small_profile_has_short_forms_with_worked_examples_and_one_section(tmp_path: Path) -> None:
    seen = learned(tmp_path, LEARNED, profile="small", test=TEST)
    assert seen.roles == {"agent": 9, "reflector": 3}
    assert {entry.section for entry in seen.result.context} == {"rules"}
    assert all(call.prompt.turns for call in seen.calls("reflector"))
    # An insight is one sentence, since a small model that may write more does not stop.
    pattern = re.compile(seen.calls("reflector")[0].schema["properties"]["insight"]["pattern"])
    assert pattern.match("If it costs 3.50 or more, answer K7.")
    assert not pattern.match("If it is dark, answer K7. If it is bright, answer K2.")
    assert seen.result.scores["test"] == pytest.approx(2 / 3)


def test_each_role_may_have_a_model_of_its_own(tmp_path: Path) -> None:
    models = {role: model() for role in ("agent", "reflector", "curator")}
    work = practicum.learn(ONE, settings=ONCE, out=tmp_path / "roles", parts=practicum.Parts(clients=models))
    result = practicum.run_sync(work)
    assert all({call.role for call in played.calls} == {role} for role, played in models.items())
    assert {role: usage.calls for role, usage in result.by_role.items()} == dict.fromkeys(models, 1)


# ---- grow and refine

SAME = "If it is any message, answer by its last word."


@pytest.mark.parametrize(
    ("settings", "entries"),
    [
        ({"dedupe": "proactive"}, 1),
        slow({"dedupe": "lazy"}, 3),
        ({"dedupe": "lazy", "budget": 25}, 1),
        slow({"dedupe": "never"}, 3),
    ],
)
def test_near_duplicates_go_into_the_oldest(tmp_path: Path, settings: Mapping[str, Any], entries: int) -> None:
    seen = learned(
        tmp_path, LEARNED, model(agent=ignorant, reflector=lambda call: reflecting(SAME)),
        settings={**ONCE, "batch": 3, **settings},
    )  # fmt: skip
    assert [entry.id for entry in seen.result.context] == ["e0", "e1", "e2"][:entries]
    if entries == 1:
        assert {"task:t0", "task:t1", "task:t2"} <= set(seen.entry(SAME).sources)
        assert seen.result.errors["duplicate_entries"] == 2


DETAILS = {
    "Returns are free within 30 days of delivery.": "Returns are free within 60 days of delivery.",
    "Before you answer, call get_user with the id.": "Before you answer, call get_order with the id.",
    "Always send the form to the office first.": "Never send the form to the office first.",
    'The label must read "fragile" on both sides.': 'The label must read "heavy" on both sides.',
}
"""Entries that differ in a number, a name, a negation, a quotation."""


def test_entries_that_differ_in_a_detail_are_never_merged(tmp_path: Path) -> None:
    played = model(agent=ignorant, reflector=lambda call: reflecting(*DETAILS.values()))
    settings = {**ONCE, "threshold": 0.5}
    seen = learned(tmp_path, ONE, played, settings=settings, seed_context=playbook(tmp_path, *DETAILS))
    assert seen.texts == [*DETAILS, *DETAILS.values()]


@pytest.mark.parametrize(("margin", "stays"), [(3, False), slow(4, True), slow(0, True)])
def test_an_entry_that_harms_by_a_margin_is_deleted_at_once(tmp_path: Path, margin: int, stays: bool) -> None:
    played = model(agent=citing("e0"), reflector=lambda call: reflecting(lesson(number(call)), tags={"e0": "harmful"}))
    settings = {**ONCE, "batch": 3, "harmful": margin}
    seen = learned(tmp_path, LEARNED, played, settings=settings, seed_context=playbook(tmp_path, RED))
    assert (RED in seen.texts) is stays
    assert seen.result.errors.get("pruned_entries", 0) == (0 if stays else 1)


LEAVING = ["e1", "e4", "e2", "e3", "e0", "e5"]
"""The most harmful, the harmful, the never used by age, the used by how much they helped."""


@pytest.mark.parametrize("pruned", [3, *map(slow, (1, 2, 4, 5))])
def test_the_budget_retires_entries_in_the_order_of_their_worth(tmp_path: Path, pruned: int) -> None:
    counts = [(2, 1, 1), (0, 2, 1), (0, 0, 0), (0, 0, 0), (1, 2, 1), (3, 1, 1)]
    seed = playbook(tmp_path, *(
        {"text": f"If it is case number {n}, do it.", "helpful": up, "harmful": down, "uses": uses}
        for n, (up, down, uses) in enumerate(counts)
    ))  # fmt: skip
    stay = [entry for entry in seed if entry.id not in LEAVING[:pruned]]
    shown = "\n".join(f"[{entry.id}] (rules) {entry.text}" for entry in stay)
    # Four characters are a token. The size of an entry is rounded down, so each that is removed may leave one more.
    settings = {"budget": -(-len(shown) // 4) + pruned}
    played = model(agent=knowing, reflector=lambda call: reflecting())
    seen = learned(tmp_path, ONE, played, settings=settings, seed_context=seed)
    assert [entry.id for entry in seen.result.context if not entry.retired] == [entry.id for entry in stay]
    retired = {entry.id: entry.section for entry in seen.result.context if entry.retired}
    assert retired == dict.fromkeys(LEAVING[:pruned], ".retired rules")
    assert seen.result.errors.get("pruned_entries", 0) == pruned


def test_an_entry_that_helped_and_then_fails_many_times_in_a_row_is_retired(tmp_path: Path) -> None:
    """No net margin is needed: 30 helpful votes outweigh the failures, which are too many in a row for chance."""
    seed = playbook(tmp_path, {"text": RED, "helpful": 30}, {"text": BLUE, "helpful": 30})
    played = model(agent=citing("e0"), reflector=lambda call: reflecting(tags={"e0": "harmful"}))
    seen = learned(tmp_path, messages(*range(6)), played, settings=ONCE, seed_context=seed)
    red, blue = seen.result.context
    assert (red.retired, red.helpful, red.harmful, blue.retired) == (True, 30, red.failing, False)
    assert 2 <= red.failing <= 4
    assert [RED in call.text for call in seen.calls("agent")] == [True] * red.failing + [False] * (6 - red.failing)
    assert any(
        done.edit.op == "update" and "in a row" in done.edit.reason for done in seen.steps[red.failing - 1].applied
    )
    # The entry is still there to be forgotten.
    space = opened(seen)
    practicum.run_sync(space.forget(entries=["e0"]))
    assert space.context.get("e0") is None


def test_a_new_entry_does_not_count_as_never_used(tmp_path: Path) -> None:
    seed = playbook(tmp_path, {"text": "If it is an old case, do it.", "uses": 1})
    played = model(agent=ignorant, reflector=lambda call: reflecting("If it is a new case, do it."))
    seen = learned(tmp_path, ONE, played, settings={**ONCE, "budget": 14}, seed_context=seed)
    assert seen.texts == ["If it is a new case, do it."]


# ---- offline, online, validation


def test_each_epoch_takes_all_tasks_in_another_order(tmp_path: Path) -> None:
    """The curator `append` makes an entry of each insight without a call."""
    seen = learned(tmp_path, messages(*range(8)), settings={"epochs": 3, "batch": 4, "curator": "append"})
    order = [[attempt.task.id for attempt in report.attempts] for report in seen.steps]
    epochs = [tuple(order[n] + order[n + 1]) for n in (0, 2, 4)]
    assert [report.batch.epoch for report in seen.steps] == [1, 1, 2, 2, 3, 3]
    assert all(sorted(epoch) == [f"t{n}" for n in range(8)] for epoch in epochs)
    assert len(set(epochs)) == 3
    assert "curator" not in seen.roles
    assert sorted(seen.texts) == [lesson(n) for n in range(8)]
    # Only tasks for validation cause a validation.
    assert (seen.result.scores, {report.val for report in seen.steps}) == ({}, {None})


def test_an_attempt_under_an_unchanged_playbook_is_not_repeated(tmp_path: Path) -> None:
    """A step without an insight makes no call of the curator."""
    played = model(agent=knowing, reflector=lambda call: reflecting())
    seen = learned(tmp_path, LEARNED, played, settings={"epochs": 3})
    assert (len(seen.calls("agent")), len(seen.calls("curator"))) == (3, 0)
    assert seen.result.errors["reused_attempts"] == 6
    assert len(seen.result.context) == 0


def test_validation_keeps_the_earliest_best_context_and_its_calls_count(tmp_path: Path) -> None:
    def fading(call: Any) -> Any:
        """Held-out messages are right with two or three entries, and wrong with more."""
        return (knowing if number(call) >= 80 and 2 <= call.prompt.head.count("] (strategies)") <= 3 else agent)(call)

    played = model(agent=fading)
    seen = learned(tmp_path, messages(*range(5)), played, settings=ONCE, val=messages(80, 81))
    assert [report.val for report in seen.steps] == [0.0, 1.0, 1.0, 0.0, 0.0]
    assert seen.result.scores["val_best"] == 1.0
    assert len(seen.texts) == 2
    assert sum(number(call) >= 80 for call in seen.calls("agent")) == 2 * 6
    assert seen.result.usage.calls == len(played.calls)
    # The ids of the entries that were dropped are not used again.
    in_space(seen, lambda space: space.edit(practicum.Add("strategies", "Look.")))
    assert [entry.id for entry in practicum.load_context(seen.folder)] == ["e0", "e1", "e5"]


def test_a_gate_drops_a_delta_that_is_worse_on_the_validation_tasks(tmp_path: Path) -> None:
    def easily_misled(call: Any) -> Any:
        return (ignorant if "Say nothing." in call.prompt.head else knowing)(call)

    played = model(agent=easily_misled, reflector=lambda call: reflecting("Say nothing."))
    val = messages(*range(80, 100))
    seen = learned(tmp_path, ONE, played, settings={**ONCE, "gate": True}, val=val)
    assert (seen.texts, seen.result.errors["gated_deltas"]) == ([], 1)


def test_lost_attempts_are_no_evidence_for_the_gate(tmp_path: Path) -> None:
    def often_down(call: Any) -> Any:
        return down() if "Say nothing." in call.prompt.head and number(call) % 2 else knowing(call)

    played = model(agent=often_down, reflector=lambda call: reflecting("Say nothing."))
    val = messages(*range(80, 100))
    seen = learned(tmp_path, ONE, played, settings={**ONCE, "gate": True}, val=val)
    assert (seen.result.errors["lost_attempts"], seen.result.errors.get("gated_deltas")) == (10, None)


def test_a_model_too_weak_to_write_lessons_is_reported_after_the_first_steps(tmp_path: Path) -> None:
    silent = model(reflector=lambda call: reflecting())
    weak = learned(tmp_path / "weak", messages(*range(14)), silent, settings={"rounds": 0})
    assert [(steps, "episodes" in text) for steps, text in weak.warnings] == [(10, True)]
    assert learned(tmp_path / "able", messages(*range(14)), settings={"rounds": 0}).warnings == []
    assert learned(tmp_path / "none", messages(*range(14)), model(agent=ignorant), "none").warnings == []


def test_a_newer_rule_with_another_answer_contradicts_an_older_rule(tmp_path: Path) -> None:
    rules = {0: "If the lamp at the gate is red, answer word0.", 1: "If the lamp at the gate is red, answer word1."}
    played = model(agent=ignorant, reflector=lambda call: reflecting(rules[number(call)]))
    settings = {**ONCE, "curator": "append", "online": True}
    seen = learned(tmp_path, messages(0, 1), played, settings=settings, choices=["word0", "word1"])
    assert {entry.text: (entry.harmful, entry.failing) for entry in seen.result.context} == {
        rules[0]: (1, 1), rules[1]: (0, 0)
    }  # fmt: skip
    assert seen.result.errors["contradicted_entries"] == 1
    (vote,) = [done.edit for done in seen.steps[1].applied if done.edit.op == "vote"]
    assert rules[1] in vote.reason
    assert "task:t1" in vote.sources
