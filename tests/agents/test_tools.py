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
from practicum.core.errors import BrokenAgentError, UsageError
from practicum.core.types import Profile, Rollout, Score, Step, Task, Trace
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
) -> list[Rollout]:
    parts = practicum.Parts(tools=tools, clients={"agent": model}, scorer=config.pop("scorer", None))
    work = practicum.evaluate(tasks or make_tasks(1), context, parts=parts, **config)
    return list(practicum.run_sync(work).rollouts)


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


async def slowly(text: str) -> dict[str, str]:
    """Say it later."""
    await asyncio.sleep(0)
    return {"said": text}


def test_a_trajectory_is_thoughts_actions_and_observations() -> None:
    trace = attempt([add, slowly], {"add": {"a": 2, "b": 3}}, {"slowly": {"text": "hö"}}, finish("5"))
    assert trace.steps == (
        Step("thought", "thought 1"),
        Step("action", 'add {"a": 2, "b": 3}'),
        Step("observation", "5"),
        Step("thought", "thought 2"),
        Step("action", 'slowly {"text": "hö"}'),
        Step("observation", '{"said":"hö"}'),
        Step("thought", "thought 3"),
    )
    assert (trace.answer, trace.error) == ("5", None)
    assert trace.data == {"turns": 3, "tool_errors": 0, "state": None}


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


def test_the_model_is_warned_when_it_repeats_an_action() -> None:
    model = acting(script({"add": {"a": 1}}, {"add": {"a": 2}}, {"add": {"a": 1}}, finish()))
    attempts([add], model)
    assert ["exactly this before" in call.prompt.user for call in model.calls] == [False, False, False, True]


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


def test_the_schema_of_a_turn_holds_the_arguments_of_each_tool() -> None:
    model = acting(script(finish("b")))
    how: dict[str, Any] = {"choices": ("a", "b"), "scorer": lambda task, answer: True, "profile": "small"}
    attempts([add, slowly], model, **how)
    action = (model.calls[0].schema or {})["properties"]["action"]
    adding, saying, ending = (branch["properties"] for branch in action["anyOf"])
    assert adding["add"]["properties"]["a"] == {"type": "integer", "description": "the first number"}
    assert adding["add"]["required"] == ["a"]
    assert saying["slowly"]["properties"]["text"]["maxLength"] > 0
    assert ending["finish"]["properties"]["answer"]["enum"] == ["a", "b"]
    assert all(branch["additionalProperties"] is False for branch in action["anyOf"])


@pytest.mark.parametrize(("profile", "bound"), [("small", 300), ("full", None)])
def test_the_schema_of_a_small_model_has_a_short_answer(profile: Profile, bound: int | None) -> None:
    said = "It is done. " * 100
    model = acting(script(finish(said)))
    trace = attempts([add], model, profile=profile)[0].trace
    ending = (model.calls[0].schema or {})["properties"]["action"]["anyOf"][-1]["properties"]
    assert ending["finish"]["properties"]["answer"].get("maxLength") == bound
    assert trace.answer == said  # what a server does not hold to the schema is kept


def find(properties: str, most: int | None = None, by: str | None = None, page: int = 1) -> str:
    """Find something."""
    return f"{properties} {most} {by} {page}"


@pytest.mark.parametrize(("profile", "demanded"), [("small", ["properties", "most", "by"]), ("full", ["properties"])])
def test_a_small_model_writes_every_argument_that_may_be_null(profile: str, demanded: list[str]) -> None:
    model = acting(script({"find": {"properties": "a", "most": None, "by": "day"}}, finish()))
    trace = attempts([find], model, profile=profile)[0].trace
    action = (model.calls[0].schema or {})["properties"]["action"]
    assert action["anyOf"][0]["properties"]["find"]["required"] == demanded
    assert observed(trace) == ["a None day 1"]


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


def test_a_timeout_error_of_a_tool_is_not_mistaken_for_the_agents_own() -> None:
    def asking() -> str:
        """Ask a server."""
        raise TimeoutError("the server is slow")

    assert observed(attempt([asking], {"asking": {}}, finish())) == ["error: TimeoutError: the server is slow"]


def test_no_answer_within_the_turns_is_a_failed_attempt_with_its_steps() -> None:
    model = acting(lambda call, turn: {"action": {"add": {"a": turn}}})
    parts = practicum.Parts(tools=[add], clients={"agent": model})
    found = practicum.run_sync(practicum.evaluate(make_tasks(1), RULES, parts=parts, max_turns=3))
    [rollout] = found.rollouts
    assert rollout.trace.error == "no answer within 3 turns"
    assert observed(rollout.trace) == ["2", "3", "4"]
    assert rollout.feedback.text == "The attempt failed: no answer within 3 turns"
    assert (rollout.score, found.errors, len(model.calls)) == (Score(0.0, False, "no answer within 3 turns"), 1, 3)


def offered(call: Call) -> list[str]:
    """The tools that the schema of a turn allows."""
    return [name for branch in (call.schema or {})["properties"]["action"]["anyOf"] for name in branch["properties"]]


def test_the_last_turn_offers_the_end_alone() -> None:
    model = acting(lambda call, turn: {"action": {"add": {"a": turn}} if "add" in offered(call) else finish("6")})
    (rollout,) = attempts([add], model, max_turns=3)
    assert [offered(call) for call in model.calls] == [["add", "finish"], ["add", "finish"], ["finish"]]
    assert "finish now" in model.calls[-1].prompt.user
    assert (rollout.trace.answer, rollout.trace.error) == ("6", None)


@pytest.mark.parametrize("profile", ["small", "full"])
def test_a_small_model_that_repeats_a_call_is_not_offered_its_tool_in_the_next_turn(profile: Profile) -> None:
    other = {"slowly": {"text": "so"}}
    model = acting(lambda call, turn: {"action": {"add": {"a": 1}} if "add" in offered(call) else other})
    attempts([add, slowly], model, profile=profile, max_turns=6)
    turns = [[name for name in offered(call) if name != "finish"] for call in model.calls]
    both = ["add", "slowly"]
    assert turns == ([both, both, ["slowly"], both, ["slowly"], []] if profile == "small" else [*[both] * 5, []])


def test_an_attempt_whose_prompt_outgrows_the_window_fails_alone() -> None:
    model = acting(lambda call, turn: {"action": {"megabyte": {}}})
    model.window = 2200
    trace = attempts([megabyte], model, profile="small")[0].trace
    assert trace.error is not None
    assert trace.error.startswith("the prompt outgrew the model's window in turn 5")
    assert not trace.lost


def test_a_capable_model_reads_an_observation_of_up_to_a_quarter_of_its_window() -> None:
    model = acting(script({"megabyte": {}}, finish("long")))
    model.window = 20_000
    trace = attempts([megabyte], model, profile="full")[0].trace
    (seen,) = observed(trace)
    assert 4 * 2_500 < len(seen) < 4 * 5_000
    assert (trace.answer, trace.error) == ("long", None)


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
    for rollout in found:
        name = rollout.task.input[:9]
        assert rollout.trace.data["state"] == [f"{name} 1", f"{name} 2"]
        assert rollout.score == Score(1.0, True, f"7 steps, ['{name} 1', '{name} 2']")
    assert len(box.made) == 5
    for one in box.made:
        assert one.closed
        assert len(one.threads) == 1
        assert one.task.target is None
        assert one.task.meta == {"world": one.task.id}
    assert "secret" not in "".join(call.text for call in model.calls)


def test_environments_may_be_async_throughout() -> None:
    class Async:
        done: ClassVar[list[str]] = []

        async def __aenter__(self) -> Async:
            await asyncio.sleep(0)
            self.tools = [add]
            return self

        async def __aexit__(self, *error: object) -> None:
            await asyncio.sleep(0)
            self.done.append("closed")

        async def state(self) -> dict[str, int]:
            return {"a": 1}

    async def make(task: Task) -> Async:
        await asyncio.sleep(0)
        return Async()

    trace = attempt(make, {"add": {"a": 1}}, finish())
    assert (observed(trace), trace.data["state"], Async.done) == (["2"], {"a": 1}, ["closed"])


def test_toolsets_of_pydantic_ai_are_tools_too() -> None:
    from pydantic_ai.toolsets import FunctionToolset

    sets = [FunctionToolset([slowly]).prefixed("far"), add]
    assert observed(attempt(sets, {"far_slowly": {"text": "x"}}, {"add": {"a": 1}}, finish())) == ['{"said":"x"}', "2"]


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
    for tools, words in (([], "has no tools"), ("sql", "has no tools"), ([3], "is of type int"),
                         ([add, add], "cannot be used"), ([finish_], "has a tool 'finish'")):  # fmt: skip
        with pytest.raises(UsageError, match=words):
            attempt(tools, finish())


def test_settings_of_another_agent_and_two_agents_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])

    def evaluate(parts: practicum.Parts | None = None, **config: Any) -> Any:
        made = parts or practicum.Parts(clients={"agent": acting(script(finish()))})
        return practicum.run_sync(practicum.evaluate(make_tasks(1), RULES, parts=made, **config))

    for config, words in (
        ({"max_turns": 3}, "`max_turns` is for an agent with tools"),
        ({"tool_timeout": 3.0}, "`tool_timeout` is for an agent with tools"),
        ({"agent": "tools:nowhere:tools"}, "No module named 'nowhere'"),
        ({"agent": "tools:"}, "cannot load"),
        ({"agent": "tools:python:Box"}, r"Parts\(tools=...\)"),
        ({"agent": "tools:json:loads", "reasoning": True}, "`reasoning` is for the chat agent"),
    ):
        with pytest.raises(UsageError, match=words):
            evaluate(**config)
    with refused("settings.conflict"):
        evaluate(practicum.Parts(agent=lambda text, context: "x", tools=[add]))
    (tmp_path / "own_tools.py").write_text("def add(a: int) -> int:\n    return a + 1\n\ntools = [add]\n")
    assert evaluate(agent="tools:own_tools:tools").errors == 0


def test_an_invalid_turn_is_repaired_or_the_attempt_is_lost() -> None:
    def says(call: Call, turn: int) -> dict[str, Any]:
        return {"action": finish() if "Message 1" in call.text else {"add": {"a": 1}, **finish()}}

    model = acting(says)
    lost, found = attempts([add], model, make_tasks(2))
    assert (lost.trace.lost, found.trace.answer) == (True, "done")
    asked = [call.prompt.user for call in model.calls if "Message 0" in call.text]
    assert len(asked) == 3
    assert "one action a turn" in asked[1]


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
    from helpers import world

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


OTHER_KILLS = [pytest.param(n, marks=pytest.mark.slow) for n in range(1, 18, 2) if n != 5]


@pytest.mark.parametrize("dies_at", [5, *OTHER_KILLS])
def test_a_kill_in_the_middle_of_an_attempt_changes_nothing(tmp_path: Path, box: type[Box], dies_at: int) -> None:
    whole_model = acting(puts, teaching)
    whole = learn(tmp_path / "whole", type("Whole", (box,), {"made": []}), whole_model)

    calls = 0

    def dying(call: Call, turn: int) -> dict[str, Any]:
        nonlocal calls
        calls += 1
        if calls == dies_at:
            raise KeyboardInterrupt
        return puts(call, turn)

    with pytest.raises(KeyboardInterrupt):
        learn(tmp_path / "run", box, acting(dying, teaching))
    again_model = acting(puts, teaching)
    again = resume(tmp_path / "run", box, again_model)
    assert context_bytes(again) == context_bytes(whole)
    assert again.scores == whole.scores
    # Only what was in flight at the kill is asked again; its first call counts too, since it may have been paid for.
    assert again.usage.calls - again.by_role["in flight"].calls == whole.usage.calls
    # Only attempts in progress, at most two, got a second environment.
    assert 6 <= len(box.made) <= 8


def test_an_observation_from_before_the_kill_is_used_again(tmp_path: Path, dice: type[Box]) -> None:
    """The dice differ the second time, but every prompt after the kill has the first results."""
    answered: list[str] = []

    def dying(call: Call, turn: int) -> dict[str, Any]:
        if len(answered) == 4:
            raise KeyboardInterrupt
        if turn == 2:
            answered.append(call.prompt.user)
        return puts(call, turn)

    with pytest.raises(KeyboardInterrupt):
        learn(tmp_path / "run", dice, acting(dying, teaching))
    model = acting(puts, teaching)
    resume(tmp_path / "run", dice, model)
    turns = [turn.user for call in model.calls for turn in call.prompt.turns]
    assert sum(shown in turns for shown in answered) > 0
    again = acting(puts, teaching)
    assert resume(tmp_path / "run", dice, again).steps == 3
    assert again.calls == []


def test_reflectors_read_the_whole_trajectory(tmp_path: Path, box: type[Box]) -> None:
    model = acting(puts, teaching)
    learn(tmp_path / "run", type("Other", (box,), {"made": []}), model)
    read = [call.prompt.user for call in model.calls if call.role == "reflector"]
    assert read
    assert all("Thought: thought 1\nAction: put {" in text and "\nObservation: 1 in the box\n" in text for text in read)


def test_a_twin_reports_at_the_end_what_it_missed(tmp_path: Path, box: type[Box]) -> None:
    def says(call: Call, turn: int) -> dict[str, Any]:
        if turn < 3:
            return puts(call, turn)
        ending = json.dumps((call.schema or {}).get("properties", {}))
        more = {"doubts": [{"id": "e0", "why": "unclear"}], "missing": "a map"} if '"missing"' in ending else {}
        return {"action": {"finish": {**more, "answer": "done"}}}

    parts = practicum.Parts(
        tools=box, scorer=lambda task, answer: 0.0, clients={"agent": (m := acting(says, teaching))}
    )
    settings = {"batch": 1, "group": 1, "replay": 0.0}
    work = practicum.learn(make_tasks(1), out=tmp_path / "run", parts=parts, method="rcl", settings=settings,
                           seed_context=RULES)  # fmt: skip
    practicum.run_sync(work)
    read = "".join(call.prompt.user for call in m.calls if call.role == "reflector")
    assert "missing: a map" in read
    assert "doubted [e0]: unclear" in read


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


@pytest.mark.parametrize("turns", [2, 9])
def test_a_budget_of_calls_leaves_as_many_turns_for_the_final_evaluation_as_attempts_took(
    tmp_path: Path, turns: int
) -> None:
    def look(n: int) -> int:
        """Look."""
        return n

    def says(call: Call, turn: int) -> dict[str, Any]:
        return {"action": {"finish": {"answer": "word1"}} if turn == turns else {"look": {"n": turn}}}

    model = acting(says, lambda call: world(call))
    parts = practicum.Parts(tools=[look], clients={"agent": model})
    how: dict[str, Any] = {"method": "ace", "settings": {"rounds": 0}, "max_calls": 30}
    tasks, held = make_tasks(20), make_tasks(2, 50)
    cut = practicum.run_sync(practicum.learn(tasks, test=held, out=tmp_path / "run", parts=parts, **how))
    assert cut.stopped == "the budget of 30 calls is spent"
    assert (cut.steps > 0, len(cut.rollouts["test"])) == (True, 2)
    again = practicum.run_sync(practicum.resume(tmp_path / "run", parts=parts))
    assert (again.steps, again.scores, again.usage.calls) == (cut.steps, cut.scores, cut.usage.calls)
