"""A simulated server that answers when the test lets it, so that a test can act while certain calls are in flight."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from aiohttp import web
from helpers import AT_ONCE

from practicum.testing.server import ServerOptions, SimulatedServer


class GatedServer:
    """`received` counts the calls that arrived; each waits until `answer` lets it through. Where `refuse` is set, it
    decides in the thread of the server, by the number of a call from 1, how the call fails at once: with a status, or
    never ("hang"); None leaves it to the gate."""

    url: str
    received = 0
    refuse: Callable[[int], int | str | None] | None = None

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._over = asyncio.Event()
        self._permits = asyncio.Semaphore(0)

    def answer(self, calls: int = 10_000) -> None:
        """Answer so many calls, those that wait first."""

        def release() -> None:
            for _ in range(calls):
                self._permits.release()

        self._loop.call_soon_threadsafe(release)

    async def _serve(self, ready: threading.Event) -> None:
        @web.middleware
        async def gate(
            request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
        ) -> web.StreamResponse:
            self.received += 1
            refusal = self.refuse(self.received) if self.refuse else None
            if refusal == "hang":
                await asyncio.Event().wait()
            if isinstance(refusal, int):
                headers = {"Retry-After": "120"} if refusal in (429, 503) else None
                error = {"error": {"message": "not now", "type": "requests", "code": "rate_limit_exceeded"}}
                return web.json_response(error, status=refusal, headers=headers)
            await self._permits.acquire()
            return await handler(request)

        app = SimulatedServer(ServerOptions(**AT_ONCE), None).app()
        app.middlewares.append(gate)
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        ready.set()
        await self._over.wait()
        await runner.cleanup()


@contextmanager
def gated_server() -> Iterator[GatedServer]:
    """Run the server in a thread, for as long as the block lasts."""
    server, ready = GatedServer(), threading.Event()
    thread = threading.Thread(target=lambda: server._loop.run_until_complete(server._serve(ready)))
    thread.start()
    assert ready.wait(30), "the server did not start"
    try:
        yield server
    finally:
        server._loop.call_soon_threadsafe(server._over.set)
        thread.join()
        server._loop.close()
