"""The agent with tools: its trajectories, what its tools may do to it, and how a run with it resumes."""

from __future__ import annotations

import asyncio
import json
import os
import random
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
Says = Callable[[Call, int], dict[str, Any]]


def turn_of(call: Call) -> int:
    """Which turn of its attempt this is, from one."""
    return 1 + sum('"action"' in turn.assistant for turn in call.prompt.turns)


def task_of(call: Call) -> str:
    return (call.prompt.turns[0].user if call.prompt.turns else call.prompt.user).split("\n")[0]


def acting(says: Says, other: Callable[[Call], str] | None = None, used: Sequence[str] | None = ()) -> ScriptedClient:
    """A model that answers each turn by its number; an answer with "action" alone is completed to a whole turn, which
    cites nothing, or does not say so if `used` is None."""

    def respond(call: Call) -> str:
        if call.role != "agent":
            assert other is not None
            return other(call)
        assert call.schema is not None
        reply = says(call, turn_of(call))
        whole = {"used": used, "thought": f"thought {turn_of(call)}", **reply}
        return json.dumps(
            {name: value for name, value in whole.items() if name in call.schema["properties"] and value is not None}
        )

    return client(respond)


def script(*actions: dict[str, Any]) -> Says:
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
    assert head.index("You count.") < head.index("You work in turns") < head.index("def add(") < head.index("[e0]")
    assert prompts[0].user == "Message 0: say word0"
    for earlier, later in pairwise(prompts):
        assert later.head == earlier.head
        assert later.turns[:-1] == earlier.turns
        assert later.turns[-1].user == earlier.user
    assert json.loads(prompts[1].turns[0].assistant)["action"] == {"add": {"a": 1}}
    assert prompts[2].user.startswith("Observation: 3\n")


def test_entries_are_cited_in_any_turn() -> None:
    def says(call: Call, turn: int) -> dict[str, Any]:
        used = {1: ["[e1]", "e9", "e1"], 2: [], 3: ["e0", "e1"]}[turn]
        return {"used": used, "action": {"add": {"a": turn}} if turn < 3 else finish()}

    model = acting(says)
    trace = attempts([add], model)[0].trace
    assert (trace.used, trace.unknown) == (("e1", "e0"), 1)
    assert all(list((call.schema or {})["properties"]) == ["used", "thought", "action"] for call in model.calls)
    citing_nothing = acting(lambda call, turn: {"action": finish()}, used=None)
    assert attempts([add], citing_nothing)[0].trace.used == ()
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
    """Say much."""
    return "<" + "x" * 1_000_000 + ">"


def surrogate() -> str:
    """Say what UTF-8 cannot hold."""
    return "a\udce4b"


def test_a_tool_that_raises_exits_or_returns_too_much_is_observed_and_the_attempt_continues() -> None:
    trace = attempt(
        [broken, leaving, megabyte, surrogate],
        {"broken": {"how": "rain"}}, {"broken": {"how": "exit"}}, {"leaving": {}}, {"broken": {"hwo": "?"}},
        {"broken": "?"}, {"unheard": {}}, {"megabyte": {}}, {"surrogate": {}}, finish("still here"), profile="small",
    )  # fmt: skip
    seen = observed(trace)
    assert seen[0] == "error: ValueError: because of rain"
    assert seen[1] == "error: RuntimeError: SystemExit: 3"
    assert seen[2] == "error: RuntimeError: SystemExit: 4"
    assert seen[3].startswith("error: broken cannot be called so: how: ")
    assert seen[4].startswith("error: broken cannot be called so: arguments: ")
    assert seen[5] == "error: there is no tool 'unheard': there are broken, leaving, megabyte, surrogate, finish"
    assert len(seen[6]) < MAX_OBSERVATION + 100
    assert seen[6].startswith("<xxx")
    assert seen[6].endswith("xxx>")
    assert "about 249,500 tokens left out here" in seen[6]
    assert seen[7] == "a?b"
    assert (trace.answer, trace.error, trace.data["tool_errors"]) == ("still here", None, 6)


@pytest.fixture
def stuck() -> Iterator[threading.Event]:
    """What a hung tool waits for; set at the end, so that no thread outlives the test."""
    event = threading.Event()
    yield event
    event.set()


@pytest.mark.slow
def test_a_tool_that_hangs_is_left_running(stuck: threading.Event) -> None:
    async def patient() -> str:
        """Wait for ever."""
        await asyncio.Event().wait()
        return "never"

    def hanging() -> str:
        """Hang."""
        stuck.wait()
        return "late"

    trace = attempt([hanging, patient, add], {"hanging": {}}, {"patient": {}}, {"add": {"a": 1}}, finish(),
                    tool_timeout=0.5)  # fmt: skip
    assert observed(trace) == [
        "error: hanging did not return within 0.5 s", "error: patient did not return within 0.5 s", "2",
    ]  # fmt: skip
    assert (trace.answer, trace.data["tool_errors"]) == ("done", 2)


def offered(call: Call) -> list[str]:
    """The tools that the schema of a turn allows."""
    return [name for branch in (call.schema or {})["properties"]["action"]["anyOf"] for name in branch["properties"]]


def test_the_last_turn_offers_the_end_alone() -> None:
    model = acting(lambda call, turn: {"action": {"add": {"a": turn}} if "add" in offered(call) else finish("6")})
    (attempt,) = attempts([add], model, max_turns=3)
    assert [offered(call) for call in model.calls] == [["add", "finish"], ["add", "finish"], ["finish"]]
    assert "finish now" in model.calls[-1].prompt.user
    assert (attempt.trace.answer, attempt.trace.error) == ("6", None)


def test_an_attempt_whose_prompt_outgrows_the_window_fails_alone() -> None:
    model = acting(lambda call, turn: {"action": {"megabyte": {}}})
    model.window = 2200
    trace = attempts([megabyte], model, profile="small")[0].trace
    assert trace.error is not None
    assert trace.error.startswith("the prompt outgrew the model's window in turn 5")
    assert not trace.lost


class Box:
    """An environment that records what is done to it, and in which thread."""

    made: ClassVar[list[Any]] = []

    def __init__(self, task: Task) -> None:
        self.task, self.things, self.threads = task, list[str](), {threading.get_ident()}
        self.open, self.closed = False, False
        type(self).made.append(self)

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
        assert self.open
        assert not self.closed
        self.threads.add(threading.get_ident())
        self.things.append(thing)
        return f"{len(self.things)} in the box"

    def state(self) -> list[str]:
        self.threads.add(threading.get_ident())
        return self.things


@pytest.fixture
def box() -> type[Box]:
    return type("Box", (Box,), {"made": []})


def puts(call: Call, turn: int) -> dict[str, Any]:
    return {"action": {"put": {"thing": f"{task_of(call)[:9]} {turn}"}} if turn < 3 else finish()}


def test_each_attempt_has_an_environment_of_its_own_and_leaves_its_state(box: type[Box]) -> None:
    secret = [Task(t.id, t.input, "secret", {"world": t.id}) for t in make_tasks(5)]

    def score(task: Task, answer: str, trace: Trace) -> Score:
        return Score(1.0, True, f"{len(trace.steps)} steps, {trace.data['state']}")

    model = acting(puts)
    found = attempts(box, model, secret, scorer=score)
    for attempt in found:
        name = attempt.task.input[:9]
        assert attempt.trace.data["state"] == [f"{name} 1", f"{name} 2"]
        assert attempt.score == Score(1.0, True, f"7 steps, ['{name} 1', '{name} 2']")
    assert len(box.made) == 5
    for one in box.made:
        assert one.closed
        assert len(one.threads) == 1
        assert one.task.target is None
        assert one.task.meta == {"world": one.task.id}
    assert "secret" not in "".join(call.text for call in model.calls)


class Faulty(Box):
    """An environment with one fault."""

    fault = ""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        if self.fault == "making":
            raise OSError("no disk")

    def __exit__(self, *error: object) -> None:
        if self.fault == "closing":
            raise OSError("no way out")

    def state(self) -> Any:
        return {"NaN": float("nan"), "odd": {1, 2}, "long": "x" * 300_000, "none": None}[self.fault]


FAULTS = {
    "making": "Faulty raised OSError: no disk",
    "closing": "raised OSError: no way out",
    "NaN": "returned a value that is not JSON",
    "odd": "returned a value that is not JSON",
    "long": "returned 300,002 characters of JSON; the most is 200,000",
}


@pytest.mark.parametrize(("fault", "words"), FAULTS.items(), ids=FAULTS)
def test_an_environment_that_fails_is_a_failure_of_the_agent(fault: str, words: str) -> None:
    made = type("Faulty", (Faulty,), {"fault": fault})
    if fault == "closing":
        made.state = lambda self: None  # type: ignore[attr-defined]
    with pytest.raises(BrokenAgentError, match=re.escape(words)):
        attempt(made, finish())


def test_unusable_tools_are_refused() -> None:
    def finish_() -> str:
        """End."""
        return "x"

    finish_.__name__ = "finish"
    for tools in ([], "sql", [3], [add, add], [finish_]):
        with refused("tools.invalid"):
            attempt(tools, finish())


def test_tools_that_do_not_load_and_two_agents_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])

    def evaluate(parts: practicum.Parts | None = None, **config: Any) -> Any:
        made = parts or practicum.Parts(clients={"agent": acting(script(finish()))})
        return practicum.run_sync(practicum.evaluate(make_tasks(1), RULES, parts=made, **config))

    for config, code in (
        ({"agent": "tools:nowhere:tools"}, "code.cannot_load"),
        ({"agent": "tools:"}, "code.cannot_load"),
        ({"agent": "tools:python:Box"}, "run.needs_objects"),
    ):
        with refused(code):
            evaluate(**config)
    with refused("settings.conflict"):
        evaluate(practicum.Parts(agent=lambda text, context: "x", tools=[add]))
    (tmp_path / "own_tools.py").write_text("def add(a: int) -> int:\n    return a + 1\n\ntools = [add]\n")
    assert evaluate(agent="tools:own_tools:tools").errors == 0


# ---- learning and resuming


class Dice(Box):
    """An environment whose results differ each time."""

    def put(self, thing: str) -> str:
        """Put a thing in."""
        return f"{super().put(thing)} {random.random()}"  # as the user's own code would


@pytest.fixture
def dice() -> type[Box]:
    return type("Dice", (Dice,), {"made": []})


def by_state(task: Task, answer: str, trace: Trace) -> bool:
    return "2" in "".join(trace.data["state"])[:12]


def teaching(call: Call) -> str:
    """The other roles of ACE; their answers are a function of the prompt."""

    return world(call)


def learn(folder: Path, tools: object, model: ScriptedClient, **config: Any) -> practicum.Result:
    parts = practicum.Parts(tools=tools, scorer=by_state, clients={"agent": model})
    settings = {"batch": 2, "rounds": 0}
    work = practicum.learn(make_tasks(6), out=folder, parts=parts, method="ace", settings=settings, **config)
    return practicum.run_sync(work)


def resume(folder: Path, tools: object, model: ScriptedClient, **limits: Any) -> practicum.Result:
    parts = practicum.Parts(tools=tools, scorer=by_state, clients={"agent": model})
    return practicum.run_sync(practicum.resume(folder, **limits, parts=parts))


def test_a_finished_run_resumed_touches_no_tool(tmp_path: Path, dice: type[Box]) -> None:
    model = acting(puts, teaching)
    whole = learn(tmp_path / "run", dice, model)
    assert len(dice.made) == 6
    again = resume(tmp_path / "run", dice, acting(puts, teaching))
    assert len(dice.made) == 6
    assert context_bytes(again) == context_bytes(whole)
    assert (again.errors, again.usage.calls, again.scores) == (whole.errors, whole.usage.calls, whole.scores)


# ---- the command line


HANGING = """
import threading

def wait() -> str:
    "Wait for ever."
    threading.Event().wait()

tools = [wait]
"""


@pytest.mark.slow
def test_the_command_line_ends_though_a_tool_never_does(tmp_path: Path) -> None:
    (tmp_path / "own_hanging.py").write_text(HANGING)
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


# ---- MCP


@pytest.mark.slow
def test_mcp_servers_give_tools(tmp_path: Path) -> None:
    needs("fastmcp", "mcp")
    server = tmp_path / "server.py"
    server.write_text(
        textwrap.dedent(
            """
            from mcp.server import MCPServer

            server = MCPServer("counter")
            kept = []

            @server.tool()
            def keep(thing: str) -> str:
                "Keep a thing."
                if thing == "stone":
                    raise ValueError(thing)
                kept.append(thing)
                return f"{len(kept)} kept"

            server.run("stdio")
            """
        )
    )

    def made(task: Task) -> list[Any]:
        from fastmcp.client.transports import StdioTransport
        from pydantic_ai.mcp import MCPToolset

        return [MCPToolset(StdioTransport(sys.executable, [str(server)]), init_timeout=60), add]

    actions = {"keep": {"thing": "a"}}, {"keep": {"thing": "stone"}}, {"keep": {"thing": "b"}}, {"add": {"a": 1}}
    seen = observed(attempt(made, *actions, finish(), tool_timeout=120.0))
    assert (seen[0], seen[2], seen[3]) == ("1 kept", "2 kept", "2")
    assert seen[1].startswith("error: ModelRetry: ")
