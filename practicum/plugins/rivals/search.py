"""Whole instructions as candidates: written by a model, scored on tasks, the best kept (ProTeGi, OPRO and the like).

A candidate is an entry of one section, with its mean score `score` over `n` attempts, and the score `none` of the agent
without any candidate on the same tasks. An attempt is shown the best candidate only, and none that is no better than
nothing.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, TypeVar

from pydantic import Field

from practicum.blocks.act.show import Answer, answer
from practicum.blocks.attempt.attempt import once
from practicum.core.bounded import MaxChars, Output, clean
from practicum.core.context import Context
from practicum.core.counts import Count
from practicum.core.edits import Add, Delete, Delta, Edit, Entry, Update, changed_entries, ordered_union
from practicum.core.types import Instructions, Lesson, Rollout, Task
from practicum.core.views import View, count_tokens
from practicum.core.visible import visible_to_model
from practicum.engine.loop import AcceptSeam, AttemptSeam, Batch, UpdateSeam, sources_of
from practicum.engine.run import ActSeam, Run

SECTION = "instructions"
"""The section of candidates."""

FEEDBACK = ".feedback"
"""The hidden section of kept feedback."""

RECALLED = "recalled"
"""The key in a recalled lesson's data that names its entry."""

LONGEST = 32_000
"""Characters that validation accepts of an instruction."""


class Instruction(Output):
    """A whole instruction for the agent, ready to be used as it stands."""

    instruction: Annotated[str, MaxChars(1_200, LONGEST)] = Field(description="the whole instruction")


@dataclass(frozen=True, slots=True)
class Request:
    """One call for an instruction: what its author is told and reads, and the candidates and lessons it rests on."""

    told: Instructions
    parts: tuple[str, ...]
    parents: tuple[Entry, ...] = ()
    lessons: tuple[Lesson, ...] = ()


Plan = Callable[[Sequence[Entry], Sequence[Lesson], random.Random], Sequence[Request]]
"""The requests of a step, made of the candidates so far, the best first, and of the step's lessons."""


def value(candidate: Entry | Add) -> float:
    """The mean score of a candidate; 0 if it was never tried."""
    return float(candidate.data.get("score", 0.0))


def ranked(context: Context) -> list[Entry]:
    """Candidates, the best first; the older one on ties."""
    return sorted(context.in_section(SECTION), key=lambda e: (-value(e), e.number))


def drawn_by(weight: Callable[[Entry], float], entries: Sequence[Entry], most: int, rng: random.Random) -> list[Entry]:
    """Up to `most` different entries, each drawn with a chance in proportion to its weight."""
    left, drawn = list(entries), list[Entry]()
    while left and len(drawn) < most:
        (one,) = rng.choices(left, [weight(e) for e in left])
        left.remove(one)
        drawn.append(one)
    return drawn


def best(context: Context) -> Entry | None:
    """The candidate that an agent is shown: the best one, if it is better than none."""
    return next((e for e in ranked(context)[:1] if value(e) > float(e.data.get("none", -1.0))), None)


async def best_instruction(context: Context, task: Task, run: Run) -> View:
    """The best candidate, if it is better than none."""
    shown = best(context)
    if shown is None:
        return View()
    text = visible_to_model(shown.text)
    return View(
        (text,), ids=(shown.id,), tokens=count_tokens(text), instructing=True, entries=partial(tuple, (shown,))
    )  # fmt: skip


def only(text: str) -> Context:
    """A context of one instruction, or of none if it is empty."""
    return Context().apply(Delta((Add(SECTION, text),) if text else ())).context


async def written(request: Request, warmth: float, role: str, run: Run) -> Add | None:
    """The instruction of a request. None if the call failed, which is counted, or if it is empty."""
    sources = ordered_union([sources_of(request.lessons), *(e.sources for e in request.parents)])
    prompt = request.told.prompt(run.profile, [*run.agent_instructions, *request.parts])
    at = replace(run, about=sources or run.about)
    said = await at.try_ask(role, prompt, Instruction, Count.LOST_UPDATES, temperature=warmth)
    text = "" if said is None else clean(said.instruction)
    ids = tuple(lesson.id for lesson in request.lessons)
    return Add(SECTION, text, sources=sources, lessons=ids) if text else None


async def all_written(requests: Sequence[Request], warmth: float, run: Run) -> list[Add]:
    """The instructions of all requests, all at once, each text once."""
    jobs = [(str(n), partial(written, request, warmth, "curator")) for n, request in enumerate(requests, 1)]
    unlike: dict[str, Add] = {}
    for add in await run.gather(jobs):
        if add is not None:
            unlike.setdefault(add.text, add)
    return list(unlike.values())


def propose(plan: Plan, warmth: float) -> UpdateSeam:
    """New candidates, a call each. What was a candidate before is not added again."""

    async def update(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        known = ranked(context)
        made = await all_written(plan(known, lessons, run.rng("plan")), warmth, run)
        return Delta(tuple(add for add in made if add.text not in {e.text for e in known}))

    return update


def with_feedback_history(update: UpdateSeam, most: int) -> UpdateSeam:
    """`update` also reads the newest `most` lessons of earlier steps, marked as RECALLED, before those of this step.
    Lessons without text are not kept. Candidates that rest on a recalled lesson have its sources, for unlearning."""

    async def updated(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        kept = context.in_section(FEEDBACK)
        recalled = [Lesson(str(e.data["lesson"]), e.text, sources=e.sources, data={RECALLED: e.id}) for e in kept]
        delta = await update([*recalled, *lessons], context, run)
        new = [lesson for lesson in lessons if lesson.text][-most:] if most else []
        old = kept[: max(len(kept) + len(new) - most, 0)]
        adds = (Add(FEEDBACK, x.text, data={"lesson": x.id}, sources=x.sources, lessons=(x.id,)) for x in new)
        return delta + Delta(
            (*adds, *(Delete(e.id, sources_of(new), reason="newer feedback took its place") for e in old))
        )

    return updated


def each_once(act: Answer) -> AttemptSeam:
    """Attempt each task of the batch under the best candidate. An attempt at a task under an instruction is made once
    in a run, and returned again after that; an attempt that failed with an error is made anew."""

    async def one(task: Task, context: Context, run: Run) -> Rollout:
        known, key = run.reusable.setdefault(context.digest, {}), (act, task.id, run.member)
        if old := known.get(key):
            run.count(Count.REUSED_ATTEMPTS)
            return replace(old, place=run.place, of=old.of or old.place)
        rollout = await act(task, context, run)
        if rollout.trace.error is None:
            known[key] = rollout
        return rollout

    async def attempt(batch: Batch, context: Context, run: Run) -> list[Rollout]:
        shown = best(context)
        return await once(one)(batch, only("" if shown is None else shown.text), run)

    return attempt


async def score(attempt: AttemptSeam, tasks: Sequence[Task], text: str, run: Run) -> tuple[float, int] | None:
    """The mean score of an instruction ("": of none) on these tasks, and the number of scores; None without any."""
    return _mean(await attempt(Batch(tuple(tasks)), only(text), run), run)


def keep_best(attempt: AttemptSeam, beam: int) -> AcceptSeam:
    """Score each new candidate on the tasks of the step, all at once, and keep the `beam` best of old and new, without
    those that the delta deletes. On ties the older one is kept. Edits of other sections are kept."""

    async def accept(context: Context, delta: Delta, rollouts: Sequence[Rollout], run: Run) -> Delta:
        adds, gone = new_candidates(delta), {edit.id for edit in delta.edits if isinstance(edit, Delete)}
        old = sorted(context.in_section(SECTION), key=lambda e: e.number)
        unscored = [e for e in old if "n" not in e.data]
        tasks = [r.task for r in rollouts]
        texts = {"none": "", **{e.id: e.text for e in unscored}, **{str(n): add.text for n, add in enumerate(adds)}}
        jobs = [(name, partial(score, attempt, tasks, text)) for name, text in texts.items()]
        run.count(Count.TRIED_CANDIDATES, len(texts) - 1)
        none, *means = await run.gather(jobs)
        found = dict(zip(list(texts)[1:], means, strict=True))
        pool: list[Entry | Add] = [scored(e, found.get(e.id), none) for e in old if e.id not in gone]
        pool += [scored(add, mean, none) for n, add in enumerate(adds) if (mean := found[str(n)]) is not None]
        return selected(old, sorted(pool, key=value, reverse=True)[:beam]) + Delta(others(delta, old))

    return accept


def new_candidates(delta: Delta) -> list[Add]:
    return [edit for edit in delta.edits if isinstance(edit, Add) and edit.section == SECTION]


def others(delta: Delta, candidates: Sequence[Entry]) -> tuple[Edit, ...]:
    """The edits of a delta that are about none of these candidates and no new one."""
    new, ids = new_candidates(delta), {e.id for e in candidates}
    return tuple(edit for edit in delta.edits if edit not in new and ids.isdisjoint(changed_entries(edit)))


Candidate = TypeVar("Candidate", bound=Entry | Add)


def scored(candidate: Candidate, mean: tuple[float, int] | None, none: tuple[float, int] | None) -> Candidate:
    """The candidate with its mean score, and with that of none on the same tasks. Without scores it stays as it is."""
    if mean is None:
        return candidate
    data = {**candidate.data, "score": round(mean[0], 6), "n": mean[1]}
    return replace(candidate, data=data if none is None else {**data, "none": round(none[0], 6)})


def selected(old: Sequence[Entry], kept: Sequence[Entry | Add]) -> Delta:
    """The edits after which these candidates are left, with their scores."""
    known = {e.id: e for e in old}
    stay = [e for e in kept if isinstance(e, Entry)]
    seen = [Update(e.id, data=e.data) for e in stay if e.data != known[e.id].data]
    ids = {e.id for e in stay}
    removed = [Delete(id, reason="fell out of the beam") for id in known if id not in ids]
    return Delta((*seen, *(e for e in kept if isinstance(e, Add)), *removed))


async def keep_if_no_worse(context: Context, delta: Delta, rollouts: Sequence[Rollout], run: Run) -> Delta:
    """One candidate at a time: a new one is tried on the tasks of the step, and replaces the text of the old one unless
    it scores lower there. Edits of other sections are kept."""
    new, known = next(iter(new_candidates(delta)), None), ranked(context)
    if new is None:
        return delta
    rest = others(delta, known)
    run.count(Count.TRIED_CANDIDATES)
    attempt, tasks = once(answer(best_instruction)), [r.task for r in rollouts]
    mean, now = await score(attempt, tasks, new.text, run), _mean(rollouts, run)
    if mean is None or now is None or mean[0] < now[0]:
        return Delta(rest)
    new = scored(new, mean, None)
    if not known:
        return Delta((new, *rest))
    # One entry all along, so that it also rests on what it was first made from.
    update = Update(known[0].id, new.text, data=new.data, sources=new.sources, lessons=new.lessons)
    return Delta((update, *rest))


def _mean(rollouts: Sequence[Rollout], run: Run) -> tuple[float, int] | None:
    """The mean of the scores that learning may see, and their number; None if there are none."""
    seen = visible_scores(rollouts, run)
    return (sum(seen) / len(seen), len(seen)) if seen else None


def visible_score(rollout: Rollout, run: Run) -> float | None:
    """What learning may see of an attempt: its score, or without labels whether it succeeded; None if neither is known
    or if the attempt was lost, which tells nothing about the candidate."""
    if rollout.trace.lost:
        return None
    if rollout.score is not None and run.labels:
        return rollout.score.value
    return None if rollout.feedback.success is None else float(rollout.feedback.success)


def visible_scores(rollouts: Sequence[Rollout], run: Run) -> list[float]:
    """The scores of these attempts that learning may see."""
    return [score for rollout in rollouts if (score := visible_score(rollout, run)) is not None]


async def evaluate_candidate(
    act: ActSeam, split: str, tasks: Sequence[Task], context: Context, run: Run, name: str = "compared"
) -> list[Rollout]:
    """Attempts by which candidates are compared, each made once in a run. An evaluation asks no judge: if a judge gives
    the feedback, they are ordinary attempts at the place `name`."""
    if run.judged:
        return await once(act)(Batch(tuple(tasks)), context, run.at(name))
    return await run.evaluate(act, split, tasks, context)


def history(candidates: Sequence[Entry]) -> str:
    """Candidates, the best first, as OPRO shows them: the worst first, each with its score out of 100."""
    shown = [f"Score: {100 * value(e):.0f}\n{e.text}" for e in reversed(candidates)]
    return "# Instructions so far, the best last\n\n" + ("\n\n".join(shown) or "(none yet)")


def cases(lessons: Sequence[Lesson]) -> str:
    """This step's attempts in words."""
    return "# Attempts\n\n" + "\n\n".join(lesson.detail or lesson.text for lesson in lessons)
