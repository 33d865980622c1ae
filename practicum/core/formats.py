"""Numbers formatted for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

UNKNOWN = "–"


def percent(value: float | None) -> str:
    """Format a fraction of 1 in percent."""
    return UNKNOWN if value is None else f"{100 * value:.1f}%"


def points(value: float) -> str:
    """Format a difference of fractions in percentage points, with its sign."""
    return f"{100 * value:+.1f}".replace("-", "−")


def interval(ends: Sequence[float] | None, signed: bool = False) -> str:
    """Format an interval of fractions in percent; an empty string for None."""
    if ends is None:
        return ""
    low, high = (points(end) if signed else f"{100 * end:.1f}" for end in ends)
    return f"{low} to {high}"


def scored(row: Mapping[str, Any]) -> str:
    """Format the score of a variant with its interval, if the interval is known."""
    return percent(row["score"]) + (f" ({interval(row['ci95'])})" if row["ci95"] else "")


def effect(row: Mapping[str, Any]) -> str:
    """Format the difference between a variant and its baseline, with the interval of the difference; an empty string if
    the row has no difference."""
    return f"{points(row['effect'])} ({interval(row['ci95'], signed=True)})" if "effect" in row else ""


def count(value: float | None) -> str:
    """Format a count; large numbers get three digits and a letter (12.3k)."""
    if value is None:
        return UNKNOWN
    for least, size, letter in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if abs(value) >= least:
            return f"{value / size:.3g}{letter}"
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def decimal(value: float | None) -> str:
    """Format a number with two decimals."""
    return UNKNOWN if value is None else f"{value:,.2f}"


def seconds(value: float | None) -> str:
    """Format a time in seconds, in a suitable unit from milliseconds to hours."""
    if value is None:
        return UNKNOWN
    if 0 < value < 0.01:
        return f"{1000 * value:.2g} ms"
    for least, size, unit in ((5400, 3600, "h"), (90, 60, "min")):
        if value >= least:
            return f"{value / size:.3g} {unit}"
    return f"{value:.3g} s"


def money(value: float | None) -> str:
    """Format US dollars."""
    if not value:
        return UNKNOWN if value is None else "$0"
    if value < 1e-4:
        # Avoid an exponent.
        return f"${Decimal(f'{value:.2g}'):f}"
    return f"${value:.3g}" if value < 1 else f"${value:,.2f}" if value < 1e4 else f"${count(value)}"


def p_value(value: float | None) -> str:
    """Format a p-value with three decimals."""
    return UNKNOWN if value is None else "< 0.001" if value < 0.001 else f"{value:.3f}"


def verdict_label(verdict: str) -> str:
    """Return a verdict on a difference in a few words."""
    labels = {
        "unclear": "no claim", "missing": "no score", "alone": "nothing to compare with",
        "runs higher": "these runs: higher", "runs lower": "these runs: lower",
    }  # fmt: skip
    return labels.get(verdict, verdict)
