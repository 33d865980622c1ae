"""ACE, Agentic Context Engineering: a playbook grown by generator, reflector and curator through small edits
(Zhang et al., sections 3.1 and 3.2; METHODS, section 1).

Deviations: refinement is by retry as in the reference code, with the lessons of all rounds kept (it keeps the last);
the next try sees the insight, never the right answer; every edit is applied or refused with a reason; the token budget
is enforced by code.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from practicum.blocks.accept import always
from practicum.blocks.act import answer, full_view
from practicum.blocks.attempt import Refine, once, refined
from practicum.blocks.dedupe import When, deduplicated
from practicum.blocks.reflect import LearnFrom, by_model, per_trace, without_reflector
from practicum.blocks.sample import shuffled_epochs, stream
from practicum.blocks.update import curate, pruned, within_budget
from practicum.loop import Method
from practicum.methods import Batched


class Settings(Batched):
    """Settings of ACE; its ablations are among them."""

    rounds: int = Field(default=3, ge=0)
    """Most reflections on one attempt (paper: 5; 1 extracts too little, 10 can harm); 0 reflects once, after it."""
    refine: Refine = "retry"
    """retry: on a failure try again with the reflection; critique: the reflector improves its own lesson."""
    learn_from: LearnFrom = "all"
    """all: reflect on successes too; failures: a success only counts the entries it used."""
    reflector: bool = True
    """Whether a reflector stands between attempt and curator (the ablation of table 3)."""
    curator: Literal["edits", "rewrite"] = "edits"
    """edits: small deltas; rewrite: the whole playbook anew each step (the ablation of table 18)."""
    threshold: float = Field(default=0.85, gt=0, le=1)
    """Cosine similarity from which two entries of a section say the same (0.5 to 0.9 behave alike, table 20)."""
    dedupe: When = "proactive"
    """proactive: after each delta; lazy: only when the playbook is over its budget; never."""
    budget: int = Field(default=80_000, ge=1)
    """Most tokens of the playbook (paper: 10,000 to 100,000 behave alike, table 21)."""
    harmful: int = Field(default=3, ge=0)
    """An entry whose harmful votes lead by this many is dropped at once; 0 keeps it until the budget is exceeded."""


def method(settings: Settings) -> Method:
    """Generator, reflector, curator on the six seams."""
    s = settings
    act = answer(full_view)
    reflector = by_model(REFLECTOR) if s.reflector else without_reflector()
    update = curate(CURATOR, REWRITER if s.curator == "rewrite" else None)
    if s.harmful:
        update = pruned(update, s.harmful)
    least, most = (1, 1 + 2 * s.rounds if s.refine == "retry" else 1 + s.rounds) if s.reflector else (1, 1)
    return Method(
        name="ace",
        sample=stream(s.batch) if s.online else shuffled_epochs(s.epochs, s.batch),
        act=act,
        attempt=refined(act, reflector, s.rounds, s.refine) if s.rounds else once(act),
        reflect=per_trace(reflector, s.learn_from),
        update=within_budget(deduplicated(update, s.threshold, s.dedupe, s.budget), s.budget),
        accept=always,
        calls=lambda batch: (batch * least, batch * max(most, 2 if s.reflector else 1) + 1),
        batch=s.batch,
        epochs=s.epochs,
    )


REFLECTOR = """\
You coach an agent that keeps a playbook of rules. You read one of its attempts and find what it should remember.

diagnosis: what went right or wrong and why, in one short sentence.
correction: what would have been right, in a few words.
insight: one rule that will help with other tasks of the same kind, not only this one. Write it as "If ..., then ...": \
name the general feature of the task that decides, then exactly what to answer or do. Leave it empty if the attempt \
teaches nothing new.
tags: for each entry that was used, whether it was helpful, harmful or neutral here."""

CURATOR = """\
You keep the playbook of an agent: short rules, one an entry, shown below as "[id] (section) text". You are given new \
lessons and change the playbook with as few edits as needed.

ADD: a rule the playbook does not have yet. Keep its "If ..., then ..." form, general and exact.
UPDATE: replace the text of one entry (its id in ids) with a better one that keeps all that was right in it.
MERGE: two or more entries that say the same (their ids in ids) become one with the given text.
DELETE: an entry (its id in ids) that a lesson shows to be wrong.
If an entry says a lesson already, no edit is needed for it. Never change an entry to say something about another \
case: ADD a new one instead."""

REWRITER = """\
You keep the playbook of an agent: short rules, one an entry, shown below as "[id] (section) text". You are given new \
lessons. Write the whole playbook anew, with everything that is still right and what the lessons add."""
