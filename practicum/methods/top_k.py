"""Top-K retrieval: the lessons of a large batch are embedded and clustered, and the curator sees one lesson per cluster
(the baseline of Combee, section 4.1).

As in the paper, a lesson that the curator leaves out is lost. practicum counts the lost lessons.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import isqrt

import numpy as np
from pydantic import Field

from practicum.core.context import Context
from practicum.core.counts import Count
from practicum.core.edits import Delta
from practicum.core.types import Lesson
from practicum.engine.loop import Method, UpdateSeam, by_reflection
from practicum.engine.run import Run
from practicum.methods.ace import curated, playbook
from practicum.methods.blocks.curate import votes
from practicum.methods.settings import WidePlaybookSettings


class Settings(WidePlaybookSettings):
    k: int | None = Field(default=None, ge=1)
    """The number of clusters (default: Combee's number of groups, the square root of the number of lessons)."""


def method(s: Settings) -> Method:
    """Build ACE with a large batch, and one lesson of each cluster for the curator."""
    return playbook(s, "top_k", top_k(curated(s), s.k), s.batch)


def top_k(update: UpdateSeam, k: int | None = None) -> UpdateSeam:
    """Build an update seam that embeds and clusters the reflections, and passes only the reflection nearest to the
    center of each cluster to `update`. `k` is the number of clusters; None: the square root of the number of
    reflections, as for Combee's groups."""

    async def wrapped(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        reflections = by_reflection(replace(lesson, votes={}) for lesson in lessons if lesson.text)
        count = isqrt(len(reflections)) if k is None else k
        run.count(Count.CLUSTERS_LOWERED, count > len(reflections) > 0)
        if not reflections or count >= len(reflections):
            return await update(lessons, context, run)
        vectors = await run.embed(["\n".join(lesson.text for lesson in one) for one in reflections])
        chosen = nearest_to_centers(vectors, count, run.rng("clusters").randrange(2**31))
        run.count(Count.LESSONS_OUTSIDE_CENTERS, len(reflections) - len(chosen))
        return votes(lessons) + await update([lesson for i in chosen for lesson in reflections[i]], context, run)

    return wrapped


def nearest_to_centers(vectors: np.ndarray, k: int, seed: int) -> list[int]:
    """Divide the rows of `vectors`, of shape (n, d), into k clusters. Return, for each cluster, the index of the row
    nearest to its center; the indices are in increasing order. If rows are equal, there may be fewer than k
    clusters."""
    k = min(k, len(np.unique(vectors, axis=0)))
    centers, label = clusters(vectors.astype(np.float64), k, np.random.default_rng(seed))
    distance = ((vectors - centers[label]) ** 2).sum(axis=1)
    return sorted(int(rows[distance[rows].argmin()]) for c in np.unique(label) for rows in [np.flatnonzero(label == c)])


def clusters(vectors: np.ndarray, k: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Run ten rounds of k-means from centers that k-means++ draws (Arthur and Vassilvitskii 2007). `vectors` has shape
    (n, d). Returns the k centers, of shape (k, d), and for each row the index of the center that was nearest in the
    last round."""
    centers = vectors[[int(rng.integers(len(vectors)))]]
    while len(centers) < k:
        chances = _squares(vectors, centers).min(axis=1)
        drawn = np.searchsorted(np.cumsum(chances / chances.sum()), rng.uniform())
        centers = np.vstack([centers, vectors[drawn]])
    for _ in range(10):
        label = _squares(vectors, centers).argmin(axis=1)
        sums, sizes = np.zeros_like(centers), np.bincount(label, minlength=k)
        np.add.at(sums, label, vectors)
        # A center without rows does not move.
        centers = np.where(sizes[:, None] > 0, sums / np.maximum(sizes, 1)[:, None], centers)
    return centers, label


def _squares(vectors: np.ndarray, centers: np.ndarray) -> np.ndarray:
    """Return the squared distance of each row from each center, of shape (n, k)."""
    return np.stack([((vectors - center) ** 2).sum(axis=1) for center in centers], axis=1)
