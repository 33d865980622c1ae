"""ACE through the library: learn a playbook from eight tasks, score it on four others.

    python examples/ace.py                                    # openai:gpt-4.1-mini, needs OPENAI_API_KEY
    python examples/ace.py http://localhost:8000/v1#my-model  # any OpenAI-compatible server

`ace_plain.py` is the same method as one script without practicum.
"""

import sys
from pathlib import Path

import practicum

TASKS = Path(__file__).with_name("tasks.jsonl")
BENCHES = ("K2", "K5", "K7", "K9")


async def main(model: str) -> None:
    tasks = practicum.load_tasks(TASKS)
    result = await practicum.learn(
        tasks[:8],
        test=tasks[8:],
        method="ace",
        settings={"epochs": 2},
        model=model,
        instructions=f"You send repairs to a bench of the workshop. Benches: {', '.join(BENCHES)}.",
        choices=BENCHES,
        before=True,
    )
    print(practicum.export(result.context, "markdown"))
    print(f"before {result.scores['before']:.0%}, after {result.scores['test']:.0%} on {len(tasks[8:])} tasks")
    print(f"{result.usage.calls} calls, {result.usage.tokens} tokens, kept in {result.run}")


if __name__ == "__main__":
    practicum.run_sync(main(sys.argv[1] if len(sys.argv) > 1 else "openai:gpt-4.1-mini"))
