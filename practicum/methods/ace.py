"""ACE, Agentic Context Engineering: a playbook grown by generator, reflector and curator through small edits
(Zhang et al., sections 3.1 and 3.2; METHODS, section 1).

Deviations: refinement is by retry as in the reference code, with the lessons of all rounds kept (it keeps the last);
the next try sees the insight, never the right answer; every edit is applied or refused with a reason; the token budget
is enforced by code.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal, Self

from pydantic import Field, model_validator

from practicum.blocks.accept import always
from practicum.blocks.account import Uncovered, accounted
from practicum.blocks.act import answer, full_view
from practicum.blocks.attempt import Refine, once, refined
from practicum.blocks.dedupe import When, deduplicated
from practicum.blocks.reflect import LearnFrom, Reflector, by_model, per_trace, without_reflector
from practicum.blocks.sample import shuffled_epochs, stream
from practicum.blocks.update import Curator, append, pruned, rewrite, within_budget
from practicum.loop import Attempt, Method, Update
from practicum.methods import Batched, MethodSettings
from practicum.types import Turn


class Learning(MethodSettings):
    """Settings of every method that grows a playbook with a reflector and a curator."""

    rounds: int = Field(default=3, ge=0)
    """Most reflections on one attempt (paper: 5; 1 extracts too little, 10 can harm); 0 reflects once, after it."""
    refine: Refine = "retry"
    """retry: on a failure try again with the reflection; critique: the reflector improves its own lesson."""
    learn_from: LearnFrom = "all"
    """all: reflect on successes too; failures: a success only counts the entries it used."""
    lessons: Literal["all", "confirmed"] = "all"
    """all: the insights of all rounds; confirmed: only those with which the next try succeeded (for weak models)."""
    rules_shown: bool = True
    """Whether the reflector reads the rules the agent relied on; a weak model copies them into its insight."""
    reflector: bool = True
    """Whether a reflector stands between attempt and curator (the ablation of table 3)."""
    curator: Literal["edits", "append", "rewrite"] = "edits"
    """edits: small deltas by a model; append: each lesson is an entry, no call; rewrite: all anew (table 18)."""
    threshold: float = Field(default=0.85, gt=0, le=1)
    """Cosine similarity from which two entries of a section say the same (0.5 to 0.9 behave alike, table 20)."""
    dedupe: When = "proactive"
    """proactive: after each delta; lazy: only when the playbook is over its budget; never."""
    budget: int = Field(default=80_000, ge=1)
    """Most tokens of the playbook (paper: 10,000 to 100,000 behave alike, table 21)."""
    harmful: int = Field(default=3, ge=0)
    """An entry whose harmful votes lead by this many is dropped at once; 0 keeps it until the budget is exceeded."""

    @model_validator(mode="after")
    def _can_act(self) -> Self:
        if self.lessons == "confirmed" and (self.refine != "retry" or not self.rounds):
            raise ValueError(
                "lessons=confirmed needs refine=retry and at least one round, or nothing is ever confirmed"
            )
        return self


class Settings(Learning, Batched):
    """Settings of ACE; its ablations are among them."""

    uncovered: Uncovered = "keep"
    """A lesson the curator leaves out: keep it as an entry, or drop it as in the paper."""


def method(settings: Settings) -> Method:
    """Generator, reflector, curator on the six seams."""
    s = settings
    update = accounted(curator(s), s.uncovered, SECTION) if s.curator == "edits" else curator(s)
    return playbook(s, "ace", update, batch=s.batch, epochs=s.epochs)


def playbook(s: Learning, name: str, update: Update, *, batch: int, epochs: int) -> Method:
    """What all methods that grow a playbook share; they differ in how lessons become edits."""
    return Method(
        name=name,
        sample=stream(batch) if s.online else shuffled_epochs(epochs, batch),
        act=ACT,
        attempt=attempts(s),
        reflect=per_trace(reflector(s), s.learn_from, s.lessons == "confirmed"),
        update=settled(s)(update),
        accept=always,
        calls=lambda size: calls(s, size),
        batch=batch,
        epochs=epochs,
        roles=roles(s),
    )


ACT = answer(full_view)
"""The agent sees the whole playbook."""


def reflector(s: Learning) -> Reflector:
    """Who makes lessons of attempts."""
    if not s.reflector:
        return without_reflector()
    return by_model(REFLECTOR, EXAMPLES if s.rules_shown else WITHOUT_RULES, s.rules_shown)


def attempts(s: Learning) -> Attempt:
    """How a task is tried. A raw attempt holds the right answer, which no retry may see."""
    return refined(ACT, reflector(s), s.rounds, s.refine) if s.rounds and s.reflector else once(ACT)


def curator(s: Learning) -> Update:
    """How lessons become edits, before anything is wrapped around it."""
    match s.curator:
        case "edits":
            return Curator(CURATOR, SECTION, CURATED)
        case "append":
            return append(SECTION)
        case "rewrite":
            return rewrite(REWRITER)


def dropping(s: Learning) -> Update:
    """The curator as the papers have it: what it does not mention is lost. Here it is counted."""
    return accounted(curator(s), "drop", SECTION) if s.curator == "edits" else curator(s)


def settled(s: Learning) -> Callable[[Update], Update]:
    """What is done to every delta: pruning, then de-duplication, then the budget, which has the last word."""

    def wrap(update: Update) -> Update:
        update = pruned(update, s.harmful) if s.harmful else update
        return within_budget(deduplicated(update, s.threshold, s.dedupe, s.budget), s.budget)

    return wrap


def roles(s: Learning) -> tuple[str, ...]:
    """Who is asked beside the agent."""
    return (*(["reflector"] if s.reflector else []), *(["curator"] if s.curator != "append" else []))


def calls(s: Learning, batch: int) -> tuple[int, int]:
    """Fewest and most model calls of a step: attempts, reflections, retries, one curation."""
    reflections = max(s.rounds, 1) if s.reflector else 0
    retries = s.rounds if s.refine == "retry" and s.reflector else 0
    least = 0 if s.learn_from == "failures" or not s.reflector else 1
    curation = 0 if s.curator == "append" else 1
    return batch * (1 + least), batch * (1 + reflections + retries) + curation


SECTION = "rules"
"""Where entries go for which the curator names no section."""

REFLECTOR = """\
You review one attempt of an agent, so that it does better on later tasks. The agent keeps a playbook of short rules.

kind: what kind of task this is, by its subject, in general words. Do not quote the task.
correction: what would have been right, in a few words.
insight: one rule for all tasks of this kind, in one sentence: "If <kind of task>, <what to do or answer>." It also \
fits tasks that say it differently, and no other kinds of task. It gives the right answer outright where the kind \
decides it. It makes sense to a reader who has not seen the task, and says what no rule the agent relied on says.
diagnosis: what went right or wrong, and why, in a few words.
tags: for each rule the agent relied on, whether it was helpful, harmful (it led to the mistake) or neutral."""

EXAMPLES = (
    Turn(
        """\
# What the agent is told
Say which desk of the library a visitor needs. Desks: Red, Green, Blue.

# Rules the agent relied on
[e4] (rules) If a visitor asks about opening hours, answer Red.

# The attempt
Task: hi, the reading lamp at my seat keeps flickering, it drives me mad
Answer: Red
Feedback: The answer is wrong. The right answer is: Blue""",
        """\
{"kind":"a lamp that does not work","correction":"Blue",\
"insight":"If a visitor reports that a lamp or other equipment does not work, answer Blue.",\
"diagnosis":"a rule for opening hours was used for a broken lamp","tags":[{"id":"e4","verdict":"harmful"}]}""",
    ),
    Turn(
        """\
# What the agent is told
Answer with a number.

# The attempt
Task: A coat of 80 is sold with 25% off. What is left to pay?
Answer: 20
Feedback: The answer is wrong. The right answer is: 60""",
        """\
{"kind":"the price after a discount","correction":"80 - 20 = 60",\
"insight":"If the price after a discount is asked for, subtract the discount from the full price.",\
"diagnosis":"gave the discount itself","tags":[]}""",
    ),
    Turn(
        """\
# What the agent is told
Say which desk of the library a visitor needs. Desks: Red, Green, Blue.

# Rules the agent relied on
[e7] (rules) If a visitor reports that a lamp or other equipment does not work, answer Blue.

# The attempt
Task: Could I keep the atlas for two more weeks?
Answer: Blue
Feedback: The answer is wrong. The right answer is: Green""",
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

CURATOR = """\
You maintain the playbook of an agent: short rules, one a line, "[id] (section) text". The agent sees the playbook and \
never the lessons. Decide for each new lesson:

ADD: no rule says what the lesson says. It becomes a new rule, word for word; give a text only to say it better.
UPDATE: one rule (its id in ids) gives the same answer for a case close to this one. Its new text takes in both.
MERGE: two or three rules (their ids in ids) say the same. One text for all.
DELETE: the lesson proves one rule (its id in ids) wrong.
COVERED: one rule (its id in ids) says all of the lesson already.

A rule gives one answer. Never join cases with different answers, and never change what a rule answers."""

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

REWRITER = """\
You maintain the playbook of an agent: short rules, one a line, "[id] (section) text". Write the whole playbook anew, \
with everything in it that is right and what the new lessons add."""
