"""A small world for a network, whose agents know only what stands in their prompts.

Each task has two parts and is about one kind of thing, for which there is one right answer. An agent that is shown a
case of its kind does what was done there, right or wrong, but not twice. Else it guesses, right once in eight. A critic
sees whether it is right; told so, one further try in three is right.
"""

from __future__ import annotations

import json
import re
from typing import Any

from scripts import shape
from simulated import ANSWERS, chance

from practicum.models.scripted import Call

GUESSED, MENDED = 1 / 8, 1 / 3


def kind(text: str) -> str:
    found = re.search(r"\bon (\w+)", text)
    assert found
    return found[1]


def plan(call: Call) -> dict[str, Any]:
    about = kind(call.prompt.user)
    return {"parts": [{"text": f"{half} on {about} : {about} {about}", "needs": []} for half in ("first", "second")]}


def solve(call: Call) -> dict[str, Any]:
    state, case = call.prompt.user, call.prompt.turns[-1]
    about, luck = kind(state), chance(state, call)
    before = state.partition("# Your solution so far\n")[2].split()[:1]
    if case.user.startswith("# From your experience") and kind(case.user) == about:
        done = json.loads(case.assistant)["solution"]
        if [done] != before:
            return {"solution": done}
    right = luck.random() < (MENDED if before else GUESSED)
    return {"solution": ANSWERS[about] if right else luck.choice(["this", "that", "other"])}


def critique(call: Call) -> dict[str, Any]:
    state = call.prompt.user.partition("# Now")[0]
    solution = state.partition("# Its solution\n")[2].split()[0]
    return {"feedback": "It is not so.", "adequate": solution == ANSWERS[kind(state)]}


def quality(call: Call) -> dict[str, Any]:
    solution = call.prompt.user.partition("# Its solution\n")[2].split()[0]
    return {"reason": "", "points": 9 if solution == ANSWERS[kind(call.prompt.user)] else 2}


def whole(call: Call) -> str:
    """Right where both parts are."""
    told = re.findall(r"^## Part \d.*\n(\w+)", call.prompt.user, re.MULTILINE)
    return told[0] if len({*told}) == 1 else "undecided"


STEPS = {"Plan": plan, "Answered": solve, "Critique": critique, "Quality": quality}


def respond(call: Call) -> str:
    if not (name := shape(call)):
        return whole(call)
    return json.dumps(STEPS[name](call) if name in STEPS else {"reason": "", "alone": False})
