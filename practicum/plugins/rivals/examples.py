"""Parts of worked examples for small models, shared by several methods: a calculation, a tool call, a text, a
choice."""

from __future__ import annotations

from practicum.core.bounded import Output
from practicum.core.types import Turn
from practicum.methods.worked_examples import COAT
from practicum.plugins.rivals.search import Instruction

CUPS = "Three cups at 4 each, and 2 off the whole. What is left to pay?"

CUPS_WRONG = f"Task: {CUPS}\nAnswer: 2\nFeedback: The answer is wrong. The right answer is: 10"

COAT_RIGHT = f"{COAT}\nReasoning: 25% of 80 is 20, and 80 - 20 = 60.\nAnswer: 60\nFeedback: The answer is right."

PRICES = (
    "Add up the full prices first. Then subtract each discount from the sum that it applies to; 25% of 80 is "
    "80 x 25 / 100. Answer with what is left to pay."
)
DATES = (
    "Write the start of an event as year-month-day, T, hours:minutes, such as 2026-05-09T14:30. If a call returns an "
    "error, correct its arguments and call again. Say that something is done only after a call that succeeded."
)
SHORT = "Say what happens and when, without a greeting or a reason. Count the words: at most 12."
MATERIALS = (
    "Choose by what the part has to stand: bronze near salt water, steel where it must be hard, oak for large parts "
    "that stay dry."
)
MATERIAL_CASES = """\
# Inputs with their right outputs

Input: a hinge for a garden gate right by the sea
Output: bronze

Input: the blade of a chisel
Output: steel"""


def example(answer: str | Output, *parts: str) -> Turn:
    """Return a worked example: the parts of a prompt, and the answer. If `answer` is a text, it is formatted as the
    answer to a request for an instruction."""
    form = Instruction(instruction=answer) if isinstance(answer, str) else answer
    return Turn("\n\n".join(parts), form.model_dump_json())
