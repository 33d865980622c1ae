"""A correction that was replaced is shown to no later request."""

from __future__ import annotations

from pathlib import Path

import pytest
from serving import asynchronous, served

QUESTION, RIGHT = "Which team handles lost cards?", "the blue team"


# Corrections


@pytest.mark.slow
@asynchronous
async def test_of_a_thousand_requests_none_is_shown_what_was_replaced(tmp_path: Path) -> None:
    async with served(tmp_path) as at:
        for n in range(50):
            for version in ("old", "new"):
                id = (await at.ask(f"Which team handles case {n} of department {n % 7}?")).interaction
                await at.report(interaction=id, target=f"the {version} team {n}")
        shown = [await at.shown(f"Which team handles case {n % 50} of department {n % 7}?") for n in range(1_000)]
        assert sum("the old team" in text for text in shown) == 0
        assert all(f"the new team {n % 50}\n" in text for n, text in enumerate(shown) if n % 50 % 7 == n % 7)
