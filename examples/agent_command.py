"""A program as an agent: one JSON line on standard input, one JSON line on standard output. Any language will do.

    practicum learn examples/tasks.jsonl --method episodes --agent 'command:python examples/agent_command.py'

The program reads {"task": {"id", "input"}, "context", "instructions", "place"}. An attempt that is repeated after a
crash has the same place: use it as an idempotency key if the agent has side effects. The program writes {"answer",
"reasoning"?, "used"?, "steps"?, "error"?}. This one asks no model: it answers as the episode that shares the most words
with the task.
"""

import json
import re
import sys


def words(text: str) -> set[str]:
    """The long words of a text."""
    return {word for word in re.findall(r"[a-z]+", text.lower()) if len(word) > 4}


def main() -> None:
    asked = json.loads(sys.stdin.readline())
    episodes = re.findall(r"^- Task: (.*)\n  Answer: (.*)$", asked["context"], re.MULTILINE)
    task = words(asked["task"]["input"])
    best = max(reversed(episodes), key=lambda episode: len(task & words(episode[0])), default=("", "K2"))
    print(json.dumps({"answer": best[1], "reasoning": f"most like: {best[0]}" if best[0] else "nothing known yet"}))


if __name__ == "__main__":
    main()
