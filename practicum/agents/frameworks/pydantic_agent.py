"""A pydantic-ai `Agent`: what was learned is added to its instructions for the run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from practicum.agents.frameworks.common import Act, answer, called, instructions, providers

if TYPE_CHECKING:
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelMessage


def pydantic_ai(agent: Agent[Any, Any], **run: Any) -> Act:
    """The agent with its tools and output type; `run` goes to each `agent.run` (deps, usage_limits, ...).

    An output with a field `answer` may also have `reasoning`, `used`, `doubts` and `missing`.
    """
    name = f"pydantic_ai({agent.name or ''})"

    async def act(input: str, context: str) -> Any:
        with providers(name):
            done = await agent.run(input, instructions=instructions(context) or None, infer_name=False, **run)
        return answer(done.output, _steps(done.new_messages()), context)

    act.__qualname__ = name
    return act


def _steps(messages: list[ModelMessage]) -> list[tuple[str, str]]:
    """What it thought, did and saw; its last words are the answer, and no step."""
    from pydantic_ai.messages import BaseToolCallPart, BaseToolReturnPart, RetryPromptPart, TextPart, ThinkingPart

    steps: list[tuple[str, str]] = []
    for message in messages:
        for part in message.parts:
            match part:
                case BaseToolCallPart():
                    steps.append(called(part.tool_name, part.args_as_json_str()))
                case BaseToolReturnPart() | RetryPromptPart():
                    text = part.model_response_str() if isinstance(part, BaseToolReturnPart) else part.model_response()
                    steps.append(("observation", text))
                case TextPart() | ThinkingPart() if message is not messages[-1] or isinstance(part, ThinkingPart):
                    steps.append(("thought", part.content))
    return steps
