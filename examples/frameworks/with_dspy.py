"""A DSPy module, trained by ACE: the playbook is added to the instructions of its predictors.

    python examples/frameworks/with_dspy.py [--model openai:gpt-4.1-mini]

It needs `pip install '.[dspy]'`.
"""

import sys
from pathlib import Path

import dspy

import practicum
from practicum.agents import frameworks

sys.path.append(str(Path(__file__).parents[1]))
from model import chosen, endpoint

at = endpoint()
lm = dspy.LM(f"openai/{at.name}", api_base=at.base_url, api_key=at.api_key, temperature=0, max_tokens=128, cache=False)
dspy.configure(lm=lm)
bench = dspy.Predict(dspy.Signature("repair -> bench", "Send the repair to a bench: K2, K5, K7 or K9."))
agent = frameworks.dspy(bench, input="repair", output="bench")


async def main(model: str) -> None:
    tasks = practicum.load_tasks(Path(__file__).parents[1] / "tasks.jsonl")
    parts = practicum.Parts(agent=agent)
    result = await practicum.learn(tasks[:8], test=tasks[8:], method="ace", model=model, parts=parts)
    print(practicum.export(result.context, "agents-md"))
    print(f"score {result.scores['test']:.0%}")


if __name__ == "__main__":
    practicum.run_sync(main(chosen()))
