"""The link to a store on this machine: the service without its HTTP face, in this process."""

from __future__ import annotations

import asyncio
import atexit
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from practicum.client.blocks import block, remember
from practicum.client.http import collect, kind_of
from practicum.client.link import Link, Send, Wait
from practicum.core.errors import StoreError, UsageError

if TYPE_CHECKING:
    from practicum.serve.service import Service

PATIENCE = 20.0
"""Seconds that the disk may take to store feedback."""

_REWRITTEN = ("content-length", "accept-encoding")


class StoreLink(Link):
    """A link to a store. With a `learner`, a model's name, what is reported is learned from in the background.
    `trust_users` and `trust_tools` say whose words need not wait for review."""

    def __init__(self, store: Path, space: str, learner: str | None, trust_users: bool, trust_tools: bool) -> None:
        self._store, self._space, self._learner = store, space, learner
        self._trust_users, self._trust_tools = trust_users, trust_tools
        super().__init__()

    async def _open(self) -> None:
        try:
            from practicum.serve.service import Service
            from practicum.serve.settings import ServiceSettings
        except ImportError as error:
            from practicum.core.requirements import pip_install

            raise UsageError("extra.missing", f"a local space needs: {pip_install('serve')} ({error})") from error
        learns = self._learner is not None
        settings = ServiceSettings(
            store=self._store, folder=self._store, spaces=(self._space,), learn=learns, learner=self._learner,
            trust_users=self._trust_users, trust_tools=self._trust_tools,
        )  # fmt: skip
        self._service: Service = Service(settings)
        await self._service.start()
        atexit.register(self._at_exit)

    async def _close(self) -> None:
        atexit.unregister(self._at_exit)
        await self._service.close()

    def _at_exit(self) -> None:
        """Write what a program that ends without closing has asked: at its end, no thread can be started to close."""

        async def written() -> None:
            async with asyncio.timeout(PATIENCE):
                await asyncio.wrap_future(self._service.database.do(lambda at: None))

        with suppress(Exception):
            self.run(written())

    async def context(self, query: str, session: str | None, user: str | None) -> dict[str, Any]:
        return {**await self._service.show_text(self._space, query, session, user)}

    async def feedback(self, body: bytes, user: str | None) -> dict[str, Any]:
        from practicum.serve.reporting import report
        from practicum.session.outcomes import read_report, said_by

        try:
            async with asyncio.timeout(PATIENCE):
                return {**await report(self._service, self._space, read_report(body), said_by(user))}
        except TimeoutError:
            raise StoreError(
                "service.timeout", f"the store {self._store} did not take feedback in {PATIENCE:g} seconds"
            ) from None

    async def interactions(self, filters: dict[str, Any]) -> list[dict[str, Any]]:
        from practicum.serve.operations import Newest, read_form

        asked = read_form(Newest, filters)
        space = await self._service.spaces.opened(self._space)
        found = await self._service.recorder.listed(space, asked.session, asked.user, asked.began, asked.limit)
        return [{**one} for one in found["interactions"]]

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
            shown = await wait(self._service.show(self._space, asked, Caller(id, session, user, own)))
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
                    self._space, id, asked, asked.query, asked.steps, shown, answer, user=user,
                    status=response.status_code, seconds=time.monotonic() - began,
                )  # fmt: skip

        collect(response, lambda body: self.post(partial(keep, body)))
        return response
