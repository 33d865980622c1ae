"""Cosines from 8 bits: their bound holds, and a search that uses them finds what a full one finds."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from practicum.core.context import Context
from practicum.core.edits import Add, Delta
from practicum.retrieval import search
from practicum.retrieval.rough import Rough
from practicum.retrieval.search import Retriever
from practicum.retrieval.vectors import Vectors, WordLlama
from practicum.testing import pseudo_words


@given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 200), spread=st.floats(0.0, 8.0))
def test_no_cosine_is_further_off_than_the_bound(seed: int, n: int, spread: float) -> None:
    rng = np.random.default_rng(seed)
    # With a spread, a few numbers are much larger than the others, which leaves these few bits.
    vectors = (rng.standard_normal((n + 1, 64)) * np.exp(spread * rng.standard_normal(64))).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("practicum.retrieval.rough.BLOCK", 64)
        cosines, error = Rough.of(np.arange(1, n + 1), vectors.__getitem__).cosines(vectors[:2])
    assert cosines.shape == (2, n)
    assert np.abs(cosines - vectors[:2] @ vectors[1:].T).max() <= error + 1e-6


@given(
    seed=st.integers(0, 2**32 - 1),
    changes=st.lists(st.tuples(st.integers(0, 40), st.lists(st.integers(0, 200), max_size=2)), min_size=1, max_size=12),
)
def test_what_grows_is_as_if_it_was_made_at_once(seed: int, changes: list[tuple[int, list[int]]]) -> None:
    rng = np.random.default_rng(seed)
    vectors = rng.standard_normal((600, 16)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    rows, used, known = np.arange(3), 3, None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("practicum.retrieval.rough.BLOCK", 64)
        for added, removed in changes:
            rows = np.append(np.delete(rows, [n for n in removed if n < len(rows)]), np.arange(used, used + added))
            used += added
            if not len(rows):
                return
            known = Rough.of(rows, vectors.__getitem__, known)
            fresh = Rough.of(rows, vectors.__getitem__)
            assert np.array_equal(known.lengths, fresh.lengths)
            assert np.array_equal(known.cosines(vectors[:2])[0], fresh.cosines(vectors[:2])[0])
            assert all(len(part.rows) <= 64 for part in known.parts)


def test_of_many_that_are_added_one_by_one_each_is_read_a_few_times() -> None:
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((2_048, 16)).astype(np.float32)
    known, read = None, 0

    def reading(rows: np.ndarray) -> np.ndarray:
        nonlocal read
        read += len(rows)
        return np.asarray(vectors[rows])

    for n in range(1, len(vectors) + 1):
        known = Rough.of(np.arange(n), reading, known)
    assert known is not None
    assert len(known.parts) <= 12
    assert read <= len(vectors) * 12


def test_a_search_finds_the_same_with_and_without(monkeypatch: pytest.MonkeyPatch) -> None:
    from random import Random

    rng = Random(1)
    texts = [pseudo_words(rng) for _ in range(3_000)]
    context = Context().apply(Delta(tuple(Add("memories", text) for text in texts))).context
    queries = [pseudo_words(rng) for _ in range(30)] + texts[:10]
    made: Counter[str] = Counter()
    original = Rough.of

    def counted(
        rows: np.ndarray, read: Callable[[np.ndarray], np.ndarray], known: Rough | None = None
    ) -> Rough:  # fmt: skip
        made["rough"] += 1
        return original(rows, read, known)

    monkeypatch.setattr(Rough, "of", counted)

    async def found() -> list[list[tuple[str, float]]]:
        retriever = Retriever(Vectors(WordLlama()))
        alone = [await retriever.nearest(context, query, 5) for query in queries]
        results = await asyncio.gather(*(retriever.nearest(context, query, 5) for query in queries))
        assert results == alone
        return [[(match.entry.id, match.similarity) for match in result.matches] for result in results]

    rough = asyncio.run(found())
    assert made["rough"] == 1
    monkeypatch.setattr(search, "rough_installed", lambda: False)
    assert asyncio.run(found()) == rough
    assert made["rough"] == 1
