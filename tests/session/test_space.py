"""A run in a program: what is shown is what training showed, reports are kept and learned from, and work queues."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from refusals import refused
from runs import Words
from scripts import added, insight, learned, memory, nothing, number, right, scripted, shape

import practicum
from practicum.core.errors import ProviderError, StoreError
from practicum.models.scripted import Call, ScriptedClient
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


# ---- versions


# ---- reports


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
