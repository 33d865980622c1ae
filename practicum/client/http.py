"""Clients of OpenAI's and Anthropic's SDKs whose requests go over a link.

The SDKs use httpx2, and older ones httpx, which have the same interface; the objects of one do not work with the other.
So whatever is made here is made of the library of the client at hand. Its own HTTP client goes on sending the requests,
with its proxies, certificates and limits.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Iterator
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from practicum.client.blocks import remember
from practicum.client.link import Link, Send, Wait, drive
from practicum.core.errors import UsageError

if TYPE_CHECKING:
    from practicum.serve.protocols import Kind

C = TypeVar("C")

_ENDINGS: dict[str, Kind] = {"/chat/completions": "chat", "/responses": "responses", "/v1/messages": "messages"}
"""How paths of requests end into which practicum puts something. Providers differ in what stands before."""


def ending(request: Any) -> str | None:
    """The end of the path of a request that asks a model; None for another request."""
    path = request.url.path
    return next((end for end in _ENDINGS if request.method == "POST" and path.endswith(end)), None)


def kind_of(request: Any) -> Kind | None:
    """The protocol of a request that asks a model; None for another request."""
    end = ending(request)
    return None if end is None else _ENDINGS[end]


def library(thing: object) -> ModuleType:
    """httpx2 or httpx: that which an object is of. Raises UsageError if it is of neither."""
    for base in type(thing).__mro__:
        if (name := base.__module__.partition(".")[0]) in ("httpx2", "httpx"):
            return sys.modules[name]
    raise UsageError("client.unsupported", f"{type(thing).__name__} is no HTTP client of httpx2 or httpx")


def wrap(sdk_client: C, link: Link) -> C:
    """A copy of a client of an SDK whose requests go over a link. Raises UsageError for another object."""
    sdk: Any = sdk_client
    if not hasattr(sdk, "with_options") or not hasattr(sdk, "_client"):
        raise UsageError(
            "client.unsupported",
            f"{type(sdk).__name__} cannot be wrapped: give a client of openai or anthropic, such as OpenAI(); "
            "frameworks take one, or an http client (see Space.http_client)",
        )
    copy: C = sdk.with_options(http_client=over(sdk._client, link))
    return copy


def over(inner: Any, link: Link) -> Any:
    """An HTTP client like `inner`, which sends over a link."""
    http = library(inner)
    make = http.AsyncClient if hasattr(inner, "aclose") else http.Client
    return make(
        transport=_Transport(inner, link), base_url=inner.base_url, timeout=inner.timeout, trust_env=False,
        follow_redirects=inner.follow_redirects,
    )  # fmt: skip


class _Transport:
    """The transport of a client: it gives requests to the link, which sends them by the client that was wrapped."""

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
        if ending(request):
            # A report on a call that became no interaction must not reach the one before.
            remember(None)
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


def collect(response: Any, done: Callable[[bytes], None]) -> None:
    """Collect the body of a response while it is read; `done` gets it at the end, or what was read of it."""
    response.stream = _collecting(library(response))(response.stream, done)


@cache
def _collecting(http: Any) -> Any:
    """The class of the streams; httpx and httpx2 take none but their own."""

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

        # A client of OpenAI closes a stream when its last event says so, before the end of the body.
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
