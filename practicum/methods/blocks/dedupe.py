"""De-duplication by meaning: a new entry with the meaning of an older entry is merged into the older entry (ACE,
section 3.2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

import numpy as np

from practicum.core.context import Context
from practicum.core.counts import Count
from practicum.core.edits import Delta, Entry, Merge, Vote
from practicum.core.types import Lesson
from practicum.core.views import render_full
from practicum.engine.loop import UpdateSeam
from practicum.engine.run import Run
from practicum.engine.specifics import answers_named, differ_in_particulars
from practicum.methods.blocks.curate import Draft, draft
from practicum.retrieval.scripts import undistinguished, words_digest

DedupeWhen = Literal["proactive", "lazy", "never"]

Threshold = float | Literal["auto"]
"""Smallest cosine similarity at which two entries count as the same; "auto": the similarity that was measured for the
embedder (`Run.same_from`)."""

Differ = Callable[[int, int], bool]
"""Predicate on the indices of two rows with similar texts: whether the meanings of the two texts differ."""

MOST_QUOTED = 200
"""Maximum number of characters of an entry in the reason of a vote."""

LOOKS = 64
"""Maximum number of similar rows whose texts are compared with the text of a row. If all of them differ from the row in
meaning, the row counts as new."""

BLOCK = 2048
"""Number of new vectors compared at a time."""

PAIRS = 2_000_000
"""Number of similarities computed at a time: few enough for the processor's cache, enough to keep the processor's
threads busy."""


def deduplicated(
    update: UpdateSeam, threshold: Threshold, when: DedupeWhen = "proactive", budget: int = 80_000
) -> UpdateSeam:
    """Build an update seam that runs `update`, and then merges duplicates: an entry that the delta adds or rewrites is
    merged with an older entry of the same section if the similarity of the two entries is at least `threshold` and
    their meanings do not differ.

    The older entry stays, counters are summed, sources are joined. With `lazy`, entries are compared only if the
    context has more than `budget` tokens, and then every entry is compared, whether or not the delta changed it."""
    if when == "never":
        return update

    async def wrapped(lessons: Sequence[Lesson], context: Context, run: Run) -> Delta:
        trial = draft(context, await update(lessons, context, run))
        now = trial.outcome.context
        if when == "lazy":
            fresh = list(now) if render_full(now).tokens > budget else []
        else:
            fresh = [e for e in now if e.changed == now.version and now.version > context.version]
        edits: list[Merge | Vote] = []
        for section in dict.fromkeys(e.section for e in fresh):
            edits += await _compared(trial, section, {e.id for e in fresh}, as_number(threshold, run), run)
        run.count(Count.DUPLICATE_ENTRIES, sum(isinstance(edit, Merge) for edit in edits))
        run.count(Count.CONTRADICTED_ENTRIES, sum(isinstance(edit, Vote) for edit in edits))
        return trial.delta + Delta(tuple(edits))

    return wrapped


def as_number(threshold: Threshold, run: Run) -> float:
    return run.same_from if threshold == "auto" else threshold


async def _compared(
    trial: Draft, section: str, fresh: set[str], threshold: float, run: Run
) -> list[Merge | Vote]:  # fmt: skip
    """Return the merges of entries of one section. `fresh` holds the ids of the entries to compare with older entries.
    Similar entries whose meanings differ are kept apart, and counted. If a similar older entry names another answer of
    the choices, the newer entry contradicts it: the older entry gets a harmful vote, and evidence decides."""
    entries = sorted(trial.outcome.context.in_section(section), key=lambda e: e.id in fresh)
    old = sum(e.id not in fresh for e in entries)
    vectors = await run.embed([e.embedded_text for e in entries])
    distinct: set[int] = set()
    contradicted: dict[int, int] = {}

    def differ(row: int, like: int) -> bool:
        one, other = entries[like], entries[row]
        apart = one.data.get("outcome") != other.data.get("outcome") or differ_in_particulars(
            one.text, other.text, run.choices
        )
        if apart:
            distinct.add(row)
            answers = [answers_named(entry.text, run.choices) for entry in (one, other)]
            if all(answers) and answers[0].isdisjoint(answers[1]):
                contradicted.setdefault(like, row)
        return apart

    edits: list[Merge | Vote] = []
    keepers: dict[str, Entry] = {}
    likes = same_rows([e.text for e in entries], vectors, old, threshold, run, differ)
    for row, like in enumerate(likes, old):
        if like is None:
            continue
        distinct.discard(row)
        entry, older = entries[row], entries[like]
        keeper = keepers.get(older.id, older)
        same = words_digest(entry.text) == words_digest(older.text)
        why = "the same words" if same else f"similarity {vectors[row] @ vectors[like]:.2f}, which is ≥ {threshold:g}"
        edits.append(Merge((trial.name(keeper), trial.name(entry)), reason=why))
        # A rewritten entry may be older than the keeper. Then the rewritten entry becomes the keeper.
        if entry.number < keeper.number:
            keepers[older.id] = entry
    run.count(Count.SIMILAR_KEPT_APART, len(distinct))
    merged = {id for edit in edits if isinstance(edit, Merge) for id in edit.ids}
    for like, row in contradicted.items():
        older, newer = entries[like], entries[row]
        if older.id not in fresh and merged.isdisjoint((trial.name(older), trial.name(newer))):
            why = f"contradicted by {newer.text[:MOST_QUOTED]!r}"
            edits.append(Vote(older.id, harmful=1, sources=newer.sources, reason=why))
    return edits


def same_rows(
    texts: Sequence[str], vectors: np.ndarray, old: int, threshold: float, run: Run, differ: Differ
) -> list[int | None]:
    """Return, for each text from row `old` on, the row of an earlier text with the same meaning, or None. The earlier
    text is the first text with the same words or, without such a text, the most similar text by `vectors`, of shape (n,
    d). Vectors are used only if the embedder distinguishes texts of the language (see `retrieval.scripts`)."""
    unknown, blind = undistinguished(texts, vectors, threshold)
    if number := int(blind[old:].sum()):
        run.count(Count.COMPARED_BY_WORDS, number)
    repeated: dict[int, int] = {}
    by_words: dict[bytes, list[int]] = {}
    for row, text in enumerate(texts):
        same_words = by_words.setdefault(words_digest(text), [])
        like = None if row < old else next((at for at in same_words if not differ(row, at)), None)
        if like is None:
            same_words.append(row)
        else:
            repeated[row] = like
    rows = [row for row in range(len(texts)) if row not in repeated and not unknown[row]]
    split = sum(row < old for row in rows)
    of_old, of_new = vectors[rows[:split]], vectors[rows[split:]]
    likes = duplicates(of_old, of_new, threshold, lambda row, like: differ(rows[row], rows[like]))
    repeated |= {row: rows[like] for row, like in zip(rows[split:], likes, strict=True) if like is not None}
    # The row that a text repeats in words may itself repeat another row.
    firsts = {row: repeated.get(like, like) for row, like in repeated.items()}
    return [firsts.get(row) for row in range(old, len(texts))]


def duplicates(
    old: np.ndarray, new: np.ndarray, threshold: float, differ: Differ = lambda row, like: False
) -> list[int | None]:
    """Return, for each new vector, the row that it duplicates, or None. The new vectors are processed in order.

    `old` has shape (n, d), `new` (m, d), with rows of unit length. Rows of `new` are numbered from n. A new vector is
    compared with all old vectors and with the new vectors before it that are not duplicates. A new vector can duplicate
    a row if the similarity of the two reaches `threshold` and `differ` is false for the two. Of several such rows, the
    vector duplicates the most similar row and, on ties, the oldest row."""
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
    """Return the similarity and the index of the most similar row whose similarity reaches the threshold and for which
    `differ` is false; the oldest such row on ties; -inf and None without such a row. Only the `LOOKS` most similar rows
    are tried."""
    near = np.flatnonzero(similarity >= threshold)
    for at in near[np.argsort(-similarity[near], kind="stable")[:LOOKS]]:
        if not differ(rows[at]):
            return float(similarity[at]), rows[at]
    return -np.inf, None


def _closest(old: np.ndarray, new: np.ndarray, threshold: float) -> tuple[np.ndarray, np.ndarray]:
    """Return, for each new vector, the highest similarity to an old vector and the row of that old vector (the oldest
    on ties), or -inf and 0 if no similarity reaches the threshold.

    Most rows are dissimilar, and some of the dimensions suffice to show that: by Cauchy and Schwarz, the other
    dimensions add at most the product of the lengths that the two vectors have in the other dimensions. Only rows that
    might reach the threshold are compared in full."""
    best, where = np.full(len(new), -np.inf, dtype=np.float32), np.zeros(len(new), dtype=np.int64)
    dims = int(new.shape[1] * min(1.2 - threshold, 1))
    heads = _heads(new, dims).T
    step = PAIRS // len(new)
    for start in range(0, len(old), step):
        rows = old[start : start + step]
        # Rounding lowers a bound by less than 1e-5.
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
    """Return the first `dims` dimensions of each vector and, as an additional dimension, the length of the vector in
    all other dimensions."""
    return np.column_stack((vectors[:, :dims], np.linalg.norm(vectors[:, dims:], axis=1)))
