"""A simulated user of a browser, who keeps cookies and sends the forms of pages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import unescape
from http.cookies import SimpleCookie
from urllib.parse import urlencode

from serving import Served


@dataclass
class Page:
    """A page that was read."""

    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def token(self) -> str:
        """The token of its forms."""
        match = re.search(r'name="token" value="([^"]+)"', self.text)
        assert match, self.text
        return match[1]

    @property
    def words(self) -> str:
        """Its text."""
        return unescape(" ".join(re.sub(r"<[^>]+>", " ", self.text).split()))


@dataclass
class Person:
    """A visitor of the pages of a service."""

    at: Served
    cookies: dict[str, str] = field(default_factory=dict)
    page: Page | None = None

    async def get(self, path: str, **headers: str) -> Page:
        self.page = await self._send("GET", path, headers)
        return self.page

    async def post(self, path: str, headers: Mapping[str, str] | None = None, **fields: str) -> Page:
        """Send a form of the page that was read last."""
        token = {} if "token" in fields or self.page is None else {"token": self.page.token}
        return await self._send("POST", path, headers or {}, urlencode({**token, **fields}))

    async def sign_in(self, key: str) -> Page:
        await self.get("/sign-in")
        return await self.post("/sign-in", key=key)

    async def _send(self, method: str, path: str, headers: Mapping[str, str], body: str | None = None) -> Page:
        cookie = (
            {"cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items())} if self.cookies else {}
        )
        kind = {"content-type": "application/x-www-form-urlencoded"} if body is not None else {}
        sent_headers = {**cookie, **kind, **headers}
        sent = self.at.http.request(
            method, self.at.url + path, headers=sent_headers, data=body, allow_redirects=False,
            skip_auto_headers=("accept",),
        )  # fmt: skip
        async with sent as response:
            for each in response.headers.getall("set-cookie", []):
                for name, morsel in SimpleCookie(each).items():
                    self.cookies[name] = morsel.value
                    if not morsel.value:
                        del self.cookies[name]
            return Page(response.status, response.headers, await response.text())
