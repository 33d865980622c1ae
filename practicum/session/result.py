"""Results of runs and evaluations, progress of a run, and the base class of observers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from practicum.core.context import Context
from practicum.core.counts import counted
from practicum.core.edits import entry_json
from practicum.core.html import card
from practicum.core.types import Attempt, Usage
from practicum.core.views import render_full
from practicum.core.words import in_number, quantity, usage_text
from practicum.engine.loop import StepReport
from practicum.engine.state import Observer
from practicum.models.budget import Budget
from practicum.session.config import Config, Splits

SCORE_NAMES = {
    "before": "test score before", "before_best_of_k": "test score before, best of k",
    "test": "test score", "test_best_of_k": "test score, best of k",
    "val_best": "best validation score", "online": "online score", "online_best_of_k": "online score, best of k",
}  # fmt: skip
"""Names of a run's scores as text."""

INTERRUPTED = "interrupted"
"""Reason of a stop that the user requested."""

OUTAGE = "the provider failed at the end"
"""First words of the reason of a stop, if calls failed at the provider and no stored result depends on these calls."""


@dataclass(frozen=True)
class Result:
    """Result of a run.

    `scores` may have the keys `before`, `val_best`, `test` and `online`, with the scores of first attempts in [0, 1].
    If the method chose one of several attempts at a task, `before_best_of_k`, `test_best_of_k` and `online_best_of_k`
    are the scores of the chosen attempts. `seconds` is the duration of the run over all resumes; `critical` is the
    duration of the run's longest chain of calls that depend on each other; more parallel calls cannot make the run
    shorter than this duration. `hits` counts results from the journal, `refused` counts edits that could not be
    applied, and `errors` holds the counters above zero (see `core.counts`). `attempts` are the attempts of the
    evaluations "before" and "test". `stopped` is the reason for an early end of the run, or None. `held` is the number
    of edits that wait for review in the run.
    """

    run: Path
    context: Context
    scores: dict[str, float]
    usage: Usage
    by_role: dict[str, Usage]
    seconds: float
    critical: float
    hits: int
    refused: int
    errors: dict[str, int]
    steps: int
    attempts: Mapping[str, tuple[Attempt, ...]] = field(default_factory=dict)
    stopped: str | None = None
    held: int = 0

    @property
    def interrupted(self) -> bool:
        """Whether the user stopped the run."""
        return self.stopped == INTERRUPTED

    @property
    def cut_short(self) -> bool:
        """Whether calls that a resume retries failed at the provider."""
        return (self.stopped or "").startswith(OUTAGE)

    def __repr__(self) -> str:
        return f"<Result {self.run}: {'; '.join(f'{name} {value}' for name, value in self._facts.items())}>"

    def _repr_html_(self) -> str:
        """Return scores, context and cost as HTML, for notebooks."""
        return card(f"Result of {self.run}", {**self._facts, **counts_facts(self.errors)})

    @property
    def _facts(self) -> dict[str, str]:
        scores = {SCORE_NAMES.get(name, name): f"{score:.1%}" for name, score in self.scores.items()}
        context = f"version {self.context.version}, {quantity(len(self.context), 'entry')}"
        facts = {**scores, "context": context, "steps": f"{self.steps:,}", **usage_facts(self.usage, self.seconds)}
        facts |= {"held": waiting_line(self.held, self.run)} if self.held else {}
        return facts if self.stopped is None else {**facts, "stopped early": self.stopped}

    def as_json(self) -> dict[str, Any]:
        """Return plain values, as `--json` prints them; `stopped` only if the run ended early."""
        values = {
            "run": str(self.run),
            "version": self.context.version,
            "entries": [entry_json(e) for e in self.context],
            "context_tokens": render_full(self.context).tokens,
            "seconds": round(self.seconds, 3),
            "scores": self.scores,
            "usage": usage_json(self.usage),
            "by_role": roles_json(self.by_role),
            "journal": {"hits": self.hits},
            "refused": self.refused,
            "errors": self.errors,
            "held": self.held,
        }
        return values if self.stopped is None else {**values, "stopped": self.stopped}


@dataclass(frozen=True)
class Evaluation:
    """Score with its 95% interval, over the `n` scored tasks, each attempted `repeat` times.

    `score` is the score of the first attempts. `best_of_k` is the score of the attempts that were chosen from several,
    or None if no attempt was chosen. `errors` counts failed attempts, which score 0, and attempts that could not be
    scored, which are left out of the score. `counts` holds the counters above zero (see `core.counts`). A `stopped`
    evaluation covers the attempts until the stop; before the first scored attempt, `n` is 0 and `score` is NaN.
    """

    score: float
    ci95: tuple[float, float]
    n: int
    repeat: int
    errors: int
    usage: Usage
    by_role: dict[str, Usage]
    seconds: float
    attempts: tuple[Attempt, ...]
    counts: Mapping[str, int]
    stopped: str | None = None
    best_of_k: float | None = None

    def __repr__(self) -> str:
        return f"<Evaluation: {'; '.join(f'{name} {value}' for name, value in self._facts.items())}>"

    def _repr_html_(self) -> str:
        """Return the score with its interval, the cost and the counts as HTML, for notebooks."""
        return card("Evaluation", {**self._facts, **counts_facts(self.counts)})

    @property
    def _facts(self) -> dict[str, str]:
        times = f", {self.repeat} times each" if self.repeat > 1 else ""
        score = f"{self.score:.1%} (95% interval {self.ci95[0]:.1%} to {self.ci95[1]:.1%})" if self.n else "none"
        best = {} if self.best_of_k is None else {"best of k": f"{self.best_of_k:.1%}"}
        facts = {"score": f"{score} on {quantity(self.n, 'task')}{times}", **best}
        facts |= usage_facts(self.usage, self.seconds)
        return facts if self.stopped is None else {**facts, "stopped early": self.stopped}

    @property
    def measures(self) -> dict[str, float]:
        """Mean of each measure that the scorer reports in addition to the score."""
        return mean_measures(self.attempts)

    def as_json(self) -> dict[str, Any]:
        """Return plain values, as `--json` prints them."""
        values = {
            "score": self.score if self.n else None,
            "ci95": list(self.ci95) if self.n else None,
            **({} if self.best_of_k is None else {"best_of_k": self.best_of_k}),
            "n": self.n,
            "errors": self.errors,
            "counts": dict(self.counts),
            "measures": self.measures,
            "usage": usage_json(self.usage),
            "by_role": roles_json(self.by_role),
            "seconds": round(self.seconds, 3),
            "attempts": [_attempt_json(attempt) for attempt in self.attempts],
        }
        return values if self.stopped is None else {**values, "stopped": self.stopped}


def mean_measures(attempts: Iterable[Attempt]) -> dict[str, float]:
    """Return the mean of each measure that the scorer reports in addition to the score, over the answers that have the
    measure."""
    measures = [r.score.measures for r in attempts if r.score is not None and r.score.measures]
    return keyed_means(measures)


def keyed_means(mappings: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of the values of each key, over the mappings that have the key."""
    names = dict.fromkeys(name for values in mappings for name in values)
    return {name: fmean(values[name] for values in mappings if name in values) for name in names}


def _attempt_json(attempt: Attempt) -> dict[str, Any]:
    """Return the score of the first attempt at a task and the scorer's note, both null if the attempt was not scored.
    If an attempt was chosen from several, also return the score of the chosen attempt."""
    score, best = attempt.first.score, attempt.score
    scored = {"value": score and score.value, "correct": score and score.correct, "note": score and score.note}
    chosen = {"best_of_k": best and best.value} if attempt.choice else {}
    return {"id": attempt.task.id, **scored, **chosen, "error": attempt.first.trace.error}


def waiting_line(held: int, folder: Path) -> str:
    """Return the message about edits that wait for review, with the command to review them."""
    phrase = in_number(held, "edit[|s] wait[s|] for review and [is|are] not in any prompt until you approve [it|them]")
    return f"{held:,} {phrase}: practicum review {folder}"


def usage_facts(usage: Usage, seconds: float) -> dict[str, str]:
    """Return usage and duration as facts of a card."""
    return {"usage": usage_text(usage), "seconds": f"{seconds:.1f}"}


def counts_facts(counts: Mapping[str, int]) -> dict[str, str]:
    """Return counters as facts of a card; counters that need attention come first."""
    counters = counted(counts)
    return {"counted": "\n".join(f"{'! ' if c.attention else ''}{c.text(counts[c])}" for c in counters)}


def usage_json(usage: Usage) -> dict[str, Any]:
    """Return usage as plain values; `usd` is null if a price is unknown."""
    return asdict(usage)


def roles_json(by_role: Mapping[str, Usage]) -> dict[str, Any]:
    """Return the usage of each role as plain values."""
    return {role: usage_json(usage) for role, usage in by_role.items()}


@dataclass(frozen=True)
class RunInfo:
    """Run or evaluation that begins. `budget.stop(reason)` ends the run early.

    `calls` are the minimum and maximum model calls of a step, if the method announces them, and `steps` is the number
    of steps, if it is known. `context` is the context that the run starts with or that is evaluated, or None if several
    contexts are evaluated. `counts` are the run's counters (`core.counts`); an observer may raise a counter.
    """

    folder: Path
    config: Config
    splits: Splits
    budget: Budget
    calls: tuple[int, int] | None = None
    steps: int | None = None
    context: Context | None = None
    counts: Counter[str] = field(default_factory=Counter)


@dataclass
class Progress:
    """Progress of a run: its context, the best context so far, and counters.

    `scored_attempts` is the number of first attempts in learning that have a score, and `points` is the sum of the
    scores of these attempts. `chosen` is the number of attempts in learning that were chosen from several and have a
    score, and `chosen_points` is the sum of the scores of these attempts. `held` is the number of edits that wait for
    review.
    """

    context: Context
    best: Context
    best_score: float | None = None
    steps: int = 0
    refused: int = 0
    scored_attempts: int = 0
    points: float = 0.0
    chosen: int = 0
    chosen_points: float = 0.0
    held: int = 0
    scores: dict[str, float] = field(default_factory=dict)
    attempts: dict[str, tuple[Attempt, ...]] = field(default_factory=dict)
    usage: Usage = field(default_factory=Usage)

    @property
    def score(self) -> float | None:
        """Mean score of the first attempts in learning, or None if no attempt was scored."""
        return self.points / self.scored_attempts if self.scored_attempts else None

    @property
    def best_of_k(self) -> float | None:
        """Mean score of the attempts that were chosen from several in learning, or None if no attempt was chosen."""
        return self.chosen_points / self.chosen if self.chosen else None

    def scored(self, name: str, score: float | None, best_of_k: float | None) -> None:
        """Store the scores of an evaluation: of the first attempts, and of the chosen attempts."""
        scores = {name: score, f"{name}_best_of_k": best_of_k}
        self.scores.update({key: value for key, value in scores.items() if value is not None})

    def validated(self, context: Context, score: float) -> None:
        """Store a validated context if its score is the best so far. Of contexts with equal scores, the earliest is the
        best."""
        if self.best_score is None or score > self.best_score:
            self.best, self.best_score = context, score
            self.scores["val_best"] = score

    def stepped(self, report: StepReport, online: bool) -> None:
        """Count a step with its attempts, scores and edits."""
        self.context, self.steps = report.context, report.step
        self.refused += len(report.refused)
        self.held += len(report.held)
        scored = [first.score.value for r in report.attempts if (first := r.first).score is not None]
        self.scored_attempts += len(scored)
        self.points += sum(scored)
        chosen = [r.score.value for r in report.attempts if r.choice and r.score is not None]
        self.chosen += len(chosen)
        self.chosen_points += sum(chosen)
        if online:
            self.scored("online", self.score, self.best_of_k)
        if report.val is not None:
            self.validated(report.context, report.val)


class Watch(Observer):
    """Observer of a run: learning, an evaluation or a query. Override the methods you need.

    Every method except `flush` may be called often and must return at once. See `engine.state.Observer` for the events
    of single calls and attempts.
    """

    def reading(self, count: int) -> None:
        """Handle the number of tasks read from a stream so far; the run has not begun."""

    def began(self, run: RunInfo) -> None:
        """Handle the start of the run, or of a resume. `run.budget.stop(reason)` ends the run early."""

    def stepped(self, report: StepReport, progress: Progress) -> None:
        """Handle the end of a step."""

    def evaluating(self, name: str, attempts: int) -> None:
        """Handle the start of the evaluation `name`, with `attempts` attempts: "before" or "test" of a run, "eval"
        outside a run, or "trying ..." for waiting edits."""

    def evaluated(self, name: str, score: float | None, scored: int) -> None:
        """Handle the end of the evaluation `name`. `scored` tasks have the mean score `score`; None if no task could be
        scored."""

    def ended(self, result: Result | Evaluation | None) -> None:
        """Handle the end of the run that `began` reported, with its result, or None if the run failed."""

    async def flush(self) -> None:
        """Finish sending pending data, if the observer sends data. This method is called last; the run's result is
        returned after this method has ended."""
