"""Any program as an agent: one JSON line on standard input, one JSON line on standard output."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shlex
import shutil
from asyncio.subprocess import PIPE
from dataclasses import dataclass, field

from practicum.agents.base import AgentRun
from practicum.agents.external import read_answer, request
from practicum.core.errors import AgentError, UsageError
from practicum.core.types import Task, Trace
from practicum.core.views import View
from practicum.tasks.sandbox.processes import kill_group

PIPES_CLOSE = 2.0
"""Seconds to wait until the pipes of a killed program close. A child that left its process group may keep them open."""


@dataclass
class CommandAgent:
    """Starts the program anew for each attempt; `timeout` is in seconds. A failure quotes its standard error."""

    command: str
    instructions: str = ""
    timeout: float = 120.0
    journaled: bool = field(default=True, init=False)
    max_turns: int = field(default=0, init=False)
    words: list[str] = field(init=False)

    @property
    def identity(self) -> str:
        """The agent's name in the journal."""
        return f"command:{self.command} {self.instructions}"

    def __post_init__(self) -> None:
        try:
            self.words = shlex.split(self.command)
        except ValueError as error:
            raise UsageError(f"--agent command:{self.command} cannot be parsed: {error}") from error
        if not self.words:
            raise UsageError("--agent command: names no program")
        if shutil.which(self.words[0]) is None:
            raise UsageError(f"cannot start the agent {self.words[0]!r}: no such program, or it is not executable")

    async def __call__(self, task: Task, view: View, run: AgentRun) -> Trace:
        line = json.dumps(request(task, view, self.instructions, run.place), ensure_ascii=False) + "\n"
        text = (await self._run(line.encode())).decode(errors="replace").strip()
        try:
            # Not splitlines(): a JSON string may hold U+2028 and similar characters unescaped.
            value = json.loads(text.rsplit("\n", 1)[-1]) if text else None
        except json.JSONDecodeError as error:
            raise AgentError(f"{self.words[0]} printed {text[-120:]!r}, which is not JSON") from error
        if value is None:
            raise AgentError(f"{self.words[0]} printed nothing; it must print one line of JSON with 'answer'")
        return read_answer(value, self.words[0], view)

    async def _run(self, line: bytes) -> bytes:
        """The program's standard output, given this line. Raises AgentError if it fails or takes too long."""
        try:
            # A session of its own, so that Ctrl-C at the terminal reaches practicum alone, which lets it finish.
            process = await asyncio.create_subprocess_exec(
                *self.words, stdin=PIPE, stdout=PIPE, stderr=PIPE, start_new_session=True
            )
        except OSError as error:
            raise UsageError(f"cannot start the agent {self.words[0]!r}: {error.strerror}") from error
        completed = False
        try:
            out, err = await asyncio.wait_for(process.communicate(line), self.timeout)
            completed = True
        except TimeoutError as error:
            if process.returncode is None:
                raise AgentError(f"{self.words[0]} did not answer within {self.timeout:g} s") from error
            raise AgentError(
                f"{self.words[0]} ended, but a process it started still held its output after {self.timeout:g} s: "
                "wait for that process, or redirect its output"
            ) from error
        finally:
            if not completed:
                kill_group(process.pid)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(process.communicate(), PIPES_CLOSE)
        if process.returncode:
            tail = err.decode(errors="replace").strip().splitlines()[-1:] or ["nothing on standard error"]
            raise AgentError(f"{self.words[0]} ended with exit code {process.returncode}: {tail[0][:200]}")
        return out
