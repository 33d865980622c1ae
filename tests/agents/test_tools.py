"""The agent with tools: its prompts, the failures of its tools and environments, and a resumed run."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import pytest
from helpers import client, context_bytes, make_tasks, world, write_tasks
from needs import needs
from refusals import refused

import practicum
from practicum.agents.environment import MAX_OBSERVATION
from practicum.core.context import Context, seed_context
from practicum.core.errors import BrokenAgentError
from practicum.core.types import Attempt, Score, Task, Trace
from practicum.models.scripted import Call, ScriptedClient

RULES = seed_context([("rules", "Count from one."), ("rules", "Be brief.")])
Turn = Callable[[Call, int], dict[str, Any]]


def acting(turn_of: Turn, used: Sequence[str] | None = ()) -> ScriptedClient:
    """A model that answers each turn by its number, from 1. An answer that has only "action" is completed to a whole
    turn, which cites nothing, or leaves "used" out if `used` is None. Other roles answer as in `world`."""

    def respond(call: Call) -> str:
        if call.role != "agent":
            return world(call)
        assert call.schema is not None
        n = 1 + sum('"action"' in turn.assistant for turn in call.prompt.turns)
        whole = {"used": used, "thought": f"thought {n}", **turn_of(call, n)}
        fields = call.schema["properties"]
        return json.dumps({name: value for name, value in whole.items() if name in fields and value is not None})

    return client(respond)


def script(*actions: dict[str, Any]) -> Turn:
    return lambda call, turn: {"action": actions[turn - 1]}


def finish(answer: str = "done") -> dict[str, Any]:
    return {"finish": {"answer": answer}}


def attempts(
    tools: object, model: ScriptedClient, tasks: Sequence[Task] | None = None, context: Context = RULES, **config: Any
) -> list[Attempt]:
    parts = practicum.Parts(tools=tools, clients={"agent": model}, scorer=config.pop("scorer", None))
    work = practicum.evaluate(tasks or make_tasks(1), context, parts=parts, **config)
    return list(practicum.run_sync(work).attempts)


def attempt(tools: object, *actions: dict[str, Any], **config: Any) -> Trace:
    return attempts(tools, acting(script(*actions)), **config)[0].trace


def observed(trace: Trace) -> list[str]:
    return [step.text for step in trace.steps if step.kind == "observation"]


def add(a: int, b: int = 1) -> int:
    """Add two numbers.

    Args:
        a: the first number
        b: the second number
    """
    return a + b


def test_each_prompt_is_the_previous_one_with_one_more_exchange() -> None:
    model = acting(script({"add": {"a": 1}}, {"add": {"a": 2}}, finish()))
    attempts([add], model, instructions="You count.")
    prompts = [call.prompt for call in model.calls]
    head = prompts[0].head
    assert head.index("You count.") < head.index("def add(") < head.index("[e0]")
    assert prompts[0].user == "Message 0: say word0"
    for earlier, later in pairwise(prompts):
        assert later.head == earlier.head
        assert later.turns[:-1] == earlier.turns
        assert later.turns[-1].user == earlier.user
    assert json.loads(prompts[1].turns[0].assistant)["action"] == {"add": {"a": 1}}
    assert prompts[2].user.startswith("Observation: 3\n")


def test_a_tool_gets_the_value_of_a_placeholder_that_the_model_sees(tmp_path: Path) -> None:
    def forward(call: Call, turn: int) -> dict[str, Any]:
        (seen,) = re.findall(r"<email-\w+>", call.prompt.user) if turn == 1 else ("",)
        return {"action": {"send": {"to": seen}} if turn == 1 else finish()}

    sent, model = list[str](), acting(forward)

    def send(to: str) -> str:
        """Send a message."""
        sent.append(to)
        return f"sent to {to}"

    tasks = [Task("t", "Write to ann@example.com.", "done")]
    (done,) = attempts([send], model, tasks, redact=["emails"], redact_map=tmp_path / "map.jsonl")
    assert sent == ["ann@example.com"]
    assert "ann@" not in str((done.trace, [call.prompt for call in model.calls]))


def test_entries_are_cited_in_any_turn() -> None:
    def cite(call: Call, turn: int) -> dict[str, Any]:
        used = {1: ["[e1]", "e9", "e1"], 2: [], 3: ["e0", "e1"]}[turn]
        return {"used": used, "action": {"add": {"a": turn}} if turn < 3 else finish()}

    trace = attempts([add], acting(cite))[0].trace
    assert (trace.used, trace.unknown) == (("e1", "e0"), 1)
    assert attempts([add], acting(script(finish()), used=None))[0].trace.used == ()
    model = acting(script(finish()))
    attempts([add], model, context=Context())
    assert "used" not in (model.calls[0].schema or {})["properties"]


def broken(how: str) -> str:
    """Fail."""
    if how == "exit":
        sys.exit(3)
    raise ValueError(f"because of {how}")


async def leaving() -> str:
    """Leave."""
    sys.exit(4)


def megabyte() -> str:
    """Return a long text."""
    return "<" + "x" * 1_000_000 + ">"


def surrogate() -> str:
    """Return a text that UTF-8 cannot encode."""
    return "a\udce4b"


def test_a_tool_that_raises_exits_or_returns_too_much_is_observed_and_the_attempt_continues() -> None:
    trace = attempt(
        [broken, leaving, megabyte, surrogate],
        {"broken": {"how": "rain"}}, {"broken": {"how": "exit"}}, {"leaving": {}}, {"broken": {"hwo": "?"}},
        {"broken": "?"}, {"other": {}}, {"megabyte": {}}, {"surrogate": {}}, {"broken": {"how": "x" * 10_000}},
        finish("still here"), profile="small",
    )  # fmt: skip
    seen = observed(trace)
    assert seen[:3] == [
        "error: ValueError: because of rain", "error: RuntimeError: SystemExit: 3", "error: RuntimeError: SystemExit: 4"
    ]  # fmt: skip
    assert [text.partition(":")[0] for text in seen[3:6]] == ["error"] * 3
    assert ("how" in seen[3], "broken" in seen[4], "'other'" in seen[5]) == (True, True, True)
    assert len(seen[6]) < MAX_OBSERVATION + 100
    assert (seen[6][:4], seen[6][-4:], "249,500 tokens" in seen[6]) == ("<xxx", "xxx>", True)
    assert seen[7] == "a?b"
    assert len(seen[8]) < MAX_OBSERVATION + 100
    assert (trace.answer, trace.error, trace.data["tool_errors"]) == ("still here", None, 7)


def test_an_empty_list_is_observed_as_a_list() -> None:
    """So the end of a paginated list differs from a tool without a result."""

    def page(number: int) -> list[str] | None:
        """Return a page."""
        return {1: ["a"], 2: []}.get(number)

    trace = attempt([page], *({"page": {"number": n}} for n in (1, 2, 3)), finish())
    assert observed(trace) == ['["a"]', "[]", ""]


@pytest.fixture
def stuck() -> Iterator[threading.Event]:
    """The event that a hung tool waits for: no thread outlives the test."""
    event = threading.Event()
    yield event
    event.set()


def test_a_tool_that_hangs_is_left_running(stuck: threading.Event) -> None:
    async def patient() -> str:
        """Wait for ever."""
        await asyncio.Event().wait()
        return "never"

    def hanging() -> str:
        """Hang."""
        stuck.wait()
        return "late"

    trace = attempt([hanging, patient], {"hanging": {}}, {"patient": {}}, finish(), tool_timeout=0.15)
    assert observed(trace) == [f"error: {name} did not return within 0.15 s" for name in ("hanging", "patient")]
    assert (trace.answer, trace.data["tool_errors"]) == ("done", 2)


def test_a_prompt_that_outgrows_the_window_fails_its_attempt() -> None:
    model = acting(lambda call, turn: {"action": {"megabyte": {}}})
    model.window = 2200
    trace = attempts([megabyte], model, profile="small")[0].trace
    assert trace.error is not None
    assert trace.error.startswith("the prompt outgrew the model's window in turn 5")
    assert not trace.lost


# ---- environments


class Box:
    """An environment that records its calls and their threads."""

    boxes: ClassVar[list[Any]] = []

    def __init__(self, task: Task) -> None:
        self.task, self.things, self.threads = task, list[str](), {threading.get_ident()}
        self.open, self.closed = False, False
        type(self).boxes.append(self)

    def __enter__(self) -> Box:
        self.open = True
        return self

    def __exit__(self, *error: object) -> None:
        self.threads.add(threading.get_ident())
        self.closed = True

    @property
    def tools(self) -> list[Any]:
        return [self.put]

    def put(self, thing: str) -> str:
        """Put a thing in."""
        assert (self.open, self.closed) == (True, False)
        self.threads.add(threading.get_ident())
        self.things.append(thing)
        return f"{len(self.things)} in the box"

    def state(self) -> list[str]:
        self.threads.add(threading.get_ident())
        return self.things


def puts(call: Call, turn: int) -> dict[str, Any]:
    task = call.prompt.turns[0].user if call.prompt.turns else call.prompt.user
    return {"action": {"put": {"thing": f"{task[:9]} {turn}"}} if turn < 3 else finish()}


def test_each_attempt_has_an_environment_of_its_own_and_leaves_its_state() -> None:
    box = type("Box", (Box,), {"boxes": []})
    secret = [Task(t.id, t.input, "secret", {"world": t.id}) for t in make_tasks(5)]

    def score(task: Task, answer: str, trace: Trace) -> Score:
        return Score(1.0, True, f"{len(trace.steps)} steps, {trace.data['state']}")

    model = acting(puts)
    for attempt in attempts(box, model, secret, scorer=score):
        name = attempt.task.input[:9]
        assert attempt.trace.data["state"] == [f"{name} 1", f"{name} 2"]
        assert attempt.score == Score(1.0, True, f"7 steps, ['{name} 1', '{name} 2']")
    assert len(box.boxes) == 5
    for one in box.boxes:
        assert (one.closed, len(one.threads)) == (True, 1)
        assert (one.task.target, one.task.meta) == (None, {"world": one.task.id})
    assert "secret" not in "".join(call.text for call in model.calls)


def test_an_environment_that_fails_is_a_failure_of_the_agent() -> None:
    def fails(*_: object) -> None:
        raise OSError("no disk")

    faults: list[tuple[str, Any, str]] = [
        ("__init__", fails, "OSError: no disk"), ("__exit__", fails, "OSError: no disk"),
        ("state", lambda box: float("nan"), "not JSON"), ("state", lambda box: {1, 2}, "not JSON"),
        ("state", lambda box: "x" * 300_000, "300,002 characters"),
    ]  # fmt: skip
    for name, fault, reason in faults:
        with pytest.raises(BrokenAgentError, match=reason):
            attempt(type("Faulty", (Box,), {name: fault}), finish())


def test_unusable_tools_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def end() -> str:
        """End."""
        return "x"

    end.__name__ = "finish"
    for tools in ([], "sql", [3], [add, add], [end]):
        with refused("tools.invalid"):
            attempt(tools, finish())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "own_tools.py").write_text("def add(a: int) -> int:\n    return a + 1\n\ntools = [add]\n")
    for agent, code in (
        ("tools:nowhere:tools", "code.cannot_load"), ("tools:", "code.cannot_load"),
        ("tools:python:Box", "run.needs_objects"),
    ):  # fmt: skip
        with refused(code):
            attempt(None, finish(), agent=agent)
    assert attempt(None, finish(), agent="tools:own_tools:tools").answer == "done"
    parts = practicum.Parts(agent=lambda text, context: "x", tools=[add])
    with refused("settings.conflict"):
        practicum.run_sync(practicum.evaluate(make_tasks(1), RULES, parts=parts))


def test_a_finished_run_resumed_touches_no_tool(tmp_path: Path) -> None:
    box = type("Box", (Box,), {"boxes": []})
    scorer = lambda task, answer, trace: "Message 1" in trace.data["state"][0]  # noqa: E731
    parts, settings = practicum.Parts(tools=box, scorer=scorer, clients={"agent": acting(puts)}), {"rounds": 0}
    work = practicum.learn(make_tasks(2), out=tmp_path / "run", parts=parts, settings=settings)
    whole = practicum.run_sync(work)
    assert len(box.boxes) == 2
    again = practicum.run_sync(practicum.resume(tmp_path / "run", parts=parts))
    assert len(box.boxes) == 2
    assert context_bytes(again) == context_bytes(whole)
    assert (again.errors, again.usage.calls, again.scores) == (whole.errors, whole.usage.calls, whole.scores)


# ---- processes


@pytest.mark.slow
def test_the_command_line_ends_though_a_tool_never_does(tmp_path: Path) -> None:
    waiting = 'def wait() -> str:\n    "Wait for ever."\n    threading.Event().wait()\n'
    (tmp_path / "own_hanging.py").write_text(f"import threading\n\n{waiting}\ntools = [wait]\n")
    write_tasks(tmp_path / "tasks.jsonl", make_tasks(1))
    turns = [
        {"match": "did not return within 0.2 s", "answer": {"thought": "it hangs", "action": finish("word0")}},
        {"answer": {"thought": "wait", "action": {"wait": {}}}},
    ]
    (tmp_path / "script.jsonl").write_text("\n".join(map(json.dumps, turns)))
    options = "--agent tools:own_hanging:tools --max-turns 3 --tool-timeout 0.2 --model scripted:script.jsonl --json"
    command = [sys.executable, "-m", "practicum.cli.app", "eval", "tasks.jsonl", *options.split()]
    env = {**os.environ, "PYTHONPATH": str(Path(practicum.__file__).parents[1])}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["score"] == 1.0


SERVER = """
    from mcp.server import MCPServer

    server = MCPServer("counter")
    things = []

    @server.tool()
    def keep(thing: str) -> str:
        "Keep a thing."
        if thing == "stone":
            raise ValueError(thing)
        things.append(thing)
        return f"{len(things)} things"

    server.run("stdio")
"""


@pytest.mark.slow
def test_mcp_servers_give_tools(tmp_path: Path) -> None:
    needs("fastmcp", "mcp")
    server = tmp_path / "server.py"
    server.write_text(textwrap.dedent(SERVER))

    def tools(task: Task) -> list[Any]:
        from fastmcp.client.transports import StdioTransport
        from pydantic_ai.mcp import MCPToolset

        return [MCPToolset(StdioTransport(sys.executable, [str(server)]), init_timeout=60), add]

    actions = {"keep": {"thing": "a"}}, {"keep": {"thing": "stone"}}, {"keep": {"thing": "b"}}, {"add": {"a": 1}}
    seen = observed(attempt(tools, *actions, finish(), tool_timeout=120.0))
    assert (seen[0], seen[2], seen[3]) == ("1 things", "2 things", "2")
    assert seen[1].startswith("error: ModelRetry: ")


def test_descriptions_of_tools_are_entries_that_the_curator_edits(tmp_path: Path) -> None:
    """The next attempt sees the edited description, the playbook's pages do not repeat it, and it is exported as MCP
    lists tools."""

    def respond(call: Call) -> str:
        if call.role == "agent":
            return acting(script(finish("no"))).respond(call)  # type: ignore[return-value]
        if call.role == "curator":
            change = {"op": "UPDATE", "insights": [1], "ids": ["e1"], "text": "add(a): never above 9", "reason": "x"}
            stray = {"op": "ADD", "insights": [1], "ids": [], "section": "tool descriptions", "text": "mul: Multiply.",
                     "reason": "x"}  # fmt: skip
            return json.dumps({"changes": [change, stray]})
        return world(call)

    model = client(respond)
    parts = practicum.Parts(tools=[add], clients=dict.fromkeys(("agent", "reflector", "curator"), model))
    result = practicum.run_sync(
        practicum.learn(
            make_tasks(2), method="ace", settings={"batch": 1}, learn_tools=True, out=tmp_path / "run", parts=parts,
            review="none", profile="full",
        )
    )  # fmt: skip
    texts = {e.id: (e.section, e.text) for e in result.context}
    assert texts["e0"] == ("tool descriptions", "add: Add two numbers.")
    assert texts["e1"] == ("tool descriptions", "add(a): never above 9")
    assert [section for section, text in texts.values() if text == "mul: Multiply."] == ["strategies"]
    asked = next(call.prompt for call in model.calls if call.role == "curator")
    assert "[e1] (tool descriptions) add(a): the first number" in asked.head
    first, *_, last = (call.prompt.head for call in model.calls if call.role == "agent")
    assert "a: the first number" in first
    assert "a: never above 9" in last
    assert "the first number" not in last
    assert "tool descriptions" not in last
    exported = json.loads(practicum.export(result.context, "tools"))
    assert exported["tools"][0]["inputSchema"]["properties"]["a"]["description"] == "never above 9"
    (tmp_path / "tools.json").write_text(json.dumps(exported))
    again = practicum.load(tmp_path / "tools.json")
    assert [entry.text for entry in again] == [
        "add: Add two numbers.", "add(a): never above 9", "add(b): the second number",
    ]  # fmt: skip
