"""De-duplication by meaning: a new entry that says what an older one says is merged into it (ACE, section 3.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from practicum.blocks.update import Draft, draft
from practicum.context import Context, Delta, Edit, Entry, Merge
from practicum.loop import Update as UpdateSeam
from practicum.run import Run
from practicum.types import Lesson
from practicum.views import full

When = Literal["proactive", "lazy", "never"]

BLOCK = 8192
"""Old vectors compared at a time, so that the similarities stay in the processor's cache."""


def deduplicated(update: UpdateSeam, threshold: float, when: When = "proactive", budget: int = 80_000) -> UpdateSeam:
    """Merge what `update` adds or rewrites into older entries of the same section that are as similar as `threshold`.

    The older entry stays, counters add up, provenance joins. `lazy` looks only when the context is over its budget,
    and then at all of it.
    """
    if when == "never":
        return update

    async def wrapped(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        tried = draft(context, await update(lessons, context, run))
        now = tried.outcome.context
        if when == "lazy":
            fresh = list(now) if full(now).tokens > budget else []
        else:
            fresh = [e for e in now if e.changed == now.version and now.version > context.version]
        if not fresh:
            return tried.delta
        merges = await _merges(tried, fresh, run, threshold)
        run.house.counts["duplicates"] += len(merges)
        return tried.delta + Delta(tuple(merges))

    return wrapped


async def _merges(tried: Draft, fresh: Sequence[Entry], run: Run, threshold: float) -> list[Edit]:
    names = {e.id for e in fresh}
    merges: list[Edit] = []
    for section in dict.fromkeys(e.section for e in fresh):
        entries = tried.outcome.context.in_section(section)
        old = [e for e in entries if e.id not in names]
        new = [e for e in entries if e.id in names]
        vectors = await run.embed([e.embedded for e in (*old, *new)])
        for late, early in enumerate(duplicates(vectors[: len(old)], vectors[len(old) :], threshold)):
            if early is not None:
                keeper = (*old, *new)[early]
                merges.append(Merge((tried.name(keeper), tried.name(new[late])), reason=f"similarity ≥ {threshold:g}"))
    return merges


def duplicates(old: np.ndarray, new: np.ndarray, threshold: float) -> list[int | None]:
    """For each new vector the row it duplicates, or None: greedy, oldest first.

    `old` has shape (n, d), `new` (m, d), rows of unit length; rows of `new` count on from n. A new vector is compared
    with all old ones and with the new ones before it that were kept; the most similar one is named.
    """
    best, where = _closest(old, new)
    among = new @ new.T if len(new) else np.zeros((0, 0), dtype=np.float32)
    kept = np.zeros(len(new), dtype=bool)
    result: list[int | None] = []
    for i in range(len(new)):
        top, at = float(best[i]), int(where[i])
        earlier = np.flatnonzero(kept[:i])
        if len(earlier):
            j = int(earlier[np.argmax(among[i, earlier])])
            if among[i, j] > top:
                top, at = float(among[i, j]), len(old) + j
        found = at if top >= threshold else None
        kept[i] = found is None
        result.append(found)
    return result


def _closest(old: np.ndarray, new: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each new vector the highest similarity among the old ones, and its row (the oldest on ties)."""
    best = np.full(len(new), -2.0, dtype=np.float32)
    where = np.zeros(len(new), dtype=np.int64)
    for start in range(0, len(old) if len(new) else 0, BLOCK):
        similarity = new @ old[start : start + BLOCK].T
        at = similarity.argmax(axis=1)
        top = similarity[np.arange(len(new)), at]
        better = top > best
        best[better], where[better] = top[better], at[better] + start
    return best, where
