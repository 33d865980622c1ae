"""Ending a program that was started in a session of its own, together with what it started itself."""

from __future__ import annotations

import os
import signal


def kill_group(group: int) -> None:
    """Kill all processes of a group, if there are any."""
    try:
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):  # gone; macOS says the second of a group that is
        return
