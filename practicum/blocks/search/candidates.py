"""Whole instructions as candidates: proposed by a model, scored on tasks, the best kept (ProTeGi, OPRO and the like).

A candidate is an entry of one section, with its mean score `score` over `n` attempts. An attempt is shown the best one
only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated

from pydantic import Field

from practicum.blocks.act.show import answer
from practicum.blocks.attempt.attempt import once
from practicum.core.bounded import MaxChars, MaxItems, Output
from practicum.core.context import Context
from practicum.core.counts import Count
from practicum.core.edits import Add, Delete, Delta, Entry, Update, ordered_union
from practicum.core.types import Lesson, Prompt, Rollout, Task
from practicum.core.views import View, count_tokens
from practicum.engine.loop import AcceptSeam, Batch, UpdateSeam, sources_of
from practicum.engine.run import ActSeam, Run

SECTION = "instructions"
"""The section of candidates."""

FEEDBACK = ".feedback"
"""The hidden section of kept feedback."""

RECALLED = "recalled"
"""The key in a recalled lesson's data that names its entry."""

ProposalPrompt = Callable[[Sequence[Entry], Sequence[Lesson]], str]
"""What the proposer reads about the candidates it is shown, best first, and about this step's lessons."""


class Proposals(Output):
    """New candidates."""

    candidates: Annotated[list[Annotated[str, MaxChars(1200)]], MaxItems(8)] = Field(
        description="whole instructions each"
    )


def value(candidate: Entry | Add) -> float:
    """The mean score of a candidate; 0 if it was never tried."""
    return float(candidate.data.get("score", 0.0))


def ranked(context: Context) -> list[Entry]:
    """Candidates, the best first; the older one on ties."""
    return sorted(context.in_section(SECTION), key=lambda e: (-value(e), e.number))


async def best_instruction(context: Context, task: Task, run: Run) -> View:
    """The best candidate there is."""
    return instruction_view(best[0].text) if (best := ranked(context)) else View()


def propose(system: str, ask: ProposalPrompt, most: int, warmth: float = 1.0, shown: int | None = None) -> UpdateSeam:
    """Up to `most` new candidates from one call, which reads the best `shown` candidates (None: all) and the lessons.
    New candidates have the sources of both. If the call fails, which is counted, there are none."""

    async def update(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        known = ranked(context)
        read = known[:shown]
        prompt = Prompt(system.format(most=most), "\n\n".join([*run.agent_instructions, ask(read, lessons)]))
        said = await run.try_ask("curator", prompt, Proposals, Count.LOST_UPDATES, temperature=warmth)
        texts = [] if said is None else [" ".join(text.split()) for text in said.candidates[:most]]
        new = dict.fromkeys(text for text in texts if text and text not in {e.text for e in known})
        sources = ordered_union([sources_of(lessons), *(e.sources for e in read)])
        ids = tuple(lesson.id for lesson in lessons)
        return Delta(tuple(Add(SECTION, text, sources=sources, lessons=ids) for text in new))

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
        return delta + Delta((*adds, *(Delete(e.id, reason="newer feedback took its place") for e in old)))

    return updated


def keep_best(beam: int) -> AcceptSeam:
    """Try each proposed candidate on the tasks of the step, all at once, and keep the `beam` best of old and new. The
    best candidate had its attempts in the step already: they count for it."""

    async def accept(context: Context, delta: Delta, rollouts: Sequence[Rollout], run: Run) -> Delta:
        adds = [edit for edit in delta.edits if isinstance(edit, Add)]
        jobs = [(str(n), partial(_tried, add.text, rollouts)) for n, add in enumerate(adds)]
        means = await run.gather(jobs)
        run.count(Count.TRIED_CANDIDATES, len(adds))
        old, now = ranked(context), _mean(rollouts, run)
        # First candidates have to be better than none.
        least = now[0] if not old and now is not None else -1.0
        if old and now is not None:
            before = int(old[0].data.get("n", 0))
            whole = (value(old[0]) * before + now[0] * now[1]) / (before + now[1])
            old[0] = replace(old[0], data={**old[0].data, "score": round(whole, 6), "n": before + now[1]})
        tried = zip(adds, means, strict=True)
        new = [_scored(add, mean) for add, mean in tried if mean is not None and mean[0] > least]
        # The older one on ties, so that no more than `beam` are kept.
        pool: list[Entry | Add] = [*sorted(old, key=lambda e: e.number), *new]
        best = sorted(pool, key=value, reverse=True)[:beam]
        seen = [Update(e.id, data=e.data) for e in old[:1] if now is not None and e in best]
        removed = (Delete(e.id, reason="fell out of the beam") for e in old if e not in best)
        return Delta((*seen, *(add for add in new if add in best), *removed))

    return accept


async def keep_if_no_worse(context: Context, delta: Delta, rollouts: Sequence[Rollout], run: Run) -> Delta:
    """One candidate at a time: a new one is tried on the tasks of the step, and replaces the text of the old one unless
    it scores lower there. Edits of other sections are kept."""
    new = next((edit for edit in delta.edits if isinstance(edit, Add) and edit.section == SECTION), None)
    if new is None:
        return delta
    rest = tuple(edit for edit in delta.edits if not (isinstance(edit, Add) and edit.section == SECTION))
    run.count(Count.TRIED_CANDIDATES)
    mean, now = await _tried(new.text, rollouts, run), _mean(rollouts, run)
    if mean is None or now is None or mean[0] < now[0]:
        return Delta(rest)
    new = _scored(new, mean)
    if not (known := ranked(context)):
        return Delta((new, *rest))
    # One entry all along, so that it also rests on what it was first made from.
    update = Update(known[0].id, new.text, data=new.data, sources=new.sources, lessons=new.lessons)
    return Delta((update, *rest))


async def _tried(text: str, rollouts: Sequence[Rollout], run: Run) -> tuple[float, int] | None:
    """The mean score of an instruction on the tasks of these attempts."""

    async def show(context: Context, task: Task, run: Run) -> View:
        return instruction_view(text)

    return _mean(await once(answer(show))(Batch(tuple(r.task for r in rollouts)), Context(), run), run)


def _mean(rollouts: Sequence[Rollout], run: Run) -> tuple[float, int] | None:
    """The mean of the scores that learning may see, and their number; None if there are none."""
    seen = [score for rollout in rollouts if (score := visible_score(rollout, run)) is not None]
    return (sum(seen) / len(seen), len(seen)) if seen else None


def _scored(add: Add, mean: tuple[float, int]) -> Add:
    return replace(add, data={**add.data, "score": round(mean[0], 6), "n": mean[1]})


def visible_score(rollout: Rollout, run: Run) -> float | None:
    """What learning may see of an attempt: its score, or without labels whether it succeeded; None if neither is known
    or if the attempt was lost, which tells nothing about the candidate."""
    if rollout.trace.lost:
        return None
    if rollout.score is not None and run.labels:
        return rollout.score.value
    return None if rollout.feedback.success is None else float(rollout.feedback.success)


async def evaluate_candidate(
    act: ActSeam, split: str, tasks: Sequence[Task], context: Context, run: Run, name: str = "compared"
) -> list[Rollout]:
    """Attempts by which candidates are compared, each made once in a run. An evaluation asks no judge: if a judge gives
    the feedback, they are ordinary attempts at the place `name`."""
    if run.judged:
        return await once(act)(Batch(tuple(tasks)), context, run.at(name))
    return await run.evaluate(act, split, tasks, context)


def instruction_view(text: str) -> View:
    """An instruction as it is shown for every task alike."""
    return View(pages=(text,), tokens=count_tokens(text))


def history(candidates: Sequence[Entry]) -> str:
    """Candidates with their scores, the worst first, as OPRO shows them."""
    lines = [f"- score {value(e):.2f}: {e.text}" for e in reversed(candidates)]
    return "# Instructions so far, the best last\n" + ("\n".join(lines) or "(none yet)")


def cases(lessons: Sequence[Lesson]) -> str:
    """This step's attempts in words."""
    return "# Attempts\n" + "\n\n".join(lesson.detail or lesson.text for lesson in lessons)
