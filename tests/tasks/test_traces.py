"""Stored traces: what is read of each format, how a format is detected, and that nothing is dropped silently."""

from __future__ import annotations

import codecs
import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from practicum.core.errors import TaskFileError
from practicum.core.types import Feedback, Recorded, Rollout, Score, Step, Task, Trace
from practicum.store import schema
from practicum.store.database import Store
from practicum.store.folder import DATABASE_FILE
from practicum.tasks import traces
from practicum.tasks.traces import Problem, Traces, sources

DATA = Path(__file__).parent / "data" / "traces"
load_traces = partial(traces.load_traces, trust="own")
"""The formats are read in full; what a stranger's trace says of its own success is left out."""
Write = Callable[..., Path]

ASKED = {"role": "user", "content": "2+2?"}
ANSWERED = {"role": "assistant", "content": "4"}


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a file: bytes and texts as they are, a list as JSON lines, anything else as one JSON document."""

    def to_file(content: Any, name: str = "traces.json") -> Path:
        path = tmp_path / "stored" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, list):
            content = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in content)
        elif not isinstance(content, str | bytes):
            content = json.dumps(content, indent=1, ensure_ascii=False)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return to_file


def only(traces: Traces) -> Task:
    (task,) = traces.tasks
    return task


def trace_of(task: Task) -> Trace:
    assert task.recorded is not None
    return task.recorded.trace


def score_of(task: Task) -> Score | None:
    assert task.recorded is not None
    return task.recorded.score


def steps(task: Task) -> list[tuple[str, str]]:
    return [(step.kind, step.text) for step in trace_of(task).steps]


def said(traces: Traces, path: Path) -> list[str]:
    """The problems, with the file's own name for its path."""
    return [str(problem).replace(str(path), path.name) for problem in traces.problems]


def refusal(path: Path) -> str:
    with pytest.raises(TaskFileError) as caught:
        load_traces(path)
    text = str(caught.value)
    assert "\n" not in text
    return text.replace(str(path), path.name)


# Each format, from a sample as it is written by its tool.


def test_chat() -> None:
    traces = load_traces(DATA / "chat.jsonl")
    order, sum_, picture = traces.tasks
    assert order == Task(
        "order-17",
        "Where is order 17?",
        None,
        {
            "format": "chat",
            "file": "chat.jsonl",
            "line": 1,
            "id": "order-17",
            "model": "gpt-x",
            "score": 0.75,
            "passed": False,
            "tags": ["shop"],
            "attempt": 2,
            "system": "You help in a flower shop.",
        },
        Recorded(
            Trace(
                "It was sent, and arrives tomorrow.",
                steps=(
                    Step("thought", "I should look it up."),
                    Step("action", 'find_order({"id": 17})'),
                    Step("observation", '{"state": "sent"}'),
                    Step("user", "Thanks!"),
                ),
            ),
            Score(0.75, False),
        ),
    )
    assert (sum_.id, sum_.input, trace_of(sum_)) == ("chat.jsonl:2", "2+2?", Trace("4"))
    assert picture.input == "What is on this picture?\n[image_url]\nIn one word, bitte. 🌷"
    assert trace_of(picture) == Trace("Tulpen", "Red flowers, upright.")
    assert score_of(picture) == Score(1.0, True)
    assert traces.formats == {"chat": 3}
    assert said(traces, DATA / "chat.jsonl") == [
        "chat.jsonl line 3: a part that is not text (image_url) is shown as [image_url]"
    ]


def test_swe_agent() -> None:
    task = only(load_traces(DATA / "pallets__click-1.traj"))
    assert (task.id, task.input) == ("pallets__click-1", "Issue: echo prints twice.")
    assert steps(task) == [
        ("thought", "I look for the function."),
        ("action", "grep -n echo click.py\n"),
        ("observation", "12:def echo(text):\n"),
        ("message", "Sorry, I forgot the command."),
        ("thought", "Everything passes."),
        ("thought", "Done."),
        ("action", "submit\n"),
        ("observation", "diff --git a/click.py b/click.py"),
    ]
    assert trace_of(task).answer == "diff --git a/click.py b/click.py"
    assert (trace_of(task).error, score_of(task)) == (None, None)
    assert task.meta["model"] == "claude-x"
    assert task.meta["exit_status"] == "submitted"


def test_mini_swe_agent() -> None:
    task = only(load_traces(DATA / "mini.traj.json"))
    assert (task.id, task.input) == ("clock__clock-3", "Please solve this issue: the clock is late.")
    assert steps(task) == [
        ("message", "Let me see."),
        ("action", 'bash({"command": "ls"})'),
        ("observation", "<returncode>0</returncode>\n<output>\nclock.py\n</output>"),
        ("observation", "No tool calls found in the response."),
        ("user", "Look at the summer time."),
        ("message", "Right."),
        ("action", 'bash({"command": "submit"})'),
    ]
    assert trace_of(task).answer == "diff --git a/a b/a\n"
    assert task.meta["model"] == "openai/gpt-x"


def test_atif_with_the_result_of_harbor() -> None:
    traces = load_traces(DATA / "harbor")
    task, sub = traces.tasks
    assert (task.id, task.input) == ("t-42", "Write hello.txt.")
    assert steps(task) == [
        ("thought", "Echo will do."),
        ("message", "I write it."),
        ("action", 'bash({"keystrokes":"echo hello > hello.txt\\n"})'),
        ("action", "wait()"),
        ("observation", "$ "),
        ("observation", "two\n[image]"),
        ("action", "mark_task_complete()"),
        ("observation", "ok"),
    ]
    assert (trace_of(task).answer, trace_of(task).reasoning) == ("It is written.", "Nothing is left to do.")
    assert score_of(task) == Score(1.0, True, "reward 1")
    named = {"session": "s-42", "agent": "terminus-2", "model": "gpt-x", "task": "hello", "trial": "hello__abc"}
    assert named.items() <= task.meta.items()
    assert task.meta["system"] == "You are in a terminal."
    assert (sub.id, sub.meta["parent"], score_of(sub)) == ("t-42-sub", "t-42", None)
    assert traces.formats == {"atif": 2}


def test_claude_code() -> None:
    traces = load_traces(DATA / "claude_code.jsonl")
    task, side = traces.tasks
    assert (task.id, task.input) == ("5f0c1d7e-session", "The basket loses items. Why? ☔")
    assert steps(task) == [
        ("thought", "Look at the tests first."),
        ("message", "I run the tests."),
        ("action", 'Bash({"command":"pytest"})'),
        ("observation", "1 failed"),
        ("user", "Be quick."),
    ]
    assert trace_of(task).answer == "`clear` runs too early; I moved it."
    named = {"session": "5f0c1d7e-session", "model": "claude-x", "folder": "/home/me/shop", "branch": "main"}
    assert named.items() <= task.meta.items()
    assert (side.id, side.input) == ("5f0c1d7e-session/ab12", "Find where items are kept.")
    assert (side.meta["sidechain"], side.meta["model"], trace_of(side)) == (
        "ab12",
        "claude-small",
        Trace("In basket.py."),
    )
    assert not traces.problems


def test_otel_from_a_collector() -> None:
    traces = load_traces(DATA / "otel_otlp.jsonl")
    task = only(traces)
    assert (task.id, task.input) == ("4bf92f3577b34da6a3ce929d0e0e4736", "Weather in Paris?")
    assert steps(task) == [
        ("thought", "I have a tool for that."),
        ("action", 'get_weather({"location":"Paris"})'),
        ("observation", "rainy, 57°F"),
    ]
    assert trace_of(task).answer == "It rains in Paris, at 57°F."
    assert score_of(task) == Score(0.8, True, "relevance 0.8")
    named = {"model": "gpt-4-0613", "session": "conv_5", "agent": "weather", "system": "You know the weather."}
    assert named.items() <= task.meta.items()
    assert not traces.problems


def test_a_folder_holds_all_formats() -> None:
    traces = load_traces(str(DATA))
    assert traces.formats == {
        "chat": 3,
        "claude-code": 2,
        "mini-swe-agent": 1,
        "otel": 1,
        "swe-agent": 1,
        "atif": 2,
    }
    assert len({task.id for task in traces.tasks}) == len(traces.tasks) == 10
    assert load_traces(DATA) == traces
    for task in traces.tasks:
        assert task.input.strip()
        assert trace_of(task).answer.strip()


@pytest.mark.parametrize("sample", ["chat.jsonl", "pallets__click-1.traj", "mini.traj.json", "otel_otlp.jsonl"])
@pytest.mark.parametrize("name", ["claude_code.jsonl", "x.traj", "trajectory.json", "spans.ndjson", "otlp.JSON"])
def test_the_format_is_detected_by_content(tmp_path: Path, sample: str, name: str) -> None:
    shutil.copy(DATA / sample, tmp_path / name)
    (expected,) = load_traces(DATA / sample).formats.items()
    assert list(load_traces(tmp_path).formats.items()) == [expected]


# Runs of practicum.


def rollout(id: str, answer: str, score: Score | None = None, **trace: Any) -> Rollout:
    task = Task(id, f"say {id}", id, {"tags": ["greeting"]})
    steps = (Step("thought", "hm"),)
    place = f"step 1/{id}, {answer}"
    return Rollout(task, Trace(answer, "so", ("e1",), steps, **trace), score, Feedback(None, ""), place)


def store_run(folder: Path, rollouts: Sequence[Rollout], **more: str) -> None:
    adapter: TypeAdapter[Rollout] = TypeAdapter(Rollout)
    rows = [(r.place, number, adapter.dump_json(r).decode()) for number, r in enumerate(rollouts)]
    rows += [(place, 99, data) for place, data in more.items()]
    config = json.dumps({"method": "ace", "model": "local:small"})
    with Store.create(folder) as store:
        store.put(schema.runs, [{"run_id": "run", "config": config, "state": "done", "seconds": 0.0, "mark": ""}])
        store.put(
            schema.rollouts,
            [{"run_id": "run", "place": p, "step": s, "sources": "[]", "data": data} for p, s, data in rows],
        )


def test_runs_of_practicum(tmp_path: Path) -> None:
    made = [
        rollout("a", "first", Score(0.0, False, "no")),
        rollout("b", "it", Score(1.0, True)),
        rollout("a", "second"),
        rollout("c", "", error="it broke"),
        rollout("d", "", lost=True),
        # One that stood for another, which was not made.
        replace(rollout("b", "it", Score(1.0, True)), place="step 2/b", of="step 1/b, it"),
    ]
    store_run(tmp_path / "runs" / "one", made, broken="{}")
    traces = load_traces(tmp_path)
    assert [(task.id, task.input, task.target) for task in traces.tasks] == [
        ("a", "say a", "a"),
        ("b", "say b", "b"),
        ("a#2", "say a", "a"),
        ("c", "say c", "c"),
    ]
    assert [task.recorded for task in traces.tasks] == [Recorded(r.trace, r.score) for r in made[:4]]
    assert traces.tasks[2].meta == {
        "tags": ["greeting"],
        "method": "ace",
        "model": "local:small",
        "step": 2,
        "place": "step 1/a, second",
        "format": "practicum",
        "file": "runs/one",
        "own_id": "a",
    }
    lost, broken = traces.problems
    assert str(lost) == f"{tmp_path}/runs/one: an attempt that was lost to the provider or could not be parsed"
    assert "an attempt that cannot be read (broken: " in str(broken)
    assert traces.formats == {"practicum": 4}


@pytest.mark.parametrize("named", ["", DATABASE_FILE])
def test_the_path_may_be_a_run_folder_or_its_database(tmp_path: Path, named: str) -> None:
    store_run(tmp_path / "one", [rollout("a", "x")])
    assert only(load_traces(tmp_path / "one" / named)).meta["file"] == "one"


def test_runs_that_cannot_be_read(tmp_path: Path) -> None:
    store_run(tmp_path / "empty", [])
    (tmp_path / "newer").mkdir()
    shutil.copy(tmp_path / "empty" / DATABASE_FILE, tmp_path / "newer" / DATABASE_FILE)
    with Store.open(tmp_path / "newer") as store:
        store.execute(schema.rollouts.delete())
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / DATABASE_FILE).write_bytes(b"SQLite format 3\0" + b"x" * 5000)
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / DATABASE_FILE).write_bytes(b"hello\n")
    text = refusal(tmp_path)
    assert f"{tmp_path.name}/empty: a run without an attempt" in text
    assert f"{tmp_path.name}/odd: the run cannot be read: " in text
    assert f"{tmp_path.name}/torn: the run cannot be read" in refusal(tmp_path / "torn").replace(
        "torn: no trace could be read: torn", f"{tmp_path.name}/torn"
    )


# Chat messages in their many shapes.


@pytest.mark.parametrize(
    "content",
    [
        {"messages": [ASKED, ANSWERED]},
        [{"messages": [ASKED, ANSWERED]}],
        json.dumps([{"messages": [ASKED, ANSWERED]}]),
        json.dumps([ASKED, ANSWERED]),
        json.dumps([ASKED, ANSWERED], indent=2),
        json.dumps([[ASKED, ANSWERED]], indent=2),
        "\n\n" + json.dumps([ASKED, ANSWERED]) + "\n\n",
        codecs.BOM_UTF8 + json.dumps({"messages": [ASKED, ANSWERED]}, indent=2).encode(),
        codecs.BOM_UTF8 + json.dumps([ASKED, ANSWERED]).encode() + b"\r\n",
    ],
)
def test_lines_documents_and_lists(write: Write, content: Any) -> None:
    traces = load_traces(write(content))
    task = only(traces)
    assert (task.input, trace_of(task), traces.problems) == ("2+2?", Trace("4"), ())


def chat(*messages: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {"messages": list(messages), **more}


@pytest.mark.parametrize(
    ("messages", "expected", "answer"),
    [
        (
            [
                {"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}},
                {"role": "function", "content": "1"},
                {"role": "assistant", "content": None, "refusal": "I will not."},
            ],
            [("action", "f()"), ("observation", "1")],
            "I will not.",
        ),
        (
            [
                {
                    "role": "assistant",
                    "content": [
                        {"type": "thinking", "thinking": "Let me see."},
                        {"type": "redacted_thinking", "data": "xyz"},
                        {"type": "text", "text": "I look."},
                        {"type": "tool_use", "id": "1", "name": "ls", "input": {"path": "/"}},
                    ],
                },
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "bin"}]},
                {
                    "role": "user",
                    "content": [{"type": "tool_result", "content": [{"name": "id", "type": ["integer", "null"]}]}],
                },
            ],
            [
                ("action", 'ls({"path":"/"})'),
                ("observation", "bin"),
                ("observation", '[{"name":"id","type":["integer","null"]}]'),
            ],
            "I look.",
        ),
        (
            [
                {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Short."}]},
                {"type": "function_call", "call_id": "1", "name": "ls", "arguments": '{"a": 1}'},
                {"type": "function_call_output", "call_id": "1", "output": "bin"},
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "One."}]},
            ],
            [("thought", "Short."), ("action", 'ls({"a": 1})'), ("observation", "bin")],
            "One.",
        ),
        (
            [
                {"role": "assistant", "tool_calls": [{"type": "custom", "custom": {"name": "sh", "input": "ls -l"}}]},
                {"role": "tool", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
                {"role": "tool", "content": {"size": 3}},
            ],
            [("observation", "a\nb"), ("observation", '{"size":3}')],
            "sh(ls -l)",
        ),
        (
            [
                {"role": "assistant", "content": [{"text": "Sure."}, {"toolUse": {"name": "ls", "input": {"a": 1}}}]},
                {"role": "user", "content": [{"toolResult": {"content": [{"text": "bin"}], "status": "success"}}]},
                {"role": "assistant", "content": [{"reasoningContent": {"reasoningText": {"text": "So."}}}]},
            ],
            [("message", "Sure."), ("action", 'ls({"a":1})'), ("observation", "bin"), ("thought", "So.")],
            "",
        ),
    ],
    ids=["legacy functions", "anthropic", "responses", "custom tools", "bedrock"],
)
def test_messages_of_all_apis(write: Write, messages: Any, expected: list[tuple[str, str]], answer: str) -> None:
    traces = load_traces(write(chat(ASKED, *messages)))
    task = only(traces)
    assert (steps(task), trace_of(task).answer, traces.problems) == (expected, answer, ())


def test_unknown_parts_of_a_chat_are_reported_once_and_the_rest_is_read(write: Write) -> None:
    odd = [
        {"role": "critic", "content": "Too short."},
        {"content": "Who said this?"},
        {"role": "assistant", "content": [{"type": "hologram", "text": "x"}, 7], "tool_calls": ["f"]},
    ]
    path = write([chat(ASKED, *odd, ANSWERED), chat(ASKED, odd[0], ANSWERED)], "chat.jsonl")
    traces = load_traces(path)
    assert [steps(task) for task in traces.tasks] == [
        [("critic", "Too short."), ("None", "Who said this?"), ("message", "x\n7")],
        [("critic", "Too short.")],
    ]
    assert said(traces, path) == [
        "chat.jsonl line 1: unknown role 'critic'; its text is kept; 2 times, also on line 2",
        "chat.jsonl line 1: unknown role None; its text is kept",
        "chat.jsonl line 1: a part of unknown type 'hologram'",
        "chat.jsonl line 1: a tool call that is not an object",
    ]
    assert [problem.count for problem in traces.problems] == [2, 1, 1, 1]


def test_without_a_user_the_system_message_is_the_task(write: Write) -> None:
    task = only(load_traces(write(chat({"role": "developer", "content": "Write a poem."}, ANSWERED))))
    assert task.input == "Write a poem."
    assert "system" not in task.meta


def test_messages_before_the_task_are_kept(write: Write) -> None:
    messages = [{"role": "system", "content": "Be kind."}, {"role": "assistant", "content": "Hello!"}, ASKED, ANSWERED]
    task = only(load_traces(write(chat(*messages))))
    assert (task.input, task.meta["system"], steps(task)) == ("2+2?", "Be kind.", [("message", "Hello!")])


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (chat(), "a trace without any text"),
        (chat({"role": "user", "content": " \n"}, {"role": "assistant", "content": None}), "a trace without any text"),
        (chat(ASKED), "a trace without anything from the agent"),
        (chat(ANSWERED), "a trace that does not say what the agent was asked"),
    ],
)
def test_a_trace_without_task_or_agent_is_reported(write: Write, record: Any, reason: str) -> None:
    path = write([chat(ASKED, ANSWERED), record, record], "chat.jsonl")
    traces = load_traces(path)
    assert len(traces.tasks) == 1
    assert said(traces, path) == [f"chat.jsonl line 2: {reason}; 2 times, also on line 3"]


# Scores.


@pytest.mark.parametrize(
    ("fields", "score"),
    [
        ({"score": 1}, Score(1.0, True)),
        ({"score": 0.5}, Score(0.5, True)),
        ({"reward": 0.25}, Score(0.25, False)),
        ({"resolved": True}, Score(1.0, True)),
        ({"success": False}, Score(0.0, False)),
        ({"passed": True}, Score(1.0, True)),
        ({"correct": False}, Score(0.0, False)),
        ({"score": 0.9, "passed": False}, Score(0.9, False)),
        ({"score": None, "resolved": True}, Score(1.0, True)),
        ({"score": {"value": 0.4, "correct": True, "note": "fine"}}, Score(0.4, True, "fine")),
        ({"metadata": {"reward": 1.0}}, Score(1.0, True)),
        ({"score": 0.1, "metadata": {"score": 1.0}}, Score(0.1, False)),
        ({}, None),
    ],
)
def test_scores(write: Write, fields: dict[str, Any], score: Score | None) -> None:
    traces = load_traces(write(chat(ASKED, ANSWERED, **fields)))
    assert (score_of(only(traces)), traces.problems) == (score, ())


@pytest.mark.parametrize(
    "value", ["7", "1.5", "-0.1", "1" + "0" * 400, '"good"', "[1]", "{}", '{"value": 3}', "NaN", "Infinity", "1e999"]
)
def test_an_invalid_score_is_reported_and_left_out(write: Write, value: str) -> None:
    line = json.dumps(chat(ASKED, ANSWERED))[:-1] + f', "score": {value}}}'
    path = write(line + "\n", "chat.jsonl")
    traces = load_traces(path)
    assert score_of(only(traces)) is None
    assert said(traces, path) == [
        "chat.jsonl line 1: score is neither true, false nor a number between 0 and 1; it is left out"
    ]


# Ids.


def test_ids_differ_and_are_the_same_every_time(write: Write) -> None:
    ids: list[Any] = ["a", "a#2", "a", "a", 7, "7", " ", None, True]
    path = write([chat(ASKED, ANSWERED, id=id) for id in ids], "chat.jsonl")
    traces = load_traces(path)
    expected = ["a", "a#2", "a#3", "a#4", "7", "7#2", "chat.jsonl:7", "chat.jsonl:8", "chat.jsonl:9"]
    assert [task.id for task in traces.tasks] == expected
    assert [task.meta.get("own_id") for task in traces.tasks] == [None, None, "a", "a", None, "7", None, None, None]
    assert load_traces(path) == traces


def test_ids_distinguish_files_lists_and_lines(write: Write) -> None:
    pair = json.dumps([chat(ASKED, ANSWERED)] * 2)
    path = write(pair + "\n" + pair, "b/x.jsonl")
    write(json.dumps([chat(ASKED, ANSWERED)] * 2, indent=1), "b/y.json")
    write(chat(ASKED, ANSWERED), "x.json")
    assert [task.id for task in load_traces(path.parents[1]).tasks] == [
        "x.json",
        "b/x.jsonl:1.1",
        "b/x.jsonl:1.2",
        "b/x.jsonl:2.1",
        "b/x.jsonl:2.2",
        "b/y.json:1",
        "b/y.json:2",
    ]


# SWE-agent and mini-swe-agent.


def test_swe_agent_without_history_or_submission(write: Write) -> None:
    asked = [{"role": "system", "content": "You are in a shell."}, ASKED]
    trajectory = [
        {"query": asked, "thought": "Look.", "action": "ls", "observation": "bin", "response": "Look. ls"},
        {"query": asked, "thought": "Exit due to cost limit", "action": "", "observation": "", "response": "x"},
    ]
    path = write({"trajectory": trajectory, "history": [], "info": {"exit_status": "exit_cost"}}, "one.traj")
    task = only(load_traces(path))
    assert (task.id, task.input, task.meta["system"]) == ("one", "2+2?", "You are in a shell.")
    assert steps(task)[2:] == [("observation", "bin"), ("thought", "Exit due to cost limit")]
    assert trace_of(task).answer == ""
    assert trace_of(task).error == "ended without a submission (exit_cost)"


def test_each_attempt_of_swe_agent_is_a_trace(write: Write) -> None:
    attempt = {
        "trajectory": [{"thought": "Look.", "action": "ls", "observation": "bin", "response": ""}],
        "history": [ASKED],
        "info": {"exit_status": "submitted", "submission": "diff", "resolved": True},
    }
    task, again = load_traces(write({"attempts": [attempt, attempt], **attempt}, "one.traj")).tasks
    assert (task.id, task.meta["attempt"], again.id, again.meta["attempt"]) == ("one", 1, "one#2", 2)
    assert again.meta["own_id"] == "one"
    assert score_of(task) == Score(1.0, True)


def test_empty_steps_of_swe_agent_are_reported(write: Write) -> None:
    trajectory = ["x", {"state": {}}, {"action": "ls"}]
    path = write({"trajectory": trajectory, "history": [ASKED, 3], "info": {}, "replay_config": "{"}, "one.traj")
    traces = load_traces(path)
    assert trace_of(only(traces)) == Trace("ls")
    assert said(traces, path) == [
        "one.traj: 'trajectory' contains something that is not an object",
        "one.traj: 'history' contains something that is not an object",
        "one.traj: a step without thought, action, observation or response",
    ]


def test_mini_swe_agent_1_answers_as_the_user(write: Write) -> None:
    messages = [
        {"role": "system", "content": "You are in a shell."},
        ASKED,
        {"role": "assistant", "content": "THOUGHT: look\n\n```bash\nls\n```"},
        {"role": "user", "content": "<output>bin</output>"},
        {"role": "assistant", "content": "```bash\necho COMPLETE\n```"},
        {"role": "user", "content": "diff"},
    ]
    info = {"exit_status": "Submitted", "submission": "diff"}
    task = only(load_traces(write({"info": info, "messages": messages}, "django__django-1.traj.json")))
    assert task.id == "django__django-1"
    assert steps(task) == [
        ("message", "THOUGHT: look\n\n```bash\nls\n```"),
        ("observation", "<output>bin</output>"),
        ("message", "```bash\necho COMPLETE\n```"),
    ]
    assert trace_of(task) == Trace("diff", steps=trace_of(task).steps)


def test_mini_swe_agent_over_the_responses_api_and_out_of_budget(write: Write) -> None:
    called = {"type": "function_call", "call_id": "1", "name": "bash", "arguments": '{"command": "ls"}'}
    messages = [
        ASKED,
        {"object": "response", "output": [{"type": "reasoning", "summary": []}, called], "extra": {"actions": []}},
        {"type": "function_call_output", "call_id": "1", "output": "bin", "extra": {"returncode": 0}},
        {"role": "exit", "content": "LimitsExceeded", "extra": {"exit_status": "LimitsExceeded"}},
    ]
    record = {
        "trajectory_format": "mini-swe-agent-1.1",
        "messages": messages,
        "info": {"exit_status": "LimitsExceeded", "submission": ""},
    }
    traces = load_traces(write(record, "x.json"))
    task = only(traces)
    assert (steps(task), trace_of(task).answer) == ([("observation", "bin")], 'bash({"command": "ls"})')
    assert trace_of(task).error == "ended without a submission (LimitsExceeded)"
    assert not traces.problems


# ATIF and Harbor's results.


def atif(**more: Any) -> dict[str, Any]:
    spoken = [("user", "2+2?"), ("agent", "4")]
    taken = [{"step_id": n, "source": who, "message": text} for n, (who, text) in enumerate(spoken, 1)]
    return {"schema_version": "ATIF-v1.2", "session_id": "s", "agent": {"name": "x"}, "steps": taken, **more}


def harbor(rewards: Any, **more: Any) -> dict[str, Any]:
    return {"task_name": "sum", "trial_name": "sum__1", "verifier_result": {"rewards": rewards}, **more}


@pytest.mark.parametrize(
    ("result", "score"),
    [
        (harbor({"reward": 0}), Score(0.0, False, "reward 0")),
        (harbor({"reward": 1, "speed": 0.2}), Score(1.0, True, "reward 1")),
        (harbor({"tests": 1, "style": 0.25}), Score(0.625, False, "tests 1, style 0.25")),
        (harbor(None), None),
        (
            harbor({"reward": 0.0}, exception_info={"exception_type": "AgentTimeoutError"}),
            Score(0.0, False, "reward 0, ended with AgentTimeoutError"),
        ),
    ],
)
def test_the_result_of_a_trial_is_its_score(write: Write, result: Any, score: Score | None) -> None:
    path = write(atif(), "sum__1/agent/trajectory.json")
    write(result, "sum__1/result.json")
    for source in (path, path.parents[2]):
        traces = load_traces(source)
        assert (score_of(only(traces)), traces.problems) == (score, ())


def test_the_result_may_be_in_the_same_folder(write: Write) -> None:
    write(harbor({"reward": 1}), "result.json")
    assert score_of(only(load_traces(write(atif(), "trajectory.json")))) == Score(1.0, True, "reward 1")


def test_each_part_of_a_task_has_its_own_result(write: Write) -> None:
    parts = [{"step_name": name, "verifier_result": {"rewards": {"reward": n}}} for n, name in enumerate("ab")]
    write(harbor(None, step_results=parts), "t/result.json")
    for name in "ab":
        write(atif(trajectory_id=name), f"t/steps/{name}/agent/trajectory.json")
    tasks = load_traces(write("", "t/none").parent).tasks
    assert [(task.id, score_of(task)) for task in tasks] == [
        ("a", Score(0.0, False, "reward 0")),
        ("b", Score(1.0, True, "reward 1")),
    ]


def test_a_trial_that_failed_before_it_was_scored(write: Write) -> None:
    write({**harbor(None), "exception_info": {"exception_type": "SandboxFailed"}}, "result.json")
    task = only(load_traces(write(atif(), "trajectory.json")))
    assert (trace_of(task).error, task.meta["exception"]) == ("ended with SandboxFailed", "SandboxFailed")


def test_results_that_are_broken_or_have_no_trace_are_reported(write: Write) -> None:
    path = write(atif(extra={"reward": 1.0}), "a/agent/trajectory.json")
    write("{", "a/result.json")
    root = path.parents[2]
    write(harbor({"reward": 1}), "b/result.json")
    texts = [str(problem).replace(f"{root}/", "") for problem in load_traces(root).problems]
    assert texts[0].startswith("a/result.json line 1: JSON that ends too early (EOF")
    assert texts[1].startswith("a/agent/trajectory.json: the result.json of the trial cannot be read (EOF")
    assert texts[2] == "b/result.json: a Harbor result without an ATIF trajectory below it"


def test_atif_reports_problems_and_subagents_have_no_score(write: Write) -> None:
    odd = [
        {"step_id": 3, "source": "robot", "message": "beep"},
        "x",
        {"step_id": 4, "source": "agent", "tool_calls": 1},
    ]
    record = atif(score=1.0, steps=[*atif()["steps"], *odd])
    path = write(record, "trajectory.json")
    traces = load_traces(path)
    assert (steps(only(traces)), score_of(only(traces))) == ([("robot", "beep")], Score(1.0, True))
    assert said(traces, path) == [
        "trajectory.json: a step of unknown source 'robot'; its text is kept",
        "trajectory.json: 'steps' contains something that is not an object",
        "trajectory.json: 'tool_calls' is not a list",
    ]
    write(harbor({"reward": 1}), "result.json")
    sub = atif(agent={"name": "summary", "extra": {"parent_session_id": "s"}})
    assert score_of(only(load_traces(write(sub, "trajectory.json")))) is None


# Claude Code.


def line(kind: str, content: Any = None, uuid: str = "", parent: str | None = None, **more: Any) -> dict[str, Any]:
    envelope = {"type": kind, "uuid": uuid or "u", "parentUuid": parent, "sessionId": "s", "isSidechain": False}
    message = {} if content is None else {"message": {"role": kind, "content": content}}
    return {**envelope, **message, **more}


def test_a_session_of_one_slash_command(write: Write) -> None:
    command = "<command-message>review</command-message>\n<command-name>/review</command-name>"
    lines = [line("user", command), line("user", "The prompt.", isMeta=True), line("assistant", "Fine.")]
    task = only(load_traces(write(lines, "x.jsonl")))
    assert (task.input, steps(task), trace_of(task).answer) == (command, [("system", "The prompt.")], "Fine.")


def test_text_inserted_by_the_program_is_not_the_users(write: Write) -> None:
    lines = [
        line("user", "This session is being continued ...", isCompactSummary=True),
        line("user", "<local-command-stdout>x</local-command-stdout>"),
        line("user", "<system-reminder>x</system-reminder>"),
        line("user", "2+2?"),
        line("assistant", "API Error: 529", isApiErrorMessage=True),
        line("assistant", [{"type": "text", "text": "4"}]),
    ]
    lines[4]["message"]["model"] = "<synthetic>"
    task = only(load_traces(write(lines, "x.jsonl")))
    assert (task.input, steps(task), trace_of(task).answer) == ("2+2?", [("system", "API Error: 529")], "4")
    assert task.meta["system"].startswith("This session is being continued")
    assert "model" not in task.meta


def test_sidechains_without_an_agent_id_are_distinguished_by_their_chains(write: Write) -> None:
    lines = [
        line("user", "2+2?", "m1"),
        line("user", "Sub one", "a1", isSidechain=True),
        line("user", "Sub two", "b1", isSidechain=True),
        line("assistant", "One.", "a2", "a1", isSidechain=True),
        line("assistant", "Two.", "b2", "b1", isSidechain=True),
        line("assistant", "4", "m2", "m1"),
    ]
    tasks = load_traces(write(lines, "x.jsonl")).tasks
    assert [(task.id, task.input, trace_of(task).answer) for task in tasks] == [
        ("s", "2+2?", "4"),
        ("s/a1", "Sub one", "One."),
        ("s/b1", "Sub two", "Two."),
    ]


def test_lines_of_unknown_types_are_reported(write: Write) -> None:
    lines = [line("user", "2+2?"), {"type": "hologram", "x": 1}, line("hologram"), line("assistant", "4"), {"x": 1}]
    path = write(lines, "x.jsonl")
    traces = load_traces(path)
    assert trace_of(only(traces)) == Trace("4")
    assert said(traces, path) == [
        "x.jsonl line 2: a line of unknown type 'hologram' is left out; 2 times, also on line 3",
        "x.jsonl line 5: the format is unknown (it has 'x')",
    ]


def test_a_session_without_messages_is_reported(write: Write) -> None:
    path = write([{"type": "summary", "summary": "x", "leafUuid": "y"}], "x.jsonl")
    assert "x.jsonl line 1: a Claude Code session without a message" in refusal(path)


# OpenTelemetry, as it was and is written.


def gen_ai(**attributes: Any) -> dict[str, Any]:
    return {f"gen_ai.{key.replace('__', '.')}": value for key, value in attributes.items()}


def flat(start: Any, attributes: Mapping[str, Any], end: Any = None, events: Sequence[Any] = ()) -> dict[str, Any]:
    return {"trace_id": "0xt1", "start_time": start, "end_time": end, "attributes": attributes, "events": list(events)}


def event(name: str, /, **attributes: Any) -> dict[str, Any]:
    return {"name": f"gen_ai.{name}", "attributes": attributes}


@pytest.mark.parametrize("sample", sorted(path.stem for path in (DATA.parent / "otel").iterdir()))
def test_otel_in_all_its_conventions(sample: str) -> None:
    traces = load_traces(DATA.parent / "otel" / f"{sample}.jsonl")
    task = only(traces)
    assert (task.id, task.input) == ("t1", "2+2?")
    assert steps(task) == [("action", 'add({"a": 2})'), ("observation", "4")]
    assert (trace_of(task).answer, traces.problems) == ("It is 4.", ())


def message(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": text}]}


def heard(given: Sequence[Any], gave: Sequence[Any]) -> dict[str, Any]:
    return gen_ai(input__messages=list(given), output__messages=list(gave))


def test_a_repeated_history_is_read_once(write: Write) -> None:
    asked, looped, done = message("user", "2+2?"), message("assistant", "Let me think."), message("assistant", "4")
    go = message("user", "Go on.")
    lines = [
        flat(1, heard([asked], [looped]), 2),
        flat(3, heard([asked, looped, go], [looped]), 4),
        flat(5, heard([asked, looped, go, looped, go], [done]), 6),
    ]
    task = only(load_traces(write(lines, "spans.jsonl")))
    assert [text for _, text in steps(task)] == ["Let me think.", "Go on.", "Let me think.", "Go on."]
    assert trace_of(task).answer == "4"


def test_the_output_of_an_outer_span_comes_last(write: Write) -> None:
    asked, half, done = message("user", "2+2?"), message("assistant", "Two and two ..."), message("assistant", "4")
    lines = [flat(1, heard([asked], [done]), 9), flat(2, heard([asked], [half]), 4), flat(4, heard([half], [done]), 9)]
    task = only(load_traces(write(lines, "spans.jsonl")))
    assert (steps(task), trace_of(task).answer) == ([("message", "Two and two ...")], "4")


def test_tools_without_ids_or_content(write: Write) -> None:
    ran = gen_ai(operation__name="execute_tool", tool__name="ls")
    failed = {**flat(4, ran), "status": {"status_code": "ERROR", "description": "no such folder"}}
    lines = [flat(1, heard([message("user", "2+2?")], [])), flat(2, ran), flat(3, ran), failed]
    task = only(load_traces(write(lines, "spans.jsonl")))
    assert steps(task) == [("action", "ls()"), ("action", "ls()"), ("observation", "no such folder")]
    assert trace_of(task).answer == "ls()"


def test_spans_of_several_traces_and_spans_without_messages(write: Write) -> None:
    chat_ = flat(None, heard([message("user", "2+2?")], [message("assistant", "4")]))
    lines = [{**chat_, "trace_id": id} for id in "ab"] + [{**flat(1, {"http.route": "/"}), "trace_id": "c"}]
    lines += [{"resourceSpans": [{"scopeSpans": [{"spans": [{"name": "x"}, 3]}]}]}]
    path = write(lines, "spans.jsonl")
    traces = load_traces(path)
    assert [task.id for task in traces.tasks] == ["a", "b"]
    assert said(traces, path) == [
        "spans.jsonl line 1: a span without a time keeps its place in the file; 2 times, also on line 2",
        "spans.jsonl line 4: a span without a trace id is left out",
        "spans.jsonl line 4: 'spans' contains something that is not an object",
        "spans.jsonl line 3: a trace without any text",
    ]


@pytest.mark.parametrize(
    ("marks", "score"),
    [
        ([{"score.value": 0.2}], Score(0.2, False, "evaluation 0.2")),
        ([{"score.label": "pass"}], Score(1.0, True, "evaluation 1")),
        ([{"name": "a", "score.value": 1}, {"name": "b", "score.value": 0.0}], Score(0.5, False, "a 1, b 0")),
        ([{"name": "a", "score.value": 4.0}], None),
    ],
)
def test_evaluations_are_scores(write: Write, marks: list[dict[str, Any]], score: Score | None) -> None:
    told = [event("evaluation.result", **{f"gen_ai.evaluation.{k}": v for k, v in mark.items()}) for mark in marks]
    line_ = flat(1, heard([message("user", "2+2?")], [message("assistant", "4")]), 2, told)
    traces = load_traces(write([line_], "spans.jsonl"))
    assert score_of(only(traces)) == score
    assert bool(traces.problems) == (score is None)


# Bad input.

GOOD = json.dumps(chat(ASKED, ANSWERED))


@pytest.mark.parametrize(
    ("content", "problems"),
    [
        (f"{GOOD}\n{{oops}}\n{GOOD}\n", ["x.jsonl line 2: not JSON (key must be a string at column 2)"]),
        (f"{{oops}}\n{GOOD}\n{GOOD}\n", ["x.jsonl line 1: not JSON (key must be a string at column 2)"]),
        (
            f"oops\noops\n\n{GOOD}\n{GOOD}",
            ["x.jsonl line 1: not JSON (expected value at column 1); 2 times, also on line 2"],
        ),
        (
            f"{GOOD}\n{GOOD}\n{GOOD[:-9]}",
            ["x.jsonl line 3: JSON that ends too early (EOF while parsing a string"],
        ),
        (f"{GOOD}\n{GOOD}\n".encode() + b'{"a": "\xff"}\n', ["x.jsonl line 3: not UTF-8 text"]),
        (
            f'{GOOD}\n{GOOD}\n{{"prompt": "a"}}\n7\n"x"\n',
            ["the format is unknown (it has 'prompt'); 3 times, also"],
        ),
        (f"{GOOD}\n{GOOD}\n[]\n{{}}", ["x.jsonl line 3: the format is unknown (it is not an object); 2 times"]),
        (f'{GOOD}\n{GOOD}\n{{"a": "\\ud800"}}', ["x.jsonl line 3: not JSON (unexpected end of hex escape"]),
        (f"{GOOD}\n{GOOD}\n{'[' * 5000}", ["x.jsonl line 3: not JSON (recursion limit exceeded"]),
    ],
)
def test_bad_lines_are_reported_and_the_rest_is_read(write: Write, content: str | bytes, problems: list[str]) -> None:
    path = write(content, "x.jsonl")
    traces = load_traces(path)
    assert len(traces.tasks) == 2
    assert len(traces.problems) == len(problems)
    for text, start in zip(said(traces, path), problems, strict=True):
        assert start in text


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "x.json: the file is empty"),
        (b"\n \n", "x.json: the file is empty"),
        (GOOD.encode("utf-16"), "x.json line 1: not UTF-8 text"),
        (json.dumps(chat(ASKED, ANSWERED), indent=1)[:-8], "x.json line 10: JSON that ends too early (EOF"),
        (json.dumps(chat(ASKED, ANSWERED), indent=1).encode("latin-1")[:-3] + b"\xff\n", "line 11: not UTF-8 text"),
        ('{\n"a": 1,\n}', "x.json line 3: not JSON (trailing comma at column 1)"),
        ("hello\nworld\n", "x.json line 1: not JSON (expected value at column 1)"),
        ('{"model": "x", "agents": []}', "x.json line 1: the format is unknown (it has 'model', 'agents')"),
        ("{}", "x.json line 1: the format is unknown (it has no fields)"),
        (json.dumps({"schema_version": "ATIF-v1.8", "steps": 3}), "x.json line 1: 'steps' is not a list"),
    ],
)
def test_a_file_without_a_trace_is_refused_in_one_line(write: Write, content: str | bytes, reason: str) -> None:
    text = refusal(write(content, "x.json"))
    assert text.startswith("x.json: no trace could be read: x.json")
    assert reason in text
    assert text.endswith("SWE-agent and mini-swe-agent trajectories, ATIF (Harbor), Claude Code sessions")


def test_a_path_without_traces(tmp_path: Path) -> None:
    assert refusal(tmp_path / "none") == "none: no such file or folder; give the path of stored traces"
    assert "cannot be read (File name too long)" in refusal(tmp_path / ("x" * 300))
    (tmp_path / "notes.txt").write_text("x", encoding="utf-8")
    (tmp_path / "inner.json").mkdir()
    assert "the folder holds no file named *.json, *.jsonl, *.ndjson, *.traj, *.parquet and no run" in refusal(tmp_path)


def test_the_error_names_the_first_reasons_and_counts_the_others(write: Write) -> None:
    for n in range(5):
        path = write("", f"{n}.json")
    text = refusal(path.parent)
    assert text.count("the file is empty") == 3
    assert "; and 2 more; accepted are " in text


def test_a_file_without_read_permission(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write("", "secret.json")
    write(GOOD, "good.json")
    opened = sources.open_file

    def guarded(path: Path) -> Any:
        if path.name == "secret.json":
            raise PermissionError(13, "Permission denied")
        return opened(path)

    monkeypatch.setattr(sources, "open_file", guarded)
    assert said(load_traces(path.parent), path) == ["secret.json: cannot be read (Permission denied)"]


def test_a_folder_without_read_permission(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(GOOD, "secret/x.json")
    write(GOOD, "good.json")
    listed = os.scandir

    def guarded(folder: Any) -> Any:
        if Path(folder).name == "secret":
            raise PermissionError(13, "Permission denied", str(folder))
        return listed(folder)

    monkeypatch.setattr(os, "scandir", guarded)
    assert said(load_traces(path.parents[1]), path.parent) == ["secret: cannot be read (Permission denied)"]


def test_a_problem_prints_as_one_line() -> None:
    assert str(Problem("a.jsonl", 3, "not JSON")) == "a.jsonl line 3: not JSON"
    assert str(Problem("a.json", None, "the file is empty")) == "a.json: the file is empty"


def test_many_bad_lines_are_one_problem(write: Write) -> None:
    traces = load_traces(write([chat(ASKED, ANSWERED), *[{"x": n} for n in range(3000)]], "x.jsonl"))
    (problem,) = traces.problems
    assert (problem.line, problem.count) == (2, 3000)
    assert problem.reason.endswith("; 3000 times, also on line 3, 4, 5, 6, 7")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kinds=st.lists(st.sampled_from(["good", "cut", "oops", "unknown", "silent", "blank"]), min_size=1, max_size=12))
def test_the_counts_add_up(tmp_path: Path, kinds: list[str]) -> None:
    texts = {"good": GOOD, "cut": GOOD[:-5], "oops": "oops", "unknown": '{"x": 1}', "silent": '{"messages": []}'}
    path = tmp_path / "any.jsonl"
    path.write_text("\n".join([GOOD, GOOD, *(texts.get(kind, " ") for kind in kinds)]), encoding="utf-8")
    traces = load_traces(path)
    filled = 2 + len(kinds) - kinds.count("blank")
    assert len(traces.tasks) == 2 + kinds.count("good")
    assert len(traces.tasks) + sum(problem.count for problem in traces.problems) == filled


def test_it_is_said_of_how_many_foreign_traces_the_score_is_left_out(write: Write) -> None:
    path = write(
        [chat(ASKED, ANSWERED, score=1), chat(ASKED, ANSWERED), chat(ASKED, ANSWERED, passed=False)], "x.jsonl"
    )
    foreign = traces.load_traces(path)
    assert foreign.unscored == 2
    assert [task.recorded.score for task in foreign.tasks if task.recorded] == [None] * 3
    assert traces.load_traces(path, trust_scores=True).unscored == 0
    assert load_traces(path).unscored == 0
