"""ACE through the library: learn a playbook from eight tasks, score it on four others.

    python examples/ace.py [--model openai:gpt-4.1-mini]

`ace_plain.py` is the same method as one script without practicum.
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
        method="ace",
        model=model,
        instructions=f"You send repairs to a bench of the workshop. Benches: {', '.join(BENCHES)}.",
        choices=BENCHES,
        before=True,
    )
    print(practicum.export(result.context, "markdown"))
    print(f"before {result.scores['before']:.0%}, after {result.scores['test']:.0%} on {len(tasks[8:])} tasks")
    print(f"{result.usage.calls} calls, {result.usage.tokens} tokens, stored in {result.run}")


if __name__ == "__main__":
    practicum.run_sync(main(chosen()))
