"""Prices that the user gives: how they are written, whose they are, and what they cost."""

from __future__ import annotations

import pytest

from practicum.core.errors import UsageError
from practicum.core.types import Usage
from practicum.models.prices import address_price, list_price, pricing
from practicum.session.config import Config

USAGE = Usage(1, 1_000_000, 400_000, 100_000)


@pytest.mark.parametrize(
    ("given", "name", "usd"),
    [
        ("in=0.5,cached=0.1,out=2", "any", 0.3 + 0.04 + 0.2),
        ("out=2, in=0.5", "any", 0.5 + 0.2),
        (["in=1,out=1", "http://a/v1#m in=0.5,out=2"], "http://a/v1#m", 0.7),
        ({"m": {"input": 0, "output": 0}}, "m", 0.0),
        ({"m": "in=0,out=0"}, "other", None),
    ],
)
def test_a_price_is_that_of_one_model_or_of_all_without_one(given: object, name: str, usd: float | None) -> None:
    config = Config.model_validate({"prices": given})
    assert config == Config.model_validate_json(config.model_dump_json())
    assert pricing(name, lambda usage: None, config.prices)(USAGE) == pytest.approx(usd)


def test_a_listed_price_goes_before_that_of_all_others_and_after_one_of_its_own() -> None:
    prices = Config.model_validate({"prices": ["in=1,out=1", "mine in=2,out=2"]}).prices
    assert pricing("listed", lambda usage: 7.0, prices)(USAGE) == 7.0
    assert pricing("mine", lambda usage: 7.0, prices)(USAGE) == pytest.approx(2.2)


@pytest.mark.parametrize("wrong", ["in=1", "in=1,out=-1", "in=x,out=1", "0.4", "in=1,out=nan", ["in=1,out=1"] * 2])
def test_a_price_of_another_form_is_refused(wrong: object) -> None:
    with pytest.raises((UsageError, ValueError)):
        Config.model_validate({"prices": wrong})


def test_the_price_of_a_model_at_an_address_is_that_of_its_provider() -> None:
    model, address = "gpt-4.1-mini", "https://api.openai.com/v1"
    usd = address_price(model, address)(USAGE)
    assert usd is not None
    assert usd == list_price(model, "openai")(USAGE)
    assert address_price(model, "http://127.0.0.1:8000/v1")(USAGE) is None
    assert address_price("no-such-model", address)(USAGE) is None
