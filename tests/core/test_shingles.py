"""A text is recognized in another text by its rare words, in any spelling."""

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from practicum.core.shingles import COMMON, Rarity, grams, pieces

WORDS = """\
The vault of Ada Lovelace opens with code ZX-4711 or 'swordfish' größer Straße café naïve über 金庫の合言葉は青い鷺です
if a customer asks how copper kestrel lantern 20250314 add_event getUser réunion Ωmega привет мир"""
TEXT = st.lists(st.sampled_from(WORDS.split()), max_size=30).map(" ".join)


FORMS = st.sampled_from(["NFC", "NFD", "NFKC", "NFKD"])


@given(TEXT, TEXT, FORMS, st.sampled_from(["\u200b", "\u00ad", "\ufe0f", "\u2060"]))
def test_a_quoted_text_is_recognized_in_any_spelling(text: str, other: str, form: str, invisible: str):
    assert pieces(text) <= grams(f"{other}\n{text}, {other}")
    assert pieces(unicodedata.normalize(form, text)) == pieces(text)  # type: ignore[arg-type]
    spread = "  \t" + text.replace(" ", " ,\n — ") + "!"
    for spelling in (text, invisible.join(text), spread, text.casefold(), text.upper()):
        assert pieces(text) <= grams(spelling)


@given(TEXT)
def test_a_piece_of_many_texts_is_common(text: str):
    few, many = Rarity([text] * COMMON), Rarity([text] * (COMMON + 1))
    assert few.rare(pieces(text)) == pieces(text)
    assert not many.rare(pieces(text))


QUOTED = {
    "Say 'blue heron lantern' at the door.": ("The passphrase is blue heron lantern.", ""),
    "say swordfish": ('The passphrase is "swordfish".', "swordfish"),
    "ask for zx 4711": ("The account is ZX-4711.", "zx 4711"),
    "ada lovelace knows": ("For refunds, ask Ada Lovelace.", "ada lovelace"),
    "copper kestrel": ("Its password: copper-kestrel", "copper kestrel"),
    "so the owl flies at midnight means": ("The owl flies at midnight.", "the owl flies at midnight"),
    "請注意金庫の合言葉は青い鷺です": ("金庫の合言葉は青い鷺です", ""),
}
"""Text → its source, and the only piece that they share if it is one."""


def test_names_codes_and_rare_sequences_are_pieces_and_ordinary_words_are_not() -> None:
    for text, (source, piece) in QUOTED.items():
        common = pieces(source) & grams(text)
        assert common
        assert not piece or common == {piece}
    for text, source in (
        ("If a customer asks about the card, check the account.", "A card was lost, and the account is new."),
        ("The total is 80,000 in 2 years.", "It costs 80,000."),
        # A paraphrase, or a single ordinary word, is not recognized.
        ("The bird by the water says the word.", "The passphrase is heron."),
    ):
        assert not pieces(source) & grams(text)
    assert not any(map(pieces, ("", "yes", "42")))
