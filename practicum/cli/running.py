"""Running async work from the command line, and stopping it by Ctrl-C or another signal that asks for its end."""

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
from practicum.core.errors import PracticumError, UsageError
from practicum.core.later import import_later
from practicum.core.words import quantity
from practicum.models.budget import Finishing
from practicum.session.components import Parts
from practicum.session.result import INTERRUPTED, Result, RunInfo, Watch

if TYPE_CHECKING:
    from rich.status import Status

LEAVE_WITHIN = 2.0
"""Seconds from the second Ctrl-C to the end, whatever still runs."""

T = TypeVar("T")


class Interrupted(PracticumError):
    """The user left at once."""

    exit_code = EXIT_CODE


class Stoppable(Protocol):
    """Work that can be stopped, such as a budget."""

    @property
    def finishing(self) -> Finishing:
        """What a stop allows to finish."""

    def stop(self, reason: str) -> None:
        """Start no more calls."""


S = TypeVar("S", bound=Stoppable)


class Stopper(Watch):
    """Ctrl-C and its like: the first lets the calls in flight finish, the second leaves at once."""

    def __init__(self, out: Printer) -> None:
        self.out = out
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
        """Ctrl-C was pressed, or a signal like it came."""
        if self._stoppable is None or self._stopping:
            if self.task is not None:
                self.task.cancel()
            # A function of the user in a thread cannot be cancelled; what is on the disk is safe.
            leave = threading.Timer(LEAVE_WITHIN, os._exit, (exit_code(EXIT_CODE),))
            leave.daemon = True
            leave.start()
            return
        self._stopping = True
        left = self._stoppable.finishing
        self._stoppable.stop(INTERRUPTED)
        calls = [f"{quantity(left.calls, 'call')} in flight (at most {left.seconds:g} s)"] if left.calls else []
        own = [f"{quantity(left.attempts, 'attempt')} of the agent"] if left.attempts else []
        first = f"{' and '.join([*calls, *own])} may finish first. " if calls or own else ""
        self.out.print(f"Stopping. {first}Ctrl-C again leaves at once.")


class Warnings(Watch):
    """Prints warnings, where nothing else is shown live."""

    def __init__(self, out: Printer) -> None:
        self.out = out

    def warned(self, text: str) -> None:
        self.out.print(text)


def run_work(work: Callable[[Stopper], Awaitable[T]], out: Printer) -> T:
    """Run async work that Ctrl-C can stop. What functions of the user print goes where people read."""

    # Most of openai are types of interfaces that are not called, a third of its import.
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
        # No command does that within its work.
        raise PracticumError(
            "code.exited",
            f"a function or a package of yours called sys.exit({error.code!r}), which ended the command: raise an "
            "exception there; what was paid for is kept",
        ) from error


class _Printing(logging.Handler):
    """Prints what is logged as a line."""

    def __init__(self, out: Printer) -> None:
        super().__init__()
        self.out = out

    def emit(self, record: logging.LogRecord) -> None:
        self.out.print(record.getMessage())


def trackers(names: Sequence[str], out: Printer, **how: Any) -> list[Watch]:
    """The trackers of `--log`, whose messages are printed. Raises UsageError if one lacks a package or a login."""
    if not names:
        return []
    from practicum.analysis.trackers import TRACKERS

    if unknown := [name for name in names if name not in TRACKERS]:
        raise UsageError(
            "tracker.unknown", f"there is no tracker {unknown[0]!r} for --log: known are {', '.join(TRACKERS)}"
        )
    logger = logging.getLogger("practicum.trackers")
    logger.handlers, logger.propagate = [_Printing(out)], False
    logger.setLevel(logging.INFO)
    return [TRACKERS[name](**how) for name in dict.fromkeys(names)]


def run_live(work: Callable[..., Awaitable[T]], out: Printer, log: Sequence[str] = ()) -> T:
    """Run a session or an evaluation with the live view and these trackers; `work` takes `watch` and `parts`."""
    others = trackers(log, out)

    async def watched(stop: Stopper) -> T:
        with live_view(out) as live:
            parts = Parts(progress=live.download, approve=approver(out, getattr(live, "screen", None)))
            return await work(watch=[stop, live, *others], parts=parts)

    return run_work(watched, out)


def run_session(work: Callable[..., Awaitable[Result]], json_: bool, log: Sequence[str] = ()) -> int:
    """Run a session with the live view and these trackers, and print its report. The exit code is 130 if the user
    stopped it, 1 if something was lost to the provider at the end, else 0."""
    out = Printer(json_)
    result = run_live(work, out, log)
    out.result(result.as_json())
    report(out, result)
    return 130 if result.interrupted else int(result.cut_short)


def parts_for(out: Printer, drawn: Status | None = None) -> Parts:
    """Parts that are all made by name, report the download of a model's file, and ask on the terminal."""
    return Parts(progress=Download(out), approve=approver(out, drawn))
