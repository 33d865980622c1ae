"""ERM, Exemplar-guided Reflection with Memory: a model solves typical failures before it criticises an instruction;
helpful criticisms and helpful solved failures are remembered, unhelpful ones are deleted (Yan et al., 2025, section 3).

docs/learn/methods/reproductions.md lists the differences from the paper.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar

from pydantic import Field

from practicum.core.bounded import MaxChars, MaxItems, Output, clean
from practicum.core.context import Context
from practicum.core.edits import Add, Delta, Edit, Entry, Vote
from practicum.core.types import Attempt, Instructions, Lesson, Rating, Task
from practicum.core.views import View, render_turns
from practicum.engine.loop import AcceptSeam, Method, ReflectSeam, ShowSeam, UpdateSeam
from practicum.engine.run import Run
from practicum.methods.blocks.attempt import once
from practicum.methods.blocks.curate import newest_per_key, pruned
from practicum.methods.blocks.reflect import evidence
from practicum.methods.blocks.sample import drawn
from practicum.methods.blocks.show import Solved, answer, similarities
from practicum.methods.settings import RetrievalSettings
from practicum.methods.worked_examples import HINGE, SHOP, WORKSHOP
from practicum.plugins.rivals.examples import CUPS_WRONG, example
from practicum.plugins.rivals.protegi import Critic, asked_about, expanded, gradients
from practicum.plugins.rivals.search import (
    FEEDBACK,
    NONE,
    SearchSettings,
    best_instruction,
    drawn_by,
    new_candidates,
    select,
)
from practicum.retrieval.scripts import alike
from practicum.tasks.scoring.rules import normalise

EXEMPLARS = "exemplars"
"""Section of exemplars: tasks with their right answers that are shown to the agent."""

SHARPNESS = 10.0
"""Inverse of the temperature of the softmax over the priorities of memories: with a larger value, helpful criticisms
are drawn more often."""

NEAR = 4
"""The number of retrieved exemplars is NEAR times the number of exemplars to show. Of the retrieved exemplars, those
with the highest product of similarity and priority are shown."""

MARGIN = 2
"""A memory (a stored criticism or exemplar) is deleted when it has MARGIN more harmful votes than helpful votes."""


class Settings(SearchSettings, RetrievalSettings):
    SMALL: ClassVar[Mapping[str, Any]] = {"steps": 4, "batch": 16, "feedback": 2, "recalled": 1, "k": 3}

    steps: int = Field(default=6, ge=1)
    """Number of steps."""
    batch: int = Field(default=50, ge=1)
    """Number of tasks on which every instruction is scored: the same tasks in each step, drawn once."""
    beam: int = Field(default=4, ge=1)
    """Number of best instructions that are kept (paper: 4)."""
    errors: int = Field(default=8, ge=1)
    """Maximum number of failures of an instruction in one reflection."""
    feedback: int = Field(default=4, ge=1)
    """Maximum number of criticisms per reflection; a new instruction is written for each criticism."""
    recalled: int = Field(default=2, ge=0)
    """Number of remembered criticisms for which an edit of an instruction is written, in addition to the edits for new
    criticisms; 0: no remembered criticisms."""
    k: int = Field(default=5, ge=0)
    """Number of exemplars that are shown to the agent (paper: 5); 0: no exemplars."""


def method(s: Settings) -> Method:
    """Solve failures, criticise, edit with new and remembered criticisms, keep the best instructions and helpful
    memories."""
    show = with_exemplars(s.k)
    act = answer(show)
    return Method(
        name="erm",
        show=show,
        sample=drawn(s.steps, s.batch, redraw=False),
        act=act,
        attempt=once(act),
        reflect=judging_exemplars(gradients(by_exemplars(s.feedback), 1, s.errors)),
        update=remembering(expanded(0, s.feedback + s.recalled, s.warmth), s.recalled),
        accept=judging_feedback(select(s.beam)),
        roles=("curator", "reflector"),
        costs="attempts at the batch and one reflection on failures for each instruction, an edit for each criticism",
    )


class Exemplar(Output):
    """A failure that was worked out."""

    case: int = Field(description="the number of the failed case")
    solution: Annotated[str, MaxChars(400)] = Field(description="how the case is solved, step by step")
    answer: Annotated[str, MaxChars(200)] = Field(description="the right answer, in the form that is wanted")


class Reflected(Output):
    """Typical failures, worked out, and what they say about the instruction."""

    exemplars: Annotated[list[Exemplar], MaxItems(2)] = Field(description="the most telling cases, all different")
    feedback: Annotated[list[Annotated[str, MaxChars(300)]], MaxItems(2)] = Field(
        description="what is wrong with the instruction, a point each"
    )


def priority(entry: Entry) -> float:
    """Return the priority of a memory, in (0, 1): the smoothed share of helpful votes among all votes on the memory;
    0.5 without votes."""
    return (entry.helpful + 1) / (entry.helpful + entry.harmful + 2)


def by_exemplars(most: int) -> Critic:
    """Return a critic that solves typical failures and then criticises the instruction. The critic returns a lesson for
    each of up to `most` criticisms. A solved failure is dropped unless its answer equals the task's target."""

    async def criticised(parent: Entry | None, group: Sequence[Attempt], run: Run) -> list[Lesson]:
        errors = "\n\n".join(f"Case {n}\n{evidence(r)}" for n, r in enumerate(group, 1))
        output, sources = await asked_about(parent, group, errors, REFLECT, Reflected, run)
        if output is None:
            return []
        right: list[dict[str, Any]] = []
        for exemplar in output.exemplars:
            failed = group[exemplar.case - 1] if 0 < exemplar.case <= len(group) else None
            target = failed.task.target if failed is not None and run.targets else None
            if failed is not None and target is not None and normalise(exemplar.answer) == normalise(target):
                fields = {"task": failed.task.input, "answer": target, "sources": [*failed.sources]}
                right.append({**fields, "solution": clean(exemplar.solution)})
        worked = "\n\n".join(f"Task: {x['task']}\nSolution: {x['solution']}\nAnswer: {x['answer']}" for x in right)
        detail = f"{errors}\n\n# How some of it is done right\n{worked}" if worked else errors
        data = {"parent": "" if parent is None else parent.id, "exemplars": right}
        points = [point for text in output.feedback[:most] if (point := clean(text))]
        return [
            Lesson(f"{run.place}/{n}", text, detail, sources=sources, data=data) for n, text in enumerate(points, 1)
        ]

    return criticised


def judging_exemplars(reflect: ReflectSeam) -> ReflectSeam:
    """Return a reflect seam that runs `reflect` and then votes on the exemplars that were shown to each attempt:
    helpful if the attempt succeeded, harmful if the attempt failed."""

    async def reflected(attempts: Sequence[Attempt], context: Context, run: Run) -> list[Lesson]:
        lessons = await reflect(attempts, context, run)
        for r in attempts:
            if r.retrieved and r.feedback.success is not None and not r.trace.lost:
                rating: Rating = "helpful" if r.feedback.success else "harmful"
                votes = dict.fromkeys((id for id, _ in r.retrieved), rating)
                lessons.append(Lesson(f"{r.place}/exemplars", "", votes=votes, sources=r.sources))
        return lessons

    return reflected


def remembering(update: UpdateSeam, recalled: int) -> UpdateSeam:
    """Return an update seam that runs `update` on new and remembered criticisms. For each criticised instruction, up to
    `recalled` remembered criticisms are drawn by a softmax over priorities. New criticisms and exemplars are added.
    Memories with too many harmful votes (MARGIN) are deleted."""

    async def updated(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        fresh = [x for x in lessons if x.text]
        memory = [e for e in context.in_section(FEEDBACK) if e.harmful - e.helpful < MARGIN]
        old: list[Lesson] = []
        for first in {x.data["parent"]: x for x in fresh}.values():
            rng = run.rng(f"recalled for {first.data['parent']}")
            for e in drawn_by(lambda e: math.exp(SHARPNESS * priority(e)), memory, recalled, rng):
                data = {"parent": first.data["parent"]}
                sources = (*e.sources, *(s for s in first.sources if s not in e.sources))
                old.append(Lesson(str(e.data["lesson"]), e.text, first.detail, sources=sources, data=data))
        delta = await update([*old, *fresh], context, run)
        adds: list[Edit] = [
            Add(FEEDBACK, x.text, data={"lesson": x.id}, sources=x.sources, lessons=(x.id,)) for x in fresh
        ]
        for lesson in {x.detail: x for x in fresh}.values():
            for x in lesson.data["exemplars"]:
                data = {"answer": x["answer"], "good": True, "solution": x["solution"]}
                adds.append(Add(EXEMPLARS, x["task"], data=data, sources=tuple(x["sources"]), lessons=(lesson.id,)))
        votes = (
            Vote(id, int(v == "helpful"), int(v == "harmful"), 1, x.sources)
            for x in lessons
            for id, v in x.votes.items()
        )
        return Delta((*votes, *adds)) + delta

    return pruned(newest_per_key(updated), MARGIN)


def judging_feedback(accept: AcceptSeam) -> AcceptSeam:
    """Return an accept seam that runs `accept` and then votes on every stored criticism for which an instruction was
    written in this step: helpful if an instruction written for the criticism was kept, else harmful. A new criticism is
    stored only if an instruction written for it was kept and no similar criticism is stored already."""

    async def accepted(context: Context, delta: Delta, attempts: Sequence[Attempt], run: Run) -> Delta:
        accepted_delta = await accept(context, delta, attempts, run)
        tried = {id for add in new_candidates(delta) for id in add.lessons}
        helped = {id for add in new_candidates(accepted_delta) for id in add.lessons}
        memory = context.in_section(FEEDBACK)
        stored, edits = [e.text for e in memory], list[Edit]()
        for edit in accepted_delta.edits:
            if not isinstance(edit, Add) or edit.section != FEEDBACK:
                edits.append(edit)
            elif helped.intersection(edit.lessons):
                texts = [edit.text, *stored]
                vectors = await run.at(f"like {edit.lessons[0]}").embed(texts)
                if not alike(texts, vectors, 1, run.same_from).any():
                    stored.append(edit.text)
                    edits.append(edit)
        votes = [(e.id, e.data["lesson"] in helped) for e in memory if e.data["lesson"] in tried]
        return replace(accepted_delta, edits=(*edits, *(Vote(id, int(good), int(not good), 1) for id, good in votes)))

    return accepted


def with_exemplars(k: int) -> ShowSeam:
    """Return a show seam that shows the best instruction and, as earlier turns, the `k` exemplars with the highest
    product of similarity to the task and priority, the best last. A task is never its own exemplar."""

    async def show(context: Context, task: Task, run: Run) -> View:
        view = await best_instruction(context, task, run)
        near = await run.nearest(context, task.input, NEAR * k, Solved(EXEMPLARS))
        others = [match for match in near if match.entry.text != task.input]
        best = sorted(others, key=lambda m: m.similarity * priority(m.entry), reverse=True)[:k]
        turns = render_turns(match.entry for match in reversed(best))
        return replace(
            view, turns=turns.turns, tokens=view.tokens + turns.tokens, retrieved=similarities(best),
            entries=lambda: (*view.entries(), *turns.entries()),
        )  # fmt: skip

    return show


REFLECT = Instructions(
    full="""\
You find out why an instruction fails. You see the instruction that an agent works under, and numbered cases at which \
the agent failed with it.

exemplars: choose the cases that show most, up to five and each of another kind, and work each of them out: every \
step that leads to the right result, with the facts and rules that it takes, and then the right answer, in exactly the \
form that is wanted.
feedback: with these solutions in mind, say what is wrong with the instruction. What does it not say that a solution \
needs, what does it say wrongly, and what leads astray? Make each point by itself, so exact that the instruction can \
be corrected by that point alone, and let no two points say the same. Do not write a new instruction.""",
    small="""\
An agent failed at tasks because its instruction was not good enough. First work out the most telling cases: how each \
is solved, and its right answer. Then say what the instruction lacks or says wrongly, a point each. Do not write a new \
instruction.""",
    examples=(
        example(
            Reflected(
                exemplars=[Exemplar(case=1, solution="3 x 4 = 12, and 12 - 2 = 10.", answer="10")],
                feedback=["It asks for the discount, but what is left to pay is wanted: the sum less the discount."],
            ),
            SHOP, "# The instruction\nAnswer with the discount.", f"# What failed under it\nCase 1\n{CUPS_WRONG}",
        ),
        example(
            Reflected(
                exemplars=[Exemplar(case=1, solution="Salt air rusts steel; bronze stands it.", answer="bronze")],
                feedback=["Nothing says what a material has to stand: parts near salt water are made of bronze."],
            ),
            WORKSHOP, f"# The instruction\n{NONE}", f"# What failed under it\nCase 1\n{HINGE}",
        ),
    ),
)  # fmt: skip
