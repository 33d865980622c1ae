"""Hard budgets. A call reserves its prompt and its largest output before it is sent, and gives back what it spared.

A call that does not fit beside those in flight waits for them to settle; only when none is in flight and it still
does not fit is the budget spent. A part can be held for the final evaluation, which alone may use it.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from practicum.core.errors import Stopped
from practicum.core.types import Usage

ROUNDING = 1e-9
"""US dollars that sums of many small prices may be off by."""


@dataclass(frozen=True, slots=True)
class BudgetLimits:
    """What a run may spend over all its resumes; None is without bound. Tokens are input and output together."""

    calls: int | None = None
    tokens: int | None = None
    usd: float | None = None
    minutes: float | None = None


@dataclass(frozen=True, slots=True)
class Need:
    """The most a piece of work can cost."""

    calls: int = 0
    tokens: int = 0
    usd: float = 0.0

    def __add__(self, other: Need) -> Need:
        return Need(self.calls + other.calls, self.tokens + other.tokens, self.usd + other.usd)

    def __sub__(self, other: Need) -> Need:
        return Need(self.calls - other.calls, self.tokens - other.tokens, self.usd - other.usd)

    def __mul__(self, times: int) -> Need:
        return Need(self.calls * times, self.tokens * times, self.usd * times)


@dataclass
class Budget:
    """Counts what was spent and what is promised. `spent` and `seconds` start from what earlier resumes spent."""

    limits: BudgetLimits = field(default_factory=BudgetLimits)
    spent: Usage = field(default_factory=Usage)
    seconds: float = 0.0
    promised: Need = field(default_factory=Need)
    held: Need = field(default_factory=Need)
    held_seconds: float = 0.0
    in_flight: int = 0
    stop_reason: str = ""
    _began: float = field(default_factory=time.monotonic)
    _settled: asyncio.Event | None = None

    @property
    def elapsed(self) -> float:
        """Seconds of work, over all resumes."""
        return self.seconds + time.monotonic() - self._began

    def stop(self, reason: str) -> None:
        """Let nothing start from now on; what is in flight may finish."""
        self.stop_reason = self.stop_reason or reason
        self._wake()

    def check(self) -> None:
        """Raise Stopped where no new work may start."""
        if self.stop_reason:
            raise Stopped(self.stop_reason)
        if self.limits.minutes is not None and self.elapsed >= self.limits.minutes * 60 - self.held_seconds:
            raise Stopped(f"the budget of {self.limits.minutes:g} minutes is spent")

    async def reserve(self, need: Need) -> None:
        """Promise `need` to a call; waits for calls in flight where that can help. Raises Stopped where it cannot."""
        self.check()
        while (over := self.fits(need)) is not None:
            if not self.in_flight:
                raise Stopped(over)
            if self._settled is None:
                self._settled = asyncio.Event()
            await self._settled.wait()
            self.check()
        self.promised += need
        self.in_flight += 1

    def settle(self, need: Need, usage: Usage) -> None:
        """Replace a promise by what the call really cost (nothing, where it failed)."""
        self.promised -= need
        self.in_flight -= 1
        self.spent += usage
        self._wake()

    def fits(self, need: Need) -> str | None:
        """None where `need` could be spent now, else which budget it goes over."""
        total = self.promised + self.held + need
        limits, spent = self.limits, self.spent
        if limits.calls is not None and spent.calls + total.calls > limits.calls:
            return f"the budget of {limits.calls} calls is spent"
        if limits.tokens is not None and spent.tokens + total.tokens > limits.tokens:
            return f"the budget of {limits.tokens} tokens is spent"
        if limits.usd is not None and spent.usd is None:
            return f"the budget of {limits.usd:g} USD cannot be kept, since a call had no known price: it is spent"
        if limits.usd is not None and (spent.usd or 0.0) + total.usd > limits.usd + ROUNDING:
            return f"the budget of {limits.usd:g} USD is spent"
        return None

    def hold(self, need: Need, seconds: float = 0.0) -> None:
        """Keep `need`, and time, back for the final evaluation."""
        self.held, self.held_seconds = need, seconds
        self._wake()

    def _wake(self) -> None:
        if self._settled is not None:
            self._settled.set()
            self._settled = None
