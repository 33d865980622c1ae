"""Functions and programs of users that exit or print in another encoding: agents, scorers, watches."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from helpers import Done, make_tasks, run_command, write_tasks

MINE = """
import asyncio, sys

def agent(text, context):
    return text.split()[-1]

def leaves(text, context):
    if "1:" in text:
        sys.exit(3)
    return text.split()[-1]

async def leaves_async(text, context):
    if "1:" in text:
        sys.exit()
    return text.split()[-1]

def cancels(text, context):
    if "1:" in text:
        raise asyncio.CancelledError
    return text.split()[-1]

async def cancels_async(text, context):
    return cancels(text, context)

async def child_leaves(text, context):
    async def child():
        sys.exit(0)
    await asyncio.gather(child())

def interrupts(*given):
    raise KeyboardInterrupt

def scorer_leaves(task, answer):
    sys.exit("done")

def scorer_at(value):
    return lambda task, answer: value

nan, below = scorer_at(float("nan")), scorer_at(-0.01)
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_tasks(tmp_path / "tasks.jsonl", make_tasks(4))
    name = f"mine_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(MINE)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def evaluated(here: Path, agent: str = "agent", scorer: str = "exact") -> Done:
    agent = agent if agent.startswith("command:") else f"mine_{here.name}:{agent}"
    scorer = scorer if scorer == "exact" else f"mine_{here.name}:{scorer}"
    typed = ("eval", "tasks.jsonl", "--model", "sim", "--agent", agent, "--scorer", scorer, "--json")
    return run_command(typed, here)


def test_an_agent_that_exits_fails_one_attempt(here: Path) -> None:
    for agent in ("leaves", "leaves_async", "cancels_async"):
        done = evaluated(here, agent)
        assert done.code == 0, done.err
        assert (done.json["n"], done.json["score"], done.json["counts"]) == (4, 0.75, {"failed_attempts": 1})


def test_code_that_ends_the_command_is_reported_in_one_line(here: Path) -> None:
    for agent, scorer, code in (
        ("child_leaves", "exact", "code.exited"), ("agent", "scorer_leaves", "scorer.failed"),
        ("agent", "nan", "scorer.failed"), ("agent", "below", "scorer.failed"),
    ):  # fmt: skip
        done = evaluated(here, agent, scorer)
        assert (done.code, done.json["error"]["code"]) == (1, code), scorer
        assert done.err.splitlines()[-1].startswith("practicum: ")
        assert "Traceback" not in done.err
        assert "bug in practicum" not in done.err


def test_an_interrupt_stops_the_command(here: Path) -> None:
    for agent, scorer in (("interrupts", "exact"), ("agent", "interrupts")):
        done = evaluated(here, agent, scorer)
        assert (done.code, done.out) == (130, "")
        assert "Traceback" not in done.err


@pytest.mark.parametrize(
    ("encoding", "names"), [("latin-1", "UTF-8"), pytest.param("utf-16-le", "UTF-16", marks=pytest.mark.slow)]
)
def test_a_program_that_prints_in_another_encoding_has_failed(encoding: str, names: str, here: Path) -> None:
    answer = '{"answer": "caf\u00e9 word1"}\n'.encode(encoding)
    (here / "agent.py").write_text(f"import sys\nsys.stdout.buffer.write({answer!r})")
    done = evaluated(here, f"command:{sys.executable} -S agent.py")
    assert done.code == 1
    assert names in done.err
    assert "PYTHONIOENCODING=utf-8" in done.err
