"""What a budget holds back for the final evaluation."""

from __future__ import annotations

from dataclasses import dataclass

from practicum.core.context import Context
from practicum.core.errors import UsageError
from practicum.core.views import count_tokens, render_full
from practicum.engine.state import RunState, need_of
from practicum.models.budget import Budget, Need
from practicum.session.setup import Setup
from practicum.tasks.scoring.registry import JUDGED


@dataclass(frozen=True)
class Reserve:
    """Estimates the final evaluation from the calls of one attempt and the largest prompt so far."""

    setup: Setup
    state: RunState
    seed: Context

    def need(self) -> Need:
        """What the final evaluation may need. Outputs count as a quarter of their limit, except one."""
        config = self.setup.config
        # An agent with tools is assumed to need half of its turns.
        calls_per_act = (self.state.agent.max_turns + 1) // 2 + (config.scorer in JUDGED)
        calls = self.setup.method.act_calls * calls_per_act * len(self.setup.splits.test)
        if not calls:
            return Need()
        seats, splits = self.state.seats, self.setup.splits
        one = Need()
        if seats:
            client = (seats.get("agent") or next(iter(seats.values()))).client
            longest = max((count_tokens(t.input) for t in (*splits.train, *splits.test)), default=0)
            guess = count_tokens(config.instructions) + longest + render_full(self.seed).tokens + 64
            one = need_of(client, 1.25 * self.state.largest.get("agent", guess), config.max_output_tokens)
        spare = int(config.max_output_tokens * 0.75)
        return Need(1, max(one.tokens - spare, 1), one.usd) * calls + Need(0, spare)

    def seconds(self) -> float:
        """How long the final evaluation may take at the pace so far: at most half of the budget."""
        count, seconds = self.state.pace
        config = self.setup.config
        if not count or config.max_minutes is None:
            return 0.0
        rounds = -(-len(self.setup.splits.test) // config.concurrency)
        return min(1.5 * rounds * seconds / count, config.max_minutes * 30)

    def check(self) -> None:
        """Raises UsageError if the budget does not even cover the final evaluation."""
        need = self.need()
        if (over := Budget(self.setup.config.limits).exceeded_by(need)) is not None:
            raise UsageError(
                f"{over.removesuffix(' is spent')} is too small: the final evaluation alone may need {need.calls} "
                f"calls and {need.tokens} tokens. Raise it, or leave out --test"
            )
