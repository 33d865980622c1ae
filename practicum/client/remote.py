"""The link to a service (`practicum serve`): requests of wrapped clients go to it."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from practicum.client.blocks import block, remember
from practicum.client.http import ending, library
from practicum.client.link import Link, Send, Wait
from practicum.serve.transport import ServiceTransport

_OF_A_KEY = ("authorization", "x-api-key", "api-key")


class ServiceLink(Link):
    """A link to a service. `pass_key`: requests to models keep the key of the provider."""

    transport: ServiceTransport

    def __init__(self, transport: ServiceTransport, *, pass_key: bool) -> None:
        self._pass_key = pass_key
        super().__init__(transport)

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
            self.warn("requests that went to the provider directly", f"{self.transport.base} is away: {error}")
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
        here, base = block(), self.transport.base
        dropped = ("host",) if self._pass_key else ("host", *_OF_A_KEY)
        headers = [(name, value) for name, value in request.headers.multi_items() if name.lower() not in dropped]
        headers += [("host", urlsplit(base).netloc), *self.transport.headers.items()]
        named = {"x-practicum-session": here.session, "x-practicum-user": here.user} if here else {}
        headers += [(name, value) for name, value in named.items() if value is not None]
        url = f"{base}/v1{end.removeprefix('/v1')}{mark}{query}"
        return type(request)(request.method, url, headers=headers, stream=request.stream, extensions=request.extensions)
