"""A pydantic-ai agent whose only memory is practicum over MCP: the agent recalls, remembers and reports by itself.

    python examples/frameworks/with_mcp.py  # needs OPENAI_API_KEY, and pip install 'practicum[serve,mcp]'

Each session is an agent, and a memory process, of its own. What they share is the folder `repairs-memory`.
"""

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from fastmcp.client.transports import StdioTransport
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset

import practicum

TASKS = practicum.load_tasks(Path(__file__).parents[1] / "tasks.jsonl")


async def session(tasks: Sequence[practicum.Task], teach: bool) -> float:
    """The share of tasks that a new agent gets right. `teach`: it is told after each task whether it was right."""
    right = 0
    memory = StdioTransport(sys.executable, ["-m", "practicum.cli.app", "mcp", "--store", "repairs-memory"])
    agent = Agent(
        os.environ.get("AGENT_MODEL", "openai-chat:gpt-4.1-mini"),
        instructions="You send repairs to a bench: K2, K5, K7 or K9. Answer with its name alone.",
        toolsets=[MCPToolset(memory, include_instructions=True)],
        model_settings={"temperature": 0},
        defer_model_check=True,
    )
    async with agent:
        for task in tasks:
            done = await agent.run(task.input)
            right += task.target in done.output
            if teach:
                told = "That was right." if task.target in done.output else f"Wrong: it goes to {task.target}."
                await agent.run(told, message_history=done.all_messages())
    return right / len(tasks)


async def main() -> None:
    print(f"before {await session(TASKS[8:], teach=False):.0%}")
    await session(TASKS[:8], teach=True)
    print(f"after {await session(TASKS[8:], teach=False):.0%}")


if __name__ == "__main__":
    asyncio.run(main())
