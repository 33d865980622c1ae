"""Wrapped clients of OpenAI's and Anthropic's SDKs, whose requests go over a link.

The SDKs use httpx2; older versions of the SDKs use httpx. Both libraries have the same interface, but their objects
cannot be mixed. Therefore this module creates objects of the library that the wrapped client uses. The HTTP client of
the original client still sends the requests, with its proxies, certificates and limits.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Iterator
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from practicum.client.blocks import set_interaction
from practicum.client.link import Link, Send, Wait, drive
from practicum.core.errors import UsageError

if TYPE_CHECKING:
    from practicum.serve.protocols import Kind

C = TypeVar("C")

_ENDINGS: dict[str, Kind] = {"/chat/completions": "chat", "/responses": "responses", "/v1/messages": "messages"}
"""End of the path of a model request → protocol. The start of the path differs between providers."""


def path_suffix(request: Any) -> str | None:
    """Return the end of the path of a model request; None for other requests."""
    path = request.url.path
    return next((end for end in _ENDINGS if request.method == "POST" and path.endswith(end)), None)


def protocol_of(request: Any) -> Kind | None:
    """Return the protocol of a model request; None for other requests."""
    end = path_suffix(request)
    return None if end is None else _ENDINGS[end]


def library(thing: object) -> ModuleType:
    """Return the library that an object comes from, httpx2 or httpx. Raises UsageError for objects of other
    libraries."""
    for base in type(thing).__mro__:
        if (name := base.__module__.partition(".")[0]) in ("httpx2", "httpx"):
            return sys.modules[name]
    raise UsageError(
        "client.unsupported",
        f"{type(thing).__name__} is not an object of httpx2 or httpx: pass a client that uses httpx2 or httpx",
    )


def wrap(sdk_client: C, link: Link) -> C:
    """Return a copy of an SDK client. The requests of the copy go over a link. Raises UsageError if the object is not a
    client of OpenAI's or Anthropic's SDK."""
    sdk: Any = sdk_client
    if not hasattr(sdk, "with_options") or not hasattr(sdk, "_client"):
        raise UsageError(
            "client.unsupported",
            f"{type(sdk).__name__} cannot be wrapped: pass a client of openai or anthropic, such as OpenAI(). If you "
            "use a framework, give the framework a wrapped client, or the HTTP client from `http_client()`",
        )
    copy: C = sdk.with_options(http_client=client_over(sdk._client, link))
    return copy


def client_over(inner: Any, link: Link) -> Any:
    """Return an HTTP client that has the settings of `inner` and sends its requests over a link."""
    http = library(inner)
    make = http.AsyncClient if hasattr(inner, "aclose") else http.Client
    return make(
        transport=_Transport(inner, link), base_url=inner.base_url, timeout=inner.timeout, trust_env=False,
        follow_redirects=inner.follow_redirects,
    )  # fmt: skip


class _Transport:
    """Transport of a wrapped client: passes requests to the link, which sends them with the original client."""

    def __init__(self, inner: Any, link: Link) -> None:
        self._inner, self._link = inner, link

    def handle_request(self, request: Any) -> Any:
        async def send(request: Any) -> Any:
            return self._inner.send(request, stream=True, follow_redirects=False)

        return drive(self._carry(request, send, self._link.run_blocking))

    async def handle_async_request(self, request: Any) -> Any:
        async def send(request: Any) -> Any:
            return await self._inner.send(request, stream=True, follow_redirects=False)

        return await self._carry(request, send, self._link.wait)

    async def _carry(self, request: Any, send: Send, wait: Wait) -> Any:
        if path_suffix(request):
            # If this call does not become an interaction, a report on this call must not go to the previous
            # interaction.
            set_interaction(None)
        return await self._link.carry(request, send, wait)

    def close(self) -> None:
        self._inner.close()

    async def aclose(self) -> None:
        await self._inner.aclose()

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> None: ...

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def collect_body(response: Any, done: Callable[[bytes], None]) -> None:
    """Collect the body of a response while the caller reads it. At the end of the body, or when the response is
    closed, `done` receives the bytes that were read."""
    response.stream = _collecting(library(response))(response.stream, done)


@cache
def _collecting(http: Any) -> Any:
    """Return a stream class for httpx or httpx2, which only accept their own stream types."""

    class Collecting(http.SyncByteStream, http.AsyncByteStream):  # type: ignore[misc]
        def __init__(self, stream: Any, done: Callable[[bytes], None]) -> None:
            self._stream, self._chunks = stream, list[bytes]()
            self._done: Callable[[bytes], None] | None = done

        def __iter__(self) -> Iterator[bytes]:
            for chunk in self._stream:
                self._chunks.append(chunk)
                yield chunk
            self._end()

        async def __aiter__(self) -> AsyncIterator[bytes]:
            async for chunk in self._stream:
                self._chunks.append(chunk)
                yield chunk
            self._end()

        # The OpenAI client closes a stream after its last event, before the end of the body.
        def close(self) -> None:
            self._stream.close()
            self._end()

        async def aclose(self) -> None:
            await self._stream.aclose()
            self._end()

        def _end(self) -> None:
            done, self._done = self._done, None
            if done is not None:
                done(b"".join(self._chunks))

    return Collecting
