"""An agent of pydantic-ai whose only memory is `practicum mcp`: its score before and after corrections.

    python bench/mcp_bench.py TRAIN.jsonl TEST.jsonl --model local:/path/to/model.gguf --instructions TEXT …

A session is a new agent with a new `practicum mcp` process. The first session is tested without feedback. The second
does the training tasks: after a wrong answer its prompt names the right answer, and the agent reports it to its memory.
The third session is tested again. For each test task the bench also measures what the agent looked up (`asked`: the
text of the task), whether the memory showed a correction with the right answer (`shown`), whether that was the nearest
correction (`nearest`), and whether the agent gave the answer of the nearest correction (`follows`). With --other, the
memory learns other tasks, which are not similar to the test tasks: the score should stay.

A small model does not call tools by itself, so each run offers one tool, and begins with a form of the tool's
arguments, which the model fills.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
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
from practicum.tasks.scoring.rules import normalise

MOST_CHOICES = 20
"""With more right answers than this number, an answer is right if it contains the right answer."""

LONGEST = 400
"""Maximum number of characters of a field that a model fills."""

FIRST = {
    "recall": "First look this {what} up in your memory: the task is what the customer wrote, word by word.",
    "report": "First tell your memory what would have been right for the {what} before: it named the interaction.",
}
"""Tool → the instruction to fill its form."""

FIELDS: Mapping[str, Sequence[str]] = {"recall": ("input",), "report": ("interaction", "target", "comment", "answer")}
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
        schema = bounded(tool.parameters_json_schema["properties"], FIELDS[tool.name])
        fields = "\n".join(f"{name}: {field['description']}" for name, field in schema["properties"].items())
        request = UserPromptPart(f"{FIRST[tool.name].format(what=self._task_noun)} Write JSON with:\n{fields}")
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


def bounded(properties: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return the schema of a form with these fields of a tool, and their descriptions. Each has a limit, because a
    small model does not end a text."""
    fields = {
        name: {"type": "string", "maxLength": LONGEST, "description": properties[name]["description"]} for name in names
    }
    return {"type": "object", "properties": fields, "required": [*fields], "additionalProperties": False}


@dataclass(frozen=True)
class World:
    """Instructions, the noun of a task, and the right answers if they are few."""

    instructions: str
    task_noun: str
    answers: tuple[str, ...]

    def is_right(self, task: Task, answer: str) -> bool:
        if self.answers:
            return [one for one in self.answers if one in answer] == [task.target]
        return normalise(task.target or "") in normalise(answer)


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


RIGHT = re.compile(r"Right answer: *(?:\n *)?(.+)")
"""Right answer of a correction, in the text of `recall`."""


async def tested(model: OpenAIChatModel, store: Path, world: World, tasks: Sequence[Task]) -> list[dict[str, Any]]:
    """Return a row for each task: whether the answer is right, and measures of the text that the memory showed."""
    rows = []
    async with session(model, store, world) as at:
        for task in tasks:
            answer, messages = await at.answer(task)
            query, text = recalled(messages)
            shown = [normalise(one) for one in RIGHT.findall(text)]
            row: dict[str, Any] = {
                "right": world.is_right(task, answer),
                "asked": normalise(query) == normalise(task.input),
            }
            row |= {"shown": normalise(task.target or "") in shown, "corrections": len(shown), "answer": answer[:200]}
            row |= {"nearest": shown[:1] == [normalise(task.target or "")]}
            rows.append({**row, "follows": bool(shown) and shown[0] in normalise(answer)})
    return rows


def recalled(messages: Sequence[ModelMessage]) -> tuple[str, str]:
    """Return the query of the first call of `recall`, and the text that it returned."""
    parts = [part for message in messages for part in message.parts]
    query = next((p.args_as_dict().get("input", "") for p in parts if isinstance(p, ToolCallPart)), "")
    return query, next((p.model_response_str() for p in parts if isinstance(p, ToolReturnPart)), "")


async def measured(
    model: OpenAIChatModel, world: World, teach: Sequence[Task], test: Sequence[Task], folder: Path
) -> dict[str, Any]:
    store = folder / "memory"
    before = await tested(model, store, world, test)
    print(f"  before: {right(before)} of {len(test)}", file=sys.stderr)
    at_first = []
    async with session(model, store, world) as at:
        for task in teach:
            answer, messages = await at.answer(task)
            at_first.append(world.is_right(task, answer))
            if not at_first[-1]:
                await at.tell(f"That was wrong. The right answer to this {world.task_noun} is: {task.target}", messages)
    after = await tested(model, store, world, test)
    print(f"  after: {right(after)} of {len(test)}", file=sys.stderr)
    return {"before": before, "taught": sum(at_first), "of": len(teach), "after": after, "failed": at.failed}


def right(rows: Sequence[dict[str, Any]]) -> int:
    return sum(row["right"] for row in rows)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train", type=Path)
    parser.add_argument("test", type=Path)
    parser.add_argument("--model", required=True)
    parser.add_argument("--instructions", required=True)
    parser.add_argument("--what", default="task", help="noun of a task")
    parser.add_argument("--other", type=Path, help="tasks to learn in place of TRAIN")
    parser.add_argument("--teach", type=int, default=60)
    parser.add_argument("--tested", type=int, default=24)
    options = parser.parse_args()
    train, test = practicum.load_tasks(options.train), practicum.load_tasks(options.test)
    targets = sorted({task.target or "" for task in train})
    world = World(options.instructions, options.what, tuple(targets) if len(targets) <= MOST_CHOICES else ())
    teach = practicum.load_tasks(options.other) if options.other else train
    with tempfile.TemporaryDirectory(prefix="practicum-mcp-") as name:
        models = Models(ClientSettings(log=Path(name)))
        client: Any = models.open(options.model)
        provider = OpenAIProvider(base_url=str(client.model.base_url), api_key=client.key or "none")
        model = OpenAIChatModel(client.model.model_name, provider=provider)
        result = await measured(model, world, teach[: options.teach], test[: options.tested], Path(name))
        await models.close()
    shares = {
        name: sum(row[name] for row in result["after"]) for name in ("asked", "shown", "nearest", "follows")
    }  # fmt: skip
    totals = {"before": right(result["before"]), "after": right(result["after"]), **shares}
    print(json.dumps({"tests": len(result["after"]), **totals, "rows": result}))


if __name__ == "__main__":
    asyncio.run(main())
