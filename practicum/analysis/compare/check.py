"""Check of an advice on the user's own tasks: a small comparison on tasks that are held out of the training tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from practicum.analysis.compare.harness import Comparison, ComparisonWatch, Halt, compare
from practicum.analysis.compare.variants import ComparisonTable, Study, Variant, suited
from practicum.core.differences import MIN_TASKS
from practicum.core.errors import UsageError
from practicum.core.formats import percent
from practicum.core.types import Task
from practicum.session.advise import Advice, advise_instead
from practicum.session.components import Parts

HELD_OUT = 1 / 3
"""Share of the tasks that is held out."""

MOST_LEARNED, MOST_SCORED = 120, 60
"""Maximum numbers of tasks that the methods learn from, and that are scored."""

MARGIN = 0.05
"""Another method replaces the advised method only if its score is higher by more than this."""

CHEAP = ("icl", "episodes")
"""Methods that learn without model calls. They are checked with every advice."""


@dataclass(frozen=True)
class Check:
    """Result of a check of the method `advised`."""

    advised: str
    comparison: Comparison

    @property
    def held_out(self) -> int:
        """Number of scored tasks."""
        return int(self.comparison.report["tasks"]["scored"])

    @property
    def scores(self) -> dict[str, float | None]:
        """Scores of the checked methods by name."""
        return {row["name"]: row["score"] for row in self.comparison.report["variants"]}

    @property
    def method(self) -> str:
        """Method that pays, or "none"."""
        return choose(self.advised, {name: score for name, score in self.scores.items() if score is not None})

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of this method in the check."""
        return next(row["settings"] for row in self.comparison.report["variants"] if row["name"] == self.method)

    def as_json(self) -> dict[str, Any]:
        """Return plain values, as `--json` prints them."""
        return {
            "method": self.method, "settings": self.settings, "held_out": self.held_out, "scores": self.scores,
            "folder": str(self.comparison.folder),
        }  # fmt: skip

    def applied(self, advice: Advice, tasks: Sequence[Task], test: Sequence[Task], values: Mapping[str, Any]) -> Advice:
        """Return the advice with the method that pays, and the reason. The other arguments are as for `advise`."""
        scored = ", ".join(f"{name} {percent(score)}" for name, score in self.scores.items())
        verdict = "nothing here pays" if self.method == "none" else "checked"
        reason = f"{verdict}: scores on {self.held_out} held-out tasks, one run each: {scored}"
        measured = str(self.comparison.folder / "report.html")
        if self.method == self.advised:
            return replace(advice, row=replace(advice.row, reason=f"{advice.row.reason}; {reason}", measured=measured))
        row = replace(advice.row, method=self.method, settings=self.settings, reason=reason, measured=measured)
        return advise_instead(advice, row, tasks, test, values)


async def check(
    advice: Advice, tasks: Sequence[Task], values: Mapping[str, Any], *, out: Path, parts: Parts | None = None,
    watch: ComparisonWatch | None = None, halt: Halt | None = None,
) -> Check:  # fmt: skip
    """Compare the advised method with no learning and with the cheap methods, once each, on held-out tasks.

    `values` are keywords of `learn`; the limits `max_calls`, `max_tokens` and `max_usd` are for all runs together.
    Raises UsageError if fewer than ten tasks can be held out, or if no model is named.
    """
    learned, scored = split(tasks)
    study = _study(advice, values.get("labels", True))
    limits = {
        name: type(limit)(limit / len(study.variants))
        for name in ("max_calls", "max_tokens", "max_usd")
        if (limit := values.get(name))
    }
    common = {name: value for name, value in {**values, **advice.options, **limits}.items() if value is not None}
    comparison = await compare(
        learned, test=scored, methods=study, seeds=1, out=out, parts=parts, watch=watch, halt=halt, **common
    )
    return Check(advice.row.method, comparison)


def split(tasks: Sequence[Task]) -> tuple[list[Task], list[Task]]:
    """Return the tasks to learn from and the held-out tasks, drawn with a fixed seed. Raise UsageError for too few
    tasks."""
    shuffled = list(tasks)
    Random(0).shuffle(shuffled)
    held_out = min(round(HELD_OUT * len(tasks)), MOST_SCORED)
    if held_out < MIN_TASKS:
        raise UsageError(
            "tasks.missing",
            f"a check holds a third of the tasks out, at least {MIN_TASKS}: pass {3 * MIN_TASKS} tasks or more, or "
            "leave out `check`",
        )
    return shuffled[held_out : held_out + MOST_LEARNED], shuffled[:held_out]


def _study(advice: Advice, labels: bool) -> Study:
    """Return the comparison of the advised method with no learning and with the cheap methods."""
    row = advice.row
    variants = {name: Variant(name, name) for name in ("none", row.method, *suited(CHEAP, labels))}
    variants[row.method] = Variant(row.method, row.method, dict(row.settings))
    return Study((ComparisonTable("Check on held-out tasks", "none", tuple(variants.values())),))


def choose(advised: str, scores: Mapping[str, float]) -> str:
    """Return the method that pays: the advised method, or the best method if it scores higher by more than `MARGIN`.
    Return "none" if no method scores higher than no learning."""
    base = scores.get("none", 0.0)
    best = max(scores, key=lambda name: scores[name], default="none")
    if advised in scores and scores[advised] > base and scores[best] - scores[advised] <= MARGIN:
        return advised
    return best if scores.get(best, 0.0) > base else "none"
