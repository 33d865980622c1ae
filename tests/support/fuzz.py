"""Inputs from outside, made by hypothesis, and the property of each reader: values or a PracticumError, and nothing is
lost without a report. The fast run tries a few examples of each property, the slow profile hundreds.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter, ValidationError

import practicum.methods
from practicum.agents.team import load_team
from practicum.core import playbook
from practicum.core.bounded import Output
from practicum.core.edits import Delta
from practicum.core.errors import PracticumError, PracticumWarning
from practicum.core.types import Task
from practicum.models.objects import read_object
from practicum.session import memories
from practicum.tasks.formats import FORMATS, as_json_lines, convert
from practicum.tasks.load import load_tasks
from practicum.tasks.traces import load_traces


def short(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """The same values, from a strategy whose name in a report is short."""

    @st.composite
    def some(draw: st.DrawFn) -> Any:
        return draw(strategy)

    return some()


TEXTS = st.text(
    st.characters(exclude_categories=()) | st.sampled_from("\0\r\x85\u2028\ufeff\ud800\u202e\U000e0041"), max_size=12
)
"""Texts of all characters, halves of surrogate pairs among them."""

SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS
    | st.sampled_from([10**400, -(10**30), 1e308, 2**63, float("nan"), float("inf"), "9" * 5000, "e" + "9" * 30, ""])
)  # fmt: skip

_FIELDS = """
role content parts messages type text tool_calls function name arguments message uuid parentUuid sessionId isSidechain
agentId attachment prompt trace_id traceId attributes events start_time startTimeUnixNano endTimeUnixNano timestamp
resourceSpans resourceLogs scopeSpans scopeLogs spans logRecords key value stringValue arrayValue values kvlistValue
schema_version steps source observation results trajectory trajectory_format history info thought action submission
attempts subagent_trajectories verifier_result trial_name step_results id score reward success correct body eventName
gen_ai.input.messages gen_ai.output.messages gen_ai.prompt gen_ai.prompt.0.content gen_ai.choice
gen_ai.completion.0.tool_calls.0.name gen_ai.tool.call.result gen_ai.tool.call.arguments gen_ai.operation.name
gen_ai.event.content gen_ai.evaluation.score.value toolUse toolResult reasoningContent output object summary metadata
exception_info replay_config input target meta tags entries section helpful harmful uses sources data title description
outcome agents links nodes edges model question answer choices chosen rejected subset context task_id
canonical_solution test entry_point concepts PATIENT_PROFILE PATHOLOGY sentences insights bullets operations op reason
votes run_id parent_run_id dotted_order child_runs run_type outputs inputs generations choices kwargs lc args key
comment correction feedback_stats observations dataType status_code annotations data spans contents parts functionCall
thought additional_kwargs mlflow.spanOutputs mlflow.traceRequestId assessments start end usage total_tokens level
"""
FIELDS = short(st.sampled_from(_FIELDS.split()))

_WORDS = """
user assistant system tool text tool_use tool_result thinking function_call input_text image ATIF-v1.7
mini-swe-agent-1.1 gen_ai.choice gen_ai.user.message gen_ai.evaluation.result execute_tool response agent
gen_ai.client.inference.operation.details 2026-01-01T00:00:00 0001-01-01T00:00:00+14:00 9999-12-31T23:59:59-14:00
success failure solve e0 e1 add A B
"""
WORDS = short(st.sampled_from(_WORDS.split()))

VALUES = short(
    st.recursive(
        SCALARS | WORDS,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS | TEXTS, inner, max_size=4),
        max_leaves=10,
    )
)

NESTED = st.builds(
    lambda opening, depth: opening * depth, st.sampled_from(["[", '{"a":', '[{"content":']), st.integers(1, 3000)
)


def shaped(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Objects that have these fields, and maybe others."""
    others = st.dictionaries(FIELDS, VALUES, max_size=3)
    return st.builds(lambda more, own: {**more, **own}, others, st.fixed_dictionaries(fields))


MESSAGES = short(st.lists(shaped(role=WORDS, content=VALUES) | VALUES, max_size=4))
EXCHANGES = shaped(messages=MESSAGES) | MESSAGES | VALUES
TRACES = st.one_of(
    shaped(messages=MESSAGES),
    MESSAGES,
    shaped(type=WORDS | VALUES, sessionId=TEXTS, message=shaped(content=VALUES)),
    shaped(trace_id=WORDS, attributes=VALUES, events=VALUES, start_time=VALUES | WORDS),
    shaped(resourceSpans=st.lists(shaped(scopeSpans=st.lists(shaped(spans=VALUES), max_size=2)), max_size=2)),
    shaped(run_type=st.sampled_from(["llm", "tool", "chain"]), trace_id=WORDS, inputs=EXCHANGES, outputs=EXCHANGES),
    shaped(
        type=st.sampled_from(["GENERATION", "TOOL", "SPAN"]),
        traceId=WORDS,
        parentObservationId=VALUES,
        input=EXCHANGES,
        output=EXCHANGES,
        metadata=VALUES,
    ),
    shaped(
        context=shaped(trace_id=WORDS),
        span_kind=st.sampled_from(["LLM", "TOOL"]),
        attributes=st.dictionaries(
            st.sampled_from(["llm.input_messages.0.message", "llm.prompts.0", "output.value", "tool.name"]), VALUES
        ),
    ),
    shaped(
        info=shaped(trace_id=WORDS, assessments=VALUES),
        data=shaped(
            spans=st.lists(
                shaped(
                    span_id=WORDS,
                    attributes=shaped(
                        **{"mlflow.spanType": st.sampled_from(["LLM", "TOOL"]), "mlflow.spanInputs": EXCHANGES}
                    ),
                ),
                max_size=3,
            )
        ),
    ),
    shaped(schema_version=st.just("ATIF-v1.7"), steps=st.lists(shaped(source=WORDS), max_size=3), agent=VALUES),
    shaped(trajectory=st.lists(shaped(action=VALUES), max_size=3), history=MESSAGES, info=VALUES),
    shaped(trajectory_format=st.just("mini-swe-agent-1.1"), messages=MESSAGES, info=VALUES),
    VALUES,
)
TASKS = shaped(input=TEXTS | VALUES) | VALUES
ENTRIES = shaped(text=TEXTS | VALUES, id=st.sampled_from(["e0", "e3", "e10000001", "e٣", None]) | VALUES) | VALUES


def _written(value: Any, ascii_only: bool) -> str:
    return json.dumps(value, ensure_ascii=ascii_only)


def files(values: st.SearchStrategy[Any]) -> st.SearchStrategy[bytes]:
    """Files of JSON lines, of one JSON document, and of other bytes."""
    written = st.builds(_written, values, st.booleans())
    twice = st.builds(lambda text: text.replace("{", '{"input": 1, "role": "user", ', 1), written)
    line = written | twice | NESTED | st.builds(lambda text, n: text[:n], written, st.integers(0, 200)) | TEXTS
    lines = st.builds(
        lambda lines, end, bom: (bom + end.join(lines)).encode("utf-8", "surrogatepass"),
        st.lists(line, max_size=5), st.sampled_from(["\n", "\r\n", "\n\n"]), st.sampled_from(["", "\ufeff"]),
    )  # fmt: skip
    return lines | st.binary(max_size=60)


def read(content: bytes, name: str, reader: Callable[[Path], Any]) -> Any:
    """The result of a reader for a file of this content; None if it raises PracticumError."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        with warnings.catch_warnings():
            # Readers warn about characters that they replace.
            warnings.simplefilter("ignore", PracticumWarning)
            try:
                return reader(path)
            except PracticumError:
                return None


def can_be_stored(tasks: Any) -> None:
    """The tasks can be stored, and sent to a model."""
    TypeAdapter(tuple[Task, ...]).dump_json(tuple(tasks))
    for task in tasks:
        json.dumps([task.id, task.input, task.target, dict(task.meta)], allow_nan=False, ensure_ascii=False).encode()
        assert task.input.strip()
        assert task.id.strip()
    assert len({task.id for task in tasks}) == len(tasks)


def _value(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


@given(files(TASKS))
def tasks(content: bytes) -> None:
    loaded = read(content, "tasks.jsonl", load_tasks)
    if loaded is not None:
        values = [_value(line) for line in content.removeprefix(b"\xef\xbb\xbf").split(b"\n") if line.strip()]
        if all(isinstance(value, dict) and "input" in value for value in values):
            assert len(loaded) == len(values)
        can_be_stored(loaded)
        written = [{"id": t.id, "input": t.input, "meta": {**t.meta}} for t in loaded]
        assert [t.input for t in read("\n".join(map(json.dumps, written)).encode(), "again", load_tasks)] == [
            t.input for t in loaded
        ]


@given(
    files(TASKS) | st.text().map(str.encode),
    st.sampled_from([None, *FORMATS.names()]),
    st.sampled_from(["d.csv", "d.jsonl"]),
)
def datasets(content: bytes, format: str | None, name: str) -> None:
    converted = read(content, name, lambda path: convert(path, format))
    if converted is not None:
        can_be_stored(converted.tasks)
        assert len(read(as_json_lines(converted.tasks).encode(), "tasks.jsonl", load_tasks)) == len(converted.tasks)


@given(files(TRACES), st.sampled_from(["t.json", "t.jsonl", "t.traj"]))
def traces(content: bytes, name: str) -> None:
    good = b'{"messages": [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]}\n'
    loaded = read(good + content, name, lambda path: load_traces(path, trust_scores=True))
    if loaded is not None:
        assert sum(loaded.formats.values()) == len(loaded.tasks)
        can_be_stored(loaded.tasks)
        assert all(task.recorded is not None and task.recorded.trace.answer.strip() for task in loaded.tasks)
        for problem in loaded.problems:
            assert problem.count > 0
            assert len(str(problem).splitlines()) == 1
        filled = [line for line in (good + content).split(b"\n") if line.strip()]
        # The lines of a session and the spans of a trace are one trace; every other line is one, or a problem.
        collected = any(
            word in content for word in (b"race", b"resource", b"conversation", b"ession", b"uuid", b"type")
        )
        assert collected or len(loaded.tasks) + loaded.faults >= len(filled)


_LINES = [
    "## a", "#", "- x", "- [e0] x", "- [e1] (+1/-2)", "  more", "```", "    ```", "~~~", "1. one", "\r", "\u2028", "",
    "- [e" + "9" * 5000 + "] x", "- [e2] x (+" + "9" * 5000 + "/-1)", "- [e٣] x", "\t- [e7] y", "\x1b[2J",
]  # fmt: skip
MARKDOWN = st.lists(TEXTS.filter(str.isprintable) | st.sampled_from(_LINES), max_size=9).map("\n".join)


@given(files(ENTRIES) | files(shaped(entries=st.lists(ENTRIES, max_size=3))) | MARKDOWN.map(str.encode), st.booleans())
def playbooks(content: bytes, markdown: bool) -> None:
    name = "p.md" if markdown else "p.json"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", playbook.PlaybookWarning)
        context = read(content, name, playbook.load)
    if context is not None:
        json_again = (
            read(playbook.export(context, "json").encode(), "p.json", playbook.load) if len(context) else context
        )
        assert [(e.id, e.section, e.text, e.sources) for e in json_again] == [
            (e.id, e.section, e.text, e.sources) for e in context
        ]
        exported = playbook.export(context, "markdown")
        again = read(exported.encode(), "p.md", playbook.load)
        assert playbook.export(again, "markdown") == exported


@given(
    files(st.lists(ENTRIES, max_size=3) | ENTRIES | shaped(title=TEXTS, content=TEXTS)),
    st.sampled_from(["memories", "pool a"]),
)
def hand_written(content: bytes, section: str) -> None:
    edits = read(content, "m.jsonl", lambda path: memories.read(path, section))
    if edits is not None:
        assert not Delta(tuple(edits)).deleted
        assert all(add.text.strip() for add in edits)


@cache
def forms() -> list[type[BaseModel]]:
    """Every form that a model may be asked to fill in."""
    for module in walk_packages(practicum.methods.__path__, "practicum.methods."):
        import_module(module.name)
    kinds: list[type[BaseModel]] = []
    todo: list[type[BaseModel]] = [Output]
    while todo:
        subclasses = todo.pop().__subclasses__()
        todo += subclasses
        kinds += subclasses
    return kinds


@given(files(st.dictionaries(FIELDS | TEXTS, VALUES, max_size=5)).map(lambda raw: raw.decode(errors="replace")))
def replies(text: str) -> None:
    for form in forms():
        with suppress(ValidationError):
            read_object(form, f"Sure:\n{text}")


@given(
    shaped(agents=VALUES, links=VALUES)
    | shaped(nodes=VALUES, links=VALUES)
    | VALUES.filter(lambda v: isinstance(v, dict))
)
def teams(value: dict[str, Any]) -> None:
    with suppress(PracticumError):
        load_team(value)


PROPERTIES = (tasks, datasets, traces, playbooks, hand_written, replies, teams)
