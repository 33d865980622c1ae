"""The methods that look for better instructions: what they show and propose, try, and keep."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from helpers import make_tasks
from scripts import Learned, Role, insight, learned, number, obeying, right, scripted, wrong

import practicum
from practicum import methods
from practicum.core.errors import ProviderError, UsageError
from practicum.models.scripted import Call

NAMES = ("opro", "ape", "evoprompt")
ALL = (*NAMES, "protegi", "erm", "promptbreeder")
ON: dict[str, Any] = {"batch": 4, "candidates": 2, "beam": 2, "steps": 1}
OTHERS: dict[str, dict[str, Any]] = {
    "protegi": {"batch": 4, "beam": 2, "steps": 1, "gradients": 1, "paraphrases": 1},
    "erm": {"batch": 4, "beam": 2, "steps": 1, "feedback": 1},
    "promptbreeder": {"batch": 4, "beam": 2, "steps": 1, "candidates": 1},
}


def writing(*texts: str) -> Role:
    """These instructions, one a call; after that the last one again."""
    left = list(texts)
    return lambda call: {"instruction": left.pop(0) if len(left) > 1 else left[0]}


def faulted(call: Call) -> dict[str, Any]:
    """What is wrong with an instruction: the messages that it failed at."""
    found = "it fails at " + " ".join(re.findall(r"Message (\d+)", call.prompt.user))
    return {"reasons": found, "feedback": [found]}


def run_of(
    folder: Path, name: str = "opro", *texts: str, agent: Role = obeying, curator: Role | None = None, tasks: int = 4,
    how: dict[str, Any] | None = None, **settings: Any,
) -> Learned:  # fmt: skip
    """One run over four messages; nothing is merged in these methods, so there is no setting for it."""
    watched = Learned(scripted(agent, faulted, curator or writing(*texts)), folder / "run")
    base = OTHERS.get(name, ON)
    work = practicum.learn(
        make_tasks(tasks), out=watched.folder, method=name, settings={**base, **settings}, watch=watched,
        parts=practicum.Parts(clients={"agent": watched.model}), **(how or {}),
    )  # fmt: skip
    watched.result = practicum.run_sync(work)
    return watched


def kept(run: Learned) -> dict[str, float]:
    return {e.text: e.data["score"] for e in run.result.context}


@pytest.mark.parametrize("name", NAMES)
def test_the_best_candidates_stay_with_their_scores(tmp_path: Path, name: str) -> None:
    run = run_of(tmp_path, name, "solve 1", "solve 3", "solve 2", candidates=3)
    assert kept(run) == {"solve 3": 0.75, "solve 2": 0.5}
    assert run.result.errors["tried_candidates"] == 3


@pytest.mark.parametrize("name", NAMES)
def test_a_step_costs_attempts_a_call_for_each_candidate_and_its_trial(tmp_path: Path, name: str) -> None:
    run = run_of(tmp_path, name, "solve 1", "solve 3", steps=2)
    # What was proposed before is not tried again, and no attempt is made twice.
    assert run.counts == [4 + 2 + 2 * 4, 2]


def test_a_candidate_no_better_than_none_is_kept_and_not_shown(tmp_path: Path) -> None:
    """The model is to see what scores low."""
    run = run_of(tmp_path, "opro", "solve 0", "talk", steps=2)
    assert kept(run) == {"solve 0": 0.0, "talk": 0.0}
    assert "score: 0\nsolve 0" in run.prompts("curator")[-1].lower()
    assert all(r.trace.answer == "wrong" for r in run.rollouts)
    lucky = run_of(tmp_path / "b", "opro", "solve 3", agent=right, how={"test": make_tasks(1, 9)})
    assert "solve 3" not in lucky.calls("agent")[-1].prompt.head


def test_the_next_step_attempts_with_the_best(tmp_path: Path) -> None:
    run = run_of(tmp_path, "opro", "solve 1", "solve 3", steps=2)
    assert [r.trace.answer for r in run.reports[1].rollouts].count("wrong") == 1
    assert len(run.calls("agent")) == 4 + 2 * 4


@pytest.mark.parametrize("name", NAMES)
def test_the_beam_bounds_the_candidates_even_if_all_are_as_good(tmp_path: Path, name: str) -> None:
    steps = iter(range(99))
    written: Role = lambda call: {"instruction": f"way {next(steps)}: solve 3"}  # noqa: E731
    run = run_of(tmp_path, name, curator=written, steps=4)
    assert [len(report.context) for report in run.reports] == [2, 2, 2, 2]
    # The first ones: what is as good takes nobody's place.
    assert sorted(e.text for e in run.result.context) == ["way 0: solve 3", "way 1: solve 3"]


def test_a_lost_attempt_does_not_count_for_its_candidate(tmp_path: Path) -> None:
    def shaky(call: Call) -> str | Exception:
        return (
            ProviderError("provider.failed", "gone")
            if number(call) == 0 and "solve" in call.prompt.head
            else obeying(call)
        )

    run = run_of(tmp_path, "opro", "solve 2", "solve 3", agent=shaky)
    assert {e.text: (e.data["score"], e.data["n"]) for e in run.result.context} == {
        "solve 3": (0.666667, 3), "solve 2": (0.333333, 3),
    }  # fmt: skip


@pytest.mark.parametrize("name", [*ALL, "textgrad", "gepa"])
def test_authors_of_instructions_see_the_agents_instructions_under_one_heading(tmp_path: Path, name: str) -> None:
    settings = {"attempts": 30} if name == "gepa" else {"batch": 4, "steps": 1}
    said: Role = lambda call: {"instruction": "solve 1", "instructions": "x", "reasons": "x", **insight(call)}  # noqa: E731
    run = learned(tmp_path, scripted(wrong, said, writing("solve 1")), 4, settings, name, instructions="Be brief.")
    asked = run.prompts("reflector") + run.prompts("curator")
    assert asked
    for prompt in asked:
        assert prompt.startswith("# What the agent is told\nBe brief.\n\n# ")


def test_a_proposer_that_fails_is_counted_and_leaves_the_candidates(tmp_path: Path) -> None:
    run = run_of(tmp_path, curator=lambda call: ProviderError("provider.failed", "gone"))
    assert run.result.errors["lost_updates"] == 2
    assert kept(run) == {}


def test_without_labels_and_judge_nothing_can_be_scored(tmp_path: Path) -> None:
    assert kept(run_of(tmp_path, "opro", "solve 3", how={"labels": False})) == {}


@pytest.mark.parametrize("name", ALL)
def test_a_stream_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a stream shows each once"):
        run_of(tmp_path, name, online=True)


@pytest.mark.parametrize("name", ALL)
def test_a_candidate_has_the_sources_of_what_it_was_written_from(tmp_path: Path, name: str) -> None:
    """So that forgetting a task reaches all that its words may have come into."""
    asked: dict[str, str] = {}

    def written(call: Call) -> dict[str, Any]:
        text = f"solve {len(asked) + 1}"
        asked[text] = call.prompt.user
        return {"instruction": text}

    run = run_of(tmp_path, name, curator=written, batch=3, steps=2)
    made = {e.text: e.sources for report in run.reports for e in report.context.in_section("instructions")}
    assert len(made) > 1
    for text, sources in made.items():
        assert {f"task:t{n}" for n in re.findall(r"Message (\d+)", asked[text])} <= {*sources}
        for parent in {*re.findall(r"solve \d+", asked[text])} & made.keys():
            assert {*made[parent]} <= {*sources}


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("labels", [True, False])
def test_lines_and_code_reach_the_agent_word_for_word(tmp_path: Path, name: str, labels: bool) -> None:
    text = "Work in steps:\n\n1. Read it.\n2. Run\n   ```\n   f(x) -> y\n   ```\nsolve 4"
    judge: Role = lambda call: {"right": "Answer\nword" in call.prompt.user, "reason": "seen"}  # noqa: E731
    model = scripted(obeying, faulted, writing(text), judge=judge)
    base = {**OTHERS.get(name, ON), "steps": 2}
    run = learned(tmp_path, model, 4, base, name, labels=labels, judged=not labels)
    assert run.texts == [text]
    assert all(r.trace.answer != "wrong" for r in run.reports[1].rollouts)
    assert text in run.calls("agent")[-1].prompt.head


# ---- OPRO


def test_opro_shows_its_twenty_best_in_ascending_order_and_proposes_eight(tmp_path: Path) -> None:
    defaults = methods.setting_docs("opro")
    assert (defaults["candidates"][0], defaults["beam"][0]) == (8, 20)
    numbers = iter(range(999))
    watched = learned(
        tmp_path, scripted(obeying, curator=lambda call: {"instruction": f"solve {next(numbers)}"}), 24,
        {"steps": 4, "batch": 24}, "opro",
    )  # fmt: skip
    assert len(watched.calls("curator")) == 4 * 8
    *_, last = watched.prompts("curator")
    shown = [int(n) for n in re.findall(r"^Score: \d+\nsolve (\d+)$", last, re.MULTILINE)]
    assert shown == list(range(4, 24))
    assert last.count("Input: ") == 3
    assert len({call.prompt.user for call in watched.calls("curator")[-8:]}) == 1


# ---- APE


def test_ape_is_told_whether_it_sees_right_outputs_or_attempts(tmp_path: Path) -> None:
    (first, *_) = run_of(tmp_path / "a", "ape", "solve 1").prompts("curator")
    assert "# Inputs with their right outputs" in first
    assert "Output: word" in first
    assert "# Attempts" not in first
    (first, *_) = run_of(tmp_path / "b", "ape", "solve 1", how={"labels": False}).prompts("curator")
    assert "# Attempts, with what is known of each" in first
    assert "Output:" not in first


def test_ape_draws_cases_anew_for_each_guess_and_then_varies_the_best(tmp_path: Path) -> None:
    numbers = iter([1, 3, 2, 4, 5, 6])
    written: Role = lambda call: {"instruction": f"solve {next(numbers)}"}  # noqa: E731
    run = run_of(tmp_path, "ape", curator=written, candidates=3, demos=2, steps=2, tasks=6, batch=6)
    asked = run.prompts("curator")
    assert [prompt.count("Input: ") for prompt in asked] == [2, 2, 2, 0, 0, 0]
    assert len(set(asked[:3])) > 1
    assert [prompt.rpartition("\n")[2] for prompt in asked[3:]] == ["solve 3", "solve 2", "solve 3"]


# ---- EvoPrompt


def test_evoprompt_crosses_pairs_drawn_by_their_scores(tmp_path: Path) -> None:
    numbers = iter([0, 4, 3, *range(10, 99)])
    written: Role = lambda call: {"instruction": f"solve {next(numbers)}"}  # noqa: E731
    run = run_of(tmp_path, "evoprompt", curator=written, candidates=3, beam=3, steps=2)
    asked = run.prompts("curator")
    assert all("# Inputs with their right outputs" in prompt for prompt in asked[:3])
    for prompt in asked[3:]:
        pair = re.findall(r"# (?:First|Second) parent\n(solve \d)", prompt)
        # What scores 0 is not drawn while there are two others.
        assert sorted(pair) == ["solve 3", "solve 4"]


# ---- ProTeGi


def parents(prompts: Sequence[str]) -> list[str]:
    return [found[0] for prompt in prompts if (found := re.findall(r"# The instruction\n(.*)", prompt))]


def test_every_instruction_of_the_beam_is_expanded(tmp_path: Path) -> None:
    """Each is tried on the batch, criticised by its own failures, and edited."""
    numbers = iter([1, 2, 3, *range(10, 99)])
    written: Role = lambda call: {"instruction": f"solve {next(numbers)}"}  # noqa: E731
    run = run_of(tmp_path, "protegi", curator=written, gradients=3, paraphrases=0, errors=4, beam=3, steps=2)
    assert kept(run).keys() != {}
    first, second = run.prompts("reflector")[:3], run.prompts("reflector")[3:]
    assert {*parents(first)} == {"(none: the agent was told nothing beside the task)"}
    assert {*parents(second)} == {"solve 1", "solve 2", "solve 3"}
    for prompt in second:
        solved = int(parents([prompt])[0].removeprefix("solve "))
        assert {int(n) for n in re.findall(r"Message (\d+)", prompt)} == set(range(solved, 4))


def test_each_criticism_gives_an_edit_with_its_failures_and_paraphrases_of_it(tmp_path: Path) -> None:
    run = run_of(tmp_path, "protegi", "edit: solve 1", "again: solve 1", "once more: solve 1", paraphrases=2, errors=2)
    edit, *paraphrases = run.prompts("curator")
    assert "# What is wrong with it\nit fails at" in edit
    assert edit.count("The answer is wrong") == 2
    assert paraphrases == ["# The instruction\nedit: solve 1"] * 2
    assert len(run.calls("reflector")) == 1


def test_successors_are_drawn_before_they_are_tried(tmp_path: Path) -> None:
    numbers = iter(range(99))
    run = run_of(tmp_path, "protegi", curator=lambda call: {"instruction": f"{next(numbers)}: solve 1"}, gradients=4,
                 paraphrases=2, successors=5)  # fmt: skip
    assert len(run.calls("curator")) == 4 * (1 + 2)
    assert run.result.errors["tried_candidates"] == 5


def test_the_bandit_tries_what_is_good_on_more_tasks(tmp_path: Path) -> None:
    numbers = iter([0, 12, 1, 2])
    written: Role = lambda call: {"instruction": f"solve {next(numbers)}"}  # noqa: E731
    run = run_of(
        tmp_path, "protegi", curator=written, tasks=12, batch=12, gradients=4, paraphrases=0, beam=4,
        rounds=3, arms=2, samples=4,
    )  # fmt: skip
    tried = {e.text: e.data["n"] for e in run.result.context}
    # Two rounds for a first look at four instructions, one for a second look at the best.
    assert tried["solve 12"] == max(tried.values()) == 8
    assert sum(tried.values()) == 3 * 2 * 4
    assert max(kept(run), key=lambda text: kept(run)[text]) == "solve 12"
    assert run.counts == [12 + 4 + 4 + 3 * 2 * 4]


def test_an_instruction_without_failures_is_left_alone(tmp_path: Path) -> None:
    run = run_of(tmp_path, "protegi", "solve 4", steps=3, paraphrases=0)
    assert len(run.calls("reflector")) == len(run.calls("curator")) == 1
    assert kept(run) == {"solve 4": 1.0}
