"""Edits that wait for review, by the trust level of their sources."""

from __future__ import annotations

import pytest

from practicum.core.edits import Add, Edit, Vote
from practicum.core.trust import LEVELS, Review, Trust, markers
from practicum.engine.admission import Admission


def waiting(review: Review, edit: type[Edit], **fields: object) -> set[Trust]:
    """The trust levels from which such an edit waits."""
    start = {"section": "rules", "text": "Be brief."} if edit is Add else {"id": "e0"}
    edits = {trust: edit(**start, **fields, sources=("task:t", *markers(trust))) for trust in LEVELS}  # type: ignore[arg-type]
    return {trust for trust, each in edits.items() if Admission(review).waits(each)}


WAITING: dict[Review, set[Trust]] = {"none": set(), "foreign": {*LEVELS} - {"own"}, "all": {*LEVELS}}


@pytest.mark.parametrize("review", WAITING)
def test_text_waits_by_its_trust_and_votes_wait_if_strangers_decide_the_outcome(review: Review) -> None:
    assert waiting(review, Add) == WAITING[review]
    for counter in ("helpful", "harmful"):
        assert waiting(review, Vote, **{counter: 1}) == (set() if review == "none" else {"user", "foreign"})
    assert waiting(review, Vote, uses=1) == set()
