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
from practicum.analysis.compare.harness import Comparison, ComparisonWatch, Halt
from practicum.analysis.compare.outcome import OUTCOME_FILE, RunOutcome, agent_steps
from practicum.analysis.compare.variants import ComparisonTable, Study, Variant, of_methods, of_sweep
from practicum.bench.papers import TABLES
from practicum.core.context import seed_context
from practicum.core.differences import difference, holm
from practicum.core.errors import ModelError, PracticumError, ProviderError, StoreError, UsageError
from practicum.core.types import Feedback, Rollout, Step, Task, Trace
from practicum.core.views import render_full
from practicum.models.scripted import Call, ScriptedClient
from practicum.session.result import INTERRUPTED

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
def test_every_variant_runs_with_every_seed_and_scores_as_a_run_alone(tmp_path: Path) -> None:
    model = client()
    found = compare(tmp_path / "c", model)
    folders = sorted(path.name for path in (tmp_path / "c" / "runs").iterdir())
    assert folders == ["ace-0", "ace-1", "icl-0", "icl-1", "none-0", "none-1"]
    by_name = {row["name"]: row for row in found.report["variants"]}
    work = practicum.learn(
        make_tasks(6), test=make_tasks(12, 50), method="ace", settings={"batch": 3, "rounds": 1}, seed=1,
        out=tmp_path / "alone", parts=practicum.Parts(clients={"agent": client()}),
    )  # fmt: skip
    alone = practicum.run_sync(work)
    assert by_name["ace"]["by_seed"]["1"] == pytest.approx(alone.scores["test"])
    assert len(model.calls) == sum(2 * row["calls"] for row in found.report["variants"])
    assert found.failed == ()


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


def test_the_same_command_again_pays_nothing_and_opens_no_run(tmp_path: Path) -> None:
    first = compare(tmp_path / "c", client())
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "c" / "runs").rglob("*") if path.is_file()}
    page = (tmp_path / "c" / "report.html").read_bytes()
    model = client()
    again = compare(tmp_path / "c", model)
    assert model.calls == []
    assert again.report == first.report
    assert (tmp_path / "c" / "report.html").read_bytes() == page
    assert {path: path.stat().st_mtime_ns for path in before} == before


@pytest.mark.slow
def test_variants_and_seeds_can_be_added_and_only_those_are_paid_for(tmp_path: Path) -> None:
    compare(tmp_path / "c", client(), "none,icl", seeds=1)
    model = client()
    more = compare(tmp_path / "c", model, "none,icl,episodes", seeds=2)
    assert more.report["runs"] == {"planned": 6, "done": 6}
    assert len(model.calls) == 12 + 12 + 2 * 12


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"tasks": make_tasks(7)}, "the tasks"),
        ({"test": make_tasks(13, 50)}, "the tasks"),
        ({"test": make_tasks(12, 50, answer="of another kind")}, "the tasks' meta"),
        ({"settings": {"ace.batch": 2}}, "runs/ace-0"),
        ({"temperature": 0.5}, "temperature"),
        ({"max_calls": 500}, "max_calls"),
    ],
)
@pytest.mark.slow
def test_another_comparison_in_the_same_folder_is_refused(tmp_path: Path, changed: dict[str, Any], named: str) -> None:
    compare(tmp_path / "c", client(), seeds=1)
    model = client()
    with pytest.raises(UsageError, match=f"another value of {named}"):
        compare(tmp_path / "c", model, **{"seeds": 1, **changed})
    assert model.calls == []


def test_a_failed_method_is_reported_and_the_others_continue(tmp_path: Path) -> None:
    def away(call: Call) -> str | Exception:
        return ProviderError("provider.failed", "nobody there") if call.role == "reflector" else world(call)

    found = compare(tmp_path / "c", client(away), settings={"ace.batch": 2, "ace.rounds": 0})
    rows = {row["name"]: row for row in found.report["variants"]}
    assert set(rows["ace"]["failed"]) == {"0", "1"}
    assert "nobody there" in rows["ace"]["failed"]["0"]
    assert (rows["ace"]["score"], rows["icl"]["failed"], rows["icl"]["n"]) == (None, {}, 12)
    assert rows["ace"]["calls"] > 0
    assert "ace, seed 0, failed" in (tmp_path / "c" / "report.md").read_text()
    assert [o.variant for o in found.failed] == ["ace", "ace"]
    table = {row["name"]: row["verdict"] for row in found.report["tables"][0]["rows"]}
    assert table["ace"] == "missing"

    model = client()
    mended = compare(tmp_path / "c", model, settings={"ace.batch": 2, "ace.rounds": 0})
    assert mended.failed == ()
    assert {call.role for call in model.calls} >= {"reflector", "curator"}
    assert not any(row["failed"] for row in mended.report["variants"])


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


@pytest.mark.slow
def test_a_budget_holds_for_each_run(tmp_path: Path) -> None:
    found = compare(tmp_path / "c", client(), max_calls=25, tasks=make_tasks(12))
    rows = {row["name"]: row for row in found.report["variants"]}
    assert rows["none"]["calls"] == rows["icl"]["calls"] == 12
    assert 12 < rows["ace"]["calls"] <= 25
    assert rows["ace"]["stopped"]["0"] == "the budget of 25 calls is spent"
    assert rows["ace"]["n"] == 12
    assert found.failed == ()


def test_a_stream_is_scored_by_the_predictions_made_before_learning(tmp_path: Path) -> None:
    model = client()
    found = compare(tmp_path / "c", model, "none,episodes", test=(), online=True, tasks=make_tasks(15))
    assert found.report["tasks"]["scored"] == 15
    assert [row["n"] for row in found.report["variants"]] == [15, 15]
    assert len(model.calls) == 2 * 2 * 15


@pytest.mark.slow
def test_an_interrupt_ends_all_runs_and_the_same_command_continues(tmp_path: Path) -> None:
    halt = Halt()
    made = 0

    def stopping(call: Call) -> str | Exception:
        nonlocal made
        made += 1
        if made == 40:
            halt.stop(INTERRUPTED)
        return world(call)

    first = client(stopping)
    cut = compare(tmp_path / "c", first, halt=halt, concurrency=4)
    assert cut.interrupted
    assert cut.report["runs"]["done"] < 6
    assert "not complete" in (tmp_path / "c" / "report.md").read_text()
    second = client()
    rest = compare(tmp_path / "c", second, concurrency=4)
    whole = client()
    expected = compare(tmp_path / "w", whole, concurrency=4)
    assert timeless(rest.report) == timeless(expected.report)
    assert len(first.calls) + len(second.calls) == len(whole.calls)


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


@pytest.mark.parametrize(
    ("how", "match"),
    [
        ({"names": "none,acme"}, "unknown method 'acme'"),
        ({"names": "none,none"}, "compared twice"),
        ({"names": "none"}, "nothing to compare none with"),
        ({"names": "a b=ace,a/b=ace,none", "settings": {}}, "a b and a/b would share one folder"),
        ({"settings": {"ace.rond": 1}}, "ace has no setting 'rond'"),
        ({"names": "=ace,none"}, "'=ace' is not of the form METHOD or NAME=METHOD"),
        ({"names": "one=,none"}, "'one=' is not of the form METHOD or NAME=METHOD"),
        (
            {"settings": {"rounds": 1, "ace.rounds": 2}, "names": "none,ace"},
            "every variant that has a setting 'rounds' has its own value of it",
        ),
        ({"settings": {"rond": 1}}, "none of the methods has a setting 'rond'"),
        ({"settings": {"rcl.group": 1}}, "'rcl' is not compared here"),
        ({"settings": {"ace.rounds": "many"}}, "ace: setting rounds='many' of method ace"),
        ({"labels": False}, "icl: method icl shows right answers"),
        ({"test": ()}, "give `test`"),
        ({"max_calls": 100, "max_tokens": 1000}, "two budgets"),
        ({"max_calls": 8}, "none: the budget of 8 calls is too small"),
        ({"seeds": 0}, "at least one"),
        ({"roles": {"referee": "x"}}, "unknown role 'referee'"),
        ({"roles": {"judge": "x"}}, "no method here asks a judge"),
        ({"online": True}, "leave out `test`"),
        ({"baseline": "acme"}, "unknown method 'acme'"),
        ({"test": [Task("a", "Message 1", None)] * 1}, "has no target"),
    ],
)
def test_impossible_comparisons_are_refused_before_any_call(tmp_path: Path, how: dict[str, Any], match: str) -> None:
    refused(tmp_path, match, **how)


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


def test_with_few_test_tasks_no_claim_is_made(tmp_path: Path) -> None:
    found = compare(tmp_path / "c", client(), test=make_tasks(9, 50), seeds=1)
    assert found.report["warnings"][0] == "9 tasks scored, fewer than 10: no claim can be made"
    claims = [row["claim"] for row in found.report["tables"][0]["rows"] if "claim" in row]
    assert all(claim.startswith("no claim can be made with 9 tasks") for claim in claims)


@pytest.mark.parametrize("seeds", [1, 2])
def test_with_fewer_than_three_seeds_every_claim_is_about_these_runs(tmp_path: Path, seeds: int) -> None:
    """An agent that is right only where it is shown examples, so that the difference is certain."""

    def told(call: Call) -> str:
        right = call.prompt.user.split()[-1] if call.prompt.pages or call.prompt.turns else "?"
        return right if call.schema is None else json.dumps({"answer": right, "used": []})

    found = compare(tmp_path / "c", client(told), "none,icl", seeds=seeds)
    said = f"{seeds} seed{'s' * (seeds > 1)}: the report can speak of these runs only"
    assert found.report["warnings"][0].startswith(said)
    assert [row["about"] for row in found.report["variants"]] == ["these runs"] * 2
    row = found.report["tables"][0]["rows"][1]
    assert (row["verdict"], row["about"], row["seeds"]) == ("runs higher", "these runs", seeds)
    assert row["claim"].startswith("these runs scored higher than those of none, which says nothing about the methods")
    text, page = (tmp_path / "c" / "report.md").read_text(), (tmp_path / "c" / "report.html").read_text()
    assert said in text
    assert "| these runs: higher |" in text
    assert '<em class="runs-higher">these runs: higher</em>' in page
    more = compare(tmp_path / "c", client(told), "none,icl", seeds=3)
    assert more.report["warnings"] == []
    assert more.report["tables"][0]["rows"][1]["claim"].startswith("better than none: ")


@pytest.mark.slow
def test_every_method_starts_from_the_seed_playbook(tmp_path: Path) -> None:
    start = seed_context([("rules", "Say the last word."), ("rules", "Say it once.")])
    found = compare(tmp_path / "c", client(), "none,ace", seed_context=start)
    assert found.report["seed_context"] == {"entries": 2, "tokens": render_full(start).tokens}
    assert "every run starts from the same playbook (" in (tmp_path / "c" / "report.md").read_text()
    for run in ("none-0", "ace-0", "ace-1"):
        first = practicum.load_context(tmp_path / "c" / "runs" / run, 0)
        assert [entry.text for entry in first] == ["Say the last word.", "Say it once."]
    model = client()
    compare(tmp_path / "shown", model, "none,again=none", seed_context=start, seeds=1)
    assert len(model.calls) == 24
    assert all("Say it once." in "\n".join(call.prompt.pages) for call in model.calls)
    with pytest.raises(UsageError, match="another value of the context that the runs start from"):
        compare(tmp_path / "c", client(), "none,ace")


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


def test_a_missing_key_is_an_error_before_any_run_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    work = practicum.compare(
        make_tasks(4), test=make_tasks(10, 50), methods=["none", "ace"], out=tmp_path / "c", model="openai:gpt-4.1-mini"
    )
    with pytest.raises((UsageError, ModelError), match="cannot be used"):
        practicum.run_sync(work)
    assert not (tmp_path / "c").exists()


# ---- variants


def test_a_setting_that_every_variant_of_a_sweep_defines_is_refused() -> None:
    study = of_sweep("episodes", "k", ["2", "4"])
    with pytest.raises(UsageError, match="every variant that has a setting 'k' has its own value of it"):
        study.with_settings({"k": "7"})
    assert [v.settings["batch"] for v in study.with_settings({"batch": "3"}).variants] == ["3", "3"]
    # Where the baseline is another method, it acts there.
    other = of_sweep("episodes", "k", ["2", "4"], "reasoning_bank").with_settings({"k": "7"})
    assert other.variants[0].settings == {"k": "7"}


def test_a_method_can_be_compared_twice_with_other_settings(tmp_path: Path) -> None:
    found = compare(
        tmp_path / "c", client(), "ace,again=ace", seeds=1, baseline="ace",
        settings={"rounds": 0, "batch": 2, "again.rounds": 1},
    )  # fmt: skip
    made = {row["name"]: row["settings"] for row in found.report["variants"]}
    assert made == {"ace": {"rounds": 0, "batch": 2}, "again": {"rounds": 1, "batch": 2}}


def test_the_baseline_is_none_or_the_first_or_the_given_one() -> None:
    assert of_methods(["ace", "none"]).tables[0].baseline == "none"
    assert of_methods(["ace", "icl"]).tables[0].baseline == "ace"
    added = of_methods(["ace", "icl"], "none")
    assert [v.name for v in added.variants] == ["none", "ace", "icl"]


def test_a_sweep_has_a_variant_for_each_value(tmp_path: Path) -> None:
    study = of_sweep("combee", "groups", ["2", "4"])
    assert [(v.name, v.settings) for v in study.variants] == [
        ("combee groups=2", {"groups": "2"}), ("combee groups=4", {"groups": "4"}),
    ]  # fmt: skip
    assert study.tables[0].baseline == "combee groups=2"
    assert of_sweep("combee", "groups", ["2", "4"], "4").tables[0].baseline == "combee groups=4"
    assert of_sweep("combee", "groups", ["2", "4"], "ace").variants[0].method == "ace"
    for values, setting in ((["2"], "groups"), (["2", "2"], "groups"), (["1", "2"], "gropus")):
        with pytest.raises(UsageError):
            of_sweep("combee", setting, values)
    found = compare(tmp_path / "c", client(), study, seeds=1, settings={"batch": 6})
    assert found.report["runs"]["done"] == 2


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
