"""Clients by model name: a provider's model, an OpenAI-compatible server's, a local one, or a script."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from practicum.core.certificates import require_certificates
from practicum.core.errors import UsageError
from practicum.core.requirements import require, unmet_requirements
from practicum.models.client import Client, Structure
from practicum.models.keys import (
    ADDRESSES,
    addresses,
    key_for,
    keys_file,
    location,
    require_private,
    require_private_provider,
)
from practicum.models.options import ModelOptions
from practicum.models.prices import Price, Pricing, list_price, list_window, pricing
from practicum.models.transport import MAX_REPLY_MB, connect, http_client

if TYPE_CHECKING:
    from practicum.models.spread import Server

ROLES: Mapping[str, str] = {
    "agent": "agent",
    "generator": "agent",
    "reflector": "reflector",
    "curator": "curator",
    "mutator": "curator",
    "judge": "judge",
    "state": "state",
}
"""Role names that users may write, and the role that each means."""

LOCAL_WINDOW = 8192
"""Default window of a local model, in tokens."""

LOCAL_OUTPUT = 1024
"""Default limit of tokens for an answer of a local model to a request that gives none."""

LOCAL_SLOTS = 4
"""Calls that a local model works on at once, at most."""

SPARE_SLOTS = 3
"""Further slots of a local model. A slot keeps one prefix, so with spare slots roles do not evict each other's."""

NAME_FORMS = (
    "Names look like openai:gpt-4.1-mini, anthropic:claude-haiku-4-5, http://host:port/v1#name, "
    "http://a:port/v1,http://b:port/v1#name, local, local:/path/model.gguf or scripted:FILE"
)


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Settings that all clients of a run share.

    `concurrency` is the number of calls in flight, `attempts` the number of tries per call, and `window` the context
    window in tokens (None: LOCAL_WINDOW for local models, otherwise what is known about the model). `prices` are those
    that the user gave (see `models.prices`). llama.cpp writes its log into the folder `log`; `progress` is called with
    the bytes downloaded so far and their total. `api_key_env` names the variable with the key of the one address that
    is asked, and `max_reply_mb` is the most megabytes of a reply. `options` is what every request also has.
    `output_tokens` limits the answers of local models to requests without a limit of their own. `host` opens local
    models on other machines.
    """

    concurrency: int = 16
    structure: Structure = "native"
    attempts: int = 6
    window: int | None = None
    log: Path = Path(".")
    prices: Mapping[str, Price] = field(default_factory=dict)
    progress: Callable[[int, int], None] | None = None
    api_key_env: str | None = None
    max_reply_mb: float = MAX_REPLY_MB
    options: ModelOptions = field(default_factory=ModelOptions)
    output_tokens: int = LOCAL_OUTPUT
    host: Callable[[str, ClientSettings], Client] | None = None


@dataclass
class Models:
    """Opens each model once, however many roles use it."""

    settings: ClientSettings = field(default_factory=ClientSettings)
    _clients: dict[str, Client] = field(default_factory=dict)
    _servers: dict[str, Server] = field(default_factory=dict)
    _keyed: str | None = None
    _trusted: str | None = None

    def open(self, name: str) -> Client:
        """Return the client for a model's name.

        Raises UsageError if the name, the API key or the version of openai is wrong, and ModelError if a local model
        does not start.
        """
        if name not in self._clients:
            if not name.startswith("scripted:"):
                require("openai", f"model {name!r}")
            try:
                self._clients[name] = self._create(name)
            except (ImportError, AttributeError) as error:
                if unmet := unmet_requirements():
                    raise UsageError("extra.missing", f"model {name!r} cannot be used: {unmet[0]}") from error
                raise
        return self._clients[name]

    @property
    def clients(self) -> tuple[Client, ...]:
        return tuple(self._clients.values())

    async def close(self) -> None:
        """Close all connections and local models."""
        clients, self._clients = list(self._clients.values()), {}
        for client in clients:
            await client.close()

    def _create(self, name: str) -> Client:
        if is_local(name):
            return self._local(name) if self.settings.host is None else self.settings.host(name, self.settings)
        if name.startswith("scripted:"):
            from practicum.models.scripted import ScriptedClient

            return ScriptedClient.from_file(Path(name.removeprefix("scripted:")))
        if _is_at_addresses(name):
            _require_addresses(name)
            model, at = name.partition("#")[2], addresses(name)
            if len(at) > 1:
                return self._spread(name, at, model)
            return self._openai_compatible(name, at[0], model, self._key(at[0]))
        return self._hosted(name)

    def _spread(self, name: str, at: Sequence[str], model: str) -> Client:
        from practicum.models.spread import Server, Spread

        price = price_of(name, self.settings.prices)
        clients: dict[Server, Client] = {}
        for address, key in [(address.rstrip("/"), self._key(address)) for address in at]:
            server = self._servers.setdefault(address, Server(address, self.settings.concurrency))
            clients[server] = self._openai_compatible(f"{address}#{model}", address, model, key, price=price)
        return Spread(name=client_name(name), clients=clients, attempts=self.settings.attempts)

    def _key(self, address: str) -> str | None:
        variable, host = self.settings.api_key_env, urlsplit(address).netloc
        if variable is not None and self._keyed not in (None, host):
            raise UsageError(
                "model.unsafe_key",
                f"`api_key_env={variable}` is the key of one server, and the models are at {self._keyed} and {host}: "
                f"give each its own key in {keys_file()}",
            )
        self._keyed = host
        self._check_headers(host, address)
        return key_for(address, variable)

    def _check_headers(self, server: str, address: str) -> None:
        """Raise UsageError if headers with secrets would go to two servers, or over plain HTTP to another machine."""
        if not self.settings.options.secrets:
            return
        if self._trusted not in (None, server):
            raise UsageError(
                "model.unsafe_key",
                f"the headers in `model_options` hold secrets of one server, and the models are at {self._trusted} and "
                f"{server}: leave them out, and give each server its own key in {keys_file()}",
            )
        self._trusted = server
        require_private(address, "`model_options`")

    def _local(self, name: str) -> Client:
        from practicum.models.local import LocalServer, resolve

        path = resolve(name, self.settings.progress)
        slots = min(self.settings.concurrency, LOCAL_SLOTS)
        window = self.settings.window or LOCAL_WINDOW
        server = LocalServer(
            path, slots=slots + SPARE_SLOTS, window=window, output_tokens=self.settings.output_tokens,
            log=self.settings.log / "llama.log",
        )  # fmt: skip
        return self._openai_compatible(
            name, server.url, path.stem, server.key, server.close,
            structure="grammar", slots=slots, window=server.window, price=price_of(name, self.settings.prices),
        )  # fmt: skip

    def _openai_compatible(
        self,
        name: str,
        address: str,
        model: str,
        key: str | None,
        stop: Callable[[], None] = lambda: None,
        **special: Any,
    ) -> Client:
        """A client for this address; `special` are fields of ProviderClient that differ from the settings."""
        from practicum.models.chat import ChatModel
        from practicum.models.provider import ProviderClient

        connection = connect(address, key, self.settings.max_reply_mb)

        async def close() -> None:
            try:
                await connection.close()
            finally:
                stop()

        price = price_of(name, self.settings.prices)
        window = self.settings.window or list_window(model, address)
        options = {"structure": self.settings.structure, "window": window, "price": price}
        return ProviderClient(
            name=name,
            model=ChatModel(connection, model),
            endpoint=address,
            attempts=self.settings.attempts,
            supports_seed=True,
            key=key,
            on_close=close,
            **self._more(),
            **(options | special),
        )

    def _more(self) -> dict[str, Any]:
        """Fields of ProviderClient for what every request also has."""
        options = self.settings.options
        headers = options.resolved()
        secrets = tuple(headers[name] for name in options.secrets)
        return {"extra_body": options.extra_body, "headers": headers, "secrets": secrets}

    def _hosted(self, name: str) -> Client:
        from pydantic_ai.exceptions import UserError
        from pydantic_ai.models import Model, infer_model
        from pydantic_ai.providers import Provider, infer_provider

        from practicum.models.provider import ProviderClient

        require_certificates()
        provider, _, model = name.partition(":")
        opened: list[Any] = []

        def bounded(kind: str) -> Provider[Any]:
            if not kind.startswith("openai"):
                return infer_provider(kind)
            from pydantic_ai.providers.openai import OpenAIProvider

            # The environment may name any other server.
            http = http_client(os.environ.get("OPENAI_BASE_URL", "https://"), self.settings.max_reply_mb)
            opened.append(http)
            return OpenAIProvider(http_client=http)

        async def close() -> None:
            for http in opened:
                await http.aclose()

        def infer(name: str) -> Model:
            return infer_model(name, bounded)

        try:
            inferred = infer(name)
        except (UserError, ValueError) as error:
            if str(error).startswith("Unknown"):
                raise UsageError("model.unknown", f"unknown model {name!r}. {NAME_FORMS}", model=name) from error
            raise UsageError(
                "model.no_key", f"model {name!r} cannot be used: {_what_is_missing(str(error))}"
            ) from error
        except ImportError as error:
            if unmet_requirements():
                raise
            raise UsageError(
                "extra.missing", f"model {name!r} needs: pip install 'pydantic-ai-slim[{provider}]'"
            ) from error
        key = getattr(getattr(inferred, "client", None), "api_key", None)
        require_private_provider(inferred.base_url or "", key)
        self._check_headers(provider, inferred.base_url or "")
        return ProviderClient(
            name=name,
            model=inferred,
            endpoint=provider,
            structure=self.settings.structure,
            price=price_of(name, self.settings.prices),
            attempts=self.settings.attempts,
            window=self.settings.window or inferred.profile.get("context_window"),
            supports_seed=provider.startswith("openai"),
            # Gateways often have chat completions alone, which `openai:` does not use.
            fallback=partial(infer, f"openai-chat:{model}") if provider == "openai" and _at_gateway() else None,
            key=key if isinstance(key, str) else None,
            on_close=close,
            **self._more(),
        )


def _what_is_missing(advice: str) -> str:
    """What pydantic-ai misses, usually a key, in words for users who do not know it."""
    if variable := re.search(r"\b[A-Z][A-Z0-9]*_[A-Z0-9_]+\b", advice):
        return f"the environment variable {variable[0]} is not set (export {variable[0]}=...)"
    return advice.partition(". ")[0]


def _at_gateway() -> bool:
    """Whether the environment names another server than OpenAI's."""
    host = urlsplit(os.environ.get("OPENAI_BASE_URL", "")).hostname
    return host is not None and not host.endswith("openai.com")


def require_model_name(name: str) -> None:
    """Raise UsageError if this is no model's name. Nothing is opened, so the model may be missing all the same."""
    if is_local(name) or name.startswith("scripted:"):
        return
    if _is_at_addresses(name):
        _require_addresses(name)
    else:
        from pydantic_ai.providers import infer_provider_class

        provider, colon, model = name.partition(":")
        try:
            with suppress(ImportError):  # it is known, and its package is not installed
                infer_provider_class(provider)
        except ValueError:
            colon = ""
        if not colon or not model:
            raise UsageError("model.unknown", f"unknown model {name!r}. {NAME_FORMS}", model=name)


def _require_addresses(name: str) -> None:
    """Raise UsageError for addresses that are none, or that cannot be those of one model."""
    at, model = addresses(name), name.partition("#")[2]
    one = "http://host:port/v1#name-of-the-model"
    if len(at) == 1 and (not model or location(at[0]) is None):
        raise UsageError("model.invalid_name", f"model {name!r} must have the form {one}")
    form = "servers of one model are named as http://a:8000/v1,http://b:8000/v1#NAME, each by its address"
    if any(address.strip().startswith(ADDRESSES) for address in model.split(",")):
        raise UsageError(
            "model.invalid_name",
            f"model {name!r} has an address behind the model's name: {form}, and NAME stands at the end",
        )
    places = [location(address) for address in at]
    for n, address in enumerate(at):
        if not address:
            raise UsageError("model.invalid_name", f"model {name!r} has a comma without an address beside it: {form}")
        if places[n] is None:
            raise UsageError(
                "model.invalid_name", f"model {name!r}: {address!r} is no address (http://host:port/v1): {form}"
            )
        if places[n] in places[:n]:
            raise UsageError("model.invalid_name", f"model {name!r} names the server {address} twice: name each once")
    if not model:
        raise UsageError("model.invalid_name", f"model {name!r} lacks the model's name: {form}")


def client_name(name: str) -> str:
    """The name by which a run keeps the answers of a model: of one at several servers it is the model's alone, so that
    a run can be resumed on others."""
    return name.partition("#")[2] if _is_at_addresses(name) and len(addresses(name)) > 1 else name


def _is_at_addresses(name: str) -> bool:
    return any(address.startswith(ADDRESSES) for address in addresses(name))


def is_local(name: str) -> bool:
    """Whether the name means a model on this machine."""
    return name == "local" or name.startswith("local:")


def price_of(name: str, prices: Mapping[str, Price]) -> Pricing:
    """The price of the model with this name, which need not be open. Those in this process, and scripts, are free."""
    if is_local(name) or name.startswith("scripted:"):
        return pricing(name, lambda usage: 0.0, prices)
    provider, _, model = name.partition(":")
    return pricing(name, (lambda usage: None) if name.startswith(ADDRESSES) else list_price(model, provider), prices)
