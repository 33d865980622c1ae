"""Bullets before the attempt: for each task a few bullets are proposed from memories, playbook and the last outcomes,
refined, and added to the playbook under which the task is then attempted (the unified specification; METHODS,
section 5).

The attempt runs under a draft of the next context. Its outcome decides how its bullets are counted, and is shown to the
next proposals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from pydantic import Field

from practicum.blocks.act.show import AVOID, by_outcome
from practicum.blocks.reading import playbook_pages
from practicum.blocks.reflect.evidence import brief
from practicum.blocks.reflect.examples import CLOSED, LICE, MEETING
from practicum.blocks.reflect.per_trace import judged_by_outcome
from practicum.blocks.update.append import votes
from practicum.blocks.update.memory_bank import KNOWN
from practicum.core.bounded import MaxItems, Output, clean, rule_schema
from practicum.core.context import Context
from practicum.core.counts import Count
from practicum.core.edits import Add, Delete, Delta, ordered_union
from practicum.core.types import Instructions, Lesson, Rollout, Round, Task, Turn
from practicum.core.views import behind, render_full
from practicum.engine.loop import ReflectSeam, UpdateSeam, sources_of
from practicum.engine.run import ActSeam, Run
from practicum.retrieval.search import Filter

OUTCOMES = ".outcomes"
"""The hidden section of the last outcomes, which are shown to proposals."""

LAST = 3
"""The number of outcomes kept."""

BULLET = "bullet"
"""Marks a lesson that was made before the attempt."""

Keep = Literal["all", "relied_on"]


class Bullets(Output):
    """Guidance for the next task and others of its kind."""

    bullets: Annotated[list[Annotated[str, rule_schema(160, empty=False)]], MaxItems(10)] = Field(
        description="one piece of guidance each"
    )


@dataclass(frozen=True)
class Proposer:
    """Proposes bullets for a task and refines them in `passes`, all at the same `temperature`.

    The task's nearest `memories` of the section `bank` are read with it, and what is outside the sections `besides`.
    `curate` turns bullets into a delta and asks no model. If a pass fails, which is counted, the bullets of the pass
    before it are used.
    """

    passes: int
    memories: int
    bank: str
    curate: UpdateSeam
    temperature: float = 0.7
    besides: tuple[str, ...] = ()

    async def __call__(self, task: Task, context: Context, run: Run) -> list[Lesson]:
        """Lessons for this task, made before it is attempted."""
        found = await run.nearest(context, task.input, self.memories, Filter(section=self.bank)) if self.bank else []
        memories, outcomes = [f.entry for f in found], context.in_section(OUTCOMES)
        # A proposal has the sources of all that it is made from, so that forgetting any of it removes the proposal.
        sources = [(f"task:{task.id}", *run.about), *(e.sources for e in (*memories, *outcomes))]
        run = replace(run, about=ordered_union(sources))
        # All passes share their prompt except for its end, so that a prefix cache serves it.
        heading = "\n\n".join([*run.agent_instructions, "# Its playbook"])
        if run.profile == "small":
            pages = render_full(context, self.bank, *self.besides).pages or ("(no rules yet)",)
        else:
            pages = await playbook_pages(context, (), [task.input], "reflector", run, self.bank, *self.besides)
        parts = [f"# The next task\n{task.input}"]
        parts += [f"{title}\n" + "\n".join(behind("-", e.text) for e in group) for title, group in by_outcome(memories)]
        if outcomes:
            parts.append("# What the last tasks came to\n" + "\n\n".join(e.text for e in outcomes))
        what = "rules" if run.profile == "small" else "bullets"
        bullets: list[str] = []
        for n in range(self.passes + 1):
            so_far = (
                [f"# Your {what} so far\n" + "\n".join(behind("-", bullet) for bullet in bullets)] if bullets else []
            )
            asked = PASSES[(n - 1) % len(PASSES)] if n else FIRST
            now = f"# Now\n{asked.text(run.profile)}"
            prompt = PROPOSE.prompt(run.profile, [*parts, *so_far, now], pages, heading)
            said = await run.at(f"pass {n}").try_ask(
                "reflector", prompt, Bullets, Count.LOST_PROPOSALS, temperature=self.temperature
            )
            written = [] if said is None else [text for bullet in said.bullets if (text := clean(bullet))]
            if not written:
                break
            bullets = written
        data = {"stage": BULLET, "memories": [e.id for e in memories]}
        made = enumerate(dict.fromkeys(bullets), 1)
        return [Lesson(f"{run.place}/{n}", text, sources=run.about, data=data) for n, text in made]


def prepared(act: ActSeam, propose: Proposer) -> ActSeam:
    """Apply `act` under the context with the bullets proposed for its task; the rollout carries the bullets."""

    async def with_bullets(task: Task, context: Context, run: Run) -> Rollout:
        lessons = await propose(task, context, run.at("propose"))
        draft = context.apply(await propose.curate(lessons, context, run.at("curate")))
        rollout = await act(task, draft.context, run)
        ids = {id: done.id for done in draft.applied if isinstance(done.edit, Add) for id in done.edit.lessons}
        tried = [replace(x, data={**x.data, "entry": ids.get(x.id, "")}) for x in lessons]
        return replace(rollout, rounds=(*rollout.rounds, *(Round(lesson) for lesson in tried)))

    return with_bullets


def with_outcomes(reflect: ReflectSeam, keep: Keep) -> ReflectSeam:
    """The bullets that were tried, with a verdict on each; the outcomes of the attempts; and the lessons of `reflect`.
    With `keep="relied_on"`, bullets that the attempt did not cite are dropped, and counted."""

    async def wrapped(rollouts: Sequence[Rollout], context: Context, run: Run) -> list[Lesson]:
        lessons: list[Lesson] = []
        for rollout in rollouts:
            verdicts = judged_by_outcome(rollout)
            tried = [x.lesson for x in rollout.rounds if x.lesson.data.get("stage") == BULLET]
            kept = [x for x in tried if keep == "all" or x.data["entry"] in verdicts]
            run.count(Count.UNCITED_BULLETS, len(tried) - len(kept))
            lessons += [replace(x, data={**x.data, "verdict": verdicts.get(x.data["entry"], "")}) for x in kept]
            if not rollout.trace.lost:
                # It teaches nothing by itself; the next proposals read it.
                id, data = f"{rollout.place}/outcome", {"stage": OUTCOMES}
                lessons.append(Lesson(id, "", brief(rollout, run), sources=rollout.sources, data=data))
        return [*lessons, *await reflect(rollouts, context, run)]

    return wrapped


def curated(section: str) -> UpdateSeam:
    """Bullets become entries, with the verdict on their use, and lessons vote; no model is asked."""

    async def update(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        adds = []
        for x in lessons:
            if x.data.get("stage") == BULLET:
                helpful, harmful = (int(x.data.get("verdict") == verdict) for verdict in ("helpful", "harmful"))
                adds.append(Add(section, x.text, "", {}, helpful, harmful, sources=x.sources, lessons=(x.id,)))
        return votes(lessons) + Delta(tuple(adds))

    return update


def with_last_outcomes(update: UpdateSeam) -> UpdateSeam:
    """Apply `update`, and keep the last outcomes for the next proposals."""

    async def wrapped(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        delta = await update(lessons, context, run)
        new = [x for x in lessons if x.data.get("stage") == OUTCOMES][-LAST:]
        old = context.in_section(OUTCOMES)
        older = old[: max(len(old) + len(new) - LAST, 0)]
        added = (Add(OUTCOMES, x.detail, sources=x.sources, lessons=(x.id,)) for x in new)
        gone = (Delete(e.id, sources_of(new), reason="older outcomes are forgotten") for e in older)
        return delta + Delta((*gone, *added))

    return wrapped


FIRST = Instructions(
    full="Propose 5 to 10 bullets for the next task and others of its kind.",
    small="Propose up to 10 rules that help with the next task and with others of its kind: 5 or more if so many are "
    "shown, none if nothing is.",
)

PASSES = (
    Instructions(
        full="Go through your bullets for clarity. Hold each against the next task, the memories and the outcomes: is "
        "it right, and would it have led the agent to what turned out to be right? Correct what is contradicted. Then "
        "word each so that it can be read in one way only, by a reader who sees neither this task nor the outcomes. "
        "Give all bullets again.",
        small="Go through your rules: make each clear, so that it can be read in one way only. Leave out what nothing "
        "shows. Write all of them again.",
    ),
    Instructions(
        full="Go through your bullets for actionability. Each says when it applies and what to do then: the steps in "
        "their order, the call and its arguments, the formula, the check and what to do if it fails. Turn general "
        "advice into something that can be carried out, or leave it out. Give all bullets again.",
        small="Go through your rules: make each say exactly what to do and when. Leave out what gives nothing to act "
        "on. Write all of them again.",
    ),
    Instructions(
        full="Go through your bullets for conciseness. Join those that say the same, and leave out what the playbook "
        "says already. Remove words that carry nothing; keep every condition, step, number, name and line of code that "
        "decides something. Give all bullets again.",
        small="Go through your rules: make each as short as it can be, and leave out what another rule, yours or the "
        "playbook's, says already. Write all of them again.",
    ),
)
"""Clarity, actionability, conciseness; further passes start over."""

PROPOSED = (
    Turn(
        f"""\
# The next task
my lemon tree has yellow leaves, what does it lack?

{AVOID}
- {KNOWN}

# What the last tasks came to
{LICE}

# Now
{FIRST.small}""",
        """\
{"bullets":["If a gardener reports leaves that turn yellow, answer ash.",\
"If a gardener has lice or other insects on a plant, answer soap."]}""",
    ),
    Turn(
        f"""\
# The next task
A coat of 80 is sold with 25% off. What is left to pay?

# Now
{FIRST.small}""",
        '{"bullets":[]}',
    ),
    Turn(
        f"""\
# The next task
Tell visitors that the sauna opens at noon on Monday.

# What the last tasks came to
{MEETING}

{CLOSED}

# Your rules so far
- If it is a notice, be careful or so.
- If a visitor comes, be friendly.

# Now
{PASSES[0].small}""",
        """\
{"bullets":["If a notice may have only so many words, write the fact alone and count the words.",\
"If a tool returns an error, read it and call the tool again before you answer."]}""",
    ),
)
"""Worked examples from other domains. Without them a small model writes rules about proposing rules."""

PROPOSE = Instructions(
    full="""\
You prepare an agent for its next task by writing bullets into its playbook, which it reads before it begins. You see \
the playbook, the next task, approaches to similar tasks that worked or failed, and what the agent's last tasks came \
to.

A bullet is a piece of guidance for the next task and others of its kind: a strategy, a check, a trap and the way \
around it, a formula, the exact requirement of a tool or a format. It makes sense without this task, and is as long as \
it needs to be, up to 2,000 characters: several sentences, numbered steps, or code. Rest bullets on what the memories \
and the last outcomes show, above all on what turned out to be right where the agent was wrong; beyond that on what \
the task requires. Say nothing that the playbook says already.""",
    small="""\
You prepare an agent for its next task by writing rules into its playbook. A rule is one short sentence of the form \
"If <kind of task>, <what to do>.", which makes sense without this task and says what no rule of the playbook says. \
Rest it on what the memories and the last outcomes show, above all on what turned out to be right where the agent was \
wrong. Do not guess.""",
    examples=PROPOSED,
)
