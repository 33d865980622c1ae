"""MIPROv2 through the `dspy` package: what it learns, what it pays, and that a resume pays for nothing twice."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import context_bytes, make_tasks
from scripts import Learned, number, resumed, right, scripted

import practicum
from practicum import methods
from practicum.blocks.search.candidates import SECTION
from practicum.blocks.search.mipro_search import DEMOS, HIDDEN
from practicum.core.errors import ProviderError, UsageError
from practicum.models.scripted import Call, ScriptedClient

ON: dict[str, Any] = {"candidates": 4, "trials": 8}

needed = pytest.mark.skipif(bool(methods.missing_extra("mipro")), reason="dspy or optuna is not installed")


def obeying(call: Call) -> str:
    """Right on every third message, on a further third where it is told to, and on the last where it is shown how."""
    able = {0} | ({1} if "be thorough" in call.prompt.head else set()) | ({2} if call.prompt.turns else set())
    return right(call) if number(call) % 3 in able else "wrong"


def proposing(call: Call) -> dict[str, Any]:
    seen = len(re.findall(r"Message \d+", call.text))
    told = {"observations": "short messages", "summary": "They ask for a word."}
    return {**told, "proposed_instruction": "Above all be thorough" if seen else "Be quick"}


def mind(agent: Callable[[Call], Any] = obeying, curator: Callable[[Call], Any] = proposing) -> ScriptedClient:
    return scripted(agent, curator=curator)


def run_of(
    folder: Path, model: ScriptedClient | None = None, n: int = 9, val: int = 9, seed: int = 0,
    how: dict[str, Any] | None = None, **settings: Any,
) -> Learned:  # fmt: skip
    watched = Learned(model or mind(), folder / "run")
    work = practicum.learn(
        make_tasks(n), val=make_tasks(val, 100), out=watched.folder, method="mipro", settings={**ON, **settings},
        watch=watched, seed=seed, parts=practicum.Parts(clients={"agent": watched.model}), **(how or {}),
    )  # fmt: skip
    watched.result = practicum.run_sync(work)
    return watched


def shown(run: Learned, section: str) -> list[str]:
    return [e.text for e in run.result.context if e.section == section]


@needed
def test_instruction_and_demonstrations_are_found_together(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    assert run.result.scores["val_best"] == 1.0
    assert run.reports[0].val == pytest.approx(1 / 3)
    assert shown(run, SECTION) == ["Above all be thorough"]
    assert shown(run, DEMOS)
    demos = [e for e in run.result.context if e.section == DEMOS]
    assert all(e.data["answer"] == f"word{e.text[-1]}" for e in demos)
    assert all(f"task:t{e.text[-1]}" in e.sources for e in demos)
    (best,) = (e for e in run.result.context if e.section == SECTION)
    assert best.data == {"score": 1.0, "with": [e.id for e in sorted(demos, key=lambda e: e.data["turn"])]}
    assert {e.section for e in run.result.context} <= {SECTION, DEMOS, *HIDDEN.values()}


@needed
def test_each_combination_is_reported_and_paid_once(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    assert len(run.reports) == 1 + ON["trials"]
    assert [report.batch.data["compared"] for report in run.reports] == [9] * 9
    asked = [(call.role, call.text, call.prompt.turns) for call in run.calls("agent")]
    assert len(asked) == len(set(asked))
    combinations = {(r.batch.data["instruction"], *r.batch.data["demonstrations"]) for r in run.reports}
    # The first combination is scored by the run before it learns.
    assert sum(number(call) >= 100 for call in run.calls("agent")) == 9 * len(combinations)


@needed
def test_the_agent_sees_the_best_as_words_and_turns(tmp_path: Path) -> None:
    run = run_of(tmp_path, how={"test": make_tasks(3, 200), "instructions": "Say a word."})
    *_, last = (call for call in run.calls("agent") if number(call) >= 200)
    assert last.prompt.head == "Say a word.\n\nAbove all be thorough"
    assert [turn.assistant for turn in last.prompt.turns] == [
        e.data["answer"]
        for e in sorted((e for e in run.result.context if e.section == DEMOS), key=lambda e: e.data["turn"])
    ]
    assert run.result.scores["test"] == 1.0
    assert any("Say a word." in prompt for prompt in run.prompts("curator"))


@needed
def test_trials_are_on_minibatches_and_the_best_is_compared_on_all(tmp_path: Path) -> None:
    run = run_of(tmp_path, minibatch=3, full=4)
    sizes = [report.batch.data["compared"] for report in run.reports]
    assert sizes[0] == 9
    assert sizes.count(3) == ON["trials"]
    assert sizes.count(9) == 1 + ON["trials"] // 4
    whole = [r.batch.data["score"] for r in run.reports if r.batch.data["compared"] == 9]
    assert run.result.scores["val_best"] == max(whole)


@needed
def test_a_search_ends_once_it_compared_every_candidate(tmp_path: Path) -> None:
    run = run_of(tmp_path, candidates=1, trials=6, minibatch=3, full=1)
    assert run.result.stopped is None
    assert not len(run.result.context)


@needed
def test_without_validation_tasks_most_tasks_compare(tmp_path: Path) -> None:
    run = run_of(tmp_path, n=15, val=0, how={"test": make_tasks(3, 200)})
    assert {report.batch.data["compared"] for report in run.reports} == {12}
    learned = {task.id for report in run.reports for task in report.batch.tasks}
    assert len(learned) == 3
    sources = {source for e in run.result.context for source in e.sources if source.startswith("task:")}
    assert sources <= {f"task:{id}" for id in learned}
    assert run.reports[-1].val is None
    with pytest.raises(UsageError, match="give `val`, or at least 2 tasks"):
        run_of(tmp_path / "one", n=1, val=0)


@needed
def test_instructions_alone(tmp_path: Path) -> None:
    run = run_of(tmp_path, bootstrapped=0, labeled=0)
    assert {e.section for e in run.result.context} == {SECTION}
    assert run.result.scores["val_best"] == pytest.approx(2 / 3)
    # The model that proposes is shown examples all the same.
    assert any("say word0" in prompt for prompt in run.prompts("curator"))


@needed
def test_without_labels_a_judge_decides_and_no_answer_is_shown(tmp_path: Path) -> None:
    def judge(call: Call) -> dict[str, Any]:
        return {"right": "word" in call.prompt.user.rpartition("nswer")[2]}

    how = {"labels": False, "judged": True}
    run = run_of(tmp_path, scripted(obeying, curator=proposing, judge=judge), how=how)
    assert run.result.scores["val_best"] == 1.0
    assert not any("'answer'" in prompt for prompt in run.prompts("curator"))
    answers = [e.data["answer"] for e in run.result.context if e.section in (DEMOS, HIDDEN[DEMOS])]
    # What it gets right by itself; any other would be a label.
    assert set() < {*answers} <= {"word0", "word3", "word6"}


@needed
def test_the_seed_and_the_answers_decide_everything(tmp_path: Path) -> None:
    first, second, other = (run_of(tmp_path / str(n), seed=n // 2) for n in range(3))
    assert context_bytes(first.result) == context_bytes(second.result)
    assert [call.text for call in first.model.calls] == [call.text for call in second.model.calls]
    assert [r.batch.data for r in first.reports] != [r.batch.data for r in other.reports]


class Killed(BaseException):
    """As a kill: nothing after it is done."""


@needed
@pytest.mark.parametrize("minibatch", [3, 9])
@pytest.mark.parametrize("after", [1, 8, 14, 22, 35, 50])
def test_a_resume_pays_nothing_twice(tmp_path: Path, after: int, minibatch: int) -> None:
    on = {"minibatch": minibatch, "full": 3}
    whole = run_of(tmp_path / "whole", **on)
    calls = 0

    def dying(say: Callable[[Call], Any]) -> Callable[[Call], Any]:
        def said(call: Call) -> Any:
            nonlocal calls
            calls += 1
            if calls > after:
                raise Killed
            return say(call)

        return said

    with pytest.raises(Killed):
        run_of(tmp_path / "cut", mind(dying(obeying), dying(proposing)), how={"concurrency": 1}, **on)
    again = resumed(Learned(mind(), tmp_path / "cut" / "run"), mind())
    assert context_bytes(again.result) == context_bytes(whole.result)
    assert len(again.model.calls) == len(whole.model.calls) - after


@needed
@pytest.mark.parametrize("most", [12, 30, 55])
def test_a_spent_budget_ends_it_with_the_best_so_far_and_more_goes_on(tmp_path: Path, most: int) -> None:
    whole = run_of(tmp_path / "whole")
    run = run_of(tmp_path / "cut", how={"max_calls": most})
    assert "calls" in (run.result.stopped or "")
    assert len(run.model.calls) <= most
    again = resumed(run, mind(), max_calls=1000)
    assert context_bytes(again.result) == context_bytes(whole.result)
    assert len(run.model.calls) + len(again.model.calls) == len(whole.model.calls)


@needed
def test_it_goes_on_from_another_run(tmp_path: Path) -> None:
    first = run_of(tmp_path / "a", bootstrapped=0, labeled=0)
    more = run_of(tmp_path / "b", mind(curator=lambda call: {"proposed_instruction": "Be slow"}),
                  how={"seed_context": first.result.context})  # fmt: skip
    assert more.reports[0].val == pytest.approx(2 / 3)
    assert more.result.scores["val_best"] == 1.0
    assert shown(more, SECTION) == ["Above all be thorough"]
    assert shown(more, DEMOS)


@needed
def test_proposals_that_are_lost_are_counted(tmp_path: Path) -> None:
    run = run_of(tmp_path, mind(curator=lambda call: ProviderError("provider.failed", "away")))
    assert run.result.errors["lost_updates"] == len(run.calls("curator"))
    assert not shown(run, SECTION)
    assert run.result.scores["val_best"] == pytest.approx(2 / 3)


@needed
def test_a_failed_agent_stops_the_run(tmp_path: Path) -> None:
    with pytest.raises(ProviderError):
        run_of(tmp_path, mind(lambda call: ProviderError("provider.failed", "down")), val=0)


@needed
def test_nothing_of_the_package_is_printed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run_of(tmp_path)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"online": True}, "a stream shows each once"),
        ({"bootstrapped": 0}, "set bootstrapped, or labeled=0 too"),
        ({"trials": 0}, "trials"),
        ({"gate": True}, "method mipro judges its candidates itself"),
    ],
)
def test_impossible_settings_are_refused(
    tmp_path: Path, settings: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(methods, "missing_extra", lambda name: "")
    with pytest.raises(UsageError, match=said):
        run_of(tmp_path, **settings)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("package", ["dspy", "optuna"])
def test_without_a_package_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UsageError, match=re.escape("pip install 'dspy>=3.4'")):
        run_of(tmp_path)
    assert not (tmp_path / "run").exists()


@needed
@pytest.mark.parametrize("profile", ["full", "small"])
def test_the_proposing_model_gets_a_worked_example_if_it_is_small(tmp_path: Path, profile: str) -> None:
    run = run_of(tmp_path, how={"profile": profile}, trials=2)
    for call in run.calls("curator"):
        assert len(call.prompt.turns) == (profile == "small")
        if call.prompt.turns and call.schema is not None:
            example = json.loads(call.prompt.turns[0].assistant)
            assert {*example} == {*call.schema["properties"]}
            headings = re.findall(r"^# .*$", call.prompt.user, re.MULTILINE)
            assert re.findall(r"^# .*$", call.prompt.turns[0].user, re.MULTILINE) == headings
