"""The live view of a run: a bar on a terminal, plain lines elsewhere; and the report at the end."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.table import Column

from practicum.cli.output import SCORE_NAMES, usage_text
from practicum.core.types import Task, Trace
from practicum.core.views import render_full
from practicum.engine.loop import StepReport
from practicum.session.result import Progress, Result, RunInfo, Watch

if TYPE_CHECKING:
    from practicum.cli.output import Printer

PLAIN_EVERY = 5.0
"""Seconds between plain lines, where there is no terminal to draw on."""


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
    """Shows how a run goes, and tells a stopper what there is to stop."""

    def __init__(self, console: Console, stopper: Watch | None = None) -> None:
        self.console = console
        self._stopper = stopper
        self._download = Download(console)
        self._bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(bar_width=8),
            MofNCompleteColumn(table_column=Column(no_wrap=True)),  # so that the bar alone shrinks
            TextColumn("{task.fields[state]}"),
            TimeRemainingColumn(compact=True),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._row = self._bar.add_task("", visible=False, state="")
        self._phase = ""
        self._tasks = 0
        self._failed = False
        self._printed = 0.0
        self._explained = 0.0
        self._why: str | None = None
        self._primitives: object = None

    def __enter__(self) -> Live:
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def download(self, done: int, total: int) -> None:
        """The model's file is being downloaded: bytes so far, bytes in all."""
        if self._bar.disable:
            self._download(done, total)
        else:
            done, total = done // 10**6, total // 10**6
            self._bar.update(self._row, description="download", completed=done, total=total, state="MB", visible=True)

    def began(self, run: RunInfo) -> None:
        if self._stopper is not None:
            self._stopper.began(run)
        config, splits = run.config, run.splits
        self._tasks = len(splits.test)
        others = f", {len(splits.val)} to validate" if splits.val else ""
        others += f", {len(splits.test)} held out" if splits.test else ""
        self.console.print(
            f"{config.method} on {len(splits.train)} tasks{others}; model {config.models}, profile {config.profile}"
        )
        if run.calls is not None:
            fewest, most = run.calls
            n = run.steps
            whole = f"; {n:,} steps make {n * fewest:,} to {n * most:,}" if n else ""
            self.console.print(f"each step makes {fewest:,} to {most:,} calls{whole}")
        self.console.print(f"kept in {run.folder}")
        self._begin("learning")

    def evaluating(self, name: str, tasks: int) -> None:
        self._begin(name, tasks)

    def attempted(self, task: Task, trace: Trace) -> None:
        if trace.error is not None and not trace.lost and not self._failed:
            self._failed = True
            self.console.print(f"the agent failed on task {task.id}: {trace.error}", style="red")
        if self._phase in SCORE_NAMES:
            self._bar.advance(self._row)

    def evaluated(self, name: str, score: float | None, scored: int) -> None:
        if name == "before":
            self._begin("learning")
        if score is None:
            self.console.print(f"{name}: none of {self._tasks} tasks could be scored")
            return
        whole = f"{self._tasks} tasks"
        tasks = whole if scored == self._tasks else f"the {scored} of {whole} that could be scored"
        self.console.print(f"{name}: {score:.1%} of {tasks}")

    def stepped(self, report: StepReport, progress: Progress) -> None:
        steps = report.batch.steps
        self._explain(report)
        score, best = progress.score, progress.best_of_k
        first = [] if score is None else [f"score {score:.0%}"]
        chosen = [] if best is None else [f"best of k {best:.0%}"]
        entries, usage = f"{len(report.context)} entries", progress.usage
        # Beside the bar, the state has to fit into a line of 80 characters.
        size, unit = (1e6, "M") if usage.tokens >= 1e6 else (1e3, "k")
        cost = f"${usage.usd:.2f}" if usage.usd else f"{usage.tokens / size:.1f}{unit} tokens"
        scores = first if best is None else [f"{score or 0:.0%}, best {best:.0%}"]
        short = " · ".join([*scores, entries, f"{usage.calls:,} calls", cost])
        self._bar.update(self._row, completed=report.step, total=steps, state=short)
        due = time.monotonic() - self._printed >= PLAIN_EVERY or report.step == steps
        if self._bar.disable and due:
            self._printed = time.monotonic()
            of = f" of {steps}" if steps is not None else ""
            self.console.print(f"step {report.step}{of}: {' · '.join([*first, *chosen, entries, usage_text(usage)])}")

    def _explain(self, report: StepReport) -> None:
        """Print why the step is made as it is: every change of its primitives, other reasons now and then."""
        why, primitives = report.batch.data.get("why"), report.batch.data.get("primitives")
        switched, self._primitives = primitives != self._primitives, primitives
        due = why != self._why and time.monotonic() - self._explained >= PLAIN_EVERY
        if why is not None and (switched or due):
            self._why, self._explained = why, time.monotonic()
            self.console.print(f"step {report.step}: {len(report.batch.tasks)} tasks; {why}")

    def _begin(self, phase: str, total: int | None = None) -> None:
        self._phase = phase
        # A row of the bar cannot lose its total again, so each phase has a new one.
        self._bar.remove_task(self._row)
        self._row = self._bar.add_task(phase, total=total, state="")


LIMIT_OPTIONS = {"calls": "--max-calls", "tokens": "--max-tokens", "USD": "--max-usd", "minutes": "--max-minutes"}
"""The option that raises a limit, by the unit of the limit."""


def report(out: Printer, result: Result) -> None:
    """What a person wants to know at the end."""
    if result.stopped:
        unit = result.stopped.removesuffix(" is spent").rpartition(" ")[2]
        higher = f" {LIMIT_OPTIONS[unit]} N" if unit in LIMIT_OPTIONS else ""
        out.print(f"Stopped early: {result.stopped}. Continue with: practicum resume {result.run}{higher}")
    out.scores(result.scores)
    context = result.context
    out.print(f"context: version {context.version}, {len(context)} entries, {render_full(context).tokens:,} tokens")
    out.usage(result.usage, result.seconds, result.hits, result.by_role)
    out.counts(result.errors, result.refused)
    out.print(f"look at it: practicum show {result.run}")
