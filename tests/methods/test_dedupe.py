"""De-duplication against the plain reference."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples

from practicum.methods.blocks import dedupe
from practicum.methods.blocks.dedupe import duplicates


def reference(old: np.ndarray, new: np.ndarray, threshold: float, kinds: Sequence[int]) -> list[int | None]:
    result: list[int | None] = []
    pool = [(row, vector) for row, vector in enumerate(old)]
    for i, vector in enumerate(new):
        row, top = None, -np.inf
        for at, other in ((at, other) for at, other in pool if kinds[at] == kinds[len(old) + i]):
            similarity = float(np.einsum("i,i->", other, vector))
            if similarity >= threshold and similarity > top + 1e-6:
                row, top = at, similarity
        result.append(row)
        if row is None:
            pool.append((len(old) + i, vector))
    return result


def vectors(rng: np.random.Generator, n: int, dims: int, centres: int, spread: float) -> np.ndarray:
    """Unit vectors around a few centres, some of them the same."""
    around = rng.standard_normal((centres, dims))
    around /= np.linalg.norm(around, axis=1, keepdims=True)
    rows = around[rng.integers(0, centres, n)] + spread * rng.standard_normal((n, dims)) / np.sqrt(dims)
    rows[n // 2 :: 3] = rows[: len(rows[n // 2 :: 3])]
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows.astype(np.float32)


@settings(max_examples=examples(60), deadline=None)
@given(
    st.integers(0, 2**32), st.integers(0, 60), st.integers(0, 40), st.sampled_from([2, 16, 64]),
    st.sampled_from([0.3, 0.5, 0.85, 0.99]), st.sampled_from([0.0, 0.3, 0.7]), st.sampled_from([7, 16, 4096]),
    st.sampled_from([1, 3]),
)  # fmt: skip
def test_duplicates_equal_those_of_the_plain_reference(
    seed: int, n: int, m: int, dims: int, threshold: float, spread: float, block: int, kinds: int
) -> None:
    """Rows of different kinds are not duplicates at any similarity, and do not hide other copies."""
    rng = np.random.default_rng(seed)
    both, kind = vectors(rng, n + m, dims, 5, spread), rng.integers(0, kinds, n + m).tolist()
    old, new = both[:n], both[n:]
    similarity = both @ both.T
    # Where rounding decides, both answers are right.
    if (np.abs(similarity - threshold) < 1e-5).any():
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dedupe, "BLOCK", block)
        patch.setattr(dedupe, "PAIRS", 50 * block)
        patch.setattr(dedupe, "LOOKS", n + m)
        rows = duplicates(old, new, threshold, lambda row, like: kind[row] != kind[like])
    for mine, plain, row in zip(rows, reference(old, new, threshold, kind), range(n, n + m), strict=True):
        if mine != plain:
            assert mine is not None
            assert plain is not None
            assert similarity[row, mine] == pytest.approx(similarity[row, plain], abs=2e-6)
