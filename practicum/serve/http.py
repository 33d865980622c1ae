"""HTTP routes of the operations."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from practicum.serve.api import Operation, OperationCall, perform
from practicum.serve.call import JSON_TYPE, ServedCall
from practicum.serve.operations import OPERATIONS
from practicum.serve.request_checks import RequestRefused

CALL = "practicum.call"
"""Name of the entry of an ASGI scope that has the ServedCall of the request."""

PIECE = 2**20
"""Size (bytes) of the pieces in which a long answer is sent."""

AGENT = b"x-practicum-agent"
"""Header of requests that an agent, not a person, decided to make. Text in such a request waits for review if the
injection filter flags the text."""

Enter = Callable[[ServedCall], Awaitable[OperationCall]]
"""Function that authenticates a call. Raises PracticumError if the call is refused."""


def operation_routes(enter: Enter) -> list[Route]:
    """Return a route for each path of the operations."""
    by_path = dict[str, dict[str, Operation]]()
    for operation in OPERATIONS.values():
        by_path.setdefault(operation.path, {})[operation.verb] = operation
    return [Route(path, _Operations(verbs, enter)) for path, verbs in by_path.items()]


class _Operations:
    """ASGI application for the operations of one path, by verb."""

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
        # The answer may be large: encode it in a thread and send it in pieces, so that the event loop is not blocked.
        body = await asyncio.to_thread(lambda: answer.model_dump_json(exclude_unset=True).encode())
        await call.begin(operation.status, [JSON_TYPE])
        for start in range(0, len(body), PIECE):
            await call.write(body[start : start + PIECE], more=True)
        await call.write(b"")


def wrong_verb(call: ServedCall, verbs: list[str]) -> RequestRefused:
    """Return the error for a verb that a path does not support."""
    allowed = ", ".join(verbs)
    return RequestRefused(
        "request.wrong_verb", f"{call.path} does not support {call.method}: use {allowed}", (b"allow", allowed.encode())
    )
