"""Scoring a context on tasks, outside a run: `practicum eval` and `practicum.evaluate`."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from practicum import methods
from practicum.config import Splits, checked, configured
from practicum.context import Context
from practicum.errors import Stopped
from practicum.furnish import furnished
from practicum.house import House
from practicum.metrics.stats import mean_ci95, repeated_ci95
from practicum.parts import Parts
from practicum.result import usage_json
from practicum.run import Run
from practicum.store.store import FILE, Store
from practicum.types import Rollout, Task, Usage


@dataclass(frozen=True)
class Evaluation:
    """A score with its 95% interval. `n` tasks were run `repeat` times each."""

    score: float
    ci95: tuple[float, float]
    n: int
    repeat: int
    errors: int
    usage: Usage
    seconds: float
    rollouts: tuple[Rollout, ...]
    stopped: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Plain values, as `--json` prints them."""
        values = {
            "score": self.score,
            "ci95": list(self.ci95),
            "n": self.n,
            "errors": self.errors,
            "usage": usage_json(self.usage),
            "seconds": round(self.seconds, 3),
        }
        return values if self.stopped is None else {**values, "stopped": self.stopped}


async def evaluate(
    tasks: Sequence[Task],
    context: Context,
    *,
    repeat: int = 1,
    out: Path | None = None,
    parts: Parts | None = None,
    on_house: Callable[[House], None] | None = None,
    **config: Any,
) -> Evaluation:
    """Run each task `repeat` times under `context`, with the method's `act` alone.

    Keywords are the fields of `Config`. With repeats the interval is over tasks, as repeats of one task are
    not independent. With a temperature of 0 repeats differ only as far as the provider is not deterministic.
    Its journal is kept in `out`, if given: the same again goes on where it was cut off. `usage` is over all sittings.
    """
    parts = parts or Parts()
    made = checked(configured(config), Splits((), (), tuple(tasks)), parts)
    method = methods.build(made.method, made.settings)
    rounds: list[list[Rollout]] = []
    stopped = None
    with _folder(out) as folder, _store(folder) as store:
        roles = tuple(method.asides)
        async with furnished(store, "eval", folder, made, parts, roles=roles, seats=method.models) as house:
            if on_house is not None:
                on_house(house)
            try:
                for turn in range(repeat):
                    rounds.append(await Run(house).evaluate(method.act, "eval", tasks, context, turn))
            except Stopped as stop:
                stopped = stop.reason
            return _summary(rounds, house, stopped)


@contextmanager
def _folder(out: Path | None) -> Iterator[Path]:
    """Where an evaluation is kept, or one that is gone afterwards."""
    if out is not None:
        yield out
        return
    with tempfile.TemporaryDirectory(prefix="practicum-eval-") as name:
        yield Path(name) / "eval"


def _store(folder: Path) -> Store:
    return Store.open(folder) if (folder / FILE).exists() else Store.create(folder)


def _summary(rounds: list[list[Rollout]], house: House, stopped: str | None) -> Evaluation:
    """Scores by task. An attempt that failed, or that nothing could score, counts 0 and as an error."""
    usage, seconds = house.budget.spent, house.budget.elapsed
    everything = tuple(r for rollouts in rounds for r in rollouts)
    errors = sum(r.trace.error is not None or r.score is None for r in everything)
    if not rounds:
        return Evaluation(0.0, (0.0, 1.0), 0, 0, errors, usage, seconds, (), stopped)
    by_task = [[r.score.value if r.score else 0.0 for r in rollouts] for rollouts in zip(*rounds, strict=True)]
    means = [sum(values) / len(values) for values in by_task]
    ci95 = mean_ci95(means) if len(rounds) == 1 else repeated_ci95(by_task)
    score = sum(means) / len(means)
    return Evaluation(score, ci95, len(means), len(rounds), errors, usage, seconds, everything, stopped)
