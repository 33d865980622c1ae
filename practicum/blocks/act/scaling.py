"""Memory-aware test-time scaling: more than one attempt at a task, and which of them stands (ReasoningBank; METHODS,
section 4).

Parallel: k attempts at once, then the best of them. Sequential: one attempt, refined up to k times. Both wrap an `act`
and are one, so that evaluation scales as learning does. What the choice may look at differs: a score only where labels
may be seen and the attempt is not a prediction that counts; else a judge; else how many attempts agree.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
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
"""Characters kept of the beginning and of the end of an earlier attempt's work, for the next pass to read."""


@dataclass(frozen=True, slots=True)
class Scaling:
    """How an attempt is made more than once.

    `warmth` is the temperature of the attempts. `by` says who chooses where no score may be seen: a judge, or the
    answer most attempts agree on. A `blind` choice never sees a score: that of a prediction which counts.
    """

    k: int
    warmth: float | None = 0.7
    by: By = "judge"
    blind: bool = True


def in_parallel(act: ActSeam, how: Scaling) -> ActSeam:
    """The best of `how.k` attempts, made at once from the same prompt; the others are its siblings.

    Learning, the attempts are contrasted with each other, which also decides between those that are as good.
    """

    async def scaled(task: Task, context: Context, run: Run) -> Rollout:
        many = _attempting(how, run)
        tries = await many.gather([(f"try {n}", partial(act, task, context)) for n in range(1, how.k + 1)])
        said: Said = {}
        await _ask(tries, said, how, run.at("verdicts"), choosing=len({came_to(r.trace) for r in tries}) > 1)
        tries = [_heard(r, said, run) for r in tries]
        if len(tries) == 1:
            return tries[0]
        contrast = await contrasted(tries, run.at("contrast")) if run.teaches else None
        verdicts = [_verdict(r, said, how, run) for r in tries]
        # It read how the attempts were scored, which a prediction that counts must not know.
        deciding = contrast if how.by == "judge" and not (how.blind and run.labels) else None
        ranks = [_rank(r, verdict, _scored(how, run)) for r, verdict in zip(tries, verdicts, strict=True)]
        best, by, why = _best(tries, verdicts, ranks, deciding)
        return _told(tries, verdicts, best, by or _chooser(tries[best], how, run), why, contrast)

    return scaled


def in_sequence(act: Answer, how: Scaling) -> ActSeam:
    """One attempt, then up to `how.k` passes that each see those before; it ends when the judge is content, or where
    nobody judges, when a pass changes nothing. The last pass that gave an answer stands, the others are its siblings.
    """

    async def scaled(task: Task, context: Context, run: Run) -> Rollout:
        many = _attempting(how, run)
        said: Said = {}
        tries: list[Rollout] = []
        verdicts: list[Feedback | None] = []
        ended = None
        while ended is None:
            n = len(tries)
            note = _earlier(tries, verdicts, told=not _scored(how, run)) if tries else ""
            one = await act(task, context, many.at(f"pass {n}"), note)
            await _ask([one], said, how, run.at(f"verdict {n}"), choosing=True)
            tries.append(_heard(one, said, run))
            verdicts.append(_verdict(one, said, how, run))
            ended = _ended(tries, verdicts, how)
        best = max(range(len(tries)), key=lambda n: (*_usable(tries[n]), n))
        judged = verdicts[best] is not None and tries[best].trace.error is None
        by = _chooser(tries[best], how, run) if judged else "agreement"
        return _told(tries, verdicts, best, by, ended, None)

    return scaled


_ONE = re.compile(r"/(?:try|pass) (\d+)$")
"""The end of the place of one attempt of several."""


def number_of(rollout: Rollout) -> int:
    """Which of several attempts at its task it is, in the order they were made; 0 for one that is alone."""
    found = _ONE.search(rollout.place)
    return int(found[1]) if found else 0


def place_of_all(rollout: Rollout) -> str:
    """The place under which all attempts at its task were made."""
    return _ONE.sub("", rollout.place)


def _ended(tries: Sequence[Rollout], verdicts: Sequence[Feedback | None], how: Scaling) -> str | None:
    """Why no further pass is made; None where one is."""
    last, verdict, n = tries[-1], verdicts[-1], len(tries) - 1
    if last.trace.lost:
        return f"pass {n} was lost"
    if verdict is not None and verdict.success:
        return f"content after pass {n}: {verdict.text}"
    unjudged = verdict is None or verdict.success is None
    if n and unjudged and came_to(last.trace) == came_to(tries[-2].trace):
        return f"pass {n} changed nothing"
    return None if n < how.k else f"the last of {len(tries)} passes"


def _attempting(how: Scaling, run: Run) -> Run:
    """Where the attempts are made. They are judged together, so none is by itself."""
    return replace(run, warmth=how.warmth, teaches=False)


def came_to(trace: Trace) -> str:
    """What an attempt came to, to compare attempts by: its answer, and the state it left."""
    outcome = [normalise(trace.answer), trace.error, trace.data.get("state")]
    return json.dumps(json.loads(to_json(outcome, serialize_unknown=True)), sort_keys=True)


Said = dict[str, Feedback]
"""What a judge said of each outcome."""


async def _ask(tries: Sequence[Rollout], said: Said, how: Scaling, run: Run, choosing: bool) -> None:
    """Ask a judge about each outcome that nothing else tells of and that it was not asked about before: to learn from
    it, or for `choosing`."""
    asked: dict[str, Rollout] = {}
    for rollout in tries:
        untold = run.teaches and rollout.feedback.success is None
        undecided = choosing and how.by == "judge" and _known(rollout, how, run) is None
        if rollout.trace.error is None and (untold or undecided) and came_to(rollout.trace) not in said:
            asked.setdefault(came_to(rollout.trace), rollout)
    jobs = [(f"{n}", partial(_judged, rollout)) for n, rollout in enumerate(asked.values(), 1)]
    said.update(zip(asked, await run.gather(jobs), strict=True))


async def _judged(rollout: Rollout, run: Run) -> Feedback:
    return await judged_feedback(run, rollout.task, rollout.trace)


def _heard(rollout: Rollout, said: Said, run: Run) -> Rollout:
    """The attempt with what learning may hear of it."""
    told = said.get(came_to(rollout.trace)) if run.teaches and rollout.feedback.success is None else None
    return rollout if told is None else replace(rollout, feedback=told)


def _scored(how: Scaling, run: Run) -> bool:
    """Whether the choice may look at scores."""
    return run.teaches and run.labels and not how.blind


def _known(rollout: Rollout, how: Scaling, run: Run) -> Feedback | None:
    """What the choice may know without asking: that the attempt failed, or how it was scored."""
    if rollout.trace.error is not None:
        return Feedback(False, rollout.trace.error)
    return rollout.feedback if _scored(how, run) and rollout.score is not None else None


def _verdict(rollout: Rollout, said: Said, how: Scaling, run: Run) -> Feedback | None:
    """What the choice may see of an attempt."""
    known = _known(rollout, how, run)
    return known if known is not None or how.by != "judge" else said.get(came_to(rollout.trace))


def _chooser(best: Rollout, how: Scaling, run: Run) -> str:
    return "score" if _scored(how, run) and best.score is not None else how.by


Rank = tuple[bool, bool, int, float]
"""How good an attempt is for all that the choice may see: whether there is an answer, whether there was an attempt, the
verdict, and the value of a score in [0, 1]."""


def _best(
    tries: Sequence[Rollout], verdicts: Sequence[Feedback | None], ranks: Sequence[Rank], contrast: Contrast | None
) -> tuple[int, str, str]:
    """Which attempt stands, who chose (empty: the verdicts), and why. The ranks come first, then the contrast, then
    agreement, then order."""
    outcomes = [came_to(r.trace) for r in tries]
    shares = Counter(outcomes)
    best = [n for n, rank in enumerate(ranks) if rank == max(ranks)]
    most = max(best, key=lambda n: (shares[outcomes[n]], -n))
    agreed = f"{shares[outcomes[most]]} of {len(tries)} came to it"
    if len(shares) == 1:
        return most, "agreement", agreed
    if len({outcomes[n] for n in best}) == 1:
        return most, "", _ahead(ranks, verdicts[most])
    if contrast is not None and contrast.best - 1 in best:
        return contrast.best - 1, "contrast", contrast.why
    return most, "agreement", agreed


def _ahead(ranks: Sequence[Rank], verdict: Feedback | None) -> str:
    """Why the attempt of the highest rank, which has this verdict, is before those of a lower one."""
    first, second, *_ = sorted(set(ranks), reverse=True)
    if first[:-1] == second[:-1]:
        return f"it scored {first[-1]:.3g}, the next best {second[-1]:.3g}"
    return verdict.text if verdict is not None and verdict.success else "the others failed"


def _usable(rollout: Rollout) -> tuple[bool, bool]:
    """Whether there is an answer, and else whether there was at least an attempt."""
    return rollout.trace.error is None, not rollout.trace.lost


def _rank(rollout: Rollout, verdict: Feedback | None, scored: bool) -> Rank:
    said = None if verdict is None else verdict.success
    value = rollout.score.value if scored and rollout.score is not None else 0.0
    return (*_usable(rollout), 1 if said is None else 2 * said, value)


def _told(
    tries: Sequence[Rollout], verdicts: Sequence[Feedback | None], best: int, by: str, why: str,
    contrast: Contrast | None,
) -> Rollout:  # fmt: skip
    """The chosen attempt with the others beside it, which says of how many it is, who chose it and why."""
    outcomes = [came_to(r.trace) for r in tries]
    chosen: dict[str, object] = {
        "of": len(tries),
        "by": by,
        "why": why,
        "agreement": outcomes.count(outcomes[best]) / len(tries),
        "verdicts": [None if verdict is None else verdict.success for verdict in verdicts],
    }
    if contrast is not None:
        chosen["contrast"] = contrast.findings
    return replace(tries[best], choice=chosen, siblings=tuple(r for n, r in enumerate(tries) if n != best))


def _earlier(tries: Sequence[Rollout], verdicts: Sequence[Feedback | None], told: bool) -> str:
    """What a pass reads of those before: their work and answers, the agent's notes, that they were found wrong and, if
    `told`, why."""
    said = []
    for n, (rollout, verdict) in enumerate(zip(tries, verdicts, strict=True), 1):
        trace = rollout.trace
        parts = [f"failed: {trace.error}" if trace.error is not None else trace.answer]
        if work := _work(trace):
            parts.append(f"how you came to it: {work}")
        if note := trace.data.get("note"):
            parts.append(f"your note: {note}")
        if trace.error is None and verdict is not None and verdict.success is False:
            parts.append(f"found wrong: {verdict.text}" if told else "found wrong")
        said.append(f"{n}. " + "\n   ".join(parts))
    return REFINE.format("\n".join(said))


def _work(trace: Trace) -> str:
    work = "\n   ".join([*(f"{step.kind}: {step.text}" for step in trace.steps), trace.reasoning]).strip()
    return truncate(work, 2 * WORK)


REFINE = """\
You have worked on this before. Your earlier answers, in order:
{}
Look at them again with fresh eyes: check each step, mend what is wrong, keep what is right. Then give your answer."""
