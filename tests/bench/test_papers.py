"""The tables of the papers: each runs, what it shows, and what the command says."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import simulated_world
from appworlds import serving
from fenced import needs_fences
from helpers import make_tasks, run_command, write_tasks
from runs import Words
from simulated import made_tasks
from simulated_network import respond as network

import practicum
from practicum import methods
from practicum.analysis.compare.harness import Comparison
from practicum.analysis.compare.plan import run_folder
from practicum.bench.harmful import HARMFUL
from practicum.bench.papers import TABLES
from practicum.bench.papers.mael import NO_EXPERIENCE, TASK
from practicum.bench.papers.rcl import BASE
from practicum.bench.papers.table import DATA, PaperTable
from practicum.bench.robustness import SETTINGS, _respond
from practicum.bench.robustness import make_tasks as harm_tasks
from practicum.core.errors import UsageError
from practicum.core.types import Task
from practicum.models.scripted import Call, ScriptedClient
from practicum.session.records import load_context, step_records
from practicum.store.database import Store


@pytest.fixture(autouse=True)
def _no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("differences_figure", "cost_figure", "curves_figure"):
        monkeypatch.setattr(f"practicum.analysis.compare.figures.{name}", lambda *how: None)
    monkeypatch.setattr("practicum.analysis.compare.report.data_url", lambda figure: figure and "data:,")


def everyone(call: Call) -> str:
    """The simulated world's model in every role."""
    text, last = call.text, call.prompt.user
    if call.schema is None:
        return simulated_world.attempt(text, last)
    title = call.schema.get("title", "")
    if title == "Quality":
        return json.dumps({"reason": "", "points": 5})
    return simulated_world.respond(title, call.schema, text, last)


WORLD = simulated_world.tasks(14)
LABELS: dict[str, Any] = {"choices": simulated_world.LABELS, "instructions": simulated_world.INSTRUCTIONS}


def run(
    table: PaperTable, out: Path, model: ScriptedClient, settings: dict[str, Any] | None = None, **how: Any
) -> Comparison:
    given: dict[str, Any] = {"tasks": WORLD[:4], "test": WORLD[4:], "seeds": 1, **how}
    parts = practicum.Parts(clients={"agent": model}, embedder=Words())
    return practicum.run_sync(
        practicum.compare(given.pop("tasks"), methods=table.study(settings or {}), out=out, parts=parts, **given)
    )


SHORT = {"epochs": 1, "rounds": 1, "attempts": 8}
"""Settings of a short run, for every row that has them and has no value of its own."""


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in TABLES if name != "mael2"])
def test_every_table_runs(tmp_path: Path, name: str) -> None:
    """With a simulated model in all roles, which shows machinery only: nothing is claimed of a method."""
    table, _ = TABLES[name].installed()
    # RCL reflects once, after all runs of a step.
    short = {"steps": 2} if name in ("rcl3", "rcl4") else {k: v for k, v in SHORT.items() if table.takes(k)}
    found = run(table, tmp_path / "t", ScriptedClient(everyone), short, **LABELS)
    assert found.failed == ()
    titles, lines = table.shown(found.report)
    assert [line[0] for line in lines] == [variant.name for variant in table.variants]
    assert all(len(line) == len(titles) for line in lines)
    assert all(row["score"] is not None for row in found.report["variants"])
    if table.delays:
        fit = table.delay(tmp_path / "t", 1, 4)
        assert fit is None or fit.points


def test_every_row_can_be_built_and_has_as_many_numbers_as_the_table_has_columns() -> None:
    for table in TABLES.values():
        names = [variant.name for variant in table.variants]
        assert table.baseline in names
        assert len({*names}) == len(names)
        # `--rows` takes names with commas between, and `--set` names before a dot.
        assert not any("," in name or "=" in name for name in names)
        assert set(table.data) <= DATA.keys()
        assert table.calls(20, 30, {}) > 0
        for variant, said in table.rows:
            assert len(said.split()) in (0, len(table.columns))
            assert variant.after in ("", *names)
            if not methods.missing_extra(variant.method):
                methods.build(variant.method, methods.read_settings(variant.method, variant.settings))


def test_rcls_tables_add_and_leave_out_each_primitive_alone() -> None:
    base, whole = methods.read_settings("ace", BASE), methods.read_settings("rcl", {})
    added = [v for v in TABLES["rcl3"].variants if v.name.startswith("ace + ")]
    left_out = [v for v in TABLES["rcl4"].variants if v.name.startswith("rcl - ")]
    assert (len(added), len(left_out)) == (6, 6)
    for variants, like in ((added, base), (left_out, whole)):
        for variant in variants:
            made = methods.read_settings(variant.method, variant.settings)
            assert len({k for k in type(made).model_fields if getattr(made, k) != getattr(like, k)}) == 1


def test_the_papers_settings_hold_unless_others_are_given() -> None:
    ace = {v.name: v for v in TABLES["ace2"].study({}).variants}
    assert ace["ace"].settings == {"retrieval": "cosine", "batch": 1, "rounds": 5, "epochs": 5}
    # A stream has no epochs.
    assert ace["ace online"].settings == {"retrieval": "cosine", "batch": 1, "rounds": 5, "online": True}
    short = {v.name: v for v in TABLES["ace2"].study({"steps": 3, "rounds": 0}).variants}
    assert short["ace"].settings == {"retrieval": "cosine", "batch": 1, "rounds": 0, "steps": 3}
    assert TABLES["rcl4"].study({}).variants[0].settings == {"retrieval": "cosine", "steps": 30}


@pytest.mark.parametrize("given", [{}, {"retrieval": "words"}])
@pytest.mark.parametrize("table", TABLES.values(), ids=[*TABLES])
def test_every_table_retrieves_by_cosine_unless_another_way_is_given(table: PaperTable, given: dict[str, str]) -> None:
    given = given if table.takes("retrieval") else {}
    for variant in table.study(given).variants:
        has = "retrieval" in methods.settings_of(variant.method).model_fields
        assert variant.settings.get("retrieval") == (given.get("retrieval", "cosine") if has else None)


NETWORKS = ("mael1", "mael2", "mael4", "mael-pools", "mael-rounds")


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("data", ["commongen", "srdd", "humaneval"])
def test_mael_has_three_rounds_and_two_levels_on_hard_data(name: str, data: str) -> None:
    hard = data != "humaneval" or name in ("mael2", "mael-rounds")
    theirs = {"rounds": 3, "depth": 2} if hard else {"rounds": 2, "depth": 1}
    rows = {variant.name: variant for variant in TABLES[name].on(data).study({}).variants}
    for row in TABLES[name].variants:
        if row.method == "mael":
            made = methods.read_settings("mael", rows[row.name].settings).model_dump()
            # A row may be about one of these settings.
            assert {s: made[s] for s in theirs} == {**theirs, **{s: v for s, v in row.settings.items() if s in theirs}}


@pytest.mark.slow
@pytest.mark.parametrize("own", [True, False], ids=["data set's file", "tasks with its scorer"])
def test_the_note_and_the_papers_settings_stand_before_the_run(folder: Path, own: bool) -> None:
    made = [{"concepts": ["dog", f"run{n}"]} for n in range(2)]
    tasks = [{"id": f"t{n}", "input": " and ".join(meta["concepts"]), "meta": meta} for n, meta in enumerate(made)]
    (folder / "c.jsonl").write_text("".join(json.dumps(line) + "\n" for line in (made if own else tasks)))
    words = ["bench", "paper", "mael4", "--tasks", "c.jsonl", "--train", "1", "--rows", "task-wise", "--seeds", "1"]
    words += [] if own else ["--scorer", "coverage"]
    # The model fits none of the forms; the rows and their settings are stored before it is asked.
    shown = run_command([*words, "--model", "scripted:model", "--out", "o"], folder).out.splitlines()
    at = shown.index("the paper's settings: retrieval=cosine, rounds=3, depth=2")
    assert shown[at - 1] == TABLES["mael4"].note
    assert at < next(n for n, line in enumerate(shown) if line.startswith("MAEL, table 4"))
    runs = json.loads((folder / "o" / "compare.json").read_text())["runs"].values()
    assert [(made["settings"]["rounds"], made["settings"]["depth"]) for made in runs] == [(3, 2), (3, 2)]


def test_rows_keep_what_they_are_compared_with_and_start_from() -> None:
    assert [v.name for v in TABLES["ace3"].only(["online after ace"]).variants] == ["none", "ace", "online after ace"]
    with pytest.raises(UsageError, match="table ace2 has no row 'acme': it has none; icl; mipro"):
        TABLES["ace2"].only(["acme"])


def test_the_rows_of_matts_make_k_attempts_or_passes_at_one_temperature(tmp_path: Path) -> None:
    model, attempts = ScriptedClient(everyone), {"once": 1, "parallel 2": 2, "sequential 1": 2, "sequential 2": 3}
    run(TABLES["matts"].only([*attempts]), tmp_path / "t", model, tasks=WORLD[:2], test=WORLD[2:4], **LABELS)
    for row, made in attempts.items():
        with Store.read(tmp_path / "t" / run_folder(row, 0)) as store:
            assert [len(r.group) for _, rollouts, _ in step_records(store) for r in rollouts] == [made] * 2
    assert {call.options.temperature for call in model.calls if call.role == "agent"} == {0.7}


@pytest.mark.slow
def test_a_row_without_labels_learns_from_no_answer(tmp_path: Path) -> None:
    model = ScriptedClient(everyone)
    run(TABLES["ace2"].only(["ace", "ace without labels"]), tmp_path / "t", model, {"epochs": 1, "rounds": 0}, **LABELS)
    asked = [call.text for call in model.calls if call.role == "reflector"]
    assert (len(asked), sum("Nothing is known about whether the answer is right" in text for text in asked)) == (8, 4)


@pytest.mark.slow
def test_experience_is_learned_once_and_read_by_the_rows_after_it(tmp_path: Path) -> None:
    tasks = made_tasks(20, 4, 0)
    model = ScriptedClient(network)
    how: dict[str, Any] = {"tasks": tasks[:12], "test": tasks[12:], "profile": "small"}
    found = run(TABLES["mael4"], tmp_path / "t", model, {"rounds": 3}, **how)
    rows = {row["name"]: row for row in found.report["variants"]}
    assert rows[NO_EXPERIENCE.name]["entries"] == 0
    assert len({row["entries"] for name, row in rows.items() if name != NO_EXPERIENCE.name}) == 1
    assert [name for name, row in rows.items() if row["learning_calls"]] == [TASK.name]
    # In this world, good experience of similar tasks saves rounds, and bad experience harms.
    assert rows[TASK.name]["measures"]["rounds"] < rows[NO_EXPERIENCE.name]["measures"]["rounds"]
    assert rows["low reward"]["score"] < rows[TASK.name]["score"]
    pools = run(TABLES["mael-pools"], tmp_path / "p", model, {"rounds": 3}, **how).report["variants"]
    grown = [len(load_context(tmp_path / "p" / "runs" / f"{name}-0")) for name in ("a_third", "two_thirds", "all")]
    assert 0 < grown[0] < grown[1] < grown[2]
    assert [row["entries"] for row in pools] == [0, *grown]


@pytest.mark.slow
def test_a_reflector_of_any_model_is_harmful_at_every_xth_step_and_at_no_other(tmp_path: Path) -> None:
    """With the model of the simulated world of `bench robustness`: it obeys when it is told to do harm."""
    model = ScriptedClient(partial(_respond, 0.0))
    table = replace(TABLES["ace17"].only(["harmful every 1", "harmful every 5", "ace"]), settings={})
    given = {k: v for k, v in SETTINGS.items() if k != "online"}
    how: dict[str, Any] = {
        "tasks": harm_tasks(16, "learning", 0),
        "test": harm_tasks(24, "test", 0),
        "profile": "small",
    }
    found = run(table, tmp_path / "t", model, given, runs_at_once=1, **how)
    told = [HARMFUL in call.prompt.user for call in model.calls if call.role == "reflector"]
    assert told == [True] * 16 + [n % 5 == 0 for n in range(1, 17)] + [False] * 16
    scores = {row["name"]: row["score"] for row in found.report["variants"]}
    assert scores["harmful every 1"] < scores["none"] < scores["ace"]
    assert scores["harmful every 1"] < scores["harmful every 5"]
    # The same command again pays for nothing, and a run that was cut off goes on at its step.
    made = len(model.calls)
    run(table, tmp_path / "t", model, given, runs_at_once=1, **how)
    assert len(model.calls) == made


@pytest.mark.slow
def test_a_table_of_appworld_runs_against_its_servers(tmp_path: Path) -> None:
    """Against a stand-in, which answers as AppWorld's own server was seen to."""

    def acting(call: Call) -> str:
        if call.role != "agent":
            return everyone(call)
        first, second = re.findall(r"Do s(\d+)_(\d+), please", call.text)[-1]
        told = {"execute": {"code": f"apis.supervisor.complete_task(answer={first} + {second})"}}
        whole = {"used": [], "thought": "", "action": {"finish": {"answer": ""}} if call.prompt.turns else told}
        return json.dumps({name: value for name, value in whole.items() if name in (call.schema or {})["properties"]})

    tasks = [Task(f"s{n}_1", f"Do s{n}_1, please.") for n in range(1, 6)]
    with serving(2) as servers:
        agent = "appworld:" + ",".join(server.address for server in servers)
        table = TABLES["ace1"].only(["ace", "ace without labels"])
        how: dict[str, Any] = {"tasks": tasks[:2], "test": tasks[2:], "agent": agent}
        found = run(table, tmp_path / "t", ScriptedClient(acting), {"epochs": 1, "rounds": 1}, **how)
    assert [row["score"] for row in found.report["variants"]] == [1.0] * 3
    _, lines = table.shown(found.report)
    assert [line[:2] for line in lines] == [("none", "42.4"), ("ace", "59.4"), ("ace without labels", "57.2")]


PROJECT = "```python main.py\nfrom one import f\nprint(f(1))\n```\n```python one.py\ndef f(n):\n    return n\n```\n"


@pytest.mark.slow
@needs_fences
def test_the_size_of_software_is_measured(tmp_path: Path) -> None:
    table = TABLES["mael2"].only(["task-wise"])
    found = run(
        table, tmp_path / "t", ScriptedClient(lambda call: PROJECT), {"agents": 1}, tasks=make_tasks(1),
        test=make_tasks(2, 50), scorer="software",
    )  # fmt: skip
    titles, lines = table.shown(found.report)
    ours = dict(zip(titles, lines[0], strict=True))
    assert {name: ours[name] for name in ("files", "lines", "functions", "complexity")} == {
        "files": "2.00", "lines": "4.00", "functions": "1.00", "complexity": "3.00",
    }  # fmt: skip
    assert "complexity" in (tmp_path / "t" / "report.md").read_text()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_tasks(tmp_path / "tasks.jsonl", make_tasks(20))
    (tmp_path / "model").write_text(json.dumps({"answer": {"answer": "word3", "used": []}}) + "\n", encoding="utf-8")
    return tmp_path


def test_the_tables_are_listed_with_what_they_need(folder: Path) -> None:
    listed = {row["name"]: row for row in run_command(["bench", "paper", "--json"], folder).json["tables"]}
    assert [*listed] == [*TABLES]
    assert listed["ace2"]["source"] == "ACE, table 2"
    fewer = run_command(["bench", "paper", "--json", "--epochs", "1", "--seeds", "1"], folder).json["tables"]
    calls = [int(row["calls"].replace(",", "")) for row in (listed["ace2"], fewer[1])]
    assert calls[1] * 3 < calls[0]


def test_a_value_for_the_only_row_of_a_setting_replaces_the_papers() -> None:
    alone = TABLES["ace10"].only(["ace"])
    settings = {v.name: v.settings for v in alone.study({"ace.epochs": "1"}).variants}
    assert settings["ace"]["epochs"] == "1"
    assert all("epochs" not in made for name, made in settings.items() if name != "ace")


def test_without_tasks_the_command_says_what_it_needs(folder: Path) -> None:
    done = run_command(["bench", "paper", "ace2"], folder)
    assert done.code == 0
    assert "XBRL Formula, formula_train_subset_500.jsonl" in done.out
    assert "give --tasks FILE, and --test FILE" in done.out
    assert run_command(["bench", "paper", "--tasks", "tasks.jsonl"], folder).line.startswith("which table?")
    assert "(did you mean ace2?)" in run_command(["bench", "paper", "ace-2"], folder).err
    done = run_command(["bench", "paper", "ace2", "--tasks", "tasks.jsonl", "--train", "20"], folder)
    assert (done.code, "none is left to score: lower --train" in done.err) == (2, True)


@pytest.mark.slow
def test_the_command_prints_theirs_and_ours_and_continues(folder: Path) -> None:
    words = ["bench", "paper", "ace2", "--tasks", "tasks.jsonl", "--train", "4", "--test-n", "12", "--rows", "icl"]
    words += ["--model", "scripted:model", "--seeds", "1", "--out", "o", "--json"]
    done = run_command(words, folder)
    assert done.code == 0, done.err
    assert done.json["columns"][:4] == ["row", "paper: FiNER", "ours (95%)", "less none (95%)"]
    assert [row[:2] for row in done.json["rows"]] == [["none", "70.7"], ["icl", "-"]]
    assert done.json["ours"] == "scripted:model; tasks.jsonl: 4 to learn from, 12 scored; 1 seed"
    assert json.loads((folder / "o" / "paper.json").read_text())["rows"] == done.json["rows"]
    assert "2 of them done" in run_command(words, folder).err


@pytest.mark.slow
def test_a_data_sets_own_file_brings_its_scorer_and_instructions(folder: Path) -> None:
    asked = 'Use formula Sum to answer the question. Formula: a + b. Question: "{} + 1?". Answer:'
    lines = [{"context": asked.format(n), "target": f"{n + 1}.0"} for n in range(14)]
    (folder / "f.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "model").write_text(json.dumps({"answer": "5.00"}) + "\n", encoding="utf-8")
    words = ["bench", "paper", "ace2", "--tasks", "f.jsonl", "--train", "4", "--rows", "icl", "--seeds", "1"]
    done = run_command([*words, "--model", "scripted:model", "--out", "o", "--json"], folder)
    assert done.code == 0, done.err
    config = json.loads((folder / "o" / "compare.json").read_text())["common"]
    assert (config["scorer"], "plain number" in config["instructions"]) == ("numeric", True)
