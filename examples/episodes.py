"""Episodes: keep solved tasks and show the most similar ones as earlier turns. Works with very small models.

python examples/episodes.py [--model NAME]
"""

from pathlib import Path

from model import chosen

import practicum

TASKS = Path(__file__).with_name("tasks.jsonl")
BENCHES = ("K2", "K5", "K7", "K9")


async def main(model: str) -> None:
    tasks = practicum.load_tasks(TASKS)
    result = await practicum.learn(
        tasks[:8],
        test=tasks[8:],
        method="episodes",
        settings={"k": 2, "batch": 4},
        model=model,
        instructions=f"You send repairs to a bench of the workshop. Benches: {', '.join(BENCHES)}.",
        choices=BENCHES,
        before=True,
        max_output_tokens=32,
        window=1024,
    )
    for entry in result.context:
        print(f"{entry.id}: {entry.text} -> {entry.data['answer']}")
    print(f"before {result.scores['before']:.0%}, after {result.scores['test']:.0%} on {len(tasks[8:])} tasks")

    # A context is a value: it can be stored, loaded, and scored again without the run.
    again = practicum.load_context(result.run)
    print(f"{len(again)} episodes in {result.run}")


if __name__ == "__main__":
    practicum.run_sync(main(chosen()))
