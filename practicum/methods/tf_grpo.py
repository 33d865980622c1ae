"""Training-Free GRPO: the difference between better attempts of a group and the others is put into words and kept, in
place of an advantage and a gradient (Cai et al., 2025, section 2).

Deviations: a group with equal outcomes gives no lesson, because it has no advantage; the library of experience is our
playbook, edited by ACE's curator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import ClassVar

from pydantic import Field

from practicum.blocks.accept.always import always
from practicum.blocks.act.show import answer, full_view
from practicum.blocks.attempt.attempt import grouped, once
from practicum.blocks.reflect.per_trace import tagged
from practicum.blocks.reflect.self_contrast import contrasted
from practicum.blocks.sample.orders import batches
from practicum.blocks.search.candidates import visible_score
from practicum.blocks.update.append import within_budget
from practicum.blocks.update.coverage import accounted
from practicum.blocks.update.curator import Curator
from practicum.core.context import Context
from practicum.core.types import Lesson, Rollout
from practicum.engine.loop import Method
from practicum.engine.run import Run
from practicum.methods.ace import CURATOR, SECTION
from practicum.methods.settings import Batched


class Settings(Batched):
    """Settings of Training-Free GRPO."""

    TRACES: ClassVar = None

    epochs: int = Field(default=3, ge=1)
    """How often all tasks are learned from (paper: 3)."""
    batch: int = Field(default=8, ge=1)
    """Tasks of a step."""
    group: int = Field(default=5, ge=2)
    """Attempts at each task (paper: 5)."""
    warmth: float = Field(default=0.7, gt=0)
    """The temperature of all attempts of a group but the first (paper: 0.7)."""
    budget: int = Field(default=80_000, ge=1)
    """The most tokens of the playbook."""


def method(s: Settings) -> Method:
    """Attempt each task in a group, put the difference into words, keep it."""
    act = answer(full_view)
    return Method(
        name="tf_grpo",
        sample=batches(s.online, s.epochs, s.batch),
        act=act,
        attempt=grouped(once(act), s.group, s.warmth),
        reflect=advantages,
        update=within_budget(accounted(Curator(CURATOR, SECTION), "keep", SECTION), s.budget),
        accept=always,
        roles=("reflector", "curator"),
        costs="groups, a contrast for each, one curation a step",
    )


async def advantages(rollouts: Sequence[Rollout], context: Context, run: Run) -> list[Lesson]:
    """Contrast the attempts of each group; all groups at once."""
    jobs = [(f"{i}.{rollout.task.id}", partial(_advantage, rollout)) for i, rollout in enumerate(rollouts)]
    return [lesson for lessons in await run.gather(jobs) for lesson in lessons]


async def _advantage(rollout: Rollout, run: Run) -> list[Lesson]:
    run = replace(run, about=rollout.sources)
    made = [r for r in rollout.group if not r.trace.lost]
    used = [tagged(r, f"{run.place}/used {n}") for n, r in enumerate(made, 1)]
    differ = len({visible_score(r, run) for r in made}) > 1
    found = await contrasted(rollout.group, run) if differ else None
    said = () if found is None else tuple(dict.fromkeys(text.strip() for text in found.separates if text.strip()))
    return [*used, *(Lesson(f"{run.place}/{n}", text, sources=rollout.sources) for n, text in enumerate(said, 1))]
