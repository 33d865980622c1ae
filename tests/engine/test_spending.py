"""Budgets hold with servers that count wrongly, write more than they may, or send what no text can hold."""

from __future__ import annotations

from typing import Any

import pytest

from practicum.core.counts import Count
from practicum.core.types import Usage
from practicum.core.views import count_tokens
from practicum.models.client import Reply
from practicum.models.prices import Price
from practicum.models.receiving import received, within_limit

PRICE = Price(input=1.0, output=1.0)


LIMIT = 1000


def believed(usage: Any, text: str = "x" * 400, prompt_tokens: int = 50) -> Usage:
    return received(Reply(text, usage), prompt_tokens, LIMIT, PRICE.of).usage


def test_a_count_far_below_what_was_sent_and_received_is_estimated() -> None:
    found = believed(Usage(1, 1, 0, 1), "x" * 40_000, 20_000)
    assert (found.input_tokens, found.output_tokens) == (20_000, 10_000)


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
