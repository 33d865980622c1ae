"""Processes that practicum starts run nothing of the current folder, get no keys, and end with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import wait_until
from postgres import alive
from refusals import refused

from practicum.core.subprocesses import environment
from practicum.models.local import LocalServer

SHADOWED = ("json", "ctypes", "struct", "runpy", "threading", "asyncio", "urllib", "pip", "argparse", "xllamacpp")


@pytest.mark.slow
def test_a_local_model_imports_nothing_from_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    marker, here, model = tmp_path / "marker", tmp_path / "here", tmp_path / "model.gguf"
    here.mkdir()
    for name in SHADOWED:
        (here / f"{name}.py").write_text(f"open({str(marker)!r}, 'a').write({name!r})\n")
    monkeypatch.chdir(here)
    monkeypatch.syspath_prepend(here)  # as `--agent module:function` does
    model.write_bytes(b"GGUF" + bytes(100))
    with refused("model.load_failed"):
        LocalServer(model, log=tmp_path / "log")
    assert not marker.exists()


def test_the_environment_holds_no_keys_and_nothing_that_changes_a_start(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "HF_TOKEN", "PYTHONPATH", "PYTHONSTARTUP", "LD_PRELOAD", "BASH_ENV"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("PIP_INDEX_URL", "https://mirror.example/simple")
    monkeypatch.setenv("https_proxy", "http://proxy.example")
    assert "x" not in environment().values()
    more = environment("PIP_INDEX_", "HTTPS_PROXY")
    assert more == environment() | {name: os.environ[name] for name in ("PIP_INDEX_URL", "https_proxy")}


RUN = """
import asyncio, sys
from practicum.agents.external import CommandAgent
from practicum.core.types import Task
from practicum.core.views import View
from types import SimpleNamespace
agent = CommandAgent(sys.argv[1])
asyncio.run(agent(Task("t", "x"), View(), SimpleNamespace(place="p")))
"""


@pytest.mark.slow
def test_the_programs_of_an_agent_die_with_practicum(tmp_path: Path) -> None:
    """Their children too, also if practicum is killed as soon as they run."""
    (tmp_path / "child.sh").write_text("> $$.pid\nsleep 600\n")
    (tmp_path / "agent.sh").write_text("sh child.sh &\n. ./child.sh\n")
    command = [sys.executable, "-c", RUN, "sh agent.sh"]
    with subprocess.Popen(command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}) as run:
        wait_until(lambda: len(list(tmp_path.glob("*.pid"))) == 2, event="the agent and its child")
        run.send_signal(signal.SIGKILL)
    pids = [int(path.stem) for path in tmp_path.glob("*.pid")]
    wait_until(lambda: not any(map(alive, pids)), event="the end of both")
