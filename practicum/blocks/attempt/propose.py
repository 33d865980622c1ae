"""Bullets before the attempt: for each task a delta of 5 to 10 bullets is proposed from memories, playbook and the last
outcomes, refined, and added to the playbook under which the task is then attempted (the unified specification; METHODS,
section 5).

The attempt runs under a draft of the next context. Its outcome decides how its bullets are counted, and is shown to the
next proposals.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import Field, create_model

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
from practicum.core.edits import Add, Delete, Delta, Entry, ordered_union
from practicum.core.types import Instructions, Lesson, Profile, Prompt, Rollout, Round, Task, Turn
from practicum.core.views import behind, render_full
from practicum.core.words import quantity
from practicum.engine.loop import ReflectSeam, UpdateSeam, sources_of
from practicum.engine.run import ActSeam, Run
from practicum.retrieval.search import Filter

OUTCOMES = ".outcomes"
"""The hidden section of the last outcomes, which are shown to proposals."""

BULLET = "bullet"
"""Marks a lesson that was made before the attempt."""

Keep = Literal["all", "relied_on"]


class Bullets(Output):
    """Guidance for the next task and others of its kind."""

    bullets: Sequence[str]


@cache
def form(most: int) -> type[Bullets]:
    """The form of a proposal of up to `most` bullets. Validation accepts more, so that they can be dropped."""
    bullets: Any = Annotated[list[Annotated[str, rule_schema(160, empty=False)]], MaxItems(most)]
    text = Field(description="one piece of guidance each")
    return create_model("Bullets", __base__=Bullets, bullets=(bullets, text))


@dataclass(frozen=True, kw_only=True)
class Proposer:
    """Proposes a delta of `least` to `most` bullets for a task and refines it in `passes`, all at the same
    `temperature`.

    It reads the task's nearest `memories` of the section `bank`, the last `outcomes`, and the playbook without the
    sections `besides`. `curate` turns bullets into a delta and asks no model.

    Bullets beyond `most` are dropped from the proposal and from each pass. A proposal with fewer than `least` is
    requested once more. What is dropped is counted, and so is a delta that ends with fewer than `least`. If a pass
    fails, which is counted, the bullets of the pass before it are used.
    """

    passes: int
    memories: int
    bank: str
    curate: UpdateSeam
    least: int
    most: int
    outcomes: int
    temperature: float = 0.7
    besides: tuple[str, ...] = ()

    async def __call__(self, task: Task, context: Context, run: Run) -> list[Lesson]:
        """Lessons for this task, made before it is attempted."""
        found = await run.nearest(context, task.input, self.memories, Filter(section=self.bank)) if self.bank else []
        memories, outcomes = [f.entry for f in found], last_of(context, self.outcomes)
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

        def prompt(request: str, bullets: Sequence[str]) -> Prompt:
            what = "rules" if run.profile == "small" else "bullets"
            listed = [f"# Your {what} so far\n" + "\n".join(behind("-", bullet) for bullet in bullets)]
            end = [*(listed if bullets else []), f"# Now\n{request}"]
            return proposing(self.least, self.most).prompt(run.profile, [*parts, *end], pages, heading)

        data = {"stage": BULLET, "memories": [e.id for e in memories]}
        made = enumerate(await self._delta(prompt, run), 1)
        return [Lesson(f"{run.place}/{n}", text, sources=run.about, data=data) for n, text in made]

    async def _delta(self, prompt: Callable[[str, Sequence[str]], Prompt], run: Run) -> list[str]:
        """The bullets of the proposal, after all passes. `prompt` takes a request and the bullets so far."""
        first = requested(self.least, self.most).text(run.profile)
        bullets = await self._asked(prompt(first, []), run.at("pass 0"))
        if bullets is None:
            return []
        if len(bullets) < self.least:
            request = f"{first} {too_few(len(bullets), self.least, self.most, run.profile)}"
            further = await self._asked(prompt(request, bullets), run.at("again"))
            bullets = max(further or [], bullets, key=len)
        for n in range(1, self.passes + 1 if bullets else 1):
            request = refinements(self.most)[min(n, 3) - 1].text(run.profile)
            refined = await self._asked(prompt(request, bullets), run.at(f"pass {n}"))
            if not refined:
                break
            bullets = refined
        run.count(Count.SHORT_DELTAS, len(bullets) < self.least)
        return bullets

    async def _asked(self, prompt: Prompt, run: Run) -> list[str] | None:
        """The bullets of one answer, each once, without those beyond `most`; None if the call fails."""
        answer = await run.try_ask(
            "reflector", prompt, form(self.most), Count.LOST_PROPOSALS, temperature=self.temperature
        )
        if answer is None:
            return None
        bullets = [*dict.fromkeys(text for bullet in answer.bullets if (text := clean(bullet)))]
        run.count(Count.EXCESS_BULLETS, max(len(bullets) - self.most, 0))
        return bullets[: self.most]


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


def with_outcomes(reflect: ReflectSeam, keep: Keep, last: int) -> ReflectSeam:
    """The bullets that were tried, with a verdict on each; the outcomes of the attempts, unless `last` is 0; and the
    lessons of `reflect`. With `keep="relied_on"`, bullets that the attempt did not cite are dropped, and counted."""

    async def wrapped(rollouts: Sequence[Rollout], context: Context, run: Run) -> list[Lesson]:
        lessons: list[Lesson] = []
        for rollout in rollouts:
            verdicts = judged_by_outcome(rollout)
            tried = [x.lesson for x in rollout.rounds if x.lesson.data.get("stage") == BULLET]
            kept = [x for x in tried if keep == "all" or x.data["entry"] in verdicts]
            run.count(Count.UNCITED_BULLETS, len(tried) - len(kept))
            lessons += [replace(x, data={**x.data, "verdict": verdicts.get(x.data["entry"], "")}) for x in kept]
            if last and not rollout.trace.lost:
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


def last_of(context: Context, last: int) -> tuple[Entry, ...]:
    """The `last` outcomes that are kept, the oldest first."""
    outcomes = context.in_section(OUTCOMES)
    return tuple(outcomes[max(len(outcomes) - last, 0) :])


def with_last_outcomes(update: UpdateSeam, last: int) -> UpdateSeam:
    """Apply `update`, and keep the `last` outcomes for the next proposals."""

    async def wrapped(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        delta = await update(lessons, context, run)
        new = [x for x in lessons if x.data.get("stage") == OUTCOMES]
        new = new[max(len(new) - last, 0) :]
        kept = {e.id for e in last_of(context, max(last - len(new), 0))}
        added = (Add(OUTCOMES, x.detail, sources=x.sources, lessons=(x.id,)) for x in new)
        sources = sources_of(new or lessons)
        older = (e for e in context.in_section(OUTCOMES) if e.id not in kept)
        gone = (Delete(e.id, sources, reason="older outcomes are forgotten") for e in older)
        return delta + Delta((*gone, *added))

    return wrapped


def requested(least: int, most: int) -> Instructions:
    """The request for a proposal of `least` to `most` bullets."""
    how_many = f"at least {least} if so many are shown" if least else "as many as rest on what is shown"
    rules = _number(0, most, "rule")
    return Instructions(
        full=f"Propose {_number(least, most, 'bullet')} for the next task and others of its kind.",
        small=f"Propose {rules} that help with the next task and with others of its kind: {how_many}, "
        "none if nothing is.",
    )


def too_few(given: int, least: int, most: int, profile: Profile) -> str:
    """The line that is added when a proposal with too few bullets is requested again."""
    what = "rule" if profile == "small" else "bullet"
    return (
        f"You gave {quantity(given, what)}. Keep what you gave, and add what else helps with such tasks: "
        f"{_number(least, most, what)} in all."
    )


def _number(least: int, most: int, what: str) -> str:
    exact = quantity(most, what)
    return exact if least == most else f"{least} to {exact}" if least else f"up to {exact}"


@cache
def refinements(most: int) -> tuple[Instructions, Instructions, Instructions]:
    """The requests of the passes over up to `most` bullets: clarity, actionability, and for the third and every later
    pass non-redundancy and conciseness (the specification's epoch 3+)."""
    full, small = f"Give all bullets again, at most {most}.", f"Write all of them again, at most {most}."
    return (
        Instructions(
            full="Go through your bullets for clarity. Hold each against the next task, the memories and the outcomes: "
            "is it right, and would it have led the agent to what turned out to be right? Correct what is "
            "contradicted. Then word each so that it can be read in one way only, by a reader who sees neither this "
            f"task nor the outcomes. {full}",
            small="Go through your rules: make each clear, so that it can be read in one way only. Leave out what "
            f"nothing shows. {small}",
        ),
        Instructions(
            full="Go through your bullets for actionability. Each says when it applies and what to do then: the steps "
            "in their order, the call and its arguments, the formula, the check and what to do if it fails. Turn "
            f"general advice into something that can be carried out, or leave it out. {full}",
            small="Go through your rules: make each say exactly what to do and when. Leave out what gives nothing to "
            f"act on. {small}",
        ),
        Instructions(
            full="Go through your bullets for non-redundancy and conciseness. Join those that say the same, and leave "
            "out what the playbook says already. Remove words that carry nothing; keep every condition, step, number, "
            f"name and line of code that decides something. {full}",
            small="Go through your rules: make each as short as it can be, and leave out what another rule, yours or "
            f"the playbook's, says already. {small}",
        ),
    )


@cache
def proposing(least: int, most: int) -> Instructions:
    """The instructions of a proposal of `least` to `most` bullets, with worked examples from other domains. Without
    them a small model writes rules about proposing rules."""
    first, clarity = requested(least, most).small, refinements(most)[0].small

    def answer(*rules: str) -> str:
        return json.dumps({"bullets": rules[:most]}, separators=(",", ":"))

    leaves = Turn(
        f"""\
# The next task
my lemon tree has yellow leaves, what does it lack?

{AVOID}
- {KNOWN}

# What the last tasks came to
{LICE}

# Now
{first}""",
        answer(
            "If a gardener reports leaves that turn yellow, answer ash.",
            "If a gardener has lice or other insects on a plant, answer soap.",
        ),
    )
    coat = Turn(
        f"""\
# The next task
A coat of 80 is sold with 25% off. What is left to pay?

# Now
{first}""",
        answer(),
    )
    sauna = Turn(
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
{clarity}""",
        answer(
            "If a notice may have only so many words, write the fact alone and count the words.",
            "If a tool returns an error, read it and call the tool again before you answer.",
        ),
    )
    return replace(PROPOSE, examples=(leaves, coat, sauna))


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
)
