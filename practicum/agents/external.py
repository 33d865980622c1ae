"""External agents: a program that reads and prints one line of JSON, or a Python function.

Neither the program nor the function gets the target or the `meta` of a task.
"""

from __future__ import annotations

import codecs
import inspect
import json
import shlex
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from practicum.agents.annotations import read_annotations, read_citations
from practicum.agents.base import AgentRun
from practicum.core.calls import call_apart
from practicum.core.errors import AgentError, PracticumError, UsageError
from practicum.core.subprocesses import run_program
from practicum.core.types import Step, Task, Trace
from practicum.core.views import View


@dataclass
class CommandAgent:
    """Agent that starts a program for each attempt. `timeout`: timeout (s) of an attempt. If the program fails, the
    error quotes the last line of the program's standard error.

    The program reads a JSON object with "task" (its id and input), "context", "instructions" and "place", which is an
    idempotency key: if an attempt is repeated after a crash, the repeated attempt has the place of the first attempt.
    If the object has "annotated", the answer should have "doubts" and "missing"; if the object has "noting", the answer
    should have a "note". See `read_answer` for the format of the printed answer.
    """

    command: str
    instructions: str = ""
    timeout: float = 120.0
    journaled: bool = field(default=True, init=False)
    moves: bool = field(default=True, init=False)
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
            raise UsageError(
                "agent.invalid", f"`agent=command:{self.command}` is not a valid command: {error}"
            ) from error
        if not self.words:
            raise UsageError("agent.invalid", "`agent=command:` names no program: pass command:PROGRAM")
        if shutil.which(self.words[0]) is None:
            raise UsageError(
                "agent.cannot_start",
                f"cannot start the agent {self.words[0]!r}: the program does not exist or is not executable",
            )

    async def __call__(self, task: Task, view: View, run: AgentRun) -> Trace:
        request = {
            **{name: True for name in ("annotated", "noting") if getattr(view, name)},
            "task": {
                "id": task.id,
                "input": task.text,
                **({"messages": task.messages} if task.history else {}),
                **({"images": dict(task.images)} if task.images else {}),
            },
            "context": context_text(view),
            "instructions": self.instructions,
            "place": run.place,
        }
        line = json.dumps(request, ensure_ascii=False) + "\n"
        # Do not use splitlines(): a JSON string may contain U+2028 and similar characters unescaped.
        printed = (await self._run(line.encode())).strip().rsplit(b"\n", 1)[-1]
        text = decode(printed, self.words[0])
        try:
            value = json.loads(text) if text else None
        except json.JSONDecodeError as error:
            raise AgentError(
                "agent.invalid_answer", f"{self.words[0]} printed {text[-120:]!r}, which is not JSON"
            ) from error
        if value is None:
            raise AgentError(
                "agent.invalid_answer",
                f"{self.words[0]} printed nothing; an agent must print one line of JSON with 'answer'",
            )
        return read_answer(value, self.words[0], view)

    async def _run(self, line: bytes) -> bytes:
        """Run the program with a line on standard input, and return its standard output. Raise AgentError if the
        program fails or times out."""
        try:
            finished = await run_program(self.words, line, self.timeout)
        except OSError as error:
            raise UsageError(
                "agent.cannot_start", f"cannot start the agent {self.words[0]!r}: {error.strerror}"
            ) from error
        if finished.timed_out and finished.code is None:
            raise AgentError("agent.timeout", f"{self.words[0]} did not answer within {self.timeout:g} s")
        if finished.timed_out:
            raise AgentError(
                "agent.timeout",
                f"{self.words[0]} ended, but a process that the program started still held the program's output after "
                f"{self.timeout:g} s: make the program wait for that process, or redirect the output of that process",
            )
        if finished.code:
            raise AgentError("agent.failed", f"{self.words[0]} ended with exit code {finished.code}: {finished.reason}")
        return finished.out


def decode(printed: bytes, program: str) -> str:
    """Decode the output of a program. Raise AgentError if the output is not UTF-8. The encoding is not guessed, because
    a wrong encoding would change the answer."""
    try:
        if b"\x00" in printed or printed.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise ValueError("UTF-16 or UTF-32, it seems")
        return printed.decode("utf-8-sig")
    except ValueError as error:
        detail = str(error)
        if isinstance(error, UnicodeDecodeError):
            byte = printed[error.start]
            detail = f"Latin-1 or cp1252, it seems: byte 0x{byte:02x} is {bytes([byte]).decode('latin-1')!r} in Latin-1"
        raise AgentError(
            "agent.invalid_answer",
            f"{program} printed text that is not UTF-8 ({detail}): make the program print UTF-8 (set "
            "PYTHONIOENCODING=utf-8 for a Python program, LC_ALL=C.UTF-8 for other programs)",
        ) from error


@dataclass(frozen=True)
class FunctionAgent:
    """Agent that calls a function once per attempt. A function that is not async runs in a separate thread, so it may
    block.

    `fn` gets the task's input and the context as text. It also gets each of the following arguments for which it has a
    parameter with the same name:

    - `place`: an idempotency key. If an attempt is repeated after a crash, the repeated attempt has the place of the
      first attempt.
    - `annotated`: whether the answer should have "doubts" and "missing".
    - `noting`: whether the answer should have a "note".
    - `messages`: the task as chat messages with `role` and `content`, for a task that is a conversation. The input is
      then the whole conversation as one text.
    - `instructions`: the run's instructions. Not passed if the run has no instructions.

    See `read_answer` for the type of the result. Raise UsageError if the function does not accept these arguments.
    """

    fn: Callable[..., Any]
    instructions: str = ""
    journaled: bool = field(default=True, init=False)
    moves: bool = field(default=True, init=False)
    max_turns: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        try:
            signature = inspect.signature(self.fn)
        except (TypeError, ValueError):
            return  # written in C, without a signature
        try:
            signature.bind("input", "context", **self._accepted(place="", annotated=False, noting=False, messages=[]))
        except TypeError as error:
            raise UsageError(
                "agent.invalid",
                f"the agent {self.name}{signature} cannot be called: {error}. An agent must take the task's input and "
                "the context, as in: def agent(input: str, context: str) -> str",
            ) from error

    @property
    def name(self) -> str:
        """The agent's name in messages."""
        return f"{getattr(self.fn, '__module__', '?')}:{getattr(self.fn, '__qualname__', type(self.fn).__name__)}"

    @property
    def identity(self) -> str:
        """The agent's name in the journal. The name includes the run's instructions if the function takes them."""
        return " ".join([self.name, *self._accepted().values()])

    def _accepted(self, **values: Any) -> dict[str, Any]:
        """Return the values, and the run's instructions, for which the function has a parameter with the same name."""
        values |= {"instructions": self.instructions} if self.instructions else {}
        try:
            parameters = inspect.signature(self.fn).parameters
        except (TypeError, ValueError):
            return {}  # written in C, without a signature
        return {name: value for name, value in values.items() if name in parameters}

    async def __call__(self, task: Task, view: View, run: AgentRun) -> Trace:
        extra = self._accepted(place=run.place, annotated=view.annotated, noting=view.noting, messages=task.messages)
        ask = partial(self.fn, task.text, context_text(view), **extra)
        try:
            value = await call_apart("practicum agent", ask)
        except PracticumError:
            raise
        except Exception as error:
            # The user's code may raise any exception: count it as a failed attempt, and continue the batch.
            raise AgentError("agent.failed", f"{self.name} raised {type(error).__name__}: {error}") from error
        return read_answer(value, self.name, view)


class _Step(BaseModel):
    kind: str = "message"
    text: str


class _Doubt(BaseModel):
    id: str
    why: str = ""


class _Answer(BaseModel):
    model_config = ConfigDict(coerce_numbers_to_str=True)

    answer: str = ""
    reasoning: str = ""
    used: list[str] = []
    steps: list[_Step] = []
    error: str | None = None
    doubts: list[_Doubt] = []
    missing: str = ""
    note: str = ""


def context_text(view: View) -> str:
    """Return a view as one text: descriptions of tools, the pages, the note."""
    tools = [f"{tool}({name}): {text}" if name else f"{tool}: {text}" for (tool, name), text in view.tools.items()]
    return "\n".join([*(["# Tools", *tools] if tools else []), *view.pages, *([view.note] if view.note else [])])


def read_answer(value: object, agent: str, view: View) -> Trace:
    """Convert an answer to a trace. `agent`: the agent's name in messages.

    The answer is a text, a number, a `Trace`, or a mapping {"answer", "reasoning"?, "used"?, "steps"?, "error"?}, with
    "doubts" (a list of {"id", "why"}) and "missing" for an annotated view and "note" for a noting view. Ids in "used"
    that are not in the view are dropped and counted. Raise AgentError for any other answer.
    """
    if isinstance(value, Trace):
        return replace(value, **read_citations(value.used, view))
    if isinstance(value, str | int | float):
        return Trace(answer=str(value))
    if not isinstance(value, Mapping):
        raise AgentError(
            "agent.invalid_answer",
            f"{agent} returned {type(value).__name__}; an agent must return a text or a mapping with 'answer'",
        )
    try:
        answer = _Answer.model_validate(dict(value))
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"])) or "answer"
        raise AgentError("agent.invalid_answer", f"{agent} returned an invalid {field!r}: {first['msg']}") from error
    if "answer" not in value and not answer.error:
        keys = ", ".join(map(str, value)) or "nothing"
        raise AgentError("agent.invalid_answer", f"{agent} returned no 'answer' (the keys are: {keys})")
    return Trace(
        answer=answer.answer,
        reasoning=answer.reasoning,
        steps=tuple(Step(s.kind, s.text) for s in answer.steps),
        error=answer.error,
        data=read_annotations(answer, view),
        **read_citations(answer.used, view),
    )
