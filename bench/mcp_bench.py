"""An agent of pydantic-ai whose only memory is `practicum mcp`: its score before and after corrections.

    python bench/mcp_bench.py --model local:/path/to/model.gguf [--seeds 3]

The tasks are the repairs of examples/tasks.jsonl. The bench that a repair goes to is a convention that is in no prompt.
Each seed makes a new split, with one test repair for each bench. From other tasks (--tasks), each seed draws four right
answers. A session is a new agent with a new `practicum mcp` process. The first session is tested without feedback. The
second does the other repairs. After a wrong answer its prompt names the right bench, and the agent reports that to its
memory. The third session is tested again. A small model does not call tools by itself, so each run offers one tool, and
begins with a form of the tool's arguments, which the model fills.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from fastmcp.client.transports import StdioTransport
from pydantic_ai import Agent
from pydantic_ai.exceptions import AgentRunError
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.settings import ModelSettings

import practicum
from practicum.core.types import Task
from practicum.models.registry import ClientSettings, Models

TASKS = Path(__file__).parents[1] / "examples" / "tasks.jsonl"

ANSWERS = 4
"""Number of right answers of a seed. Each has one test task, and others to learn from."""


FIRST = {
    "recall": "First look this {what} up in your memory: the task is what the customer wrote, word by word.",
    "report": "First tell your memory what would have been right for the {what} before: it named the interaction.",
}
"""Tool → the instruction to fill its form."""

FIELDS = {"recall": ("input",), "report": ("interaction", "target", "comment", "answer")}
"""Tool → the fields that a model fills, all required."""


class ByForm(WrapperModel):
    """Model that calls the offered tool by filling its form, as JSON that fits the schema, and gets the tool's result
    as a message, because the chat template of a small model may not support tools. After the call it answers."""

    def __init__(self, model: OpenAIChatModel, task_noun: str) -> None:
        super().__init__(model)
        self._task_noun = task_noun

    async def request(
        self, messages: list[ModelMessage], settings: ModelSettings | None, parameters: ModelRequestParameters
    ) -> ModelResponse:  # fmt: skip
        plain, (tool,) = [*map(as_text, messages)], parameters.function_tools
        if any(isinstance(part, ToolReturnPart) for part in messages[-1].parts):
            return await super().request(plain, settings, ModelRequestParameters())
        schema = bounded(FIELDS[tool.name])
        request = UserPromptPart(
            f"{FIRST[tool.name].format(what=self._task_noun)} Write JSON with {', '.join(schema['properties'])}."
        )
        form = {"type": "json_schema", "json_schema": {"name": tool.name, "schema": schema}}
        asked: list[ModelMessage] = [*plain[:-1], ModelRequest([*plain[-1].parts, request])]  # type: ignore[list-item]
        how: Any = {**(settings or {}), "extra_body": {"response_format": form}}
        response = await super().request(asked, how, ModelRequestParameters())
        return replace(response, parts=[ToolCallPart(tool.name, response.text)])


def as_text(message: ModelMessage) -> ModelMessage:
    """Return a message without tools: a tool's result becomes a user message, and calls are left out."""
    if isinstance(message, ModelResponse):
        return replace(message, parts=[part for part in message.parts if not isinstance(part, ToolCallPart)])
    parts = [
        UserPromptPart(f"Your memory: {part.model_response_str()}") if isinstance(part, ToolReturnPart) else part
        for part in message.parts
    ]
    return replace(message, parts=parts)


def bounded(names: Sequence[str]) -> dict[str, Any]:
    """Return the schema of a form with these fields. Each has a limit, because a small model does not end a text."""
    fields = {name: {"type": "string", "maxLength": 200} for name in names}
    return {"type": "object", "properties": fields, "required": [*fields], "additionalProperties": False}


@dataclass(frozen=True)
class World:
    """Tasks, with the nouns of a task and of an answer (a repair goes to a bench), and the right answers."""

    tasks: Sequence[Task]
    task_noun: str
    answer_noun: str
    answers: tuple[str, ...]

    def is_right(self, task: Task, answer: str) -> bool:
        return [one for one in self.answers if one in answer] == [task.target]

    @property
    def instructions(self) -> str:
        answers, noun = ", ".join(self.answers), self.answer_noun
        return f"You send {self.task_noun}s to a {noun}: {answers}. Answer with the {noun} alone."


@dataclass
class Session:
    """An agent with its memory, and the number of its failed runs."""

    agent: Agent[None, str]
    offered: list[str]
    failed: int = 0

    async def answer(self, task: Task) -> tuple[str, list[ModelMessage]]:
        self.offered[:] = ["recall"]
        return await self._run(task.input, [])

    async def tell(self, text: str, before: list[ModelMessage]) -> None:
        self.offered[:] = ["report"]
        await self._run(text, before)

    async def _run(self, prompt: str, before: list[ModelMessage]) -> tuple[str, list[ModelMessage]]:
        try:
            result = await self.agent.run(prompt, message_history=before)
        except AgentRunError as error:
            self.failed += 1
            print(f"    failed: {str(error)[:200]}", file=sys.stderr)
            return "", before
        return result.output, result.all_messages()


@asynccontextmanager
async def session(model: OpenAIChatModel, store: Path, world: World) -> AsyncIterator[Session]:
    """Start a session with a new process."""
    command = ["-m", "practicum.cli.app", "mcp", "--store", str(store)]
    with (store.parent / "mcp.log").open("a") as log:
        offered = list[str]()
        server = MCPToolset(StdioTransport(sys.executable, command, log_file=log))
        memory = server.filtered(lambda context, tool: tool.name in offered)
        agent = Agent(
            ByForm(model, world.task_noun), instructions=world.instructions, toolsets=[memory],
            model_settings={"temperature": 0, "max_tokens": 300},
        )  # fmt: skip
        async with agent:
            yield Session(agent, offered)


async def tested(model: OpenAIChatModel, store: Path, world: World, tasks: Sequence[Task]) -> list[bool]:
    async with session(model, store, world) as at:
        return [world.is_right(task, (await at.answer(task))[0]) for task in tasks]


def drawn(options: argparse.Namespace, seed: int) -> World:
    """Return the tasks of a seed: some tasks for each of some right answers."""
    tasks, rng = practicum.load_tasks(options.tasks), Random(seed)
    answers = sorted({task.target or "" for task in tasks})
    answers = sorted(rng.sample(answers, ANSWERS)) if len(answers) > ANSWERS else answers
    own = {answer: [task for task in tasks if task.target == answer] for answer in answers}
    chosen = {task.id for each in own.values() for task in (rng.sample(each, options.each) if options.each else each)}
    return World([task for task in tasks if task.id in chosen], options.what, options.where, tuple(answers))


async def measured(model: OpenAIChatModel, world: World, seed: int, folder: Path) -> dict[str, Any]:
    rng, store = Random(seed), folder / "memory"
    test = [rng.choice([task for task in world.tasks if task.target == answer]) for answer in world.answers]
    teach = [task for task in world.tasks if task not in test]
    rng.shuffle(teach)
    before = await tested(model, store, world, test)
    print(f"  seed {seed}: before {sum(before)} of {len(test)}", file=sys.stderr)
    at_first = []
    async with session(model, store, world) as at:
        for task in teach:
            answer, messages = await at.answer(task)
            at_first.append(world.is_right(task, answer))
            if not at_first[-1]:
                right = f"{world.answer_noun} {task.target}"
                await at.tell(f"That was wrong: this {world.task_noun} goes to {right}.", messages)
    after = await tested(model, store, world, test)
    print(f"  seed {seed}: after {sum(after)} of {len(test)}", file=sys.stderr)
    return {"seed": seed, "before": before, "taught": at_first, "after": after, "failed": at.failed}


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tasks", type=Path, default=TASKS)
    parser.add_argument("--what", default="repair", help="noun of a task")
    parser.add_argument("--where", default="bench", help="noun of a right answer")
    parser.add_argument("--each", type=int, help="tasks of each right answer (default: all)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="practicum-mcp-") as name:
        folder = Path(name)
        models = Models(ClientSettings(log=folder))
        client: Any = models.open(options.model)
        provider = OpenAIProvider(base_url=str(client.model.base_url), api_key=client.key or "none")
        model = OpenAIChatModel(client.model.model_name, provider=provider)
        rows = []
        for seed in range(options.seeds):
            (folder / str(seed)).mkdir()
            rows.append(await measured(model, drawn(options, seed), seed, folder / str(seed)))
        await models.close()
    count = sum(len(row["after"]) for row in rows)
    totals = {name: sum(sum(row[name]) for row in rows) for name in ("before", "after")}
    print(json.dumps({"rows": rows, "of": count, **totals}))


if __name__ == "__main__":
    asyncio.run(main())
