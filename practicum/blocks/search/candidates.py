"""Whole instructions as candidates: proposed by a model, scored on tasks, the best kept (ProTeGi, OPRO and the like).

A candidate is an entry of one section, with its mean score and on how many attempts it rests. An attempt is shown the
best one only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Protocol

from pydantic import Field

from practicum.blocks.act.show import Answer, answer
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
"""The section candidates stand in."""


class Proposals(Output):
    """New candidates."""

    candidates: Annotated[list[Annotated[str, MaxChars(1200)]], MaxItems(8)] = Field(
        description="whole instructions each"
    )


class ProposalPrompt(Protocol):
    """What the proposer reads: of the candidates it is shown, best first, and of this step's lessons."""

    def __call__(self, candidates: Sequence[Entry], lessons: Sequence[Lesson]) -> str: ...


def value(candidate: Entry | Add) -> float:
    """The mean score of a candidate; one that was never tried counts 0."""
    return float(candidate.data.get("score", 0.0))


def ranked(context: Context) -> list[Entry]:
    """Candidates, the best first; the older on ties."""
    return sorted(context.in_section(SECTION), key=lambda e: (-value(e), e.number))


def answer_with_best() -> Answer:
    """An attempt under the best candidate there is."""

    async def show(context: Context, task: Task, run: Run) -> View:
        return instruction_view(best[0].text) if (best := ranked(context)) else View()

    return answer(show)


def propose(system: str, ask: ProposalPrompt, most: int, warmth: float = 1.0, shown: int | None = None) -> UpdateSeam:
    """Up to `most` new candidates from one call, which reads the best `shown` there are (None: all) and the lessons,
    and so has the sources of both; a call that fails, which is counted, proposes none."""

    async def update(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        known = ranked(context)
        read = known[:shown]
        prompt = Prompt(system.format(most=most), "\n\n".join([*run.agent_instructions, ask(read, lessons)]))
        said = await run.try_ask("curator", prompt, Proposals, Count.LOST_UPDATES, temperature=warmth)
        if said is None:
            return Delta()
        texts = dict.fromkeys(" ".join(text.split()) for text in said.candidates[:most])
        new = [text for text in texts if text and text not in {e.text for e in known}]
        sources = ordered_union([sources_of(lessons), *(e.sources for e in read)])
        ids = tuple(lesson.id for lesson in lessons)
        return Delta(tuple(Add(SECTION, text, sources=sources, lessons=ids) for text in new))

    return update


@dataclass(frozen=True)
class Selection:
    """Each proposed candidate is tried on the tasks of the step, all at once; the `beam` best of old and new stay.

    The best one had its attempts in the step already: they count for it.
    """

    beam: int

    async def __call__(self, context: Context, delta: Delta, rollouts: Sequence[Rollout], run: Run) -> Delta:
        """The delta with what the candidates scored, and without those that fell out."""
        adds = [edit for edit in delta.edits if isinstance(edit, Add)]
        jobs = [(str(n), partial(_mean_of, add.text, [r.task for r in rollouts])) for n, add in enumerate(adds)]
        means = await run.gather(jobs)
        run.count(Count.TRIED_CANDIDATES, len(adds))
        known, now = ranked(context), _mean(rollouts, run)
        again = _seen(known[0], now) if known and now is not None else None
        old = [replace(e, data=again.data or {}) if again is not None and e.id == again.id else e for e in known]
        # The first ones have to be better than none.
        least = now.score if not known and now is not None else -1.0
        tried = zip(adds, means, strict=True)
        new = [_scored(add, mean) for add, mean in tried if mean is not None and mean.score > least]
        # The older one on ties, so that as many stay as are asked for.
        pool: list[Entry | Add] = [*sorted(old, key=lambda e: e.number), *new]
        best = sorted(pool, key=value, reverse=True)[: self.beam]
        seen = (again,) if again is not None and old[0] in best else ()
        gone = (Delete(e.id, reason="fell out of the beam") for e in old if e not in best)
        return Delta((*seen, *(add for add in new if add in best), *gone))


def keep_best(beam: int) -> AcceptSeam:
    """Keep the `beam` best candidates."""
    return Selection(beam)


async def keep_if_no_worse(context: Context, delta: Delta, rollouts: Sequence[Rollout], run: Run) -> Delta:
    """One candidate at a time: a new one is tried on the tasks of the step, and becomes the text of the old one unless
    it does worse there. As one entry, it goes with whatever it was first made of. Edits of other sections stand."""
    rest = tuple(edit for edit in delta.edits if not (isinstance(edit, Add) and edit.section == SECTION))
    new = next((edit for edit in delta.edits if isinstance(edit, Add) and edit.section == SECTION), None)
    if new is None:
        return delta
    run.count(Count.TRIED_CANDIDATES)
    mean, now = await _mean_of(new.text, [r.task for r in rollouts], run), _mean(rollouts, run)
    if mean is None or now is None or mean.score < now.score:
        return Delta(rest)
    new = _scored(new, mean)
    old = next(iter(ranked(context)), None)
    taken = new if old is None else Update(old.id, new.text, data=new.data, sources=new.sources, lessons=new.lessons)
    return Delta((taken, *rest))


@dataclass(frozen=True, slots=True)
class Mean:
    """What attempts scored, and how many of them counted."""

    score: float
    n: int


async def _mean_of(text: str, tasks: Sequence[Task], run: Run) -> Mean | None:
    async def show(context: Context, task: Task, run: Run) -> View:
        return instruction_view(text)

    return _mean(await once(answer(show))(Batch(tuple(tasks)), Context(), run), run)


def _mean(rollouts: Sequence[Rollout], run: Run) -> Mean | None:
    """Mean of what learning may see of attempts; None where it may see nothing."""
    seen = [value for rollout in rollouts if (value := visible_score(rollout, run)) is not None]
    return Mean(sum(seen) / len(seen), len(seen)) if seen else None


def visible_score(rollout: Rollout, run: Run) -> float | None:
    """What learning may see of an attempt: its score where it may see that, else whether it went well, if known. One
    that was lost says nothing of what it was made under."""
    if rollout.trace.lost:
        return None
    if rollout.score is not None and run.labels:
        return rollout.score.value
    return None if rollout.feedback.success is None else float(rollout.feedback.success)


async def compare(
    act: ActSeam, split: str, tasks: Sequence[Task], context: Context, run: Run, name: str = "compared"
) -> list[Rollout]:
    """Attempts that candidates are compared by, each made once in a run. A judge gives no verdict in an evaluation, and
    is needed here: where one is heard, they are attempts like any, at the place `name`."""
    if run.judged:
        return await once(act)(Batch(tuple(tasks)), context, run.at(name))
    return await run.evaluate(act, split, tasks, context)


def _seen(entry: Entry, mean: Mean) -> Update:
    """A candidate with further attempts in its mean."""
    before = int(entry.data.get("n", 0))
    whole = (value(entry) * before + mean.score * mean.n) / (before + mean.n)
    return Update(entry.id, data={**entry.data, "score": round(whole, 6), "n": before + mean.n})


def _scored(add: Add, mean: Mean) -> Add:
    return replace(add, data={**add.data, "score": round(mean.score, 6), "n": mean.n})


def instruction_view(text: str) -> View:
    """An instruction as it is shown: nothing else, for every task alike."""
    return View(pages=(text,), tokens=count_tokens(text))


def history(candidates: Sequence[Entry]) -> str:
    """Candidates with their scores, the worst first, as OPRO shows them."""
    lines = [f"- score {value(e):.2f}: {e.text}" for e in reversed(candidates)]
    return "# Instructions so far, the best last\n" + ("\n".join(lines) or "(none yet)")


def cases(lessons: Sequence[Lesson]) -> str:
    """This step's attempts in words."""
    return "# Attempts\n" + "\n\n".join(lesson.detail or lesson.text for lesson in lessons)
