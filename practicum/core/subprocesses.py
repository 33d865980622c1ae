"""Processes that practicum starts: what they import, what they are told, and when they end."""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# The standard library comes first, and the current folder does not come at all.
_START = """
import json, runpy, sys
sys.path += json.loads(sys.argv.pop(1))
target = sys.argv.pop(1)
if target.endswith(".py"):
    runpy.run_path(target, run_name="__main__")
else:
    runpy.run_module(target, run_name="__main__", alter_sys=True)
"""

_NEEDED = {
    *("PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TEMP", "TMP"),
    *("SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "USERPROFILE", "APPDATA", "LOCALAPPDATA", "PROGRAMDATA"),
}
"""Variables of the environment that programs need on one system or another, and that hold no secret."""

_NEEDED_GROUPS = ("LC_", "XDG_", "PRACTICUM_")


def python_command(module: str, *args: str) -> list[str]:
    """The command that runs a Python module, or the script of a path, in another process. It finds what this process
    finds, except in the current folder, where a file such as `json.py` may be anybody's; and nothing takes the place of
    the standard library."""
    here = {"", ".", os.getcwd(), os.path.realpath(os.getcwd())}
    own, paths = str(Path(__file__).parents[2]), [path for path in sys.path if path not in here]
    # An editable install is found by a hook, which the other process does not have.
    paths = paths if own in paths else [own, *paths]
    return [sys.executable, "-I", "-S", "-c", _START, json.dumps(paths), module, *args]


def environment(*more: str) -> dict[str, str]:
    """What a program of practicum's own needs of the environment: no keys, and nothing that changes how Python or the
    loader of libraries starts. `more` are further names, and beginnings of names that end in `_`."""
    groups = (*_NEEDED_GROUPS, *(name for name in more if name.endswith("_")))
    wanted = _NEEDED | set(more)
    return {name: text for name, text in os.environ.items() if name.upper() in wanted or name.startswith(groups)}


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
"""Before a command: the program takes the place of the shell once a line was written to its standard input. So it does
nothing before `ends_with_us` knows of it, and nothing at all if this process ends before that."""

_lock = threading.Lock()
_watcher: subprocess.Popen[str] | None = None


@contextmanager
def ends_with_us(group: int) -> Iterator[None]:
    """While the block runs, the processes of a group are killed when this process ends, however it ends: one other
    process waits for that. A process that has left the group is not found. Does nothing on Windows."""
    _tell(f"+{group}\n")
    try:
        yield
    finally:
        _tell(f"-{group}\n")


def _tell(line: str) -> None:
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
