"""Metrics of a run's attempts: success, learning curves, retrieval, agreement, and the judge against the scorer."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from practicum.analysis.monitor.series import (
    MetricGroup,
    Series,
    distribution,
    mean,
    window_size,
    windowed_rates,
)
from practicum.blocks.act.scaling import number_of, place_of_all
from practicum.core.intervals import share_ci95
from practicum.core.types import Rollout

StepRollouts = Sequence[tuple[int, Sequence[Rollout]]]
"""Steps in order, each with its rollouts."""

ALL_DOMAINS = "all"
"""The domain of tasks that name none."""


@dataclass(frozen=True, slots=True)
class SuccessCriterion:
    """What counts as success in a run: `by` is "score" where anything was scored, otherwise "verdict"."""

    by: str

    @classmethod
    def of(cls, steps: StepRollouts) -> SuccessCriterion:
        return cls("score" if any(r.score is not None for _, rollouts in steps for r in rollouts) else "verdict")

    def __call__(self, rollout: Rollout) -> bool | None:
        """Whether an attempt succeeded; None where this is unknown."""
        if self.by == "score":
            return None if rollout.score is None else rollout.score.correct
        return rollout.feedback.success


def without_reused(steps: StepRollouts) -> StepRollouts:
    """Leave out rollouts that reuse an earlier attempt, since nothing was attempted for them."""
    return [(step, [rollout for rollout in rollouts if not rollout.of]) for step, rollouts in steps]


def success(steps: StepRollouts, succeeded: SuccessCriterion) -> MetricGroup:
    """The success rate over a window, and the number of attempts.

    Of several attempts at a task the chosen one counts. An attempt that was reused counts each time.
    """
    rollouts = [r for _, step in steps for r in step]
    by_step = [[outcome for r in step if (outcome := succeeded(r)) is not None] for _, step in steps]
    known = [outcome for step in by_step for outcome in step]
    numbers = {
        "by": succeeded.by,
        "attempts": len(rollouts),
        "tries": sum(len(r.group) for r in rollouts),
        "unknown": len(rollouts) - len(known),
        "errors": sum(_failed(r) for r in rollouts),
        "lost": sum(r.trace.lost for r in rollouts),
        "reused": sum(bool(r.of) for r in rollouts),
        "stopped": sum(r.score is not None and r.score.stopped for r in rollouts),
    }
    if not known:
        return MetricGroup(numbers)
    window = window_size(len(known))
    series: dict[str, Series] = {
        **windowed_rates(by_step, window),
        "attempts": [len(step) for _, step in steps],
        "errors": [sum(map(_failed, step)) for _, step in steps],
    }
    ends = {"first": _rate(known[:window]), "last": _rate(known[-window:])}
    return MetricGroup({**numbers, **_rate(known), "window": window, **ends}, series)


def learning_curves(steps: StepRollouts, succeeded: SuccessCriterion) -> MetricGroup | None:
    """For each domain the success rate over a window of its attempts; None where no outcome is known."""
    outcomes: dict[str, list[tuple[int, bool]]] = defaultdict(list)
    for step, rollouts in steps:
        for rollout in rollouts:
            if (outcome := succeeded(rollout)) is not None:
                outcomes[str(rollout.task.meta.get("domain", ALL_DOMAINS))].append((step, outcome))
    domains = {}
    for name, attempts in sorted(outcomes.items()):
        window = window_size(len(attempts))
        series = {
            "attempt": [*range(1, len(attempts) + 1)],
            "step": [step for step, _ in attempts],
            **windowed_rates([[outcome] for _, outcome in attempts], window),
        }
        rate = _rate([outcome for _, outcome in attempts])
        domains[name] = {**rate, "attempts": len(attempts), "window": window, "by_attempt": series}
    return MetricGroup({"domains": domains}) if domains else None


def retrieval(steps: StepRollouts, cites: bool) -> MetricGroup | None:
    """The similarity of retrieved entries to their task, on average and at best, and the share of them that the agent
    relied on, if it cites entries. None where nothing was retrieved."""
    similarity: list[float | None] = []
    best: list[float | None] = []
    relied_on: list[float | None] = []
    for _, rollouts in steps:
        lookups = [r for r in rollouts if r.retrieved]
        similarity.append(mean(_similarities(lookups)))
        best.append(mean(_best(lookups)))
        relied_on.append(mean(_cited(lookups)))
    lookups = [r for _, rollouts in steps for r in rollouts if r.retrieved]
    if not lookups:
        return None
    numbers = {"lookups": len(lookups), "similarity": mean(_similarities(lookups)), "best": mean(_best(lookups))}
    cited = _cited(lookups)
    if not cites or not cited:
        return MetricGroup(numbers, {"similarity": similarity, "best": best})
    return MetricGroup(
        {**numbers, "relied_on": mean(cited)}, {"similarity": similarity, "best": best, "relied_on": relied_on}
    )


def _similarities(lookups: Sequence[Rollout]) -> list[float]:
    return [similarity for r in lookups for _, similarity in r.retrieved]


def _best(lookups: Sequence[Rollout]) -> list[float]:
    return [max(similarity for _, similarity in r.retrieved) for r in lookups]


def _cited(lookups: Sequence[Rollout]) -> list[bool]:
    return [id in r.trace.used for r in lookups if not _failed(r) for id, _ in r.retrieved]


def agreement(steps: StepRollouts) -> MetricGroup | None:
    """Where several attempts were made at a task: the share of them that agree with the chosen answer, and what chose
    it. None where no task had several attempts."""
    choices = [[r.choice for r in rollouts if r.choice.get("of", 1) > 1] for _, rollouts in steps]
    every = [choice for step in choices for choice in step]
    if not every:
        return None
    numbers = {
        "tasks": len(every),
        "tries": mean([choice["of"] for choice in every]),
        "agreement": mean([choice["agreement"] for choice in every]),
        "unanimous": mean([choice["agreement"] == 1 for choice in every]),
        "by": dict(Counter(str(choice["by"]) for choice in every).most_common()),
    }
    return MetricGroup(numbers, {"agreement": [mean([choice["agreement"] for choice in step]) for step in choices]})


def actions(steps: StepRollouts) -> MetricGroup | None:
    """The number of actions of each attempt, further attempts at a task included; None for an agent without actions."""
    traces = [[r.trace for rollout in rollouts for r in rollout.group if r.trace.steps] for _, rollouts in steps]
    by_step = [[sum(step.kind == "action" for step in trace.steps) for trace in step] for step in traces]
    every = [n for step in by_step for n in step]
    if not any(every):
        return None
    return MetricGroup(distribution(every), {"actions": [mean(step) for step in by_step]})


@dataclass(frozen=True, slots=True)
class JudgedAttempt:
    """An attempt with the verdict that the judge gave on it in the run."""

    rollout: Rollout
    verdict: bool


def judged_attempts(steps: StepRollouts, verdict_places: Collection[str]) -> Iterator[JudgedAttempt]:
    """The attempts that the judge gave a verdict on, one for each answer and verdict at a task. `verdict_places` are
    the places below which the judge was asked for a verdict."""
    for _, rollouts in steps:
        for rollout in rollouts:
            if place_of_all(rollout) not in verdict_places:
                continue
            distinct = {
                (attempt.trace.answer, verdict): JudgedAttempt(attempt, verdict)
                for attempt, verdict in _verdicts(rollout)
                if verdict is not None and not _failed(attempt)
            }
            yield from distinct.values()


def _verdicts(rollout: Rollout) -> Iterator[tuple[Rollout, bool | None]]:
    """Each attempt at a task with its verdict; a choice keeps its verdicts in the order of the attempts."""
    verdicts = rollout.choice.get("verdicts")
    if verdicts is None:
        yield from ((attempt, attempt.feedback.success) for attempt in rollout.group)
        return
    yield from zip(sorted(rollout.group, key=number_of), verdicts, strict=True)


def scored_attempts(steps: StepRollouts) -> list[JudgedAttempt]:
    """All attempts that have a score, which stands for the verdict of the judge that gave it."""
    attempts = (r for _, rollouts in steps for rollout in rollouts for r in rollout.group)
    return [JudgedAttempt(r, r.score.correct) for r in attempts if r.score is not None and not _failed(r)]


def against_scorer(attempts: Sequence[JudgedAttempt]) -> dict[str, object] | None:
    """How often the judge's verdict equals the score; None where no attempt has both.

    `lenient` counts wrong answers that were judged right, `strict` right answers that were judged wrong.
    """
    both = [(a.verdict, a.rollout.score.correct) for a in attempts if a.rollout.score is not None]
    if not both:
        return None
    same = sum(verdict == correct for verdict, correct in both)
    lenient = sum(verdict and not correct for verdict, correct in both)
    strict = len(both) - same - lenient
    interval = list(share_ci95(same, len(both)))
    return {"n": len(both), "same": same / len(both), "ci95": interval, "lenient": lenient, "strict": strict}


def _rate(outcomes: Sequence[bool]) -> dict[str, object]:
    return {"rate": sum(outcomes) / len(outcomes), "ci95": list(share_ci95(sum(outcomes), len(outcomes)))}


def _failed(rollout: Rollout) -> bool:
    return rollout.trace.error is not None
