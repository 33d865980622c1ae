"""A visit of a page: who asks, in which space, and what the form or the query says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar
from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from practicum.serve.access import Grant, Keys
from practicum.serve.api import Asked, perform
from practicum.serve.operations import OPERATIONS
from practicum.serve.service import Service
from practicum.serve.space import ServedSpace
from practicum.session.review import count_pending

T = TypeVar("T")


class PageServices(Protocol):
    """What all pages share: the service with its keys, threads that read, and templates."""

    service: Service
    keys: Keys

    async def run(self, work: Callable[..., T], *given: Any) -> T: ...

    async def page(self, template: str, visit: Visit | None, status: int = 200, **values: Any) -> Response: ...


@dataclass
class Visit:
    """A request for a page: who asks, in which space, and what the form or the query says."""

    site: PageServices
    request: Request
    grant: Grant
    token: str
    endings: int
    """`Service.endings` when the request came."""
    form: Mapping[str, str] = field(default_factory=dict)
    known: ServedSpace | None = None

    @property
    def opened(self) -> ServedSpace:
        """The space."""
        assert self.known is not None, "entering a page of a space opens it"
        return self.known

    @property
    def service(self) -> Service:
        return self.site.service

    @property
    def space(self) -> str:
        return str(self.request.path_params.get("space", ""))

    @property
    def url(self) -> str:
        """Where the pages of the space begin."""
        return f"/s/{quote(self.space)}"

    @property
    def partial(self) -> bool:
        """Whether a part of a page is asked for, by htmx."""
        return is_partial(self.request)

    def asked(self, name: str, most: int = 200) -> str:
        """A parameter of the query."""
        return self.request.query_params.get(name, "")[:most]

    async def run(self, work: Callable[..., T], *given: Any) -> T:
        """The result of a function, in a thread of the pages."""
        return await self.site.run(work, *given)

    async def page(self, template: str, status: int = 200, **values: Any) -> Response:
        """A page, or a part of one."""
        if self.space and "waits" not in values:
            values["waits"] = await self.run(count_pending, self.known.store) if self.known else 0
        return await self.site.page(template, self, status, **values)

    async def perform(self, operation: str, /, **given: Any) -> dict[str, Any]:
        """Do an operation of the service in the name of the person who is signed in. Someone who may review may also
        report outcomes, and keep notes. Raises what it raises."""
        grant = replace(self.grant, roles=self.grant.roles | {"ask", "report"})
        asked = Asked(self.service, self.site.keys, grant, self.space, self.endings)
        given = {name: value for name, value in given.items() if value is not None}
        return (await perform(OPERATIONS[operation], asked, given)).as_json()

    def to(self, path: str, **query: Any) -> Response:
        """Show another page after a form was sent."""
        asked = urlencode({name: value for name, value in query.items() if value not in (None, "")})
        return RedirectResponse(f"{path}?{asked}" if asked else path, 303)


def is_partial(request: Request) -> bool:
    """Whether a part of a page is asked for, by htmx."""
    return "hx-request" in request.headers
