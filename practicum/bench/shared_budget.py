"""One budget for the runs of a bench."""

from __future__ import annotations

from dataclasses import dataclass, field

from practicum.analysis.compare.harness import Halt
from practicum.core.types import Usage
from practicum.models.budget import BudgetLimits, Need
from practicum.session.result import RunInfo, Watch


@dataclass
class SharedBudget(Halt, Watch):
    """The budget of all runs of a bench, which follow one another; `spent` is what the runs that ended have spent."""

    limits: BudgetLimits = field(default_factory=BudgetLimits)
    spent: Usage = field(default_factory=Usage)

    def began(self, run: RunInfo) -> None:
        """A run begins, which may spend what the runs before it left."""
        run.budget.limits = self.limits
        run.budget.reserved += Need(self.spent.calls, self.spent.tokens, self.spent.usd or 0.0)
        self.add(run)

    def close(self, usage: Usage) -> None:
        """The current run ended."""
        self.spent += usage
