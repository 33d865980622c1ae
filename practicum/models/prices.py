"""Prices of calls, from the package genai-prices or from the user; and context windows of models, from genai-prices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from practicum.core.errors import UsageError
from practicum.core.types import Usage

UNLISTED = "*"
"""Key in a mapping of prices for all models without a listed price."""

_NAMES = {"in": "input", "cached": "cached", "out": "output"}
_FORM = "in=0.4,cached=0.1,out=1.6 (US dollars per million tokens; cached is optional)"

Pricing = Callable[[Usage], float | None]
"""Function from usage to US dollars; None if the price is unknown."""


class Price(BaseModel):
    """Price in US dollars per million tokens. `cached` is the price of cached input; None: cached input costs the same
    as other input."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    input: float = Field(ge=0, allow_inf_nan=False)
    cached: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    output: float = Field(ge=0, allow_inf_nan=False)

    def of(self, usage: Usage) -> float:
        """Return the US dollars for a usage."""
        cached = self.input if self.cached is None else self.cached
        fresh = usage.input_tokens - usage.cached_tokens
        return (fresh * self.input + usage.cached_tokens * cached + usage.output_tokens * self.output) / 1e6


PricesArgument = str | Sequence[str] | Mapping[str, str | Mapping[str, float] | Price]
"""Prices in the forms that callers may pass; see `read_prices`."""


def read_prices(value: Any) -> Any:
    """Parse prices by model name, from a mapping or from texts. "in=0.4,out=1.6" is the price of all models without a
    listed price, "NAME in=0.4,out=1.6" the price of one model. Raises UsageError for a text that has neither form."""
    if isinstance(value, Mapping):
        return {name: _read_price(price) if isinstance(price, str) else price for name, price in value.items()}
    texts: Sequence[str] = [value] if isinstance(value, str) else value
    prices_by_name: dict[str, dict[str, float]] = {}
    for text in texts:
        first, _, rest = text.strip().partition(" ")
        name, price = (UNLISTED, text) if first.partition("=")[0] in _NAMES else (first, rest)
        if name in prices_by_name:
            raise UsageError(
                "price.invalid", f"two prices for {'models without a listed price' if name == UNLISTED else name}"
            )
        prices_by_name[name] = _read_price(price, text)
    return prices_by_name


def _read_price(text: str, argument: str | None = None) -> dict[str, float]:
    """Parse a price. `argument` is the user's whole text, which messages quote. Raises UsageError if the text is not a
    price."""
    values: dict[str, float] = {}
    for part in text.split(","):
        name, _, number = part.partition("=")
        try:
            values[_NAMES[name.strip()]] = float(number)
        except (KeyError, ValueError) as error:
            raise UsageError("price.invalid", f"price {argument or text!r} must have the form {_FORM}") from error
    if not {"input", "output"} <= values.keys() or min(values.values()) < 0:
        raise UsageError("price.invalid", f"price {argument or text!r} must have the form {_FORM}")
    return values


def pricing(name: str, listed: Pricing, prices: Mapping[str, Price]) -> Pricing:
    """Return the function that prices the calls of a model. It uses the user's price for this model, otherwise the
    price from `listed`, otherwise the user's price for models without a listed price."""
    if name in prices:
        return prices[name].of
    if UNLISTED not in prices:
        return listed

    def price(usage: Usage) -> float | None:
        usd = listed(usage)
        return prices[UNLISTED].of(usage) if usd is None else usd

    return price


def list_price(model: str, provider: str, batch: bool = False) -> Pricing:
    """Return the price of a model from genai-prices, for calls in a batch if `batch` is true. If genai-prices does not
    list a price for batches, the price of single calls is returned, which is higher."""
    context = {"price_context": {"processing": "batch"}} if batch else {}
    return _listed(model, provider_id=provider, **context)


def address_price(model: str, address: str) -> Pricing:
    """Return the price of a model at the address of a provider, from genai-prices."""
    return _listed(model, provider_api_url=address)


def priced_models(address: str) -> list[str]:
    """Return the models that genai-prices lists for the provider at an address; empty if the provider is unknown."""
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
            cache_write_tokens=usage.cache_write_tokens,
            output_tokens=usage.output_tokens,
        )
        try:
            return float(genai_prices.calc_price(counts, model, **where).total_price)
        except LookupError:
            return None

    return price


def list_window(model: str, address: str) -> int | None:
    """Return the context window (tokens) that genai-prices lists for a model at an address, or None. If no window is
    listed for the address, the model is searched among OpenAI's models, because a server of the OpenAI protocol may
    forward calls to OpenAI."""
    from genai_prices.data_snapshot import get_snapshot

    for reference in ({"provider_api_url": address}, {"provider_id": "openai"}):
        try:
            _, listed = get_snapshot().find_provider_model(
                model, provider=None, **{"provider_id": None, "provider_api_url": None, **reference}
            )
        except LookupError:
            continue
        if listed.context_window is not None:
            return listed.context_window
    return None
