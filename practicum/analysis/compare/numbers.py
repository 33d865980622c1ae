"""Numbers as people read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

NONE = "–"
"""Stands for what is not known."""


def percent(value: float | None) -> str:
    """A share of 1, in percent."""
    return NONE if value is None else f"{100 * value:.1f}%"


def points(value: float) -> str:
    """A difference of shares, in points, with its sign."""
    return f"{100 * value:+.1f}".replace("-", "−")


def between(ends: Sequence[float] | None, signed: bool = False) -> str:
    """An interval."""
    if ends is None:
        return ""
    low, high = (points(end) if signed else f"{100 * end:.1f}" for end in ends)
    return f"{low} to {high}"


def count(value: float | None) -> str:
    """A number of things, to three digits where they are many."""
    if value is None:
        return NONE
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if letter == 'k' else size):.3g}{letter}"
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def thousands(value: float) -> str:
    """A number on a small axis."""
    return f"{value / 1000:g}k" if value >= 1000 else f"{value:g}"


def seconds(value: float | None) -> str:
    """A time."""
    if value is None:
        return NONE
    for size, letter in ((5400, "h"), (90, "min")):
        if value >= size:
            return f"{value / {'h': 3600, 'min': 60}[letter]:.3g} {letter}"
    return f"{value:.3g} s"


def money(value: float | None) -> str:
    """US dollars."""
    if value is None:
        return NONE
    return "$0" if not value else f"${value:.3g}" if value < 1 else f"${value:,.2f}"


def chance(value: float | None) -> str:
    """A p-value."""
    return NONE if value is None else "< 0.001" if value < 0.001 else f"{value:.3f}"


def said(row: Mapping[str, Any]) -> str:
    """What may be said of a variant's difference, in a word or two."""
    words = {"unclear": "no claim", "missing": "no score", "alone": "nothing to compare with"}
    return words.get(row["verdict"], str(row["verdict"]))


def headline(report: Mapping[str, Any]) -> str:
    """What was compared, in a line."""
    kind = "tasks of a stream, each predicted before it was learned from" if report["online"] else "test tasks"
    return f"{len(report['variants'])} variants on {report['tasks']['scored']:,} {kind}"


def circumstances(report: Mapping[str, Any]) -> list[str]:
    """Under which conditions, a line each."""
    tasks, runs = report["tasks"], report["runs"]
    budget = (
        f"{report['max_calls']:,} calls" if report["max_calls"]
        else f"{report['max_tokens']:,} tokens" if report["max_tokens"] else "without bound"
    )  # fmt: skip
    roles = "".join(f", {role}: {model}" for role, model in report["roles"].items())
    lines = [
        f"model {report['model']}{roles}; agent {report['agent']}; scorer {report['scorer']}",
        f"{tasks['train']:,} tasks to learn from" + (f", {tasks['val']:,} to validate" if tasks["val"] else "")
        + ("" if report["labels"] else ", without labels"),
        f"{report['seeds']} seeds; budget of each run, evaluation included: {budget}; at most "
        f"{report['concurrency']} calls at once over all runs",
    ]  # fmt: skip
    if runs["done"] < runs["planned"]:
        lines.append(f"not complete: {runs['done']} of {runs['planned']} runs have a score")
    return lines


def troubles(report: Mapping[str, Any]) -> list[str]:
    """What went wrong or ended early, a line for each run."""
    lines = []
    for row in report["variants"]:
        if row["missing"]:
            lines.append(f"{row['name']}: not run yet")
        lines += [f"{row['name']}, seed {seed}, failed: {why}" for seed, why in row["failed"].items()]
        early = {seed: why for seed, why in row["stopped"].items() if seed not in row["failed"]}
        lines += [f"{row['name']}, seed {seed}, ended early: {why}" for seed, why in early.items()]
        if row["errors"]:
            lines.append(f"{row['name']}: " + ", ".join(f"{n} {what}" for what, n in row["errors"].items()))
    return lines


def roles(report: Mapping[str, Any]) -> list[str]:
    """The roles that any variant asked, by name."""
    return sorted({role for row in report["variants"] for role in row["by_role"]})


def usage(of: Mapping[str, Any] | None) -> str:
    """What a role cost, in a few words."""
    if of is None:
        return NONE
    paid = f", {money(of['usd'])}" if of["usd"] else ""
    return f"{count(of['calls'])} calls, {count(of['input_tokens'] + of['output_tokens'])} tokens{paid}"


READING = (
    "Score: the mean over the tasks, each averaged over the seeds, with its 95% interval over the tasks.",
    "Difference: from the baseline on the same tasks, with its own 95% interval. p: McNemar's exact test where every "
    "score is 0 or 1 and there is one seed, else a paired bootstrap (studentised), corrected by Holm for the rows of "
    "the table. A claim needs ten tasks, a corrected p of at most 0.05, and an interval without 0. More seeds make a "
    "task's score surer; they are no further tasks.",
    "Calls, tokens and cost: means over the runs with a score, final evaluation included.",
    "Time alone: what a run takes at most with none beside it, by Brent's bound: the longest chain of calls of which "
    "each waits for the one before, and the rest of the work shared by as many calls as may go at once. Work: what its "
    "calls took, added up. Wall: what it took here, beside the other runs, which is not comparable.",
    "Front: no other variant is both cheaper and better.",
)
"""How to read the numbers."""

COSTS = (
    ("calls", "calls", count),
    ("of them to learn", "learning_calls", count),
    ("tokens", "tokens", count),
    ("cached", "cached_share", percent),
    ("cost", "usd", money),
    ("time alone", "alone_s", seconds),
    ("work", "work_s", seconds),
    ("wall", "wall_s", seconds),
    ("context, tokens", "context_tokens", count),
    ("entries", "entries", count),
    ("tokens a test task", "tokens_a_test_task", count),
)
"""Columns of the table of costs: title, field, and how it is written."""
