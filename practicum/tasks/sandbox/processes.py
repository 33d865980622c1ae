"""Ends a program that was started in a session of its own, with every process it started."""

from __future__ import annotations

import os
import signal
import sys


def kill_group(group: int) -> None:
    """Kill all processes of a group, if any are left. On Windows, which has no groups, kill the program alone."""
    try:
        if sys.platform == "win32":
            os.kill(group, signal.SIGTERM)  # which ends the process at once there
        else:
            os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):  # already gone; macOS raises PermissionError for that
        return
