"""`practicum capture`: notes a session of a coding agent. The hooks of coding agents run this command.

It notes where the session is stored, and copies no content. It never fails: the reason of a failure is written to
`capture.log` in the store.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from typer import Argument, Option

from practicum.core.files import append_private, make_folder
from practicum.core.subprocesses import CAPTURE_VARIABLE

CAPTURED, LOG = "captured.jsonl", "capture.log"

MOST_BYTES = 2**20
"""Maximum size of the event that a program passes."""


def capture(
    program: str = Argument(..., metavar="PROGRAM", help="The coding agent, as in `practicum connect`."),
    event: str | None = Argument(None, help="The event as JSON (default: standard input)."),
    store: Path = Option(..., metavar="DIR", help="The folder of captured sessions."),
    then: str | None = Option(None, metavar="JSON", help="A command to run next with the event, as a JSON list."),
) -> None:
    """Note a session of a coding agent for `practicum nightly`. The agent's hook runs this command."""
    try:
        if os.environ.get(CAPTURE_VARIABLE) != "off":
            _note(program, event, store)
    except Exception as error:
        with suppress(OSError):
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:500]
            _append(store / LOG, f"{_now()} {program}: {reason}")
    if then is not None and event is not None:
        _run_next(then, event)


def _note(program: str, event: str | None, store: Path) -> None:
    text = event
    if text is None:
        text = "" if sys.stdin.isatty() else sys.stdin.buffer.read(MOST_BYTES).decode()
    values = json.loads(text)
    session, transcript = (_codex if program == "codex" else _hook)(values)
    line = {
        "program": program, "session": session, "transcript": transcript, "folder": str(values["cwd"]), "time": _now(),
    }  # fmt: skip
    _append(store / CAPTURED, json.dumps(line, ensure_ascii=False))


def _hook(values: Mapping[str, Any]) -> tuple[str, str]:
    """Return the id and the file of a session, as Claude Code and Gemini CLI pass them to hooks."""
    return str(values["session_id"]), str(values["transcript_path"])


def _codex(values: Mapping[str, Any]) -> tuple[str, str]:
    """Return the id and the file of a session, from an event of Codex's `notify`."""
    session = str(values["thread-id"])
    if not re.fullmatch(r"[\w-]+", session):
        raise ValueError(f"the id of the thread is not valid: {session!r}")
    sessions = Path(os.environ.get("CODEX_HOME") or "~/.codex").expanduser() / "sessions"
    path = next(sessions.glob(f"*/*/*/rollout-*-{session}.jsonl"), None)
    if path is None:
        raise FileNotFoundError(f"no file of the thread {session} in {sessions}")
    return session, str(path)


def _append(path: Path, line: str) -> None:
    make_folder(path.parent)
    with append_private(path) as file:
        # One write, because several sessions may end at the same time.
        file.write(f"{line}\n".encode(errors="backslashreplace"))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _run_next(then: str, event: str) -> None:
    """Replace this process by the command that the program would have run without practicum."""
    with suppress(ValueError, OSError, TypeError, IndexError):
        command = json.loads(then)
        os.execvp(command[0], [*command, event])
