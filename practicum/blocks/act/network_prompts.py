"""What the agents of a network are told and asked, with worked examples for what is no answer to the whole task."""

from __future__ import annotations

import json
from typing import Any

from practicum.agents.network import Kind
from practicum.core.types import Turn

TEAM = """\
You work in a team that solves tasks by dividing them, solving the parts, criticising each other's solutions and \
putting them together. Do what is asked of you now, and no more."""

ASKED: dict[Kind, str] = {
    "judge": "Say whether you can solve the task well by yourself, in one go. If it has parts of different kinds, or "
    "is too long for one answer, say no: then it will be divided.",
    "decompose": "Divide the task into parts for your colleagues: as few as make each part simple, each complete in "
    "itself. Say which parts need the results of others. Do not solve anything.",
    "solve": "Solve it.",
    "critique": "Say whether the solution of this part is adequate. If not, say what is wrong and how to mend it.",
    "aggregate": "Put what came back together into one answer to the whole task. Mend what does not fit.",
}
"""What each kind of step is asked for, after the state it acts on."""

SHOP = "A shop sells 12 lamps at 30 each and 8 chairs at 45 each, and keeps 10% of it. How much does it keep?"
LAMPS, CHAIRS = (
    "A shop sells 12 lamps at 30 each. What does it take?",
    "A shop sells 8 chairs at 45 each. What does it take?",
)
KEPT = "A shop keeps 10% of the two amounts below together. How much does it keep?"
KNOWN = f"# Results it needs\n- {LAMPS}: 12 x 30 = 360\n- {CHAIRS}: 8 x 45 = 360"
LETTER = "Write a short letter that thanks Mia for the book and asks when she comes to visit."
THANKS, ASKS, WHOLE = (
    "Write one sentence that thanks Mia for the book.",
    "Write one sentence that asks Mia when she comes to visit.",
    "Put the two sentences below together into a short letter to Mia.",
)
ORDERS = (
    "Write a program that reads orders from a file, works out what each customer has to pay, discounts included, and "
    "prints a report sorted by that."
)


def _turn(kind: Kind, state: str, answer: dict[str, Any], before: str = "") -> Turn:
    said = json.dumps(answer, separators=(",", ":"))
    return Turn(f"{before}# Task\n{state}\n\n# Now\n{ASKED[kind]}", said)


WORKED: dict[Kind, tuple[Turn, ...]] = {
    "judge": (
        _turn("judge", ORDERS, {"reason": "reading, reckoning and reporting are parts of their own", "alone": False}),
        _turn("judge", LAMPS, {"reason": "one step of arithmetic", "alone": True}),
    ),
    "decompose": (
        _turn(
            "decompose",
            SHOP,
            {"parts": [{"text": LAMPS, "needs": []}, {"text": CHAIRS, "needs": []}, {"text": KEPT, "needs": [1, 2]}]},
            before="# Colleagues\n- Ada\n- Ben\n\n",
        ),
        _turn(
            "decompose",
            LETTER,
            {"parts": [{"text": THANKS, "needs": []}, {"text": ASKS, "needs": []}, {"text": WHOLE, "needs": [1, 2]}]},
            before="# Colleagues\n- Ben\n- Eve\n\n",
        ),
    ),
    "solve": (
        _turn("solve", LAMPS, {"solution": "12 x 30 = 360"}),
        _turn("solve", f"{KEPT}\n\n{KNOWN}", {"solution": "360 + 360 = 720, and 10% of 720 is 72"}),
    ),
    "critique": (
        _turn(
            "critique",
            f"{SHOP}\n\n# A part of it\n{LAMPS}\n\n# Its solution\n12 + 30 = 42",
            {"feedback": "The number and the price must be multiplied, not added: 12 x 30.", "adequate": False},
        ),
        _turn(
            "critique",
            f"{SHOP}\n\n# A part of it\n{LAMPS}\n\n# Its solution\n12 x 30 = 360",
            {"feedback": "", "adequate": True},
        ),
    ),
    "aggregate": (
        _turn(
            "aggregate",
            f"{SHOP}\n\n# What came back\n## Part 1: {LAMPS}\n12 x 30 = 360\n\n## Part 2: {CHAIRS}\n8 x 45 = 360\n\n"
            f"## Part 3: {KEPT}\n360 + 360 = 720, and 10% of 720 is 72",
            {"solution": "72"},
        ),
    ),
}
"""By kind. Without them a small model leaves out of the parts what they need to be solved, and takes what it is asked
for a part. With a single one for dividing, it copies that where the task looks like nothing it knows."""
