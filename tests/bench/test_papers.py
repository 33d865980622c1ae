"""The tables of the papers: each runs, its rows, and its command."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import simulated_world
from helpers import make_tasks, run_command, write_tasks
from refusals import refused
from runs import Words

import practicum
from practicum import methods
from practicum.analysis.compare.harness import Comparison
from practicum.bench.harmful import HARMFUL
from practicum.bench.papers import TABLES, all_tables
from practicum.bench.papers.table import PaperTable
from practicum.bench.robustness import SETTINGS, _respond
from practicum.bench.robustness import make_tasks as harm_tasks
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
    config: dict[str, Any] = {"tasks": WORLD[:4], "test": WORLD[4:8], "seeds": 1, **how}
    parts = practicum.Parts(clients={"agent": model}, embedder=Words())
    return practicum.run_sync(
        practicum.compare(config.pop("tasks"), methods=table.study(settings or {}), out=out, parts=parts, **config)
    )


SHORT = {"epochs": 1, "rounds": 1, "attempts": 8}
"""Settings of a short run, for every row that has them and does not set them."""


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in TABLES if name != "mael2"])
def test_every_table_runs(tmp_path: Path, name: str) -> None:
    """With a simulated model in all roles: no score means anything about a method."""
    table, _ = TABLES[name].installed()
    # RCL reflects once, after all runs of a step.
    short = {"steps": 2} if name in ("rcl3", "rcl4") else {k: v for k, v in SHORT.items() if table.takes(k)}
    result = run(table, tmp_path / "t", ScriptedClient(everyone), short, **LABELS)
    assert result.failed == ()
    titles, lines = table.shown(result.report)
    assert [line[0] for line in lines] == [variant.name for variant in table.variants]
    assert all(len(line) == len(titles) for line in lines)
    assert all(row["score"] is not None for row in result.report["variants"])
    if table.delays:
        fit = table.delay(tmp_path / "t", 1, 4)
        assert fit is None or fit.points


def test_a_table_with_the_agent_without_learning_has_the_whole_history_in_the_prompt_too() -> None:
    for table in all_tables():
        of_both = {variant.method for variant in table.variants} & {"none", "icl"}
        assert len(of_both) != 1, table.name


def test_every_table_retrieves_by_cosine_unless_another_way_is_set() -> None:
    for table in TABLES.values():
        for settings in ({}, {"retrieval": "words"}) if table.takes("retrieval") else ({},):
            for variant in table.study(settings).variants:
                retrieves = "retrieval" in methods.settings_of(variant.method).model_fields
                expected = settings.get("retrieval", "cosine") if retrieves else None
                assert variant.settings.get("retrieval") == expected, (table.name, variant.name)


def test_rows_keep_their_baseline_their_start_and_their_options() -> None:
    assert [v.name for v in TABLES["ace3"].only(["online after ace"]).variants] == ["none", "ace", "online after ace"]
    assert TABLES["ace2"].only(["ace without labels"]).variants[-1].options == {"labels": False}
    with refused("settings.invalid"):
        TABLES["ace2"].only(["acme"])


@pytest.mark.slow
def test_a_reflector_of_any_model_is_harmful_at_every_xth_step_and_at_no_other(tmp_path: Path) -> None:
    """With the model of the simulated world of `bench robustness`: it does harm when the prompt asks for it."""
    model = ScriptedClient(partial(_respond, 0.0))
    table = replace(TABLES["ace17"].only(["harmful every 1", "harmful every 5", "ace"]), settings={})
    settings = {k: v for k, v in SETTINGS.items() if k != "online"}
    tasks, test = harm_tasks(16, "learning", 0), harm_tasks(24, "test", 0)
    how: dict[str, Any] = {"tasks": tasks, "test": test, "profile": "small", "runs_at_once": 1}
    result = run(table, tmp_path / "t", model, settings, **how)
    harmful = [HARMFUL in call.prompt.user for call in model.calls if call.role == "reflector"]
    assert harmful == [True] * 16 + [n % 5 == 0 for n in range(1, 17)] + [False] * 16
    scores = {row["name"]: row["score"] for row in result.report["variants"]}
    assert scores["harmful every 1"] < scores["none"] < scores["ace"]
    assert scores["harmful every 1"] < scores["harmful every 5"]
    # The same command again pays for nothing.
    paid = len(model.calls)
    run(table, tmp_path / "t", model, settings, **how)
    assert len(model.calls) == paid


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_tasks(tmp_path / "tasks.jsonl", make_tasks(20))
    (tmp_path / "model").write_text(json.dumps({"answer": "5.00"}) + "\n", encoding="utf-8")
    return tmp_path


def test_without_tasks_the_command_names_the_data_that_it_needs(folder: Path) -> None:
    done = run_command(["bench", "paper", "ace2"], folder)
    assert done.code == 0
    assert "XBRL Formula, formula_train_subset_500.jsonl" in done.out
    assert "--tasks FILE" in done.out
    assert run_command(["bench", "paper", "--tasks", "tasks.jsonl"], folder).code == 2
    assert "ace2?" in run_command(["bench", "paper", "ace-2"], folder).line
    done = run_command(["bench", "paper", "ace2", "--tasks", "tasks.jsonl", "--train", "20"], folder)
    assert (done.code, "--train" in done.line) == (2, True)


@pytest.mark.slow
def test_a_data_sets_own_file_brings_its_scorer_and_instructions(folder: Path) -> None:
    asked = 'Use formula Sum to answer the question. Formula: a + b. Question: "{} + 1?". Answer:'
    lines = [{"context": asked.format(n), "target": f"{n + 1}.0"} for n in range(14)]
    (folder / "f.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    words = ["bench", "paper", "ace2", "--tasks", "f.jsonl", "--train", "4", "--rows", "icl", "--seeds", "1"]
    done = run_command([*words, "--model", "scripted:model", "--out", "o", "--json"], folder)
    assert done.code == 0, done.err
    config = json.loads((folder / "o" / "compare.json").read_text())["common"]
    assert (config["scorer"], "plain number" in config["instructions"]) == ("numeric", True)
