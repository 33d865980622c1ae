"""Any program as an agent: one JSON line on standard input, one JSON line on standard output."""

from __future__ import annotations

import asyncio
import json
import shlex
from asyncio.subprocess import PIPE
from dataclasses import dataclass, field

from practicum.agents.outside import Placed, read_answer, request
from practicum.errors import AgentError, UsageError
from practicum.types import Task, Trace
from practicum.views import View


@dataclass
class CommandAgent:
    """Starts the program anew for each task, `concurrency` at once. A failure quotes its standard error."""

    command: str
    instructions: str = ""
    timeout: float = 120.0
    concurrency: int = 4
    journaled: bool = field(default=True, init=False)
    _limit: asyncio.Semaphore = field(init=False)

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
        self._limit = asyncio.Semaphore(self.concurrency)

    async def __call__(self, task: Task, view: View, run: Placed) -> Trace:
        line = json.dumps(request(task, view, self.instructions, run.place), ensure_ascii=False) + "\n"
        async with self._limit:
            out = await self._run(line.encode())
        text = out.decode(errors="replace").strip()
        try:
            value = json.loads(text.splitlines()[-1]) if text else None
        except json.JSONDecodeError as error:
            raise AgentError(f"{self.words[0]} answered {text[-120:]!r}, which is not JSON") from error
        if value is None:
            raise AgentError(f"{self.words[0]} answered nothing; it must print one line of JSON with 'answer'")
        return read_answer(value, self.words[0], view)

    async def _run(self, line: bytes) -> bytes:
        try:
            process = await asyncio.create_subprocess_exec(*self.words, stdin=PIPE, stdout=PIPE, stderr=PIPE)
        except OSError as error:
            raise UsageError(f"cannot start the agent {self.words[0]!r}: {error.strerror}") from error
        try:
            out, err = await asyncio.wait_for(process.communicate(line), self.timeout)
        except TimeoutError as error:
            raise AgentError(f"{self.words[0]} did not answer within {self.timeout:g} s") from error
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            tail = err.decode(errors="replace").strip().splitlines()[-1:] or ["no word on standard error"]
            raise AgentError(f"{self.words[0]} ended with exit code {process.returncode}: {tail[0][:200]}")
        return out
