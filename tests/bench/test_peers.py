"""bench/peers/run.py: calls are counted for all alike, the budget is hard, and differences are claimed as elsewhere."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from aiohttp import ClientSession

from practicum.core.types import Task
from practicum.testing import ServerOptions, serve, start_process

RUN = Path(__file__).parents[2] / "bench" / "peers" / "run.py"
ASKED = {"model": "sim", "messages": [{"role": "user", "content": "Which team takes this?"}]}


@pytest.fixture(scope="module")
def run() -> ModuleType:
    spec = importlib.util.spec_from_file_location("peers_run", RUN)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["peers_run"] = module  # where dataclasses look for the types of their fields
    spec.loader.exec_module(module)
    return module


async def post(url: str, body: Any) -> tuple[int, Any]:
    async with ClientSession() as session, session.post(url, json=body) as reply:
        return reply.status, await reply.json()


@pytest.mark.slow
def test_the_proxy_counts_what_the_model_did_and_ends_learning_with_the_budget(run: ModuleType) -> None:
    async def calls() -> tuple[Any, ...]:
        async with serve(ServerOptions()) as server:
            proxy = run.CountingProxy(server.url, budget=2)
            async with proxy.serving():
                learning, testing = (f"{proxy.address(stage)}/chat/completions" for stage in ("learning", "testing"))
                replies = [await post(learning, ASKED) for _ in range(3)]
                tested = [await post(testing, ASKED) for _ in range(4)]
                streamed, _ = await post(testing, {**ASKED, "stream": True})
            return replies, tested, streamed, proxy, server.stats()

    replies, tested, streamed, proxy, stats = asyncio.run(calls())
    assert [status for status, _ in replies] == [200, 200, 429]
    assert replies[2][1]["error"]["message"] == "the budget of 2 calls to learn is spent"
    assert [status for status, _ in tested] == [200] * 4
    assert streamed == 400
    learned = proxy.stages["learning"]
    assert (learned.calls, learned.refused, proxy.stages["testing"].calls) == (2, 1, 4)
    for counted, name in (("prompt", "prompt_tokens"), ("cached", "cached_tokens"), ("output", "output_tokens")):
        assert sum(getattr(stage, counted) for stage in proxy.stages.values()) == stats[name]


@pytest.mark.slow
def test_answers_are_scored_by_the_choice_they_name_and_differences_claimed_by_task(
    run: ModuleType, tmp_path: Path
) -> None:
    tasks = [Task(f"t{n}", "?", "Basalt" if n % 2 else "Cobalt") for n in range(20)]
    answers: dict[str, Callable[[Task], str]] = {
        "right": lambda task: f"It is {task.target}.",
        "wrong": lambda task: "Basalt or Cobalt",
    }
    runs = {}
    for name, answer in answers.items():
        file = tmp_path / f"{name}.jsonl"
        file.write_text("".join(json.dumps({"id": task.id, "answer": answer(task)}) + "\n" for task in tasks))
        scores = run.scores_of(file, tasks, ("Basalt", "Cobalt"))
        costs = {"learning": run.asdict(run.Stage(calls=7)), "testing": run.asdict(run.Stage(calls=40, prompt=900))}
        runs[name] = [{"scores": scores, "costs": costs, "wall": 2.0, "failed": None}]
    runs["broken"] = [{"scores": {}, "costs": costs, "wall": 1.0, "failed": "exit code 1: no module"}]
    lines, values = run.table(runs, "wrong")
    assert (values["right"]["score"], values["wrong"]["score"], values["broken"]["score"]) == (1.0, 0.0, None)
    claim = values["right"]["claim"]
    assert (claim["difference"]["effect"], claim["verdict"]) == (1.0, "runs higher")
    assert values["wrong"]["claim"] is None
    assert "| 2 | 45 (0), 0 |" in lines[2]  # calls and tokens a test task
    assert "none: exit code 1: no module" in lines[4]


@pytest.mark.slow
def test_methods_are_measured_once_and_one_that_breaks_is_named(
    run: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    train, test = tmp_path / "train.jsonl", tmp_path / "test.jsonl"
    for file, n in ((train, 4), (test, 3)):
        lines = [json.dumps({"input": f"{file.stem} {i}", "target": "Basalt"}) + "\n" for i in range(n)]
        file.write_text("".join(lines))
    monkeypatch.setitem(run.PEERS, "broken", run.Peer("with_nothing", "any"))
    methods = "practicum:episodes,practicum:none,broken"
    with start_process() as server:
        given = [
            "--model",
            f"{server.url}#sim",
            "--train",
            str(train),
            "--test",
            str(test),
            "--out",
            str(tmp_path / "o"),
        ]
        given += ["--instructions", "Route it.", "--choices", "Basalt,Cobalt", "--methods", methods, "--json"]
        run.main(given)
        calls = server.stats()["calls"]
        first = json.loads(capsys.readouterr().out.splitlines()[-1])["result"]
        run.main(given)
        again = json.loads(capsys.readouterr().out.splitlines()[-1])["result"]
        assert server.stats()["calls"] == calls
    assert again == first
    assert (first["practicum:episodes"]["learning"]["calls"], first["practicum:episodes"]["testing"]["calls"]) == (0, 3)
    assert (first["practicum:none"]["learning"]["calls"], first["practicum:none"]["score"]) == (0, 0.0)
    assert first["broken"]["failed"][0].startswith("exit code 2")
