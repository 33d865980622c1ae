"""ReasoningBank and ACE in one closed loop, with solved tasks: rules, memories and the most similar solved tasks are
each shown only if they help (METHODS, section 5).

Memories inform the bullets (rules that are proposed before an attempt), bullets guide the attempts, attempts enrich the
memories, outcomes refine memories and bullets. Deviations: rules, memories and solved tasks are sections of one
context, so that versions, forgetting and budgets apply to all; evaluation shows the learned context and proposes no new
bullets, because evaluation must not change the context; solved tasks, and the comparisons that decide whether rules,
memories and solved tasks are shown, are practicum's additions. Small models write rules about their failures, as in
ACE, since bullets that they propose before an attempt are guesses. Without memory, scaling and examples the method is
ACE in the form that the specification defines: bullets before the attempt. `preset=specification` is the
specification's learner without practicum's additions."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import sqrt
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, create_model

from practicum.core.bounded import MaxItems, Output, clean, rule_schema
from practicum.core.clashes import ON, Clash, needs
from practicum.core.context import Context
from practicum.core.counts import Count
from practicum.core.edits import Add, Delete, Delta, Edit, Entry, Vote, ordered_union
from practicum.core.types import Attempt, Instructions, Lesson, Profile, Prompt, Rating, Round, Task, Turn
from practicum.core.views import View, behind, render_full
from practicum.core.words import quantity
from practicum.engine.loop import Method, ReflectSeam, ShowSeam, UpdateSeam, sources_of
from practicum.engine.run import ActSeam, Run
from practicum.methods.ace import REFLECTOR
from practicum.methods.blocks.attempt import demonstrated, once, refined
from practicum.methods.blocks.curate import (
    append,
    divided,
    newest_per_key,
    pruned,
    votes,
    within_budget,
    without_outdated,
)
from practicum.methods.blocks.dedupe import deduplicated
from practicum.methods.blocks.gate import always
from practicum.methods.blocks.memory import KNOWN, MEMORIES, append_memories, extract_memories, is_memory, usage_votes
from practicum.methods.blocks.reflect import (
    alongside,
    as_experience,
    brief,
    by_model,
    is_experience,
    judged_by_outcome,
    per_trace,
)
from practicum.methods.blocks.sample import batches
from practicum.methods.blocks.show import (
    AVOID,
    ActWithNote,
    answer,
    by_outcome,
    joined,
    playbook_pages,
    rest,
    similar_turns,
    with_memories,
)
from practicum.methods.episodes import EPISODES, SHOWN, WINDOW
from practicum.methods.memory import MemorySettings, acting
from practicum.methods.worked_examples import CLOSED, LICE, MEETING, WITHOUT_RULES
from practicum.retrieval.search import Filter

SPECIFICATION: Mapping[str, Any] = {
    "retrieval": "cosine",
    "memory": True,
    "memories": 5,
    "extract": "chosen",
    "examples": 0,
    "weigh": False,
    "rules": "proposed",
    "passes": 3,
    "proposal": 0.7,
    "delta_min": 5,
    "delta_max": 10,
    "bullets": "all",
    "threshold": 0.85,
    "harmful": 0,
    "scaling": "parallel",
    "k": 3,
    "batch": 1,
}
"""Settings of `preset=specification`, in both profiles: the learner of the unified specification, without practicum's
additions."""

Keep = Literal["all", "relied_on"]


class Settings(MemorySettings):
    """Settings of the unified learner."""

    preset: Literal["routine", "standard", "critical", "specification"] | None = None  # type: ignore[assignment]
    """routine, standard, critical: set the numbers of attempts, of memories shown and of passes, by the importance of
    the tasks; specification: the learner of the specification, without practicum's additions."""
    rules: Literal["proposed", "reflected"] = "proposed"
    """The source of new rules. proposed: a model proposes rules (bullets) before each attempt; reflected: a failure
    teaches a rule, which is kept if the next try succeeds with the rule (for weak models)."""
    memory: bool = True
    """Whether the method has a memory bank."""
    examples: int = Field(default=SHOWN, ge=0)
    """The maximum number of solved tasks shown as earlier turns: the most similar ones, in up to 1,000 tokens (the four
    most similar ones at any length); 0: solved tasks are neither shown nor kept."""
    weigh: bool = True
    """Show each of the three parts (rules, memories, solved tasks) only if it helps. To measure this, learning attempts
    each task once more, with one part removed or added."""
    passes: int = Field(default=3, ge=0)
    """The number of passes of reflection over the proposed bullets: the first for clarity, the second for
    actionability, all others for non-redundancy and conciseness."""
    proposal: float = Field(default=0.7, ge=0)
    """The temperature for proposing and refining bullets."""
    delta_min: int = Field(default=5, ge=0)
    """The minimum number of bullets of a proposal. A shorter proposal is requested once more. If the second proposal is
    too short as well, the longer of the two is kept, and counted as short."""
    delta_max: int = Field(default=10, ge=1, le=50)
    """The maximum number of bullets in a proposal, and in the result of each pass. Further bullets are dropped, and
    counted."""
    outcomes: int = Field(default=3, ge=0)
    """The number of outcomes, the newest ones, that are kept and shown when bullets are proposed."""
    bullets: Keep = "all"
    """all: keep all proposed bullets; relied_on: only bullets that the attempt cited (weak models propose many)."""
    budget: int = Field(default=80_000, ge=1)
    """The maximum number of tokens of the playbook."""
    harmful: int = Field(default=3, ge=0)
    """A rule whose harmful votes exceed its helpful votes by this number or more is retired at once; 0: harmful rules
    are retired only when the playbook exceeds its budget."""

    SMALL: ClassVar[Mapping[str, Any]] = {
        "rules": "reflected", "memory": False, "scaling": "none", "batch": 4, "proposal": 0.0, "delta_min": 0
    }  # fmt: skip

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {**MemorySettings.PRESETS, "specification": SPECIFICATION}

    CLASHES: ClassVar[tuple[Clash, ...]] = (
        needs("items", "extract", "extraction", "index", "consolidate", memory=True),
        needs("memories", memory=True, preset=ON),
        needs("passes", "proposal", "delta_min", "delta_max", "outcomes", "bullets", rules="proposed"),
        Clash(lambda s: s.delta_min > s.delta_max, "delta_min exceeds delta_max={s.delta_max}: lower delta_min"),
    )


def method(s: Settings) -> Method:
    """Build the method: retrieve, propose, refine, curate, attempt, extract memories, keep solved tasks."""
    parts = {"rules": rest(MEMORIES, EPISODES)}
    if s.memory:
        parts["memories"] = with_memories(s.memories, MEMORIES)
    if s.examples:
        parts["examples"] = similar_turns(s.examples, EPISODES, WINDOW)
    show = s.noting(paying(parts) if s.weigh else joined(*parts.values()))
    reflecting = s.rules == "reflected"
    act = acting(s, show, blind=s.online)
    act = compared(act, parts, s.temperature) if s.weigh else act
    bank = MEMORIES if s.memory else ""
    rules = append(SECTION, data=False) if reflecting else curated(SECTION)
    rules = deduplicated(rules, s.threshold)
    propose = Proposer(
        passes=s.passes, memories=s.memories, bank=bank, curate=rules, least=s.delta_min, most=s.delta_max,
        outcomes=s.outcomes, temperature=s.proposal, excluded=(EPISODES,),
    )  # fmt: skip
    attempt = refined(act, REFLECT, 1, "retry") if reflecting else prepared(act, propose)
    blind = acting(s, show, blind=True)
    attempt = demonstrated(attempt, blind) if s.examples else attempt
    reflects = {"rules": per_trace(REFLECT, "failures", only_confirmed=True) if reflecting else usage_votes}
    if s.memory:
        reflects["memories"] = extract_memories(s.items, s.extract, s.extraction, s.index)
    reflect = alongside(**reflects)
    reflect = with_comparisons(reflect if reflecting else with_outcomes(reflect, s.bullets, s.outcomes))
    # A task that was solved in a retry or in a comparison is a solved task, too.
    reflect = alongside(work=reflect, examples=as_experience) if s.examples else reflect
    # Rules are pruned and kept within their budget; of memories and solved tasks, the outdated ones are retired.
    combined = divided(
        is_memory, deduplicated(append_memories, s.threshold) if s.consolidate else append_memories, rules
    )
    combined = pruned(combined, s.harmful, MEMORIES, EPISODES, PARTS) if s.harmful else combined
    combined = without_outdated(combined, EPISODES, PARTS)
    combined = within_budget(combined, s.budget, MEMORIES, EPISODES)
    combined = combined if reflecting else with_last_outcomes(combined, s.outcomes)
    update = divided(is_experience, without_outdated(newest_per_key(append(EPISODES))), combined)
    return Method(
        name="unified",
        show=show,
        sample=batches(s.online, s.epochs, s.batch),
        act=blind,
        attempt=once(attempt),
        reflect=reflect,
        update=recorded(update),
        accept=always,
        roles=("reflector", "judge"),
        act_roles=s.act_roles,
        act_calls=s.act_calls,
        costs="a second attempt at each task and, with tools, a third at each task that stays unsolved; the costs of "
        "reasoning_bank; a proposal and three passes over it for each task, or (rules=reflected) a reflection and a "
        "retry for each failure",
    )


SECTION = "rules"
"""Section of bullets."""

REFLECT = by_model(replace(REFLECTOR, examples=WITHOUT_RULES), rules_shown=False)
"""Reflector that writes a rule from a failure, as ACE's reflector does, without reading the playbook."""


# ---- parts of the view, shown only if they help
#
# While learning, each task is attempted a second time, with one part more or one part less. Both attempts are made
# before anything is learned from the task, so the task is held out for the comparison. The record of a part is a hidden
# entry: `helpful` counts the tasks that were solved only with the part, `harmful` the tasks that were solved only
# without it. So versions, rollback, forgetting and review apply to records as to all entries.

PARTS = ".parts"
"""Hidden section of the records of parts. The text of a record is the name of its part."""

Parts = Mapping[str, ShowSeam]
"""Show seam of each part, by name. Parts whose views change least from task to task come first."""


def record(context: Context, name: str) -> Entry | None:
    """Return the record of a part; None before the first comparison."""
    return next((entry for entry in context.in_section(PARTS) if entry.text == name), None)


def pays(entry: Entry | None) -> bool:
    """Return whether the part with this record is shown. A part is hidden if it harmed more often than it helped, by
    more than chance explains (one standard deviation of a fair coin)."""
    return entry is None or entry.harmful - entry.helpful <= sqrt(entry.helpful + entry.harmful)


def paying(parts: Parts, changed: str = "") -> ShowSeam:
    """Build a show seam for the parts that pay (see `pays`), one after the other. The part with the name `changed` is
    shown if it does not pay, and hidden if it pays."""

    async def show(context: Context, task: Task, run: Run) -> View:
        records = {entry.text: entry for entry in context.in_section(PARTS)}
        names = [name for name in parts if pays(records.get(name)) != (name == changed)]
        return await joined(*(parts[name] for name in names))(context, task, run)

    return show


def compared(act: ActWithNote, parts: Parts, warmth: float | None = None) -> ActWithNote:
    """Build an act that applies `act`, which shows the parts that pay, and concurrently attempts the task with one part
    changed, at the temperature `warmth`. The part is drawn at random from the parts that have content. The result is
    the attempt of `act`. The second attempt is stored as a round of the result, and the lesson of this round votes on
    the part. No second attempt is made if there is a note, if no part has content, or if the task is itself among the
    solved tasks."""

    async def wrapped(task: Task, context: Context, run: Run, note: str = "") -> Attempt:
        if note:
            return await act(task, context, run, note)
        views = [(name, await show(context, task, run.at(f"has {name}"))) for name, show in parts.items()]
        filled = [name for name, view in views if view.pages or view.turns]
        # In a second epoch the task's own answer is among the solved tasks.
        solved = any(entry.text == task.input for _, view in views for entry in view.entries())
        if solved or not filled:
            return await act(task, context, run)
        name = run.rng("part").choice(filled)
        changed = answer(paying(parts, name))

        async def second(at: Run) -> Attempt:
            return await changed(task, context, replace(at, warmth=warmth))

        async def first(at: Run) -> Attempt:
            return await act(task, context, at)

        original, other = await run.gather([("as is", first), ("changed", second)])
        with_part, without_part = original.first, other
        if not pays(record(context, name)):
            with_part, without_part = without_part, with_part
        data = {"stage": PARTS, "part": name, "verdict": _verdict(with_part, without_part)}
        lesson = Lesson(f"{run.place}/{name}", "", sources=original.sources, data=data)
        return replace(original, rounds=(*original.rounds, Round(lesson, other.trace, other.feedback)))

    return wrapped


def _verdict(with_part: Attempt, without_part: Attempt) -> Rating:
    solved, solved_without = with_part.feedback.success, without_part.feedback.success
    if solved is solved_without or None in (solved, solved_without):
        return "neutral"
    return "helpful" if solved else "harmful"


def is_comparison(round: Round) -> bool:
    """Return whether a round is the second attempt of a comparison, and not a reflection."""
    return round.lesson.data.get("stage") == PARTS


def with_comparisons(reflect: ReflectSeam) -> ReflectSeam:
    """Build a reflect seam that returns the lessons of comparisons, and the lessons of `reflect`, which does not see
    the comparisons."""

    async def wrapped(attempts: Sequence[Attempt], context: Context, run: Run) -> list[Lesson]:
        comparisons = [round.lesson for r in attempts for round in r.rounds if is_comparison(round)]
        plain = [replace(r, rounds=tuple(x for x in r.rounds if not is_comparison(x))) for r in attempts]
        return [*comparisons, *await reflect(plain, context, run)]

    return wrapped


def recorded(update: UpdateSeam) -> UpdateSeam:
    """Build an update seam that applies `update`, and adds the verdicts of comparisons to the records of the compared
    parts."""

    async def wrapped(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        edits: list[Edit] = []
        names = dict.fromkeys(x.data["part"] for x in lessons if x.data.get("stage") == PARTS)
        for name in names:
            part_lessons = [x for x in lessons if x.data.get("part") == name]
            verdicts = [x.data["verdict"] for x in part_lessons]
            sources, ids = (
                tuple(dict.fromkeys(s for x in part_lessons for s in x.sources)),
                tuple(x.id for x in part_lessons),
            )
            counts = verdicts.count("helpful"), verdicts.count("harmful")
            old = record(context, name)
            if old is None:
                edits.append(Add(PARTS, name, "", {}, *counts, sources=sources, lessons=ids))
            else:
                edits.append(Vote(old.id, *counts, len(verdicts), sources=sources, lessons=ids))
        return await update(lessons, context, run) + Delta(tuple(edits))

    return wrapped


# ---- bullets before the attempt
#
# For each task a delta of bullets is proposed from memories, playbook and the last outcomes, refined, and added to the
# playbook under which the task is then attempted.
#
# The attempt runs under a draft of the next context. The outcome of the attempt decides the votes on the bullets, and
# is shown when the next bullets are proposed.

OUTCOMES = ".outcomes"
"""Hidden section of the last outcomes, which are shown when bullets are proposed."""

BULLET = "bullet"
"""Value of `data["stage"]` of a lesson that is a bullet, proposed before the attempt."""


class Bullets(Output):
    """Guidance for the next task and others of its kind."""

    bullets: Sequence[str]


@cache
def form(most: int) -> type[Bullets]:
    """Return the form of a proposal of up to `most` bullets. Validation accepts more bullets; the proposer drops
    them."""
    bullets: Any = Annotated[list[Annotated[str, rule_schema(160, empty=False)]], MaxItems(most)]
    text = Field(description="one piece of guidance each")
    return create_model("Bullets", __base__=Bullets, bullets=(bullets, text))


@dataclass(frozen=True, kw_only=True)
class Proposer:
    """Proposer of `least` to `most` bullets for a task. It refines the bullets in `passes` further calls. All calls
    have the same `temperature`.

    It reads the `memories` entries of the section `bank` that are most similar to the task, the newest `outcomes`
    outcomes, and the playbook without the sections in `excluded`. `curate` turns bullets into a delta and asks no
    model.

    Bullets beyond `most` are dropped from the proposal and from each pass. A proposal with fewer than `least` bullets
    is requested once more. Dropped bullets are counted. A final set with fewer than `least` bullets is counted, too. If
    a pass fails, the failure is counted, the bullets before this pass are used, and no further pass is made."""

    passes: int
    memories: int
    bank: str
    curate: UpdateSeam
    least: int
    most: int
    outcomes: int
    temperature: float = 0.7
    excluded: tuple[str, ...] = ()

    async def __call__(self, task: Task, context: Context, run: Run) -> list[Lesson]:
        """Return the bullets for a task that has not been attempted yet, as lessons."""
        matches = await run.nearest(context, task.input, self.memories, Filter(section=self.bank)) if self.bank else []
        memories, outcomes = [f.entry for f in matches], last_of(context, self.outcomes)
        # A proposal has the sources of all its inputs, so that forgetting any of them removes the proposal.
        sources = [(f"task:{task.id}", *run.about), *(e.sources for e in (*memories, *outcomes))]
        run = replace(run, about=ordered_union(sources))
        # The prompts of all passes are equal except for the end, so that a prefix cache serves them.
        heading = "\n\n".join([*run.agent_instructions, "# Its playbook"])
        if run.profile == "small":
            pages = render_full(context, self.bank, *self.excluded).pages or ("(no rules yet)",)
        else:
            pages = await playbook_pages(context, (), [task.input], "reflector", run, self.bank, *self.excluded)
        parts = [f"# The next task\n{task.text}"]
        parts += [f"{title}\n" + "\n".join(behind("-", e.text) for e in group) for title, group in by_outcome(memories)]
        if outcomes:
            parts.append("# What the last tasks came to\n" + "\n\n".join(e.text for e in outcomes))

        def prompt(request: str, bullets: Sequence[str]) -> Prompt:
            noun = "rules" if run.profile == "small" else "bullets"
            listed = [f"# Your {noun} so far\n" + "\n".join(behind("-", bullet) for bullet in bullets)]
            end = [*(listed if bullets else []), f"# Now\n{request}"]
            return proposing(self.least, self.most).prompt(run.profile, [*parts, *end], pages, heading)

        data = {"stage": BULLET, "memories": [e.id for e in memories]}
        texts = enumerate(await self._delta(prompt, run), 1)
        return [Lesson(f"{run.place}/{n}", text, sources=run.about, data=data) for n, text in texts]

    async def _delta(self, prompt: Callable[[str, Sequence[str]], Prompt], run: Run) -> list[str]:
        """Return the bullets of the proposal, after all passes. `prompt` builds a prompt from a request and the bullets
        so far."""
        first = requested(self.least, self.most).text(run.profile)
        bullets = await self._ask(prompt(first, []), run.at("pass 0"))
        if bullets is None:
            return []
        if len(bullets) < self.least:
            request = f"{first} {too_few(len(bullets), self.least, self.most, run.profile)}"
            further = await self._ask(prompt(request, bullets), run.at("again"))
            bullets = max(further or [], bullets, key=len)
        for n in range(1, self.passes + 1 if bullets else 1):
            request = refinements(self.most)[min(n, 3) - 1].text(run.profile)
            refined = await self._ask(prompt(request, bullets), run.at(f"pass {n}"))
            if not refined:
                break
            bullets = refined
        run.count(Count.SHORT_DELTAS, len(bullets) < self.least)
        return bullets

    async def _ask(self, prompt: Prompt, run: Run) -> list[str] | None:
        """Return the distinct bullets of one answer, up to `most`; None if the call fails."""
        answer = await run.try_ask(
            "reflector", prompt, form(self.most), Count.LOST_PROPOSALS, temperature=self.temperature
        )
        if answer is None:
            return None
        bullets = [*dict.fromkeys(text for bullet in answer.bullets if (text := clean(bullet)))]
        run.count(Count.EXCESS_BULLETS, max(len(bullets) - self.most, 0))
        return bullets[: self.most]


def prepared(act: ActSeam, propose: Proposer) -> ActSeam:
    """Build an act that applies `act` under the context with the bullets proposed for its task, and stores the bullets
    as rounds of the attempt."""

    async def with_bullets(task: Task, context: Context, run: Run) -> Attempt:
        lessons = await propose(task, context, run.at("propose"))
        draft = context.apply(await propose.curate(lessons, context, replace(run.at("curate"), drafts=True)))
        attempt = await act(task, draft.context, run)
        ids = {id: done.id for done in draft.applied if isinstance(done.edit, Add) for id in done.edit.lessons}
        tried = [replace(x, data={**x.data, "entry": ids.get(x.id, "")}) for x in lessons]
        return replace(attempt, rounds=(*attempt.rounds, *(Round(lesson) for lesson in tried)))

    return with_bullets


def with_outcomes(reflect: ReflectSeam, keep: Keep, last: int) -> ReflectSeam:
    """Build a reflect seam that returns the tried bullets, with a verdict on each; the outcomes of the attempts, unless
    `last` is 0; and the lessons of `reflect`. With `keep="relied_on"`, bullets that the attempt did not cite are
    dropped, and counted."""

    async def wrapped(attempts: Sequence[Attempt], context: Context, run: Run) -> list[Lesson]:
        lessons: list[Lesson] = []
        for attempt in attempts:
            verdicts = judged_by_outcome(attempt)
            tried = [x.lesson for x in attempt.rounds if x.lesson.data.get("stage") == BULLET]
            used = [x for x in tried if keep == "all" or x.data["entry"] in verdicts]
            run.count(Count.UNCITED_BULLETS, len(tried) - len(used))
            lessons += [replace(x, data={**x.data, "verdict": verdicts.get(x.data["entry"], "")}) for x in used]
            if last and not attempt.trace.lost:
                # Nothing is learned from this lesson; the next proposals read it.
                id, data = f"{attempt.place}/outcome", {"stage": OUTCOMES}
                lessons.append(Lesson(id, "", brief(attempt, run), sources=attempt.sources, data=data))
        return [*lessons, *await reflect(attempts, context, run)]

    return wrapped


def curated(section: str) -> UpdateSeam:
    """Build an update seam that asks no model. It adds each bullet as an entry, with the verdict on the bullet as the
    first vote, and counts the votes of all lessons."""

    async def update(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        adds = []
        for x in lessons:
            if x.data.get("stage") == BULLET:
                helpful, harmful = (int(x.data.get("verdict") == verdict) for verdict in ("helpful", "harmful"))
                adds.append(Add(section, x.text, "", {}, helpful, harmful, sources=x.sources, lessons=(x.id,)))
        return votes(lessons) + Delta(tuple(adds))

    return update


def last_of(context: Context, last: int) -> tuple[Entry, ...]:
    """Return the newest stored outcomes, up to `last` of them, in the order in which they were stored."""
    outcomes = context.in_section(OUTCOMES)
    return tuple(outcomes[max(len(outcomes) - last, 0) :])


def with_last_outcomes(update: UpdateSeam, last: int) -> UpdateSeam:
    """Build an update seam that applies `update`, and stores new outcomes for the next proposals. The newest `last`
    outcomes are kept; older outcomes are deleted."""

    async def wrapped(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        delta = await update(lessons, context, run)
        new = [x for x in lessons if x.data.get("stage") == OUTCOMES]
        new = new[max(len(new) - last, 0) :]
        retained = {e.id for e in last_of(context, max(last - len(new), 0))}
        added = (Add(OUTCOMES, x.detail, sources=x.sources, lessons=(x.id,)) for x in new)
        sources = sources_of(new or lessons)
        older = (e for e in context.in_section(OUTCOMES) if e.id not in retained)
        removals = (Delete(e.id, sources, reason="older outcomes are forgotten") for e in older)
        return delta + Delta((*removals, *added))

    return wrapped


def requested(least: int, most: int) -> Instructions:
    """Return the request for a proposal of `least` to `most` bullets."""
    how_many = f"at least {least} if so many are shown" if least else "as many as rest on what is shown"
    rules = _number(0, most, "rule")
    return Instructions(
        full=f"Propose {_number(least, most, 'bullet')} for the next task and others of its kind.",
        small=f"Propose {rules} that help with the next task and with others of its kind: {how_many}, "
        "none if nothing is.",
    )


def too_few(count: int, least: int, most: int, profile: Profile) -> str:
    """Return the text that is added to the request when a proposal with too few bullets is requested again."""
    noun = "rule" if profile == "small" else "bullet"
    return (
        f"You gave {quantity(count, noun)}. Keep what you gave, and add what else helps with such tasks: "
        f"{_number(least, most, noun)} in all."
    )


def _number(least: int, most: int, noun: str) -> str:
    exact = quantity(most, noun)
    return exact if least == most else f"{least} to {exact}" if least else f"up to {exact}"


@cache
def refinements(most: int) -> tuple[Instructions, Instructions, Instructions]:
    """Return the requests of the passes over up to `most` bullets: clarity, actionability, and for the third and every
    later pass non-redundancy and conciseness (the specification's epoch 3+)."""
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
    """Return the instructions of a proposal of `least` to `most` bullets, with worked examples from other domains.
    Without these examples a small model writes rules about proposing rules."""
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
