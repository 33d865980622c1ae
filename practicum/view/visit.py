"""A visit of a page: who asks, in which space, and the values of the form or the query."""

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
    "live": "live", "back": "taken back", "noted": "kept", "reported": "kept", "withdrawn": "withdrawn",
    "learning": "asked for",
}  # fmt: skip
"""What a page may say was done, by a word in its address."""


class PageServices(Protocol):
    """What all pages share: where spaces are, what a service adds, threads that read, and templates. `alone`: pages are
    files, which load nothing and send no form."""

    library: Library
    actions: Actions | None
    alone: bool

    async def run(self, work: Callable[..., T], *given: Any) -> T: ...

    async def page(self, template: str, visit: Visit | None, status: int = 200, **values: Any) -> Response: ...


@dataclass
class Visit:
    """A request for a page."""

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
        """The space of the page."""
        assert self.opened is not None, "entering a page of a space opens it"
        return self.opened

    @property
    def name(self) -> str:
        """The name of the space in the address; empty on a page of no space."""
        return str(self.request.path_params.get("space", ""))

    @property
    def url(self) -> str:
        """The address of the space's first page."""
        return f"/s/{quote(self.name, safe='~')}"

    @cached_property
    def story(self) -> Story:
        """What can be read of the run in the space."""
        return Story(self.space.store, self.gaps)

    @property
    def partial(self) -> bool:
        """Whether a part of a page is asked for, by htmx."""
        return is_partial(self.request)

    @property
    def actions(self) -> Actions:
        """What the service adds. Only forms of a service come here."""
        assert self.site.actions is not None, "a site without a service has no forms"
        return self.site.actions

    @property
    def acts(self) -> bool:
        """Whether the page has forms."""
        return self.site.actions is not None

    def given(self, name: str) -> str:
        """A part of the address."""
        return str(self.request.path_params[name])

    def asked(self, name: str, most: int = 200) -> str:
        """A parameter of the query."""
        return self.request.query_params.get(name, "")[:most]

    def number(self, name: str, text: str | None = None) -> int | None:
        """A number in the query, or in a text; None if there is none."""
        text = self.asked(name) if text is None else text
        return int(text) if re.fullmatch(r"[0-9]{1,12}", text) else None

    def path_number(self, name: str) -> int:
        """A number in the address of the page. Raises HTTPException for something else."""
        if (found := self.number(name, self.given(name))) is None:
            raise HTTPException(404)
        return found

    @property
    def page_number(self) -> int:
        """The number of a page of a list."""
        text = self.asked("page")
        return max(int(text), 1) if re.fullmatch(r"[0-9]{1,6}", text) else 1

    @property
    def done(self) -> str:
        """What was done just now, by words in the address. Another site cannot make a page say something else."""
        did, what = self.asked("did"), self.asked("what")
        if did not in DID or not re.fullmatch(r"[a-z0-9.\- ]{1,40}", what, re.IGNORECASE):
            return ""
        return f"{what} {'is' if did in ('live', 'learning') else 'was'} {DID[did]}"

    async def run(self, work: Callable[..., T], *given: Any) -> T:
        """The result of a function that reads, in a thread of the pages. Raises StoreError for damaged rows."""

        def read() -> T:
            if self.opened is None:
                return work(*given)
            with as_stored(self.opened.store.folder):
                return work(*given)

        return await self.site.run(read)

    async def part(self, name: str, work: Callable[..., T], *given: Any) -> T | None:
        """The same for a part of a page; None for one that cannot be read, which the page names."""
        try:
            return await self.run(work, *given)
        except PracticumError as error:
            self.gaps.add(name, error)
            return None

    async def subject(self, name: str, work: Callable[..., T], *given: Any) -> T:
        """The same for what the page is about, such as "the versions". Raises StoreError that names it."""
        try:
            return await self.run(work, *given)
        except StoreError as error:
            raise StoreError(error.code, f"{name} cannot be read: {error}") from error

    async def page(self, template: str, status: int = 200, **values: Any) -> Response:
        """A page, or a part of one."""
        if self.opened is not None and "waits" not in values:
            values["waits"] = await self.part("the reviews", count_pending, self.opened.store) or 0
        return await self.site.page(template, self, status, **{"said": self.done, **values})

    async def perform(self, operation: str, /, **given: Any) -> OperationAnswer:
        """Do an operation of the service in the name of the visitor. Raises what it raises."""
        assert self.visitor is not None, "forms are sent by visitors who are signed in"
        wanted = {name: value for name, value in given.items() if value is not None}
        return await self.actions.perform(self.visitor, self.name, self.began, operation, wanted)

    def to(self, path: str, **query: Any) -> Response:
        """Show another page after a form was sent."""
        asked = urlencode({name: value for name, value in query.items() if value not in (None, "")})
        return RedirectResponse(f"{path}?{asked}" if asked else path, 303)


def is_partial(request: Request) -> bool:
    """Whether a part of a page is asked for, by htmx."""
    return "hx-request" in request.headers
