"""The commands: their output, their JSON, and every kind of bad input as one clear line."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest
from helpers import Done, make_tasks, run_command, write_tasks

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


def test_every_change_of_the_primitives_is_explained(run: Any) -> None:
    done = run(
        "learn", "tasks.jsonl", "--model", "scripted:model", "--set", "primitives=adaptive", "--batch-size", 4,
        "--epochs", 2, "--out", "run",
    )  # fmt: skip
    told = re.findall(r"^step (\d): 4 tasks; (.*)$", done.out, re.MULTILINE)
    assert [(step, why.startswith("probing: groups on")) for step, why in told] == [("1", True), ("4", False)]
    assert "groups off" in told[1][1]


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


def test_an_import_says_what_it_leaves_out(run: Any, here: Path) -> None:
    (here / "rules.md").write_text("# memories\n\nFor people.\n\n- one\n", encoding="utf-8")
    done = run("import", "rules.md", "--out", "seeded", "--json")
    assert done.json["left_out"] == [{"place": "line 3", "text": "For people.", "reason": "not a list item"}]
    assert "line 3 'For people.'" in done.line
    assert [entry["section"] for entry in run("show", "seeded", "--json").json["entries"]] == ["memories"]
    assert "line 3 'For people.'" in run("export", "rules.md", "--json").line


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
        "unknown tracker 'comet'",
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
