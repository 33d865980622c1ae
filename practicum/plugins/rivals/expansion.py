"""How ProTeGi, and ERM after it, make new instructions of a beam: what is wrong with each is put into words, each is
edited against that, and the results are paraphrased (Pryzant et al., 2023, sections 2.1 and 2.2)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, TypeVar

from pydantic import Field

from practicum.blocks.reflect.evidence import evidence
from practicum.core.bounded import MaxChars, Output, clean
from practicum.core.context import Context
from practicum.core.counts import Count
from practicum.core.edits import Add, Delta, Entry, ordered_union
from practicum.core.types import Instructions, Lesson, Rollout
from practicum.engine.loop import AttemptSeam, Batch, ReflectSeam, UpdateSeam, sources_of
from practicum.engine.run import Run
from practicum.plugins.rivals.search import Request, all_written, only, ranked, written

F = TypeVar("F", bound=Output)

NONE = "(none: the agent was told nothing beside the task)"
"""What stands for the instruction of an agent that has none."""


class Criticism(Output):
    """What is wrong with an instruction."""

    reasons: Annotated[str, MaxChars(400)] = Field(description="why it led to these failures, and what it lacks")


@dataclass(frozen=True, slots=True)
class Expansion:
    """For each instruction of the beam: `gradients` criticisms, each from `errors` failures; one edit for each of them;
    `paraphrases` of each edit; and up to `successors` of all these, drawn by chance."""

    gradients: int
    errors: int
    paraphrases: int
    successors: int


Critic = Callable[[Entry | None, Sequence[Rollout], Run], Awaitable[list[Lesson]]]
"""Criticises an instruction (None: that there is none) by some of its failures. The data of each lesson names the
instruction as `parent`, and its detail shows the failures."""


def gradients(critic: Critic, how: Expansion, attempt: AttemptSeam) -> ReflectSeam:
    """Attempt the tasks of the step under every instruction of the beam, and criticise each instruction by groups of
    its failures. An instruction without failures gets no criticism."""

    async def one(parent: Entry | None, rollouts: Sequence[Rollout], run: Run) -> list[Lesson]:
        text = "" if parent is None else parent.text
        made = await attempt(Batch(tuple(r.task for r in rollouts)), only(text), run.at("attempt"))
        wrong = [r for r in made if r.feedback.success is False and not r.trace.lost]
        rng, size = run.rng("errors"), min(how.errors, len(wrong))
        groups = [rng.sample(wrong, size) for _ in range(how.gradients if wrong else 0)]
        jobs = [(f"gradient {n}", partial(critic, parent, group)) for n, group in enumerate(groups, 1)]
        return [lesson for lessons in await run.gather(jobs) for lesson in lessons]

    async def reflect(rollouts: Sequence[Rollout], context: Context, run: Run) -> list[Lesson]:
        parents: list[Entry | None] = [*ranked(context)] or [None]
        jobs = [("none" if p is None else p.id, partial(one, p, rollouts)) for p in parents]
        return [lesson for lessons in await run.gather(jobs) for lesson in lessons]

    return reflect


def by_criticism(told: Instructions) -> Critic:
    """Say why the instruction led to these failures (section 2.1)."""

    async def criticised(parent: Entry | None, group: Sequence[Rollout], run: Run) -> list[Lesson]:
        errors = "\n\n".join(evidence(r) for r in group)
        said, sources = await asked_about(parent, group, errors, told, Criticism, run)
        if said is None or not (text := clean(said.reasons)):
            return []
        data = {"parent": "" if parent is None else parent.id}
        return [Lesson(run.place, text, errors, sources=sources, data=data)]

    return criticised


async def asked_about(
    parent: Entry | None, group: Sequence[Rollout], errors: str, told: Instructions, form: type[F], run: Run
) -> tuple[F | None, tuple[str, ...]]:
    """What a reflector says in this form about an instruction and its failures, None if that was lost; and the sources
    that it rests on."""
    parts = [*run.agent_instructions, _instruction(parent), f"# What failed under it\n{errors}"]
    sources = ordered_union([sources_of(group), () if parent is None else parent.sources])
    run = replace(run, about=sources)
    prompt = told.prompt(run.profile, parts)
    return await run.try_ask("reflector", prompt, form, Count.LOST_REFLECTIONS), sources


def expanded(edit: Instructions, paraphrase: Instructions, how: Expansion, warmth: float) -> UpdateSeam:
    """The successors of the beam: edits against each criticism, and paraphrases of them."""

    async def one(lesson: Lesson, context: Context, run: Run) -> list[Add]:
        parent = context.get(lesson.data["parent"])
        parents = () if parent is None else (parent,)
        errors, reasons = f"# What failed under it\n{lesson.detail}", f"# What is wrong with it\n{lesson.text}"
        asked = Request(edit, (_instruction(parent), errors, reasons), parents, (lesson,))
        made = await written(asked, warmth, "curator", run.at("edit"))
        if made is None:
            return []
        again = Request(paraphrase, (f"# The instruction\n{made.text}",), parents, (lesson,))
        return [made, *await all_written([again] * how.paraphrases, warmth, run.at("paraphrase"))]

    async def update(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        jobs = [(str(n), partial(one, lesson, context)) for n, lesson in enumerate(lessons, 1)]
        successors: dict[str, list[Add]] = defaultdict(list)
        for lesson, made in zip(lessons, await run.gather(jobs), strict=True):
            successors[lesson.data["parent"]] += made
        known, new = {e.text for e in ranked(context)}, dict[str, Add]()
        for parent, made in successors.items():
            unlike = list({add.text: add for add in made if add.text not in known}.values())
            for add in run.rng(f"successors of {parent}").sample(unlike, min(how.successors, len(unlike))):
                new.setdefault(add.text, add)
        return Delta(tuple(new.values()))

    return update


def _instruction(parent: Entry | None) -> str:
    return f"# The instruction\n{NONE if parent is None else parent.text}"
