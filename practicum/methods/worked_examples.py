"""Worked examples for the prompts of methods that grow a playbook, about subjects that no data set here is about.

A small model learns the form from them better than from any description.
"""

from __future__ import annotations

from practicum.blocks.reflect.examples import ATLAS, COAT, LAMP, LIBRARY, SHOP
from practicum.blocks.reflect.heads import Diagnosis, OfMany, Reflections
from practicum.blocks.reflect.per_trace import Reflection, Tag
from practicum.core.types import Turn

BROKEN = "If a visitor reports that a lamp or other equipment does not work, answer Blue."
DISCOUNT = "If the price after a discount is asked for, subtract the discount from the full price."


def case(told: str, attempt: str, rule: str = "") -> str:
    """An attempt as a reflector reads it, with the rule that the agent relied on."""
    rules = f"# Rules the agent relied on\n{rule}\n\n" if rule else ""
    return f"{told}\n\n{rules}# The attempt\n{attempt}"


REFLECTED = (
    (
        (LIBRARY, LAMP, "[e4] (rules) If a visitor asks about opening hours, answer Red."),
        Reflection(
            kind="a lamp that does not work", correction="Blue", insight=BROKEN,
            diagnosis="a rule for opening hours was used for a broken lamp", tags=[Tag(id="e4", verdict="harmful")],
        ),
    ),
    (
        (SHOP, f"{COAT}\nAnswer: 20\nFeedback: The answer is wrong. The right answer is: 60"),
        Reflection(
            kind="the price after a discount", correction="80 - 20 = 60", insight=DISCOUNT,
            diagnosis="gave the discount itself", tags=[],
        ),
    ),
    (
        (LIBRARY, ATLAS, f"[e7] (rules) {BROKEN}"),
        Reflection(
            kind="keeping a book longer", correction="Green",
            insight="If a visitor wants to keep a book longer, answer Green.",
            diagnosis="a rule for broken equipment was used for a loan", tags=[Tag(id="e7", verdict="harmful")],
        ),
    ),
)  # fmt: skip
"""Attempts, and the reflections on them."""

EXAMPLES = tuple(Turn(case(*parts), said.model_dump_json()) for parts, said in REFLECTED)
"""Reflections on one attempt each."""

WITHOUT_RULES = tuple(
    Turn(case(*parts[:2]), said.model_copy(update={"tags": []}).model_dump_json()) for parts, said in REFLECTED
)
"""The same examples as a reflector sees its cases that does not read the rules."""

SEVERAL = [OfMany(**dict(said), attempt=n) for n, (_, said) in enumerate(REFLECTED[:2], 1)]

AT_A_TIME = Turn(
    "\n\n".join(f"# Case {one.attempt}\n{turn.user}" for one, turn in zip(SEVERAL, EXAMPLES, strict=False)),
    Reflections(reflections=SEVERAL).model_dump_json(),
)
"""Two of them in one call."""

DIAGNOSED = (
    (
        EXAMPLES[0].user,
        Diagnosis(
            evidence="a rule for opening hours was used for a broken lamp, and no rule is about equipment",
            attribution="actionable_gap", cause="it took the only rule there was, which is about something else",
            tags=[Tag(id="e4", verdict="harmful")],
            kind="a lamp that does not work", gap="which desk sees to equipment", insight=BROKEN,
        ),
    ),
    (
        case(LIBRARY, """\
Task: the printer on the second floor eats my paper
Answer: Green
Feedback: The answer is wrong. The right answer is: Blue""", f"[e7] (rules) {BROKEN}"),
        Diagnosis(
            evidence="the rule it relied on says Blue for equipment, and it answered Green",
            attribution="execution_variance", cause="it found the right rule and did not follow it",
            tags=[Tag(id="e7", verdict="helpful")],
            kind="equipment that does not work", gap="nothing: the rule says it",
            insight="If a visitor reports that equipment does not work, answer Blue.",
        ),
    ),
    (
        f"{EXAMPLES[1].user}\n\n# The agent's notes, from another run of the same task\nconsulted: no rule",
        Diagnosis(
            evidence="no rule says what to do with a discount; one that does would have given the answer",
            attribution="actionable_gap", cause="it took the discount for the answer", tags=[],
            kind="the price after a discount", gap="how a discount is reckoned", insight=DISCOUNT,
        ),
    ),
)  # fmt: skip
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
