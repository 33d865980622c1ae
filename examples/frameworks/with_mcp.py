"""A pydantic-ai agent whose only memory is practicum over MCP: the agent recalls, remembers and reports by itself.

    python examples/frameworks/with_mcp.py [--model openai:gpt-4.1-mini]

It needs `pip install 'practicum[serve,mcp]'`. Each session has its own agent and memory process. They share the
folder `repairs-memory`. The small model on this machine calls no tools by itself.
"""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from fastmcp.client.transports import StdioTransport
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

import practicum

sys.path.append(str(Path(__file__).parents[1]))
from model import endpoint

TASKS = practicum.load_tasks(Path(__file__).parents[1] / "tasks.jsonl")
AT = endpoint()


async def session(tasks: Sequence[practicum.Task], teach: bool) -> float:
    """Return the share of tasks that a new agent gets right. With `teach` it is corrected after each task."""
    right = 0
    memory = StdioTransport(sys.executable, ["-m", "practicum.cli.app", "mcp", "--store", "repairs-memory"])
    agent = Agent(
        OpenAIChatModel(AT.name, provider=OpenAIProvider(base_url=AT.base_url, api_key=AT.api_key)),
        instructions="You send repairs to a bench: K2, K5, K7 or K9. Answer with its name only.",
        toolsets=[MCPToolset(memory, include_instructions=True)],
        model_settings={"temperature": 0, "max_tokens": 256},
    )
    async with agent:
        for task in tasks:
            done = await agent.run(task.input)
            right += task.target in done.output
            if teach:
                word = "That was right." if task.target in done.output else f"Wrong: it goes to {task.target}."
                await agent.run(word, message_history=done.all_messages())
    return right / len(tasks)


async def main() -> None:
    print(f"before {await session(TASKS[8:], teach=False):.0%}")
    await session(TASKS[:2], teach=True)
    print(f"after {await session(TASKS[8:], teach=False):.0%}")


if __name__ == "__main__":
    asyncio.run(main())
