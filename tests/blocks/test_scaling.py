"""More than one attempt at a task: which one stands, who chose it, and what the choice may not know."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from helpers import client
from hypothesis import given
from hypothesis import strategies as st
from runs import indoors
from scripts import FORM, shape

from practicum.blocks.act.scaling import Scaling, in_parallel, in_sequence, outcome_of
from practicum.core.context import Context
from practicum.core.errors import ProviderError
from practicum.core.types import Profile, Rollout, Score, Step, Task, Trace
from practicum.engine.run import Run, feedback
from practicum.engine.state import Seat
from practicum.models.scripted import Call

TASK = Task("t1", "Say the word.", "good")
LOST = Trace("", error="the line is dead", lost=True)
FAILED = Trace("", error="it fell over")


def answered(call: Call) -> str:
    """The answer that a judge is asked about."""
    return re.findall(r"# Answer\n(.*)", call.text)[-1]


@dataclass
class Attempts:
    """An `act` whose tries are given, and a model beside it; `asked` and `notes` are what happened."""

    traces: Sequence[Trace | str]
    judged: Callable[[str], Mapping[str, Any] | str | Exception] = lambda answer: {"right": answer == "good"}
    best: int | Exception = 1
    labels: bool = True
    values: Mapping[str, float] = field(default_factory=lambda: {"good": 1.0})
    asked: list[Call] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    warmths: list[float | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.run = indoors(self._respond)
        self.run._state.labels = self.labels

    def _respond(self, call: Call) -> str | Exception:
        self.asked.append(call)
        said = self.judged(answered(call)) if call.role == "judge" else self.best
        if isinstance(said, Exception | str):
            return said
        return json.dumps({**FORM, **(said if isinstance(said, Mapping) else {"best": said, "why": "it is sound"})})

    async def act(self, task: Task, context: Context, run: Run, note: str = "") -> Rollout:
        number = int(re.findall(r"(?:try|pass) (\d+)$", run.place)[-1])
        given = self.traces[number - 1 if "try" in run.place else number]
        trace = Trace(given) if isinstance(given, str) else given
        self.notes.append(note)
        self.warmths.append(run.warmth)
        value = self.values.get(trace.answer, 0.0)
        score = None if task.target is None else Score(value, value == 1.0)
        return Rollout(task, trace, score, feedback(task, trace, score, run._state.labels), run.place)

    def parallel(self, task: Task = TASK, **how: Any) -> Rollout:
        made = in_parallel(self.act, Scaling(len(self.traces), **{"blind": False, **how}))
        return asyncio.run(made(task, Context(), self.run))

    def sequence(self, task: Task = TASK, **how: Any) -> Rollout:
        made = in_sequence(self.act, Scaling(len(self.traces) - 1, **{"blind": False, **how}))
        return asyncio.run(made(task, Context(), self.run))

    def evaluating(self) -> Attempts:
        self.run = replace(self.run, teaches=False)
        return self

    @property
    def verdicts(self) -> list[str]:
        """The answers that a judge was asked about."""
        return [answered(call) for call in self.asked if call.role == "judge"]

    @property
    def contrasts(self) -> int:
        return sum(shape(call) == "Contrast" for call in self.asked)


def found_right(*answers: str) -> Callable[[str], Mapping[str, Any]]:
    return lambda answer: {"right": answer in answers, "reason": f"about {answer}"}


def number(rollout: Rollout) -> int:
    return int(rollout.place[-1])


# ---- parallel: who chooses


def test_with_labels_the_score_chooses_and_no_judge_is_asked() -> None:
    made = Attempts(["bad", "good", "bad"], found_right("bad"), best=1)
    chosen = made.parallel()
    assert (number(chosen), chosen.choice["by"], chosen.choice["why"]) == (2, "score", "The answer is right.")
    assert (made.verdicts, made.contrasts) == ([], 1)
    assert chosen.choice["agreement"] == pytest.approx(1 / 3)
    assert chosen.choice["verdicts"] == [False, True, False]
    assert [number(r) for r in chosen.group] == [2, 1, 3]


PARTS = {"one third": 0.333333, "two thirds": 0.666667}
"""What a scorer says that counts what is right."""


@pytest.mark.parametrize("by", ["judge", "agreement"])
def test_the_better_of_partly_right_answers_stands_whatever_contrast_and_agreement_say(
    by: str,
) -> None:
    chosen = Attempts(["one third", "two thirds", "one third"], best=1, values=PARTS).parallel(by=by)
    assert (number(chosen), chosen.choice["by"]) == (2, "score")
    assert chosen.choice["why"] == "it scored 0.667, the next best 0.333"
    assert chosen.choice["verdicts"] == [False] * 3
    alike = Attempts(["a", "one third", "b", "c"], best=4, values={**dict.fromkeys("abc", 0.5), **PARTS}).parallel()
    assert (number(alike), alike.choice["by"]) == (4, "contrast")
    passed = Attempts(["two thirds", FAILED, "good"], values={**PARTS, "good": 1.0}).parallel()
    assert (number(passed), passed.choice["why"]) == (3, "The answer is right.")
    failed = Attempts(["one third", FAILED], values=PARTS).parallel()
    assert (number(failed), failed.choice["why"]) == (1, "the others failed")


@pytest.mark.parametrize("how", ["blind", "without labels", "evaluating"])
def test_a_score_that_may_not_be_seen_decides_nothing(how: str) -> None:
    tries = ["one third", "two thirds", "one third"]
    made = Attempts(tries, found_right(), best=1, labels=how != "without labels", values=PARTS)
    chosen = (made.evaluating() if how == "evaluating" else made).parallel(blind=how == "blind")
    assert number(chosen) == 1


def test_a_prediction_that_counts_is_chosen_by_a_judge_that_knows_no_score() -> None:
    """Its feedback is still what the score says: that comes after the prediction."""
    made = Attempts(["good", "bad", "bad"], found_right("bad"), best=1)
    chosen = made.parallel(blind=True)
    assert (number(chosen), chosen.choice["by"]) == (2, "judge")
    assert chosen.choice["why"] == "A judge found the answer right: about bad"
    assert sorted(made.verdicts) == ["bad", "good"]
    assert [r.feedback.success for r in chosen.group] == [False, True, False]
    assert not [call for call in made.asked if call.role == "judge" and "Reference" in call.text]


@pytest.mark.parametrize("best", [1, 2, 3])
@pytest.mark.parametrize("by", ["judge", "agreement"])
def test_the_contrast_has_read_the_scores_so_it_chooses_no_prediction_that_counts(by: str, best: int) -> None:
    made = Attempts(["good", "bad", "bad"], found_right("good", "bad"), best)
    chosen = made.parallel(blind=True, by=by)
    assert made.contrasts == 1
    assert (number(chosen), chosen.choice["by"]) == (2, "agreement")


def test_without_labels_the_contrast_chooses_between_answers_that_a_judge_finds_equally_good() -> None:
    made = Attempts(["a", "b", "b", "c"], found_right("a", "b"), best=1, labels=False)
    chosen = made.parallel()
    assert (number(chosen), chosen.choice["by"], chosen.choice["why"]) == (1, "contrast", "it is sound")
    assert sorted(made.verdicts) == ["a", "b", "c"]
    assert [r.feedback.success for r in chosen.group] == [True, True, True, False]
    wrong = Attempts(["a", "b", "b", "c"], found_right("a", "b"), best=4, labels=False).parallel()
    assert (number(wrong), wrong.choice["by"]) == (2, "agreement")


@pytest.mark.parametrize("labels", [True, False])
@pytest.mark.parametrize("blind", [True, False])
def test_agreement_chooses_if_asked_for_and_the_verdict_of_a_judge_is_only_learned_from(
    labels: bool, blind: bool
) -> None:
    made = Attempts(["good", "bad", "bad"], found_right("good"), best=1, labels=labels)
    chosen = made.parallel(by="agreement", blind=blind)
    scored = labels and not blind
    assert (number(chosen), chosen.choice["by"]) == ((1, "score") if scored else (2, "agreement"))
    assert len(made.verdicts) == (0 if labels else 2)
    assert [r.feedback.success for r in chosen.group] == ([True, False, False] if scored else [False, True, False])


@pytest.mark.parametrize("labels", [True, False])
@pytest.mark.parametrize("blind", [True, False])
def test_evaluation_asks_a_judge_about_different_outcomes_only_and_contrasts_nothing(labels: bool, blind: bool) -> None:
    made = Attempts(["bad", "good", "bad", "GOOD."], found_right("bad"), labels=labels).evaluating()
    chosen = made.parallel(blind=blind)
    assert (number(chosen), chosen.choice["by"], made.contrasts) == (1, "judge", 0)
    assert sorted(made.verdicts) == ["bad", "good"]
    alike = Attempts(["bad"] * 3, labels=labels).evaluating()
    assert (alike.parallel().choice["by"], alike.asked) == ("agreement", [])
    counted = Attempts(["bad", "good", "good"], labels=labels).evaluating()
    assert (number(counted.parallel(by="agreement")), counted.asked) == (2, [])


def test_a_task_without_a_target_is_judged_although_there_are_labels() -> None:
    made = Attempts(["bad", "good"])
    chosen = made.parallel(replace(TASK, target=None))
    assert (number(chosen), chosen.choice["by"]) == (2, "judge")
    assert [r.feedback.success for r in chosen.group] == [True, False]


def test_a_single_attempt_is_judged_if_it_is_learned_from() -> None:
    assert Attempts(["good"]).parallel().choice == {}
    made = Attempts(["good"], labels=False)
    chosen = made.parallel()
    assert (chosen.choice, chosen.siblings, made.verdicts) == ({}, (), ["good"])
    assert chosen.feedback.success is True
    quiet = Attempts(["good"], labels=False).evaluating()
    assert (quiet.parallel().feedback.success, quiet.asked) == (None, [])


@pytest.mark.parametrize(
    "said", ["perhaps", '{"right": "maybe", "reason": ""}', ProviderError("provider.failed", "down")], ids=str
)
def test_a_judge_without_a_verdict_is_counted_and_a_choice_is_made(said: str | Exception) -> None:
    made = Attempts(["a", "b", "b"], lambda answer: said, best=ProviderError("provider.failed", "down"), labels=False)
    chosen = made.parallel()
    assert (number(chosen), chosen.choice["by"]) == (2, "agreement")
    assert [r.feedback.success for r in chosen.group] == [None] * 3
    assert made.run.counts["unjudged_attempts"] == 2
    assert made.run.counts["lost_contrasts"] == 1


# ---- attempts that fail


def test_an_answer_ranks_before_a_failure_and_a_failure_before_a_lost_attempt() -> None:
    made = Attempts([LOST, FAILED, "bad"])
    chosen = made.parallel()
    assert (number(chosen), chosen.choice["by"], chosen.choice["why"]) == (3, "score", "the others failed")
    assert made.contrasts == 0
    worse = Attempts([LOST, FAILED, LOST]).parallel()
    assert (number(worse), worse.trace.lost) == (2, False)


@pytest.mark.parametrize("labels", [True, False])
def test_if_all_attempts_are_lost_one_stands_and_no_model_is_asked(labels: bool) -> None:
    made = Attempts([LOST, replace(LOST, error="and so is this one")], labels=labels)
    chosen = made.parallel()
    assert (chosen.trace.lost, len(chosen.group), made.asked) == (True, 2, [])


def test_attempts_differ_by_the_state_they_leave() -> None:
    done = [Trace("done", data={"state": {"n": n, 1: {n}}}) for n in (1, 2, 1)]
    assert outcome_of(done[0]) == outcome_of(done[2]) != outcome_of(done[1])
    assert outcome_of(Trace(" Done. ")) == outcome_of(Trace("done"))
    assert Attempts(done, labels=False).parallel().choice["agreement"] == pytest.approx(2 / 3)


traces = st.sampled_from(["good", "bad", "worse", LOST, FAILED])


@given(
    tries=st.lists(traces, min_size=2, max_size=5), right=st.sets(st.sampled_from(["good", "bad"])),
    best=st.integers(1, 5), labels=st.booleans(), blind=st.booleans(), teaches=st.booleans(),
    by=st.sampled_from(["judge", "agreement"]),
)  # fmt: skip
def test_no_attempt_is_lost_and_a_blind_choice_is_the_same_with_other_labels(
    tries: list[Trace | str], right: set[str], best: int, labels: bool, blind: bool, teaches: bool, by: str
) -> None:
    def chosen(task: Task) -> Rollout:
        made = Attempts(tries, found_right(*right), best, labels)
        return (made if teaches else made.evaluating()).parallel(task, blind=blind, by=by)

    one = chosen(TASK)
    assert sorted(map(number, one.group)) == list(range(1, len(tries) + 1))
    assert one.choice["of"] == len(tries)
    usable = [(r.trace.error is None, not r.trace.lost) for r in one.group]
    assert usable[0] == max(usable)
    if blind or not labels or not teaches:
        assert number(chosen(replace(TASK, target="bad"))) == number(one)


# ---- sequence


def test_passes_read_earlier_ones_without_the_answer_and_end_at_a_right_one() -> None:
    made = Attempts([Trace("bad", reasoning="It begins with b."), "worse", "good", "never tried"])
    chosen = made.sequence(until="score")
    assert (number(chosen), len(chosen.siblings), chosen.choice["by"]) == (2, 2, "score")
    assert chosen.choice["why"] == "accepted after pass 2: The answer is right."
    assert chosen.choice["verdicts"] == [False, False, True]
    assert made.asked == []
    assert made.notes[0] == ""
    assert "1. bad\n   how you came to it: It begins with b.\n   found wrong\n2. worse\n   found wrong" in made.notes[2]
    assert not [note for note in made.notes if "good" in note]


@pytest.mark.parametrize("how", ["blind", "without labels", "evaluating"])
def test_a_score_that_may_not_be_seen_ends_no_passes(how: str) -> None:
    made = Attempts(["good", "bad", "bad"], labels=how != "without labels")
    chosen = (made.evaluating() if how == "evaluating" else made).sequence(until="score", blind=how == "blind")
    assert (number(chosen), chosen.choice["by"]) == (2, "order")
    assert not [note for note in made.notes if "found wrong" in note]


@pytest.mark.parametrize("until", ["k", "judge"])
def test_no_more_passes_than_asked_for_and_an_outcome_is_judged_once(until: str) -> None:
    made = Attempts(["a", "b", "a", "b"], found_right("c"), labels=False)
    chosen = made.sequence(until=until)
    assert (number(chosen), chosen.choice["by"], chosen.choice["verdicts"]) == (3, "order", [False] * 4)
    assert sorted(made.verdicts) == ["a", "b"]
    assert [r.feedback.success for r in chosen.group] == [False] * 4


def test_a_judge_without_a_verdict_accepts_nothing() -> None:
    made = Attempts(["a", "b", "B"], lambda answer: "hm", labels=False)
    chosen = made.sequence(until="judge")
    assert (number(chosen), [r.feedback.success for r in chosen.group]) == (2, [None] * 3)
    assert made.run.counts["unjudged_attempts"] == 2


def test_only_the_ends_of_a_sequence_are_labelled_if_learning_needs_no_more() -> None:
    made = Attempts(["a", "b", "c", "d", FAILED], found_right("d"), labels=False)
    chosen = made.sequence(label="ends")
    assert sorted(made.verdicts) == ["a", "d"]
    assert [r.feedback.success for r in sorted(chosen.group, key=number)] == [False, None, None, True, False]


def test_a_pass_that_failed_is_read_and_one_that_was_lost_is_not() -> None:
    made = Attempts([LOST, "bad", LOST, FAILED, "good"])
    made.sequence()
    assert (made.notes[0], made.notes[1]) == ("", "")
    assert "1. bad\n2. failed: it fell over" in made.notes[4]
    assert "the line is dead" not in made.notes[4]


@pytest.mark.parametrize(("profile", "window", "longest"), [
    ("small", None, 2_000), ("full", None, 11_000), ("full", 3_000, 6_000),
])  # fmt: skip
def test_the_next_pass_reads_long_work_whole_or_its_beginning_and_its_end(
    profile: Profile, window: int | None, longest: int
) -> None:
    """Whole with a capable model, if it takes no more than half of the window."""
    steps = (Step("action", "look " + "x" * 5000), Step("observation", "y" * 5000 + " found"))
    made = Attempts([Trace("bad", steps=steps), "good"])
    state = made.run._state
    state.profile, state.seats["agent"] = profile, Seat(client(window=window))
    made.sequence()
    assert "action: look" in made.notes[1]
    assert "y found" in made.notes[1]
    assert len(made.notes[1]) < longest
    assert ("left out" in made.notes[1]) is (longest < 10_000)
