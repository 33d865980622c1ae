"""Task files: what is read; each error is one line that names file, line and field."""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from practicum.core.errors import TaskFileError, UsageError
from practicum.core.types import Task
from practicum.tasks.load import MAX_CHOICES, choices_from, load_tasks, parse_fields, require_targets
from practicum.tasks.scoring.rules import named_choices

Write = Callable[[str | bytes], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def to_file(content: str | bytes) -> Path:
        path = tmp_path / "tasks.jsonl"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return to_file


def fault(path: Path, fields: dict[str, str] | None = None) -> str:
    with pytest.raises(TaskFileError) as caught:
        load_tasks(path, fields)
    text = str(caught.value)
    assert "\n" not in text
    return text.replace(str(path), path.name)


def test_ids_default_to_the_line_number_with_blank_lines_counted(write: Write) -> None:
    tasks = load_tasks(write('{"input": "a"}\n\n  \n{"input": "b"}\n{"id": 7, "input": "c"}'))
    assert [task.id for task in tasks] == ["line-1", "line-4", "7"]


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("42", "42"),
        ("2.50", "2.5"),
        ("true", "true"),
        ("false", "false"),
        ("null", None),
        ('"x"', "x"),
        ("1", "1"),
    ],
)
def test_a_target_becomes_text(write: Write, written: str, read: str | None) -> None:
    assert load_tasks(write(f'{{"input": "a", "target": {written}}}'))[0].target == read


def test_fields_rename_and_other_keys_go_to_meta(write: Write) -> None:
    path = write('{"task_id": "T/0", "prompt": "def f():", "test": "check", "input": "no", "meta": {"test": "kept"}}')
    assert load_tasks(path, {"input": "prompt", "id": "task_id"}) == [
        Task("T/0", "def f():", None, {"test": "kept", "input": "no"})
    ]


def test_a_list_of_strings_is_an_input(write: Write) -> None:
    path = write('{"concepts": ["vest", "snow"]}')
    assert load_tasks(path, {"input": "concepts"})[0].input == "vest, snow"


def test_bom_crlf_and_unescaped_line_separators(write: Write) -> None:
    path = write(codecs.BOM_UTF8 + '{"input": "a\u2028b"}\r\n\r\n{"input": "é"}\r\n'.encode())
    assert [task.input for task in load_tasks(path)] == ["a\u2028b", "é"]


def test_not_utf8_names_the_line(write: Write) -> None:
    assert "tasks.jsonl line 2: not UTF-8" in fault(write(b'{"input": "a"}\n{"input": "\xe9"}'))
    assert "tasks.jsonl line 1: not UTF-8" in fault(write('{"input": "a"}'.encode("utf-16")))


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    assert "no such file" in fault(tmp_path / "none.jsonl")
    assert "is a folder" in fault(tmp_path)
    assert "cannot be read" in fault(tmp_path / ("x" * 300))


def test_errors_name_the_file_s_own_field(write: Write) -> None:
    path = write('{"question": 1, "answer": "b"}')
    assert "field 'question' must be a string" in fault(path, {"input": "question"})
    assert "field 'q' is missing" in fault(path, {"input": "q"})


def test_errors_in_the_mapping_of_fields(write: Write) -> None:
    path = write('{"input": "a", "answer": "b"}')
    assert "unknown name 'inputs'; a task has id, input, target, meta" in fault(path, {"inputs": "a"})
    assert "no record has a field 'anwser', which `fields` reads as 'target'" in fault(path, {"target": "anwser"})


def test_long_lists_of_fields_are_shortened(write: Write) -> None:
    text = fault(write(json.dumps({f"k{i}": i for i in range(30)})))
    assert "'k9' and 20 more:" in text


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
texts = st.text(min_size=1).filter(str.strip)
records = st.fixed_dictionaries(
    {"id": texts, "input": texts, "target": st.none() | st.text()},
    optional={"meta": st.dictionaries(st.text().filter(lambda key: key != "tags"), json_values, max_size=3)},
)


@given(
    st.lists(records, min_size=1, max_size=5, unique_by=lambda record: str(record["id"])),
    st.booleans(),
    st.booleans(),
)
def test_written_tasks_are_read_unchanged(
    tmp_path_factory: pytest.TempPathFactory, lines: list[dict[str, Any]], ascii_only: bool, crlf: bool
) -> None:
    path = tmp_path_factory.getbasetemp() / "round_trip.jsonl"
    end = "\r\n" if crlf else "\n"
    path.write_bytes(end.join(json.dumps(line, ensure_ascii=ascii_only) for line in lines).encode())
    assert load_tasks(path) == [Task(line["id"], line["input"], line["target"], line.get("meta", {})) for line in lines]


@given(st.binary() | st.text().map(str.encode) | json_values.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_raise_only_task_file_errors(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.jsonl"
    path.write_bytes(content)
    with pytest.raises(TaskFileError) as caught:
        load_tasks(path)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("scorer", "target", "choices", "text"),
    [
        ("exact", None, None, "task 'b' has no target, which scorer 'exact' needs"),
        ("regex", "a(", None, "target of task 'b' is not a pattern of Python's re"),
        ("numeric", "many", None, "target of task 'b' ('many') holds no number"),
        ("contains", "  ", None, "target of task 'b' is empty"),
        ("choice", "Drft", ["Drift", "1"], "target 'Drft' of task 'b' is not among the choices"),
    ],
)
def test_targets_are_checked_before_a_run(
    scorer: str, target: str | None, choices: list[str] | None, text: str
) -> None:
    good = Task("a", "x", "1")
    require_targets([good], scorer, "f.jsonl", choices)
    with pytest.raises(TaskFileError) as caught:
        require_targets([good, Task("b", "y", target)], scorer, "f.jsonl", choices)
    assert str(caught.value).startswith("f.jsonl: ")
    assert text in str(caught.value)


def test_parse_fields() -> None:
    assert parse_fields("input=context, target = answer") == {"input": "context", "target": "answer"}
    assert parse_fields("input=a=b") == {"input": "a=b"}
    for bad in ("", "input", "input=", "=context", "input=a,", "input=a,input=b"):
        with refused("settings.invalid"):
            parse_fields(bad)


def test_choices_are_the_distinct_targets_sorted() -> None:
    assert choices_from(having("b", "a", None, "b", "a")) == ("a", "b")


def test_hundreds_of_choices_are_choices() -> None:
    names = [f"kind_{n:03}" for n in range(500)]
    assert choices_from(having(*names, *names)) == tuple(names)
    assert named_choices(names, "It is kind_017, not kind_0170.") == ("kind_017",)
    assert named_choices(names, "kind_017 or KIND_400?") == ("kind_017", "kind_400")


def having(*targets: str | None) -> list[Task]:
    return [Task(str(n), "x", target) for n, target in enumerate(targets)]


@pytest.mark.parametrize(
    ("targets", "text"),
    [
        ([None], "have no target; leave out `choices` if answers are open, else list them"),
        (["a", "a"], "have only 'a'"),
        (["a", "b", "c", "c", "c"], "3 different targets in 5 tasks are too many"),
        ([str(n // 2) for n in range(2 * MAX_CHOICES + 2)], "1001 different targets in 2002 tasks are too many"),
        (["x" * 81, "a"] * 2, "is too long for a choice"),
        (["a\nb", "a"] * 2, "is too long for a choice"),
    ],
)
def test_open_answers_are_not_taken_for_choices(targets: list[str | None], text: str) -> None:
    with pytest.raises(UsageError, match=text) as caught:
        choices_from(having(*targets))
    assert "\n" not in str(caught.value)
