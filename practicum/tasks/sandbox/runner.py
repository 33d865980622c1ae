"""Running code that a model wrote, so that it can do no harm.

A program is a few Python files, run in an own process in an own folder that is gone afterwards, with the standard
library, no environment, and the fences of `fences.py` around it. It is watched from here: time, output, size of its
folder, threads; whoever goes too far is killed with all of its process group. docs/tasks.md says what is guaranteed
where; where the minimum cannot be, nothing is run.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from errno import EFBIG, ENOSYS, EXDEV
from pathlib import Path, PurePosixPath
from typing import Any
from weakref import WeakKeyDictionary

from practicum.core.errors import UsageError
from practicum.tasks.sandbox.processes import kill_group
from practicum.tasks.sandbox.resources import on_disk, removed_but_held, threads

JAIL = Path(__file__).with_name("fences.py")

UNFENCED = "PRACTICUM_UNFENCED_CODE"
"""Name of the variable by which a user says, with the value `yes`, that code may be run where the fences are not."""

LOOK = 0.05
"""Seconds between two looks at a running program."""

GONE = 2.0
"""Seconds to wait for the pipes of one that was killed. Only an unfenced one can leave behind who holds them longer."""

START = 60.0
"""Seconds Python may take to start; on a machine with much to do that is no fault of the program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a program may take."""

    cpu: int = 5
    """Seconds of computing, whole ones."""
    wall: float = 20.0
    """Seconds until it must have ended, also where it only waits."""
    memory_mb: int = 512
    """Address space. Python itself takes about 30."""
    output_kb: int = 64
    """Printed, standard output and standard error each."""
    folder_mb: int = 32
    """Written to its folder, with what it removed and holds open; a little more between two looks."""
    files: int = 1000
    """Files and folders in its folder, a little more between two looks."""
    threads: int = 64
    """Threads, a little more between two looks."""


@dataclass(frozen=True, slots=True)
class Ran:
    """What became of a program. `exit` is None where a signal ended it; `reason` says in words why it did not end well,
    and is empty where it did; `stopped` where that was a limit or a fence; `seconds` are of wall time."""

    exit: int | None
    out: str
    err: str
    seconds: float
    reason: str = ""
    stopped: bool = False


@dataclass(frozen=True)
class Sandbox:
    """Runs programs, `at_once` at a time; others wait. `unfenced` runs them also where the fences are missing."""

    limits: Limits = Limits()
    at_once: int = field(default_factory=lambda: os.cpu_count() or 1)
    unfenced: bool = field(default_factory=lambda: os.environ.get(UNFENCED) == "yes")
    _slots: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = field(
        default_factory=WeakKeyDictionary, init=False, repr=False, compare=False
    )

    async def run(
        self,
        files: Mapping[str, str],
        entry: str = "main.py",
        args: Sequence[str] = (),
        stdin: str = "",
        *,
        limits: Limits | None = None,
    ) -> Ran:
        """Write `files` (relative path to text) into an empty folder and run `entry` there, within other `limits` than
        the sandbox's own where some are given.

        Raises UsageError where the machine has not the fences, and for a path that leaves the folder or is no path;
        other faults of the program are told in what is returned.
        """
        limits = limits or self.limits
        paths = {_inside(name): text for name, text in files.items()}
        if _inside(entry) not in paths:
            return Ran(None, "", "", 0.0, f"there is no file {entry} to run")
        if sum(len(text.encode(errors="replace")) for text in paths.values()) > limits.folder_mb * 2**20:
            return Ran(None, "", "", 0.0, f"the files are larger than {limits.folder_mb} MB")
        slot = self._slots.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(self.at_once))
        async with slot:
            folder = _folder()
            try:
                if fault := _write(folder, paths):
                    return Ran(None, "", "", 0.0, fault)
                return await self._started(folder, entry, args, stdin, limits)
            finally:
                await asyncio.to_thread(_removed, folder)

    def require(self) -> None:
        """Raise UsageError where no code can be run here; to be called before anything is paid for."""
        status, theirs = _status_pipe()
        folder = _folder()
        try:
            _write(folder, {"main.py": ""})
            command = self._command(folder, "main.py", (), theirs, self.limits)
            how: dict[str, Any] = {"cwd": folder, "env": _environment(folder), "pass_fds": (theirs,)}
            ended = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, check=False, **how)
            os.close(theirs)
            self._check_fences(os.read(status, 65536), ended.stderr)
        finally:
            os.close(status)
            _removed(folder)

    async def _started(self, folder: Path, entry: str, args: Sequence[str], stdin: str, limits: Limits) -> Ran:
        status, theirs = _status_pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command(folder, entry, args, theirs, limits),
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                cwd=folder,
                env=_environment(folder),
                start_new_session=True,
                pass_fds=(theirs,),
            )
        finally:
            os.close(theirs)
        try:
            watched = _Watched(process, limits, folder, status)
            await watched.ended(stdin.encode(errors="replace"))
        finally:
            os.close(status)
            _kill(process)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), GONE)
        self._check_fences(watched.fences, watched.err)
        return watched.told()

    def _command(self, folder: Path, entry: str, args: Sequence[str], status: int, limits: Limits) -> tuple[str, ...]:
        job = {
            "folder": str(folder),
            "entry": entry,
            "args": list(args),
            "status": status,
            "parent": os.getpid(),
            "unfenced": self.unfenced,
            "cpu": limits.cpu,
            "memory_bytes": limits.memory_mb * 2**20,
            "folder_bytes": limits.folder_mb * 2**20,
        }
        return (sys.executable, "-P", "-s", "-S", "-B", str(JAIL), json.dumps(job))

    def _check_fences(self, told: bytes, err: bytes | bytearray) -> None:
        if not told:
            why = err.decode(errors="replace").strip().rpartition("\n")[2]
            raise UsageError(f"the sandbox for generated code did not start: {why or f'not within {START:g} s'}")
        missing = json.loads(told)["missing"]
        if missing and not self.unfenced:
            why = "; ".join(f"{name}: {reason}" for name, reason in missing.items())
            raise UsageError(
                f"generated code is not run here, since it could not be fenced in ({why}): use Linux 5.13 or newer "
                f"with Landlock and seccomp, or say {UNFENCED}=yes where no harm can be done (docs/tasks.md)"
            )


async def run_code(
    files: Mapping[str, str],
    entry: str = "main.py",
    limits: Limits | None = None,
    *,
    args: Sequence[str] = (),
    stdin: str = "",
) -> Ran:
    """Run a program once, in a sandbox of its own; see `Sandbox.run`."""
    return await Sandbox(limits or Limits()).run(files, entry, args, stdin)


class _Watched:
    """A running program, and how it went. Its time counts from when `fences` stood, which `status` tells."""

    def __init__(self, process: Process, limits: Limits, folder: Path, status: int) -> None:
        self.process, self.limits, self.folder, self.status = process, limits, folder, status
        self.out, self.err, self.fences = bytearray(), bytearray(), b""
        self.reason = ""
        self.began = time.monotonic()
        self.seconds = 0.0

    async def ended(self, stdin: bytes) -> None:
        """Return when it ended, or went too far and was killed."""
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        read = [
            asyncio.create_task(self._read(self.process.stdout, self.out)),
            asyncio.create_task(self._read(self.process.stderr, self.err)),
        ]
        end, look = asyncio.create_task(self.process.wait()), asyncio.create_task(self._look())
        work = [*read, end, look, asyncio.create_task(self._feed(stdin))]
        try:
            await asyncio.wait((end, look), return_when=asyncio.FIRST_COMPLETED)
            if not end.done():  # asyncio waits for the pipes too, which what it left behind may hold
                kill_group(self.process.pid)
            self._hear()
            self.seconds = time.monotonic() - self.began
            await asyncio.wait((*read, end), timeout=GONE)
        finally:
            for task in work:
                task.cancel()
            await asyncio.gather(*work, return_exceptions=True)

    def told(self) -> Ran:
        """What became of it."""
        out, err = (self._text(raw) for raw in (self.out, self.err))
        code = -1 if self.process.returncode is None else self.process.returncode
        reason = self.reason or _in_words(code, err, self.limits)
        stopped = bool(self.reason) or -code in _STOPPING or (code > 0 and refused(_last_line(err)))
        return Ran(code if code >= 0 else None, out, err, self.seconds, reason, stopped)

    def _text(self, raw: bytearray) -> str:
        text = bytes(raw[: self.limits.output_kb * 1024]).decode(errors="replace")
        return text.replace(f"{self.folder}/", "")

    def _stop(self, reason: str) -> None:
        self.reason = self.reason or reason
        _kill(self.process)

    async def _read(self, stream: asyncio.StreamReader, into: bytearray) -> None:
        while chunk := await stream.read(65536):
            into += chunk
            if len(into) > self.limits.output_kb * 1024:
                self._stop(f"stopped after it printed more than {self.limits.output_kb} kB")
                return

    async def _feed(self, text: bytes) -> None:
        stdin = self.process.stdin
        assert stdin is not None
        try:
            stdin.write(text)
            await stdin.drain()
            stdin.close()
        except (BrokenPipeError, ConnectionResetError):
            return  # it ended without reading

    def _hear(self) -> None:
        """What the jail says of its fences, and when that was, if it has said it by now."""
        with contextlib.suppress(BlockingIOError):
            self.fences = self.fences or os.read(self.status, 65536)
        if self.fences:
            self.began = json.loads(self.fences)["at"]

    async def _look(self) -> None:
        while self.process.returncode is None and not self.reason:
            self._hear()
            if reason := self._too_far():
                self._stop(reason)
            await asyncio.sleep(LOOK)

    def _too_far(self) -> str | None:
        limits = self.limits
        if time.monotonic() - self.began > (limits.wall if self.fences else START):
            return f"stopped after {limits.wall:g} s"
        if threads(self.process.pid) > limits.threads:
            return f"stopped with more than {limits.threads} threads"
        size, files = on_disk(self.folder, limits.files)
        size += removed_but_held(self.process.pid, self.folder)
        if files > limits.files or size > limits.folder_mb * 2**20:
            return f"stopped after it wrote more than {limits.folder_mb} MB or {limits.files} files"
        return None


def _environment(folder: Path) -> dict[str, str]:
    # The seed makes the order of sets the same each time.
    return {"HOME": str(folder), "TMPDIR": str(folder), "LANG": "C.UTF-8", "PYTHONUTF8": "1", "PYTHONHASHSEED": "0"}


def _inside(name: str) -> str:
    path = PurePosixPath(name)
    if not name or "\0" in name or path.is_absolute() or ".." in path.parts or not path.parts:
        raise UsageError(f"file {name!r} of a program to run must have a relative path within its own folder")
    return str(path)


def _status_pipe() -> tuple[int, int]:
    """On which the jail tells of its fences: our end, which does not wait, and its."""
    ours, theirs = os.pipe()
    os.set_blocking(ours, False)
    return ours, theirs


def _folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="practicum-code-")).resolve()


def _write(folder: Path, files: Mapping[str, str]) -> str | None:
    """Write the files; why that cannot be, else None."""
    for name, text in files.items():
        path = folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", errors="replace")
        except OSError as error:
            return f"could not be written: {name[:80]!r} ({error.strerror})"
    return None


def _removed(folder: Path) -> None:
    """Remove the folder, also one nested so deep that Python gives up."""
    try:
        shutil.rmtree(folder)
    except (OSError, RecursionError):
        subprocess.run(["rm", "-rf", "--", str(folder)], check=False, capture_output=True)


def _kill(process: Process) -> None:
    if process.returncode is None:  # else its number may be another's by now
        kill_group(process.pid)


_SIGNALS = {known.value: known.name for known in signal.Signals}
"""Not all have a name: those for real time do not."""


_STOPPING = (signal.SIGXCPU, signal.SIGKILL, signal.SIGSYS)
"""By which the kernel ends what goes too far."""

_REFUSED = ("MemoryError", "PermissionError: [Errno", *(f"OSError: [Errno {n}]" for n in (EFBIG, ENOSYS, EXDEV)))
"""How Python begins to tell of what a limit or a fence refused."""


def refused(error: str) -> bool:
    """Whether an error of a program, as Python tells it, is the sandbox's refusal: of memory, of files outside."""
    return error.startswith(_REFUSED)


def _last_line(err: str) -> str:
    lines = [line for line in err.strip().split("\n") if line.strip()]
    return lines[-1].strip() if lines else ""


def _in_words(code: int, err: str, limits: Limits) -> str:
    """Why a program that nobody here stopped did not end well."""
    last = _last_line(err)
    if code == 0:
        return ""
    if -code in (signal.SIGXCPU, signal.SIGKILL):
        return f"stopped after {limits.cpu} s of computing" + (", or killed" if -code == signal.SIGKILL else "")
    if -code == signal.SIGSYS:
        where = _place(err, first=True)
        return f"stopped when it reached for the network, or to start or signal another process{where}"
    if last.startswith("MemoryError"):
        return f"ran out of its {limits.memory_mb} MB of memory"
    if code < 0:
        return f"crashed with {_SIGNALS.get(-code, f'signal {-code}')}"
    if "Traceback" in err or last.startswith(("SyntaxError", "IndentationError", "TabError")):
        return f"ended with {last[:300]}{_place(err, first=False)}"
    return f"ended with exit code {code}" + (f": {last[:300]}" if last else "")


def _place(err: str, first: bool) -> str:
    """The program's own line in a traceback: its innermost. Those of the library have absolute paths."""
    found: list[tuple[str, str]] = re.findall(r'File "([^/"<][^"]*)", line (\d+)', err)
    if not found:
        return ""
    file, line = found[0 if first else -1]
    return f" ({file} line {line})"
