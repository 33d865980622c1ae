"""A solver of inspect_ai, trained by ACE: the playbook is its first system message.

    python examples/frameworks/with_inspect_ai.py [--model openai:gpt-4.1-mini]

It needs `pip install inspect-ai`.
"""

import sys
from pathlib import Path

from inspect_ai.model import get_model
from inspect_ai.solver import chain, generate, prompt_template

import practicum
from practicum.agents import frameworks

sys.path.append(str(Path(__file__).parents[1]))
from model import chosen, endpoint

at = endpoint()
solver = chain(
    prompt_template("Send this repair to a bench: K2, K5, K7 or K9. Answer with it only. {prompt}"),
    generate(temperature=0, max_tokens=16, max_retries=3),
)
agent = frameworks.inspect_ai(solver, get_model(f"openai/{at.name}", base_url=at.base_url, api_key=at.api_key))


async def main(model: str) -> None:
    tasks = practicum.load_tasks(Path(__file__).parents[1] / "tasks.jsonl")
    parts = practicum.Parts(agent=agent)
    result = await practicum.learn(tasks[:8], test=tasks[8:], method="ace", model=model, parts=parts)
    print(practicum.export(result.context, "agents-md"))
    print(f"score {result.scores['test']:.0%}")


if __name__ == "__main__":
    practicum.run_sync(main(chosen()))
