"""Traces that are stored as spans: Langfuse, LangSmith, Phoenix, MLflow, and the parts that OpenTelemetry has too."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from refusals import refused

from practicum.core.images import mark
from practicum.core.types import Score, Task, Trace
from practicum.tasks.traces import Traces, load_traces

Read = Callable[..., Traces]

ASKED = {"role": "user", "content": "Weather in Rome and Oslo?"}
CALLS = [
    {"id": f"call_{n}", "type": "function", "function": {"name": "weather", "arguments": f'{{"city": "{city}"}}'}}
    for n, city in enumerate(("Rome", "Oslo"))
]
CALLED = {"role": "assistant", "content": None, "tool_calls": CALLS}
RESULTS = [{"role": "tool", "tool_call_id": f"call_{n}", "content": text} for n, text in enumerate(("18 C", "2 C"))]
ANSWERED = {"role": "assistant", "content": "18 and 2 C."}
TURN = [
    ("action", 'weather({"city": "Rome"})'), ("action", 'weather({"city": "Oslo"})'),
    ("observation", "2 C"), ("observation", "18 C"),
]  # fmt: skip
"""Steps of the conversation, in which the second tool ended first."""


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Reads the traces of a file with these records, as lines, or as one document."""

    def of(*records: Any, document: bool = False) -> Traces:
        path = tmp_path / "spans.json"
        lines = [json.dumps(record, indent=1 if document else None) for record in records]
        path.write_text("\n".join(lines), encoding="utf-8")
        return load_traces(path, trust="own")

    return of


def trace_of(task: Task) -> Trace:
    assert task.recorded is not None
    return task.recorded.trace


def steps(task: Task) -> list[tuple[str, str]]:
    return [(step.kind, step.text) for step in trace_of(task).steps]


def score_of(task: Task) -> Score | None:
    assert task.recorded is not None
    return task.recorded.score


def exchange(task: Task) -> tuple[str, list[tuple[str, str]], str]:
    return task.input, steps(task), trace_of(task).answer


def reasons(traces: Traces) -> list[str]:
    return [problem.reason for problem in traces.problems]


# One agent in each format: a root, two model calls, and two parallel calls of a tool, whose spans have no id in some
# formats. The records are in the order in which the tool writes them.


def observation(id: str, type: str, start: int, end: int, input: Any, output: Any, **more: Any) -> dict[str, Any]:
    return {
        "id": id, "traceId": "t1", "type": type, "name": more.pop("name", "chat"),
        "parentObservationId": None if id == "root" else "root",
        "startTime": f"2026-01-01T00:00:{start:02}.000Z", "endTime": f"2026-01-01T00:00:{end:02}.000Z",
        "input": input, "output": output, **more,
    }  # fmt: skip


def langfuse(**root: Any) -> list[dict[str, Any]]:
    return [
        observation("m2", "GENERATION", 6, 7, json.dumps([ASKED, CALLED, *RESULTS]), json.dumps(ANSWERED),
                    model="gpt", usageDetails={"input": 7, "output": 3}),
        observation("w2", "TOOL", 3, 4, {"city": "Oslo"}, "2 C", name="weather"),
        observation("w1", "TOOL", 2, 5, '{"city":"Rome"}', json.dumps("18 C"), name="weather"),
        observation("m1", "GENERATION", 1, 2, {"messages": [ASKED]}, {"choices": [{"message": CALLED}]}, model="gpt",
                    usageDetails={"total": 11}),
        observation("root", "AGENT", 0, 9, {"question": ASKED["content"]}, "18 and 2 C.", name="agent")
        | {"sessionId": "s1", "userId": "u1", "usageDetails": {"total": 99}, **root},
    ]  # fmt: skip


def run(id: str, type: str, start: int, end: int, inputs: Any, outputs: Any, **more: Any) -> dict[str, Any]:
    return {
        "id": id, "trace_id": "t1", "run_type": type, "name": more.pop("name", "chat"), "parent_run_id": "t1",
        "start_time": f"2026-01-01T00:00:{start:02}", "end_time": f"2026-01-01T00:00:{end:02}",
        "inputs": inputs, "outputs": outputs, **more,
    }  # fmt: skip


def message(type: str, content: Any, **more: Any) -> dict[str, Any]:
    """A message of LangChain as its callbacks write it."""
    return {"lc": 1, "type": "constructor", "id": ["langchain", type], "kwargs": {"content": content, **more}}


LC_CALLS = [{"name": "weather", "args": {"city": city}, "id": f"call_{n}"} for n, city in enumerate(("Rome", "Oslo"))]
LC_CALLED = message("AIMessage", "", tool_calls=LC_CALLS, usage_metadata={"total_tokens": 11})
LC_RESULTS = [message("ToolMessage", text, tool_call_id=f"call_{n}") for n, text in enumerate(("18 C", "2 C"))]
LC_ASKED = message("HumanMessage", ASKED["content"])
STATE = [
    {"type": "human", "content": ASKED["content"]}, {"type": "ai", "content": "", "tool_calls": LC_CALLS},
    *({"type": "tool", "content": text, "tool_call_id": f"call_{n}"} for n, text in enumerate(("18 C", "2 C"))),
    {"type": "ai", "content": "18 and 2 C."},
]  # fmt: skip


def generated(message: Any) -> dict[str, Any]:
    return {"generations": [[{"text": "", "message": message}]]}


def tool_output(n: int, text: str) -> dict[str, Any]:
    return {"output": {"type": "tool", "content": text, "tool_call_id": f"call_{n}"}}


def langsmith(**root: Any) -> list[dict[str, Any]]:
    model = {"extra": {"metadata": {"ls_model_name": "gpt"}}}
    answer = message("AIMessage", "18 and 2 C.", usage_metadata={"input_tokens": 7, "output_tokens": 3})
    return [
        run("m2", "llm", 6, 7, {"messages": [[LC_ASKED, LC_CALLED, *LC_RESULTS]]}, generated(answer), **model),
        run("w2", "tool", 3, 4, {"city": "Oslo"}, tool_output(1, "2 C"), name="weather"),
        run("w1", "tool", 2, 5, {"input": "{'city': 'Rome'}"}, tool_output(0, "18 C"), name="weather"),
        run("m1", "llm", 1, 2, {"messages": [[LC_ASKED]]}, generated(LC_CALLED), **model),
        run("t1", "chain", 0, 9, {"messages": [["user", ASKED["content"]]]}, {"messages": STATE}, name="agent",
            extra={"metadata": {"thread_id": "s1", "user_id": "u1"}}) | {"parent_run_id": None, **root},
    ]  # fmt: skip


def span(id: str, kind: str, start: int, end: int, **attributes: Any) -> dict[str, Any]:
    """A span of Phoenix; "__" in the name of an attribute is a dot."""
    return {
        "name": attributes.pop("name", "chat"), "span_kind": kind, "context": {"trace_id": "t1", "span_id": id},
        "parent_id": attributes.pop("parent", "root"), "status_code": attributes.pop("status", "OK"),
        "start_time": f"2026-01-01T00:00:{start:02}+00:00", "end_time": f"2026-01-01T00:00:{end:02}+00:00",
        "events": [], "attributes": {key.replace("__", "."): value for key, value in attributes.items()},
    }  # fmt: skip


def flat(side: str, *messages: Mapping[str, Any]) -> dict[str, Any]:
    """The messages of a model call as attributes of OpenInference."""
    attributes: dict[str, Any] = {}
    for n, item in enumerate(messages):
        at = f"llm.{side}_messages.{n}.message"
        attributes |= {f"{at}.role": item["role"], f"{at}.content": item["content"]}
        attributes |= {f"{at}.tool_call_id": item["tool_call_id"]} if "tool_call_id" in item else {}
        for m, call in enumerate(item.get("tool_calls", ())):
            attributes[f"{at}.tool_calls.{m}.tool_call.id"] = call["id"]
            for key, value in call["function"].items():
                attributes[f"{at}.tool_calls.{m}.tool_call.function.{key}"] = value
    return attributes


def phoenix(**root: Any) -> list[dict[str, Any]]:
    model = {"llm__model_name": "gpt"}
    tool = {"name": "weather", "tool__parameters": '{"type": "object"}'}
    return [
        span("m2", "LLM", 6, 7, **flat("input", ASKED, CALLED, *RESULTS), **flat("output", ANSWERED), **model,
             llm__token_count__prompt=7, llm__token_count__completion=3),
        span("w2", "TOOL", 3, 4, input__value='{"city": "Oslo"}', output__value="2 C", **tool),
        span("w1", "TOOL", 2, 5, input__value='{"city": "Rome"}', output__value="18 C", **tool),
        span("m1", "LLM", 1, 2, **flat("input", ASKED), **flat("output", CALLED), **model, llm__token_count__total=11),
        span("root", "AGENT", 0, 9, name="agent", parent=None, input__value=ASKED["content"],
             output__value="18 and 2 C.", session__id="s1", user__id="u1") | root,
    ]  # fmt: skip


def mlflow_span(id: str, type: str, start: int, end: int, input: Any, output: Any, **more: Any) -> dict[str, Any]:
    attributes = {"mlflow.spanType": type, "mlflow.spanInputs": input, "mlflow.spanOutputs": output}
    attributes |= more.pop("attributes", {})
    return {
        "trace_id": "dDE=", "span_id": id, "parent_span_id": "root", "name": "chat", "events": [],
        "start_time_unix_nano": (1767225600 + start) * 10**9, "end_time_unix_nano": (1767225600 + end) * 10**9,
        "attributes": {key: json.dumps(value) for key, value in attributes.items()}, **more,
    }  # fmt: skip


def mlflow(**info: Any) -> dict[str, Any]:
    def model(tokens: int) -> dict[str, Any]:
        return {"attributes": {"mlflow.llm.model": "gpt", "mlflow.chat.tokenUsage": {"total_tokens": tokens}}}

    spans = [
        mlflow_span("root", "AGENT", 0, 9, {"question": ASKED["content"]}, "18 and 2 C.", name="agent")
        | {"parent_span_id": None},
        mlflow_span("m1", "CHAT_MODEL", 1, 2, {"messages": [ASKED]}, {"choices": [{"message": CALLED}]}, **model(11)),
        mlflow_span("w1", "TOOL", 2, 5, {"city": "Rome"}, "18 C", name="weather"),
        mlflow_span("w2", "TOOL", 3, 4, {"city": "Oslo"}, "2 C", name="weather"),
        mlflow_span("m2", "LLM", 6, 7, {"messages": [ASKED, CALLED, *RESULTS]},
                    {"choices": [{"message": ANSWERED}]}, **model(10)),
    ]  # fmt: skip
    metadata = {"mlflow.trace.session": "s1", "mlflow.trace.user": "u1"}
    stored = {"trace_id": "t1", "request_time": "2026-01-01T00:00:00Z", "state": "OK", "trace_metadata": metadata}
    return {"info": {**stored, **info}, "data": {"spans": spans}}


def by_column(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """A table as `DataFrame.to_json` writes it."""
    return {name: {str(n): row.get(name) for n, row in enumerate(rows)} for name in rows[0]}


def as_row(span: dict[str, Any]) -> dict[str, Any]:
    """A row of Phoenix's table of spans: lists of messages have dotted keys, and absent columns are null."""
    columns = {f"attributes.{key}": value for key, value in span["attributes"].items() if ".0." not in key}
    sides = {"input": [ASKED, CALLED, *RESULTS], "output": [ANSWERED]} if span["context"]["span_id"] == "m2" else {}
    if span["context"]["span_id"] == "m1":
        sides = {"input": [ASKED], "output": [CALLED]}
    for side in ("input", "output"):
        columns = {key: value for key, value in columns.items() if f"llm.{side}_messages" not in key}
        columns[f"attributes.llm.{side}_messages"] = [
            {"message.role": item["role"], "message.content": item.get("content"), "message.contents": None,
             "message.tool_call_id": item.get("tool_call_id"),
             "message.tool_calls": [{"tool_call.id": call["id"], "tool_call.function": call["function"]}
                                    for call in item.get("tool_calls", ())]}
            for item in sides.get(side, ())
        ] or None  # fmt: skip
    stored = {key: value for key, value in span.items() if key not in ("context", "attributes")}
    names = (
        "input.value", "output.value", "tool.parameters", "llm.model_name", "llm.token_count.total",
        "llm.token_count.prompt", "llm.token_count.completion", "session.id", "user.id",
    )  # fmt: skip
    columns |= {f"attributes.{name}": columns.get(f"attributes.{name}") for name in names}
    return {**stored, **{f"context.{key}": value for key, value in span["context"].items()}, **columns}


def otlp(span: dict[str, Any]) -> dict[str, Any]:
    """A span of Phoenix as its OTLP route returns it: a value has all kinds. One is not null."""
    kinds = ("array_value", "bool_value", "bytes_value", "double_value", "int_value", "kvlist_value", "string_value")

    def wrapped(value: Any) -> dict[str, Any]:
        kind = "int_value" if isinstance(value, int) else "string_value"
        return {**dict.fromkeys(kinds), kind: value}

    attributes = {**span["attributes"], "openinference.span.kind": span["span_kind"]}
    return {
        "attributes": [{"key": key, "value": wrapped(value)} for key, value in attributes.items()],
        "dropped_attributes_count": None, "name": span["name"], "trace_id": "t1", "parent_span_id": span["parent_id"],
        "span_id": span["context"]["span_id"], "start_time_unix_nano": span["start_time"],
        "end_time_unix_nano": span["end_time"], "status": {"code": 1, "message": None}, "events": None,
    }  # fmt: skip


def nested() -> dict[str, Any]:
    *inner, root = langsmith()
    own = [{key: value for key, value in child.items() if key not in ("trace_id", "parent_run_id")} for child in inner]
    return {**root, "child_runs": own}


ROW = {"id": "t1", "timestamp": "2026-01-01T00:00:00Z", "bookmarked": False, "sessionId": "s1", "userId": "u1"}
QUOTED = {"input": json.dumps(json.dumps({"question": ASKED["content"]})), "output": json.dumps(json.dumps("x"))}
SHAPES: dict[str, tuple[list[Any], bool]] = {
    "langfuse rows": (langfuse(), False),
    "langfuse page": ([{"data": langfuse(), "meta": {"page": 1}}], True),
    "langfuse download": ([{"trace": {**ROW, **QUOTED}, "observations": langfuse()}], True),
    "langfuse api": ([{**ROW, "htmlPath": "/x", "observations": langfuse(), "scores": []}], True),
    "langfuse snake case": ([
        {{"traceId": "trace_id", "parentObservationId": "parent_observation_id", "startTime": "start_time",
          "endTime": "end_time", "sessionId": "session_id", "userId": "user_id", "model": "provided_model_name",
          "usageDetails": "usage_details"}.get(key, key): value for key, value in row.items()} for row in langfuse()
    ], False),
    "langsmith lines": (langsmith(), False),
    "langsmith page": ([{"runs": langsmith(), "cursors": {}}], True),
    "langsmith nested": ([{"traces": [nested()]}], True),
    "langsmith texts": ([
        {**row, **{key: json.dumps(row[key]) for key in ("inputs", "outputs", "extra") if key in row}}
        for row in langsmith()
    ], False),
    "langsmith sent": ([{
        "post": [{**row, "outputs": {}, "end_time": None} for row in langsmith()],
        "patch": [{key: row[key] for key in ("id", "outputs", "end_time")} for row in langsmith()],
    }], True),
    "phoenix lines": (phoenix(), False),
    "phoenix page": ([{"data": phoenix(), "next_cursor": None}], True),
    "phoenix otlp": ([{"data": [otlp(row) for row in phoenix()], "next_cursor": None}], True),
    "phoenix rows": ([[as_row(row) for row in phoenix()]], True),
    "phoenix columns": ([by_column([as_row(row) for row in phoenix()])], True),
    "phoenix cli": ([{"traceId": "t1", "spans": phoenix(), "rootSpan": phoenix()[-1]}], True),
    "mlflow": ([mlflow()], False),
    "mlflow page": ([{"traces": [mlflow()], "next_page_token": None}], True),
    "mlflow rows": ([[{"trace_id": "t1", "trace": json.dumps(mlflow()), "spans": [], "state": "OK"}]], True),
    "mlflow columns": ([by_column([{"trace_id": "t1", "trace": json.dumps(mlflow()), "state": "OK"}])], True),
    "mlflow proto": ([{"trace_info": mlflow()["info"], "spans": mlflow()["data"]["spans"]}], True),
}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_one_agent_in_all_shapes_of_all_formats(read: Read, shape: str) -> None:
    records, document = SHAPES[shape]
    traces = read(*records, document=document)
    assert (dict(traces.formats), traces.problems) == ({shape.split()[0]: 1}, ())
    (task,) = traces.tasks
    assert exchange(task) == (ASKED["content"], TURN, "18 and 2 C.") if "langsmith" not in shape else (
        ASKED["content"], [(kind, text.replace(": ", ":")) for kind, text in TURN], "18 and 2 C.",
    )  # fmt: skip
    assert (task.id, task.target, score_of(task), trace_of(task).error) == ("t1", None, None, None)
    meta = {key: task.meta.get(key) for key in ("model", "session", "user", "agent", "tokens", "time")}
    assert meta == {
        "model": "gpt", "session": "s1", "user": "u1", "agent": "agent", "tokens": 21,
        "time": "2026-01-01T00:00:00.000+00:00",
    }  # fmt: skip


def test_the_artifact_of_mlflow_and_its_version_2(read: Read) -> None:
    spans = mlflow()["data"]["spans"]
    for item in spans:
        item["attributes"]["mlflow.traceRequestId"] = '"t1"'
    (task,) = read({"spans": spans}, document=True).tasks
    assert (task.id, *exchange(task)) == ("t1", ASKED["content"], TURN, "18 and 2 C.")
    second = [
        {"context": {"trace_id": "0x1", "span_id": item["span_id"]}, "parent_id": item["parent_span_id"],
         "start_time": item["start_time_unix_nano"], "end_time": item["end_time_unix_nano"], "status_code": "OK",
         "attributes": item["attributes"], "name": "weather_2" if item["name"] == "weather" else item["name"]}
        for item in spans
    ]  # fmt: skip
    info = {"request_id": "t2", "timestamp_ms": 1767225600000, "status": "OK", "request_metadata": {}}
    (task,) = read({"info": info, "data": {"spans": second}}).tasks
    assert (task.id, *exchange(task)) == ("t2", ASKED["content"], TURN, "18 and 2 C.")
    assert task.meta["time"] == "2026-01-01T00:00:00.000+00:00"


# The task of a trace.

EARLIER = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi!"}]
SYSTEM = {"role": "system", "content": "Be brief."}


def call(id: str, start: int, end: int, input: Any, output: Any, **more: Any) -> dict[str, Any]:
    return observation(id, "GENERATION", start, end, input, output, **more)


def test_earlier_turns_of_a_session_are_left_out(read: Read) -> None:
    history = [SYSTEM, *EARLIER, CALLED, *RESULTS, ASKED]
    again = {**CALLED, "tool_calls": [{**CALLS[0], "id": "call_9"}]}
    result = {**RESULTS[0], "tool_call_id": "call_9"}
    calls = [call("m1", 1, 2, history, again), call("m2", 3, 4, [*history, again, result], ANSWERED)]
    expected = ASKED["content"], [("action", 'weather({"city": "Rome"})'), ("observation", "18 C")], "18 and 2 C."
    for root in ([], [observation("root", "SPAN", 0, 9, ASKED["content"], "")]):
        (task,) = read(*reversed(calls), *root).tasks
        assert exchange(task) == expected
        assert task.meta["system"] == "Be brief."


def test_the_turn_begins_where_the_root_says(read: Read) -> None:
    """Without the root, the first of several messages in a row began the turn."""
    rules, more = {"role": "user", "content": "Be helpful!"}, {"role": "user", "content": "In Celsius."}
    calls = [call("m1", 1, 2, [rules, ASKED, more], ANSWERED)]
    root = observation("root", "SPAN", 0, 9, {"messages": [{"type": "human", "content": ASKED["content"]}]}, None)
    assert exchange(read(*calls, root).tasks[0]) == (ASKED["content"], [("user", "In Celsius.")], "18 and 2 C.")
    assert read(*calls).tasks[0].input == "Be helpful!"


def test_a_prompt_that_the_program_filled_in_is_not_the_task(read: Read) -> None:
    prompt = {"role": "user", "content": f"Context: {'x' * 9}. Question: {ASKED['content']} Answer:"}
    root = observation("root", "CHAIN", 0, 9, {"question": ASKED["content"], "lang": "en"}, {"answer": "18 and 2 C."})
    (task,) = read(call("m1", 1, 2, [prompt], ANSWERED), root).tasks
    assert exchange(task) == (ASKED["content"], [("user", prompt["content"])], "18 and 2 C.")
    root["input"] = {"lang": "x"}  # one word that the prompt holds by chance
    assert read(call("m1", 1, 2, [prompt], ANSWERED), root).tasks[0].input == prompt["content"]


@pytest.mark.parametrize(
    ("input", "asked"),
    [
        ("Weather?", "Weather?"), ({"args": ["Weather?"]}, "Weather?"), ({"a": 1, "b": "x"}, '{"a":1,"b":"x"}'),
        ({"input": {"messages": [ASKED]}}, ASKED["content"]),
        ({"new_message": {"role": "user", "parts": [{"text": "Weather?"}]}, "run_config": {"n": 1}}, "Weather?"),
    ],
)  # fmt: skip
def test_a_trace_without_model_calls_is_its_root(read: Read, input: Any, asked: str) -> None:
    root = observation("root", "SPAN", 0, 9, input, {"result": "Fine."}) | {"parentObservationId": "not in the file"}
    tool = observation("w", "TOOL", 1, 2, {}, "18 C", name="weather")
    assert exchange(read(root, tool).tasks[0]) == (asked, [("action", "weather()"), ("observation", "18 C")], "Fine.")


def test_a_root_alone_holds_the_messages_of_its_graph(read: Read) -> None:
    *_, root = langsmith()
    earlier = [{"type": "human", "content": "Hello"}, {"type": "ai", "content": "Hi!"}]
    removed = {"type": "remove", "content": "gone", "id": "1"}
    summary = {"type": "human", "content": "So far: hi.", "additional_kwargs": {"lc_source": "summarization"}}
    root["outputs"] = {"messages": [*earlier, STATE[0], removed, *STATE[1:]]}
    (task,) = read(root).tasks
    expected = [(kind, text.replace(": ", ":")) for kind, text in [*TURN[:2], TURN[3], TURN[2]]]
    assert exchange(task) == (ASKED["content"], expected, "18 and 2 C.")
    root |= {"inputs": {"messages": [STATE[0], summary]}}
    assert read(root).tasks[0].input == ASKED["content"]


# Steps.


def test_calls_without_an_id_are_paired_by_name_and_arguments(read: Read) -> None:
    """The calls of Gemini have no id. The tool's result, which came first, is not repeated by the next request."""

    def part(name: str, **fields: Any) -> dict[str, Any]:
        return {"role": "model" if name == "functionCall" else "user", "parts": [{name: {"name": "add", **fields}}]}

    asked = {"role": "user", "parts": [{"text": "2+3, twice?"}]}
    one, other = part("functionCall", args={"b": 3, "a": 2}), part("function_response", response={"sum": 5})
    turns = [asked, one, other, one, other]
    answer = {"content": {"role": "model", "parts": [{"text": "Hm.", "thought": True}, {"text": "5 and 5."}]}}
    requests = [{"contents": turns[:n], "config": {"system_instruction": "Add."}} for n in (1, 3, 5)]
    calls = [call(f"m{n}", n, n + 1, requests[n // 3], output) for n, output in ((0, {"content": one}),
             (3, {"content": one}), (6, {"candidates": [answer]}))]  # fmt: skip
    tools = [
        observation(f"w{n}", "TOOL", n, n + 1, {"a": 2, "b": 3}, "five", name="add",
                    metadata={"attributes": {"gen_ai.tool.call.id": f"adk-{n}"}})
        for n in (1, 4)
    ]  # fmt: skip
    (task,) = read(*calls, *tools).tasks
    add = ("action", 'add({"b":3,"a":2})')
    assert exchange(task) == ("2+3, twice?", [add, ("observation", "five")] * 2, "5 and 5.")
    assert (trace_of(task).reasoning, task.meta["system"]) == ("Hm.", "Add.")


def test_the_same_call_again_is_a_new_step(read: Read) -> None:
    """Even if the conversation before it was cut."""
    calls = [
        call("m1", 1, 2, [ASKED], {**CALLED, "tool_calls": CALLS[:1]}),
        call("m2", 3, 4, [RESULTS[0]], {**CALLED, "tool_calls": [{**CALLS[0], "id": "call_8"}]}),
        call("m3", 5, 6, [{**RESULTS[0], "tool_call_id": "call_8"}], ANSWERED),
    ]
    assert steps(read(*calls).tasks[0]) == [("action", 'weather({"city": "Rome"})'), ("observation", "18 C")] * 2


def test_reasoning_refusals_images_and_encrypted_parts(read: Read) -> None:
    parts = [{"type": "input_text", "text": "What is it?"}, {"type": "input_image", "image_url": "data:image/png;x"}]
    request = {"instructions": "Look.", "input": [{"role": "user", "content": parts}]}
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Red."}], "encrypted_content": "gAAA"}
    refusal = {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "I cannot say."}]}
    response = {"object": "response", "output": [{"type": "reasoning", "encrypted_content": "gAAA"}, thought, refusal]}
    trace = mlflow()
    trace["data"]["spans"] = [mlflow_span("m", "CHAT_MODEL", 1, 2, request, response)]
    (task,) = read(trace).tasks
    assert exchange(task) == (f"What is it?\n{mark('data:image/png;x')}", [], "I cannot say.")
    assert [*task.images.values()] == ["data:image/png;x"]
    assert (trace_of(task).reasoning, task.meta["system"]) == ("Red.", "Look.")
    image = f"@@@langfuseMedia:type=image/png|id=1|source=base64_data_uri@@@ data:audio/wav;base64,{'A' * 40}= ?"
    thinking = [
        {"type": "thinking", "thinking": "So."}, {"type": "redacted_thinking", "data": "x"},
        {"type": "text", "text": "I look."}, {"type": "tool_use", "id": "1", "name": "zoom", "input": {}},
    ]  # fmt: skip
    (task,) = read(call("m", 1, 2, {"prompt": image, "system": "s"}, {"role": "assistant", "content": thinking})).tasks
    assert exchange(task) == ("[image] [audio] ?", [("action", "zoom()")], "I look.")
    assert trace_of(task).reasoning == "So."


def test_parts_of_openinference(read: Read) -> None:
    at = "llm.input_messages.0.message"
    asked = {
        f"{at}.role": "user", f"{at}.contents.1.message_content.type": "image",
        f"{at}.contents.1.message_content.image.image.url": "data:image/png;base64,AAAA",
        f"{at}.contents.0.message_content.type": "text", f"{at}.contents.0.message_content.text": "What is it?",
    }  # fmt: skip
    refusal = json.dumps({"choices": [{"message": {"role": "assistant", "refusal": "No.", "content": None}}]})
    record = span("m", "LLM", 1, 2, output__value=refusal, **{"llm.output_messages.0.message.role": "assistant"})
    record["attributes"] |= asked
    assert exchange(read(record).tasks[0]) == ("What is it?\n[image]", [], "No.")
    text = span("m", "LLM", 1, 2, **{"llm.prompts.0.prompt.text": "2+2", "llm.choices.0.completion.text": "4"})
    assert exchange(read(text).tasks[0]) == ("2+2", [], "4")
    old = {
        f"{at}.role": "assistant",
        f"{at}.function_call_name": "add",
        f"{at}.function_call_arguments_json": '{"a":1}',
    }
    old = {key.replace("input", "output"): value for key, value in old.items()}
    assert trace_of(read(span("m", "LLM", 1, 2, **flat("input", ASKED), **old)).tasks[0]).answer == 'add({"a":1})'


def test_opentelemetry_may_hold_the_attributes_of_openinference(read: Read) -> None:
    attributes = [
        {"key": key, "value": {"stringValue": value}}
        for key, value in {**flat("input", ASKED), **flat("output", ANSWERED), "openinference.span.kind": "LLM"}.items()
    ]
    spans = [{"traceId": "a", "spanId": "1", "startTimeUnixNano": "1", "attributes": attributes}]
    traces = read({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]})
    assert dict(traces.formats) == {"otel": 1}
    assert exchange(traces.tasks[0]) == (ASKED["content"], [], "18 and 2 C.")


def test_a_subagent_below_a_tool_is_a_separate_trace(read: Read) -> None:
    brief = {"role": "user", "content": "Look up Rome."}
    agent = [
        observation("w1", "TOOL", 2, 5, {"city": "Rome"}, "18 C", name="weather"),
        observation("sub", "AGENT", 2, 5, "x", "y", name="helper") | {"parentObservationId": "w1"},
        call("s1", 3, 4, [brief], {"role": "assistant", "content": "It is 18 C."}) | {"parentObservationId": "sub"},
        observation("inner", "TOOL", 3, 4, {}, "z", name="http") | {"parentObservationId": "w2"},
    ]  # fmt: skip
    main = [row for row in langfuse() if row["id"] != "w1"]
    score = {"id": "1", "traceId": "t1", "name": "ok", "source": "API", "dataType": "BOOLEAN", "value": 1}
    inner = {**score, "id": "2", "value": 0, "observationId": "sub"}
    traces = read(*main, *agent, score, inner)
    assert traces.problems == ()
    first, second = traces.tasks
    assert exchange(first) == (ASKED["content"], TURN, "18 and 2 C.")
    assert exchange(second) == ("Look up Rome.", [], "It is 18 C.")
    assert (second.id, second.meta["parent"], second.meta["agent"]) == ("t1/w1", "t1", "helper")
    assert [score_of(task) for task in traces.tasks] == [Score(1.0, True, "ok 1"), Score(0.0, False, "ok 0")]


def test_a_request_that_a_tool_sends_is_no_subagent() -> None:
    traces = load_traces(Path(__file__).parent / "data" / "traces" / "otel_otlp.jsonl", trust="own")
    assert (len(traces.tasks), traces.problems) == (1, ())


def test_work_that_is_not_the_agents_is_left_out(read: Read) -> None:
    judged = {"role": "user", "content": "Rate the answer."}
    judge = [
        observation("e", "EVALUATOR", 8, 9, "x", "y"),
        call("j", 8, 9, [judged], {"role": "assistant", "content": "10"}) | {"parentObservationId": "e"},
    ]
    assert exchange(read(*langfuse(), *judge).tasks[0]) == (ASKED["content"], TURN, "18 and 2 C.")
    with refused("traces.unreadable") as caught:
        read(*judge)
    assert "a trace of an evaluator is left out" in str(caught.value)
    with refused("traces.unreadable") as caught:
        read(mlflow(tags={"mlflow.trace.sourceScorer": "x"}))
    assert "a trace of a scorer is left out" in str(caught.value)


def test_documents_definitions_of_tools_and_nested_generations(read: Read) -> None:
    definition = {"role": "tool", "content": {"type": "function", "function": {"name": "weather"}}}
    outer = call("o", 1, 9, {"prompt": ASKED["content"]}, {"text": "18 and 2 C."}, usageDetails={"total": 8})
    inner = call("m", 2, 8, [ASKED, definition], ANSWERED, usageDetails={"total": 8}) | {"parentObservationId": "o"}
    search = observation("r", "RETRIEVER", 1, 1, {"query": "Rome"}, {"documents": [{"page_content": "18 C"}]}, name="s")
    traces = read(outer, inner, search)
    (task,) = traces.tasks
    assert traces.problems == ()
    assert exchange(task)[1:] == ([("action", 's({"query":"Rome"})'), ("observation", "18 C")], "18 and 2 C.")
    assert task.meta["tokens"] == 8


def test_tools_that_are_traced_as_other_spans(read: Read) -> None:
    """LangGraph, where the input is the text of a Python object; Claude Agent SDK; ADK, where the span is empty."""
    calls = [{**CALLS[0], "id": id} for id in "abc"]
    message = {"type": "tool", "content": "18 C", "tool_call_id": "b", "status": "success"}
    attributes = {"gen_ai.tool.call.id": "c", "gcp.vertex.agent.tool_response": '{"degrees": 20}'}
    tools = [
        observation("w0", "SPAN", 2, 3, "{'city': 'Rome'}", message, name="weather"),
        observation("w1", "TOOL", 4, 5, {"input": {"city": "Rome"}}, {"content": [{"type": "text", "text": "19 C"}]},
                    name="weather"),
        observation("w2", "TOOL", 6, 7, {}, "{}", name="weather", metadata={"attributes": attributes}),
        observation("w3", "TOOL", 8, 9, {}, {"result": {}}, name="clock"),
    ]  # fmt: skip
    (task,) = read(call("m", 0, 1, [ASKED], {**CALLED, "tool_calls": calls}), *tools).tasks
    assert [text for kind, text in steps(task) if kind == "observation"] == ["18 C", "19 C", '{"degrees":20}']
    assert [text for kind, text in steps(task) if kind == "action"] == [TURN[0][1]] * 3
    assert trace_of(task).answer == "clock()"


def test_an_agent_below_the_root_may_hold_the_task_and_the_answer(read: Read) -> None:
    agent = observation("a", "AGENT", 1, 8, {"question": "Weather?"}, "Fine.", name="agent")
    tool = observation("w", "TOOL", 2, 3, {}, "18 C", name="weather") | {"parentObservationId": "a"}
    (task,) = read(observation("root", "SPAN", 0, 9, None, None), agent, tool).tasks
    assert exchange(task) == ("Weather?", [("action", "weather()"), ("observation", "18 C")], "Fine.")


def test_the_tokens_of_the_whole_trace_come_from_its_root(read: Read) -> None:
    assert read(*langsmith(total_tokens=30)).tasks[0].meta["tokens"] == 30
    usage = {"mlflow.trace.tokenUsage": '{"total_tokens": 31}'}
    assert read(mlflow(trace_metadata=usage)).tasks[0].meta["tokens"] == 31


def test_messages_of_openinference_are_in_the_order_of_their_numbers(read: Read) -> None:
    turns = [{"role": "assistant", "content": f"Part {n}."} for n in range(11)]
    (task,) = read(span("m", "LLM", 1, 2, **flat("input", ASKED), **flat("output", *turns))).tasks
    assert [*steps(task), ("message", trace_of(task).answer)] == [("message", f"Part {n}.") for n in range(11)]


def test_calls_of_the_ai_sdk(read: Read) -> None:
    output = {"text": "I look.", "toolCalls": [{"toolCallId": "1", "toolName": "zoom", "input": {"x": 2}}]}
    metadata = json.dumps({"attributes": {"ai.toolCall.name": "zoom", "ai.toolCall.id": "1"}})
    tool = observation("w", "SPAN", 3, 4, {"x": 2}, "a cat", name="ai.toolCall", metadata=metadata)
    (task,) = read(call("m", 1, 2, [ASKED], output), tool).tasks
    assert exchange(task)[1:] == ([("action", 'zoom({"x":2})'), ("observation", "a cat")], "I look.")


def test_a_text_that_was_hidden_is_reported(read: Read) -> None:
    hidden = {"role": "user", "content": "__REDACTED__"}
    traces = read(*langfuse(), {**call("m", 1, 2, [hidden], ANSWERED), "traceId": "t2"})
    assert [task.id for task in traces.tasks] == ["t1"]
    assert reasons(traces) == ["a text was hidden by the program that wrote it", "a trace without a task for the agent"]


# Errors.


def test_only_an_error_of_the_root_is_an_error(read: Read) -> None:
    failed = langfuse(level="ERROR", statusMessage="out of tokens")
    assert trace_of(read(*failed).tasks[0]).error == "out of tokens"
    failed = langfuse()
    failed[1] |= {"level": "ERROR", "statusMessage": "no such city", "output": None}
    (task,) = read(*failed).tasks
    assert (trace_of(task).error, steps(task)[2]) == (None, ("observation", "no such city"))
    retried = [call("m2", 3, 4, [ASKED], ANSWERED), call("m1", 1, 2, [ASKED], None, level="ERROR")]
    assert trace_of(read(*retried).tasks[0]).error is None  # the export has no root
    event = {"name": "exception", "attributes": {"exception.type": "ValueError", "exception.message": "no city"}}
    (task,) = read(*phoenix(status_code="ERROR", events=[event])).tasks
    assert trace_of(task).error == "ValueError: no city"
    trace = mlflow(state="ERROR")
    trace["data"]["spans"][0] |= {"status": {"code": "STATUS_CODE_ERROR", "message": "broken"}}
    assert trace_of(read(trace).tasks[0]).error == "broken"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ("ValueError('x')Traceback (most recent call last):\n  File", "ValueError('x')"), (None, None),
        ("GraphInterrupt(...)Traceback (most recent call last):", None), ("GraphRecursionError('25')",) * 2,
    ],
)  # fmt: skip
def test_errors_of_langsmith(read: Read, error: str | None, expected: str | None) -> None:
    assert trace_of(read(*langsmith(error=error, outputs={})).tasks[0]).error == expected


def test_an_unfinished_trace_fails_only_without_an_answer(read: Read) -> None:
    running = langsmith(status="pending", end_time=None, outputs=None)
    assert trace_of(read(*running).tasks[0]).error is None
    (task,) = read(*running[1:]).tasks  # without the last model call
    assert trace_of(task).error == "the run is not finished"
    trace = mlflow(state="IN_PROGRESS")
    del trace["data"]["spans"][4], trace["data"]["spans"][0]
    assert trace_of(read(trace).tasks[0]).error == "the run is not finished"


# Scores.


def scored(name: str, value: Any, kind: str = "NUMERIC", **more: Any) -> dict[str, Any]:
    return {"id": name, "traceId": "t1", "name": name, "value": value, "source": "EVAL", "dataType": kind, **more}


def test_scores_of_langfuse(read: Read) -> None:
    scores = [
        scored("good", 0.5, comment="Half."), scored("label", 0, "CATEGORICAL", stringValue="Pass"),
        scored("hallucination", 1), scored("stars", 4), scored("inner", 0, observationId="m1"),
        scored("root", 1, "BOOLEAN", observationId="root"), scored("note", None, "TEXT", stringValue="Well done"),
        scored("fix", None, "CORRECTION", longStringValue="18 C, 2 C"),
    ]  # fmt: skip
    for records in ([*langfuse(), *scores], [{"observations": langfuse(), "scores": scores}]):
        traces = read(*records, document=len(records) == 1)
        (task,) = traces.tasks
        note = "good 0.5: Half.; label 1; hallucination 1 (lower is better); stars 4; root 1; note: Well done"
        score = score_of(task)
        assert score is not None
        assert (round(score.value, 3), score.correct, score.note) == (0.833, True, note)
        assert task.target == "18 C, 2 C"
        assert reasons(traces) == ["stars is not true, false or a number between 0 and 1; this value is left out"]


def test_scores_that_are_all_left_out_stay_as_feedback(read: Read) -> None:
    (task,) = read(*langfuse(), scored("toxicity", 0.9)).tasks
    assert (score_of(task), task.meta["feedback"]) == (None, "toxicity 0.9 (lower is better)")


def test_a_row_of_a_trace_has_a_column_for_each_score(read: Read) -> None:
    row = {**ROW, "input": "2+2?", "output": "4", "tags": ["a"], "correctness": [0.25], "safe": None, "tone": ["yes"]}
    (task,) = read(row).tasks
    assert (exchange(task), task.meta["tags"]) == (("2+2?", [], "4"), ["a"])
    score = score_of(task)
    assert score is not None
    assert (score.value, score.correct, score.note) == (0.625, False, "correctness 0.25; tone 1")
    traces = read({**row, "observations": ["id1"], "scores": ["id2"]})
    assert reasons(traces) == ["the observations of a trace are in another file"]


def test_a_score_without_its_trace_is_reported(read: Read) -> None:
    traces = read(*langfuse(), scored("good", 1) | {"traceId": "other"})
    assert score_of(traces.tasks[0]) is None
    assert reasons(traces) == ["a score whose trace is not in the same file is left out"]


def test_feedback_of_langsmith(read: Read) -> None:
    feedback = {"id": "f", "run_id": "t1", "trace_id": None, "key": "correct", "score": False, "comment": "Rome is 19."}
    fixed = {**feedback, "key": "fix", "score": None, "comment": None, "correction": {"answer": "19 and 2 C."}}
    inner = {**feedback, "run_id": "m1", "score": 1.0}
    (task,) = read(feedback, fixed, inner, *langsmith()).tasks
    assert score_of(task) == Score(0.0, False, "correct 0: Rome is 19.")
    assert task.target == "19 and 2 C."
    stats = {"up": {"n": 2, "avg": 0.75}, "words": {"n": 1, "avg": None, "values": {"fail": 1}}, "none": {"n": 0}}
    (task,) = read(*langsmith(feedback_stats=stats)).tasks
    score = score_of(task)
    assert score is not None
    assert (score.value, score.note) == (0.375, "up 0.75; words 0")


def test_annotations_of_phoenix(read: Read) -> None:
    def annotation(name: str, label: str | None, score: float | None, **at: Any) -> dict[str, Any]:
        result = {"label": label, "score": score, "explanation": "Because." if name == "good" else None}
        return {"name": name, "annotator_kind": "HUMAN", "result": result, **at}

    root = [annotation("good", "correct", 1.0), annotation("note", None, None), annotation("right", "incorrect", None)]
    separate = [{**item, "span_id": "root"} for item in root] + [annotation("x", None, 0.0, span_id="m1")]
    cli = {"traceId": "t1", "spans": phoenix(), "annotations": root}
    for records in ([*phoenix(annotations=root)], [*phoenix(), {"data": separate}], [cli]):
        score = score_of(read(*records, document=len(records) == 1).tasks[0])
        assert score == Score(0.5, False, "good 1: Because.; right 0")


def test_assessments_of_mlflow(read: Read) -> None:
    def feedback(name: str, value: Any, **more: Any) -> dict[str, Any]:
        return {"assessment_name": name, "feedback": {"value": value}, **more}

    facts = {"serialized_value": {"value": '["18 C"]', "serialization_format": "JSON_FORMAT"}}
    assessments = [
        feedback("correct", True, rationale="Both."), feedback("relevant", "no", valid=False),
        feedback("relevant", "yes"), feedback("failed", None) | {"feedback": {"value": None, "error": {}, "x": 1}},
        feedback("inner", False, span_id="m1"), feedback("root", 0.5, span_id="root"),
        {"assessment_name": "i", "issue": {}},
        feedback("broken", None) | {"feedback": {"value": 0, "error": {"error_code": "ValueError"}}},
        {"assessment_name": "expected_response", "expectation": {"value": "18 and 2"}},
        {"assessment_name": "expected_facts", "expectation": facts},
    ]  # fmt: skip
    (task,) = read(mlflow(assessments=assessments)).tasks
    score = score_of(task)
    assert score is not None
    assert (round(score.value, 3), score.note) == (0.833, "correct 1: Both.; relevant 1; failed; root 0.5")
    assert (task.target, task.meta["expected_facts"]) == ("18 and 2", '["18 C"]')


# Files.


def test_a_span_that_is_stored_twice_is_read_once(read: Read) -> None:
    """Pages overlap, and a span may be written when it starts and again when it ends."""
    started = [{**row, "output": None, "endTime": None} for row in langfuse()]
    for records in ([*started, *langfuse()], [*langfuse(), *started]):
        assert exchange(read(*records).tasks[0]) == (ASKED["content"], TURN, "18 and 2 C.")
    emptied = [{**row, "input": None, "output": None, "metadata": "{}"} for row in langfuse()]
    record = {"trace": {**ROW, "observations": emptied}, "observations": langfuse()}
    assert exchange(read(record, document=True).tasks[0]) == (ASKED["content"], TURN, "18 and 2 C.")


def test_runs_without_a_trace_id_are_joined_by_their_order(read: Read) -> None:
    def ordered(record: dict[str, Any]) -> dict[str, Any]:
        above = [] if record["id"] == "t1" else ["20260101T000000000000Zt1"]
        order = ".".join([*above, f"20260101T000000000000Z{record['id']}"])
        return {key: value for key, value in record.items() if key not in ("trace_id", "parent_run_id")} | {
            "dotted_order": order
        }

    (task,) = read(*map(ordered, langsmith())).tasks
    assert (task.id, trace_of(task).answer) == ("t1", "18 and 2 C.")


def test_content_outside_of_the_file_is_reported(read: Read) -> None:
    traces = read(*langsmith(), {**run("x", "llm", 1, 2, None, None, inputs_s3_urls={"ROOT": {}}), "trace_id": "t2"})
    assert reasons(traces)[0] == "the inputs and outputs of a run are stored outside of the file"
    assert [task.id for task in traces.tasks] == ["t1"]


def test_a_loop_of_parents_ends(read: Read) -> None:
    looped = [{**row, "parentObservationId": row["id"]} for row in langfuse()]
    looped[0]["parentObservationId"], looped[3]["parentObservationId"] = "m1", "m2"
    assert trace_of(read(*looped).tasks[0]).answer == "18 and 2 C."
