"""Cosines from 8 bits: their bound holds, and a search with them finds the results of a full search."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random
from typing import Any

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


def test_a_search_finds_the_same_with_and_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = Random(1)
    texts = [pseudo_words(rng) for _ in range(2_100)]
    context = Context().apply(Delta(tuple(Add("memories", text) for text in texts))).context
    queries = [pseudo_words(rng) for _ in range(10)] + texts[:5]
    built: Counter[str] = Counter()
    original = Rough.of

    def counted(*arguments: Any) -> Rough:
        built["rough"] += 1
        return original(*arguments)

    monkeypatch.setattr(Rough, "of", counted)

    async def matches() -> list[list[tuple[str, float]]]:
        retriever = Retriever(Vectors(WordLlama()))
        one_by_one = [await retriever.nearest(context, query, 5) for query in queries]
        results = await asyncio.gather(*(retriever.nearest(context, query, 5) for query in queries))
        assert results == one_by_one
        return [[(match.entry.id, match.similarity) for match in result.matches] for result in results]

    rough = asyncio.run(matches())
    assert built["rough"] == 1
    monkeypatch.setattr(search, "rough_installed", lambda: False)
    assert asyncio.run(matches()) == rough
    assert built["rough"] == 1
