"""Traces from objects of a store, addresses of the web, and Parquet."""

from __future__ import annotations

import gzip
import io
import json
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fsspec
import pytest
from needs import needs
from refusals import refused
from web import served

from practicum.core.errors import TaskFileError
from practicum.core.types import Recorded, Score, Trace
from practicum.tasks.traces import TraceStream, load_traces
from practicum.tasks.traces.sources import shown

SECRETS = ("password", "sesame")
"""Words that occur only in addresses."""


def chat(id: str, **fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": f"ask {id}"}, {"role": "assistant", "content": f"say {id}"}]
    return {"id": id, "messages": messages, **fields}


def lines(*ids: str, **fields: Any) -> bytes:
    return "".join(json.dumps(chat(id, **fields)) + "\n" for id in ids).encode()


def ids(address: Path | str) -> list[str]:
    return [task.id for task in TraceStream(address)]


def refusal(address: Path | str) -> str:
    with pytest.raises(TaskFileError) as caught:
        load_traces(address)
    assert not any(secret in str(caught.value) for secret in SECRETS)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def memory() -> Iterator[Any]:
    system = fsspec.filesystem("memory")
    yield system
    system.store.clear()
    system.pseudo_dirs[:] = [""]


def test_a_store_is_read_by_name_by_folder_and_by_pattern(memory: Any, tmp_path: Path) -> None:
    objects = {
        "b.jsonl": lines("b"), "in/c.jsonl.gz": gzip.compress(lines("c")), "a.jsonl": lines("a1", "a2"),
        "p.parquet": table(tmp_path / "p", [chat("p1"), chat("p2")]).read_bytes(), "notes.txt": b"no trace",
    }  # fmt: skip
    memory.pipe({f"/bucket/logs/{name}": raw for name, raw in objects.items()})
    assert ids("memory://bucket/logs") == ["a1", "a2", "b", "p1", "p2", "c"] == ids("memory://bucket")
    assert ids("memory://bucket/logs/a.jsonl") == ["a1", "a2"]
    assert ids("memory://bucket/logs/*.jsonl") == ["a1", "a2", "b"]
    memory.pipe("/bucket/run/practicum.sqlite", b"x")
    assert "copy the run to this machine" in str(load_traces("memory://bucket").problems[-1])


def test_an_address_without_an_object_or_of_an_unknown_kind_is_refused(
    memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert refusal("memory://bucket/none").startswith("memory://bucket/none: no such object")
    assert "no such object" in refusal("memory://bucket/*.jsonl")
    assert "Protocol not known: nowhere" in refusal("nowhere://password@x/y")
    assert refusal("gs://user:password@bucket/x") == "gs://bucket/x: reading gs:// needs a package: pip install gcsfs"
    assert refusal("s3://user:password@bucket/x").startswith("s3://bucket/x: ")
    monkeypatch.setitem(sys.modules, "fsspec", None)
    assert "reading from an object store needs a package: pip install " in refusal("s3://bucket/x")


def test_a_link_out_of_a_folder_is_not_followed_by_a_url_either(tmp_path: Path) -> None:
    (tmp_path / "given").mkdir()
    for name in ("secret", "given/a"):
        (tmp_path / f"{name}.jsonl").write_bytes(lines(name[-1]))
    (tmp_path / "given" / "b.jsonl").symlink_to(tmp_path / "secret.jsonl")
    assert ids(f"file://{tmp_path}/given") == ["a"]


def test_addresses_are_shown_without_secrets() -> None:
    assert shown("https://user:password@host:8/a/b.jsonl?sig=sesame#x") == "https://host:8/a/b.jsonl"
    assert shown("zip://a.jsonl::s3://key:password@bucket/b.zip") == "zip://a.jsonl::s3://bucket/b.zip"
    assert shown("plain/path?x") == "plain/path?x"


MANY = [f"t{n}" for n in range(300)]


@pytest.mark.slow
def test_a_failure_of_a_server_is_one_line_without_secrets() -> None:
    cases: list[tuple[dict[str, int], str, str]] = [
        ({"status": 403}, "a", "access is denied"), ({"status": 500}, "a", "cannot be read ("), ({}, "none", "no such"),
        ({"drops": 99}, "a", "nothing was learned from it"),
    ]  # fmt: skip
    for server, name, words in cases:
        with served({"/a.jsonl": lines(*MANY)}, **server) as (url, _):
            assert words in refusal(f"{url}/{name}.jsonl?sig=sesame")


def test_a_read_that_breaks_off_continues_at_the_same_byte() -> None:
    with served({"/a.jsonl": lines(*MANY)}, drops=1) as (url, requests):
        assert ids(f"{url}/a.jsonl?sig=sesame") == MANY
    assert len(requests) > 1


class Breaking(io.BytesIO):
    """A file of a store whose second read fails."""

    def __init__(self, raw: bytes) -> None:
        super().__init__(raw)
        self.size, self.reads = len(raw), 0

    def read(self, size: int | None = -1, /) -> bytes:
        self.reads += 1
        if self.reads > 1:
            raise OSError("connection reset")
        return super().read(size)


WHOLE = lines(*(f"t{n}" for n in range(10)), note="x" * 400_000)


@pytest.mark.parametrize("later", [WHOLE, lines("t0"), None], ids=["unchanged", "replaced", "deleted"])
def test_a_read_that_fails_continues_unless_the_object_changed(
    memory: Any, monkeypatch: pytest.MonkeyPatch, later: bytes | None
) -> None:
    memory.pipe("/bucket/a.jsonl", b"")
    content: list[bytes | None] = [WHOLE]

    def opened(path: str, mode: str, **how: Any) -> Breaking:
        if content[-1] is None:
            raise FileNotFoundError(path)
        return Breaking(content[-1])

    monkeypatch.setattr(memory, "open", opened)
    traces = iter(TraceStream("memory://bucket/a.jsonl"))
    assert next(traces).id == "t0"
    content.append(later)
    with nullcontext() if later == WHOLE else refused("traces.changed"):
        assert [task.id for task in traces] == [f"t{n}" for n in range(1, 10)]


def table(path: Path, rows: list[dict[str, Any]], **how: Any) -> Path:
    pyarrow, parquet = needs("pyarrow", "parquet"), needs("pyarrow.parquet", "parquet")
    parquet.write_table(pyarrow.Table.from_pylist(rows), path, **how)
    return path


def test_rows_of_parquet_are_traces(tmp_path: Path, memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    when = datetime(2026, 11, 24, tzinfo=UTC)
    rows = [chat(f"t{n}", at=when, picture=b"\xff\x00", score=0.5) for n in range(20)]
    path = table(tmp_path / "a.parquet", rows, row_group_size=7)
    traces = load_traces(path, trust="own")
    assert [task.id for task in traces.tasks] == [f"t{n}" for n in range(20)]
    last = traces.tasks[-1]
    assert last.recorded == Recorded(Trace("say t19"), Score(0.5, True))
    assert (last.meta["at"], last.meta["line"]) == ("2026-11-24T00:00:00Z", 20)
    json.dumps(dict(last.meta))
    memory.pipe("/bucket/a.parquet", path.read_bytes())
    for address in ("memory://bucket/a.parquet", tmp_path):
        assert load_traces(address, trust="own").tasks == traces.tasks
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert "Parquet needs a package: pip install 'pyarrow" in refusal(path)
