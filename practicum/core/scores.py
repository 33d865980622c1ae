"""Scores from outside, which are in [0, 1] up to rounding errors."""

from __future__ import annotations

from typing import Any

ROUNDING = 1e-6
"""Tolerance for scores outside of [0, 1]: means of 32-bit floats give 1.0000001."""


def rounded(value: Any) -> Any:
    """Return the value; a float that is outside of [0, 1] by at most `ROUNDING` is set to the nearer bound, 0 or 1."""
    if isinstance(value, float) and (-ROUNDING <= value < 0.0 or 1.0 < value <= 1.0 + ROUNDING):
        return min(max(value, 0.0), 1.0)
    return value
