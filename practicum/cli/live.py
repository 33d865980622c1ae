"""The live view: a bar with what matters on a terminal, plain lines elsewhere; and the report at the end."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from practicum.cli.output import usage_text
from practicum.core.views import render_full
from practicum.engine.loop import StepReport

if TYPE_CHECKING:
    from practicum.cli.output import Output
    from practicum.session.learn import Session
    from practicum.session.result import Result

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


class Live:
    """Watches a session."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._drawn = console.is_terminal
        self._bar = Progress(
            TextColumn("{task.description:<9}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[state]}"),
            TimeRemainingColumn(compact=True),
            console=console,
            transient=True,
        )
        self._step = None if not self._drawn else self._bar.add_task("learning", visible=False, state="")
        self._session: Session | None = None
        self._last = 0.0
        self._fetching = Download(console)
        self._said: str | None = None
        self._told = 0.0
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

    def progress(self, done: int, total: int) -> None:
        """The model's file is being downloaded: bytes so far, bytes in all."""
        if self._step is not None:
            state = f"{done / 1e6:,.0f} of {total / 1e6:,.0f} MB"
            self._bar.update(self._step, description="download", total=total, completed=done, state=state, visible=True)
        else:
            self._fetching(done, total)

    def began(self, session: Session) -> None:
        self._session = session
        config, splits = session.config, session.splits
        held = f", {len(splits.val)} to validate" if splits.val else ""
        held += f", {len(splits.test)} held out" if splits.test else ""
        self.console.print(f"{config.method} on {len(splits.train)} tasks{held}; model {config.model}")
        self.console.print(f"kept in {session.folder}")

    def evaluating(self, session: Session, name: str, tasks: int) -> None:
        self._phase(name, tasks)
        if self._step is not None:
            session.state.on_attempt = lambda: self._bar.advance(self._step)

    def evaluated(self, session: Session, name: str, score: float | None, scored: int) -> None:
        session.state.on_attempt = None
        tasks = len(session.splits.test)
        if score is None:
            self.console.print(f"{name}: none of {tasks} tasks could be scored")
            return
        of = f"{tasks} tasks" if scored == tasks else f"the {scored} of {tasks} tasks that could be scored"
        self.console.print(f"{name}: {score:.1%} of {of}")

    def stepped(self, session: Session, report: StepReport) -> None:
        steps = report.batch.steps
        if report.step == 1 or self._phase_name != "learning":
            self._phase("learning", steps)
        self._explain(report)
        words = f"{_score(session)}{len(report.context)} entries · {usage_text(session.state.budget.spent)}"
        if self._step is not None:
            self._bar.update(self._step, completed=report.step, state=words)
        elif time.monotonic() - self._last >= PLAIN_EVERY or report.step == steps:
            self._last = time.monotonic()
            self.console.print(f"step {report.step}{f' of {steps}' if steps is not None else ''}: {words}")

    def _explain(self, report: StepReport) -> None:
        """Why the step is made as it is: each switch of its primitives, other reasons now and then."""
        said, primitives = report.batch.data.get("why"), report.batch.data.get("primitives")
        switched, self._primitives = primitives != self._primitives, primitives
        due = said != self._said and time.monotonic() - self._told >= PLAIN_EVERY
        if said is not None and (switched or due):
            self._said, self._told = said, time.monotonic()
            self.console.print(f"step {report.step}: {len(report.batch.tasks)} tasks; {said}")

    _phase_name = ""

    def _phase(self, name: str, total: int | None) -> None:
        self._phase_name = name
        if self._step is not None:
            # A new one each time: of one that is there, it can no longer be said that its total is not known.
            self._bar.remove_task(self._step)
            self._step = self._bar.add_task(name, total=total, state="")


def _score(session: Session) -> str:
    """The score so far, of the attempts made before each lesson."""
    progress = session.progress
    return f"score {progress.points / progress.attempts:.0%} · " if progress.attempts else ""


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
