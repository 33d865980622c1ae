"""ERM: remembered criticism that helps no more is forgotten."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from scripts import Learned, learned, obeying, scripted

from practicum.models.scripted import Call

SMALL: dict[str, Any] = {"batch": 4, "beam": 2, "feedback": 1, "recalled": 1, "k": 2}


def numbers(call: Call) -> list[int]:
    """The messages of the failed cases, in order."""
    return [int(n) for n in re.findall(r"Case \d+\nTask: Message (\d+)", call.prompt.user)]


def worked(call: Call) -> dict[str, Any]:
    """All failures worked out, the first one wrongly, and one criticism."""
    cases = [
        {"case": n, "solution": f"message {m} names it", "answer": f"word{m}" if n > 1 else "wrong"}
        for n, m in enumerate(numbers(call), 1)
    ]
    unknown = {"case": 99, "solution": "none", "answer": "word1"}
    return {"exemplars": [*cases, unknown], "feedback": [f"it says nothing of {' or '.join(map(str, numbers(call)))}"]}


def writing(*texts: str) -> Any:
    left = list(texts)
    return lambda call: {"instruction": left.pop(0) if len(left) > 1 else left[0]}


def erm(folder: Path, *texts: str, agent: Any = obeying, tasks: int = 4, **settings: Any) -> Learned:
    model = scripted(agent, worked, writing(*texts))
    return learned(folder, model, tasks, {**SMALL, "steps": 1, **settings}, "erm")


def section(run: Learned, name: str, step: int = -1) -> list[Any]:
    return run.reports[step].context.in_section(name)


# ---- the memory of criticism


def test_remembered_criticism_that_helps_no_more_is_forgotten(tmp_path: Path) -> None:
    run = erm(tmp_path, "solve 2", *(f"way {n}: solve 0" for n in range(20)), beam=1, steps=5)
    (kept,) = section(run, ".feedback", 0)
    history = [report.context.get(kept.id) for report in run.reports]
    assert [None if e is None else e.harmful for e in history] == [0, 1, 2, None, None]
