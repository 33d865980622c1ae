"""Memory-aware test-time scaling: several attempts at a task, and the choice among them (ReasoningBank; METHODS,
section 4).

Parallel: k concurrent attempts, then the best of them. Sequential: one attempt, refined k times or until it is
accepted. Both forms wrap an `act` and are an `act`, so that evaluation scales as learning does. Scores choose among
parallel attempts only in learning, if labels may be seen and the chosen attempt is not reported as a prediction.
Otherwise a judge or agreement chooses, as `Scaling.by` says."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from pydantic_core import to_json

from practicum.core.context import Context
from practicum.core.types import Attempt, Feedback, Task, Trace
from practicum.core.views import truncate
from practicum.engine.judge import judged_feedback
from practicum.engine.run import Run
from practicum.methods.blocks.reflect import Contrast, contrasted
from practicum.methods.blocks.show import ActWithNote
from practicum.tasks.scoring.rules import normalise

By = Literal["judge", "agreement"]
Until = Literal["k", "judge", "score", "agreement"]

WORK = 1_200
"""Maximum characters of an earlier attempt's work that a small model reads in the next pass."""


@dataclass(frozen=True, slots=True)
class Scaling:
    """Settings of several attempts at a task.

    `k` is the number of parallel attempts, or of passes after the first attempt of a sequence. `warmth` is the
    temperature of all attempts; None: the temperature of the run. A `blind` choice never sees a score, because the
    chosen attempt is reported as the prediction.

    Parallel: `by` is the chooser if no score may be seen: a judge, or agreement (the answer of the most attempts). With
    `contrast`, the attempts are contrasted with each other during learning.

    Sequence: `until` is the condition that ends the sequence before `k` passes are made. k: no condition; judge or
    score: the judge or the score accepts an answer; agreement: a pass changes nothing. `label` selects the attempts
    without an outcome that a judge labels after the last pass: all attempts, or only the ends, which are the first
    attempt (used in reports) and the chosen attempt."""

    k: int
    warmth: float | None = 0.7
    by: By = "judge"
    blind: bool = True
    contrast: bool = True
    until: Until = "k"
    label: Literal["all", "ends"] = "all"

    def sees_scores(self, run: Run) -> bool:
        """Return whether the choice among attempts may use scores in this run."""
        return run.teaches and run.labels and not self.blind


def in_parallel(act: ActWithNote, scaling: Scaling) -> ActWithNote:
    """Build an act that makes `scaling.k` concurrent attempts from the same prompt and returns the best attempt, with
    the other attempts as siblings. With `scaling.contrast`, the attempts are also contrasted with each other in
    learning, and the contrast decides between equally good attempts."""

    async def scaled(task: Task, context: Context, run: Run, note: str = "") -> Attempt:
        attempts = _Attempts(scaling, run, scored=scaling.sees_scores(run), judging=scaling.by == "judge")
        jobs = [(f"try {n}", partial(act, task, context, note=note)) for n in range(1, scaling.k + 1)]
        attempts.tries[:] = parallel = await attempts.attempting.gather(jobs)
        choosing = attempts.judging and len({outcome_of(r.trace) for r in parallel}) > 1
        asked = [r for r in parallel if attempts.unlabelled(r) or (choosing and attempts.verdict(r) is None)]
        await attempts.judge(asked, run.at("verdicts"))
        attempts.label()
        if len(parallel) == 1:
            return attempts.tries[0]
        contrast = await contrasted(attempts.tries, run.at("contrast")) if run.teaches and scaling.contrast else None
        chosen = attempts.choose(*attempts.best(contrast))
        return chosen if contrast is None else replace(chosen, choice={**chosen.choice, "contrast": contrast.findings})

    return scaled


def in_sequence(act: ActWithNote, scaling: Scaling) -> ActWithNote:
    """Build an act that makes one attempt, then `scaling.k` passes that each read the earlier attempts, or fewer passes
    if `scaling.until` ends them. A pass that failed or was lost counts as a pass. The last attempt with an answer is
    chosen, with the other attempts as siblings."""

    async def scaled(task: Task, context: Context, run: Run, note: str = "") -> Attempt:
        scored = scaling.until == "score" and scaling.sees_scores(run)
        attempts = _Attempts(scaling, run, scored, judging=scaling.until == "judge")
        tries = attempts.tries
        while (ended := attempts.ended()) is None:
            n = len(tries)
            notes = "\n\n".join(filter(None, (note, attempts.as_note())))
            tries.append(await act(task, context, attempts.attempting.at(f"pass {n}"), notes))
            if attempts.judging:
                await attempts.judge(tries[-1:], run.at(f"verdict {n}"))
        best = max(range(len(tries)), key=lambda n: (*attempts.rank(tries[n])[:2], n))
        asked = tries if scaling.label == "all" else [tries[0], tries[best]]
        await attempts.judge(filter(attempts.unlabelled, asked), run.at("verdicts"))
        attempts.label()
        return attempts.choose(best, *ended)

    return scaled


_ONE = re.compile(r"/(?:try|pass) (\d+)$")
"""Pattern of the end of an attempt's place if the attempt is one of several at its task."""


def number_of(attempt: Attempt) -> int:
    """Return the number of an attempt among several at its task, in the order in which they were made: from 1 in
    parallel, from 0 in a sequence; 0 for an attempt without scaling."""
    match = _ONE.search(attempt.place)
    return int(match[1]) if match else 0


def place_of_all(place: str) -> str:
    """Return the place under which all attempts at a task were made, from the place of one of these attempts."""
    return _ONE.sub("", place)


def outcome_of(trace: Trace) -> str:
    """Return a text that identifies the outcome of an attempt: its answer, its error, and the state that the attempt
    left."""
    outcome = [normalise(trace.answer), trace.error, trace.data.get("state")]
    return json.dumps(json.loads(to_json(outcome, serialize_unknown=True)), sort_keys=True)


@dataclass(frozen=True)
class _Attempts:
    """Attempts at one task, and the verdicts of a judge by outcome. With `scored`, the choice among the attempts, or
    the decision on another pass, uses scores. With `judging`, the choice or the decision uses the judge's verdicts."""

    scaling: Scaling
    run: Run
    scored: bool
    judging: bool
    tries: list[Attempt] = field(default_factory=list)
    judged: dict[str, Feedback] = field(default_factory=dict)

    @property
    def attempting(self) -> Run:
        """Run for the attempts. In it, an attempt does not ask a judge about its answer, because the method `judge`
        asks about all attempts."""
        return replace(self.run, warmth=self.scaling.warmth, teaches=False)

    def unlabelled(self, attempt: Attempt) -> bool:
        """Return whether learning uses this attempt and its outcome is unknown."""
        return self.run.teaches and attempt.feedback.success is None

    async def judge(self, tries: Iterable[Attempt], at: Run) -> None:
        """Ask a judge about each outcome among these attempts that is not judged yet, concurrently."""
        asked: dict[str, Attempt] = {}
        for attempt in tries:
            outcome = outcome_of(attempt.trace)
            if attempt.trace.error is None and outcome not in self.judged:
                asked.setdefault(outcome, attempt)
        jobs = [(f"{n}", partial(judged_feedback, task=r.task, trace=r.trace)) for n, r in enumerate(asked.values(), 1)]
        self.judged.update(zip(asked, await at.gather(jobs), strict=True))

    def label(self) -> None:
        """Use the judge's verdicts as the feedback for learning on attempts whose outcome is unknown otherwise."""
        for n, attempt in enumerate(self.tries):
            if self.unlabelled(attempt) and (verdict := self.judged.get(outcome_of(attempt.trace))):
                self.tries[n] = replace(attempt, feedback=verdict)

    def verdict(self, attempt: Attempt) -> Feedback | None:
        """Return the feedback that the choice, or the next pass, may see: the error of the attempt, else the feedback
        of its score, else a judge's verdict; None without these three."""
        if attempt.trace.error is not None:
            return Feedback(False, attempt.trace.error)
        if self.scored and attempt.score is not None:
            return attempt.feedback
        return self.judged.get(outcome_of(attempt.trace)) if self.judging else None

    def rank(self, attempt: Attempt) -> tuple[bool, bool, int, float]:
        """Return the rank of an attempt, from all facts that the choice may know: whether there is an answer, whether
        the attempt was not lost, the verdict, and the score in [0, 1]."""
        verdict = self.verdict(attempt)
        success = None if verdict is None else verdict.success
        value = attempt.score.value if self.scored and attempt.score is not None else 0.0
        return (attempt.trace.error is None, not attempt.trace.lost, 1 if success is None else 2 * success, value)

    def chooser(self, best: Attempt) -> str:
        """Return the chooser to store with an attempt that was chosen by its verdict: "score" if the verdict is a
        score, else the setting `by`."""
        return "score" if self.scored and best.score is not None else self.scaling.by

    def best(self, contrast: Contrast | None) -> tuple[int, str, str]:
        """Choose an attempt, and return its index, the chooser, and the reason. Ranks decide, then the contrast, then
        agreement, then order."""
        outcomes = [outcome_of(r.trace) for r in self.tries]
        ranks = [self.rank(r) for r in self.tries]
        shares = Counter(outcomes)
        best = [n for n, rank in enumerate(ranks) if rank == max(ranks)]
        most = max(best, key=lambda n: (shares[outcomes[n]], -n))
        if len(shares) > 1 and len({outcomes[n] for n in best}) == 1:
            verdict = self.verdict(self.tries[most])
            why = verdict.text if verdict is not None and verdict.success else "all other attempts failed"
            first, second, *_ = sorted(set(ranks), reverse=True)
            if first[:-1] == second[:-1]:
                why = f"score {first[-1]:.3g}; the next best score is {second[-1]:.3g}"
            return most, self.chooser(self.tries[most]), why
        # The contrast has read the scores, which must not influence a prediction that counts.
        decides = self.judging and not (self.scaling.blind and self.run.labels)
        if len(shares) > 1 and decides and contrast is not None and contrast.best - 1 in best:
            return contrast.best - 1, "contrast", contrast.why
        return most, "agreement", f"{shares[outcomes[most]]} of {len(self.tries)} attempts gave this answer"

    def ended(self) -> tuple[str, str] | None:
        """Return the condition that ended the passes of a sequence, and the reason; None if another pass follows."""
        passes = len(self.tries) - 1
        if passes < 0:
            return None
        last, verdict = self.tries[-1].trace, self.verdict(self.tries[-1])
        repeats = passes and last.error is None and outcome_of(last) == outcome_of(self.tries[-2].trace)
        match self.scaling.until:
            case "judge" | "score" as by if verdict is not None and verdict.success:
                return by, f"accepted after pass {passes}: {verdict.text}"
            case "agreement" as by if repeats:
                return by, f"pass {passes} changed nothing"
        return ("order", f"all {passes} passes were made") if passes == self.scaling.k else None

    def choose(self, best: int, by: str, why: str) -> Attempt:
        """Return the attempt at index `best`, with the other attempts as siblings, and with a record of the choice."""
        outcomes = [outcome_of(r.trace) for r in self.tries]
        # Also include verdicts that only labelled the attempts for learning.
        verdicts = [self.verdict(r) or self.judged.get(o) for r, o in zip(self.tries, outcomes, strict=True)]
        choice: dict[str, object] = {
            "of": len(self.tries), "number": best + 1, "by": by, "why": why,
            "agreement": outcomes.count(outcomes[best]) / len(self.tries),
            "verdicts": [None if verdict is None else verdict.success for verdict in verdicts],
        }  # fmt: skip
        others = tuple(r for n, r in enumerate(self.tries) if n != best)
        return replace(self.tries[best], choice=choice, siblings=others)

    def as_note(self) -> str:
        """Format the earlier attempts for the next pass: their work and answers, the agent's notes and, if the sequence
        uses a judge or the score, whether the answers were found wrong. The reason of a judge is shown. The feedback of
        a score is not shown, because it contains the right answer. A lost attempt is not shown."""
        # All earlier attempts together take at most half of the agent's window.
        most = WORK if self.run.profile == "small" else 2 * self.run.room("agent") // max(len(self.tries), 1)
        earlier: list[str] = []
        for attempt in (r for r in self.tries if not r.trace.lost):
            trace, verdict = attempt.trace, self.verdict(attempt)
            parts = [f"failed: {trace.error}" if trace.error is not None else trace.answer]
            work = "\n   ".join([*(f"{step.kind}: {step.text}" for step in trace.steps), trace.reasoning]).strip()
            if work:
                parts.append(f"how you came to it: {truncate(work, most)}")
            if note := trace.data.get("note"):
                parts.append(f"your note: {note}")
            if trace.error is None and verdict is not None and verdict.success is False:
                parts.append("found wrong" if self.scored else f"found wrong: {verdict.text}")
            earlier.append(f"{len(earlier) + 1}. " + "\n   ".join(parts))
        return REFINE.format("\n".join(earlier)) if earlier else ""


REFINE = """\
You have worked on this task before. Your earlier answers, in order:
{}
Go through them again step by step. Correct what you find to be wrong, and keep what is right: an answer without a \
mistake stays as it is. Then give your answer."""
