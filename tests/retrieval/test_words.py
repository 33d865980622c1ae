"""Words of texts are compared by their stems."""

from __future__ import annotations

from practicum.retrieval.words import word_keys


def test_words_are_compared_by_their_stems_in_any_script() -> None:
    assert word_keys("Cards, LOST!") == word_keys("card losts")
    assert len(word_keys("口座を開く")) == 5
    assert word_keys("top_up") == word_keys("top-up")
    assert word_keys("the of and card") == word_keys("card")
    assert word_keys("\ud800x")
