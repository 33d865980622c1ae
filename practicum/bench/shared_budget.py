"""One budget for the runs of a bench."""

from __future__ import annotations

from dataclasses import dataclass, field

from practicum.core.types import Usage
from practicum.models.budget import Budget, BudgetLimits, Need
from practicum.session.result import RunInfo, Watch


@dataclass
class SharedBudget(Watch):
    """The budget of all runs of a bench, which follow one another: `budget` is that of the current run, `spent` is what
    the runs before it spent. `stop` stops them all."""

    limits: BudgetLimits = field(default_factory=BudgetLimits)
    spent: Usage = field(default_factory=Usage)
    budget: Budget | None = None
    reason: str = ""

    @property
    def in_flight(self) -> int:
        """The calls that will still finish after a stop."""
        return self.budget.in_flight if self.budget else 0

    def stop(self, reason: str) -> None:
        """Start no further call."""
        self.reason = self.reason or reason
        if self.budget is not None:
            self.budget.stop(self.reason)

    def began(self, run: RunInfo) -> None:
        """A run begins, which may spend what the runs before it left."""
        self.budget = run.budget
        self.budget.limits = self.limits
        self.budget.reserved += Need(self.spent.calls, self.spent.tokens, self.spent.usd or 0.0)
        if self.reason:
            self.budget.stop(self.reason)

    def close(self, usage: Usage) -> None:
        """The current run ended."""
        self.spent += usage
