"""Environment of an agent with tools. An environment is opened for one attempt: it has the tools that the agent may
call, and a state that a scorer may read after the attempt.

The user passes a source: a list of tools, or a function that makes the environment. Such a function is called with the
task once per attempt. It returns a list of tools, or an object with `tools` and, if a scorer should see the state of
the environment, `state()`. If the object is a context manager, it is entered before the attempt and exited after it.
Tools are Python functions or pydantic-ai toolsets, MCP servers included. pydantic-ai derives the names, descriptions
and argument schemas of tools.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from practicum.agents.user_code import UserCode
from practicum.core.errors import AgentError, PracticumError, UsageError
from practicum.core.tool_texts import Tool, ToolTexts, with_texts
from practicum.core.types import Task
from practicum.core.views import truncate
from practicum.core.words import fault

if TYPE_CHECKING:
    from pydantic_ai import RunContext
    from pydantic_ai.toolsets import AbstractToolset, ToolsetTool

FINISH = "finish"
"""Name of the action that ends an attempt."""

MAX_OBSERVATION = 2000
"""Maximum characters of an observation for a small model."""

MAX_STATE = 200_000
"""Maximum characters of a state as JSON. The state is limited because it is stored with each attempt."""


@dataclass(frozen=True)
class Environment:
    """Open environment of an attempt. `user_object`: the user's list of tools, or the user's object with `tools`."""

    user_object: Any
    toolset: AbstractToolset[None]
    tools: Mapping[str, ToolsetTool[None]]
    context: RunContext[None]
    user_code: UserCode
    max_observation: int

    @property
    def manual(self) -> str:
        """Text about the tools for the prompt: the types of their arguments and results, then the Python signature and
        the description of each tool."""
        from pydantic_ai.function_signature import FunctionSignature

        definitions = [tool.tool_def for tool in self.tools.values()]
        signatures = [tool.function_signature for tool in definitions]
        clashes = FunctionSignature.get_conflicting_type_names(signatures)
        types = FunctionSignature.render_type_definitions(signatures, clashes)
        return "\n\n".join([
            *types, *(tool.render_signature("...", conflicting_type_names=clashes) for tool in definitions),
        ])  # fmt: skip

    def described(self, texts: ToolTexts) -> Environment:
        """Return the environment with these descriptions of its tools."""
        tools = {}
        for name, tool in self.tools.items():
            new = with_texts(Tool(name, "", tool.tool_def.parameters_json_schema), texts)
            description = new.description or tool.tool_def.description
            definition = replace(tool.tool_def, description=description, parameters_json_schema=dict(new.schema))
            tools[name] = replace(tool, tool_def=definition)
        return replace(self, tools=tools)

    async def act(self, name: str, arguments: object) -> tuple[str, bool]:
        """Call a tool. Return the observation, and whether the call failed: the tool raised, timed out, or does not
        accept the arguments. Raise only errors of practicum."""
        from pydantic_ai.messages import ToolReturn, ToolReturnPart

        def failed(text: str) -> tuple[str, bool]:
            return truncate(_encodable(f"error: {text}"), self.max_observation), True

        tool = self.tools.get(name)
        if tool is None:
            return failed(f"there is no tool {name!r}: there are {', '.join([*self.tools, FINISH])}")
        clock = asyncio.timeout(self.user_code.seconds)
        try:
            checked = tool.args_validator.validate_python(arguments)
            async with clock:
                value = await self.toolset.call_tool(name, checked, replace(self.context, tool_name=name), tool)
            value = value.return_value if isinstance(value, ToolReturn) else value
            returned = ToolReturnPart(tool_name=name, content=value, tool_call_id=name)
            # pydantic-ai formats an empty list as an empty text.
            text = "[]" if isinstance(value, list | tuple) and not value else returned.model_response_str()
            return truncate(_encodable(text), self.max_observation), False
        except PracticumError:
            raise
        except ValidationError as error:
            return failed(f"{name} cannot be called so: {fault(error, 'arguments')}")
        except (Exception, SystemExit) as error:
            # The user's tool may raise any exception. Show it to the agent, which continues.
            if clock.expired():
                return failed(f"{name} did not return within {self.user_code.seconds:g} s")
            return failed(f"{type(error).__name__}: {error}")

    async def state(self) -> Any:
        """Return the state of the environment as a JSON value; None if the user's object has no `state()`. Raise
        AgentError if the state is not JSON or is too long."""
        read_state = getattr(self.user_object, "state", None)
        if not callable(read_state):
            return None
        value, name = await self.user_code.call(read_state), self.user_code.name
        try:
            text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise AgentError("agent.failed", f"state() of {name} returned a value that is not JSON: {error}") from error
        if len(text) > MAX_STATE:
            raise AgentError(
                "agent.failed",
                f"state() of {name} returned {len(text):,} characters of JSON; the maximum is {MAX_STATE:,}",
            )
        return json.loads(_encodable(text))


@asynccontextmanager
async def open_environment(
    source: object, name: str, task: Task, seconds: float, max_observation: int
) -> AsyncIterator[Environment]:
    """Open the environment of one attempt, and close it after the block. Raise AgentError if the user's code fails or
    times out. `seconds`: timeout (s) of each call of the user's code. The source gets the task without `target` and
    `recorded`."""
    from pydantic_ai import RunContext
    from pydantic_ai.models.test import TestModel
    from pydantic_ai.toolsets import CombinedToolset
    from pydantic_ai.usage import RunUsage

    code = UserCode(name, seconds)
    async with AsyncExitStack() as stack:
        stack.callback(code.close)
        seen = replace(task, target=None, recorded=None)
        value = await code.enter(await code.call(partial(source, seen)) if callable(source) else source, stack)
        combined: CombinedToolset[None] = CombinedToolset(_toolsets(code, getattr(value, "tools", value)))
        toolset: AbstractToolset[None] = await code.enter(combined, stack)
        # pydantic-ai requires a model here, but no tool calls it.
        context: RunContext[None] = RunContext(deps=None, model=TestModel(), usage=RunUsage())
        tools = await code.call(partial(toolset.get_tools, context))
        if FINISH in tools:
            raise UsageError(
                "tools.invalid", f"{name} has a tool {FINISH!r}, the action that ends an attempt: rename the tool"
            )
        yield Environment(value, toolset, tools, context, code, max_observation)


def _toolsets(code: UserCode, tools: object) -> Sequence[AbstractToolset[None]]:
    from pydantic_ai.exceptions import UserError
    from pydantic_ai.toolsets import AbstractToolset, FunctionToolset

    listed = [tools] if isinstance(tools, AbstractToolset) else tools
    if not isinstance(listed, Sequence) or isinstance(listed, str) or not listed:
        rule = "pass a list of functions or toolsets, or a function that returns such a list or an object with `tools`"
        raise UsageError("tools.invalid", f"{code.name} has no tools: {rule}")
    sets = [tool for tool in listed if isinstance(tool, AbstractToolset)]
    functions = [tool for tool in listed if not isinstance(tool, AbstractToolset)]
    if wrong := [type(tool).__name__ for tool in functions if not callable(tool)]:
        raise UsageError(
            "tools.invalid", f"a tool of {code.name} is of type {wrong[0]}: a tool must be a function or a toolset"
        )
    try:
        return [FunctionToolset([_in_thread(tool, code) for tool in functions]), *sets]
    except (UserError, TypeError, ValueError) as error:
        raise UsageError("tools.invalid", f"the tools of {code.name} cannot be used: {error}") from error


def _in_thread(tool: Callable[..., Any], code: UserCode) -> Callable[..., Awaitable[Any]]:
    """Wrap a tool for pydantic-ai so that it runs in the attempt's thread, where it may block."""

    @wraps(tool)
    async def call(*args: Any, **kwargs: Any) -> Any:
        return await code.run(partial(tool, *args, **kwargs))

    return call


def _encodable(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode. File names that a tool reads may contain lone surrogates."""
    return text.encode("utf-8", "replace").decode()
