"""Agents, tools and scorers that the tests have run on the workers of a cluster, which import them from here."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from practicum.core.types import Score, Task
from practicum.tasks.scoring.rules import normalise


def guess(input: str, context: str) -> dict[str, Any]:
    """Right where the context has an even number of letters; it fails at every fourth word."""
    word = input.split()[-1]
    if int(word.removeprefix("word")) % 4 == 3:
        raise LookupError("no such page")
    return {"answer": word if len(context + word) % 2 else "?", "steps": [{"kind": "tool", "text": f"saw {word}"}]}


async def waiting(input: str, context: str) -> str:
    await asyncio.sleep(0.2)
    return input.split()[-1]


def dying(input: str, context: str) -> str:
    """Ends its process on one task."""
    if input.endswith("word1"):
        os.kill(os.getpid(), signal.SIGKILL)
    return input.split()[-1]


def lenient(task: Task, answer: str) -> Score:
    right = normalise(answer) == normalise(task.target or "")
    return Score(float(right), right, f"scored {answer}")


class Counter:
    """A world of one attempt: a counter, which is kept where the attempt runs. Each count is a line in a file, and the
    second one waits until there is a file `go`."""

    def __init__(self, task: Task, folder: str) -> None:
        self.value, self.log = 0, Path(folder) / f"{task.id}.log"

    @property
    def tools(self) -> list[Callable[..., Any]]:
        return [self.count]

    def count(self, by: int) -> str:
        """Count on."""
        while self.value and not self.log.with_name("go").exists():
            time.sleep(0.01)
        self.value += by
        with self.log.open("a") as file:
            file.write(f"{os.getpid()} {self.value}\n")
        return f"{self.value}"

    def state(self) -> dict[str, int]:
        return {"value": self.value}


class Counters:
    """Makes such worlds."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __call__(self, task: Task) -> Counter:
        return Counter(task, self.folder)
