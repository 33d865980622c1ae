"""From a model's name to a client: by provider, by the address of an OpenAI-compatible server, local, scripted."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from practicum.core.errors import UsageError
from practicum.core.types import Usage
from practicum.models.client import Client, ProviderClient, Structure


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """How models are opened: calls in flight at one endpoint, the way to structure, and the window in tokens.

    With `window` None local ones have LOCAL_WINDOW, and others what is known of them. `log` is the folder that takes
    the native log of models in this process.
    """

    concurrency: int = 16
    structure: Structure = "native"
    attempts: int = 6
    window: int | None = None
    log: Path = Path(".")
    progress: Callable[[int, int], None] | None = None


@dataclass
class Models:
    """Opens each model once, however many roles share it."""

    settings: ClientSettings = field(default_factory=ClientSettings)
    _clients: dict[str, Client] = field(default_factory=dict)

    def open(self, name: str) -> Client:
        """The client for a model's name. Raises UsageError where the name or key is wrong, ModelError where a model
        in this process does not come up."""
        if name not in self._clients:
            self._clients[name] = self._opened(name)
        return self._clients[name]

    @property
    def clients(self) -> tuple[Client, ...]:
        """Those that are open."""
        return tuple(self._clients.values())

    async def close(self) -> None:
        """Close every connection and local model."""
        clients, self._clients = list(self._clients.values()), {}
        for client in clients:
            await client.close()

    def _opened(self, name: str) -> Client:
        if is_local(name):
            return self._local(name)
        if name.startswith("scripted:"):
            from practicum.models.scripted import ScriptedClient

            return ScriptedClient.from_file(Path(name.removeprefix("scripted:")))
        if name.startswith(("http://", "https://")):
            return self._compatible(name)
        return self._hosted(name)

    def _local(self, name: str) -> Client:
        from practicum.models.local import LocalServer, resolve

        path = resolve(name, self.settings.progress)
        slots = min(self.settings.concurrency, LOCAL_SLOTS)
        # A slot keeps one prefix; with some to spare, one role does not evict another's.
        window = self.settings.window or LOCAL_WINDOW
        server = LocalServer(path, slots=slots + SPARE_SLOTS, window=window, log=self.settings.log / "llama.log")
        return _openai_client(
            name, server.url, path.stem, "grammar", self.settings,
            slots=slots, window=server.window, cost_of=_free, on_close=server.close,
        )  # fmt: skip

    def _compatible(self, name: str) -> Client:
        address, _, model = name.partition("#")
        if not model or not urlsplit(address).netloc:
            raise UsageError(f"model {name!r} must read http://host:port/v1#name-of-the-model")
        return _openai_client(
            name, address, model, self.settings.structure, self.settings, cost_of=_unknown, window=self.settings.window
        )

    def _hosted(self, name: str) -> Client:
        from pydantic_ai.exceptions import UserError
        from pydantic_ai.models import infer_model

        try:
            model = infer_model(name)
        except UserError as error:
            raise _unusable(name, str(error)) from error
        except ImportError as error:
            provider = name.partition(":")[0]
            raise UsageError(f"model {name!r} needs: pip install 'pydantic-ai-slim[{provider}]'") from error
        provider, _, short = name.partition(":")
        return ProviderClient(
            name,
            model,
            structure=self.settings.structure,
            endpoint=provider,
            cost_of=_priced(short, provider),
            attempts=self.settings.attempts,
            window=self.settings.window,
            seeds=provider.startswith("openai"),
        )


def is_local(name: str) -> bool:
    """Whether a name means a model in this process."""
    return name == "local" or name.startswith("local:")


LOCAL_WINDOW = 8192
"""Tokens a local model reads, where nothing else is said."""

SPARE_SLOTS = 3
"""Slots of a local model beside those in flight: one for each further role."""

LOCAL_SLOTS = 4
"""Most calls a local model works on at once."""

_FORMS = (
    "Names look like openai:gpt-4.1-mini, anthropic:claude-haiku-4-5, http://host:port/v1#name, local, "
    "local:/path/model.gguf or scripted:FILE"
)


def _unusable(name: str, why: str) -> UsageError:
    if why.startswith("Unknown"):
        return UsageError(f"unknown model {name!r}. {_FORMS}")
    # The first sentence says what is missing (a key, mostly); the rest speaks to users of the library below.
    return UsageError(f"model {name!r} cannot be used: {why.partition('. ')[0]}")


def _openai_client(
    name: str,
    address: str,
    model: str,
    structure: Structure,
    settings: ClientSettings,
    *,
    cost_of: Callable[[Usage], float | None],
    slots: int | None = None,
    window: int | None = None,
    on_close: Callable[[], None] | None = None,
) -> ProviderClient:
    from ssl import PROTOCOL_TLS_CLIENT, SSLContext

    from openai import AsyncOpenAI, DefaultAioHttpClient
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.profiles.openai import OpenAIModelProfile
    from pydantic_ai.providers.openai import OpenAIProvider

    connection = AsyncOpenAI(
        base_url=address.rstrip("/"),
        api_key=os.environ.get("OPENAI_API_KEY", "none"),
        # Reading the certificates takes 40 ms. Where they are not needed nobody is trusted, redirects to TLS included.
        http_client=DefaultAioHttpClient(
            verify=SSLContext(PROTOCOL_TLS_CLIENT) if address.startswith("http://") else True
        ),
        max_retries=0,
    )

    async def close() -> None:
        await connection.close()
        if on_close is not None:
            on_close()

    return ProviderClient(
        name,
        OpenAIChatModel(
            model,
            provider=OpenAIProvider(openai_client=connection),
            # Compatible servers know the older field; some refuse the newer one.
            profile=OpenAIModelProfile(openai_chat_supports_max_completion_tokens=False),
        ),
        structure=structure,
        endpoint=address,
        slots=slots,
        cost_of=cost_of,
        attempts=settings.attempts,
        window=window,
        seeds=True,
        on_close=close,
    )


def _free(_: Usage) -> float | None:
    return 0.0


def _unknown(_: Usage) -> float | None:
    return None


def _priced(model: str, provider: str) -> Callable[[Usage], float | None]:
    """Prices by genai-prices; None where it knows none."""

    def cost(usage: Usage) -> float | None:
        from genai_prices import Usage as Counted
        from genai_prices import calc_price

        counted = Counted(
            input_tokens=usage.input_tokens,
            cache_read_tokens=usage.cached_tokens,
            output_tokens=usage.output_tokens,
        )
        try:
            return float(calc_price(counted, model, provider_id=provider).total_price)
        except LookupError:
            return None

    return cost


ROLES: Mapping[str, str] = {
    "agent": "agent",
    "generator": "agent",
    "reflector": "reflector",
    "curator": "curator",
    "mutator": "curator",
    "judge": "judge",
    "state": "state",
}
"""Role names a user may give, and the role each means."""
