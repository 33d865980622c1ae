"""Signals that stop a command: SIGINT (Ctrl-C), SIGTERM (containers, init systems) and SIGHUP (closed terminal)."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

INTERRUPTED = 130
"""Exit code after Ctrl-C. After another signal, the exit code is 128 plus the number of the signal, as shells,
containers and init systems expect: 143 after SIGTERM, 129 after SIGHUP."""

_STOPPING = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
_last = signal.SIGINT


def exit_code(code: int) -> int:
    """Return the exit code for the received signal if `code` is INTERRUPTED, otherwise `code`."""
    return 128 + _last if code == INTERRUPTED else code


@contextmanager
def stopped_by(stop: Callable[[], object]) -> Iterator[None]:
    """Call `stop` on a stop signal while the block runs. A signal that is already ignored, such as SIGHUP under
    nohup, stays ignored."""
    global _last
    _last = signal.SIGINT
    if threading.current_thread() is not threading.main_thread():  # Python handles signals in the main thread only
        yield
        return
    terminals = [handle for handle in (1, 2) if _is_terminal(handle)]

    def received(number: int, frame: FrameType | None) -> None:
        global _last
        _last = signal.Signals(number)
        if _last.name == "SIGHUP":  # the terminal is closed: an error while printing must not interrupt the last writes
            for handle in terminals:
                os.dup2(os.open(os.devnull, os.O_WRONLY), handle)
        stop()

    before = {number: signal.getsignal(number) for number in _STOPPING}
    for number, handler in before.items():
        if handler != signal.SIG_IGN or number == signal.SIGINT:
            signal.signal(number, received)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def _is_terminal(handle: int) -> bool:
    try:
        return os.isatty(handle)
    except OSError:
        return False
