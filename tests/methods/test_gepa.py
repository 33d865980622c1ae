"""GEPA through the `gepa` package: what it learns, what it pays, and that a resume pays for nothing twice."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import context_bytes, make_tasks
from profiles import cases
from scripts import Learned, number, resumed, right, scripted

import practicum
from practicum.blocks.search.gepa_search import HIDDEN
from practicum.cli.app import main
from practicum.core.errors import ProviderError, UsageError
from practicum.models.scripted import Call, ScriptedClient
from practicum.session.live import Live

ON: dict[str, Any] = {"attempts": 60, "minibatch": 3}


def known(text: str) -> set[int]:
    """The messages an instruction solves: "solve 3 5"."""
    return {int(n) for line in re.findall(r"solve ([\d ]+)", text) for n in line.split()}


def obeying(call: Call) -> str:
    return right(call) if number(call) in known(call.prompt.head) else "wrong"


def mending(call: Call) -> dict[str, Any]:
    """The instruction it reads, and beside it one of the messages that failed."""
    now, _, attempts = call.prompt.user.partition("# Attempts")
    failed = re.findall(r"Message (\d+)[^\n]*\nAnswer: wrong", attempts)
    solved = sorted({*known(now), *map(int, failed[:1])})
    return {"instruction": "solve " + " ".join(map(str, solved))}


def mind(agent: Callable[[Call], Any] = obeying, reflector: Callable[[Call], Any] = mending) -> ScriptedClient:
    return scripted(agent, reflector=reflector)


def run_of(
    folder: Path, model: ScriptedClient | None = None, n: int = 6, val: int = 0, seed: int = 0,
    how: dict[str, Any] | None = None, **settings: Any,
) -> Learned:  # fmt: skip
    watched = Learned(model or mind(), folder / "run")
    work = practicum.learn(
        make_tasks(n), val=tuple(make_tasks(val, 100)), out=watched.folder, method="gepa", settings={**ON, **settings},
        watch=watched, seed=seed, parts=practicum.Parts(clients={"agent": watched.model}), **(how or {}),
    )  # fmt: skip
    watched.result = practicum.run_sync(work)
    return watched


def test_instructions_improve_and_the_best_alone_is_shown(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    entries = list(run.result.context)
    best = max(entries, key=lambda e: (e.data["score"], -e.number))
    assert [e.id for e in entries if not e.hidden] == [best.id]
    assert {e.section for e in entries if e is not best} == {HIDDEN}
    assert best.data["score"] == round(len(known(best.text)) / 6, 6) >= 0.5
    assert {report.batch.arm for report in run.reports} > {None, "e0"}
    assert all(e.data.get("parent") in {None, *(x.id for x in entries)} for e in entries)


def test_a_candidate_stores_its_place_in_the_pareto_front(tmp_path: Path) -> None:
    entries = list(run_of(tmp_path).result.context)
    rows = {e.id: known(e.text) for e in entries}
    solved = set.union(*rows.values())
    for e in entries:
        # On what nothing solves, all are equal.
        assert e.data["front"] == len(rows[e.id]) + 6 - len(solved)


def test_the_search_stops_once_its_attempts_are_made(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    made = len(run.calls("agent"))
    assert run.reports[-1].batch.data["attempts"] == made
    assert ON["attempts"] <= made <= ON["attempts"] + 2 * 3 + 6


def test_candidates_are_compared_on_the_validation_tasks(tmp_path: Path) -> None:
    """Learning reads what came of the tasks it learns from, and of validation tasks nothing."""
    run = run_of(tmp_path, mind(lambda call: right(call) if number(call) >= 100 else "wrong"), val=4, attempts=20)
    assert not any("Message 10" in prompt for prompt in run.prompts("reflector"))
    assert list(run.result.context) == []
    assert {report.val for report in run.reports} == {1.0}


def test_the_best_by_validation_is_the_result(tmp_path: Path) -> None:
    def agent(call: Call) -> str:
        return right(call) if number(call) % 100 in known(call.prompt.head) else "wrong"

    run = run_of(tmp_path, mind(agent), val=4)
    assert run.result.scores["val_best"] == max(report.val or 0.0 for report in run.reports) > 0
    shown = [e for e in run.result.context if not e.hidden]
    assert [e.data["score"] for e in shown] == [run.result.scores["val_best"]]


def test_the_first_instruction_is_compared_once(tmp_path: Path) -> None:
    """The run scores its first context on the validation tasks anyway."""
    run = run_of(
        tmp_path, mind(lambda call: "wrong", lambda call: ProviderError("provider.failed", "away")), val=4, attempts=7
    )
    assert sum(number(call) >= 100 for call in run.calls("agent")) == 4


def test_without_labels_a_judge_decides(tmp_path: Path) -> None:
    def judge(call: Call) -> dict[str, Any]:
        return {"right": "word" in call.prompt.user.rpartition("nswer")[2]}

    model = scripted(obeying, reflector=mending, judge=judge)
    run = run_of(tmp_path, model, how={"labels": False, "judged": True})
    assert max(e.data["score"] for e in run.result.context) >= 0.5


def test_without_labels_and_judge_nothing_is_accepted(tmp_path: Path) -> None:
    assert not len(run_of(tmp_path, how={"labels": False}).result.context)


def test_the_seed_and_the_answers_decide_everything(tmp_path: Path) -> None:
    first, second, other = (run_of(tmp_path / str(n), seed=n // 2) for n in range(3))
    assert context_bytes(first.result) == context_bytes(second.result)
    assert [call.text for call in first.model.calls] == [call.text for call in second.model.calls]
    assert [r.batch.tasks for r in first.reports] != [r.batch.tasks for r in other.reports]


class Killed(BaseException):
    """As a kill: nothing after it is done."""


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("after", cases([1, 5, 11, 17, 26, 40, 59], 5, 26))
def test_a_resume_pays_nothing_twice(tmp_path: Path, after: int, groups: int) -> None:
    on = {"minibatch": 4, "groups": groups}
    whole = run_of(tmp_path / "whole", **on)
    calls = 0

    def dying(call: Call) -> str:
        nonlocal calls
        calls += 1
        if calls > after:
            raise Killed
        return obeying(call)

    with pytest.raises(Killed):
        run_of(tmp_path / "cut", mind(dying), how={"concurrency": 1}, **on)
    cut = Learned(mind(), tmp_path / "cut" / "run")
    again = resumed(cut, mind())
    assert context_bytes(again.result) == context_bytes(whole.result)
    assert len(again.calls("agent")) == len(whole.calls("agent")) - after


@pytest.mark.parametrize("most", [10, 24, 47])
def test_a_spent_budget_ends_it_with_the_best_so_far_and_more_goes_on(tmp_path: Path, most: int) -> None:
    whole = run_of(tmp_path / "whole")
    run = run_of(tmp_path / "cut", how={"max_calls": most})
    assert "calls" in (run.result.stopped or "")
    assert len(run.model.calls) <= most
    entries = list(run.result.context)
    if entries:
        best = max(entries, key=lambda e: (e.data["score"], -e.number))
        assert [e.id for e in entries if not e.hidden] == [best.id]
    again = resumed(run, mind(), max_calls=1000)
    assert context_bytes(again.result) == context_bytes(whole.result)
    assert len(run.model.calls) + len(again.model.calls) == len(whole.model.calls)


def test_groups_reflect_at_once_and_are_joined(tmp_path: Path) -> None:
    def reflector(call: Call) -> dict[str, Any]:
        if "# Instruction 2" in call.prompt.user:
            return {"instruction": "solve " + " ".join(map(str, sorted(known(call.prompt.user))))}
        return mending(call)

    run = run_of(tmp_path, mind(reflector=reflector), minibatch=6, groups=3)
    joins = [prompt for prompt in run.prompts("reflector") if "# Instruction 2" in prompt]
    assert joins
    assert len(run.calls("reflector")) == 4 * len(joins)
    assert max(e.data["score"] for e in run.result.context) == 1.0


def test_a_reflector_that_fails_is_counted(tmp_path: Path) -> None:
    run = run_of(tmp_path, mind(reflector=lambda call: ProviderError("provider.failed", "away")), attempts=12)
    assert run.result.errors["lost_updates"] == 2
    assert not len(run.result.context)


def test_a_failed_agent_stops_the_run(tmp_path: Path) -> None:
    with pytest.raises(ProviderError):
        run_of(tmp_path, mind(lambda call: ProviderError("provider.failed", "down")))


def test_it_goes_on_from_another_run(tmp_path: Path) -> None:
    first = run_of(tmp_path / "a", attempts=30)
    more = run_of(tmp_path / "b", how={"seed_context": first.result.context})
    shown = [[e for e in run.result.context if not e.hidden] for run in (first, more)]
    assert [len(entries) for entries in shown] == [1, 1]
    assert known(shown[0][0].text) <= known(shown[1][0].text)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"online": True}, "a stream shows each once"),
        ({"groups": 4}, "lower groups"),
        ({"groups": 2}, "raise minibatch"),
        ({"select": "x"}, "select"),
    ],
)
def test_impossible_settings_are_refused(tmp_path: Path, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        run_of(tmp_path, **settings)


def test_without_the_package_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gepa", None)
    with pytest.raises(UsageError, match=re.escape("pip install 'gepa>=0.1.4'")):
        run_of(tmp_path)
    assert not (tmp_path / "run").exists()


def test_show_tells_scores_and_front(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = run_of(tmp_path)
    with pytest.raises(SystemExit) as end:
        main(["show", str(run.folder)])
    assert end.value.code in (0, None)
    said = " ".join(capsys.readouterr().out.split())
    for e in run.result.context:
        assert f"score {e.data['score']:.1%}, nothing better on {e.data['front']} tasks" in said


def test_a_candidate_has_the_sources_of_its_parent(tmp_path: Path) -> None:
    context = run_of(tmp_path).result.context
    children = [e for e in context if "parent" in e.data]
    assert children
    for child in children:
        parent = context.get(child.data["parent"])
        assert parent is not None
        assert set(parent.sources) < set(child.sources)


def test_the_live_view_does_not_make_up_how_many_steps_there_will_be(tmp_path: Path) -> None:
    seen: list[str] = []

    class View(Live):
        def say(self, line: str) -> None:
            seen.append(line)

        def changed(self) -> None:
            seen.append(self.status().fitted(200, 6))

    work = practicum.learn(
        make_tasks(6), out=tmp_path / "run", method="gepa", settings=ON, watch=View(),
        parts=practicum.Parts(clients={"agent": mind()}),
    )  # fmt: skip
    practicum.run_sync(work)
    text = "\n".join(seen)
    assert "step 1" in text
    assert "step 1 of" not in text
