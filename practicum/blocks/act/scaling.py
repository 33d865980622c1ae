"""Memory-aware test-time scaling: more than one attempt at a task, and which of them stands (ReasoningBank; METHODS,
section 4).

Parallel: k attempts at once, then the best of them. Sequential: one attempt, refined up to k times. Both wrap an `act`
and are an `act`, so that evaluation scales as learning does. The choice is made by scores only if labels may be seen
and the attempt is not a prediction that counts; else by a judge; else by how many attempts agree.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from pydantic_core import to_json

from practicum.blocks.act.show import Answer
from practicum.blocks.reflect.self_contrast import Contrast, contrasted
from practicum.core.context import Context
from practicum.core.types import Feedback, Rollout, Task, Trace
from practicum.core.views import truncate
from practicum.engine.judge import judged_feedback
from practicum.engine.run import Run
from practicum.tasks.scoring.rules import normalise

By = Literal["judge", "agreement"]

WORK = 1_200
"""Characters of an earlier attempt's work that a small model reads in the next pass."""


@dataclass(frozen=True, slots=True)
class Scaling:
    """How an attempt is made more than once.

    `warmth` is the temperature of the attempts. `by` says who chooses if no score may be seen: a judge, or the answer
    that most attempts agree on. A `blind` choice, that of a prediction which counts, never sees a score. With
    `contrast`, parallel attempts are contrasted with each other while learning.
    """

    k: int
    warmth: float | None = 0.7
    by: By = "judge"
    blind: bool = True
    contrast: bool = True


def in_parallel(act: Answer, how: Scaling) -> Answer:
    """The best of `how.k` attempts, made at once from the same prompt; the others are its siblings. In learning, the
    attempts may also be contrasted with each other, which decides between those that are equally good."""

    async def scaled(task: Task, context: Context, run: Run, note: str = "") -> Rollout:
        attempts = _Attempts(how, run)
        jobs = [(f"try {n}", partial(act, task, context, note=note)) for n in range(1, how.k + 1)]
        made = await attempts.attempting.gather(jobs)
        choosing = len({outcome_of(r.trace) for r in made}) > 1
        await attempts.add(made, run.at("verdicts"), choosing)
        if len(made) == 1:
            return attempts.tries[0]
        contrast = await contrasted(attempts.tries, run.at("contrast")) if run.teaches and how.contrast else None
        chosen = attempts.choose(*attempts.best(contrast))
        return chosen if contrast is None else replace(chosen, choice={**chosen.choice, "contrast": contrast.findings})

    return scaled


def in_sequence(act: Answer, how: Scaling) -> Answer:
    """One attempt, then up to `how.k` passes that each read the earlier ones. It ends when the judge is content or, if
    nobody judges, when a pass changes nothing. The last pass that gave an answer stands; the others are its siblings.
    """

    async def scaled(task: Task, context: Context, run: Run, note: str = "") -> Rollout:
        attempts = _Attempts(how, run)
        while (ended := attempts.ended()) is None:
            n = len(attempts.tries)
            notes = "\n\n".join(filter(None, (note, attempts.as_note())))
            made = await act(task, context, attempts.attempting.at(f"pass {n}"), notes)
            await attempts.add([made], run.at(f"verdict {n}"), choosing=True)
        best = max(range(len(attempts.tries)), key=lambda n: (*attempts.rank(attempts.tries[n])[:2], n))
        standing = attempts.tries[best]
        judged = attempts.verdict(standing) is not None and standing.trace.error is None
        return attempts.choose(best, attempts.chooser(standing) if judged else "agreement", ended)

    return scaled


_ONE = re.compile(r"/(?:try|pass) (\d+)$")
"""The end of the place of one attempt of several."""


def number_of(rollout: Rollout) -> int:
    """The number of this attempt among several at its task, in the order they were made; 0 if it is the only one."""
    found = _ONE.search(rollout.place)
    return int(found[1]) if found else 0


def place_of_all(place: str) -> str:
    """The place under which all attempts at a task were made, from that of one of them."""
    return _ONE.sub("", place)


def outcome_of(trace: Trace) -> str:
    """The outcome of an attempt, to compare attempts by: its answer, its error, and the state it left."""
    outcome = [normalise(trace.answer), trace.error, trace.data.get("state")]
    return json.dumps(json.loads(to_json(outcome, serialize_unknown=True)), sort_keys=True)


@dataclass(frozen=True)
class _Attempts:
    """Attempts at one task, and what is known about them: the verdicts of a judge by outcome, scores if they may be
    seen."""

    how: Scaling
    run: Run
    tries: list[Rollout] = field(default_factory=list)
    judged: dict[str, Feedback] = field(default_factory=dict)

    @property
    def attempting(self) -> Run:
        """The run for the attempts. They are judged together, so no attempt is judged by itself."""
        return replace(self.run, warmth=self.how.warmth, teaches=False)

    @property
    def scored(self) -> bool:
        """Whether the choice may look at scores."""
        return self.run.teaches and self.run.labels and not self.how.blind

    async def add(self, made: Sequence[Rollout], at: Run, choosing: bool) -> None:
        """Add attempts. A judge is asked about each new outcome that has no other verdict: to learn from it or, if
        `choosing`, to choose. Its verdict becomes the feedback that learning sees."""
        asked: dict[str, Rollout] = {}
        for rollout in made:
            outcome = outcome_of(rollout.trace)
            learning = self.run.teaches and rollout.feedback.success is None
            undecided = choosing and self.how.by == "judge" and self.verdict(rollout) is None
            if rollout.trace.error is None and outcome not in self.judged and (learning or undecided):
                asked.setdefault(outcome, rollout)
        jobs = [(f"{n}", partial(judged_feedback, task=r.task, trace=r.trace)) for n, r in enumerate(asked.values(), 1)]
        self.judged.update(zip(asked, await at.gather(jobs), strict=True))
        for rollout in made:
            if self.run.teaches and rollout.feedback.success is None:
                rollout = replace(rollout, feedback=self.judged.get(outcome_of(rollout.trace), rollout.feedback))
            self.tries.append(rollout)

    def verdict(self, rollout: Rollout) -> Feedback | None:
        """What the choice may know about an attempt: that it failed, its score, else a judge's verdict."""
        if rollout.trace.error is not None:
            return Feedback(False, rollout.trace.error)
        if self.scored and rollout.score is not None:
            return rollout.feedback
        return self.judged.get(outcome_of(rollout.trace)) if self.how.by == "judge" else None

    def rank(self, rollout: Rollout) -> tuple[bool, bool, int, float]:
        """How good an attempt is, by all that the choice may know: whether there is an answer, whether there was an
        attempt at all, the verdict, and the score in [0, 1]."""
        verdict = self.verdict(rollout)
        success = None if verdict is None else verdict.success
        value = rollout.score.value if self.scored and rollout.score is not None else 0.0
        return (rollout.trace.error is None, not rollout.trace.lost, 1 if success is None else 2 * success, value)

    def chooser(self, best: Rollout) -> str:
        """Who chose this attempt, if it was chosen by its verdict."""
        return "score" if self.scored and best.score is not None else self.how.by

    def best(self, contrast: Contrast | None) -> tuple[int, str, str]:
        """Which attempt stands, who chose it, and why. Ranks decide, then the contrast, then agreement, then order."""
        outcomes = [outcome_of(r.trace) for r in self.tries]
        ranks = [self.rank(r) for r in self.tries]
        shares = Counter(outcomes)
        best = [n for n, rank in enumerate(ranks) if rank == max(ranks)]
        most = max(best, key=lambda n: (shares[outcomes[n]], -n))
        if len(shares) > 1 and len({outcomes[n] for n in best}) == 1:
            verdict = self.verdict(self.tries[most])
            why = verdict.text if verdict is not None and verdict.success else "the others failed"
            first, second, *_ = sorted(set(ranks), reverse=True)
            if first[:-1] == second[:-1]:
                why = f"it scored {first[-1]:.3g}, the next best {second[-1]:.3g}"
            return most, self.chooser(self.tries[most]), why
        # The contrast has read the scores, which a prediction that counts must not know.
        decides = self.how.by == "judge" and not (self.how.blind and self.run.labels)
        if len(shares) > 1 and decides and contrast is not None and contrast.best - 1 in best:
            return contrast.best - 1, "contrast", contrast.why
        return most, "agreement", f"{shares[outcomes[most]]} of {len(self.tries)} came to it"

    def ended(self) -> str | None:
        """Why no further pass is made; None if there is one."""
        if not self.tries:
            return None
        last, verdict, n = self.tries[-1], self.verdict(self.tries[-1]), len(self.tries) - 1
        if last.trace.lost:
            return f"pass {n} was lost"
        if verdict is not None and verdict.success:
            return f"content after pass {n}: {verdict.text}"
        unjudged = verdict is None or verdict.success is None
        if n and unjudged and outcome_of(last.trace) == outcome_of(self.tries[-2].trace):
            return f"pass {n} changed nothing"
        return None if n < self.how.k else f"the last of {len(self.tries)} passes"

    def choose(self, best: int, by: str, why: str) -> Rollout:
        """The attempt that stands, with the others as its siblings and a record of the choice."""
        outcomes, verdicts = [outcome_of(r.trace) for r in self.tries], map(self.verdict, self.tries)
        choice: dict[str, object] = {
            "of": len(self.tries), "number": best + 1, "by": by, "why": why,
            "agreement": outcomes.count(outcomes[best]) / len(self.tries),
            "verdicts": [None if verdict is None else verdict.success for verdict in verdicts],
        }  # fmt: skip
        others = tuple(r for n, r in enumerate(self.tries) if n != best)
        return replace(self.tries[best], choice=choice, siblings=others)

    def as_note(self) -> str:
        """What the next pass reads about the earlier ones: their work and answers, the agent's notes, and whether they
        were found wrong. A judge's reason is shown; the feedback of a score is not, because it holds the right answer.
        """
        said = []
        # All of them together take at most half of the agent's window.
        most = WORK if self.run.profile == "small" else 2 * self.run.room("agent") // max(len(self.tries), 1)
        for n, rollout in enumerate(self.tries, 1):
            trace, verdict = rollout.trace, self.verdict(rollout)
            parts = [f"failed: {trace.error}" if trace.error is not None else trace.answer]
            work = "\n   ".join([*(f"{step.kind}: {step.text}" for step in trace.steps), trace.reasoning]).strip()
            if work:
                parts.append(f"how you came to it: {truncate(work, most)}")
            if note := trace.data.get("note"):
                parts.append(f"your note: {note}")
            if trace.error is None and verdict is not None and verdict.success is False:
                parts.append("found wrong" if self.scored else f"found wrong: {verdict.text}")
            said.append(f"{n}. " + "\n   ".join(parts))
        return REFINE.format("\n".join(said)) if said else ""


REFINE = """\
You have worked on this before. Your earlier answers, in order:
{}
Look at them again with fresh eyes: check each step, mend what is wrong, keep what is right. Then give your answer."""
