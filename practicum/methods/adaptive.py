"""Adaptive choice of primitives, step by step, from the results of a run (beyond RCL, whose ablations find that the
best composition depends on the task).

Each choice of primitives builds a method, which runs the step. The choice and its reason are stored with the step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from typing import Any

from practicum.core.types import Task
from practicum.engine.loop import Batch, History, Method
from practicum.engine.run import Run

PROBE = 3
"""Number of steps, at the start of each period, that always use groups and heads, to measure whether these two help."""

PERIOD = 12
"""Number of steps of a period. Each period probes groups and heads again, because they may help later even if they did
not help early."""

CONTRAST, NO_GAP, CITED, UNSTABLE = 0.25, 0.3, 0.5, 0.15
"""Smallest measured shares at which groups, heads, the twin and the state are used, in this order. The shares are
defined in `decide`, and stored with each step."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Choice of the primitives of one step: True if the step uses the primitive."""

    group: bool
    twin: bool
    heads: bool
    state: bool


@dataclass
class Relapses:
    """Counter of relapses. A relapse is an attempt that failed although the previous attempt at the same task had
    passed. Each step is read once, so that a long run does not slow down."""

    last: dict[str, bool] = field(default_factory=dict)
    failed: list[bool] = field(default_factory=list)
    steps: int = 0

    def share(self, history: History) -> float:
        """Return the share of relapses among all attempts at tasks that were attempted before. Attempts without a known
        outcome do not count."""
        for attempt in (r for step in history[self.steps :] for r in step.attempts):
            id, passed = attempt.task.id, attempt.feedback.success
            if passed is not None:
                if id in self.last:
                    self.failed.append(self.last[id] and not passed)
                self.last[id] = passed
        self.steps = len(history)
        return _share(self.failed)


def decide(history: History, relapses: Relapses) -> tuple[Choice, str]:
    """Choose the primitives of the next step, and give the reason for each.

    The newest `PERIOD` steps decide about groups (used if groups with a failure often also have a success), heads (used
    if failures are often due to chance or intractable) and the twin (used if failed attempts often relied on entries).
    The whole run decides about the state (used if tasks that passed often fail again). Groups and heads are also used
    in steps that probe them."""
    probing = len(history) % PERIOD < PROBE
    attempts = [r for step in history[-PERIOD:] for r in step.attempts]
    groups = [{run.feedback.success for run in r.group} for r in attempts if r.siblings]
    causes = [x.data.get("attribution") for step in history[-PERIOD:] for x in step.lessons]
    contrast = _share(True in outcomes for outcomes in groups if False in outcomes)
    gap = _share(cause != "actionable_gap" for cause in causes if cause is not None)
    cited = _share(bool(r.trace.used) for r in attempts if r.feedback.success is False)
    lost = relapses.share(history)
    choice = Choice(
        group=probing or contrast >= CONTRAST,
        twin=cited >= CITED,
        heads=probing or gap >= NO_GAP,
        state=lost >= UNSTABLE,
    )
    reasons = (
        ("groups", choice.group, f"{contrast:.0%} of groups with a failure also had a success"),
        ("heads", choice.heads, f"{gap:.0%} of failures were chance or intractable"),
        ("twin", choice.twin, f"{cited:.0%} of failures had relied on an entry"),
        ("state", choice.state, f"{lost:.0%} of repeated attempts failed after a success"),
    )
    why = "; ".join(f"{name} {'on' if on else 'off'} ({reason})" for name, on, reason in reasons)
    return choice, f"probing: {why}" if probing else why


def switching(base: Method, build: Callable[[Choice], Method]) -> Method:
    """Build a method that runs each step with `build(choice)`. The sampler of `base` chooses the tasks."""
    active, order, built = base, base.sample, cache(build)

    def sample(tasks: Sequence[Task], history: History, run: Run) -> Iterator[Batch]:
        nonlocal active
        relapses = Relapses()
        for batch in order(tasks, history, run):
            choice, why = decide(history, relapses)
            active = built(choice)
            # The sampler of `base` may give a reason for the number of tasks. Both reasons are stored.
            why = "; ".join(part for part in (batch.data.get("why"), why) if part)
            yield replace(batch, data={**batch.data, "primitives": asdict(choice), "why": why})

    def current(seam: str) -> Any:
        async def call(*arguments: Any) -> Any:
            return await getattr(active, seam)(*arguments)

        return call

    return replace(
        base, sample=sample, attempt=current("attempt"), reflect=current("reflect"), update=current("update")
    )


def _share(flags: Iterable[bool]) -> float:
    flags = list(flags)
    return sum(flags) / len(flags) if flags else 0.0
