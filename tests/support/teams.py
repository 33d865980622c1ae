"""A scripted team of agents for MAEL: the answer of each kind of step. Messages with odd numbers have two parts."""

from __future__ import annotations

import json
import re
from typing import Any

from scripts import shape

from practicum.models.scripted import Call


def team(call: Call) -> str:
    """A model for all agents and the judge."""
    answer = _step(call)
    return answer if isinstance(answer, str) else json.dumps(answer)


def _step(call: Call) -> str | dict[str, Any]:
    user = call.prompt.user
    n = int(re.findall(r"Message (\d+)", user)[0])
    match shape(call):
        case "Ability":
            return {"reason": "so", "alone": n % 2 == 0}
        case "Plan":
            halves = [f"first half of Message {n}", f"second half of Message {n}"]
            return {"parts": [{"text": halves[0], "needs": []}, {"text": halves[1], "needs": [1]}]}
        case "Answered":
            return {"solution": f"{'better' if '# What is said of it' in user else 'poor'} of Message {n}"}
        case "Critique":
            # The first half has to be done again; the second is good.
            part = user.partition("# A part of it")[2]
            return {"feedback": "say more", "adequate": "second half" in part or "better" in part}
        case "Quality":
            return {"reason": "", "points": 9 if "better" in user.partition("# Its solution")[2] else 5}
        case _:
            return f"word{n}"
