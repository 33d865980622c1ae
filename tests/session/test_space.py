"""A run in a program: what is shown is what training showed, reports are kept and learned from, and work queues."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers import make_tasks
from refusals import refused
from runs import Words
from scripts import added, insight, learned, memory, nothing, number, right, scripted, shape

import practicum
from practicum.core.errors import ProviderError, StoreError
from practicum.models.scripted import Call, ScriptedClient
from practicum.retrieval.vectors import WordLlama
from practicum.session.forget import forget
from practicum.session.outcomes import waiting_outcomes
from practicum.session.records import load_context
from practicum.store.database import Store


def reflecting(call: Call) -> dict[str, Any]:
    if shape(call) == "Sheet":
        return {"sheet": f"Message {number(call)} was seen."}
    if shape(call) == "Memories":
        return memory(f"message {number(call)}")
    return {**insight(call), "reflection": f"Say word{number(call)}."}


def curating(call: Call) -> dict[str, Any]:
    if shape(call) == "Sheet":
        return {"sheet": f"Message {number(call)} was seen."}
    return {"points": ["If in doubt, look."]} if shape(call) == "Summary" else added(call)


def model(
    agent: Any = right, reflector: Any = reflecting, judge: Any = nothing, curator: Any = curating
) -> ScriptedClient:
    return scripted(agent, reflector, curator, judge=judge)


def a_run(folder: Path, method: str = "episodes", tasks: int = 3, agent: Any = right, **settings: Any) -> Path:
    return learned(folder, model(agent), tasks, settings, method, parts={"embedder": Words()}).folder


def opened(run: Any, client: ScriptedClient | None = None, version: Any = None, **how: Any) -> practicum.Space:
    parts = practicum.Parts(clients={"agent": client or model()}, embedder=Words())
    return practicum.open(run, version, parts=parts, **how)


def run_in_space(run: Any, work: Any, client: ScriptedClient | None = None, **how: Any) -> Any:
    async def inside() -> Any:
        async with opened(run, client, **how) as space:
            return await work(space)

    return practicum.run_sync(inside())


def outcomes(run: Path) -> list[tuple[dict[str, Any], int | None]]:
    with sqlite3.connect(run / "run.sqlite") as db:
        rows = db.execute("select data, step from outcomes order by id").fetchall()
    db.close()
    return [(json.loads(data), step) for data, step in rows]


# ---- what is shown


def test_a_sheet_that_is_written_for_each_query_asks_for_it_and_a_network_is_refused(tmp_path: Path) -> None:
    run = a_run(tmp_path / "sheet", "dynamic_cheatsheet", form="synthesis")
    asked = model()
    text = run_in_space(run, lambda space: space.context_for("Message 7: say word7"), asked).text
    assert text.split("\n")[-2] == "Message 7 was seen."
    assert [call.role for call in asked.calls] == ["curator"]
    with refused("method.unsuitable"):
        run_in_space(run, lambda space: space.context_for("Message 7: say word7"), method="mael")


def test_the_messages_are_those_of_the_chat_agent(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    seen = model()
    shown = run_in_space(run, lambda space: space.context_for("Message 1: say what?"))
    run_in_space(run, lambda space: space.ask("Message 1: say what?"), seen)
    prompt = seen.calls[0].prompt
    turns = [(turn.user, turn.assistant) for turn in prompt.turns]
    assert [(turn.user, turn.assistant) for turn in shown.turns] == turns
    assert shown.messages == [
        *(
            {"role": role, "content": text}
            for turn in turns
            for role, text in zip(("user", "assistant"), turn, strict=True)
        ),
        {"role": "user", "content": prompt.user},
    ]


def test_a_function_that_was_trained_is_not_needed_to_be_shown_something(tmp_path: Path) -> None:
    def own(input: str, context: str) -> str:
        return input.split()[-1]

    work = practicum.learn(
        make_tasks(2), method="episodes", out=tmp_path / "run", parts=practicum.Parts(agent=own, embedder=Words())
    )
    run = practicum.run_sync(work).run

    async def use(space: practicum.Space) -> practicum.Result:
        shown = await space.context_for("Message 1: say what?")
        await space.report(shown, answer="no", score=False, correction="word1", trust="own")
        return await space.learn()

    assert run_in_space(run, use).steps == 1
    assert run_in_space(run, lambda space: space.context_for("Message 1")).turns[-1].assistant == "word1"


# ---- versions


def test_what_is_forgotten_is_shown_no_more(tmp_path: Path) -> None:
    run = a_run(tmp_path)

    async def use(space: practicum.Space) -> None:
        shown = await space.context_for("Message 1: say the forbidden fruit")
        assert "say word1" in shown.text
        await space.report(shown, answer="no such thing at all", score=0, trust="own")
        with Store.open(run) as store:
            assert forget(store, store.run_id, tasks=["t1"]).left == 0
        assert "say word1" not in (await space.context_for("Message 1")).text
        with Store.open(run) as store:
            assert forget(store, store.run_id, tasks=[shown.id]).left == 0
        with refused("interaction.unknown"):
            await space.report(shown.id, score=1.0)

    run_in_space(run, use)
    assert not any(b"forbidden fruit" in path.read_bytes() for path in run.iterdir())


# ---- reports


def test_reports_wait_in_the_order_of_asking_whatever_the_clock_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, true = a_run(tmp_path), time.time_ns

    async def work(space: practicum.Space) -> list[str]:
        asked = list[str]()
        for hours in range(3):
            monkeypatch.setattr(time, "time_ns", lambda hours=hours: true() - hours * 3_600 * 10**9)
            asked.append((await space.context_for(f"Message {hours}: say it")).id)
            await space.report(asked[-1], answer="word", score=1.0, trust="own")
        return asked

    asked = run_in_space(run, work)
    with Store.read(run) as store:
        assert [outcome.id for outcome in waiting_outcomes(store)] == asked


def test_reports_vote_on_what_was_shown_and_are_judged_where_nobody_scored(tmp_path: Path) -> None:
    run = a_run(tmp_path, "ace")
    used = next(iter(load_context(run))).id

    async def use(space: practicum.Space) -> practicum.Result:
        shown = await space.context_for("Message 8: say it")
        await space.report(
            shown, answer={"answer": "word8", "used": [used, "e77"], "steps": [{"text": "looked"}]}, score=1
        )
        unscored = await space.context_for("Message 9: say it")
        await space.report(unscored, answer="word9", trust="own")
        return await space.learn()

    asked = model(judge=lambda call: {"right": True, "reason": "as asked"})
    result = run_in_space(run, use, asked)
    assert (result.steps, result.context.get(used).uses) == (2, 1)
    assert [call.role for call in asked.calls].count("judge") == 1
    assert "word9" in next(call.text for call in asked.calls if call.role == "judge")
    assert not [call for call in asked.calls if call.role == "agent"]


@pytest.mark.parametrize("method", ["ace", "combee", "rcl", "reasoning_bank", "unified", "expel", "reflexion", "top_k"])
def test_methods_learn_from_reports_whatever_their_run_tried_again(tmp_path: Path, method: str) -> None:
    run = a_run(tmp_path, method, 2)

    async def use(space: practicum.Space) -> practicum.Result:
        for n in (8, 9):
            shown = await space.context_for(f"Message {n}: say word{n}")
            await space.report(
                shown, answer=f"word{n}" if method == "expel" else "no", score=method == "expel", trust="own"
            )
        return await space.learn()

    result = run_in_space(run, use)
    assert result.context.version > load_context(run, 0).version
    assert any(source.startswith("task:q") for entry in result.context for source in entry.sources)


def test_what_an_interruption_left_is_learned_from_and_paid_for_once(tmp_path: Path) -> None:
    run = a_run(tmp_path, "ace")

    def failing(call: Call) -> dict[str, Any] | Exception:
        return ProviderError("provider.failed", "down") if "message 9" in call.prompt.user else curating(call)

    async def report(space: practicum.Space, numbers: Iterator[int]) -> None:
        for n in numbers:
            shown = await space.context_for(f"Message {n}: say word{n}")
            await space.report(shown, answer="no", correction=f"word{n}", score=0, trust="own")

    async def cut(space: practicum.Space) -> None:
        await report(space, iter(range(8, 11)))
        with refused("attempts.all_failed"):
            await space.learn()

    async def go_on(space: practicum.Space) -> practicum.Result:
        await report(space, iter([11]))
        return await space.learn()

    first, rest = model(curator=failing), model()
    run_in_space(run, cut, first)
    assert [step for _, step in outcomes(run)] == [4, None, None]
    result = run_in_space(run, go_on, rest)
    # The reflection on message 9 is in the journal, its curation is not.
    assert [number(call) for call in rest.calls if call.role == "reflector"] == [10, 11]
    assert [call.role for call in rest.calls].count("curator") == 3
    assert (result.steps, result.hits) == (3, 1)
    assert [step for _, step in outcomes(run)] == [4, 5, 6, 7]


# ---- at the same time


def test_queries_that_are_learned_from_at_once_are_steps_one_after_the_other(tmp_path: Path) -> None:
    run = a_run(tmp_path)

    async def use(space: practicum.Space) -> list[practicum.Answered]:
        asked = (f"Message {n}: say word{n}" for n in range(20, 24))
        parts = practicum.Parts(clients={"agent": model()}, embedder=Words())
        alone = practicum.ask("Message 30: say word30", run, learn=True, target="word30", parts=parts)
        return [*await asyncio.gather(*(space.ask(q, learn=True, target=q.split()[-1]) for q in asked), alone)]

    made = run_in_space(run, use)
    assert [answered.learned.step for answered in made] == [4, 5, 6, 7, 8]
    assert [answered.learned.context.version for answered in made] == [4, 5, 6, 7, 8]


def test_what_is_done_is_shown_while_the_run_is_learned_from(tmp_path: Path) -> None:
    run = a_run(tmp_path, "ace")

    async def use(space: practicum.Space) -> None:
        reflecting_on, answer = asyncio.Event(), asyncio.Event()

        class Slow(ScriptedClient):
            async def complete(self, role: str, *asked: Any) -> Any:
                if role == "reflector":
                    reflecting_on.set()
                    await answer.wait()
                return await super().complete(role, *asked)

        learning = practicum.open(
            run, parts=practicum.Parts(clients={"agent": Slow(model().respond)}, embedder=Words())
        )
        async with learning:
            shown = await space.context_for("Message 8: say it")
            await space.report(shown, answer="no", score=0, trust="own")
            learner = asyncio.create_task(learning.learn())
            await reflecting_on.wait()
            during = await space.context_for("Message 8: say it")
            await space.report(during, answer="nor this", score=0, trust="own")
            answer.set()
            result = await learner
        assert (during.version, result.context.version) == (3, 4)
        assert (await space.context_for("Message 8: say it")).version == 4
        # What was reported meanwhile is learned from next.
        assert [step for _, step in outcomes(run)][:2] == [4, None]

    run_in_space(run, use)


@pytest.mark.slow
def test_threads_share_a_space(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    space, found = opened(run), dict[int, str]()

    def work(n: int) -> None:
        async def use() -> None:
            for _ in range(5):
                shown = await space.context_for(f"Message {n}: say what?")
                await space.report(shown, answer=f"word{n}", score=1, trust="own")
            await space.ask(f"Message {n}: say word{n}", learn=True, target=f"word{n}")
            found[n] = shown.text

        practicum.run_sync(use())

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [0, 1, 2, 3]
    assert len(outcomes(run)) == 20
    result = practicum.run_sync(space.learn())
    practicum.run_sync(space.close())
    assert (result.steps, result.context.version) == (20, load_context(run).version)


def test_another_writer_is_named_or_waited_for(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    other = Store.open(run)

    async def use(space: practicum.Space) -> None:
        shown = await space.context_for("Message 8: say it")
        await space.report(shown, answer="word8", score=1, trust="own")
        with refused("store.busy"):
            await space.learn()
        async with opened(run, wait=60) as patient:
            learner = asyncio.create_task(patient.learn())
            await asyncio.sleep(0)
            other.close()
            assert (await learner).steps == 1

    try:
        run_in_space(run, use)
    finally:
        other.close()


def test_what_cannot_be_written_is_kept_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = a_run(tmp_path, tasks=1)

    def full(store: Store, statements: Any) -> None:
        raise StoreError("store.unwritable", "the disk is full")

    async def use(space: practicum.Space) -> None:
        with monkeypatch.context() as broken:
            broken.setattr(Store, "execute_all", full)
            shown = await space.context_for("Message 8: say it")
            with refused("store.unwritable"):
                await space.report(shown.id, score=1)
        await space.report(shown.id, score=1)

    with pytest.warns(RuntimeWarning, match="the disk is full; what is shown is kept in memory"):
        run_in_space(run, use)
    assert [data["score"]["value"] for data, _ in outcomes(run)] == [1.0]


# ---- real processes

SERVICE = """
import os, signal, sys
import practicum

async def use():
    space = practicum.open(sys.argv[1])
    shown = await space.context_for("Message 8: say it")
    await space.report(shown, answer="word8", score=1.0, trust="own")
    print(shown.id, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

practicum.run_sync(use())
"""


@pytest.mark.slow
def test_a_report_survives_a_kill_beside_a_writer_and_its_version_is_seen_elsewhere(tmp_path: Path) -> None:
    run = learned(tmp_path, model(), 3, {}, "episodes", parts={"embedder": WordLlama()}).folder
    with Store.open(run):
        done = subprocess.run([sys.executable, "-c", SERVICE, str(run)], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    learn = "import practicum,sys; print(practicum.run_sync(practicum.open(sys.argv[1], model='local').learn()).steps)"

    async def use() -> None:
        async with practicum.open(run) as space:
            before = await space.context_for("Message 8: say it")
            other = await asyncio.to_thread(
                subprocess.run, [sys.executable, "-c", learn, str(run)], capture_output=True, text=True, check=True
            )
            assert other.stdout.strip() == "1"
            after = await space.context_for("Message 8: say it")
            assert (before.version, after.version) == (3, 4)
            assert after.turns[-1].assistant == "word8"

    practicum.run_sync(use())


DYING = """
import sys
sys.path.insert(0, sys.argv[2])
from kills import kill_before
from test_space import model, opened
import practicum

kill_before("journal", "'curator'", 2)
practicum.run_sync(opened(sys.argv[1]).learn())
"""


@pytest.mark.slow
def test_learning_that_was_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    run = a_run(tmp_path, "ace")

    async def report(space: practicum.Space) -> None:
        for n in (8, 9, 10):
            shown = await space.context_for(f"Message {n}: say word{n}")
            await space.report(shown, answer="no", score=0, trust="own")

    run_in_space(run, report)
    here = Path(__file__).parent
    path = [str(here), *sys.path]
    done = subprocess.run(
        [sys.executable, "-c", DYING, str(run), str(here.parent / "support")],
        capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert [step for _, step in outcomes(run)] == [4, None, None]
    rest = model()
    result = run_in_space(run, lambda space: space.learn(), rest)
    assert (result.steps, result.hits) == (2, 1)
    assert [call.role for call in rest.calls] == ["curator", "reflector", "curator"]
