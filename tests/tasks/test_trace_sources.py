"""Traces that lie elsewhere than in plain files: objects of a store, addresses of the web, Parquet, gzip; and that
reading takes no more memory for more of them."""

from __future__ import annotations

import gzip
import json
import sys
import tracemalloc
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import fsspec
import pytest
from needs import needs
from web import served

from practicum.core.errors import TaskFileError
from practicum.tasks.traces import TraceStream, load_traces
from practicum.tasks.traces.sources import shown
from practicum.tasks.traces.trace import MOST_PROBLEMS

SECRETS = ("password", "sesame")
"""Stand in addresses, and nowhere else."""


def chat(id: str, **fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": f"ask {id}"}, {"role": "assistant", "content": f"say {id}"}]
    return {"id": id, "messages": messages, **fields}


def lines(*ids: str) -> bytes:
    return "".join(json.dumps(chat(id)) + "\n" for id in ids).encode()


def ids(address: Path | str) -> list[str]:
    return [task.id for task in TraceStream(address)]


def refusal(address: Path | str) -> str:
    with pytest.raises(TaskFileError) as caught:
        load_traces(address)
    assert not any(secret in str(caught.value) for secret in SECRETS)
    return str(caught.value)


@pytest.fixture
def memory() -> Iterator[Any]:
    system = fsspec.filesystem("memory")
    yield system
    system.store.clear()
    system.pseudo_dirs[:] = [""]


def test_objects_of_a_store_are_read_by_name_by_folder_and_by_pattern(memory: Any) -> None:
    memory.pipe({
        "/bucket/logs/b.jsonl": lines("b"), "/bucket/logs/in/c.jsonl.gz": gzip.compress(lines("c")),
        "/bucket/logs/a.jsonl": lines("a1", "a2"), "/bucket/logs/notes.txt": b"no trace",
        "/bucket/other.jsonl": lines("other"),
    })  # fmt: skip
    assert ids("memory://bucket/logs") == ["a1", "a2", "b", "c"]
    assert ids("memory://bucket/logs/a.jsonl") == ["a1", "a2"]
    assert ids("memory://bucket/logs/*.jsonl") == ["a1", "a2", "b"]
    assert [task.meta["file"] for task in TraceStream("memory://bucket/logs")][-1] == "in/c.jsonl.gz"


def test_what_is_read_of_a_store_is_what_is_read_of_a_folder(memory: Any, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    for name, ids_ in (("a.jsonl", ("a", "b")), ("c.jsonl", ("b", "c"))):
        (tmp_path / "logs" / name).write_bytes(lines(*ids_))
        memory.pipe(f"/bucket/logs/{name}", lines(*ids_))
    here = load_traces(tmp_path / "logs")
    assert load_traces("memory://bucket/logs") == here == load_traces(f"file://{tmp_path}/logs")
    assert [task.id for task in here.tasks] == ["a", "b", "b#2", "c"]


def test_the_result_of_a_trial_is_found_beside_its_trajectory_in_a_store(memory: Any) -> None:
    steps = [{"source": "user", "message": "do it"}, {"source": "agent", "message": "done"}]
    trajectory = {"schema_version": "ATIF-v1.0", "session_id": "s", "agent": {"name": "a"}, "steps": steps}
    memory.pipe("/jobs/t1/agent/trajectory.json", json.dumps(trajectory).encode())
    memory.pipe("/jobs/t1/result.json", json.dumps({"verifier_result": {"rewards": {"reward": 1.0}}}).encode())
    (task,) = load_traces("memory://jobs", trust="own").tasks
    assert task.recorded is not None
    assert task.recorded.score is not None
    assert task.recorded.score.correct


def test_a_run_in_a_store_is_named_as_something_to_copy(memory: Any) -> None:
    memory.pipe({"/bucket/run/run.sqlite": b"x", "/bucket/a.jsonl": lines("a")})
    assert "copy it there" in str(load_traces("memory://bucket").problems[0])


def test_an_address_of_a_store_with_nothing_or_of_an_unknown_kind(memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert refusal("memory://bucket/none").startswith("memory://bucket/none: there is no such object")
    assert "there is no such object" in refusal("memory://bucket/*.jsonl")
    assert "Protocol not known: nowhere" in refusal("nowhere://password@x/y")
    assert refusal("s3://user:password@bucket/x") == "s3://bucket/x: s3:// needs a package: pip install s3fs"
    monkeypatch.setitem(sys.modules, "fsspec", None)
    assert "reading from a store needs a package: pip install " in refusal("s3://bucket/x")


def test_a_link_that_leads_out_of_a_folder_is_not_followed_by_its_url_either(tmp_path: Path) -> None:
    (tmp_path / "secret.jsonl").write_bytes(lines("secret"))
    (tmp_path / "given").mkdir()
    (tmp_path / "given" / "a.jsonl").write_bytes(lines("a"))
    (tmp_path / "given" / "b.jsonl").symlink_to(tmp_path / "secret.jsonl")
    assert ids(f"file://{tmp_path}/given") == ["a"]


def test_addresses_are_shown_without_what_is_secret() -> None:
    assert shown("https://user:password@host:8/a/b.jsonl?sig=sesame#x") == "https://host:8/a/b.jsonl"
    assert shown("zip://a.jsonl::s3://key:password@bucket/b.zip") == "zip://a.jsonl::s3://bucket/b.zip"
    assert shown("plain/path?x") == "plain/path?x"


MANY = lines(*(f"t{n}" for n in range(3000)))


@pytest.mark.parametrize("ranges", [True, False])
def test_an_address_of_the_web_is_read_in_one_pass(ranges: bool) -> None:
    with served({"/a/logs.jsonl": MANY}, ranges=ranges) as (url, asked):
        traces = load_traces(f"{url}/a/logs.jsonl?sig=sesame")
    assert len(traces.tasks) == 3000
    assert asked == ["/a/logs.jsonl?sig=sesame"]
    assert not any(secret in str(traces) for secret in SECRETS)
    assert traces.tasks[0].meta["file"] == "logs.jsonl"


def test_a_connection_that_breaks_off_is_gone_on_with_once() -> None:
    with served({"/logs.jsonl": MANY}, drops=1) as (url, asked):
        assert ids(f"{url}/logs.jsonl") == [f"t{n}" for n in range(3000)]
        assert len(asked) == 2


def test_a_store_that_breaks_off_again_is_an_error_and_nothing_is_learned() -> None:
    with served({"/logs.jsonl": MANY}, drops=99) as (url, _):
        said = refusal(f"{url}/logs.jsonl?sig=sesame")
    assert "/logs.jsonl: cannot be read" in said
    assert "nothing was learned from it" in said


@pytest.mark.parametrize(
    ("status", "path", "said"),
    [(403, "/a.jsonl", "access is denied"), (200, "/none.jsonl", "no such"), (500, "/a.jsonl", "cannot be read (")],
)
def test_what_a_server_refuses_is_said_in_a_line_without_secrets(status: int, path: str, said: str) -> None:
    with served({"/a.jsonl": MANY}, status=status) as (url, _):
        assert said in refusal(f"{url}{path}?sig=sesame")


def test_a_server_that_is_not_there() -> None:
    with served({}) as (url, _):
        pass
    assert "cannot be read (" in refusal(f"{url}/a.jsonl?sig=sesame")


def table(path: Path, rows: list[dict[str, Any]], **how: Any) -> Path:
    pyarrow, parquet = needs("pyarrow", "parquet"), needs("pyarrow.parquet", "parquet")
    parquet.write_table(pyarrow.Table.from_pylist(rows), path, **how)
    return path


def test_rows_of_parquet_are_traces(tmp_path: Path, memory: Any) -> None:
    when = datetime(2026, 11, 24, tzinfo=UTC)
    rows = [chat(f"t{n}", at=when, picture=b"\xff\x00", score=0.5) for n in range(200)]
    path = table(tmp_path / "a.parquet", rows, row_group_size=70)
    traces = load_traces(path, trust="own")
    assert [task.id for task in traces.tasks] == [f"t{n}" for n in range(200)]
    last = traces.tasks[-1]
    assert last.recorded is not None
    assert last.recorded.trace.answer == "say t199"
    assert last.recorded.score is not None
    assert last.recorded.score.value == 0.5
    assert last.meta["at"] == "2026-11-24T00:00:00Z"
    json.dumps(dict(last.meta))
    assert last.meta["line"] == 200
    memory.pipe("/bucket/a.parquet", path.read_bytes())
    assert load_traces("memory://bucket/a.parquet", trust="own").tasks == traces.tasks
    assert load_traces(tmp_path, trust="own").tasks == traces.tasks


def test_a_group_of_rows_is_not_read_as_a_whole(tmp_path: Path) -> None:
    noise = Random(0)
    rows = [chat(f"t{n}", note=noise.randbytes(4000).hex()) for n in range(3000)]
    path = table(tmp_path / "a.parquet", rows, row_group_size=3000, use_dictionary=False)
    next(iter(TraceStream(path)))  # all is imported
    tracemalloc.start()
    try:
        assert len([task.id for task in TraceStream(path)]) == 3000
        assert tracemalloc.get_traced_memory()[1] < path.stat().st_size / 2
    finally:
        tracemalloc.stop()


def test_parquet_over_the_web_needs_ranges_and_has_them(tmp_path: Path) -> None:
    path = table(tmp_path / "a.parquet", [chat(f"t{n}") for n in range(10)])
    with served({"/a.parquet": path.read_bytes()}) as (url, _):
        assert len(ids(f"{url}/a.parquet")) == 10


def test_messages_that_a_table_holds_as_text_are_read(tmp_path: Path) -> None:
    rows = [{"id": "t", "messages": json.dumps(chat("t")["messages"])}]
    assert ids(table(tmp_path / "a.parquet", rows)) == ["t"]


def test_a_table_of_unknown_shape_names_its_columns(tmp_path: Path) -> None:
    said = refusal(table(tmp_path / "a.parquet", [{"title": "x", "body": "y"}] * 100))
    assert "the format is unknown (it has 'title', 'body'); 100 times" in said


def test_a_table_that_was_cut_off_is_a_problem_and_the_others_are_read(tmp_path: Path) -> None:
    raw = table(tmp_path / "a.parquet", [chat(f"t{n}") for n in range(100)]).read_bytes()
    (tmp_path / "a.parquet").write_bytes(raw[: len(raw) // 2])
    assert "a.parquet: damaged after row 0" in refusal(tmp_path / "a.parquet")
    (tmp_path / "b.jsonl").write_bytes(lines("b"))
    assert ids(tmp_path) == ["b"]


def test_without_pyarrow_a_table_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = table(tmp_path / "a.parquet", [chat("t")])
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert "Parquet needs a package: pip install 'pyarrow" in refusal(path)


def test_gzip_is_read_and_its_damage_is_a_problem(tmp_path: Path) -> None:
    packed = gzip.compress(lines(*(f"t{n}" for n in range(20_000))))
    (tmp_path / "a.jsonl.gz").write_bytes(packed)
    assert len(ids(tmp_path)) == 20_000
    (tmp_path / "a.jsonl.gz").write_bytes(packed[: len(packed) // 2])
    traces = load_traces(tmp_path)
    assert 0 < len(traces.tasks) < 20_000
    assert "cannot be read" in str(traces.problems[0])


def test_zstandard_is_named_as_something_to_unpack(tmp_path: Path, memory: Any) -> None:
    packed = b"\x28\xb5\x2f\xfd\x04\x00\x19\x00\x00x\ny"
    (tmp_path / "a.jsonl.zst").write_bytes(packed)
    memory.pipe("/bucket/a.jsonl.zst", packed)
    assert "a.jsonl.zst: Zstandard is not read: unpack the file (zstd -d)" in refusal(tmp_path)
    assert "a.jsonl.zst: Zstandard is not read" in refusal("memory://bucket")


def test_problems_are_counted_and_the_first_are_kept(tmp_path: Path) -> None:
    for n in range(MOST_PROBLEMS + 50):
        (tmp_path / f"x{n:04}.jsonl").write_text('{"none": 1}\n{"of": 2}\n')
    (tmp_path / "a.jsonl").write_bytes(lines("a"))
    stream = TraceStream(tmp_path)
    assert [task.id for task in stream] == ["a"]
    assert len(stream.problems) == MOST_PROBLEMS
    assert stream.summary.faults == 2 * (MOST_PROBLEMS + 50)


def test_a_stream_says_at_its_end_what_it_read_and_can_be_read_again(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(lines("a", "b") + b"broken\n")
    told: list[Any] = []
    stream = TraceStream(tmp_path, at_end=told.append)
    assert [*stream] == [*stream]
    assert told[0] == told[1] == stream.summary
    assert (told[0].formats, told[0].faults, told[0].tasks) == ({"chat": 2}, 1, ())


def test_the_memory_that_reading_takes_does_not_grow_with_the_traces(tmp_path: Path) -> None:
    def peak(count: int) -> int:
        """Bytes at most, while so many traces of 2 kB were read."""
        path = tmp_path / f"{count}.jsonl"
        with path.open("w") as file:
            file.writelines(json.dumps(chat(f"t{n}", note="x" * 2000)) + "\n" for n in range(count))
        tracemalloc.start()
        try:
            assert sum(1 for _ in TraceStream(path)) == count
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    few, many = peak(300), peak(6000)
    # A trace that is held would take more than 2,000 bytes.
    assert many - few < 5700 * 500
