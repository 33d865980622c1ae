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
from practicum.engine.run import ActSeam, Run
from practicum.tasks.scoring.rules import normalise

By = Literal["judge", "agreement"]

WORK = 600
"""Characters of an earlier attempt's work that the next pass reads, from the beginning and as many from the end."""


@dataclass(frozen=True, slots=True)
class Scaling:
    """How an attempt is made more than once.

    `warmth` is the temperature of the attempts. `by` says who chooses if no score may be seen: a judge, or the answer
    that most attempts agree on. A `blind` choice, that of a prediction which counts, never sees a score.
    """

    k: int
    warmth: float | None = 0.7
    by: By = "judge"
    blind: bool = True


def in_parallel(act: ActSeam, how: Scaling) -> ActSeam:
    """The best of `how.k` attempts, made at once from the same prompt; the others are its siblings.

    In learning, the attempts are also contrasted with each other, which decides between those that are equally good.
    """

    async def scaled(task: Task, context: Context, run: Run) -> Rollout:
        jobs = [(f"try {n}", partial(act, task, context)) for n in range(1, how.k + 1)]
        # The attempts are judged together, so no attempt is judged by itself.
        tries = await replace(run, warmth=how.warmth, teaches=False).gather(jobs)
        judging = _Judging(how, run)
        choosing = len({came_to(r.trace) for r in tries}) > 1
        tries = await judging.judge(tries, run.at("verdicts"), choosing)
        if len(tries) == 1:
            return tries[0]
        contrast = await contrasted(tries, run.at("contrast")) if run.teaches else None
        best, by, why = _best(tries, judging, contrast)
        return _chosen(tries, judging, best, by, why, contrast)

    return scaled


def in_sequence(act: Answer, how: Scaling) -> ActSeam:
    """One attempt, then up to `how.k` passes that each read the earlier ones. It ends when the judge is content or, if
    nobody judges, when a pass changes nothing. The last pass that gave an answer stands; the others are its siblings.
    """

    async def scaled(task: Task, context: Context, run: Run) -> Rollout:
        attempting, judging = replace(run, warmth=how.warmth, teaches=False), _Judging(how, run)
        tries: list[Rollout] = []
        ended = None
        while ended is None:
            n = len(tries)
            note = _earlier(tries, judging) if tries else ""
            one = await act(task, context, attempting.at(f"pass {n}"), note)
            tries += await judging.judge([one], run.at(f"verdict {n}"), choosing=True)
            ended = _ended(tries, judging)
        best = max(range(len(tries)), key=lambda n: (*judging.rank(tries[n])[:2], n))
        judged = judging.verdict(tries[best]) is not None and tries[best].trace.error is None
        return _chosen(tries, judging, best, judging.chooser(tries[best]) if judged else "agreement", ended)

    return scaled


_ONE = re.compile(r"/(?:try|pass) (\d+)$")
"""The end of the place of one attempt of several."""


def number_of(rollout: Rollout) -> int:
    """The number of this attempt among several at its task, in the order they were made; 0 if it is the only one."""
    found = _ONE.search(rollout.place)
    return int(found[1]) if found else 0


def place_of_all(rollout: Rollout) -> str:
    """The place under which all attempts at its task were made."""
    return _ONE.sub("", rollout.place)


def came_to(trace: Trace) -> str:
    """The outcome of an attempt, to compare attempts by: its answer, its error, and the state it left."""
    outcome = [normalise(trace.answer), trace.error, trace.data.get("state")]
    return json.dumps(json.loads(to_json(outcome, serialize_unknown=True)), sort_keys=True)


@dataclass(frozen=True)
class _Judging:
    """What is known about attempts at one task: scores that may be seen, and the verdicts of a judge by outcome."""

    how: Scaling
    run: Run
    said: dict[str, Feedback] = field(default_factory=dict)

    @property
    def scored(self) -> bool:
        """Whether the choice may look at scores."""
        return self.run.teaches and self.run.labels and not self.how.blind

    async def judge(self, tries: Sequence[Rollout], at: Run, choosing: bool) -> list[Rollout]:
        """Ask a judge about each new outcome that has no other verdict: to learn from it or, if `choosing`, to choose.
        Returns the attempts with the feedback that learning may see."""
        asked: dict[str, Rollout] = {}
        for rollout in tries:
            outcome = came_to(rollout.trace)
            undecided = choosing and self.how.by == "judge" and self._known(rollout) is None
            if rollout.trace.error is None and outcome not in self.said and (self._unlearned(rollout) or undecided):
                asked.setdefault(outcome, rollout)
        jobs = [
            (f"{n}", partial(judged_feedback, task=rollout.task, trace=rollout.trace))
            for n, rollout in enumerate(asked.values(), 1)
        ]
        self.said.update(zip(asked, await at.gather(jobs), strict=True))
        return [
            replace(r, feedback=self.said.get(came_to(r.trace), r.feedback)) if self._unlearned(r) else r for r in tries
        ]

    def _unlearned(self, rollout: Rollout) -> bool:
        """Whether learning needs a verdict that the attempt does not have."""
        return self.run.teaches and rollout.feedback.success is None

    def _known(self, rollout: Rollout) -> Feedback | None:
        """What the choice may know without a judge: that the attempt failed, or how it was scored."""
        if rollout.trace.error is not None:
            return Feedback(False, rollout.trace.error)
        return rollout.feedback if self.scored and rollout.score is not None else None

    def verdict(self, rollout: Rollout) -> Feedback | None:
        """What the choice may know about an attempt."""
        known = self._known(rollout)
        return known if known is not None or self.how.by != "judge" else self.said.get(came_to(rollout.trace))

    def rank(self, rollout: Rollout) -> Rank:
        """How good the attempt is, by all that the choice may know."""
        verdict = self.verdict(rollout)
        success = None if verdict is None else verdict.success
        value = rollout.score.value if self.scored and rollout.score is not None else 0.0
        return (rollout.trace.error is None, not rollout.trace.lost, 1 if success is None else 2 * success, value)

    def chooser(self, best: Rollout) -> str:
        """Who chose this attempt, if it was chosen by its verdict."""
        return "score" if self.scored and best.score is not None else self.how.by


Rank = tuple[bool, bool, int, float]
"""Whether there is an answer, whether there was an attempt at all, the verdict, and the score in [0, 1]."""


def _best(tries: Sequence[Rollout], judging: _Judging, contrast: Contrast | None) -> tuple[int, str, str]:
    """Which attempt stands, who chose it, and why. Ranks decide, then the contrast, then agreement, then order."""
    outcomes = [came_to(r.trace) for r in tries]
    ranks = [judging.rank(r) for r in tries]
    shares = Counter(outcomes)
    best = [n for n, rank in enumerate(ranks) if rank == max(ranks)]
    most = max(best, key=lambda n: (shares[outcomes[n]], -n))
    if len(shares) > 1 and len({outcomes[n] for n in best}) == 1:
        return most, judging.chooser(tries[most]), _lead(ranks, judging.verdict(tries[most]))
    # The contrast has read the scores, which a prediction that counts must not know.
    decides = judging.how.by == "judge" and not (judging.how.blind and judging.run.labels)
    if len(shares) > 1 and decides and contrast is not None and contrast.best - 1 in best:
        return contrast.best - 1, "contrast", contrast.why
    return most, "agreement", f"{shares[outcomes[most]]} of {len(tries)} came to it"


def _lead(ranks: Sequence[Rank], verdict: Feedback | None) -> str:
    """Why the attempt of the highest rank, which has this verdict, is better than the others."""
    first, second, *_ = sorted(set(ranks), reverse=True)
    if first[:-1] == second[:-1]:
        return f"it scored {first[-1]:.3g}, the next best {second[-1]:.3g}"
    return verdict.text if verdict is not None and verdict.success else "the others failed"


def _ended(tries: Sequence[Rollout], judging: _Judging) -> str | None:
    """Why no further pass is made; None if there is one."""
    last, verdict, n = tries[-1], judging.verdict(tries[-1]), len(tries) - 1
    if last.trace.lost:
        return f"pass {n} was lost"
    if verdict is not None and verdict.success:
        return f"content after pass {n}: {verdict.text}"
    unjudged = verdict is None or verdict.success is None
    if n and unjudged and came_to(last.trace) == came_to(tries[-2].trace):
        return f"pass {n} changed nothing"
    return None if n < judging.how.k else f"the last of {len(tries)} passes"


def _chosen(
    tries: Sequence[Rollout], judging: _Judging, best: int, by: str, why: str, contrast: Contrast | None = None
) -> Rollout:
    """The attempt that stands, with the others as its siblings and a record of the choice."""
    outcomes, verdicts = [came_to(r.trace) for r in tries], map(judging.verdict, tries)
    choice: dict[str, object] = {
        "of": len(tries),
        "by": by,
        "why": why,
        "agreement": outcomes.count(outcomes[best]) / len(tries),
        "verdicts": [None if verdict is None else verdict.success for verdict in verdicts],
    }
    if contrast is not None:
        choice["contrast"] = contrast.findings
    return replace(tries[best], choice=choice, siblings=tuple(r for n, r in enumerate(tries) if n != best))


def _earlier(tries: Sequence[Rollout], judging: _Judging) -> str:
    """What a pass reads about the earlier ones: their work and answers, the agent's notes, and whether they were found
    wrong. A judge's reason is shown; the feedback of a score is not, because it holds the right answer."""
    said = []
    for n, rollout in enumerate(tries, 1):
        trace, verdict = rollout.trace, judging.verdict(rollout)
        parts = [f"failed: {trace.error}" if trace.error is not None else trace.answer]
        work = "\n   ".join([*(f"{step.kind}: {step.text}" for step in trace.steps), trace.reasoning]).strip()
        if work:
            parts.append(f"how you came to it: {truncate(work, 2 * WORK)}")
        if note := trace.data.get("note"):
            parts.append(f"your note: {note}")
        if trace.error is None and verdict is not None and verdict.success is False:
            parts.append("found wrong" if judging.scored else f"found wrong: {verdict.text}")
        said.append(f"{n}. " + "\n   ".join(parts))
    return REFINE.format("\n".join(said))


REFINE = """\
You have worked on this before. Your earlier answers, in order:
{}
Look at them again with fresh eyes: check each step, mend what is wrong, keep what is right. Then give your answer."""
