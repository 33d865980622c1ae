"""Files of records and tasks: every kind is recognized by its content, and an error names the place."""

from __future__ import annotations

import csv
import gzip
import io
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from needs import needs
from refusals import refused

from practicum.core.errors import PracticumWarning
from practicum.core.requirements import pip_install
from practicum.core.types import Task
from practicum.tasks import records
from practicum.tasks.formats import convert
from practicum.tasks.load import load_tasks, require_targets
from practicum.tasks.records import read_records


def records_of(path: Path) -> list[dict[str, Any]]:
    return [record for _, record in read_records(path)]


def fault(path: Path, code: str) -> str:
    with refused(code) as caught:
        load_tasks(path)
    return str(caught.value).replace(str(path), path.name)


@given(st.lists(st.fixed_dictionaries({"input": st.text('ab"\n,;\t\r é', min_size=1), "n": st.just("1")}), min_size=1))
def test_the_cells_of_csv_are_read_unchanged(tmp_path_factory: pytest.TempPathFactory, rows: list[Any]) -> None:
    path, text = tmp_path_factory.getbasetemp() / "cells.csv", io.StringIO()
    writer = csv.DictWriter(text, ["input", "n"])
    writer.writeheader()
    writer.writerows(rows)
    path.write_bytes(text.getvalue().encode())
    assert records_of(path) == rows


PACKED = gzip.compress(b'{"input": "a"}' * 50, mtime=0)


@pytest.mark.parametrize(
    ("content", "code", "start"),
    [
        ('[{"input": "a"}, [2]]', "tasks.malformed", "d record 2: "),
        ('[{"input": "a"}, {"input": 3}]', "tasks.invalid_field", "d record 2: field 'input' "),
        ('[{"input": "a", "id": 1}, {"input": "b", "id": 1}]', "tasks.duplicate_id", "d record 2: id '1' "),
        ('[{"input": "a"},\n {"input": }]', "tasks.malformed", "d line 2: not JSON (expected value at column 12)"),
        ('{\n"input": "a"\n}\n{\n"input" "b"\n}', "tasks.malformed", "d line 5: not JSON"),
        ('{\n"input": NaN\n}', "tasks.malformed", "d line 2: not JSON"),
        ("input,target\na,b\nc,d,e\n", "tasks.malformed", "d line 3: 3 columns"),
        ("input,input\na,b\n", "tasks.malformed", "d line 1: two columns are named 'input'"),
        ('input,target\na,b\n"c,d\n', "tasks.malformed", "d line 3: not CSV"),
        ("input,target\n" + "a" * 200_000 + ",b\n", "tasks.malformed", "d line 2: not CSV"),
        (b"input,target\n\xe9,b\n", "text.not_utf8", "d line 2: not UTF-8 text; convert a file of Windows with: iconv"),
        ('[\n// about\n{"input": "a"}]', "tasks.malformed", "d line 2: not JSON (comments are not allowed"),
        ('[\n{"input": "a"},\n]', "tasks.malformed", "d line 3: not JSON (trailing comma"),
        (PACKED[:-20] + b"x" * 20, "tasks.damaged", "d: damaged gzip"),
        (gzip.compress(PACKED, mtime=0), "text.not_utf8", "d line 1: "),
    ],
)  # fmt: skip
def test_an_unreadable_record_is_named_by_its_place(
    tmp_path: Path, content: str | bytes, code: str, start: str
) -> None:
    path = tmp_path / "d"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    assert fault(path, code).startswith(start)


def test_texts_of_other_programs_are_read(tmp_path: Path) -> None:
    """Excel's `sep=` line, UTF-16 with a mark, and halves of characters, which `json.dumps` writes."""
    path = tmp_path / "d"
    path.write_bytes(b"sep=;\r\ninput;target\r\na,b;c\r\n")
    assert [(task.id, task.input) for task in load_tasks(path)] == [("line-3", "a,b")]
    path.write_bytes("input,n\n\u00f6,1\n".encode("utf-16"))
    assert records_of(path) == [{"input": "\u00f6", "n": "1"}]
    path.write_text(json.dumps({"input": "\ud83d and \U0001f600 and \ude00"}))
    with pytest.warns(PracticumWarning, match="2 unpaired surrogates"):
        assert records_of(path) == [{"input": "\ufffd and \U0001f600 and \ufffd"}]


def tables(folder: Path, columns: dict[str, Any], classes: Sequence[str] = ()) -> list[Path]:
    """One table as parquet, as an arrow file, as a stream, and in a folder as `datasets.save_to_disk` writes it."""
    pa = needs("pyarrow", "parquet")
    from pyarrow import parquet  # type: ignore[attr-defined, unused-ignore]

    table = pa.table(columns)
    if classes:
        features = {"label": {"names": list(classes), "_type": "ClassLabel"}, "text": {"_type": "Value"}}
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    saved = folder / "saved"
    saved.mkdir()
    (saved / "state.json").write_text("{}")
    parquet.write_table(table, folder / "parquet.jsonl")
    with pa.ipc.new_file(folder / "file.csv", table.schema) as out:
        out.write_table(table)
    for number, path in enumerate((folder / "stream", saved / "data-00000-of-00002.arrow", saved / "data-1.arrow")):
        with pa.ipc.new_stream(path, table.schema) as out:
            out.write_table(table if number < 2 else table.slice(0, 0))
    return [folder / "parquet.jsonl", folder / "file.csv", folder / "stream", saved]


def test_class_numbers_are_replaced_by_their_names(tmp_path: Path) -> None:
    for path in tables(tmp_path, {"text": ["a", "b"], "label": [1, 0]}, ["no", "yes"]):
        converted = convert(path)
        assert [task.target for task in converted.tasks] == ["yes", "no"]
        assert (converted.format, converted.choices) == ("classification", ("no", "yes"))
    (tmp_path / "other").mkdir()
    with refused("tasks.missing_field"):
        convert(tables(tmp_path / "other", {"text": ["a", "b"], "label": [1, -1]}, ["no", "yes"])[0])


def test_a_damaged_table_is_refused_and_so_is_one_without_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in tables(tmp_path, {"input": ["a" * 100] * 3000})[:3]:
        raw = path.read_bytes()
        path.write_bytes(raw[: len(raw) // 2])
        assert "damaged or unsupported table (" in fault(path, "tasks.damaged")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert pip_install("parquet") in fault(tmp_path / "parquet.jsonl", "extra.missing")


def test_the_unpacked_size_and_the_number_of_records_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, packed = tables(tmp_path, {"input": ["a" * 100] * 3000})[0], tmp_path / "d"
    packed.write_bytes(gzip.compress(b" " * 200_000))
    monkeypatch.setattr(records, "MOST_BYTES", 150_000)
    for path in (table, packed):
        assert "unpacks to more than" in fault(path, "tasks.too_large")
    monkeypatch.setattr(records, "MOST_RECORDS", 100)
    packed.write_bytes(gzip.compress(b'{"input": "a"}\n' * 101))
    assert fault(packed, "tasks.too_large").startswith("d: more than 100 records")


# ---- tasks


def test_errors_in_the_mapping_of_fields(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_text('{"input": "a", "answer": "b"}')
    with refused("settings.invalid"):
        load_tasks(path, {"inputs": "a"})
    with refused("tasks.missing_field"):
        load_tasks(path, {"target": "anwser"})


texts = st.text(min_size=1).filter(str.strip)
json_values = st.none() | st.booleans() | st.integers(-(2**60), 2**60) | texts | st.lists(texts, max_size=3)
task_records = st.fixed_dictionaries(
    {"id": texts, "input": texts, "target": st.none() | st.text()},
    optional={"meta": st.dictionaries(st.text().filter(lambda key: key != "tags"), json_values, max_size=3)},
)


@given(
    st.lists(task_records, min_size=1, max_size=3, unique_by=lambda record: str(record["id"])),
    st.booleans(),
    st.sampled_from(["\n", "\r\n"]),
)
def test_written_tasks_are_read_unchanged(
    tmp_path_factory: pytest.TempPathFactory, lines: list[dict[str, Any]], ascii_only: bool, end: str
) -> None:
    path = tmp_path_factory.getbasetemp() / "round_trip.jsonl"
    path.write_bytes(end.join(json.dumps(line, ensure_ascii=ascii_only) for line in lines).encode())
    assert load_tasks(path) == [Task(line["id"], line["input"], line["target"], line.get("meta", {})) for line in lines]


def test_targets_are_checked_before_a_run() -> None:
    good = Task("a", "x", "1")
    for scorer, target, choices, code in (
        ("exact", None, None, "tasks.no_target"), ("regex", "a(", None, "tasks.invalid_target"),
        ("numeric", "many", None, "tasks.invalid_target"), ("contains", "  ", None, "tasks.invalid_target"),
        ("choice", "Drft", ["Drift", "1"], "tasks.invalid_target"),
    ):  # fmt: skip
        require_targets([good], scorer, "f.jsonl", choices)
        with refused(code) as caught:
            require_targets([good, Task("b", "y", target)], scorer, "f.jsonl", choices)
        assert str(caught.value).startswith("f.jsonl: ")
        assert "task 'b'" in str(caught.value)
