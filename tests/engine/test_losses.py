"""What the provider lost: when a loss becomes permanent, and what a resume tries again."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
from helpers import Began, client, context_bytes, make_tasks, number_of, run_command, world, write_tasks
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused
from runs import Memory, indoors

import practicum
from practicum.core.errors import ProviderError, Stopped
from practicum.core.types import Prompt, Task, Trace
from practicum.engine.run import Run
from practicum.models.scripted import Call, ScriptedClient
from practicum.session.records import step_records
from practicum.session.result import INTERRUPTED, Result
from practicum.store.database import Store
from practicum.store.journal import NOTE_ROLE

DOWN = ProviderError("provider.failed", "the server is down")

# ---- the rule, on random programs of nested concurrent jobs

Program = list[Any]
"""What a job does, one after another: "ask", "note", or the programs of concurrent jobs."""

PROGRAMS = st.recursive(
    st.lists(st.sampled_from(["ask", "note"]), max_size=3),
    lambda inner: st.lists(st.sampled_from(["ask", "note"]) | st.lists(inner, min_size=1, max_size=3), max_size=4),
    max_leaves=12,
)


async def execute(program: Program, run: Run) -> str:
    """A text that follows from every result so far; each question holds it, so a result that changed is noticed."""
    state = "so far: "
    for n, item in enumerate(program):
        at = run.at(f"{n}")
        if item == "ask":
            try:
                state += await at.ask_text("agent", Prompt("", f"{at.place}|{state}"))
            except ProviderError:
                state += " lost"
        elif item == "note":
            if at.recall("it") is None:
                at.note("it", state)
            else:
                assert at.recall("it") is None  # it is returned once
        else:
            state += str(await at.gather([(str(j), partial(execute, inner)) for j, inner in enumerate(item)]))
    return state


def sit(
    program: Program, journal: Memory, lost: Callable[[str], bool], calls: int = 10**9, seed: int = 0
) -> str | None:
    """Run a program: the provider loses what it is asked at some places, and a stop comes after so many calls."""
    made, rng = 0, Random(seed)

    class Slow(ScriptedClient):
        async def complete(self, *args: Any) -> Any:
            nonlocal made
            made += 1
            if made == calls:
                run._state.budget.stop(INTERRUPTED)
            for _ in range(rng.randrange(4)):
                await asyncio.sleep(0)
            return await super().complete(*args)

    def respond(call: Call) -> str | Exception:
        return DOWN if lost(call.prompt.user.partition("|")[0]) else f" {number_of(call.prompt.user)}"

    run = indoors(Slow(respond), journal=journal)

    async def go() -> str | None:
        try:
            return await execute(program, run)
        except Stopped:
            return None

    return practicum.run_sync(go())


def rests_on(later: str, lost: str) -> bool:
    """Whether work at one place comes after work at another: where they part, they are not jobs of one gather."""
    for depth, (a, b) in enumerate(zip(later.split("/"), lost.split("/"), strict=False)):
        if a != b:
            return depth % 2 == 0 and int(a) > int(b)
    return False


@given(PROGRAMS, st.randoms(use_true_random=False), st.integers(1, 12), st.integers(0, 99))
def test_a_loss_is_permanent_once_something_rests_on_it_and_only_then(
    program: Program, rng: Random, calls: int, seed: int
) -> None:
    down = Random(rng.random())
    lost: dict[str, bool] = {}
    first = Memory()
    ended = sit(program, first, lambda place: lost.setdefault(place, down.random() < 0.4), calls, seed)
    kept = {place.removesuffix("/agent") for place, row in first.rows.items() if not row.ok}
    answers = [place.removesuffix("/agent") for place, row in first.rows.items() if row.ok and row.role != NOTE_ROLE]
    for place in (place for place, failed in lost.items() if failed):
        assert (place in kept) == any(rests_on(answer, place) for answer in answers)
    # A resume with a healthy provider ends as a run that lost just that.
    resumed = sit(program, Memory(first.rows), lambda place: False, seed=seed + 1)
    assert resumed == sit(program, Memory(), lambda place: place in kept)
    assert ended is None or kept or ended == resumed or any(lost.values())


# ---- runs

ACE: dict[str, Any] = {"method": "ace", "settings": {"batch": 4, "rounds": 0}, "temperature": 0.0}
FLOW: dict[str, Any] = {**ACE, "method": "combee", "settings": {"asynchronous": True, "batch": 2, "rounds": 0}}


def learn(folder: Path, model: ScriptedClient, watch: Any = None, **config: Any) -> Result:
    parts = practicum.Parts(clients={"agent": model})
    return practicum.run_sync(practicum.learn(make_tasks(12), out=folder, parts=parts, watch=watch, **config))


def resume(folder: Path, model: ScriptedClient) -> Result:
    return practicum.run_sync(practicum.resume(folder, parts=practicum.Parts(clients={"agent": model})))


def state_of(folder: Path) -> str:
    with sqlite3.connect(folder / "run.sqlite") as db:
        (found,) = db.execute("select state from runs").fetchone()
    db.close()
    return str(found)


def learned_from(result: Result) -> set[str]:
    """The tasks that were reflected on."""
    with Store.read(result.run) as store:
        return {x.sources[0] for _, _, lessons in step_records(store) for x in lessons if x.text}


def losing(*words: str, role: str = "agent") -> Callable[[Call], str | Exception]:
    """The provider fails whatever holds one of these words."""
    return lambda call: DOWN if call.role == role and any(w in call.prompt.user for w in words) else world(call)


@pytest.mark.parametrize("how", [ACE, FLOW, {**ACE, "method": "episodes", "settings": {"batch": 4, "online": True}}])
def test_what_was_lost_while_the_user_stops_the_run_is_tried_again(tmp_path: Path, how: dict[str, Any]) -> None:
    """Two attempts fail, their siblings are answered, and the stop comes before anything rests on them."""

    class Stopping(Began):
        done = 0

        def attempted(self, task: Task, trace: Trace) -> None:
            self.done += 1
            if trace.lost:
                self.runs[0].budget.stop(INTERRUPTED)

    cut = learn(tmp_path / "run", client(losing("word3", "word7", "word11")), Stopping(), **how)
    assert cut.interrupted
    again = resume(tmp_path / "run", client())
    assert again.errors.get("lost_attempts", 0) == 0
    assert len(learned_from(again)) == 12
    if how is not FLOW:  # there, answers that the journal has arrive earlier
        assert context_bytes(again) == context_bytes(learn(tmp_path / "whole", client(), **how))


@pytest.mark.parametrize("how", [ACE, FLOW], ids=["sequential", "without a barrier"])
def test_an_outage_that_ends_the_run_is_tried_again(tmp_path: Path, how: dict[str, Any]) -> None:
    """Attempts were answered while the reflector was down: those count where the context stays as it was."""
    healthy = 2

    def falling(call: Call) -> str | Exception:
        nonlocal healthy
        if call.role == "reflector":
            healthy -= 1
        return DOWN if call.role == "reflector" and healthy < 0 else world(call)

    tasks = {"settings": {**how["settings"], "batch": 2}}
    with refused("attempts.all_failed"):
        learn(tmp_path / "run", client(falling), **{**how, **tasks})
    whole = learn(tmp_path / "whole", client(), **{**how, **tasks})
    again = resume(tmp_path / "run", client())
    assert not [name for name in again.errors if name.startswith("lost_")]
    assert len(learned_from(again)) == 12
    if how is ACE:
        assert context_bytes(again) == context_bytes(whole)
    silent = client()
    assert context_bytes(resume(tmp_path / "run", silent)) == context_bytes(again)
    assert silent.calls == []


@pytest.mark.parametrize("when", ["test", "before"])
def test_what_the_provider_lost_in_an_evaluation_stops_the_run_and_is_tried_again(tmp_path: Path, when: str) -> None:
    how: dict[str, Any] = {**ACE, "test": make_tasks(6, 50), "before": True}
    seen: list[str] = []

    def failing(call: Call) -> str | Exception:
        asked = call.prompt.user
        seen.append(asked)
        held_out = call.role == "agent" and "word52" in asked
        return DOWN if held_out and (seen.count(asked) == 1) == (when == "before") else world(call)

    cut = learn(tmp_path / "run", client(failing), **how)
    assert cut.stopped == "the provider failed at the end: 1 call was lost (the server is down)"
    assert (state_of(tmp_path / "run"), cut.cut_short) == ("stopped", True)
    whole = learn(tmp_path / "whole", client(), **how)
    again = resume(tmp_path / "run", client())
    assert (state_of(tmp_path / "run"), again.stopped) == ("done", None)
    assert (context_bytes(again), again.scores) == (context_bytes(whole), whole.scores)


def test_a_task_that_the_provider_never_answers_does_not_keep_a_run_from_ending(tmp_path: Path) -> None:
    how: dict[str, Any] = {**ACE, "test": make_tasks(6, 50)}
    refusing = losing("word52")
    assert learn(tmp_path / "run", client(refusing), **how).cut_short
    done = resume(tmp_path / "run", client(refusing))
    assert (state_of(tmp_path / "run"), done.stopped, done.errors["lost_attempts"]) == ("done", None, 1)
    silent = client()
    assert resume(tmp_path / "run", silent).errors["lost_attempts"] == 1
    assert silent.calls == []


def test_the_command_line_says_how_many_calls_were_lost_and_ends_with_1(tmp_path: Path) -> None:
    write_tasks(tmp_path / "tasks.jsonl", make_tasks(4))
    write_tasks(tmp_path / "test.jsonl", make_tasks(3, 50))
    rules = [{"match": "word51", "error": "503"}, {"role": "agent", "answer": "word1"}, {"answer": {}}]
    (tmp_path / "script").write_text("\n".join(map(json.dumps, rules)))
    how = ("--method", "episodes", "--model", "scripted:script", "--test", "test.jsonl", "--out", "run")
    done = run_command(("learn", "tasks.jsonl", *how), tmp_path)
    assert done.code == 1
    assert "Stopped early: the provider failed at the end: 1 call was lost" in done.out
    assert "Continue with: practicum resume run" in done.out
