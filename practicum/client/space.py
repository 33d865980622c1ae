"""An open space: what a program asks it and tells it."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypedDict, TypeVar, Unpack

from practicum.client import http
from practicum.client.blocks import ReportFields, SessionBlock, TaskBlock, body_of, checked
from practicum.client.link import Link
from practicum.client.local import StoreLink
from practicum.client.remote import ServiceLink
from practicum.core.errors import UsageError
from practicum.models.keys import ADDRESSES

if TYPE_CHECKING:
    import httpx2

C = TypeVar("C")


class Filters(TypedDict, total=False):
    """Which interactions are listed: of a session, of a user, answered since a time (seconds since 1970, or a text such
    as 2026-11-27T10:00:00Z), and how many at most (20; up to 200)."""

    session: str | None
    user: str | None
    since: float | str | None
    limit: int


def given(filters: Filters) -> dict[str, Any]:
    """The filters that have a value."""
    return {name: value for name, value in filters.items() if value is not None}


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
        return SpaceClient(ServiceLink(where, space, key, pass_key))
    if key is not None or pass_key:
        raise UsageError(
            "settings.unused",
            f"`key` and `pass_key` are for a service: {str(where)!r} is no address (http://host:port)",
        )
    return SpaceClient(StoreLink(Path(where), space or "default", learner, trust_users, trust_tools))


class SpaceClient:
    """An open space. `async with` or `with` closes it at the end."""

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

    async def feedback(
        self, interaction: str | None = None, *, session: str | None = None, user: str | None = None,
        **said: Unpack[ReportFields],
    ) -> dict[str, Any]:  # fmt: skip
        """Say what came of an interaction, or of a session; it is on the disk when this returns. With a `user`, it is
        that user's word, which waits for review. The interaction may also be the id of the provider's response.

        Raises UsageError for what is no feedback, or about nothing known, and StoreError if it cannot be stored.
        """
        body = body_of(said, interaction=interaction, session=session)
        return await self._link.wait(self._link.feedback(body, checked("user", user)))

    def feedback_sync(
        self, interaction: str | None = None, *, session: str | None = None, user: str | None = None,
        **said: Unpack[ReportFields],
    ) -> dict[str, Any]:  # fmt: skip
        """`feedback` for programs without an event loop."""
        body = body_of(said, interaction=interaction, session=session)
        return self._link.run(self._link.feedback(body, checked("user", user)))

    async def interactions(self, **filters: Unpack[Filters]) -> list[dict[str, Any]]:
        """The last interactions, the newest first: id, at (seconds since 1970), session, session_from, user, status,
        question, answer and version of each. A key needs the role review.

        Raises UsageError for a filter that is wrong, and StoreError if they cannot be read.
        """
        return await self._link.wait(self._link.interactions(given(filters)))

    def interactions_sync(self, **filters: Unpack[Filters]) -> list[dict[str, Any]]:
        """`interactions` for programs without an event loop."""
        return self._link.run(self._link.interactions(given(filters)))

    def wrap(self, sdk_client: C) -> C:
        """A copy of a client of OpenAI or Anthropic, sync or async, whose requests are shown what was learned. Whatever
        goes wrong in practicum, they go on without."""
        return http.wrap(sdk_client, self._link)

    def http_client(self) -> httpx2.Client:
        """An HTTP client for frameworks that make their client of OpenAI themselves and take one."""
        from openai import DefaultHttpxClient

        client: httpx2.Client = http.over(DefaultHttpxClient(), self._link)
        return client

    def async_http_client(self) -> httpx2.AsyncClient:
        """The same for their async client."""
        from openai import DefaultAsyncHttpxClient

        client: httpx2.AsyncClient = http.over(DefaultAsyncHttpxClient(), self._link)
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
