"""Stored traces: the contents of each format, its detection, and a report of every part that is not read."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter
from refusals import refused
from rows import execute, put

from practicum.core.types import Attempt, Feedback, Recorded, Score, Step, Task, Trace
from practicum.store import schema
from practicum.store.database import Store
from practicum.store.folder import DATABASE_FILE
from practicum.tasks import traces
from practicum.tasks.traces import Traces

DATA = Path(__file__).parent / "data"
load_traces = partial(traces.load_traces, trust="own")
"""The formats are read in full: a score in a trace of another trust level is left out."""
Write = Callable[..., Path]

ASKED, ANSWERED = {"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a file: bytes and texts unchanged, a list as JSON lines, other values as one JSON document."""

    def to_file(content: Any, name: str = "traces.json") -> Path:
        path = tmp_path / "stored" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, list):
            content = "".join(json.dumps(line) + "\n" for line in content)
        elif not isinstance(content, str | bytes):
            content = json.dumps(content, indent=1)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return to_file


def only(traces: Traces) -> tuple[list[tuple[str, str]], str]:
    """The steps and the answer of the only trace."""
    (task,) = traces.tasks
    return steps(task), trace_of(task).answer


def trace_of(task: Task) -> Trace:
    assert task.recorded is not None
    return task.recorded.trace


def steps(task: Task) -> list[tuple[str, str]]:
    return [(step.kind, step.text) for step in trace_of(task).steps]


def problems(traces: Traces) -> list[tuple[int | None, int]]:
    """The line and the number of each problem."""
    return [(problem.line, problem.count) for problem in traces.problems]


def refusal(path: Path) -> str:
    with refused("traces.unreadable") as caught:
        load_traces(path)
    return str(caught.value).replace(str(path), path.name)


# Each format, from a sample of its tool.


def test_a_folder_may_hold_all_formats() -> None:
    traces = load_traces(str(DATA / "traces"))
    assert traces.formats == {
        "chat": 3, "claude-code": 2, "mini-swe-agent": 1, "otel": 1, "swe-agent": 1, "atif": 2,
    }  # fmt: skip
    assert len({task.id for task in traces.tasks}) == len(traces.tasks) == 10
    assert load_traces(DATA / "traces") == traces
    assert all(task.input.strip() and trace_of(task).answer.strip() for task in traces.tasks)


# Runs of practicum.


def attempt(id: str, answer: str, score: Score | None = None, **trace: Any) -> Attempt:
    task = Task(id, f"say {id}", id, {"tags": ["greeting"]})
    answered = Trace(answer, "so", ("e1",), (Step("thought", "hm"),), **trace)
    return Attempt(task, answered, score, Feedback(None, ""), f"step 1/{id}, {answer}")


def store_run(folder: Path, attempts: Sequence[Attempt], **more: str) -> None:
    adapter: TypeAdapter[Attempt] = TypeAdapter(Attempt)
    rows = [(a.place, number, adapter.dump_json(a).decode()) for number, a in enumerate(attempts)]
    rows += [(place, 99, data) for place, data in more.items()]
    config = json.dumps({"method": "ace", "model": "local:small"})
    stored = [{"space": "run", "place": p, "step": s, "sources": "[]", "data": data} for p, s, data in rows]
    with Store.create(folder) as store:
        execute(store, store.update(schema.spaces).values(config=config, learning="done", seconds=0.0, mark=""))
        put(store, schema.attempts, stored)


def test_runs_of_practicum(tmp_path: Path) -> None:
    stored = [
        attempt("a", "first", Score(0.0, False, "no")), attempt("b", "it", Score(1.0, True)), attempt("a", "second"),
        attempt("c", "", error="it broke"), attempt("d", "", lost=True),
        # A reused attempt, which is not a trace.
        replace(attempt("b", "it", Score(1.0, True)), place="step 2/b", of="step 1/b, it"),
    ]  # fmt: skip
    store_run(tmp_path / "runs" / "one", stored, broken="{}")
    traces = load_traces(tmp_path)
    assert [(task.id, task.input, task.target) for task in traces.tasks] == [
        ("a", "say a", "a"), ("b", "say b", "b"), ("a#2", "say a", "a"), ("c", "say c", "c"),
    ]  # fmt: skip
    assert [task.recorded for task in traces.tasks] == [Recorded(r.trace, r.score) for r in stored[:4]]
    assert traces.tasks[2].meta == {
        "tags": ["greeting"], "method": "ace", "model": "local:small", "step": 2, "place": "step 1/a, second",
        "format": "practicum", "file": "runs/one", "own_id": "a",
    }  # fmt: skip
    lost, broken = traces.problems
    assert str(lost) == f"{tmp_path}/runs/one: an attempt that was lost to the provider or could not be parsed"
    assert "an attempt that cannot be read (broken: " in str(broken)
    assert traces.formats == {"practicum": 4}


def test_runs_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    store_run(tmp_path / "empty", [])
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / DATABASE_FILE).write_bytes(b"SQLite format 3\0" + b"x" * 5000)
    text = refusal(tmp_path)
    assert f"{tmp_path.name}/empty: a run without attempts" in text
    assert f"{tmp_path.name}/torn: the run cannot be read: " in text


# Chat messages of several APIs.


def chat(*messages: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {"messages": list(messages), **more}


def spoken(*parts: Any, role: str = "assistant", **more: Any) -> dict[str, Any]:
    return {"role": role, "content": list(parts), **more}


SHAPES: dict[str, tuple[list[Any], list[tuple[str, str]], str]] = {
    "legacy functions": (
        [{"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}},
         {"role": "function", "content": "1"}, {"role": "assistant", "content": None, "refusal": "I will not."}],
        [("action", "f()"), ("observation", "1")], "I will not.",
    ),
    "anthropic": (
        [spoken({"type": "thinking", "thinking": "Let me see."}, {"type": "redacted_thinking", "data": "xyz"},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "1", "name": "ls", "input": {"path": "/"}}),
         spoken({"type": "tool_result", "tool_use_id": "1", "content": "bin"}, role="user"),
         spoken({"type": "tool_result", "content": [{"name": "id", "type": ["integer", "null"]}]}, role="user")],
        [("action", 'ls({"path":"/"})'), ("observation", "bin"),
         ("observation", '[{"name":"id","type":["integer","null"]}]')], "I look.",
    ),
    "responses": (
        [{"type": "reasoning", "summary": [{"type": "summary_text", "text": "Short."}]},
         {"type": "function_call", "call_id": "1", "name": "ls", "arguments": '{"a": 1}'},
         {"type": "function_call_output", "call_id": "1", "output": "bin"},
         spoken({"type": "output_text", "text": "One."}, type="message")],
        [("thought", "Short."), ("action", 'ls({"a": 1})'), ("observation", "bin")], "One.",
    ),
    "custom tools": (
        [{"role": "assistant", "tool_calls": [{"type": "custom", "custom": {"name": "sh", "input": "ls -l"}}]},
         spoken({"type": "text", "text": "a"}, {"type": "text", "text": "b"}, role="tool"),
         {"role": "tool", "content": {"size": 3}}],
        [("observation", "a\nb"), ("observation", '{"size":3}')], "sh(ls -l)",
    ),
    "bedrock": (
        [spoken({"text": "Sure."}, {"toolUse": {"name": "ls", "input": {"a": 1}}}),
         spoken({"toolResult": {"content": [{"text": "bin"}], "status": "success"}}, role="user"),
         spoken({"reasoningContent": {"reasoningText": {"text": "So."}}})],
        [("message", "Sure."), ("action", 'ls({"a":1})'), ("observation", "bin"), ("thought", "So.")], "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_messages_of_all_apis(write: Write, shape: str) -> None:
    messages, expected, answer = SHAPES[shape]
    traces = load_traces(write(chat(ASKED, *messages)))
    assert (only(traces), traces.problems) == ((expected, answer), ())


def test_unknown_parts_of_a_chat_are_reported_once_and_the_rest_is_read(write: Write) -> None:
    critic, unnamed = {"role": "critic", "content": "Too short."}, {"content": "From whom?"}
    odd = spoken({"type": "hologram", "text": "x"}, 7, tool_calls=["f"])
    traces = load_traces(write([chat(ASKED, critic, unnamed, odd, ANSWERED), chat(ASKED, critic, ANSWERED)], "c.jsonl"))
    assert [steps(task) for task in traces.tasks] == [
        [("critic", "Too short."), ("None", "From whom?"), ("message", "x\n7")], [("critic", "Too short.")],
    ]  # fmt: skip
    assert problems(traces) == [(1, 2), (1, 1), (1, 1), (1, 1)]
    assert "unknown role 'critic'" in str(traces.problems[0])


# OpenTelemetry, in its earlier and current conventions.


@pytest.mark.parametrize("sample", sorted((DATA / "otel").iterdir()), ids=lambda path: path.stem)
def test_otel_in_all_its_conventions(sample: Path) -> None:
    traces = load_traces(sample)
    assert [(task.id, task.input) for task in traces.tasks] == [("t1", "2+2?")]
    assert only(traces) == ([("action", 'add({"a": 2})'), ("observation", "4")], "It is 4.")
    assert traces.problems == ()


def test_spans_of_several_traces_and_spans_without_messages(write: Write) -> None:
    asked, answered = (
        [{"role": turn["role"], "parts": [{"type": "text", "content": turn["content"]}]}] for turn in (ASKED, ANSWERED)
    )
    messages = {"gen_ai.input.messages": asked, "gen_ai.output.messages": answered}
    lines: list[Any] = [{"trace_id": id, "start_time": None, "attributes": messages, "events": []} for id in "ab"]
    lines += [{"trace_id": "c", "start_time": 1, "attributes": {"http.route": "/"}, "events": []}]
    lines += [{"resourceSpans": [{"scopeSpans": [{"spans": [{"name": "x"}, 3]}]}]}]
    traces = load_traces(write(lines, "spans.jsonl"))
    assert [task.id for task in traces.tasks] == ["a", "b"]
    assert problems(traces) == [(1, 2), (4, 1), (4, 1), (3, 1)]


# Bad input.

GOOD = json.dumps(chat(ASKED, ANSWERED))
INDENTED = json.dumps(chat(ASKED, ANSWERED), indent=1)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\n \n", "x.json: the file is empty"), (GOOD.encode("utf-16"), "x.json line 1: not UTF-8 text"),
        (INDENTED[:-8], "x.json line 10: truncated JSON (EOF"),
        ('{\n"a": 1,\n}', "x.json line 3: not JSON (trailing comma at column 1)"),
        ('{"model": "x", "agents": []}', "x.json line 1: the format is unknown (the record has 'model', 'agents')"),
        (json.dumps({"schema_version": "ATIF-v1.8", "steps": 3}), "x.json line 1: 'steps' is not a list"),
    ],
)  # fmt: skip
def test_a_file_without_a_trace_is_refused_with_its_place(write: Write, content: str | bytes, reason: str) -> None:
    text = refusal(write(content, "x.json"))
    assert text.startswith("x.json: no trace could be read: x.json")
    assert reason in text
