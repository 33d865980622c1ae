"""Running async work from the command line: Ctrl-C, the live view, and the report at the end."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, TypeVar

from practicum.cli.output import Output
from practicum.core.errors import PracticumError

if TYPE_CHECKING:
    from rich.console import Console

    from practicum.cli.live import Stopper
    from practicum.session.components import Parts
    from practicum.session.result import Result

T = TypeVar("T")


class Interrupted(PracticumError):
    """The user left at once."""

    exit_code = 130


def telling(console: Console) -> Parts:
    """Parts that are all made by name, which report the download of a model's file."""
    from practicum.cli.live import Download
    from practicum.session.components import Parts

    return Parts(progress=Download(console))


def run_session(work: Callable[..., Awaitable[Result]], json_: bool) -> int:
    """Run a session with a live view and print its report. The exit code is 130 if the user stopped it, else 0."""
    from practicum.cli.live import Live, report
    from practicum.session.components import Parts

    out = Output(json_)
    live = Live(out)
    with live:
        parts = Parts(progress=live.progress)
        result = run_work(lambda stop: work(watch=live.stopped_by(stop), parts=parts), out)
    out.result(result.as_json())
    report(out, result)
    return 130 if result.interrupted else 0


def run_work(work: Callable[[Stopper], Awaitable[T]], console: Console) -> T:
    """Run async work that Ctrl-C can stop. What functions of the user print goes where people read."""
    from practicum.cli.live import Stopper

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
