"""Whether a judge gives the same verdict twice: stored attempts are shown to it once more.

Nothing of this is kept with the run: a verdict from its journal would always agree with itself.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from practicum.analysis.monitor.attempts import JudgedAttempt
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
"""The temperature a judge is always asked at. A deterministic model agrees with itself for no other reason."""

UNUSED_CONFIG = (
    "max_calls", "max_tokens", "max_usd", "max_minutes", "agent", "reasoning", "max_turns", "tool_timeout",
)  # fmt: skip
"""Fields of the run's configuration that do not apply here: its limits, which were set for learning, and its agent."""


async def judge_again(
    attempts: Sequence[JudgedAttempt],
    n: int,
    config: Config,
    *,
    with_target: bool,
    seed: int,
    parts: Parts,
    limits: Mapping[str, Any],
) -> dict[str, Any]:
    """Show `n` attempts, drawn by `seed`, to the run's judge again; returns how often its verdict is the same.

    `with_target` shows the right answers too, as in a run whose scorer is the judge. Raises UsageError where there are
    no attempts, or the judge cannot be opened.
    """
    if not attempts:
        raise UsageError("the run has no verdicts of a judge, so there is nothing to compare with")
    sample = random.Random(seed).sample(attempts, min(n, len(attempts)))
    # Neither the agent nor its scorer runs here, and the Python objects they were may not be available.
    values = configured({**config.model_dump(exclude={*UNUSED_CONFIG}), "scorer": "exact", **limits})
    verdicts: dict[int, bool | None] = {}
    stopped = None
    with tempfile.TemporaryDirectory(prefix="practicum-judge-") as name, Store.create(Path(name) / "judge") as store:
        async with furnished(store, "judge", Path(name), values, parts, roles=("judge",), agent=False) as state:
            try:
                jobs = [
                    (str(i + 1), partial(_judge, i, attempt, with_target, verdicts)) for i, attempt in enumerate(sample)
                ]
                await Run(state, "judged again").gather(jobs)
            except Stopped as stop:
                stopped = stop.reason
            numbers = {"judge": state.seat("judge").client.name, "temperature": TEMPERATURE}
            numbers |= _same_verdicts(sample, verdicts)
            numbers |= {"of": len(attempts), "usage": usage_json(state.budget.spent)}
            return numbers if stopped is None else {**numbers, "stopped": stopped}


async def _judge(i: int, attempt: JudgedAttempt, with_target: bool, verdicts: dict[int, bool | None], run: Run) -> None:
    """Store the verdict on attempt `i`, None where the judge gives none. A stop keeps the verdicts before it."""
    task = attempt.rollout.task
    try:
        verdicts[i] = (await judge(run, task, attempt.rollout.trace, task.target if with_target else None)).right
    except (OutputError, ProviderError):
        verdicts[i] = None


def _same_verdicts(sample: Sequence[JudgedAttempt], verdicts: Mapping[int, bool | None]) -> dict[str, Any]:
    pairs = [(sample[i].verdict, now) for i, now in verdicts.items() if now is not None]
    numbers: dict[str, Any] = {"n": len(pairs), "no_verdict": len(verdicts) - len(pairs)}
    if not pairs:
        return numbers
    same = sum(then == now for then, now in pairs)
    return {**numbers, "same": same / len(pairs), "ci95": list(share_ci95(same, len(pairs)))}
