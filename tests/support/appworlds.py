"""A small imitation of AppWorld's environment server, with the answers of appworld 0.1.3.

It has one world at a time, which the next `initialize` replaces. Any fault is a bare 500. The result of `evaluate` does
not change until the world is closed. A task asks for a sum, and is solved if complete_task got the sum.
"""

from __future__ import annotations

import json
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

HUNG = "while True: pass"
"""Code that ends with a time-out at once."""


@dataclass
class OpenWorld:
    """A world: its variables, its answer, and the result of its tests."""

    task: str
    seconds: int
    names: dict[str, Any] = field(default_factory=dict)
    answer: Any = None
    result: dict[str, Any] | None = None

    def run(self, code: str) -> str:
        """The output of the code."""
        if code == HUNG:
            return f"Execution failed. Traceback:\nException: Execution timed out after {self.seconds} seconds."
        printed: list[str] = []
        self.names["print"] = lambda *values: printed.append(" ".join(map(str, values)) + "\n")
        self.names["apis"] = SimpleNamespace(supervisor=SimpleNamespace(complete_task=self.complete))
        try:
            exec(code, self.names)
        except Exception as error:
            return "Execution failed. Traceback:\n" + traceback.format_exception_only(error)[0].strip()
        return "".join(printed) or "Execution successful."

    def complete(self, answer: Any = None) -> None:
        self.answer = answer

    def evaluate(self, right: int) -> dict[str, Any]:
        if self.result is None:
            done = self.answer == right
            failed = {"requirement": "The sum is right.", "label": "no_op_fail"}
            code = f"```python\ntest.answer(told, {right})\n```"
            trace = f"{code}\n----------\nAssertionError:  '{self.answer}' == '{right}'"
            passed = {"requirement": "Nothing else was touched.", "label": "no_op_pass"}
            self.result = {
                "success": done, "difficulty": 1, "num_tests": 2,
                "passes": [*([failed] if done else []), passed],
                "failures": [] if done else [{**failed, "trace": trace}],
            }  # fmt: skip
        return self.result


class AppWorlds(ThreadingHTTPServer):
    """A server of tasks s1_1, s1_2 and so on: `sN_M` asks for N + M. `seen` are the calls, with their tasks."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.world: OpenWorld | None = None
        self.seen: list[tuple[str, str]] = []
        self.bodies: list[dict[str, Any]] = []
        self.replaced = 0
        self.breaks_for = ""
        self.lock = threading.Lock()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def called(self, method: str) -> int:
        return sum(name == method for name, _ in self.seen)

    def answer(self, method: str, body: dict[str, Any]) -> Any:
        """The output of a method; an exception becomes a bare 500."""
        id = body["task_id"]
        self.seen.append((method, id))
        self.bodies.append(body)
        if (method, id) == ("execute", self.breaks_for):
            raise ConnectionAbortedError
        if method == "initialize":
            shown = _shown(id)
            self.replaced += self.world is not None
            self.world = OpenWorld(id, body["timeout_seconds"])
            return shown
        assert self.world is not None
        assert self.world.task == id
        match method:
            case "execute":
                return self.world.run(body["code"])
            case "evaluate":
                return self.world.evaluate(_right(id))
            case "close":
                self.world = None
                return None
        raise AssertionError(method)


def _right(id: str) -> int:
    first, second = id.removeprefix("s").split("_")
    return int(first) + int(second)


def _shown(id: str) -> dict[str, Any]:
    first, second = id.removeprefix("s").split("_")
    return {
        "task_id": id, "instruction": f"How much is {int(first)} plus {int(second)}?",
        "supervisor": {
            "first_name": "Ada", "last_name": "Example", "email": "ada@example.com", "phone_number": "5550101",
        },
        "datetime": "2023-05-18T12:00:00",
    }  # fmt: skip


class _Handler(BaseHTTPRequestHandler):
    server: AppWorlds

    def do_GET(self) -> None:
        head, _, id = self.path.removeprefix("/").partition("/")
        if head != "tasks":
            self.send(404, json.dumps({"detail": "Not Found"}))
            return
        self.replied(lambda: _shown(id))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        method = self.path.removeprefix("/")
        if method not in _NEEDED:
            self.send(404, json.dumps({"detail": "Not Found"}))
            return
        if missing := [name for name in _NEEDED[method] if name not in body]:
            detail = [{"loc": ["body", missing[0]], "msg": "field required", "type": "value_error.missing"}]
            self.send(422, json.dumps({"detail": detail}))
            return
        with self.server.lock:
            self.replied(lambda: self.server.answer(method, body))

    def replied(self, do: Any) -> None:
        try:
            output = do()
        except ConnectionAbortedError:
            self.connection.close()
        except Exception:
            self.send(500, "Internal Server Error", "text/plain; charset=utf-8")
        else:
            self.send(200, json.dumps({"output": output}))

    def send(self, status: int, text: str, kind: str = "application/json") -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *values: Any) -> None:
        """Write no log."""


_NEEDED = {"initialize": ("task_id",), "execute": ("task_id", "code"), "evaluate": ("task_id",), "close": ("task_id",)}


@contextmanager
def serving(count: int = 1) -> Iterator[list[AppWorlds]]:
    """Servers that run during the block."""
    servers = [AppWorlds() for _ in range(count)]
    threads = [threading.Thread(target=one.serve_forever, kwargs={"poll_interval": 0.01}) for one in servers]
    for thread in threads:
        thread.start()
    try:
        yield servers
    finally:
        for one, thread in zip(servers, threads, strict=True):
            one.shutdown()
            one.server_close()
            thread.join()
