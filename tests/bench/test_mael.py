"""The bench of MAEL: every variant is measured once, on the same tasks and pools; a run that was stopped continues."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from fenced import needs_fences
from helpers import Launcher, client, make_tasks, write_tasks
from runs import Words
from simulated import made_tasks
from simulated_network import respond

import practicum
from practicum.bench.mael import (
    NO_EXPERIENCE,
    ONE_AGENT,
    MaelPlan,
    MaelResult,
    MaelRow,
    MaelRun,
    MaelVariant,
    first_tasks,
    mael,
)
from practicum.bench.plots import cases_plot, cells_plot, pools_plot
from practicum.bench.shared_budget import SharedBudget
from practicum.cli.app import main
from practicum.core.errors import ProviderError, UsageError
from practicum.core.types import Usage
from practicum.models.budget import BudgetLimits
from practicum.models.scripted import Call, ScriptedClient
from practicum.session.records import load_context
from practicum.tasks.sandbox.runner import Sandbox

TASKS = made_tasks(20, 4, 0)


def plan(**how: Any) -> MaelPlan:
    given = {"learning": TASKS[:12], "testing": TASKS[12:], "sizes": (0, 6, 12), "settings": {"rounds": 3}, **how}
    return MaelPlan(**{"seeds": 1, "cases": 0, **given, "config": {"profile": "small", **given.get("config", {})}})


def paid(folder: Path, model: ScriptedClient, budget: SharedBudget | None = None, **how: Any) -> MaelResult:
    parts = practicum.Parts(clients={"agent": model}, embedder=Words())
    return practicum.run_sync(mael(plan(**how), folder, parts=parts, budget=budget))


def measured(folder: Path, model: ScriptedClient, **how: Any) -> list[MaelRow]:
    found = paid(folder, model, **how)
    assert found.stopped is None
    return found.rows


@pytest.mark.slow
def test_every_variant_is_measured_once(tmp_path: Path) -> None:
    model = client(respond)
    how: dict[str, Any] = {"seeds": 2, "cases": 3}
    found = paid(tmp_path / "b", model, **how)
    assert found.stopped is None
    rows = found.rows
    assert [row.name for row in (*rows, *found.cases)] == [variant.name for variant in plan(**how).variants]
    by = {row.name: row for row in rows}
    assert (by[ONE_AGENT].calls, by[NO_EXPERIENCE].experiences) == (1.0, 0)
    assert by["step-wise, 6 tasks"].experiences < by["step-wise, 12 tasks"].experiences
    assert all([run.seed for run in row.runs] == [0, 1] for row in rows)
    assert all([len(scores) for scores in row.by_task] == [2] * 8 for row in rows)
    # In this world, good experience of similar tasks is best, and bad experience harms.
    assert by["step-wise, 12 tasks"].rounds < by[NO_EXPERIENCE].rounds
    assert by["high similarity, low reward"].score < by[NO_EXPERIENCE].score
    assert {*found.claims} == {*by} - {NO_EXPERIENCE}
    # A corrected p-value is never smaller than the p-value of the comparison alone.
    assert all(claim.corrected >= claim.difference.p for claim in found.claims.values())
    assert [[row.variant.retrieved for row in line] for line in found.cells] == [
        [("task", "high", "high"), ("task", "high", "low")], [("task", "low", "high"), ("task", "low", "low")],
    ]  # fmt: skip
    # Each of the three cases has a score without a round of critique, and after one, two and three.
    assert {how: [len(case) for case in cases] for how, cases in found.progress.items()} == {
        how: [4] * 3 for how in ("none", "task", "step")
    }
    first, last = ([fmean(case[n] for case in cases) for cases in found.progress.values()] for n in (0, -1))
    assert sum(last) > sum(first)
    # The same command again reads the rows and measures nothing.
    made = len(model.calls)
    again = paid(tmp_path / "b", model, **how)
    assert (again.rows, again.cases) == (rows, found.cases)
    assert len(model.calls) == made
    # Further seeds are added to the ones that were measured.
    more = paid(tmp_path / "b", model, **{**how, "seeds": 3})
    assert [row.runs[:2] for row in more.rows] == [row.runs for row in rows]
    for draw, name in ((pools_plot, "pools.png"), (cells_plot, "cells.png"), (cases_plot, "cases.png")):
        draw(found, tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_a_missing_row_is_made_from_its_journal_and_other_settings_are_refused(tmp_path: Path) -> None:
    model = client(respond)
    rows = measured(tmp_path / "b", model)
    (tmp_path / "b" / "row-5-0.json").unlink()
    made = len(model.calls)
    assert measured(tmp_path / "b", model) == rows
    assert len(model.calls) == made
    with pytest.raises(UsageError, match="with other tasks or settings"):
        measured(tmp_path / "b", model, sizes=(0, 12))
    ruled = [replace(task, meta={**task.meta, "rule": "another"}) for task in TASKS[12:]]
    with pytest.raises(UsageError, match="with other tasks or settings"):
        measured(tmp_path / "b", model, testing=ruled)


@pytest.mark.slow
def test_the_first_tasks_are_in_the_order_of_learning(tmp_path: Path) -> None:
    measured(tmp_path / "b", client(respond), sizes=(0, 12))
    pools = load_context(tmp_path / "b" / "learning-0")
    order = list(dict.fromkeys(entry.data["trace"] for entry in pools))
    for n in (0, 1, 11, 12):
        assert list(dict.fromkeys(entry.data["trace"] for entry in first_tasks(pools, n))) == order[:n]


SMALL: dict[str, Any] = {"learning": TASKS[:3], "testing": TASKS[12:15], "sizes": (0, 3)}
TINY: dict[str, Any] = {"learning": TASKS[:1], "testing": TASKS[12:13], "sizes": (0, 1), "settings": {"agents": 2}}


class Killed(BaseException):
    """Ends the bench at once, unlike a failure of a model."""


def dying(calls: int) -> ScriptedClient:
    """Answers this number of calls, then raises Killed."""
    left = iter(range(calls))

    def answers(call: Call) -> str | Exception:
        if next(left, None) is None:
            raise Killed
        return respond(call)

    return client(answers)


@pytest.mark.slow
def test_a_killed_bench_continues_and_pays_nothing_twice(tmp_path: Path) -> None:
    whole = client(respond)
    rows = measured(tmp_path / "whole", whole, **TINY)
    assert [row.name for row in rows] == [variant.name for variant in plan(**TINY).variants]
    assert (rows[0].name, rows[0].calls, rows[0].experiences) == (ONE_AGENT, 1.0, 0)
    calls = len(whole.calls) // 2
    with pytest.raises(Killed):
        paid(tmp_path / "b", dying(calls), **TINY)
    model = client(respond)
    assert measured(tmp_path / "b", model, **TINY) == rows
    assert len(model.calls) == len(whole.calls) - calls


@pytest.mark.slow
def test_a_bench_killed_anywhere_continues_and_pays_nothing_twice(tmp_path: Path) -> None:
    whole = client(respond)
    rows = measured(tmp_path / "whole", whole, **SMALL)
    made = len(whole.calls)
    for calls in range(3, made, made // 8):
        folder = tmp_path / str(calls)
        with pytest.raises(Killed):
            paid(folder, dying(calls), **SMALL)
        model = client(respond)
        assert measured(folder, model, **SMALL) == rows
        assert len(model.calls) == made - calls


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["calls", "tokens"])
def test_a_budget_covers_all_runs_and_can_be_raised(tmp_path: Path, unit: str) -> None:
    whole, all_of_it = client(respond), SharedBudget()
    rows = paid(tmp_path / "whole", whole, all_of_it, **SMALL).rows
    most, seen, model = getattr(all_of_it.spent, unit), 0, client(respond)
    for share in (0.05, 0.3, 0.6, 0.9):
        budget = SharedBudget(BudgetLimits(**{unit: int(most * share)}))
        found = paid(tmp_path / "b", model, budget, **SMALL)
        assert found.stopped == f"the budget of {int(most * share)} {unit} is spent"
        assert seen <= getattr(budget.spent, unit) <= int(most * share)
        assert found.rows == rows[: len(found.rows)]
        assert len(model.calls) == budget.spent.calls
        seen = getattr(budget.spent, unit)
    assert 0 < len(found.rows) < len(rows)
    assert paid(tmp_path / "b", model, **SMALL).rows == rows
    assert len(model.calls) == len(whole.calls) == all_of_it.spent.calls


def test_a_stop_ends_the_bench_after_the_current_run(tmp_path: Path) -> None:
    budget, model = SharedBudget(), client(respond)
    parts = practicum.Parts(clients={"agent": model}, embedder=Words())
    work = mael(plan(**TINY), tmp_path / "b", parts=parts, budget=budget, report=lambda row: budget.stop("enough"))
    found = practicum.run_sync(work)
    assert ([row.name for row in found.rows], found.stopped) == ([ONE_AGENT], "enough")
    assert len(model.calls) == budget.spent.calls


@pytest.mark.slow
def test_an_attempt_whose_judge_failed_is_not_compared(tmp_path: Path) -> None:
    """It has no score rather than 0; the four other attempts are right in both rows."""
    away = iter([ProviderError("nobody there")])

    def judged(call: Call) -> str | Exception:
        if call.role != "judge":
            return respond(call)
        fails = TASKS[12].input in call.text and next(away, None)
        return fails or json.dumps({"reason": "it is", "right": True})

    how: dict[str, Any] = {**SMALL, "testing": TASKS[12:17], "config": {"scorer": "judge"}}
    alone, none, *_ = measured(tmp_path / "b", client(judged), **how)
    assert (alone.by_task, alone.score) == ([[], [1.0], [1.0], [1.0], [1.0]], 1.0)
    assert (none.by_task, none.score) == ([[1.0]] * 5, 1.0)
    change = MaelResult([alone, none], []).claims[ONE_AGENT].difference
    assert (change.effect, change.n, change.better, change.worse) == (0.0, 4, 0, 0)
    unscored = replace(alone, runs=(replace(alone.runs[0], scores=(None,) * 5),))
    assert MaelResult([unscored, none], []).claims == {}


def row(variant: MaelVariant, *scores: tuple[float, ...]) -> MaelRow:
    """A row with these scores of its tasks, one tuple for each seed."""
    runs = [
        MaelRun(seed=n, experiences=0, usage=Usage(), errors=0, scores=of, rounds=(0,) * len(of))
        for n, of in enumerate(scores)
    ]
    return MaelRow(variant, tuple(runs))


def test_nothing_is_claimed_of_few_tasks_or_few_runs() -> None:
    alone, none, better, *_ = plan().variants
    flat, half = (0.0,) * 12, (0.0, 1.0) * 6
    three = MaelResult([row(none, flat[:6]), row(better, half[:6])], [])
    assert (three.claims[better.name].difference.better, three.claims[better.name].difference.worse) == (3, 0)
    assert three.claims[better.name].verdict == "unclear"
    # Of two runs nothing is claimed about the methods; of three it is, if the runs agree.
    verdicts = [
        MaelResult([row(none, *[flat] * seeds), row(better, *[(1.0,) * 12] * seeds)], []).claims[better.name].verdict
        for seeds in (2, 3)
    ]
    assert verdicts == ["runs higher", "better"]
    # Each comparison is one of several: equal p-values are multiplied by their number.
    both = MaelResult([row(alone, half), row(none, flat), row(better, half)], []).claims
    assert [claim.corrected for claim in both.values()] == [2 * claim.difference.p for claim in both.values()]


PROJECT = "```python main.py\nfrom one import f\nprint(f(1))\n```\n```python one.py\ndef f(n):\n    return n\n```\n"
SIZE = {"files": 2, "lines": 4, "functions": 1, "complexity": 3}


@pytest.mark.slow
@needs_fences
def test_the_size_of_software_is_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    how: dict[str, Any] = {**SMALL, "settings": {"agents": 1}, "config": {"scorer": "software"}}
    how = {**how, "learning": TASKS[:1], "testing": TASKS[12:13], "sizes": (0, 1)}
    model = client(lambda call: PROJECT)
    rows = measured(tmp_path / "b", model, **how)
    assert all({name: row.measures[name] for name in SIZE} == SIZE for row in rows)
    made = len(model.calls)
    # What the journal and the rows hold is not measured again.
    monkeypatch.setattr(Sandbox, "require", lambda sandbox: None)
    monkeypatch.setattr(Sandbox, "run", None)
    (tmp_path / "b" / "row-2-0.json").unlink()
    assert measured(tmp_path / "b", model, **how) == rows
    assert len(model.calls) == made


@pytest.mark.slow
@needs_fences
def test_the_command_prints_the_size_of_software(launcher: Launcher, tmp_path: Path) -> None:
    write_tasks(tmp_path / "t.jsonl", make_tasks(2))
    (tmp_path / "model").write_text(json.dumps({"answer": PROJECT}) + "\n", encoding="utf-8")
    words = ["bench", "mael", "--tasks", "t.jsonl", "--sizes", "0,1", "--model", "scripted:model", "--out", "o"]
    words += ["--seeds", "1", "--cases", "0"]
    # Three calls are enough for the pool and the first two variants.
    done = launcher.run([*words, "--set", "agents=1", "--scorer", "software", "--max-calls", "3", "--json"], tmp_path)
    assert (done.code, len(done.json["rows"])) == (0, 2), done.err
    measures = done.json["rows"][1]["measures"]
    assert {name: measures[name] for name in SIZE} == SIZE
    (head,) = [line.split() for line in done.err.splitlines() if "complexity" in line]
    qualities = ["completeness", "executability", "consistency"]
    assert head == ["variant", *qualities, "files", "lines", "tokens", "functions", "complexity"]
    row = rf"^{NO_EXPERIENCE} +1.00 +1.00 +0.[0-9]+ +2.00 +4.00 +[0-9.]+ +1.00 +3.00$"
    assert re.search(row, done.err, re.MULTILINE)
    done = launcher.run(["eval", "t.jsonl", "--model", "scripted:model", "--scorer", "software"], tmp_path)
    assert "files 2.00, lines 4.00, tokens " in done.out


@pytest.mark.slow
def test_the_command_stops_at_its_budget_and_reports_the_complete_rows(launcher: Launcher, tmp_path: Path) -> None:
    write_tasks(tmp_path / "t.jsonl", make_tasks(5))
    (tmp_path / "model").write_text(json.dumps({"match": r"say (\w+)", "answer": r"\1"}) + "\n", encoding="utf-8")
    words = ["bench", "mael", "--tasks", "t.jsonl", "--sizes", "0,2", "--model", "scripted:model", "--out", "o"]
    words += ["--seeds", "1", "--cases", "1"]
    stopped = launcher.run([*words, "--set", "agents=1", "--max-calls", "9", "--json"], tmp_path)
    assert stopped.code == 0, stopped.err
    assert (stopped.json["calls"], len(stopped.json["rows"])) == (9, 2)
    message = " ".join(stopped.err.split())
    assert "Stopped early, with 2 variants measured: the budget of 9 calls is spent. The same command" in message
    done = launcher.run([*words, "--set", "agents=1", "--json"], tmp_path)
    # Each case is tried without critique and after one round, for each of three ways to retrieve.
    assert (done.json["calls"], done.json["stopped"]) == (2 + 3 * 7 + 2 * 3, None)
    assert (len(done.json["rows"]), len(done.json["cases"])) == (7, 6)
    assert all((tmp_path / "o" / f"{name}.png").exists() for name in ("pools", "cells", "cases"))
    assert "no claim" in done.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--sizes", "0"), "--sizes '0' must be whole numbers"),
        (("--sizes", "0,x"), "must be whole numbers"),
        (("--sizes", "0,30"), "need 30 tasks to learn from: there are 4"),
        (("--sizes", "0,4"), "no tasks are left to test on"),
        (("--sizes", "0,2", "--set", "retrieval=task"), "the setting retrieval is varied by this bench"),
    ],
    ids=["nothing", "no number", "too few", "no test", "measured"],
)
def test_wrong_arguments_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], message: str
) -> None:
    lines = [json.dumps({"id": t.id, "input": t.input, "target": t.target}) for t in make_tasks(4)]
    (tmp_path / "t.jsonl").write_text("\n".join(lines))
    with pytest.raises(SystemExit) as left:
        main(["bench", "mael", "--tasks", str(tmp_path / "t.jsonl"), "--out", str(tmp_path / "o"), *words])
    assert left.value.code == 2
    err = capsys.readouterr().err
    assert message in err
    assert len(err.strip().splitlines()) == 1
