"""Hard budgets: the maximum cost of a call is reserved before the call is sent, and the unused part of the reservation
is released when the call ends.

If a reservation does not fit into the budget while other calls are in flight, the new call waits until some of these
calls settle. The run stops with "the budget is spent" only if a reservation does not fit and no other call is in
flight. A part of the budget can be held back for the final evaluation.

A stop prevents new work. Calls in flight may finish, because they are paid; but a call is cancelled if a try of the
call failed and the call is being retried.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from practicum.core.errors import Stopped
from practicum.core.types import Usage
from practicum.core.words import in_number

USD_ROUNDING = 1e-9
"""Maximum rounding error of a sum of many small prices (US dollars)."""


_SPENT = re.compile(r"the budget of \S+ (call|token|USD|minute)s? is spent")
LIMITS = {"max_calls": "calls", "max_tokens": "tokens", "max_usd": "USD", "max_minutes": "minutes"}
"""Limit setting → unit of the limit."""


def spent_limit(reason: str | None) -> str | None:
    """Return the limit setting (a key of `LIMITS`) that caused the stop of a run, from the `reason` of the stop; None
    if the reason is not a spent budget."""
    match = _SPENT.match(reason or "")
    return None if match is None else next(name for name, unit in LIMITS.items() if unit.startswith(match[1]))


@dataclass(frozen=True, slots=True)
class BudgetLimits:
    """Limits of a run, for the first start and all resumes together. A limit that is None does not apply. Tokens are
    input plus output."""

    calls: int | None = None
    tokens: int | None = None
    usd: float | None = None
    minutes: float | None = None


@dataclass(frozen=True, slots=True)
class Need:
    """Maximum cost of a piece of work."""

    calls: int = 0
    tokens: int = 0
    usd: float = 0.0

    @classmethod
    def of(cls, most: Usage) -> Need:
        """Convert a maximum usage to a need."""
        return cls(most.calls, most.tokens, most.usd or 0.0)

    def __add__(self, other: Need) -> Need:
        return Need(self.calls + other.calls, self.tokens + other.tokens, self.usd + other.usd)

    def __sub__(self, other: Need) -> Need:
        return Need(self.calls - other.calls, self.tokens - other.tokens, self.usd - other.usd)

    def __mul__(self, times: int) -> Need:
        return Need(self.calls * times, self.tokens * times, self.usd * times)


@dataclass(frozen=True, slots=True)
class Finishing:
    """Work that may finish after a stop: the number of calls, the maximum seconds that the calls take, and the number
    of attempts by an agent with custom code. Such attempts may take any time."""

    calls: int = 0
    seconds: float = 0.0
    attempts: int = 0

    def __add__(self, other: Finishing) -> Finishing:
        most = max(self.seconds, other.seconds)
        return Finishing(self.calls + other.calls, most, self.attempts + other.attempts)


@dataclass
class Budget:
    """Budget of a run, with the spent amounts and the reservations of calls in flight.

    After a resume, `spent` and `seconds` start with the amounts that were spent before the resume. `held` and
    `held_seconds` are the amounts that are held back for the final evaluation. `attempts` is the number of running
    attempts by an agent with custom code, and `timeout` the maximum duration of one try of a call (s).
    """

    limits: BudgetLimits = field(default_factory=BudgetLimits)
    spent: Usage = field(default_factory=Usage)
    seconds: float = 0.0
    reserved: Need = field(default_factory=Need)
    held: Need = field(default_factory=Need)
    held_seconds: float = 0.0
    in_flight: int = 0
    most_in_flight: int = 0
    attempts: int = 0
    timeout: float = 0.0
    stop_reason: str = ""
    _started: float = field(default_factory=time.monotonic)
    _settled: asyncio.Event | None = None
    _repeating: set[asyncio.Task[Any]] = field(default_factory=set)

    @property
    def elapsed(self) -> float:
        """Seconds of work over all resumes."""
        return self.seconds + time.monotonic() - self._started

    def stop(self, reason: str) -> None:
        """Prevent new work; calls in flight may finish. Only the first reason is stored."""
        if self.stop_reason:
            return
        self.stop_reason = reason
        for task in self._repeating:
            task.cancel()
        self._wake()

    @property
    def finishing(self) -> Finishing:
        """Work that may finish after a stop."""
        return Finishing(self.in_flight - len(self._repeating), self.timeout, self.attempts)

    @contextmanager
    def repeatable(self) -> Iterator[None]:
        """Run the block, which makes a call. A stop cancels the call if a try of the call failed and the call is being
        retried (see `repeats`). After such a cancellation, Stopped is raised."""
        task = asyncio.current_task()
        assert task is not None
        cancelled = task.cancelling()
        try:
            yield
        except asyncio.CancelledError:
            # As in `asyncio.timeout`: re-raise a cancellation from elsewhere, such as the second Ctrl-C.
            if task in self._repeating and self.stop_reason and task.uncancel() <= cancelled:
                raise Stopped("run.stopped", self.stop_reason) from None
            raise
        finally:
            self._repeating.discard(task)

    def repeats(self) -> None:
        """Record that a try of the call in the current asyncio task failed, and that the call is being retried."""
        if (task := asyncio.current_task()) is not None:
            self._repeating.add(task)

    def check(self) -> None:
        """Raise Stopped if no new work may start."""
        if self.stop_reason:
            raise Stopped("run.stopped", self.stop_reason)
        if self.limits.minutes is not None and self.elapsed >= self.limits.minutes * 60 - self.held_seconds:
            raise Stopped("budget.spent", f"the budget of {self.limits.minutes:g} minutes is spent")

    def check_spent(self) -> None:
        """Raise Stopped if a limit is exceeded. The cost of an agent that calls its model without the run is known only
        after the attempt, so such an attempt may exceed a limit."""
        if (exceeded := self.exceeded_by(Need())) is not None:
            raise Stopped("budget.spent", exceeded)

    async def pause(self, seconds: float) -> None:
        """Sleep for `seconds`. Raises Stopped as soon as a stop is requested or the run's limit of minutes is
        reached."""
        until = time.monotonic() + seconds
        self.check()
        while (left := until - time.monotonic()) > 0:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._change().wait(), left)
            self.check()

    async def reserve(self, need: Need) -> None:
        """Reserve `need` for a call. While the reservation would exceed a limit, wait for calls in flight to settle.
        Raises Stopped if the reservation would exceed a limit and no call is in flight."""
        self.check()
        while (exceeded := self.exceeded_by(need)) is not None:
            if not self.in_flight:
                raise Stopped("budget.spent", exceeded)
            await self._change().wait()
            self.check()
        self.reserved += need
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)

    def settle(self, need: Need, usage: Usage) -> None:
        """Replace the reservation `need` of a call by the actual usage of the call. `usage` is zero if the call
        failed."""
        self.reserved -= need
        self.in_flight -= 1
        self.spent += usage
        self._wake()

    def exceeded_by(self, need: Need) -> str | None:
        """Return a message with the limit that reserving `need` would exceed now; None if it would exceed no limit."""
        total = self.reserved + self.held + need
        limits, spent = self.limits, self.spent
        if limits.calls is not None and spent.calls + total.calls > limits.calls:
            return f"the budget of {limits.calls} {in_number(limits.calls, 'call[|s]')} is spent"
        if limits.tokens is not None and spent.tokens + total.tokens > limits.tokens:
            return f"the budget of {limits.tokens} {in_number(limits.tokens, 'token[|s]')} is spent"
        if limits.usd is not None and spent.usd is None:
            return f"the budget of {limits.usd:g} USD cannot be checked: the price of an earlier call is unknown"
        if limits.usd is not None and (spent.usd or 0.0) + total.usd > limits.usd + USD_ROUNDING:
            return f"the budget of {limits.usd:g} USD is spent"
        return None

    def hold(self, need: Need, seconds: float = 0.0) -> None:
        """Hold back `need` and time (s) for the final evaluation, in place of the amounts that were held back
        before."""
        self.held, self.held_seconds = need, seconds
        self._wake()

    def _change(self) -> asyncio.Event:
        """Return the event of the next change: a call settles, the held amounts are replaced, or a stop is
        requested."""
        if self._settled is None:
            self._settled = asyncio.Event()
        return self._settled

    def _wake(self) -> None:
        if self._settled is not None:
            self._settled.set()
            self._settled = None
