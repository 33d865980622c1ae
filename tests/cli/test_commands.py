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
from practicum.methods import METHODS
from practicum.models import local
from practicum.store.database import Store
from practicum.testing import ServerProcess

USAGE_KEYS = {"calls", "input_tokens", "cached_tokens", "output_tokens", "usd"}


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


def test_eval_prints_the_usage_of_each_role_if_there_are_several(run: Any, here: Path) -> None:
    rules = [{"role": "judge", "answer": {"reason": "so", "right": True}}, {"role": "agent", "answer": "no idea"}]
    (here / "judging").write_text("\n".join(map(json.dumps, rules)) + "\n", encoding="utf-8")
    done = run("eval", "test.jsonl", "--model", "scripted:judging", "--scorer", "judge", "--json")
    assert {role: usage["calls"] for role, usage in done.json["by_role"].items()} == {"agent": 4, "judge": 4}
    assert all(set(usage) == USAGE_KEYS for usage in done.json["by_role"].values())
    assert [line[:16] for line in done.err.splitlines() if line[:2] == "  "] == ["  agent: 4 calls", "  judge: 4 calls"]
    alone = run("eval", "test.jsonl", "--model", "scripted:judging", "--scorer", "contains")
    assert "agent:" not in alone.out


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


def test_a_test_score_on_tasks_that_were_learned_from_is_warned_of(run: Any, here: Path) -> None:
    done = run("learn", "tasks.jsonl", "--test", "tasks.jsonl", "--model", "scripted:model", "--out", "same")
    assert "8 test tasks of 8 can also be learned from" in done.out


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


@pytest.mark.slow
def test_methods_of_packages_are_listed_and_a_broken_package_hides_none(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "from practicum.methods.none import Settings, method\n"
    packages.install(here, "own_methods", source, METHODS.name, mine="own_methods")
    packages.install(here, "broken_methods", "import no_such_module", METHODS.name, lost="broken_methods")
    monkeypatch.syspath_prepend(here)
    done = run_command(["methods", "--json"], here)
    assert {*METHODS.names()} - {"lost"} == set(done.json)
    assert "the package 'broken_methods' registers 'lost'" in done.line
    assert "broken_methods" in run_command(["methods", "lost"], here).line
    assert run_command(["learn", "tasks.jsonl", "--method", "mine", "--model", "scripted:model"], here).code == 0


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


def test_a_run_folder_that_cannot_be_made_is_reported(run: Any, here: Path) -> None:
    (here / "file").write_text("")
    assert "cannot make the run folder" in run(
        "learn", "tasks.jsonl", "--model", "scripted:model", "--out", "file/run", code=1
    ).line  # fmt: skip


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
