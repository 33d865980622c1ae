"""The overload bench: what counts as readable, what each method keeps with an overloaded curator, resume, bad input."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from refusals import refused

from practicum.bench import overloaded_curator
from practicum.bench.facts import make_facts
from practicum.bench.overload import ARMS, OverloadPlan, OverloadRow, overload, targets
from practicum.bench.shared_budget import SharedBudget
from practicum.cli.app import main
from practicum.models.budget import BudgetLimits
from practicum.models.scripted import ScriptedClient
from practicum.session.records import load_context


def measure(
    plan: OverloadPlan, out: Path, client: ScriptedClient | None = None, calls: int | None = None
) -> dict[tuple[str, int], OverloadRow]:
    """All rows of a plan, with the overloaded curator unless another is given."""
    budget = SharedBudget(BudgetLimits(calls=calls))
    rows = asyncio.run(overload(plan, out, client=client or ScriptedClient(overloaded_curator.respond), budget=budget))
    return {(row.method, row.n): row for row in rows}


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int], OverloadRow]:
    return measure(OverloadPlan(sizes=(40,)), tmp_path_factory.mktemp("overload"))


def test_one_call_forgets_and_combee_does_not(measured: dict[tuple[str, int], OverloadRow]) -> None:
    check(measured, 40)


@pytest.mark.slow
def test_one_call_forgets_more_if_there_are_more_lessons(tmp_path: Path) -> None:
    rows = measure(OverloadPlan(sizes=(80,)), tmp_path)
    check(rows, 80)
    assert all(target.met for target in targets(list(rows.values()), "some model"))
    assert len(targets(list(rows.values()), "simulated")) == 4


def check(rows: dict[tuple[str, int], OverloadRow], n: int) -> None:
    by = {arm: rows[arm, n] for arm in ARMS}
    assert by["sequential"].readable == 1
    for baseline in ("naive", "top_k", "summarized"):
        assert by[baseline].readable <= 0.2
    assert by["combee"].readable >= 0.8
    assert by["unaccounted"].readable >= by["level-1"].readable >= 0.45
    assert by["combee"].tokens <= 1.5 * by["sequential"].tokens
    # The curator itself adds most of them: code added at most a tenth.
    assert by["combee"].by_code <= n / 10
    assert all(row.wrong == 0 for row in by.values())


def test_rows_have_the_targets_that_apply_to_them(measured: dict[tuple[str, int], OverloadRow]) -> None:
    rows = list(measured.values())
    assert all(target.met for target in targets(rows, "some model"))
    assert len(targets(rows, "some model")) == 3
    assert len(targets(rows, "simulated")) == 4
    assert targets([row for row in rows if row.method == "naive"], "simulated") == []


def test_a_stopped_bench_continues_and_a_complete_one_pays_nothing(tmp_path: Path) -> None:
    first = measure(OverloadPlan(sizes=(10,), arms=("sequential", "combee")), tmp_path, calls=7)
    assert [row.stopped for row in first.values()] == ["the budget of 7 calls is spent"]
    client = ScriptedClient(overloaded_curator.respond)
    whole = measure(OverloadPlan(sizes=(10,), arms=("sequential", "combee")), tmp_path, client)
    assert whole["sequential", 10].calls == 10
    assert len(client.calls) == 3 + whole["combee", 10].calls
    assert whole["sequential", 10].readable == 1
    again = ScriptedClient(overloaded_curator.respond)
    assert measure(OverloadPlan(sizes=(10,), arms=("sequential", "combee")), tmp_path, again) == whole
    assert again.calls == []
    fresh = measure(OverloadPlan(sizes=(10,), arms=("sequential", "combee")), tmp_path / "fresh")
    assert [r.entries for r in fresh.values()] == [r.entries for r in whole.values()]
    assert fresh["combee", 10].tokens == whole["combee", 10].tokens


@pytest.mark.parametrize(
    ("other", "code"), [({"seed": 1}, "comparison.mismatch"), ({"config": {"temperature": 0.5}}, "comparison.mismatch")]
)
def test_a_folder_of_another_plan_is_refused(tmp_path: Path, other: dict[str, Any], code: str) -> None:
    measure(OverloadPlan(sizes=(4,), arms=("naive",)), tmp_path)
    with refused(code):
        measure(OverloadPlan(sizes=(4,), arms=("naive",), **other), tmp_path)


def test_a_measurement_is_a_run_that_can_be_loaded(tmp_path: Path) -> None:
    row = measure(OverloadPlan(sizes=(4,), arms=("combee",)), tmp_path)["combee", 4]
    context = load_context(row.run)
    assert {entry.text for entry in context} == {fact.text for fact in make_facts(4)}
    assert all(entry.sources[0].startswith("task:fact-") for entry in context)


@pytest.fixture
def scripted(tmp_path: Path) -> Path:
    rule = {"role": "curator", "answer": {"decisions": [{"lesson": 1, "op": "ADD", "reason": "new"}]}}
    path = tmp_path / "model"
    path.write_text(json.dumps(rule) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--n", "0,10"], "--n '0,10' must be whole numbers"),
        (["--n", "ten"], "--n 'ten' must be whole numbers"),
        (["--n", "100000"], "100000 facts: the number must be from 1 to"),
        (["--methods", "naive,best"], "unknown 'best' in --methods: choose from sequential, naive"),
        (["--model", "nobody:knows"], "unknown model 'nobody:knows'"),
        (["--model", "scripted:nowhere"], "cannot read the script"),
    ],
)
def test_bad_input_is_one_clear_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: list[str], message: str
) -> None:
    with pytest.raises(SystemExit) as end:
        main(["bench", "overload", "--out", str(tmp_path / "out"), *arguments])
    assert end.value.code in (1, 2)
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("practicum: ")]
    assert message in line
