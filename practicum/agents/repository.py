"""Agent for tasks in a repository: a coding agent's program, which works in a copy of the task's folder.

`meta.repository` of a task is the folder. The program never works in this folder: it gets a copy without the history of
the repository, so that neither commits nor pushes reach the user's repository. The user's own settings are not read
(see `models.command_line`); the settings of the repository, its CLAUDE.md or AGENTS.md and its skills are in effect.
Commands run as far as the program allows them without a person: Claude Code edits files and runs what
`.claude/settings.json` allows, Codex runs commands in its sandbox, which may write to the copy only.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from io import BytesIO
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO

from practicum.agents.base import AgentRun
from practicum.agents.external import context_text
from practicum.core.errors import AgentError, ProviderError
from practicum.core.subprocesses import Finished, environment, run_program
from practicum.core.types import Task, Trace
from practicum.core.views import View
from practicum.models import failures
from practicum.models.command_line import PROCESSES
from practicum.models.prices import Pricing
from practicum.models.programs import CLI, Outcome, Program, http_error, read_events
from practicum.tasks.traces.claude_code import ClaudeCodeReader
from practicum.tasks.traces.codex import CodexEventReader
from practicum.tasks.traces.sessions import SessionReader
from practicum.tasks.traces.trace import RecordPlace, Source

MAX_OUTPUT = 64_000_000
"""Maximum size (bytes) of a program's output in an attempt."""

MAX_DIFF = 1_000_000
"""Maximum size (bytes) of a diff. The diff is limited because it is stored with each attempt."""

_COMMIT = {
    "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "GIT_AUTHOR_NAME": "practicum",
    "GIT_AUTHOR_EMAIL": "practicum@localhost", "GIT_COMMITTER_NAME": "practicum",
    "GIT_COMMITTER_EMAIL": "practicum@localhost",
}  # fmt: skip
"""Variables that keep the user's configuration of git out of the copy."""


@dataclass(frozen=True)
class RepositoryAgent:
    """Agent that starts a coding agent's program for each attempt. `model` is empty for the program's default.
    `timeout`: timeout (s) of an attempt. `turns`: maximum number of model calls in an attempt; Codex has no such limit.
    `max_usd`: maximum cost of an attempt (USD), which only Claude Code enforces. `price`: function from usage to cost.

    The view is added to the program's system prompt. The answer of an attempt is the program's last message.
    `trace.data["diff"]` is the difference between the folder and the copy after the attempt, for `git apply`.
    `trace.data["usage"]` is the usage that the program reported. An attempt that ends at a limit has its steps and its
    diff, too.
    """

    program: Program
    model: str
    price: Pricing
    instructions: str = ""
    timeout: float = 120.0
    turns: int | None = None
    max_usd: float | None = None
    journaled: bool = field(default=True, init=False)
    # The login and the folders are on this machine.
    moves: bool = field(default=False, init=False)
    max_turns: int = field(default=0, init=False)
    # The program sends the task and the context to its provider, so redacted texts stay redacted.
    restores: bool = field(default=False, init=False)

    @property
    def name(self) -> str:
        """The agent's name in messages."""
        return f"{CLI}{self.program.name}{'/' if self.model else ''}{self.model}"

    @property
    def identity(self) -> str:
        """The agent's name in the journal."""
        return f"{self.name} {self.turns} {self.instructions}"

    async def __call__(self, task: Task, view: View, run: AgentRun) -> Trace:
        source = _repository(task)
        system = "\n\n".join(filter(None, (self.instructions, context_text(view))))
        # Calls of a model through the same program take the same slots.
        async with run.slot(f"{CLI}{self.program.name}", PROCESSES):
            with TemporaryDirectory(prefix="practicum-", ignore_cleanup_errors=True) as name:
                work = await _Copy.make(source, Path(name))
                finished = await self._run(task, system, Path(name), work)
                diff = await work.diff()
        return self._trace(task, finished, diff)

    async def _run(self, task: Task, system: str, folder: Path, work: _Copy) -> Finished:
        words = _WORDS[self.program.name](self, folder, system)
        model = ["--model", self.model] if self.model else []
        return await run_program(
            [*words, *model], task.text.encode(errors="replace"), self.timeout,
            cwd=work.folder, env=self.program.env, most=MAX_OUTPUT,
        )  # fmt: skip

    def _trace(self, task: Task, finished: Finished, diff: str) -> Trace:
        """Return the trace of an attempt. Raises the errors of `Program.outcome`, and the errors of a model for a
        failure of the provider."""
        events = read_events(finished.out)
        if finished.timed_out or finished.overlong:
            limit = f"{MAX_OUTPUT / 1e6:g} MB of output" if finished.overlong else f"{self.timeout:g} s"
            return replace(_recorded(self.program, task, events, f"no answer within {limit}"), data={"diff": diff})
        outcome = self.program.outcome(finished, self.name)
        if outcome.failure is not None:
            error = http_error(outcome.failure, self.name)
            if (kind := failures.classify(error).kind) == "transient":
                raise ProviderError("provider.failed", f"{self.name} failed: {failures.error_summary(error)}")
            raise failures.permanent_error(self.name, error, kind) from error
        usage = replace(outcome.usage, calls=outcome.turns)
        usage = replace(usage, usd=self.price(usage)) if usage.usd is None else usage
        trace = _recorded(self.program, task, events, _error(outcome))
        data = {"diff": diff, "usage": asdict(usage)}
        return replace(trace, answer=outcome.text, data=data)


def _repository(task: Task) -> Path:
    """Return the folder of a task. Raise AgentError if the task names no folder."""
    source = task.meta.get("repository")
    if not isinstance(source, str) or not (folder := Path(source).expanduser()).is_dir():
        raise AgentError("agent.failed", f"`meta.repository` of task {task.id} is {source!r}: it must name a folder")
    return folder


def _error(outcome: Outcome) -> str | None:
    if outcome.turns_spent:
        return f"no answer within {outcome.turns} turns: the limit of turns or of the cost is reached"
    if outcome.refused:
        return "the model withheld its answer"
    return "the model reached its output limit" if outcome.cut else None


def _claude_words(agent: RepositoryAgent, folder: Path, system: str) -> list[str]:
    (folder / "system.md").write_text(system, encoding="utf-8", errors="replace")
    limits = {"--max-turns": agent.turns, "--max-budget-usd": agent.max_usd}
    return [
        "claude", "--print", "--output-format", "stream-json", "--verbose", "--permission-mode", "acceptEdits",
        "--setting-sources", "project", "--strict-mcp-config", "--no-session-persistence",
        *(["--append-system-prompt-file", str(folder / "system.md")] if system else []),
        *(word for name, limit in limits.items() if limit is not None for word in (name, str(limit))),
    ]  # fmt: skip


def _codex_words(agent: RepositoryAgent, folder: Path, system: str) -> list[str]:
    return [
        "codex", "exec", "-", "--json", "--skip-git-repo-check", "--ephemeral", "--ignore-user-config",
        "--ignore-rules", "--sandbox", "workspace-write", "--config", "features.hooks=false",
        *(["--config", f"developer_instructions={json.dumps(system)}"] if system else []),
    ]  # fmt: skip


_WORDS = {"claude": _claude_words, "codex": _codex_words}


def _recorded(program: Program, task: Task, events: Sequence[Mapping[str, Any]], error: str | None) -> Trace:
    """Return the attempt that a program's events record. An attempt with an `error` has no answer."""
    place = RecordPlace(Source(PurePath(program.name), program.name, program.name, _empty, _empty))
    claude = program.name == "claude"
    reader: SessionReader = ClaudeCodeReader() if claude else CodexEventReader()
    session = next((event["session_id"] for event in events if "session_id" in event), "")
    # The events do not repeat the request.
    reader.add({"type": "user", "session_id": session, "message": {"content": task.text}}, place)
    for event in events:
        # A subagent's messages are not steps of the agent; the call of the subagent has its result.
        if event.get("parent_tool_use_id") is None:
            reader.add(event, place)
    if error is not None:
        # Readers take the last message as the answer, or else the last action, which is a step of this attempt.
        end = {"type": "assistant", "session_id": session, "message": {"content": error}}
        reader.add(end if claude else {"item": {"id": "end", "type": "agent_message", "text": error}}, place)
    attempts = [request.recorded.trace for request in reader.tasks() if request.recorded is not None]
    steps = tuple(step for attempt in attempts for step in attempt.steps)
    return replace(attempts[-1], answer="", steps=steps, error=error) if attempts else Trace("", error=error)


def _empty(path: PurePath) -> BinaryIO:
    return BytesIO()


@dataclass(frozen=True)
class _Copy:
    """Copy of a repository. `base` is a copy of its git folder before the attempt, because the agent may change the git
    folder of the copy, whose configuration may name programs."""

    folder: Path
    base: Path

    @classmethod
    async def make(cls, source: Path, parent: Path) -> _Copy:
        """Copy a folder without its `.git`, and commit the files in a new repository. Raise AgentError if the folder
        cannot be copied."""
        copy = cls(parent / "work", parent / "base.git")
        try:
            ignored = shutil.ignore_patterns(".git")
            await asyncio.to_thread(shutil.copytree, source, copy.folder, symlinks=True, ignore=ignored)
            await copy._git("init", "--quiet", "--template=", "--initial-branch=main")
            await copy._git("add", "--all")
            await copy._git("commit", "--quiet", "--allow-empty", "--message=Start")
            await asyncio.to_thread(shutil.copytree, copy.folder / ".git", copy.base)
        except OSError as error:
            raise AgentError("agent.failed", f"cannot copy the repository {source}: {str(error)[:300]}") from error
        return copy

    async def diff(self) -> str:
        """Return the changes since the copy was made. Raise AgentError if they are larger than MAX_DIFF."""
        own = (f"--git-dir={self.base}", f"--work-tree={self.folder}")
        await self._git(*own, "add", "--all")
        printed = await self._git(
            *own, "diff", "--cached", "--binary", "--no-color", "--no-ext-diff", "--no-textconv", "HEAD"
        )
        if len(printed) > MAX_DIFF:
            raise AgentError(
                "agent.failed",
                f"the agent changed {len(printed) / 1e6:.1f} MB of files; the maximum is {MAX_DIFF / 1e6:g} MB: add "
                "what a build writes to .gitignore",
            )
        return printed.decode(errors="replace")

    async def _git(self, *words: str) -> bytes:
        finished = await run_program(["git", *words], b"", cwd=self.folder, env={**environment(), **_COMMIT})
        if finished.code:
            raise AgentError("agent.failed", f"git failed in the copy of the repository: {finished.reason}")
        return finished.out
