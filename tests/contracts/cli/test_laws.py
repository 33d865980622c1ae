"""The laws of the journal at the command line: kills, interruptions, budgets, resume, forgetting, rollback, copies."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from typing import Any

import pytest

from .conftest import FIRST
from .kit import Model, Shell, all_bytes, by_script, interrupts, started, workshop_files, write_lines

SCRIPT = workshop_files()["script.jsonl"]


def learning(model: Model, out: str = "run", *more: object) -> list[str]:
    """The quickstart's run, on the model server, one call at a time."""
    words = FIRST.replace("scripted:script.jsonl", model.name).partition("--instructions")[0].split()
    return [*words, "--out", out, "--concurrency", "1", *map(str, more)]


@pytest.fixture
def whole(shell: Shell, model: Model) -> tuple[str, int, Counter[str]]:
    """The undisturbed run: its export, how many calls it made, and what each asked."""
    model.answer = by_script(SCRIPT)
    value = shell.json("", *learning(model, "whole"))
    assert value["scores"] == {"before": 0.25, "test": 1.0}
    asked = Counter(model.texts)
    calls = len(model.bodies)
    assert value["usage"]["calls"] == calls
    model.bodies.clear()
    return shell("export whole --format json").out, calls, asked


def killed(shell: Shell, model: Model, at: int, number: int, *more: object) -> int:
    """Start the run in a process, and send it a signal when its n-th request arrives. Returns its exit code."""
    with started(shell.folder, *learning(model, "run", *more)) as process:
        model.before = interrupts(process.process.pid, at, number)
        code = process.end().code
    model.before = lambda n: None
    return code


@pytest.mark.parametrize("at", [20, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2, 6, 7, 33, 40, 43))])
def test_after_a_kill_resume_pays_nothing_twice_and_comes_to_the_same_bytes(
    shell: Shell, model: Model, whole: tuple[str, int, Counter[str]], at: int
) -> None:
    export, calls, asked = whole
    model.answer = by_script(SCRIPT)
    assert killed(shell, model, at, signal.SIGKILL) == -signal.SIGKILL
    assert len(model.bodies) == at
    value = shell.json("space resume run")
    assert shell("export run --format json").out == export
    assert value["scores"] == {"before": 0.25, "test": 1.0}
    assert len(model.bodies) == calls + 1  # the call in flight is made again
    twice = Counter(model.texts) - asked
    assert [*twice.values()] == [1]
    assert value["usage"]["calls"] == len(model.bodies)  # what was in flight at the kill is counted as paid for
    assert value["journal"]["hits"] == at - 1


def test_a_run_that_is_stopped_again_and_again_comes_to_the_same_bytes(shell: Shell, model: Model) -> None:
    model.answer = by_script(SCRIPT)
    learn = f"learn train.jsonl --epochs 2 --choices auto --concurrency 1 --model {model.name} --out"
    shell(f"{learn} whole")
    asked = Counter(model.texts)
    model.bodies.clear()
    shell(f"{learn} run --max-calls 7")
    for limit in range(10, sum(asked.values()), 3):
        shell(f"space resume run --max-calls {limit}")
    shell("space resume run --max-calls 500")
    assert shell("export run --format json").out == shell("export whole --format json").out
    assert Counter(model.texts) == asked


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGINT, 130),
        *(pytest.param(*c, marks=pytest.mark.slow) for c in ((signal.SIGTERM, 143), (signal.SIGHUP, 129))),
    ],
)
def test_a_stop_keeps_what_was_paid_for_and_says_how_to_go_on(
    shell: Shell, model: Model, whole: tuple[str, int, Counter[str]], number: int, code: int
) -> None:
    """Also the answer of the call in flight is kept."""
    export, calls, _ = whole
    model.answer = by_script(SCRIPT)
    with started(shell.folder, *learning(model, "run"), "--json") as process:
        model.before = interrupts(process.process.pid, 20, number)
        done = process.end()
    model.before = lambda n: None
    assert done.code == code
    assert done.json["stopped"]
    assert "practicum space resume run" in done.err
    assert shell.json("show run")["state"] == "stopped"
    shell.json("space resume run")
    assert len(model.bodies) == calls
    assert shell("export run --format json").out == export


def test_any_number_of_calls_at_once_comes_to_the_same_bytes(
    shell: Shell, model: Model, whole: tuple[str, int, Counter[str]]
) -> None:
    model.answer = by_script(SCRIPT)
    shell("", *learning(model, "run")[:-1], 8)
    assert shell("export run --format json").out == whole[0]


def test_equal_runs_of_another_seed_learn_in_another_order(shell: Shell) -> None:
    """--seed is the seed of every random choice: equal seeds are equal runs."""
    orders = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        shell(FIRST.replace("runs/first", name), "--seed", seed)
        orders.append([a["task"] for a in shell.json(f"show {name} --attempts --split train")["attempts"]])
    assert orders[0] == orders[1] != orders[2]


def test_a_copied_run_resumes_as_the_original(shell: Shell) -> None:
    shell(FIRST.replace("runs/first", "run"), "--max-calls", 20)
    assert shell.json("store copy run copy")["rows"]
    shell("space resume run --max-calls 500")
    shell("space resume copy --max-calls 500")
    assert shell("export run --format json").out == shell("export copy --format json").out
    assert shell("export run --format json").out == shell("export runs/first --format json").out


# ---- budgets


def test_a_spent_budget_stops_new_calls_and_what_was_learned_is_kept_and_scored(shell: Shell) -> None:
    told = shell(FIRST.replace("runs/first", "run").replace("--before", ""), "--max-calls", 20, "--json")
    value = told.json
    assert value["stopped"]
    assert (value["version"], value["usage"]["calls"], value["scores"]["test"]) == (5, 20, 1.0)
    assert "practicum space resume run --max-calls N" in told.err
    assert shell.json("show run")["state"] == "stopped"
    shell.fails("space resume run", error="budget.spent")
    shell.fails("space resume run --max-calls 20")
    shell.fails("space resume run --max-calls 8")
    again = shell.json("space resume run --max-calls 100")
    assert "stopped" not in again
    assert (again["version"], again["scores"]["test"], again["usage"]["calls"]) == (11, 1.0, 39)
    assert again["journal"]["hits"] == 20


@pytest.mark.parametrize(("limit", "value"), [("--max-tokens", 20_000), ("--max-calls", 25), ("--max-usd", 0.05)])
def test_budgets_are_hard(shell: Shell, model: Model, limit: str, value: float) -> None:
    model.answer = by_script(SCRIPT)
    price = ("--price", "in=1,out=2") if limit == "--max-usd" else ()
    told = shell.json("", *learning(model, "run", limit, value, *price))
    usage = told["usage"]
    spent = {"--max-tokens": usage["input_tokens"] + usage["output_tokens"], "--max-calls": usage["calls"],
             "--max-usd": usage["usd"]}[limit]  # fmt: skip
    assert told["stopped"]
    assert 0 < spent <= value
    assert len(model.bodies) == usage["calls"]
    assert "test" in told["scores"]  # the share of the final evaluation was reserved


def test_time_is_a_budget_too(shell: Shell) -> None:
    value = shell.json(FIRST.replace("runs/first", "run"), "--max-minutes", 0.000001)
    assert "stopped" in value
    assert value["scores"] == {}
    assert shell.json("space resume run --max-minutes 60")["scores"] == {"before": 0.25, "test": 1.0}


def test_a_budget_that_ends_in_the_evaluation_before_learning_stops_the_run(shell: Shell) -> None:
    value = shell.json(FIRST.replace("runs/first", "run"), "--max-calls", 7)
    assert (value["scores"], value["usage"]["calls"]) == ({}, 3)
    assert shell.json("space resume run --max-calls 500")["scores"] == {"before": 0.25, "test": 1.0}


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ("--max-calls 3 --test test.jsonl", "budget.too_small"),
        ("--max-calls 1", "budget.too_small"),
        ("--max-tokens 10", "budget.too_small"),
        ("--max-usd 1", "price.unknown"),
        ("--max-calls 0", "command.invalid"),
        ("--max-usd -1", "settings.invalid"),
    ],
)
def test_a_budget_that_cannot_do_is_refused_before_anything_is_paid_for(
    shell: Shell, model: Model, options: str, error: str
) -> None:
    shell.fails(f"learn train.jsonl --model {model.name} {options} --out run", error=error)
    assert model.bodies == []
    assert not (shell / "run").exists()


def test_a_price_is_stored_with_the_run_and_counts(shell: Shell, model: Model) -> None:
    model.answer = by_script(SCRIPT)
    value = shell.json("", *learning(model, "run", "--price", "in=1,cached=0.5,out=2"))
    usage = value["usage"]
    fresh = usage["input_tokens"] - usage["cached_tokens"]
    cost = (fresh * 1 + usage["cached_tokens"] * 0.5 + usage["output_tokens"] * 2) / 1e6
    assert usage["usd"] == pytest.approx(cost)


def test_an_evaluation_whose_budget_is_spent_reports_what_was_done(shell: Shell, model: Model) -> None:
    done = shell(f"eval train.jsonl --model {model.name} --max-calls 5 --json", code=2)
    value = json.loads(done.out)
    assert (value["n"], value["usage"]["calls"], len(model.bodies)) == (5, 5, 5)


# ---- corrections of a run that was stopped


def test_a_wrong_command_that_paid_nothing_is_given_again_with_the_same_out(shell: Shell, model: Model) -> None:
    write_lines(shell / "wrong.jsonl", [{"error": "401"}])
    learn = "learn train.jsonl --choices auto --out run --model"
    shell.fails(f"{learn} scripted:wrong.jsonl", code=1)
    assert shell.json(f"{learn} scripted:script.jsonl")["version"] > 0
    shell.fails(f"{learn} scripted:script.jsonl", error="run.exists", code=1)


def test_resume_corrects_what_nothing_depends_on_that_is_kept(shell: Shell, model: Model) -> None:
    write_lines(shell / "wrong.jsonl", [{"role": "reflector", "error": "404"}, *map(json.loads, SCRIPT.splitlines())])
    shell.fails("learn train.jsonl --choices auto --model scripted:wrong.jsonl --out run", code=1)
    for fixed in ("--model scripted:script.jsonl", "--agent os.path:join", "--temperature 1"):
        shell.fails(f"space resume run {fixed}", error="settings.fixed")
    value = shell.json(
        "space resume run --role reflector=scripted:script.jsonl --structure tool --retries 1 --timeout 9"
    )
    assert value["journal"]["hits"] >= 1
    assert value["version"] > 0


def test_a_finished_run_is_not_resumed(shell: Shell) -> None:
    shell.fails("space resume runs/first", error="run.finished")


# ---- forgetting

SECRET = "the heron sleeps at noon"


@pytest.fixture
def taught(shell: Shell) -> Shell:
    """A run that learned a secret from one task, and other things from others."""
    tasks: list[dict[str, Any]] = [
        {"id": "s1", "input": f"Remember that {SECRET}, about water.", "target": "K2", "meta": {"tags": ["birds"]}},
        *(json.loads(line) for line in (shell / "train.jsonl").read_text(encoding="utf-8").splitlines()),
    ]
    write_lines(shell / "mixed.jsonl", tasks)
    shell(
        "learn mixed.jsonl --method episodes --choices auto --model scripted:script.jsonl --test test.jsonl --out run"
    )
    assert any(SECRET in text for text in shell.texts("run"))
    return shell


def gone(shell: Shell, folder: str = "run") -> None:
    """The secret is in no output, and in no byte of the folder."""
    for typed in (f"show {folder}", f"show {folder} --attempts", f"show {folder} --calls", f"export {folder}",
                  f"export {folder} --format json", f"space memory list {folder} --section all",
                  f"show {folder} --lessons",
                  f"space monitor {folder}"):  # fmt: skip
        assert SECRET not in shell(typed).out
    assert SECRET.encode() not in all_bytes(shell / folder)
    shell(f"view {folder} --output site-{folder}")
    assert not any(SECRET in p.read_text(encoding="utf-8") for p in (shell / f"site-{folder}").rglob("*.html"))


@pytest.mark.parametrize(
    "named",
    ["--task s1", *(pytest.param(other, marks=pytest.mark.slow) for other in ("--tag birds", "--source task:s1"))],
)
def test_what_is_forgotten_is_in_no_later_output_and_no_byte_on_the_disk(taught: Shell, named: str) -> None:
    before = len(taught.texts("run"))
    value = taught.json(f"space forget run {named} --yes --no-copy")
    assert len(value["removed"]) == 1
    assert value["left"] == 0
    gone(taught)
    assert len(taught.texts("run")) == before - 1
    assert not (taught / "run-before-forget").exists()
    taught.fails(f"space forget run {named} --yes", error="source.unknown")


def test_an_entry_is_forgotten(taught: Shell) -> None:
    (id,) = (entry["id"] for entry in taught.json("show run")["entries"] if SECRET in entry["text"])
    assert taught.json(f"space forget run --entry {id} --yes --no-copy")["left"] == 0
    assert not any(SECRET in text for text in taught.texts("run"))


def test_forget_keeps_a_copy_unless_told_otherwise(taught: Shell) -> None:
    taught("space forget run --task s1 --yes")
    gone(taught)
    assert any(SECRET in text for text in taught.texts("run-before-forget"))
    taught("space forget run --task r1 --yes")
    assert (taught / "run-before-forget-2").is_dir()


def test_all_that_strangers_taught_is_forgotten_by_their_trust(shell: Shell) -> None:
    logs = (shell / "logs.jsonl").read_text(encoding="utf-8")
    shell.file("theirs.jsonl", logs.replace("The battery of my laptop", f"{SECRET.capitalize()}. My battery"))
    learn = "learn --from-traces theirs.jsonl --trust-scores --review none --choices K2,K5,K7,K9"
    assert len(shell.json(f"{learn} --model scripted:script.jsonl --out run")["entries"]) == 3
    value = shell.json("space forget run --source trust:foreign --yes --no-copy")
    assert (len(value["removed"]), value["left"]) == (3, 0)
    assert shell.texts("run") == []
    assert SECRET.capitalize().encode() not in all_bytes(shell / "run")


def test_entries_that_others_contributed_to_are_removed_too_unless_kept(shell: Shell, model: Model) -> None:
    """A cheatsheet is one entry that rests on all tasks; a rule merged of two rules comes apart."""
    shell(f"learn train.jsonl --method dynamic_cheatsheet --batch-size 4 --model {model.name} --out sheet")
    shell("learn train.jsonl --method combee --batch-size 8 --choices auto --model scripted:script.jsonl --out merged")
    for run, rest in (("sheet", "mixed_origin"), ("merged", "restored")):
        entries = {e["id"]: e for e in shell.json(f"show {run}")["entries"]}
        mixed = next(e for e in entries.values() if len([s for s in e["sources"] if s[:5] == "task:"]) > 1)
        (task, *_) = (source for source in mixed["sources"] if source.startswith("task:"))
        shell.copy(run, kept := f"{run}-kept")
        value = shell.json(f"space forget {kept} --source {task} --keep-mixed --yes")
        assert value[rest]
        left = {e["id"]: e for e in shell.json(f"show {kept}")["entries"]}
        assert not any(task in e["sources"] for e in left.values())
        assert {e["id"] for e in value[rest]} <= left.keys()
        assert mixed["text"] in [e["text"] for e in left.values()]
        assert mixed["id"] in [e["id"] for e in shell.json(f"space forget {run} --source {task} --yes")["removed"]]
        assert mixed["id"] not in [e["id"] for e in shell.json(f"show {run}")["entries"]]


def test_what_has_rare_words_of_it_is_reported_and_with_text_removed(shell: Shell) -> None:
    """A model copied words of a task into what it said about others."""
    shell.copy("runs/first", "runs/other")
    value = shell.json("space forget runs/first --task r7 --yes --no-copy")
    assert sum(value["alike"]["rows"].values()) + len(value["alike"]["entries"]) > 0
    assert value["left"] == 0
    with_text = shell.json("space forget runs/other --task r7 --alike --yes --no-copy")
    assert with_text["alike"] == {"entries": [], "rows": {}}
    assert with_text["rows"] > value["rows"]


@pytest.mark.parametrize("named", ["", "--task t99", "--entry e99", "--user ann", "--space x --task s1"])
def test_what_cannot_be_forgotten_is_one_line(taught: Shell, named: str) -> None:
    taught.fails(f"space forget run {named} --yes")
    assert any(SECRET in text for text in taught.texts("run"))


def test_a_forgotten_run_learns_on_without_what_was_forgotten(shell: Shell) -> None:
    shell(FIRST.replace("runs/first", "run"), "--max-calls", 20)
    shell("space forget run --task r7 --yes --no-copy")
    shell("space resume run --max-calls 500")
    assert b"Half of the screen stays black" not in all_bytes(shell / "run")


# ---- folders


@pytest.mark.parametrize(
    "typed",
    ["show FOLDER", "export FOLDER", "space resume FOLDER", "space rollback FOLDER 0 --yes",
     "space forget FOLDER --task x --yes",
     "review FOLDER", "space name FOLDER", "space memory list FOLDER", "space memory search FOLDER x",
     "space memory add FOLDER mine.jsonl",
     "space memory remove FOLDER e0", "space memory reembed FOLDER", "space edit FOLDER --file own.md",
     "space monitor FOLDER", "space pools FOLDER",
     "space dynamics FOLDER", "space diff FOLDER 0 1", "view FOLDER --output site", "store copy FOLDER copy",
     "eval test.jsonl --context FOLDER --model scripted:script.jsonl", "run x --context FOLDER",
     "learn test.jsonl --seed-playbook FOLDER --model scripted:script.jsonl --out new",
     "space import FOLDER --out new"],
)  # fmt: skip
@pytest.mark.parametrize("folder", ["empty", "nowhere"])
def test_a_folder_that_is_no_run_is_one_line(shell: Shell, typed: str, folder: str) -> None:
    (shell / "empty").mkdir()
    shell.file("own.md", "## rules\n- Be brief.\n")
    done = shell(typed.replace("FOLDER", folder), code=2)
    assert len(done.err.splitlines()) == 1
    assert done.line
    assert done.out == ""
    assert [*(shell / "empty").iterdir()] == []
    assert not (shell / "nowhere").exists()
    assert not (shell / "new").exists()


@pytest.mark.slow
def test_a_run_that_another_process_writes_is_not_written_by_a_second_one(shell: Shell, model: Model) -> None:
    ended = []

    def look(n: int) -> None:
        if n == 2:
            with started(shell.folder, "space", "rollback", "run", 0, "--yes", "--json") as process:
                ended.append(process.end())

    model.before = look
    shell(f"learn train.jsonl --concurrency 1 --model {model.name} --steps 2 --out run")
    (done,) = ended
    assert done.code == 1
    assert f"process {os.getpid()} " in done.line
    assert json.loads(done.out)["error"]["code"] == "store.busy"
