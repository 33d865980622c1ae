"""Optimization primitives of RCL, each a setting, in any combination (Reflective Context Learning, section 3; METHODS,
section 3).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from practicum.core.clashes import ON, Clash, needs
from practicum.core.types import Instructions
from practicum.engine.loop import Method
from practicum.methods.adaptive import Choice, switching
from practicum.methods.blocks.attempt import annotated_twin, grouped
from practicum.methods.blocks.heads import AT_ONCE, Heads, batched
from practicum.methods.blocks.notes import with_state
from practicum.methods.blocks.reflect import Reflector, chosen, per_trace
from practicum.methods.blocks.sample import replayed
from practicum.methods.blocks.show import annotated_view, answer, reused
from practicum.methods.settings import Batched, Number, PlaybookSettings, number_or
from practicum.methods.worked_examples import AT_A_TIME, DIAGNOSED, NOTED

Attempted = Annotated[
    Literal["auto"] | Number | None, BeforeValidator(lambda x: None if x == "none" else x), number_or("auto, none")
]
"""Number of tasks that a step attempts: a number, "auto", or None. None and the text "none" mean `batch` tasks."""

REFLECTS_ONCE = (
    "with group, twin, heads, attempted, reflection=batched or primitives=adaptive, reflection begins after all runs "
    "of a step: leave out {names}"
)


class PrimitiveSettings(PlaybookSettings, Batched):
    """Settings of the primitives, all off by default."""

    batch: int = Field(default=1, ge=1)
    """The number of tasks that a step attempts at once; with `attempted`: the number of failures that a step reflects
    on."""
    merge: bool = True
    """Whether the curator may merge entries; RCL's curator only adds, updates and deletes (section 3)."""
    guards: bool = False
    """Hold back an edit that would lose a number, a name or an answer of a rule, and add the lesson behind the edit
    unchanged."""
    group: int = Field(default=1, ge=1)
    """The number of runs of each task under the same context; a failed run is reflected on together with a successful
    run of the same task (section 3.1)."""
    twin: bool = False
    """Run each task once more, with a request to note how each entry was used (section 3.2)."""
    heads: bool = False
    """Reflect on a failure by three heads: failure attribution, root cause, coverage gap (section 3.3)."""
    head_calls: Literal["three", "one"] = "three"
    """heads: three: one call for each head, concurrently; one: a single structured call for all heads."""
    gated_heads: bool = False
    """heads: true: learn nothing from a failure that was due to chance, or that no guidance could prevent; false: the
    curator reads the attribution of the failure, and decides whether to learn from it."""
    reflection: Literal["per_trace", "batched"] = "per_trace"
    """per_trace: reflect on each attempt by itself; batched: reflect on all attempts of a step in one call (section
    4.7)."""
    attempted: Attempted = None
    """The number of tasks that a step attempts, at least `batch`; auto: enough tasks to make `batch` failures likely;
    none: `batch` tasks."""
    replay: float = Field(default=0.0, ge=0, le=1)
    """The share of attempted tasks that is drawn from tasks that failed before (section 3.4)."""
    graduate: int = Field(default=3, ge=1)
    """replay: the number of passes in a row after which a task counts as learned, and leaves the replay."""
    evict: int = Field(default=3, ge=1)
    """replay: the number of failures in a row, each reflected on, after which a task counts as intractable, and leaves
    the replay."""
    state: bool = False
    """Keep a document of changes, assessments and hypotheses, and show it to the curator (section 3.5)."""
    state_tokens: int = Field(default=800, ge=100)
    """state: the maximum number of tokens of the document."""
    primitives: Literal["given", "adaptive"] = "given"
    """given: use the primitives that are set; adaptive: use groups, twin, heads and state in steps where the results so
    far suggest that they help."""

    SMALL: ClassVar[Mapping[str, Any]] = {**PlaybookSettings.SMALL, "guards": True, "gated_heads": True}

    ONE_TASK: ClassVar[Mapping[str, Any]] = {**PlaybookSettings.ONE_TASK, "replay": 0.0, "attempted": "none"}

    CLASHES: ClassVar[tuple[Clash, ...]] = (
        Clash({"whole_step": True}, REFLECTS_ONCE, ("refine",)),
        Clash({"whole_step": True, "rounds": ON}, REFLECTS_ONCE, ("rounds",)),
        Clash({"whole_step": True, "lessons": "confirmed"}, REFLECTS_ONCE, ("lessons",)),
        Clash(
            {"primitives": "adaptive"}, "primitives=adaptive chooses {names}: leave out {names}",
            ("group", "twin", "heads", "state"),
        ),
        Clash(
            lambda s: s.reflection == "batched" or not s.reflector or s.curating == "append",
            "primitives=adaptive needs a reflector of single attempts and a curator that asks a model: leave out "
            "reflection=batched, reflector=false and curator=append", unless={"primitives": "given"},
        ),
        Clash(
            {"heads": True, "reflection": "batched"},
            "heads=true reflects on each attempt by itself, reflection=batched on all attempts at once: set only one",
        ),
        Clash(
            lambda s: not s.reflector and (s.group > 1 or s.twin or s.heads or s.reflection == "batched"),
            "group, twin, heads and batched reflection need a reflector: leave out reflector=false",
        ),
        Clash(
            lambda s: not s.rules_shown and (s.heads or s.reflection == "batched" or s.primitives == "adaptive"),
            "heads, reflection=batched and primitives=adaptive read the rules: leave out rules_shown=false",
            ("rules_shown",),
        ),
        Clash(
            {"reflection": "batched", "batch": lambda n: n > AT_ONCE},
            f"reflection=batched reads at most {AT_ONCE} attempts at once: lower batch={{s.batch}}",
        ),
        needs("head_calls", "gated_heads", heads=True, primitives="adaptive"),
        Clash({}, "{names} needs curator=edits", ("guards", "merge"), unless={"curating": "edits"}),
        needs("graduate", "evict", replay=ON),
        needs("state_tokens", state=True, primitives="adaptive"),
        Clash({"state": True, "curating": "append"}, "state needs a model as curator: leave out curator=append"),
        Clash(
            lambda s: s.online and (s.replay > 0 or s.attempted is not None),
            "a stream has a fixed order: leave out replay and attempted (replay=0, attempted=none)",
        ),
        Clash(
            lambda s: isinstance(s.attempted, int) and s.attempted < s.batch,
            "attempted={s.attempted} is less than the {s.batch} failures to reflect on: raise attempted or lower batch",
        ),
    )  # fmt: skip

    @property
    def whole_step(self) -> bool:
        """Whether reflection needs all runs of a step, so that it begins only after the last run ends."""
        batched = self.reflection == "batched" or self.attempted is not None
        return self.group > 1 or self.twin or self.heads or batched or self.primitives == "adaptive"

    @property
    def curating(self) -> Literal["edits", "append", "rewrite"]:
        """Kind of update that turns lessons into edits (see the setting `curator`). The state needs a curator that asks
        a model: with `state` or `primitives=adaptive`, a default of `append` becomes `edits`."""
        decides = self.state or self.primitives == "adaptive"
        return "edits" if decides and self.curator == "append" and not self.were_set("curator") else self.curator


def with_primitives(
    s: PrimitiveSettings, build: Callable[[PrimitiveSettings], Method],
    reflector: Callable[[PrimitiveSettings], Reflector], instructions: Instructions,
) -> Method:  # fmt: skip
    """Apply the primitives that are on, or that adaptive choice turns on, to the method that `build` makes. `reflector`
    makes the reflector of single attempts, and `instructions` are the instructions of this reflector."""

    def fixed(s: PrimitiveSettings) -> Method:
        method = build(s)
        if s.replay or s.attempted is not None:
            sample = replayed(s.epochs, s.batch, s.replay, s.attempted, s.graduate, s.evict)
            method = replace(method, sample=sample)
        # The attempts of a group and the annotated attempt run concurrently. `reused` takes an earlier attempt at the
        # same task, as long as the context stays the same.
        if s.group > 1:
            method = replace(method, attempt=grouped(method.attempt, s.group))
        if s.twin:
            method = replace(method, attempt=annotated_twin(method.attempt, reused(TWIN)))
        if s.heads:
            one_call = s.head_calls == "one"
            heads = Heads(CASE, (ATTRIBUTION, ROOT_CAUSE, GAP), reflector(s), s.gated_heads, one_call, DIAGNOSED)
            method = replace(method, reflect=per_trace(heads, s.learn_from))
        if s.reflection == "batched":
            of_many = Instructions(
                f"{instructions.full}\n\n{SEVERAL}", f"{instructions.small}\n\n{SEVERAL}", (AT_A_TIME,)
            )
            method = replace(method, reflect=batched(of_many, s.learn_from))
        if s.attempted is not None:
            method = replace(method, reflect=chosen(method.reflect, s.batch))
        if s.state:
            update = with_state(method.update, STATE, s.state_tokens)
            method = replace(method, update=update, roles=(*method.roles, "state"))
        return method

    def choose(choice: Choice) -> Method:
        on = {**asdict(choice), "group": GROUP if choice.group else 1, "primitives": "given", "rounds": 0}
        return fixed(s.model_copy(update=on))

    return fixed(s) if s.primitives == "given" else switching(choose(Choice(True, True, True, True)), choose)


GROUP = 3
"""primitives=adaptive: number of attempts of a group, when groups are used."""

TWIN = answer(annotated_view)
"""Act of the twin: the agent also notes how it used each entry."""

CASE = Instructions(
    full="""\
You study one failed attempt of an agent at a task. The agent keeps a playbook: entries with ids, in sections, which \
it reads before each task. You see the playbook, the whole attempt and the feedback on it. Where there is another \
attempt at the same task that succeeded, look for what the two did differently: that is what mattered. Where there \
is another run in which the agent noted what it made of the playbook, its notes say which entries it consulted, \
doubted or missed. The outcome of that run is not shown, since the notes change what an agent does.""",
    small="""\
You review one attempt of an agent that failed. The agent keeps a playbook of short rules. Where there is another \
attempt at the same task that succeeded, what they did differently is what matters. Where there are the agent's notes \
from another run, they tell which rules it consulted, doubted or missed.""",
)

ATTRIBUTION = Instructions(
    full="""\
Say what the failure comes from.
actionable_gap: with better guidance the agent would have succeeded. The guidance is missing, unclear, wrong, or hard \
to find where it is needed.
execution_variance: the playbook says what to do, and the agent did not do it this time; another try may succeed.
intractable: no guidance would have helped, because the task asks for what the agent cannot know or do.
evidence comes first: what in the attempt decides it, with the entries that say what to do, if any do.""",
    small="""\
Say what the failure comes from. actionable_gap: with the right rule the agent would have got it right; that rule is \
missing, unclear or wrong. execution_variance: the rules say what to do, and the agent did not do it this time; \
another try may well succeed. intractable: even the best rule would not have helped, since the task asks for what the \
agent cannot know or do at all.
First name what in the attempt decides it.""",
)

ROOT_CAUSE = Instructions(
    full="""\
cause: the first step that went wrong, and why the agent took it: what it believed, overlooked or misread. Leave out \
what followed from it.
tags: a verdict on each entry that the agent used: helpful, harmful (it led to the mistake) or neutral.""",
    small="""\
cause: the first step that went wrong, and why the agent took it. Not what happened afterwards.
tags: for each rule the agent relied on, whether it was helpful, harmful (it led to the mistake) or neutral.""",
)

GAP = Instructions(
    full="""\
Compare what the attempt needed with what the playbook says.
gap: what no entry says, what an entry says wrongly or too vaguely, or an entry that the agent should have used and \
did not use, with its id and why it was passed over.
correction: the correct approach, concretely: the steps, formulas, calls or code that it takes.
insights: what closes the gap, each with the section it belongs to; none if there is no gap. An insight stands by \
itself: a reader who has not seen this task can act on it. Let it be as long as it needs to be, up to 2,000 \
characters, with steps, formulas or code where they help. Keep the details that decide an outcome; \
leave out what holds for this one task only.""",
    small="""\
kind: what kind of task this is, by its subject, in general words. Do not quote the task.
gap: what no rule says yet for tasks of this kind, or which rule says it wrongly, in a few words.
insight: the one rule that closes the gap, in one sentence: "If <kind of task>, <what to do or answer>." It also fits \
tasks that say it differently, and no others, and makes sense to a reader who has not seen the task.""",
)

SEVERAL = """\
There are several cases, each with its number. Write one reflection for each, under its number in "attempt". What the \
cases have in common says more than what is peculiar to one."""

STATE = Instructions(
    full="""\
You keep the notes of an optimizer that edits an agent's playbook step by step. Bring the notes up to date with this \
step's diagnoses and edits. Only the optimizer reads them, before its next edits.

ledger: what was changed and why, one line a change, the newest last. Keep older lines that still matter; drop those \
that were settled.
assessment: entries that work well or poorly, by id, with what shows it.
hypotheses: causes of failure that are suspected and not yet confirmed; drop those that were settled.
phase: exploratory while new kinds of failure turn up; convergent when only small corrections remain.""",
    small="""\
You keep the notes of an optimizer that edits an agent's playbook step by step. Bring the notes up to date with this \
step's diagnoses and edits.

ledger: what was changed and why, one line a change, the newest last; keep older lines that still matter.
assessment: entries that work well or poorly, by id, with what shows it.
hypotheses: causes of failure that are suspected and not yet confirmed; drop those that were settled.
phase: exploratory while new kinds of failure turn up; convergent when only small corrections remain.""",
    examples=NOTED,
)
