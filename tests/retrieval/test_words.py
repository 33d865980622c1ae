"""The words of texts: rare ones count more, and they are compared by their stems."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from practicum.retrieval.words import Words, no_words, word_keys


def added(parts: Sequence[Sequence[str]]) -> Words:
    words = no_words()
    for part in parts:
        words = words.and_of(part)
    return words


def scores(words: Words, query: str) -> np.ndarray:
    return words.shares(query, np.ones(len(words), dtype=np.int32), len(words), 2.0)


def test_a_score_is_the_share_of_the_query_and_rare_words_count_more() -> None:
    words = added([["a lost card", "the card fee", "card", "error E-4711 at the card reader", "nothing"]])
    shares = scores(words, "How do I mend the E-4711 of my card?")
    assert shares.argmax() == 3
    assert (shares[:3] > 0).all()
    assert shares[4] == 0
    assert shares.max() < 1
    assert (scores(words, "is it so?") == 0).all()
    # An equal text has the whole query, and another text never more.
    assert (scores(words, "the card fee") == 1).tolist() == [False, True, False, False, False]
    assert scores(added([["card", "card card card"]]), "card").tolist() == [1.0, 1.0]


def test_a_text_without_other_words_is_compared_by_its_stop_words_or_whole() -> None:
    words = added([["How are you?", "who is it", "🙂", "how", "a card, and how"]])
    for query, expected in {"how are YOU": 0, "Who is it?": 1, " 🙂": 2, "how": 3}.items():
        shares = scores(words, query)
        assert (shares.argmax(), shares.max(), shares[4]) == (expected, 1.0, 0)


def test_words_are_compared_by_their_stems_in_any_script() -> None:
    assert word_keys("Cards, LOST!") == word_keys("card losts")
    assert len(word_keys("口座を開く")) == 5
    assert word_keys("top_up") == word_keys("top-up")
    assert word_keys("the of and card") == word_keys("card")
    assert word_keys("\ud800x")
