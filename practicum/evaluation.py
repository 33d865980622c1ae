"""Scoring a context on tasks, outside a run: `practicum eval` and `practicum.evaluate`."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from practicum import methods
from practicum.context import Context
from practicum.errors import Stopped
from practicum.metrics.stats import mean_ci95, repeated_ci95
from practicum.models.names import Models
from practicum.parts import Parts
from practicum.run import Run
from practicum.session import Config, checked, make_house, opening, usage_json
from practicum.store.store import Store
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
        return {
            "score": self.score,
            "ci95": list(self.ci95),
            "n": self.n,
            "repeat": self.repeat,
            "errors": self.errors,
            "usage": usage_json(self.usage),
            "seconds": round(self.seconds, 3),
            "stopped": self.stopped,
        }


async def evaluate(
    tasks: Sequence[Task],
    context: Context,
    *,
    repeat: int = 1,
    parts: Parts | None = None,
    **config: Any,
) -> Evaluation:
    """Run each task `repeat` times under `context`, with the method's `act` alone.

    Keywords are the fields of `session.Config`. With repeats the interval is over tasks, as repeats of one task are
    not independent. With a temperature of 0 repeats differ only as far as the provider is not deterministic.
    """
    parts = parts or Parts()
    made = checked(Config.model_validate(config), (), (), tasks, parts)
    method = methods.build(made.method, made.settings)
    with tempfile.TemporaryDirectory(prefix="practicum-eval-") as folder, Store.create(Path(folder) / "eval") as store:
        models = Models(opening(made, Path(folder), parts))
        try:
            house = make_house(store, made, parts, models, 0.0)
            root, rounds, stopped = Run(house), [], None
            for turn in range(repeat):
                try:
                    rounds.append(await root.evaluate(method.act, "eval", tasks, context, turn))
                except Stopped as stop:
                    stopped = stop.reason
                    break
            return _summary(rounds, house.budget.spent, house.budget.elapsed, stopped)
        finally:
            await models.close()


def _summary(rounds: list[list[Rollout]], usage: Usage, seconds: float, stopped: str | None) -> Evaluation:
    if not rounds:
        return Evaluation(0.0, (0.0, 1.0), 0, 0, 0, usage, seconds, (), stopped)
    by_task = [[r.score.value if r.score else 0.0 for r in rollouts] for rollouts in zip(*rounds, strict=True)]
    means = [sum(values) / len(values) for values in by_task]
    ci95 = mean_ci95(means) if len(rounds) == 1 else repeated_ci95(by_task)
    everything = tuple(r for rollouts in rounds for r in rollouts)
    errors = sum(r.trace.error is not None for r in everything)
    return Evaluation(
        sum(means) / len(means), ci95, len(means), len(rounds), errors, usage, seconds, everything, stopped
    )
