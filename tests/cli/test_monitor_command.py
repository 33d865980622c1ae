"""`practicum space monitor`: what it prints, and the metrics that it sends."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from helpers import Done, make_tasks, run_command, write_tasks
from needs import needs

from practicum.cli.app import main

if TYPE_CHECKING:
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

SCRIPT = (
    {"role": "agent", "match": r"say (?P<word>word[02])\Z", "answer": {"used": [], "answer": r"\g<word>"}},
    {"role": "agent", "answer": {"used": [], "answer": "no idea"}},
    {"role": "judge", "match": "no idea", "answer": {"reason": "so", "right": False}},
    {"role": "judge", "answer": {"reason": "so", "right": True}},
    {
        "role": "reflector", "match": "Message (\\d+)",
        "answer": {
            "items": [{"title": r"message \1", "description": "d", "content": r"word\1"}],
            "holds": [], "separates": [], "spurious": [], "why": "so", "best": 1,
        },
    },
)  # fmt: skip
OTEL = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_PROTOCOL")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of four steps, judged without labels."""
    folder = tmp_path_factory.mktemp("monitor")
    tasks = [replace(t, meta={"domain": "odd" if i % 2 else "even"}) for i, t in enumerate(make_tasks(4))]
    write_tasks(folder / "tasks.jsonl", tasks)
    (folder / "model").write_text("\n".join(map(json.dumps, SCRIPT)) + "\n", encoding="utf-8")
    typed = "learn tasks.jsonl --method reasoning_bank --online --no-labels --judge --model scripted:model --out run"
    done = run_command(typed.split(), folder)
    assert done.code == 0, done.err
    (folder / "rules.md").write_text("## rules\n- Be brief.\n", encoding="utf-8")
    for typed in (
        "space import rules.md --out seed",
        "learn tasks.jsonl --method episodes --model scripted:model --out plain",
    ):
        assert run_command(typed.split(), folder).code == 0
    return folder


def typed(place: Path, words: str, code: int = 0) -> Done:
    done = run_command(["space", "monitor", *words.split()], place)
    assert done.code == code, done.out + done.err
    assert "Traceback" not in done.err
    return done


WRONG: dict[str, tuple[str, str, int]] = {
    "no run": ("nowhere", "nowhere is not a run folder", 2),
    "no steps": ("seed", "seed has no steps yet", 2),
    "pictures in a file": ("run --plot model", "--plot model is a file", 2),
    "no attempts": ("run --judge-again 0", "--judge-again", 2),
    "no number": ("run --judge-again some", "--judge-again", 2),
    "a seed alone": ("run --seed 3", "--seed needs --judge-again", 2),
    "a limit alone": ("run --max-calls 3", "--max-calls needs --judge-again", 2),
    "nothing was judged": ("plain --judge-again 2", "the run has no verdicts of a judge", 2),
}


@pytest.mark.parametrize(("words", "said", "code"), WRONG.values(), ids=WRONG)
def test_wrong_use_is_reported_in_one_line(place: Path, words: str, said: str, code: int) -> None:
    assert said in typed(place, words, code).line


class Collector(ThreadingHTTPServer):
    """Takes metrics as a collector does: `status` is what it answers, `got` what came."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = 200
        self.got: list[tuple[str, ExportMetricsServiceRequest]] = []

    @property
    def points(self) -> dict[str, list[tuple[dict[str, str], float, int]]]:
        """Attributes, value and time of each point, by metric."""
        found: dict[str, list[tuple[dict[str, str], float, int]]] = {}
        for _, request in self.got:
            for metric in request.resource_metrics[0].scope_metrics[0].metrics:
                for point in getattr(metric, metric.WhichOneof("data")).data_points:
                    named = {a.key: a.value.string_value for a in point.attributes}
                    value = getattr(point, point.WhichOneof("value"))
                    found.setdefault(metric.name, []).append((named, value, point.time_unix_nano))
        return found


class _Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        messages = needs("opentelemetry.proto.collector.metrics.v1.metrics_service_pb2", "otel")
        self.server.got.append((self.path, messages.ExportMetricsServiceRequest.FromString(body)))
        self.send_response(self.server.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        return


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    needs("opentelemetry.exporter.otlp.proto.http", "otel")
    for name in OTEL:
        monkeypatch.delenv(name, raising=False)
    server = Collector()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    monkeypatch.setenv(OTEL[0], f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def here(place: Path, *words: str) -> int | str | None:
    with pytest.raises(SystemExit) as left:
        main(["space", "monitor", str(place / "run"), *words])
    return left.value.code


def test_metrics_have_their_own_endpoint(place: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OTEL[0], "http://127.0.0.1:9")
    monkeypatch.setenv(OTEL[1], f"http://127.0.0.1:{collector.server_port}/mine")
    assert here(place, "--json") == 0
    assert [path for path, _ in collector.got] == ["/mine"]


def test_an_unknown_protocol_is_reported(
    place: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(OTEL[2], "grpc")
    assert here(place) == 0
    assert "asks for grpc" in capsys.readouterr().out
    assert collector.got == []
