"""Scores from outside, which lie in [0, 1] up to rounding errors."""

from __future__ import annotations

from typing import Any

ROUNDING = 1e-6
"""How far out of [0, 1] a score may be: means of 32-bit floats give 1.0000001."""


def rounded(value: Any) -> Any:
    """The value, put at the bound if it is a float that is out of [0, 1] by no more than `ROUNDING`."""
    if isinstance(value, float) and (-ROUNDING <= value < 0.0 or 1.0 < value <= 1.0 + ROUNDING):
        return min(max(value, 0.0), 1.0)
    return value
