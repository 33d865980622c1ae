"""What calls cost, by the price list of genai-prices or by prices that the user gives; and the windows on that list."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from practicum.core.errors import UsageError
from practicum.core.types import Usage

UNLISTED = "*"
"""Stands, in a mapping of prices, for every model whose price is not listed."""

_NAMES = {"in": "input", "cached": "cached", "out": "output"}
_FORM = "in=0.4,cached=0.1,out=1.6 (US dollars per million tokens; cached may be left out)"

Pricing = Callable[[Usage], float | None]
"""US dollars for a usage; None if no price is known."""


class Price(BaseModel):
    """US dollars per million tokens. `cached` is the price of input that the provider had in its cache; if None, it
    costs as much as other input."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    input: float = Field(ge=0, allow_inf_nan=False)
    cached: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    output: float = Field(ge=0, allow_inf_nan=False)

    def of(self, usage: Usage) -> float:
        """US dollars for a usage."""
        cached = self.input if self.cached is None else self.cached
        fresh = usage.input_tokens - usage.cached_tokens
        return (fresh * self.input + usage.cached_tokens * cached + usage.output_tokens * self.output) / 1e6


GivenPrices = str | Sequence[str] | Mapping[str, str | Mapping[str, float] | Price]
"""Prices as a caller may give them; see `read_prices`."""


def read_prices(value: Any) -> Any:
    """Prices by the names of models, from a mapping or from texts: "in=0.4,out=1.6" is that of all models whose price
    is not listed, "NAME in=0.4,out=1.6" that of one model. Raises UsageError for a text of another form."""
    if isinstance(value, Mapping):
        return {name: _read_price(price) if isinstance(price, str) else price for name, price in value.items()}
    texts: Sequence[str] = [value] if isinstance(value, str) else value
    found: dict[str, dict[str, float]] = {}
    for text in texts:
        first, _, rest = text.strip().partition(" ")
        name, price = (UNLISTED, text) if first.partition("=")[0] in _NAMES else (first, rest)
        if name in found:
            raise UsageError(
                "price.invalid", f"two prices are given for {'models without one' if name == UNLISTED else name}"
            )
        found[name] = _read_price(price, text)
    return found


def _read_price(text: str, given: str | None = None) -> dict[str, float]:
    """The prices in a text, which is a part of what was `given`. Raises UsageError for another form."""
    found: dict[str, float] = {}
    for part in text.split(","):
        name, _, number = part.partition("=")
        try:
            found[_NAMES[name.strip()]] = float(number)
        except (KeyError, ValueError) as error:
            raise UsageError("price.invalid", f"price {given or text!r} must read {_FORM}") from error
    if not {"input", "output"} <= found.keys() or min(found.values()) < 0:
        raise UsageError("price.invalid", f"price {given or text!r} must read {_FORM}")
    return found


def pricing(name: str, listed: Pricing, prices: Mapping[str, Price]) -> Pricing:
    """The price of the model with this name: one that the user gave for it, otherwise that of the list, otherwise one
    that the user gave for all others."""
    if name in prices:
        return prices[name].of
    if UNLISTED not in prices:
        return listed

    def price(usage: Usage) -> float | None:
        known = listed(usage)
        return prices[UNLISTED].of(usage) if known is None else known

    return price


def list_price(model: str, provider: str) -> Pricing:
    """The price of a model by genai-prices."""
    return _listed(model, provider_id=provider)


def address_price(model: str, address: str) -> Pricing:
    """The price by genai-prices of a model at the address of a provider."""
    return _listed(model, provider_api_url=address)


def priced_models(address: str) -> list[str]:
    """The models on the price list of genai-prices for the provider at an address; none if it has no such provider."""
    from genai_prices.data_snapshot import get_snapshot

    try:
        provider = get_snapshot().find_provider(None, None, address)
    except LookupError:
        return []
    return [model.id for model in provider.models]


def _listed(model: str, **where: Any) -> Pricing:
    def price(usage: Usage) -> float | None:
        import genai_prices

        counts = genai_prices.Usage(
            input_tokens=usage.input_tokens,
            cache_read_tokens=usage.cached_tokens,
            output_tokens=usage.output_tokens,
        )
        try:
            return float(genai_prices.calc_price(counts, model, **where).total_price)
        except LookupError:
            return None

    return price


def list_window(model: str, address: str) -> int | None:
    """The context window in tokens by genai-prices, of a model at an address; None if none is known. A server of the
    OpenAI protocol may pass on to OpenAI."""
    from genai_prices.data_snapshot import get_snapshot

    for reference in ({"provider_api_url": address}, {"provider_id": "openai"}):
        try:
            _, found = get_snapshot().find_provider_model(
                model, provider=None, **{"provider_id": None, "provider_api_url": None, **reference}
            )
        except LookupError:
            continue
        if found.context_window is not None:
            return found.context_window
    return None
