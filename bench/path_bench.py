"""Length of the path of one task: the modules and functions of practicum that run between two events.

    step       one step of ACE on one task that the agent fails, from `Watch.stepping` to `Watch.stepped`: its three
               model calls (attempt, reflection, curation), the delta, the journal and the stored version
    request    one request of a client through the service, from its bytes to the bytes for the model server: the
               service reads it, renders the live version, and writes the learned text into it

Each is measured after others of its kind, so that imports, connections and caches are not counted. A function counts
once, in all threads, even if it runs often. Comprehensions and lambdas are part of the function that contains them.
Code that is generated at runtime, such as `__init__` of a dataclass, and the simulated model do not count. The bench
exits with 1 if the step exceeds a target.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from measure import Target, arguments, load_average, print_end, print_table
from simulated_world import INSTRUCTIONS, LABELS, attempt, respond, tasks

import practicum
from practicum.core.edits import Add, Delta
from practicum.models.scripted import Call, ScriptedClient
from practicum.serve.protocols import read_request
from practicum.serve.service import Service
from practicum.serve.sessions import Caller
from practicum.serve.settings import ServiceSettings
from practicum.session.components import Parts
from practicum.session.config import Config, Splits
from practicum.session.records import begin, create
from practicum.session.result import Watch

MODULES, FUNCTIONS = 30, 300
"""Targets for the step."""

PACKAGE = f"{Path(practicum.__file__).parent}{os.sep}"
SIMULATED = ("models.scripted", "testing")
"""Modules of the simulated model, which no real request runs."""

COUNTED = 3
"""Number of the step that is counted. The steps before it fill caches."""

REQUESTS = {"ace": "rules", "unified": "memories"}
"""Method of a space → a section that the method shows. `ace` shows all its entries, `unified` the similar ones."""


@dataclass
class Trail:
    """Functions that ran while `open`, with the number of times they were entered. A coroutine is entered again each
    time it continues."""

    open: bool = False
    entered: Counter[CodeType] = field(default_factory=Counter)

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if self.open and event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            self.entered[frame.f_code] += 1

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Record the calls of this thread, and of threads that start in this block."""
        threading.setprofile(self)
        sys.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type]

    def functions(self) -> dict[str, dict[str, int]]:
        """Return, by module, the functions that ran and their counts. Modules with the most functions come first."""
        by_module: dict[str, dict[str, int]] = {}
        for code, times in self.entered.items():
            module = code.co_filename.removeprefix(PACKAGE).removesuffix(".py").replace(os.sep, ".")
            if not code.co_name.startswith("<") and module not in SIMULATED:
                by_module.setdefault(module, {})[f"{code.co_qualname}:{code.co_firstlineno}"] = times
        return dict(sorted(by_module.items(), key=lambda item: (-len(item[1]), item[0])))


class Steps(Watch):
    """Watch that opens a trail when the counted step begins, and closes it when the step is done."""

    def __init__(self, path: Trail) -> None:
        self.path = path

    def stepping(self, step: int, tasks: int, steps: int | None) -> None:
        self.path.open = step == COUNTED

    def stepped(self, report: Any, progress: Any) -> None:
        self.path.open = False


def answer(call: Call) -> str:
    if call.schema is None:
        return attempt(call.text, call.prompt.user)
    return respond(call.schema["title"], call.schema, call.text, call.prompt.user)


def step_path(folder: Path) -> tuple[dict[str, dict[str, int]], list[str]]:
    """Return the path of a step, and the roles of its calls."""
    path, client = Trail(), ScriptedClient(answer)
    roles = list[str]()

    def respond_counted(call: Call) -> str:
        if path.open:
            roles.append(call.role)
        return answer(call)

    client.respond = respond_counted
    with path.watching():
        work = practicum.learn(
            # Only hard tasks. Without rounds, a failed task is not tried again.
            tasks(COUNTED, easy=0), method="ace", settings={"rounds": 0}, choices=LABELS, instructions=INSTRUCTIONS,
            concurrency=1, parts=Parts(clients={"agent": client}), watch=Steps(path), out=folder,
        )  # fmt: skip
        practicum.run_sync(work)
    return path.functions(), roles


def request_path(folder: Path, method: str) -> dict[str, dict[str, int]]:
    """Return the path of a request to a space with twenty entries."""
    entries = (Add(REQUESTS[method], f"If it speaks of {task.input[:60]}, answer {task.target}.") for task in tasks(20))
    context = practicum.Context().apply(Delta(tuple(entries))).context
    with create(folder) as store:
        begin(store, Config(method=method), Splits(), context, "done")
    path, texts = Trail(), [task.input for task in tasks(COUNTED)]

    async def ask() -> None:
        service = Service(ServiceSettings(store=folder, folder=folder, learn=False))
        try:
            await service.start()
            for n, text in enumerate(texts, 1):
                path.open = n == len(texts)
                body = b'{"model": "sim", "messages": [{"role": "user", "content": "%s"}]}' % text.encode()
                request = read_request("chat", body)
                shown = await service.show("default", request, Caller(str(n)))
                assert shown is not None
                assert request.write(shown.fixed, shown.learned, "") != body
                path.open = False
        finally:
            await service.close()

    with path.watching():
        asyncio.run(ask())
    return path.functions()


def total(modules: dict[str, dict[str, int]]) -> int:
    return sum(map(len, modules.values()))


def print_path(name: str, modules: dict[str, dict[str, int]], names: bool) -> None:
    """Print the modules of a path with their numbers of functions, and the totals."""
    rows = [[module, len(functions), sum(functions.values())] for module, functions in modules.items()]
    entered = sum(sum(functions.values()) for functions in modules.values())
    rows.append([f"{len(modules)} modules", total(modules), entered])
    print(f"\n{name}")
    print_table(("module", "functions", "entered"), rows)
    for module, functions in modules.items() if names else ():
        print(f"{module}: {', '.join(functions)}")


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--names", action="store_true", help="print the functions of each module, too")
    options = parser.parse_args()
    before = load_average()
    with tempfile.TemporaryDirectory(prefix="path_bench-") as folder:
        step, roles = step_path(Path(folder) / "run")
        requests = {method: request_path(Path(folder) / method, method) for method in REQUESTS}
    print_path(f"one step of ACE: {', '.join(roles)}", step, options.names)
    for method, modules in requests.items():
        print_path(f"one request to a space of {method}", modules, options.names)
    targets = [
        Target(name="modules of a step", value=len(step), bound=MODULES),
        Target(name="functions of a step", value=total(step), bound=FUNCTIONS),
    ]
    result = {
        "step": step, "calls": roles, "requests": requests,
        "totals": {
            name: {"modules": len(modules), "functions": total(modules)}
            for name, modules in {"step": step, **requests}.items()
        },
    }  # fmt: skip
    print_end("path", result, targets, before, options.json)
    return int(not all(target.met for target in targets))


if __name__ == "__main__":
    raise SystemExit(main())
