"""Worked examples for the prompts of methods that grow a playbook, about subjects that no data set here is about."""

from __future__ import annotations

import json
import re

from practicum.blocks.reflect.examples import ATLAS, COAT, LAMP, LIBRARY, SHOP
from practicum.blocks.reflect.heads import Diagnosis
from practicum.blocks.reflect.per_trace import Tag
from practicum.core.types import Turn

EXAMPLES = (
    Turn(
        f"""\
{LIBRARY}

# Rules the agent relied on
[e4] (rules) If a visitor asks about opening hours, answer Red.

# The attempt
{LAMP}""",
        """\
{"kind":"a lamp that does not work","correction":"Blue",\
"insight":"If a visitor reports that a lamp or other equipment does not work, answer Blue.",\
"diagnosis":"a rule for opening hours was used for a broken lamp","tags":[{"id":"e4","verdict":"harmful"}]}""",
    ),
    Turn(
        f"""\
{SHOP}

# The attempt
{COAT}
Answer: 20
Feedback: The answer is wrong. The right answer is: 60""",
        """\
{"kind":"the price after a discount","correction":"80 - 20 = 60",\
"insight":"If the price after a discount is asked for, subtract the discount from the full price.",\
"diagnosis":"gave the discount itself","tags":[]}""",
    ),
    Turn(
        f"""\
{LIBRARY}

# Rules the agent relied on
[e7] (rules) If a visitor reports that a lamp or other equipment does not work, answer Blue.

# The attempt
{ATLAS}""",
        """\
{"kind":"keeping a book longer","correction":"Green",\
"insight":"If a visitor wants to keep a book longer, answer Green.",\
"diagnosis":"a rule for broken equipment was used for a loan","tags":[{"id":"e7","verdict":"harmful"}]}""",
    ),
)
"""Worked examples from elsewhere: a small model learns the form from them better than from any description."""

_NO_RULES = (re.compile(r"# Rules the agent relied on\n.*?\n\n", re.DOTALL), re.compile(r',"tags":\[.*\]'))

WITHOUT_RULES = tuple(
    Turn(_NO_RULES[0].sub("", turn.user), _NO_RULES[1].sub(',"tags":[]', turn.assistant)) for turn in EXAMPLES
)
"""The same examples as a reflector sees its cases that does not read the rules."""

AT_A_TIME = Turn(
    "\n\n".join(f"# Case {n}\n{turn.user}" for n, turn in enumerate(EXAMPLES[:2], 1)),
    json.dumps(
        {"reflections": [json.loads(turn.assistant) | {"attempt": n} for n, turn in enumerate(EXAMPLES[:2], 1)]},
        separators=(",", ":"),
    ),
)
"""Two of them in one call."""

DIAGNOSED = (
    (
        EXAMPLES[0].user,
        Diagnosis(
            evidence="a rule for opening hours was used for a broken lamp, and no rule is about equipment",
            attribution="actionable_gap",
            cause="it took the only rule there was, which is about something else",
            tags=[Tag(id="e4", verdict="harmful")],
            kind="a lamp that does not work",
            gap="which desk sees to equipment",
            insight="If a visitor reports that a lamp or other equipment does not work, answer Blue.",
        ),
    ),
    (
        f"""\
{LIBRARY}

# Rules the agent relied on
[e7] (rules) If a visitor reports that a lamp or other equipment does not work, answer Blue.

# The attempt
Task: the printer on the second floor eats my paper
Answer: Green
Feedback: The answer is wrong. The right answer is: Blue""",
        Diagnosis(
            evidence="the rule it relied on says Blue for equipment, and it answered Green",
            attribution="execution_variance",
            cause="it found the right rule and did not follow it",
            tags=[Tag(id="e7", verdict="helpful")],
            kind="equipment that does not work",
            gap="nothing: the rule says it",
            insight="If a visitor reports that equipment does not work, answer Blue.",
        ),
    ),
    (
        f"{EXAMPLES[1].user}\n\n# The agent's notes, from another run of the same task\nconsulted: no rule",
        Diagnosis(
            evidence="no rule says what to do with a discount; one that does would have given the answer",
            attribution="actionable_gap",
            cause="it took the discount for the answer",
            tags=[],
            kind="the price after a discount",
            gap="how a discount is reckoned",
            insight="If the price after a discount is asked for, subtract the discount from the full price.",
        ),
    ),
)
"""Failures with what the three heads say of them: a rule that misled, one that was not followed, and none at all. A
small model leans to the last, so that is the common kind; where all had rules, it found rules where there were none."""

NOTED = (
    Turn(
        """\
# The state so far
Changes so far:
- added a rule for opening hours, since nothing said where they are told
Phase: exploratory

# This step's diagnoses
- If a visitor reports that a lamp or other equipment does not work, answer Blue. (actionable_gap; it took the only \
rule there was, which is about something else; which desk sees to equipment)

# This step's edits
+ [e7] (rules) If a visitor reports that a lamp or other equipment does not work, answer Blue.

# What entries were seen to do
- [e4] helped 2, harmed 1""",
        """\
{"ledger":["added a rule for opening hours, since nothing said where they are told",\
"added a rule for equipment, which was answered like opening hours"],\
"assessment":[{"id":"e4","says":"right for opening hours, and used for other things too"}],\
"hypotheses":["e4 is taken where no rule fits"],"phase":"exploratory"}""",
    ),
)
"""Notes brought up to date."""

CURATED = (
    Turn(
        """\
# New lessons
Lesson 1: If a visitor wants to keep a book longer, answer Green.
  closest rule: [e7] (rules) If a visitor reports that a lamp or other equipment does not work, answer Blue.
Lesson 2: If the printer is out of order, answer Blue.
  closest rule: [e7] (rules) If a visitor reports that a lamp or other equipment does not work, answer Blue.
Lesson 3: If the price after a discount is asked for, subtract the discount from the full price.
  closest rule: [e2] (rules) If a price with tax is asked for, add the tax to the price.""",
        """\
{"decisions":[{"lesson":1,"op":"ADD","ids":[],"text":"","reason":"no rule for loans"},\
{"lesson":2,"op":"COVERED","ids":["e7"],"text":"","reason":"a printer is equipment"},\
{"lesson":3,"op":"ADD","ids":[],"text":"","reason":"a discount is no tax"}]}""",
    ),
    Turn(
        """\
# New lessons
Lesson 1 (confirmed: with it the next try succeeded): If a visitor wants a book that is lent out, answer Green.
  closest rule: [e9] (rules) If a visitor wants to keep a book longer, answer Green.
Lesson 2: If a visitor looks for a quiet room, answer Red.
  closest rule: [e9] (rules) If a visitor wants to keep a book longer, answer Green.""",
        """\
{"decisions":[{"lesson":1,"op":"UPDATE","ids":["e9"],\
"text":"If a visitor wants to keep a book longer or wants one that is lent out, answer Green.","reason":"same answer"},\
{"lesson":2,"op":"ADD","ids":[],"text":"","reason":"another answer"}]}""",
    ),
)
"""Worked examples for the curator."""
