"""Consistency of a judge, measured by judging stored attempts again and comparing the new verdicts with the stored
verdicts.

The new calls are not stored in the run, because a verdict read from the journal would always be the same.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from practicum.analysis.monitor.attempts import JudgedAttempt
from practicum.analysis.monitor.series import rate
from practicum.core.errors import OutputError, ProviderError, Stopped, UsageError
from practicum.engine.judge import judge
from practicum.engine.run import Run
from practicum.session.components import Parts
from practicum.session.config import Config, Splits, config_from
from practicum.session.opening import open_state
from practicum.session.result import usage_json
from practicum.session.setup import build_setup
from practicum.store.database import Store

TEMPERATURE = 0.0
"""Temperature of all judge calls. At 0, a deterministic model always agrees with itself."""

UNUSED_CONFIG = (
    "max_calls", "max_tokens", "max_usd", "max_minutes", "agent", "reasoning", "max_turns", "tool_timeout", "settings",
    "from_traces", "embedder",
)  # fmt: skip
"""Fields of the run's configuration that do not apply to `judge_again`: the limits for learning, the agent, and the
settings of the method."""


async def judge_again(
    attempts: Sequence[JudgedAttempt], n: int, config: Config, *,
    with_target: bool, seed: int, parts: Parts, limits: Mapping[str, Any],
) -> dict[str, Any]:  # fmt: skip
    """Judge `n` random attempts again with the run's judge. Returns the share of attempts with the same verdict as
    before, and the costs.

    `with_target`: show the right answers to the judge. `seed`: seed of the random sample. Raises UsageError if
    `attempts` is empty, or if the judge cannot be opened.
    """
    if not attempts:
        raise UsageError("run.no_data", "the run has no verdicts of a judge to compare with: leave out `judge_again`")
    sample = random.Random(seed).sample(attempts, min(n, len(attempts)))
    # The agent and the scorer are not used here, and their Python objects may not be available.
    values = {**config.model_dump(exclude={*UNUSED_CONFIG}), "scorer": "exact", "method": "none", **limits}
    setup = replace(build_setup(config_from(values), Splits(), parts), roles=("judge",))
    pairs: list[tuple[bool, bool | None]] = []

    async def ask(judged: JudgedAttempt, run: Run) -> None:
        """Judge one attempt again, and store the pair of its old and its new verdict. The new verdict is None if the
        judge gave no verdict. If the budget stops the calls, the pairs that were stored before the stop remain."""
        attempt, verdict = judged
        try:
            target = attempt.task.target if with_target else None
            now = (await judge(run, attempt.task, attempt.trace, target)).right
        except (OutputError, ProviderError):
            now = None
        pairs.append((verdict, now))

    with tempfile.TemporaryDirectory(prefix="practicum-judge-") as name, Store.create(Path(name) / "judge") as store:
        async with open_state(store, Path(name), setup) as state:
            stopped = {}
            try:
                await Run(state, "judged again").gather(
                    [(str(i), partial(ask, judged)) for i, judged in enumerate(sample, 1)]
                )
            except Stopped as stop:
                stopped = {"stopped": stop.reason}
            same = [then == now for then, now in pairs if now is not None]
            numbers: dict[str, Any] = {"judge": state.seat("judge").client.name, "temperature": TEMPERATURE}
            numbers |= {"n": len(same), "no_verdict": len(pairs) - len(same)}
            numbers |= rate(same, "same") if same else {}
            return {**numbers, "of": len(attempts), "usage": usage_json(state.budget.spent), **stopped}
