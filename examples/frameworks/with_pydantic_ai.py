"""A pydantic-ai agent, trained by ACE: the playbook is added to its instructions.

python examples/frameworks/with_pydantic_ai.py [--model openai:gpt-4.1-mini]
"""

import sys
from pathlib import Path

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

import practicum
from practicum.agents import frameworks

sys.path.append(str(Path(__file__).parents[1]))
from model import chosen, endpoint

at = endpoint()
bench = Agent(
    OpenAIChatModel(at.name, provider=OpenAIProvider(base_url=at.base_url, api_key=at.api_key)),
    name="bench",
    instructions="You send repairs to a bench: K2, K5, K7 or K9. Answer with it only.",
    model_settings={"temperature": 0, "max_tokens": 16},
)
agent = frameworks.pydantic_ai(bench)


async def main(model: str) -> None:
    tasks = practicum.load_tasks(Path(__file__).parents[1] / "tasks.jsonl")
    parts = practicum.Parts(agent=agent)
    result = await practicum.learn(tasks[:8], test=tasks[8:], method="ace", model=model, parts=parts)
    print(practicum.export(result.context, "agents-md"))
    print(f"score {result.scores['test']:.0%}")


if __name__ == "__main__":
    practicum.run_sync(main(chosen()))
