"""The optimization primitives of RCL, each a setting, in any combination (Reflective Context Learning, section 3;
METHODS, section 3).

How many model calls a task takes is in `calls`; nothing else is asked.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from practicum.blocks.act import annotated_view, answer
from practicum.blocks.adaptive import Choice, switching
from practicum.blocks.grouped import annotated_twin, chosen, grouped
from practicum.blocks.heads import Heads, batched
from practicum.blocks.reflect import per_trace
from practicum.blocks.replay import replayed
from practicum.blocks.state import with_state
from practicum.loop import Attempt, Method, Reflect, Sample, Update
from practicum.methods.learning import Learning, attempts, playbook, reflector, roles
from practicum.methods.prompts import REFLECTOR


class Primitives(Learning):
    """Settings of the primitives, all off."""

    epochs: int = Field(default=1, ge=1)
    """Times the tasks are gone through (offline)."""
    batch: int = Field(default=1, ge=1)
    """Tasks attempted at once before the context changes; with rollouts: failures reflected on in a step."""
    group: int = Field(default=1, ge=1)
    """Runs of each task under one context; one that failed is reflected on beside one that did not (section 3.1)."""
    twin: bool = False
    """Each task once more with an annotated playbook, to see what its entries did (section 3.2)."""
    heads: bool = False
    """Reflection in three heads: failure attribution, root cause, coverage gap (section 3.3)."""
    head_calls: Literal["three", "one"] = "three"
    """heads: three calls at once, or one structured call."""
    reflection: Literal["per_trace", "batched"] = "per_trace"
    """per_trace: each attempt by itself; batched: one call for all attempts of a step (section 4.7)."""
    rollouts: Literal["auto"] | Annotated[int, Field(ge=1)] | None = None
    """Tasks attempted in a step, where that is more than are reflected on; auto: so many that `batch` failures are
    likely."""
    replay: float = Field(default=0.0, ge=0, le=1)
    """Share of the attempted tasks that are drawn from those that failed before (section 3.4)."""
    graduate: int = Field(default=3, ge=1)
    """replay: passes in a row after which a task leaves the buffer."""
    evict: int = Field(default=3, ge=1)
    """replay: failures in a row, reflected on, after which it leaves too."""
    state: bool = False
    """A rolling document of changes, assessments and hypotheses that the curator sees (section 3.5)."""
    state_tokens: int = Field(default=800, ge=100)
    """state: most tokens of the document."""
    primitives: Literal["given", "adaptive"] = "given"
    """given: those that are switched on; adaptive: groups, twin, heads and state as the run shows them to be of use."""

    @property
    def tries(self) -> int:
        """Rounds of reflection within an attempt: none where reflection waits for all runs of a step."""
        return 0 if self.whole_step else self.rounds

    @property
    def whole_step(self) -> bool:
        """Whether reflection needs all runs of a step."""
        batched = self.reflection == "batched" or self.rollouts is not None
        return self.group > 1 or self.twin or self.heads or batched or self.primitives == "adaptive"

    @model_validator(mode="after")
    def _can_act_together(self) -> Self:
        given = self.model_fields_set
        if self.whole_step and (self.lessons == "confirmed" or ("rounds" in given and self.rounds)):
            raise ValueError("group, twin, heads, rollouts and batched reflection wait for all runs: leave out rounds")
        chosen = given & {"group", "twin", "heads", "state"}
        if self.primitives == "adaptive" and (chosen or self.reflection == "batched" or not self.reflector):
            raise ValueError("primitives=adaptive chooses group, twin, heads and state itself: leave them out")
        if self.heads and self.reflection == "batched":
            raise ValueError("heads look at one attempt each: leave out reflection=batched")
        if not self.reflector and (self.heads or self.twin or self.reflection == "batched"):
            raise ValueError("heads, twin and batched reflection are for a reflector: leave out reflector=false")
        if "head_calls" in given and not self.heads:
            raise ValueError("head_calls needs heads=true")
        if given & {"graduate", "evict"} and not self.replay:
            raise ValueError("graduate and evict need replay")
        if "state_tokens" in given and not self.state:
            raise ValueError("state_tokens needs state=true")
        if self.state and self.curator == "append":
            raise ValueError("state is for a curator that decides: leave out curator=append")
        if self.online and (self.replay or self.rollouts is not None):
            raise ValueError("a stream is taken as it comes: replay and rollouts are for learning offline")
        if self.rollouts not in (None, "auto") and int(self.rollouts or 0) < self.batch:
            raise ValueError(f"rollouts={self.rollouts} is less than the {self.batch} failures to reflect on")
        return self


def assembled(s: Primitives, name: str, update: Update) -> Method:
    """The method with the primitives that are switched on, or that the run calls for."""
    if s.primitives == "given":
        return _given(s, name, update)

    def build(choice: Choice) -> Method:
        on = {"group": GROUP if choice.group else 1, "twin": choice.twin, "heads": choice.heads, "state": choice.state}
        return _given(s.model_copy(update={**on, "primitives": "given"}), name, update)

    return switching(build(Choice(True, True, True, True, "")), build)


GROUP = 3
"""primitives=adaptive: runs of a group, where groups are used."""


def _given(s: Primitives, name: str, update: Update) -> Method:
    made = playbook(s, name, update, batch=s.batch, epochs=s.epochs)
    asked = roles(s)
    return replace(
        made,
        sample=_sample(s, made.sample),
        attempt=_attempt(s),
        reflect=_reflect(s),
        update=with_state(made.update, STATE, s.state_tokens) if s.state else made.update,
        calls=made.calls if not s.whole_step and not s.state else lambda batch: calls(s, batch),
        batch=max(_size(s) - round(s.replay * _size(s)), 1),
        roles=(*asked, "state") if s.state else asked,
    )


def _size(s: Primitives) -> int:
    """Tasks attempted in a step, at least."""
    return s.rollouts if isinstance(s.rollouts, int) else s.batch


def _sample(s: Primitives, plain: Sample) -> Sample:
    if not s.replay and s.rollouts is None:
        return plain
    return replayed(s.epochs, s.batch, s.replay, s.rollouts, s.graduate, s.evict)


def _attempt(s: Primitives) -> Attempt:
    """How a task is run: the groups and the annotated run all at once."""
    attempt = attempts(s)
    if s.group > 1:
        attempt = grouped(attempt, s.group)
    return annotated_twin(attempt, TWIN) if s.twin else attempt


def _reflect(s: Primitives) -> Reflect:
    """How failures are diagnosed."""
    one = reflector(s)
    if s.heads:
        one = Heads((ATTRIBUTION, ROOT_CAUSE, GAP), one, s.head_calls == "one")
    reflect = per_trace(one, s.learn_from, s.lessons == "confirmed")
    if s.reflection == "batched":
        reflect = batched(f"{REFLECTOR}\n\n{SEVERAL}")
    return reflect if s.rollouts is None else chosen(reflect, s.batch)


def calls(s: Primitives, tasks: int) -> tuple[int, int]:
    """Fewest and most model calls of a step over so many fresh tasks, replayed ones added.

    Most: runs x (group + twin) + failures x (3 heads, or 1; batched: 1 for all) + curator + state. Fewest: all runs
    pass and are not reflected on.
    """
    runs = _size(s) if tasks >= s.batch else tasks
    executions = runs * (s.group + s.twin)
    reflected = min(s.batch, runs) if s.rollouts is not None else runs
    per_failure = 3 if s.heads and s.head_calls == "three" else 1
    reflections = 1 if s.reflection == "batched" else reflected * per_failure
    curation = 0 if s.curator == "append" else 1
    least = 0 if s.learn_from == "failures" or s.rollouts is not None else min(reflections, runs)
    return executions + least, executions + reflections + curation + s.state


TWIN = answer(annotated_view)
"""A run that tells what it made of each entry."""

_CASE = """\
You review one attempt of an agent that failed. The agent keeps a playbook of short rules. Where there is another \
attempt at the same task that succeeded, what they did differently is what matters. Where there are the agent's notes \
from another run, they tell which rules it consulted, doubted or missed."""

ATTRIBUTION = f"""\
{_CASE}

Say what the failure comes from. actionable_gap: a rule that is missing, unclear or wrong led to it, and a better one \
would prevent it. execution_variance: the rules say what to do, and the agent did not do it this time; another try may \
well succeed. intractable: no rule could help, because the task cannot be done with what the agent has.
First name what in the attempt decides it."""

ROOT_CAUSE = f"""\
{_CASE}

cause: the first step that went wrong, and why the agent took it. Not what happened afterwards.
tags: for each rule the agent relied on, whether it was helpful, harmful (it led to the mistake) or neutral."""

GAP = f"""\
{_CASE}

kind: what kind of task this is, by its subject, in general words. Do not quote the task.
gap: what no rule says yet for tasks of this kind, or which rule says it wrongly, in a few words.
insight: the one rule that closes the gap, in one sentence: "If <kind of task>, <what to do or answer>." It also fits \
tasks that say it differently, and no others, and makes sense to a reader who has not seen the task."""

SEVERAL = """\
There are several cases, each with its number. Write one reflection for each, under its number in "attempt". What the \
cases have in common says more than what is peculiar to one."""

STATE = """\
You keep the notes of an optimizer that edits an agent's playbook step by step. Bring the notes up to date with this \
step's diagnoses and edits.

ledger: what was changed and why, one line a change, the newest last; keep older lines that still matter.
assessment: entries that work well or poorly, by id, with what shows it.
hypotheses: causes of failure that are suspected and not yet confirmed; drop those that were settled.
phase: exploratory while new kinds of failure turn up; convergent when only small corrections remain."""
