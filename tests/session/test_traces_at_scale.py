"""Learning from a stream of traces: the same as from a list, in memory that does not grow, and never from a part."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers import context_bytes, make_tasks
from refusals import refused
from scripts import Learned, insight, learned, memory, resumed, scripted
from web import served

import practicum
from practicum.core.errors import TaskFileError
from practicum.core.types import Recorded, Score, Task, Trace
from practicum.engine.loop import StepReport
from practicum.models.scripted import Call, ScriptedClient
from practicum.session.result import Progress, Watch
from practicum.store.database import Store
from practicum.tasks.stored import StoredTasks
from practicum.tasks.traces import TraceStream

METHODS: dict[str, dict[str, Any]] = {
    "ace": {}, "combee": {"batch": 3}, "naive": {"batch": 3}, "reflexion": {"batch": 2}, "episodes": {}, "expel": {},
    "rcl": {"group": 1, "twin": False, "replay": 0.0, "rollouts": "none"}, "reasoning_bank": {},
}  # fmt: skip


def recorded(count: int = 7, **fields: Any) -> list[Task]:
    made = [Recorded(Trace(f"word{i}" if i % 2 else "no"), Score(i % 2, i % 2 == 1)) for i in range(count)]
    return [replace(task, recorded=one, **fields) for task, one in zip(make_tasks(count), made, strict=True)]


def model() -> ScriptedClient:
    def refusing(call: Call) -> str:
        raise AssertionError("nothing was to be tried")

    def curating(call: Call) -> dict[str, Any]:
        return {"decisions": [{"lesson": 1, "op": "ADD"}], "sheet": "a sheet", "points": ["a point"]}

    return scripted(refusing, lambda call: {**insight(call), **memory("a way"), "reflection": "look"}, curating)


def read(folder: Path, tasks: Any, method: str = "naive", **how: Any) -> Learned:
    settings = how.pop("settings", METHODS[method])
    return learned(folder, model(), tasks, settings, method, from_traces=True, **how)


def written(folder: Path, count: int = 7, **fields: Any) -> Path:
    """Traces of chats as JSON lines."""
    path = folder / "traces.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for n in range(count):
            said = [{"role": "user", "content": f"Message {n}: say word{n}"}, {"role": "assistant", "content": "no"}]
            file.write(json.dumps({"id": f"t{n}", "messages": said, **fields}) + "\n")
    return path


@pytest.mark.parametrize("method", METHODS)
def test_a_stream_teaches_what_a_list_teaches_and_so_does_a_resume(tmp_path: Path, method: str) -> None:
    whole = read(tmp_path / "list", recorded(), method)
    streamed = read(tmp_path / "stream", iter(recorded()), method)
    assert context_bytes(streamed.result) == context_bytes(whole.result)
    assert [call.text for call in streamed.model.calls] == [call.text for call in whole.model.calls]
    calls = len(whole.model.calls)
    if calls > 3:
        stopped = read(tmp_path / "stopped", iter(recorded()), method, max_calls=calls // 2)
        assert stopped.result.stopped
        after = resumed(stopped, model(), max_calls=10 * calls)
        assert context_bytes(after.result) == context_bytes(whole.result)
        assert len(stopped.model.calls) + len(after.model.calls) == calls


def test_redacted_tasks_of_a_stream_are_those_of_a_list(tmp_path: Path) -> None:
    tasks = [replace(task, input=f"{task.input} for ann{n}@example.com") for n, task in enumerate(recorded())]
    runs = [read(tmp_path / name, made, redact="all") for name, made in (("list", tasks), ("stream", iter(tasks)))]
    assert context_bytes(runs[0].result) == context_bytes(runs[1].result)
    stored = [[*tasks_of(run.folder)] for run in runs]
    assert stored[0] == stored[1]
    assert "example.com" not in str(stored)


def tasks_of(folder: Path) -> list[Task]:
    with Store.read(folder) as store:
        return list(StoredTasks(store, "train"))


def test_after_the_start_the_source_is_not_read_again(tmp_path: Path) -> None:
    path = written(tmp_path)
    path.write_bytes(path.read_bytes() + b"broken\n")
    run = read(tmp_path, TraceStream(path), max_calls=4)
    assert run.result.stopped
    path.unlink()
    after = resumed(run, model(), max_calls=99)
    assert after.result.stopped is None
    assert after.result.errors["trace_faults"] == 1
    assert len(after.rollouts) == 7


class Counted:
    """Tasks one after another, counted as they are taken."""

    def __init__(self, tasks: list[Task]) -> None:
        self.tasks, self.taken = tasks, 0

    def __iter__(self) -> Iterator[Task]:
        for task in self.tasks:
            self.taken += 1
            yield task


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"settings": {"rounds": 2}, "method": "ace"}, "settings.unused"),
        ({"before": True}, "tasks.missing"),
    ],
)
def test_what_is_wrong_with_the_settings_is_said_after_the_first_trace(
    tmp_path: Path, wrong: dict[str, Any], code: str
) -> None:
    tasks = Counted(recorded(2000))
    with refused(code):
        learned(tmp_path, model(), tasks, from_traces=True, **{"method": "naive", **wrong})  # type: ignore[arg-type]
    assert tasks.taken == 1
    assert not (tmp_path / "run").exists()


def test_a_missing_key_is_said_after_the_first_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    tasks = Counted(recorded(2000))
    with refused("model.no_key"):
        practicum.run_sync(
            practicum.learn(tasks, method="naive", from_traces=True, model="openai:gpt-4.1-mini", out=tmp_path / "run")
        )
    assert tasks.taken == 1
    assert not (tmp_path / "run").exists()


def test_a_source_that_breaks_off_leaves_nothing(tmp_path: Path) -> None:
    def breaking() -> Iterator[Task]:
        yield from recorded(1500)
        raise TaskFileError("traces.unreadable", "the store is gone")

    with refused("traces.unreadable"):
        read(tmp_path, breaking())
    assert not (tmp_path / "run").exists()


def test_what_arrives_twice_or_is_no_task_is_refused(tmp_path: Path) -> None:
    with refused("tasks.duplicate_id"):
        read(tmp_path, iter([*recorded(5), recorded(5)[3]]))
    with refused("tasks.invalid_field"):
        read(tmp_path, iter([*recorded(5), "t5"]))
    with refused("tasks.missing"):
        read(tmp_path, iter([]))


def test_the_choices_are_found_in_a_stream(tmp_path: Path) -> None:
    tasks = [replace(task, target=f"word{n % 2}") for n, task in enumerate(recorded())]
    runs = [read(tmp_path / name, made, choices="auto") for name, made in (("list", tasks), ("stream", iter(tasks)))]
    assert context_bytes(runs[0].result) == context_bytes(runs[1].result)
    with refused("choices.unsuitable"):
        read(tmp_path / "none", TraceStream(written(tmp_path)), choices="auto")


def test_a_watch_is_told_how_many_were_read(tmp_path: Path) -> None:
    counts: list[int] = []

    class Told(Watch):
        def reading(self, count: int) -> None:
            counts.append(count)

    work = practicum.learn(
        TraceStream(written(tmp_path, 2500), "own"), method="episodes", settings={"batch": 2500}, out=tmp_path / "run",
        watch=Told(), parts=practicum.Parts(clients={"agent": model()}),
    )  # fmt: skip
    assert len(practicum.run_sync(work).context) > 0
    assert counts == [1000, 2000, 2500]


DYING = """
import os, signal, sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
import test_traces_at_scale as these

def dying():
    for n, task in enumerate(these.recorded(3000)):
        if n == 2500:
            os.kill(os.getpid(), signal.SIGKILL)
        yield task

these.read(Path(sys.argv[1]), dying())
"""


def test_a_kill_amid_the_reading_leaves_no_run_and_the_same_command_begins_anew(tmp_path: Path) -> None:
    here = Path(__file__).parent
    path = os.pathsep.join([str(here), str(here.parent / "support"), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", DYING, str(tmp_path), str(here)],
        capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert len(tasks_of(tmp_path / "run")) in (1000, 2000)
    with refused("run.not_found"):
        resumed(Learned(model(), tmp_path / "run"), model())
    run = read(tmp_path, iter(recorded(7)))
    assert run.result.stopped is None
    assert tasks_of(tmp_path / "run") == recorded(7)
    assert {rollout.task.id for rollout in run.rollouts} == {f"t{n}" for n in range(7)}


def test_no_key_of_an_address_is_kept(tmp_path: Path) -> None:
    raw = written(tmp_path).read_bytes()
    with served({"/logs.jsonl": raw}) as (url, _):
        assert "user:password@" in url
        run = read(tmp_path, TraceStream(f"{url}/logs.jsonl?sig=sesame"))
    kept = b"".join(path.read_bytes() for path in run.folder.iterdir())
    assert b"logs.jsonl" in kept
    assert b"password" not in kept
    assert b"sesame" not in kept


def test_the_memory_that_learning_takes_does_not_grow_with_the_traces(tmp_path: Path) -> None:
    def peak(count: int) -> int:
        """Bytes at most, while two steps were learned from so many traces of 4 kB."""
        folder = tmp_path / str(count)
        folder.mkdir()
        stream = TraceStream(written(folder, count, note="x" * 4000))
        tracemalloc.start()
        try:
            read(folder, stream, settings={"batch": 20}, max_calls=42)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    read(tmp_path, iter(recorded()))  # all is imported
    few, many = peak(1500), peak(6000)
    # A trace that is held would take more than 4,000 bytes.
    assert many - few < 4500 * 1000


@pytest.mark.slow
def test_the_memory_that_learning_takes_does_not_grow_with_the_steps(tmp_path: Path) -> None:
    class Memory(Watch):
        def stepped(self, report: StepReport, progress: Progress) -> None:
            if report.step == 30:
                tracemalloc.start()  # with what the steps that are kept hold, from step 50 on
            if report.step in (60, 100):
                held.append(tracemalloc.get_traced_memory()[0])

    def forgetting(call: Call) -> str | Exception:
        client.calls.clear()
        return answering(call)

    held, said, client = list[int](), "x" * 4000, model()
    answering, client.respond = client.respond, forgetting
    traces = [replace(task, recorded=Recorded(Trace(f"{said} {task.id}"))) for task in make_tasks(1000)]
    work = practicum.learn(
        iter(traces), method="naive", settings={"batch": 10}, from_traces=True, watch=Memory(), out=tmp_path / "run",
        parts=practicum.Parts(clients={"agent": client}),
    )  # fmt: skip
    try:
        practicum.run_sync(work)
    finally:
        tracemalloc.stop()
    # The 400 traces between would take 4,000 bytes each, and their prompts as much again.
    assert held[1] - held[0] < 400 * 1000
