"""Trackers: the values they send, the texts they do not send, and runs that continue without them."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from helpers import client, make_tasks, run_command, world, write_tasks
from needs import needs
from refusals import refused

import practicum
from practicum.core.context import Context
from practicum.core.counts import Count
from practicum.core.errors import ProviderError
from practicum.core.types import Prompt, Usage
from practicum.engine.state import ModelCall
from practicum.models.budget import Budget
from practicum.models.client import CallOptions
from practicum.models.scripted import Call
from practicum.plugins.trackers import Mlflow, Otel, Wandb
from practicum.plugins.trackers.otel import CONTENT
from practicum.plugins.trackers.tracker import Tracker, parameters
from practicum.session.config import Config, Splits
from practicum.session.result import Progress, Result, RunInfo, Watch

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExportResult

SECRET = "a text that only the agent may see"


def learn(folder: Path, *watch: Watch, respond: Callable[[Call], str | Exception] = world, **how: Any) -> Result:
    """Two steps, validated, with an evaluation before and after."""
    tasks = make_tasks(4)
    values: dict[str, Any] = {"val": tasks[2:3], "test": tasks[3:], "before": True, "instructions": SECRET, **how}
    parts = practicum.Parts(clients={"agent": client(respond)})
    return practicum.run_sync(practicum.learn(tasks[:2], out=folder, watch=watch, parts=parts, **values))


def resume(folder: Path, *watch: Watch, **limits: Any) -> Result:
    parts = practicum.Parts(clients={"agent": client(world)})
    return practicum.run_sync(practicum.resume(folder, watch=watch, parts=parts, **limits))


class Enough(Watch):
    """Stops a run after its first step."""

    def began(self, run: RunInfo) -> None:
        self.budget = run.budget

    def stepped(self, report: practicum.StepReport, progress: Progress) -> None:
        self.budget.stop("enough")


class Notebook(Tracker):
    """A tracker that writes to memory; `broken` names the operations that fail."""

    service = "notebook"

    def __init__(self, *broken: str) -> None:
        super().__init__()
        self.broken = broken
        self.log: list[tuple[str, Any]] = []

    def _write(self, kind: str, value: Any) -> None:
        if kind in self.broken:
            raise OSError("the disk is full")
        self.log.append((kind, value))

    def open(self, run: RunInfo, id: str | None) -> str:
        self._write("open", id)
        return id or "first"

    def send(self, values: Mapping[str, float], step: int) -> None:
        self._write("send", (step, dict(values)))

    def save(self, context: Context, step: int, label: str) -> None:
        self._write("save", label)

    def close(self, state: str, why: str) -> None:
        self._write("close", (state, why))

    def of(self, kind: str) -> list[Any]:
        return [value for each, value in self.log if each == kind]


def test_trackers_get_each_step_once_and_one_that_fails_is_counted_warned_of_once_and_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plain = learn(tmp_path / "plain")
    whole, lost, partial = Notebook(), Notebook("open"), Notebook("save")
    lost.service, partial.service = "lost", "partial"
    result = learn(tmp_path / "run", whole, lost, partial)
    assert whole.log[0] == ("open", None)
    assert whole.log[-1] == ("close", ("done", ""))
    steps = [values for step, values in whole.of("send") if "score_mean" in values]
    assert len(steps) == 2
    assert steps[-1]["context_entries"] > 0
    assert steps[-1]["context_tokens"] > 0
    assert steps[0]["cost_calls"] < steps[-1]["cost_calls"]
    assert whole.of("send")[-1][1]["cost_calls"] == result.usage.calls
    assert (whole.of("save")[0], whole.of("save")[-1]) == ("step-1", "best")
    assert [*result.context] == [*plain.context]
    assert [len(whole.log) - len(each.log) for each in (lost, partial)] == [11, 4]
    assert result.errors[Count.UNTRACKED_RECORDS] == 15
    messages = sorted(record.message for record in caplog.records)
    assert [message.partition(":")[0] for message in messages] == ["lost", "partial"]
    assert all("(OSError: the disk is full)" in message for message in messages)


class Second(Watch):
    """Starts the tracker of this run a second time."""

    def __init__(self, tracker: Tracker) -> None:
        self.tracker = tracker

    def began(self, run: RunInfo) -> None:
        with refused("tracker.unusable"):
            self.tracker.began(run)


def test_a_resume_continues_under_its_id_sends_no_step_and_no_call_again_and_allows_one_run_at_a_time(
    tmp_path: Path,
) -> None:
    notebooks, exporters = (Notebook(), Notebook()), (in_memory(), in_memory())
    how: dict[str, Any] = {"val": (), "test": (), "before": False, "max_calls": 10}
    cut = learn(tmp_path / "run", notebooks[0], Otel(exporters[0]), **how)
    assert notebooks[0].of("close") == [("stopped", cut.stopped)]
    result = resume(tmp_path / "run", notebooks[1], Second(notebooks[1]), Otel(exporters[1]), max_calls=100)
    assert (notebooks[1].of("open"), notebooks[1].of("close")) == (["first"], [("done", "")])
    steps = [[step for step, values in each.of("send") if "learning_lessons" in values] for each in notebooks]
    assert steps == [[1], [2]]
    assert notebooks[1].of("send")[-1][1]["cost_calls"] == result.usage.calls
    sent = [span for each in exporters for span in each.get_finished_spans() if span.name == "chat scripted"]
    places = {attributes(span)["practicum.place"] for span in sent}
    assert len(sent) == len(places) == result.usage.calls > cut.usage.calls


def test_the_sent_configuration_has_no_text_about_the_tasks_and_no_password() -> None:
    model, reflector = "http://me:secret@127.0.0.1:1/v1#m", "https://secret@example.org/v1#n"
    config = Config(
        model=model, roles={"reflector": reflector}, instructions=SECRET, choices=("word0", "word1"),
        settings={"rounds": 1},
    )  # fmt: skip
    sent = parameters(RunInfo(Path("runs/a"), config, Splits(tuple(make_tasks(1))), Budget()))
    assert sent["model"] == "http://127.0.0.1:1/v1#m"
    assert sent["roles.reflector"] == "https://example.org/v1#n"
    assert sent["settings.rounds"] == 1
    assert sent["tasks.train"] == 1
    assert not any(text in json.dumps(sent) for text in ("secret", SECRET, "word0"))


ATTEMPT = re.compile(r"step 1 > attempt > 0\.t\d > chat scripted")


def in_memory() -> Any:
    """Keeps spans. Without the extra `otel` the test is skipped."""
    return needs("opentelemetry.sdk.trace.export.in_memory_span_exporter", "otel").InMemorySpanExporter()


def spans(exporter: Any) -> dict[str, list[ReadableSpan]]:
    """The finished spans by the names from the root down."""
    finished = exporter.get_finished_spans()
    by_id = {span.context.span_id: span for span in finished if span.context}

    def path(span: ReadableSpan) -> str:
        return span.name if span.parent is None else f"{path(by_id[span.parent.span_id])} > {span.name}"

    grouped: dict[str, list[ReadableSpan]] = {}
    for span in finished:
        grouped.setdefault(path(span), []).append(span)
    return grouped


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def test_each_model_call_is_a_span_below_its_attempt_and_its_step_and_has_its_messages_only_on_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exporters, trackers = [in_memory(), in_memory()], []
    for exporter, value in zip(exporters, ("EVENT_ONLY", "SPAN_ONLY"), strict=True):
        monkeypatch.setenv(CONTENT, value)
        trackers.append(Otel(exporter))
    result = learn(tmp_path / "run", *trackers)
    by_path, whole = map(spans, exporters)
    calls = [span for group in by_path.values() for span in group if span.name == "chat scripted"]
    assert len(calls) == result.usage.calls
    path = next(filter(ATTEMPT.fullmatch, by_path))
    (first,) = by_path[path]
    assert attributes(first).items() >= {
        "gen_ai.operation.name": "chat", "gen_ai.request.model": "scripted", "gen_ai.request.temperature": 0.0,
        "practicum.role": "agent", "practicum.method": "ace",
    }.items()  # fmt: skip
    assert attributes(first)["gen_ai.usage.input_tokens"] > 0
    (attempt,) = by_path[path.removesuffix(" > chat scripted")]
    assert attributes(attempt)["gen_ai.operation.name"] == "invoke_agent"
    assert attributes(attempt)["gen_ai.evaluation.score.value"] in (0.0, 1.0)
    (step,) = by_path["step 1"]
    assert step.start_time <= attempt.start_time <= first.start_time <= first.end_time <= step.end_time
    evaluated = [path for path in by_path if path.startswith("evaluate test") and path.endswith("t3")]
    assert all("gen_ai.evaluation.score.value" in attributes(by_path[path][0]) for path in evaluated)
    assert evaluated
    assert not any(text in str(attributes(span)) for span in calls for text in (SECRET, "Message"))
    (message,) = json.loads(attributes(whole[path][0])["gen_ai.input.messages"])
    assert message["role"] == "user"
    assert "Message" in message["parts"][0]["content"]
    assert SECRET in attributes(whole[path][0])["gen_ai.system_instructions"]


def test_a_failed_run_is_closed_as_failed_and_the_error_of_its_call_quotes_nothing(tmp_path: Path) -> None:
    notebook, exporter = Notebook(), in_memory()
    with pytest.raises(practicum.PracticumError):
        learn(tmp_path, notebook, Otel(exporter), respond=lambda call: ProviderError("provider.failed", SECRET))
    assert notebook.log[-1] == ("close", ("failed", ""))
    failed = [span for span in exporter.get_finished_spans() if span.name == "chat scripted"]
    assert failed
    assert all(attributes(span)["error.type"] == "_OTHER" and not span.status.is_ok for span in failed)
    assert SECRET not in str([span.to_json() for span in failed])


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bytes]]:
    """The bodies that an OTLP server on loopback received; the environment names it."""
    needs("opentelemetry.exporter.otlp.proto.http", "otel")
    bodies: list[bytes] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200 if self.path == "/v1/traces" else 404)
            self.end_headers()

        def log_message(self, *about: object) -> None:
            """Nothing on the terminal."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        yield bodies
        server.shutdown()
        thread.join()


def received(bodies: list[bytes]) -> list[Any]:
    """The spans of model calls that a collector got."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    resources = [each for body in bodies for each in ExportTraceServiceRequest.FromString(body).resource_spans]
    scopes = [scope for resource in resources for scope in resource.scope_spans]
    return [span for scope in scopes for span in scope.spans if span.name.startswith("chat ")]


def test_spans_are_sent_over_otlp_to_the_address_in_the_environment(tmp_path: Path, collector: list[bytes]) -> None:
    result = learn(tmp_path / "run", Otel(), val=(), test=(), before=False)
    assert len(received(collector)) == result.usage.calls
    assert Count.UNTRACKED_RECORDS not in result.errors


@pytest.mark.slow
def test_commands_send_every_run_of_a_comparison_and_an_evaluation(tmp_path: Path, collector: list[bytes]) -> None:
    write_tasks(tmp_path / "tasks.jsonl", make_tasks(3))
    write_tasks(tmp_path / "test.jsonl", make_tasks(3, 10))
    (tmp_path / "model").write_text('{"role": "agent", "answer": "no idea"}\n', encoding="utf-8")
    how = ["--model", "scripted:model", "--log", "otel"]
    compared = ["compare", "tasks.jsonl", "--test", "test.jsonl", "--methods", "none,icl", "--seeds", "1"]
    for command in ([*compared, "--out", "c"], ["eval", "tasks.jsonl"]):
        done = run_command([*command, *how], tmp_path)
        assert done.code == 0, done.err
    runs = Counter(
        {each.key: each.value.string_value for each in span.attributes}["practicum.run"] for span in received(collector)
    )
    assert runs["none-0"] == runs["eval"] == 3
    assert runs["icl-0"] >= 3


def test_spans_that_no_server_takes_are_counted_and_warned_of_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    needs("opentelemetry.exporter.otlp.proto.http", "otel")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.2")
    result = learn(tmp_path / "run", Otel(), val=(), test=(), before=False)
    assert result.errors[Count.UNTRACKED_RECORDS] >= result.usage.calls
    assert len([r for r in caplog.records if r.levelno >= logging.WARNING]) == 1


def test_a_slow_service_loses_no_span_of_an_evaluation_of_many_tasks(tmp_path: Path) -> None:
    class Slow(type(in_memory())):  # type: ignore[misc]
        ready = threading.Event()

        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            self.ready.wait()
            return super().export(spans)

    exporter, n = Slow(), 1_100  # the queue of the SDK has 2048 spans
    otel = Otel(exporter)
    otel.began(RunInfo(tmp_path, Config(), Splits(), Budget()))
    for task in range(n):
        place = f"evaluate test/{task}/answer"
        otel.called(ModelCall(place, "agent", "scripted", Prompt("", ""), CallOptions(), "", Usage(), 0.1))
    otel.evaluated("test", 1.0, n)
    exporter.ready.set()
    practicum.run_sync(otel.flush())
    assert len(exporter.get_finished_spans()) == 2 * n + 1


@pytest.mark.slow
def test_wandb_has_the_steps_and_the_context_of_a_run_and_a_resume_continues_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    for folder in ("DIR", "DATA_DIR", "CACHE_DIR"):
        monkeypatch.setenv(f"WANDB_{folder}", str(tmp_path))
    first, second = Wandb("routing"), Wandb("routing")
    result = learn(tmp_path / "run", first, Enough())
    assert result.stopped
    assert Count.UNTRACKED_RECORDS not in result.errors
    resume(tmp_path / "run", second)
    files = [file for tracker in (first, second) for file in Path(tracker.folder).glob("*.wandb")]
    # The id of the run is in the name of its file.
    assert (len(files), len({file.name for file in files})) == (2, 1)
    for file in files:
        stored = file.read_bytes()
        assert [text in stored for text in (b"routing", b"learning_lessons", b"cost_calls")] == [True] * 3
        assert [text in stored for text in (SECRET.encode(), b"Message 0")] == [False] * 2
    assert b"context-" in files[1].read_bytes()


@pytest.mark.slow
def test_wandb_without_a_login_is_refused_before_anything_is_paid(tmp_path: Path) -> None:
    needs("wandb")
    # In another process, since wandb keeps the mode of its first run.
    env = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
    env |= {"HOME": str(tmp_path), "NETRC": str(tmp_path / "none")}
    program = "from practicum.plugins.trackers.wandb import Wandb; Wandb()"
    done = subprocess.run([sys.executable, "-c", program], env=env, cwd=tmp_path, capture_output=True, text=True)
    assert "UsageError: wandb has no login: run `wandb login`" in done.stderr


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated")
def test_mlflow_has_the_steps_the_context_and_the_end_of_a_run_and_a_resume_continues_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs("mlflow")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    result = learn(tmp_path / "run", Mlflow("routing"), Enough())
    assert result.stopped
    assert Count.UNTRACKED_RECORDS not in result.errors
    from mlflow import MlflowClient

    tracking = MlflowClient()
    experiment = tracking.get_experiment_by_name("routing")
    (run,) = tracking.search_runs([experiment.experiment_id])
    assert run.info.status == "KILLED"
    assert run.data.tags["practicum.stopped"] == result.stopped
    assert run.data.params["method"] == "ace"
    resume(tmp_path / "run", Mlflow("routing"))
    (run,) = tracking.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED"
    assert [metric.step for metric in tracking.get_metric_history(run.info.run_id, "learning_lessons")] == [1, 2]
    (best,) = [a.path for a in tracking.list_artifacts(run.info.run_id, "context") if a.path.endswith("best")]
    files: Sequence[Any] = tracking.list_artifacts(run.info.run_id, best)
    assert sorted(Path(a.path).name for a in files) == ["context.json", "context.md"]
    assert SECRET not in str(run.to_dictionary())
