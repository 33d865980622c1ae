"""Which of many instructions is best, found with few attempts: a bandit (ProTeGi, Pryzant et al. 2023, section 2.3,
algorithm 3)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from practicum.core.context import Context
from practicum.core.counts import Count
from practicum.core.edits import Add, Delta, Entry
from practicum.core.types import Rollout, Task
from practicum.engine.loop import AcceptSeam, AttemptSeam, Batch
from practicum.engine.run import Run
from practicum.plugins.rivals.search import SECTION, new_candidates, only, scored, selected, value, visible_scores


@dataclass(frozen=True, slots=True)
class Bandit:
    """Upper confidence bounds: in each of `rounds` rounds, the `arms` instructions with the highest bound are tried on
    `samples` further tasks each. `explore` weighs what is not known yet."""

    rounds: int
    arms: int
    samples: int
    explore: float = 1.0


@dataclass(slots=True)
class Arm:
    """An instruction on trial: the number of tasks that it was tried on, and the scores there."""

    text: str
    tried: int = 0
    scores: list[float] = field(default_factory=list)

    @property
    def mean(self) -> tuple[float, int] | None:
        """The mean score and the number of scores; None without any."""
        return (sum(self.scores) / len(self.scores), len(self.scores)) if self.scores else None

    def bound(self, turn: int, explore: float) -> float:
        """The upper confidence bound at this turn; infinite before the first try."""
        if not self.tried:
            return math.inf
        return (self.mean or (0.0, 0))[0] + explore * math.sqrt(math.log(turn) / self.tried)


async def tried(bandit: Bandit, attempt: AttemptSeam, arms: Sequence[Arm], tasks: Sequence[Task], run: Run) -> None:
    """Try the arms. Each sees the tasks in the same order and no task twice."""

    async def pull(arm: Arm, run: Run) -> None:
        batch = Batch(tuple(tasks[arm.tried : arm.tried + bandit.samples]))
        made = await attempt(batch, only(arm.text), run)
        arm.tried += len(batch.tasks)
        arm.scores += visible_scores(made, run)

    for turn in range(1, bandit.rounds + 1):
        left = [arm for arm in arms if arm.tried < len(tasks)]
        chosen = sorted(left, key=lambda arm: arm.bound(turn, bandit.explore), reverse=True)[: bandit.arms]
        await run.at(f"round {turn}").gather([(str(arms.index(arm)), partial(pull, arm)) for arm in chosen])


def keep_best_by(bandit: Bandit, attempt: AttemptSeam, beam: int) -> AcceptSeam:
    """Try the candidates on the tasks of the step by a bandit, and keep the `beam` best. Those of the last step have
    attempts at all of these tasks already. The score of none is that of the step before the first candidate."""

    async def accept(context: Context, delta: Delta, rollouts: Sequence[Rollout], run: Run) -> Delta:
        adds = new_candidates(delta)
        old = sorted(context.in_section(SECTION), key=lambda e: e.number)
        tasks, none = [r.task for r in rollouts], Arm("")
        if not old:
            none.scores = visible_scores(rollouts, run)
        candidates: list[Entry | Add] = [*old, *adds]
        arms, whole = [Arm(c.text) for c in candidates], Bandit(1, len(old), len(tasks))
        run.count(Count.TRIED_CANDIDATES, len(adds))
        await tried(whole, attempt, arms[: len(old)], tasks, run.at("beam"))
        await tried(bandit, attempt, arms, tasks, run)
        before = next(((e.data["none"], 0) for e in old if "none" in e.data), None)
        pool: list[Entry | Add] = []
        for candidate, arm in zip(candidates, arms, strict=True):
            if arm.mean is not None or isinstance(candidate, Entry):
                pool.append(scored(candidate, arm.mean, none.mean or before))
        return selected(old, sorted(pool, key=value, reverse=True)[:beam])

    return accept
