"""The overload bench: readable facts of each method with an overloaded curator, continuation, and refusals."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from helpers import run_command
from refusals import refused

from practicum.bench import overloaded_curator
from practicum.bench.facts import make_facts
from practicum.bench.overload import ARMS, OverloadPlan, OverloadRow, overload, targets
from practicum.bench.shared_budget import SharedBudget
from practicum.models.budget import BudgetLimits
from practicum.models.scripted import ScriptedClient
from practicum.session.records import load_context


def measure(
    out: Path, size: int, arms: tuple[str, ...], client: ScriptedClient | None = None, calls: int | None = None,
    **plan: Any,
) -> dict[str, OverloadRow]:  # fmt: skip
    """The row of each method, with the overloaded curator unless another is passed."""
    budget = SharedBudget(BudgetLimits(calls=calls))
    model = client or ScriptedClient(overloaded_curator.respond)
    work = overload(OverloadPlan(sizes=(size,), arms=arms, **plan), out, client=model, budget=budget)
    return {row.method: row for row in asyncio.run(work)}


def test_one_call_forgets_and_combee_does_not(tmp_path: Path) -> None:
    rows = measure(tmp_path, 40, ARMS)
    assert rows["sequential"].readable == 1
    for baseline in ("naive", "top_k", "summarized"):
        assert rows[baseline].readable <= 0.2
    assert rows["combee"].readable >= 0.8
    assert rows["unaccounted"].readable >= rows["level-1"].readable >= 0.45
    assert rows["combee"].tokens <= 1.5 * rows["sequential"].tokens
    # The curator itself adds most of them: code added at most a tenth.
    assert rows["combee"].by_code <= 4
    assert all(row.wrong == 0 for row in rows.values())
    every = list(rows.values())
    assert all(target.met for target in targets(every, "some model"))
    assert (len(targets(every, "some model")), len(targets(every, "simulated"))) == (3, 4)
    assert targets([rows["naive"]], "simulated") == []


def test_a_stopped_bench_continues_and_a_complete_one_pays_nothing(tmp_path: Path) -> None:
    def measured(folder: str, client: ScriptedClient | None = None, calls: int | None = None) -> Any:
        return measure(tmp_path / folder, 6, ("sequential", "combee"), client, calls)

    first = measured("o", calls=4)
    assert [row.stopped for row in first.values()] == ["the budget of 4 calls is spent"]
    client = ScriptedClient(overloaded_curator.respond)
    whole = measured("o", client)
    assert whole["sequential"].calls == 6
    assert len(client.calls) == 2 + whole["combee"].calls
    assert whole["sequential"].readable == 1
    again = ScriptedClient(overloaded_curator.respond)
    assert measured("o", again) == whole
    with refused("comparison.mismatch"):
        measure(tmp_path / "o", 6, ("sequential", "combee"), seed=1)
    assert again.calls == []
    context = load_context(whole["combee"].run)
    assert {entry.text for entry in context} == {fact.text for fact in make_facts(6)}
    assert all(entry.sources[0].startswith("task:fact-") for entry in context)


@pytest.mark.parametrize(
    "options",
    ["--n 0,10", "--n ten", "--n 100000", "--methods naive,best", "--model vendor:none", "--model scripted:nowhere"],
)
def test_bad_input_is_one_line(tmp_path: Path, options: str) -> None:
    done = run_command(["bench", "overload", "--out", "out", *options.split()], tmp_path)
    assert done.code in (1, 2)
    assert options.split()[1].split(",")[-1].split(":")[-1] in done.line.replace(",", "")
