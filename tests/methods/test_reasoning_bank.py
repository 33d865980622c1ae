"""ReasoningBank with test-time scaling as METHODS section 4 has it, in whole runs: what is asked, kept and chosen."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from banks import Differing, chancy, guessing, refusing, traced
from helpers import client, context_bytes, make_tasks, world
from labels import changed, prompts
from profiles import cases
from runs import Late, Words
from scripts import (
    Learned,
    learned,
    memory,
    nothing,
    number,
    resumed,
    right,
    same_after_any_kill,
    scripted,
    shape,
    wrong,
)

import practicum
from practicum import methods
from practicum.blocks.act.show import FOLLOW
from practicum.core.context import Context
from practicum.core.errors import ProviderError, UsageError
from practicum.core.types import Rollout, Score, Task
from practicum.methods.reasoning_bank import Settings
from practicum.models.scripted import Call, ScriptedClient
from practicum.session.forget import forget
from practicum.session.records import step_records
from practicum.store.database import Store

METHOD = "reasoning_bank"


def distilling(call: Call) -> dict[str, Any]:
    """An extraction gives one memory, which says what the message is; a contrast finds nothing."""
    return memory(f"message {number(call)}") if shape(call) == "Memories" else {}


def model(agent: Any = right, judge: Any = nothing, reflector: Any = distilling) -> ScriptedClient:
    return scripted(agent, reflector, judge=judge)


def run(
    folder: Path, made: ScriptedClient, tasks: Any = 3, settings: Mapping[str, Any] | None = None, **how: Any
) -> Learned:
    return learned(folder, made, tasks, settings, METHOD, **how)


def stored(made: Learned) -> list[Rollout]:
    """The attempts as they lie in the run's folder."""
    with Store.open(made.folder) as store:
        return [rollout for _, rollouts, _ in step_records(store) for rollout in rollouts]


# ---- what a task costs


@pytest.mark.parametrize(("until", "labels", "verdict"), [
    ("k", True, []), ("k", False, []), ("agreement", True, []), ("score", False, []), ("score", True, ["found wrong"]),
    ("judge", True, ["found wrong: A judge found the answer wrong: it is a guess"]),
])  # fmt: skip
def test_a_pass_reads_that_an_answer_is_wrong_only_if_a_judge_or_the_score_says_so(
    tmp_path: Path, until: str, labels: bool, verdict: list[str]
) -> None:
    settings = {"scaling": "sequential", "k": 1, "until": until}
    made = run(tmp_path, model(Differing(), refusing), 1, settings, labels=labels)
    _, second = (call.prompt.user for call in made.calls("agent"))
    earlier = second[second.index("1. guess b1") :].splitlines()
    assert [line.strip() for line in earlier if line.startswith("   ")] == verdict
    assert "wrong" not in "".join(line for line in earlier[:-1] if not line.startswith("   "))


@pytest.mark.parametrize(("settings", "attempts", "temperature"), [
    ({"k": 1}, 1, 0.7), ({"k": 1, "warmth": 0.9}, 1, 0.9), ({"k": 2}, 2, 0.7), ({"scaling": "none"}, 1, 0.2),
    ({"scaling": "sequential"}, 6, 0.7), ({"scaling": "sequential", "k": 0}, 1, 0.7),
    ({"preset": "routine"}, 1, 0.7), ({"preset": "routine", "scaling": "sequential"}, 1, 0.7),
    ({"preset": "standard"}, 3, 0.7), ({"preset": "standard", "scaling": "sequential"}, 6, 0.7),
    ({"preset": "critical"}, 5, 0.7), ({"preset": "critical", "scaling": "sequential"}, 6, 0.7),
    ({"preset": "routine", "scaling": "sequential", "k": 2}, 3, 0.7),
    ({"preset": "standard", "scaling": "none"}, 1, 0.2),
], ids=str)  # fmt: skip
def test_a_preset_and_a_way_to_scale_make_so_many_attempts_at_one_temperature(
    tmp_path: Path, settings: dict[str, Any], attempts: int, temperature: float
) -> None:
    made = run(tmp_path, model(), 1, settings, temperature=0.2)
    (kept,) = stored(made)
    assert len(kept.group) == attempts
    assert [call.options.temperature for call in made.calls("agent")] == [temperature] * attempts
    again = model()
    parts = practicum.Parts(clients={"agent": again})
    work = practicum.evaluate(make_tasks(1), Context(), method=METHOD, settings=settings, parts=parts, temperature=0.2)
    (one,) = practicum.run_sync(work).rollouts
    assert len(one.group) == attempts
    assert [call.options.temperature for call in again.calls] == [temperature] * attempts


@pytest.mark.parametrize("settings", [{}, {"scaling": "sequential", "k": 2}, {"scaling": "none"}], ids=str)
@pytest.mark.parametrize("scorer", ["exact", "judge"])
def test_evaluation_scales_as_learning_does(tmp_path: Path, settings: dict[str, Any], scorer: str) -> None:
    for name, agent in (("same", right), ("other", Differing())):
        made = run(
            tmp_path / name, model(agent, refusing), 2, settings, test=make_tasks(3, 50), before=True, scorer=scorer
        )
    assert {shape(c) for c in made.model.calls if "Message 5" in c.text} <= {"", "answer", "Verdict"}


# ---- what is shown and kept


def test_the_most_similar_memories_are_shown_after_the_instructions_and_kept_with_the_step(tmp_path: Path) -> None:
    def agent(call: Call) -> dict[str, Any]:
        shown = re.findall(r"^\[(e\d+)\]", "\n".join(call.prompt.pages), re.MULTILINE)
        return {"answer": right(call), "used": shown[:1]}

    tasks = make_tasks(3)
    again = [*tasks, Task("last", tasks[1].input, tasks[1].target)]
    made = run(
        tmp_path, model(agent), again, {"memories": 2, "scaling": "none", "online": True, "index": "task"},
        instructions="Be kind.", parts={"embedder": Words()},
    )  # fmt: skip
    last = made.calls("agent")[-1].prompt
    assert last.head.startswith("Be kind.")
    assert last.user == tasks[1].input
    before, page, after = last.pages
    assert (before.split("\n")[-1][1:], after[2:]) == (f"notes-{after[8:-1]}>", f"notes-{after[8:-1]}>")
    assert "(memories) Successful approach: message 1 (such tasks). do message 1" in page
    assert page.startswith(FOLLOW)
    assert page.count("\n") == 2
    kept = stored(made)
    assert kept[0].retrieved == ()
    assert [len(r.retrieved) for r in kept] == [0, 1, 2, 2]
    (first, how), (_, less) = kept[-1].retrieved
    assert (first, how > less) == ("e1", True)
    assert set(kept[-1].trace.used) <= {id for id, _ in kept[-1].retrieved}
    assert [e.uses for e in made.result.context][:3] != [0, 0, 0]


def test_a_step_is_kept_with_its_attempts_the_choice_and_its_reason(tmp_path: Path) -> None:
    made = run(
        tmp_path,
        model(guessing, reflector=lambda call: {**distilling(call), "holds": ["care"], "why": "it is", "best": 3}),
        6,
    )
    kept = stored(made)
    assert kept == made.rollouts
    assert [len(r.group) for r in kept] == [3] * 6
    assert all(r.choice["of"] == 3 and r.choice["why"] and r.choice["contrast"]["holds"] == ["care"] for r in kept)
    assert {r.choice["by"] for r in kept} <= {"score", "contrast", "agreement"}
    assert all(r.feedback.success is True or not any(s.feedback.success for s in r.siblings) for r in kept)


def test_a_bank_that_is_empty_gives_nothing_and_the_prompt_is_plain(tmp_path: Path) -> None:
    made = run(tmp_path, model(reflector=nothing), 2)
    assert [r.retrieved for r in made.rollouts] == [(), ()]
    assert {call.prompt.pages for call in made.calls("agent")} == {()}
    assert made.result.errors == {"no_memories": 2}
    assert len(made.result.context) == 0


# ---- what is reported


def test_without_several_attempts_there_is_no_best_of_k(tmp_path: Path) -> None:
    done = run(tmp_path, model(), 2, {"scaling": "none", "online": True}, test=make_tasks(1, 50))
    assert (done.result.scores, done.progress.best_of_k) == ({"online": 1, "test": 1}, None)


# ---- agents of one's own, and traces


def test_a_function_is_an_agent_without_a_model_of_its_own(tmp_path: Path) -> None:
    seen: list[str] = []

    def agent(text: str, context: str) -> dict[str, str]:
        seen.append(context)
        return {"answer": f"guess {len(seen)}", "note": f"note {len(seen)}"}

    made = model(judge=refusing)
    parts = practicum.Parts(agent=agent, clients={"reflector": made, "judge": made})
    work = practicum.learn(
        make_tasks(2), test=make_tasks(1, 50), out=tmp_path / "run", method=METHOD, parts=parts, labels=False,
        settings={"scaling": "sequential", "k": 1, "notes": True, "until": "judge"},
    )  # fmt: skip
    result = practicum.run_sync(work)
    assert len(seen) == 2 * 3
    assert "1. guess 1\n   your note: note 1\n   found wrong: A judge found the answer wrong: it is a guess" in seen[1]
    assert {call.role for call in made.calls} == {"reflector", "judge"}
    assert {e.data["outcome"] for e in result.context} == {"failure"}
    assert all("- note" in c.prompt.user for c in made.calls if shape(c) == "Memories")


@pytest.mark.parametrize("how", [{}, {"labels": False}, {"labels": False, "judged": True}], ids=str)
def test_stored_traces_teach_where_their_outcome_is_known(tmp_path: Path, how: dict[str, Any]) -> None:
    tasks = [traced(0, Score(1.0, True)), traced(1, Score(0.0, False)), replace(traced(2, None), target=None)]
    made = run(tmp_path, model(judge=refusing), tasks, from_traces=True, **how)
    assert made.calls("agent") == []
    outcomes = [e.data["outcome"] for e in made.result.context]
    unknown = made.result.errors.get("unknown_outcomes", 0)
    assert len(outcomes) + unknown == 3
    assert sorted(outcomes) == (["failure"] * 3 if "judged" in how else [] if how else ["failure", "success"])
    assert len(made.model.calls) == (6 if "judged" in how else 0 if how else 2)
    assert all("Action: look at" in text for text in made.prompts("reflector"))


# ---- what fails


@pytest.mark.parametrize("settings", [{}, {"scaling": "sequential", "k": 2}, {"scaling": "none"}], ids=str)
def test_a_run_with_failed_calls_counts_the_losses_and_resumes_to_the_same_result(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    def flaky(call: Call) -> str | Exception:
        return ProviderError("provider.failed", "overloaded") if (call.options.seed or 0) % 9 == 0 else world(call)

    made = run(tmp_path, client(flaky), 8, settings, labels=False)
    assert made.result.steps == 8
    assert made.result.errors
    again = resumed(made, client())
    assert again.model.calls == []
    assert context_bytes(again.result) == context_bytes(made.result)
    assert again.result.errors == made.result.errors


def test_a_run_with_a_failed_reflector_stops(tmp_path: Path) -> None:
    away = model(reflector=lambda call: ProviderError("provider.failed", "nobody there"))
    with pytest.raises(ProviderError, match="3 steps in a row were lost: nobody there"):
        run(tmp_path, away, 9)
    assert sum(call.role == "agent" for call in away.calls) == 3 * 3


# ---- resume and determinism

WAYS: tuple[dict[str, Any], ...] = (
    {"batch": 2, "k": 2},
    {"scaling": "sequential", "k": 2, "notes": True},
    {"scaling": "sequential", "k": 2, "until": "judge"},
    {"online": True, "consolidate": True, "k": 2},
)


@pytest.mark.slow
@pytest.mark.parametrize("settings", WAYS, ids=str)
@pytest.mark.parametrize("labels", cases([True, False], False))
def test_a_run_killed_at_any_call_resumes_to_the_same_result_and_repeats_no_call(
    tmp_path: Path, settings: dict[str, Any], labels: bool
) -> None:
    whole = run(tmp_path / "whole", client(chancy), 4, settings, labels=labels)
    same_after_any_kill(whole, chancy, tmp_path / "cut", lambda at, model: run(at, model, 4, settings, labels=labels))


@pytest.mark.parametrize("settings", WAYS, ids=str)
@pytest.mark.slow
def test_the_same_seed_gives_the_same_run_in_whatever_order_answers_come(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    runs = [run(tmp_path / str(n), Late(chancy, seed=n), 4, settings, labels=False, concurrency=n) for n in (1, 3, 50)]
    assert len({context_bytes(made.result) for made in runs}) == 1
    assert all(made.rollouts == runs[0].rollouts for made in runs)


# ---- labels


def test_in_a_stream_no_target_decides_which_attempt_stands(tmp_path: Path) -> None:
    """All in one step, before anything was learned: so what is chosen rests on nothing but the attempts."""
    tasks = make_tasks(12)
    settings = {"online": True, "batch": 12}
    runs = [
        run(tmp_path / str(n), client(chancy), made, settings)
        for n, made in enumerate((tasks, changed(tasks, "other")))
    ]
    assert [r.place for r in runs[0].rollouts] == [r.place for r in runs[1].rollouts]
    assert [r.feedback.success for r in runs[0].rollouts] != [r.feedback.success for r in runs[1].rollouts]
    learning = [
        run(tmp_path / f"o{n}", client(chancy), t, {"batch": 12})
        for n, t in enumerate((tasks, changed(tasks, "other")))
    ]
    assert [r.place for r in learning[0].rollouts] != [r.place for r in learning[1].rollouts]


@pytest.mark.parametrize("settings", [{}, {"choose": "agreement"}, {"scaling": "sequential", "k": 2}], ids=str)
@pytest.mark.parametrize("how", ["other", "missing"])
def test_in_evaluation_targets_change_no_prompt_and_no_choice(
    tmp_path: Path, settings: dict[str, Any], how: str
) -> None:
    bank = run(tmp_path, model(), 3).result.context
    found = []
    for tasks in (make_tasks(6, 50), changed(make_tasks(6, 50), how)):
        made = client(chancy)
        work = practicum.evaluate(
            tasks, bank, method=METHOD, settings=settings, parts=practicum.Parts(clients={"agent": made}, scorer=_any)
        )
        done = practicum.run_sync(work)
        found.append(([c.text for c in made.calls], [r.place.rpartition("/")[2] for r in done.rollouts]))
    assert found[0] == found[1]


def _any(task: Task, answer: str) -> float:
    return float(answer == task.target)


@pytest.mark.parametrize("scaling", ["parallel", "sequential"])
def test_no_attempt_sees_the_target(tmp_path: Path, scaling: str) -> None:
    def vague(call: Call) -> dict[str, Any]:
        return memory("care") if shape(call) == "Memories" else {}

    tasks = [Task(f"t{n}", f"Message {n}: what is it?", f"zebra{n}") for n in range(4)]
    for labels in (True, False):
        made = run(tmp_path / str(labels), model(wrong, refusing, vague), tasks, {"scaling": scaling}, labels=labels)
        assert not [call for call in made.calls("agent") if "zebra" in call.text]
        assert not [call for call in made.calls("judge") if "zebra" in call.text]
        assert any("zebra" in call.text for call in made.calls("reflector")) is labels


def test_a_judge_that_scores_sees_the_target_and_one_that_teaches_does_not(tmp_path: Path) -> None:
    tasks = make_tasks(5)
    config: dict[str, Any] = {"method": METHOD, "labels": False, "scorer": "judge"}
    before, after = (
        [p for p in prompts(tmp_path / name, made, **config) if "# Reference answer" not in p[1]]
        for name, made in (("a", tasks), ("b", changed(tasks, "other")))
    )
    assert before == after
    assert any(role == "judge" for role, _ in before)


# ---- forgetting


def test_a_task_that_is_forgotten_leaves_nothing(tmp_path: Path) -> None:
    made = run(tmp_path, model(guessing), 5)
    before = {e.id for e in made.result.context if "task:t2" in e.sources}
    assert before
    with Store.open(made.folder) as store:
        report = forget(store, "run", tasks=["t2"])
    assert report.left == 0
    assert {e.id for e in report.removed} == before
    assert not [e for e in practicum.load_context(made.folder) if "message 2" in e.text]
    assert b"word2" not in (made.folder / "run.sqlite").read_bytes()


# ---- settings


def test_the_defaults_are_those_of_the_specification() -> None:
    s = Settings()
    assert (s.attempts, s.memories, s.items, s.warmth, s.extraction) == (3, 5, 3, 0.7, 1.0)
    assert Settings(scaling="sequential").attempts == 6
    assert (s.scaling, s.extract, s.consolidate) == ("parallel", "all", False)


@pytest.mark.parametrize(
    ("given", "k", "memories", "attempts"),
    [
        ({"preset": "routine"}, 1, 3, 1),
        ({"preset": "standard"}, 3, 5, 3),
        ({"preset": "critical"}, 5, 10, 5),
        ({"preset": "critical", "k": "2"}, 2, 10, 2),
        ({"preset": "critical", "memories": 7}, 5, 7, 5),
        ({"preset": "critical", "scaling": "none"}, None, 10, 1),
        ({"preset": "critical", "scaling": "sequential"}, None, 10, 6),
        ({"preset": "critical", "scaling": "sequential", "k": "2"}, 2, 10, 3),
        ({"preset": "routine", "scaling": "sequential"}, 0, 3, 1),
        ({"preset": "routine", "scaling": "sequential", "warmth": 0.9, "notes": True}, 0, 3, 1),
        ({"preset": "routine", "scaling": "sequential", "k": 1, "until": "judge"}, 1, 3, 2),
        ({"preset": "routine", "k": 2, "warmth": 0.9}, 2, 3, 2),
    ],
    ids=str,
)
def test_what_is_set_by_hand_goes_before_a_preset(
    given: dict[str, Any], k: int | None, memories: int, attempts: int
) -> None:
    s = Settings.model_validate(given)
    assert (s.k, s.memories, s.attempts) == (k, memories, attempts)


@pytest.mark.parametrize(
    ("given", "left"),
    [
        ({"k": 1}, {"k": 1, "warmth": 0.9}),
        ({"preset": "routine"}, {"preset": "routine", "warmth": 0.9}),
        ({"k": 5}, {"k": 5, "warmth": 0.9, "choose": "judge"}),
        ({"preset": "critical"}, {"preset": "critical", "warmth": 0.9, "choose": "judge"}),
        ({"scaling": "sequential", "k": 1, "warmth": 0.9}, {"scaling": "sequential", "k": 1, "warmth": 0.9}),
    ],
    ids=str,
)
def test_what_a_run_was_set_to_for_several_attempts_goes_where_one_is_asked_for(
    given: dict[str, Any], left: dict[str, Any]
) -> None:
    made = methods.override_settings(METHOD, {"k": 3, "warmth": 0.9, "choose": "judge"}, given)
    assert made == left
    methods.read_settings(METHOD, made)
    with pytest.raises(UsageError, match="choose needs k=2 or more"):
        methods.read_settings(
            METHOD, methods.override_settings(METHOD, {"k": 3, "warmth": 0.9}, {"k": 1, "choose": "agreement"})
        )


@pytest.mark.parametrize(
    ("given", "left"),
    [
        ({"k": 2}, {"until": "judge", "notes": True}),
        ({"scaling": "parallel"}, {}),
        ({"preset": "routine"}, {"notes": True}),
        ({"preset": "critical"}, {"until": "judge", "notes": True}),
        ({"until": "k"}, {"k": 3, "notes": True}),
    ],
    ids=str,
)
def test_what_ended_the_passes_of_a_run_goes_where_there_are_none(given: dict[str, Any], left: dict[str, Any]) -> None:
    of_run = {"scaling": "sequential", "k": 3, "until": "judge", "notes": True}
    made = methods.override_settings(METHOD, of_run, given)
    assert made == {"scaling": "sequential", **left, **given}
    methods.read_settings(METHOD, made)


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"k": 0}, "k=0 needs scaling=sequential"),
        ({"k": "-2"}, "setting k='-2' of method reasoning_bank: Input should be greater than or equal to 0"),
        ({"k": 65}, "setting k=65 of method reasoning_bank: Input should be less than or equal to 64"),
        ({"scaling": "none", "k": 3}, "k needs scaling=parallel or sequential"),
        ({"scaling": "none", "choose": "judge", "warmth": 1}, "warmth needs scaling=parallel or sequential"),
        ({"scaling": "none", "choose": "judge"}, "choose needs scaling=parallel"),
        ({"scaling": "sequential", "choose": "agreement"}, "choose needs scaling=parallel"),
        ({"k": "1", "warmth": 0.9, "choose": "agreement"}, "choose needs k=2 or more"),
        ({"preset": "routine", "choose": "judge"}, "choose needs k=2 or more"),
        ({"until": "k"}, "until needs scaling=sequential"),
        ({"scaling": "none", "until": "judge"}, "until needs scaling=sequential"),
        ({"scaling": "sequential", "k": "0", "until": "judge"}, "until needs k=1 or more"),
        ({"scaling": "sequential", "preset": "routine", "until": "judge"}, "until needs k=1 or more"),
        ({"scaling": "sequential", "until": "right"}, "setting until='right' of"),
        ({"notes": True}, "notes=true needs scaling=sequential"),
        ({"scaling": "sequential", "contrast": False}, "contrast needs scaling=parallel"),
        ({"k": 1, "contrast": False}, "contrast needs k=2 or more"),
        ({"threshold": 0.9}, "threshold needs consolidate=true"),
        ({"consolidate": True, "index": "task"}, "consolidate=true compares memories by what they are retrieved by"),
        ({"items": 0}, "setting items=0 of"),
        ({"memories": 0}, "setting memories=0 of"),
        ({"preset": "daring"}, "setting preset='daring' of"),
        ({"preset": ["routine"]}, "setting preset=['routine'] of"),
        ({"preset": {}}, "setting preset={} of"),
        ({"scaling": ["none"]}, "setting scaling=['none'] of"),
        ({"curator": "edits"}, "method reasoning_bank has no setting 'curator'"),
        ({"online": True, "epochs": 2}, "online learning sees each task once"),
    ],
    ids=str,
)
def test_impossible_settings_are_refused_in_one_line(settings: dict[str, Any], line: str) -> None:
    with pytest.raises(UsageError) as refused:
        methods.build(METHOD, settings)
    text = str(refused.value)
    assert text.removeprefix(f"method {METHOD}: ").startswith(line)
    assert "\n" not in text
