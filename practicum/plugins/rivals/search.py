"""Instruction search: a population of instructions for an agent, and what its recipes share.

A step proposes instructions, evaluates them on tasks, and selects those that stay. A recipe gives the proposals, as
calls that write an instruction each (`propose`), and chooses the evaluation (`on_all` tasks, or a `Bandit`) and the
number of candidates that are selected (`search`).

A candidate is an entry with its mean score `score` over `n` attempts, and the score `none` of the agent without any
candidate on the same tasks. An attempt is shown the best candidate only, and none that is no better than nothing.
"""

from __future__ import annotations

import math
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import Field

from practicum.core.bounded import MaxChars, Output, clean
from practicum.core.context import Context
from practicum.core.counts import Count
from practicum.core.edits import Add, Delete, Delta, Edit, Entry, Update, changed_entries, ordered_union
from practicum.core.types import Attempt, Instructions, Lesson, Task
from practicum.core.views import View, count_tokens
from practicum.core.visible import visible_to_model
from practicum.engine.loop import AcceptSeam, AttemptSeam, Batch, Method, UpdateSeam, sources_of
from practicum.engine.run import Run
from practicum.methods.blocks.attempt import once
from practicum.methods.blocks.reflect import evidence
from practicum.methods.blocks.sample import drawn
from practicum.methods.blocks.show import ActWithNote, answer
from practicum.methods.settings import CandidateSettings

SECTION = "instructions"
"""The section of candidates."""

FEEDBACK = ".feedback"
"""The hidden section of criticism that is read again in later steps."""

LONGEST = 32_000
"""Characters that validation accepts of an instruction."""

NONE = "(none: the agent was told nothing beside the task)"
"""What stands for the instruction of an agent that has none."""

Mean = tuple[float, int]
"""A mean score, and the number of scores."""


class SearchSettings(CandidateSettings):
    """Settings of methods that search for better instructions."""

    steps: int = Field(default=12, ge=1)
    """The number of steps."""
    batch: int = Field(default=16, ge=1)
    """Tasks of a step; all candidates of the step are tried on them."""


class BeamSettings(SearchSettings):
    """Settings of methods that score all candidates on the same tasks."""

    SMALL: ClassVar[Mapping[str, Any]] = {"steps": 4, "batch": 16, "candidates": 4, "beam": 4}

    batch: int = Field(default=50, ge=1)
    """Tasks on which every candidate is scored: the same ones in each step, drawn once."""
    candidates: int = Field(default=8, ge=1)
    """New candidates of a step, each written by a call of its own."""
    beam: int = Field(default=20, ge=1)
    """The number of candidates kept: the best ones."""


# ---- the population


def value(candidate: Entry | Add) -> float:
    """The mean score of a candidate; 0 if it was never tried."""
    return float(candidate.data.get("score", 0.0))


def ranked(context: Context) -> list[Entry]:
    """Candidates, the best first; the older one on ties."""
    return sorted(context.in_section(SECTION), key=lambda e: (-value(e), e.number))


def best(context: Context) -> Entry | None:
    """The candidate that an agent is shown: the best one, if it is better than none."""
    return next((e for e in ranked(context)[:1] if value(e) > float(e.data.get("none", -1.0))), None)


async def best_instruction(context: Context, task: Task, run: Run) -> View:
    """The best candidate, if it is better than none."""
    shown = best(context)
    if shown is None:
        return View()
    text, entries = visible_to_model(shown.text), partial(tuple, (shown,))
    return View((text,), ids=(shown.id,), tokens=count_tokens(text), instructing=True, fixed=1, entries=entries)


def only(text: str) -> Context:
    """A context of one instruction, or of none if it is empty."""
    return Context().apply(Delta((Add(SECTION, text),) if text else ())).context


def drawn_by(weight: Callable[[Entry], float], entries: Sequence[Entry], most: int, rng: random.Random) -> list[Entry]:
    """Up to `most` different entries, each drawn with a chance in proportion to its weight."""
    left, chosen = list(entries), list[Entry]()
    while left and len(chosen) < most:
        chosen += rng.choices(left, [weight(e) for e in left])
        left.remove(chosen[-1])
    return chosen


def roulette(known: Sequence[Entry], rng: random.Random) -> list[Entry]:
    """Two different candidates, each drawn with a chance in proportion to its score."""
    # A small share for each, so that candidates which all score 0 can be drawn.
    return drawn_by(lambda e: value(e) + 1e-6, known, 2, rng)


# ---- propose


class Instruction(Output):
    """A whole instruction for the agent, ready to be used as it stands."""

    instruction: Annotated[str, MaxChars(1_200, LONGEST)] = Field(description="the whole instruction")


@dataclass(frozen=True, slots=True)
class InstructionRequest:
    """One call for an instruction: what its author is told and reads, and the candidates and lessons it rests on."""

    told: Instructions
    parts: tuple[str, ...]
    parents: tuple[Entry, ...] = ()
    lessons: tuple[Lesson, ...] = ()


Plan = Callable[[Sequence[Entry], Sequence[Lesson], random.Random], Sequence[InstructionRequest]]
"""The requests of a step, made of the candidates so far, the best first, and of the step's lessons."""


async def written(request: InstructionRequest, warmth: float, role: str, run: Run) -> Add | None:
    """The instruction of a request. None if the call failed, which is counted, or if it is empty."""
    sources = ordered_union([sources_of(request.lessons), *(e.sources for e in request.parents)])
    prompt = request.told.prompt(run.profile, [*run.agent_instructions, *request.parts])
    at = replace(run, about=sources or run.about)
    said = await at.try_ask(role, prompt, Instruction, Count.LOST_UPDATES, temperature=warmth)
    text = "" if said is None else clean(said.instruction)
    ids = tuple(lesson.id for lesson in request.lessons)
    return Add(SECTION, text, sources=sources, lessons=ids) if text else None


async def all_written(requests: Sequence[InstructionRequest], warmth: float, run: Run) -> list[Add]:
    """The instructions of all requests, all at once, each text once."""
    jobs = [(str(n), partial(written, request, warmth, "curator")) for n, request in enumerate(requests, 1)]
    unlike: dict[str, Add] = {}
    for add in await run.gather(jobs):
        if add is not None:
            unlike.setdefault(add.text, add)
    return list(unlike.values())


def propose(plan: Plan, warmth: float) -> UpdateSeam:
    """New candidates, a call each. A text that is a candidate already is not added again."""

    async def update(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        known = ranked(context)
        made = await all_written(plan(known, lessons, run.rng("plan")), warmth, run)
        return Delta(tuple(add for add in made if add.text not in {e.text for e in known}))

    return update


# ---- evaluate


def visible_score(attempt: Attempt, run: Run) -> float | None:
    """What learning may see of an attempt: its score, or without labels whether it succeeded; None if neither is known
    or if the attempt was lost, which tells nothing about the candidate."""
    if attempt.trace.lost:
        return None
    if attempt.score is not None and run.labels:
        return attempt.score.value
    return None if attempt.feedback.success is None else float(attempt.feedback.success)


def mean_of(attempts: Sequence[Attempt], run: Run) -> Mean | None:
    """The mean of the scores that learning may see; None if there are none."""
    seen = [score for attempt in attempts if (score := visible_score(attempt, run)) is not None]
    return (sum(seen) / len(seen), len(seen)) if seen else None


def each_once(act: ActWithNote) -> AttemptSeam:
    """Attempt each task of the batch under the best candidate. An attempt at a task under an instruction is made once
    in a run, and returned again after that; an attempt that failed with an error is made anew."""

    async def one(task: Task, context: Context, run: Run) -> Attempt:
        known, key = run.reusable.setdefault(context.digest, {}), (act, task.id, run.member)
        if old := known.get(key):
            run.count(Count.REUSED_ATTEMPTS)
            return replace(old, place=run.place, of=old.of or old.place)
        made = await act(task, context, run)
        if made.trace.error is None:
            known[key] = made
        return made

    async def attempt(batch: Batch, context: Context, run: Run) -> list[Attempt]:
        shown = best(context)
        return await once(one)(batch, only("" if shown is None else shown.text), run)

    return attempt


ATTEMPT = each_once(answer(best_instruction))
"""Attempts by which candidates are compared."""


async def attempted(text: str, tasks: Sequence[Task], run: Run) -> list[Attempt]:
    """An attempt at each task under this instruction; "" is none."""
    return await ATTEMPT(Batch(tuple(tasks)), only(text), run)


Evaluate = Callable[
    [Sequence[Entry], Sequence[Add], Sequence[Attempt], Run], Awaitable[tuple[list[Mean | None], Mean | None]]
]
"""The means of the old and of the new candidates on the tasks of these attempts, None for those that keep their score
or have none; and the mean without any candidate."""


async def on_all(
    old: Sequence[Entry], new: Sequence[Add], attempts: Sequence[Attempt], run: Run
) -> tuple[list[Mean | None], Mean | None]:
    """All tasks: the new candidates, the old ones that have no score yet, and none, all at once."""
    texts = {"none": "", **{e.id: e.text for e in old if "n" not in e.data}}
    texts |= {str(n): add.text for n, add in enumerate(new)}
    run.count(Count.TRIED_CANDIDATES, len(texts) - 1)
    jobs = [(name, partial(attempted, text, [r.task for r in attempts])) for name, text in texts.items()]
    means = {name: mean_of(made, run) for name, made in zip(texts, await run.gather(jobs), strict=True)}
    return [*(means.get(e.id) for e in old), *(means[str(n)] for n in range(len(new)))], means["none"]


@dataclass(slots=True)
class CandidateArm:
    """A candidate on trial: the number of tasks that it was tried on, and the attempts."""

    text: str
    tried: int = 0
    made: list[Attempt] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Bandit:
    """Upper confidence bounds (ProTeGi, Pryzant et al. 2023, algorithm 3): in each of `rounds` rounds, the `arms`
    candidates with the highest bound are tried on `samples` further tasks each. All see the tasks in the same order.
    The old candidates have attempts at all tasks already. The score of none is that of the step before the first one.
    """

    rounds: int
    arms: int
    samples: int

    async def __call__(
        self, old: Sequence[Entry], new: Sequence[Add], attempts: Sequence[Attempt], run: Run
    ) -> tuple[list[Mean | None], Mean | None]:
        arms = [CandidateArm(text) for text in (*(e.text for e in old), *(add.text for add in new))]
        tasks = [r.task for r in attempts]
        run.count(Count.TRIED_CANDIDATES, len(new))
        await Bandit(1, len(old), len(tasks)).explore(arms[: len(old)], tasks, run.at("beam"))
        await self.explore(arms, tasks, run)
        before = next(((float(e.data["none"]), 0) for e in old if "none" in e.data), None)
        return [mean_of(arm.made, run) for arm in arms], before if old else mean_of(attempts, run)

    async def explore(self, arms: Sequence[CandidateArm], tasks: Sequence[Task], run: Run) -> None:
        """Try the arms, none twice on a task."""

        async def pull(arm: CandidateArm, run: Run) -> None:
            part = tasks[arm.tried : arm.tried + self.samples]
            arm.made += await attempted(arm.text, part, run)
            arm.tried += len(part)

        def bound(arm: CandidateArm) -> float:
            if not arm.tried:
                return math.inf
            return (mean_of(arm.made, run) or (0.0, 0))[0] + math.sqrt(math.log(turn) / arm.tried)

        for turn in range(1, self.rounds + 1):
            left = [arm for arm in arms if arm.tried < len(tasks)]
            chosen = sorted(left, key=bound, reverse=True)[: self.arms]
            await run.at(f"round {turn}").gather([(str(arms.index(arm)), partial(pull, arm)) for arm in chosen])


# ---- select

Candidate = TypeVar("Candidate", bound=Entry | Add)


def scored(candidate: Candidate, mean: Mean | None, none: Mean | None) -> Candidate:
    """The candidate with its mean score, and with that of none on the same tasks. Without scores it stays as it is."""
    if mean is None:
        return candidate
    data = {**candidate.data, "score": round(mean[0], 6), "n": mean[1]}
    return replace(candidate, data=data if none is None else {**data, "none": round(none[0], 6)})


def new_candidates(delta: Delta) -> list[Add]:
    return [edit for edit in delta.edits if isinstance(edit, Add) and edit.section == SECTION]


def others(delta: Delta, candidates: Sequence[Entry]) -> Delta:
    """The edits of a delta that are about none of these candidates and no new one."""
    new, ids = new_candidates(delta), {e.id for e in candidates}
    return Delta(tuple(edit for edit in delta.edits if edit not in new and ids.isdisjoint(changed_entries(edit))))


def select(beam: int, evaluate: Evaluate = on_all) -> AcceptSeam:
    """Evaluate the candidates and keep the `beam` best of old and new, without those that the delta deletes. On ties
    the older one is kept. Edits of other sections are kept."""

    async def accept(context: Context, delta: Delta, attempts: Sequence[Attempt], run: Run) -> Delta:
        new, gone = new_candidates(delta), {edit.id for edit in delta.edits if isinstance(edit, Delete)}
        old = sorted(context.in_section(SECTION), key=lambda e: e.number)
        means, none = await evaluate(old, new, attempts, run)
        tried: list[Entry | Add] = [*old, *new]
        pool = [
            scored(candidate, mean, none)
            for candidate, mean in zip(tried, means, strict=True)
            if (candidate.id not in gone if isinstance(candidate, Entry) else mean is not None)
        ]
        kept = sorted(pool, key=value, reverse=True)[:beam]
        stay = {e.id: e for e in kept if isinstance(e, Entry)}
        edits: list[Edit] = [Update(id, data=e.data) for id, e in stay.items() if e not in old]
        edits += [add for add in kept if isinstance(add, Add)]
        edits += [Delete(e.id, reason="fell out of the beam") for e in old if e.id not in stay]
        return Delta(tuple(edits)) + others(delta, old)

    return accept


# ---- what authors read


def history(candidates: Sequence[Entry]) -> str:
    """Candidates, the best first, as OPRO shows them: the worst first, each with its score out of 100."""
    shown = [f"Score: {100 * value(e):.0f}\n{e.text}" for e in reversed(candidates)]
    return "# Instructions so far, the best last\n\n" + ("\n\n".join(shown) or "(none yet)")


def cases(lessons: Sequence[Lesson]) -> str:
    """This step's attempts in words."""
    return "# Attempts\n\n" + "\n\n".join(lesson.detail or lesson.text for lesson in lessons)


async def demonstrations(attempts: Sequence[Attempt], context: Context, run: Run) -> list[Lesson]:
    """Each task with its right answer, if learning may see that, else the attempt at it with what is known of it. The
    detail of a lesson is the attempt, if it succeeded."""
    lessons = []
    for made in attempts:
        right = made.task.target if run.labels else None
        if right is not None or not made.trace.lost:
            text = evidence(made) if right is None else f"Input: {made.task.input}\nOutput: {right}"
            working = evidence(made) if made.feedback.success else ""
            data = {"right": right is not None}
            lessons.append(Lesson(made.place, text, working, sources=made.sources, data=data))
    return lessons


def demonstrated(lessons: Sequence[Lesson]) -> str:
    """Demonstrations as a part of a prompt. A heading says whether the outputs are right or are attempts."""
    right = [x.text for x in lessons if x.data["right"]]
    attempts = [x.text for x in lessons if not x.data["right"]]
    parts = [("# Inputs with their right outputs", right), ("# Attempts, with what is known of each", attempts)]
    return "\n\n".join("\n\n".join([heading, *texts]) for heading, texts in parts if texts)


def search(name: str, s: BeamSettings, update: UpdateSeam) -> Method:
    """Read some of the tasks, write candidates, score each on the same tasks, keep the best. An attempt is made with
    the best one."""
    return Method(
        name=name,
        sample=drawn(s.steps, s.batch, anew=False),
        show=best_instruction,
        act=answer(best_instruction),
        attempt=ATTEMPT,
        reflect=demonstrations,
        update=update,
        accept=select(s.beam),
        roles=("curator",),
        costs="a call for each candidate, and trying it on the batch",
    )
