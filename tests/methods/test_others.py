"""Dynamic Cheatsheet, Reflexion, ExpeL and Training-Free GRPO: what each keeps, shows and asks."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers import make_tasks
from scripts import Learned, Role, added, insight, learned, number, right, scripted, warm, wrong

import practicum
from practicum.blocks.reflect.self_reflection import without_target
from practicum.core.context import seed_context
from practicum.core.errors import ProviderError, UsageError
from practicum.core.types import Feedback, Lesson, Rollout, Round, Trace
from practicum.models.scripted import Call, ScriptedClient


def run_of(folder: Path, name: str, model: ScriptedClient, tasks: int = 3, **how: Any) -> Learned:
    settings = how.pop("settings", {})
    watched = Learned(model, folder / "run")
    work = practicum.learn(
        make_tasks(tasks), out=watched.folder, method=name, settings=settings, watch=watched,
        parts=practicum.Parts(clients={"agent": model}), **how,
    )  # fmt: skip
    watched.result = practicum.run_sync(work)
    return watched


# ---- Dynamic Cheatsheet


def writing(call: Call) -> dict[str, Any]:
    return {"sheet": f"message {number(call)} is word{number(call)}"}


def test_the_whole_sheet_is_one_entry_written_anew_at_each_step(tmp_path: Path) -> None:
    run = run_of(tmp_path, "dynamic_cheatsheet", scripted(curator=writing))
    assert [len(report.context) for report in run.reports] == [1, 1, 1]
    last = run.reports[-1].batch.tasks[0].id[1:]
    assert run.texts == [f"message {last} is word{last}"]
    assert run.counts == [2, 2, 2]
    entry = run.result.context.get("e0")
    assert entry is not None
    assert {s for s in entry.sources if s.startswith("task:")} == {"task:t0", "task:t1", "task:t2"}
    for earlier, call in zip(run.reports, run.calls("agent")[1:], strict=False):
        assert earlier.context.get("e0").text in call.prompt.head


def test_a_sheet_that_cannot_be_written_stays(tmp_path: Path) -> None:
    run = run_of(
        tmp_path, "dynamic_cheatsheet", scripted(curator=lambda call: ProviderError("provider.failed", "gone"))
    )
    assert run.texts == []
    assert run.result.errors["lost_updates"] == 3


def test_the_sheet_written_for_a_task_is_the_next_sheet(tmp_path: Path) -> None:
    settings = {"form": "synthesis", "k": 2}
    run = run_of(tmp_path, "dynamic_cheatsheet", scripted(curator=writing), test=make_tasks(1, 7), settings=settings)
    assert len(run.calls("curator")) == 2 + 1
    assert [e.section for e in run.result.context].count("cases") == 3
    sheets = [[e.text for e in report.context.in_section("cheatsheet")] for report in run.reports]
    about = [report.batch.tasks[0].id[1:] for report in run.reports]
    # There is nothing to write the first one from.
    assert sheets == [[], *([f"message {n} is word{n}"] for n in about[1:])]
    read = run.prompts("curator")
    assert "# The cheatsheet so far\n(empty)" in read[0]
    assert f"# The cheatsheet so far\n{sheets[1][0]}\n" in read[1]
    assert f"# The cheatsheet so far\n{sheets[2][0]}\n" in read[2]
    assert "message 7 is word7" in run.calls("agent")[-1].prompt.head
    assert read[2].count("# Attempt at a task like it") == 2


def test_k_needs_the_form_that_uses_it(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="k needs form=synthesis"):
        run_of(tmp_path, "dynamic_cheatsheet", scripted(), settings={"k": 2})


# ---- Reflexion and ExpeL: from success and failure, not from the right answer


def reflected(call: Call) -> dict[str, Any]:
    return {"reflection": f"I did not read message {number(call)}.\n\nNext time:\n1. read it\n2. say it"}


@pytest.mark.parametrize("name", ["reflexion", "expel"])
@pytest.mark.parametrize("profile", ["full", "small"])
def test_no_prompt_depends_on_the_right_answer_beyond_success_and_failure(
    tmp_path: Path, name: str, profile: str
) -> None:
    def seen(folder: str, target: str) -> list[tuple[str, str]]:
        tasks = [replace(task, input=f"Message {n}: guess", target=target) for n, task in enumerate(make_tasks(4))]
        model = scripted(wrong, lambda call: {**reflected(call), **insight(call)}, deciding())
        run = learned(tmp_path / folder, model, tasks, {"epochs": 2}, name, profile=profile, test=tasks[:1])
        return [(call.role, call.text) for call in run.model.calls]

    assert seen("a", "blue") == seen("b", "green")


def test_the_same_change_is_seen_by_a_method_that_learns_from_the_right_answer(tmp_path: Path) -> None:
    """So that the test above could fail."""
    prompts = []
    for target in ("blue", "green"):
        tasks = [replace(task, input=f"Message {n}: guess", target=target) for n, task in enumerate(make_tasks(4))]
        run = learned(tmp_path / target, scripted(wrong), tasks, {}, "textgrad")
        prompts.append([call.text for call in run.model.calls])
    assert prompts[0] != prompts[1]


def test_what_the_environment_said_is_kept() -> None:
    failed = Feedback(False, "2 of 3 tests pass. This fails: f(2) is 5")
    told = Feedback(False, "The answer is wrong. The right answer is: 4", "4")
    rollout = Rollout(
        make_tasks(1)[0], Trace("5"), None, failed, "p", rounds=(Round(Lesson("l", ""), Trace("6"), told),)
    )
    bare = without_target(rollout)
    assert bare.feedback == failed
    assert [one.feedback for one in bare.rounds] == [Feedback(False, "The answer is wrong.")]


def taught(call: Call) -> str:
    """Right once it reads the reflection on its own task."""
    return right(call) if f"I did not read message {number(call)}." in call.prompt.head else "wrong"


def test_a_task_is_tried_again_with_the_reflections_on_it_until_it_is_solved(tmp_path: Path) -> None:
    run = run_of(tmp_path, "reflexion", scripted(taught, reflected))
    assert [r.trace.answer == "wrong" for r in run.rollouts] == [True] * 3 + [False] * 3
    assert len(run.calls("reflector")) == 3
    assert {e.section for e in run.result.context} == {"reflections"}
    # It reads the reflection on its own task alone, with its lines.
    for call in run.calls("agent")[3:]:
        assert re.findall(r"I did not read message (\d)", call.prompt.head) == [str(number(call))]
        assert "Next time:\n  1. read it\n  2. say it" in call.prompt.head


def test_a_reflection_reads_those_before_it_on_the_same_task(tmp_path: Path) -> None:
    run = run_of(tmp_path, "reflexion", scripted(wrong, reflected), settings={"epochs": 2})
    first, second = run.prompts("reflector")[:3], run.prompts("reflector")[3:]
    assert not any("# Your earlier reflections" in prompt for prompt in first)
    assert all(prompt.count("Next time:") == 1 for prompt in second)


def test_the_last_reflections_of_each_task_are_kept(tmp_path: Path) -> None:
    said: list[int] = []

    def again(call: Call) -> dict[str, Any]:
        said.append(number(call))
        return {"reflection": f"If it is message {number(call)}, try way {said.count(number(call))}."}

    run = run_of(tmp_path, "reflexion", scripted(wrong, again), settings={"epochs": 4, "keep": 2})
    assert sorted(run.texts) == sorted(f"If it is message {n}, try way {way}." for n in range(3) for way in (3, 4))


def test_a_new_task_is_shown_the_reflections_on_those_most_like_it(tmp_path: Path) -> None:
    model = scripted(wrong, reflected)
    run = run_of(tmp_path, "reflexion", model, test=make_tasks(1, 9), settings={"k": 2, "epochs": 1})
    assert run.calls("agent")[-1].prompt.head.count("(reflections)") == 2


def test_a_reflection_is_found_by_its_whole_task(tmp_path: Path) -> None:
    tasks = [replace(task, input=f"Answer the following.\n{task.input}") for task in make_tasks(3)]
    run = learned(tmp_path, scripted(wrong, reflected), tasks, {"epochs": 1}, "reflexion")
    assert {e.key for e in run.result.context} == {task.input for task in tasks}


# ---- ExpeL


def test_rules_that_a_run_starts_with_stay_until_they_are_voted_down(tmp_path: Path) -> None:
    seed = seed_context([("rules", "If red, stop."), ("style", "Be brief.")])
    run = learned(tmp_path, scripted(curator=deciding()), 2, method="expel", seed_context=seed)
    assert {e.text for e in seed} <= set(run.texts)


def deciding(*operations: dict[str, str]) -> Role:
    return lambda call: {"operations": [{"id": "", "text": "", **operation} for operation in operations]}


def test_insights_rise_and_fall_by_vote(tmp_path: Path) -> None:
    first = deciding({"op": "ADD", "text": "If red, stop."}, {"op": "ADD", "text": "If green, go."})
    rest = deciding(
        {"op": "AGREE", "id": "e0"}, {"op": "REMOVE", "id": "e1"}, {"op": "EDIT", "id": "e0", "text": "If red, wait."},
        {"op": "AGREE", "id": "e77"},
    )  # fmt: skip
    model = scripted(curator=lambda call: (rest if "If green" in call.text else first)(call))
    run = run_of(tmp_path, "expel", model, 4, settings={"batch": 1})
    votes = [[(e.text, e.helpful, e.harmful) for e in r.context if e.section == "rules"] for r in run.reports]
    assert votes[0] == [("If red, stop.", 2, 0), ("If green, go.", 2, 0)]
    assert votes[1] == [("If red, wait.", 4, 0), ("If green, go.", 2, 1)]
    # Nought votes are left, so it is gone; the step after that has to add it anew.
    assert [text for text, _, _ in votes[2]] == ["If red, wait."]
    assert run.result.errors["unknown_insights"] >= 2


def test_a_task_is_attempted_with_insights_and_solved_tasks_like_it(tmp_path: Path) -> None:
    model = scripted(curator=deciding({"op": "ADD", "text": "If red:\n1. stop\n2. look"}))
    run = run_of(tmp_path, "expel", model, test=make_tasks(1, 9), settings={"k": 2})
    tested = run.calls("agent")[-1].prompt
    assert "If red:\n  1. stop\n  2. look" in tested.head
    assert len(tested.turns) == 2
    assert "(episodes)" not in tested.head


def after(call: Call) -> str:
    return right(call) if "A reflection on it" in call.text and number(call) < 2 else "wrong"


def test_failed_tries_are_compared_with_the_one_that_succeeded_and_successes_with_each_other(tmp_path: Path) -> None:
    run = run_of(tmp_path, "expel", scripted(after, reflected, deciding()), 3)
    *pairs, successes = run.prompts("curator")
    assert len(pairs) == 2
    for prompt in pairs:
        assert prompt.index("Failed:\nTask") < prompt.index("Answer: wrong") < prompt.index("Succeeded:\nTask")
    assert successes.count("# Attempt ") == successes.count("The answer is right.") == 2
    # The answer of the try that succeeded is shown later; a task that was never solved is not.
    kept = {e.text: e.data["answer"] for e in run.result.context.in_section("episodes")}
    assert sorted(kept.values()) == ["word0", "word1"]


# ---- Training-Free GRPO


def lucky(call: Call) -> str:
    """The first attempt fails, further ones of even messages succeed."""
    return right(call) if warm(call) and number(call) % 2 == 0 else "wrong"


def contrasting(call: Call) -> dict[str, Any]:
    return {"experiences": [f"If it is message {number(call)}, look twice."], "why": "it looked twice"}


def test_only_groups_with_an_advantage_are_contrasted(tmp_path: Path) -> None:
    run = run_of(tmp_path, "tf_grpo", scripted(lucky, contrasting, added), 4, settings={"epochs": 1, "group": 3})
    assert len(run.calls("agent")) == 4 * 3
    assert len(run.calls("reflector")) == 2
    assert sorted(run.texts) == [f"If it is message {n}, look twice." for n in (0, 2)]
    assert all(r.trace.answer == "wrong" for r in run.rollouts)


def test_a_contrast_reads_each_attempt_with_its_score_and_the_experiences_so_far(tmp_path: Path) -> None:
    seed = seed_context([("experiences", "Look once.")])
    how = {"settings": {"epochs": 1, "group": 3}, "seed_context": seed}
    run = run_of(tmp_path, "tf_grpo", scripted(lucky, contrasting, added), 1, **how)
    (call,) = run.calls("reflector")
    assert re.findall(r"# Attempt (\d): its score is (\d+) of 100", call.prompt.user) == [
        ("1", "0"), ("2", "100"), ("3", "100"),
    ]  # fmt: skip
    assert re.search(r"# The experiences so far\n\n<data-\w+>\n\[e0\] \(experiences\) Look once\.", call.prompt.head)
    # The curator reads why, and not the experience alone.
    assert "it looked twice" in run.prompts("curator")[0]


def test_a_group_of_one_has_nothing_to_compare(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="group"):
        run_of(tmp_path, "tf_grpo", scripted(), settings={"group": 1})
