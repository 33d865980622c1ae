"""Keys of model servers: each goes to the host that it is for, and to no other.

The key of a provider (`openai:`, `anthropic:`, ...) is read from the environment by pydantic-ai. This module finds the
key for an address that a user wrote, and refuses to send any key over plain HTTP to another machine.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from practicum.core.errors import UsageError
from practicum.core.files import others_may_read
from practicum.core.installation import settings_folder

KEYS_FILE_VARIABLE = "PRACTICUM_KEYS_FILE"
"""An environment variable: the file of keys, by default `practicum/keys.toml` in the folder of the user's settings."""

ADDRESSES = ("http://", "https://")
"""How the name of a model begins that is at an address."""

_FORM = '"HOST" = "env:NAME" or "HOST:PORT" = "KEY"'
_PORTS = {"http": 80, "https": 443}


def key_for(address: str, variable: str | None = None) -> str | None:
    """The key for the server at an address, or None: it is asked without one.

    In this order: the environment variable of this name, the entry of the host in the file of keys, and OPENAI_API_KEY
    for OpenAI's own host or for the one that the user's OPENAI_BASE_URL names. Raises UsageError if the variable is not
    set, the file cannot be used, a key would be sent over plain HTTP to another machine, or the address holds a
    password, which runs and screens would show.
    """
    to = urlsplit(address)
    if "@" in to.netloc:
        raise UsageError(
            "model.unsafe_key",
            f"the address of {to.netloc.rpartition('@')[2]} holds a name or a password, which every run would keep: "
            "leave it out, and give the key with `api_key_env`",
        )
    if variable is not None:
        what, key = variable, _from_environment(variable, f"`api_key_env={variable}`")
    elif (configured := _configured(to)) is not None:
        what, key = f"{keys_file()}'s entry", configured
    elif (to.scheme == "https" and _is_openai(to)) or _origin(to) == _origin(_named_by_environment()):
        what, key = "OPENAI_API_KEY", os.environ.get("OPENAI_API_KEY", "")
    else:
        return None
    if key:
        require_private(address, what)
    return key or None


def require_private(address: str, what: str) -> None:
    """Raise UsageError if a key, named by `what`, would be sent to another machine over plain HTTP."""
    to = urlsplit(address)
    if to.scheme == "http" and not is_loopback(to.hostname or ""):
        raise UsageError(
            "model.unsafe_key",
            f"the key of {what} would go to {to.netloc} over plain http, where everybody on the way can read it: use "
            "https, or a tunnel to a port of this machine (ssh -L). A server that wants no key is named as "
            "http://host:port/v1#NAME, without a key for it",
        )


def require_private_provider(address: str, key: object) -> None:
    """The same for the client of a provider, whose `key` may be a placeholder: one that no variable holds is none."""
    if isinstance(key, str) and key and key in os.environ.values():
        require_private(address, "the provider")


def keys_file() -> Path:
    """The file of keys, which need not exist."""
    if given := os.environ.get(KEYS_FILE_VARIABLE):
        return Path(given).expanduser()
    return settings_folder() / "keys.toml"


def addresses(model: str) -> list[str]:
    """The addresses in the name of a model that is at one or at several, with commas between them."""
    return [address.strip() for address in model.partition("#")[0].split(",")]


def location(address: str) -> tuple[str, str, int | None, str] | None:
    """Where an address leads: scheme, host, port, path. None if it is no address of a server."""
    try:
        to = urlsplit(address)
        scheme, host, port = _origin(to)
    except ValueError:
        return None
    return (scheme, host, port, to.path.rstrip("/")) if host and address.startswith(ADDRESSES) else None


def hosts(models: Iterable[str | None]) -> set[str]:
    """The servers among models, of those that are named by addresses."""
    named = (name for name in models if name and name.startswith(ADDRESSES))
    return {urlsplit(address).netloc for name in named for address in addresses(name)}


def servers(models: Iterable[str | None]) -> set[str]:
    """The servers and the providers among models."""
    named = {name for name in models if name}
    return hosts(named) | {name.partition(":")[0] for name in named if not name.startswith(ADDRESSES)}


def without_keys(text: str, key: str | None) -> str:
    """A text of a server without the key that it was sent, should it quote that."""
    return text.replace(key, "[key]") if key and len(key) >= _SHORTEST_KEY else text


_SHORTEST_KEY = 6
"""Characters of the shortest text that is taken for a key: some servers are given "none" or "EMPTY" as one."""


def _configured(to: SplitResult) -> str | None:
    """The key that the file of keys has for a host; an entry with a port goes before one without."""
    path = keys_file()
    if not path.exists():
        return None
    try:
        if others_may_read(path):
            raise UsageError("file.too_open", f"others can read the keys in {path}: chmod 600 {path}")
        keys = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(
            "file.malformed", f"cannot read the keys in {path}: {error}; its lines have the form {_FORM}"
        ) from error
    port = to.port or _PORTS.get(to.scheme)
    value = keys.get(f"{to.hostname}:{port}", keys.get(to.hostname or ""))
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip():
        raise UsageError(
            "file.malformed", f"the entry of {to.hostname} in {path} is no text: its lines have the form {_FORM}"
        )
    name = value.removeprefix("env:")
    return value if name == value else _from_environment(name, f"the entry of {to.hostname} in {path}")


def _from_environment(variable: str, who: str) -> str:
    if not (key := os.environ.get(variable)):
        raise UsageError(
            "model.no_key",
            f"{who} names the environment variable {variable}, which is not set (export {variable}=...)",
            variable=variable,
        )
    return key


def _is_openai(to: SplitResult) -> bool:
    return to.hostname == "api.openai.com" or (to.hostname or "").endswith(".api.openai.com")


def _named_by_environment() -> SplitResult:
    """The server that the user's environment names in place of OpenAI's: the user's word, who gave the key, too."""
    return urlsplit(os.environ.get("OPENAI_BASE_URL") or "https://api.openai.com/v1")


def _origin(to: SplitResult) -> tuple[str, str | None, int | None]:
    return to.scheme, to.hostname, to.port or _PORTS.get(to.scheme)


def is_loopback(host: str) -> bool:
    """Whether a host is this machine."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
