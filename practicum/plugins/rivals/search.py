"""Instruction search over a population of instructions for an agent: the blocks that the recipes of searches share.

A step proposes instructions, evaluates them on tasks, and selects the candidates to keep. A recipe defines the
proposals, as calls that write one instruction each (`propose`), the evaluation (`on_all` tasks, or a `Bandit`), and the
number of candidates to keep (`search`).

A candidate is an entry with an instruction. The entry's data has `score`, the mean score of `n` attempts with the
candidate, and `none`, the mean score of attempts at the same tasks without a candidate. An attempt is shown the best
candidate if that candidate scores higher than `none`, otherwise no candidate.
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
"""Section of candidates."""

FEEDBACK = ".feedback"
"""Hidden section of criticisms, which are read again in later steps."""

LONGEST = 32_000
"""Maximum length (characters) of an instruction that a model writes; a longer instruction is an invalid output."""

NONE = "(none: the agent was told nothing beside the task)"
"""Text that a prompt shows in place of the instruction if the agent has no instruction."""

Mean = tuple[float, int]
"""A mean score and the number of scores."""


class SearchSettings(CandidateSettings):
    """Settings of methods that search for instructions."""

    steps: int = Field(default=12, ge=1)
    """Number of steps."""
    batch: int = Field(default=16, ge=1)
    """Number of tasks per step; all candidates of the step are evaluated on these tasks."""


class BeamSettings(SearchSettings):
    """Settings of methods that score all candidates on the same tasks."""

    SMALL: ClassVar[Mapping[str, Any]] = {"steps": 4, "batch": 16, "candidates": 4, "beam": 4}

    batch: int = Field(default=50, ge=1)
    """Number of tasks on which every candidate is scored: the same tasks in each step, drawn once."""
    candidates: int = Field(default=8, ge=1)
    """Number of new candidates per step, each written by a separate call."""
    beam: int = Field(default=20, ge=1)
    """Number of best candidates that are kept."""


# ---- the population


def value(candidate: Entry | Add) -> float:
    """Return the mean score of a candidate; 0 if it was never evaluated."""
    return float(candidate.data.get("score", 0.0))


def ranked(context: Context) -> list[Entry]:
    """Return the candidates, the best first. Of candidates with equal scores, the older one is first."""
    return sorted(context.in_section(SECTION), key=lambda e: (-value(e), e.number))


def best(context: Context) -> Entry | None:
    """Return the best candidate if it scores higher than the agent without a candidate; else None."""
    return next((e for e in ranked(context)[:1] if value(e) > float(e.data.get("none", -1.0))), None)


async def best_instruction(context: Context, task: Task, run: Run) -> View:
    """Return a view of the candidate that `best` returns, or an empty view if `best` returns None."""
    shown = best(context)
    if shown is None:
        return View()
    text, entries = visible_to_model(shown.text), partial(tuple, (shown,))
    return View((text,), ids=(shown.id,), tokens=count_tokens(text), instructing=True, fixed=1, entries=entries)


def only(text: str) -> Context:
    """Return a context with the instruction `text` as the only entry, or an empty context if `text` is empty."""
    return Context().apply(Delta((Add(SECTION, text),) if text else ())).context


def drawn_by(weight: Callable[[Entry], float], entries: Sequence[Entry], most: int, rng: random.Random) -> list[Entry]:
    """Draw up to `most` different entries, with probabilities proportional to their weights."""
    remaining, chosen = list(entries), list[Entry]()
    while remaining and len(chosen) < most:
        chosen += rng.choices(remaining, [weight(e) for e in remaining])
        remaining.remove(chosen[-1])
    return chosen


def roulette(candidates: Sequence[Entry], rng: random.Random) -> list[Entry]:
    """Draw two different candidates, with probabilities proportional to their scores."""
    # Each candidate has an additional small weight, so that candidates can be drawn even if all of them score 0.
    return drawn_by(lambda e: value(e) + 1e-6, candidates, 2, rng)


# ---- propose


class Instruction(Output):
    """A whole instruction for the agent, ready to be used as it stands."""

    instruction: Annotated[str, MaxChars(1_200, LONGEST)] = Field(description="the whole instruction")


@dataclass(frozen=True, slots=True)
class InstructionRequest:
    """Request for an instruction: the prompt of the call, and the candidates and lessons that the instruction depends
    on."""

    instructions: Instructions
    parts: tuple[str, ...]
    parents: tuple[Entry, ...] = ()
    lessons: tuple[Lesson, ...] = ()


Plan = Callable[[Sequence[Entry], Sequence[Lesson], random.Random], Sequence[InstructionRequest]]
"""Function that returns the requests of a step from the candidates so far, the best first, and the lessons of the
step."""


async def written(request: InstructionRequest, warmth: float, role: str, run: Run) -> Add | None:
    """Have a model write the requested instruction. Return None if the call fails, or if the written text is empty. A
    failed call is counted."""
    sources = ordered_union([sources_of(request.lessons), *(e.sources for e in request.parents)])
    prompt = request.instructions.prompt(run.profile, [*run.agent_instructions, *request.parts])
    at = replace(run, about=sources or run.about)
    output = await at.try_ask(role, prompt, Instruction, Count.LOST_UPDATES, temperature=warmth)
    text = "" if output is None else clean(output.instruction)
    ids = tuple(lesson.id for lesson in request.lessons)
    return Add(SECTION, text, sources=sources, lessons=ids) if text else None


async def all_written(requests: Sequence[InstructionRequest], warmth: float, run: Run) -> list[Add]:
    """Have models write the instructions of all requests concurrently. Duplicate texts are dropped."""
    jobs = [(str(n), partial(written, request, warmth, "curator")) for n, request in enumerate(requests, 1)]
    by_text: dict[str, Add] = {}
    for add in await run.gather(jobs):
        if add is not None:
            by_text.setdefault(add.text, add)
    return list(by_text.values())


def propose(plan: Plan, warmth: float) -> UpdateSeam:
    """Return an update seam that has a model write new candidates, with one call for each new candidate. A text that an
    earlier candidate has is not added again."""

    async def update(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        candidates = ranked(context)
        adds = await all_written(plan(candidates, lessons, run.rng("plan")), warmth, run)
        return Delta(tuple(add for add in adds if add.text not in {e.text for e in candidates}))

    return update


# ---- evaluate


def visible_score(attempt: Attempt, run: Run) -> float | None:
    """Return the score of an attempt that learning may see. If learning may see labels and the attempt has a score,
    this score is returned. Otherwise the feedback decides: 1 if the feedback states success, 0 if it states failure,
    None if it states neither.

    Returns None if the attempt was lost, because a lost attempt says nothing about the candidate.
    """
    if attempt.trace.lost:
        return None
    if attempt.score is not None and run.labels:
        return attempt.score.value
    return None if attempt.feedback.success is None else float(attempt.feedback.success)


def mean_of(attempts: Sequence[Attempt], run: Run) -> Mean | None:
    """Return the mean and the number of the attempts' scores that learning may see; None if no attempt has such a
    score."""
    scores = [score for attempt in attempts if (score := visible_score(attempt, run)) is not None]
    return (sum(scores) / len(scores), len(scores)) if scores else None


def each_once(act: ActWithNote) -> AttemptSeam:
    """Return an attempt seam that attempts each task of the batch with the best candidate.

    During a run, an attempt at the same task with the same instruction is made once and then reused, unless it had an
    error.
    """

    async def cached_attempt(task: Task, context: Context, run: Run) -> Attempt:
        cache, key = run.reusable.setdefault(context.digest, {}), (act, task.id, run.member)
        if cached := cache.get(key):
            run.count(Count.REUSED_ATTEMPTS)
            return replace(cached, place=run.place, of=cached.of or cached.place)
        result = await act(task, context, run)
        if result.trace.error is None:
            cache[key] = result
        return result

    async def attempt(batch: Batch, context: Context, run: Run) -> list[Attempt]:
        shown = best(context)
        return await once(cached_attempt)(batch, only("" if shown is None else shown.text), run)

    return attempt


ATTEMPT = each_once(answer(best_instruction))
"""Attempt seam for the comparison of candidates."""


async def attempted(text: str, tasks: Sequence[Task], run: Run) -> list[Attempt]:
    """Attempt each task with the instruction `text`. If `text` is "", attempt each task without an instruction."""
    return await ATTEMPT(Batch(tuple(tasks)), only(text), run)


Evaluate = Callable[
    [Sequence[Entry], Sequence[Add], Sequence[Attempt], Run], Awaitable[tuple[list[Mean | None], Mean | None]]
]
"""Function that evaluates the old and new candidates on the tasks of the passed attempts. Returns the mean score of
each candidate, the old candidates first, and the mean score without a candidate. The mean is None for a candidate that
was not measured; an old candidate then keeps its earlier score."""


async def on_all(
    old: Sequence[Entry], new: Sequence[Add], attempts: Sequence[Attempt], run: Run
) -> tuple[list[Mean | None], Mean | None]:
    """Evaluate concurrently, each on all tasks: the new candidates, the old candidates that have no score yet, and the
    agent without a candidate."""
    texts = {"none": "", **{e.id: e.text for e in old if "n" not in e.data}}
    texts |= {str(n): add.text for n, add in enumerate(new)}
    run.count(Count.TRIED_CANDIDATES, len(texts) - 1)
    jobs = [(name, partial(attempted, text, [r.task for r in attempts])) for name, text in texts.items()]
    means = {name: mean_of(results, run) for name, results in zip(texts, await run.gather(jobs), strict=True)}
    return [*(means.get(e.id) for e in old), *(means[str(n)] for n in range(len(new)))], means["none"]


@dataclass(slots=True)
class CandidateArm:
    """An arm of the bandit: the text of a candidate, the number of tasks on which the candidate was tried, and the
    attempts at these tasks."""

    text: str
    tried: int = 0
    attempts: list[Attempt] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Bandit:
    """Evaluation with upper confidence bounds (ProTeGi, Pryzant et al. 2023, algorithm 3).

    In each of `rounds` rounds, the `arms` candidates with the highest upper confidence bounds are each tried on
    `samples` further tasks. All candidates get the tasks in the same order. Before the rounds, the old candidates are
    tried on all tasks. The score without a candidate is measured only in the first step.
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
        without = next(((float(e.data["none"]), 0) for e in old if "none" in e.data), None)
        return [mean_of(arm.attempts, run) for arm in arms], without if old else mean_of(attempts, run)

    async def explore(self, arms: Sequence[CandidateArm], tasks: Sequence[Task], run: Run) -> None:
        """Try the arms in rounds. An arm is tried at most once on each task."""

        async def pull(arm: CandidateArm, run: Run) -> None:
            part = tasks[arm.tried : arm.tried + self.samples]
            arm.attempts += await attempted(arm.text, part, run)
            arm.tried += len(part)

        def bound(arm: CandidateArm) -> float:
            if not arm.tried:
                return math.inf
            return (mean_of(arm.attempts, run) or (0.0, 0))[0] + math.sqrt(math.log(turn) / arm.tried)

        for turn in range(1, self.rounds + 1):
            open_arms = [arm for arm in arms if arm.tried < len(tasks)]
            chosen = sorted(open_arms, key=bound, reverse=True)[: self.arms]
            await run.at(f"round {turn}").gather([(str(arms.index(arm)), partial(pull, arm)) for arm in chosen])


# ---- select

Candidate = TypeVar("Candidate", bound=Entry | Add)


def scored(candidate: Candidate, mean: Mean | None, none: Mean | None) -> Candidate:
    """Return the candidate with two mean scores in its data: `mean` of attempts with the candidate, and `none` of
    attempts at the same tasks without a candidate. If `mean` is None, return the candidate unchanged."""
    if mean is None:
        return candidate
    data = {**candidate.data, "score": round(mean[0], 6), "n": mean[1]}
    return replace(candidate, data=data if none is None else {**data, "none": round(none[0], 6)})


def new_candidates(delta: Delta) -> list[Add]:
    return [edit for edit in delta.edits if isinstance(edit, Add) and edit.section == SECTION]


def others(delta: Delta, candidates: Sequence[Entry]) -> Delta:
    """Return the edits of a delta, except edits that add a candidate or change one of `candidates`."""
    new, ids = new_candidates(delta), {e.id for e in candidates}
    return Delta(tuple(edit for edit in delta.edits if edit not in new and ids.isdisjoint(changed_entries(edit))))


def select(beam: int, evaluate: Evaluate = on_all) -> AcceptSeam:
    """Return an accept seam that evaluates the old and new candidates and keeps the `beam` best candidates.

    Candidates that the delta deletes are dropped. If scores are equal, the older candidate is preferred. The edits of
    the delta that do not concern candidates are applied unchanged.
    """

    async def accept(context: Context, delta: Delta, attempts: Sequence[Attempt], run: Run) -> Delta:
        new, deleted = new_candidates(delta), {edit.id for edit in delta.edits if isinstance(edit, Delete)}
        old = sorted(context.in_section(SECTION), key=lambda e: e.number)
        means, none = await evaluate(old, new, attempts, run)
        tried: list[Entry | Add] = [*old, *new]
        pool = [
            scored(candidate, mean, none)
            for candidate, mean in zip(tried, means, strict=True)
            if (candidate.id not in deleted if isinstance(candidate, Entry) else mean is not None)
        ]
        survivors = sorted(pool, key=value, reverse=True)[:beam]
        remaining = {e.id: e for e in survivors if isinstance(e, Entry)}
        edits: list[Edit] = [Update(id, data=e.data) for id, e in remaining.items() if e not in old]
        edits += [add for add in survivors if isinstance(add, Add)]
        edits += [Delete(e.id, reason="fell out of the beam") for e in old if e.id not in remaining]
        return Delta(tuple(edits)) + others(delta, old)

    return accept


# ---- parts of prompts


def history(candidates: Sequence[Entry]) -> str:
    """Return the part of a prompt that lists the candidates as in OPRO: the worst first, each with its score out of
    100. `candidates` has the best candidate first."""
    shown = [f"Score: {100 * value(e):.0f}\n{e.text}" for e in reversed(candidates)]
    return "# Instructions so far, the best last\n\n" + ("\n\n".join(shown) or "(none yet)")


def cases(lessons: Sequence[Lesson]) -> str:
    """Return the part of a prompt that shows the attempts of the step."""
    return "# Attempts\n\n" + "\n\n".join(lesson.detail or lesson.text for lesson in lessons)


async def demonstrations(attempts: Sequence[Attempt], context: Context, run: Run) -> list[Lesson]:
    """Return a lesson for each attempt. The text is the task with its right answer or, if learning may not see the
    right answer, the attempt with its feedback. The detail of the lesson is the attempt if the attempt succeeded, else
    empty."""
    lessons = []
    for attempt in attempts:
        right = attempt.task.target if run.targets else None
        if right is not None or not attempt.trace.lost:
            text = evidence(attempt) if right is None else f"Input: {attempt.task.text}\nOutput: {right}"
            working = evidence(attempt) if attempt.feedback.success else ""
            data = {"right": right is not None}
            lessons.append(Lesson(attempt.place, text, working, sources=attempt.sources, data=data))
    return lessons


def demonstrated(lessons: Sequence[Lesson]) -> str:
    """Return the part of a prompt with demonstrations: under one heading the inputs with right outputs, under another
    heading the attempts."""
    right = [x.text for x in lessons if x.data["right"]]
    attempts = [x.text for x in lessons if not x.data["right"]]
    parts = [("# Inputs with their right outputs", right), ("# Attempts, with what is known of each", attempts)]
    return "\n\n".join("\n\n".join([heading, *texts]) for heading, texts in parts if texts)


def search(name: str, s: BeamSettings, update: UpdateSeam) -> Method:
    """Return a method that reads a batch of tasks, writes candidates, scores each candidate on this batch, and keeps
    the best candidates. An attempt is shown the best candidate."""
    return Method(
        name=name,
        sample=drawn(s.steps, s.batch, redraw=False),
        show=best_instruction,
        act=answer(best_instruction),
        attempt=ATTEMPT,
        reflect=demonstrations,
        update=update,
        accept=select(s.beam),
        roles=("curator",),
        costs="a call for each candidate, and attempts at the batch with each candidate",
    )
