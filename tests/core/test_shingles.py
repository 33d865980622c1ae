"""A text is recognized in another one by its rare words, however they are written."""

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from practicum.core.shingles import COMMON, Rarity, grams, pieces

WORDS = """\
The vault of Ada Lovelace opens with code ZX-4711 or 'swordfish' größer Straße café naïve über 金庫の合言葉は青い鷺です
if a customer asks how copper kestrel lantern 20250314 add_event getUser réunion Ωmega привет мир"""
WORD = st.sampled_from(WORDS.split())
TEXT = st.lists(WORD, max_size=30).map(" ".join)


def shared(text: str, source: str) -> frozenset[str]:
    """The pieces of `source` that are found in `text`."""
    return pieces(source) & grams(text)


@given(TEXT, TEXT, TEXT)
def test_a_text_shares_all_its_pieces_with_itself_and_with_each_text_that_quotes_it(text: str, one: str, other: str):
    assert shared(text, text) == pieces(text)
    assert pieces(text) <= grams(f"{one}\n{text}, {other}")


@given(TEXT, st.sampled_from(["NFC", "NFD", "NFKC", "NFKD"]), st.sampled_from(["\u200b", "\u00ad", "\ufe0f", "\u2060"]))
def test_the_writing_of_a_text_changes_nothing(text: str, form: str, invisible: str):
    normal = unicodedata.normalize(form, text)  # type: ignore[arg-type]
    assert pieces(normal) == pieces(text)
    hidden = invisible.join(text)
    assert pieces(text) <= grams(hidden)
    spread = "  \t" + text.replace(" ", " ,\n — ") + "!"
    assert pieces(text) <= grams(spread)
    assert pieces(text) <= grams(text.casefold())
    assert pieces(text) <= grams(text.upper())


@given(TEXT)
def test_a_piece_that_many_texts_have_is_common(text: str):
    few, many = Rarity([text] * COMMON), Rarity([text] * (COMMON + 1))
    assert few.rare(pieces(text)) == pieces(text)
    assert not many.rare(pieces(text))


def test_what_a_text_is_recognized_by():
    assert shared("Say 'blue heron lantern' at the door.", "The passphrase is blue heron lantern.")
    assert shared("say swordfish", 'The passphrase is "swordfish".') == {"swordfish"}
    assert shared("ask for zx 4711", "The account is ZX-4711.") == {"zx 4711"}
    assert shared("ada lovelace knows", "For refunds, ask Ada Lovelace.") == {"ada lovelace"}
    assert shared("copper kestrel", "Its password: copper-kestrel") == {"copper kestrel"}
    assert shared("what the owl flies at midnight means", "The owl flies at midnight.") == {"the owl flies at midnight"}
    assert shared("請注意金庫の合言葉は青い鷺です", "金庫の合言葉は青い鷺です")


def test_ordinary_words_are_no_pieces():
    assert not shared(
        "If a customer asks about the card, check the account.", "A card was lost, and the account is new."
    )
    assert not shared("The total is 80,000 in 2 years.", "It costs 80,000.")
    assert not any(map(pieces, ("", "yes", "42")))
    # A paraphrase, or a single ordinary word, is not found.
    assert not shared("The bird by the water says the word.", "The passphrase is heron.")
