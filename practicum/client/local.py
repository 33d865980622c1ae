"""Link to a store on this machine: this process adds learned text to the requests of wrapped clients."""

from __future__ import annotations

import asyncio
import atexit
import time
from contextlib import suppress
from functools import partial
from typing import Any

from practicum.client.blocks import current_block, set_interaction
from practicum.client.http import collect_body, protocol_of
from practicum.client.link import Link, Send, Wait
from practicum.core.errors import UsageError
from practicum.serve.transport import StoreTransport

EXIT_TIMEOUT = 20.0
"""Timeout for pending writes at the end of the program (s)."""

_REWRITTEN = ("content-length", "accept-encoding")
"""Headers that are replaced when learned text is added to a request: the length changes, and the answer must not be
compressed."""


class StoreLink(Link):
    """Link to a store that this process opens."""

    transport: StoreTransport

    async def _open(self) -> None:
        await super()._open()
        try:
            self._service = await self.transport.open()
        except ImportError as error:
            from practicum.core.requirements import pip_install

            raise UsageError(
                "extra.missing",
                f"a space in a folder needs packages that are not installed: {pip_install('serve')} ({error})",
            ) from error
        atexit.register(self._at_exit)

    async def _close(self) -> None:
        atexit.unregister(self._at_exit)
        await super()._close()

    def _at_exit(self) -> None:
        """Write pending data of a program that ends without calling `close`. `close` itself cannot run at exit, because
        it starts a thread."""

        async def written() -> None:
            async with asyncio.timeout(EXIT_TIMEOUT):
                await asyncio.wrap_future(self._service.database.do(lambda at: None))

        with suppress(Exception):
            self.run(written())

    async def carry(self, request: Any, send: Send, wait: Wait) -> Any:
        """Send a request to the provider with learned text added, and store the interaction."""
        kind = protocol_of(request)
        if kind is None:
            return await send(request)
        from practicum.serve.protocols import Unreadable, read_request
        from practicum.serve.sessions import Caller
        from practicum.session.outcomes import new_id

        start, current = time.monotonic(), current_block()
        session, user = (current.session, current.user) if current else (None, None)
        try:
            parsed = read_request(kind, request.content)
            id, headers_in = new_id(), {name.lower().encode(): value for name, value in request.headers.multi_items()}
            shown = await wait(self._service.show(self.transport.space, parsed, Caller(id, session, user, headers_in)))
            if shown is None:
                # Nothing can be shown. The service has logged the reason.
                return await send(request)
            headers = [pair for pair in request.headers.multi_items() if pair[0].lower() not in _REWRITTEN]
            # The answer is recorded while the caller reads it, so it must not be compressed.
            changed = type(request)(
                request.method, request.url, headers=[*headers, ("accept-encoding", "identity")],
                content=parsed.write(shown.fixed, shown.learned), extensions=request.extensions,
            )  # fmt: skip
        except Unreadable:
            return await send(request)
        except Exception as error:
            # A failure in practicum must not keep the user's agent from its answer.
            self.warn("requests sent unchanged", error)
            return await send(request)
        response = await send(changed)
        if not response.is_success:
            return response
        streaming = "text/event-stream" in response.headers.get("content-type", "")
        response.headers["x-practicum-interaction"] = id
        response.headers["x-practicum-version"] = str(shown.version)
        set_interaction(id)

        def keep(body: bytes) -> None:
            from practicum.serve.protocols import read_answer, read_stream

            answer = read_stream(body) if streaming else read_answer(body)
            if answer is not None and body:
                self._service.recorder.keep(
                    self.transport.space, id, parsed, parsed.query, parsed.steps, shown, answer, user=user,
                    status=response.status_code, seconds=time.monotonic() - start,
                )  # fmt: skip

        collect_body(response, lambda body: self.post(partial(keep, body)))
        return response
