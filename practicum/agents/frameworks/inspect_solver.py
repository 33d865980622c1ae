"""A solver of inspect_ai, run on one task state without an eval: what was learned is the first system message."""

from __future__ import annotations

from typing import Any

from practicum.agents.frameworks.common import Act, answer, called, instructions, providers


def inspect_ai(solver: Any, model: Any) -> Act:
    """`model` is one of inspect_ai's, or its name. There is no eval around it, and so no sandbox."""
    name = f"inspect_ai({getattr(solver, '__qualname__', type(solver).__name__)})"

    async def act(input: str, context: str) -> Any:
        from inspect_ai.model import (
            ChatMessageSystem,
            ChatMessageUser,
            GenerateConfig,
            ModelName,
            execute_tools,
            get_model,
        )
        from inspect_ai.solver import TaskState

        asked = get_model(model)
        learned = instructions(context)
        first = [ChatMessageSystem(content=learned)] if learned else []
        state = TaskState(ModelName(asked), 1, 1, input, [*first, ChatMessageUser(content=input)])

        async def generate(state: Any, tool_calls: str = "loop", **config: Any) -> Any:
            settings = GenerateConfig(**config)
            if tool_calls == "loop":
                more, state.output = await asked.generate_loop(state.messages, state.tools, settings)
            else:
                state.output = await asked.generate(state.messages, state.tools, state.tool_choice, settings)
                more = [state.output.message]
                if tool_calls == "single":
                    more.extend((await execute_tools([*state.messages, *more], state.tools)).messages)
            state.messages.extend(more)
            return state

        with providers(name):
            state = await solver(state, generate)
        return answer(state.output.completion, _steps(state.messages[:-1]), context)

    act.__qualname__ = name
    return act


def _steps(messages: list[Any]) -> list[tuple[str, str]]:
    steps: list[tuple[str, str]] = []
    for message in messages:
        if message.role == "assistant":
            steps += [("thought", message.text)] if message.text else []
            steps += [called(call.function, call.arguments) for call in message.tool_calls or []]
        elif message.role == "tool":
            steps.append(("observation", message.text))
    return steps
