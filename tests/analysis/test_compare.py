"""Comparisons from start to end: cost, report, continuation, and refusals before anything is paid."""

from __future__ import annotations

import asyncio
import json
import re
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from helpers import client, make_tasks, world
from refusals import refused

import practicum
from practicum.analysis.compare.harness import Comparison
from practicum.analysis.compare.outcome import OUTCOME_FILE
from practicum.analysis.compare.plan import locked
from practicum.analysis.compare.variants import ComparisonTable, Study, Variant, of_methods
from practicum.bench.papers import TABLES
from practicum.core.errors import ProviderError
from practicum.models.scripted import Call, ScriptedClient

SECONDS = {"single_run_s", "work_s", "critical_s", "wall_s", "learning_s", "learning_s_per_point"}


def compare(
    out: Path, model: ScriptedClient, names: str | list[str] | Study = "none,icl,ace", **how: Any
) -> Comparison:
    """Compare with a scripted model. ACE has cheap settings unless others are given."""
    listed = names.split(",") if isinstance(names, str) else names
    cheap = {"ace.batch": 3, "ace.rounds": 1} if isinstance(listed, list) and (not listed or "ace" in listed) else {}
    config: dict[str, Any] = {"test": make_tasks(12, 50), "seeds": 2, "methods": listed, "settings": cheap, **how}
    parts = practicum.Parts(clients={"agent": model})
    return practicum.run_sync(practicum.compare(make_tasks(6), out=out, parts=parts, **config))


def away(role: str) -> ScriptedClient:
    """A model that cannot be reached in one role."""
    return client(lambda call: ProviderError("provider.failed", "down") if call.role == role else world(call))


def timeless(report: dict[str, Any]) -> str:
    """A report without its durations."""
    rows = [{k: v for k, v in row.items() if k not in SECONDS} for row in report["variants"]]
    front = {k: v for k, v in report["front"].items() if k != "single_run_s"}
    return json.dumps({**report, "variants": rows, "front": front})


def test_a_failed_run_reports_its_cost_and_a_damaged_one_does_not_stop_the_others(tmp_path: Path) -> None:
    small: dict[str, Any] = {"seeds": 1, "test": make_tasks(1, 50)}
    failing = compare(tmp_path / "c", away("reflector"), "none,ace", **small)
    _, row = failing.report["variants"]
    assert len(failing.failed) == 1
    assert {role: usage["calls"] for role, usage in row["by_role"].items()} == {"agent": row["calls"]}
    (tmp_path / "c" / "runs" / "ace-0" / "practicum.sqlite").write_bytes(b"no database" * 500)
    more = compare(tmp_path / "c", client(), "none,ace,episodes", **small)
    rows = {row["name"]: row for row in more.report["variants"]}
    assert ("ace-0" in rows["ace"]["failed"]["0"], rows["episodes"]["n"]) == (True, 1)


def test_a_comparison_without_methods_has_none_and_the_whole_history(tmp_path: Path) -> None:
    rows = compare(tmp_path / "c", client(), [], seeds=1).report["variants"]
    assert [row["name"] for row in rows] == ["none", "icl", "episodes", "ace"]
    unlabelled = compare(tmp_path / "d", client(), [], seeds=1, labels=False, judged=True).report["variants"]
    assert [row["name"] for row in unlabelled] == ["none", "episodes", "ace"]


def test_a_point_of_the_score_has_a_price(tmp_path: Path) -> None:
    none, ace = compare(tmp_path / "c", client(), "none,ace").report["variants"]
    gain = 100 * (ace["score"] - none["score"])
    assert gain > 0
    assert ace["learning_tokens_per_point"] == pytest.approx(ace["learning_tokens"] / gain)
    extra = ace["tokens_per_test_task"] - none["tokens_per_test_task"]
    assert ace["task_tokens_per_point"] == pytest.approx(extra / gain)
    assert (none["learning_tokens_per_point"], none["learning_s_per_point"], none["task_tokens_per_point"]) == (
        None,
    ) * 3


def test_the_cost_of_a_method_is_unknown_if_the_cost_of_one_run_is(tmp_path: Path) -> None:
    small: dict[str, Any] = {"test": make_tasks(1, 50)}
    (row, _) = compare(tmp_path / "c", client(), "none,icl", **small).report["variants"]
    assert row["usd"] == 0
    first = tmp_path / "c" / "runs" / "none-0" / OUTCOME_FILE
    first.write_text(re.sub(r'"usd": ?0[.0]*', '"usd": null', first.read_text()))
    (row, _) = compare(tmp_path / "c", client(), "none,icl", **small).report["variants"]
    assert (row["usd"], row["by_role"]["agent"]["usd"]) == (None, None)


@pytest.mark.slow
def test_a_run_that_no_judge_could_score_is_tried_again(tmp_path: Path) -> None:
    first = compare(tmp_path / "c", away("judge"), "none,icl", scorer="judge", seeds=1)
    assert [o.failed for o in first.failed] == ["none of 12 test tasks could be scored: down"] * 2
    model = client()
    again = compare(tmp_path / "c", model, "none,icl", scorer="judge", seeds=1)
    assert again.failed == ()
    assert {call.role for call in model.calls} == {"judge"}
    assert all(row["n"] > 0 for row in again.report["variants"])

    def mumbling(call: Call) -> str:
        return "hm" if call.role == "judge" else world(call)

    unread = compare(tmp_path / "unread", client(mumbling), "none,icl", scorer="judge", seeds=1)
    assert {o.failed for o in unread.failed} == {"no task could be scored"}
    assert not list((tmp_path / "unread").rglob(OUTCOME_FILE))


@pytest.mark.slow
def test_all_runs_share_one_limit_of_calls(tmp_path: Path) -> None:
    class Counting(ScriptedClient):
        flying = most = 0

        async def complete(self, *how: Any) -> Any:
            self.flying += 1
            self.most = max(self.most, self.flying)
            await asyncio.sleep(0.001)
            self.flying -= 1
            return await super().complete(*how)

    model = Counting(world)
    compare(tmp_path / "c", model, "none,icl,episodes,naive", concurrency=5)
    assert model.most == 5


class Death(BaseException):
    """Ends everything at once, as a kill does; no code catches it."""


@pytest.mark.slow
def test_a_comparison_that_died_ends_with_the_same_report(tmp_path: Path) -> None:
    calls = count(1)

    def dying(call: Call) -> str | Exception:
        if next(calls) == 10:
            raise Death
        return world(call)

    first, second, whole = client(dying), client(), client()
    how: dict[str, Any] = {"names": "none,ace", "seeds": 1, "test": make_tasks(3, 50), "concurrency": 4}
    with pytest.raises(Death):
        compare(tmp_path / "c", first, **how)
    assert not (tmp_path / "c" / "report.json").exists()
    rest = compare(tmp_path / "c", second, **how)
    assert timeless(rest.report) == timeless(compare(tmp_path / "w", whole, **how).report)
    # At most the calls in flight are made again.
    assert len(whole.calls) <= len(first.calls) + len(second.calls) <= len(whole.calls) + 4


@pytest.mark.slow
def test_a_warm_up_starts_a_stream_from_the_context_of_another_variant(tmp_path: Path) -> None:
    ace = Variant("ace", "ace", {"batch": 3, "rounds": 0, "curator": "append"})
    cold = Variant("cold", "ace", {"online": True, "rounds": 0}, stream=True)
    warm = Variant("warm", "ace", {"online": True, "rounds": 0}, stream=True, after="ace")
    study = Study((ComparisonTable("warm-up", "cold", (warm, cold, ace)),))
    result = compare(tmp_path / "c", client(), study, settings={"epochs": 1}, runs_at_once=1, seeds=1)
    assert result.failed == ()
    assert [row["n"] for row in result.report["variants"]] == [12, 12, 12]
    learned = practicum.load_context(tmp_path / "c" / "runs" / "ace-0")
    start = practicum.load_context(tmp_path / "c" / "runs" / "warm-0", 0)
    assert len(learned) > 0
    assert [entry.text for entry in start] == [entry.text for entry in learned]
    assert len(practicum.load_context(tmp_path / "c" / "runs" / "cold-0", 0)) == 0
    with refused("settings.conflict"):
        compare(tmp_path / "o", client(), study, settings={}, online=True, test=())


def test_a_folder_in_use_and_a_study_with_another_baseline_are_refused_before_a_call(tmp_path: Path) -> None:
    model = client()
    with locked(tmp_path / "used"), refused("comparison.busy"):
        compare(tmp_path / "used", model)
    with refused("settings.conflict"):
        compare(tmp_path / "c", model, names=TABLES["ace3"].study({}), baseline="none", settings={})
    assert (model.calls, (tmp_path / "c").exists()) == ([], False)
    with refused("settings.missing"):
        of_methods([])
    assert Study(()).variants == ()
