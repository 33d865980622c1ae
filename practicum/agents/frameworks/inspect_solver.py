"""A solver of inspect_ai, run on one task state without an eval: the context is the first system message."""

from __future__ import annotations

from typing import Any

from practicum.agents.frameworks.common import AgentFunction, Steps, agent_function, instructions, tool_call


def inspect_ai(solver: Any, model: Any) -> AgentFunction:
    """An agent from a solver. `model` is a model of inspect_ai, or its name. There is no eval, and so no sandbox."""

    async def ask(input: str, context: str) -> tuple[object, Steps]:
        from inspect_ai.model import (
            ChatMessageSystem,
            ChatMessageUser,
            GenerateConfig,
            ModelName,
            execute_tools,
            get_model,
        )
        from inspect_ai.solver import TaskState

        chat = get_model(model)
        learned = instructions(context)
        first = [ChatMessageSystem(content=learned)] if learned else []
        state = TaskState(ModelName(chat), 1, 1, input, [*first, ChatMessageUser(content=input)])

        async def generate(state: Any, tool_calls: str = "loop", **config: Any) -> Any:
            settings = GenerateConfig(**config)
            if tool_calls == "loop":
                more, state.output = await chat.generate_loop(state.messages, state.tools, settings)
            else:
                state.output = await chat.generate(state.messages, state.tools, state.tool_choice, settings)
                more = [state.output.message]
                if tool_calls == "single":
                    more.extend((await execute_tools([*state.messages, *more], state.tools)).messages)
            state.messages.extend(more)
            return state

        state = await solver(state, generate)
        return state.output.completion, _steps(state.messages[:-1])

    return agent_function(
        ask, f"inspect_ai({getattr(solver, '__qualname__', type(solver).__name__)})", "inspect_solver"
    )


def _steps(messages: list[Any]) -> list[tuple[str, str]]:
    steps: list[tuple[str, str]] = []
    for message in messages:
        if message.role == "assistant":
            steps += [("thought", message.text)] if message.text else []
            steps += [tool_call(call.function, call.arguments) for call in message.tool_calls or []]
        elif message.role == "tool":
            steps.append(("observation", message.text))
    return steps
