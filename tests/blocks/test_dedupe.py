"""De-duplication against the plain reference, and as a wrapper of an update."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples
from runs import indoors

from practicum.blocks.update import dedupe
from practicum.blocks.update.dedupe import deduplicated, duplicates
from practicum.core.context import Context, seed_context
from practicum.core.counts import Count
from practicum.core.edits import Add, Delta, Merge, Update
from practicum.core.types import Lesson
from practicum.retrieval.vectors import SAME


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
    made = around[rng.integers(0, centres, n)] + spread * rng.standard_normal((n, dims)) / np.sqrt(dims)
    made[n // 2 :: 3] = made[: len(made[n // 2 :: 3])]
    made /= np.linalg.norm(made, axis=1, keepdims=True)
    return made.astype(np.float32)


@settings(max_examples=examples(60), deadline=None)
@given(
    st.integers(0, 2**32), st.integers(0, 60), st.integers(0, 40), st.sampled_from([2, 16, 64]),
    st.sampled_from([0.3, 0.5, 0.85, 0.99]), st.sampled_from([0.0, 0.3, 0.7]), st.sampled_from([7, 16, 4096]),
    st.sampled_from([1, 3]),
)  # fmt: skip
def test_duplicates_equal_those_of_the_plain_reference(
    seed: int, n: int, m: int, dims: int, threshold: float, spread: float, block: int, kinds: int
) -> None:
    """Rows of different kinds are no duplicates, however similar; what is told apart hides no copy of its own."""
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
        found = duplicates(old, new, threshold, lambda row, like: kind[row] != kind[like])
    for mine, plain, row in zip(found, reference(old, new, threshold, kind), range(n, n + m), strict=True):
        if mine != plain:
            assert mine is not None
            assert plain is not None
            assert similarity[row, mine] == pytest.approx(similarity[row, plain], abs=2e-6)


def test_many_equal_old_vectors_name_the_oldest() -> None:
    old = np.tile(np.eye(8, dtype=np.float32)[0], (50, 1))
    assert duplicates(old, old[:3], 0.9) == [0, 0, 0]
    assert duplicates(old[:0], old[:3], 0.9) == [None, 0, 0]
    assert duplicates(old, old[:0], 0.9) == []


class FakeRun:
    """As much of a Run as de-duplication touches; texts that share their first word are the same."""

    def __init__(self) -> None:
        self.choices = ()
        self.counts = Counter[str]()

    def count(self, counter: Count, by: int = 1) -> None:
        self.counts[counter] += by

    async def embed(self, texts: Sequence[str]) -> np.ndarray:
        words = sorted({t.split()[0] for t in texts} | {"a", "b", "c", "d"})
        return np.eye(len(words), dtype=np.float32)[[words.index(t.split()[0]) for t in texts]]


def applied(context: Context, delta: Delta, when: Any = "proactive", budget: int = 0) -> tuple[Context, Delta, FakeRun]:
    async def update(lessons: Sequence[Lesson], context: Context, run: Any) -> Delta:
        return delta

    run = FakeRun()
    made = asyncio.run(deduplicated(update, 0.85, when, budget)((), context, run))  # type: ignore[arg-type]
    outcome = context.apply(made)
    assert not outcome.refused
    return outcome.context, made, run


def test_the_older_entry_stays_with_summed_counters_and_joined_sources() -> None:
    context = seed_context([("rules", "a one")])
    delta = Delta((Add("rules", "a two", helpful=2, sources=("task:1",)), Add("facts", "a three"), Add("rules", "b")))
    after, _, run = applied(context, delta)
    assert [e.text for e in after] == ["a one", "a three", "b"]
    assert (next(iter(after)).helpful, next(iter(after)).sources) == (2, ("seed", "task:1"))
    assert run.counts["duplicate_entries"] == 1


def test_copies_are_merged_beside_a_similar_entry_that_differs() -> None:
    context = seed_context([("rules", "a refund after 30 days")])
    forty = [Add("rules", text) for text in ("a refund after 40 days", "a refund after 40 days", "a refund 40 days on")]
    after, _, run = applied(context, Delta(tuple(forty)))
    assert [e.text for e in after] == ["a refund after 30 days", "a refund after 40 days"]
    assert run.counts == {"duplicate_entries": 2, "similar_kept_apart": 1}


def test_a_rewritten_old_entry_absorbs_the_younger_entry_that_it_repeats() -> None:
    context = seed_context([("rules", "a one"), ("rules", "b two")])
    after, _, _ = applied(context, Delta((Update("e0", "b now"), Add("rules", "b three"))))
    assert [(e.id, e.text) for e in after] == [("e0", "b now")]


@pytest.mark.parametrize(("measured", "kept"), [(None, 2), (0.6, 1)])
def test_an_automatic_threshold_is_that_of_the_embedder(
    measured: float | None, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a measurement it is 0.85; four of five words in common are similar, but less so."""
    run = indoors(lambda call: "")
    if measured is not None:
        monkeypatch.setitem(SAME, ("words", "small"), measured)
    adds = Delta((Add("rules", "look twice before you go"), Add("rules", "look twice before you leave")))

    async def update(lessons: Sequence[Lesson], context: Context, run: Any) -> Delta:
        return adds

    made = asyncio.run(deduplicated(update, "auto")((), Context(), run))
    assert len(Context().apply(made).context) == kept


def test_lazy_compares_all_entries_but_only_over_the_budget() -> None:
    context = seed_context([("rules", "a one"), ("rules", "a two")])
    delta = Delta((Add("rules", "b"),))
    assert len(applied(context, delta, "lazy", 1000)[0]) == 3
    assert len(applied(context, delta, "lazy", 1)[0]) == 2
    assert len(applied(context, delta, "never")[0]) == 3
    merges = [e for e in applied(context, delta, "lazy", 1)[1].edits if isinstance(e, Merge)]
    assert [m.ids for m in merges] == [("e0", "e1")]
