"""Prices that the user gives: how they are written, whose they are, and what they cost."""

from __future__ import annotations

import pytest

from practicum.core.errors import UsageError
from practicum.session.config import Config


@pytest.mark.parametrize("wrong", ["in=1", "in=1,out=-1", "in=x,out=1", "0.4", "in=1,out=nan", ["in=1,out=1"] * 2])
def test_a_price_of_another_form_is_refused(wrong: object) -> None:
    with pytest.raises((UsageError, ValueError)):
        Config.model_validate({"prices": wrong})
