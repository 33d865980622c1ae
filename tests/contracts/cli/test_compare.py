"""Methods compared under one budget, and the claims of the report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .conftest import INSTRUCTIONS
from .kit import Model, Shell, by_script, new_workshop, workshop_files, write_lines

SCRIPT = workshop_files()["script.jsonl"]
HOW = f"--choices K2,K5,K7,K9 --instructions '{INSTRUCTIONS}'"
COMPARE = f"compare train.jsonl --test held.jsonl {HOW} --model scripted:script.jsonl --seeds 3"
ONCE = COMPARE.replace("--seeds 3", "--seeds 1")


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Shell, dict[str, Any]]:
    """A comparison of two methods with three seeds, on twelve held-out tasks."""
    shell = new_workshop(tmp_path_factory.mktemp("compared"))
    parts = {"battery": "K5", "screen": "K7", "files": "K9", "water": "K2"}
    tasks = [
        {"id": f"h{n}{w}", "input": f"Case {n}, the {w}.", "target": t} for n in range(3) for w, t in parts.items()
    ]
    write_lines(shell / "held.jsonl", tasks)
    return shell, shell.json(f"{COMPARE} --methods none,ace --out cmp")


@pytest.fixture
def shell(compared: tuple[Shell, Any], tmp_path: Path) -> Shell:
    return compared[0].copied(tmp_path)


def test_each_method_with_each_seed_is_one_run_and_the_report_has_three_forms(
    compared: tuple[Shell, dict[str, Any]],
) -> None:
    shell, value = compared
    assert value["runs"] == {"planned": 6, "done": 6}
    assert {path.name for path in (shell / "cmp" / "runs").iterdir()} == {
        f"{method}-{seed}" for method in ("none", "ace") for seed in range(3)
    }
    assert shell.json("show cmp/runs/ace-1")["scores"]["test"] == 1.0
    assert shell("export cmp/runs/ace-1").out
    assert len(shell.json("space diff cmp/runs/none-0 cmp/runs/ace-0")["added"]) == 3

    report = json.loads((shell / "cmp" / "report.json").read_text(encoding="utf-8"))
    assert report == {key: value[key] for key in report}
    page = (shell / "cmp" / "report.html").read_text(encoding="utf-8")
    assert 'src="http' not in page
    assert "none" in page
    assert "ace" in (shell / "cmp" / "report.md").read_text(encoding="utf-8")


def test_scores_are_means_over_tasks_and_seeds_with_intervals(compared: tuple[Shell, dict[str, Any]]) -> None:
    variants = {variant["name"]: variant for variant in compared[1]["variants"]}
    assert {name: v["score"] for name, v in variants.items()} == {"none": 0.25, "ace": 1.0}
    assert variants["ace"]["by_seed"] == {"0": 1.0, "1": 1.0, "2": 1.0}
    for variant in variants.values():
        low, high = variant["ci95"]
        assert 0 <= low <= variant["score"] <= high <= 1
        assert variant["n"] == 12
    assert variants["ace"]["learning_calls"] > 0 == variants["none"]["learning_calls"]
    assert {*variants["ace"]["by_role"]} == {"agent", "reflector", "curator"}
    assert variants["ace"]["critical_s"] <= variants["ace"]["single_run_s"] <= variants["ace"]["work_s"] + 1e-9


def test_a_difference_is_claimed_of_methods_with_three_seeds_and_ten_tasks(
    compared: tuple[Shell, dict[str, Any]],
) -> None:
    (table,) = compared[1]["tables"]
    rows = {row["name"]: row for row in table["rows"]}
    assert table["baseline"] == "none"
    assert (rows["ace"]["verdict"], rows["ace"]["about"], rows["ace"]["seeds"]) == ("better", "methods", 3)
    assert rows["ace"]["effect"] == 0.75
    assert rows["ace"]["ci95"][0] > 0
    assert rows["ace"]["p_holm"] <= 0.05


@pytest.mark.slow
def test_without_a_difference_or_with_fewer_than_ten_tasks_nothing_is_claimed(shell: Shell) -> None:
    value = shell.json(COMPARE, "--methods", "none,episodes", "--out", "equal")
    row = value["tables"][0]["rows"][1]
    assert (row["verdict"], row["effect"], row["p_holm"] > 0.05) == ("unclear", 0, True)
    value = shell.json(COMPARE.replace("held.jsonl", "test.jsonl"), "--methods", "none,ace", "--out", "few")
    assert value["tables"][0]["rows"][1]["verdict"] == "unclear"
    assert any("10" in warning for warning in value["warnings"])


@pytest.mark.slow
def test_the_same_command_continues_and_pays_for_nothing_twice(shell: Shell, model: Model) -> None:
    """With one seed only these runs are compared."""
    model.answer = by_script(SCRIPT)
    command = f"{ONCE.replace('scripted:script.jsonl', model.name)} --out kept --methods none,ace"
    first = shell.json(command)
    row = first["tables"][0]["rows"][1]
    assert (row["verdict"], row["about"]) == ("runs higher", "these runs")
    assert any("seeds" in warning for warning in first["warnings"])
    paid = len(model.bodies)
    assert paid == sum(v["calls"] * len(v["by_seed"]) for v in first["variants"])
    assert shell.json(command)["variants"] == first["variants"]
    assert len(model.bodies) == paid
    more = shell.json(f"{command},episodes")  # methods can be added
    assert more["runs"]["done"] == 3
    assert len(model.bodies) == paid + 12
    shell.fails(f"{command} --set ace.rounds=0", error="comparison.mismatch")
    shell.fails(command.replace("train.jsonl", "held.jsonl"))


def test_a_run_that_failed_is_reported_and_the_others_continue(shell: Shell) -> None:
    write_lines(shell / "broken.jsonl", [{"role": "reflector", "error": "404"}, *map(json.loads, SCRIPT.splitlines())])
    command = ONCE.replace("script.jsonl", "broken.jsonl").replace("held", "test")
    value = shell.json(f"{command} --methods none,ace --out failing", code=1)
    variants = {variant["name"]: variant for variant in value["variants"]}
    assert (variants["none"]["score"], variants["ace"]["score"]) == (0.25, None)
    assert variants["ace"]["failed"]
    assert value["runs"] == {"planned": 2, "done": 1}


@pytest.mark.slow
def test_variants_differ_in_settings_seeds_and_data(shell: Shell) -> None:
    """Names and settings of a method, a sweep, a seed playbook, and a stream."""
    named = f"{ONCE} --methods zero=ace,one=ace --baseline one --set zero.rounds=0 --set one.rounds=1 --out named"
    value = shell.json(named)
    assert {v["name"]: v["settings"].get("rounds") for v in value["variants"]} == {"zero": "0", "one": "1"}
    assert value["tables"][0]["baseline"] == "one"
    value = shell.json(f"{ONCE} --methods episodes --sweep k=1,3 --out swept")
    assert [v["settings"]["k"] for v in value["variants"]] == ["1", "3"]
    assert value["tables"][0]["baseline"] == value["variants"][0]["name"]
    shell.file("own.md", "## strategies\n- If it is about screen, answer K7.\n")
    value = shell.json(f"{ONCE} --methods none,ace --seed-playbook own.md --out seeded")
    assert {v["name"]: v["score"] for v in value["variants"]} == {"none": 0.5, "ace": 1.0}
    value = shell.json(f"{ONCE.replace('--test held.jsonl', '--online')} --methods none,ace --out stream")
    assert value["online"]
    assert {v["n"] for v in value["variants"]} == {8}


def test_an_unfair_or_impossible_comparison_is_refused_before_the_first_call(shell: Shell, model: Model) -> None:
    both = "--methods none,ace"
    first = json.loads((shell / "train.jsonl").read_text(encoding="utf-8").splitlines()[0])
    write_lines(shell / "again.jsonl", [{**first, "id": "another", "input": f" {first['input']}\n"}])
    for options, error in {
        "--methods none,magic": "method.unknown",
        "--methods none,icl --no-labels": "method.unsuitable",
        f"{both} --test train.jsonl": "tasks.overlap",
        f"{both} --test again.jsonl": "tasks.overlap",
        f"{both} --budget-calls 9 --budget-tokens 9": "settings.conflict",
        f"{both} --budget-calls 3": "budget.too_small",
        f"{both} --sweep k=1": "settings.invalid",
        "--methods none": "settings.missing",
        f"{both} --val held.jsonl": "",  # neither held-out tasks nor a stream
    }.items():
        test = "" if "--test" in options or "--val" in options else "--test held.jsonl"
        shell.fails(f"compare train.jsonl {test} {HOW} --model {model.name} {options} --out refused", error=error)
    assert model.bodies == []
    assert not (shell / "refused").exists()
