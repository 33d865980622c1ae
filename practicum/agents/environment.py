"""What an agent acts on: the tools of one attempt, and the state they leave behind.

A source is a list of tools (Python functions, or toolsets of pydantic-ai, MCP servers included), or a function that is
called once an attempt with its task and makes the environment: such a list, or an object with `tools` and, where a
scorer should see what became of it, `state()`. Names, descriptions and arguments of tools are pydantic-ai's work.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

from practicum.agents.worker import OneThread
from practicum.core.errors import AgentError, PracticumError, UsageError
from practicum.core.types import Task
from practicum.core.views import truncate

if TYPE_CHECKING:
    from pydantic_ai import RunContext
    from pydantic_ai.toolsets import AbstractToolset, ToolsetTool

FINISH = "finish"
"""What the action is called that ends an attempt."""

SHOWN = 2000
"""Most characters of an observation that the model is shown."""

STATE = 200_000
"""Most characters of a state, as JSON: it is kept with each attempt."""


@dataclass(frozen=True)
class Seen:
    """What an action showed; `failed` where the tool raised, hung, or could not be called so."""

    text: str
    failed: bool = False


@dataclass(frozen=True)
class Theirs:
    """Calls of the user's code, each for at most so many `seconds`. `name` is what it is called in messages."""

    name: str
    seconds: float
    thread: OneThread

    async def made(self, call: Callable[[], Any]) -> Any:
        """What it gives: called in the thread, or awaited here where it is async. Raises AgentError."""
        from pydantic_ai.exceptions import UserError

        clock = asyncio.timeout(self.seconds)
        try:
            async with clock:
                value = call() if inspect.iscoroutinefunction(call) else await self.thread.do(call)
                return await value if inspect.isawaitable(value) else value
        except PracticumError:
            raise
        except UserError as error:
            raise UsageError(f"the tools of {self.name} cannot be used: {error}") from error
        except Exception as error:
            if clock.expired():
                raise AgentError(f"{self.name} was not ready within {self.seconds:g} s") from error
            raise AgentError(f"{self.name} raised {type(error).__name__}: {error}") from error

    async def entered(self, made: Any, stack: AsyncExitStack) -> Any:
        """What a context manager gives on entering; it is left when the stack is. All else is what it is."""
        for enter, leave in (("__aenter__", "__aexit__"), ("__enter__", "__exit__")):
            if hasattr(made, enter):
                given = await self.made(getattr(made, enter))
                stack.push_async_callback(self.made, partial(getattr(made, leave), None, None, None))
                return given
        return made


@dataclass(frozen=True)
class World:
    """An open environment: what the user `made`, and its tools."""

    made: Any
    toolset: AbstractToolset[None]
    tools: Mapping[str, ToolsetTool[None]]
    context: RunContext[None]
    theirs: Theirs
    shown: int = SHOWN

    @property
    def manual(self) -> str:
        """The tools as signatures with their descriptions, and the types they use."""
        from pydantic_ai.function_signature import FunctionSignature

        known = [tool.tool_def for tool in self.tools.values()]
        signatures = [tool.function_signature for tool in known]
        clashes = FunctionSignature.get_conflicting_type_names(signatures)
        types = FunctionSignature.render_type_definitions(signatures, clashes)
        shown = [tool.render_signature("...", conflicting_type_names=clashes) for tool in known]
        return "\n\n".join([*types, *shown])

    async def act(self, name: str, arguments: object) -> Seen:
        """Call a tool. Whatever goes wrong with it is something to see, but for an error of ours, which is raised."""
        from pydantic import ValidationError

        tool = self.tools.get(name)
        if tool is None:
            return Seen(f"error: there is no tool {name!r}: there are {', '.join([*self.tools, FINISH])}", True)
        clock = asyncio.timeout(self.theirs.seconds)
        try:
            checked = tool.args_validator.validate_python(arguments)
            async with clock:
                value = await self.toolset.call_tool(name, checked, replace(self.context, tool_name=name), tool)
            return Seen(_cut(_told(name, value), self.shown))
        except PracticumError:
            raise
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "arguments"
            return Seen(_cut(f"error: {name} cannot be called so: {where}: {first['msg']}", self.shown), True)
        except Exception as error:
            # The user's tool may raise anything; the agent should see what, and go on.
            if clock.expired():
                return Seen(f"error: {name} did not return within {self.theirs.seconds:g} s", True)
            return Seen(_cut(f"error: {type(error).__name__}: {error}", self.shown), True)

    async def state(self) -> Any:
        """The state as a JSON value; None where the environment tells none. Raises AgentError."""
        tell = getattr(self.made, "state", None)
        if not callable(tell):
            return None
        value, name = await self.theirs.made(tell), self.theirs.name
        try:
            text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise AgentError(f"state() of {name} gave what is not JSON: {error}") from error
        if len(text) > STATE:
            raise AgentError(f"state() of {name} gave {len(text):,} characters of JSON; the most is {STATE:,}")
        return json.loads(_storable(text))


@asynccontextmanager
async def opened(source: object, name: str, task: Task, seconds: float, shown: int = SHOWN) -> AsyncIterator[World]:
    """The environment of one attempt, closed in the end. Raises AgentError where the user's code fails or hangs.

    The source never sees the right answer: of the task it gets `id`, `input` and `meta`. `seconds` is how long each
    call into it may take, `shown` the most characters of an observation.
    """
    from pydantic_ai import RunContext
    from pydantic_ai.models.test import TestModel
    from pydantic_ai.toolsets import CombinedToolset
    from pydantic_ai.usage import RunUsage

    theirs = Theirs(name, seconds, OneThread())
    async with AsyncExitStack() as stack:
        stack.callback(theirs.thread.close)
        made = source
        if callable(source):
            made = await theirs.made(partial(source, replace(task, target=None, recorded=None)))
        made = await theirs.entered(made, stack)
        combined: CombinedToolset[None] = CombinedToolset(_toolsets(name, getattr(made, "tools", made), theirs.thread))
        toolset: AbstractToolset[None] = await theirs.entered(combined, stack)
        # No tool has a model to ask: this one is never asked.
        context: RunContext[None] = RunContext(deps=None, model=TestModel(), usage=RunUsage())
        tools = await theirs.made(partial(toolset.get_tools, context))
        if FINISH in tools:
            raise UsageError(f"{name} has a tool {FINISH!r}, which is how an attempt ends: give it another name")
        yield World(made, toolset, tools, context, theirs, shown)


def _toolsets(name: str, tools: object, thread: OneThread) -> Sequence[AbstractToolset[None]]:
    from pydantic_ai.exceptions import UserError
    from pydantic_ai.toolsets import AbstractToolset, FunctionToolset

    listed = [tools] if isinstance(tools, AbstractToolset) else tools
    if not isinstance(listed, Sequence) or isinstance(listed, str) or not listed:
        raise UsageError(f"{name} gives no tools: it must be, give, or have as `tools` a list of functions or toolsets")
    sets = [tool for tool in listed if isinstance(tool, AbstractToolset)]
    plain = [tool for tool in listed if not isinstance(tool, AbstractToolset)]
    if odd := [tool for tool in plain if not callable(tool)]:
        raise UsageError(f"one of the tools of {name} is a {type(odd[0]).__name__}, no function and no toolset")
    try:
        return [FunctionToolset([_awaitable(tool, thread) for tool in plain]), *sets]
    except (UserError, TypeError, ValueError) as error:
        raise UsageError(f"the tools of {name} cannot be used: {error}") from error


def _awaitable(tool: Callable[..., Any], thread: OneThread) -> Callable[..., Awaitable[Any]]:
    """The same function as pydantic-ai reads it, but called in the attempt's thread, so that it may block."""

    @wraps(tool)
    async def called(*args: Any, **kwargs: Any) -> Any:
        here = inspect.iscoroutinefunction(tool)
        value = tool(*args, **kwargs) if here else await thread.do(lambda: tool(*args, **kwargs))
        try:
            return await value if inspect.isawaitable(value) else value
        except SystemExit as error:
            raise RuntimeError(f"SystemExit: {error}") from error

    return called


def _told(name: str, value: Any) -> str:
    """What a tool gave, as text: JSON where it is none."""
    from pydantic_ai.messages import ToolReturn, ToolReturnPart

    value = value.return_value if isinstance(value, ToolReturn) else value
    return ToolReturnPart(tool_name=name, content=value, tool_call_id=name).model_response_str()


def _cut(text: str, most: int) -> str:
    text = _storable(text)
    return truncate(text, most)


def _storable(text: str) -> str:
    """Text that UTF-8 can hold: what a tool reads from a disk may have halves of surrogate pairs."""
    return text.encode("utf-8", "replace").decode()
