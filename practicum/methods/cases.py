"""The cases of worked examples: a choice, a number, a tool's use and a piece of writing, from places that no data set
here is about."""

from __future__ import annotations

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
