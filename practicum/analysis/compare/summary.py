"""Data of a report, from the outcomes of runs: numbers by variant, paired tests by table, Pareto fronts.

All values are JSON values and are computed only from the folders of the runs. Therefore a comparison that was killed
and resumed has the same report as an uninterrupted one, except for measured times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from itertools import accumulate
from statistics import fmean
from typing import Any

from practicum.analysis.compare.outcome import CurvePoint, RunOutcome
from practicum.analysis.compare.plan import ComparisonPlan
from practicum.analysis.compare.variants import ComparisonTable, Variant
from practicum.core.differences import MIN_TASKS, claims
from practicum.core.formats import p_value
from practicum.core.intervals import MIN_SEEDS, method_ci95
from practicum.core.types import Usage
from practicum.core.views import render_full
from practicum.core.windows import windows
from practicum.session.result import keyed_means, usage_json

MOST_CURVE_POINTS = 60
"""Maximum number of points of a learning curve."""

CURVE_WINDOW = 20
"""Minimum number of training tasks whose scores are averaged for one point of a learning curve."""

THESE_RUNS = "these runs"
"""Subject of claims from fewer than `MIN_SEEDS` seeds. From `MIN_SEEDS` seeds or more, claims are about methods."""

REPORTED_CONFIG = ("model", "agent", "scorer", "concurrency", "labels", "max_calls", "max_tokens")


def summary(plan: ComparisonPlan, outcomes: Sequence[RunOutcome]) -> dict[str, Any]:
    """Return the report as JSON values. Scores are in [0, 1], effects in [-1, 1], times in seconds."""
    variants, start = plan.study.variants, plan.seed_context
    runs = {v.name: [o for o in outcomes if o.variant == v.name] for v in variants}
    scores = {name: _scores(own) for name, own in runs.items()}
    rows = [_row(v, runs[v.name], scores[v.name]) for v in variants]
    for table in reversed(plan.study.tables):
        _price_points(table, {row["name"]: row for row in rows})
    return {
        "format": 1,
        **{name: plan.common[name] for name in REPORTED_CONFIG},
        "roles": plan.common["roles"],
        "tasks": {"train": len(plan.splits.train), "val": len(plan.splits.val), "scored": len(plan.scored)},
        "online": plan.online,
        "seeds": plan.seeds,
        "seed_context": {"entries": len(start), "tokens": render_full(start).tokens} if len(start) else None,
        "runs": {"planned": len(plan.runs), "done": sum(o.failed is None for o in outcomes)},
        "warnings": list(plan.warnings),
        "variants": rows,
        "tables": [_table(table, scores) for table in plan.study.tables],
        "front": {
            axis: front([(r["name"], r[axis], r["score"]) for r in rows]) for axis in ("single_run_s", cost_axis(rows))
        },
    }


def cost_axis(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the field that the cost axis shows: "usd" if the cost of every scored variant in US dollars is known and
    not all these costs are 0, else "tokens"."""
    prices = [row["usd"] for row in rows if row["score"] is not None]
    return "usd" if prices and None not in prices and any(prices) else "tokens"


def front(points: Sequence[tuple[str, float | None, float | None]]) -> list[str]:
    """Return the names on the Pareto front of points (name, cost, score), cheapest first. A point is left out if
    another point has a lower cost and no lower score, or a higher score and no higher cost. Points without a cost or a
    score are left out, too."""
    complete = [(name, cost, score) for name, cost, score in points if cost is not None and score is not None]
    return [
        name
        for name, cost, score in sorted(complete, key=lambda p: (p[1], -p[2]))
        if not any(c <= cost and s >= score and (c < cost or s > score) for _, c, s in complete)
    ]


Scores = Mapping[str, Sequence[float]]
"""Task id → its scores, one per seed."""


def _scores(outcomes: Sequence[RunOutcome]) -> Scores:
    """Return the scores of each task that has a score in every run that did not fail."""
    runs = [o.by_task for o in outcomes if o.failed is None]
    shared = [id for id in runs[0] if all(id in run for run in runs)] if runs else []
    return {id: [run[id] for run in runs] for id in shared}


def _row(variant: Variant, outcomes: Sequence[RunOutcome], scores: Scores) -> dict[str, Any]:
    """Return the numbers of a variant: means over the variant's runs with a score, or over all its runs if no run has a
    score."""
    scored = [o for o in outcomes if o.failed is None]
    counted = scored or outcomes
    total = sum((o.usage for o in counted), Usage())
    by_task = [fmean(values) for values in scores.values()]

    def mean(value: Callable[[RunOutcome], float]) -> float | None:
        return _mean([value(o) for o in counted])

    return {
        "name": variant.name,
        "method": variant.method,
        "settings": dict(variant.settings),
        "score": _mean(by_task),
        "ci95": list(method_ci95(list(scores.values()))) if by_task else None,
        "about": "method" if len(scored) >= MIN_SEEDS else THESE_RUNS,
        "best_of_k": _mean([o.best_of_k for o in scored]),
        "by_seed": {str(o.seed): o.score for o in outcomes},
        "n": len(by_task),
        "calls": mean(lambda o: o.usage.calls),
        "tokens": mean(lambda o: o.usage.tokens),
        "learning_calls": mean(lambda o: o.learning.calls),
        "learning_tokens": mean(lambda o: o.learning.tokens),
        "learning_s": mean(lambda o: o.learning.work),
        # A stream has no separate evaluation, so the next two values are None for a stream.
        "tokens_per_test_task": _mean([o.testing.tokens / len(o.by_task) for o in scored if o.testing.calls]),
        "output_tokens_per_test_task": _mean(
            [o.testing.output_tokens / len(o.by_task) for o in scored if o.testing.calls]
        ),
        "agent_steps": _mean([o.agent_steps for o in scored]),
        "measures": keyed_means([o.measures for o in scored]),
        "cached_share": total.cached_share,
        "by_role": _by_role(counted),
        "usd": _mean([o.usage.usd for o in counted]),
        "single_run_s": mean(lambda o: o.single_run_s),
        "work_s": mean(lambda o: o.work),
        "critical_s": mean(lambda o: o.critical_path),
        "wall_s": mean(lambda o: o.wall),
        "context_tokens": mean(lambda o: o.context_tokens),
        "entries": mean(lambda o: o.entries),
        "helpful": _mean([o.helpful for o in counted]),
        "refused": mean(lambda o: o.refused),
        "errors": dict(sorted(sum((Counter(o.errors) for o in counted), Counter[str]()).items())),
        "stopped": {str(o.seed): o.stopped for o in outcomes if o.stopped},
        "failed": {str(o.seed): o.failed for o in outcomes if o.failed},
        "missing": not outcomes,
        "curve": curve([o.curve for o in scored]),
    }


def _price_points(table: ComparisonTable, rows: Mapping[str, dict[str, Any]]) -> None:
    """Set what a point of the score costs each variant that scores higher than the baseline of its table: tokens and
    seconds of learning, and additional tokens of a test task, divided by the gained percentage points. None: no gain,
    or a cost that is not known."""
    base = rows[table.baseline]
    for variant in table.variants:
        row = rows[variant.name]
        scored = row["score"] is not None and base["score"] is not None
        gain = 100 * (row["score"] - base["score"]) if scored else 0.0
        shown, plain = row["tokens_per_test_task"], base["tokens_per_test_task"]
        costs = {
            "learning_tokens_per_point": row["learning_tokens"],
            "learning_s_per_point": row["learning_s"],
            "task_tokens_per_point": None if shown is None or plain is None else shown - plain,
        }
        row |= {name: None if cost is None or gain <= 0 else cost / gain for name, cost in costs.items()}


def _mean(values: Sequence[float | None]) -> float | None:
    """Return the mean of the values; None if `values` is empty or any value is None."""
    numbers = [value for value in values if value is not None]
    return fmean(numbers) if numbers and len(numbers) == len(values) else None


def _by_role(outcomes: Sequence[RunOutcome]) -> dict[str, dict[str, float | None]]:
    """Return the mean usage of each role over all runs, including runs that did not use the role. `usd` is None if the
    price of any call is missing."""
    roles = sorted({role for o in outcomes for role in o.by_role})
    usages = {role: [usage_json(o.by_role.get(role, Usage())) for o in outcomes] for role in roles}
    return {role: {name: _mean([u[name] for u in rows]) for name in rows[0]} for role, rows in usages.items()}


def curve(runs: Sequence[Sequence[CurvePoint]]) -> list[dict[str, Any]]:
    """Return the mean learning curve of runs. Each point has the number of training tasks tried, the mean score of the
    last of these tasks (whole steps with at least `CURVE_WINDOW` tasks), the tokens of the context, and the validation
    score. The curve ends where the shortest run ends, and has at most about MOST_CURVE_POINTS points."""
    smoothed = [_smoothed(run) for run in runs if run]
    if not smoothed or len(smoothed) < len(runs):
        return []
    end = min(run[-1]["tasks"] for run in smoothed)
    places = sorted({p["tasks"] for p in smoothed[0] if p["tasks"] <= end}) or [end]
    every = -(-len(places) // MOST_CURVE_POINTS)
    return [_mean_at(smoothed, place) for place in sorted({*places[::every], places[-1]})]


def _smoothed(run: Sequence[CurvePoint]) -> list[dict[str, Any]]:
    points: list[dict[str, Any]] = []
    val, totals = None, [0.0, *accumulate(point.tried * point.score for point in run)]
    recent = windows([point.tried for point in run], CURVE_WINDOW)
    for end, (point, (first, tried)) in enumerate(zip(run, recent, strict=True), 1):
        score = (totals[end] - totals[first]) / tried if tried else None
        # Not every step may be validated: the last validation score is used until the next validation.
        val = val if point.val is None else point.val
        points.append({"tasks": point.tasks, "score": score, "tokens": point.tokens, "val": val})
    return points


def _mean_at(runs: Sequence[Sequence[Mapping[str, Any]]], place: int) -> dict[str, Any]:
    """Return the mean point of the runs after `place` tasks. For each run, the last point with at most `place` tasks
    counts; if every point has more tasks, the first point."""
    at = [next((p for p in reversed(run) if p["tasks"] <= place), run[0]) for run in runs]
    return {"tasks": place, **{name: _mean([p[name] for p in at]) for name in ("score", "tokens", "val")}}


def _table(table: ComparisonTable, scores: Mapping[str, Scores]) -> dict[str, Any]:
    """Return the difference of each variant from the baseline, with p-values corrected by Holm's method within
    the table."""
    base, names = scores[table.baseline], [variant.name for variant in table.variants]
    shared = {name: [id for id in base if id in scores[name]] for name in names if name != table.baseline}
    differences = claims({name: [(scores[name][id], base[id]) for id in ids] for name, ids in shared.items()})
    rows: list[dict[str, Any]] = []
    for name in names:
        if (result := differences.get(name)) is None:
            verdict = "baseline" if name == table.baseline else "alone" if scores[name] else "missing"
            rows.append({"name": name, "verdict": verdict})
            continue
        about = "methods" if result.difference.seeds >= MIN_SEEDS else THESE_RUNS
        row = {"name": name, "about": about, **asdict(result.difference), "ci95": list(result.difference.ci95)}
        row |= {"p_holm": result.corrected, "verdict": result.verdict}
        rows.append({**row, "claim": claim(row, table.baseline)})
    return {"title": table.title, "baseline": table.baseline, "rows": rows}


def claim(row: Mapping[str, Any], baseline: str) -> str:
    """Return the claim about a difference in one sentence. With too few seeds, the sentence is about these runs, not
    about the methods."""
    effect, low, high = (f"{100 * value:+.1f}" for value in (row["effect"], *row["ci95"]))
    p = p_value(row["p_holm"])
    numbers = f"{effect} points (95%: {low} to {high}), p {p if p.startswith('<') else f'= {p}'} after Holm"
    if row["verdict"] in ("better", "worse"):
        return f"{row['verdict']} than {baseline}: {numbers}"
    if row["verdict"] != "unclear":
        side = row["verdict"].removeprefix("runs ")
        limit = f"which is not a claim about the methods (fewer than {MIN_SEEDS} seeds)"
        return f"these runs scored {side} than the runs of {baseline}, {limit}: {numbers}"
    if row["n"] < MIN_TASKS:
        return f"no claim can be made with {row['n']} tasks (fewer than {MIN_TASKS}): {numbers}"
    reason = "the interval includes 0" if row["ci95"][0] <= 0 <= row["ci95"][1] else "p is above 0.05 after Holm"
    return f"no claim can be made, because {reason}: {numbers}"
