"""A budget that the runs of a benchmark share."""

from __future__ import annotations

from dataclasses import dataclass, field

from practicum.analysis.compare.harness import Halt
from practicum.core.types import Usage
from practicum.models.budget import BudgetLimits, Need
from practicum.session.result import RunInfo, Watch


@dataclass
class SharedBudget(Halt, Watch):
    """Budget of the consecutive runs of a benchmark. `spent`: usage of the finished runs."""

    limits: BudgetLimits = field(default_factory=BudgetLimits)
    spent: Usage = field(default_factory=Usage)

    def began(self, run: RunInfo) -> None:
        """Limit a run, before its first call, to the part of the budget that earlier runs left."""
        run.budget.limits = self.limits
        run.budget.reserved += Need(self.spent.calls, self.spent.tokens, self.spent.usd or 0.0)
        self.add(run)

    def close(self, usage: Usage) -> None:
        """Add the usage of a run that ended."""
        self.spent += usage
