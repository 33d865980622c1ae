"""ReasoningBank through the library: memories from successes and failures, three attempts at each task.

    python examples/reasoning_bank.py [--model openai:gpt-4.1-mini]

It learns from four tasks without their answers, by the verdicts of a judge, and is scored on four others.
"""

from pathlib import Path

from model import chosen

import practicum

TASKS = Path(__file__).with_name("tasks.jsonl")
BENCHES = ("K2", "K5", "K7", "K9")


async def main(model: str) -> None:
    tasks = practicum.load_tasks(TASKS)
    result = await practicum.learn(
        tasks[:4],
        test=tasks[8:],
        method="reasoning_bank",
        settings={"scaling": "parallel", "k": 3, "memories": 3},
        labels=False,
        model=model,
        instructions=f"You send repairs to a bench of the workshop. Benches: {', '.join(BENCHES)}.",
        choices=BENCHES,
        before=True,
    )
    for entry in result.context:
        print(f"{entry.id}: {entry.text}")
    print(f"before {result.scores['before']:.0%}, after {result.scores['test']:.0%} on {len(tasks[8:])} tasks")

    # A memory of a failure says what to avoid.
    failures = [entry for entry in result.context if entry.data["outcome"] == "failure"]
    print(f"{len(result.context)} memories, {len(failures)} of them from failures, stored in {result.run}")


if __name__ == "__main__":
    practicum.run_sync(main(chosen()))
