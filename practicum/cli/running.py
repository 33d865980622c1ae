"""Runs the async work of commands, and stops it on Ctrl-C or another signal."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from practicum.cli.approval import approver
from practicum.cli.live import Download, live_view, report
from practicum.cli.output import Printer
from practicum.cli.signals import INTERRUPTED as EXIT_CODE
from practicum.cli.signals import exit_code, stopped_by
from practicum.core.errors import PracticumError
from practicum.core.later import import_later
from practicum.core.words import quantity
from practicum.models.budget import Finishing
from practicum.session.components import Parts
from practicum.session.result import INTERRUPTED, Result, RunInfo, Watch

if TYPE_CHECKING:
    from rich.status import Status

LEAVE_WITHIN = 2.0
"""Maximum time (s) from the second Ctrl-C to the exit of the process. The process exits even if work is still
running."""

T = TypeVar("T")


class Interrupted(PracticumError):
    """Raised if the user interrupted the command."""

    exit_code = EXIT_CODE


class Stoppable(Protocol):
    """Protocol of work that can be stopped, such as a budget."""

    @property
    def finishing(self) -> Finishing:
        """Calls and attempts in flight, which may finish after a stop."""

    def stop(self, reason: str) -> None:
        """Prevent new calls."""


S = TypeVar("S", bound=Stoppable)


class Stopper(Watch):
    """Handler of Ctrl-C and other stop signals. The first signal lets the calls in flight finish; the second exits at
    once."""

    def __init__(self, out: Printer) -> None:
        self.out = out
        self.task: asyncio.Task[Any] | None = None
        self._stoppable: Stoppable | None = None
        self._stopping = False

    def began(self, run: RunInfo) -> None:
        self.stops(run.budget)

    def stops(self, work: S) -> S:
        """Register the work that Ctrl-C stops from now on. Return the work."""
        self._stoppable = work
        return work

    def interrupt(self) -> None:
        """Handle Ctrl-C or another stop signal."""
        if self._stoppable is None or self._stopping:
            if self.task is not None:
                self.task.cancel()
            # A user's function that runs in a thread cannot be cancelled, so exit the process. Stored data stays
            # intact.
            leave = threading.Timer(LEAVE_WITHIN, os._exit, (exit_code(EXIT_CODE),))
            leave.daemon = True
            leave.start()
            return
        self._stopping = True
        left = self._stoppable.finishing
        self._stoppable.stop(INTERRUPTED)
        calls = [f"{quantity(left.calls, 'call')} in flight (at most {left.seconds:g} s)"] if left.calls else []
        attempts = [f"{quantity(left.attempts, 'attempt')} of the agent"] if left.attempts else []
        pending = f"Waiting for {' and '.join([*calls, *attempts])}. " if calls or attempts else ""
        self.out.print(f"Stopping. {pending}Press Ctrl-C again to exit at once.")


class Warnings(Watch):
    """Printer of warnings, for commands without a live view."""

    def __init__(self, out: Printer) -> None:
        self.out = out

    def warned(self, text: str) -> None:
        self.out.print(text)


def run_work(work: Callable[[Stopper], Awaitable[T]], out: Printer) -> T:
    """Run async work that Ctrl-C can stop. Text that the user's functions print goes to standard output, or with --json
    to standard error."""

    # Import the types of openai later: they take a third of the import time of openai, and most are never used.
    import_later("openai.types", "openai.types.responses")

    async def main() -> T:
        stopper, loop = Stopper(out), asyncio.get_running_loop()
        stopper.task = asyncio.current_task()
        with stopped_by(lambda: loop.call_soon_threadsafe(stopper.interrupt)):
            return await work(stopper)

    try:
        with redirect_stdout(sys.stderr if out.stderr else sys.stdout):
            return asyncio.run(main())
    except asyncio.CancelledError as error:
        raise Interrupted("run.interrupted", "interrupted") from error
    except SystemExit as error:
        # practicum itself never calls sys.exit in `work`, so a function of the user or of a package did.
        raise PracticumError(
            "code.exited",
            f"one of your functions or packages called sys.exit({error.code!r}), which ended the command: raise an "
            "exception instead; finished calls are stored",
        ) from error


class _Printing(logging.Handler):
    """Log handler that prints each record as a line."""

    def __init__(self, out: Printer) -> None:
        super().__init__()
        self.out = out

    def emit(self, record: logging.LogRecord) -> None:
        self.out.print(record.getMessage())


def trackers(names: Sequence[str], out: Printer, **kwargs: Any) -> list[Watch]:
    """Load the trackers of `--log` and print their log messages. Raise UsageError if a tracker lacks a package or a
    login."""
    if not names:
        return []
    from practicum.session.trackers import TRACKERS

    kinds = [TRACKERS.load(name) for name in dict.fromkeys(names)]
    logger = logging.getLogger("practicum.trackers")
    logger.handlers, logger.propagate = [_Printing(out)], False
    logger.setLevel(logging.INFO)
    return [kind(**kwargs) for kind in kinds]


def run_live(work: Callable[..., Awaitable[T]], out: Printer, log: Sequence[str] = ()) -> T:
    """Run a session or an evaluation with the live view and the trackers in `log`. `work` is called
    with the keywords `watch` and `parts`."""
    others = trackers(log, out)

    async def watched(stop: Stopper) -> T:
        with live_view(out) as live:
            parts = Parts(progress=live.download, approve=approver(out, getattr(live, "screen", None)))
            return await work(watch=[stop, live, *others], parts=parts)

    return run_work(watched, out)


def run_session(work: Callable[..., Awaitable[Result]], json_: bool, log: Sequence[str] = ()) -> int:
    """Run a session with the live view and the trackers in `log`, and print the report of the session. Return the exit
    code: 130 if the user stopped the session, 1 if failures of the provider cut the session short, otherwise 0."""
    out = Printer(json_)
    result = run_live(work, out, log)
    out.result(result.as_json())
    report(out, result)
    return 130 if result.interrupted else int(result.cut_short)


def parts_for(out: Printer, drawn: Status | None = None) -> Parts:
    """Return the parts for a command: they replace no component that the configuration names. The progress of a model's
    download is printed, and approval of tool calls is asked on the terminal. `drawn`: the status to hide while the user
    is asked."""
    return Parts(progress=Download(out), approve=approver(out, drawn))
