"""A LangChain runnable or a LangGraph graph: the context is the first system message."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from practicum.agents.frameworks.common import AgentFunction, Steps, agent_function, instructions, tool_call


def messages(input: str, learned: str) -> dict[str, Any]:
    """The input of an agent of LangChain or LangGraph."""
    return {"messages": [*([("system", learned)] if learned else []), ("user", input)]}


def langchain(runnable: Any, ask: Callable[[str, str], Any] = messages, **invoke: Any) -> AgentFunction:
    """An agent from a runnable. `ask` makes its input from the task's input and the context; `invoke` goes to each
    `ainvoke` (config, context, ...).

    A chain over the variables of a prompt has `ask=lambda input, learned: {"question": input, "rules": learned}`.
    """

    async def run(input: str, context: str) -> tuple[object, Steps]:
        output = await runnable.ainvoke(ask(input, instructions(context)), **invoke)
        if isinstance(output, Mapping) and output.get("messages"):
            *earlier, last = output["messages"]
            structured = output.get("structured_response")
            return last.text if structured is None else structured, _steps(earlier)
        # A chat model returns a message, a parser may return anything.
        return output.text if hasattr(output, "tool_calls") else output, []

    return agent_function(run, f"langchain({getattr(runnable, 'name', None) or ''})", "runnable")


def _steps(messages: Sequence[Any]) -> list[tuple[str, str]]:
    steps: list[tuple[str, str]] = []
    for message in messages:
        if message.type == "ai":
            steps += [("thought", message.text)] if message.text else []
            steps += [tool_call(call["name"], call["args"]) for call in message.tool_calls]
        elif message.type == "tool":
            steps.append(("observation", message.text))
    return steps
