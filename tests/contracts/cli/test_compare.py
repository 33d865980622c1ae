"""docs/compare.md: methods side by side under one budget, and what may be claimed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from .conftest import INSTRUCTIONS
from .kit import Model, Shell, by_script, workshop_files, write_lines

SCRIPT = workshop_files()["script.jsonl"]
HOW = f"--choices K2,K5,K7,K9 --instructions '{INSTRUCTIONS}'"


@pytest.fixture(scope="module")
def _compared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Shell, dict[str, Any]]:
    """A comparison of three methods with three seeds, on twelve held-out tasks."""
    shell = Shell(tmp_path_factory.mktemp("compared"))
    for name, text in workshop_files().items():
        shell.file(name, text)
    parts = {"battery": "K5", "screen": "K7", "files": "K9", "water": "K2"}
    tasks = [
        {"id": f"h{n}{w}", "input": f"Case {n}, the {w}.", "target": t} for n in range(3) for w, t in parts.items()
    ]
    write_lines(shell / "held.jsonl", tasks)
    return shell, shell.json(f"{COMPARE} --methods none,episodes,ace --out cmp")


COMPARE = f"compare train.jsonl --test held.jsonl {HOW} --model scripted:script.jsonl --seeds 3"


@pytest.fixture
def compared(_compared: tuple[Shell, dict[str, Any]]) -> tuple[Shell, dict[str, Any]]:
    return _compared


@pytest.fixture
def shell(_compared: tuple[Shell, Any], tmp_path: Path) -> Shell:
    shutil.copytree(_compared[0].folder, tmp_path, dirs_exist_ok=True)
    return Shell(tmp_path)


def test_each_method_with_each_seed_is_one_ordinary_run(compared: tuple[Shell, dict[str, Any]]) -> None:
    shell, value = compared
    assert value["runs"] == {"planned": 9, "done": 9}
    assert {path.name for path in (shell / "cmp" / "runs").iterdir()} == {
        f"{method}-{seed}" for method in ("none", "episodes", "ace") for seed in range(3)
    }
    assert shell.json("show cmp/runs/ace-1")["scores"]["test"] == 1.0
    assert shell("export cmp/runs/ace-1").out
    assert len(shell.json("space diff cmp/runs/none-0 cmp/runs/ace-0")["added"]) == 3


def test_the_report_is_one_html_file_markdown_and_json(compared: tuple[Shell, dict[str, Any]]) -> None:
    shell, value = compared
    report = json.loads((shell / "cmp" / "report.json").read_text(encoding="utf-8"))
    assert report == {key: value[key] for key in report}
    page = (shell / "cmp" / "report.html").read_text(encoding="utf-8")
    assert 'src="http' not in page
    assert "episodes" in page
    assert "ace" in (shell / "cmp" / "report.md").read_text(encoding="utf-8")


def test_scores_are_means_over_tasks_and_seeds_with_intervals(compared: tuple[Shell, dict[str, Any]]) -> None:
    variants = {variant["name"]: variant for variant in compared[1]["variants"]}
    assert {name: v["score"] for name, v in variants.items()} == {"none": 0.25, "episodes": 0.25, "ace": 1.0}
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
    assert "better" in rows["ace"]["claim"]
    assert (rows["episodes"]["verdict"], rows["episodes"]["effect"]) == ("unclear", 0)
    assert rows["episodes"]["p_holm"] > 0.05


def test_with_one_seed_only_these_runs_are_compared(shell: Shell) -> None:
    value = shell.json(COMPARE.replace("--seeds 3", "--seeds 1"), "--methods", "none,ace", "--out", "one")
    row = value["tables"][0]["rows"][1]
    assert (row["verdict"], row["about"]) == ("runs higher", "these runs")
    assert any("seeds" in warning for warning in value["warnings"])


@pytest.mark.slow
def test_with_fewer_than_ten_tasks_nothing_is_claimed(shell: Shell) -> None:
    value = shell.json(COMPARE.replace("held.jsonl", "test.jsonl"), "--methods", "none,ace", "--out", "few")
    assert value["tables"][0]["rows"][1]["verdict"] == "unclear"
    assert any("fewer than 10" in warning for warning in value["warnings"])


def test_the_same_command_continues_and_pays_for_nothing_twice(shell: Shell, model: Model) -> None:
    model.answer = by_script(SCRIPT)
    command = COMPARE.replace("scripted:script.jsonl", model.name).replace("--seeds 3", "--seeds 2")
    first = shell.json(command, "--methods", "none,ace", "--out", "two")
    paid = len(model.bodies)
    assert paid == sum(v["calls"] * len(v["by_seed"]) for v in first["variants"])
    again = shell.json(command, "--methods", "none,ace", "--out", "two")
    assert len(model.bodies) == paid
    assert again["variants"] == first["variants"]
    more = shell.json(command, "--methods", "none,ace,episodes", "--out", "two")  # methods can be added
    assert more["runs"]["done"] == 6
    assert len(model.bodies) == paid + 2 * 12
    shell.fails(command, "--methods", "none,ace", "--out", "two", "--set", "ace.rounds=0", error="comparison.mismatch")
    shell.fails(command.replace("train.jsonl", "held.jsonl"), "--methods", "none,ace", "--out", "two")


@pytest.mark.slow
def test_a_comparison_that_was_interrupted_continues(shell: Shell, model: Model) -> None:
    shell.file(
        "stopping_here.py",
        "import signal\ncalls = []\n\nasync def agent(text, context):\n    calls.append(text)\n"
        "    if len(calls) == 5:\n        signal.raise_signal(signal.SIGINT)\n    return 'K2'\n",
    )
    command = (
        f"compare train.jsonl --test held.jsonl {HOW} --methods none,episodes --seeds 2 --agent stopping_here:agent"
    )
    done = shell(f"{command} --runs-at-once 1 --out cut --json", code=130)
    assert json.loads(done.out)["runs"]["done"] < 4
    value = shell.json(f"{command} --runs-at-once 1 --out cut")
    assert value["runs"] == {"planned": 4, "done": 4}


def test_a_run_that_failed_is_reported_and_the_others_continue(shell: Shell) -> None:
    write_lines(shell / "broken.jsonl", [{"role": "reflector", "error": "404"}, *map(json.loads, SCRIPT.splitlines())])
    command = COMPARE.replace("script.jsonl", "broken.jsonl").replace("--seeds 3", "--seeds 1")
    value = shell.json(command, "--methods", "none,ace", "--out", "failing", code=1)
    variants = {variant["name"]: variant for variant in value["variants"]}
    assert (variants["none"]["score"], variants["ace"]["score"]) == (0.25, None)
    assert variants["ace"]["failed"]
    assert value["runs"] == {"planned": 2, "done": 1}


@pytest.mark.slow
def test_a_method_is_compared_with_itself_by_names_and_settings(shell: Shell) -> None:
    command = COMPARE.replace("--seeds 3", "--seeds 1") + " --methods zero=ace,one=ace --baseline one --out named"
    value = shell.json(command, "--set", "zero.rounds=0", "--set", "one.rounds=1")
    assert {v["name"]: v["settings"].get("rounds") for v in value["variants"]} == {"zero": "0", "one": "1"}
    assert value["tables"][0]["baseline"] == "one"


@pytest.mark.slow
def test_a_sweep_compares_values_of_one_setting(shell: Shell) -> None:
    value = shell.json(
        COMPARE.replace("--seeds 3", "--seeds 1"), "--methods", "episodes", "--sweep", "k=1,3", "--out", "swept"
    )
    assert [v["settings"]["k"] for v in value["variants"]] == ["1", "3"]
    assert value["tables"][0]["baseline"] == value["variants"][0]["name"]


@pytest.mark.slow
def test_every_method_starts_from_the_same_playbook_and_none_shows_it(shell: Shell) -> None:
    shell.file("own.md", "## strategies\n- If it is about screen, answer K7.\n")
    value = shell.json(COMPARE.replace("--seeds 3", "--seeds 1"), "--methods", "none,ace", "--seed-playbook", "own.md",
                       "--out", "seeded")  # fmt: skip
    assert {v["name"]: v["score"] for v in value["variants"]} == {"none": 0.5, "ace": 1.0}


@pytest.mark.slow
def test_a_stream_is_scored_by_what_was_predicted(shell: Shell) -> None:
    value = shell.json(
        f"compare train.jsonl --online {HOW} --model scripted:script.jsonl --seeds 1 --methods none,ace --out s"
    )
    assert value["online"]
    assert {v["n"] for v in value["variants"]} == {8}


def test_each_run_has_the_same_budget_and_is_scored_with_its_best_context(shell: Shell) -> None:
    value = shell.json(
        COMPARE.replace("--seeds 3", "--seeds 1"), "--methods", "none,ace", "--budget-calls", 20, "--out", "b"
    )
    variants = {variant["name"]: variant for variant in value["variants"]}
    assert value["max_calls"] == 20
    assert variants["ace"]["calls"] <= 20
    assert variants["ace"]["stopped"]
    assert variants["ace"]["score"] is not None


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ("--methods none,magic", "method.unknown"),
        ("--methods none,ace --set speed=3", "settings.unused"),
        ("--methods none,icl --no-labels", "method.unsuitable"),
        ("--methods none,ace --test train.jsonl", "tasks.overlap"),
        ("--methods none,ace --budget-calls 9 --budget-tokens 9", "settings.conflict"),
        ("--methods none,ace --budget-calls 3", "budget.too_small"),
        ("--methods none,ace --role critic=local", "role.unknown"),
        ("--methods none,ace --sweep k=1", "settings.invalid"),
        ("--methods none", "settings.missing"),
        ("--methods none,ace --model openai:gpt-4.1-mini", "model.no_key"),
    ],
)
def test_what_cannot_be_compared_is_refused_before_anything_is_paid_for(
    shell: Shell, model: Model, monkeypatch: pytest.MonkeyPatch, options: str, error: str
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    given = "" if "--model" in options else f"--model {model.name}"
    test = "" if "--test" in options else "--test held.jsonl"
    shell.fails(f"compare train.jsonl {test} {HOW} {given} {options} --out refused", error=error)
    assert model.bodies == []
    assert not (shell / "refused").exists()


def test_a_score_needs_held_out_tasks_or_a_stream(shell: Shell, model: Model) -> None:
    shell.fails(f"compare train.jsonl --val held.jsonl --model {model.name} --methods none,ace --out refused")
    assert model.bodies == []
