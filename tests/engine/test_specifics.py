"""The particulars of a text, and whether another text has them."""

from __future__ import annotations

import pytest

from practicum.engine.specifics import lost, tell_apart


@pytest.mark.parametrize(
    ("of", "by", "missing"),
    [
        ("Pay within 30 days.", "If late, 30 days are left.", set()),
        ("Pay within 30 days.", "Pay within 300 days.", {"30"}),
        ("Pay within 30 days.", "Pay within 1.30 days, or 130.", {"30"}),
        ("Pay within 30 days.", "Not 130 days but 30.", set()),
        ("Call `open_door` first.", "Call open_door.", set()),
        ("Call `open_door` first.", "Call open_doors, or reopen_door.", {"open_door"}),
        ("Ask the RC team.", "Ask team rc!", set()),
        ("Ask the RC team.", "March.", {"rc"}),
    ],
)
def test_a_detail_matches_only_as_a_whole(of: str, by: str, missing: set[str]) -> None:
    assert lost(of, by) == missing


def test_a_text_does_not_differ_from_itself() -> None:
    assert not tell_apart("See section v.3 of it.", "See section v.3 of it.")
    assert tell_apart("See section 3 of it.", "See section 4 of it.")
