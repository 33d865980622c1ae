"""Creation of clients by model name: a provider's model, an OpenAI-compatible server, a local model, a coding agent's
program, or a script."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from practicum.core.certificates import require_certificates
from practicum.core.errors import UsageError
from practicum.core.requirements import require, unmet_requirements
from practicum.models.client import Client
from practicum.models.keys import (
    ADDRESSES,
    LITELLM_ADDRESSES,
    addresses,
    key_for,
    keys_file,
    litellm_address,
    location,
    require_private,
    require_private_provider,
)
from practicum.models.options import ModelOptions
from practicum.models.prices import Price, Pricing, list_price, list_window, pricing
from practicum.models.programs import CLI, PROGRAMS, program_of
from practicum.models.refused import Structure
from practicum.models.spread import Server
from practicum.models.transport import MAX_REPLY_MB, connect, http_client

ROLES: Mapping[str, str] = {
    "agent": "agent",
    "generator": "agent",
    "reflector": "reflector",
    "curator": "curator",
    "mutator": "curator",
    "judge": "judge",
    "state": "state",
}
"""Name of a role in the settings → role in a run."""

BATCHING = ("openai:", "anthropic:")
"""Beginnings of the names of models that have a batch API."""

LOCAL_WINDOW = 8192
"""Default window of a local model (tokens)."""

LOCAL_OUTPUT = 1024
"""Default output limit of a local model for requests without a limit (tokens)."""

LOCAL_SLOTS = 4
"""Maximum number of concurrent calls of a local model."""

SPARE_SLOTS = 3
"""Additional slots of a local model. A slot caches one prefix. With spare slots, roles do not evict each other's
prefixes."""

NAME_FORMS = (
    "Names look like openai:gpt-4.1-mini, anthropic:claude-haiku-4-5, http://host:port/v1#name, "
    "http://a:port/v1,http://b:port/v1#name, local, local:/path/model.gguf, cli:claude, cli:codex or scripted:FILE"
)


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Settings that all clients of a run share.

    `concurrency` is the maximum number of calls in flight, `attempts` the maximum number of tries per call, and
    `window` the context window (tokens; None: LOCAL_WINDOW for local models, otherwise the model's window if it is
    known). `prices` are the user's prices (see `models.prices`). llama.cpp writes its log to the folder `log`.
    `progress` is called with the downloaded and the total bytes. `api_key_env` names the environment variable with the
    key, for models at one address. `max_reply_mb` is the maximum size of a reply (MB). `options` are added to every
    request. `output_tokens` is the output limit of local models for requests without a limit. `host` opens local models
    on other machines. `batch_api`: calls are sent in batches (see `models.batches`).
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
    batch_api: bool = False


@dataclass
class Models:
    """Registry of opened models. A model is opened once, even if several roles use it."""

    settings: ClientSettings = field(default_factory=ClientSettings)
    _clients: dict[str, Client] = field(default_factory=dict)
    _servers: dict[str, Server] = field(default_factory=dict)
    _keyed: str | None = None
    _trusted: str | None = None

    def open(self, name: str) -> Client:
        """Return the client for a model's name.

        Raises UsageError if the name is invalid, the package `openai` is missing or has a wrong version, the API key is
        missing or unsafe, or a program is missing, and ModelError if a local model does not start.
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
        if self.settings.batch_api and not name.startswith(BATCHING):
            raise UsageError(
                "settings.conflict",
                f"`batch_api` needs a model of {' or '.join(f'{start}NAME' for start in BATCHING)}, and {name!r} has "
                "no batch API: leave out `batch_api`, or use another model",
                setting="batch_api",
                model=name,
            )
        if is_local(name):
            return self._local(name) if self.settings.host is None else self.settings.host(name, self.settings)
        if name.startswith("scripted:"):
            from practicum.models.scripted import ScriptedClient

            return ScriptedClient.from_file(Path(name.removeprefix("scripted:")))
        if name.startswith(CLI):
            return self._command_line(name)
        if _is_at_addresses(name):
            _require_addresses(name)
            model, urls = name.partition("#")[2], addresses(name)
            if len(urls) > 1:
                return self._spread(name, urls, model)
            return self._openai_compatible(name, urls[0], model, self._key(urls[0]))
        if name.startswith("litellm:"):
            # pydantic-ai would send the prompts of this provider to OpenAI.
            if (address := litellm_address()) is None:
                raise UsageError(
                    "model.no_key",
                    f"the address of the LiteLLM proxy of {name!r} is not set: export {LITELLM_ADDRESSES[0]}=..., or "
                    "write the model as http://host:port/v1#NAME",
                    variable=LITELLM_ADDRESSES[0],
                )
            return self._openai_compatible(name, address, name.removeprefix("litellm:"), self._key(address))
        return self._hosted(name)

    def _spread(self, name: str, urls: Sequence[str], model: str) -> Client:
        from practicum.models.spread import Server, Spread

        price = price_of(name, self.settings.prices)
        clients: dict[Server, Client] = {}
        for address, key in [(address.rstrip("/"), self._key(address)) for address in urls]:
            server = self._servers.setdefault(address, Server(address, self.settings.concurrency))
            clients[server] = self._openai_compatible(f"{address}#{model}", address, model, key, price=price)
        return Spread(name=client_name(name), clients=clients, attempts=self.settings.attempts)

    def _key(self, address: str) -> str | None:
        variable, host = self.settings.api_key_env, urlsplit(address).netloc
        if variable is not None and self._keyed not in (None, host):
            raise UsageError(
                "model.unsafe_key",
                f"`api_key_env={variable}` is the key of one server, but the models are at {self._keyed} and {host}: "
                f"set a key for each server in {keys_file()}",
            )
        self._keyed = host
        self._check_headers(host, address)
        return key_for(address, variable)

    def _check_headers(self, server: str, address: str) -> None:
        """Raise UsageError if headers with secrets would be sent to two servers, or over plain HTTP to another
        machine."""
        if not self.settings.options.secrets:
            return
        if self._trusted not in (None, server):
            raise UsageError(
                "model.unsafe_key",
                f"the headers in `model_options` hold secrets of one server, but the models are at {self._trusted} and "
                f"{server}: remove the headers, and set a key for each server in {keys_file()}",
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

    def _command_line(self, name: str) -> Client:
        from practicum.models.command_line import PROCESSES, CommandLineModel
        from practicum.models.provider import ProviderClient

        program, model = program_of(name)
        program.require(f"model {name!r}")
        if self.settings.options != ModelOptions():
            raise UsageError(
                "settings.unused", f"model {name!r} is called without HTTP requests: leave out `model_options`"
            )
        return ProviderClient(
            name=name,
            model=CommandLineModel(name, program, model, int(self.settings.max_reply_mb * 1e6)),
            endpoint=f"{CLI}{program.name}",
            structure="native",
            price=price_of(name, self.settings.prices),
            attempts=self.settings.attempts,
            slots=min(self.settings.concurrency, PROCESSES),
            window=self.settings.window,
        )

    def _openai_compatible(
        self,
        name: str,
        address: str,
        model: str,
        key: str | None,
        stop: Callable[[], None] = lambda: None,
        **special: Any,
    ) -> Client:
        """Create a client for this address. `special` are fields of ProviderClient that differ from the settings."""
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
            **self._request_fields(),
            **(options | special),
        )

    def _request_fields(self) -> dict[str, Any]:
        """Return the fields of ProviderClient for additions to every request."""
        options = self.settings.options
        headers = options.resolved()
        secrets = tuple(headers[name] for name in options.secrets)
        return {"extra_body": options.extra_body, "headers": headers, "secrets": secrets}

    def _hosted(self, name: str) -> Client:
        from pydantic_ai.models import Model, infer_model
        from pydantic_ai.providers import Provider, infer_provider

        from practicum.models.batches import MAX_RESULTS_MB, BatchClient
        from practicum.models.provider import ProviderClient

        require_certificates()
        provider, _, model = name.partition(":")
        opened, batch = list[Any](), self.settings.batch_api

        def bounded(kind: str) -> Provider[Any]:
            if not kind.startswith("openai"):
                return infer_provider(kind)
            from pydantic_ai.providers.openai import OpenAIProvider

            # Replies are limited, because OPENAI_BASE_URL may name any server.
            most = max(self.settings.max_reply_mb, MAX_RESULTS_MB if batch else 0)
            http = http_client(os.environ.get("OPENAI_BASE_URL", "https://"), most)
            opened.append(http)
            return OpenAIProvider(http_client=http)

        async def close() -> None:
            for http in opened:
                await http.aclose()

        def infer(name: str) -> Model:
            return infer_model(name, bounded)

        try:
            inferred = infer(name)
        except AttributeError:
            raise
        # Each provider's library raises another class of error for a missing setting.
        except Exception as error:
            if isinstance(error, ImportError) and unmet_requirements():
                raise
            raise _usage_error(name, error) from error
        key = getattr(getattr(inferred, "client", None), "api_key", None)
        require_private_provider(inferred.base_url or "", key)
        self._check_headers(provider, inferred.base_url or "")
        # Gateways often support only chat completions, which `openai:` does not use.
        falls_back = provider == "openai" and _at_gateway() and not batch
        return (BatchClient if batch else ProviderClient)(
            name=name,
            model=inferred,
            endpoint=provider,
            structure=self.settings.structure,
            price=price_of(name, self.settings.prices, batch),
            attempts=self.settings.attempts,
            window=self.settings.window or inferred.profile.get("context_window"),
            supports_seed=provider.startswith("openai"),
            fallback=partial(infer, f"openai-chat:{model}") if falls_back else None,
            key=key if isinstance(key, str) else None,
            on_close=close,
            **self._request_fields(),
        )


def _usage_error(name: str, error: Exception) -> UsageError:
    """Return the error for a model that pydantic-ai cannot open."""
    from pydantic_ai.exceptions import UserError

    if isinstance(error, ImportError):
        # The extra may have another name than the provider: `google` for `google-cloud`.
        named = re.search(r"pydantic-ai-slim\[([\w-]+)\]", str(error))
        extra = named[1] if named else name.partition(":")[0]
        return UsageError("extra.missing", f"model {name!r} needs: pip install 'pydantic-ai-slim[{extra}]'")
    if isinstance(error, UserError | ValueError) and str(error).startswith("Unknown"):
        return UsageError("model.unknown", f"unknown model {name!r}. {NAME_FORMS}", model=name)
    return UsageError("model.no_key", f"model {name!r} cannot be used: {_missing_setting(str(error))}")


def _missing_setting(advice: str) -> str:
    """Rephrase a library's advice about a missing setting, usually a key."""
    advice = advice.replace("`region_name`", "AWS_DEFAULT_REGION")
    advice = advice.replace("Your default credentials", "GOOGLE_APPLICATION_CREDENTIALS")
    if variable := re.search(r"\b[A-Z][A-Z0-9]*_[A-Z0-9_]+\b", advice):
        return f"the environment variable {variable[0]} is not set (export {variable[0]}=...)"
    return advice.partition(". ")[0]


def _at_gateway() -> bool:
    """Return whether OPENAI_BASE_URL names a server other than OpenAI's."""
    host = urlsplit(os.environ.get("OPENAI_BASE_URL", "")).hostname
    return host is not None and not host.endswith("openai.com")


def require_model_name(name: str) -> None:
    """Raise UsageError if `name` is not a valid model name. The model is not opened, so it may still be unavailable."""
    if is_local(name) or name.startswith("scripted:"):
        return
    if name.startswith(CLI):
        program_of(name)
    elif _is_at_addresses(name):
        _require_addresses(name)
    else:
        from pydantic_ai.providers import infer_provider_class

        provider, colon, model = name.partition(":")
        try:
            with suppress(ImportError):  # the provider is known, but its package is not installed
                infer_provider_class(provider)
        except ValueError:
            colon = ""
        if not colon or not model:
            raise UsageError("model.unknown", f"unknown model {name!r}. {NAME_FORMS}", model=name)


def _require_addresses(name: str) -> None:
    """Raise UsageError if a model's name has an invalid address, the same address twice, or addresses without the name
    of the model."""
    urls, model = addresses(name), name.partition("#")[2]
    form_of_one = "http://host:port/v1#name-of-the-model"
    if len(urls) == 1 and (not model or location(urls[0]) is None):
        raise UsageError("model.invalid_name", f"model {name!r} must have the form {form_of_one}")
    form = "write several servers of one model as http://a:8000/v1,http://b:8000/v1#NAME"
    if any(address.strip().startswith(ADDRESSES) for address in model.split(",")):
        raise UsageError(
            "model.invalid_name",
            f"model {name!r} has an address after the model's name: {form}, with NAME at the end",
        )
    places = [location(address) for address in urls]
    for n, address in enumerate(urls):
        if not address:
            raise UsageError("model.invalid_name", f"model {name!r} has a comma without an address next to it: {form}")
        if places[n] is None:
            raise UsageError(
                "model.invalid_name", f"model {name!r}: {address!r} is not an address (http://host:port/v1): {form}"
            )
        if places[n] in places[:n]:
            raise UsageError("model.invalid_name", f"model {name!r} names the server {address} twice: name it once")
    if not model:
        raise UsageError("model.invalid_name", f"model {name!r} lacks the model's name: {form}")


def client_name(name: str) -> str:
    """Return the name under which a run stores the answers of a model. If the model is at several servers, the stored
    name is the part of `name` after the addresses, so that a run can be resumed on other servers."""
    return name.partition("#")[2] if _is_at_addresses(name) and len(addresses(name)) > 1 else name


def _is_at_addresses(name: str) -> bool:
    return any(address.startswith(ADDRESSES) for address in addresses(name))


def is_local(name: str) -> bool:
    """Return whether this is the name of a local model, which runs on this machine."""
    return name == "local" or name.startswith("local:")


def price_of(name: str, prices: Mapping[str, Price], batch: bool = False) -> Pricing:
    """Return the function that prices the calls of the model with this name. The model need not be open. Local models
    and scripts are free. `batch`: the calls are sent in batches. The user's prices are used unchanged."""
    if is_local(name) or name.startswith("scripted:"):
        return pricing(name, lambda usage: 0.0, prices)
    if name.startswith(CLI):
        program, _, model = name.removeprefix(CLI).partition("/")
        return pricing(name, list_price(model, PROGRAMS[program].provider if program in PROGRAMS else program), prices)
    provider, _, model = name.partition(":")
    listed = (lambda usage: None) if name.startswith(ADDRESSES) else list_price(model, provider, batch)
    return pricing(name, listed, prices)
