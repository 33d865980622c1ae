"""Link to a service (`practicum serve`): requests of wrapped clients are sent to the service."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from practicum.client.blocks import current_block, set_interaction
from practicum.client.http import library, path_suffix
from practicum.client.link import Link, Send, Wait
from practicum.serve.transport import ServiceTransport

_OF_A_KEY = ("authorization", "x-api-key", "api-key")


class ServiceLink(Link):
    """Link to a service. `pass_key`: whether model requests that are sent to the service keep the provider's key."""

    transport: ServiceTransport

    def __init__(self, transport: ServiceTransport, *, pass_key: bool) -> None:
        self._pass_key = pass_key
        super().__init__(transport)

    async def carry(self, request: Any, send: Send, wait: Wait) -> Any:
        """Send a request to the service. If the service cannot be reached, send the request to the provider."""
        redirected = self._redirected(request)
        if redirected is None:
            return await send(request)
        http = library(request)
        try:
            response = await send(redirected)
        except (http.ConnectError, http.ConnectTimeout) as error:
            # No connection was made, so the service did not receive the request, and the provider gets it only once.
            self.warn("requests sent directly to the provider", f"cannot connect to {self.transport.base}: {error}")
            return await send(request)
        if id := response.headers.get("x-practicum-interaction"):
            set_interaction(id)
        return response

    def _redirected(self, request: Any) -> Any:
        """Return a request for the service, made from a request for the provider. None if the service does not handle
        the request (its path is not below /v1)."""
        path, mark, query = request.url.raw_path.decode("ascii").partition("?")
        end = path_suffix(request) or (f"/v1/{path.partition('/v1/')[2]}" if "/v1/" in path else "")
        if not end:
            return None
        current, base = current_block(), self.transport.base
        removed_headers = ("host",) if self._pass_key else ("host", *_OF_A_KEY)
        headers = [
            (name, value) for name, value in request.headers.multi_items() if name.lower() not in removed_headers
        ]
        headers += [("host", urlsplit(base).netloc), *self.transport.headers.items()]
        scope = {"x-practicum-session": current.session, "x-practicum-user": current.user} if current else {}
        headers += [(name, value) for name, value in scope.items() if value is not None]
        url = f"{base}/v1{end.removeprefix('/v1')}{mark}{query}"
        return type(request)(request.method, url, headers=headers, stream=request.stream, extensions=request.extensions)
