"""Each example runs as its docstring says, against the simulated server."""

from __future__ import annotations

import json
import os
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest
from helpers import Launcher

import practicum
from practicum.testing import ServerProcess, start_process

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"


@pytest.fixture
def server(fast_server: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ServerProcess:
    """The simulated server, the only one that the environment names; the current folder is an empty one."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENAI_BASE_URL", fast_server.url)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setenv("AGENT", f"{fast_server.url}#mine")
    monkeypatch.chdir(tmp_path)
    return fast_server


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs an example in this process, as `python FILE ARGUMENTS`, and returns what it prints."""

    def run_example(name: str, *arguments: str) -> str:
        path = EXAMPLES / name
        monkeypatch.setattr(sys, "argv", [str(path), *arguments])
        runpy.run_path(str(path), run_name="__main__")
        return capsys.readouterr().out

    return run_example


@pytest.mark.parametrize(
    "name",
    ["ace", "episodes", "reasoning_bank", "own_method", "own_watch", pytest.param("own_agent", marks=pytest.mark.slow)],
)
def test_an_example_learns_through_the_library(
    name: str, run: Callable[..., str], server: ServerProcess, tmp_path: Path
) -> None:
    assert re.search(r"\d%", run(f"{name}.py", f"{server.url}#sim"))
    assert server.stats()["calls"] >= 8
    (folder,) = (tmp_path / "runs").iterdir()
    assert (folder / "practicum.sqlite").exists()


@pytest.mark.slow
def test_an_example_runs_in_a_process_of_its_own(server: ServerProcess, tmp_path: Path) -> None:
    assert "%" in process(str(EXAMPLES / "ace.py"), f"{server.url}#sim")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["with_endpoint", "with_pydantic_ai"])
def test_an_adapted_agent_learns(name: str, run: Callable[..., str], server: ServerProcess) -> None:
    assert re.search(r"\d%", run(f"frameworks/{name}.py", f"{server.url}#sim"))
    assert server.stats()["calls"] >= 16


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "needs"),
    [
        ("with_langgraph", ("langchain", "langchain_openai")),
        ("with_openai_agents", ("agents",)),
        ("with_dspy", ("dspy",)),
        ("with_inspect_ai", ("inspect_ai",)),
        ("with_mcp", ("fastmcp",)),
    ],
)
def test_an_agent_of_an_optional_framework_learns(name: str, needs: tuple[str, ...], server: ServerProcess) -> None:
    """In a process of its own, since these examples change global settings of their frameworks, or start others."""
    for package in needs:
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    assert re.search(r"\d%", process(str(EXAMPLES / "frameworks" / f"{name}.py"), f"{server.url}#sim"))
    assert server.stats()["calls"] >= 16


def process(*arguments: str) -> str:
    """Run python with these arguments, and return what it prints."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, *arguments], env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_plain_script_does_the_same_without_practicum(run: Callable[..., str], server: ServerProcess) -> None:
    assert "before" in run("ace_plain.py", "sim")
    assert server.stats()["calls"] >= 2 * 4 + 2 * 8 * 2
    source = (EXAMPLES / "ace_plain.py").read_text(encoding="utf-8")
    assert "practicum" not in re.findall(r"^(?:import|from) ([\w.]+)", source, re.MULTILINE)


@pytest.mark.slow
def test_a_program_is_an_agent(server: ServerProcess, tmp_path: Path) -> None:
    tasks = practicum.load_tasks(EXAMPLES / "tasks.jsonl")
    work = practicum.learn(
        tasks[:8], test=tasks[8:], method="episodes", settings={"k": 8}, before=True, out=tmp_path / "run",
        agent=f"command:{sys.executable} {EXAMPLES / 'agent_command.py'}", model=f"{server.url}#sim",
    )  # fmt: skip
    assert practicum.run_sync(work).scores == {"before": 0.25, "test": 1.0}
    assert server.stats()["calls"] == 0


def test_the_example_program_answers_a_line() -> None:
    line = json.dumps({
        "task": {"id": "x", "input": "a new battery"},
        "context": "- Task: the screen is black\n  Answer: K7\n- Task: my battery is dead\n  Answer: K5",
        "instructions": "", "place": "step 1/attempt/0.x",
    })  # fmt: skip
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "agent_command.py")], input=line + "\n", capture_output=True, text=True
    )
    assert json.loads(done.stdout)["answer"] == "K5"


@pytest.mark.slow
def test_the_commands_of_the_quickstart_print_what_it_shows(launcher: Launcher, tmp_path: Path) -> None:
    """Its commands with the scripted model, in their order, print each line it shows ('…' stands for more)."""
    with served(launcher, tmp_path) as shell:
        write_script(tmp_path)
        assert run_page("quickstart", shell, tmp_path, r"pip install|openai:|--model local") >= 10
        # This page is about a run of that one.
        assert run_page("show", shell, tmp_path) == 4


@pytest.mark.slow
def test_the_programs_for_production_print_what_their_page_shows(
    launcher: Launcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its programs and commands, after those of the quickstart that make the run; the model is a server's."""
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}{os.pathsep}{ROOT / 'tests' / 'support'}")
    with start_process("bench_server") as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        with served(launcher, tmp_path) as shell:
            write_script(tmp_path)
            for _, body in blocks_of("quickstart"):
                if ("train.jsonl\n" in body and "head" in body) or "--out runs/first" in body:
                    shell(body)
            assert run_page("production", shell, tmp_path) >= 10
        assert server.stats()["calls"] >= 5


@pytest.mark.slow
def test_the_programs_for_production_are_what_their_types_say(tmp_path: Path) -> None:
    files = save_programs("production", tmp_path)
    # From the root, where mypy finds what it kept of the package.
    done = subprocess.run([sys.executable, "-m", "mypy", "--strict", *files], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def save_programs(page: str, folder: Path) -> list[Path]:
    """Write the programs of a page, each below the name in its first line."""
    files = []
    for kind, body in blocks_of(page):
        if kind == "python" and (name := re.match(r"# (\w+\.py)\n", body)):
            (folder / name[1]).write_text(body, encoding="utf-8")
            files.append(folder / name[1])
    return files


def blocks_of(page: str) -> list[tuple[str, str]]:
    """The code blocks of a page of the documentation, each with its language; REPO in them is this repository."""
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8").replace("REPO", str(ROOT))
    return re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def write_script(folder: Path) -> None:
    """Write the script of the quickstart's model."""
    (script,) = (body for kind, body in blocks_of("quickstart") if kind == "json" and '"role"' in body)
    (folder / "script.jsonl").write_text(script, encoding="utf-8")


def run_page(page: str, shell: Callable[[str], str], folder: Path, but: str = "(?!)") -> int:
    """Run the commands of a page, `but` those that match, in their order. Each must print every line that is shown
    below it. Returns how many ran."""
    save_programs(page, folder)
    blocks, ran, missing = blocks_of(page), 0, ""
    for (kind, body), (next_kind, shown) in zip(blocks, [*blocks[1:], ("end", "")], strict=True):
        if kind != "bash" or re.search(but, body):
            continue
        printed = shell(body).splitlines()
        for line in shown.splitlines() if next_kind == "" else ():
            start, *more = SECONDS.sub("N s", line).split("…")
            found = [p for p in printed if (SECONDS.sub("N s", p).startswith(start) if more else _same(p, line))]
            if not found:
                missing += "\n".join(["not printed:", line, "by:", body, "which printed:", *printed, "", ""])
        ran += 1
    assert not missing, missing
    return ran


SECONDS = re.compile(r"\d+\.\d s")


def _same(printed: str, line: str) -> bool:
    """Whether they say the same: a table's columns stand closer in a pipe than in a terminal."""
    return SECONDS.sub("N s", printed).split() == SECONDS.sub("N s", line).split()


STUB = """#!/bin/bash
printf '%s\\n' "$PWD" "$@" > {asked}
code=$(cat {ended})
cat .stdout .stderr
exit "$code"
"""


@contextmanager
def served(launcher: Launcher, folder: Path) -> Iterator[Callable[[str], str]]:
    """A shell in a folder, whose `practicum` is forked off a process that has everything imported: twenty commands of
    their own would import for a minute. It returns what the commands print."""
    tools, asked, ended = folder / "bin", folder / "asked", folder / "ended"
    tools.mkdir()
    for pipe in (asked, ended):
        os.mkfifo(pipe)
    (tools / "practicum").write_text(STUB.format(asked=shlex.quote(str(asked)), ended=shlex.quote(str(ended))))
    (tools / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    for tool in tools.iterdir():
        tool.chmod(0o755)
    env = {**os.environ, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}

    def serve() -> None:
        while request := asked.read_text(encoding="utf-8").splitlines():
            where, *arguments = request
            ended.write_text(f"{launcher.run(arguments, Path(where)).code}\n", encoding="utf-8")

    def shell(commands: str) -> str:
        done = subprocess.run(
            ["bash", "-ec", commands], cwd=folder, env=env, timeout=120,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout
        return done.stdout

    with ThreadPoolExecutor(1) as pool:
        serving = pool.submit(serve)
        try:
            yield shell
        finally:
            asked.write_text("", encoding="utf-8")
            serving.result()
