"""Message n has the right answer `word<n>`."""

from __future__ import annotations

import re
from typing import Any

from practicum import Task


def message(n: int, **meta: Any) -> Task:
    """Message n."""
    return Task(f"t{n}", f"Message {n}: which word?", f"word{n}", meta)


def messages(*numbers: int) -> list[Task]:
    return [message(n) for n in numbers]


def again(*numbers: int) -> list[Task]:
    """The same messages in other words: tasks that are not those learned from."""
    return [Task(f"again{n}", f"Message {n}, once more: which word?", word(n)) for n in numbers]


def number(call: Any) -> int:
    """The message that a call is about: the last message in its text."""
    return int(re.findall(r"[Mm]essage (\d+)", call.prompt.user)[-1])


def word(n: int) -> str:
    return f"word{n}"


def lesson(n: int) -> str:
    """The lesson of message n."""
    return f"If it is message {n}, answer word{n}."
