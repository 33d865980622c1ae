"""Adapters that turn agents of other frameworks into functions `(input, context) -> answer`, which practicum can train.

Each adapter adds the context to the framework's instructions, and returns a function whose result has the answer and
the steps. Pass the function to `Parts(agent=...)`, or name the function as `--agent module:name`. A plain function
needs no adapter; a program is named as `--agent command:PROGRAM`. A framework is imported when its agent first runs.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from practicum.core.errors import ProviderError, RequestError, UsageError, WindowError
from practicum.core.requirements import require
from practicum.models.keys import ADDRESSES, key_for, require_private, without_keys
from practicum.models.transport import RefusedReply, connect

if TYPE_CHECKING:
    from pydantic_ai import Agent

AgentFunction = Callable[[str, str], Awaitable[Any]]
"""Agent as a function of the input and the context. `agents.external.read_answer` reads its result."""

RETRIES = 2
"""Number of retries of a call of an endpoint."""

Steps = list[tuple[str, str]]
"""Steps of an attempt: kind ("thought", "action", "observation") and text of each."""

AskFunction = Callable[[str, str], Awaitable[tuple[object, Steps]]]
"""Function that runs an agent of a framework on an input and a context. It returns the output and the steps; the steps
do not include the answer."""

_SHOWN_ID = re.compile(r'^\[(e\d+)\] \(|^<entry id="(e\d+)"', re.MULTILINE)
_CITED_ID = re.compile(r"\[(e\d+)\]")
_FIELDS = ("answer", "reasoning", "used", "doubts", "missing", "note")


def endpoint(name: str, key: str | None = None, **request: Any) -> AgentFunction:
    """Adapt an agent behind an OpenAI-compatible endpoint, named http://host:port/v1#agent. The context is the system
    message. `key` defaults to the key that `models.keys` has for the host. `request`: fields of each request
    (temperature, extra_body, ...), and `timeout`, the timeout (s) of a call, 600 by default. Raise UsageError for a
    name in another form, and for a key that would be sent to another machine over plain HTTP."""
    address, _, model = name.partition("#")
    if not address.startswith(ADDRESSES) or not model:
        raise UsageError(
            "model.invalid_name", f"endpoint {name!r} must have the form http://host:port/v1#name-of-the-agent"
        )
    require("openai", f"endpoint {name!r}")
    if key is not None:
        require_private(address, "the endpoint")
    secret, timeout = key or key_for(address), request.pop("timeout", 600.0)

    async def ask(input: str, context: str) -> tuple[object, Steps]:
        system = _instructions(context)
        messages: list[Any] = [{"role": "system", "content": system}] if system else []
        messages.append({"role": "user", "content": input})
        from openai import APIError

        try:
            async with asyncio.timeout(timeout), connect(address, secret, retries=RETRIES) as client:
                reply = await client.chat.completions.create(model=model, messages=messages, **request)
                return (reply.choices[0].message.content or "").strip(), []
        except (APIError, AttributeError, IndexError, TypeError, ValueError, TimeoutError, RefusedReply) as error:
            # The server failed, sent an invalid completion, or timed out.
            problem = f"{type(error).__name__}: {str(error) or f'no answer within {timeout:g} seconds'}"
            # Raise without the cause, because its traceback would also show a key that the server quoted.
            text = f"the model of endpoint({name}) failed: {without_keys(problem, secret)}"
            raise _failure(text, error) from None

    return _agent_function(ask, f"endpoint({name})", "endpoint")


def pydantic_ai(agent: Agent[Any, Any], **run: Any) -> AgentFunction:
    """Adapt a pydantic-ai `Agent` with its tools and output type. In each run, the context is added to the agent's
    instructions. `run`: keywords of each `agent.run` (deps, usage_limits, ...). An output with a field `answer` may
    also have the fields `reasoning`, `used`, `doubts` and `missing`."""

    async def ask(input: str, context: str) -> tuple[object, Steps]:
        from pydantic_ai.messages import BaseToolCallPart, BaseToolReturnPart, RetryPromptPart, TextPart, ThinkingPart

        result = await agent.run(input, instructions=_instructions(context) or None, infer_name=False, **run)
        messages = result.new_messages()
        steps: Steps = []
        for part, is_last in [(part, each is messages[-1]) for each in messages for part in each.parts]:
            match part:
                case BaseToolCallPart():
                    steps.append(_tool_call(part.tool_name, part.args_as_json_str()))
                case BaseToolReturnPart():
                    steps.append(("observation", part.model_response_str()))
                case RetryPromptPart():
                    steps.append(("observation", part.model_response()))
                # The text of the last message is the answer, not a step.
                case TextPart() | ThinkingPart() if not is_last or isinstance(part, ThinkingPart):
                    steps.append(("thought", part.content))
        return result.output, steps

    return _agent_function(ask, f"pydantic_ai({agent.name or ''})", "pydantic_agent")


def langchain_input(input: str, learned: str) -> dict[str, Any]:
    """Return the messages for an agent of LangChain or LangGraph. The context is the first system message."""
    return {"messages": [*([("system", learned)] if learned else []), ("user", input)]}


def langchain(runnable: Any, ask: Callable[[str, str], Any] = langchain_input, **invoke: Any) -> AgentFunction:
    """Adapt a LangChain runnable or a LangGraph graph. `ask` makes the input of the runnable from the task's input and
    the context. `invoke`: keywords of each `ainvoke` (config, context, ...). For a chain over the variables of a
    prompt, pass for example `ask=lambda input, learned: {"question": input, "rules": learned}`."""

    async def run(input: str, context: str) -> tuple[object, Steps]:
        output = await runnable.ainvoke(ask(input, _instructions(context)), **invoke)
        if isinstance(output, Mapping) and output.get("messages"):
            *earlier, last = output["messages"]
            structured = output.get("structured_response")
            steps = _message_steps(earlier, "type", "ai", lambda call: _tool_call(call["name"], call["args"]))
            return last.text if structured is None else structured, steps
        # A chat model returns a message; a parser may return a value of any type.
        return output.text if hasattr(output, "tool_calls") else output, []

    return _agent_function(run, f"langchain({getattr(runnable, 'name', None) or ''})", "runnable")


def openai_agents(agent: Any, **run: Any) -> AgentFunction:
    """Adapt an `Agent` of the OpenAI Agents SDK. A copy of the agent has the context after the agent's instructions.
    `run`: keywords of each `Runner.run` (context, max_turns, run_config, ...). Agents that take over from this agent do
    not get the context."""

    async def ask(input: str, context: str) -> tuple[object, Steps]:
        from agents import ItemHelpers, Runner

        async def with_context(wrapper: Any, _: Any) -> str:
            return _instructions(context, await agent.get_system_prompt(wrapper))

        result = await Runner.run(agent.clone(instructions=with_context), input, **run)
        steps: Steps = []
        for item in result.new_items:
            if item.type == "tool_call_item":
                call = item.raw_item
                steps.append(_tool_call(getattr(call, "name", "tool"), getattr(call, "arguments", "")))
            elif item.type == "tool_call_output_item":
                steps.append(("observation", str(item.output)))
            elif item.type == "message_output_item" and item is not result.new_items[-1]:
                steps.append(("thought", ItemHelpers.text_message_output(item)))
        return result.final_output, steps

    return _agent_function(ask, f"openai_agents({agent.name})", "openai_agent")


def dspy(module: Any, input: str = "question", output: str = "answer") -> AgentFunction:
    """Adapt a DSPy module. A copy of the module has the context after the instructions of each predictor. `input` and
    `output`: names of the module's fields for the task and the answer. The module uses the model that DSPy is
    configured with."""
    name = f"dspy({type(module).__name__})"

    async def ask(text: str, context: str) -> tuple[object, Steps]:
        from dspy import LMError

        copied = module.deepcopy()
        for copy, original in zip(copied.predictors(), module.predictors(), strict=True):
            signature = original.signature
            copy.signature = signature.with_instructions(_instructions(context, signature.instructions))
            copy.lm = original.lm  # a copied model would have separate usage counts and a separate cache
        try:
            prediction = await copied.acall(**{input: text})
        except LMError as error:
            raise _provider_error(name, error) from error
        # A ReAct module returns its steps as thought_0, tool_name_0, tool_args_0, observation_0, thought_1, ...
        trajectory = prediction.get("trajectory") or {}
        steps: Steps = []
        for key, value in trajectory.items():
            kind, _, turn = key.rpartition("_")
            if kind == "tool_name":
                steps.append(_tool_call(value, trajectory[f"tool_args_{turn}"]))
            elif kind in ("thought", "observation"):
                steps.append((kind, str(value)))
        return {"answer": prediction[output], "reasoning": prediction.get("reasoning") or ""}, steps

    return _agent_function(ask, name, "dspy_module")


def inspect_ai(solver: Any, model: Any) -> AgentFunction:
    """Adapt a solver of inspect_ai. The solver runs on one task state, without an eval and so without a sandbox. The
    context is the first system message. `model`: a model of inspect_ai, or its name."""

    async def ask(input: str, context: str) -> tuple[object, Steps]:
        from inspect_ai import model as models
        from inspect_ai.solver import TaskState

        chat = models.get_model(model)
        learned = _instructions(context)
        first = [models.ChatMessageSystem(content=learned)] if learned else []
        state = TaskState(models.ModelName(chat), 1, 1, input, [*first, models.ChatMessageUser(content=input)])

        async def generate(state: Any, tool_calls: str = "loop", **config: Any) -> Any:
            settings = models.GenerateConfig(**config)
            if tool_calls == "loop":
                more, state.output = await chat.generate_loop(state.messages, state.tools, settings)
            else:
                state.output = await chat.generate(state.messages, state.tools, state.tool_choice, settings)
                more = [state.output.message]
                if tool_calls == "single":
                    more.extend((await models.execute_tools([*state.messages, *more], state.tools)).messages)
            state.messages.extend(more)
            return state

        state = await solver(state, generate)
        earlier = state.messages[:-1]
        steps = _message_steps(earlier, "role", "assistant", lambda call: _tool_call(call.function, call.arguments))
        return state.output.completion, steps

    name = getattr(solver, "__qualname__", type(solver).__name__)
    return _agent_function(ask, f"inspect_ai({name})", "inspect_solver")


def _agent_function(ask: AskFunction, name: str, module: str) -> AgentFunction:
    """Return an agent that answers through `ask`. `name`: the agent's name in messages and in the journal. If the
    provider of the agent's model fails, the agent raises ProviderError, so that nothing is learned from the attempt."""

    async def act(input: str, context: str) -> Any:
        from openai import APIError
        from pydantic_ai.exceptions import ModelAPIError

        try:
            output, steps = await ask(input, context)
        except (APIError, ModelAPIError) as error:
            raise _provider_error(name, error) from error
        return _answer(output, steps, context)

    # Journals of old runs have names with modules of `practicum.adapters`: a resume needs the same names.
    act.__module__, act.__qualname__ = f"practicum.adapters.{module}", name
    return act


def _provider_error(agent: str, error: Exception) -> ProviderError:
    return _failure(f"the model of {agent} failed: {type(error).__name__}: {error}", error)


def _failure(text: str, error: Exception) -> ProviderError:
    """Return the error for a failure of a model's server: a RequestError or WindowError if only this request is at
    fault, otherwise a ProviderError."""
    status = getattr(error, "status_code", None)
    if not isinstance(status, int):
        return ProviderError("provider.failed", text)
    from pydantic_ai.exceptions import ModelHTTPError

    from practicum.models.failures import classify

    kind = classify(ModelHTTPError(status, "", getattr(error, "body", None))).kind
    if kind == "window":
        return WindowError("window.exceeded", text)
    if kind in ("filter", "input"):
        return RequestError("provider.filtered" if kind == "filter" else "provider.refused", text)
    return ProviderError("provider.failed", text)


def _instructions(context: str, own: str | None = None) -> str:
    """Return the agent's instructions (`own`), followed by the context. Either may be empty."""
    learned = f"{LEARNED}{CITE if _SHOWN_ID.search(context) else ''}\n\n{context}" if context else ""
    return "\n\n".join(part for part in (own, learned) if part)


def _answer(output: object, steps: Steps, context: str) -> dict[str, Any] | None:
    """Convert an output to the mapping that `read_answer` reads; None if the output has no answer. If the output has a
    field `answer`, its fields are read (see _FIELDS). Any other output is the answer itself, as JSON unless it is a
    text. The value of `used` is the list `used` of the output or, without this list, the ids of the shown entries that
    the agent cited as [id]."""
    from pydantic_core import to_jsonable_python

    value = to_jsonable_python(output, fallback=str)
    fields = value if isinstance(value, Mapping) and "answer" in value else {"answer": value}
    if fields["answer"] is None:
        return None
    answer = {name: fields[name] for name in _FIELDS if name in fields}
    answer["answer"] = _text(answer["answer"])
    shown = {id for pair in _SHOWN_ID.findall(context) for id in pair}
    thoughts = [text for kind, text in steps if kind != "observation"]
    written = "\n".join([*thoughts, str(answer.get("reasoning", "")), answer["answer"]])
    cited = [id for id in _CITED_ID.findall(written) if id in shown]
    return {"used": cited, **answer, "steps": [{"kind": kind, "text": text} for kind, text in steps]}


def _message_steps(
    messages: Iterable[Any], author: str, agent: str, read_call: Callable[[Any], tuple[str, str]]
) -> Steps:
    """Return the steps in messages. `author`: name of the attribute with the author of a message. The value of this
    attribute is "tool" for results of tools, and `agent` for messages of the agent."""
    steps: Steps = []
    for message in messages:
        if getattr(message, author) == agent:
            steps += [("thought", message.text)] if message.text else []
            steps += map(read_call, message.tool_calls or [])
        elif getattr(message, author) == "tool":
            steps.append(("observation", message.text))
    return steps


def _tool_call(name: str, arguments: object) -> tuple[str, str]:
    return "action", f"{name} {_text(arguments)}"


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


LEARNED = "Below is what was learned from earlier tasks. Follow what applies to this one."
CITE = " Where you think aloud or call a tool, but not in the answer, name the entries you follow by their [id]."
