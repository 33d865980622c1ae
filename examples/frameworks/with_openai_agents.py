"""An agent of the OpenAI Agents SDK, trained by ACE: the playbook is added to its instructions.

    python examples/frameworks/with_openai_agents.py [--model openai:gpt-4.1-mini]

It needs `pip install openai-agents`.
"""

import sys
from pathlib import Path

from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, set_tracing_disabled
from openai import AsyncOpenAI

import practicum
from practicum.agents import frameworks

sys.path.append(str(Path(__file__).parents[1]))
from model import chosen, endpoint

at = endpoint()
set_tracing_disabled(True)
bench = Agent(
    name="bench",
    instructions="You send repairs to a bench: K2, K5, K7 or K9. Answer with it only.",
    model=OpenAIChatCompletionsModel(at.name, AsyncOpenAI(base_url=at.base_url, api_key=at.api_key)),
    model_settings=ModelSettings(temperature=0, max_tokens=16),
)
agent = frameworks.openai_agents(bench)


async def main(model: str) -> None:
    tasks = practicum.load_tasks(Path(__file__).parents[1] / "tasks.jsonl")
    parts = practicum.Parts(agent=agent)
    result = await practicum.learn(tasks[:8], test=tasks[8:], method="ace", model=model, parts=parts)
    print(practicum.export(result.context, "agents-md"))
    print(f"score {result.scores['test']:.0%}")


if __name__ == "__main__":
    practicum.run_sync(main(chosen()))
