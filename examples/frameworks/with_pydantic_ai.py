"""A pydantic-ai agent, trained by ACE: the playbook is added to its instructions.

The output type has an `answer`, and `used` for the entries it rests on.

    python examples/frameworks/with_pydantic_ai.py  # needs OPENAI_API_KEY
    cd examples/frameworks && practicum learn ../tasks.jsonl --agent with_pydantic_ai:agent --model openai:gpt-4.1-mini
"""

import os
import sys
from pathlib import Path

from pydantic import BaseModel
from pydantic_ai import Agent

import practicum
from practicum.agents import frameworks


class Sent(BaseModel):
    """Where a repair goes, and the ids of the entries that say so."""

    answer: str
    used: list[str] = []


bench = Agent(
    os.environ.get("AGENT_MODEL", "openai-chat:gpt-4.1-mini"),
    name="bench",
    instructions="You send repairs to a bench: K2, K5, K7 or K9.",
    output_type=Sent,
    model_settings={"temperature": 0, "max_tokens": 256},
    defer_model_check=True,
)


agent = frameworks.pydantic_ai(bench)


async def main(model: str) -> None:
    tasks = practicum.load_tasks(Path(__file__).parents[1] / "tasks.jsonl")
    parts = practicum.Parts(agent=agent)
    result = await practicum.learn(tasks[:8], test=tasks[8:], method="ace", model=model, parts=parts)
    print(practicum.export(result.context, "agents-md"))
    print(f"score {result.scores['test']:.0%}")


if __name__ == "__main__":
    practicum.run_sync(main(sys.argv[1] if len(sys.argv) > 1 else "openai:gpt-4.1-mini"))
