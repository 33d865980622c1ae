"""ProTeGi: beam search with text gradients; a model criticises each instruction of the beam and writes corrected
instructions, and a bandit selects among old and corrected instructions (Pryzant et al., 2023, sections 2.1 to 2.3).

docs/learn/methods/reproductions.md lists the differences from the paper.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import Field

from practicum.core.bounded import MaxChars, Output, clean
from practicum.core.context import Context
from practicum.core.counts import Count
from practicum.core.edits import Add, Delta, Entry, ordered_union
from practicum.core.types import Attempt, Instructions, Lesson
from practicum.engine.loop import Method, ReflectSeam, UpdateSeam, sources_of
from practicum.engine.run import Run
from practicum.methods.blocks.reflect import evidence
from practicum.methods.blocks.sample import drawn
from practicum.methods.blocks.show import answer
from practicum.methods.worked_examples import CALENDAR, HINGE, MEETING, SHOP, WORKSHOP
from practicum.plugins.rivals.ape import VARY
from practicum.plugins.rivals.examples import CUPS_WRONG, DATES, PRICES, example
from practicum.plugins.rivals.search import (
    ATTEMPT,
    NONE,
    Bandit,
    InstructionRequest,
    SearchSettings,
    all_written,
    attempted,
    best_instruction,
    ranked,
    select,
    written,
)

F = TypeVar("F", bound=Output)


class Settings(SearchSettings):
    SMALL: ClassVar[Mapping[str, Any]] = {
        "steps": 4, "batch": 16, "gradients": 2, "paraphrases": 1, "successors": 4,
        "rounds": 4, "arms": 4, "samples": 8,
    }  # fmt: skip

    steps: int = Field(default=6, ge=1)
    """Number of steps (paper: 6)."""
    batch: int = Field(default=64, ge=1)
    """Number of tasks per step, drawn again for each step; all instructions of the beam are tried on these tasks
    (paper: 64)."""
    beam: int = Field(default=4, ge=1)
    """Number of best instructions that are kept after each step (paper: 4)."""
    gradients: int = Field(default=4, ge=1)
    """Number of criticisms of each instruction of the beam; for each criticism, an edited instruction is written
    (paper: 4)."""
    errors: int = Field(default=4, ge=1)
    """Number of failures per criticism (paper: 4)."""
    paraphrases: int = Field(default=2, ge=0)
    """Number of paraphrases of each edit (paper: 2)."""
    successors: int = Field(default=8, ge=1)
    """Maximum number of successors (edits and paraphrases) that the bandit tries for each instruction of the beam,
    drawn at random (paper: 8)."""
    rounds: int = Field(default=8, ge=1)
    """Number of rounds of the bandit (the authors' code: 8)."""
    arms: int = Field(default=8, ge=1)
    """Number of instructions tried per round, chosen for the highest upper confidence bounds (the authors' code: 8)."""
    samples: int = Field(default=32, ge=1)
    """Number of tasks on which each instruction is tried per round (the authors' code: 32)."""


def method(s: Settings) -> Method:
    """Criticise the instructions, correct and paraphrase them, keep the best instructions."""
    return Method(
        name="protegi",
        sample=drawn(s.steps, s.batch, redraw=True),
        show=best_instruction,
        act=answer(best_instruction),
        attempt=ATTEMPT,
        reflect=gradients(criticism, s.gradients, s.errors),
        update=expanded(s.paraphrases, s.successors, s.warmth),
        accept=select(s.beam, Bandit(s.rounds, s.arms, s.samples)),
        roles=("curator", "reflector"),
        costs="attempts at the batch with each instruction of the beam, criticisms, edits, paraphrases, attempts of "
        "the bandit",
    )


class Criticism(Output):
    """What is wrong with an instruction."""

    reasons: Annotated[str, MaxChars(400)] = Field(description="why it led to these failures, and what it lacks")


Critic = Callable[[Entry | None, Sequence[Attempt], Run], Awaitable[list[Lesson]]]
"""Function that criticises an instruction (None: the agent has no instruction) from some failed attempts with it. The
data of each lesson has the id of the instruction as `parent`. The detail of each lesson shows the failures."""


def gradients(critic: Critic, groups: int, errors: int) -> ReflectSeam:
    """Return a reflect seam that attempts the tasks of the step with every instruction of the beam, and criticises each
    instruction `groups` times, from up to `errors` random failures. An instruction without failures gets no
    criticism."""

    async def criticised(parent: Entry | None, attempts: Sequence[Attempt], run: Run) -> list[Lesson]:
        text = "" if parent is None else parent.text
        results = await attempted(text, [r.task for r in attempts], run.at("attempt"))
        wrong = [r for r in results if r.feedback.success is False and not r.trace.lost]
        rng, size = run.rng("errors"), min(errors, len(wrong))
        samples = [rng.sample(wrong, size) for _ in range(groups if wrong else 0)]
        jobs = [(f"gradient {n}", partial(critic, parent, group)) for n, group in enumerate(samples, 1)]
        return [lesson for lessons in await run.gather(jobs) for lesson in lessons]

    async def reflect(attempts: Sequence[Attempt], context: Context, run: Run) -> list[Lesson]:
        parents: list[Entry | None] = [*ranked(context)] or [None]
        jobs = [("none" if p is None else p.id, partial(criticised, p, attempts)) for p in parents]
        return [lesson for lessons in await run.gather(jobs) for lesson in lessons]

    return reflect


async def criticism(parent: Entry | None, group: Sequence[Attempt], run: Run) -> list[Lesson]:
    """Return a lesson that says why an instruction led to these failures (section 2.1); no lesson if the call fails."""
    errors = "\n\n".join(evidence(r) for r in group)
    output, sources = await asked_about(parent, group, errors, GRADIENT, Criticism, run)
    if output is None or not (text := clean(output.reasons)):
        return []
    data = {"parent": "" if parent is None else parent.id}
    return [Lesson(run.place, text, errors, sources=sources, data=data)]


async def asked_about(
    parent: Entry | None, group: Sequence[Attempt], errors: str, instructions: Instructions, form: type[F], run: Run
) -> tuple[F | None, tuple[str, ...]]:
    """Ask the reflector about an instruction and about failures with this instruction. Return the reflector's output
    (None if the call failed), and the sources that the output depends on."""
    parts = [*run.agent_instructions, _instruction(parent), f"# What failed under it\n{errors}"]
    sources = ordered_union([sources_of(group), () if parent is None else parent.sources])
    run, prompt = replace(run, about=sources), instructions.prompt(run.profile, parts)
    return await run.try_ask("reflector", prompt, form, Count.LOST_REFLECTIONS), sources


def expanded(paraphrases: int, successors: int, warmth: float) -> UpdateSeam:
    """Return an update seam that writes the successors of the beam (section 2.2): an edit for each criticism, and
    paraphrases of the edit. For each instruction of the beam, up to `successors` random successors are kept."""

    async def edited(lesson: Lesson, context: Context, run: Run) -> list[Add]:
        parent = context.get(lesson.data["parent"])
        parents = () if parent is None else (parent,)
        errors, reasons = f"# What failed under it\n{lesson.detail}", f"# What is wrong with it\n{lesson.text}"
        request = InstructionRequest(EDIT, (_instruction(parent), errors, reasons), parents, (lesson,))
        edit = await written(request, warmth, "curator", run.at("edit"))
        if edit is None:
            return []
        paraphrase = InstructionRequest(VARY, (f"# The instruction\n{edit.text}",), parents, (lesson,))
        return [edit, *await all_written([paraphrase] * paraphrases, warmth, run.at("paraphrase"))]

    async def update(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        jobs = [(str(n), partial(edited, lesson, context)) for n, lesson in enumerate(lessons, 1)]
        by_parent: dict[str, list[Add]] = defaultdict(list)
        for lesson, adds in zip(lessons, await run.gather(jobs), strict=True):
            by_parent[lesson.data["parent"]] += adds
        texts, new = {e.text for e in ranked(context)}, dict[str, Add]()
        for parent, adds in by_parent.items():
            distinct = list({add.text: add for add in adds if add.text not in texts}.values())
            for add in run.rng(f"successors of {parent}").sample(distinct, min(successors, len(distinct))):
                new.setdefault(add.text, add)
        return Delta(tuple(new.values()))

    return update


def _instruction(parent: Entry | None) -> str:
    return f"# The instruction\n{NONE if parent is None else parent.text}"


REASONS = (
    "It asks for the discount, but what is left to pay is wanted. It does not say that the prices are to be added "
    "first."
)

GRADIENT = Instructions(
    full="""\
You find out why an instruction fails. You see the instruction that an agent works under, and tasks at which the \
agent failed with it, each with what it did and what came of that.

Say what it is about the instruction that led to these failures: what it does not say and the agent needed, what it \
says wrongly or so that it can be misread, what it says that does not matter and leads astray. Give every reason that \
the failures support, the most important first. Be exact about what would have helped, with the facts, rules, steps \
or formulas that are missing. Do not write a new instruction.""",
    small="""\
An agent failed at tasks because its instruction was not good enough. Say why the instruction led to these failures, \
and what it lacks for tasks of this kind. Do not write a new instruction.""",
    examples=(
        example(
            Criticism(reasons=REASONS), SHOP, "# The instruction\nAnswer with the discount.",
            f"# What failed under it\n{CUPS_WRONG}",
        ),
        example(
            Criticism(
                reasons="Nothing says what a material has to stand. Steel is strong, but it rusts in salt air; the "
                "agent needed to know that such parts are made of bronze."
            ),
            WORKSHOP, f"# The instruction\n{NONE}", f"# What failed under it\n{HINGE}",
        ),
    ),
)  # fmt: skip

EDIT = Instructions(
    full="""\
You correct an instruction. You see the instruction that an agent works under, tasks at which the agent failed with \
it, and a criticism that says why. Write the whole instruction anew so that what the criticism finds is put right. \
Keep what the criticism does not touch. It must hold for other tasks of the same kind, so do not name the tasks you \
see. It may have several lines.""",
    small="""\
You mend an agent's instruction. You see it, what failed under it and what is wrong with it. Write a new version that \
puts right what is wrong. It is complete in itself, general, and keeps what works.""",
    examples=(
        example(
            PRICES, SHOP, "# The instruction\nAnswer with the discount.", f"# What failed under it\n{CUPS_WRONG}",
            f"# What is wrong with it\n{REASONS}",
        ),
        example(
            f"Add each event that the user names. {DATES}", CALENDAR,
            "# The instruction\nAdd each event that the user names, and confirm it.",
            f"# What failed under it\n{MEETING}",
            "# What is wrong with it\nIt does not say in which form the start is wanted, nor what to do after an "
            "error, and it asks for a confirmation in any case.",
        ),
    ),
)  # fmt: skip
