"""The link to a store on this machine: requests of wrapped clients get what was learned in this process."""

from __future__ import annotations

import asyncio
import atexit
import time
from contextlib import suppress
from functools import partial
from typing import Any

from practicum.client.blocks import block, remember
from practicum.client.http import collect, kind_of
from practicum.client.link import Link, Send, Wait
from practicum.core.errors import UsageError
from practicum.serve.transport import StoreTransport

PATIENCE = 20.0
"""Seconds that the disk may take at the end of the program."""

_REWRITTEN = ("content-length", "accept-encoding")


class StoreLink(Link):
    """A link to a store, which this process opens."""

    transport: StoreTransport

    async def _open(self) -> None:
        await super()._open()
        try:
            self._service = await self.transport.open()
        except ImportError as error:
            from practicum.core.requirements import pip_install

            raise UsageError("extra.missing", f"a local space needs: {pip_install('serve')} ({error})") from error
        atexit.register(self._at_exit)

    async def _close(self) -> None:
        atexit.unregister(self._at_exit)
        await super()._close()

    def _at_exit(self) -> None:
        """Write what a program that ends without closing has asked: at its end, no thread can be started to close."""

        async def written() -> None:
            async with asyncio.timeout(PATIENCE):
                await asyncio.wrap_future(self._service.database.do(lambda at: None))

        with suppress(Exception):
            self.run(written())

    async def carry(self, request: Any, send: Send, wait: Wait) -> Any:
        """The request goes to the provider with what was learned, and what it answers is kept."""
        kind = kind_of(request)
        if kind is None:
            return await send(request)
        from practicum.serve.protocols import Unreadable, read_request
        from practicum.serve.sessions import Caller
        from practicum.session.outcomes import new_id

        began, here = time.monotonic(), block()
        session, user = (here.session, here.user) if here else (None, None)
        try:
            asked = read_request(kind, request.content)
            id, own = new_id(), {name.lower().encode(): value for name, value in request.headers.multi_items()}
            shown = await wait(self._service.show(self.transport.space, asked, Caller(id, session, user, own)))
            if shown is None:
                # The service has logged why.
                return await send(request)
            headers = [pair for pair in request.headers.multi_items() if pair[0].lower() not in _REWRITTEN]
            # The answer is read while it passes, so it must not be compressed.
            changed = type(request)(
                request.method, request.url, headers=[*headers, ("accept-encoding", "identity")],
                content=asked.write(shown.fixed, shown.learned), extensions=request.extensions,
            )  # fmt: skip
        except Unreadable:
            return await send(request)
        except Exception as error:
            # Whatever is wrong here, the user's agent has to get its answer.
            self.warn("requests that went on unchanged", error)
            return await send(request)
        response = await send(changed)
        if not response.is_success:
            return response
        streaming = "text/event-stream" in response.headers.get("content-type", "")
        response.headers["x-practicum-interaction"] = id
        response.headers["x-practicum-version"] = str(shown.version)
        remember(id)

        def keep(body: bytes) -> None:
            from practicum.serve.protocols import read_answer, read_stream

            answer = read_stream(body) if streaming else read_answer(body)
            if answer is not None and body:
                self._service.recorder.keep(
                    self.transport.space, id, asked, asked.query, asked.steps, shown, answer, user=user,
                    status=response.status_code, seconds=time.monotonic() - began,
                )  # fmt: skip

        collect(response, lambda body: self.post(partial(keep, body)))
        return response
