"""Task files: written tasks are read unchanged, and other bytes are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from practicum.core.errors import TaskFileError
from practicum.core.types import Task
from practicum.tasks.load import load_tasks, require_targets


def test_errors_in_the_mapping_of_fields(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_text('{"input": "a", "answer": "b"}')
    with refused("settings.invalid"):
        load_tasks(path, {"inputs": "a"})
    with refused("tasks.missing_field"):
        load_tasks(path, {"target": "anwser"})
    with refused("tasks.unreadable"):
        load_tasks(tmp_path / ("x" * 300))


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
    ("scorer", "target", "choices", "code"),
    [
        ("exact", None, None, "tasks.no_target"), ("regex", "a(", None, "tasks.invalid_target"),
        ("numeric", "many", None, "tasks.invalid_target"), ("contains", "  ", None, "tasks.invalid_target"),
        ("choice", "Drft", ["Drift", "1"], "tasks.invalid_target"),
    ],
)  # fmt: skip
def test_targets_are_checked_before_a_run(
    scorer: str, target: str | None, choices: list[str] | None, code: str
) -> None:
    good = Task("a", "x", "1")
    require_targets([good], scorer, "f.jsonl", choices)
    with refused(code) as caught:
        require_targets([good, Task("b", "y", target)], scorer, "f.jsonl", choices)
    assert str(caught.value).startswith("f.jsonl: ")
    assert "task 'b'" in str(caught.value)
