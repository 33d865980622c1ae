"""The metrics of runs with fixed content, counted by hand or computed the slow way."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import client, make_tasks, world
from runs import Words
from scripts import Learned, learned, memory, number, scripted

import practicum
from practicum.analysis.monitor import MonitorReport, monitor
from practicum.core.errors import ProviderError
from practicum.models.scripted import Call


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Learned:
    """Four tasks, one attempt each, judged without labels: right at even messages."""
    model = scripted(
        reflector=lambda call: memory(f"message {number(call)}"),
        judge=lambda call: {"right": number(call) % 2 == 0, "reason": "so"},
    )
    how: dict[str, Any] = {"parts": {"embedder": Words()}, "labels": False, "judged": True}
    return learned(tmp_path_factory.mktemp("bank"), model, 4, {"online": True, "k": 1}, method="reasoning_bank", **how)


def watched(folder: Path, **how: Any) -> MonitorReport:
    return practicum.run_sync(monitor(folder, **how))


def columns(report: MonitorReport, part: str) -> dict[str, list[Any]]:
    return {name: list(column) for name, column in report.groups[part].by_step.items()}


def numbers(report: MonitorReport, part: str) -> dict[str, Any]:
    return dict(report.groups[part].numbers)


RUNS: dict[str, dict[str, Any]] = {
    "unified": {"method": "unified", "settings": {"online": True, "k": 2}},
    "critique": {"settings": {"batch": 3, "refine": "critique"}},
    "without a barrier": {"method": "combee", "settings": {"batch": 5, "asynchronous": True}},
    "a scorer that is a judge": {"scorer": "judge"},
    "evaluated": {"val": make_tasks(3, 50), "test": make_tasks(2, 60), "validate_every": 3},
}


@pytest.mark.parametrize("config", RUNS.values(), ids=RUNS)
@pytest.mark.slow
def test_every_call_of_any_run_is_counted_once(tmp_path: Path, config: dict[str, Any]) -> None:
    how = {"method": "ace", **config}
    settings = {**({"dedupe": "never"} if how["method"] in ("ace", "combee", "rcl") else {}), **how.pop("settings", {})}
    parts = practicum.Parts(clients={"agent": client(world)})
    work = practicum.learn(make_tasks(6), out=tmp_path / "run", settings=settings, parts=parts, **how)
    result = practicum.run_sync(work)
    report = watched(tmp_path / "run")
    tokens = numbers(report, "tokens")
    stages = [tokens[stage] for stage in ("learning", "evaluation") if stage in tokens]
    assert sum(stage["tokens"] for stage in stages) == result.usage.tokens
    rows = numbers(report, "latency")["components"]
    assert sum(row["calls"] for row in rows) == sum(stage["calls"] for stage in stages) == result.usage.calls
    assert sum(row["share"] for row in rows) == pytest.approx(1)
    sizes, spent = columns(report, "success").get("attempts", []), columns(report, "tokens")["tokens"]
    by_step = sum((each or 0) * size for each, size in zip(spent, sizes, strict=True))
    assert by_step == pytest.approx(tokens["learning"]["tokens"])
    assert columns(report, "context")["entries"][-1] == report.groups["context"].numbers["entries"]
    if config.get("scorer") != "judge":
        assert ("evaluation" in tokens) == ("val" in config)


def again(
    run: Learned, judge: Callable[[Call], str | Exception], n: int, **how: Any
) -> tuple[dict[str, Any], list[Call]]:
    """The metrics of `n` attempts that are judged again, and the calls of this judge."""
    asked = client(judge)
    report = watched(run.folder, judge_again=n, parts=practicum.Parts(clients={"agent": asked}), **how)
    return numbers(report, "judge")["again"], asked.calls


def verdict(right: bool) -> str:
    return json.dumps({"right": right, "reason": "so"})


def test_the_judge_is_compared_with_the_scorer(bank: Learned) -> None:
    """All four answers are right, and the judge finds two of them wrong."""
    values = numbers(watched(bank.folder), "judge")["against_scorer"]
    assert [values[name] for name in ("n", "same", "lenient", "strict")] == [4, 0.5, 0, 2]


def test_a_judge_without_verdicts_and_a_judge_that_is_stopped(bank: Learned) -> None:
    values, _ = again(bank, lambda call: ProviderError("provider.failed", "busy"), 3)
    assert (values["n"], values["no_verdict"], "same" in values) == (0, 3, False)
    values, asked = again(bank, lambda call: verdict(True), 5, limits={"max_calls": 2})
    assert (values["n"], values["usage"]["calls"], len(asked)) == (2, 2, 2)
    assert "budget of 2 calls" in values["stopped"]
