"""A pydantic-ai `Agent`: the context is added to its instructions for the run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from practicum.agents.frameworks.common import AgentFunction, Steps, agent_function, instructions, tool_call

if TYPE_CHECKING:
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelMessage


def pydantic_ai(agent: Agent[Any, Any], **run: Any) -> AgentFunction:
    """The agent with its tools and output type; `run` goes to each `agent.run` (deps, usage_limits, ...). An output
    with a field `answer` may also have `reasoning`, `used`, `doubts` and `missing`."""

    async def ask(input: str, context: str) -> tuple[object, Steps]:
        result = await agent.run(input, instructions=instructions(context) or None, infer_name=False, **run)
        return result.output, _steps(result.new_messages())

    return agent_function(ask, f"pydantic_ai({agent.name or ''})", "pydantic_agent")


def _steps(messages: list[ModelMessage]) -> list[tuple[str, str]]:
    """Thoughts, tool calls and their results. The text of the last message is the answer, not a step."""
    from pydantic_ai.messages import BaseToolCallPart, BaseToolReturnPart, RetryPromptPart, TextPart, ThinkingPart

    steps: list[tuple[str, str]] = []
    for message in messages:
        for part in message.parts:
            match part:
                case BaseToolCallPart():
                    steps.append(tool_call(part.tool_name, part.args_as_json_str()))
                case BaseToolReturnPart() | RetryPromptPart():
                    text = part.model_response_str() if isinstance(part, BaseToolReturnPart) else part.model_response()
                    steps.append(("observation", text))
                case TextPart() | ThinkingPart() if message is not messages[-1] or isinstance(part, ThinkingPart):
                    steps.append(("thought", part.content))
    return steps
