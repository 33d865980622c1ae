"""A LangChain runnable or a LangGraph graph: what was learned is the first system message."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from practicum.agents.frameworks.common import Act, answer, called, instructions, providers


def messages(input: str, learned: str) -> dict[str, Any]:
    """What an agent of LangChain or LangGraph is invoked with."""
    return {"messages": [*([("system", learned)] if learned else []), ("user", input)]}


def langchain(runnable: Any, ask: Callable[[str, str], Any] = messages, **invoke: Any) -> Act:
    """`ask` makes of the task's input and of what was learned what the runnable takes; `invoke` goes to each `ainvoke`
    (config, context, ...).

    A chain of a prompt's variables has `ask=lambda input, learned: {"question": input, "rules": learned}`.
    """
    name = f"langchain({getattr(runnable, 'name', None) or ''})"

    async def act(input: str, context: str) -> Any:
        with providers(name):
            output = await runnable.ainvoke(ask(input, instructions(context)), **invoke)
        if isinstance(output, Mapping) and output.get("messages"):
            *earlier, last = output["messages"]
            shaped = output.get("structured_response")
            return answer(last.text if shaped is None else shaped, _steps(earlier), context)
        # A message, as a chat model gives it, or anything else, as a parser does.
        return answer(output.text if hasattr(output, "tool_calls") else output, [], context)

    act.__qualname__ = name
    return act


def _steps(messages: Sequence[Any]) -> list[tuple[str, str]]:
    steps: list[tuple[str, str]] = []
    for message in messages:
        if message.type == "ai":
            steps += [("thought", message.text)] if message.text else []
            steps += [called(call["name"], call["args"]) for call in message.tool_calls]
        elif message.type == "tool":
            steps.append(("observation", message.text))
    return steps
