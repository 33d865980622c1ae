"""95% interval of a score, from the scored attempts."""

from __future__ import annotations

from sqlalchemy import func, or_

from practicum.core.intervals import total_ci95
from practicum.store import schema
from practicum.store.dialects import score_value
from practicum.view.read.run import under
from practicum.view.read.story import Story


def score_interval(story: Story, name: str) -> tuple[float, float] | None:
    """Return the 95% interval (Wilson) of the mean score of an evaluation over its tasks. The store computes the sums,
    so that no attempt is read.

    None if `name` is not "before" or "test", if the attempts are not stored, or if a score is outside of [0, 1]."""
    if name not in ("before", "test"):
        return None
    scopes = [one for one in story.names.evaluations() if story.names.split(one) == name and one.repeat == "0"]
    if not scopes:
        return None
    t = schema.attempts
    value = score_value(t.c.data)
    query = story.store.select(
        func.count(value), func.sum(value), func.min(value), func.max(value), func.count(t.c.step)
    )
    ((n, total, low, high, _),) = story.store.rows(query.where(or_(*(under(t, one.place) for one in scopes))))
    if not n or low < 0 or high > 1:
        return None
    return total_ci95(total, n)
