"""Live view in a notebook: lines that stay, and below them a progress bar."""

from __future__ import annotations

import sys
import time
from typing import Any
from uuid import uuid4

from practicum.core.html import escape
from practicum.core.visible import visible
from practicum.core.words import quantity
from practicum.session.live import Live, clock, cost_text
from practicum.session.result import Evaluation, Result

REDRAW_INTERVAL = 0.3
"""Minimum interval (s) between two updates."""


def in_notebook() -> bool:
    """Return whether this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return hasattr(shell, "kernel")


class Notebook(Live):
    """Live view that is drawn in the output of the running cell."""

    tick_seconds = 1.0

    def __init__(self) -> None:
        super().__init__()
        self._id = uuid4().hex
        self._lines: list[str] = []
        self._end = ""
        self._drawn = 0.0

    def say(self, line: str) -> None:
        self._lines.append(line)
        self._draw()

    def changed(self) -> None:
        if time.monotonic() - self._drawn >= REDRAW_INTERVAL:
            self._draw()

    def tick(self) -> None:
        self._draw()

    def ended(self, result: Result | Evaluation | None) -> None:
        super().ended(result)
        if result is None:
            self._end = "ended with an error"
        else:
            how = f"stopped early: {result.stopped}" if result.stopped else "done"
            paid = f"{quantity(result.usage.calls, 'call')}, {cost_text(result.usage)}"
            self._end = f"{how} after {clock(result.seconds)}: {paid}"
        self._draw()

    def _draw(self) -> None:
        again, self._drawn = self._drawn > 0, time.monotonic()
        status = self.status()
        text = self._end or " · ".join(filter(None, (status.done, *status.parts())))
        bar = "" if status.share is None else f' value="{status.share:.3f}"'
        drawn = "" if self._end else f'{escape(status.phase)} <progress max="1"{bar} style="width:12em"></progress> '
        lines = "".join(f"<div>{escape(line)}</div>" for line in self._lines)
        # A comparison shows only lines, without a progress bar.
        last = f"<div>{drawn}{escape(text)}</div>" if self._run is not None else ""
        page = f'<div style="font-family:monospace;white-space:pre-wrap">{lines}{last}</div>'
        plain = "\n".join((*self._lines, text if self._end else f"{status.phase} {text}"))
        show: Any = sys.modules["IPython"].display.display
        show({"text/html": page, "text/plain": visible(plain)}, raw=True, display_id=self._id, update=again)
