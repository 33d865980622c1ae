"""Running a session from the command line: the live view, Ctrl-C, and the report at the end."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from practicum.cli.output import Output
from practicum.core.errors import PracticumError

if TYPE_CHECKING:
    from rich.console import Console

    from practicum.engine.state import RunState
    from practicum.session.components import Parts
    from practicum.session.learn import Session
    from practicum.session.result import Result

T = TypeVar("T")

LEAVE_WITHIN = 2.0
"""Seconds from the second Ctrl-C to the end, whatever still runs."""


class Interrupted(PracticumError):
    """The user left at once."""

    exit_code = 130


def telling(console: Console) -> Parts:
    """Parts that are all made by name, which report the download of a model's file."""
    from practicum.cli.live import Download
    from practicum.session.components import Parts

    return Parts(progress=Download(console))


def run_session(work: Callable[..., Awaitable[Result]], json_: bool) -> int:
    """Run a session with a live view; print its report. Exit code 130 where the user stopped it, else 0."""
    from practicum.cli.live import Live, report
    from practicum.session.components import Parts

    out = Output(json_)
    live = Live(out)
    with live:
        parts = Parts(progress=live.progress)
        result = run_work(lambda stop: work(watch=live, on_session=stop.session, parts=parts), out)
    out.result(result.as_json())
    report(out, result)
    return 130 if result.interrupted else 0


class Stoppable(Protocol):
    """What can be told to start nothing more, and what it lets finish."""

    @property
    def in_flight(self) -> int: ...

    def stop(self, reason: str) -> None: ...


class Stopper:
    """Ctrl-C: the first lets what is in flight finish, the second leaves at once."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.task: asyncio.Task[Any] | None = None
        self.stoppable: Stoppable | None = None
        self._asked = False

    def session(self, session: Session) -> None:
        """The session to stop."""
        self.state(session.state)

    def state(self, state: RunState) -> None:
        """The run to stop."""
        self.stoppable = state.budget

    def interrupt(self) -> None:
        from practicum.session.learn import INTERRUPTED

        if self.stoppable is None or self._asked:
            if self.task is not None:
                self.task.cancel()
            # A function of the user in a thread cannot be cancelled; what is on the disk is safe.
            leave = threading.Timer(LEAVE_WITHIN, os._exit, (130,))
            leave.daemon = True
            leave.start()
            return
        self._asked = True
        flying = self.stoppable.in_flight
        self.stoppable.stop(INTERRUPTED)
        self.console.print(f"Stopping: {flying} calls in flight are finished first. Ctrl-C again leaves at once.")


def run_work(work: Callable[[Stopper], Awaitable[T]], console: Console) -> T:
    """Run async work that Ctrl-C can stop. What functions of the user print goes where people read."""

    async def main() -> T:
        stopper = Stopper(console)
        stopper.task = asyncio.current_task()
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, stopper.interrupt)
        return await work(stopper)

    try:
        with redirect_stdout(sys.stderr if console.stderr else sys.stdout):
            return asyncio.run(main())
    except asyncio.CancelledError as error:
        raise Interrupted("interrupted") from error
