"""Agents: what each is given, how its answer is read, and what its failures become."""

from __future__ import annotations

import stat
import sys
from pathlib import Path
from typing import Any

import pytest
from attempts import RULES, act
from helpers import client, make_tasks, wait_until
from refusals import refused

import practicum
from practicum.agents.external import CommandAgent
from practicum.core.context import Context
from practicum.models.local import choice_grammar


def evaluate(agent: Any = None, model: Any = None, n: int = 4, **config: Any) -> practicum.Evaluation:
    parts = practicum.Parts(agent=agent, clients={"agent": model} if model else {})
    return practicum.run_sync(practicum.evaluate(make_tasks(n), RULES, parts=parts, **config))


def program(folder: Path, body: str) -> str:
    """A program that is run by this Python; its request is in `asked`."""
    path = folder / "agent"
    path.write_text(f"#!{sys.executable}\nimport json, sys, time\nasked = json.loads(sys.stdin.readline())\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_a_server_with_grammars_is_held_to_the_choices_where_nothing_but_an_answer_is_asked_for() -> None:
    choices = ("word0", "word1")
    schemas: dict[bool, list[Any]] = {}
    for held in (True, False):
        model = client(lambda call: "word1", holds_to_choices=held)
        for context in (Context(), RULES):
            parts = practicum.Parts(clients={"agent": model})
            practicum.run_sync(practicum.evaluate(make_tasks(1), context, parts=parts, choices=choices))
        schemas[held] = [call.schema for call in model.calls]
    assert schemas == {True: [{"enum": [*choices]}, None], False: [None, None]}
    assert choice_grammar(('say "so"', "b")) == 'root ::= "say \\"so\\"" | "b"'


def test_a_program_that_does_not_exist_is_refused() -> None:
    with refused("agent.cannot_start"):
        CommandAgent("/no/such/program")
    with refused("agent.invalid"):
        CommandAgent(" ")
    with refused("agent.invalid"):
        CommandAgent("a 'b")


@pytest.mark.slow
def test_the_children_of_a_slow_program_are_killed_with_it(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    body = (
        "import subprocess\n"
        f"child = subprocess.Popen(['sleep', '60'])\nopen({str(pid)!r}, 'w').write(str(child.pid))\nchild.wait()"
    )
    with refused("agent.timeout"):
        act(CommandAgent(program(tmp_path, body), timeout=1.0))
    wait_until(lambda: not _alive(int(pid.read_text())), what="the end of the child")


@pytest.mark.slow
def test_a_child_that_keeps_the_output_open_is_killed(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    body = (
        "import subprocess\n"
        f"child = subprocess.Popen(['sleep', '60'])\nopen({str(pid)!r}, 'w').write(str(child.pid))\n"
        'print(\'{"answer": "a"}\')'
    )
    with refused("agent.timeout"):
        act(CommandAgent(program(tmp_path, body), timeout=1.0))
    wait_until(lambda: not _alive(int(pid.read_text())), what="the end of the child")


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_a_failed_attempt_is_data_and_is_not_made_again(tmp_path: Path) -> None:
    calls: list[str] = []

    def agent(text: str, context: str) -> str:
        calls.append(text)
        if "Message 2" in text:
            raise ValueError("no idea")
        return text.split()[-1]

    parts = practicum.Parts(agent=agent)
    work = practicum.learn(make_tasks(4), out=tmp_path / "run", parts=parts, method="episodes", settings={"batch": 4})
    result = practicum.run_sync(work)
    assert result.errors["failed_attempts"] == 1
    again = practicum.run_sync(practicum.resume(tmp_path / "run", parts=parts))
    assert len(calls) == 4
    assert practicum.export(again.context, "json") == practicum.export(result.context, "json")
    assert again.errors == result.errors
