"""Files as they are published: every kind is read from its content; each error is one line that says where."""

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

from practicum.core.errors import TaskFileError
from practicum.core.requirements import pip_install
from practicum.tasks import records
from practicum.tasks.formats import convert
from practicum.tasks.load import load_tasks
from practicum.tasks.records import read_records


def written(rows: Sequence[dict[str, Any]], delimiter: str = ",") -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), delimiter=delimiter)
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def content(text: str | bytes, packed: bool = False) -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    return gzip.compress(raw) if packed else raw


def made(path: Path) -> list[dict[str, Any]]:
    return [record for _, record in read_records(path)]


def fault(path: Path) -> str:
    with pytest.raises(TaskFileError) as caught:
        load_tasks(path)
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value).replace(str(path), path.name)


@given(st.lists(st.fixed_dictionaries({"input": st.text('ab"\n,;\t\r é', min_size=1), "n": st.just("1")}), min_size=1))
def test_what_csv_holds_is_read_unchanged(tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, str]]) -> None:
    path = tmp_path_factory.getbasetemp() / "cells.csv"
    path.write_bytes(written(rows).encode())
    assert made(path) == rows


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "d: the file holds no tasks"),
        ("a,b\n", "d: the file holds no tasks"),
        ("[1]", "d record 1: expected a JSON object, not a number"),
        ('[{"input": "a"}, [2]]', "d record 2: expected a JSON object, not a list with a number"),
        ('[{"input": "a"}, {"input": 3}]', "d record 2: field 'input' must be a string"),
        ('[{"input": "a", "id": 1}, {"input": "b", "id": 1}]', "d record 2: id '1' is already used in record 1"),
        ('[{"input": "a"},\n {"input": }]', "d line 2: not JSON (expected value at column 12)"),
        ('{\n"input": "a"\n}\n{\n"input" "b"\n}', "d line 5: not JSON (expected `:` at column 9)"),
        ('{\n"input": "a"\n},\n{\n"input": "b"\n}', "d line 3: not JSON (expected value at column 1)"),
        ('{\n"input": NaN\n}', "d line 2: not JSON"),
        ('{"train": [{"input": "a"}], "test": [{"input": "b"}]}', "d: several fields hold records ('train', 'test')"),
        ('{"data": []}', "d line 1: field 'input' is missing; the record has 'data'"),
        ("question,answer\n1,2\n", "d line 2: field 'input' is missing; the record has 'question', 'answer'"),
        ("input,target\na,b\nc,d,e\n", "d line 3: 3 columns, expected 2 ('input', 'target')"),
        ("input,input\na,b\n", "d line 1: two columns are named 'input'"),
        ('input,target\na,b\n"c,d\n', "d line 3: not CSV (unexpected end of data)"),
        ("input,target\n" + "a" * 200_000 + ",b\n", "d line 2: not CSV (field larger than field limit"),
        ('{"input": "a"\n{"input": "b"}\n', "d line 1: not JSON (EOF while parsing an object at column 13)"),
        ('{"input": "a"\n', "d line 1: not JSON (EOF while parsing an object at column 13)"),
        ("one word", "d line 1: not JSON (expected value at column 1); supported are JSON lines"),
        (b"input,target\n\xe9,b\n", "d line 2: not UTF-8 text"),
        ("input,target\na,b\n".encode("utf-16"), "d line 1: not UTF-8 text"),
        (gzip.compress(b'{"input": "a"}', mtime=0)[:-5], "d: damaged gzip file (Compressed file ended before"),
        (gzip.compress(b'{"input": "a"}' * 50, mtime=0)[:-20] + b"x" * 20, "d: damaged gzip file ("),
        (b"\x1f\x8b", "d: damaged gzip file ("),
        (gzip.compress(gzip.compress(b"{}", mtime=0), mtime=0), "d line 1: not UTF-8 text"),
        (b"PK\x03\x04rest", "d: zip files are not supported; unpack it"),
    ],
)
def test_what_cannot_be_read_is_said_in_one_line(tmp_path: Path, text: str | bytes, said: str) -> None:
    path = tmp_path / "d"
    path.write_bytes(content(text))
    assert fault(path).startswith(said)


def test_what_a_small_file_unpacks_to_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "MOST_BYTES", 10_000)
    monkeypatch.setattr(records, "MOST_RECORDS", 100)
    path = tmp_path / "d"
    path.write_bytes(gzip.compress(b" " * 20_000))
    assert "unpacks to more than" in fault(path)
    path.write_bytes(gzip.compress(b'{"input": "a"}\n' * 101))
    assert fault(path).startswith("d: more than 100 records")


def test_the_package_that_tables_need_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    path = tmp_path / "d.jsonl"
    path.write_bytes(b"PAR1")
    assert fault(path) == f"d.jsonl: reading parquet and arrow needs a package: {pip_install('parquet')}"


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


def test_numbers_of_classes_have_their_names(tmp_path: Path) -> None:
    for path in tables(tmp_path, {"text": ["a", "b"], "label": [1, 0]}, ["no", "yes"]):
        found = convert(path)
        assert [task.target for task in found.tasks] == ["yes", "no"]
        assert (found.format, found.choices) == ("classification", ("no", "yes"))
    (tmp_path / "other").mkdir()
    for path in tables(tmp_path / "other", {"text": ["a", "b"], "label": [1, -1]}, ["no", "yes"]):
        with refused("tasks.missing_field"):
            convert(path)


def test_a_damaged_table_is_said_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = tables(tmp_path, {"input": ["a" * 100] * 3000})[:3]
    for path in paths:
        raw = path.read_bytes()
        path.write_bytes(raw[: len(raw) // 2])
        assert "damaged or unsupported table (" in fault(path)
        path.write_bytes(raw)
    monkeypatch.setattr(records, "MOST_BYTES", 150_000)
    for path in paths[:1]:
        assert "unpacks to more than" in fault(path)
