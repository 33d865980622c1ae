"""De-duplication by meaning: a new entry that says what an older one says is merged into it (ACE, section 3.2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

import numpy as np

from practicum.core.context import Context
from practicum.core.counts import Count
from practicum.core.edits import Delta, Entry, Merge
from practicum.core.types import Lesson
from practicum.core.views import render_full
from practicum.engine.loop import UpdateSeam
from practicum.engine.run import Run
from practicum.engine.specifics import tell_apart
from practicum.methods.blocks.curate import Draft, draft
from practicum.retrieval.scripts import untold, words_digest

DedupeWhen = Literal["proactive", "lazy", "never"]

Threshold = float | Literal["auto"]
"""The cosine similarity from which two entries count as the same; auto: as is measured for the embedder."""

Differ = Callable[[int, int], bool]
"""Whether a row says something else than an earlier row, although the two are similar."""

LOOKS = 64
"""Similar rows that a row is compared with in words before it counts as new."""

BLOCK = 2048
"""New vectors compared at a time."""

PAIRS = 2_000_000
"""Similarities computed at a time: few enough for the processor's cache, enough for its threads to be worth waking."""


def deduplicated(
    update: UpdateSeam, threshold: Threshold, when: DedupeWhen = "proactive", budget: int = 80_000
) -> UpdateSeam:
    """Merge what `update` adds or rewrites into older entries of the same section, from a similarity of `threshold` on.

    The older entry stays, counters are summed, sources are joined. `lazy` looks only when the context is over its
    budget, and then at all entries.
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
        merges: list[Merge] = []
        for section in dict.fromkeys(e.section for e in fresh):
            merges += await _merges(tried, section, {e.id for e in fresh}, as_number(threshold, run), run)
        run.count(Count.DUPLICATE_ENTRIES, len(merges))
        return tried.delta + Delta(tuple(merges))

    return wrapped


def as_number(threshold: Threshold, run: Run) -> float:
    return run.same_from if threshold == "auto" else threshold


async def _merges(tried: Draft, section: str, fresh: set[str], threshold: float, run: Run) -> list[Merge]:
    """Merges of the fresh entries of one section."""
    both = sorted(tried.outcome.context.in_section(section), key=lambda e: e.id in fresh)
    old = sum(e.id not in fresh for e in both)
    vectors = await run.embed([e.embedded_text for e in both])
    kept_apart: set[int] = set()

    def differ(row: int, like: int) -> bool:
        one, other = both[like], both[row]
        found = one.data.get("outcome") != other.data.get("outcome") or tell_apart(one.text, other.text, run.choices)
        if found:
            kept_apart.add(row)
        return found

    merges: list[Merge] = []
    stays: dict[str, Entry] = {}
    likes = same_rows([e.text for e in both], vectors, old, threshold, run, differ)
    for row, like in enumerate(likes, old):
        if like is None:
            continue
        kept_apart.discard(row)
        entry, known = both[row], both[like]
        keeper = stays.get(known.id, known)
        same = words_digest(entry.text) == words_digest(known.text)
        why = "the same words" if same else f"similarity {vectors[row] @ vectors[like]:.2f}, which is ≥ {threshold:g}"
        merges.append(Merge((tried.name(keeper), tried.name(entry)), reason=why))
        # An old entry that was rewritten may be older than the one it now repeats: that one goes into it.
        if entry.number < keeper.number:
            stays[known.id] = entry
    run.count(Count.SIMILAR_KEPT_APART, len(kept_apart))
    return merges


def same_rows(
    texts: Sequence[str], vectors: np.ndarray, old: int, threshold: float, run: Run, differ: Differ
) -> list[int | None]:
    """For each text from the row `old` on the row that it repeats, or None: the first one in the same words; otherwise
    the most similar one by the vectors, shape (n, d), where the embedder tells texts of the language apart (see
    `retrieval.scripts`)."""
    unknown, blind = untold(texts, vectors, threshold)
    if number := int(blind[old:].sum()):
        run.count(Count.COMPARED_BY_WORDS, number)
    found: dict[int, int] = {}
    by_words: dict[bytes, list[int]] = {}
    for row, text in enumerate(texts):
        known = by_words.setdefault(words_digest(text), [])
        like = None if row < old else next((at for at in known if not differ(row, at)), None)
        if like is None:
            known.append(row)
        else:
            found[row] = like
    rows = [row for row in range(len(texts)) if row not in found and not unknown[row]]
    split = sum(row < old for row in rows)
    of_old, of_new = vectors[rows[:split]], vectors[rows[split:]]
    likes = duplicates(of_old, of_new, threshold, lambda row, like: differ(rows[row], rows[like]))
    found |= {row: rows[like] for row, like in zip(rows[split:], likes, strict=True) if like is not None}
    # What a text repeats in words may repeat another one.
    firsts = {row: found.get(like, like) for row, like in found.items()}
    return [firsts.get(row) for row in range(old, len(texts))]


def duplicates(
    old: np.ndarray, new: np.ndarray, threshold: float, differ: Differ = lambda row, like: False
) -> list[int | None]:
    """For each new vector the row it duplicates, or None: greedy, oldest first.

    `old` has shape (n, d), `new` (m, d), rows of unit length; rows of `new` count on from n. A new vector is compared
    with all old ones and with the new ones before it that were kept. Of the rows from which it does not `differ`, the
    most similar one is named, the oldest on ties.
    """
    result: list[int | None] = []
    pool, rows = np.concatenate((old, new)), list(range(len(old)))
    for start in range(0, len(new), BLOCK):
        part = new[start : start + BLOCK]
        size = len(rows)
        best, where = _closest(pool[:size], part, threshold)
        for i, row in enumerate(range(len(old) + start, len(old) + start + len(part))):
            same = partial(_most_similar, threshold=threshold, differ=partial(differ, row))
            top, like = best[i], rows[where[i]] if best[i] >= threshold else None
            if like is not None and differ(row, like):
                top, like = same(pool[:size] @ part[i], rows)
            nearer, later = same(pool[size : len(rows)] @ part[i], rows[size:])
            result.append(later if nearer > top else like)
            if result[-1] is None:
                pool[len(rows)] = part[i]
                rows.append(row)
    return result


def _most_similar(
    similarity: np.ndarray, rows: Sequence[int], threshold: float, differ: Callable[[int], bool]
) -> tuple[float, int | None]:
    """The highest similarity of a row, from the threshold on, that does not differ, and the row; the oldest on ties."""
    near = np.flatnonzero(similarity >= threshold)
    for at in near[np.argsort(-similarity[near], kind="stable")[:LOOKS]]:
        if not differ(rows[at]):
            return float(similarity[at]), rows[at]
    return -np.inf, None


def _closest(old: np.ndarray, new: np.ndarray, threshold: float) -> tuple[np.ndarray, np.ndarray]:
    """For each new vector the highest similarity among the old ones, if at least the threshold, and its row (the
    oldest on ties); elsewhere -inf and 0.

    Most rows are far from similar, which some of the dimensions are enough to tell: by Cauchy and Schwarz the rest
    adds at most the product of the lengths of what is left. Only rows that might reach the threshold are compared in
    full.
    """
    best, where = np.full(len(new), -np.inf, dtype=np.float32), np.zeros(len(new), dtype=np.int64)
    dims = int(new.shape[1] * min(1.2 - threshold, 1))
    heads = _heads(new, dims).T
    step = PAIRS // len(new)
    for start in range(0, len(old), step):
        rows = old[start : start + step]
        # Rounding takes less than 1e-5 from a bound.
        near = np.flatnonzero((_heads(rows, dims) @ heads).max(axis=1) >= threshold - 1e-5)
        if not len(near):
            continue
        similarity = rows[near] @ new.T
        at = similarity.argmax(axis=0)
        top = similarity.max(axis=0)
        better = (top >= threshold) & (top > best)
        best[better], where[better] = top[better], start + near[at[better]]
    return best, where


def _heads(vectors: np.ndarray, dims: int) -> np.ndarray:
    """The first `dims` dimensions and, as one more, the length of the rest."""
    return np.column_stack((vectors[:, :dims], np.linalg.norm(vectors[:, dims:], axis=1)))
