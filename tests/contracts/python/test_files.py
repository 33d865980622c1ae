"""Files of tasks, traces and playbooks. Unreadable content is refused with its place, or reported."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from python_kit import chats, learned, refused
from python_tasks import lesson, messages

import practicum
from practicum import Add, Context, Delete, Delta, Vote

# ---- tasks

RECORDS = [
    {"id": "a", "input": "2 + 2?", "target": "4", "level": "easy"},
    {"id": "b", "input": "3 + 3?", "target": "6"},
]


RECORD_LINES = "\n".join(map(json.dumps, RECORDS))
KINDS: dict[str, Any] = {
    "JSON lines": RECORD_LINES,
    "JSON objects on several lines": "\n".join(json.dumps(record, indent=2) for record in RECORDS),
    "a JSON array": json.dumps(RECORDS),
    "a list in an object": json.dumps({"version": "1.1", "data": RECORDS}),
    "CSV": "id,input,target,level\na,2 + 2?,4,easy\nb,3 + 3?,6,\n",
    "gzip": gzip.compress(RECORD_LINES.encode()),
    "a byte order mark": "\ufeff" + RECORD_LINES,
    "line ends of Windows": RECORD_LINES.replace("\n", "\r\n"),
}


def written(folder: Path, content: str | bytes, name: str = "tasks") -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_the_format_of_a_file_of_tasks_is_recognized_by_its_content(tmp_path: Path, kind: str) -> None:
    first, second = practicum.load_tasks(written(tmp_path, KINDS[kind]))
    assert (first.id, first.input, first.target, dict(first.meta)) == ("a", "2 + 2?", "4", {"level": "easy"})
    assert (second.id, second.input, second.target) == ("b", "3 + 3?", "6")
    assert first.trust == "own"


def test_fields_may_have_other_names_and_ids_are_places(tmp_path: Path) -> None:
    lines = '{"question": "2 + 2?", "answer": 4}\n\n{"question": ["a", "b"], "answer": true}\n'
    first, second = practicum.load_tasks(
        written(tmp_path, lines), {"input": "question", "target": "answer"}, trust="labelled"
    )
    assert [(task.id, task.input, task.target) for task in (first, second)] == [
        ("line-1", "2 + 2?", "4"), ("line-3", "a, b", "true"),
    ]  # fmt: skip
    assert first.trust == "labelled"
    assert "trust:labelled" in first.sources


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ("", "tasks.empty"),
        ('{"input": "x"}\n{"input": ', "tasks.malformed"),
        ('{"question": "x"}\n', "tasks.missing_field"),
        ('{"input": " "}\n', "tasks.missing_field"),
        ('{"input": 5}\n', "tasks.invalid_field"),
        ('{"id": "a", "input": "x"}\n{"id": "a", "input": "y"}\n', "tasks.duplicate_id"),
        (gzip.compress(b'{"input": "x"}\n' * 50)[:-9], "tasks.damaged"),
        (b'{"input": "caf\xe9"}\n', "text.not_utf8"),
    ],
    ids=["empty", "cut", "no input", "blank input", "a number", "an id twice", "cut gzip", "Latin-1"],
)
def test_a_file_that_is_bad_halfway_is_refused_whole(tmp_path: Path, content: str | bytes, code: str) -> None:
    path = written(tmp_path, content, "tasks.jsonl")
    with refused(code) as raised:
        practicum.load_tasks(path)
    assert "tasks.jsonl" in str(raised.value)
    with refused("tasks.not_found"):
        practicum.load_tasks(tmp_path / "none.jsonl")


# ---- traces

CHAT = [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "It is 4."}]
PARTS = [
    {"role": role, "parts": [{"type": "text", "content": text}]}
    for role, text in (("user", "2 + 2?"), ("assistant", "It is 4."))
]


def attribute(key: str, messages_: Any) -> dict[str, Any]:
    return {"key": key, "value": {"stringValue": json.dumps(messages_)}}


SPAN = {
    "traceId": "4bf92f35", "spanId": "s1", "name": "chat", "startTimeUnixNano": "1", "endTimeUnixNano": "2",
    "attributes": [attribute("gen_ai.input.messages", PARTS[:1]), attribute("gen_ai.output.messages", PARTS[1:])],
}  # fmt: skip
SESSION = {"sessionId": "s", "isSidechain": False, "timestamp": "2026-01-05T10:00:00Z"}

TRACES: dict[str, list[Any]] = {
    "chat": [{"messages": CHAT}],
    "otel": [{"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": {}, "spans": [SPAN]}]}]}],
    "swe-agent": [{
        "trajectory": [{"action": "look\n", "observation": "a sum", "thought": "I look.", "response": "I look."}],
        "history": [{"role": "user", "content": "2 + 2?"}],
        "info": {"submission": "It is 4.", "exit_status": "submitted"},
    }],
    "mini-swe-agent": [{
        "trajectory_format": "mini-swe-agent-1", "messages": CHAT,
        "info": {"submission": "It is 4.", "exit_status": "Submitted"},
    }],
    "atif": [{
        "schema_version": "ATIF-v1.7", "session_id": "s", "agent": {"name": "x", "version": "1"},
        "steps": [
            {"step_id": 1, "source": "user", "message": "2 + 2?"},
            {"step_id": 2, "source": "agent", "message": "It is 4."},
        ],
    }],
    "claude-code": [
        {**SESSION, "type": "user", "uuid": "u1", "parentUuid": None, "message": {"role": "user", "content": "2 + 2?"}},
        {**SESSION, "type": "assistant", "uuid": "u2", "parentUuid": "u1",
         "message": {"role": "assistant", "model": "x", "content": [{"type": "text", "text": "It is 4."}]}},
    ],
}  # fmt: skip


@pytest.mark.parametrize("format", TRACES)
def test_the_format_of_a_trace_is_recognized_and_it_is_a_task_with_an_attempt(tmp_path: Path, format: str) -> None:
    lines = "".join(json.dumps(line) + "\n" for line in TRACES[format])
    traces = practicum.load_traces(written(tmp_path, lines, "log.jsonl"))
    assert dict(traces.formats) == {format: 1}
    assert traces.problems == ()
    (task,) = traces.tasks
    assert (task.input, task.recorded.trace.answer, task.trust) == ("2 + 2?", "It is 4.", "foreign")
    assert task.meta["format"] == format


def test_a_run_is_a_set_of_traces(tmp_path: Path) -> None:
    seen = learned(tmp_path, messages(0, 1), settings={"rounds": 0})
    traces = practicum.load_traces(seen.folder, trust="own")
    assert dict(traces.formats) == {"practicum": 2}
    assert sorted((task.id, task.recorded.trace.answer, task.recorded.score.value) for task in traces.tasks) == [
        ("t0", "unsure", 0.0), ("t1", "unsure", 0.0),
    ]  # fmt: skip


def test_a_folder_of_traces_is_read_and_unreadable_content_is_reported(tmp_path: Path) -> None:
    line = json.dumps({"messages": CHAT}) + "\n"
    (tmp_path / "logs").mkdir()
    written(tmp_path / "logs", line + "{broken\n", "a.jsonl")
    written(tmp_path / "logs", '{"title": "of no format"}\n', "b.jsonl")
    written(tmp_path / "logs", gzip.compress(line.encode()), "c.jsonl.gz")
    traces = practicum.load_traces(tmp_path / "logs")
    assert len({task.id for task in traces.tasks}) == len(traces.tasks) == 2
    assert sorted((Path(problem.path).name, problem.line) for problem in traces.problems) == [
        ("a.jsonl", 2), ("b.jsonl", 1),
    ]  # fmt: skip
    for name, code in (("none", "traces.not_found"), ("logs/b.jsonl", "traces.unreadable")):
        with refused(code):
            practicum.load_traces(tmp_path / name)


def test_a_stream_of_traces_is_learned_from_as_it_is_read(tmp_path: Path) -> None:
    stream = practicum.TraceStream(chats(tmp_path, *range(5)), trust="own")
    seen = learned(tmp_path, stream, settings={"batch": 5}, judged=True)
    assert (stream.count, dict(stream.formats)) == (5, {"chat": 5})
    assert "agent" not in seen.roles
    assert len(seen.steps[0].attempts) == 5


# ---- playbooks

LINE = st.sampled_from([
    "If x, do y.", "1. First", "- item", "  - nested", "[e3] (rules)", "[e4] (+1/-0)", "(+2/-1)", "# heading",
    "## section", "```python", "```", "def f(x):", "    return x", "", "→ 3", "é ☔",
])  # fmt: skip
TEXT = st.lists(LINE, min_size=1, max_size=6).map("\n".join).map(str.strip).filter(bool)
ADD = st.builds(
    Add, st.sampled_from(["rules", "two words", "Ü"]), TEXT, st.sampled_from(["", "key"]),
    st.sampled_from([{}, {"answer": "x", "n": [1, {"deep": None}]}]), st.integers(0, 3), st.integers(0, 3),
    sources=st.sampled_from([("seed",), ("task:1", "attempt:p")]),
)  # fmt: skip


def grown(adds: list[Add]) -> Context:
    context = Context().apply(Delta(tuple(adds))).context
    return context.apply(Delta((Vote("e0", uses=2),))).context


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("playbooks")


@given(adds=st.lists(ADD, min_size=1, max_size=4))
def test_a_playbook_as_json_loses_nothing(place: Path, adds: list[Add]) -> None:
    def facts(context: Context) -> list[Any]:
        return [
            (e.id, e.section, e.text, e.key, dict(e.data), e.helpful, e.harmful, e.uses, e.sources) for e in context
        ]

    context = grown(adds)
    loaded = practicum.load(written(place, practicum.export(context, "json"), "p.json"))
    assert facts(loaded) == facts(context)
    assert loaded.version == 0


@given(texts=st.lists(st.tuples(st.sampled_from(["rules", "two words"]), TEXT), min_size=1, max_size=4))
def test_a_playbook_as_markdown_keeps_ids_sections_texts_and_votes(place: Path, texts: list[tuple[str, str]]) -> None:
    def facts(context: Context) -> list[Any]:
        return sorted((e.id, e.section, e.text, e.helpful, e.harmful) for e in context)

    context = Context().apply(Delta(tuple(Add(section, text, helpful=1) for section, text in texts))).context
    loaded = practicum.load(written(place, practicum.export(context, "markdown"), "p.md"))
    assert facts(loaded) == facts(context)
    assert practicum.export(loaded, "markdown") == practicum.export(context, "markdown")


def test_an_export_as_agents_md_is_loaded_again_and_only_json_has_hidden_entries(tmp_path: Path) -> None:
    text = "First line\n## not a section\n- not an entry\n# no title"
    edits = (Add("rules", text), Add("checks", "Look."), Add(".state", "A secret of the learner."))
    context = Context().apply(Delta(edits)).context
    exports = {form: practicum.export(context, form) for form in ("json", "markdown", "agents-md")}  # type: ignore[arg-type]
    assert {form: "A secret" in export for form, export in exports.items()} == {
        "json": True, "markdown": False, "agents-md": False,
    }  # fmt: skip
    for form in ("markdown", "agents-md"):
        # The text of an entry is never a heading or an entry of an export.
        lines = exports[form].splitlines()
        assert [line for line in lines if line.startswith("## ")] == ["## rules", "## checks"]
        assert sum(line.startswith("- ") for line in lines) == 2
        loaded = practicum.load(written(tmp_path, exports[form], f"{form}.md"))
        assert [(entry.section, entry.text) for entry in loaded] == [("rules", text), ("checks", "Look.")]
    with refused("settings.invalid"):
        practicum.export(context, "yaml")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        (
            "## rules\n\n- Look.\n- Wait.\n\n## checks\n\n1. Ask.\n",
            [("rules", "Look."), ("rules", "Wait."), ("checks", "Ask.")],
        ),
        ("### rules\n- Look\n  twice.\n", [("rules", "Look\ntwice.")]),
        ("- Look.\n", [("general", "Look.")]),
        ("## code\n\n```python\nx = 1\n```\n", [("code", "```python\nx = 1\n```")]),
        ("# Playbook\n\n## rules\n\n- [e7] Look. (+3/-1)\n", [("rules", "Look.")]),
    ],
    ids=["sections", "lines of an item", "no section", "code", "a title above"],
)
def test_a_playbook_of_another_author_is_read(tmp_path: Path, text: str, entries: list[tuple[str, str]]) -> None:
    context = practicum.load(written(tmp_path, text, "book.md"))
    assert [(entry.section, entry.text) for entry in context] == entries
    assert {entry.sources for entry in context} == {("seed",)}


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ("no list here\n", "playbook.empty"),
        ('{"entries": []}', "playbook.empty"),
        ('{"entries": [{"section": "rules"}]}', "playbook.malformed"),
        ('{"entries": [{"id": "e1", "text": "a"}, {"id": "e1", "text": "b"}]}', "playbook.duplicate_id"),
        ('{"entries": ', "playbook.malformed"),
    ],
)
def test_a_playbook_that_cannot_be_read_is_refused(tmp_path: Path, content: str, code: str) -> None:
    with refused(code):
        practicum.load(written(tmp_path, content, "book"))


def test_a_context_is_loaded_from_a_run_a_version_or_a_file_and_starts_another_run(tmp_path: Path) -> None:
    seen = learned(tmp_path, messages(0, 1))
    path = written(tmp_path, seen.exported, "p.json")
    assert practicum.export(practicum.load_context(seen.folder), "json") == seen.exported
    assert [entry.text for entry in practicum.load_context(seen.folder, 1)] == seen.texts[:1]
    assert [entry.text for entry in practicum.load_context(path)] == seen.texts
    with refused("playbook.not_found"):
        practicum.load_context(tmp_path / "nothing")
    # The entries name their origin in the other run.
    second = learned(tmp_path / "second", messages(2), seed_context=practicum.load_context(seen.folder, 1))
    assert second.texts == [*seen.texts[:1], lesson(2)]
    old, new = second.result.context
    assert any(source.startswith("task:t") for source in old.sources)
    assert (old.born, new.born) == (0, 1)
    assert any(source.startswith("attempt:seed ") for source in old.sources)


def test_deleting_leaves_a_hole(tmp_path: Path) -> None:
    context = grown([Add("rules", "a"), Add("rules", "b")]).apply(Delta((Delete("e0"),))).context
    loaded = practicum.load(written(tmp_path, practicum.export(context, "json"), "p.json"))
    assert [entry.id for entry in loaded] == ["e1"]
