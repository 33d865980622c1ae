"""The dynamics of real runs: scores of training are reused, nothing is paid twice, and the run stays as it is."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import Done, client, make_tasks, run_command, world, write_tasks
from refusals import refused

import practicum
from practicum.analysis.dynamics.checkpoints import Dynamics, dynamics
from practicum.core.types import Task
from practicum.models.scripted import Call, ScriptedClient
from practicum.session.result import Result
from practicum.store.database import Store

VAL = make_tasks(6, 80)
DEV = make_tasks(5, 300)


def learn(folder: Path, model: ScriptedClient | None = None, **config: Any) -> Result:
    parts = config.pop("parts", None) or practicum.Parts(clients={"agent": model or client()})
    config = {"settings": {"batch": 2}, **config}
    return practicum.run_sync(practicum.learn(make_tasks(12), out=folder, parts=parts, **config))


def measure(folder: Path, model: ScriptedClient | None = None, tasks: list[Task] | None = None, **how: Any) -> Dynamics:
    parts = how.pop("parts", None) or practicum.Parts(clients={"agent": model or client()})
    return practicum.run_sync(dynamics(folder, tasks, parts=parts, **how))


@pytest.mark.slow
def test_an_agent_of_a_network_keeps_its_own_model(tmp_path: Path) -> None:
    agents = [
        {"name": "lead", "role": "You plan."},
        {"name": "coder", "role": "You code.", "model": "scripted:nowhere"},
    ]
    team = tmp_path / "team.json"
    team.write_text(json.dumps({"agents": agents, "links": [["lead", "coder"]]}), encoding="utf-8")
    lead, coder = client(), client(name="coders")
    parts = practicum.Parts(clients={"agent": lead, "agent:coder": coder})
    learn(tmp_path / "run", parts=parts, val=VAL[:2], method="mael", settings={"topology": str(team)})
    measure(tmp_path / "run", parts=parts, tasks=DEV)
    asked = [call.text for call in lead.calls]
    assert coder.calls
    assert not [text for text in asked if "Your role: You code." in text]


def test_a_task_that_no_judge_could_score_at_some_checkpoint_is_left_out(tmp_path: Path) -> None:
    def judge(call: Call) -> str:
        if call.role != "judge":
            return world(call)
        return "hm" if "Message 303" in call.text else json.dumps({"reason": "so", "right": True})

    learn(tmp_path / "run", client(judge), scorer="judge")
    found = measure(tmp_path / "run", client(judge), DEV, every=6)
    assert [task.id for task in found.tasks] == [task.id for task in DEV if task.id != "t303"]
    assert found.solved.all()
    assert found.solved.shape[0] == len(DEV) - 1
    assert found.errors > 0
    with refused("attempts.all_failed"):
        measure(tmp_path / "run", client(judge), DEV[3:4], every=6)


def test_wrong_usage_is_refused_before_anything_is_paid(tmp_path: Path) -> None:
    learn(tmp_path / "run")
    model = client()
    with refused("tasks.missing"):
        measure(tmp_path / "run", model)
    with refused("settings.invalid"):
        measure(tmp_path / "run", model, DEV, every=0)
    with refused("settings.invalid"):
        measure(tmp_path / "run", model, DEV, concurrency=0)
    with refused("tasks.missing"):
        measure(tmp_path / "run", model, [])
    with refused("tasks.duplicate_id"):
        measure(tmp_path / "run", model, [*DEV, DEV[0]])
    with refused("tasks.no_target"):
        measure(tmp_path / "run", model, [Task("x", "no target")])
    with refused("model.unknown"):
        measure(tmp_path / "run", tasks=DEV, parts=practicum.Parts())
    with refused("run.not_found"):
        measure(tmp_path / "nowhere", model, DEV)
    with Store.open(tmp_path / "run"), refused("store.busy"):
        measure(tmp_path / "run", model, DEV)
    assert model.calls == []


SCRIPT = (
    {"role": "agent", "match": r"If message.*say (?P<word>word[0-4])\Z", "answer": {"used": [], "answer": r"\g<word>"}},
    {"role": "agent", "match": r"say (?P<word>word[02])\Z", "answer": {"used": [], "answer": r"\g<word>"}},
    {"role": "agent", "answer": {"used": [], "answer": "no idea"}},
    {
        "role": "reflector", "match": r"Task: Message (\d+): say (\w+)",
        "answer": {
            "reasoning": "r", "diagnosis": "d", "cause": "c", "correction": "c", "tags": [],
            "insights": [{"section": "strategies", "text": r"If message \1, say \2."}],
        },
    },
    {"role": "curator", "answer": {"changes": [{"op": "ADD", "insights": [1]}]}},
)  # fmt: skip


LEARN = ("learn", "tasks.jsonl", "--model", "scripted:model")


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with files of tasks, a scripted model, and a run of eight steps with five validation tasks."""
    folder = tmp_path_factory.mktemp("example")
    write_tasks(folder / "tasks.jsonl", make_tasks(8))
    write_tasks(folder / "val.jsonl", make_tasks(5))
    lines = [{"question": f"Message {n}: say word{n}", "label": f"word{n}"} for n in range(4)]
    (folder / "dev.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (folder / "model").write_text("\n".join(map(json.dumps, SCRIPT)) + "\n", encoding="utf-8")
    options = ("--val", "val.jsonl", "--out", "run", "--set", "rounds=0", "--set", "dedupe=never")
    assert run_command((*LEARN, *options), folder).code == 0
    return folder


@pytest.fixture
def run(example: Path, tmp_path: Path) -> Callable[..., Done]:
    """Runs `practicum ARGUMENTS` in a copy of the example."""

    def go(*arguments: object, code: int = 0) -> Done:
        done = run_command(arguments, tmp_path)
        assert done.code == code, done.out + done.err
        assert "Traceback" not in done.err
        return done

    shutil.copytree(example, tmp_path, dirs_exist_ok=True)
    return go


def test_the_command_prints_a_table_and_draws_without_paying(run: Any, tmp_path: Path) -> None:
    done = run("space", "dynamics", "run", "--plot", "plot.png", "--recent", 10)
    assert "9 checkpoints on 5 validation tasks" in done.out
    assert "within 10 checkpoints" in done.out
    assert "usage: 0 calls" in done.out
    table = [line.split() for line in done.out.splitlines() if line.strip()[:1].isdigit() and line.count("%") == 5]
    assert [row[0] for row in table] == [str(step) for step in range(9)]
    assert table[0][2:] == ["40.0%", "40.0%", "0.0%", "0.0%", "40.0%"]
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert "plot written to plot.png" in done.out


WRONG: dict[str, tuple[str, str, int]] = {
    "window": ("run --recent 7", "'7' is not one of '5', '10', 'all'", 2),
    "every": ("run --every 0", "--every", 2),
    "no run": ("nowhere", "nowhere is not a run folder", 2),
    "no file": ("run --tasks nowhere", "nowhere: no such file", 2),
    "fields alone": ("run --fields input=x", "pass both, or neither", 2),
    "another picture": ("run --plot plot.pdf", "ends in .png", 2),
    "nothing to score on": ("bare", "--tasks", 2),
    "its model is gone": ("lost", "cannot read the script gone", 1),
}


@pytest.mark.slow
def test_the_command_reports_wrong_usage_in_one_line(run: Any, tmp_path: Path) -> None:
    learning = ("learn", "tasks.jsonl", "--method", "none", "--model")
    run(*learning, "scripted:model", "--out", "bare")
    (tmp_path / "gone").write_bytes((tmp_path / "model").read_bytes())
    run(*learning, "scripted:gone", "--test", "val.jsonl", "--out", "lost")
    (tmp_path / "gone").unlink()
    for typed, words, code in WRONG.values():
        assert words in run("space", "dynamics", *typed.split(), code=code).line
    assert "space dynamics" in run("help").out
    assert all(
        f"--{name}" in run("space", "dynamics", "--help").out for name in ("tasks", "recent", "every", "plot", "json")
    )
