"""Processes that practicum starts: the import paths and environment variables that they get, and how they are ended."""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import signal
import subprocess
import sys
import threading
from asyncio.subprocess import PIPE, Process
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

# Program of the new process: it appends the import paths of practicum's process to its own paths, so that the standard
# library comes first. The current folder is not among these paths.
_START = """
import json, runpy, sys
sys.path += json.loads(sys.argv.pop(1))
target = sys.argv.pop(1)
if target.endswith(".py"):
    runpy.run_path(target, run_name="__main__")
else:
    runpy.run_module(target, run_name="__main__", alter_sys=True)
"""

CAPTURE_VARIABLE = "PRACTICUM_CAPTURE"
"""Environment variable that is `off` for the coding agents that practicum starts: their sessions are not captured."""

_NEEDED = {
    *("PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TEMP", "TMP"),
    *("SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "USERPROFILE", "APPDATA", "LOCALAPPDATA", "PROGRAMDATA"),
}
"""Environment variables without secrets that programs need on some systems."""

_NEEDED_GROUPS = ("LC_", "XDG_", "PRACTICUM_")


def python_command(module: str, *args: str) -> list[str]:
    """Return the command that runs a Python module, or the script at a path, in another process. The other process has
    the import paths of this process, except the current folder, where any user may have put a file such as `json.py`.
    The standard library takes precedence over all other paths."""
    current = {"", ".", os.getcwd(), os.path.realpath(os.getcwd())}
    package_root, paths = str(Path(__file__).parents[2]), [path for path in sys.path if path not in current]
    # An editable install is imported by a hook, which the other process does not have.
    paths = paths if package_root in paths else [package_root, *paths]
    return [sys.executable, "-I", "-S", "-c", _START, json.dumps(paths), module, *args]


def environment(*more: str) -> dict[str, str]:
    """Return the environment variables for a program that practicum starts. They include no keys, and no variable that
    changes how Python or the dynamic loader starts. `more` are names of further variables to include, or prefixes of
    such names; a prefix ends in `_`."""
    groups = (*_NEEDED_GROUPS, *(name for name in more if name.endswith("_")))
    allowed = _NEEDED | set(more)
    return {name: text for name, text in os.environ.items() if name.upper() in allowed or name.startswith(groups)}


_WATCH = """
import os, signal, sys
groups = set()
for line in sys.stdin:
    (groups.add if line[0] == "+" else groups.discard)(int(line[1:]))
for group in groups:
    try:
        os.killpg(group, signal.SIGKILL)
    except OSError:
        pass
"""

HELD = () if os.name != "posix" else ("sh", "-c", 'read -r practicum_begins && exec "$@"', "sh")
"""Prefix for a command: a shell that waits for a line on its standard input, and then executes the command. This
process first registers the process group of the command with `ends_with_us`, and then sends the line. So the command
never starts if this process ends before it sends the line. Empty on Windows."""

_lock = threading.Lock()
_watcher: subprocess.Popen[str] | None = None


@contextmanager
def ends_with_us(group: int) -> Iterator[None]:
    """Kill the processes of a process group if this process ends, for any reason, while the `with` block runs. A
    separate watcher process kills them. Processes that left the group are not killed. Does nothing on Windows."""
    _send(f"+{group}\n")
    try:
        yield
    finally:
        _send(f"-{group}\n")


def _send(line: str) -> None:
    global _watcher
    if os.name != "posix":
        return
    with _lock:
        if _watcher is None or _watcher.poll() is not None:
            command = [sys.executable, "-I", "-S", "-c", _WATCH]
            _watcher = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env={}, start_new_session=True
            )
            atexit.register(_end, _watcher)
        assert _watcher.stdin is not None
        _watcher.stdin.write(line)
        _watcher.stdin.flush()


def _end(watcher: subprocess.Popen[str]) -> None:
    assert watcher.stdin is not None
    watcher.stdin.close()
    watcher.wait()


def close_pipes(process: Process) -> None:
    """Close the pipes to a process, even if a leftover child of the process still holds their other ends."""
    # asyncio has no public API to close the pipes, and a transport that is still open warns when it is
    # garbage-collected.
    process._transport.close()  # type: ignore[attr-defined]


def kill_group(group: int) -> None:
    """Kill all remaining processes of a group. On Windows, which has no process groups, kill only the program."""
    try:
        if sys.platform == "win32":
            os.kill(group, signal.SIGTERM)  # on Windows this ends the process immediately
        else:
            os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):  # the group has ended; macOS raises PermissionError in this case
        return


PIPES_CLOSE = 2.0
"""Time (s) to wait for the pipes of a killed program to close. A child process that left the program's process group
may keep the pipes open."""


@dataclass(frozen=True, slots=True)
class Finished:
    """Outcome of a program: its exit code, standard output and standard error. `timed_out`: the program was killed at
    the timeout; `code` is None if the program had not ended then. `overlong`: the program was killed because it printed
    too much."""

    code: int | None
    out: bytes
    err: bytes
    timed_out: bool = False
    overlong: bool = False

    @property
    def reason(self) -> str:
        """Last line of the standard error, for messages."""
        lines = self.err.decode(errors="replace").strip().splitlines()
        return lines[-1][:200] if lines else "nothing on standard error"


async def run_program(
    words: Sequence[str],
    input: bytes,
    seconds: float | None = None,
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    most: float = float("inf"),
) -> Finished:
    """Run a program with `input` on standard input, and return its outcome. The program and the processes of its group
    are killed after `seconds`, when the program has printed more than `most` bytes to one of its outputs, when
    the call is cancelled, and when this process ends. Raise OSError if the program cannot be started."""
    # Start a new session, so that Ctrl-C on the terminal does not reach the program, which may then finish its work.
    process = await asyncio.create_subprocess_exec(
        *HELD, *words, stdin=PIPE, stdout=PIPE, stderr=PIPE, cwd=cwd, env=env, start_new_session=True
    )
    out, err = bytearray(), bytearray()

    async def read(stream: asyncio.StreamReader | None, printed: bytearray) -> None:
        while stream is not None and len(printed) <= most and (part := await stream.read(2**16)):
            printed += part
        if len(printed) > most:
            kill_group(process.pid)

    async def write(stream: asyncio.StreamWriter | None) -> None:
        assert stream is not None
        with suppress(BrokenPipeError, ConnectionResetError):  # the program need not read its input
            stream.write((b"\n" if HELD else b"") + input)
            await stream.drain()
        stream.close()

    async def work() -> None:
        await asyncio.gather(write(process.stdin), read(process.stdout, out), read(process.stderr, err))
        await process.wait()

    completed = timed_out = False
    code: int | None = None
    try:
        with ends_with_us(process.pid):
            await asyncio.wait_for(work(), seconds)
        completed = True
    except TimeoutError:
        timed_out = True
    finally:
        code = process.returncode
        if not completed:
            kill_group(process.pid)
            with suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), PIPES_CLOSE)
        close_pipes(process)
    return Finished(code, bytes(out), bytes(err), timed_out, max(len(out), len(err)) > most)
