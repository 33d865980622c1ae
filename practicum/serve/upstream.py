"""Model server behind the service: its address, its key, and the client that the service learns with."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from practicum.core.certificates import require_certificates
from practicum.core.errors import UsageError
from practicum.models.client import Client
from practicum.models.keys import ADDRESSES, addresses, key_for, key_headers, without_query
from practicum.models.registry import LOCAL_OUTPUT, ClientSettings, Models, is_local
from practicum.serve.request_checks import header_text
from practicum.store.sums import LONGEST_NAME

CONNECT = 10.0
"""Timeout (s) of an attempt to connect to the model server."""

_DROPPED = frozenset({
    "host", "content-length", "connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade",
    "proxy-authorization", "proxy-connection", "accept-encoding", "authorization", "x-api-key", "api-key", "expect",
    "cookie",
})  # fmt: skip
"""Headers of a request that are not sent to the upstream, because they belong to the connection or contain a key."""

RETURNED = (
    b"content-type", b"content-encoding", b"content-disposition", b"retry-after", b"x-should-retry", b"request-id",
    b"x-request-id", b"openai-", b"x-ratelimit-", b"anthropic-",
)  # fmt: skip
"""Prefixes of the names of the headers of an upstream response that the service sends on to the client."""


WHOLE = 2**20
"""Largest size (bytes) of a body that is sent in one piece."""

CHECKED = 2**16
"""Largest size (bytes) of a body that is decoded to check that it is JSON. For a larger body, only the first and
the last byte are checked."""

MOST_ENCODINGS = 4
"""Largest number of nested encodings of a body that are decoded."""

OTHER = "other"
"""Name under which metrics count the requests to unknown models."""

LISTED, LIST_BYTES, LIST_SECONDS = 1_000, 2**22, 5.0
"""Limits of the upstream's list of models: number of models, size (bytes) and timeout (s)."""

_FORM = "application/x-www-form-urlencoded"

_NOT_ADDED = ("User-Agent", "Content-Type")
"""Headers that aiohttp must not add to an upstream request if the client did not send them."""


@dataclass
class Upstream:
    """Model server. `model` is filled into requests that name no model; `name` is the model for learning, or empty if
    no such model is known; `models` are the names of the server's other known models."""

    address: str
    key: str | None = field(repr=False)
    model: str = ""
    name: str = ""
    anthropic: bool = False
    small: bool = False
    timeout: float = 600.0
    client: Client | None = None
    models: frozenset[str] = field(default=frozenset(), kw_only=True)
    _models: Models | None = None
    _base: str = ""
    _query: str = ""
    _session: aiohttp.ClientSession | None = None

    async def start(self) -> None:
        """Open the HTTP session. Call this method in the event loop that uses the session."""
        base, self._query = without_query(self.address)
        self._base = str(URL(base))
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT, sock_read=self.timeout)
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=60.0)
        self._session = aiohttp.ClientSession(
            connector=connector, timeout=timeout, auto_decompress=False, cookie_jar=aiohttp.DummyCookieJar()
        )

    def headers(
        self, incoming: Iterable[tuple[bytes, bytes]], client_key: bool, body: bytes = b""
    ) -> CIMultiDict[str]:  # fmt: skip
        """Return the headers of an upstream request with this body: the client's headers (`incoming`), without headers
        of the connection and of practicum, and with the upstream's key, or with `client_key` the client's own key."""
        headers = CIMultiDict({"Accept-Encoding": "identity"})
        for raw, value in incoming:
            name = raw.decode("latin-1")
            own = client_key and name in ("authorization", "x-api-key", "api-key")
            if own or not (name in _DROPPED or name.startswith(("x-practicum-", "x-forwarded-"))):
                headers.add(name, header_text(value))
        if headers.get("content-type", _FORM).partition(";")[0].strip().lower() == _FORM and _is_json(body):
            # `curl -d` declares every body as a form.
            headers["content-type"] = "application/json"
        if self.key and not client_key:
            if self.anthropic:
                headers["x-api-key"] = self.key
                headers.setdefault("anthropic-version", "2023-06-01")
            else:
                headers.update(key_headers(self.address, self.key))
        return headers

    def send(self, method: str, path: str, headers: CIMultiDict[str], body: bytes | None) -> Any:
        """Send a request. `path` is relative to the /v1 of the address, and is sent unchanged, with the query of the
        address appended. Return aiohttp's context manager for the response."""
        assert self._session is not None
        if self._query:
            path += f"{'&' if '?' in path else '?'}{self._query}"
        # aiohttp sends bytes in one write, and a file in pieces.
        data = BytesIO(body) if body and len(body) > WHOLE else body
        address = URL(f"{self._base}{path}", encoded=True)
        return self._session.request(
            method, address, data=data, headers=headers, allow_redirects=False,
            skip_auto_headers=_NOT_ADDED,
        )  # fmt: skip

    async def list_models(self) -> list[str]:
        """Return the names of the server's models, at most LISTED. Return an empty list if the server does not list its
        models."""
        body = bytearray()
        try:
            async with (
                asyncio.timeout(LIST_SECONDS),
                self.send("GET", "/models", self.headers((), False), None) as response,
            ):
                async for chunk in response.content.iter_any():
                    body += chunk
                    if len(body) > LIST_BYTES:
                        return []
            names = [model["id"] for model in json.loads(body)["data"][:LISTED]]
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError, LookupError, TypeError, RecursionError):
            return []
        return [name for name in names if isinstance(name, str) and 0 < len(name) <= LONGEST_NAME]

    def counted(self, *names: str) -> str:
        """Return the first of these names that is a known model, else OTHER. Without names, use the default model.
        Counters have only known models: clients may send any name, even a user's name, and counters stay when the
        user's data is deleted."""
        candidates = [name for name in names if name] or [self.model]
        return next((name for name in candidates if name == self.model or name in self.models), OTHER)

    async def close(self) -> None:
        """Close the connections, and stop a model in this process."""
        if self._session is not None:
            await self._session.close()
        if self._models is not None:
            await self._models.close()


def _is_json(body: bytes) -> bool:
    """Return whether a body looks like a JSON object or array."""
    # Strip only the first bytes, because `lstrip` would copy the whole body.
    if body[:CHECKED].lstrip()[:1] not in (b"{", b"["):
        return False
    if len(body) > CHECKED:
        return body[-CHECKED:].rstrip()[-1:] in (b"}", b"]")
    try:
        json.loads(body)
    except (ValueError, RecursionError):
        return False
    return True


def decoded(body: bytes, encoding: str, most: int) -> bytes | None:
    """Return the received part of a response's body, without its content encoding. None if the encoding is not gzip or
    deflate, if the body is damaged, or if the decoded body has more than `most` bytes."""
    names = [name.strip().lower() for name in encoding.split(",")]
    if len(names) > MOST_ENCODINGS:
        return None
    for name in reversed(names):
        try:
            if name in ("gzip", "x-gzip"):
                body = _inflated(body, most, zlib.MAX_WBITS | 16)
            elif name == "deflate":
                # The body begins with a zlib header, as the standard requires, or has no header, as from some servers.
                begins = body[:1] and body[0] & 15 == 8 and int.from_bytes(body[:2], "big") % 31 == 0
                body = _inflated(body, most, zlib.MAX_WBITS if begins else -zlib.MAX_WBITS)
            elif name not in ("", "identity"):
                return None
        except (zlib.error, OverflowError):
            return None
    return body


def _inflated(body: bytes, most: int, bits: int) -> bytes:
    """Return a body without compression. Raise zlib.error, or OverflowError if the result has more than `most`
    bytes."""
    whole = bytearray()
    while body:
        part = zlib.decompressobj(bits)
        whole += part.decompress(body, most + 1 - len(whole))
        if len(whole) > most:
            raise OverflowError
        body = part.unused_data
    return bytes(whole)


def open_upstream(name: str, logs: Path, timeout: float, output_tokens: int | None = None) -> Upstream:
    """Return the model server that a name selects: a provider's model, an OpenAI-compatible address with or without the
    name of a model, or a model on this machine, which is started. `output_tokens` is the default limit of answers of a
    model on this machine; None means LOCAL_OUTPUT.

    Raises UsageError or ModelError if the name, the key or the model is invalid.
    """
    if output_tokens is not None and not is_local(name):
        raise UsageError(
            "settings.unused",
            "`max_output_tokens` only applies to local models: leave the setting out, and set the limit at the server",
        )
    if len(addresses(name)) > 1:
        raise UsageError(
            "model.not_a_server", f"the upstream {name!r} has several addresses: put a load balancer in front of them"
        )
    if name.startswith(ADDRESSES) and not name.partition("#")[2]:
        address = name.partition("#")[0]
        if address.startswith("https://"):
            require_certificates()
        return Upstream(address, key_for(address), timeout=timeout)
    if name.startswith("scripted:"):
        raise UsageError(
            "model.not_a_server", "a script cannot answer requests over HTTP: pass the address of a server as upstream"
        )
    models = Models(ClientSettings(log=logs, output_tokens=output_tokens or LOCAL_OUTPUT))
    client: Any = models.open(name)
    address, small, anthropic = _address(client), is_local(name), name.startswith("anthropic:")
    if not address:
        raise UsageError(
            "model.not_a_server", f"{name!r} has no address with OpenAI's protocols: pass http://host:port/v1#NAME"
        )
    if anthropic and not address.endswith("/v1"):
        address += "/v1"
    model = client.model.model_name
    # A client belongs to the event loop that uses it first, so the learner opens another client, except for a local
    # model.
    return Upstream(
        address, client.key, model, name, anthropic, small, timeout, client if small else None, models
    )  # fmt: skip


def _address(client: Any) -> str:
    """Return the address of a model's server, or an empty text if the server has neither OpenAI's nor Anthropic's
    protocol."""
    from openai import AsyncAzureOpenAI, AsyncOpenAI

    if client.endpoint.startswith(ADDRESSES):
        return str(client.endpoint).rstrip("/")
    sdk, address = getattr(client.model, "client", None), str(client.model.base_url or "").rstrip("/")
    if isinstance(sdk, AsyncAzureOpenAI):
        return f"{address}/deployments/{client.model.model_name}?{urlencode(sdk.default_query)}"
    return address if isinstance(sdk, AsyncOpenAI) or client.endpoint == "anthropic" else ""
