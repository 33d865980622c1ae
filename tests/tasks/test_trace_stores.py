"""Traces in S3, which a server of moto plays."""

from __future__ import annotations

from needs import needs

needs("pyarrow", "parquet")

import gzip
import io
import json
from collections.abc import Iterator
from typing import Any
from urllib.request import Request, urlopen

import fsspec
import pyarrow
import pytest
from pyarrow import parquet
from web import served

from practicum.core.errors import TaskFileError
from practicum.tasks.traces import TraceStream

pytest.importorskip("s3fs", reason="pip install s3fs")
server = pytest.importorskip("moto.server", reason="pip install 'moto[server]'")

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]

SECRET = "sesame-of-the-store"


def chat(id: str, **fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": f"ask {id}"}, {"role": "assistant", "content": f"say {id}"}]
    return {"id": id, "messages": messages, **fields}


def lines(*ids: str, **fields: Any) -> bytes:
    return "".join(json.dumps(chat(id, **fields)) + "\n" for id in ids).encode()


def table(*ids: str) -> bytes:
    file = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_pylist([chat(id) for id in ids]), file)
    return file.getvalue()


def ids(address: str) -> list[str]:
    return [task.id for task in TraceStream(address)]


def refusal(address: str) -> str:
    with pytest.raises(TaskFileError) as caught:
        ids(address)
    assert SECRET not in str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    made = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    made.start()
    host, port = made.get_host_and_port()
    yield f"http://{host}:{port}"
    made.stop()


@pytest.fixture
def store(address: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("AWS_ENDPOINT_URL", address)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    system = fsspec.filesystem("s3")
    system.mkdir("bucket")
    yield system
    urlopen(Request(f"{address}/moto-api/reset", method="POST")).close()
    fsspec.get_filesystem_class("s3").clear_instance_cache()


def test_a_bucket_is_read_by_name_by_folder_and_by_pattern(store: Any) -> None:
    objects = {
        "b.jsonl": lines("b"), "in/c.jsonl.gz": gzip.compress(lines("c")), "a.jsonl": lines("a1", "a2"),
        "p.parquet": table("p1", "p2"), "notes.txt": b"no trace",
    }  # fmt: skip
    store.pipe({f"bucket/logs/{name}": raw for name, raw in objects.items()})
    assert ids("s3://bucket/logs") == ["a1", "a2", "b", "p1", "p2", "c"] == ids("s3://bucket")
    assert ids("s3://bucket/logs/a.jsonl") == ["a1", "a2"]
    assert ids("s3://bucket/logs/*.jsonl") == ["a1", "a2", "b"]


@pytest.mark.parametrize("place", ["nowhere/logs", "bucket/none/", "bucket/none/*.jsonl", "bucket/none.jsonl"])
def test_a_place_with_nothing_is_named(store: Any, place: str) -> None:
    assert refusal(f"s3://{place}") == f"s3://{place}: no such object; pass the address of stored traces"


def test_a_wrong_key_says_where_the_right_one_goes(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with served({"/bucket/a.jsonl": lines("a")}, status=403) as (url, _):
        monkeypatch.setenv("AWS_ENDPOINT_URL", url.replace("user:password@", ""))
        fsspec.get_filesystem_class("s3").clear_instance_cache()
        assert refusal("s3://bucket/a.jsonl") == (
            "s3://bucket/a.jsonl: access is denied; set the credentials of this store"
        )


def test_a_server_that_is_not_there_is_named(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    assert "s3://bucket/a.jsonl: cannot be read (EndpointConnectionError" in refusal("s3://bucket/a.jsonl")


@pytest.mark.parametrize(
    ("change", "said"),
    [("deleted", "deleted during the read"), ("written anew", "changed during the read")],
)
def test_an_object_that_is_changed_while_it_is_read(store: Any, change: str, said: str) -> None:
    raw = lines(*(f"t{n}" for n in range(26)), note="x" * 2**22)
    store.pipe("bucket/big.jsonl", raw)
    traces = iter(TraceStream("s3://bucket/big.jsonl"))
    assert next(traces).id == "t0"
    if change == "deleted":
        store.rm("bucket/big.jsonl")
    else:
        store.pipe("bucket/big.jsonl", raw.replace(b"say", b"SAY"))
    with pytest.raises(TaskFileError, match=said):
        list(traces)
