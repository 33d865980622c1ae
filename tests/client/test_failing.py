"""What goes wrong in practicum does not stop the user's agent; what is wrong in its use is said in one line."""

from __future__ import annotations

from typing import Any

from refusals import refused
from serving import asynchronous, serving

from practicum import client


@asynchronous
async def test_what_is_no_service_is_said(world: Any) -> None:
    async def page(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"<html>Sign in</html>"})

    async with client.open(world.provider) as space:
        with refused("service.invalid_answer"):
            await space.feedback("some", score=1.0)
    async with serving(page) as address, client.open(address) as space:
        with refused("service.invalid_answer"):
            await space.feedback("some", score=1.0)
