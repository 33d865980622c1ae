"""Calls in batches, through the batch APIs of OpenAI and Anthropic of the simulated server."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from dying import KILLED, in_child
from helpers import asynchronous, context_bytes, make_tasks
from needs import needs
from pydantic_ai.exceptions import ModelHTTPError
from refusals import refused

import practicum
from practicum.core.types import Usage
from practicum.models import batches, provider
from practicum.models.client import Wait
from practicum.models.failures import classify
from practicum.models.prices import list_price
from practicum.session.result import INTERRUPTED, Evaluation, RunInfo, Watch
from practicum.testing import ServerOptions, ServerProcess, SimulatedServer, serve, start_process

MODELS = ("openai:gpt-4.1-mini", "anthropic:claude-haiku-4-5")
TASKS = make_tasks(6)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits of a real run, shortened."""
    monkeypatch.setattr(batches, "QUIET", 0.05)
    monkeypatch.setattr(batches, "FIRST_CHECK", 0.01)
    monkeypatch.setattr(provider, "_pause", lambda error, tries: 0.0)
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


def environment(url: str) -> dict[str, str]:
    return {
        "OPENAI_BASE_URL": url, "OPENAI_API_KEY": "sk-test", "ANTHROPIC_BASE_URL": url.removesuffix("/v1"),
        "ANTHROPIC_API_KEY": "sk-test",
    }  # fmt: skip


def at(server: SimulatedServer | ServerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment(server.url).items():
        monkeypatch.setenv(name, value)


def created(server: SimulatedServer) -> int:
    """The number of batches that were created."""
    paths = ("/v1/batches", "/v1/messages/batches")
    return len([one for one in server.requests if one.path in paths and one.body])


@pytest.mark.parametrize("model", MODELS)
@asynchronous
async def test_learning_in_batches_is_the_same_for_half_the_price(
    model: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    needs("anthropic")
    how: dict[str, Any] = {"model": model, "test": TASKS[4:], "settings": {"rounds": 0, "batch": 2}}
    async with serve() as server:
        at(server, monkeypatch)
        plain = await practicum.learn(TASKS[:4], out=tmp_path / "plain", **how)
        received = server.stats()["received"]
        server.reset()
        batched = await practicum.learn(TASKS[:4], out=tmp_path / "batched", batch_api=True, **how)
        assert server.stats()["received"] == received
        # Each of the two steps has a batch of attempts, one of reflections and one or more of edits, then the test.
        assert created(server) <= received / 2 + 2
        assert not [one for one in server.requests if one.path in ("/v1/responses", "/v1/messages")]
    assert context_bytes(batched) == context_bytes(plain)
    assert batched.scores == plain.scores
    assert batched.usage.tokens == plain.usage.tokens
    provider, name = model.split(":")
    assert batched.usage.usd == pytest.approx(list_price(name, provider, batch=True)(batched.usage))
    million = Usage(1, 1_000_000, 0, 1_000_000)
    assert list_price(name, provider, batch=True)(million) == list_price(name, provider)(million) / 2


class Waited(Watch):
    """Watch of waits. At the wait for batch number `end`, from 1, it calls `at_end`."""

    def __init__(self, end: int = 0) -> None:
        self.end = end
        self.waits: list[Wait] = []
        self.run: RunInfo | None = None

    def began(self, run: RunInfo) -> None:
        self.run = run

    def waiting(self, wait: Wait) -> None:
        self.waits.append(wait)
        if len({wait.reason for wait in self.waits if wait.reason}) == self.end > 0:
            self.at_end()

    def at_end(self) -> None:
        """Stop the run, as Ctrl-C does."""
        assert self.run is not None
        self.run.budget.stop(INTERRUPTED)


class Killing(Waited):
    def at_end(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


async def evaluated(out: Path, model: str = MODELS[0], **more: Any) -> Evaluation:
    return await practicum.evaluate(TASKS, practicum.Context(), out=out, model=model, batch_api=True, **more)


@pytest.mark.parametrize("model", MODELS)
@asynchronous
async def test_an_evaluation_is_one_batch_and_shows_it(
    model: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    needs("anthropic")
    watch = Waited()
    async with serve(ServerOptions(batch_checks=2)) as server:
        at(server, monkeypatch)
        evaluation = await evaluated(tmp_path / "eval", model, watch=watch, concurrency=1)
        assert created(server) == 1
    assert evaluation.n == len(TASKS)
    assert {wait.batch for wait in watch.waits if wait.reason} == {len(TASKS)}


@pytest.mark.parametrize("model", MODELS)
@asynchronous
async def test_expired_requests_are_sent_again_and_refused_ones_are_lost(
    model: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    needs("anthropic")
    behaviours = [("expire", 4), ("content-filter", "word2"), ("refuses-temperature", 1)]
    async with serve(ServerOptions(behaviours=behaviours)) as server:
        at(server, monkeypatch)
        evaluation = await evaluated(tmp_path / "eval", model)
        received = server.stats()["received"]
        again = await evaluated(tmp_path / "eval", model)
        assert server.stats()["received"] == received
    errors = {attempt.task.id for attempt in evaluation.attempts if attempt.first.trace.error}
    assert errors == {"t2"}
    assert evaluation.counts["filtered_requests"] == 1
    assert again.attempts == evaluation.attempts


@pytest.mark.slow
@pytest.mark.parametrize("number", [1, 3])
@pytest.mark.parametrize("model", MODELS)
def test_a_run_that_is_killed_during_a_batch_collects_it_and_sends_nothing_again(
    model: str, number: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, store_url: str | None
) -> None:
    needs("anthropic")
    how: dict[str, Any] = {"model": model, "settings": {"rounds": 0, "batch": 2}, "batch_api": True, "store": store_url}
    with start_process(batch_checks=1) as server:
        at(server, monkeypatch)
        whole = asyncio.run(practicum.learn(TASKS[:4], out=tmp_path / "whole", **how))
        sent = server.stats()
        server.reset()

        def killed() -> None:
            asyncio.run(practicum.learn(TASKS[:4], out=tmp_path / "cut", watch=Killing(number), **how))

        assert in_child(killed) is KILLED
        resumed = asyncio.run(practicum.resume(tmp_path / "cut"))
        counts = ("calls", "received", "repeats", "prompt_tokens", "output_tokens")
        assert {name: server.stats()[name] for name in counts} == {name: sent[name] for name in counts}
    assert context_bytes(resumed) == context_bytes(whole)
    assert (resumed.usage.calls, resumed.usage.tokens) == (whole.usage.calls, whole.usage.tokens)
    assert resumed.errors == whole.errors


@asynchronous
async def test_a_stopped_evaluation_leaves_its_batch_and_collects_it_later(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with serve(ServerOptions(batch_checks=1)) as server:
        at(server, monkeypatch)
        stopped = await evaluated(tmp_path / "eval", watch=Waited(1))
        assert (stopped.stopped, stopped.usage.calls, stopped.n) == (INTERRUPTED, 0, 0)
        assert stopped.counts == {"left_in_batches": len(TASKS)}
        # The timeout of a call, other checks and another concurrency do not change the requests.
        evaluation = await evaluated(tmp_path / "eval", timeout=1.0)
        assert (evaluation.n, evaluation.usage.calls, evaluation.counts) == (len(TASKS), len(TASKS), {})
        assert (server.stats()["received"], created(server)) == (len(TASKS), 1)


@asynchronous
async def test_a_batch_that_the_provider_no_longer_has_is_sent_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with serve(ServerOptions(batch_checks=1)) as server:
        at(server, monkeypatch)
        await evaluated(tmp_path / "eval", watch=Waited(1))
        server.reset()
        evaluation = await evaluated(tmp_path / "eval")
        assert (evaluation.n, server.stats()["received"]) == (len(TASKS), len(TASKS))


@asynchronous
async def test_cancelled_requests_are_sent_again_by_the_next_command_only(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from pydantic_ai.models.batch import BatchResult
    from pydantic_ai.models.openai import OpenAIResponsesModel

    read = OpenAIResponsesModel.batch_results

    async def cancelled(model: OpenAIResponsesModel, batch: Any) -> list[BatchResult]:
        return [BatchResult(custom_id=one.custom_id, status="canceled") for one in await read(model, batch)]

    async with serve() as server:
        at(server, monkeypatch)
        with monkeypatch.context() as patch, refused("attempts.all_failed"):
            patch.setattr(OpenAIResponsesModel, "batch_results", cancelled)
            await evaluated(tmp_path / "eval")
        assert created(server) == 1
        assert (await evaluated(tmp_path / "eval")).n == len(TASKS)


def test_a_batch_that_exceeds_the_queue_of_the_account_is_tried_again() -> None:
    error = ModelHTTPError(400, "m", {"errors": [{"code": "token_limit_exceeded", "message": "Enqueued token limit"}]})
    assert classify(error).kind == "transient"


@asynchronous
async def test_failed_checks_are_repeated_and_never_send_a_request_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from pydantic_ai.models.openai import OpenAIResponsesModel

    check, failures = OpenAIResponsesModel.batch_status, 3

    async def failing(model: OpenAIResponsesModel, batch: Any) -> Any:
        nonlocal failures
        failures -= 1
        if failures >= 0:
            raise ModelHTTPError(503, model.model_name)
        return await check(model, batch)

    monkeypatch.setattr(OpenAIResponsesModel, "batch_status", failing)
    async with serve() as server:
        at(server, monkeypatch)
        assert (await evaluated(tmp_path / "first")).n == len(TASKS)
        failures = 100
        monkeypatch.setattr(batches, "FAILED_CHECKS", 1)
        with refused("attempts.all_failed"):
            await evaluated(tmp_path / "second")
        failures = 0
        assert (await evaluated(tmp_path / "second")).n == len(TASKS)
        assert (server.stats()["received"], created(server)) == (2 * len(TASKS), 2)


@pytest.mark.slow
@asynchronous
async def test_runs_of_a_comparison_share_batches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    how: dict[str, Any] = {"methods": ("ace", "combee"), "seeds": 2, "model": MODELS[0], "test": TASKS[4:]}
    async with serve() as server:
        at(server, monkeypatch)
        plain = await practicum.compare(TASKS[:4], out=tmp_path / "plain", **how)
        received = server.stats()["received"]
        server.reset()
        batched = await practicum.compare(TASKS[:4], out=tmp_path / "batched", batch_api=True, **how)
        assert (server.stats()["received"], created(server) < received) == (received, True)
    scores = [[variant["score"] for variant in each.report["variants"]] for each in (plain, batched)]
    assert scores[0] == scores[1]


@asynchronous
async def test_batches_stay_within_the_budget(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async with serve() as server:
        at(server, monkeypatch)
        evaluation = await evaluated(tmp_path / "eval", max_calls=4)
        assert (evaluation.usage.calls, server.stats()["received"], created(server)) == (4, 4, 1)
    assert evaluation.stopped


@asynchronous
async def test_batches_are_refused_where_they_make_no_sense(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    for model in ("http://127.0.0.1:1/v1#m", "local", "scripted:answers.json", "openai-chat:gpt-4.1-mini"):
        with refused("settings.conflict", setting="batch_api"):
            await evaluated(tmp_path / "eval", model)
    with refused("settings.conflict", setting="batch_api"):
        await evaluated(tmp_path / "eval", roles={"agent": "groq:llama"})
    with refused("settings.missing", setting="out"):
        await practicum.evaluate(TASKS, practicum.Context(), model=MODELS[0], batch_api=True)
