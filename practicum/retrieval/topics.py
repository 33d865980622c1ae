"""Topics of texts: groups of similar texts, and the words that characterize a group. Both are deterministic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from practicum.core.shingles import has_content, words
from practicum.retrieval.words import STOP_WORDS, word_keys

MOST_TOPICS = 12
"""Maximum number of topics."""

LEAST_TEXTS = 4
"""Minimum number of texts of a topic, if there are several topics."""

FITTED = 2_048
"""Maximum number of texts from which the centers of topics are computed."""

SEPARATED = 0.1
"""Minimum silhouette at which texts are divided into topics. The silhouette of unrelated texts is near 0."""

ROUNDS, STARTS = 12, 3
"""Rounds of k-means, and number of random starts. The best start is used."""


def topics(vectors: np.ndarray) -> np.ndarray:
    """Return the topic of each text, shape (n,), numbered by their first texts. `vectors` are unit vectors, shape
    (n, d).

    The topics are clusters of spherical k-means. The number of topics has the highest mean silhouette. Its
    distances are cosine distances to the centers of clusters (Hruschka, de Castro and Campello 2004).
    """
    n = len(vectors)
    sample = vectors[np.linspace(0, n - 1, min(n, FITTED)).astype(int)]
    best, labels = SEPARATED, np.zeros(n, dtype=int)
    for k in range(2, min(MOST_TOPICS, n // LEAST_TEXTS) + 1):
        centers = max((_centers(sample, k, seed) for seed in range(STARTS)), key=lambda c: (sample @ c.T).max(1).sum())
        similarity = vectors @ centers.T
        nearest = similarity.argmax(1)
        if np.bincount(nearest, minlength=k).min() < LEAST_TEXTS:
            continue
        second, first = np.sort(1 - similarity, axis=1)[:, 1::-1].T
        silhouette = float(((second - first) / np.maximum(second, 1e-9)).mean())
        if silhouette > best:
            best, labels = silhouette, nearest
    _, starts, inverse = np.unique(labels, return_index=True, return_inverse=True)
    order: np.ndarray = np.argsort(np.argsort(starts))[inverse]
    return order


def _centers(vectors: np.ndarray, k: int, seed: int) -> np.ndarray:
    """Return the centers of k clusters, shape (k, d), after a start by k-means++ (Arthur and Vassilvitskii 2007)."""
    rng = np.random.default_rng(seed)
    centers = vectors[[rng.integers(len(vectors))]]
    while len(centers) < k:
        distance = np.maximum(1 - (vectors @ centers.T).max(1), 0) + 1e-9
        centers = np.vstack([centers, vectors[rng.choice(len(vectors), p=distance / distance.sum())]])
    for _ in range(ROUNDS):
        nearest = (vectors @ centers.T).argmax(1)
        sums = np.eye(k, dtype=vectors.dtype)[nearest].T @ vectors
        norms = np.linalg.norm(sums, axis=1, keepdims=True)
        centers = np.where(norms > 0, sums / np.maximum(norms, 1e-9), centers)
    return centers


def characteristic_words(groups: Sequence[Sequence[str]], n: int) -> list[list[str]]:
    """Return, for each group of texts, up to n words that more of its texts have than of the other texts, best first.
    Function words, numbers and further forms of a word are left out."""
    counts = [Counter(word for text in group for word in {*words(text)}) for group in groups]
    total, size = sum(counts, Counter()), sum(map(len, groups))
    best = list[list[str]]()
    for group, count in zip(groups, counts, strict=True):
        others = max(size - len(group), 1)
        score = {word: c / max(len(group), 1) - (total[word] - c) / others for word, c in count.items()}
        chosen = dict[tuple[int, ...], str]()
        for word in sorted(score, key=lambda word: (-score[word], word)):
            is_content = word not in STOP_WORDS and (has_content(word) or not word.isascii())
            if is_content and word.isalpha() and len(word) < 25 and score[word] > 0:
                chosen.setdefault((*word_keys(word),), word)
            if len(chosen) == n:
                break
        best.append([*chosen.values()])
    return best
