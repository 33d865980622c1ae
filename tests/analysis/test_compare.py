"""Comparisons from start to end: what is paid, what is reported, and what is refused before anything is paid."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from helpers import client, make_tasks, world
from scripts import number, right, scripted

import practicum
from practicum.analysis.compare.harness import Comparison, ComparisonWatch
from practicum.analysis.compare.outcome import OUTCOME_FILE, RunOutcome, agent_steps
from practicum.analysis.compare.variants import ComparisonTable, Study, Variant, of_methods, of_sweep
from practicum.bench.papers import TABLES
from practicum.core.differences import difference, holm
from practicum.core.errors import PracticumError, ProviderError, StoreError, UsageError
from practicum.core.types import Feedback, Rollout, Step, Task, Trace
from practicum.models.scripted import Call, ScriptedClient

SECONDS = {"alone_s", "work_s", "critical_s", "wall_s"}


@pytest.fixture
def pictures() -> None:
    """Asked for by tests that need real pictures in the report."""


@pytest.fixture(autouse=True)
def _no_pictures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes longer than most comparisons here."""
    if "pictures" not in request.fixturenames:
        for name in ("differences_figure", "cost_figure", "curves_figure"):
            monkeypatch.setattr(f"practicum.analysis.compare.figures.{name}", lambda *how: None)
        monkeypatch.setattr("practicum.analysis.compare.report.data_url", lambda figure: figure and "data:,")


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
    front = {k: v for k, v in report["front"].items() if k != "alone_s"}
    return json.dumps({**report, "variants": rows, "front": front})


@pytest.mark.slow
def test_the_report_says_what_each_role_cost(tmp_path: Path) -> None:
    model = client()
    report = compare(tmp_path / "c", model, "none,ace", scorer="judge").report
    by_name = {row["name"]: row for row in report["variants"]}
    assert list(by_name["none"]["by_role"]) == ["agent", "judge"]
    assert list(by_name["ace"]["by_role"]) == ["agent", "curator", "judge", "reflector"]
    made = Counter(call.role for call in model.calls)
    for role, calls in made.items():
        assert calls == sum(2 * row["by_role"].get(role, {"calls": 0})["calls"] for row in by_name.values())
    for row in by_name.values():
        usages = row["by_role"].values()
        assert row["calls"] == sum(usage["calls"] for usage in usages)
        assert row["tokens"] == sum(usage["input_tokens"] + usage["output_tokens"] for usage in usages)
    text = (tmp_path / "c" / "report.md").read_text(encoding="utf-8")
    heads, _, *rows = text.split("## Costs by role (means over the seeds)\n\n")[1].splitlines()[:4]
    assert heads == "|  | agent | curator | judge | reflector |"
    assert rows[0].startswith("| none | 12 calls, ")
    assert rows[0].split(" | ")[2] == "–"
    page = (tmp_path / "c" / "report.html").read_text(encoding="utf-8")
    table = page.split("<h2>Costs by role</h2>")[1].split("</table>")[0]
    assert "<th>reflector</th>" in table
    assert "<td>12 calls, " in table


def test_a_failed_run_reports_the_cost_of_each_role(tmp_path: Path) -> None:
    def broken(call: Call) -> str | Exception:
        return ProviderError("provider.failed", "gone") if call.role == "reflector" else world(call)

    found = compare(tmp_path / "c", client(broken), "none,ace", settings={"ace.rounds": 0})
    _, row = found.report["variants"]
    assert len(found.failed) == 2
    assert {role: usage["calls"] for role, usage in row["by_role"].items()} == {"agent": row["calls"]}


@pytest.mark.slow
def test_the_report_agrees_with_the_scores_of_the_runs(tmp_path: Path, pictures: None) -> None:
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
    (tmp_path / "c" / "runs" / "ace-0" / "run.sqlite").write_bytes(b"no database" * 500)
    more = compare(tmp_path / "c", client(), "none,icl,ace,episodes", seeds=1)
    rows = {row["name"]: row for row in more.report["variants"]}
    assert "ace-0" in rows["ace"]["failed"]["0"]
    assert rows["episodes"]["n"] == 12


def test_an_exception_in_one_run_does_not_stop_the_others(tmp_path: Path) -> None:
    def broken(call: Call) -> str | Exception:
        if call.role == "curator":
            raise ZeroDivisionError("a fault of the method")
        return world(call)

    found = compare(tmp_path / "c", client(broken), seeds=1)
    rows = {row["name"]: row for row in found.report["variants"]}
    assert rows["ace"]["failed"]["0"].startswith(
        "method 'ace': `update` raised ZeroDivisionError: a fault of the method"
    )
    assert rows["none"]["n"] == rows["icl"]["n"] == 12


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


@pytest.mark.slow
def test_a_model_by_name_is_opened_once_and_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    closed: list[str] = []

    class Closing(ScriptedClient):
        async def close(self) -> None:
            closed.append(self.name)

    def open_(self: object, name: str) -> ScriptedClient:
        opened.append(name)
        return Closing(world, name=name)

    monkeypatch.setattr("practicum.models.registry.Models._create", open_)
    work = practicum.compare(
        make_tasks(4), test=make_tasks(10, 50), methods=["none", "ace", "episodes"], seeds=2, out=tmp_path / "c",
        model="scripted:a", roles={"reflector": "scripted:b"},
    )  # fmt: skip
    practicum.run_sync(work)
    assert sorted(opened) == sorted(closed) == ["scripted:a", "scripted:b"]


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


def refused(tmp_path: Path, match: str, **how: Any) -> None:
    model = client()
    with pytest.raises(UsageError, match=match):
        compare(tmp_path / "c", model, **how)
    assert model.calls == []
    assert not (tmp_path / "c").exists()


def test_test_tasks_that_were_seen_are_refused_with_their_ids(tmp_path: Path) -> None:
    fresh = make_tasks(10, 50)
    same_id = [Task("t1", "something else", "x"), *fresh]
    same_input = [Task("other", "Message  2: say word2\n", "x"), *fresh]
    refused(tmp_path, r"1 of the 11 test tasks are also training tasks .*: t1;", test=same_id)
    refused(tmp_path, r"also training tasks .*: other;", test=same_input)
    refused(tmp_path, r"also validation tasks .*: t51;", test=fresh, val=make_tasks(1, 51))
    numbered = [Task(f"line-{i}", t.input, t.target) for i, t in enumerate(make_tasks(6))]
    tests = [Task(f"line-{i}", t.input, t.target) for i, t in enumerate(fresh)]
    assert compare(tmp_path / "n", client(), tasks=numbered, test=tests, seeds=1).failed == ()


def test_the_report_has_the_steps_of_an_attempt_and_the_helpful_hits(tmp_path: Path) -> None:
    report = compare(tmp_path / "c", client(), "none,ace", seeds=1).report
    none, ace = report["variants"]
    assert (none["agent_steps"], none["helpful"]) == (1.0, 0)
    learned = practicum.load_context(tmp_path / "c" / "runs" / "ace-0")
    assert ace["helpful"] == sum(entry.helpful for entry in learned) == learned.helpful
    text = (tmp_path / "c" / "report.md").read_text()
    assert "| steps of an attempt |" in text
    assert "| helpful hits |" in text


def test_variants_with_several_attempts_are_scored_by_the_first_and_have_a_best_of_k(tmp_path: Path) -> None:
    tries: Counter[tuple[int, float | None]] = Counter()

    def second(call: Call) -> str:
        """Right in the second attempt at each task, and never else."""
        asked = number(call), call.options.temperature
        tries[asked] += 1
        return right(call) if tries[asked] == 2 else "wrong"

    model = scripted(second, judge=lambda call: {"right": "# Answer\nword" in call.prompt.user})
    out, some = tmp_path / "c", {"tasks": make_tasks(2), "test": make_tasks(3, 50), "seeds": 1}
    plain, scaled = compare(out, model, "none,reasoning_bank", **some).report["variants"]
    assert (plain["score"], plain["best_of_k"]) == (0, None)
    assert (scaled["score"], scaled["best_of_k"], scaled["curve"][-1]["score"]) == (0, 1, 0)
    text = (out / "report.md").read_text(encoding="utf-8")
    assert "|  | best of k | steps of an attempt |" in text
    assert "| none | – | " in text
    assert "| reasoning_bank | 100.0% | " in text


def test_two_processes_do_not_share_a_folder(tmp_path: Path) -> None:
    from practicum.analysis.compare.plan import locked

    with locked(tmp_path / "c"), pytest.raises(StoreError, match="in use by another comparison"):
        compare(tmp_path / "c", client())


def test_a_refused_command_can_be_corrected_in_the_same_folder(tmp_path: Path) -> None:
    how: dict[str, Any] = {"seeds": 1, "max_calls": 20}
    compare(tmp_path / "c", client(), "none,icl", **how)
    with pytest.raises(UsageError, match="mael: the budget of 20 calls is too small"):
        compare(tmp_path / "c", client(), "none,icl,mael", **how)
    assert compare(tmp_path / "c", client(), "none,icl,mael", settings={"mael.depth": 0}, **how).failed == ()


def test_a_folder_that_cannot_be_created_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot write to"):
        compare(tmp_path / "file" / "c", client())


# ---- variants


def test_a_setting_that_every_variant_of_a_sweep_defines_is_refused() -> None:
    study = of_sweep("episodes", "k", ["2", "4"])
    with pytest.raises(UsageError, match="every variant that has a setting 'k' has its own value of it"):
        study.with_settings({"k": "7"})
    assert [v.settings["batch"] for v in study.with_settings({"batch": "3"}).variants] == ["3", "3"]
    # Where the baseline is another method, it acts there.
    other = of_sweep("episodes", "k", ["2", "4"], "reasoning_bank").with_settings({"k": "7"})
    assert other.variants[0].settings == {"k": "7"}


def test_the_baseline_is_none_or_the_first_or_the_given_one() -> None:
    assert of_methods(["ace", "none"]).tables[0].baseline == "none"
    assert of_methods(["ace", "icl"]).tables[0].baseline == "ace"
    added = of_methods(["ace", "icl"], "none")
    assert [v.name for v in added.variants] == ["none", "ace", "icl"]


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
    with pytest.raises(UsageError, match="leave out `online`"):
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
    assert failed["warm"] == "ace, which this run starts from, has no result"
    assert compare(tmp_path / "c", client(), study, settings={}, seeds=1).failed == ()


def test_user_settings_never_change_what_defines_a_variant() -> None:
    added, left_out = (
        TABLES["rcl3"].study({"group": 5, "ace.batch": 2, "epochs": 2}),
        TABLES["rcl4"].study({"group": 5}),
    )
    made = {v.name: v.settings for v in (*left_out.variants, *added.variants)}
    assert made["ace + groups"]["group"] == 3
    assert made["rcl - groups"]["group"] == 1
    assert made["rcl"]["group"] == 5
    assert made["ace + batching"]["batch"] == 3
    assert made["ace base"]["batch"] == 1
    assert made["ace base"]["epochs"] == 2
    assert "batch" not in made["rcl"]


def test_the_steps_of_an_attempt_are_its_actions_and_its_answer() -> None:
    def steps(*kinds: str, error: str | None = None) -> int:
        trace = Trace("x", steps=tuple(Step(kind, "...") for kind in kinds), error=error)
        return agent_steps(Rollout(Task("t", "i"), trace, None, Feedback(None, ""), "place"))

    assert steps() == 1
    assert steps("thought", "action", "observation", "thought", "action", "observation", "thought") == 3
    assert steps("thought", "action", "observation", error="no answer within 1 turns") == 1
    assert steps("Ada, judge", "Ben, solve") == 3


def test_a_watch_is_called_after_each_run(tmp_path: Path) -> None:
    class Ends(ComparisonWatch):
        seen: list[tuple[int, int]]

        def ended(self, outcome: RunOutcome, done: int, of: int) -> None:
            self.seen.append((done, of))

    watch = Ends()
    watch.seen = []
    compare(tmp_path / "c", client(), "none,icl", watch=watch)
    assert watch.seen == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_a_study_takes_no_other_baseline(tmp_path: Path) -> None:
    refused(tmp_path, "leave out `baseline`", names=TABLES["ace3"].study({}), baseline="none", settings={})
    with pytest.raises(PracticumError, match="which methods"):
        of_methods([])
    assert Study(()).variants == ()
