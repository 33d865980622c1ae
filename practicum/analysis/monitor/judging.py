"""Whether a judge says the same of the same attempt twice: stored attempts shown to it once more.

Nothing of it is kept with the run: a verdict that came from its journal would only agree with itself.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from practicum.analysis.monitor.attempts import Judged
from practicum.core.errors import OutputError, ProviderError, Stopped, UsageError
from practicum.core.intervals import share_ci95
from practicum.engine.judge import judge
from practicum.engine.run import Run
from practicum.session.components import Parts
from practicum.session.config import Config, configured
from practicum.session.opening import furnished
from practicum.session.result import usage_json
from practicum.store.database import Store

TEMPERATURE = 0.0
"""At which a judge is always asked. A model that always says the same at it agrees with itself for no other reason."""


NOT_OF_A_JUDGE = (
    "max_calls", "max_tokens", "max_usd", "max_minutes", "agent", "reasoning", "max_turns", "tool_timeout",
)  # fmt: skip
"""What of a run's configuration is no matter here: its limits, which were set for learning, and its agent."""


async def judged_again(
    found: Sequence[Judged],
    n: int,
    config: Config,
    *,
    told: bool,
    seed: int,
    parts: Parts,
    limits: Mapping[str, Any],
) -> dict[str, Any]:
    """The share of `n` attempts, drawn by `seed`, that the run's judge says the same of once more. `told` shows it the
    right answers, as it saw them when it scored.

    Raises UsageError where there is no attempt to show it, or the judge cannot be opened.
    """
    if not found:
        raise UsageError("no verdict of a judge is stored in this run, so there is none to compare with")
    chosen = random.Random(seed).sample(found, min(n, len(found)))
    # Neither the agent nor its scorer runs here, and the objects they were may be out of reach.
    made = configured({**config.model_dump(exclude={*NOT_OF_A_JUDGE}), "scorer": "exact", **limits})
    said: dict[int, bool | None] = {}
    stopped = None
    with tempfile.TemporaryDirectory(prefix="practicum-judge-") as name, Store.create(Path(name) / "judge") as store:
        async with furnished(store, "judge", Path(name), made, parts, roles=("judge",), agent=False) as house:
            try:
                jobs = [(str(i + 1), partial(_again, i, one, told, said)) for i, one in enumerate(chosen)]
                await Run(house, "judged again").gather(jobs)
            except Stopped as stop:
                stopped = stop.reason
            numbers = {"judge": house.seat("judge").client.name, "temperature": TEMPERATURE}
            numbers |= _compared(chosen, said) | {"of": len(found), "usage": usage_json(house.budget.spent)}
            return numbers if stopped is None else {**numbers, "stopped": stopped}


async def _again(i: int, one: Judged, told: bool, said: dict[int, bool | None], run: Run) -> None:
    """Note the verdict on attempt `i`; None where the judge gives none. A stop leaves those that were paid for."""
    task = one.rollout.task
    try:
        said[i] = (await judge(run, task, one.rollout.trace, task.target if told else None)).right
    except (OutputError, ProviderError):
        said[i] = None


def _compared(chosen: Sequence[Judged], said: Mapping[int, bool | None]) -> dict[str, Any]:
    pairs = [(chosen[i].verdict, now) for i, now in said.items() if now is not None]
    numbers: dict[str, Any] = {"n": len(pairs), "no_verdict": len(said) - len(pairs)}
    if not pairs:
        return numbers
    same = sum(then == now for then, now in pairs)
    return {**numbers, "same": same / len(pairs), "ci95": list(share_ci95(same, len(pairs)))}
