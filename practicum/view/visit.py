"""A request for a page: its visitor, its space, and the values of its form and query."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, TypeVar
from urllib.parse import quote, urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from practicum.core.errors import PracticumError, StoreError
from practicum.session.review import count_pending
from practicum.store.database import as_stored
from practicum.view.library import Library
from practicum.view.read import Story
from practicum.view.read.gaps import Gaps
from practicum.view.site import Actions, OperationAnswer, ShownSpace, Visitor

T = TypeVar("T")

DID = {
    "approve": "approved", "reject": "rejected", "edited": "changed", "added": "added", "removed": "removed",
    "live": "live", "back": "taken back", "noted": "saved", "reported": "saved", "withdrawn": "withdrawn",
    "learning": "requested",
}  # fmt: skip
"""Value of the query parameter `did` → wording of the notice on the page."""


class PageServices(Protocol):
    """Services that all pages share: the library of spaces, the actions of a service, threads, and templates.

    `standalone`: whether the pages are written as files. Such a page loads no other file and has no forms."""

    library: Library
    actions: Actions | None
    standalone: bool

    async def run(self, work: Callable[..., T], *args: Any) -> T: ...

    async def page(self, template: str, visit: Visit | None, status: int = 200, **values: Any) -> Response: ...


@dataclass
class Visit:
    """A request for a page.

    `token`: the token for the forms on the page. `began`: the result of `Actions.begin` when the request arrived.
    `form`: the fields of the submitted form. `opened`: the space in the URL. `gaps`: the parts of the page that cannot
    be read."""

    site: PageServices
    request: Request
    visitor: Visitor | None = None
    token: str = ""
    began: int = 0
    form: Mapping[str, str] = field(default_factory=dict)
    opened: ShownSpace | None = None
    gaps: Gaps = field(default_factory=Gaps)

    @property
    def space(self) -> ShownSpace:
        """Space that the page shows."""
        assert self.opened is not None, "the site opens the space before it calls a page"
        return self.opened

    @property
    def name(self) -> str:
        """Name of the space in the URL; empty on a page without a space."""
        return str(self.request.path_params.get("space", ""))

    @property
    def url(self) -> str:
        """URL path of the overview of the space."""
        return f"/s/{quote(self.name, safe='~')}"

    @cached_property
    def story(self) -> Story:
        """Reader of the run in the space."""
        return Story(self.space.store, self.gaps)

    @property
    def partial(self) -> bool:
        """Whether htmx requests a part of a page."""
        return is_partial(self.request)

    @property
    def actions(self) -> Actions:
        """Actions of the service. Use this property only if the site has a service (see `acts`)."""
        assert self.site.actions is not None, "a site without a service has no actions"
        return self.site.actions

    @property
    def acts(self) -> bool:
        """Whether the site has a service. Only then pages have forms."""
        return self.site.actions is not None

    def path_param(self, name: str) -> str:
        """Return a path parameter of the URL."""
        return str(self.request.path_params[name])

    def query_param(self, name: str, most: int = 200) -> str:
        """Return a query parameter, cut to `most` characters; empty if the parameter is missing."""
        return self.request.query_params.get(name, "")[:most]

    def number(self, name: str, text: str | None = None) -> int | None:
        """Parse a query parameter as a number. If `text` is passed, parse `text` in place of the parameter. Returns
        None for a text that is not a number."""
        text = self.query_param(name) if text is None else text
        return int(text) if re.fullmatch(r"[0-9]{1,12}", text) else None

    def path_number(self, name: str) -> int:
        """Parse a path parameter of the URL as a number. Raises HTTPException (404) if the parameter is not a
        number."""
        if (number := self.number(name, self.path_param(name))) is None:
            raise HTTPException(404)
        return number

    @property
    def page_number(self) -> int:
        """Number of the requested page of a list, from 1."""
        text = self.query_param("page")
        return max(int(text), 1) if re.fullmatch(r"[0-9]{1,6}", text) else 1

    @property
    def done(self) -> str:
        """Notice of the action that redirected to this page, from the query; empty if the query names no action. The
        wordings are fixed and the subject is short, so that a link on another site cannot make this page show an
        arbitrary text."""
        did, subject = self.query_param("did"), self.query_param("subject")
        if did not in DID or not re.fullmatch(r"[a-z0-9.\- ]{1,40}", subject, re.IGNORECASE):
            return ""
        return f"{subject} {'is' if did in ('live', 'learning') else 'was'} {DID[did]}"

    async def run(self, work: Callable[..., T], *args: Any) -> T:
        """Run a function that reads the store, in a worker thread of the site. Raises StoreError for damaged rows."""

        def read() -> T:
            if self.opened is None:
                return work(*args)
            with as_stored(self.opened.store.folder):
                return work(*args)

        return await self.site.run(read)

    async def part(self, name: str, work: Callable[..., T], *args: Any) -> T | None:
        """Read a part of a page with `run`. If the part cannot be read, return None and record the part in `gaps`,
        which the page lists."""
        try:
            return await self.run(work, *args)
        except PracticumError as error:
            self.gaps.add(name, error)
            return None

    async def subject(self, name: str, work: Callable[..., T], *args: Any) -> T:
        """Read the subject of a page, such as "the versions", with `run`. If the read fails, the StoreError names the
        subject."""
        try:
            return await self.run(work, *args)
        except StoreError as error:
            raise StoreError(error.code, f"{name} cannot be read: {error}") from error

    async def page(self, template: str, status: int = 200, **values: Any) -> Response:
        """Render a page, or a part of a page."""
        if self.opened is not None and "waits" not in values:
            values["waits"] = await self.part("the reviews", count_pending, self.opened.store) or 0
        return await self.site.page(template, self, status, **{"notice": self.done, **values})

    async def perform(self, operation: str, /, **arguments: Any) -> OperationAnswer:
        """Run an operation of the service as the visitor. Raises the errors of the operation. Arguments that are None
        are left out."""
        assert self.visitor is not None, "only signed-in visitors can submit forms"
        present = {name: value for name, value in arguments.items() if value is not None}
        return await self.actions.perform(self.visitor, self.name, self.began, operation, present)

    def to(self, path: str, **query: Any) -> Response:
        """Redirect to another page after a form was submitted."""
        parameters = urlencode({name: value for name, value in query.items() if value not in (None, "")})
        return RedirectResponse(f"{path}?{parameters}" if parameters else path, 303)


def is_partial(request: Request) -> bool:
    """Whether htmx requests a part of a page."""
    return "hx-request" in request.headers
