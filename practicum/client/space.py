"""An open space, in a program that has an agent."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar

from practicum.client.blocks import SessionBlock, TaskBlock
from practicum.client.http import over, wrap
from practicum.client.link import Link
from practicum.client.local import StoreLink
from practicum.client.methods import OperationMethods
from practicum.client.remote import ServiceLink
from practicum.core.errors import UsageError
from practicum.models.keys import ADDRESSES
from practicum.serve.transport import ServiceTransport, StoreTransport

if TYPE_CHECKING:
    import httpx2

C = TypeVar("C")


def open(
    where: str | Path, *, space: str | None = None, key: str | None = None, pass_key: bool = False,
    learner: str | None = None, trust_users: bool = False, trust_tools: bool = False,
) -> SpaceClient:  # fmt: skip
    """Open a space: of the service at an address, or of a store, which is a folder.

    `space` is by default the service's first one, and "default" in a store. `key` is that of the service. Wrapped
    clients send their own key along with `pass_key`, for a service with --pass-key. In a store, `learner` is the model
    that learns in the background (openai:gpt-4.1-mini); without one, corrections hold, and nothing else is learned.
    What is learned from questions of end users, and from results of tools, waits there for `practicum review`, unless
    `trust_users` or `trust_tools` says that they are as trusted as you.

    Raises UsageError if these do not go together, and StoreError if the store cannot be used. Whether a service is
    there shows with the first request.
    """
    if isinstance(where, str) and where.startswith(ADDRESSES):
        for name, value in (("learner", learner), ("trust_users", trust_users), ("trust_tools", trust_tools)):
            if value:
                option = name.replace("_", "-")
                raise UsageError(
                    "settings.unused", f"`{name}` is for a store: a service has its own (practicum serve --{option})"
                )
        return SpaceClient(ServiceLink(ServiceTransport(where, space, key, pass_key=pass_key), pass_key=pass_key))
    if re.fullmatch(r"[A-Za-z0-9.-]+:[0-9]{1,5}(/.*)?", str(where)):
        raise UsageError("service.invalid_address", f"{where} is the address of a service without http:// before it")
    if key is not None or pass_key:
        raise UsageError(
            "settings.unused",
            f"`key` and `pass_key` are for a service: {str(where)!r} is no address (http://host:port)",
        )
    return SpaceClient(StoreLink(StoreTransport(
        Path(where), space or "default", learner, trust_users=trust_users, trust_tools=trust_tools
    )))  # fmt: skip


class SpaceClient(OperationMethods):
    """An open space. `async with` or `with` closes it at the end. Each operation is a method (see `methods`)."""

    def __init__(self, link: Link) -> None:
        self._link = link

    @property
    def counts(self) -> Counter[str]:
        """What failed without stopping the agent: tasks without a context, reports that were dropped, ..."""
        return self._link.counts

    def task(self, input: str, *, user: str | None = None, session: str | None = None) -> TaskBlock:
        """A task, for `async with` or `with`: it has a context for the prompt, and takes the answer and a report."""
        return TaskBlock(self._link, input, session, user)

    def session(self, session: str, *, user: str | None = None) -> SessionBlock:
        """A session, for `async with` or `with`: all calls of wrapped clients inside belong to it."""
        return SessionBlock(self._link, session, user)

    def wrap(self, sdk_client: C) -> C:
        """A copy of a client of OpenAI or Anthropic, sync or async, whose requests are shown what was learned. Whatever
        goes wrong in practicum, they go on without."""
        return wrap(sdk_client, self._link)

    def http_client(self) -> httpx2.Client:
        """An HTTP client for frameworks that make their client of OpenAI themselves and take one."""
        from openai import DefaultHttpxClient

        client: httpx2.Client = over(DefaultHttpxClient(), self._link)
        return client

    def async_http_client(self) -> httpx2.AsyncClient:
        """The same for their async client."""
        from openai import DefaultAsyncHttpxClient

        client: httpx2.AsyncClient = over(DefaultAsyncHttpxClient(), self._link)
        return client

    async def close(self) -> None:
        """Write what is left, and close. Wrapped clients can still be used, and are shown nothing."""
        await asyncio.to_thread(self._link.close)

    def close_sync(self) -> None:
        """`close` for programs without an event loop."""
        self._link.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close_sync()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
