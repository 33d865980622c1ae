"""Budgets hold with servers that count wrongly, write more than they may, or send what no text can hold."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from helpers import make_tasks

import practicum
from practicum import Parts
from practicum.core.counts import Count
from practicum.core.types import Prompt, Usage
from practicum.core.views import count_tokens
from practicum.models.client import CallOptions, Reply
from practicum.models.prices import Price
from practicum.models.receiving import received, storable, within_limit
from practicum.models.scripted import Call, ScriptedClient
from practicum.session.result import Result

PRICE = Price(input=1.0, output=1.0)
ANSWER = json.dumps({"answer": "4", "used": []})
LIMIT = 1000


def believed(usage: Any, text: str = "x" * 400, prompt_tokens: int = 50) -> Usage:
    return received(Reply(text, usage), prompt_tokens, LIMIT, PRICE.of).usage


@pytest.mark.parametrize(
    ("sent", "read", "cached", "written"),
    [
        (Usage(1, 70, 30, 90), 70, 30, 90),
        (Usage(1, 0, 0, 0), 50, 0, 100),
        (Usage(1, -5, -5, -5), 50, 0, 100),
        (Usage(1, 70, 71, 90), 70, 0, 90),
        (Usage(1, 10**300, 0, 10**300), 50, 0, 100),
        (Usage(1, 1e308, 0.5, float("nan")), 50, 0, 100),  # type: ignore[arg-type]
        (Usage(1, "70", None, True), 50, 0, 100),  # type: ignore[arg-type]
        (Usage(1, 70, 0, 3 * LIMIT), 70, 0, 3 * LIMIT),  # reasoning is not in the text
        (Usage(1, 70, 0, 100 * LIMIT), 70, 0, 100),
    ],
)
def test_a_count_that_cannot_be_right_is_estimated(sent: Usage, read: int, cached: int, written: int) -> None:
    found = believed(sent)
    assert (found.calls, found.input_tokens, found.cached_tokens, found.output_tokens) == (1, read, cached, written)
    assert found.usd == pytest.approx((read + written) / 1e6) if found != sent else True


def test_a_count_far_below_what_was_sent_and_received_is_estimated() -> None:
    found = believed(Usage(1, 1, 0, 1), "x" * 40_000, 20_000)
    assert (found.input_tokens, found.output_tokens) == (20_000, 10_000)


def test_a_price_that_is_no_number_is_computed_anew() -> None:
    assert believed(Usage(1, 70, 0, 90, float("nan"))).usd == pytest.approx(160e-6)
    assert believed(Usage(1, 70, 0, 90, -1e9)).usd == pytest.approx(160e-6)
    assert believed(Usage(1, 70, 0, 90, None)).usd is None


@pytest.mark.parametrize(
    ("characters", "counted", "kept"),
    [(4000, 1000, 1000), (7000, 900, 1750), (4400, 1100, 1000), (4400, 990, 1100), (400_000, 0, 1000)],
)
def test_an_answer_above_the_limit_is_cut_to_it(characters: int, counted: int, kept: int) -> None:
    reply = within_limit(Reply("x" * characters, Usage(1, 70, 0, counted)), 50, LIMIT)
    assert count_tokens(reply.text) == kept
    assert reply.cut == (Count.OVERLONG_ANSWERS in reply.changed) == (kept < characters / 4)
    assert reply.usage.output_tokens == (counted or characters // 4)
    assert received(reply, 50, LIMIT, PRICE.of).usage.output_tokens == reply.usage.output_tokens


def test_a_text_that_cannot_be_stored_is_mended() -> None:
    assert storable("a\ud800b\0c\ud83d\ude00 日本") == "a\ufffdb\ufffdc\U0001f600 日本"
    assert storable(text := "plain\ttext\n日本") is text


@dataclass
class Hostile:
    """A model whose server sends what it likes: `sent` makes the reply of the scripted answer."""

    inner: ScriptedClient
    sent: Any

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def complete(self, role: str, prompt: Prompt, schema: Any, options: CallOptions) -> Reply:
        reply: Reply = self.sent(await self.inner.complete(role, prompt, schema, options), options)
        return reply


def run(folder: Path, sent: Any, respond: Any = None, **config: Any) -> tuple[Result, Hostile]:
    def answer(call: Call) -> str:
        return ANSWER if call.schema is None or call.role == "agent" else "{}"

    client = Hostile(ScriptedClient(respond or answer), sent)
    method: dict[str, Any] = {"method": "icl", "concurrency": 1, **config}
    work = practicum.learn(
        make_tasks(4), test=make_tasks(3), out=folder, parts=Parts(clients={"agent": client}), **method
    )
    return practicum.run_sync(work), client


def test_the_tokens_of_a_server_that_counts_nothing_end_the_run_at_its_budget(tmp_path: Path) -> None:
    def uncounted(reply: Reply, _: CallOptions) -> Reply:
        return replace(reply, usage=Usage(1))

    settings = {"rounds": 0, "epochs": 5}
    result, client = run(tmp_path / "run", uncounted, method="ace", settings=settings, max_tokens=20_000)
    assert result.stopped == "the budget of 20000 tokens is spent"
    assert sum(count_tokens(call.text) for call in client.calls) <= result.usage.tokens <= 20_000
    assert result.errors[Count.ESTIMATED_USAGE] == len(client.calls)


def test_the_calls_after_one_above_its_limit_reserve_what_it_took(tmp_path: Path) -> None:
    """Without that, each of them could exceed the budget as the first did."""

    def long(reply: Reply, options: CallOptions) -> Reply:
        return within_limit(replace(reply, text="x" * 40_000), 70, options.max_output_tokens)

    result, client = run(tmp_path / "run", long, max_tokens=25_000, max_output_tokens=500)
    assert result.stopped == "the budget of 25000 tokens is spent"
    assert len(client.calls) == 2
    assert 20_000 < result.usage.tokens <= 25_000
    again = practicum.run_sync(practicum.resume(tmp_path / "run", parts=Parts(clients={"agent": client})))
    assert again.usage == result.usage
    assert again.errors[Count.OVERLONG_ANSWERS] == result.errors[Count.OVERLONG_ANSWERS] == 2


def test_what_no_text_can_hold_does_not_keep_a_run_from_its_end(tmp_path: Path) -> None:
    def broken(reply: Reply, _: CallOptions) -> Reply:
        return replace(reply, text="\ud800 a NUL: \0")

    result, client = run(tmp_path / "run", broken)
    assert result.stopped is None
    assert result.errors[Count.MENDED_TEXTS] == len(client.calls)
    asked = len(client.calls)
    again, _ = run(tmp_path / "again", broken)
    assert again.context.digest == result.context.digest
    resumed = practicum.run_sync(practicum.resume(tmp_path / "run", parts=Parts(clients={"agent": client})))
    assert resumed.rollouts["test"][0].trace.answer == "\ufffd a NUL: \ufffd"
    assert resumed.errors == result.errors
    assert len(client.calls) == asked
