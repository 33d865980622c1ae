"""Approval, on the terminal, of tool calls that contain text from untrusted entries (--guard-tools ask)."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from practicum.cli.output import Printer
from practicum.core.visible import visible_line
from practicum.core.words import one_line

if TYPE_CHECKING:
    from rich.live import Live
    from rich.status import Status

    from practicum.agents.guard import Approve, GuardedCall

SHOWN = 300
"""Maximum number of characters of an entry that are shown."""


def approver(out: Printer, drawn: Live | Status | None = None) -> Approve | None:
    """Return a function that asks the user on this terminal, or None without a terminal. The live view `drawn` is
    stopped while the function asks."""
    if not (out.is_terminal and sys.stdin.isatty()):
        return None

    def approve(call: GuardedCall) -> bool:
        if drawn is not None:
            drawn.stop()
        try:
            return _ask(out, call)
        finally:
            if drawn is not None:
                drawn.start()

    return approve


def _ask(out: Printer, call: GuardedCall) -> bool:
    out.print(f"{visible_line(call.task)}: the agent calls {visible_line(call.tool)} with")
    out.print(json.dumps(call.arguments, ensure_ascii=False, indent=2))
    out.print(f"This text comes only from untrusted entries: {visible_line('; '.join(call.copied))}")
    for entry in call.entries:
        out.print(f"  [{entry.id}] ({entry.trust}) {visible_line(one_line(entry.solved, SHOWN))}")
    out.print("Make this call? [y/N] ", end="")
    return sys.stdin.readline().strip().lower() in ("y", "yes")
