"""Live view of a run (a progress bar on a terminal, plain lines elsewhere), and the report at its end."""

from __future__ import annotations

import time

from rich.console import Console
from rich.live import Live as Screen
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from practicum.cli.options import as_options
from practicum.cli.output import Printer
from practicum.core.views import render_full
from practicum.core.visible import visible_line
from practicum.core.words import one_line, quantity
from practicum.engine.loop import StepReport
from practicum.models.budget import spent_limit
from practicum.models.client import Wait
from practicum.session.live import Live, wait_text
from practicum.session.result import Progress, Result, RunInfo, waiting_line

NARROWEST, WIDEST = 6, 40
"""Minimum and maximum width (characters) of the bar."""

PLAIN_EVERY = 5.0
"""Minimum interval (s) between two status lines of the view without a progress bar (`Plain`)."""

QUIET = 30.0
"""Time (s) without output after which `Plain` prints a line even if no call has ended."""

SHORTEST_WAIT = 1.0
"""Shortest wait (s) that `Plain` reports."""


class Download:
    """Printer of the progress of a model's download. Call the printer with the number of bytes downloaded so
    far and the total number of bytes."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._tenth = -1

    def __call__(self, done: int, total: int) -> None:
        if (tenth := done * 10 // max(total, 1)) > self._tenth:
            self._tenth = tenth
            self.console.print(f"downloading the model: {done / 1e6:,.0f} of {total / 1e6:,.0f} MB")


class _OnConsole(Live):
    """Base class of live views that print lines on a console."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self.console = console

    def say(self, line: str) -> None:
        self.console.print(visible_line(as_options(line)))


class Terminal(_OnConsole):
    """Live view with a progress bar in the last line of a terminal, below printed lines. A context manager."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self.screen = Screen(console=console, get_renderable=self._drawn, refresh_per_second=4, transient=True)

    def __enter__(self) -> Terminal:
        self.screen.start(refresh=True)
        return self

    def __exit__(self, *error: object) -> None:
        self.screen.stop()

    def _drawn(self) -> Table:
        """Return the status as one line. The bar fills the width that the text leaves free."""
        status, width = self.status(), self.console.width
        phase, text = visible_line(status.phase), visible_line(status.fitted(width, NARROWEST))
        bar = min(width - len(phase) - len(text) - 3, WIDEST)
        line = Table.grid(padding=(0, 1, 0, 0))
        line.add_row(
            Text(phase, no_wrap=True),
            ProgressBar(1.0 if status.share is not None else None, status.share or 0.0, width=max(bar, 1)),
            Text(text, no_wrap=True, overflow="crop"),
        )
        return line


class Plain(_OnConsole):
    """Live view of plain lines, for output that is not a terminal: the status at intervals, and each long wait. A
    context manager."""

    tick_seconds = PLAIN_EVERY

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._download_lines = Download(console)
        self._printed = self._waited = time.monotonic()
        self._waited -= PLAIN_EVERY

    def __enter__(self) -> Plain:
        return self

    def __exit__(self, *error: object) -> None:
        return

    def download(self, done: int, total: int) -> None:
        self._download_lines(done, total)

    def reading(self, count: int) -> None:
        """Do nothing: only the view on a terminal shows how many tasks were read."""

    def began(self, run: RunInfo) -> None:
        super().began(run)
        self._printed = time.monotonic()

    def stepped(self, report: StepReport, progress: Progress) -> None:
        if report.step in (1, report.batch.steps):
            self._printed = 0.0  # always print the first and the last step
        super().stepped(report, progress)

    def waiting(self, wait: Wait) -> None:
        now = time.monotonic()
        if wait.seconds >= SHORTEST_WAIT and now - self._waited >= PLAIN_EVERY:
            self._waited = self._printed = now
            why = "" if wait.limited or not wait.reason else f": {one_line(wait.reason, 120)}"
            self.say(f"{wait.model}: {wait_text(wait, round(wait.seconds))}{why}")
        super().waiting(wait)

    def changed(self) -> None:
        self._print_status(PLAIN_EVERY)

    def tick(self) -> None:
        self._print_status(QUIET)

    def _print_status(self, every: float) -> None:
        """Print the status of the run, if no line was printed for `every` seconds."""
        if time.monotonic() - self._printed >= every:
            self._printed = time.monotonic()
            status = self.status()
            self.say(f"{status.phase} {status.done}: {' · '.join(status.parts()) or 'no call has ended yet'}")


def live_view(console: Console) -> Terminal | Plain:
    return Terminal(console) if console.is_terminal and not console.is_dumb_terminal else Plain(console)


def report(out: Printer, result: Result) -> None:
    """Print the result of a run: scores, context, usage and counts, and the next command."""
    if result.stopped:
        limit = spent_limit(result.stopped)
        higher = f" --{limit.replace('_', '-')} N" if limit else ""
        # A call is not sent if its maximum cost exceeds the rest of the budget.
        rest = " or does not cover the next call" if limit in ("max_usd", "max_tokens") else ""
        out.print(f"Stopped early: {result.stopped}{rest}. Continue with: practicum space resume {result.run}{higher}")
    out.scores(result.scores)
    context = result.context
    size = f"{quantity(len(context), 'entry')}, {quantity(render_full(context).tokens, 'token')}"
    out.print(f"context: version {context.version}, {size}")
    out.usage(result.usage, result.seconds, result.hits, result.by_role)
    out.counts(result.errors, result.refused)
    if result.held:
        out.print(waiting_line(result.held, result.run))
    out.print(f"to look at the run: practicum show {result.run}")
