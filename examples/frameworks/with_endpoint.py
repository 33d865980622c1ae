"""An agent behind an OpenAI-compatible endpoint, trained by ACE: the playbook is its system message.

    python examples/frameworks/with_endpoint.py [--model openai:gpt-4.1-mini]

The endpoint may have its own tools and prompts. Here it is the model itself.
"""

import sys
from pathlib import Path

import practicum
from practicum.agents import frameworks

sys.path.append(str(Path(__file__).parents[1]))
from model import chosen, endpoint

at = endpoint()
agent = frameworks.endpoint(f"{at.base_url}#{at.name}", at.api_key, temperature=0, max_tokens=16)


async def main(model: str) -> None:
    tasks = practicum.load_tasks(Path(__file__).parents[1] / "tasks.jsonl")
    parts = practicum.Parts(agent=agent)
    result = await practicum.learn(tasks[:8], test=tasks[8:], method="ace", model=model, parts=parts)
    print(practicum.export(result.context, "agents-md"))
    print(f"score {result.scores['test']:.0%}")


if __name__ == "__main__":
    practicum.run_sync(main(chosen()))
