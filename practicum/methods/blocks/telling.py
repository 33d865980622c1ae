"""Lessons that say nothing are dropped: rules that repeat the instructions, and rules for a choice that name no answer.

A small model often writes "If a task is of this kind, answer it as it should be answered." Such a rule is true, harms
nothing and is never pruned, and takes the place of a rule that helps. A useful rule distinguishes tasks: it is closer
to its task than to the question that all tasks have in common, which is in the instructions. No list of words is used,
so this works in all languages that the embedder supports.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from practicum.core.counts import Count
from practicum.core.types import Attempt, Lesson
from practicum.core.words import SENTENCE_END
from practicum.engine.run import Run
from practicum.engine.specifics import answers_named

RESTATES = 0.5
"""Cosine of a small model's rule with the instructions, or with a sentence of the instructions, from which the rule
repeats the instructions if it is less similar to its own task. Chosen on rules about expense claims and access rights.
Insights of capable models are long and add details, so they count as repetitions only if they have the same meaning
(`Run.same_from`)."""


async def telling(lesson: Lesson, attempt: Attempt, run: Run) -> Lesson:
    """Return the lesson without the texts of insights that say nothing. Votes and findings stay."""
    insights = (lesson, *lesson.further)
    silent = [await _says_nothing(x.text, attempt, run) if x.text else False for x in insights]
    if not any(silent):
        return lesson
    first, *further = (replace(x, text="") if drop else x for x, drop in zip(insights, silent, strict=True))
    return replace(first, further=tuple(x for x in further if x.text))


async def _says_nothing(text: str, attempt: Attempt, run: Run) -> bool:
    if run.profile == "small" and _names_no_answer(text, run.choices):
        run.count(Count.RULES_WITHOUT_ANSWER)
        return True
    if not run.instructions.strip():
        return False
    lines = run.instructions.splitlines()
    sentences = [run.instructions, *(part for line in lines for part in SENTENCE_END.split(line) if part.strip())]
    rule, task, *instructions = await run.embed([text, attempt.task.input, *sentences])
    nearest = max(float(rule @ sentence) for sentence in instructions)
    restates = nearest >= (RESTATES if run.profile == "small" else run.same_from) and nearest > float(rule @ task)
    run.count(Count.RESTATING_LESSONS, int(restates))
    return restates


def _names_no_answer(text: str, choices: Sequence[str]) -> bool:
    """Return whether a rule names none or all of the choices. Choices of one letter mean nothing outside of their task,
    so rules do not name them."""
    if len(choices) < 2 or any(len(choice) < 2 for choice in choices):
        return False
    return len(answers_named(text, choices)) in (0, len(choices))
