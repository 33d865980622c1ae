"""Runs that are killed, stopped, cut short, and gone on with: nothing is paid twice and nothing comes out different."""

from __future__ import annotations

import resource
import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gate import GatedServer, gated_server
from helpers import Began, Launcher, Running, client, context_bytes, make_tasks, wait_until, world, write_tasks
from refusals import refused

import practicum
from practicum.core.context import seed_context
from practicum.core.errors import ProviderError
from practicum.engine.loop import StepReport
from practicum.models.scripted import Call, ScriptedClient
from practicum.session.records import step_rows
from practicum.session.result import Progress, Result
from practicum.session.story import Story
from practicum.store import schema, sqlite
from practicum.store.database import Store
from practicum.store.versions import read_versions
from practicum.testing import ServerProcess, start_process

ACE: dict[str, Any] = {"method": "ace", "settings": {"batch": 3}, "temperature": 0.0}
SEED = seed_context([("rules", "If x, do y.")])
DIGEST_LINE = 65
"""Bytes of a line in the server's log."""


def learn(folder: Path, model: ScriptedClient, n: int = 12, **config: Any) -> Result:
    parts = practicum.Parts(clients={"agent": model})
    return practicum.run_sync(practicum.learn(make_tasks(n), out=folder, parts=parts, **{**ACE, **config}))


def resume(folder: Path, model: ScriptedClient, **limits: Any) -> Result:
    parts = practicum.Parts(clients={"agent": model})
    return practicum.run_sync(practicum.resume(folder, **limits, parts=parts))


def rows(folder: Path, query: str) -> list[tuple[Any, ...]]:
    with sqlite3.connect(folder / "run.sqlite") as db:
        found = db.execute(query).fetchall()
    db.close()
    return found


@pytest.fixture
def slow_server(tmp_path: Path) -> Iterator[ServerProcess]:
    with start_process(latency=0.03, log=str(tmp_path / "log")) as process:
        yield process


def received(log: Path) -> int:
    return log.stat().st_size // DIGEST_LINE if log.exists() else 0


def journaled(folder: Path) -> int:
    """Calls whose answer is on the disk."""
    if not (folder / "run.sqlite").exists():
        return 0
    try:
        return int(rows(folder, "select coalesce(sum(calls), 0) from journal where role <> 'in flight'")[0][0])
    except sqlite3.OperationalError:
        return 0  # killed before there were tables


def test_a_run_that_cannot_be_written_any_more_keeps_what_was_paid_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "BUSY_SECONDS", 0.05)
    learn(tmp_path / "whole", whole := client())
    blocking = list[sqlite3.Connection]()

    def respond(call: Call) -> str | Exception:
        if len(model.calls) == len(whole.calls) // 2:
            # From here on every write fails.
            blocking.append(sqlite3.connect(tmp_path / "cut" / "run.sqlite", isolation_level=None))
            blocking[0].execute("BEGIN IMMEDIATE")
        return world(call)

    with refused("store.unwritable"):
        learn(tmp_path / "cut", model := client(respond))
    blocking[0].close()
    resume(tmp_path / "cut", again := client())
    assert len(whole.calls) <= len(model.calls) + len(again.calls) <= len(whole.calls) + ACE["settings"]["batch"]
    assert rows(tmp_path / "cut", "select max(version) from versions") == rows(
        tmp_path / "whole", "select max(version) from versions"
    )


@pytest.mark.slow
@pytest.mark.durable
@pytest.mark.parametrize("size", [4_096, 60_000, 200_000])
def test_a_limit_of_the_size_of_files_ends_a_run_with_one_line_and_a_resume_goes_on(
    tmp_path: Path, slow_server: ServerProcess, launcher: Launcher, size: int
) -> None:
    log = tmp_path / "log"
    write_tasks(tmp_path / "tasks.jsonl", make_tasks(12))
    first = ("learn", "tasks.jsonl", "--method", "ace", "--batch-size", "3", "--model", f"{slow_server.url}#sim")
    whole = launcher.run((*first, "--out", "whole", "--json"), tmp_path).json
    once = received(log)
    running = launcher.start((*first, "--out", "cut", "--json"), tmp_path)
    wait_until(lambda: received(log) >= once + once // 2)
    resource.prlimit(running.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    ended = running.end()
    assert ended.code == 1
    assert ended.line.startswith("cannot write")
    last = launcher.run(("resume", "cut", "--json"), tmp_path)
    assert last.json["entries"] == whole["entries"]
    assert last.json["scores"] == whole["scores"]
    assert received(log) - once == once + last.json["errors"]["left_in_flight"] <= once + 3


def test_a_finished_run_resumed_repeats_no_call(tmp_path: Path, store_url: str | None) -> None:
    first, second = client(), client()
    whole = learn(tmp_path / "run", first, test=make_tasks(4, 50), val=make_tasks(3, 80), store=store_url)
    again = resume(tmp_path / "run", second)
    assert second.calls == []
    assert context_bytes(again) == context_bytes(whole)
    assert (again.scores, again.usage, again.by_role) == (whole.scores, whole.usage, whole.by_role)
    assert (again.errors, again.refused) == (whole.errors, whole.refused)
    assert again.hits >= len(first.calls)
    assert again.context.version == practicum.load_context(tmp_path / "run").version


def test_the_best_context_at_a_stop_gives_way_to_a_better_one(tmp_path: Path) -> None:
    """The budget ends before the last validation, in which the last context turns out to be the best one."""

    def agent(call: Call) -> str:
        if call.role != "agent":
            return world(call)
        rules = sum(page.count("\n") + 1 for page in call.prompt.pages)
        return call.prompt.user.split()[-1] if rules > 3 else "?"

    settings = {"rounds": 0, "curator": "append", "dedupe": "never"}
    how = {"val": make_tasks(5, 80), "validate_every": 100, "settings": settings}
    cut = learn(tmp_path / "run", client(agent), 6, max_calls=20, seed_context=SEED, **how)
    assert cut.stopped
    assert len(practicum.load_context(tmp_path / "run")) == len(cut.context) == len(SEED)
    again = resume(tmp_path / "run", client(agent), max_calls=1000)
    whole = learn(tmp_path / "whole", client(agent), 6, seed_context=SEED, **how)
    assert again.context.version == whole.context.version > 0
    assert practicum.load_context(tmp_path / "run").digest == again.context.digest == whole.context.digest
    assert context_bytes(again) == context_bytes(whole)
    assert rows(tmp_path / "run", "select * from versions") == rows(tmp_path / "whole", "select * from versions")


def test_a_run_whose_last_step_could_not_be_written_is_not_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken_rows(run_id: str, report: StepReport) -> Any:
        """The last step has a value that the table refuses."""
        rows = dict(step_rows(run_id, report))
        if report.step == 4:
            rows[schema.steps] = [{"run_id": "run", "step": 4, "data": None, "refused": None}]
        return rows

    monkeypatch.setattr(practicum.session.learn, "step_rows", broken_rows)
    parts = practicum.Parts(clients={"agent": client()})
    work = practicum.learn(make_tasks(12), out=tmp_path / "run", parts=parts, **ACE)
    with refused("store.unwritable"):
        practicum.run_sync(work)
    assert rows(tmp_path / "run", "select state from runs") == [("running",)]
    monkeypatch.undo()
    whole = learn(tmp_path / "whole", client())
    assert context_bytes(resume(tmp_path / "run", client())) == context_bytes(whole)


def test_spent_minutes_keep_what_was_learned(tmp_path: Path) -> None:
    learn(tmp_path / "run", client(), max_minutes=60)
    with sqlite3.connect(tmp_path / "run" / "run.sqlite") as db:
        db.execute("update runs set seconds = 7200, state = 'stopped'")
    db.close()
    again = resume(tmp_path / "run", client())
    assert again.seconds >= 7200
    assert len(again.context) == len(practicum.load_context(tmp_path / "run")) > 0


@pytest.mark.parametrize("agent", [None, lambda task, context: task.split()[-1]], ids=["chat", "function"])
def test_time_is_held_back_at_the_pace_of_all_sittings(tmp_path: Path, agent: Any) -> None:
    class Held(Began):
        """Notes the seconds that are held back after each step."""

        def __init__(self) -> None:
            super().__init__()
            self.seconds: list[float] = []

        def stepped(self, report: StepReport, progress: Progress) -> None:
            self.seconds.append(self.runs[0].budget.held_seconds)

    held: list[list[float]] = []
    for sitting in (practicum.learn, practicum.resume):
        watch = Held()
        parts = practicum.Parts(agent=agent, clients={"agent": client(), "reflector": client(), "curator": client()})
        start = {"tasks": make_tasks(4), "test": make_tasks(2, 50), "out": tmp_path / "run", "max_minutes": 60, **ACE}
        how = start if sitting is practicum.learn else {"folder": tmp_path / "run"}
        practicum.run_sync(sitting(**how, parts=parts, watch=watch))
        held.append(watch.seconds)
    assert held[1][-1] == pytest.approx(held[0][-1])
    assert held[0][-1] > 0


def test_a_run_killed_before_its_row_was_written_can_be_started_again(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    from practicum.store.database import Store

    Store.create(folder).close()
    with refused("run.not_found"):
        resume(folder, client())
    assert learn(folder, client(), n=3).steps == 1
    with refused("run.exists"):
        learn(folder, client(), n=3)


def test_losses_before_a_kill_stay_lost(tmp_path: Path, store_url: str | None) -> None:
    """An attempt lost in step 1 shapes all later prompts; a crash right after them must not bring it back."""

    first: list[str] = []
    curated: list[Call] = []

    def flaky(call: Call) -> str | Exception:
        first[:] = first or [call.prompt.user]
        if call.role == "agent" and call.prompt.user == first[0]:
            return ProviderError("provider.failed", "overloaded")
        return world(call)

    def crashing(call: Call) -> str | Exception:
        curated.extend([call] * (call.role == "curator"))
        if len(curated) == 2:
            raise KeyboardInterrupt
        return flaky(call)

    how = {"batch": 6, "rounds": 0}
    expected = learn(tmp_path / "whole", client(flaky), settings=how)
    assert expected.errors["lost_attempts"] == 1
    with pytest.raises(KeyboardInterrupt):
        learn(tmp_path / "run", client(crashing), settings=how, store=store_url)
    healthy = client()
    again = resume(tmp_path / "run", healthy)
    assert context_bytes(again) == context_bytes(expected)
    assert {call.role for call in healthy.calls} == {"curator"}


def test_a_failed_reflector_stops_the_run_early(tmp_path: Path) -> None:
    def away(call: Call) -> str | Exception:
        return ProviderError("provider.failed", "nobody there") if call.role == "reflector" else world(call)

    model = client(away)
    with refused("attempts.all_failed"):
        learn(tmp_path / "run", model, settings={"batch": 2, "rounds": 0})
    assert sum(call.role == "agent" for call in model.calls) == 6
    assert resume(tmp_path / "run", client()).steps == 6


def test_a_seeded_run_resumes_to_the_same_bytes(tmp_path: Path, store_url: str | None) -> None:
    seed = learn(tmp_path / "seed", client()).context
    whole = learn(tmp_path / "whole", client(), seed_context=seed, settings={"batch": 3, "budget": 60})
    model = client()
    learn(
        tmp_path / "run", model, seed_context=seed, settings={"batch": 3, "budget": 60}, max_calls=25, store=store_url
    )
    assert context_bytes(resume(tmp_path / "run", model, max_calls=500)) == context_bytes(whole)


@pytest.mark.parametrize("method", ["ace", "combee", "reasoning_bank"])
@pytest.mark.slow
def test_a_run_that_was_rolled_back_goes_on_with_what_was_undone(
    tmp_path: Path, launcher: Launcher, method: str
) -> None:
    folder = tmp_path / "run"
    settings = {"batch": 2}
    before = learn(folder, client(), 12, method=method, settings=settings, max_calls=36)
    assert before.stopped
    back = launcher.run(("rollback", "run", "1", "--yes"), tmp_path)
    assert back.code == 0
    model = client()
    whole = resume(folder, model, max_calls=500)
    assert whole.stopped is None
    with Store.read(folder) as store:
        versions, steps = read_versions(store, store.run_id), Story(store).steps()
    assert versions[before.context.version + 1].parent == 1
    kept = [id for step in (steps[0], *steps[before.steps :]) for id in step.tasks]
    assert sorted(kept) == sorted(task.id for task in make_tasks(12))
    assert len(steps) == whole.steps
    # A resume of the leg finds its calls.
    again = client()
    assert context_bytes(resume(folder, again, max_calls=500)) == context_bytes(whole)
    assert not again.calls


@pytest.mark.slow
def test_a_leg_that_was_killed_goes_on_to_the_same_context(tmp_path: Path, launcher: Launcher) -> None:
    contexts = []
    for name, limits in (("whole", (500,)), ("cut", (24, 31, 500))):
        learn(tmp_path / name, client(), 12, settings={"batch": 2}, max_calls=20)
        launcher.run(("rollback", name, "1", "--yes"), tmp_path)
        for limit in limits:
            result = resume(tmp_path / name, client(), max_calls=limit)
        contexts.append(context_bytes(result))
    assert contexts[0] == contexts[1]


def _interrupted(launcher: Launcher, tmp_path: Path, server: GatedServer, batch: int, *options: str) -> Running:
    """A run that heard the first Ctrl-C while the calls of a batch, or as many as there are slots, were in flight."""
    write_tasks(tmp_path / "tasks.jsonl", make_tasks(12))
    command = ("learn", "tasks.jsonl", "--batch-size", str(batch), "--model", f"{server.url}#sim", "--out", "run")
    running = launcher.start((*command, *options, "--json"), tmp_path)
    wait_until(lambda: server.received >= 4 or running.ended(), what="a few calls")
    running.kill(signal.SIGINT)
    wait_until(lambda: "Ctrl-C again" in running.errors or running.ended(), what="the first word")
    return running


@pytest.mark.slow
def test_ctrl_c_lets_what_is_in_flight_finish_and_a_resume_goes_on(tmp_path: Path, launcher: Launcher) -> None:
    with gated_server() as server:
        running = _interrupted(launcher, tmp_path, server, 4)
        server.answer()
        stopped = running.end()
        assert stopped.code == 130
        assert stopped.json["stopped"] == "interrupted"
        assert "Ctrl-C again leaves at once" in stopped.err
        assert journaled(tmp_path / "run") == server.received == stopped.json["usage"]["calls"] == 4
        done = launcher.run(("resume", "run", "--json"), tmp_path)
        assert done.code == 0
        assert journaled(tmp_path / "run") == server.received == done.json["usage"]["calls"]
        assert "stopped" not in done.json


def test_ctrl_c_does_not_start_what_waits_for_a_slot(tmp_path: Path, launcher: Launcher) -> None:
    with gated_server() as server:
        running = _interrupted(launcher, tmp_path, server, 12, "--concurrency", "4")
        server.answer()
        assert running.end().code == 130
        assert server.received == 4


@pytest.mark.slow
@pytest.mark.parametrize("status", [429, 503])
def test_ctrl_c_ends_waits_for_a_provider_and_loses_nothing(tmp_path: Path, launcher: Launcher, status: int) -> None:
    """The provider asks for two minutes of patience, in the middle of a step and in the evaluation."""
    write_tasks(tmp_path / "tasks.jsonl", make_tasks(6))
    write_tasks(tmp_path / "test.jsonl", make_tasks(3, 50))
    options = ("--method", "ace", "--batch-size", "3", "--test", "test.jsonl", "--json", "--seed", "1")
    with gated_server() as server:
        server.answer()
        command = ("learn", "tasks.jsonl", *options, "--model", f"{server.url}#sim", "--out")
        whole = launcher.run((*command, "whole"), tmp_path).json
        once = server.received

        def stop_after(calls: int, *command: str) -> None:
            """Press Ctrl-C while the provider has every call wait but so many."""
            most = server.received + calls
            server.refuse = lambda number: status if number > most else None
            (tmp_path / ".stderr").write_text("")  # it has the waits of the command before
            running = launcher.start(command, tmp_path)
            wait_until(lambda: "waiting" in running.errors or running.ended(), what="the wait")
            running.kill(signal.SIGINT)
            stopped = running.end(60)
            assert stopped.code == 130, stopped.err

        stop_after(2, *command, "run")
        stop_after(5, "resume", "run", "--json")
        stop_after(once - 9, "resume", "run", "--json")
        server.refuse = None
        done = launcher.run(("resume", "run", "--json"), tmp_path).json
    assert (done["entries"], done["scores"], done["version"]) == (whole["entries"], whole["scores"], whole["version"])
    assert not [name for name in done["errors"] if "lost" in name]
    assert done["usage"]["calls"] == whole["usage"]["calls"] == once


@pytest.mark.slow
def test_ctrl_c_gives_up_a_repeated_call_that_hangs(tmp_path: Path, launcher: Launcher) -> None:
    write_tasks(tmp_path / "tasks.jsonl", make_tasks(3))
    with gated_server() as server:
        server.refuse = lambda n: 500 if n == 1 else "hang"
        command = (
            "learn",
            "tasks.jsonl",
            "--method",
            "episodes",
            "--online",
            "--model",
            f"{server.url}#sim",
            "--out",
            "run",
        )
        running = launcher.start(command, tmp_path)
        wait_until(lambda: server.received == 2 or running.ended(), what="the second try")
        running.kill(signal.SIGINT)
        assert running.end(60).code == 130


def test_a_second_ctrl_c_leaves_at_once(tmp_path: Path, launcher: Launcher) -> None:
    with gated_server() as server:
        running = _interrupted(launcher, tmp_path, server, 6)
        running.kill(signal.SIGINT)
        stopped = running.end()
    assert stopped.code == 130
    assert stopped.json["error"]["code"] == "run.interrupted"
