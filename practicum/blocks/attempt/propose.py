"""Bullets before the attempt: for each query a few are proposed from memories, playbook and the last outcomes, refined,
and added to the playbook under which the query is then attempted (the unified specification; METHODS, section 5).

The attempt runs under a draft of the next context. What it came to decides how its bullets are counted, and is shown to
the next proposals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from pydantic import Field

from practicum.blocks.reflect.evidence import brief
from practicum.blocks.reflect.examples import ATLAS
from practicum.blocks.reflect.per_trace import judged_by_outcome
from practicum.core.bounded import MaxItems, Output, rule_schema
from practicum.core.context import Context
from practicum.core.counts import Count
from practicum.core.edits import Add, Applied, Delete, Delta, Entry, ordered_union
from practicum.core.types import Lesson, Prompt, Rollout, Round, Task, Turn
from practicum.core.views import render_full
from practicum.engine.loop import ReflectSeam, UpdateSeam
from practicum.engine.run import ActSeam, Run
from practicum.retrieval.search import Filter

OUTCOMES = ".outcomes"
"""The hidden section of the last outcomes, which proposals read."""

LAST = 3
"""Outcomes kept."""

BULLET = "bullet"
"""Marks a lesson that was made before the attempt."""

Keep = Literal["all", "relied_on"]


class Bullets(Output):
    """What is proposed for one query."""

    bullets: Annotated[list[Annotated[str, rule_schema(160, empty=False)]], MaxItems(10)] = Field(
        description="one rule each; none where nothing shows any"
    )


@dataclass(frozen=True)
class Proposer:
    """`memories` of the section `bank` are read with each query; `passes` refine what is proposed; `curate` makes the
    delta of it, and asks no model. Of a proposal that fails, which is counted, what there is so far is used."""

    passes: int
    memories: int
    bank: str
    curate: UpdateSeam

    async def __call__(self, task: Task, context: Context, run: Run) -> list[Lesson]:
        """Lessons for this query, made before it is attempted."""
        found = await run.nearest(context, task.input, self.memories, Filter(section=self.bank)) if self.bank else []
        memories, outcomes = [f.entry for f in found], context.in_section(OUTCOMES)
        # What is proposed rests on all that it is made from, so that forgetting any of it takes the proposal along.
        sources = [(f"task:{task.id}", *run.about), *(e.sources for e in (*memories, *outcomes))]
        run = replace(run, about=ordered_union(sources))
        bullets: list[str] = []
        for n in range(self.passes + 1):
            prompt = _prompt(task, context, memories, outcomes, bullets, n, self.bank, run)
            said = await run.at(f"pass {n}").try_ask("reflector", prompt, Bullets, Count.LOST_PROPOSALS)
            if said is None:
                break
            written = [text for bullet in said.bullets if (text := " ".join(bullet.split()))]
            if not written:
                break
            bullets = written
        data = {"stage": BULLET, "memories": [e.id for e in memories]}
        return [
            Lesson(f"{run.place}/{n}", text, sources=run.about, data=data)
            for n, text in enumerate(dict.fromkeys(bullets), 1)
        ]


def prepared(act: ActSeam, propose: Proposer) -> ActSeam:
    """`act` under the context as the bullets proposed for its task make it; the rollout carries them."""

    async def with_bullets(task: Task, context: Context, run: Run) -> Rollout:
        lessons = await propose(task, context, run.at("propose"))
        outcome = context.apply(await propose.curate(lessons, context, run.at("curate")))
        ids = _ids(outcome.applied)
        rollout = await act(task, outcome.context, run)
        told = [replace(x, data={**x.data, "entry": ids.get(x.id, "")}) for x in lessons]
        return replace(rollout, rounds=tuple(Round(lesson) for lesson in told))

    return with_bullets


def _ids(applied: Sequence[Applied]) -> dict[str, str]:
    """The entry each lesson became in the draft."""
    return {lesson: done.id for done in applied if isinstance(done.edit, Add) for lesson in done.edit.lessons}


def with_outcomes(reflect: ReflectSeam, keep: Keep) -> ReflectSeam:
    """The bullets that were tried, with what their use came to; what the attempts came to; and all that `reflect`
    finds. With `keep` relied_on, bullets the attempt did not cite are left out, and counted."""

    async def wrapped(rollouts: Sequence[Rollout], context: Context, run: Run) -> list[Lesson]:
        lessons: list[Lesson] = []
        for rollout in rollouts:
            verdicts = judged_by_outcome(rollout)
            tried = [x.lesson for x in rollout.rounds if x.lesson.data.get("stage") == BULLET]
            kept = [x for x in tried if keep == "all" or x.data["entry"] in verdicts]
            run.count(Count.UNCITED_BULLETS, len(tried) - len(kept))
            lessons += [replace(x, data={**x.data, "verdict": verdicts.get(x.data["entry"], "")}) for x in kept]
            lessons += [] if rollout.trace.lost else [_outcome(rollout)]
        return [*lessons, *await reflect(rollouts, context, run)]

    return wrapped


def _outcome(rollout: Rollout) -> Lesson:
    """What an attempt came to, for the proposals to come; it teaches nothing by itself."""
    return Lesson(f"{rollout.place}/outcome", "", brief(rollout), sources=rollout.sources, data={"stage": OUTCOMES})


def curated(section: str) -> UpdateSeam:
    """Bullets become entries, with what was seen of their use; no model is asked."""

    async def update(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        return Delta(
            tuple(
                Add(
                    section, x.text, sources=x.sources, lessons=(x.id,),
                    helpful=int(x.data.get("verdict") == "helpful"), harmful=int(x.data.get("verdict") == "harmful"),
                )
                for x in lessons
                if x.data.get("stage") == BULLET
            )
        )  # fmt: skip

    return update


def with_last_outcomes(update: UpdateSeam) -> UpdateSeam:
    """`update`, and the last outcomes kept where the next proposals find them."""

    async def wrapped(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        delta = await update(lessons, context, run)
        new = [x for x in lessons if x.data.get("stage") == OUTCOMES][-LAST:]
        old = context.in_section(OUTCOMES)
        gone = old[: max(len(old) + len(new) - LAST, 0)]
        added = (Add(OUTCOMES, x.detail, sources=x.sources, lessons=(x.id,)) for x in new)
        return delta + Delta((*(Delete(e.id, reason="older outcomes are forgotten") for e in gone), *added))

    return wrapped


def _prompt(
    task: Task, context: Context, memories: Sequence[Entry], outcomes: Sequence[Entry], bullets: Sequence[str],
    turn: int, bank: str, run: Run,
) -> Prompt:  # fmt: skip
    """The same for all passes but for its end, so that a prefix cache serves it."""
    parts = [f"# The next task\n{task.input}"]
    if memories:
        parts.append("# Memories of similar tasks\n" + "\n".join(e.text for e in memories))
    if outcomes:
        parts.append("# What the last tasks came to\n" + "\n\n".join(e.text for e in outcomes))
    if bullets:
        parts.append("# Your rules so far\n" + "\n".join(f"- {bullet}" for bullet in bullets))
    parts.append("# Now\n" + (PASSES[(turn - 1) % len(PASSES)] if turn else FIRST))
    pages = render_full(context, without=bank).pages or ("(no rules yet)",)
    system = "\n\n".join([PROPOSE, *run.agent_instructions, "# Its playbook"])
    return Prompt(system, "\n\n".join(parts), pages, turns=PROPOSED)


PROPOSE = """\
You prepare an agent for its next task by writing rules into its playbook. A rule is one short sentence of the form \
"If <kind of task>, <what to do>.", which makes sense without this task and says what no rule of the playbook says. \
Rest it on what the memories and the last outcomes show, above all on what turned out to be right where the agent was \
wrong. Do not guess."""

FIRST = (
    "Propose up to 10 rules that help with the next task and with others of its kind: 5 or more if so many are shown, "
    "none if nothing is."
)

PASSES = (
    "Go through your rules: make each clear, so that it can be read in one way only. Leave out what nothing shows. "
    "Write all of them again.",
    "Go through your rules: make each say exactly what to do and when. Leave out what gives nothing to act on. "
    "Write all of them again.",
    "Go through your rules: make each as short as it can be, and leave out what another rule, yours or the "
    "playbook's, says already. Write all of them again.",
)
"""Clarity, actionability, conciseness; further passes begin again."""

PROPOSED = (
    Turn(
        f"""\
# The next task
the printer on the second floor eats my paper

# Memories of similar tasks
Failed approach (avoid): a lamp that does not work (A visitor reports that a lamp or other equipment does not work). \
If something in the building does not work, answer Blue. Red is wrong for it.

# What the last tasks came to
{ATLAS}

# Now
{FIRST}""",
        """\
{"bullets":["If a visitor reports that something in the building does not work, answer Blue.",\
"If a visitor wants to keep a book longer, answer Green."]}""",
    ),
    Turn(
        f"""\
# The next task
A coat of 80 is sold with 25% off. What is left to pay?

# Now
{FIRST}""",
        '{"bullets":[]}',
    ),
    Turn(
        f"""\
# The next task
the lift makes a strange noise

# What the last tasks came to
Task: the printer on the second floor eats my paper
Answer: Blue
Feedback: The answer is right.

# Your rules so far
- If it is about the building or so, it may be Blue.
- If a visitor comes, be friendly.

# Now
{PASSES[0]}""",
        '{"bullets":["If a visitor reports that something in the building does not work, answer Blue."]}',
    ),
)
"""Worked examples from elsewhere. Without them a small model writes rules about how rules are proposed."""
