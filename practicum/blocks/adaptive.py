"""Which primitives to use, decided step by step from what the run shows (beyond RCL, whose ablations find that the best
composition depends on the task).

Each choice makes a method of its own; the step runs on that one. What was chosen, and why, is in the step's row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace

from practicum.context import Context, Delta
from practicum.loop import Batch, History, Method, StepReport
from practicum.run import Run
from practicum.types import Lesson, Rollout, Task

PROBE = 3
"""Steps at the start, and at the start of each period, in which groups and heads are used to see what they show."""

PERIOD = 12
"""Steps after which all is probed again: what was of no use early may be of use later."""

CONTRAST, NO_GAP, UNSTABLE = 0.25, 0.3, 0.15


@dataclass(frozen=True, slots=True)
class Choice:
    """The primitives of one step, and the reason of each."""

    group: bool
    twin: bool
    heads: bool
    state: bool
    why: str


def decide(history: History) -> Choice:
    """From the last period: groups where they differ within, heads where failures are often not the playbook's fault,
    the twin where entries were in use on failures, the state where tasks that passed fail again."""
    seen = history[-PERIOD:]
    probing = len(history) % PERIOD < PROBE
    contrast, gap = _contrast(seen), _without_gap(seen)
    cited, lost = _cited(seen), _relapsed(history)
    parts = [
        f"groups {_on(probing or contrast >= CONTRAST)} ({contrast:.0%} of failing groups had a success)",
        f"heads {_on(probing or gap >= NO_GAP)} ({gap:.0%} of failures were chance or intractable)",
        f"twin {_on(cited >= 0.5)} ({cited:.0%} of failures had relied on an entry)",
        f"state {_on(lost >= UNSTABLE)} ({lost:.0%} of tasks tried again had passed before and failed)",
    ]
    why = ("probing: " if probing else "") + "; ".join(parts)
    return Choice(probing or contrast >= CONTRAST, cited >= 0.5, probing or gap >= NO_GAP, lost >= UNSTABLE, why)


def switching(base: Method, build: Callable[[Choice], Method]) -> Method:
    """A method that takes `build(choice)` for each step; tasks come in the order of `base`."""
    made: dict[Choice, Method] = {}
    now = _Now(base)

    def sample(tasks: Sequence[Task], history: History, run: Run) -> Iterator[Batch]:
        for batch in base.sample(tasks, history, run):
            choice = decide(history)
            key = replace(choice, why="")
            now.method = made[key] = made.get(key) or build(choice)
            yield replace(batch, data={**batch.data, "primitives": asdict(key), "why": choice.why})

    async def attempt(batch: Batch, context: Context, run: Run) -> list[Rollout]:
        return await now.method.attempt(batch, context, run)

    async def reflect(rollouts: Sequence[Rollout], context: Context, run: Run) -> list[Lesson]:
        return await now.method.reflect(rollouts, context, run)

    async def update(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        return await now.method.update(lessons, context, run)

    return replace(base, sample=sample, attempt=attempt, reflect=reflect, update=update)


@dataclass
class _Now:
    """The method of the step under way: the sampler sets it before the loop asks for anything."""

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


def _relapsed(history: Sequence[StepReport]) -> float:
    """Share of repeated attempts that failed where the one before had passed."""
    last: dict[str, bool] = {}
    again: list[bool] = []
    for rollout in (r for step in history for r in step.rollouts if r.feedback.success is not None):
        passed = rollout.feedback.success is True
        if rollout.task.id in last:
            again.append(last[rollout.task.id] and not passed)
        last[rollout.task.id] = passed
    return _share(again)
