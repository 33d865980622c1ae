"""Stored traces: the contents of each format, its detection, and a report of every part that is not read."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter
from refusals import refused
from rows import execute, put

from practicum.core.types import Attempt, Feedback, Recorded, Score, Step, Task, Trace
from practicum.store import schema
from practicum.store.database import Store
from practicum.store.folder import DATABASE_FILE
from practicum.tasks import traces
from practicum.tasks.traces import Traces

DATA = Path(__file__).parent / "data" / "traces"
load_traces = partial(traces.load_traces, trust="own")
"""The formats are read in full: a score in a trace of another trust level is left out."""
Write = Callable[..., Path]

ASKED = {"role": "user", "content": "2+2?"}
ANSWERED = {"role": "assistant", "content": "4"}


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a file: bytes and texts unchanged, a list as JSON lines, other values as one JSON document."""

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
    traces = load_traces(str(DATA))
    assert traces.formats == {
        "chat": 3, "claude-code": 2, "mini-swe-agent": 1, "otel": 1, "swe-agent": 1, "atif": 2,
    }  # fmt: skip
    assert len({task.id for task in traces.tasks}) == len(traces.tasks) == 10
    assert load_traces(DATA) == traces
    for task in traces.tasks:
        assert task.input.strip()
        assert trace_of(task).answer.strip()


# Runs of practicum.


def attempt(id: str, answer: str, score: Score | None = None, **trace: Any) -> Attempt:
    task = Task(id, f"say {id}", id, {"tags": ["greeting"]})
    steps = (Step("thought", "hm"),)
    place = f"step 1/{id}, {answer}"
    return Attempt(task, Trace(answer, "so", ("e1",), steps, **trace), score, Feedback(None, ""), place)


def store_run(folder: Path, attempts: Sequence[Attempt], **more: str) -> None:
    adapter: TypeAdapter[Attempt] = TypeAdapter(Attempt)
    rows = [(r.place, number, adapter.dump_json(r).decode()) for number, r in enumerate(attempts)]
    rows += [(place, 99, data) for place, data in more.items()]
    config = json.dumps({"method": "ace", "model": "local:small"})
    with Store.create(folder) as store:
        execute(store, store.update(schema.spaces).values(config=config, learning="done", seconds=0.0, mark=""))
        put(
            store,
            schema.attempts,
            [{"space": "run", "place": p, "step": s, "sources": "[]", "data": data} for p, s, data in rows],
        )


def test_runs_of_practicum(tmp_path: Path) -> None:
    stored = [
        attempt("a", "first", Score(0.0, False, "no")),
        attempt("b", "it", Score(1.0, True)),
        attempt("a", "second"),
        attempt("c", "", error="it broke"),
        attempt("d", "", lost=True),
        # A reused attempt, which is not a trace.
        replace(attempt("b", "it", Score(1.0, True)), place="step 2/b", of="step 1/b, it"),
    ]
    store_run(tmp_path / "runs" / "one", stored, broken="{}")
    traces = load_traces(tmp_path)
    assert [(task.id, task.input, task.target) for task in traces.tasks] == [
        ("a", "say a", "a"),
        ("b", "say b", "b"),
        ("a#2", "say a", "a"),
        ("c", "say c", "c"),
    ]
    assert [task.recorded for task in traces.tasks] == [Recorded(r.trace, r.score) for r in stored[:4]]
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


def test_runs_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    store_run(tmp_path / "empty", [])
    for name, content in (("torn", b"SQLite format 3\0" + b"x" * 5000), ("odd", b"hello\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / DATABASE_FILE).write_bytes(content)
    text = refusal(tmp_path)
    assert f"{tmp_path.name}/empty: a run without attempts" in text
    assert f"{tmp_path.name}/odd: the run cannot be read: " in text
    assert "the run cannot be read" in refusal(tmp_path / "torn")


# Chat messages of several APIs.


def chat(*messages: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {"messages": list(messages), **more}


def spoken(*parts: Any, role: str = "assistant", **more: Any) -> dict[str, Any]:
    return {"role": role, "content": list(parts), **more}


SHAPES: dict[str, tuple[list[Any], list[tuple[str, str]], str]] = {
    "legacy functions": (
        [
            {"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}},
            {"role": "function", "content": "1"}, {"role": "assistant", "content": None, "refusal": "I will not."},
        ],
        [("action", "f()"), ("observation", "1")], "I will not.",
    ),
    "anthropic": (
        [
            spoken(
                {"type": "thinking", "thinking": "Let me see."}, {"type": "redacted_thinking", "data": "xyz"},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "1", "name": "ls", "input": {"path": "/"}},
            ),
            spoken({"type": "tool_result", "tool_use_id": "1", "content": "bin"}, role="user"),
            spoken({"type": "tool_result", "content": [{"name": "id", "type": ["integer", "null"]}]}, role="user"),
        ],
        [("action", 'ls({"path":"/"})'), ("observation", "bin"),
         ("observation", '[{"name":"id","type":["integer","null"]}]')], "I look.",
    ),
    "responses": (
        [
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Short."}]},
            {"type": "function_call", "call_id": "1", "name": "ls", "arguments": '{"a": 1}'},
            {"type": "function_call_output", "call_id": "1", "output": "bin"},
            spoken({"type": "output_text", "text": "One."}, type="message"),
        ],
        [("thought", "Short."), ("action", 'ls({"a": 1})'), ("observation", "bin")], "One.",
    ),
    "custom tools": (
        [
            {"role": "assistant", "tool_calls": [{"type": "custom", "custom": {"name": "sh", "input": "ls -l"}}]},
            spoken({"type": "text", "text": "a"}, {"type": "text", "text": "b"}, role="tool"),
            {"role": "tool", "content": {"size": 3}},
        ],
        [("observation", "a\nb"), ("observation", '{"size":3}')], "sh(ls -l)",
    ),
    "bedrock": (
        [
            spoken({"text": "Sure."}, {"toolUse": {"name": "ls", "input": {"a": 1}}}),
            spoken({"toolResult": {"content": [{"text": "bin"}], "status": "success"}}, role="user"),
            spoken({"reasoningContent": {"reasoningText": {"text": "So."}}}),
        ],
        [("message", "Sure."), ("action", 'ls({"a":1})'), ("observation", "bin"), ("thought", "So.")], "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_messages_of_all_apis(write: Write, shape: str) -> None:
    messages, expected, answer = SHAPES[shape]
    traces = load_traces(write(chat(ASKED, *messages)))
    task = only(traces)
    assert (steps(task), trace_of(task).answer, traces.problems) == (expected, answer, ())


def test_unknown_parts_of_a_chat_are_reported_once_and_the_rest_is_read(write: Write) -> None:
    odd = [
        {"role": "critic", "content": "Too short."},
        {"content": "From whom?"},
        {"role": "assistant", "content": [{"type": "hologram", "text": "x"}, 7], "tool_calls": ["f"]},
    ]
    traces = load_traces(write([chat(ASKED, *odd, ANSWERED), chat(ASKED, odd[0], ANSWERED)], "chat.jsonl"))
    assert [steps(task) for task in traces.tasks] == [
        [("critic", "Too short."), ("None", "From whom?"), ("message", "x\n7")],
        [("critic", "Too short.")],
    ]
    assert problems(traces) == [(1, 2), (1, 1), (1, 1), (1, 1)]
    assert "unknown role 'critic'" in str(traces.problems[0])


# mini-swe-agent.


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
    turns = [("user", "2+2?"), ("agent", "4")]
    steps = [{"step_id": n, "source": source, "message": text} for n, (source, text) in enumerate(turns, 1)]
    return {"schema_version": "ATIF-v1.2", "session_id": "s", "agent": {"name": "x"}, "steps": steps, **more}


def harbor(rewards: Any, **more: Any) -> dict[str, Any]:
    return {"task_name": "sum", "trial_name": "sum__1", "verifier_result": {"rewards": rewards}, **more}


def test_results_that_are_broken_or_have_no_trace_are_reported(write: Write) -> None:
    path = write(atif(extra={"reward": 1.0}), "a/agent/trajectory.json")
    write("{", "a/result.json")
    root = path.parents[2]
    write(harbor({"reward": 1}), "b/result.json")
    texts = [str(problem).replace(f"{root}/", "") for problem in load_traces(root).problems]
    assert texts[0].startswith("a/result.json line 1: truncated JSON (EOF")
    assert texts[1].startswith("a/agent/trajectory.json: the result.json of the trial cannot be read (EOF")
    assert texts[2] == "b/result.json: a Harbor result without an ATIF trajectory below it"


# OpenTelemetry, in its earlier and current conventions.


@pytest.mark.parametrize("sample", sorted(path.stem for path in (DATA.parent / "otel").iterdir()))
def test_otel_in_all_its_conventions(sample: str) -> None:
    traces = load_traces(DATA.parent / "otel" / f"{sample}.jsonl")
    task = only(traces)
    assert (task.id, task.input) == ("t1", "2+2?")
    assert steps(task) == [("action", 'add({"a": 2})'), ("observation", "4")]
    assert (trace_of(task).answer, traces.problems) == ("It is 4.", ())


def test_spans_of_several_traces_and_spans_without_messages(write: Write) -> None:
    asked, answered = (
        {"role": role, "parts": [{"type": "text", "content": text}]}
        for role, text in (("user", "2+2?"), ("assistant", "4"))
    )
    messages = {"gen_ai.input.messages": [asked], "gen_ai.output.messages": [answered]}
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
        (INDENTED.encode()[:-3] + b"\xff\n", "line 11: not UTF-8 text"),
        ('{\n"a": 1,\n}', "x.json line 3: not JSON (trailing comma at column 1)"),
        ("hello\nworld\n", "x.json line 1: not JSON (expected value at column 1)"),
        ('{"model": "x", "agents": []}', "x.json line 1: the format is unknown (it has 'model', 'agents')"),
        (json.dumps({"schema_version": "ATIF-v1.8", "steps": 3}), "x.json line 1: 'steps' is not a list"),
    ],
)  # fmt: skip
def test_a_file_without_a_trace_is_refused_with_its_place(write: Write, content: str | bytes, reason: str) -> None:
    text = refusal(write(content, "x.json"))
    assert text.startswith("x.json: no trace could be read: x.json")
    assert reason in text


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
