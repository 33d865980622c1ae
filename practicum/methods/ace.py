"""ACE, Agentic Context Engineering: a playbook grown by generator, reflector and curator through small edits
(Zhang et al., sections 3.1 and 3.2; METHODS, section 1).

Deviations: refinement is by retry as in the reference code, with the lessons of all rounds kept (it keeps the last);
the next try sees the insight, never the right answer; every edit is applied or refused with a reason; the token budget
is enforced by code.
"""

from __future__ import annotations

from practicum.blocks.accept.always import always
from practicum.blocks.act.show import Answer, answer, full_view, reused
from practicum.blocks.attempt.attempt import once, refined, reflected
from practicum.blocks.reflect.per_trace import Reflector, by_model, per_trace, without_reflector
from practicum.blocks.sample.orders import batches
from practicum.blocks.update.append import append, pruned, within_budget
from practicum.blocks.update.coverage import Uncovered, accounted
from practicum.blocks.update.curator import Curator, rewrite
from practicum.blocks.update.dedupe import deduplicated
from practicum.engine.loop import AttemptSeam, Method, UpdateSeam
from practicum.methods.primitives import PrimitiveSettings, with_primitives
from practicum.methods.settings import PlaybookSettings
from practicum.methods.worked_examples import CURATED, EXAMPLES, WITHOUT_RULES

ACT = answer(full_view)
"""The generator: the agent sees the whole playbook."""

SECTION = "rules"
"""The section of entries for which the curator names none."""


class Settings(PrimitiveSettings):
    """Settings of ACE. They include its ablations, and RCL's primitives, which are off."""

    uncovered: Uncovered = "keep"
    """A lesson that the curator leaves out: keep it as an entry, or drop it as in the paper."""


def method(settings: Settings) -> Method:
    """ACE, with the primitives that are switched on."""

    def ace(s: PrimitiveSettings) -> Method:
        return playbook(s, "ace", curated(s, settings.uncovered), s.batch, reused(ACT))

    return with_primitives(settings, ace, reflector, REFLECTOR)


def playbook(
    s: PlaybookSettings, name: str, update: UpdateSeam, batch: int, act: Answer = ACT,
    costs: str = "reflections, retries, one curation a step",
) -> Method:  # fmt: skip
    """ACE's loop. Methods that grow a playbook differ in `update`: how the lessons of a step become edits."""
    return Method(
        name=name,
        sample=batches(s.online, s.epochs, batch),
        act=ACT,
        attempt=attempts(s, act),
        reflect=per_trace(reflector(s), s.learn_from, s.lessons == "confirmed"),
        update=settled(s, update),
        accept=always,
        roles=(*(["reflector"] if s.reflector else []), *(["curator"] if s.curator != "append" else [])),
        costs=costs,
    )


def attempts(s: PlaybookSettings, act: Answer) -> AttemptSeam:
    """Try each task, and try it again with the reflection after a failure."""
    # A raw attempt holds the right answer, which no retry may see.
    if s.whole_step or not s.reflector:
        return once(act)
    return refined(act, reflector(s), s.rounds, s.refine) if s.rounds else reflected(act, reflector(s), s.learn_from)


def reflector(s: PlaybookSettings) -> Reflector:
    """Turn an attempt into a lesson."""
    if not s.reflector:
        return without_reflector
    return by_model(REFLECTOR, EXAMPLES if s.rules_shown else WITHOUT_RULES, s.rules_shown)


def curator(s: PlaybookSettings) -> UpdateSeam:
    """Turn the lessons of a step into edits."""
    if s.curator == "append":
        return append(SECTION)
    return rewrite(REWRITER) if s.curator == "rewrite" else Curator(CURATOR, SECTION, CURATED)


def curated(s: PlaybookSettings, uncovered: Uncovered = "drop") -> UpdateSeam:
    """The curator; a lesson that it leaves out is kept as an entry, or lost as in the papers, and counted."""
    return accounted(curator(s), uncovered, SECTION) if s.curator == "edits" else curator(s)


def settled(s: PlaybookSettings, update: UpdateSeam) -> UpdateSeam:
    """Prune harmful entries, then merge duplicates, then enforce the budget, which has the last word."""
    kept = pruned(update, s.harmful) if s.harmful else update
    return within_budget(deduplicated(kept, s.threshold, s.dedupe, s.budget), s.budget)


REFLECTOR = """\
You review one attempt of an agent, so that it does better on later tasks. The agent keeps a playbook of short rules.

kind: what kind of task this is, by its subject, in general words. Do not quote the task.
correction: what would have been right, in a few words.
insight: one rule for all tasks of this kind, in one sentence: "If <kind of task>, <what to do or answer>." It also \
fits tasks that say it differently, and no other kinds of task. It gives the right answer outright where the kind \
decides it. It makes sense to a reader who has not seen the task, and says what no rule the agent relied on says.
diagnosis: what went right or wrong, and why, in a few words.
tags: for each rule the agent relied on, whether it was helpful, harmful (it led to the mistake) or neutral."""

CURATOR = """\
You maintain the playbook of an agent: short rules, one a line, "[id] (section) text". The agent sees the playbook and \
never the lessons. Decide for each new lesson:

ADD: no rule says what the lesson says. It becomes a new rule, word for word; give a text only to say it better.
UPDATE: one rule (its id in ids) gives the same answer for a case close to this one. Its new text takes in both.
MERGE: two or three rules (their ids in ids) say the same. One text for all.
DELETE: the lesson proves one rule (its id in ids) wrong.
COVERED: one rule (its id in ids) says all of the lesson already.

A rule gives one answer. Never join cases with different answers, and never change what a rule answers."""

REWRITER = """\
You maintain the playbook of an agent: short rules, one a line, "[id] (section) text". Write the whole playbook anew, \
with everything in it that is right and what the new lessons add."""
