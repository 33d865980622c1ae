"""A DSPy module, trained by ACE: the playbook is added to the instructions of its predictors.

It needs `pip install '.[dspy]'`.

    python examples/frameworks/with_dspy.py  # needs OPENAI_API_KEY
    cd examples/frameworks && practicum learn ../tasks.jsonl --agent with_dspy:agent --model openai:gpt-4.1-mini
"""

import os
import sys
from pathlib import Path

import dspy

import practicum
from practicum.agents import frameworks

model = f"openai/{os.environ.get('AGENT_MODEL', 'gpt-4.1-mini')}"
dspy.configure(lm=dspy.LM(model, temperature=0, max_tokens=256, cache=False))
bench = dspy.ChainOfThought(dspy.Signature("repair -> bench", "Send the repair to a bench: K2, K5, K7 or K9."))
agent = frameworks.dspy(bench, input="repair", output="bench")


async def main(model: str) -> None:
    tasks = practicum.load_tasks(Path(__file__).parents[1] / "tasks.jsonl")
    parts = practicum.Parts(agent=agent)
    result = await practicum.learn(tasks[:8], test=tasks[8:], method="ace", model=model, parts=parts)
    print(practicum.export(result.context, "agents-md"))
    print(f"score {result.scores['test']:.0%}")


if __name__ == "__main__":
    practicum.run_sync(main(sys.argv[1] if len(sys.argv) > 1 else "openai:gpt-4.1-mini"))
