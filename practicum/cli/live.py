"""Watching a run from the command line: Ctrl-C, the live view, and the report at the end."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from practicum.cli.output import usage_text
from practicum.core.views import render_full
from practicum.engine.loop import StepReport
from practicum.session.result import INTERRUPTED, Progress, Result, RunInfo, Watch

if TYPE_CHECKING:
    from practicum.cli.output import Output

PLAIN_EVERY = 5.0
"""Seconds between plain lines, where there is no terminal to draw on."""


LEAVE_WITHIN = 2.0
"""Seconds from the second Ctrl-C to the end, whatever still runs."""


class Stoppable(Protocol):
    """Work that can be stopped, such as a budget."""

    @property
    def in_flight(self) -> int:
        """The calls that a stop allows to finish."""

    def stop(self, reason: str) -> None:
        """Start no more calls."""


S = TypeVar("S", bound=Stoppable)


class Stopper(Watch):
    """Ctrl-C: the first lets the calls in flight finish, the second leaves at once."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.task: asyncio.Task[Any] | None = None
        self._stoppable: Stoppable | None = None
        self._stopping = False

    def began(self, run: RunInfo) -> None:
        self.stops(run.budget)

    def stops(self, work: S) -> S:
        """The same work, which Ctrl-C stops from now on."""
        self._stoppable = work
        return work

    def interrupt(self) -> None:
        """Ctrl-C was pressed."""
        if self._stoppable is None or self._stopping:
            if self.task is not None:
                self.task.cancel()
            # A function of the user in a thread cannot be cancelled; what is on the disk is safe.
            leave = threading.Timer(LEAVE_WITHIN, os._exit, (130,))
            leave.daemon = True
            leave.start()
            return
        self._stopping = True
        calls = self._stoppable.in_flight
        self._stoppable.stop(INTERRUPTED)
        self.console.print(f"Stopping: {calls} calls in flight are finished first. Ctrl-C again leaves at once.")


class Download:
    """Prints how much of a model's file was downloaded: bytes so far, bytes in all."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._tenth = -1

    def __call__(self, done: int, total: int) -> None:
        if (tenth := done * 10 // max(total, 1)) > self._tenth:
            self._tenth = tenth
            self.console.print(f"downloading the model: {done / 1e6:,.0f} of {total / 1e6:,.0f} MB")


class Live(Watch):
    """Shows how a run goes: a bar on a terminal, plain lines elsewhere."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._drawn = console.is_terminal
        self._bar = Bar(
            TextColumn("{task.description:<9}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[state]}"),
            TimeRemainingColumn(compact=True),
            console=console,
            transient=True,
        )
        self._row = None if not self._drawn else self._bar.add_task("learning", visible=False, state="")
        self._download = Download(console)
        self._stopper: Stopper | None = None
        self._phase = ""
        self._tasks = 0
        self._printed = 0.0
        self._explained = 0.0
        self._why: str | None = None
        self._primitives: object = None

    def __enter__(self) -> Live:
        if self._drawn:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._drawn:
            self._bar.stop()

    def stopped_by(self, stopper: Stopper) -> Live:
        """The same view of a run that Ctrl-C can stop."""
        self._stopper = stopper
        return self

    def progress(self, done: int, total: int) -> None:
        """The model's file is being downloaded: bytes so far, bytes in all."""
        if self._row is not None:
            state = f"{done / 1e6:,.0f} of {total / 1e6:,.0f} MB"
            self._bar.update(self._row, description="download", total=total, completed=done, state=state, visible=True)
        else:
            self._download(done, total)

    def began(self, run: RunInfo) -> None:
        if self._stopper is not None:
            self._stopper.began(run)
        config, splits = run.config, run.splits
        self._tasks = len(splits.test)
        others = f", {len(splits.val)} to validate" if splits.val else ""
        others += f", {len(splits.test)} held out" if splits.test else ""
        self.console.print(f"{config.method} on {len(splits.train)} tasks{others}; model {config.model}")
        if run.calls is not None:
            fewest, most = run.calls
            self.console.print(f"each step makes {fewest:,} to {most:,} calls")
        self.console.print(f"kept in {run.folder}")

    def evaluating(self, name: str, tasks: int) -> None:
        self._begin(name, tasks)

    def attempted(self) -> None:
        if self._row is not None and self._phase in SCORE_NAMES:
            self._bar.advance(self._row)

    def evaluated(self, name: str, score: float | None, scored: int) -> None:
        if score is None:
            self.console.print(f"{name}: none of {self._tasks} tasks could be scored")
            return
        whole = f"{self._tasks} tasks"
        tasks = whole if scored == self._tasks else f"the {scored} of {whole} that could be scored"
        self.console.print(f"{name}: {score:.1%} of {tasks}")

    def stepped(self, report: StepReport, progress: Progress) -> None:
        steps = report.batch.steps
        if report.step == 1 or self._phase != "learning":
            self._begin("learning", steps)
        self._explain(report)
        score = f"score {progress.points / progress.attempts:.0%} · " if progress.attempts else ""
        state = f"{score}{len(report.context)} entries · {usage_text(progress.usage)}"
        if self._row is not None:
            self._bar.update(self._row, completed=report.step, state=state)
        elif time.monotonic() - self._printed >= PLAIN_EVERY or report.step == steps:
            self._printed = time.monotonic()
            self.console.print(f"step {report.step}{f' of {steps}' if steps is not None else ''}: {state}")

    def _explain(self, report: StepReport) -> None:
        """Print why the step is made as it is: every change of its primitives, other reasons now and then."""
        why, primitives = report.batch.data.get("why"), report.batch.data.get("primitives")
        switched, self._primitives = primitives != self._primitives, primitives
        due = why != self._why and time.monotonic() - self._explained >= PLAIN_EVERY
        if why is not None and (switched or due):
            self._why, self._explained = why, time.monotonic()
            self.console.print(f"step {report.step}: {len(report.batch.tasks)} tasks; {why}")

    def _begin(self, phase: str, total: int | None) -> None:
        self._phase = phase
        if self._row is not None:
            # A row of the bar cannot lose its total again, so each phase has a new one.
            self._bar.remove_task(self._row)
            self._row = self._bar.add_task(phase, total=total, state="")


def report(out: Output, result: Result) -> None:
    """What a person wants to know at the end."""
    if result.stopped:
        higher = "" if result.interrupted else " and a higher limit"
        out.print(f"Stopped early: {result.stopped}. Continue with: practicum resume {result.run}{higher}")
    for name, score in result.scores.items():
        out.print(f"{SCORE_NAMES.get(name, name)}: {score:.1%}")
    context = result.context
    out.print(f"context: version {context.version}, {len(context)} entries, {render_full(context).tokens:,} tokens")
    out.usage(result.usage, result.seconds, result.hits, result.by_role)
    out.counts(result.errors, result.refused)
    out.print(f"look at it: practicum show {result.run}")


SCORE_NAMES = {
    "before": "test score before",
    "test": "test score",
    "val_best": "best validation score",
    "online": "online score",
}
