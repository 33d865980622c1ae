"""The HTTP routes of the operations, made from their table."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from practicum.serve.admission import RequestRefused
from practicum.serve.api import Asked, Operation, perform
from practicum.serve.call import JSON_TYPE, ServedCall
from practicum.serve.operations import OPERATIONS

CALL = "practicum.call"
"""The key of the ServedCall in an ASGI scope."""

PIECE = 2**20
"""Bytes of a long answer that are written at a time."""

AGENT = b"x-practicum-agent"
"""The header of a request in which an agent speaks for itself: what the filter flags in its words waits for review."""

Enter = Callable[[ServedCall], Awaitable[Asked]]
"""Finds out who asks, and where. Raises PracticumError for a request that is refused."""


def operation_routes(enter: Enter) -> list[Route]:
    """A route for each path."""
    by_path = dict[str, dict[str, Operation]]()
    for operation in OPERATIONS.values():
        by_path.setdefault(operation.path, {})[operation.verb] = operation
    return [Route(path, _Operations(verbs, enter)) for path, verbs in by_path.items()]


class _Operations:
    """The operations of one path, by verb, as an ASGI application."""

    def __init__(self, verbs: Mapping[str, Operation], enter: Enter) -> None:
        self._verbs, self._enter = verbs, enter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        call: ServedCall = scope[CALL]
        operation = self._verbs.get(call.method)
        if operation is None:
            raise wrong_verb(call, [*self._verbs])
        call.route = operation.name
        asked = await self._enter(call)
        answer = await perform(operation, asked, await call.arguments())
        call.interaction = getattr(answer, "interaction", None)
        if operation.patience is not None:
            await call.answer(operation.status, answer.as_json())
            return
        # There may be very much of it: it is written in pieces, which do not hold up the event loop.
        body = await asyncio.to_thread(lambda: answer.model_dump_json(exclude_unset=True).encode())
        await call.begin(operation.status, [JSON_TYPE])
        for start in range(0, len(body), PIECE):
            await call.write(body[start : start + PIECE], more=True)
        await call.write(b"")


def wrong_verb(call: ServedCall, verbs: list[str]) -> RequestRefused:
    """The refusal of a verb that a path does not take."""
    allowed = ", ".join(verbs)
    return RequestRefused(
        "request.wrong_verb", f"{call.method} is not for {call.path}: {allowed} is", (b"allow", allowed.encode())
    )
