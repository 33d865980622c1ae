"""Helpers of many tests: tasks, a scripted world in which every method can learn, and the command line as a process.

`Launcher` has a process with all imports and forks one command at a time from it, so that a test can start and kill
many real processes quickly.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from functools import wraps
from hashlib import sha256
from io import StringIO
from pathlib import Path
from typing import Any, TypeVar

from practicum.core import playbook
from practicum.core.types import Task
from practicum.models.scripted import Call, ScriptedClient, in_parts, parts_asked
from practicum.session.result import Result
from practicum.store.sqlite import SYNCHRONOUS_VARIABLE
from practicum.testing import fill

T = TypeVar("T")


def make_tasks(n: int, start: int = 0, **meta: Any) -> list[Task]:
    """Tasks whose right answer is in their text, so that a scripted agent can know it."""
    return [Task(f"t{i}", f"Message {i}: say word{i}", f"word{i}", dict(meta)) for i in range(start, start + n)]


def write_tasks(path: Path, tasks: Sequence[Task]) -> Path:
    """Tasks as a file."""
    lines = [json.dumps({"id": t.id, "input": t.input, "target": t.target, "meta": dict(t.meta)}) for t in tasks]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def number_of(text: str) -> int:
    """A number that depends only on the text."""
    return int(sha256(text.encode()).hexdigest()[:12], 16)


def world(call: Call) -> str:
    """An answer that fits any schema and depends only on the prompt. The agent is right about half the time and cites
    real entries."""
    number = number_of(call.role + call.text)
    if call.schema is not None:
        value = fill(call.schema, number)
        if "changes" in value:
            numbers = [int(n) for n in re.findall(r"^Insight (\d+)", call.prompt.user, re.MULTILINE)]
            value["changes"] += [{"op": "ADD", "insights": [n], "section": "", "text": ""} for n in numbers]
        return json.dumps(value)
    if not parts_asked(call.prompt):
        return f"word{number % 7}"
    shown = re.findall(r"^\[(\w+)\]", "\n".join(call.prompt.pages), re.MULTILINE)
    answer = call.prompt.user.split()[-1] if number % 2 else f"word{number % 7}"
    used = [shown[number % len(shown)]] if shown else []
    return in_parts(
        call.prompt, {"answer": answer, "used": used, "missing": "a map", "note": "seen", "reasoning": "so it is"}
    )


def client(respond: Callable[[Call], str | Exception] = world, **how: Any) -> ScriptedClient:
    """A scripted model in which every role can be asked. What `respond` writes in a short form is given in the form
    that the call asks for."""
    return ScriptedClient(lambda call: as_asked(respond(call), call), **how)


def as_asked(answer: str | Exception, call: Call) -> str | Exception:
    """An answer in a short form, as small models write it, in the full form if the call asks for that."""
    form = "" if call.schema is None else call.schema.get("title", "")
    full = {"Reflection", "Reflections", "CoverageGap", "Diagnosis", "Changes", "Mutations"}
    if isinstance(answer, Exception) or form not in full:
        return answer
    try:
        value = json.loads(answer)
    except ValueError:
        return answer
    if not isinstance(value, dict):
        return answer
    if form in ("Changes", "Mutations") and "decisions" in value:
        return json.dumps({"changes": [{**one, "insights": [one["lesson"]]} for one in value["decisions"]]})
    if form == "Reflections" and "reflections" in value:
        return json.dumps({"reflections": [_full(one) for one in value["reflections"]]})
    return json.dumps(_full(value))


def _full(short: dict[str, Any]) -> dict[str, Any]:
    """A reflection in the full form."""
    if "insight" not in short:
        return short
    insights = [{"section": "", "text": short["insight"]}] if short["insight"] else []
    filled = {name: short.get(name, "") for name in ("reasoning", "diagnosis", "cause", "correction")}
    return {**filled, "tags": [], "insights": insights, **short}


def context_bytes(result: Result) -> str:
    """The export of a final context, by which two runs are compared."""
    return playbook.export(result.context, "json")


def asynchronous(test: Callable[..., Coroutine[Any, Any, T]]) -> Callable[..., T]:
    """A test or a helper that is a coroutine."""

    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> T:
        return asyncio.run(test(*args, **kwargs))

    return run


def wait_until(condition: Callable[[], Any], event: str = "it", seconds: float = 120.0) -> Any:
    """Ask again until the condition is true, no longer than its deadline, and return its value."""
    deadline, pause = time.monotonic() + seconds, 0.002
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{event} did not happen within {seconds:g} s"
        time.sleep(pause)
        pause = min(2 * pause, 0.05)
    return value


def files_with(folder: Path, *words: str) -> list[str]:
    """The files that hold one of these words, as UTF-8."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return [path.name for path in files if any(word.encode() in path.read_bytes() for word in words)]


def prompt_of(body: Mapping[str, Any]) -> str:
    """All texts of the body of a request, in the order in which a model reads them."""
    conversation = body.get("messages", body.get("input"))
    items = conversation if isinstance(conversation, list) else [{"content": conversation}]
    contents = [body.get("system"), body.get("instructions"), *(item.get("content") for item in items)]
    return "\n".join(map(_text, contents))


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content)
    return content or ""


@dataclass(frozen=True)
class Done:
    """A command that ended: its exit code (negative: the signal that ended it), standard output, standard error."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The one JSON object, on one line, that is all of standard output."""
        assert self.out.endswith("\n"), self.out
        assert self.out.count("\n") == 1, self.out
        value = json.loads(self.out)
        assert isinstance(value, dict)
        return value

    @property
    def line(self) -> str:
        """The one line a refusal prints."""
        lines = [line for line in self.err.splitlines() if line.startswith("practicum: ")]
        assert len(lines) == 1, self.err
        assert "Traceback" not in self.err
        return lines[0].removeprefix("practicum: ")


def run_command(arguments: Sequence[object], folder: Path) -> Done:
    """Run `practicum ARGUMENTS` in this process, in a folder."""
    from practicum.cli.app import main

    out, err, code = StringIO(), StringIO(), 0
    with chdir(folder), redirect_stdout(out), redirect_stderr(err):
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0
    return Done(code, out.getvalue(), err.getvalue())


@dataclass
class Running:
    """A command under way."""

    pid: int
    launcher: Launcher
    files: tuple[Path, Path]
    done: Done | None = None

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send a signal. The process is not waited for before `end`, so that its id cannot be another's."""
        os.kill(self.pid, number)

    def ended(self) -> bool:
        """Whether it has ended by itself."""
        return self.launcher.poll(0.0)

    def end(self, seconds: float = 120.0) -> Done:
        """Wait for the end."""
        if self.done is None:
            assert self.launcher.poll(seconds), "the command did not end"
            code = self.launcher.receive()
            self.done = Done(code, *(file.read_text(encoding="utf-8") for file in self.files))
        return self.done

    @property
    def errors(self) -> str:
        """Its standard error so far."""
        return self.files[1].read_text(encoding="utf-8")


class Launcher:
    """Forks commands off a process that has everything imported."""

    def __init__(self) -> None:
        root = str(Path(__file__).parents[2])
        env = {**os.environ, "PYTHONPATH": root, "OPENBLAS_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
        for name in list(env):
            if name.lower().endswith("_proxy") or name.endswith("_API_KEY"):
                del env[name]
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__)), "fork"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, bufsize=0,
        )  # fmt: skip
        self.receive()  # it has imported everything

    def poll(self, seconds: float) -> bool:
        """Whether there is a word from the process within this time."""
        import select

        ready, _, _ = select.select([self._process.stdout], [], [], seconds)
        return bool(ready)

    def receive(self) -> int:
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())

    def start(
        self, arguments: Sequence[str], folder: Path, kill_before: tuple[str, str, int] | None = None, **env: str
    ) -> Running:
        """Start `practicum arguments` in a folder. `kill_before` chooses when it is killed (see `kills`)."""
        files = (folder / ".stdout", folder / ".stderr")
        request: dict[str, Any] = {
            "arguments": [str(a) for a in arguments], "folder": str(folder), "files": [str(f) for f in files],
        }  # fmt: skip
        request |= {"synchronous": os.environ[SYNCHRONOUS_VARIABLE], "kill_before": kill_before, "env": env}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        return Running(self.receive(), self, files)

    def run(self, arguments: Sequence[str], folder: Path, **env: str) -> Done:
        """Start a command and wait for its end."""
        return self.start(arguments, folder, **env).end()

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(10)
        self._process.stdout.close()


@contextmanager
def launched() -> Iterator[Launcher]:
    """A launcher, for as long as the block lasts."""
    launcher = Launcher()
    try:
        yield launcher
    finally:
        launcher.close()


PROGRAMS = ("practicum.tasks.sandbox.",)
"""Modules that are programs."""


def _fork_on_demand() -> None:
    """The other end of `Launcher`: one line with a request, one line with the pid, one with the exit code."""
    import gc
    import pkgutil
    from importlib import import_module

    import openai  # noqa: F401 (imported so that no child has to)
    import pydantic_ai.models.openai  # noqa: F401

    import practicum
    from practicum.core.errors import PracticumError
    from practicum.retrieval.vectors import _wordllama

    for module in pkgutil.walk_packages(practicum.__path__, "practicum."):
        # A plug-in whose extra is not installed is imported by no command.
        missing = (ImportError, PracticumError) if module.name.startswith("practicum.plugins.") else ()
        if not module.name.startswith(PROGRAMS):
            with suppress(*missing):
                import_module(module.name)
    _wordllama()
    # A collection in a child does not touch, and so does not copy, shared memory.
    gc.collect()
    gc.freeze()
    print(0, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _become(request)
        print(pid, flush=True)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _become(request: dict[str, Any]) -> None:
    from practicum.cli.app import main

    os.environ[SYNCHRONOUS_VARIABLE] = request["synchronous"]
    if request["kill_before"]:
        from kills import kill_before

        kill_before(*request["kill_before"])
    os.environ.update(request["env"])
    os.chdir(request["folder"])
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, file in zip((1, 2), request["files"], strict=True):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    sys.argv = ["practicum", *request["arguments"]]
    code = 1
    try:
        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    _fork_on_demand()
