"""A solver of inspect_ai, trained by ACE: the playbook is its first system message.

It needs `pip install inspect-ai`.

    python examples/frameworks/with_inspect_ai.py  # needs OPENAI_API_KEY
    cd examples/frameworks && practicum learn ../tasks.jsonl --agent with_inspect_ai:agent --model openai:gpt-4.1-mini
"""

import os
import sys
from pathlib import Path

from inspect_ai.solver import chain, generate, prompt_template

import practicum
from practicum.agents import frameworks

solver = chain(
    prompt_template("Send this repair to a bench: K2, K5, K7 or K9. Answer with it only. {prompt}"),
    generate(temperature=0, max_tokens=64, max_retries=3),
)
agent = frameworks.inspect_ai(solver, f"openai/{os.environ.get('AGENT_MODEL', 'gpt-4.1-mini')}")


async def main(model: str) -> None:
    tasks = practicum.load_tasks(Path(__file__).parents[1] / "tasks.jsonl")
    parts = practicum.Parts(agent=agent)
    result = await practicum.learn(tasks[:8], test=tasks[8:], method="ace", model=model, parts=parts)
    print(practicum.export(result.context, "agents-md"))
    print(f"score {result.scores['test']:.0%}")


if __name__ == "__main__":
    practicum.run_sync(main(sys.argv[1] if len(sys.argv) > 1 else "openai:gpt-4.1-mini"))
