"""The commands: their output, their JSON, and every kind of bad input as one clear line."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import packages
import pytest
from helpers import Done, make_tasks, run_command, write_tasks

from practicum.cli.app import main
from practicum.core.errors import ModelError
from practicum.methods import GROUP, NAMES
from practicum.models import local
from practicum.store.database import Store
from practicum.testing import ServerProcess

LEARN_KEYS = {
    "run", "version", "entries", "context_tokens", "seconds", "scores", "usage", "by_role", "journal", "refused",
    "held", "errors",
}  # fmt: skip
USAGE_KEYS = {"calls", "input_tokens", "cached_tokens", "output_tokens", "usd"}
EVAL_KEYS = {"score", "ci95", "n", "errors", "counts", "measures", "usage", "by_role", "seconds", "attempts"}

RULE = r"If message \1, say \2."
REFLECTION = {
    "reasoning": "r", "kind": "k", "diagnosis": "d", "cause": "c", "correction": "c", "tags": [],
    "insight": RULE, "insights": [{"section": "rules", "text": RULE}],
}  # fmt: skip
"""In the forms of both profiles."""
SCRIPT = (
    {
        "role": "agent",
        "match": r"say (?P<word>word[0-4])\Z",
        "answer": {"reasoning": "", "used": [], "answer": r"\g<word>"},
    },
    {"role": "agent", "answer": {"reasoning": "", "used": [], "answer": "no idea"}},
    {"role": "reflector", "match": r"Task: Message (\d+): say (\w+)", "answer": REFLECTION},
    {
        "role": "curator",
        "answer": {"decisions": [{"lesson": 1, "op": "ADD"}], "changes": [{"op": "ADD", "insights": [1]}]},
    },
    {"role": "judge", "answer": {"reason": "as asked", "right": True}},
)


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A folder with tasks, held-out tasks and a scripted model."""
    write_tasks(tmp_path / "tasks.jsonl", make_tasks(8, tags="even"))
    write_tasks(tmp_path / "test.jsonl", make_tasks(4, 3))
    (tmp_path / "model").write_text("\n".join(map(json.dumps, SCRIPT)) + "\n", encoding="utf-8")
    return tmp_path


@pytest.fixture
def run(here: Path) -> Any:
    """Runs `practicum ARGUMENTS`, which must end with this exit code."""

    def go(*arguments: object, code: int = 0) -> Done:
        done = run_command([str(a) for a in arguments], here)
        assert done.code == code, done.out + done.err
        assert "Traceback" not in done.err
        return done

    return go


@pytest.fixture
def learned(run: Any, here: Path) -> Path:
    """A run that has learned eight rules."""
    run(
        "learn",
        "tasks.jsonl",
        "--model",
        "scripted:model",
        "--out",
        "run",
        "--set",
        "rounds=0",
        "--set",
        "dedupe=never",
    )
    return here / "run"


def test_learn_prints_one_json_object_with_these_keys(run: Any, here: Path) -> None:
    done = run(
        "learn", "tasks.jsonl", "--val", "test.jsonl", "--test", "test.jsonl", "--model", "scripted:model",
        "--batch-size", 4, "--epochs", 2, "--before", "--out", "run", "--json",
    )  # fmt: skip
    value = done.json
    assert set(value) == LEARN_KEYS
    assert set(value["scores"]) == {"before", "val_best", "test"}
    assert set(value["usage"]) == USAGE_KEYS
    assert set(value["by_role"]) == {"agent", "reflector", "curator"}
    assert all(set(usage) == USAGE_KEYS for usage in value["by_role"].values())
    assert set(value["journal"]) == {"hits"}
    assert done.out.count("\n") == 1
    assert "test score" in done.err


def test_online_learning_has_a_score(run: Any) -> None:
    value = run("learn", "tasks.jsonl", "--online", "--model", "scripted:model", "--out", "run", "--json").json
    assert value["scores"] == {"online": 5 / 8}


def test_a_corrected_command_works_where_a_wrong_one_has_made_nothing(run: Any, here: Path) -> None:
    (here / "wrong").write_text('{"error": "401"}')
    command = ("learn", "tasks.jsonl", "--set", "rounds=0", "--out", "run", "--model")
    line = run(*command, "scripted:wrong", code=1).line
    assert line.endswith("give the same command again, or: practicum resume run --model NAME")
    assert "run held a run that had made nothing yet: it is begun anew" in run(*command, "scripted:model").out
    assert "already holds a run" in run(*command, "scripted:model", code=1).line


def test_a_resume_corrects_what_nothing_depends_on_that_is_kept(run: Any, here: Path) -> None:
    (here / "wrong").write_text('{"role": "reflector", "error": "404"}\n' + (here / "model").read_text())
    run("learn", "tasks.jsonl", "--set", "rounds=0", "--out", "run", "--model", "scripted:wrong", code=1)
    line = run("resume", "run", "--model", "scripted:model", code=2).line
    assert "the model of the agent cannot change from scripted:wrong to scripted:model: the run keeps 1 answer" in line
    assert "--role" in line
    assert "the agent cannot change" in run("resume", "run", "--agent", "os.path:join", code=2).line
    assert "the temperature cannot change" in run("resume", "run", "--temperature", 1, code=2).line
    told = run("resume", "run", "--role", "reflector=scripted:model", "--structure", "tool", "--retries", 1, "--json")
    assert told.json["usage"]["calls"] == 24
    assert told.json["journal"]["hits"] == 1


def test_a_run_whose_budget_is_spent_can_be_resumed_with_a_higher_one(run: Any) -> None:
    first = ("learn", "tasks.jsonl", "--model", "scripted:model", "--out", "run")
    done = run(*first, "--max-calls", 9, "--json")
    assert set(done.json) == {*LEARN_KEYS, "stopped"}
    assert done.json["usage"]["calls"] <= 9
    assert "practicum resume run" in done.err
    assert "--max-calls 8 is spent: this run has used 9 calls" in run("resume", "run", "--max-calls", 8, code=2).line
    again = run("resume", "run", code=2).line
    assert "the budget of 9 calls is spent in run: give a higher one with --max-calls" in again
    assert set(run("resume", "run", "--max-calls", 900, "--json").json) == LEARN_KEYS


@pytest.mark.parametrize(
    ("typed", "first"),
    [
        ("--batch-size 4 --epochs 2", "learning 1/4: "),
        ("--batch-size 4 --set primitives=adaptive", "learning 1/2: "),
        ("--online --batch-size 3", "learning 1/3: "),
        ("--method icl", "learning 1/1: "),
        ("--method combee", "learning step 1: "),
        ("--method combee --asynchronous --batch-size 4", "learning step 1: "),
        ("--batch-size 2 --set replay=0.5", "learning step 1: "),
        ("--batch-size 2 --set rollouts=auto", "learning step 1: "),
        ("--batch-size 8 --steps 3", "learning 1/3: "),
        ("--method rcl --set heads=false --set state=false --steps 4", "learning 1/4: "),
        ("--method combee --steps 2", "learning 1/2: "),
    ],
)
@pytest.mark.slow
def test_the_number_of_steps_is_printed_if_it_is_known(run: Any, typed: str, first: str) -> None:
    done = run("learn", "tasks.jsonl", "--model", "scripted:model", *typed.split())
    told = [line for line in done.out.splitlines() if re.match(r"learning ([1-9]\d*/\d+|step \d+): ", line)]
    assert told[0].startswith(first)


def test_every_change_of_the_primitives_is_explained(run: Any) -> None:
    done = run(
        "learn", "tasks.jsonl", "--model", "scripted:model", "--set", "primitives=adaptive", "--batch-size", 4,
        "--epochs", 2, "--out", "run",
    )  # fmt: skip
    told = re.findall(r"^step (\d): 4 tasks; (.*)$", done.out, re.MULTILINE)
    assert [(step, why.startswith("probing: groups on")) for step, why in told] == [("1", True), ("4", False)]
    assert "groups off" in told[1][1]


def test_options_reach_the_configuration_of_the_run(run: Any, here: Path) -> None:
    (here / "told").write_text("Say what is asked.\n")
    lines = [{"context": f"Message {n}: say word{n}", "label": f"word{n}"} for n in (0, 1, 2) * 2]
    (here / "other.jsonl").write_text("\n".join(map(json.dumps, lines)))
    run(
        "learn", "other.jsonl", "--fields", "input=context,target=label", "--instructions", "@told",
        "--choices", "auto", "--method", "ace", "--model", "scripted:model", "--role", "mutator=scripted:model",
        "--seed", 3, "--concurrency", 2, "--temperature", 0.3, "--max-output-tokens", 99, "--timeout", 9,
        "--set", "curator=edits", "--structure", "tool", "--no-labels", "--judge", "--scorer", "contains",
        "--profile", "small", "--sections", "checks, code: to use again", "--out", "run",
    )  # fmt: skip
    from practicum.session.records import read_run

    with Store.read(here / "run") as store:
        config, splits, state = read_run(store)
    assert state == "done"
    assert [t.target for t in splits.train] == ["word0", "word1", "word2"] * 2
    kept = config.model_dump(exclude_defaults=True)
    assert len(kept.pop("nonce")) == 8
    assert kept == {
        "model": "scripted:model", "roles": {"curator": "scripted:model"}, "scorer": "contains",
        "settings": {"curator": "edits"},
        "instructions": "Say what is asked.", "choices": ("word0", "word1", "word2"), "labels": False, "judged": True,
        "seed": 3, "concurrency": 2, "structure": "tool", "temperature": 0.3, "max_output_tokens": 99, "timeout": 9.0,
        "profile": "small", "sections": {"checks": "", "code": "to use again"},
    }  # fmt: skip


def test_eval_takes_the_settings_of_the_run(run: Any, learned: Path) -> None:
    done = run("eval", "test.jsonl", "--context", "run", "--json")
    assert set(done.json) == EVAL_KEYS
    assert (done.json["score"], done.json["n"]) == (0.5, 4)
    assert [(a["id"], a["value"], a["correct"]) for a in done.json["attempts"]] == [
        ("t3", 1.0, True), ("t4", 1.0, True), ("t5", 0.0, False), ("t6", 0.0, False),
    ]  # fmt: skip
    low, high = done.json["ci95"]
    assert 0 <= low <= 0.5 <= high <= 1
    assert done.json["usage"]["calls"] == 4
    assert run("eval", "test.jsonl", "--context", "run", "--repeat", 3, "--json").json["usage"]["calls"] == 12
    assert "95% interval" in run("eval", "test.jsonl", "--model", "scripted:model", "--reasoning").out
    kept = ("eval", "test.jsonl", "--context", "run", "--out", "kept", "--window", 4096, "--json")
    first, again = (run(*kept).json for _ in range(2))
    assert (again["usage"], again["attempts"]) == (first["usage"], first["attempts"])


def test_eval_prints_the_usage_of_each_role_if_there_are_several(run: Any, here: Path) -> None:
    rules = [{"role": "judge", "answer": {"reason": "so", "right": True}}, {"role": "agent", "answer": "no idea"}]
    (here / "judging").write_text("\n".join(map(json.dumps, rules)) + "\n", encoding="utf-8")
    done = run("eval", "test.jsonl", "--model", "scripted:judging", "--scorer", "judge", "--json")
    assert {role: usage["calls"] for role, usage in done.json["by_role"].items()} == {"agent": 4, "judge": 4}
    assert all(set(usage) == USAGE_KEYS for usage in done.json["by_role"].values())
    assert [line[:16] for line in done.err.splitlines() if line[:2] == "  "] == ["  agent: 4 calls", "  judge: 4 calls"]
    alone = run("eval", "test.jsonl", "--model", "scripted:judging", "--scorer", "contains")
    assert "agent:" not in alone.out


def test_an_eval_whose_budget_is_spent_reports_what_was_paid_for(run: Any, here: Path) -> None:
    write_tasks(here / "many.jsonl", make_tasks(12))
    done = run("eval", "many.jsonl", "--model", "scripted:model", "--max-calls", 5, code=2)
    assert done.line == "the evaluation is incomplete: the budget of 5 calls is spent"
    assert "on 5 of 12 tasks" in done.out
    done = run("eval", "many.jsonl", "--model", "scripted:model", "--max-tokens", 20, "--json", code=2)
    assert (done.json["score"], done.json["ci95"], done.json["n"]) == (None, None, 0)


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_an_eval_that_the_user_interrupts_reports_what_was_done(run: Any, here: Path, name: str, code: int) -> None:
    (here / f"stopped_by_{name}.py").write_text(
        "import signal\n\n"
        "async def agent(text, context):\n"
        "    if 'Message 3' in text:\n"
        f"        signal.raise_signal(signal.{name})\n"
        "    return text.split()[-1]\n"
    )
    write_tasks(here / "many.jsonl", make_tasks(12))
    agent, number = ("--agent", f"stopped_by_{name}:agent", "--concurrency", 1), signal.Signals[name]
    # Under nohup, SIGHUP is ignored, and practicum leaves it so.
    before = signal.getsignal(number)
    handler = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
    signal.signal(number, handler)
    try:
        done = run("eval", "many.jsonl", *agent, "--json", code=code)
        assert signal.getsignal(number) is handler
    finally:
        signal.signal(number, before)
    assert done.line == "the evaluation is incomplete: interrupted"
    assert "Ctrl-C again leaves at once" in done.err
    assert (done.json["n"], done.json["score"]) == (4, 1.0)


def test_show_prints_an_entry_with_its_history_and_sources(run: Any, learned: Path) -> None:
    shown = run("show", "run", "--json").json
    assert len(shown["entries"]) == 8
    assert (shown["state"], shown["method"]) == ("done", "ace")
    first = shown["entries"][0]
    history = run("show", "run", "--entry", first["id"], "--json").json
    assert history["now"] == first
    assert history["events"][0]["op"] == "add"
    told = run("show", "run", "--entry", first["id"]).out
    (attempt,) = history["attempts"]
    assert f"from {attempt}, wrong: Message" in told
    assert f"look at one: practicum show run --attempt {attempt}" in told
    assert len(run("show", "run", "--version", 2, "--json").json["entries"]) == 2
    assert "8 entries" in run("show", "run").out
    assert "has never had an entry 'e99'" in run("show", "run", "--entry", "e99", code=2).line


def test_brackets_and_colons_are_printed_unchanged(run: Any, here: Path) -> None:
    odd = "x[/y] :warning:"
    done = run("learn", "tasks.jsonl", "--model", "scripted:model", "--set", "rounds=0", "--out", odd)
    assert f"kept in {odd}" in done.out
    (here / "rules.md").write_text("## [/etc] files\n- Keep [bold]these[/bold] as they are :smile:\n", encoding="utf-8")
    run("import", "rules.md", "--out", "seeded")
    assert "([/etc] files) Keep [bold]these[/bold] as they are :smile:" in run("show", "seeded").out
    entry = run("show", "seeded", "--json").json["entries"][0]["id"]
    assert "section [/etc] files" in run("show", "seeded", "--entry", entry).out


DOWNLOADING: dict[str, tuple[str, ...]] = {
    "learn": ("learn", "tasks.jsonl", "--out", "made"),
    "eval": ("eval", "test.jsonl"),
    "run": ("run", "say word1", "--context", "rules.md"),
    "compare": ("compare", "tasks.jsonl", "--test", "test.jsonl", "--methods", "none,icl", "--out", "compared"),
}


@pytest.mark.parametrize("typed", DOWNLOADING.values(), ids=DOWNLOADING)
def test_the_download_of_a_model_is_reported(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], typed: tuple[str, ...]
) -> None:
    def slow(name: str, progress: Any) -> Path:
        for part in range(6):
            progress(part * 10_000_000, 98_000_000)
        raise ModelError("model.unusable", "the line was cut")

    monkeypatch.setattr(local, "resolve", slow)
    monkeypatch.chdir(here)
    write_tasks(here / "test.jsonl", make_tasks(4, 50))
    (here / "rules.md").write_text("## rules\n- Say what is asked.\n", encoding="utf-8")
    with pytest.raises(SystemExit):
        main([*typed, "--model", "local"])
    told = capsys.readouterr()
    assert "downloading the model: 0 of 98 MB\n" in told.out
    assert "downloading the model: 50 of 98 MB\n" in told.out
    assert told.err.strip().endswith("the line was cut")


def test_diff_and_rollback(run: Any, learned: Path) -> None:
    value = run("diff", "run", 2, 5, "--json").json
    assert (len(value["added"]), value["removed"]) == (3, [])
    assert "3 added, 0 removed" in run("diff", "run", 2, 5).out
    assert "there is no version 99" in run("diff", "run", 2, 99, code=2).line
    assert "add --yes to go on" in run("rollback", "run", 2, code=2).line
    assert "version 8 is the last one of run already" in run("rollback", "run", 8, "--yes", code=2).line
    run("name", "run", "prod", 5)
    assert run("show", "run@prod").out == run("show", "run", "--version", "prod").out
    assert run("rollback", "run", 2, "--yes", "--json").json == {"run": "run", "version": 9, "as": 2}
    assert len(run("show", "run", "--json").json["entries"]) == 2
    assert len(run("show", "run", "--version", 8, "--json").json["entries"]) == 8


def test_a_test_score_on_tasks_that_were_learned_from_is_warned_of(run: Any, here: Path) -> None:
    done = run("learn", "tasks.jsonl", "--test", "tasks.jsonl", "--model", "scripted:model", "--out", "same")
    assert "8 test tasks of 8 can also be learned from" in done.out


def test_a_score_is_shown_with_the_version_that_it_is_of(run: Any, here: Path) -> None:
    run(
        "learn", "tasks.jsonl", "--test", "test.jsonl", "--model", "scripted:model", "--out", "run", "--set", "rounds=0"
    )
    assert "test score: " in run("show", "run").out
    last = run("show", "run", "--json").json["version"]
    assert "score" not in run("show", "run", "--version", 1).out
    run("rollback", "run", 1, "--yes")
    assert "score" not in run("show", "run").out
    run("rollback", "run", last, "--yes")
    assert "test score: " in run("show", "run").out


@pytest.mark.parametrize("format", ["markdown", "json", "agents-md"])
@pytest.mark.slow
def test_export_and_import(run: Any, learned: Path, here: Path, format: str) -> None:
    out = run("export", "run", "--format", format).out
    assert "say word3" in out
    run("export", "run", "--format", format, "--output", "kept")
    assert (here / "kept").read_text() == out
    assert run("export", "run", "--format", format, "--json").json["text"] == out
    assert run("import", "kept", "--out", "seed", "--json").json == {"run": "seed", "entries": 8, "waiting": 0}
    assert len(run("show", "seed", "--json").json["entries"]) == 8
    run("learn", "test.jsonl", "--seed-playbook", "seed", "--model", "scripted:model", "--out", "more", "--json")
    assert len(run("show", "more", "--version", 0, "--json").json["entries"]) == 8


def test_an_entry_of_several_lines_is_shown_below_its_heading(run: Any, here: Path) -> None:
    code = "1. Ask for a page:\n\n   ```python\n   # each\n   api.list(page)\n   ```\n2. Go on."
    (here / "own.md").write_text(f"## Code\n- {code.replace(chr(10), chr(10) + '  ')}\n- one line\n")
    run("learn", "test.jsonl", "--seed-playbook", "own.md", "--model", "scripted:model", "--out", "own")
    shown = run("show", "own").out
    assert "sections: Code, strategies, facts and formulas, tools and formats, pitfalls, checks\n" in shown
    assert "[e0] (Code)  (+0 -0, used 0)\n  1. Ask for a page:\n\n     ```python\n     # each\n" in shown
    assert "[e1] (Code) one line  (+0 -0, used 0)\n" in shown
    said = run("show", "own", "--entry", "e0").out
    assert said.startswith("e0:\n  1. Ask for a page:\n\n     ```python\n")
    assert "version 0 (step 0): added in 'Code':\n  1. Ask" in said
    assert json.loads(run("show", "own", "--json").out)["entries"][0]["text"] == code
    run("export", "own", "--output", "again.md")
    run("import", "again.md", "--out", "again")
    assert json.loads(run("show", "again", "--json").out)["entries"][0]["text"] == code


def test_forget_removes_entries_and_proves_it(run: Any, learned: Path) -> None:
    assert "add --yes to go on" in run("forget", "run", "--task", "t3", code=2).line
    value = run("forget", "run", "--task", "t3", "--yes", "--json").json
    assert [e["text"] for e in value["removed"]] == ["If message 3, say word3."]
    assert value["left"] == 0
    assert "say word3" not in run("export", "run").out
    assert "say word3" in run("export", "run-before-forget").out
    run("forget", "run", "--task", "t4", "--yes", "--no-copy")
    assert not Path("run-before-forget-2").exists()
    assert "has learned from all its tasks" in run("resume", "run", code=2).line
    assert "nothing is named to be forgotten" in run("forget", "run", code=2).line


@pytest.mark.slow
def test_methods_are_listed_with_their_settings(run: Any) -> None:
    value = run("methods", "--json").json
    assert set(value) >= {"none", "icl", "episodes", "ace"}
    assert value["ace"]["settings"]["threshold"][0] == "auto"
    assert all(words for method in value.values() for _, words in method["settings"].values())
    assert "--set threshold=auto" in run("methods", "ace").out


@pytest.mark.slow
def test_methods_of_packages_are_listed_and_a_broken_package_hides_none(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "from practicum.methods.none import Settings, method\n"
    packages.install(here, "own_methods", source, GROUP, mine="own_methods")
    packages.install(here, "broken_methods", "import no_such_module", GROUP, lost="broken_methods")
    monkeypatch.syspath_prepend(here)
    done = run_command(["methods", "--json"], here)
    assert {*NAMES, "mine"} == set(done.json)
    assert "the package 'broken_methods' registers 'lost'" in done.line
    assert "broken_methods" in run_command(["methods", "lost"], here).line
    assert run_command(["learn", "tasks.jsonl", "--method", "mine", "--model", "scripted:model"], here).code == 0


BAD_FILES: dict[str, tuple[str | None, str]] = {
    "missing": (None, "bad.jsonl: no such file"),
    "empty": ("", "holds no tasks"),
    "not json": ('{"input": "a", "target": "b"}\n{"input": ', "bad.jsonl line 2: not JSON"),
    "no input": ('{"question": "a"}', "line 1: field 'input' is missing"),
    "wrong type": ('{"input": 3, "target": "b"}', "line 1: field 'input' must be"),
    "same id": (
        '{"id": 1, "input": "a", "target": "b"}\n{"id": 1, "input": "c", "target": "d"}',
        "already used in line 1",
    ),
    "no target": ('{"input": "a", "target": "b"}\n{"input": "c"}', "has no target, which scorer 'exact' needs"),
}


@pytest.mark.parametrize(("text", "words"), BAD_FILES.values(), ids=BAD_FILES)
@pytest.mark.parametrize("command", ["learn", "test", "eval"])
def test_a_bad_task_file_stops_before_anything_is_paid(
    run: Any, here: Path, fast_server: ServerProcess, text: str | None, words: str, command: str
) -> None:
    if text is not None:
        (here / "bad.jsonl").write_text(text)
    model = ("--model", f"{fast_server.url}#sim")
    typed = {
        "learn": ("learn", "bad.jsonl", "--out", "run", *model),
        "test": ("learn", "tasks.jsonl", "--test", "bad.jsonl", "--out", "run", *model),
        "eval": ("eval", "bad.jsonl", *model),
    }
    assert words in run(*typed[command], code=2).line
    assert fast_server.stats()["received"] == 0
    assert not (here / "run").exists()


WRONG_USE: dict[str, tuple[str, str]] = {
    "nothing": ("learn", "learning needs tasks"),
    "method": ("learn tasks.jsonl --method magic", "unknown method 'magic'"),
    "setting": ("learn tasks.jsonl --set speed=3", "has no setting 'speed'"),
    "no value": ("learn tasks.jsonl --set speed", "must read name=value"),
    "given twice": ("learn tasks.jsonl --epochs 2 --set epochs=3", "given twice"),
    "steps and epochs": (
        "learn tasks.jsonl --steps 3 --epochs 2",
        "steps and epochs both say when learning ends: give one of them",
    ),
    "steps of a stream": ("learn tasks.jsonl --steps 3 --online", "a stream ends with its tasks: leave out steps"),
    "steps without a barrier": (
        "learn tasks.jsonl --method combee --asynchronous --steps 3",
        "give epochs in place of steps",
    ),
    "unused setting": ("learn tasks.jsonl --method none --epochs 2", "method none has no setting 'epochs'"),
    "role": ("learn tasks.jsonl --role critic=local", "unknown role 'critic'"),
    "unused role": ("learn tasks.jsonl --method episodes --role reflector=local", "asks no reflector"),
    "scorer": ("learn tasks.jsonl --scorer vibes", "unknown scorer 'vibes'"),
    "model": ("learn tasks.jsonl --model gpt", "unknown model 'gpt'"),
    "key": ("learn tasks.jsonl --model openai:gpt-4.1-mini", "OPENAI_API_KEY"),
    "structure": ("learn tasks.jsonl --structure xml", "'xml' is not one of 'native', 'tool', 'prompted', 'grammar'"),
    "timeout": ("learn tasks.jsonl --timeout 0", "--timeout 0.0: "),
    "money": ("learn tasks.jsonl --max-usd 1 --model http://127.0.0.1:9/v1#x", "price of http://127.0.0.1:9/v1#x"),
    "embedder": ("learn tasks.jsonl --embedder magic --model scripted:model", "unknown embedder 'magic'"),
    "fields": ("learn tasks.jsonl --fields question", "is not NAME=FIELD"),
    "choices": ("learn tasks.jsonl --choices one", "fewer than two"),
    "no choices": ("learn tasks.jsonl --choices=", "--choices is empty: give a value, or leave it out"),
    "sections": ("learn tasks.jsonl --sections a,A", "the section 'A' is there twice"),
    "no sections": ("learn tasks.jsonl --sections nowhere.txt", "cannot read the sections in nowhere.txt"),
    "choices of open answers": ("learn tasks.jsonl --choices auto", "8 different targets in 8 tasks are too many"),
    "choices of test tasks": ("eval tasks.jsonl --choices auto", "the tasks to learn from have no target"),
    "instructions": ("learn tasks.jsonl --instructions @nowhere", "cannot read the instructions in nowhere"),
    "playbook": ("learn tasks.jsonl --seed-playbook nowhere", "there is no run and no playbook file nowhere"),
    "tracker": (
        "learn tasks.jsonl --model scripted:model --log comet",
        "there is no tracker 'comet' for --log: known are wandb, mlflow, otel",
    ),
    "resume with a setting": ("resume run --seed 3", "No such option: --seed"),
    "option": ("learn tasks.jsonl --bogus", "No such option: --bogus"),
    "number": ("learn tasks.jsonl --seed x", "--seed"),
    "command": ("study", "No such command 'study'"),
    "format": ("export run --format pdf", "'pdf' is not one of 'markdown', 'json', 'agents-md'"),
    "show": ("show run --version 0 --entry e0", "--version does not go with --entry: leave it out"),
    "tasks out": ("tasks tasks.jsonl --format mmlu --out .", "--out . is a folder"),
    "resume no run": ("resume nowhere", "nowhere is not a run folder"),
    "resume a file": ("resume tasks.jsonl", "tasks.jsonl is not a run folder"),
    "resume a folder": ("resume .", ". is not a run folder"),
    "memory group": ("memory drop run", "No such command 'drop'"),
    "two views": ("show run --gate --entry e0", "--entry and --gate are two views: choose one of them"),
    "filter without a view": ("show run --failed", "--failed is for --attempts: add that, or leave it out"),
    "filter of another view": ("show run --lessons --role agent", "--role does not go with --lessons: leave it out"),
    "picture of another view": ("show run --output a.png", "--output is for --delay: add that, or leave it out"),
    "show no run": ("show nowhere", "nowhere is not a run folder"),
    "eval context": ("eval tasks.jsonl --context nowhere --model scripted:model", "no run and no playbook file"),
}


@pytest.mark.parametrize(("typed", "words"), WRONG_USE.values(), ids=WRONG_USE)
def test_wrong_use_is_reported_in_one_line(run: Any, here: Path, typed: str, words: str) -> None:
    out = ["--out", "made"] if typed.startswith("learn ") else []
    assert words in run(*typed.split(), *out, code=2).line
    assert not (here / "made").exists()


FAILURES: dict[str, tuple[str, str]] = {
    "down": ("learn tasks.jsonl --model http://127.0.0.1:9/v1#x --out made", "cannot reach http://127.0.0.1:9/v1#x"),
    "eval down": ("eval tasks.jsonl --model http://127.0.0.1:9/v1#x", "cannot reach http://127.0.0.1:9/v1#x"),
    "exists": ("learn tasks.jsonl --model scripted:model --out run", "run already holds a run, and it is finished"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("typed", "words"), FAILURES.values(), ids=FAILURES)
def test_failures_outside_practicum_are_reported_in_one_line(run: Any, learned: Path, typed: str, words: str) -> None:
    assert words in run(*typed.split(), code=1).line


def test_a_run_that_another_process_holds_is_not_resumed_but_can_be_read(run: Any, learned: Path) -> None:
    with Store.open(learned):
        assert "another process is writing to" in run("resume", "run", code=1).line
        assert len(run("show", "run", "--json").json["entries"]) == 8


def test_a_finished_run_is_not_resumed(run: Any, learned: Path) -> None:
    assert "run is finished, so there is nothing to resume" in run("resume", "run", code=2).line


def test_a_run_of_a_newer_practicum_is_refused(run: Any, learned: Path) -> None:
    import sqlite3

    with sqlite3.connect(learned / "run.sqlite") as db:
        db.execute("pragma user_version = 99")
    db.close()
    assert "newer practicum" in run("resume", "run", code=1).line
    assert "99" in run("show", "run", code=1).line


def test_a_run_folder_that_cannot_be_made_is_reported(run: Any, here: Path) -> None:
    (here / "file").write_text("")
    assert "cannot make the run folder" in run(
        "learn", "tasks.jsonl", "--model", "scripted:model", "--out", "file/run", code=1
    ).line  # fmt: skip


def test_debug_prints_a_traceback(here: Path) -> None:
    done = run_command(("learn", "tasks.jsonl", "--method", "magic", "--debug"), here)
    assert (done.code, "Traceback" in done.err) == (2, True)


def test_a_program_as_agent(run: Any, here: Path) -> None:
    (here / "agent.py").write_text(
        "import json, sys\n"
        "asked = json.loads(sys.stdin.readline())\n"
        "assert set(asked) == {'task', 'context', 'instructions', 'place'}, asked\n"
        "assert set(asked['task']) == {'id', 'input'}\n"
        "print('thinking')\n"
        "print(json.dumps({'answer': asked['task']['input'].split()[-1]}))\n"
    )
    agent = f"command:{sys.executable} agent.py"
    value = run("learn", "tasks.jsonl", "--method", "episodes", "--agent", agent, "--batch-size", 8, "--json").json
    assert len(value["entries"]) == 8
    assert value["usage"]["calls"] == 0
    assert all(entry["data"]["answer"].startswith("word") for entry in value["entries"])
    assert run("eval", "test.jsonl", "--context", value["run"], "--json").json["score"] == 1.0


def test_a_function_as_agent_and_as_scorer(run: Any, here: Path) -> None:
    (here / "mine.py").write_text(
        "async def agent(text, context):\n    return text.split()[-1]\n\n"
        "def scorer(task, answer):\n    return 0.25 if answer == task.target else 0\n"
    )
    typed = ("--agent", "mine:agent", "--scorer", "mine:scorer", "--method", "episodes", "--test", "test.jsonl")
    value = run("learn", "tasks.jsonl", *typed, "--json").json
    assert value["scores"] == {"test": 0.25}


def test_output_of_user_functions_is_separate_from_the_json(run: Any, here: Path) -> None:
    (here / "printing.py").write_text("def agent(text, context):\n    print('at work')\n    return text.split()[-1]\n")
    typed = ("test.jsonl", "--agent", "printing:agent", "--scorer", "exact")
    told = run("eval", *typed, "--json")
    assert told.json["n"] == 4
    assert told.err.count("at work") == 4
    assert run("eval", *typed).out.count("at work") == 4


@pytest.mark.slow
def test_the_program_prints_only_json_on_standard_output(here: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "practicum.cli.app", "eval", "test.jsonl", "--model", "scripted:model", "--json"],
        cwd=here, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["n"] == 4


HEAVY = ("numpy", "pydantic", "pydantic_ai", "openai", "sqlalchemy", "rich.progress", "wordllama", "aiohttp", "asyncio")


@pytest.mark.parametrize("program", ["import practicum", "from practicum.cli.app import main; main(['--help'])"])
def test_slow_imports_wait_until_they_are_needed(program: str) -> None:
    code = (
        "import sys\nsys.argv = ['practicum']\n"
        f"try:\n    {program}\nexcept SystemExit:\n    pass\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stderr.strip() == "[]"


NOT_FOR_A_CALL = ("pydantic_ai", "networkx", "scipy", "detect_secrets", "wordllama", "matplotlib", "ray", "psycopg")


def test_the_first_call_waits_for_no_package_that_it_does_not_need(here: Path, fast_server: ServerProcess) -> None:
    code = (
        "import sys\n"
        "def connects(event, about):\n"
        "    if event == 'socket.connect':\n"
        f"        print([name for name in {NOT_FOR_A_CALL!r} if name in sys.modules], file=sys.stderr)\n"
        "sys.addaudithook(connects)\n"
        "from practicum.cli.app import main\n"
        "try:\n    main()\nfinally:\n    print('pydantic_ai' in sys.modules, file=sys.stderr)"
    )
    command = ("learn", "tasks.jsonl", "--model", f"{fast_server.url}#sim", "--steps", "1")
    done = subprocess.run([sys.executable, "-c", code, *command], cwd=here, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    found = done.stderr.splitlines()
    assert (found[0], found[-1]) == ("[]", "False")  # plain answers need no pydantic-ai, to the end
