"""Comparisons from start to end: what is paid, what is reported, and what is refused before anything is paid."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from helpers import client, make_tasks, world
from refusals import refused

import practicum
from practicum.analysis.compare.harness import Comparison
from practicum.analysis.compare.outcome import OUTCOME_FILE, RunOutcome
from practicum.analysis.compare.variants import ComparisonTable, Study, Variant, of_methods, of_sweep
from practicum.bench.papers import TABLES
from practicum.core.differences import difference, holm
from practicum.core.errors import ProviderError
from practicum.core.types import Task
from practicum.models.scripted import Call, ScriptedClient

SECONDS = {"single_run_s", "work_s", "critical_s", "wall_s"}


def compare(out: Path, model: ScriptedClient, names: str | Study = "none,icl,ace", **how: Any) -> Comparison:
    """Compare with a scripted model. ACE has cheap settings unless others are given."""
    listed = names.split(",") if isinstance(names, str) else names
    cheap = {"ace.batch": 3, "ace.rounds": 1} if isinstance(listed, list) and "ace" in listed else {}
    made: dict[str, Any] = {"test": make_tasks(12, 50), "seeds": 2, "methods": listed, "settings": cheap, **how}
    parts = practicum.Parts(clients={"agent": model})
    tasks: Sequence[Task] = made.pop("tasks", make_tasks(6))
    return practicum.run_sync(practicum.compare(tasks, out=out, parts=parts, **made))


def timeless(report: dict[str, Any]) -> str:
    """A report without what was measured in seconds."""
    rows = [{k: v for k, v in row.items() if k not in SECONDS} for row in report["variants"]]
    front = {k: v for k, v in report["front"].items() if k != "single_run_s"}
    return json.dumps({**report, "variants": rows, "front": front})


def test_a_failed_run_reports_the_cost_of_each_role(tmp_path: Path) -> None:
    def broken(call: Call) -> str | Exception:
        return ProviderError("provider.failed", "gone") if call.role == "reflector" else world(call)

    found = compare(tmp_path / "c", client(broken), "none,ace", settings={"ace.rounds": 0})
    _, row = found.report["variants"]
    assert len(found.failed) == 2
    assert {role: usage["calls"] for role, usage in row["by_role"].items()} == {"agent": row["calls"]}


@pytest.mark.slow
def test_the_report_agrees_with_the_scores_of_the_runs(tmp_path: Path) -> None:
    report = compare(tmp_path / "c", client(), "none,ace,episodes", seeds=3).report
    folder = tmp_path / "c" / "runs"

    def kept(run: str) -> dict[str, float]:
        return RunOutcome.model_validate_json((folder / run / OUTCOME_FILE).read_text()).by_task

    runs = {name: [kept(f"{name}-{seed}") for seed in range(3)] for name in ("none", "ace", "episodes")}
    ids = list(runs["none"][0])
    assert sorted(ids) == sorted(task.id for task in make_tasks(12, 50))

    def by_task(name: str) -> list[list[float]]:
        return [[run[id] for run in runs[name]] for id in ids]

    expected = {name: difference(by_task(name), by_task("none")) for name in ("ace", "episodes")}
    rows = {row["name"]: row for row in report["tables"][0]["rows"]}
    assert rows["none"]["verdict"] == "baseline"
    corrected = holm([d.p for d in expected.values()])
    for (name, made), p in zip(expected.items(), corrected, strict=True):
        assert (rows[name]["effect"], rows[name]["p"], rows[name]["p_holm"]) == (made.effect, made.p, p)
        assert rows[name]["ci95"] == list(made.ci95)
    text, page = (tmp_path / "c" / "report.md").read_text(), (tmp_path / "c" / "report.html").read_text()
    assert rows["ace"]["claim"].startswith(("better than none", "worse than none", "no claim can be made"))
    assert {row["about"] for name, row in rows.items() if name != "none"} == {"methods"}
    for name in rows:
        assert f"| {name} |" in text
        assert f"</b> {name}</td>" in page
    assert json.loads((tmp_path / "c" / "report.json").read_text()) == report
    for outside in ("http://", "https://", "<script src", "@import"):
        assert outside not in page
    assert all(place.startswith(('"data:', '"#')) for place in re.findall(r"(?:src|href)=(.{6})", page))


@pytest.mark.slow
def test_a_run_that_no_judge_could_score_is_tried_again(tmp_path: Path) -> None:
    def away(call: Call) -> str | Exception:
        return ProviderError("provider.failed", "nobody there") if call.role == "judge" else world(call)

    found = compare(tmp_path / "c", client(away), "none,icl", scorer="judge", seeds=1)
    assert [o.failed for o in found.failed] == ["none of 12 test tasks could be scored: nobody there"] * 2
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


def test_a_damaged_run_does_not_stop_the_others(tmp_path: Path) -> None:
    def away(call: Call) -> str | Exception:
        return ProviderError("provider.failed", "nobody there") if call.role == "reflector" else world(call)

    compare(tmp_path / "c", client(away), seeds=1)
    (tmp_path / "c" / "runs" / "ace-0" / "practicum.sqlite").write_bytes(b"no database" * 500)
    more = compare(tmp_path / "c", client(), "none,icl,ace,episodes", seeds=1)
    rows = {row["name"]: row for row in more.report["variants"]}
    assert "ace-0" in rows["ace"]["failed"]["0"]
    assert rows["episodes"]["n"] == 12


@pytest.mark.slow
def test_all_runs_share_one_limit_of_calls(tmp_path: Path) -> None:
    import asyncio

    class Counting(ScriptedClient):
        flying = most = 0

        async def complete(self, *how: Any) -> Any:
            self.flying += 1
            self.most = max(self.most, self.flying)
            await asyncio.sleep(0.001)
            try:
                return await super().complete(*how)
            finally:
                self.flying -= 1

    model = Counting(world)
    compare(tmp_path / "c", model, "none,icl,episodes,naive", concurrency=5)
    assert model.most == 5


class Death(BaseException):
    """Ends everything at once, as a kill does; no code catches it."""


def test_a_comparison_that_died_ends_with_the_same_report(tmp_path: Path) -> None:
    made = 0

    def dying(call: Call) -> str | Exception:
        nonlocal made
        made += 1
        if made == 40:
            raise Death
        return world(call)

    first, second, whole = client(dying), client(), client()
    with pytest.raises(Death):
        compare(tmp_path / "c", first, concurrency=4)
    assert not (tmp_path / "c" / "report.json").exists()
    rest = compare(tmp_path / "c", second, concurrency=4)
    assert timeless(rest.report) == timeless(compare(tmp_path / "w", whole, concurrency=4).report)
    # At most the calls in flight are made again.
    assert len(whole.calls) <= len(first.calls) + len(second.calls) <= len(whole.calls) + 4


# ---- what is refused, and what is only warned of


def test_two_processes_do_not_share_a_folder(tmp_path: Path) -> None:
    from practicum.analysis.compare.plan import locked

    with locked(tmp_path / "c"), refused("comparison.busy"):
        compare(tmp_path / "c", client())


# ---- variants


def test_a_setting_that_every_variant_of_a_sweep_defines_is_refused() -> None:
    study = of_sweep("episodes", "k", ["2", "4"])
    with refused("settings.unused"):
        study.with_settings({"k": "7"})
    assert [v.settings["batch"] for v in study.with_settings({"batch": "3"}).variants] == ["3", "3"]
    # Where the baseline is another method, it acts there.
    other = of_sweep("episodes", "k", ["2", "4"], "reasoning_bank").with_settings({"k": "7"})
    assert other.variants[0].settings == {"k": "7"}


@pytest.mark.slow
def test_a_warm_up_starts_a_stream_from_the_context_of_another_variant(tmp_path: Path) -> None:
    ace = Variant("ace", "ace", {"batch": 3, "rounds": 0, "curator": "append"})
    cold = Variant("cold", "ace", {"online": True, "rounds": 0}, stream=True)
    warm = Variant("warm", "ace", {"online": True, "rounds": 0}, stream=True, after="ace")
    study = Study((ComparisonTable("warm-up", "cold", (warm, cold, ace)),))
    found = compare(tmp_path / "c", client(), study, settings={"epochs": 1}, runs_at_once=1)
    assert found.failed == ()
    assert [row["n"] for row in found.report["variants"]] == [12, 12, 12]
    for seed in range(2):
        learned = practicum.load_context(tmp_path / "c" / "runs" / f"ace-{seed}")
        start = practicum.load_context(tmp_path / "c" / "runs" / f"warm-{seed}", 0)
        assert len(learned) > 0
        assert [entry.text for entry in start] == [entry.text for entry in learned]
        assert len(practicum.load_context(tmp_path / "c" / "runs" / f"cold-{seed}", 0)) == 0
    with refused("settings.conflict"):
        compare(tmp_path / "o", client(), study, settings={}, online=True, test=())


@pytest.mark.slow
def test_a_stream_fails_if_its_warm_up_failed(tmp_path: Path) -> None:
    def away(call: Call) -> str | Exception:
        return ProviderError("provider.failed", "nobody there") if call.role == "reflector" else world(call)

    ace = Variant("ace", "ace", {"batch": 1, "rounds": 0})
    warm = Variant("warm", "episodes", {"online": True}, stream=True, after="ace")
    study = Study((ComparisonTable("warm-up", "none", (Variant("none", "none"), ace, warm)),))
    found = compare(tmp_path / "c", client(away), study, settings={}, seeds=1)
    failed = {o.variant: o.failed for o in found.failed}
    assert set(failed) == {"ace", "warm"}
    assert failed["warm"] is not None
    assert "ace" in failed["warm"]
    assert compare(tmp_path / "c", client(), study, settings={}, seeds=1).failed == ()


def test_a_study_takes_no_other_baseline(tmp_path: Path) -> None:
    model = client()
    with refused("settings.conflict"):
        compare(tmp_path / "c", model, names=TABLES["ace3"].study({}), baseline="none", settings={})
    assert model.calls == []
    assert not (tmp_path / "c").exists()
    with refused("settings.missing"):
        of_methods([])
    assert Study(()).variants == ()
