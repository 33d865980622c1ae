"""Worked examples for the prompts of small models: cases, and the answer of a role to each case, as data. The cases are
a choice, a number, a tool call and a piece of writing, about subjects that occur in no data set of practicum.

A small model learns the form of an answer better from these examples than from any description.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from practicum.core.types import Turn


def written(answer: Mapping[str, Any]) -> str:
    """Format an answer as a model writes it."""
    return json.dumps(answer, ensure_ascii=False, separators=(",", ":"))


# ---- cases

SHOP = """\
# What the agent is told
Answer with a number."""

COAT = "Task: A coat of 80 is sold with 25% off. What is left to pay?"

WORKSHOP = """\
# What the agent is told
Name the material for a part. Materials: oak, steel, bronze."""

HINGE = """\
Task: a hinge for a garden gate right by the sea
Answer: steel
Feedback: The answer is wrong. The right answer is: bronze"""

CALENDAR = """\
# What the agent is told
Keep the calendar with the tools you have."""

MEETING = """\
Task: Put the dentist into my calendar, on 9 May at half past two.
Action: add_event {"title": "dentist", "start": "9 May 14:30"}
Observation: error: start must look like 2026-05-09T14:30
Answer: The dentist is in your calendar.
Feedback: The answer is wrong. There is no such event in the calendar."""

NOTICES = """\
# What the agent is told
Write notices for a swimming pool. A notice has at most 12 words."""

CLOSED = """\
Task: Tell visitors that the pool is closed on Sunday for cleaning.
Answer: Dear visitors, please note that our swimming pool will unfortunately be closed on Sunday, since it is cleaned.
Feedback: The answer is wrong. It has 18 words, and the limit is 12."""

GARDEN = """\
# What the agent is told
Say what a gardener needs. Remedies: chalk, ash, soap."""

YELLOW = """\
Task: hi, the leaves of my hydrangea turn yellow and I have no idea why
Answer: soap
Feedback: The answer is wrong. The right answer is: ash"""

LICE = """\
Task: What can I do about the lice on my roses?
Answer: chalk
Feedback: The answer is wrong. The right answer is: soap"""

# ---- answers of the roles of a playbook

INSECTS = "If a gardener has lice or other insects on a plant, answer soap."
SEASIDE = "If a metal part stands near the sea, answer bronze."
DISCOUNT = "If the price after a discount is asked for, subtract the discount from the full price."
DATES = "If an event is added, give its start as year-month-day, a T and the time, as in 2026-05-09T14:30."
SHORT = "If a notice has a limit of words, leave out greetings and politeness, and count the words."


def case(instructions: str, attempt: str, rule: str = "") -> str:
    """Format an attempt for a reflector, with the rule that the agent relied on."""
    rules = f"# Rules the agent relied on\n{rule}\n\n" if rule else ""
    return f"{instructions}\n\n{rules}# The attempt\n{attempt}"


REFLECTED: tuple[tuple[tuple[str, ...], dict[str, Any]], ...] = (
    (
        (GARDEN, YELLOW, f"[e4] (rules) {INSECTS}"),
        {
            "kind": "leaves that turn yellow", "correction": "ash",
            "insight": "If a gardener reports leaves that turn yellow, answer ash.",
            "diagnosis": "took what helps against insects", "tags": [{"id": "e4", "verdict": "harmful"}],
        },
    ),
    (
        (SHOP, f"{COAT}\nAnswer: 20\nFeedback: The answer is wrong. The right answer is: 60"),
        {
            "kind": "the price after a discount", "correction": "80 - 20 = 60", "insight": DISCOUNT,
            "diagnosis": "gave the discount itself", "tags": [],
        },
    ),
    (
        (CALENDAR, MEETING),
        {
            "kind": "adding an event to a calendar", "correction": "start 2026-05-09T14:30", "insight": DATES,
            "diagnosis": "the tool refused the format, and it answered as if the event were there", "tags": [],
        },
    ),
    (
        (NOTICES, CLOSED, "[e7] (rules) If visitors are addressed, be polite."),
        {
            "kind": "a notice with a limit of words", "correction": "Closed on Sunday for cleaning.", "insight": SHORT,
            "diagnosis": "politeness took more words than there were", "tags": [{"id": "e7", "verdict": "neutral"}],
        },
    ),
    (
        (GARDEN, LICE, "[e5] (rules) If the soil is sour, answer chalk."),
        {
            "kind": "insects on a plant", "correction": "soap", "insight": INSECTS,
            "diagnosis": "took what helps against sour soil", "tags": [{"id": "e5", "verdict": "harmful"}],
        },
    ),
)  # fmt: skip
"""Attempts with their reflections. The first and the last attempt are at questions that a person asks, with a choice of
answers. When the only example with a choice of answers was about a thing, and not a person's question, a 1.5B model
wrote rules about the form of the answer, such as "If a name is asked for, give the name"."""

EXAMPLES = tuple(Turn(case(*parts), written(answer)) for parts, answer in REFLECTED)
"""Reflections on one attempt each."""

WITHOUT_RULES = tuple(Turn(case(*parts[:2]), written({**answer, "tags": []})) for parts, answer in REFLECTED)
"""The examples of `EXAMPLES` for a reflector that does not read the rules."""

SEVERAL = [{**answer, "attempt": n} for n, (_, answer) in enumerate(REFLECTED[:2], 1)]

AT_A_TIME = Turn(
    "\n\n".join(f"# Case {one['attempt']}\n{turn.user}" for one, turn in zip(SEVERAL, EXAMPLES, strict=False)),
    written({"reflections": SEVERAL}),
)
"""Worked example of a call that reflects on two attempts: the first two of `EXAMPLES`."""

DIAGNOSED = (
    (
        case(WORKSHOP, HINGE, "[e4] (rules) If a part has to bear a load, answer steel."),
        {
            "evidence": "a rule for parts under load was used by the sea, and no rule is about salt",
            "attribution": "actionable_gap", "cause": "it took the only rule there was, which is about something else",
            "tags": [{"id": "e4", "verdict": "harmful"}],
            "kind": "a metal part near the sea", "gap": "what salt does to metal", "insight": SEASIDE,
        },
    ),
    (
        case(NOTICES, CLOSED, f"[e9] (rules) {SHORT}"),
        {
            "evidence": "the rule it relied on says to leave out politeness, and it did not",
            "attribution": "execution_variance", "cause": "it found the right rule and did not follow it",
            "tags": [{"id": "e9", "verdict": "helpful"}],
            "kind": "a notice with a limit of words", "gap": "nothing: the rule says it", "insight": SHORT,
        },
    ),
    (
        f"{EXAMPLES[1].user}\n\n# The agent's notes, from another run of the same task\nconsulted: no rule",
        {
            "evidence": "no rule says what to do with a discount; one that does would have given the answer",
            "attribution": "actionable_gap", "cause": "it took the discount for the answer", "tags": [],
            "kind": "the price after a discount", "gap": "how a discount is reckoned", "insight": DISCOUNT,
        },
    ),
)  # fmt: skip
"""Failures with the answers of the three heads: with a rule that misled, a rule that was not followed, and no rule. A
small model leans to the form of the last example, so the last example has the most common form: a failure without a
rule. When all examples had rules, the model named rules that did not exist."""

NOTED = (
    Turn(
        """\
# The state so far
Changes so far:
- added a rule for parts under load, since nothing said what they are made of
Phase: exploratory

# This step's diagnoses
- If a metal part stands near the sea, answer bronze. (actionable_gap; it took the only rule there was, which is about \
something else; what salt does to metal)

# This step's edits
+ [e7] (rules) If a metal part stands near the sea, answer bronze.

# What entries were seen to do
- [e4] helped 2, harmed 1""",
        """\
{"ledger":["added a rule for parts under load, since nothing said what they are made of",\
"added a rule for metal near the sea, which was answered like parts under load"],\
"assessment":[{"id":"e4","says":"right for loads, and used where other things matter more"}],\
"hypotheses":["e4 is taken where no rule fits"],"phase":"exploratory"}""",
    ),
)
"""Worked example of an update of the state (see `blocks/notes.py`)."""

CURATED = (
    Turn(
        """\
# New lessons
Lesson 1: If a tabletop is asked for, answer oak.
  closest rule: [e7] (rules) If a metal part stands near the sea, answer bronze.
Lesson 2: If a boat needs a cleat, answer bronze.
  closest rule: [e7] (rules) If a metal part stands near the sea, answer bronze.
Lesson 3: If the price after a discount is asked for, subtract the discount from the full price.
  closest rule: [e2] (rules) If a price with tax is asked for, add the tax to the price.""",
        """\
{"decisions":[{"lesson":1,"op":"ADD","ids":[],"text":"","reason":"no rule for furniture"},\
{"lesson":2,"op":"COVERED","ids":["e7"],"text":"","reason":"a boat is by the sea"},\
{"lesson":3,"op":"ADD","ids":[],"text":"","reason":"a discount is no tax"}]}""",
    ),
    Turn(
        """\
# New lessons
Lesson 1 (confirmed: with it the next try succeeded): If an event is moved, give its new start as 2026-05-09T14:30.
  closest rule: [e9] (rules) If an event is added, give its start as 2026-05-09T14:30.
Lesson 2: If an event is deleted, name it by its id.
  closest rule: [e9] (rules) If an event is added, give its start as 2026-05-09T14:30.""",
        """\
{"decisions":[{"lesson":1,"op":"UPDATE","ids":["e9"],\
"text":"If an event is added or moved, give its start as 2026-05-09T14:30.","reason":"same format"},\
{"lesson":2,"op":"ADD","ids":[],"text":"","reason":"another argument"}]}""",
    ),
)
"""Worked examples for the curator."""
