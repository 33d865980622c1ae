"""Any program as an agent: one JSON line on standard input, one JSON line on standard output."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shlex
import shutil
from asyncio.subprocess import PIPE, Process
from dataclasses import dataclass, field

from practicum.agents.base import AgentRun
from practicum.agents.external import read_answer, request
from practicum.core.errors import AgentError, UsageError
from practicum.core.types import Task, Trace
from practicum.core.views import View
from practicum.tasks.sandbox.processes import kill_group

GONE = 2.0
"""Seconds to wait for the pipes of one that was killed. Who has left its group may hold them longer."""


@dataclass
class CommandAgent:
    """Starts the program anew for each task. A failure quotes its standard error."""

    command: str
    instructions: str = ""
    timeout: float = 120.0
    journaled: bool = field(default=True, init=False)
    turns: int = field(default=0, init=False)
    words: list[str] = field(init=False)

    @property
    def identity(self) -> str:
        """What the journal knows this agent by."""
        return f"command:{self.command} {self.instructions}"

    def __post_init__(self) -> None:
        try:
            self.words = shlex.split(self.command)
        except ValueError as error:
            raise UsageError(f"--agent command:{self.command} cannot be read: {error}") from error
        if not self.words:
            raise UsageError("--agent command: names no program")
        if shutil.which(self.words[0]) is None:
            raise UsageError(
                f"cannot start the agent {self.words[0]!r}: there is no such program (or it may not be run)"
            )

    async def __call__(self, task: Task, view: View, run: AgentRun) -> Trace:
        line = json.dumps(request(task, view, self.instructions, run.place), ensure_ascii=False) + "\n"
        text = (await self._run(line.encode())).decode(errors="replace").strip()
        try:
            # Not splitlines(): a JSON string may hold U+2028 and its like unescaped.
            value = json.loads(text.rsplit("\n", 1)[-1]) if text else None
        except json.JSONDecodeError as error:
            raise AgentError(f"{self.words[0]} answered {text[-120:]!r}, which is not JSON") from error
        if value is None:
            raise AgentError(f"{self.words[0]} answered nothing; it must print one line of JSON with 'answer'")
        return read_answer(value, self.words[0], view)

    async def _run(self, line: bytes) -> bytes:
        try:
            # A session of its own: Ctrl-C at the terminal is for us, who let it finish.
            process = await asyncio.create_subprocess_exec(
                *self.words, stdin=PIPE, stdout=PIPE, stderr=PIPE, start_new_session=True
            )
        except OSError as error:
            raise UsageError(f"cannot start the agent {self.words[0]!r}: {error.strerror}") from error
        answered = False
        try:
            out, err = await asyncio.wait_for(process.communicate(line), self.timeout)
            answered = True
        except TimeoutError as error:
            raise AgentError(self._late(ended=process.returncode is not None)) from error
        finally:
            if not answered:
                await _ended(process)
        if process.returncode:
            tail = err.decode(errors="replace").strip().splitlines()[-1:] or ["no word on standard error"]
            raise AgentError(f"{self.words[0]} ended with exit code {process.returncode}: {tail[0][:200]}")
        return out

    def _late(self, *, ended: bool) -> str:
        if not ended:
            return f"{self.words[0]} did not answer within {self.timeout:g} s"
        return (
            f"{self.words[0]} ended, but what it had started still held its output after {self.timeout:g} s: it must "
            "wait for that, or send its output elsewhere"
        )


async def _ended(process: Process) -> None:
    """Kill a program and what it started, and let go of its pipes."""
    kill_group(process.pid)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(process.communicate(), GONE)
