"""A model's verdict on an answer: a score for reports, and feedback for learning without labels."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from practicum.core.bounded import MaxChars, Output
from practicum.core.counts import Count
from practicum.core.errors import OutputError, ProviderError
from practicum.core.types import Feedback, Instructions, Score, Task, Trace
from practicum.engine.run import Run


class Verdict(Output):
    """What a judge says about an answer."""

    reason: Annotated[str, MaxChars(400)] = Field(description="what decides it")
    right: bool = Field(description="whether the answer does what the task asks")


async def judge(run: Run, task: Task, trace: Trace, target: str | None) -> Verdict:
    """Ask the judge for one verdict, at temperature 0. `target` is the reference answer; None: the judge gets no
    reference answer."""
    # The answer of an agent with tools is mostly in its steps.
    done = "\n".join(f"{step.kind.capitalize()}: {step.text}" for step in trace.steps)
    parts = [*run.agent_instructions, f"# Task\n{task.text}"]
    parts += [*([f"# What was done\n{done}"] if done else []), f"# Answer\n{trace.answer}"]
    if target is not None:
        parts.append(f"# Reference answer\n{target}")
    if task.recorded is not None and task.recorded.later:
        parts.append(f"# The user's next message, about this work or about something else\n{task.recorded.later}")
    return await run.ask_fitted("judge", JUDGE.prompt(run.profile, parts), Verdict, temperature=0.0)


class JudgeScorer:
    """Scorer that asks a judge. The judge sees the target, if the task has one. The judge's calls are journaled, so the
    score is computed from these calls and not journaled itself."""

    name, needs_target, pure = "judge", False, True

    async def __call__(self, task: Task, trace: Trace, run: Run) -> Score:
        verdict = await judge(run.at("score"), task, trace, task.target)
        return Score(float(verdict.right), verdict.right, verdict.reason)


async def judged_feedback(run: Run, task: Task, trace: Trace) -> Feedback:
    """Ask a judge for feedback, for learning without labels. The judge never sees the target. If the judge gives no
    verdict, the feedback does not say whether the answer is right, and the attempt is counted as unjudged."""
    try:
        verdict = await judge(run.at("verdict"), task, trace, None)
    except (OutputError, ProviderError):
        run.count(Count.UNJUDGED_ATTEMPTS)
        return Feedback(None, "Nothing is known about whether the answer is right.")
    opinion = "A judge found the answer right" if verdict.right else "A judge found the answer wrong"
    return Feedback(verdict.right, f"{opinion}: {verdict.reason}")


JUDGE = Instructions(
    full="""\
You judge whether an agent did a task. You see what the agent was told, the task, what the agent did where that is \
known, and its answer.

Judge by the substance and not by the wording: is everything done that the task asks for, and is it right? Check \
facts, calculations and code yourself; that the attempt sounds sure is no evidence. Where you see what was done, that \
counts more than what is said of it: an action that returned an error was not carried out, and one that was never \
taken did not happen. With a reference answer, an answer is right if it means the same; another form is no mistake \
unless the task asks for a form. An attempt that does a part of the task has failed.

reason: what decides it; of a failure, what is wrong and where.
right: your verdict.""",
    small="""\
You check answers. Decide whether the answer does what the task asks, by its substance and not by its wording. Where \
you see what was done, that counts more than what is said of it. With a reference answer, the answer is right if it \
means the same. First name what decides it, then give your verdict.""",
)
