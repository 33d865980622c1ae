"""ACE, Agentic Context Engineering: a playbook that a generator, a reflector and a curator grow through small edits
(Zhang et al., sections 3.1 and 3.2; METHODS, section 1).

Deviations: refinement retries the task, as in the reference code, but keeps the lessons of all rounds (the reference
code keeps only the last round's). The next try sees the insight and not the feedback, but an insight may name the right
answer. Every edit is applied, or refused and counted by its reason. Code enforces the token budget.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from practicum.core.types import Instructions
from practicum.engine.loop import AttemptSeam, Method, UpdateSeam
from practicum.methods.blocks.attempt import once, refined, reflected
from practicum.methods.blocks.curate import Curator, append, pruned, rewrite, within_budget
from practicum.methods.blocks.dedupe import deduplicated
from practicum.methods.blocks.gate import always
from practicum.methods.blocks.reflect import Reflector, by_model, per_trace, without_reflector
from practicum.methods.blocks.sample import batches
from practicum.methods.blocks.scan import Uncovered, accounted
from practicum.methods.blocks.show import ActWithNote, answer, full_view, reused
from practicum.methods.primitives import PrimitiveSettings, with_primitives
from practicum.methods.settings import PlaybookSettings
from practicum.methods.worked_examples import CURATED, EXAMPLES, WITHOUT_RULES

ACT = answer(full_view)
"""Act of the generator: the agent answers with the whole playbook in view."""

SECTION = "rules"
"""Section of entries for which the curator names no section."""


class Settings(PrimitiveSettings):
    """Settings of ACE, with its ablations, and with RCL's primitives, which are off by default."""

    uncovered: Uncovered = "drop"
    """drop: drop lessons that the curator leaves out, as in the paper; keep: add each of them as an entry,
    unchanged."""

    SMALL: ClassVar[Mapping[str, Any]] = {
        **PrimitiveSettings.SMALL, "uncovered": "keep", "batch": 4, "curator": "append", "rules_shown": False
    }  # fmt: skip


def method(settings: Settings) -> Method:
    """Build ACE, with the primitives of RCL that the settings turn on (groups, twin, heads, replay, state)."""

    def ace(s: PrimitiveSettings) -> Method:
        update = curated(s, settings.uncovered, merges=s.merge, guards=s.guards)
        return playbook(s, "ace", update, s.batch, reused(ACT))

    return with_primitives(settings, ace, reflector, REFLECTOR)


def playbook(
    s: PlaybookSettings, name: str, update: UpdateSeam, batch: int, act: ActWithNote = ACT,
    costs: str = "reflections, retries, one curation per step",
) -> Method:  # fmt: skip
    """Build ACE's loop around `update`, which turns the lessons of a step into edits."""
    return Method(
        name=name,
        show=full_view,
        sample=batches(s.online, s.epochs, batch),
        act=ACT,
        attempt=attempts(s, act),
        reflect=per_trace(reflector(s), s.learn_from, s.only_confirmed),
        update=settled(s, update),
        accept=always,
        roles=(*(["reflector"] if s.reflector else []), *(["curator"] if s.curating != "append" else [])),
        costs=costs,
    )


def attempts(s: PlaybookSettings, act: ActWithNote) -> AttemptSeam:
    """Build an attempt seam that attempts each task, and immediately reflects on the attempt. If reflection needs the
    whole step, or the method has no reflector, the seam only attempts. With `rounds` and `refine=retry`, the agent
    attempts a failed task again with the reflection."""
    # Without a reflector, the lesson is the raw attempt. It contains the right answer, which no retry may see.
    if s.whole_step or not s.reflector:
        return once(act)
    one = refined(act, reflector(s), s.rounds, s.refine) if s.rounds else reflected(act, reflector(s), s.learn_from)
    return once(one)


def reflector(s: PlaybookSettings) -> Reflector:
    """Build the reflector, which turns an attempt into a lesson."""
    if not s.reflector:
        return without_reflector
    instructions = REFLECTOR if s.rules_shown else replace(REFLECTOR, examples=WITHOUT_RULES)
    return by_model(instructions, s.rules_shown)


def curator(s: PlaybookSettings, *, merges: bool = True, guards: bool = False) -> UpdateSeam:
    """Build the curator, which turns the lessons of a step into edits."""
    if s.curating == "append":
        # Entries do not get the data of their reflections, because entries with the same text must be equal.
        return append(SECTION, data=False)
    if s.curating == "rewrite":
        return rewrite(REWRITER)
    return Curator(CURATOR if merges else MUTATOR, SECTION, merges, guards, s.gate)


def curated(
    s: PlaybookSettings, uncovered: Uncovered = "drop", *, merges: bool = True, guards: bool = False
) -> UpdateSeam:
    """Build the curator, with a rule for lessons that the curator leaves out: drop and count these lessons as in the
    papers, or keep them as entries."""
    by = curator(s, merges=merges, guards=guards)
    return accounted(by, uncovered, SECTION) if s.curating == "edits" else by


def settled(s: PlaybookSettings, update: UpdateSeam) -> UpdateSeam:
    """Build an update seam that runs `update`, then prunes harmful entries, then merges duplicates, then enforces the
    budget. The budget comes last, so that no later step can exceed it."""
    with_pruning = pruned(update, s.harmful) if s.harmful else update
    return within_budget(deduplicated(with_pruning, s.threshold, s.dedupe, s.budget), s.budget)


REFLECTOR = Instructions(
    full="""\
You study one attempt of an agent at a task, and work out what it teaches for later tasks. The agent keeps a playbook: \
entries with ids, in sections, which it reads before each task. You see the playbook, the whole attempt and the \
feedback on it.

Go through the attempt step by step before you judge it. A success can teach as much as a failure: a way of working \
that should be kept, or a detail that was hard to find.

reasoning: your analysis: what the agent did, which of its decisions mattered, and what the feedback shows about them.
diagnosis: what went right or wrong.
cause: the root cause: the decision, the missing knowledge or the misread entry behind it, not its symptom.
correction: the correct approach, concretely: the steps, formulas, calls or code that it takes.
tags: a verdict on each entry that the agent used: helpful, harmful (it led to the mistake) or neutral.
insights: what is worth keeping, each with the section it belongs to. Write as many as the attempt supports, and none \
if the playbook says it all already. An insight stands by itself: a reader who has not seen this task can act on it. \
Let it be as long as it needs to be, up to 2,000 characters: several sentences, numbered steps, a formula, code, the \
arguments of an interface with their formats and traps. Keep the details that decide an outcome, such as names, \
numbers, formats and thresholds; leave out what holds for this one task only. If an entry is wrong or incomplete, the \
insight says what it should say.""",
    small="""\
You review one attempt of an agent, so that it does better on later tasks. The agent keeps a playbook of short rules.

kind: what kind of task this is, by its subject, in general words. Do not quote the task.
correction: what would have been right, in a few words.
insight: one rule for all tasks of this kind, in one sentence: "If <kind of task>, <what to do or answer>." It also \
fits tasks that say it differently, and no other kinds of task. It gives the right answer outright where the kind \
decides it. It makes sense to a reader who has not seen the task, and says what no rule the agent relied on says.
diagnosis: what went right or wrong, and why, in a few words.
tags: for each rule the agent relied on, whether it was helpful, harmful (it led to the mistake) or neutral.""",
    examples=EXAMPLES,
)

_CURATOR = """\
You maintain the playbook that an agent reads before each task. An entry is shown as "[id] (section) text". Below the \
playbook you find how often its entries helped and harmed, and then reflections on the agent's latest attempts, each \
with its numbered insights. The agent sees the playbook and nothing of the reflections: what is not written into an \
entry is lost.

Give a small set of changes, never the whole playbook:

ADD: something new, with the numbers of the insights it rests on and its section. If the text is empty, each insight \
becomes an entry word for word. Write the text yourself where several insights belong together or can be said better.
UPDATE: one entry (its id in ids) is incomplete, imprecise or wrong in part. The new text replaces the old one, so it \
repeats what stays true.
{merge}DELETE: an entry (its id in ids) is wrong or misleads, as a reflection or its record shows; say why.
COVERED: an entry (its id in ids) says already what these insights say.

An entry keeps the details that make it useful, up to 2,000 characters: conditions, steps, formulas, code, exact names \
and numbers. Do not shorten it to general advice, and do not repeat what another entry says: bring that entry up to \
date. Read the whole reflection behind an insight: where it shows that the agent failed by chance, although the \
playbook says what to do, change nothing unless an entry can be made easier to follow. Account for every insight."""

_MERGE = """\
MERGE: several entries (their ids in ids) say the same. One text takes in all of them.
"""

CURATOR = Instructions(
    full=_CURATOR.format(merge=_MERGE),
    small="""\
You maintain the playbook of an agent: short rules, one a line, "[id] (section) text". The agent sees the playbook and \
never the lessons. Decide for each new lesson:

ADD: no rule says what the lesson says. It becomes a new rule, word for word; give a text only to say it better.
UPDATE: one rule (its id in ids) gives the same answer for a case close to this one. Its new text takes in both.
MERGE: two or three rules (their ids in ids) say the same. One text for all.
DELETE: the lesson proves one rule (its id in ids) wrong.
COVERED: one rule (its id in ids) says all of the lesson already.

A rule gives one answer. Never join cases with different answers, and never change what a rule answers.""",
    examples=CURATED,
)

MUTATOR = Instructions(
    full=_CURATOR.format(merge=""), small="\n".join(x for x in CURATOR.small.splitlines() if x[:6] != "MERGE:"),
    examples=CURATED,
)  # fmt: skip
"""Instructions of the curator that merges no entries (RCL, section 3: the structural constraint)."""

REWRITER = Instructions(
    full="""\
You maintain the playbook that an agent reads before each task. Write the whole playbook anew: everything in it that \
is right, and what the new reflections add. What you do not write is lost.""",
    small="""\
You maintain the playbook of an agent: short rules, one a line, "[id] (section) text". Write the whole playbook anew, \
with everything in it that is right and what the new lessons add.""",
)
