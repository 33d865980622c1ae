"""The laws of the journal at the command line: kills, stops, budgets, resume, forgetting, copies."""

from __future__ import annotations

import json
import shlex
import signal
from pathlib import Path
from typing import Any

import pytest

from .conftest import FIRST
from .kit import (
    Done,
    Model,
    Shell,
    all_bytes,
    by_script,
    interrupts,
    new_workshop,
    started,
    workshop_files,
    write_lines,
)

SCRIPT = workshop_files()["script.jsonl"]


CALLS = 43
"""The calls of the undisturbed run, which is `runs/first`."""


def learning(model: Model, *more: object) -> list[str]:
    """The quickstart's run on the model server as `run`, one call at a time."""
    typed = FIRST.replace("scripted:script.jsonl", model.name).replace("runs/first", "run")
    return [*shlex.split(typed), "--concurrency", "1", *map(str, more)]


def exported(shell: Shell, run: str) -> str:
    return shell(f"export {run} --format json").out


@pytest.fixture
def scripted(model: Model) -> Model:
    """The model server, which answers by the script."""
    model.answer = by_script(SCRIPT)
    return model


@pytest.mark.slow
@pytest.mark.parametrize("at", [2, 20, 43])
def test_after_a_kill_resume_pays_nothing_twice_and_comes_to_the_same_bytes(
    shell: Shell, scripted: Model, at: int
) -> None:
    with started(shell.folder, *learning(scripted)) as process:
        scripted.before = interrupts(process.process.pid, at, signal.SIGKILL)
        assert process.end().code == -signal.SIGKILL
    scripted.before = lambda n: None
    assert len(scripted.bodies) == at
    value = shell.json("space resume run")
    assert exported(shell, "run") == exported(shell, "runs/first")
    assert value["scores"] == {"before": 0.25, "test": 1.0}
    assert len(scripted.bodies) == CALLS + 1
    assert scripted.texts[at] == scripted.texts[at - 1]  # the call in flight is made again
    assert value["usage"]["calls"] == CALLS + 1  # and counts as paid for
    assert value["journal"]["hits"] == at - 1


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_stops_a_process_and_the_answer_of_the_call_in_flight_is_stored(
    shell: Shell, scripted: Model, number: int, code: int
) -> None:
    with started(shell.folder, *learning(scripted), "--json") as process:
        scripted.before = interrupts(process.process.pid, 20, number)
        done = process.end()
    scripted.before = lambda n: None
    assert done.code == code
    assert done.json["stopped"]
    assert "practicum space resume run" in done.err
    assert shell.json("show run")["state"] == "stopped"
    shell.json("space resume run")
    assert len(scripted.bodies) == CALLS
    assert exported(shell, "run") == exported(shell, "runs/first")


@pytest.mark.parametrize(("number", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_stopped_run_is_resumed_to_its_end(shell: Shell, number: str, code: int) -> None:
    name = f"stopping_{number.lower()}"
    shell.file(
        f"{name}.py",
        "import signal\ncalls = []\n\nasync def agent(text, context):\n    calls.append(text)\n"
        f"    if len(calls) == 3:\n        signal.raise_signal(signal.{number})\n    return 'K2'\n",
    )
    learn = f"learn test.jsonl --method episodes --agent {name}:agent --concurrency 1 --batch-size 1 --out run"
    value = shell.json(learn, code=code)
    assert value["stopped"]
    assert 0 < value["version"] < 4
    assert shell.json("show run")["state"] == "stopped"
    assert "stopped" not in shell.json("space resume run")
    assert len(shell.json("show run --attempts")["attempts"]) == 4


def test_concurrent_calls_come_to_the_same_bytes(shell: Shell, scripted: Model) -> None:
    shell("", *learning(scripted)[:-1], 8)
    assert exported(shell, "run") == exported(shell, "runs/first")


def test_equal_seeds_are_equal_runs(shell: Shell) -> None:
    orders = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        how = "--method episodes --choices auto --model scripted:script.jsonl --batch-size 8"
        shell(f"learn train.jsonl {how} --out {name} --seed {seed}")
        orders.append([a["task"] for a in shell.json(f"show {name} --attempts")["attempts"]])
    assert orders[0] == orders[1] != orders[2]


@pytest.fixture(scope="module")
def _stopped(_workshop: tuple[Shell, Any, Any], tmp_path_factory: pytest.TempPathFactory) -> tuple[Shell, Done]:
    shell = _workshop[0].copied(tmp_path_factory.mktemp("stopped"))
    return shell, shell(FIRST.replace("runs/first", "run"), "--max-calls", 20, "--json")


@pytest.fixture
def stopped(_stopped: tuple[Shell, Done], tmp_path: Path) -> tuple[Shell, Done]:
    """The quickstart's run as `run`, which its budget of 20 calls stopped, and its output."""
    return _stopped[0].copied(tmp_path), _stopped[1]


def test_a_spent_budget_stops_new_calls_and_a_larger_one_comes_to_the_same_bytes(stopped: tuple[Shell, Done]) -> None:
    """The entries are stored and scored. A run may be stopped again, and copied before it is resumed."""
    shell, done = stopped
    value = done.json
    assert value["stopped"]
    assert (value["version"], value["usage"]["calls"]) == (4, 20)
    assert value["scores"] == {"before": 0.25, "test": 0.75}
    assert "practicum space resume run --max-calls" in done.err
    assert shell.json("show run")["state"] == "stopped"
    assert shell.json("store copy run copy")["rows"]
    shell.fails("space resume run", error="budget.spent")
    shell.fails("space resume run --max-calls 20")
    shell.fails("space resume run --max-calls 8")
    assert shell.json("space resume run --max-calls 25")["stopped"]
    resumed = shell.json("space resume run --max-calls 500")
    assert "stopped" not in resumed
    assert (resumed["version"], resumed["usage"]["calls"]) == (11, CALLS + 4)  # version 4 was tested, too
    assert resumed["scores"] == {"before": 0.25, "test": 1.0}
    assert resumed["journal"]["hits"] == 25 - 4 - 4  # except the tests of earlier versions
    shell.fails("space resume run", error="run.finished")
    shell("space resume copy --max-calls 500")
    assert exported(shell, "run") == exported(shell, "copy") == exported(shell, "runs/first")


@pytest.mark.slow
def test_a_run_continues_without_the_forgotten_task(stopped: tuple[Shell, Done]) -> None:
    shell, _ = stopped
    shell("space forget run --task r7 --yes --no-copy")
    assert not (shell / "run-before-forget").exists()
    shell("space resume run --max-calls 500")
    assert b"Half of the screen stays black" not in all_bytes(shell / "run")


def test_a_budget_in_dollars_is_hard_and_counts_the_price(shell: Shell, scripted: Model) -> None:
    how = f"--choices auto --model {scripted.name} --max-output-tokens 200 --price in=1,cached=0.5,out=2"
    result = shell.json(f"learn train.jsonl --test test.jsonl {how} --max-usd 0.006 --out run")
    usage = result["usage"]
    fresh = usage["input_tokens"] - usage["cached_tokens"]
    cost = (fresh * 1 + usage["cached_tokens"] * 0.5 + usage["output_tokens"] * 2) / 1e6
    assert usage["usd"] == pytest.approx(cost)
    assert result["stopped"]
    assert 0 < usage["usd"] <= 0.006
    assert len(scripted.bodies) == usage["calls"]
    assert "test" in result["scores"]  # the share of the final evaluation was reserved


def test_time_is_a_budget(shell: Shell) -> None:
    how = "--method none --choices auto --model scripted:script.jsonl"
    value = shell.json(f"learn train.jsonl --test test.jsonl {how} --out run --max-minutes 0.000001")
    assert "stopped" in value
    assert value["scores"] == {}
    assert shell.json("space resume run --max-minutes 60")["scores"] == {"test": 0.25}


def test_an_insufficient_budget_is_refused_before_the_first_call(shell: Shell, model: Model) -> None:
    for options, error in {
        "--max-calls 3 --test test.jsonl": "budget.too_small", "--max-calls 1": "budget.too_small",
        "--max-tokens 10": "budget.too_small", "--max-usd 1": "price.unknown", "--max-calls 0": "command.invalid",
        "--max-usd -1": "settings.invalid",
    }.items():  # fmt: skip
        shell.fails(f"learn train.jsonl --model {model.name} {options} --out run", error=error)
    assert model.bodies == []
    assert not (shell / "run").exists()


def test_an_evaluation_with_a_spent_budget_reports_its_results(shell: Shell, model: Model) -> None:
    value = shell(f"eval train.jsonl --model {model.name} --max-calls 5 --json", code=2).json
    assert (value["n"], value["usage"]["calls"], len(model.bodies)) == (5, 5, 5)


def test_a_failed_command_without_a_paid_call_is_repeated_with_the_same_out(shell: Shell) -> None:
    learn = "learn test.jsonl --steps 1 --out run --model"
    for error in ("401", "404"):
        write_lines(shell / "wrong.jsonl", [{"error": error}])
        shell.fails(f"{learn} scripted:wrong.jsonl", code=1)
    assert shell.json(f"{learn} scripted:script.jsonl")["run"] == "run"
    shell.fails(f"{learn} scripted:script.jsonl", error="run.exists", code=1)


def test_resume_corrects_settings_without_effect_on_stored_results(shell: Shell) -> None:
    write_lines(shell / "wrong.jsonl", [{"role": "reflector", "error": "404"}, *map(json.loads, SCRIPT.splitlines())])
    shell.fails("learn train.jsonl --steps 3 --choices auto --model scripted:wrong.jsonl --out run", code=1)
    for fixed in ("--model scripted:script.jsonl", "--agent os.path:join", "--temperature 1"):
        shell.fails(f"space resume run {fixed}", error="settings.fixed")
    right = "--role reflector=scripted:script.jsonl --structure tool --retries 1 --timeout 9"
    value = shell.json(f"space resume run {right}")
    assert value["journal"]["hits"] >= 1
    assert value["version"] > 0


SECRET = "the heron sleeps at noon"


@pytest.fixture(scope="module")
def _taught(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    shell = new_workshop(tmp_path_factory.mktemp("taught"))
    task = {"id": "s1", "input": f"Remember that {SECRET}, about water.", "target": "K2", "meta": {"tags": ["birds"]}}
    write_lines(shell / "mixed.jsonl", [task, *map(json.loads, (shell / "train.jsonl").read_text().splitlines())])
    how = "--method episodes --choices auto --model scripted:script.jsonl --test test.jsonl"
    shell(f"learn mixed.jsonl {how} --out run")
    assert any(SECRET in text for text in shell.texts("run"))
    return shell


@pytest.fixture
def taught(_taught: Shell, tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """A run that learned a secret from one task, and other things from others."""
    return _taught.copied(tmp_path_factory.mktemp("forgetting"))


def assert_forgotten(shell: Shell) -> None:
    """The secret is in no output, and in no byte of the folder."""
    for typed in ("show run", "show run --attempts", "show run --calls", "export run --format json",
                  "space memory list run --section all", "show run --lessons"):  # fmt: skip
        assert SECRET not in shell(typed).out
    assert SECRET.encode() not in all_bytes(shell / "run")


def test_forgotten_text_is_in_no_later_output_and_no_byte_on_the_disk_but_of_a_copy(taught: Shell) -> None:
    before = len(taught.texts("run"))
    for named in ("", "--task t99", "--entry e99", "--user ann", "--user ann --task s1", "--space x --task s1"):
        taught.fails(f"space forget run {named} --yes")
    taught.fails("space forget run --task s1")  # it needs a confirmation
    assert any(SECRET in text for text in taught.texts("run"))
    value = taught.json("space forget run --task s1 --yes")
    assert (len(value["removed"]), value["left"]) == (1, 0)
    assert_forgotten(taught)
    assert len(taught.texts("run")) == before - 1
    assert any(SECRET in text for text in taught.texts("run-before-forget"))
    taught.fails("space forget run --task s1 --yes", error="source.unknown")
    taught("space forget run --task r2 --yes")
    assert (taught / "run-before-forget-2").is_dir()


@pytest.mark.slow
@pytest.mark.parametrize("named", ["--tag birds", "--source task:s1", "--entry ID"])
def test_forget_takes_a_tag_a_source_or_an_entry(taught: Shell, named: str) -> None:
    (id,) = (entry["id"] for entry in taught.json("show run")["entries"] if SECRET in entry["text"])
    assert taught.json(f"space forget run {named.replace('ID', id)} --yes --no-copy")["left"] == 0
    assert not any(SECRET in text for text in taught.texts("run"))
    if "--entry" not in named:
        assert_forgotten(taught)
        taught("view run --output site")
        assert not any(SECRET in p.read_text(encoding="utf-8") for p in (taught / "site").rglob("*.html"))


@pytest.mark.slow
def test_entries_from_foreign_sources_are_forgotten_by_their_trust(shell: Shell) -> None:
    learn = "learn --from-traces logs.jsonl --trust-scores --review none --choices K2,K5,K7,K9"
    assert len(shell.json(f"{learn} --model scripted:script.jsonl --out run")["entries"]) == 3
    value = shell.json("space forget run --source trust:foreign --yes --no-copy")
    assert (len(value["removed"]), value["left"], shell.texts("run")) == (3, 0, [])
    assert b"The battery of my laptop" not in all_bytes(shell / "run")


CHEATSHEET = "--method dynamic_cheatsheet --batch-size 4 --model MODEL"
COMBEE = "--method combee --batch-size 8 --choices auto --model scripted:script.jsonl"


@pytest.mark.parametrize(
    ("how", "rest"), [(COMBEE, "restored"), pytest.param(CHEATSHEET, "mixed_origin", marks=pytest.mark.slow)]
)
def test_entries_with_several_sources_are_removed_unless_keep_mixed(
    shell: Shell, model: Model, how: str, rest: str
) -> None:
    """A cheatsheet is one entry from all tasks; a merged rule is split into its parts."""
    shell(f"learn train.jsonl {how.replace('MODEL', model.name)} --out run")
    entries = {e["id"]: e for e in shell.json("show run")["entries"]}
    mixed = next(e for e in entries.values() if len([s for s in e["sources"] if s[:5] == "task:"]) > 1)
    (task, *_) = (source for source in mixed["sources"] if source.startswith("task:"))
    shell.copy("run", "copy")
    value = shell.json(f"space forget copy --source {task} --keep-mixed --yes --no-copy")
    assert value[rest]
    left = {e["id"]: e for e in shell.json("show copy")["entries"]}
    assert not any(task in e["sources"] for e in left.values())
    assert {e["id"] for e in value[rest]} <= left.keys()
    assert mixed["text"] in [e["text"] for e in left.values()]
    removed = shell.json(f"space forget run --source {task} --yes --no-copy")["removed"]
    assert mixed["id"] in [e["id"] for e in removed]
    assert mixed["id"] not in [e["id"] for e in shell.json("show run")["entries"]]


def test_text_with_distinctive_words_of_the_task_is_reported_and_with_alike_removed(shell: Shell) -> None:
    """A model copied words of a task into its lessons about others."""
    shell.copy("runs/first", "runs/other")
    value = shell.json("space forget runs/first --task r7 --yes --no-copy")
    assert [e["text"] for e in value["removed"]] == ["If it is about screen, answer K7."]
    assert sum(value["alike"]["rows"].values()) + len(value["alike"]["entries"]) > 0
    assert value["left"] == 0
    assert b"Half of the screen stays black" not in all_bytes(shell / "runs/first")
    with_text = shell.json("space forget runs/other --task r7 --alike --yes --no-copy")
    assert with_text["alike"] == {"entries": [], "rows": {}}
    assert with_text["rows"] > value["rows"]


def test_a_folder_without_a_run_is_refused_in_one_line_and_stays_empty(shell: Shell) -> None:
    (shell / "empty").mkdir()
    for typed in ("show FOLDER", "space resume FOLDER", "space forget FOLDER --task x --yes", "review FOLDER",
                  "space memory add FOLDER mine.jsonl", "store copy FOLDER new", "view FOLDER --output new",
                  "run x --context FOLDER", "space import FOLDER --out new"):  # fmt: skip
        done = shell(typed.replace("FOLDER", "empty"), code=2)
        assert (len(done.err.splitlines()), done.out) == (1, ""), typed
    assert [*(shell / "empty").iterdir()] == []
    assert not (shell / "new").exists()
