"""The model server behind the service: its address, its key, and the client with which the service itself learns."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from practicum.core.certificates import require_certificates
from practicum.core.errors import UsageError
from practicum.models.client import Client
from practicum.models.keys import ADDRESSES, addresses, key_for
from practicum.models.registry import LOCAL_OUTPUT, ClientSettings, Models, is_local
from practicum.serve.admission import header_text
from practicum.store.sums import LONGEST_NAME

CONNECT = 10.0
"""Seconds until a connection is made."""

_DROPPED = frozenset({
    "host", "content-length", "connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade",
    "proxy-authorization", "proxy-connection", "accept-encoding", "authorization", "x-api-key", "expect", "cookie",
})  # fmt: skip
"""Headers of a request that are the connection's or hold a key."""

RETURNED = (
    b"content-type", b"content-encoding", b"content-disposition", b"retry-after", b"x-should-retry", b"request-id",
    b"x-request-id", b"openai-", b"x-ratelimit-", b"anthropic-",
)  # fmt: skip
"""How headers of a response begin that are returned to the client."""


WHOLE = 2**20
"""Bytes of a body that is sent at once."""

CHECKED = 2**16
"""Bytes of a body that is decoded to know whether it is JSON. Of a longer one the first and the last byte tell."""

MOST_ENCODINGS = 4
"""Encodings of a body, one in the other, that are taken from it."""

OTHER = "other"
"""The model under which requests are counted whose model is not known."""

LISTED, LIST_BYTES, LIST_SECONDS = 1_000, 2**22, 5.0
"""Models of an upstream that are known, at most; bytes of its list of models, and seconds that it may take."""

_FORM = "application/x-www-form-urlencoded"

_NOT_ADDED = ("User-Agent", "Content-Type")
"""Headers that aiohttp would add where the client sent none."""


@dataclass
class Upstream:
    """A model server. `model` is filled into requests that name none; `name` is that for learning, if it is known;
    `models` are the names of its models that are known beside `model`."""

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
    _session: aiohttp.ClientSession | None = None

    async def start(self) -> None:
        """Open the connections, in the event loop that uses them."""
        self._base = str(URL(self.address))
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT, sock_read=self.timeout)
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=60.0)
        self._session = aiohttp.ClientSession(
            connector=connector, timeout=timeout, auto_decompress=False, cookie_jar=aiohttp.DummyCookieJar()
        )

    def headers(
        self, given: Iterable[tuple[bytes, bytes]], client_key: bool, body: bytes = b""
    ) -> CIMultiDict[str]:  # fmt: skip
        """The headers of a request upstream with this body: the client's, without those of the connection and of
        practicum, and with the key of the service, or with the client's own one."""
        kept = CIMultiDict({"Accept-Encoding": "identity"})
        for raw, value in given:
            name = raw.decode("latin-1")
            own = client_key and name in ("authorization", "x-api-key")
            if own or not (name in _DROPPED or name.startswith(("x-practicum-", "x-forwarded-"))):
                kept.add(name, header_text(value))
        if kept.get("content-type", _FORM).partition(";")[0].strip().lower() == _FORM and _is_json(body):
            # `curl -d` calls every body a form.
            kept["content-type"] = "application/json"
        if self.key and not client_key:
            if self.anthropic:
                kept["x-api-key"] = self.key
                kept.setdefault("anthropic-version", "2023-06-01")
            else:
                kept["authorization"] = f"Bearer {self.key}"
        return kept

    def send(self, method: str, path: str, headers: CIMultiDict[str], body: bytes | None) -> Any:
        """Send a request; `path` begins behind the /v1 of the address, and is sent unchanged. Returns aiohttp's context
        of the response."""
        assert self._session is not None
        # aiohttp sends large bytes at once, and a file in pieces.
        data = BytesIO(body) if body and len(body) > WHOLE else body
        address = URL(f"{self._base}{path}", encoded=True)
        return self._session.request(
            method, address, data=data, headers=headers, allow_redirects=False,
            skip_auto_headers=_NOT_ADDED,
        )  # fmt: skip

    async def list_models(self) -> list[str]:
        """The names of its models, LISTED at most; none if it does not say."""
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
            found = [model["id"] for model in json.loads(body)["data"][:LISTED]]
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError, LookupError, TypeError, RecursionError):
            return []
        return [name for name in found if isinstance(name, str) and 0 < len(name) <= LONGEST_NAME]

    def counted(self, *names: str) -> str:
        """The model under which a request is counted whose model has one of these names: the first that is known.
        Clients may send any name, also one that tells who they are, and counts stay when a user is forgotten."""
        given = [name for name in names if name] or [self.model]
        return next((name for name in given if name == self.model or name in self.models), OTHER)

    async def close(self) -> None:
        """Close connections, and end a model in this process."""
        if self._session is not None:
            await self._session.close()
        if self._models is not None:
            await self._models.close()


def _is_json(body: bytes) -> bool:
    """Whether a body is a JSON object or array."""
    # The first bytes alone: a copy of all takes long.
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
    """A body of a response without its content encoding, as far as it was received. None for an encoding other than
    gzip and deflate, a damaged body, and one of more than `most` bytes."""
    names = [name.strip().lower() for name in encoding.split(",")]
    if len(names) > MOST_ENCODINGS:
        return None
    for name in reversed(names):
        try:
            if name in ("gzip", "x-gzip"):
                body = _inflated(body, most, zlib.MAX_WBITS | 16)
            elif name == "deflate":
                # With a header of zlib, as the standard says, or without one, as some servers do.
                begins = body[:1] and body[0] & 15 == 8 and int.from_bytes(body[:2], "big") % 31 == 0
                body = _inflated(body, most, zlib.MAX_WBITS if begins else -zlib.MAX_WBITS)
            elif name not in ("", "identity"):
                return None
        except (zlib.error, OverflowError):
            return None
    return body


def _inflated(body: bytes, most: int, bits: int) -> bytes:
    """A body without compression. Raises zlib.error, or OverflowError if it has more than `most` bytes."""
    whole = bytearray()
    while body:
        part = zlib.decompressobj(bits)
        whole += part.decompress(body, most + 1 - len(whole))
        if len(whole) > most:
            raise OverflowError
        body = part.unused_data
    return bytes(whole)


def open_upstream(name: str, logs: Path, timeout: float, output_tokens: int | None = None) -> Upstream:
    """The server that a name means: a provider's model, an OpenAI-compatible address with or without the name of a
    model, or a model on this machine, which is started. `output_tokens` limits the answers of that one to requests
    without a limit of their own (default: LOCAL_OUTPUT).

    Raises UsageError or ModelError if the name, the key or the model is wrong.
    """
    if output_tokens is not None and not is_local(name):
        raise UsageError(
            "settings.unused",
            "`max_output_tokens` limits the answers of local models; other servers have limits of their own",
        )
    if len(addresses(name)) > 1:
        raise UsageError(
            "model.not_a_server", f"the upstream {name!r} must be one server: put a load balancer before several"
        )
    if name.startswith(ADDRESSES) and not name.partition("#")[2]:
        address = name.partition("#")[0].rstrip("/")
        if address.startswith("https://"):
            require_certificates()
        return Upstream(address, key_for(address), timeout=timeout)
    if name.startswith("scripted:"):
        raise UsageError(
            "model.not_a_server", "a script answers no requests over HTTP: give the address of a server as the upstream"
        )
    models = Models(ClientSettings(log=logs, output_tokens=output_tokens or LOCAL_OUTPUT))
    client: Any = models.open(name)
    address, small = str(client.model.base_url or "").rstrip("/"), is_local(name)
    if not address:
        raise UsageError(
            "model.not_a_server", f"{name!r} has no address to pass requests to: give http://host:port/v1#NAME"
        )
    anthropic = name.startswith("anthropic:")
    if anthropic and not address.endswith("/v1"):
        address += "/v1"
    model = client.model.model_name
    # A client belongs to the event loop that uses it first: the learner opens its own, except for a local model.
    return Upstream(
        address, client.key, model, name, anthropic, small, timeout, client if small else None, models
    )  # fmt: skip
