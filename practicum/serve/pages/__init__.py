"""The dashboard: what people see of the service, at `/`.

Pages are forms and links, so they work without JavaScript; a vendored htmx keeps open ones up to date. A page reads the
sums of the service and rows by their indexes, in threads of its own, so that requests to the model do not wait for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from practicum.serve.access import Keys
from practicum.serve.service import Service

THREADS = 1
"""Pages that are read or rendered at a time. A second one would take as much of the processor from requests to models
again, and no page would be quicker on the whole."""


class Pages:
    """The dashboard as an ASGI application. It is loaded when the first page is asked for."""

    def __init__(self, service: Service, keys: Keys) -> None:
        self._service, self._keys = service, keys
        self._threads = ThreadPoolExecutor(THREADS, "practicum-pages")
        self._loading = asyncio.Lock()
        self._site: Any = None

    async def __call__(
        self, scope: Mapping[str, Any], receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
        send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ) -> None:  # fmt: skip
        if self._site is None:
            async with self._loading:
                self._site = self._site or await asyncio.to_thread(self._load)
        await self._site(scope, receive, send)

    def _load(self) -> Any:
        from practicum.serve.pages.site import ServiceSite

        return ServiceSite(self._service, self._keys, self._threads)

    def close(self) -> None:
        """Wait for what is being rendered."""
        self._threads.shutdown()
