"""The link to a service (`practicum serve`)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

from practicum.client.blocks import block, remember
from practicum.client.http import ending, library
from practicum.client.link import Link, Send, Wait
from practicum.core.errors import StoreError, UsageError, received
from practicum.models.keys import require_private

if TYPE_CHECKING:
    import aiohttp

PATIENCE = 10.0
"""Seconds that the service may take to store feedback."""

_OF_A_KEY = ("authorization", "x-api-key", "api-key")


class ServiceLink(Link):
    """A link to the service at an address. `space` is the service's first one, or the one of the key, if it is None."""

    def __init__(self, address: str, space: str | None, key: str | None, pass_key: bool) -> None:
        self.address = address.rstrip("/").removesuffix("/v1")
        if not urlsplit(self.address).hostname:
            raise UsageError(
                "service.invalid_address", f"{address!r} is no address of a service: it has the form http://host:port"
            )
        if key or pass_key:
            require_private(self.address, "the service")
        self._pass_key = pass_key
        self._own = {"x-practicum-space": space} if space else {}
        if key:
            self._own |= {"x-practicum-key": key} if pass_key else {"authorization": f"Bearer {key}"}
        super().__init__()

    async def _open(self) -> None:
        import aiohttp

        self._http: aiohttp.ClientSession = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=PATIENCE), cookie_jar=aiohttp.DummyCookieJar()
        )

    async def _close(self) -> None:
        await self._http.close()

    async def context(self, query: str, session: str | None, user: str | None) -> dict[str, Any]:
        return await self._post("/v1/context", json.dumps({"input": query}).encode(), session, user)

    async def feedback(self, body: bytes, user: str | None) -> dict[str, Any]:
        return await self._post("/v1/feedback", body, None, user)

    async def interactions(self, filters: dict[str, Any]) -> list[dict[str, Any]]:
        query = {name: str(value) for name, value in filters.items()}
        return list((await self._send("GET", f"/v1/interactions?{urlencode(query)}", None, self._own))["interactions"])

    async def carry(self, request: Any, send: Send, wait: Wait) -> Any:
        """The service is sent the request in place of the provider. While it is away, the provider is."""
        ours = self._redirected(request)
        if ours is None:
            return await send(request)
        http = library(request)
        try:
            response = await send(ours)
        except (http.ConnectError, http.ConnectTimeout) as error:
            # No byte of the request was sent, so it is not sent twice.
            self.warn("requests that went to the provider directly", f"{self.address} cannot be reached: {error}")
            return await send(request)
        if id := response.headers.get("x-practicum-interaction"):
            remember(id)
        return response

    def _redirected(self, request: Any) -> Any:
        """The request to the service; None for one that the service does not know, which is none below /v1."""
        path, mark, query = request.url.raw_path.decode("ascii").partition("?")
        end = ending(request) or (f"/v1/{path.partition('/v1/')[2]}" if "/v1/" in path else "")
        if not end:
            return None
        here = block()
        dropped = ("host",) if self._pass_key else ("host", *_OF_A_KEY)
        headers = [(name, value) for name, value in request.headers.multi_items() if name.lower() not in dropped]
        headers += [("host", urlsplit(self.address).netloc), *self._own.items()]
        headers += _asker(here.session, here.user).items() if here else ()
        url = f"{self.address}/v1{end.removeprefix('/v1')}{mark}{query}"
        return type(request)(request.method, url, headers=headers, stream=request.stream, extensions=request.extensions)

    async def _post(self, path: str, body: bytes, session: str | None, user: str | None) -> dict[str, Any]:
        headers = {"content-type": "application/json", **self._own, **_asker(session, user)}
        return await self._send("POST", path, body, headers)

    async def _send(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> dict[str, Any]:
        """The service's answer. Raises UsageError for what it refuses, and StoreError if it cannot do it."""
        import aiohttp

        try:
            async with self._http.request(
                method, self.address + path, data=body, headers=headers, allow_redirects=False
            ) as response:
                status, raw = response.status, await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            said = str(error) or "no answer in time"
            raise StoreError(
                "service.unreachable", f"the service at {self.address} cannot be reached: {said}"
            ) from error
        try:
            reply = json.loads(raw)
            if status == 200:
                return dict(reply)
            code, said, fields = received(reply["error"])
        except (ValueError, KeyError, TypeError, AttributeError):
            code, said, fields = "service.invalid_answer", "this is no answer of practicum serve", {}
        refused = StoreError if status == 200 or status >= 500 else UsageError
        raise refused(code, f"the service at {self.address} answered with {status}: {said}", **fields)


def _asker(session: str | None, user: str | None) -> dict[str, str]:
    given = {"x-practicum-session": session, "x-practicum-user": user}
    return {name: value for name, value in given.items() if value is not None}
