"""An agent of pydantic-ai whose only memory is `practicum mcp`: what it gets right in later sessions.

    python bench/mcp_bench.py --model local:/path/to/model.gguf [--seeds 3]

The tasks are the repairs of examples/tasks.jsonl: which bench a repair goes to is a convention that no prompt tells.
Each seed splits them anew, with one repair of each bench to be tested on. A session is an agent and a `practicum mcp`
process of its own. The first one is tested and told nothing. The second one does the other repairs, and is told after
each whether it was right, and if not, where the repair goes; it reports that to its memory itself. The third one is
tested again. A small model does not call tools by itself, so each run offers one tool, and its first step has to call
it; what it gives to the tool is its own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from fastmcp.client.transports import StdioTransport
from pydantic_ai import Agent
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import AgentRunError
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

import practicum
from practicum.core.types import Task
from practicum.models.registry import ClientSettings, Models

TASKS = Path(__file__).parents[1] / "examples" / "tasks.jsonl"

BENCHES = ("K2", "K5", "K7", "K9")

INSTRUCTIONS = f"You send repairs to a bench: {', '.join(BENCHES)}. Answer with the bench alone."


@dataclass
class Guided(AbstractCapability[Any]):
    """Has the first step of a run call a tool; the next step answers."""

    tool: str = "recall"

    def get_model_settings(self) -> Callable[[Any], Any]:
        return lambda context: {"tool_choice": "required" if context.run_step == 1 else "none"}


@dataclass
class Session:
    """An agent with its memory, and what it did."""

    agent: Agent[None, str]
    guided: Guided
    failed: int = 0

    async def answer(self, task: Task) -> tuple[str, list[ModelMessage]]:
        self.guided.tool = "recall"
        return await self._run(task.input, [])

    async def tell(self, said: str, before: list[ModelMessage]) -> None:
        self.guided.tool = "correct"
        await self._run(said, before)

    async def _run(self, prompt: str, before: list[ModelMessage]) -> tuple[str, list[ModelMessage]]:
        try:
            result = await self.agent.run(prompt, message_history=before)
        except AgentRunError as error:
            self.failed += 1
            print(f"    failed: {str(error)[:200]}", file=sys.stderr)
            return "", before
        return result.output, result.all_messages()


@asynccontextmanager
async def session(model: OpenAIChatModel, store: Path) -> AsyncIterator[Session]:
    """A session in a process of its own."""
    command = ["-m", "practicum.cli.app", "mcp", "--store", str(store)]
    with (store.parent / "mcp.log").open("a") as log:
        server, guided = MCPToolset(StdioTransport(sys.executable, command, log_file=log)), Guided()
        memory = server.filtered(lambda context, tool: tool.name == guided.tool)
        agent = Agent(
            model, instructions=INSTRUCTIONS, toolsets=[memory], capabilities=[guided],
            model_settings={"temperature": 0, "max_tokens": 200},
        )  # fmt: skip
        async with agent:
            yield Session(agent, guided)


async def tested(model: OpenAIChatModel, store: Path, tasks: Sequence[Task]) -> list[bool]:
    async with session(model, store) as at:
        return [is_right(task, (await at.answer(task))[0]) for task in tasks]


def is_right(task: Task, answer: str) -> bool:
    return [bench for bench in BENCHES if bench in answer] == [task.target]


async def measured(model: OpenAIChatModel, tasks: Sequence[Task], seed: int, folder: Path) -> dict[str, Any]:
    rng, store = Random(seed), folder / "memory"
    test = [rng.choice([task for task in tasks if task.target == bench]) for bench in BENCHES]
    teach = [task for task in tasks if task not in test]
    rng.shuffle(teach)
    before = await tested(model, store, test)
    print(f"  seed {seed}: before {sum(before)} of {len(test)}", file=sys.stderr)
    at_first = []
    async with session(model, store) as at:
        for task in teach:
            answer, messages = await at.answer(task)
            at_first.append(is_right(task, answer))
            if not at_first[-1]:
                await at.tell(f"That was wrong: this repair goes to bench {task.target}.", messages)
    after = await tested(model, store, test)
    print(f"  seed {seed}: after {sum(after)} of {len(test)}", file=sys.stderr)
    return {"seed": seed, "before": before, "taught": at_first, "after": after, "failed": at.failed}


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    tasks = practicum.load_tasks(TASKS)
    with tempfile.TemporaryDirectory(prefix="practicum-mcp-") as name:
        folder = Path(name)
        models = Models(ClientSettings(log=folder))
        client: Any = models.open(given.model)
        provider = OpenAIProvider(base_url=str(client.model.base_url), api_key=client.key or "none")
        model = OpenAIChatModel(client.model.model_name, provider=provider)
        rows = []
        for seed in range(given.seeds):
            (folder / str(seed)).mkdir()
            rows.append(await measured(model, tasks, seed, folder / str(seed)))
        await models.close()
    count = sum(len(row["after"]) for row in rows)
    totals = {name: sum(sum(row[name]) for row in rows) for name in ("before", "after")}
    print(json.dumps({"rows": rows, "of": count, **totals}))


if __name__ == "__main__":
    asyncio.run(main())
