"""Keys of model servers: a key is sent only to the host that the key is for.

The key of a provider (`openai:`, `anthropic:`, ...) is read from the environment by pydantic-ai. This module looks up
the key for a server that is named by its address, and refuses to send any key over plain HTTP to another machine.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, urlsplit

from practicum.core.errors import UsageError
from practicum.core.files import others_may_read
from practicum.core.installation import settings_folder

KEYS_FILE_VARIABLE = "PRACTICUM_KEYS_FILE"
"""Environment variable with the path of the keys file. Default: `practicum/keys.toml` in the user's settings folder."""

ADDRESSES = ("http://", "https://")
"""Prefixes of a model name that begins with an address."""

SECRET_NAME = re.compile(r"auth|key|token|secret|cookie|password|credential|signature", re.IGNORECASE)
"""Names of headers and of fields in a query whose values are secrets."""

LITELLM_ADDRESSES = ("LITELLM_PROXY_API_BASE", "LITELLM_PROXY_URL")
"""Environment variables with the address of a LiteLLM proxy: the name in LiteLLM's library, and in its command line."""

_AZURE_DEPLOYMENT = "/openai/deployments/"
"""Part of the path of a deployment in Azure OpenAI, which takes a key in the header `api-key`."""

_FORM = '"HOST" = "env:NAME" or "HOST:PORT" = "KEY"'
_PORTS = {"http": 80, "https": 443}


def key_for(address: str, variable: str | None = None) -> str | None:
    """Return the key for the server at an address, or None if the server is called without a key.

    The sources, in this order: the environment variable `variable`, the host's entry in the keys file,
    LITELLM_PROXY_API_KEY for the LiteLLM proxy in the environment, and OPENAI_API_KEY for OpenAI's host or the host in
    OPENAI_BASE_URL. Raises UsageError if the variable is not set, the keys file cannot be used, a key would be sent
    over plain HTTP to another machine, or the address holds a user name, a password or a key, which every run would
    store and show.
    """
    to = urlsplit(address)
    if "@" in to.netloc:
        raise UsageError(
            "model.unsafe_key",
            f"the address of {to.netloc.rpartition('@')[2]} holds a user name or a password, which every run would "
            "store: remove the part before the @, and pass the key with `api_key_env`",
        )
    if secret := next((name for name, _ in parse_qsl(to.query) if SECRET_NAME.search(name)), None):
        raise UsageError(
            "model.unsafe_key",
            f"the address of {to.netloc} holds a secret in its query ({secret}), which every run would store: remove "
            "it, and pass the key with `api_key_env`",
        )
    if variable is not None:
        source, key = variable, _from_environment(variable, f"`api_key_env={variable}`")
    elif (configured := _configured(to)) is not None:
        source, key = f"{keys_file()}'s entry", configured
    elif (proxy := litellm_address()) is not None and _origin(to) == _origin(urlsplit(proxy)):
        source, key = "LITELLM_PROXY_API_KEY", os.environ.get("LITELLM_PROXY_API_KEY", "")
    elif (to.scheme == "https" and _is_openai(to)) or _origin(to) == _origin(_named_by_environment()):
        source, key = "OPENAI_API_KEY", os.environ.get("OPENAI_API_KEY", "")
    else:
        return None
    if key:
        require_private(address, source)
    return key or None


def key_headers(address: str, key: str) -> dict[str, str]:
    """Return the header with the key for the server at an address. A deployment in Azure OpenAI takes a key in
    `api-key`, and a token of Microsoft Entra ID, which is a JSON web token, as all other servers take keys."""
    if _AZURE_DEPLOYMENT in urlsplit(address).path and not key.startswith("eyJ"):
        return {"api-key": key}
    return {"Authorization": f"Bearer {key}"}


def litellm_address() -> str | None:
    """Return the address of the LiteLLM proxy in the environment, or None if no variable names the proxy."""
    address = next(filter(None, map(os.environ.get, LITELLM_ADDRESSES)), "").rstrip("/")
    if not address:
        return None
    return address if urlsplit(address).path else f"{address}/v1"


def without_query(address: str) -> tuple[str, str]:
    """Split an address into the address without its query and without a slash at the end, and the query."""
    base, _, query = address.partition("?")
    return base.rstrip("/"), query


def require_private(address: str, source: str) -> None:
    """Raise UsageError if a key would be sent to another machine over plain HTTP. `source` is the origin of the key,
    for the message."""
    to = urlsplit(address)
    if to.scheme == "http" and not is_loopback(to.hostname or ""):
        raise UsageError(
            "model.unsafe_key",
            f"the key of {source} would be sent to {to.netloc} over plain http, which is not encrypted: use https, or "
            "a tunnel to a port of this machine (ssh -L). If the server needs no key, name the model as "
            "http://host:port/v1#NAME and configure no key for this host",
        )


def require_private_provider(address: str, key: object) -> None:
    """Raise UsageError if a provider's key would be sent to another machine over plain HTTP. A `key` that no
    environment variable holds is a placeholder and is ignored."""
    if isinstance(key, str) and key and key in os.environ.values():
        require_private(address, "the provider")


def keys_file() -> Path:
    """Return the path of the keys file, which need not exist."""
    if path := os.environ.get(KEYS_FILE_VARIABLE):
        return Path(path).expanduser()
    return settings_folder() / "keys.toml"


def addresses(model: str) -> list[str]:
    """Return the comma-separated addresses in the name of a model."""
    return [address.strip() for address in model.partition("#")[0].split(",")]


def location(address: str) -> tuple[str, str, int | None, str, str] | None:
    """Return the scheme, host, port, path and query of a server's address, or None if the text is not such an
    address."""
    try:
        to = urlsplit(address)
        scheme, host, port = _origin(to)
    except ValueError:
        return None
    return (scheme, host, port, to.path.rstrip("/"), to.query) if host and address.startswith(ADDRESSES) else None


def hosts(models: Iterable[str | None]) -> set[str]:
    """Return the hosts (with ports) in the names of models that are named by addresses."""
    names = (name for name in models if name and name.startswith(ADDRESSES))
    return {urlsplit(address).netloc for name in names for address in addresses(name)}


def servers(models: Iterable[str | None]) -> set[str]:
    """Return the hosts of models that are named by addresses, and the providers of all other models."""
    names = {name for name in models if name}
    return hosts(names) | {name.partition(":")[0] for name in names if not name.startswith(ADDRESSES)}


def without_keys(text: str, key: str | None) -> str:
    """Replace the key by "[key]" in a text from a server, because the server may quote the key."""
    return text.replace(key, "[key]") if key and len(key) >= _SHORTEST_KEY else text


_SHORTEST_KEY = 6
"""Minimum length of a key that is replaced (characters). Shorter keys, such as "none" or "EMPTY", are placeholders for
servers without keys."""


def _configured(to: SplitResult) -> str | None:
    """Return the key for a host from the keys file, or None if the file has no entry for the host. An entry for the
    host and the port takes precedence over an entry for the host."""
    path = keys_file()
    if not path.exists():
        return None
    try:
        if others_may_read(path):
            raise UsageError("file.too_open", f"other users can read the keys in {path}: run chmod 600 {path}")
        keys = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(
            "file.malformed", f"cannot read the keys in {path}: {error}; write lines of the form {_FORM}"
        ) from error
    port = to.port or _PORTS.get(to.scheme)
    value = keys.get(f"{to.hostname}:{port}", keys.get(to.hostname or ""))
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip():
        raise UsageError(
            "file.malformed", f"the entry of {to.hostname} in {path} is not a string: write lines of the form {_FORM}"
        )
    name = value.removeprefix("env:")
    return value if name == value else _from_environment(name, f"the entry of {to.hostname} in {path}")


def _from_environment(variable: str, source: str) -> str:
    if not (key := os.environ.get(variable)):
        raise UsageError(
            "model.no_key",
            f"{source} names the environment variable {variable}, which is not set (export {variable}=...)",
            variable=variable,
        )
    return key


def _is_openai(to: SplitResult) -> bool:
    return to.hostname == "api.openai.com" or (to.hostname or "").endswith(".api.openai.com")


def _named_by_environment() -> SplitResult:
    """Return the server that may receive OPENAI_API_KEY: the server in OPENAI_BASE_URL, because the user set both
    variables, or else OpenAI's server."""
    return urlsplit(os.environ.get("OPENAI_BASE_URL") or "https://api.openai.com/v1")


def _origin(to: SplitResult) -> tuple[str, str | None, int | None]:
    return to.scheme, to.hostname, to.port or _PORTS.get(to.scheme)


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
