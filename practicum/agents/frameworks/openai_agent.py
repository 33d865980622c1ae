"""An `Agent` of the OpenAI Agents SDK: a copy of it has what was learned after its own instructions."""

from __future__ import annotations

from typing import Any

from practicum.agents.frameworks.common import Act, answer, called, instructions, providers


def openai_agents(agent: Any, **run: Any) -> Act:
    """`run` goes to each `Runner.run` (context, max_turns, run_config, ...).

    Agents that it hands over to are told nothing of what was learned.
    """
    name = f"openai_agents({agent.name})"

    async def act(input: str, context: str) -> Any:
        from agents import ItemHelpers, Runner

        async def both(about: Any, _: Any) -> str:
            return instructions(context, await agent.get_system_prompt(about))

        with providers(name):
            done = await Runner.run(agent.clone(instructions=both), input, **run)
        steps: list[tuple[str, str]] = []
        for item in done.new_items:
            if item.type == "tool_call_item":
                steps.append(called(getattr(item.raw_item, "name", "tool"), getattr(item.raw_item, "arguments", "")))
            elif item.type == "tool_call_output_item":
                steps.append(("observation", str(item.output)))
            elif item.type == "message_output_item" and item is not done.new_items[-1]:
                steps.append(("thought", ItemHelpers.text_message_output(item)))
        return answer(done.final_output, steps, context)

    act.__qualname__ = name
    return act
