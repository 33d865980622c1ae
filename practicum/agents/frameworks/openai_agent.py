"""An `Agent` of the OpenAI Agents SDK: a copy of it has the context after its own instructions."""

from __future__ import annotations

from typing import Any

from practicum.agents.frameworks.common import AgentFunction, Steps, agent_function, instructions, tool_call


def openai_agents(agent: Any, **run: Any) -> AgentFunction:
    """An agent of the SDK; `run` goes to each `Runner.run` (context, max_turns, run_config, ...). Agents that it hands
    over to do not get the context."""

    async def ask(input: str, context: str) -> tuple[object, Steps]:
        from agents import ItemHelpers, Runner

        async def with_context(wrapper: Any, _: Any) -> str:
            return instructions(context, await agent.get_system_prompt(wrapper))

        result = await Runner.run(agent.clone(instructions=with_context), input, **run)
        steps: list[tuple[str, str]] = []
        for item in result.new_items:
            if item.type == "tool_call_item":
                steps.append(tool_call(getattr(item.raw_item, "name", "tool"), getattr(item.raw_item, "arguments", "")))
            elif item.type == "tool_call_output_item":
                steps.append(("observation", str(item.output)))
            elif item.type == "message_output_item" and item is not result.new_items[-1]:
                steps.append(("thought", ItemHelpers.text_message_output(item)))
        return result.final_output, steps

    return agent_function(ask, f"openai_agents({agent.name})", "openai_agent")
