"""Worked examples for authors of instructions that are small models: a number, a tool's use, a piece of writing and a
choice."""

from __future__ import annotations

from practicum.blocks.reflect.examples import CALENDAR, CLOSED, COAT, HINGE, MEETING, NOTICES, SHOP, WORKSHOP
from practicum.core.types import Turn
from practicum.plugins.rivals.search import Instruction

CUPS = "Task: Three cups at 4 each, and 2 off the whole. What is left to pay?"

CUPS_WRONG = f"{CUPS}\nAnswer: 2\nFeedback: The answer is wrong. The right answer is: 10"

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


def written(told: str, parts: str, instruction: str) -> Turn:
    """An example: what the agent is told, what the author reads beside that, and the instruction."""
    return Turn(f"{told}\n\n{parts}", Instruction(instruction=instruction).model_dump_json())


INDUCED = (
    written(
        WORKSHOP,
        """\
# Inputs with their right outputs

Input: a hinge for a garden gate right by the sea
Output: bronze

Input: the blade of a chisel
Output: steel

Input: the beams of a covered porch
Output: oak""",
        MATERIALS,
    ),
    written(CALENDAR, f"# Attempts, with what is known of each\n\n{MEETING}", DATES),
)
"""Instructions guessed from cases."""

OPTIMIZED = (
    written(
        SHOP,
        """\
# Instructions so far, the best last

Score: 20
Calculate carefully.

Score: 60
Subtract the discount from the price.

# Inputs with their right outputs

Input: Three cups at 4 each, and 2 off the whole. What is left to pay?
Output: 10""",
        PRICES,
    ),
    written(
        NOTICES,
        f"""\
# Instructions so far, the best last

(none yet)

# Attempts, with what is known of each

{CLOSED}""",
        SHORT,
    ),
)
"""Instructions that are to score higher than those before."""

VARIED = (
    written(
        SHOP,
        f"# The instruction\n{PRICES}",
        "Begin with the sum of the full prices. From the sum that a discount applies to, take that discount away; for "
        "25% of 80, multiply 80 by 25 and divide by 100. Give the amount that remains to be paid.",
    ),
    written(
        NOTICES,
        f"# The instruction\n{SHORT}",
        "Name the event and its time, and leave out greetings and reasons. Use no more than 12 words, and count them.",
    ),
)
"""The same in other words."""

CROSSED = (
    written(
        CALENDAR,
        """\
# First parent
Write the start of an event as 2026-05-09T14:30.

# Second parent
Use the tools you have, and tell the user in one sentence what you did.""",
        "Write the start of an event as 2026-05-09T14:30. If a tool returns an error, correct the call. Then tell the "
        "user in one sentence what was done.",
    ),
    written(
        WORKSHOP,
        """\
# First parent
Take bronze for everything outdoors.

# Second parent
Think of what the part has to carry, and name a hard material for heavy loads.""",
        "Ask first whether the part gets wet: near salt water take bronze. Otherwise take steel if it has to be hard "
        "or to carry much, and oak if not.",
    ),
)
"""Offspring of two parents."""

STARTED = (
    written(
        WORKSHOP,
        """\
# How to think
What sets the cases apart?

# The advice
Name what decides first.

# Inputs with their right outputs

Input: a hinge for a garden gate right by the sea
Output: bronze

Input: the blade of a chisel
Output: steel""",
        MATERIALS,
    ),
    written(
        CALENDAR,
        f"# How to think\nWhat goes wrong here?\n\n# Attempts, with what is known of each\n\n{MEETING}",
        DATES,
    ),
)
"""Instructions written after a way to think."""

FOLLOWED = (
    written(
        SHOP,
        "# The advice\nSay in which order the work is done.\n\n# The instruction\nMind the discounts.",
        PRICES,
    ),
    written(
        NOTICES,
        "# The advice\nSay how a result is checked.\n\n# The instruction\nSay what happens and when, without a "
        "greeting or a reason.",
        SHORT,
    ),
)
"""Instructions changed as a piece of advice says."""

CONTINUED = (
    written(
        WORKSHOP,
        """\
# Instructions, the best last

1. Name a strong material.

2. Name a material that fits the place of the part.""",
        MATERIALS,
    ),
    written(
        SHOP,
        """\
# Instructions, in no order

1. Calculate carefully.

2. Subtract the discount from the price.""",
        PRICES,
    ),
)
"""Lists of instructions that go on."""

ADVISED = (
    written(
        SHOP,
        "# The advice\nMake it better.",
        "Find the step at which a calculation goes wrong most easily, and say how it is done right.",
    ),
    written(
        NOTICES,
        f"# How to think\nWhat was wanted, and what came?\n\n# Attempts, with what is known of each\n\n{CLOSED}",
        "Add the limits that a text has to keep, and say how one sees that it keeps them.",
    ),
)
"""Advice on how instructions are changed."""

EDITED = (
    written(
        SHOP,
        f"""\
# The instruction
Answer with the discount.

# What failed under it
{CUPS_WRONG}

# What is wrong with it
It asks for the discount, but what is left to pay is wanted. It does not say that the prices are to be added first.""",
        PRICES,
    ),
    written(
        CALENDAR,
        f"""\
# The instruction
Add each event that the user names, and confirm it.

# What failed under it
{MEETING}

# What is wrong with it
It does not say in which form the start is wanted, nor what to do after an error, and it asks for a confirmation in \
any case.""",
        f"Add each event that the user names. {DATES}",
    ),
)
"""Instructions corrected by criticism."""

REVISED = (
    written(
        NOTICES,
        """\
# Instructions so far, the best last

Score: 30
Say what happens and why.

# Said before
- The instructions should ask for the day.

# Said now
- The notice is polite and too long. If a number of words is given, the instructions should say that it is to be kept.
- The reason took half of the words. The instructions should not ask for reasons.""",
        f"{SHORT} Name the day.",
    ),
    written(
        WORKSHOP,
        """\
# Instructions so far, the best last

(none yet)

# Said before
(nothing)

# Said now
- Steel rusts by the sea. The instructions should say that salt water asks for bronze.""",
        "Near salt water choose bronze, since steel rusts there.",
    ),
)
"""Instructions rewritten against the criticism of attempts."""

REFLECTED = (
    written(SHOP, f"# The instruction now\n(none yet)\n\n# Attempts\n\n{COAT_RIGHT}\n\n{CUPS_WRONG}", PRICES),
    written(
        WORKSHOP,
        f"# The instruction now\nTake steel where a part must be hard.\n\n# Attempts\n\n{HINGE}",
        "Take steel where a part must be hard and stays dry. Near the sea take bronze, since steel rusts there.",
    ),
)
"""Instructions rewritten from attempts."""

JOINED = (
    written(
        CALENDAR,
        """\
# Instruction 1
Write the start of an event as 2026-05-09T14:30.

# Instruction 2
After an error, correct the arguments and call again. Write dates as 2026-05-09T14:30.""",
        "Write the start of an event as 2026-05-09T14:30. After an error, correct the arguments and call again.",
    ),
)
"""One instruction from two."""
