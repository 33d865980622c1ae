"""Whether a delta is taken."""

from __future__ import annotations

from collections.abc import Sequence

from practicum.context import Context, Delta
from practicum.run import Run
from practicum.types import Rollout


async def always(context: Context, delta: Delta, rollouts: Sequence[Rollout], run: Run) -> Delta:
    """Every delta is taken."""
    return delta
