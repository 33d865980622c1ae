"""Live view of a run as text: the parts that a terminal's bar, plain lines and a notebook's display share.

`Live` turns events into text: lines that stay (`say`), and values that change (`status`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from practicum.core.metrics import METRICS
from practicum.core.types import Score, Task, Trace, Usage
from practicum.core.words import one_line, quantity
from practicum.engine.loop import StepReport
from practicum.engine.state import ModelCall
from practicum.models.client import Wait
from practicum.session.result import Evaluation, Progress, Result, RunInfo, Watch

LINE_INTERVAL = 5.0
"""Minimum interval (s) between two lines about waits, or about the reasons why steps use certain primitives (see
`methods.primitives`)."""

MAX_STEP_SHARE = 0.95
"""Maximum share of a step that counts as done before the step ends."""

JOURNAL_SECONDS = 2.0
"""Assumed time (s) after which a resumed evaluation has read its finished attempts from the journal."""

NODES_SHOWN = 4
"""Maximum number of nodes whose attempts are shown separately."""

LONGEST_ERROR = 300
"""Maximum length of an agent's error that is shown."""

PHASES = {"before": "before learning", "test": "final test", "eval": "evaluation"}
"""Names of evaluations as text."""


@dataclass(frozen=True)
class Status:
    """Progress of a phase.

    `done` is the progress as text, `n/N`; `share` is the progress in [0, 1], or None if the total is unknown. `left` is
    the remaining time (s), or None if unknown. `inner` is the progress of the current step, and `wait` the longest
    current wait, both as text.
    """

    phase: str
    done: str = ""
    share: float | None = None
    inner: str = ""
    left: float | None = None
    score: float | None = None
    best: float | None = None
    cost: str = ""
    calls: str = ""
    entries: str = ""
    wait: str = ""
    nodes: str = ""

    def parts(self, shorter: int = 0) -> list[str]:
        """Return the texts that follow `done`. A higher `shorter`, from 0 to 8, leaves out more of the less important
        texts."""
        best_title, title = METRICS["score.best_of_k"].title, METRICS["score.mean"].title
        best = "" if self.best is None or shorter > 5 else f", {best_title} {self.best:.0%}"
        scores = "" if self.score is None else f"{title + ' ' if shorter < 3 else ''}{self.score:.0%}{best}"
        wait = self.wait if shorter < 3 else self.wait.partition(" (")[0]
        parts = (
            self.inner if shorter < 4 else "",
            f"{clock(self.left)} left" if self.left is not None and shorter < 5 else "",
            scores,
            self.cost if shorter < 7 else "",
            self.calls if shorter < 2 else "",
            self.nodes if shorter < 4 else "",
            self.entries if shorter < 1 else "",
            wait if shorter < 7 else wait.rpartition(": ")[2],
        )
        return [part for part in parts if part]

    def fitted(self, width: int, bar: int) -> str:
        """Return the texts that fit after the phase and a bar of width `bar`, in a line of `width` characters."""
        room = width - len(self.phase) - bar - 2
        for shorter in range(8):
            line = " · ".join(filter(None, (self.done, *self.parts(shorter))))
            if len(line) < room:
                break
        return line[: max(room, 0)]


@dataclass(eq=False)
class _Counted:
    """Counts since a phase or a step began: calls, attempts, attempted tasks, and the first score of each task."""

    calls: int = 0
    attempts: int = 0
    tasks: set[str] = field(default_factory=set)
    scores: dict[str, float] = field(default_factory=dict)

    @property
    def score(self) -> float | None:
        return sum(self.scores.values()) / len(self.scores) if self.scores else None


class Live(Watch):
    """Observer that turns events into text. Subclasses show the text: `say` receives lines that stay, and `changed` is
    called when `status` has changed."""

    tick_seconds: float | None = None
    """Interval (s) between two calls of `tick`, for displays that do not redraw by themselves. None if `tick` is not
    called."""

    def __init__(self) -> None:
        self._timer: asyncio.TimerHandle | None = None
        self._run: RunInfo | None = None
        self._phase = "starting"
        self._total: int | None = None  # number of steps in learning, or of attempts in an evaluation
        self._download = (0, 0)
        self._read = 0
        self._step, self._batch, self._steps_done = 0, 0, 0
        self._progress: Progress | None = None
        self._counted, self._validated = _Counted(), _Counted()
        self._units: list[int] = []
        self._anchor: tuple[float, float] = (time.monotonic(), 0.0)
        self._worked = self._failed = False
        self._validation: set[int] = set()
        self._waits: list[tuple[float, Wait]] = []
        self._explained_at = 0.0
        self._why: object = None
        self._primitives: object = None
        self._nodes: Mapping[str, int] = {}

    def say(self, line: str) -> None:
        """Show a line that stays."""
        raise NotImplementedError

    def changed(self) -> None:
        """Handle a change of the status."""

    def tick(self) -> None:
        """Update the display after `tick_seconds`."""

    # ---- events

    def download(self, done: int, total: int) -> None:
        """Handle progress of the model's download: bytes received, bytes in total."""
        self._download = (done, total)
        self.changed()

    def reading(self, count: int) -> None:
        self._read = count
        self.changed()

    def began(self, run: RunInfo) -> None:
        self._run, self._download = run, (0, 0)
        self._tick_on()
        config, splits = run.config, run.splits
        self._validation = {id(task) for task in splits.val}
        self._total = run.steps
        models = f"model {config.models}, agent {config.agent}, profile {config.profile or 'full'}"
        if not splits.train:
            start = "" if run.context is None else f"; {context_text(run.context)}"
            self.say(f"{config.method} on {quantity(len(splits.test), 'task')}; {models}{start}")
            return
        others = f", {len(splits.val)} to validate" if splits.val else ""
        others += f", {len(splits.test)} held out" if splits.test else ""
        self.say(f"{config.method} on {quantity(len(splits.train), 'task')}{others}; {models}")
        if run.calls is not None:
            fewest, most = run.calls
            n = run.steps
            each = quantity(most, "call") if fewest == most else f"{fewest:,} to {quantity(most, 'call')}"
            whole = f"; {quantity(n, 'step')} make {n * fewest:,} to {n * most:,}" if n else ""
            self.say(f"each step makes {each}{whole}")
        self.say(f"stored in {run.folder}")
        self._begin("learning", run.steps)

    def warned(self, text: str) -> None:
        self.say(text)

    def evaluating(self, name: str, attempts: int) -> None:
        self._begin(PHASES.get(name, name), attempts)

    def evaluated(self, name: str, score: float | None, scored: int) -> None:
        total = self._total or 0
        if name != "eval":
            tasks = quantity(total, "task")
            of = tasks if scored == total else f"the {scored:,} of {tasks} that could be scored"
            outcome = f"none of {tasks} could be scored" if score is None else f"score {score:.1%} on {of}"
            self.say(f"{PHASES.get(name, name)}: {outcome}")
        if name == "before":
            self._begin("learning", self._run.steps if self._run else None)

    def stepping(self, step: int, tasks: int, steps: int | None) -> None:
        self._step, self._batch, self._total = step, tasks, steps or self._total
        self.changed()

    def stepped(self, report: StepReport, progress: Progress) -> None:
        self._explain(report)
        self._units.append(max(self._counted.calls, self._counted.attempts))
        self._counted, self._validated = _Counted(), _Counted()
        self._steps_done, self._batch, self._progress = report.step, 0, progress
        self._total = report.batch.steps or self._total
        self.changed()

    def called(self, call: ModelCall) -> None:
        if not self._worked:
            # Events before the first call came from the journal and say nothing about the pace.
            self._worked, self._anchor = True, (time.monotonic() - call.seconds, self._share() or 0.0)
        self._counted.calls += 1
        self.changed()

    def attempted(self, task: Task, trace: Trace) -> None:
        counted = self._validated if id(task) in self._validation else self._counted
        counted.attempts += 1
        counted.tasks.add(task.id)
        if trace.error is not None and not trace.lost and not self._failed:
            self._failed = True
            error = " ".join(trace.error.split())
            self.say(f"the agent failed on task {task.id}: {error[:LONGEST_ERROR]}")
        self.changed()

    def scored(self, task: Task, score: Score | None) -> None:
        if score is not None and id(task) not in self._validation:
            self._counted.scores.setdefault(task.id, score.value)
            self.changed()

    def spread(self, nodes: Mapping[str, int]) -> None:
        self._nodes = nodes
        self.changed()

    def waiting(self, wait: Wait) -> None:
        if wait.moved:
            self.say(moved_text(wait))
        self._waits.append((time.monotonic() + wait.seconds, wait))
        self.changed()

    def ended(self, result: Result | Evaluation | None) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _tick_on(self) -> None:
        if self.tick_seconds is not None:
            self._timer = asyncio.get_running_loop().call_later(self.tick_seconds, self._ticked)

    def _ticked(self) -> None:
        self.tick()
        self._tick_on()

    # ---- texts

    def status(self) -> Status:
        """Return the current progress of the run."""
        done, total = self._download
        if total:
            return Status("downloading the model", f"{done // 10**6:,}/{total // 10**6:,} MB", done / total)
        if self._read and self._run is None:
            return Status("reading", quantity(self._read, "task"))
        share, learning = self._share(), self._phase == "learning"
        progress, counted = self._progress if learning else None, self._counted
        usage = self._run.budget.spent if self._run else Usage()
        entries = quantity(len(progress.context), "entry") if progress else ""
        entries += f", {progress.held:,} held for review" if progress and progress.held else ""
        return Status(
            self._phase,
            self._done(),
            share,
            self._inner() if learning else "",
            self._left(share),
            progress.score if progress else counted.score,
            progress.best_of_k if progress else None,
            cost_text(usage) if usage.calls else "",
            quantity(usage.calls, "call") if usage.calls else "",
            entries,
            self._wait(),
            nodes_text(self._nodes),
        )

    def _done(self) -> str:
        """Return the progress as n/N. In learning, n counts steps, or tasks if the number of steps is unknown. In an
        evaluation, n counts attempts."""
        if self._phase == "starting":
            return ""
        if self._phase != "learning":
            return f"{self._evaluated():,}/{self._total:,} {'tasks' if self._is_single else 'attempts'}"
        if self._total:
            return f"{self._steps_done:,}/{self._total:,} steps"
        tasks, train = len(self._counted.tasks), len(self._run.splits.train) if self._run else 0
        return f"{tasks:,}/{train:,} tasks" if not self._steps_done else f"step {self._steps_done:,}"

    def _inner(self) -> str:
        """Return the progress of the current step."""
        if self._validated.tasks and self._run:
            return f"{len(self._validated.tasks):,}/{len(self._run.splits.val):,} to validate"
        tried = len(self._counted.tasks)
        # Before the first attempt of a step, no progress of the step is shown. The first step is an exception.
        return f"{tried:,}/{self._batch:,} tasks" if self._batch and (tried or not self._steps_done) else ""

    def _evaluated(self) -> int:
        """Return the number of finished tasks of an evaluation, or the number of finished attempts if the evaluation
        makes several attempts per task."""
        return len(self._counted.tasks) if self._is_single else min(self._counted.attempts, self._total or 0)

    @property
    def _is_single(self) -> bool:
        """Whether an evaluation makes one attempt per task."""
        return self._run is not None and self._total == len(self._run.splits.test)

    def _share(self) -> float | None:
        if not self._total:
            return None
        if self._phase != "learning":
            return self._evaluated() / self._total
        units = max(self._counted.calls, self._counted.attempts)
        announced = self._run.calls if self._run else None
        recent: list[float] = [*self._units[-5:]] or ([sum(announced) / 2] if announced else [2 * self._batch])
        usual = sum(recent) / len(recent)
        return (self._steps_done + (min(units / usual, MAX_STEP_SHARE) if usual else 0.0)) / self._total

    def _left(self, share: float | None) -> float | None:
        """Return the seconds left in this phase, at the phase's pace so far. Results that are read from the journal do
        not count for the pace."""
        began, before = self._anchor
        seconds = time.monotonic() - began
        # A resume first reads results from the run's journal, and no event reports this reading.
        has_pace = self._worked or (self._phase != "learning" and seconds > JOURNAL_SECONDS)
        if not has_pace or share is None or not before < share < 1:
            return None
        return seconds * (1 - share) / (share - before)

    def _wait(self) -> str:
        """Return the text of the longest current wait."""
        now = time.monotonic()
        self._waits = [(until, wait) for until, wait in self._waits if until > now]
        if not self._waits:
            return ""
        until, wait = max(self._waits, key=lambda each: each[0])
        return wait_text(wait, ceil(until - now), len(self._waits))

    def _explain(self, report: StepReport) -> None:
        """Show the reason why a step uses its primitives: at once if the previous step used other primitives. A new
        reason for the same primitives is shown at the earliest LINE_INTERVAL after the last reason."""
        why, primitives = report.batch.data.get("why"), report.batch.data.get("primitives")
        switched, self._primitives = primitives != self._primitives, primitives
        due = why != self._why and time.monotonic() - self._explained_at >= LINE_INTERVAL
        if why is not None and (switched or due):
            self._why, self._explained_at = why, time.monotonic()
            self.say(f"step {report.step}: {quantity(len(report.batch.tasks), 'task')}; {why}")

    def _begin(self, phase: str, total: int | None) -> None:
        self._phase, self._total = phase, total
        self._counted, self._worked, self._anchor = _Counted(), False, (time.monotonic(), 0.0)
        self.changed()


def nodes_text(nodes: Mapping[str, int]) -> str:
    """Return the number of attempts in flight per node, `3 nodes: 16+16+4`; for many nodes, the range."""
    if not nodes:
        return ""
    counts = [*nodes.values()]
    each = "+".join(map(str, counts)) if len(counts) <= NODES_SHOWN else f"{min(counts)} to {max(counts)} each"
    return f"{quantity(len(counts), 'node')}: {each}"


def wait_text(wait: Wait, seconds: int, calls: int = 1) -> str:
    """Return a wait as text: `rate limited: waiting 20 s (try 2 of 6)`, `batch of 40 requests: next check in 90 s`."""
    if wait.batch:
        return f"batch of {quantity(wait.batch, 'request')}: next check in {seconds} s"
    why = "rate limited" if wait.limited else "no answer"
    waiting = "waiting" if calls == 1 else f"{calls:,} calls wait up to"
    return f"{why}: {waiting} {seconds} s (try {wait.tries + 1} of {wait.most})"


def moved_text(wait: Wait) -> str:
    """Return the message about a server that failed while the model has other servers."""
    return f"{wait.model} failed; calls go to the model's other servers: {one_line(wait.reason, LONGEST_ERROR)}"


def cost_text(usage: Usage) -> str:
    """Return the cost in US dollars as text, or the number of tokens if the cost is unknown or 0."""
    if usage.usd:
        return f"${usage.usd:.4f}" if usage.usd < 0.1 else f"${usage.usd:,.2f}"
    if usage.tokens < 1000:
        return quantity(usage.tokens, "token")
    size, unit = (1e6, "M") if usage.tokens >= 1e6 else (1e3, "k")
    return f"{usage.tokens / size:.1f}{unit} tokens"


def context_text(context: Any) -> str:
    """Return a context as short text."""
    if not context.version and not len(context):
        return "an empty context"
    return f"context: version {context.version}, {quantity(len(context), 'entry')}"


def clock(seconds: float) -> str:
    """Return a time as 0:40 or 1:02:33."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
