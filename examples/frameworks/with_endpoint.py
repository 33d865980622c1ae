"""An agent behind an OpenAI-compatible endpoint, trained by ACE: the playbook is its system message.

The endpoint may be of any make, with tools and prompts of its own: AGENT names it, and AGENT_KEY is its key, if it
wants one.

    AGENT=http://localhost:9000/v1#my-agent python examples/frameworks/with_endpoint.py  # needs OPENAI_API_KEY
    cd examples/frameworks && practicum learn ../tasks.jsonl --agent with_endpoint:agent --model openai:gpt-4.1-mini
"""

import os
import sys
from pathlib import Path

import practicum
from practicum.agents import frameworks

ADDRESS, KEY = os.environ.get("AGENT", "http://localhost:9000/v1#my-agent"), os.environ.get("AGENT_KEY")
agent = frameworks.endpoint(ADDRESS, KEY, temperature=0, max_tokens=64)


async def main(model: str) -> None:
    tasks = practicum.load_tasks(Path(__file__).parents[1] / "tasks.jsonl")
    parts = practicum.Parts(agent=agent)
    result = await practicum.learn(tasks[:8], test=tasks[8:], method="ace", model=model, parts=parts)
    print(practicum.export(result.context, "agents-md"))
    print(f"score {result.scores['test']:.0%}")


if __name__ == "__main__":
    practicum.run_sync(main(sys.argv[1] if len(sys.argv) > 1 else "openai:gpt-4.1-mini"))
