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
from refusals import refused
from runs import Words

import practicum
from practicum import methods
from practicum.analysis.compare.harness import Comparison
from practicum.bench.harmful import HARMFUL
from practicum.bench.papers import TABLES
from practicum.bench.papers.table import PaperTable
from practicum.bench.robustness import SETTINGS, _respond
from practicum.bench.robustness import make_tasks as harm_tasks
from practicum.core.types import Task
from practicum.models.scripted import Call, ScriptedClient


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


@pytest.mark.parametrize("given", [{}, {"retrieval": "words"}])
@pytest.mark.parametrize("table", TABLES.values(), ids=[*TABLES])
def test_every_table_retrieves_by_cosine_unless_another_way_is_given(table: PaperTable, given: dict[str, str]) -> None:
    given = given if table.takes("retrieval") else {}
    for variant in table.study(given).variants:
        has = "retrieval" in methods.settings_of(variant.method).model_fields
        assert variant.settings.get("retrieval") == (given.get("retrieval", "cosine") if has else None)


def test_rows_keep_what_they_are_compared_with_and_start_from() -> None:
    assert [v.name for v in TABLES["ace3"].only(["online after ace"]).variants] == ["none", "ace", "online after ace"]
    with refused("settings.invalid"):
        TABLES["ace2"].only(["acme"])


@pytest.mark.slow
def test_a_row_without_labels_learns_from_no_answer(tmp_path: Path) -> None:
    model = ScriptedClient(everyone)
    run(TABLES["ace2"].only(["ace", "ace without labels"]), tmp_path / "t", model, {"epochs": 1, "rounds": 0}, **LABELS)
    asked = [call.text for call in model.calls if call.role == "reflector"]
    assert (len(asked), sum("Nothing is known about whether the answer is right" in text for text in asked)) == (8, 4)


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


def test_without_tasks_the_command_says_what_it_needs(folder: Path) -> None:
    done = run_command(["bench", "paper", "ace2"], folder)
    assert done.code == 0
    assert "XBRL Formula, formula_train_subset_500.jsonl" in done.out
    assert "pass --tasks FILE, and --test FILE" in done.out
    assert run_command(["bench", "paper", "--tasks", "tasks.jsonl"], folder).code == 2
    assert "(did you mean ace2?)" in run_command(["bench", "paper", "ace-2"], folder).err
    done = run_command(["bench", "paper", "ace2", "--tasks", "tasks.jsonl", "--train", "20"], folder)
    assert (done.code, "none is left to score: lower --train" in done.err) == (2, True)


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
