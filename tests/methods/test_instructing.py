"""The methods that look for better instructions: what they propose from, try, and keep."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers import make_tasks
from scripts import Learned, Role, insight, learned, number, right, scripted, wrong

import practicum
from practicum.core.edits import Add
from practicum.core.errors import ProviderError, UsageError
from practicum.models.scripted import Call

NAMES = ("opro", "ape", "protegi", "evoprompt")
ON: dict[str, Any] = {"batch": 4, "candidates": 2, "beam": 2}


def obeying(call: Call) -> str:
    """Right about as many messages as the instructions name: "solve 3" solves messages 0, 1 and 2."""
    said = call.prompt.head.rpartition("solve ")[2].strip()
    return right(call) if said.isdigit() and number(call) < int(said) else "wrong"


def proposing(*texts: str) -> Role:
    return lambda call: {"candidates": list(texts)}


def run_of(
    folder: Path, name: str = "opro", *texts: str, agent: Role = obeying, curator: Role | None = None,
    labels: bool = True, **settings: Any,
) -> Learned:  # fmt: skip
    """One run over four messages; nothing is merged in these methods, so there is no setting for it."""
    watched = Learned(scripted(agent, curator=curator or proposing(*texts)), folder / "run")
    work = practicum.learn(
        make_tasks(4), out=watched.folder, method=name, settings={**ON, **settings}, watch=watched, labels=labels,
        parts=practicum.Parts(clients={"agent": watched.model}),
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
def test_a_step_costs_attempts_proposals_trials_and_reflections(tmp_path: Path, name: str) -> None:
    run = run_of(tmp_path, name, "solve 1", "solve 3")
    reflections = len(run.calls("reflector"))
    assert reflections == (4 if name == "protegi" else 0)
    assert run.counts == [4 + 1 + 2 * 4 + reflections]


def test_a_candidate_no_better_than_none_is_not_kept(tmp_path: Path) -> None:
    assert kept(run_of(tmp_path, "opro", "solve 0", "talk")) == {}
    assert kept(run_of(tmp_path / "b", "opro", "solve 3", agent=right)) == {}


def test_the_next_step_attempts_with_the_best_and_counts_that_for_it(tmp_path: Path) -> None:
    run = run_of(tmp_path, "opro", "solve 1", "solve 3", epochs=2)
    second = [r.trace.answer for r in run.reports[1].rollouts]
    assert second.count("wrong") == 1
    best = next(e for e in run.result.context if e.text == "solve 3")
    assert (best.data["score"], best.data["n"]) == (0.75, 8)
    # What was proposed before is not tried again.
    assert run.counts[1] == 4 + 1


@pytest.mark.parametrize("name", NAMES)
def test_the_beam_bounds_the_candidates_even_if_all_are_as_good(tmp_path: Path, name: str) -> None:
    steps = iter(range(99))
    run = run_of(tmp_path, name, curator=lambda call: {"candidates": [f"way {next(steps)}: solve 3"]}, epochs=4)
    assert [len(report.context) for report in run.reports] == [1, 2, 2, 2]
    # The first ones: what is as good takes nobody's place.
    assert [e.text for e in run.result.context] == ["way 0: solve 3", "way 1: solve 3"]


def test_a_lost_attempt_does_not_count_for_its_candidate(tmp_path: Path) -> None:
    def shaky(call: Call) -> str | Exception:
        return ProviderError("gone") if number(call) == 0 and "solve" in call.prompt.head else obeying(call)

    run = run_of(tmp_path, "opro", "solve 2", "solve 3", agent=shaky, epochs=2)
    best = run.result.context.get("e1")
    assert best is not None
    assert (best.text, best.data["score"], best.data["n"]) == ("solve 3", 0.666667, 6)
    assert [e.data for e in run.result.context if e.id == "e0"] == [{"score": 0.333333, "n": 3}]


def test_the_proposer_reads_candidates_with_their_scores(tmp_path: Path) -> None:
    run = run_of(tmp_path, "opro", "solve 1", "solve 3", epochs=2)
    first, second = run.prompts("curator")
    assert "(none yet)" in first
    assert second.index("- score 0.25: solve 1") < second.index("- score 0.75: solve 3")


@pytest.mark.parametrize("name", [*NAMES, "textgrad", "gepa"])
def test_authors_of_instructions_see_the_agents_instructions_under_one_heading(tmp_path: Path, name: str) -> None:
    settings = {"attempts": 30} if name == "gepa" else {"batch": 4}
    model = scripted(wrong, lambda call: {"instruction": "solve 1", **insight(call)}, proposing("solve 1"))
    run = learned(tmp_path, model, 4, settings, name, instructions="Be brief.")
    for prompt in run.prompts("reflector" if name == "gepa" else "curator"):
        assert prompt.startswith("# What the agent is told\nBe brief.\n\n# ")


def test_gradients_are_of_failures_and_reach_the_proposer(tmp_path: Path) -> None:
    run = run_of(tmp_path, "protegi", "solve 3", epochs=2)
    assert [len(r.rollouts) for r in run.reports] == [4, 4]
    assert len(run.calls("reflector")) == 4 + 1
    assert "If it is message 3, answer word3." in run.prompts("curator")[1]
    assert "If it is message 2, answer word2." not in run.prompts("curator")[1]


def test_a_proposer_that_fails_is_counted_and_leaves_the_candidates(tmp_path: Path) -> None:
    run = run_of(tmp_path, curator=lambda call: ProviderError("gone"))
    assert run.result.errors["lost_updates"] == 1
    assert kept(run) == {}


def test_without_labels_and_judge_nothing_can_be_scored(tmp_path: Path) -> None:
    assert kept(run_of(tmp_path, "opro", "solve 3", labels=False)) == {}


@pytest.mark.parametrize("name", NAMES)
def test_a_stream_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a stream shows each once"):
        run_of(tmp_path, name, online=True)


@pytest.mark.parametrize(("name", "read"), [("opro", 2), ("ape", 1), ("protegi", 1), ("evoprompt", 2)])
def test_a_candidate_has_the_sources_of_the_candidates_it_was_written_from(
    tmp_path: Path, name: str, read: int
) -> None:
    """So that forgetting a task reaches all that its words may have come into."""
    turns = iter([["solve 1", "solve 2"], ["solve 3"], ["solve 4"]])
    run = run_of(tmp_path, name, curator=lambda call: {"candidates": next(turns)}, batch=2, epochs=1)
    first, second = run.reports[0].batch.tasks, run.reports[1].batch.tasks
    late = [edit for done in run.reports[1].applied if isinstance(edit := done.edit, Add)]
    assert late
    for edit in late:
        assert {f"task:{t.id}" for t in (*first, *second)} <= set(edit.sources)
    asked = run.calls("curator")[1].prompt.user
    assert asked.count("- score") <= read
