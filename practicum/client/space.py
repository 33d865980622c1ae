"""`open` and `SpaceClient`: an open space in a Python program."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar

from practicum.client.blocks import SessionBlock, TaskBlock
from practicum.client.http import client_over, wrap
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
    """Open a space of the service at a URL, or of a store in a folder.

    `space`: name of the space (default: the first space of the service, or "default" in a store).

    For a service: `key`: key of the service. `pass_key`: whether wrapped clients also send the provider's key, which a
    service with --pass-key needs.

    For a store: `learner`: model that learns in the background, such as openai:gpt-4.1-mini; without a learner,
    reported corrections take effect, but nothing else is learned. `trust_users`: whether to trust questions of end
    users like your own tasks. `trust_tools`: whether to trust results of tools. Lessons from text that is not trusted
    wait for `practicum review`.

    Raises UsageError for arguments that cannot be combined, and StoreError if the store cannot be opened. A service is
    not contacted before the first request.
    """
    if isinstance(where, str) and where.startswith(ADDRESSES):
        for name, value in (("learner", learner), ("trust_users", trust_users), ("trust_tools", trust_tools)):
            if value:
                option = name.replace("_", "-")
                raise UsageError(
                    "settings.unused",
                    f"`{name}` is only for a store in a folder: start the service with practicum serve --{option}",
                )
        return SpaceClient(ServiceLink(ServiceTransport(where, space, key, pass_key=pass_key), pass_key=pass_key))
    if re.fullmatch(r"[A-Za-z0-9.-]+:[0-9]{1,5}(/.*)?", str(where)):
        raise UsageError(
            "service.invalid_address", f"{where} is the address of a service without http://: pass http://{where}"
        )
    if key is not None or pass_key:
        raise UsageError(
            "settings.unused",
            f"`key` and `pass_key` are only for a service, but {str(where)!r} is a folder: pass the URL of the service "
            "(http://host:port)",
        )
    return SpaceClient(StoreLink(StoreTransport(
        Path(where), space or "default", learner, trust_users=trust_users, trust_tools=trust_tools
    )))  # fmt: skip


class SpaceClient(OperationMethods):
    """An open space. `async with` or `with` closes it at the end of the block. Each operation is a method (see
    `methods`)."""

    def __init__(self, link: Link) -> None:
        self._link = link

    @property
    def counts(self) -> Counter[str]:
        """Numbers of failures that did not stop the agent, by kind, such as dropped reports."""
        return self._link.counts

    def task(self, input: str, *, user: str | None = None, session: str | None = None) -> TaskBlock:
        """Return a block for a task, for `async with` or `with`. The block has the context for the prompt, and takes
        the answer and a report."""
        return TaskBlock(self._link, input, session, user)

    def session(self, session: str, *, user: str | None = None) -> SessionBlock:
        """Return a block for a session, for `async with` or `with`. All calls of wrapped clients in the block belong to
        the session."""
        return SessionBlock(self._link, session, user)

    def wrap(self, sdk_client: C) -> C:
        """Return a copy of a client of OpenAI or Anthropic, sync or async, that adds learned text to its requests. If
        practicum fails, the requests are sent unchanged."""
        return wrap(sdk_client, self._link)

    def http_client(self) -> httpx2.Client:
        """Return an HTTP client for frameworks that create their OpenAI client themselves and accept an HTTP client."""
        from openai import DefaultHttpxClient

        client: httpx2.Client = client_over(DefaultHttpxClient(), self._link)
        return client

    def async_http_client(self) -> httpx2.AsyncClient:
        """Return an async HTTP client for frameworks, as `http_client` does."""
        from openai import DefaultAsyncHttpxClient

        client: httpx2.AsyncClient = client_over(DefaultAsyncHttpxClient(), self._link)
        return client

    async def close(self) -> None:
        """Write pending data, and close the space. Wrapped clients still work, without learned text."""
        await asyncio.to_thread(self._link.close)

    def close_sync(self) -> None:
        """Close the space from a sync program (see `close`)."""
        self._link.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close_sync()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
