"""Task files: what is read; each error is one line that names file, line and field."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from practicum.core.errors import TaskFileError
from practicum.core.types import Task
from practicum.tasks.load import load_tasks, require_targets

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


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    assert "no such file" in fault(tmp_path / "none.jsonl")
    assert "is a folder" in fault(tmp_path)
    assert "cannot be read" in fault(tmp_path / ("x" * 300))


def test_errors_in_the_mapping_of_fields(write: Write) -> None:
    path = write('{"input": "a", "answer": "b"}')
    assert "unknown name 'inputs'; a task has id, input, target, meta" in fault(path, {"inputs": "a"})
    assert "no record has the field 'anwser' that `fields` uses as 'target'" in fault(path, {"target": "anwser"})


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
        ("regex", "a(", None, "target of task 'b' is not a valid pattern for Python's re"),
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
