"""Sandbox that runs model-generated code safely.

A program is a few Python files. It runs in its own process and in an empty folder that is removed afterwards, with the
standard library, an empty environment, and the fences of `fences.py`. This module watches the time, output, disk space
and threads of the program, and kills a program that exceeds a limit, together with all processes of its group.
docs/learn/tasks.md lists the protections per platform. If a required fence is missing, the program is not run, unless
the environment variable in `UNFENCED` allows running without fences.
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
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from errno import EFBIG, ENOSYS, EXDEV
from pathlib import Path, PurePosixPath
from typing import IO, Any
from weakref import WeakKeyDictionary

from practicum.core.errors import UsageError
from practicum.core.subprocesses import close_pipes, kill_group
from practicum.tasks.sandbox.processes import count_threads, deleted_file_bytes, disk_usage

FENCES = Path(__file__).with_name("fences.py")

UNFENCED = "PRACTICUM_UNFENCED_CODE"
"""Name of an environment variable. Its value `yes` allows running code even if some fences are missing."""

UNFENCED_WARNING = (
    f"{UNFENCED}=yes is set: generated code runs even if fences of the sandbox are missing, and can then read, change "
    "and send all data that you can access. Unset it, unless you can afford to lose this machine"
)

# All in seconds.
WATCH_INTERVAL = 0.05  # interval of the checks of a running program
START_TIMEOUT = 60.0  # for Python to start; separate from `wall`, because a busy machine starts slowly

# Number of checks that a killed program has to close its pipes, and an answer to end after its tests. Not a time,
# because a busy machine may pause this process for seconds. Only children of an unfenced program hold the pipes longer.
END_CHECKS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of a program."""

    cpu: int = 5  # whole seconds of CPU time
    wall: float = 20.0  # seconds of wall time
    memory_mb: int = 512  # address space; Python itself takes about 30 MB
    output_kb: int = 64  # standard output and standard error, each
    # A program may exceed the limits below briefly, between two checks:
    folder_mb: int = 32  # disk space, including deleted files that are still open
    files: int = 1000  # files and folders
    threads: int = 64


@dataclass(frozen=True, slots=True)
class ProgramResult:
    """Result of a program. `reason` says why the program failed, and is empty if the program succeeded."""

    exit_code: int | None = None  # None if a signal ended the program, or if nothing was run
    stdout: str = ""
    stderr: str = ""
    seconds: float = 0.0  # wall time
    reason: str = ""
    stopped: bool = False  # whether a limit or a fence ended the program
    unfenced: bool = False  # whether the program ran although a required fence was missing


@dataclass(frozen=True)
class Sandbox:
    """Runner of programs, at most `at_once` at a time. With `unfenced`, programs run even if fences are missing."""

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
        readable: Sequence[Path] = (),
    ) -> ProgramResult:
        """Write `files` (relative path → text) to an empty folder and run `entry` there. For this program, `limits`
        replace the limits of the sandbox, and `readable` are absolute paths of files that the program may read, too. If
        the program fails, the result has the reason of the failure. Raises UsageError if this machine lacks the fences,
        and for a path in `files` outside the folder."""
        async with self._slot():
            return await self._run(files, entry, args, stdin, limits or self.limits, readable=readable)

    async def run_tested(
        self, program: Mapping[str, str], tester: Mapping[str, str], stdins: tuple[str, str], tester_limits: Limits
    ) -> tuple[ProgramResult, ProgramResult]:
        """Run the `main.py` of a program and of its tester concurrently, each as `run` does, connected by two pipes.
        The arguments of each of the two are the file descriptors of its pipe ends: first the read end, then the write
        end. `stdins` are the standard inputs of the program and of the tester. Return the results of the program and of
        the tester. A program that does not end within END_CHECKS checks after its tester is killed."""
        (from_tester, to_program), (from_program, to_tester) = _new_pipe(), _new_pipe()
        sides = (program, self.limits, (from_tester, to_tester)), (tester, tester_limits, (from_program, to_program))
        tests_ended = asyncio.Event()
        async with self._slot():
            programs = [
                asyncio.create_task(self._run(files, "main.py", (), stdin, limits, pipes, tests_ended=tests_ended))
                for (files, limits, pipes), stdin in zip(sides, stdins, strict=True)
            ]
            try:
                tested = await programs[1]
                tests_ended.set()
                return await programs[0], tested
            finally:
                for task in programs:
                    task.cancel()
                await asyncio.gather(*programs, return_exceptions=True)

    def _slot(self) -> asyncio.Semaphore:
        return self._slots.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(self.at_once))

    async def _run(
        self,
        files: Mapping[str, str],
        entry: str,
        args: Sequence[str],
        stdin: str,
        limits: Limits,
        pipes: Sequence[IO[bytes]] = (),
        readable: Sequence[Path] = (),
        tests_ended: asyncio.Event | None = None,
    ) -> ProgramResult:
        if sys.platform != "linux" and not (self.unfenced and os.name == "posix"):
            raise UsageError(
                "sandbox.unavailable",
                "generated code can only be run on Linux, which has the fences of the sandbox (docs/learn/tasks.md)",
            )
        texts = {_relative_path(name): text for name, text in files.items()}
        if _relative_path(entry) not in texts:
            return ProgramResult(reason=f"there is no file {entry} to run")
        if sum(len(text.encode(errors="replace")) for text in texts.values()) > limits.folder_mb * 2**20:
            return ProgramResult(reason=f"the files are larger than {limits.folder_mb} MB")
        folder = _new_folder()
        try:
            if fault := _write(folder, texts):
                return ProgramResult(reason=fault)
            return await self._run_in(folder, entry, args, stdin, limits, pipes, readable, tests_ended)
        finally:
            for pipe in pipes:
                pipe.close()
            await asyncio.to_thread(_remove, folder)

    def require(self) -> None:
        """Check that code can be run here, before any model call is paid. Raises UsageError if code cannot be run."""
        # Use a new thread, because the calling thread may already run an event loop.
        with ThreadPoolExecutor(1) as thread:
            thread.submit(asyncio.run, self.run({"main.py": ""})).result()

    async def _run_in(
        self,
        folder: Path,
        entry: str,
        args: Sequence[str],
        stdin: str,
        limits: Limits,
        pipes: Sequence[IO[bytes]],
        readable: Sequence[Path],
        tests_ended: asyncio.Event | None,
    ) -> ProgramResult:
        status, child_status = os.pipe()  # the child process reports missing fences on this pipe
        os.set_blocking(status, False)
        job = {
            "folder": str(folder),
            "readable": [str(path) for path in readable],
            "entry": entry,
            "args": [*args, *(str(pipe.fileno()) for pipe in pipes)],
            "status": child_status,
            "parent": os.getpid(),
            "unfenced": self.unfenced,
            "cpu": limits.cpu,
            "memory_bytes": limits.memory_mb * 2**20,
            "folder_bytes": limits.folder_mb * 2**20,
        }
        # A fixed hash seed makes the order of sets reproducible.
        env = {"HOME": str(folder), "TMPDIR": str(folder), "LANG": "C.UTF-8", "PYTHONUTF8": "1", "PYTHONHASHSEED": "0"}
        command = (sys.executable, "-P", "-s", "-S", "-B", str(FENCES), json.dumps(job))
        handles = (child_status, *(pipe.fileno() for pipe in pipes))
        settings: dict[str, Any] = {"cwd": folder, "env": env, "start_new_session": True, "pass_fds": handles}
        try:
            process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, stderr=PIPE, **settings)
        except BaseException:
            os.close(status)
            raise
        finally:
            os.close(child_status)
            for pipe in pipes:
                pipe.close()
        try:
            watcher = _Watcher(process, limits, folder, status, tests_ended)
            await watcher.watch(stdin.encode(errors="replace"))
        finally:
            os.close(status)
            close_pipes(process)
        if not watcher.fences:
            reason = watcher.stderr.decode(errors="replace").strip().rpartition("\n")[2]
            reason = reason or f"no status within {START_TIMEOUT:g} s"
            raise UsageError("sandbox.unavailable", f"the sandbox for generated code did not start: {reason}")
        missing = json.loads(watcher.fences)["missing"]
        if missing and not self.unfenced:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in missing.items())
            raise UsageError(
                "sandbox.unavailable",
                f"generated code is not run, because fences are missing ({reasons}): use Linux 5.13 or newer "
                f"with Landlock and seccomp, or set {UNFENCED}=yes on a machine that you can afford to lose",
            )
        return replace(watcher.result(), unfenced=bool(missing))


class _Watcher:
    """Watcher of a running program. The time of the program counts from the moment at which `fences.py` starts it;
    `fences.py` writes this moment to the pipe `status`. A program that is tested by another has `tests_ended`."""

    def __init__(
        self, process: Process, limits: Limits, folder: Path, status: int, tests_ended: asyncio.Event | None
    ) -> None:
        self.process, self.limits, self.folder, self.status = process, limits, folder, status
        self.tests_ended = tests_ended
        self.stdout, self.stderr, self.fences = bytearray(), bytearray(), b""
        self.reason = ""
        self.started = time.monotonic()
        self.seconds = 0.0

    async def watch(self, stdin: bytes) -> None:
        """Wait until the program has ended, or was killed for exceeding a limit. If the wait is cancelled, kill the
        program."""
        reads = self._read(self.process.stdout, self.stdout), self._read(self.process.stderr, self.stderr)
        readers = [asyncio.create_task(read) for read in reads]
        end, check = asyncio.create_task(self.process.wait()), asyncio.create_task(self._check_limits())
        tasks = [*readers, end, check, asyncio.create_task(self._feed(stdin))]
        try:
            await asyncio.wait((end, check), return_when=asyncio.FIRST_COMPLETED)
            if not end.done():  # `wait` also waits for the pipes, which a leftover child process may hold
                kill_group(self.process.pid)
            self._read_status()
            self.seconds = time.monotonic() - self.started
            await _wait_checks(*readers, end)
        finally:
            _kill(self.process)
            await _wait_checks(end)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def result(self) -> ProgramResult:
        """Return the result of the program."""
        outputs = (bytes(raw[: self.limits.output_kb * 1024]) for raw in (self.stdout, self.stderr))
        stdout, stderr = (raw.decode(errors="replace").replace(f"{self.folder}/", "") for raw in outputs)
        code = -1 if self.process.returncode is None else self.process.returncode
        reason = self.reason or _failure(code, stderr, self.limits)
        # If a program exceeds a limit or violates a fence, the kernel ends the program with one of these signals.
        stopping = (signal.SIGXCPU, signal.SIGKILL, signal.SIGSYS)
        stopped = bool(self.reason) or -code in stopping or (code > 0 and was_refused(_last_line(stderr)))
        return ProgramResult(code if code >= 0 else None, stdout, stderr, self.seconds, reason, stopped)

    def _stop(self, reason: str) -> None:
        self.reason = self.reason or reason
        _kill(self.process)

    async def _read(self, stream: asyncio.StreamReader | None, into: bytearray) -> None:
        assert stream is not None
        while chunk := await stream.read(65536):
            into += chunk
            if len(into) > self.limits.output_kb * 1024:
                self._stop(f"stopped after it printed more than {self.limits.output_kb} kB")
                return

    async def _feed(self, text: bytes) -> None:
        if stdin := self.process.stdin:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the program ended without reading
                stdin.write(text)
                await stdin.drain()
                stdin.close()

    def _read_status(self) -> None:
        """Read the status of the fences, if `fences.py` has written it already."""
        with contextlib.suppress(BlockingIOError):
            self.fences = self.fences or os.read(self.status, 65536)
        if self.fences:
            self.started = json.loads(self.fences)["at"]

    async def _check_limits(self) -> None:
        limits, pid, left = self.limits, self.process.pid, END_CHECKS
        while self.process.returncode is None and not self.reason:
            self._read_status()
            size, files = disk_usage(self.folder, limits.files)
            size += deleted_file_bytes(pid, self.folder)
            if time.monotonic() - self.started > (limits.wall if self.fences else START_TIMEOUT):
                self._stop(f"stopped after {limits.wall:g} s")
            elif count_threads(pid) > limits.threads:
                self._stop(f"stopped with more than {limits.threads} threads")
            elif files > limits.files or size > limits.folder_mb * 2**20:
                self._stop(f"stopped after it wrote more than {limits.folder_mb} MB or {limits.files} files")
            elif self.tests_ended and self.tests_ended.is_set() and self.fences:
                left -= 1
                if not left:
                    self._stop("did not end with its tests")
            await asyncio.sleep(WATCH_INTERVAL)


async def _wait_checks(*tasks: asyncio.Task[Any]) -> None:
    """Wait until the tasks are done, but not longer than END_CHECKS checks."""
    for _ in range(END_CHECKS):
        _, waiting = await asyncio.wait(tasks, timeout=WATCH_INTERVAL)
        if not waiting:
            return


def _relative_path(name: str) -> str:
    path = PurePosixPath(name)
    if not name or "\0" in name or path.is_absolute() or ".." in path.parts or not path.parts:
        raise UsageError(
            "sandbox.invalid_file", f"file {name!r} of a program must have a relative path inside the program's folder"
        )
    return str(path)


def _new_pipe() -> tuple[IO[bytes], IO[bytes]]:
    """Create a pipe. Return its read end and its write end."""
    read, write = os.pipe()
    return open(read, "rb", buffering=0), open(write, "wb", buffering=0)


def _new_folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="practicum-code-")).resolve()


def _write(folder: Path, files: Mapping[str, str]) -> str | None:
    """Write the files. Return the reason if a file cannot be written, else None."""
    for name, text in files.items():
        path = folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", errors="replace")
        except OSError as error:
            return f"could not be written: {name[:80]!r} ({error.strerror})"
    return None


def _remove(folder: Path) -> None:
    try:
        shutil.rmtree(folder)
    except (OSError, RecursionError):  # the folders are nested too deeply for Python
        subprocess.run(["rm", "-rf", "--", str(folder)], check=False, capture_output=True)


def _kill(process: Process) -> None:
    if process.returncode is None:  # the id of a process that has ended may belong to another process
        kill_group(process.pid)


_REFUSALS = ("MemoryError", "PermissionError: [Errno", *(f"OSError: [Errno {n}]" for n in (EFBIG, ENOSYS, EXDEV)))
"""First words of Python's error message when a limit or a fence refused an operation."""


def was_refused(error: str) -> bool:
    """Return whether a program's error, as Python prints it, is a refusal by the sandbox: of memory, for example, or of
    a file outside the program's folder."""
    return error.startswith(_REFUSALS)


def _last_line(stderr: str) -> str:
    return stderr.strip().rpartition("\n")[2].strip()


# Notes of scores quote these reasons, and models read the notes. Do not reword a reason: that changes the prompts of
# stored runs.
def _failure(code: int, stderr: str, limits: Limits) -> str:
    """Return why a program failed; empty if the program succeeded. The program must have ended without being stopped by
    `_Watcher`."""
    last = _last_line(stderr)
    if code == 0:
        return ""
    if -code in (signal.SIGXCPU, signal.SIGKILL):
        return f"stopped after {limits.cpu} s of computing" + (", or killed" if -code == signal.SIGKILL else "")
    if -code == signal.SIGSYS:
        where = _location(stderr, 0)
        return f"stopped because it tried to use the network, or to start or signal another process{where}"
    if last.startswith("MemoryError"):
        return f"ran out of its {limits.memory_mb} MB of memory"
    if code < 0:
        try:
            return f"crashed with {signal.Signals(-code).name}"
        except ValueError:  # real-time signals have no name
            return f"crashed with signal {-code}"
    if "Traceback" in stderr or last.startswith(("SyntaxError", "IndentationError", "TabError")):
        return f"ended with {last[:300]}{_location(stderr, -1)}"
    return f"ended with exit code {code}" + (f": {last[:300]}" if last else "")


def _location(stderr: str, index: int) -> str:
    """Return the file and line of the traceback frame at `index` among the frames in the program's code. Frames in
    library files are left out: their paths are absolute."""
    lines: list[tuple[str, str]] = re.findall(r'File "([^/"<][^"]*)", line (\d+)', stderr)
    return f" ({lines[index][0]} line {lines[index][1]})" if lines else ""
