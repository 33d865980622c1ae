"""Dealing lessons into groups at random."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples

from practicum.methods.blocks.scan import Dealing

STRATIFIED = st.integers(1, 5).flatmap(
    lambda copies: st.builds(
        Dealing,
        groups=st.just("sqrt") | st.integers(copies, 60),
        copies=st.just(copies),
        fan_in=st.none() | st.integers(copies, 40),
    )
)


# ---- dealing


@settings(max_examples=examples(200), deadline=None)
@given(STRATIFIED, st.integers(1, 400), st.integers(0, 9))
def test_random_dealing_places_every_copy_in_even_groups(dealing: Dealing, n: int, seed: int) -> None:
    dealing = replace(dealing, shuffle="random")
    groups = dealing.deal(n, Random(seed))
    assert Counter(i for group in groups for i in group) == dict.fromkeys(range(n), dealing.copies)
    sizes = [len(group) for group in groups]
    assert max(sizes) - min(sizes) <= 1
    assert max(sizes) == dealing.size(n)
    if dealing.fan_in is not None:
        assert max(sizes) <= dealing.fan_in
