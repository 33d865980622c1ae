"""From what came of the runs to what a report says: numbers by variant, paired tests by table, Pareto fronts.

Everything is a plain value and follows from the runs' folders alone, so that the report of a comparison that was killed
and gone on with is that of one that was not, but for seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from practicum.analysis.compare.numbers import chance
from practicum.analysis.compare.outcome import Outcome, Point, Spent
from practicum.analysis.compare.plan import Plan
from practicum.analysis.compare.variants import Table, Variant
from practicum.core.differences import FEWEST, difference, holm, verdict
from practicum.core.intervals import repeated_ci95
from practicum.core.types import Usage
from practicum.session.result import usage_json

CURVE = 60
"""Most points of a learning curve in a report."""

WINDOW = 20
"""Training tasks, at least, over which the score of a learning curve is taken."""


@dataclass(frozen=True)
class Arm:
    """A variant with what came of its runs; `whole` are those with a score."""

    variant: Variant
    outcomes: tuple[Outcome, ...]

    @property
    def whole(self) -> tuple[Outcome, ...]:
        return tuple(o for o in self.outcomes if o.failed is None)

    def by_task(self) -> dict[str, list[float]]:
        """Scores of each task that every whole run scored, one a seed."""
        runs = [o.by_task for o in self.whole]
        shared = [id for id in runs[0] if all(id in run for run in runs)] if runs else []
        return {id: [run[id] for run in runs] for id in shared}


def summary(plan: Plan, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The whole report as plain values; scores and effects lie in [-1, 1], times are seconds."""
    arms = {v.name: Arm(v, tuple(o for o in outcomes if o.variant == v.name)) for v in plan.study.variants}
    rows = [_row(arm) for arm in arms.values()]
    told = {name: plan.common[name] for name in TOLD}
    return {
        "format": 1,
        **told,
        "roles": plan.common["roles"],
        "tasks": {"train": len(plan.splits.train), "val": len(plan.splits.val), "scored": len(plan.scored)},
        "online": plan.online,
        "seeds": plan.seeds,
        "runs": {"planned": len(plan.runs), "done": sum(o.failed is None for o in outcomes)},
        "warnings": list(plan.warnings),
        "variants": rows,
        "tables": [_table(table, arms) for table in plan.study.tables],
        "front": {
            axis: front([(r["name"], r[axis], r["score"]) for r in rows]) for axis in ("alone_s", cost_axis(rows))
        },
    }


TOLD = ("model", "agent", "scorer", "concurrency", "labels", "max_calls", "max_tokens")
"""Fields of the configuration that a report tells."""


def cost_axis(rows: Sequence[Mapping[str, Any]]) -> str:
    """What cost is drawn in: money where all of it is known and there is any, else tokens."""
    money = [row["usd"] for row in rows if row["score"] is not None]
    return "usd" if money and None not in money and any(money) else "tokens"


def front(points: Sequence[tuple[str, float | None, float | None]]) -> list[str]:
    """Names of those that no other beats: at most as dear and at least as good, and one of the two by more."""
    known = [(name, cost, score) for name, cost, score in points if cost is not None and score is not None]
    return [
        name
        for name, cost, score in sorted(known, key=lambda p: (p[1], -p[2]))
        if not any(c <= cost and s >= score and (c < cost or s > score) for _, c, s in known)
    ]


def _row(arm: Arm) -> dict[str, Any]:
    """A variant's numbers: means over its runs with a score, where there are any, else over what was paid for."""
    scores = arm.by_task()
    counted = arm.whole or arm.outcomes

    def mean(of: Callable[[Outcome], float]) -> float | None:
        return fmean(of(o) for o in counted) if counted else None

    def money(spent: Callable[[Outcome], Spent]) -> float | None:
        found = [spent(o).usd for o in counted]
        return fmean(u for u in found if u is not None) if found and None not in found else None

    learned, tested = money(lambda o: o.learning), money(lambda o: o.testing)
    reads = sum(o.learning.input_tokens + o.testing.input_tokens for o in counted)
    cached = sum(o.learning.cached_tokens + o.testing.cached_tokens for o in counted)
    by_task = [fmean(values) for values in scores.values()]
    return {
        "name": arm.variant.name,
        "method": arm.variant.method,
        "settings": dict(arm.variant.settings),
        "score": fmean(by_task) if by_task else None,
        "ci95": list(repeated_ci95(list(scores.values()))) if by_task else None,
        "by_seed": {str(o.seed): o.score for o in arm.outcomes},
        "n": len(by_task),
        "calls": mean(lambda o: o.learning.calls + o.testing.calls),
        "tokens": mean(lambda o: o.learning.tokens + o.testing.tokens),
        "learning_calls": mean(lambda o: o.learning.calls),
        "learning_tokens": mean(lambda o: o.learning.tokens),
        "tokens_a_test_task": _serving(arm.whole),
        "cached_share": cached / reads if reads else 0.0,
        "by_role": _by_role(counted),
        "usd": learned + tested if learned is not None and tested is not None else None,
        "alone_s": mean(lambda o: o.alone),
        "work_s": mean(lambda o: o.work),
        "critical_s": mean(lambda o: o.work if o.critical is None else o.critical),
        "wall_s": mean(lambda o: o.wall),
        "context_tokens": mean(lambda o: o.context_tokens),
        "entries": mean(lambda o: o.entries),
        "refused": mean(lambda o: o.refused),
        "errors": _errors(counted),
        "stopped": {str(o.seed): o.stopped for o in arm.outcomes if o.stopped},
        "failed": {str(o.seed): o.failed for o in arm.outcomes if o.failed},
        "missing": not arm.outcomes,
        "curve": curve([o.curve for o in arm.whole]),
    }


def _serving(outcomes: Sequence[Outcome]) -> float | None:
    """Tokens of one task of the evaluation; None where there was none, as in a stream."""
    found = [o.testing.tokens / len(o.by_task) for o in outcomes if o.testing.calls]
    return fmean(found) if found else None


def _by_role(outcomes: Sequence[Outcome]) -> dict[str, dict[str, float | None]]:
    """What each role cost: means over the runs, also over those that did not ask it; `usd` is None where a price is
    unknown."""
    roles = sorted({role for o in outcomes for role in o.by_role})
    whole = {role: usage_json(sum((o.by_role.get(role, Usage()) for o in outcomes), Usage())) for role in roles}
    return {
        role: {name: None if value is None else value / len(outcomes) for name, value in usage.items()}
        for role, usage in whole.items()
    }


def _errors(outcomes: Sequence[Outcome]) -> dict[str, int]:
    """What the runs counted, added up."""
    names = sorted({name for o in outcomes for name in o.errors})
    return {name: sum(o.errors.get(name, 0) for o in outcomes) for name in names}


def curve(runs: Sequence[Sequence[Point]]) -> list[dict[str, Any]]:
    """The mean learning curve of runs, at as many places as are worth drawing: training tasks tried, the score on the
    last `WINDOW` of them, tokens of context, validation score. Ends where the shortest run ends."""
    smooth = [_smoothed(run) for run in runs if run]
    if not smooth or len(smooth) < len(runs):
        return []
    places = sorted({p["tasks"] for p in smooth[0]})
    end = min(run[-1]["tasks"] for run in smooth)
    places = [p for p in places if p <= end] or [end]
    every = -(-len(places) // CURVE)
    kept = sorted({*places[::every], places[-1]})
    return [_mean_at(smooth, place) for place in kept]


def _smoothed(run: Sequence[Point]) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for i, point in enumerate(run):
        weight = total = 0.0
        for j in range(i, -1, -1):
            weight, total = weight + run[j].tried, total + run[j].tried * run[j].score
            if weight >= WINDOW:
                break
        score = total / weight if weight else None
        # Not every step need be validated: between two that are the score of the earlier one stands.
        val = point.val if point.val is not None or not made else made[-1]["val"]
        made.append({"tasks": point.tasks, "score": score, "tokens": point.tokens, "val": val})
    return made


def _mean_at(runs: Sequence[Sequence[Mapping[str, Any]]], place: int) -> dict[str, Any]:
    """The mean of each run's last point up to this place, or of its first where it has none yet."""
    at = [next((p for p in reversed(run) if p["tasks"] <= place), run[0]) for run in runs]

    def mean(name: str) -> float | None:
        found = [p[name] for p in at if p[name] is not None]
        return fmean(found) if len(found) == len(at) else None

    return {"tasks": place, "score": mean("score"), "tokens": mean("tokens"), "val": mean("val")}


def _table(table: Table, arms: Mapping[str, Arm]) -> dict[str, Any]:
    """Each variant's difference from the baseline, corrected by Holm for as many as there are in this table."""
    base = arms[table.baseline].by_task()
    rows: list[dict[str, Any]] = []
    found = []
    for variant in table.variants:
        ours = arms[variant.name].by_task()
        shared = [id for id in base if id in ours]
        if variant.name == table.baseline or not shared:
            why = "baseline" if variant.name == table.baseline else "alone" if ours else "missing"
            rows.append({"name": variant.name, "verdict": why})
            continue
        made = difference([ours[id] for id in shared], [base[id] for id in shared])
        found.append(made)
        rows.append(
            {
                "name": variant.name, "effect": made.effect, "ci95": list(made.ci95), "p": made.p, "test": made.test,
                "n": made.n, "better": made.better, "worse": made.worse,
            }
        )  # fmt: skip
    corrected = iter(zip(found, holm([made.p for made in found]), strict=True))
    for row in rows:
        if "p" in row:
            made, p = next(corrected)
            row |= {"p_holm": p, "verdict": verdict(made, p)}
            row["claim"] = claim(row, table.baseline)
    return {"title": table.title, "baseline": table.baseline, "rows": rows}


def claim(row: Mapping[str, Any], baseline: str) -> str:
    """What may be said of a difference, in a sentence."""
    low, high = (f"{100 * end:+.1f}" for end in row["ci95"])
    words = f"{100 * row['effect']:+.1f} points (95%: {low} to {high}), p {_equal(row['p_holm'])} after Holm"
    if row["verdict"] != "unclear":
        return f"{row['verdict']} than {baseline}: {words}"
    if row["n"] < FEWEST:
        return f"no claim can be made with {row['n']} tasks (fewer than {FEWEST}): {words}"
    why = "the interval includes 0" if row["ci95"][0] <= 0 <= row["ci95"][1] else "chance explains it after Holm"
    return f"no claim can be made, since {why}: {words}"


def _equal(p: float) -> str:
    said = chance(p)
    return said if said.startswith("<") else f"= {said}"
