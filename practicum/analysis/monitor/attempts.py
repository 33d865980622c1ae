"""Metrics of a run's attempts: success, learning curves, retrieval, agreement between attempts, and agreement of the
judge with the scorer."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Sequence

from practicum.analysis.monitor.series import MetricGroup, Series, distribution, mean, rate, windowed_rates
from practicum.core.types import Attempt
from practicum.core.windows import window_size
from practicum.methods.blocks.scaling import number_of, place_of_all

StepAttempts = Sequence[tuple[int, Sequence[Attempt]]]
"""Numbers of the steps, in order, each with the attempts of the step."""

ALL_DOMAINS = "all"
"""Name of the domain of tasks without `domain` in their `meta`."""


def outcome(attempt: Attempt, by: str) -> bool | None:
    """Return whether an attempt succeeded: by its score, or, if `by` is "verdict", by the verdict in its feedback. None
    if the attempt has no such score or verdict."""
    if by == "verdict":
        return attempt.feedback.success
    return None if attempt.score is None else attempt.score.correct


def success(steps: StepAttempts, by: str) -> MetricGroup:
    """Return the success rate over a moving window of attempts, and the numbers of attempts. `by`: "score" or
    "verdict".

    Of several attempts at a task, the first attempt counts for the rate, and the chosen attempt for the best of k. A
    reused attempt counts in each step that uses the attempt."""
    attempts = [r.first for _, step in steps for r in step]
    by_step = [_outcomes([r.first for r in step], by) for _, step in steps]
    outcomes = [value for step in by_step for value in step]
    chosen = [_outcomes([r for r in step if r.choice], by) for _, step in steps]
    numbers = {
        "by": by,
        "attempts": len(attempts),
        "tries": sum(len(r.group) for _, step in steps for r in step),
        "unknown": len(attempts) - len(outcomes),
        "errors": sum(_failed(r) for r in attempts),
        "lost": sum(r.trace.lost for r in attempts),
        "reused": sum(bool(r.of) for r in attempts),
        "stopped": sum(r.score is not None and r.score.stopped for r in attempts),
    }
    if not outcomes:
        return MetricGroup(numbers)
    window = window_size(len(outcomes))
    series: dict[str, Series] = {
        **windowed_rates(by_step, window),
        "attempts": [len(step) for _, step in steps],
        "errors": [sum(_failed(r.first) for r in step) for _, step in steps],
        **_best_series(chosen, window),
    }
    ends = {"first": rate(outcomes[:window]), "last": rate(outcomes[-window:])}
    return MetricGroup({**numbers, **rate(outcomes), **_best(chosen), "window": window, **ends}, series)


def learning_curves(steps: StepAttempts, by: str) -> MetricGroup | None:
    """Return, for each domain, the success rate of first attempts over a moving window, and the success rate of chosen
    attempts (best of k). None if no attempt has an outcome."""
    by_domain: dict[str, list[tuple[int, bool, list[bool]]]] = defaultdict(list)
    for step, attempts in steps:
        for attempt in attempts:
            if (succeeded := outcome(attempt.first, by)) is not None:
                chosen = _outcomes([attempt] if attempt.choice else [], by)
                by_domain[str(attempt.task.meta.get("domain", ALL_DOMAINS))].append((step, succeeded, chosen))
    domains = {}
    for name, firsts in sorted(by_domain.items()):
        numbers, outcomes, best = zip(*firsts, strict=True)
        window = window_size(len(firsts))
        rates = windowed_rates([[succeeded] for succeeded in outcomes], window)
        curve = {**rates, **_best_series(best, window)}
        series = {"attempt": [*range(1, len(firsts) + 1)], "step": list(numbers), **curve}
        domains[name] = {
            **rate(outcomes), **_best(best), "attempts": len(firsts), "window": window, "by_attempt": series,
        }  # fmt: skip
    return MetricGroup({"domains": domains}) if domains else None


def retrieval(steps: StepAttempts, cites: bool) -> MetricGroup | None:
    """Return the mean and the best similarity of retrieved entries to the task for which they were retrieved. If the
    agent cites entries (`cites`), also return the share of retrieved entries that the agent cited. None if no entries
    were retrieved."""
    by_step = [[r for r in attempts if r.retrieved] for _, attempts in steps]
    every = [r for step in by_step for r in step]
    if not every:
        return None
    measures: dict[str, Callable[[Sequence[Attempt]], list[float]]] = {
        "similarity": lambda lookups: [similarity for r in lookups for _, similarity in r.retrieved],
        "best": lambda lookups: [max(similarity for _, similarity in r.retrieved) for r in lookups],
    }
    if cites and not all(map(_failed, every)):
        measures["relied_on"] = lambda lookups: [
            id in r.trace.used for r in lookups if not _failed(r) for id, _ in r.retrieved
        ]
    numbers = {name: mean(measure(every)) for name, measure in measures.items()}
    series = {name: [mean(measure(step)) for step in by_step] for name, measure in measures.items()}
    return MetricGroup({"lookups": len(every), **numbers}, series)


def agreement(steps: StepAttempts) -> MetricGroup | None:
    """Return, for tasks with several attempts, the share of attempts that agree with the chosen answer, and how often
    the answer was chosen by each criterion (scores, contrast or agreement, for example). None if no task has several
    attempts."""
    by_step = [[r.choice for r in attempts if r.choice.get("of", 1) > 1] for _, attempts in steps]
    every = [choice for step in by_step for choice in step]
    if not every:
        return None
    numbers = {
        "tasks": len(every),
        "tries": mean([choice["of"] for choice in every]),
        "agreement": mean([choice["agreement"] for choice in every]),
        "unanimous": mean([choice["agreement"] == 1 for choice in every]),
        "by": dict(Counter(str(choice["by"]) for choice in every).most_common()),
    }
    return MetricGroup(numbers, {"agreement": [mean([choice["agreement"] for choice in step]) for step in by_step]})


def actions(steps: StepAttempts) -> MetricGroup | None:
    """Return the distribution of the number of actions in an attempt, over all attempts, including every attempt of a
    group of attempts at one task. None if no attempt has an action."""
    traces = [[r.trace for attempt in attempts for r in attempt.group if r.trace.steps] for _, attempts in steps]
    by_step = [[sum(step.kind == "action" for step in trace.steps) for trace in step] for step in traces]
    every = [n for step in by_step for n in step]
    return MetricGroup(distribution(every), {"actions": [mean(step) for step in by_step]}) if any(every) else None


JudgedAttempt = tuple[Attempt, bool]
"""Attempt, and the verdict that the judge gave on this attempt during the run."""


def judged_attempts(steps: StepAttempts, verdict_places: Collection[str]) -> list[JudgedAttempt]:
    """Return the attempts that the judge gave a verdict on. If several attempts at a task have the same answer and the
    same verdict, only one of these attempts is returned.

    `verdict_places`: the places below which the judge was called for a verdict."""
    judged: list[JudgedAttempt] = []
    for attempt in (r for _, attempts in steps for r in attempts if place_of_all(r.place) in verdict_places):
        group, verdicts = list(attempt.group), [r.feedback.success for r in attempt.group]
        if (stored := attempt.choice.get("verdicts")) is not None:
            # The choice among several attempts stores the judge's verdicts, in the order of the attempts' numbers.
            group, verdicts = sorted(group, key=number_of), stored
        distinct = {
            (one.trace.answer, verdict): (one, verdict)
            for one, verdict in zip(group, verdicts, strict=True)
            if verdict is not None and not _failed(one)
        }
        judged += distinct.values()
    return judged


def scored_attempts(steps: StepAttempts) -> list[JudgedAttempt]:
    """Return all attempts that have a score and did not fail, each with whether its score is correct, in place of a
    verdict of the judge."""
    attempts = (r for _, attempts in steps for attempt in attempts for r in attempt.group)
    return [(r, r.score.correct) for r in attempts if r.score is not None and not _failed(r)]


def against_scorer(attempts: Sequence[JudgedAttempt]) -> dict[str, object] | None:
    """Return the share of attempts whose verdict agrees with their score; None if no attempt has a score. `lenient`:
    number of wrong answers judged right. `strict`: number of right answers judged wrong."""
    pairs = [(verdict, attempt.score.correct) for attempt, verdict in attempts if attempt.score is not None]
    if not pairs:
        return None
    wrong = {"lenient": pairs.count((True, False)), "strict": pairs.count((False, True))}
    return {"n": len(pairs), **rate([verdict == correct for verdict, correct in pairs], "same"), **wrong}


def _outcomes(attempts: Sequence[Attempt], by: str) -> list[bool]:
    return [succeeded for attempt in attempts if (succeeded := outcome(attempt, by)) is not None]


def _best(chosen: Sequence[Sequence[bool]]) -> dict[str, object]:
    """Return the success rate of chosen attempts as `best_of_k`; an empty dict if no attempt was chosen."""
    outcomes = [succeeded for step in chosen for succeeded in step]
    return {"best_of_k": mean(outcomes)} if outcomes else {}


def _best_series(chosen: Sequence[Sequence[bool]], window: int) -> dict[str, Series]:
    """Return the success rate of chosen attempts over a moving window as `best_of_k`; an empty dict if no attempt was
    chosen."""
    return {"best_of_k": windowed_rates(chosen, window)["rate"]} if any(chosen) else {}


def _failed(attempt: Attempt) -> bool:
    return attempt.trace.error is not None
