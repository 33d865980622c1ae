"""What a run will need: told before it starts, refused where its budget is too small, held back for its end."""

from __future__ import annotations

from dataclasses import dataclass

from practicum.core.context import Context
from practicum.core.errors import UsageError
from practicum.core.types import Recorded, Task
from practicum.core.views import count_tokens, render_full
from practicum.engine.loop import Method
from practicum.engine.state import House, need_of
from practicum.models.budget import Budget, Need
from practicum.session.config import Config, Splits
from practicum.tasks.scoring.registry import JUDGED


@dataclass(frozen=True)
class Estimate:
    """Counts calls exactly where the method can, and tokens from the sizes of what is known so far."""

    config: Config
    splits: Splits
    method: Method
    house: House
    seed: Context

    @property
    def steps(self) -> int:
        """Steps the run will take, as far as that is known."""
        tasks = len(self.splits.train)
        return self.method.epochs * (self.method.steps(tasks) if self.method.steps else -(-tasks // self._batch))

    @property
    def _first(self) -> int:
        """Tasks of the first step."""
        tasks = len(self.splits.train)
        return min(self.method.first(tasks) if self.method.first else self.method.batch, tasks)

    @property
    def _batch(self) -> int:
        """Tasks of a step, at least: a sampler that works out its sizes may begin with less than the usual."""
        return self.method.batch if self.method.steps else max(min(self.method.batch, self._first), 1)

    def calls(self) -> tuple[int, int]:
        """Fewest and most model calls the run can take, without repairs of bad output."""
        turns, judged = self.house.agent.turns, self._judged()
        few, many = self.method.tries
        fixed = len(self.splits.test) * (1 + self.config.before)
        val = len(self.splits.val)
        # A gate tries what every step would make of the context.
        rounds = self.steps if self.method.gated else self.method.scans or -(-self.steps // self.config.validate_every)
        low = self._learning(0) + few * (min(turns, 1) + judged) * (fixed + val)
        most = many * (turns + judged) + sum(self.method.asides.values())
        high = self._learning(1) + most * (fixed + val * (1 + rounds))
        return low, high

    def _learning(self, which: int) -> int:
        whole, rest = divmod(len(self.splits.train), self._batch)
        # Where nothing is learned, later epochs may have nothing to run.
        epochs = 1 if self.method.reuses and not which else self.method.epochs
        return epochs * (whole * self._step(self._batch)[which] + (self._step(rest)[which] if rest else 0))

    def _step(self, size: int) -> tuple[int, int]:
        """Fewest and most model calls of a step over so many tasks."""
        low, high = self.method.calls(size)
        least, most = self._rulings(size)
        # A method counts an attempt as one call, and does not tell which of its calls are attempts.
        return low + least, high * max(self.house.agent.turns, 1) + most

    def _rulings(self, size: int) -> tuple[int, int]:
        """Fewest and most calls of a judge about the attempts of such a step: to score them, and as their feedback."""
        made = self.method.attempted(size)
        heard = made if self.method.heard is None else self.method.heard(size)
        scored = [self._is_scored(task) for task in self.splits.train]
        ruled = [self._is_ruled_on(task) for task in self.splits.train]
        return made[0] * all(scored) + heard[0] * all(ruled), made[1] * any(scored) + heard[1] * any(ruled)

    def _is_scored(self, task: Task) -> bool:
        """Whether a judge scores what is learned from this task."""
        known = self._stored(task)
        told = known is not None and (known.score is not None or known.trace.error is not None)
        return self.config.scorer in JUDGED and self.house.scores(task) and not told

    def _is_ruled_on(self, task: Task) -> bool:
        """Whether a judge is heard on what is learned from this task, beside what the method itself asks one."""
        known = self._stored(task)
        if known is None:
            return self.config.judged and "judge" not in self.method.roles
        told = self.config.labels and (known.score is not None or self.house.scores(task))
        return self.config.judged and not told and known.trace.error is None

    def _stored(self, task: Task) -> Recorded | None:
        """The attempt to learn from, where none is made."""
        return task.recorded if self.config.from_traces else None

    def final(self) -> Need:
        """What the final evaluation may need. Outputs are taken as a quarter of what they may be, but for one call."""
        # An agent with tools is taken to need half of its turns.
        once = (self.house.agent.turns + 1) // 2 + self._judged()
        calls = (self.method.tries[1] * once + sum(self.method.asides.values())) * len(self.splits.test)
        if not calls:
            return Need()
        one = self._one_call()
        spare = int(self._output() * 0.75)
        return Need(1, max(one.tokens - spare, 1), one.usd) * calls + Need(0, spare)

    def final_seconds(self) -> float:
        """How long the final evaluation may take, at the pace so far; at most half of what there is."""
        count, seconds = self.house.pace
        if not count or self.config.max_minutes is None:
            return 0.0
        rounds = -(-len(self.splits.test) // self.config.concurrency)
        return min(1.5 * rounds * seconds / count, self.config.max_minutes * 30)

    def refuse_small_budget(self) -> None:
        """Raise UsageError where a new run's budget does not reach for one step and the final evaluation."""
        step = self._one_call() * (self._step(self._first)[0] if self._first else 0)
        final = self.final()
        over = Budget(self.config.limits).exceeded_by(step + final)
        if over is not None:
            whole = step + final
            raise UsageError(
                f"{over.removesuffix(' is spent')} does not reach for one step and the final evaluation, which need "
                f"{whole.calls} calls and up to {whole.tokens} tokens: raise it"
                + (", or leave out --test" if final.calls else "")
            )

    def _judged(self) -> int:
        return 1 if self.config.scorer in JUDGED else 0

    def _output(self) -> int:
        return self.config.max_output_tokens

    def _one_call(self) -> Need:
        """The most one agent's call is expected to need."""
        seats = self.house.seats
        if not seats:
            return Need()
        client = (seats.get("agent") or next(iter(seats.values()))).client
        longest = max((count_tokens(t.input) for t in (*self.splits.train, *self.splits.test)), default=0)
        guess = count_tokens(self.config.instructions) + longest + render_full(self.seed).tokens + 64
        return need_of(client, 1.25 * self.house.largest.get("agent", guess), self._output())
