"""TextGrad: the instructions are the variable to optimize. A model criticises each attempt of a batch, and rewrites the
instructions with new and earlier criticisms. The new instructions are kept unless they score lower than the current
instructions (Yuksekgonul et al., 2025, sections 2 and 3.3).

docs/learn/methods/reproductions.md lists the differences from the paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated

from pydantic import Field

from practicum.core.bounded import MaxChars, Output, clean
from practicum.core.context import Context
from practicum.core.counts import Count
from practicum.core.edits import Add, Delete, Delta, Update
from practicum.core.types import Attempt, Instructions, Lesson
from practicum.engine.loop import Batch, Method, UpdateSeam, sources_of
from practicum.engine.run import Run
from practicum.methods.blocks.attempt import once
from practicum.methods.blocks.reflect import evidence
from practicum.methods.blocks.sample import drawn
from practicum.methods.blocks.show import answer
from practicum.methods.worked_examples import CALENDAR, CLOSED, MEETING, NOTICES, SHOP, WORKSHOP
from practicum.plugins.rivals.examples import COAT_RIGHT, PRICES, SHORT, example
from practicum.plugins.rivals.search import (
    FEEDBACK,
    NONE,
    InstructionRequest,
    SearchSettings,
    best,
    best_instruction,
    history,
    mean_of,
    new_candidates,
    only,
    others,
    ranked,
    scored,
    written,
)


class Settings(SearchSettings):
    momentum: int = Field(default=4, ge=0)
    """Number of criticisms of earlier steps that a rewrite reads in addition to the new criticisms; the newest are
    read."""


def method(s: Settings) -> Method:
    """Criticise every attempt, rewrite the instructions, keep the new instructions unless they score lower."""
    act = answer(best_instruction)
    return Method(
        name="textgrad",
        show=best_instruction,
        sample=drawn(s.steps, s.batch, redraw=True),
        act=act,
        attempt=once(act),
        reflect=criticisms,
        update=descent(s.momentum, s.warmth),
        accept=keep_if_no_worse,
        roles=("curator", "reflector"),
        costs="a criticism for each task, one rewrite, and attempts at the batch with the new instructions",
    )


class Gradient(Output):
    """A criticism of an attempt, and what follows from it for the instructions."""

    answer: Annotated[str, MaxChars(200)] = Field(description="what in the attempt was good or bad, and why")
    instructions: Annotated[str, MaxChars(200)] = Field(
        description="how the instructions should change because of it; empty if they served it well"
    )


async def criticisms(attempts: Sequence[Attempt], context: Context, run: Run) -> list[Lesson]:
    """Criticise all attempts concurrently, and return the criticisms as lessons."""
    shown = best(context)
    jobs = [
        (f"{n}.{attempt.task.id}", partial(_criticised, attempt, NONE if shown is None else shown.text))
        for n, attempt in enumerate(attempts)
        if not attempt.trace.lost
    ]
    return [lesson for lesson in await run.gather(jobs) if lesson is not None]


async def _criticised(attempt: Attempt, instructions: str, run: Run) -> Lesson | None:
    parts = [_instructions(instructions), f"# The attempt\n{evidence(attempt)}"]
    prompt = GRADIENT.prompt(run.profile, [*run.agent_instructions, *parts])
    run = replace(run, about=attempt.sources)
    output = await run.try_ask("reflector", prompt, Gradient, Count.LOST_REFLECTIONS)
    if output is None:
        return None
    data = {"answer": clean(output.answer)}
    return Lesson(run.place, clean(output.instructions), evidence(attempt), sources=attempt.sources, data=data)


def _instructions(text: str) -> str:
    return f"# The instructions to be improved\n{text}"


def descent(momentum: int, warmth: float) -> UpdateSeam:
    """Return an update seam that rewrites the instructions with all criticisms of the step and the newest `momentum`
    criticisms of earlier steps. The new text has the sources of all criticisms that the call read."""

    async def update(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        candidates, stored = ranked(context), context.in_section(FEEDBACK)
        recalled = [Lesson(str(e.data["lesson"]), e.text, sources=e.sources) for e in stored]
        earlier = "\n".join(f"- {x.text}" for x in recalled)
        current = "\n".join(f"- {x.data['answer']} {x.text}" for x in lessons if x.text)
        criticism = f"# Said before\n{earlier or '(nothing)'}", f"# Said now\n{current or '(nothing)'}"
        parts = (history(candidates), *criticism)
        asking = InstructionRequest(OPTIMIZER, parts, tuple(candidates), (*recalled, *lessons))
        rewritten = await written(asking, warmth, "curator", run.at("1"))
        new = [lesson for lesson in lessons if lesson.text][-momentum:] if momentum else []
        old = stored[: max(len(stored) + len(new) - momentum, 0)]
        texts = () if rewritten is None or rewritten.text in {e.text for e in candidates} else (rewritten,)
        adds = (Add(FEEDBACK, x.text, data={"lesson": x.id}, sources=x.sources, lessons=(x.id,)) for x in new)
        deletes = (Delete(e.id, sources_of(new), reason="newer feedback took its place") for e in old)
        return Delta((*texts, *adds, *deletes))

    return update


async def keep_if_no_worse(context: Context, delta: Delta, attempts: Sequence[Attempt], run: Run) -> Delta:
    """Evaluate the new instructions on the tasks of the step. They replace the current instructions unless they score
    lower. The edits of the delta that do not concern instructions are applied unchanged."""
    new, candidates = next(iter(new_candidates(delta)), None), ranked(context)
    if new is None:
        return delta
    rest = others(delta, candidates)
    run.count(Count.TRIED_CANDIDATES)
    tasks = tuple(r.task for r in attempts)
    mean = mean_of(await once(answer(best_instruction))(Batch(tasks), only(new.text), run), run)
    current = mean_of(attempts, run)
    if mean is None or current is None or mean[0] < current[0]:
        return rest
    new = scored(new, mean, None)
    if not candidates:
        return Delta((new,)) + rest
    # All steps update the same entry, so that the entry keeps the sources of its first text.
    return Delta((Update(candidates[0].id, new.text, data=new.data, sources=new.sources, lessons=new.lessons),)) + rest


GRADIENT = Instructions(
    full="""\
You criticise, so that a text can be improved: the instructions of an agent. You see these instructions and one \
attempt that the agent made under them, with what came of it. Do not solve the task again and do not write new \
instructions.

answer: criticise the attempt. Say what was good and what was bad about the steps and the answer, where the first \
mistake was, and why it was made. Use the feedback where there is some, and judge for yourself where there is none.
instructions: say what follows for the instructions. Which words of them led to what was bad, or what did they leave \
unsaid that would have prevented it? How should they change, so that tasks of this kind are done better? Be exact: \
name the fact, rule, step or form that is missing. Leave it empty where the instructions served the attempt well.""",
    small="""\
You criticise how an agent did a task, so that its instructions can be changed. Do not solve the task for it.

answer: what in the attempt was good or bad, and why. instructions: how the instructions should change because of \
this attempt, in one sentence; empty where they served it well.""",
    examples=(
        example(
            Gradient(
                answer="The tool refused the start because of its form, and the agent reported success all the same.",
                instructions="They should say that a start is written as 2026-05-09T14:30, and that a call which "
                "failed is corrected and made again.",
            ),
            CALENDAR, _instructions(NONE), f"# The attempt\n{MEETING}",
        ),
        example(
            Gradient(answer="Both steps are shown and right.", instructions=""),
            SHOP, _instructions(PRICES), f"# The attempt\n{COAT_RIGHT}",
        ),
        example(
            Gradient(
                answer="It is clear, but greeting and reason make it longer than the 12 words that are allowed.",
                instructions="They should not ask for a greeting or a reason, and should say that the words are "
                "counted.",
            ),
            NOTICES, _instructions("Be polite and say why."), f"# The attempt\n{CLOSED}",
        ),
    ),
)  # fmt: skip

OPTIMIZER = Instructions(
    full="""\
You improve one text: the instructions of an agent. You see the present instructions with the score that they \
reached, criticism of earlier versions, and the new criticism of what the agent did under the present ones, a point \
for each attempt.

Write the whole instructions anew, so that they answer the new criticism. Where several points say the same, it \
matters more; where they contradict each other, find what would satisfy both. Earlier criticism that is still true \
must not be undone. Keep what nobody complains of. The agent will get other tasks of the same kind, so say what holds \
in general, with every fact, rule and step that the criticism asks for, and do not name single tasks. The text may \
have several lines.""",
    small="""\
You improve one text, the instructions of an agent, by criticism of what the agent did under them. Write a new \
version. What is said now counts; what was said before, and is still true, must not be undone. Keep what nobody \
complains of, be general, and name no single task or answer.""",
    examples=(
        example(
            f"{SHORT} Name the day.", NOTICES, "# Instructions so far, the best last",
            "Score: 30\nSay what happens and why.", "# Said before\n- The instructions should ask for the day.",
            "# Said now\n- The notice is polite and too long. If a number of words is given, the instructions should "
            "say that it is to be kept.\n- The reason took half of the words. The instructions should not ask for "
            "reasons.",
        ),
        example(
            "Near salt water choose bronze, since steel rusts there.", WORKSHOP, "# Instructions so far, the best last",
            "(none yet)", "# Said before\n(nothing)",
            "# Said now\n- Steel rusts by the sea. The instructions should say that salt water asks for bronze.",
        ),
    ),
)  # fmt: skip
