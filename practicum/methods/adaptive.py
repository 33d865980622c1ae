"""Choosing primitives step by step from what the run shows (beyond RCL, whose ablations find that the best composition
depends on the task).

Each choice of primitives builds a method, which runs the step. The choice and its reason are stored with the step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace

from practicum.core.context import Context
from practicum.core.edits import Delta
from practicum.core.types import Lesson, Rollout, Task
from practicum.engine.loop import Batch, History, Method
from practicum.engine.run import Run

PROBE = 3
"""Steps at the start of each period in which groups and heads are used to measure whether they help."""

PERIOD = 12
"""Steps after which everything is probed again, because what did not help early may help later."""

CONTRAST, NO_GAP, CITED, UNSTABLE = 0.25, 0.3, 0.5, 0.15
"""The shares from which groups, heads, the twin and the state are used; the reason of a step names them."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The primitives of one step."""

    group: bool
    twin: bool
    heads: bool
    state: bool


@dataclass
class Relapses:
    """Counts repeated attempts at tasks, and how many of them failed after the attempt before had passed. Each step is
    read once, so that a long run does not slow down."""

    last: dict[str, bool] = field(default_factory=dict)
    again: int = 0
    failed: int = 0
    steps: int = 0

    def read(self, history: History) -> None:
        """Count the new steps."""
        for rollout in (r for step in history[self.steps :] for r in step.rollouts):
            if rollout.feedback.success is None:
                continue
            passed = rollout.feedback.success
            if rollout.task.id in self.last:
                self.again += 1
                self.failed += self.last[rollout.task.id] and not passed
            self.last[rollout.task.id] = passed
        self.steps = len(history)

    @property
    def share(self) -> float:
        """The share of repeated attempts that failed after the attempt before had passed."""
        return self.failed / self.again if self.again else 0.0


def decide(history: History, relapses: Relapses) -> tuple[Choice, str]:
    """The primitives of the next step, and the reason for each.

    The last period decides about groups (used if attempts within them differ), heads (if failures are often not the
    playbook's fault) and the twin (if failed attempts relied on entries). The whole run decides about the state (used
    if tasks that passed fail again).
    """
    relapses.read(history)
    seen = history[-PERIOD:]
    probing = len(history) % PERIOD < PROBE
    contrast, gap = _contrast(seen), _without_gap(seen)
    cited, lost = _cited(seen), relapses.share
    choice = Choice(
        group=probing or contrast >= CONTRAST,
        twin=cited >= CITED,
        heads=probing or gap >= NO_GAP,
        state=lost >= UNSTABLE,
    )
    parts = [
        f"groups {_on(choice.group)} ({contrast:.0%} of failing groups had a success)",
        f"heads {_on(choice.heads)} ({gap:.0%} of failures were chance or intractable)",
        f"twin {_on(choice.twin)} ({cited:.0%} of failures had relied on an entry)",
        f"state {_on(choice.state)} ({lost:.0%} of tasks tried again had passed before and failed)",
    ]
    return choice, ("probing: " if probing else "") + "; ".join(parts)


def switching(base: Method, build: Callable[[Choice], Method]) -> Method:
    """A method that runs each step with `build(choice)`; the tasks come in the order of `base`."""
    made: dict[Choice, Method] = {}
    now = _Now(base)

    def sample(tasks: Sequence[Task], history: History, run: Run) -> Iterator[Batch]:
        relapses = Relapses()
        for batch in base.sample(tasks, history, run):
            choice, why = decide(history, relapses)
            now.method = made[choice] = made.get(choice) or build(choice)
            # The base may have its own reason, for the number of tasks.
            why = "; ".join(part for part in (batch.data.get("why"), why) if part)
            yield replace(batch, data={**batch.data, "primitives": asdict(choice), "why": why})

    async def attempt(batch: Batch, context: Context, run: Run) -> list[Rollout]:
        return await now.method.attempt(batch, context, run)

    async def reflect(rollouts: Sequence[Rollout], context: Context, run: Run) -> list[Lesson]:
        return await now.method.reflect(rollouts, context, run)

    async def update(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        return await now.method.update(lessons, context, run)

    return replace(base, sample=sample, attempt=attempt, reflect=reflect, update=update)


@dataclass
class _Now:
    """The method of the current step: the sampler sets it before the loop calls another seam."""

    method: Method


def _on(yes: bool) -> str:
    return "on" if yes else "off"


def _share(flags: Sequence[bool]) -> float:
    return sum(flags) / len(flags) if flags else 0.0


def _contrast(history: History) -> float:
    groups = [[r.feedback.success for r in one.group] for step in history for one in step.rollouts if one.siblings]
    return _share([True in outcomes for outcomes in groups if False in outcomes])


def _without_gap(history: History) -> float:
    said = [x.data["attribution"] for step in history for x in step.lessons if "attribution" in x.data]
    return _share([attribution != "actionable_gap" for attribution in said])


def _cited(history: History) -> float:
    return _share([bool(r.trace.used) for step in history for r in step.rollouts if r.feedback.success is False])
