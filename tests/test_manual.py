"""Everything that the manual and README show is run: the commands and programs of each page, in their order."""

from __future__ import annotations

import ast
import asyncio
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from helpers import Launcher
from loads import free_port
from needs import needs

from practicum.methods.describe import RECOMMENDED
from practicum.testing import ServerProcess, start_process

needs("mcp", "serve")

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))
FIRST = ("start/your-agent.md", "learn/traces.md")
"""The pages whose files and runs the other pages use."""

BLOCK = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.M | re.S)
DEMO = "start/first-result.md"
"""The page with the local model."""
SERVED = ("serve/proxy.md", "serve/outcomes.md")
"""Pages that ask a service on port 8700."""
FRAMEWORKS = "measure/frameworks.md"
"""The page whose sections need programs of other projects."""


def blocks_of(page: str) -> list[tuple[str, str]]:
    """The code blocks of a page, or of its section after a #, each with its language."""
    page, _, section = page.partition("#")
    text = (DOCS / page).read_text(encoding="utf-8")
    return BLOCK.findall(text.partition(f"\n## {section}\n")[2].partition("\n## ")[0] if section else text)


def save_programs(page: str, folder: Path, port: str) -> None:
    """Write the programs of a page, each under the name in its first line."""
    for kind, body in blocks_of(page):
        if kind == "python" and (name := re.match(r"# (\w+\.py)\n", body)):
            (folder / name[1]).write_text(body.replace(":8700", f":{port}"), encoding="utf-8")


@pytest.fixture(scope="module")
def model() -> Iterator[ServerProcess]:
    with start_process("workshop_server") as server:
        yield server


@pytest.fixture(scope="module")
def first(model: ServerProcess, launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the first pages were followed."""
    folder = tmp_path_factory.mktemp("first")
    for page in FIRST:
        follow(page, folder, model, launcher)
    return folder


STUB = """#!/bin/bash
printf '%s\\n' "$PWD" "$@" > {requests}
code=$(cat {codes})
cat .stdout; cat .stderr >&2
exit "$code"
"""


@contextmanager
def shell(folder: Path, model: ServerProcess, launcher: Launcher) -> Iterator[Callable[[str], str]]:
    """A shell whose `practicum` is forked off a process that has everything imported."""
    tools, requests, codes = folder / "bin", folder / ".requests", folder / ".codes"
    shutil.rmtree(tools, ignore_errors=True)
    tools.mkdir()
    for pipe in (requests, codes):
        pipe.unlink(missing_ok=True)
        os.mkfifo(pipe)
    (tools / "practicum").write_text(STUB.format(requests=shlex.quote(str(requests)), codes=shlex.quote(str(codes))))
    (tools / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    for tool in tools.iterdir():
        tool.chmod(0o755)
    env = {
        **os.environ, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}", "OPENAI_BASE_URL": model.url, "OPENAI_API_KEY": "none",
    }  # fmt: skip

    def serve() -> None:
        while request := requests.read_text(encoding="utf-8").splitlines():
            where, *arguments = request
            names = {"OPENAI_BASE_URL": model.url, "OPENAI_API_KEY": "none", "PYTHONPATH": where}
            done = launcher.run(arguments, Path(where), **names)
            codes.write_text(f"{done.code}\n", encoding="utf-8")

    def run(commands: str) -> str:
        done = subprocess.run(
            ["bash", "-eo", "pipefail", "-c", commands], cwd=folder, env=env, timeout=120,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        assert done.returncode == 0, f"{commands}\n{done.stdout}"
        return done.stdout

    with ThreadPoolExecutor(1) as pool:
        serving = pool.submit(serve)
        try:
            yield run
        finally:
            requests.write_text("", encoding="utf-8")
            serving.result()


def follow(page: str, folder: Path, model: ServerProcess, launcher: Launcher, port: str = "8700") -> str:
    """Run the commands of a page in their order. Return their output."""
    save_programs(page, folder, port)
    with shell(folder, model, launcher) as run:
        return "".join(run(body.replace(":8700", f":{port}")) for kind, body in blocks_of(page) if kind == "bash")


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [page for page in PAGES if "bash" in dict(blocks_of(page)) and page not in (*FIRST, DEMO, FRAMEWORKS)]
)
def test_the_commands_of_a_page_run_in_their_order(
    page: str, first: Path, model: ServerProcess, launcher: Launcher, tmp_path: Path
) -> None:
    folder = shutil.copytree(first, tmp_path / "work", ignore=shutil.ignore_patterns(".requests", ".codes"))
    with ExitStack() as stack:
        port = stack.enter_context(service(folder, model)) if page in SERVED else "8700"
        follow(page, folder, model, launcher, port)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("section", "program", "figure", "figures"),
    [
        ("inspect_ai", "inspect", r"accuracy +([\d.]+)", ["0.333", "1.000"]),
        ("promptfoo", "promptfoo", r"(\d+) (?:passed|failed|error)", ["3", "0", "0"]),
        ("verifiers", "vf-eval", r"reward ([\d.]+) ", ["1.00"]),
    ],
)
def test_a_framework_measures_a_space(
    section: str, program: str, figure: str, figures: list[str], first: Path, model: ServerProcess, launcher: Launcher,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not on the PATH: docs/{FRAMEWORKS} says how {section} is installed")
    for name in ("NO_COLOR", "PROMPTFOO_DISABLE_TELEMETRY", "PROMPTFOO_DISABLE_UPDATE"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("PROMPTFOO_CONFIG_DIR", str(tmp_path / "promptfoo"))
    folder = shutil.copytree(first, tmp_path / "work", ignore=shutil.ignore_patterns(".requests", ".codes"))
    with service(folder, model, "runs/first") as port:
        assert re.findall(figure, follow(f"{FRAMEWORKS}#{section}", folder, model, launcher, port)) == figures
        health = json.loads(subprocess.check_output(["curl", "-sf", f"localhost:{port}/health"]))
    assert health["counts"].get("feedback", 0) == (6 if section == "verifiers" else 0)


@pytest.mark.slow
def test_the_program_in_typescript_reports_an_outcome(first: Path, model: ServerProcess, tmp_path: Path) -> None:
    """Under the Node.js of playwright, which removes types."""
    node = Path(needs("playwright", "all-tests").__file__).parent / "driver" / "node"
    agent = 'const myAgent = async (input: string, context: string) => context.match(/K\\d/g)?.join(" ") ?? "";'
    (program,) = (body for kind, body in blocks_of("serve/proxy.md") if kind == "ts")
    folder = shutil.copytree(first, tmp_path / "work", ignore=shutil.ignore_patterns(".requests", ".codes"))
    with service(folder, model, "runs/first") as port:
        source = f"{agent}\n{program}\nconsole.log(answer);".replace(":8700", f":{port}")
        (tmp_path / "agent.mts").write_text(source, encoding="utf-8")
        done = subprocess.run([node, tmp_path / "agent.mts"], capture_output=True, text=True, timeout=60)
        assert {*done.stdout.split()} == {"K2", "K5", "K9"}, done.stderr
        reply = subprocess.check_output(["curl", "-sf", f"localhost:{port}/v1/corrections?state=live"])
    (correction,) = json.loads(reply)["corrections"]
    assert (correction["question"], correction["target"]) == ("There is water in my phone.", "K2")


@pytest.mark.local
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_first_result_is_the_one_that_its_page_shows(tmp_path: Path) -> None:
    """All commands of the page, with the real model: the demo, a wrong answer, its correction, the right answer.

    The requests that the model reads in one batch depend on time, and the numbers of a batch on its size. So a message
    whose teams are almost equally probable is answered in either way: two of 64 messages may differ from the page.
    """
    needs("xllamacpp", "local")
    port = free_port()
    commands = "\n".join(body for kind, body in blocks_of(DEMO) if kind == "bash")
    commands = commands.replace(":8700", f":{port}").replace("--upstream local", f"--upstream local --port {port}")
    program = tmp_path / "practicum"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m practicum.cli.app "$@"\n')
    program.chmod(0o755)
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    with (tmp_path / "printed").open("w+") as printed:
        done = subprocess.run(["bash", "-ec", commands], cwd=tmp_path, env=env, timeout=600, stdout=printed)
        printed.seek(0)
        text = printed.read()
    assert done.returncode == 0, text
    ((before, after),) = re.findall(r"before (\d+)%, after (\d+)% on the 64 held-out messages", text)
    assert (int(before), int(after)) == (pytest.approx(12, abs=3.5), pytest.approx(97, abs=3.5))
    assert re.findall(r'"content":"(\w+)"', text) == ["Cedar", "Hazel"]
    assert text.rstrip().endswith("Do you sell gift cards in shops? → Hazel")


@contextmanager
def service(folder: Path, model: ServerProcess, *store: str) -> Iterator[str]:
    """A service with one interaction, and its port."""
    env = {**os.environ, "OPENAI_API_KEY": "none", "PYTHONPATH": str(ROOT)}
    serve = [sys.executable, "-m", "practicum.cli.app", "serve", *store]
    command = [*serve, "--upstream", f"{model.url}#sim", "--port", "0"]
    process = subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = next(line for line in process.stdout if "practicum serves" in line)
        port = re.search(r" at http://[\d.]+:(\d+)/v1", line)
        assert port
        body = {"messages": [{"role": "user", "content": "Who handles refunds?"}]}
        asked = subprocess.run(
            ["curl", "-sf", f"localhost:{port[1]}/v1/chat/completions", "-H", "x-practicum-session: 1",
             "-H", "x-practicum-user: anna", "-d", json.dumps(body)],
            check=True, capture_output=True,
        )  # fmt: skip
        assert b"choices" in asked.stdout
        yield port[1]
    finally:
        process.terminate()
        process.communicate(timeout=30)


SNIPPETS = [
    (page, number, body)
    for page in PAGES
    for number, (kind, body) in enumerate(blocks_of(page))
    if kind == "python" and not re.match(r"# \w+\.py\n|--8<--", body)
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "number", "body"), SNIPPETS, ids=lambda value: None if len(str(value)) > 60 else str(value)
)
def test_a_snippet_runs(
    page: str, number: int, body: str, first: Path, model: ServerProcess, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """With the names that the text around it explains; in a coroutine, if it awaits anything."""
    monkeypatch.chdir(shutil.copytree(first, tmp_path / "work", ignore=shutil.ignore_patterns(".requests", ".codes")))
    monkeypatch.setenv("OPENAI_BASE_URL", model.url)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    kind = "async " if re.search(r"\bawait |\basync ", body) else ""
    source = f"{kind}def snippet():\n" + textwrap.indent(body, "    ") + "\n    return locals()"
    with ExitStack() as stack:
        if ":8700" in source:
            source = source.replace(":8700", f":{stack.enter_context(service(Path.cwd(), model))}")
        names = prelude(tmp_path)
        exec(compile(source, f"{page} block {number}", "exec"), names)
        names = asyncio.run(run_snippet(names, source)) if kind else names["snippet"]()
    for name, value in names.items():
        if name.startswith("test_"):
            asyncio.run(value(tmp_path))


async def run_snippet(names: dict[str, Any], source: str) -> dict[str, Any]:
    """Run a snippet. If it uses a space and opens none, it gets an open space."""
    if "space.task" in source:
        from practicum import client

        async with client.open("a-store") as space:
            names["space"] = space
            return dict(await names["snippet"]())
    return dict(await names["snippet"]())


def prelude(folder: Path) -> dict[str, Any]:
    """The names that snippets of the manual take as given."""
    import practicum
    from practicum import Method
    from practicum.core.types import Instructions
    from practicum.methods import ace
    from practicum.methods.blocks import attempt, curate, dedupe, gate, reflect, sample, scan, show

    async def my_agent(context: str) -> str:
        return "K7"

    names: dict[str, Any] = {"practicum": practicum, "Method": Method, "my_agent": my_agent}
    for module in (attempt, curate, dedupe, gate, reflect, sample, scan, show):
        names |= {name: value for name, value in vars(module).items() if not name.startswith("_")}
    names |= {name: value for name, value in vars(ace).items() if isinstance(value, Instructions)}
    names["tasks"] = practicum.load_tasks("train.jsonl")
    names["mine"] = "episodes"
    return names


def test_json_and_toml_of_the_manual_can_be_read() -> None:
    for page in PAGES:
        for kind, body in blocks_of(page):
            if kind == "toml":
                tomllib.loads(body)
            if kind == "json":
                for line in body.splitlines():
                    json.loads(line)


def test_every_block_says_its_language_and_python_is_python() -> None:
    for page in PAGES:
        for kind, body in blocks_of(page):
            assert kind in ("bash", "sh", "python", "ts", "json", "toml", "text", "markdown"), (page, kind, body)
            if kind == "python" and "--8<--" not in body:
                ast.parse("async def snippet():\n" + textwrap.indent(body, "    "))


WORDS = 35_000
"""The most words of the manual that are written by hand."""


def test_the_manual_is_short() -> None:
    assert sum(len((DOCS / page).read_text(encoding="utf-8").split()) for page in PAGES) <= WORDS
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 90


def test_the_manual_recommends_the_methods_of_the_command_with_the_same_figures() -> None:
    page, _, _ = (DOCS / "learn/methods.md").read_text(encoding="utf-8").partition("\n## How the advice is made")
    rows = dict(re.findall(r"^\| \[`(\w+)`\]\([^|]*\|(.*)$", page, re.MULTILINE))
    assert [*rows] == [*RECOMMENDED]
    for name, advice in RECOMMENDED.items():
        assert {*re.findall(r"[\d.]+%", advice.measured)} <= {*re.findall(r"[\d.]+%", rows[name])}, name


def test_every_place_of_the_manual_that_the_code_names_exists() -> None:
    named = {
        (page, anchor)
        for file in (*ROOT.glob("practicum/**/*.py"), *ROOT.glob("deploy/*"), *ROOT.glob("*.md"))
        for page, anchor in re.findall(r"docs/([a-z_/]+\.md)(?:#([a-z0-9-]+))?", file.read_text(encoding="utf-8"))
    }
    assert ("results.md", "the-demo") in named
    for page, anchor in named:
        headings = re.findall("^#+ (.*)$", (DOCS / page).read_text(encoding="utf-8"), re.MULTILINE)
        anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
        assert not anchor or anchor in anchors, (page, anchor)
