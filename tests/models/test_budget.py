"""Budgets are hard, in every order of starts and ends of calls."""

from __future__ import annotations

import asyncio

from helpers import asynchronous
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples
from refusals import refused

from practicum.core.errors import Stopped
from practicum.core.types import Usage
from practicum.models.budget import Budget, BudgetLimits, Need

CALL = st.tuples(st.integers(0, 50), st.integers(0, 50), st.integers(0, 3), st.booleans())


@settings(max_examples=examples(100))
@given(
    st.lists(CALL, max_size=30), st.none() | st.integers(1, 20), st.none() | st.integers(1, 400), st.integers(0, 100)
)
@asynchronous
async def test_spent_and_reserved_never_exceed_the_limits(
    calls: list[tuple[int, int, int, bool]], most_calls: int | None, most_tokens: int | None, held: int
) -> None:
    usd = None if most_tokens is None else most_tokens / 1000
    budget = Budget(BudgetLimits(calls=most_calls, tokens=most_tokens, usd=usd))
    budget.hold(Need(0, held, 0.0))

    def within() -> None:
        spent, reserved = budget.spent, budget.reserved
        assert most_calls is None or spent.calls + reserved.calls <= most_calls
        assert most_tokens is None or spent.tokens + reserved.tokens <= max(most_tokens - held, 0)
        assert usd is None or (spent.usd or 0) + reserved.usd <= usd + 1e-8

    async def call(most: int, actual: int, waits: int, fails: bool) -> bool:
        need = Need(1, most, most / 1000)
        try:
            await budget.reserve(need)
        except Stopped:
            return False
        within()
        for _ in range(waits):
            await asyncio.sleep(0)
        real = min(actual, most)
        budget.settle(need, Usage() if fails else Usage(1, real, 0, 0, real / 1000))
        within()
        return True

    done = await asyncio.wait_for(asyncio.gather(*(call(*numbers) for numbers in calls)), 5)
    within()
    assert budget.in_flight == 0
    assert budget.reserved.calls == budget.reserved.tokens == 0
    if most_calls is None and most_tokens is None:
        assert all(done)


@asynchronous
async def test_a_budget_in_dollars_stops_after_a_call_of_unknown_price() -> None:
    budget = Budget(BudgetLimits(usd=1.0))
    for usd in (0.1, None):
        await budget.reserve(Need(1, 9, 0.2))
        budget.settle(Need(1, 9, 0.2), Usage(1, 5, 4, 0, usd))
    with refused("budget.spent"):
        await budget.reserve(Need(1, 9, 0.2))
