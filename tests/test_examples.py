"""Each example runs unchanged, against the simulated server, and one with the small model on this machine."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import practicum
from practicum.testing import ServerProcess

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"

NEEDS = {
    "with_langgraph": ("langchain", "langchain_openai"), "with_openai_agents": ("agents",), "with_dspy": ("dspy",),
    "with_inspect_ai": ("inspect_ai",), "with_mcp": ("fastmcp",),
}  # fmt: skip
"""Packages that an example needs in addition to practicum's own."""

PROGRAMS = sorted(
    {*EXAMPLES.glob("*.py"), *EXAMPLES.glob("frameworks/*.py")} - {EXAMPLES / "model.py", EXAMPLES / "agent_command.py"}
)


def run(program: Path, folder: Path, model: str) -> str:
    """Run an example in an empty folder, and return its output."""
    env = {name: value for name, value in os.environ.items() if not name.endswith(("_API_KEY", "_PROXY", "_proxy"))}
    done = subprocess.run(
        [sys.executable, str(program)], cwd=folder, input="", capture_output=True, text=True, timeout=200,
        env={**env, "PYTHONPATH": str(ROOT), "PRACTICUM_MODEL": model},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_an_example_runs_unchanged(program: Path, fast_server: ServerProcess, tmp_path: Path) -> None:
    for package in NEEDS.get(program.stem, ()):
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    out = run(program, tmp_path, f"{fast_server.url}#sim")
    assert re.search(r"\d%|stopped", out)
    assert fast_server.stats()["calls"] >= 4


def test_the_list_of_examples_is_complete() -> None:
    listed = {*re.findall(r"\]\(([\w/.]+)\)", (EXAMPLES / "README.md").read_text(encoding="utf-8"))}
    assert {path.name for path in EXAMPLES.glob("*.py")} - {"model.py"} <= listed
    assert all((EXAMPLES / name).exists() for name in listed)


@pytest.mark.local
@pytest.mark.slow
def test_an_example_learns_with_the_small_model_by_default(tmp_path: Path) -> None:
    assert re.search(r"before \d+%, after \d+%", run(EXAMPLES / "episodes.py", tmp_path, "local"))


@pytest.mark.slow
def test_a_program_is_an_agent(fast_server: ServerProcess, tmp_path: Path) -> None:
    tasks = practicum.load_tasks(EXAMPLES / "tasks.jsonl")
    work = practicum.learn(
        tasks[:8], test=tasks[8:], method="episodes", settings={"k": 8}, before=True, out=tmp_path / "run",
        agent=f"command:{sys.executable} {EXAMPLES / 'agent_command.py'}", model=f"{fast_server.url}#sim",
    )  # fmt: skip
    assert practicum.run_sync(work).scores == {"before": 0.25, "test": 1.0}
    assert fast_server.stats()["calls"] == 0
