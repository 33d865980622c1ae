"""A simulated server that answers when the test lets it, so that a test can act while certain calls are in flight."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

from serving import serving

from practicum.testing import Receive, Send, SimulatedServer


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
        """Answer this number of calls, in the order of their arrival."""

        def release() -> None:
            for _ in range(calls):
                self._permits.release()

        self._loop.call_soon_threadsafe(release)

    async def _serve(self, ready: threading.Event) -> None:
        server = SimulatedServer()

        async def gate(scope: Any, receive: Receive, send: Send) -> None:
            self.received += 1
            refusal = self.refuse(self.received) if self.refuse else None
            if isinstance(refusal, int):
                headers = [(b"content-type", b"application/json")]
                headers += [(b"retry-after", b"120")] if refusal in (429, 503) else []
                error = {"error": {"message": "not now", "type": "requests", "code": "rate_limit_exceeded"}}
                await send({"type": "http.response.start", "status": refusal, "headers": headers})
                await send({"type": "http.response.body", "body": json.dumps(error).encode()})
            elif refusal == "hang":
                await asyncio.Event().wait()
            else:
                body = [await receive()]
                while body[-1].get("more_body"):
                    body.append(await receive())

                async def again() -> MutableMapping[str, Any]:
                    return body.pop(0) if body else await receive()

                if await self._permitted(receive):
                    await server(scope, again, send)

        async with serving(gate) as address:
            self.url = f"{address}/v1"
            ready.set()
            await self._over.wait()

    async def _permitted(self, receive: Receive) -> bool:
        """Wait for a permit; one whose client goes away takes none."""
        permit, closed = asyncio.ensure_future(self._permits.acquire()), asyncio.ensure_future(receive())
        try:
            await asyncio.wait((permit, closed), return_when=asyncio.FIRST_COMPLETED)
            return permit.done()
        finally:
            permit.cancel()
            closed.cancel()


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
