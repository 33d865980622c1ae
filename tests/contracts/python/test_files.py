"""Files of tasks, traces and playbooks in a program. tests/contracts/cli has every format and every invalid file."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from python_kit import chats, learned, refused, resumed
from python_roles import model
from python_tasks import lesson, messages, number

import practicum
from practicum import Add, Context, Delete, Delta, Vote


def written(folder: Path, content: str | bytes, name: str = "tasks") -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


# ---- tasks


def test_tasks_are_read_from_a_file_or_it_is_refused_whole(tmp_path: Path) -> None:
    """Fields may have other names; a task without an id is named by its line, and other fields are its `meta`."""
    lines = '{"question": "2 + 2?", "answer": 4, "level": "easy", "meta": {"by": "me"}}\n\n'
    lines += '{"question": ["a", "b"], "answer": true}\n'
    fields, path = {"input": "question", "target": "answer"}, written(tmp_path, gzip.compress(lines.encode()))
    first, second = practicum.load_tasks(path, fields, trust="labelled")
    assert (first.id, first.input, first.target, dict(first.meta)) == (
        "line-1", "2 + 2?", "4", {"level": "easy", "by": "me"},
    )  # fmt: skip
    assert (second.id, second.input, second.target) == ("line-3", "a, b", "true")
    assert (first.trust, "trust:labelled" in first.sources) == ("labelled", True)
    assert practicum.load_tasks(path, fields)[0].trust == "own"
    for content, code in (
        (lines + '{"question": ', "tasks.malformed"), (lines + '{"input": "x"}', "tasks.missing_field"),
        (gzip.compress(lines.encode() * 50)[:-9], "tasks.damaged"), ("", "tasks.empty"),
    ):  # fmt: skip
        with refused(code) as raised:
            practicum.load_tasks(written(tmp_path, content, "bad.jsonl"), fields)
        assert "bad.jsonl" in str(raised.value)
    with refused("tasks.not_found"):
        practicum.load_tasks(tmp_path / "none.jsonl")


# ---- traces


def test_traces_are_tasks_with_attempts_and_unreadable_content_is_reported(tmp_path: Path) -> None:
    chat = [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "It is 4."}]
    line = json.dumps({"messages": chat}) + "\n"
    (tmp_path / "logs").mkdir()
    written(tmp_path / "logs", line + "{broken\n", "a.jsonl")
    written(tmp_path / "logs", '{"title": "of no format"}\n', "b.jsonl")
    written(tmp_path / "logs", gzip.compress(line.encode()), "c.jsonl.gz")
    traces = practicum.load_traces(tmp_path / "logs")
    assert dict(traces.formats) == {"chat": 2}
    (values,) = {(t.input, t.recorded.trace.answer, t.trust, t.meta["format"]) for t in traces.tasks}
    assert values == ("2 + 2?", "It is 4.", "foreign", "chat")
    assert len({task.id for task in traces.tasks}) == len(traces.tasks) == 2
    problems = sorted((Path(problem.path).name, problem.line) for problem in traces.problems)
    assert problems == [("a.jsonl", 2), ("b.jsonl", 1)]
    for name, code in (("none", "traces.not_found"), ("logs/b.jsonl", "traces.unreadable")):
        with refused(code):
            practicum.load_traces(tmp_path / name)


def test_a_stream_of_traces_is_learned_from_as_it_is_read(tmp_path: Path) -> None:
    stream = practicum.TraceStream(chats(tmp_path, *range(5)), trust="own")
    seen = learned(tmp_path, stream, settings={"batch": 5}, judged=True)
    assert (stream.count, dict(stream.formats)) == (5, {"chat": 5})
    assert "agent" not in seen.roles
    assert len(seen.steps[0].attempts) == 5
    # With tasks for validation the agent attempts those only.
    validated = learned(tmp_path / "val", stream, judged=True, val=messages(80))
    assert {number(call) for call in validated.calls("agent")} == {80}


TURNS = (
    "Draw the chart of 2.", "Here it is.", "Its colours are those of the old office.", "I changed them.",
    "Draw the chart of 3 in a big format, for the wall.", "Here it is.", "That one I like. Draw the map of the town.",
    "Drawn.",
)  # fmt: skip
READING = [(2, False, "wrong"), (3, True, "unknown"), (4, True, "right")]


def session(folder: Path, *turns: str, name: str = "s") -> practicum.TraceStream:
    """A session of a coding agent: the messages of the user and of the agent in turn."""
    lines = [
        {"type": ("user", "assistant")[n % 2], "sessionId": name, "uuid": f"{n}", "message": {"content": text}}
        for n, text in enumerate(turns)
    ]
    return practicum.TraceStream(written(folder, "\n".join(map(json.dumps, lines)), "session.jsonl"), trust="own")


def reading(call: Any) -> dict[str, Any] | Exception:
    """A judge that reads the session in `TURNS`, and finds each answer wrong."""
    if "# Session" not in call.text:
        return {"reason": "it is not done", "right": False}
    return {"messages": [{"message": n, "begins": begins, "work": work} for n, begins, work in READING]}


def outcomes(seen: Any) -> dict[str, tuple[bool | None, str]]:
    attempts = [attempt for step in seen.steps for attempt in step.attempts]
    return {one.task.input: (one.feedback.success, one.feedback.text) for one in attempts}


@pytest.mark.parametrize("as_list", [False, True])
def test_a_judge_joins_the_requests_of_a_session_and_reads_their_outcomes(tmp_path: Path, as_list: bool) -> None:
    stream = session(tmp_path, *TURNS)
    tasks = [*stream] if as_list else stream
    seen = learned(tmp_path, tasks, model(judge=reading), from_traces=True, judged=True)
    # An outcome that no message shows is decided by a verdict.
    expected = {TURNS[0]: (False, TURNS[2]), TURNS[4]: (True, TURNS[6]), TURNS[6]: (False, "it is not done")}
    feedback = outcomes(seen)
    assert feedback.keys() == expected.keys()
    for task, (success, reason) in expected.items():
        assert (feedback[task][0], reason in feedback[task][1]) == (success, True)
    assert seen.roles["judge"] == 2
    (joined,) = [one for step in seen.steps for one in step.attempts if one.task.input == TURNS[0]]
    assert [step.text for step in joined.trace.steps] == [TURNS[1], TURNS[2]]
    assert joined.trace.answer == TURNS[3]


def test_a_session_is_read_once_whatever_ends_the_run(tmp_path: Path) -> None:
    played = model(judge=reading)
    stream = session(tmp_path, *TURNS)
    stopped = learned(tmp_path, stream, played, judged=True, settings={"batch": 1}, stop_after=1)
    assert stopped.result.stopped is not None
    whole = learned(tmp_path / "whole", stream, model(judge=reading), judged=True, settings={"batch": 1})
    again = resumed(stopped.folder, played)
    assert sum("# Session" in call.text for call in played.calls) == 1
    assert again.exported == whole.exported


def test_a_judge_reads_sessions_for_a_quarter_of_the_limits_at_most(tmp_path: Path) -> None:
    def read_calls(max_calls: int | None) -> int:
        tasks = [task for n in range(30) for task in session(tmp_path, *TURNS, name=f"s{n}")]
        folder = tmp_path / f"{max_calls}"
        seen = learned(folder, tasks, model(judge=reading), from_traces=True, judged=True, max_calls=max_calls)
        assert seen.steps
        return sum("# Session" in call.text for call in seen.model.calls)

    assert read_calls(None) == 30
    assert read_calls(400) == 30
    assert 1 < read_calls(40) <= 10
    assert read_calls(5) == 1


@pytest.mark.parametrize(
    "answer", [practicum.ProviderError("provider.failed", "busy"), {"messages": []}], ids=["no answer", "a part"]
)
def test_without_a_complete_answer_of_the_judge_the_rules_split_a_session(tmp_path: Path, answer: Any) -> None:
    def lost(call: Any) -> Any:
        return answer if "# Session" in call.text else reading(call)

    seen = learned(tmp_path, session(tmp_path, *TURNS), model(judge=lost), judged=True)
    assert outcomes(seen).keys() == {*TURNS[::2]}
    assert seen.result.errors["unread_sessions"] == 1
    # The verdicts are about the four requests, and three of them show the next message.
    verdicts = [call.text for call in seen.calls("judge") if "# Session" not in call.text]
    assert sum("# The user's next message" in text for text in verdicts) == 3
    small = learned(tmp_path / "small", session(tmp_path, *TURNS), model(judge=reading), judged=True, profile="small")
    assert outcomes(small).keys() == {*TURNS[::2]}


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
    """A context with these entries, in which the first was used and the second was deleted."""
    context = Context().apply(Delta(tuple(adds))).context
    return context.apply(Delta((Vote("e0", uses=2), Delete("e1")))).context


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


def test_exports_are_loaded_again_and_only_json_has_hidden_entries(tmp_path: Path) -> None:
    text = "First line\n## not a section\n- not an entry\n# no title"
    # The last words of the second text look like the counts of an entry.
    edits = (Add("rules", text), Add("checks", "Write (+2/-1)"), Add(".state", "A secret of the learner."))
    context = Context().apply(Delta(edits)).context
    assert "A secret" in practicum.export(context, "json")
    for form in ("markdown", "agents-md"):
        exported = practicum.export(context, form)  # type: ignore[arg-type]
        assert "A secret" not in exported
        loaded = practicum.load(written(tmp_path, exported, f"{form}.md"))
        assert [(entry.section, entry.text) for entry in loaded] == [("rules", text), ("checks", "Write (+2/-1)")]
    with refused("settings.invalid"):
        practicum.export(context, "yaml")  # type: ignore[arg-type]
    with refused("playbook.empty"):
        practicum.load(written(tmp_path, "no list here\n", "book"))


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
