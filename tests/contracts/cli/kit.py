"""The means of the contract tests of the command line: the quickstart's files, commands, and a model server.

Nothing here knows a module of practicum below its faces: `practicum`, `practicum.testing`, and the program's `main`.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anyio.from_thread import start_blocking_portal
from helpers import Done, run_command

import practicum
from practicum.testing import ServerOptions, serve

ROOT = Path(__file__).parents[3]

INSTALLED = str(Path(practicum.__file__).parents[1])
"""The folder with the practicum that is tested: also processes use it."""
Body = dict[str, Any]


def workshop_files() -> dict[str, str]:
    """Return the files of the repair workshop by name: tasks, logs, and the scripts of models that can do the tasks."""
    folder = ROOT / "tests" / "support" / "workshop"
    files = {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}
    tasks = (ROOT / "examples" / "tasks.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    return {**files, "train.jsonl": "".join(tasks[:8]), "test.jsonl": "".join(tasks[8:12])}


def new_workshop(folder: Path) -> Shell:
    """A folder with the files of the repair workshop, without runs."""
    shell = Shell(folder)
    for name, text in workshop_files().items():
        shell.file(name, text)
    return shell


def with_lessons(*lessons: tuple[str, str, str]) -> str:
    """Return the workshop's script with more reflections: (pattern in the prompt, section, text of the insight)."""
    script = workshop_files()["script.jsonl"]
    one = next(rule for rule in map(json.loads, script.splitlines()) if rule.get("answer", {}).get("insights"))
    added = ""
    for pattern, section, text in lessons:
        answer = {**one["answer"], "correction": "", "cause": "It did not know."}
        answer["insights"] = [{"section": section, "text": text}]
        added += json.dumps({**one, "match": pattern, "answer": answer}) + "\n"
    return added + script


def write_lines(path: Path, records: Iterable[Any]) -> Path:
    """JSON lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(record, ensure_ascii=False)}\n" for record in records), encoding="utf-8")
    return path


def all_bytes(folder: Path) -> bytes:
    """The bytes of all files below a folder."""
    return b"\0".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


class Shell:
    """Runs `practicum` in this process, with a folder as the current one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __truediv__(self, name: str) -> Path:
        return self.folder / name

    def __call__(self, typed: str, *more: object, code: int | tuple[int, ...] = 0) -> Done:
        """Run `practicum TYPED MORE`, which must end with this exit code. `typed` is split as a shell does."""
        arguments = [*shlex.split(typed), *map(str, more)]
        done = run_command(arguments, self.folder)
        codes = (code,) if isinstance(code, int) else code
        assert done.code in codes, f"{arguments} ended with {done.code}\n{done.out}{done.err}"
        assert "Traceback" not in done.err
        return done

    def json(self, typed: str, *more: object, code: int = 0) -> dict[str, Any]:
        """The result of `practicum TYPED MORE --json`."""
        return self(typed, *more, "--json", code=code).json

    def fails(self, typed: str, *more: object, error: str = "", code: int = 2) -> str:
        """The one line of a command that fails with this exit code and this code of the error, or any if it is empty.
        With --json the code is in the one JSON object, and the line on standard error."""
        done = self(typed, *more, "--json", code=code)
        report = done.json["error"]
        assert re.fullmatch(r"[a-z]+\.[a-z0-9_]+", report["code"])
        assert report["code"] == error or not error
        assert report["message"] == done.line
        return done.line

    def texts(self, run: str, *more: object) -> list[str]:
        """The texts of the entries that `show RUN` lists."""
        return [entry["text"] for entry in self.json("show", run, *more)["entries"]]

    def file(self, name: str, text: str) -> Path:
        """A file in the folder."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def copy(self, run: str, to: str) -> str:
        """A copy of a run under another name."""
        shutil.copytree(self / run, self / to)
        return to

    def copied(self, folder: Path) -> Shell:
        """A copy of all files, which may be changed."""
        shutil.copytree(self.folder, folder, dirs_exist_ok=True)
        return Shell(folder)


@dataclass
class Process:
    """A `practicum` in a separate process."""

    process: subprocess.Popen[str]

    def line(self) -> str:
        """The next line of standard output."""
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def end(self, number: int | None = None) -> Done:
        """Send a signal, if one is given, and wait for the end."""
        if number is not None:
            self.process.send_signal(number)
        out, err = self.process.communicate(timeout=60)
        return Done(self.process.returncode, out, err)


@contextmanager
def started(folder: Path, *arguments: object, environment: Mapping[str, str] | None = None) -> Iterator[Process]:
    """`practicum ARGUMENTS` in a real process, which is killed at the end of the block if it still runs."""
    env = {name: value for name, value in os.environ.items() if not name.lower().endswith(("_proxy", "_api_key"))}
    env |= {"PYTHONPATH": INSTALLED, "OPENBLAS_NUM_THREADS": "1", **(environment or {})}
    with subprocess.Popen(
        [sys.executable, "-c", "from practicum.cli.app import main; main()", *map(str, arguments)],
        cwd=folder, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        # Under nohup, SIGHUP is ignored, and practicum leaves it so.
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
    ) as process:  # fmt: skip
        try:
            yield Process(process)
        finally:
            if process.poll() is None:
                process.kill()


class Model:
    """The simulated server of `practicum.testing`, in a thread. It counts requests, and answers with `answer`, or by
    what fits the schema of the request where that gives None. `before(n)` is called when the n-th request arrives."""

    def __init__(self) -> None:
        self.url = ""
        self.reset()

    def reset(self) -> None:
        """Forget all requests, and answer by schema."""
        self.bodies: list[Body] = []
        self.answer: Callable[[Body], str | None] = lambda body: None
        self.before: Callable[[int], None] = lambda n: None

    @property
    def name(self) -> str:
        """As `--model` takes it."""
        return f"{self.url}#sim"

    @property
    def texts(self) -> list[str]:
        """The text of each request."""
        return [text_of(body) for body in self.bodies]

    def respond(self, body: Body) -> str | None:
        self.bodies.append(body)
        self.before(len(self.bodies))
        return self.answer(body)


@contextmanager
def serving(behaviours: Sequence[tuple[str, int | str]] = ()) -> Iterator[Model]:
    """A model server for as long as the block lasts, with these behaviours of `practicum.testing`."""
    model = Model()
    server = serve(ServerOptions(responder=model.respond, keep=False, behaviours=behaviours))
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(server) as running:
        model.url = running.url
        yield model


def text_of(body: Body) -> str:
    """The texts of all messages of a request."""
    parts = (message.get("content") or "" for message in body["messages"])
    return "\n".join(p if isinstance(p, str) else "".join(each.get("text", "") for each in p) for p in parts)


def by_script(script: str) -> Callable[[Body], str | None]:
    """Answers requests by the rules of a script, as `--model scripted:FILE` does. Over HTTP a role is known by the
    form that is asked for: a rule fits a request if its answer fits the schema, and an agent is asked for text."""
    rules = [json.loads(line) for line in script.splitlines() if line]

    def answer(body: Body) -> str | None:
        text = text_of(body)
        form = (body.get("response_format") or {}).get("json_schema", {}).get("schema")
        for rule in rules:
            fits = rule["role"] == "agent" if form is None else {*rule["answer"]} <= {*form["properties"]}
            if not fits or not (match := re.search(rule.get("match", ""), text)):
                continue
            filled = re.sub(r"\\\\([0-9])", lambda group, of=match: of[int(group[1])], json.dumps(rule["answer"]))
            if form is not None:
                return filled
            values = json.loads(filled)
            parts = {label: values.get(label.lower()) or "none" for label in re.findall(r"(?m)^(\w+): <", text)}
            lines = (f"{k}: {', '.join(v) if isinstance(v, list) else v}" for k, v in parts.items())
            return "\n".join(lines) or str(values["answer"])
        return None

    return answer


def interrupts(pid: int, at: int, number: int = signal.SIGKILL) -> Callable[[int], None]:
    """Sends a signal to a process when the request of this number arrives."""

    def before(n: int) -> None:
        if n == at:
            os.kill(pid, number)

    return before
