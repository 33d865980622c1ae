"""De-duplication by meaning: a new entry that says what an older one says is merged into it (ACE, section 3.2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from practicum.blocks.specifics import tell_apart
from practicum.blocks.update.append import Draft, draft
from practicum.core.context import Context
from practicum.core.counts import Count
from practicum.core.edits import Delta, Edit, Entry, Merge
from practicum.core.types import Lesson
from practicum.core.views import render_full
from practicum.engine.loop import UpdateSeam
from practicum.engine.run import Run

DedupeWhen = Literal["proactive", "lazy", "never"]

Told = Callable[[int, int], bool]
"""Whether a row, and an earlier one that it is similar to, are no duplicates for all that."""

LOOKS = 64
"""Similar rows that a row is told apart from before it is taken for new."""

BLOCK = 2048
"""New vectors compared at a time."""

PAIRS = 2_000_000
"""Similarities computed at a time: few enough for the processor's cache, enough for its threads to be worth waking."""

FEW = 16
"""New vectors up to which reading the old ones takes longer than comparing them in full."""

DENSE = 0.02
"""Share of pairs from which it is faster to compare all in full."""

ROUNDING = 1e-5
"""More than what rounding can take from a bound."""


def deduplicated(
    update: UpdateSeam, threshold: float, when: DedupeWhen = "proactive", budget: int = 80_000
) -> UpdateSeam:
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
            fresh = list(now) if render_full(now).tokens > budget else []
        else:
            fresh = [e for e in now if e.changed == now.version and now.version > context.version]
        if not fresh:
            return tried.delta
        merges = await _merges(tried, fresh, run, threshold)
        run.count(Count.DUPLICATE_ENTRIES, len(merges))
        return tried.delta + Delta(tuple(merges))

    return wrapped


async def _merges(tried: Draft, fresh: Sequence[Entry], run: Run, threshold: float) -> list[Edit]:
    names = {e.id for e in fresh}
    merges: list[Edit] = []
    for section in dict.fromkeys(e.section for e in fresh):
        entries = tried.outcome.context.in_section(section)
        old = [e for e in entries if e.id not in names]
        new = [e for e in entries if e.id in names]
        vectors = await run.embed([e.embedded_text for e in (*old, *new)])
        told = Apart((*old, *new), run.choices)
        rows = duplicates(vectors[: len(old)], vectors[len(old) :], threshold, told)
        run.count(Count.SIMILAR_KEPT_APART, sum(rows[i - len(old)] is None for i in told.apart))
        stays: dict[str, Entry] = {}
        for entry, row in zip(new, rows, strict=True):
            if row is None:
                continue
            like = told.entries[row]
            keeper = stays.get(like.id, like)
            merges.append(Merge((tried.name(keeper), tried.name(entry)), reason=f"similarity ≥ {threshold:g}"))
            # An old entry that was rewritten may be older than the one it now repeats: that one goes into it.
            if entry.number < keeper.number:
                stays[like.id] = entry
    return merges


@dataclass
class Apart:
    """Tells entries apart that are similar and not the same, by their rows; `apart` are the later ones of each two."""

    entries: Sequence[Entry]
    choices: Sequence[str]
    apart: set[int] = field(default_factory=set)

    def __call__(self, row: int, like: int) -> bool:
        one, other = self.entries[like], self.entries[row]
        outcomes = one.data.get("outcome"), other.data.get("outcome")
        found = outcomes[0] != outcomes[1] or tell_apart(one.text, other.text, self.choices)
        if found:
            self.apart.add(row)
        return found


def duplicates(
    old: np.ndarray, new: np.ndarray, threshold: float, apart: Told = lambda row, like: False
) -> list[int | None]:
    """For each new vector the row it duplicates, or None: greedy, oldest first.

    `old` has shape (n, d), `new` (m, d), rows of unit length; rows of `new` count on from n. A new vector is compared
    with all old ones and with the new ones before it that were kept; the most similar one is named, the oldest on ties.
    Of two similar rows, the later first, `apart` says whether they are no duplicates for all that.
    """
    result: list[int | None] = []
    kept: list[int] = []
    for start in range(0, len(new), BLOCK):
        part = new[start : start + BLOCK]
        mine = range(len(old) + start, len(old) + start + len(part))
        theirs = [len(old) + row for row in kept]
        best, where = _same(old, part, threshold, _numbered(apart, mine, range(len(old))))
        top, at = _same(new[kept], part, threshold, _numbered(apart, mine, theirs))
        # Old rows come first, so they win ties.
        later = top > best
        best[later], where[later] = top[later], np.asarray(theirs)[at[later]]
        for i, row in enumerate(_greedy(part @ part.T, best, threshold, _numbered(apart, mine, mine))):
            if row is not None:
                result.append(mine[row])
            elif best[i] >= threshold:
                result.append(int(where[i]))
            else:
                kept.append(start + i)
                result.append(None)
    return result


def _numbered(apart: Told, mine: Sequence[int], theirs: Sequence[int]) -> Told:
    """The same for rows that are counted otherwise."""
    return lambda row, like: apart(mine[row], theirs[like])


def _greedy(among: np.ndarray, best: np.ndarray, threshold: float, apart: Told) -> list[int | None]:
    """For each row the earlier kept row that it is most like, where that is at least the threshold and above `best`."""
    stays = best < threshold
    found: list[int | None] = [None] * len(among)
    for i in np.flatnonzero((np.tril(among, -1) >= threshold).any(axis=1)):
        similarity = np.where(stays[:i] & (among[i, :i] > best[i]), among[i, :i], -np.inf)
        found[i] = next((j for j in _ranked(similarity, threshold) if not apart(int(i), j)), None)
        stays[i] = stays[i] and found[i] is None
    return found


def _same(old: np.ndarray, new: np.ndarray, threshold: float, apart: Told) -> tuple[np.ndarray, np.ndarray]:
    """As `_closest`, of rows that are not told apart."""
    best, where = _closest(old, new, threshold)
    others = np.array([i for i in np.flatnonzero(best >= threshold) if apart(int(i), int(where[i]))], dtype=np.int64)
    best[others] = -np.inf
    step = max(PAIRS // max(len(old), 1), 1)
    for start in range(0, len(others), step):
        some = others[start : start + step]
        for i, similarity in zip(some, new[some] @ old.T, strict=True):
            like = next((j for j in _ranked(similarity, threshold) if not apart(int(i), j)), None)
            if like is not None:
                best[i], where[i] = similarity[like], like
    return best, where


def _ranked(similarity: np.ndarray, threshold: float) -> list[int]:
    """The most similar rows, at most `LOOKS` of them, from the threshold on; the oldest first on ties."""
    near = np.flatnonzero(similarity >= threshold)
    found: list[int] = near[np.argsort(-similarity[near], kind="stable")[:LOOKS]].tolist()
    return found


def _closest(old: np.ndarray, new: np.ndarray, threshold: float) -> tuple[np.ndarray, np.ndarray]:
    """For each new vector the highest similarity among the old ones, if at least the threshold, and its row (the
    oldest on ties); elsewhere -inf and 0.

    Most pairs are far from similar, which some of the dimensions are enough to tell: by Cauchy and Schwarz the rest
    adds at most the product of what is left of both lengths. With that as one more dimension, one product of shorter
    vectors bounds the similarity, and only pairs that might reach the threshold are compared in full.
    """
    best = np.full(len(new), -np.inf, dtype=np.float32)
    where = np.zeros(len(new), dtype=np.int64)
    if not len(old) or not len(new):
        return best, where
    dims = min(int(new.shape[1] * (1.2 - threshold)), new.shape[1])
    heads = _heads(new, dims).T
    step = max(PAIRS // len(new), 1)
    for start in range(0, len(old), step):
        rows = old[start : start + step]
        near = None
        if len(new) > FEW and dims < new.shape[1]:
            # Flat, since numpy finds the few that are true in a matrix ten times more slowly.
            near, col = np.divmod(np.flatnonzero(_heads(rows, dims) @ heads >= threshold - ROUNDING), len(new))
        if near is None or len(near) > len(rows) * len(new) * DENSE:
            similarity = rows @ new.T
            near, col = similarity.argmax(axis=0), np.arange(len(new))
            exact = similarity[near, col]
        else:
            exact = np.einsum("ij,ij->i", rows[near], new[col])
        order = np.lexsort((near, -exact, col))
        col, first = np.unique(col[order], return_index=True)
        near, exact = near[order][first], exact[order][first]
        better = (exact >= threshold) & (exact > best[col])
        best[col[better]], where[col[better]] = exact[better], near[better] + start
    return best, where


def _heads(vectors: np.ndarray, dims: int) -> np.ndarray:
    """The first `dims` dimensions and, as one more, the length of the rest."""
    rest = vectors[:, dims:]
    return np.column_stack((vectors[:, :dims], np.sqrt(np.einsum("ij,ij->i", rest, rest))))
