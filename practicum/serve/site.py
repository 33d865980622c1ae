"""Pages of the service: the site of `practicum.view`, with the actions (such as sign-in and edits) that need a running
service."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from practicum.core.context import Context
from practicum.core.edits import Entry
from practicum.core.errors import ErrorBody, PracticumError
from practicum.core.forms import read_form
from practicum.models.prices import Pricing, address_price
from practicum.serve.access import Forbidden, Grant, Keys
from practicum.serve.answers import Answer
from practicum.serve.api import Operation, OperationCall, perform
from practicum.serve.operations import OPERATIONS, Listing, find_entries
from practicum.serve.replies import error_answer, status_of
from practicum.serve.service import Service
from practicum.serve.space import ServedSpace
from practicum.session.corrections import Correction

THREADS = 1
"""Number of pages that are read or rendered at a time. A second thread would take processor time from requests to
models without making pages faster."""


class Pages:
    """Pages as an ASGI application. `load` loads the site; without a call of `load`, the first request for a page loads
    the site."""

    def __init__(self, service: Service, keys: Keys) -> None:
        self._service, self._keys = service, keys
        self._threads = ThreadPoolExecutor(THREADS, "practicum-pages")
        self._loading = asyncio.Lock()
        self._site: Any = None

    async def __call__(
        self, scope: Mapping[str, Any], receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
        send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ) -> None:  # fmt: skip
        await self.load()
        await self._site(scope, receive, send)

    async def load(self) -> None:
        """Load the site and its templates, unless they are loaded already."""
        if self._site is None:
            async with self._loading:
                self._site = self._site or await asyncio.to_thread(self._load)

    def _load(self) -> Any:
        from practicum.view.app import Site
        from practicum.view.kit import load_templates
        from practicum.view.library import SpacesOf

        load_templates()
        actions = ServiceActions(self._service, self._keys)
        return Site(SpacesOf(self._service.database), self._threads, actions)

    def close(self) -> None:
        """End the thread that renders pages, after the page that is being rendered is finished."""
        self._threads.shutdown()


class ServiceActions:
    """Implementation of `view.site.Actions`: functions of the service that pages call."""

    def __init__(self, service: Service, keys: Keys) -> None:
        self._service, self._keys = service, keys
        self.form_token, self.is_form_token = keys.form_token, keys.is_form_token
        self.sign_out = keys.sign_out

    @property
    def required(self) -> bool:
        return self._keys.required

    @property
    def learning(self) -> tuple[bool, str]:
        return self._service.settings.learn, self._service.learner.status

    def begin(self) -> int:
        return self._service.spaces.endings

    async def visitor(self, cookie: str) -> Grant | None:
        grant = await self._keys.signed_in(cookie)
        return grant if grant is not None and grant.may("review") else None

    async def sign_in(self, key: str, address: str) -> str:
        grant = await self._keys.grant(key, address)
        if not grant.may("review"):
            raise Forbidden(
                "key.forbidden",
                f"the key {grant.name} is for programs ({', '.join(grant.named)}): sign in with a key that has the "
                "role review or admin",
            )
        return await self._keys.sign_in(key, address)

    async def space(self, name: str, visitor: Grant, began: int) -> ServedSpace:
        if visitor.space not in ("", name):
            raise Forbidden("key.forbidden", f"your key is limited to the space {visitor.space}")
        return await self._service.spaces.current(name, began, visitor)

    async def search(
        self, space: ServedSpace, text: str, section: str, skip: int, limit: int
    ) -> tuple[Sequence[Entry], int]:
        form = read_form(Listing, {"search": text, "section": section, "skip": skip, "limit": limit})
        return await find_entries(space.reader.retriever, space.context(space.live), form)

    async def show_again(
        self, space: ServedSpace, interaction: Mapping[str, Any], context: Context, corrections: Sequence[Correction]
    ) -> tuple[str, bool]:
        fixed, learned, entries = await space.show_again(interaction["question"], context, corrections)
        turns = [f"user: {turn.user}\nassistant: {turn.assistant}" for turn in learned.turns]
        same = [id for id, _ in entries] == [id for id, _ in interaction["entries"]]
        text = "\n\n".join(filter(None, (fixed, learned.note, *turns)))
        return text, same and len(corrections) == len(interaction["corrections"])

    async def follow(self, space: ServedSpace) -> None:
        await space.follow_corrections()

    async def perform(
        self, visitor: Any, space: str, began: int, operation: str, arguments: Mapping[str, Any]
    ) -> Answer:
        asked = OperationCall(self._service, self._keys, _person(visitor), space, began)
        return await perform(OPERATIONS[operation], asked, arguments)

    def operations(self, visitor: Any) -> Sequence[Operation]:
        if visitor is None:
            return []
        person = _person(visitor)
        return [one for one in OPERATIONS.values() if person.may(one.role) and not (one.whole and person.space)]

    def operation(self, visitor: Any, name: str) -> Operation | None:
        if (one := OPERATIONS.get(name)) is None or visitor is None:
            return None
        one.require(_person(visitor))
        return one

    def price(self, model: str) -> Pricing:
        """Return the price of a model at the upstream. A model on this machine is free."""
        upstream = self._service.upstream
        if upstream is None or upstream.small:
            return lambda usage: 0.0
        return address_price(model, upstream.address)

    def status(self, error: PracticumError) -> tuple[int, Mapping[str, str]]:
        status, headers = status_of(error)
        return status, {name.decode(): value.decode() for name, value in headers}

    def answer(self, path: str, status: int, error: ErrorBody) -> dict[str, Any]:
        return error_answer(path, status, error)

    def count(self, counter: str) -> None:
        self._service.counts[counter] += 1


def _person(visitor: Grant) -> Grant:
    """Return the grant of a visitor with the roles `ask` and `report` added. On the pages, the role `review` includes
    these two roles."""
    return replace(visitor, roles=visitor.roles | {"ask", "report"})
