"""A server of pages for the browser on this machine: it listens on the loopback address and changes nothing.

Any web page can make a browser send requests to this address. So a request is answered only if it names this address
in its Host header, which a foreign name that was pointed here (DNS rebinding) cannot, and no other page may frame,
read or script what is answered.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from practicum.analysis.pages import policy, render
from practicum.core.errors import PracticumError, UsageError

Pages = Callable[[str, Mapping[str, str]], str | None]
"""The page at a path, given the parameters of the query; None if there is no such page."""

SECONDS_TO_ASK = 30


class PageServer(ThreadingHTTPServer):
    """Serves pages on 127.0.0.1; port 0 takes a free one. Raises UsageError if the port is taken."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, pages: Pages, port: int = 0) -> None:
        self.pages = pages
        try:
            super().__init__(("127.0.0.1", port), _Handler)
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or error
            raise UsageError(
                "server.cannot_listen", f"cannot listen on port {port}: {why}; leave out `port` for a free one"
            ) from error
        self.hosts = {f"{name}:{self.server_port}" for name in ("127.0.0.1", "localhost", "[::1]")}

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that leaves before it has the whole page is no failure."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    @property
    def address(self) -> str:
        """Where a browser finds the pages."""
        return f"http://127.0.0.1:{self.server_port}/"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = SECONDS_TO_ASK
    server: PageServer

    def do_GET(self) -> None:
        if self.headers.get_all("Host", []) not in ([host] for host in self.server.hosts):
            self._answer(HTTPStatus.MISDIRECTED_REQUEST, "This address", "answers requests to itself only.")
            return
        try:
            url = urlsplit(self.path)
            page = self.server.pages(unquote(url.path).lstrip("/"), dict(parse_qsl(url.query)))
        except PracticumError as error:
            self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, "This page cannot be shown", str(error))
        except Exception as error:
            bug = f"{type(error).__name__}: {error} (this is a bug in practicum; the address of the page shows where)"
            self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, "This page cannot be shown", bug)
        else:
            if page is None:
                self._answer(HTTPStatus.NOT_FOUND, "There is no such page", "The run may not have come so far yet.")
            else:
                self._send(HTTPStatus.OK, page)

    do_HEAD = do_GET

    def _answer(self, status: HTTPStatus, title: str, text: str) -> None:
        self._send(status, render("view/missing.html", heading=title, text=text))

    def _send(self, status: HTTPStatus, page: str) -> None:
        body = page.encode(errors="replace")
        self.send_response(status)
        for name, value in {
            "Content-Type": "text/html; charset=utf-8",
            "Content-Length": str(len(body)),
            "Content-Security-Policy": f"{policy()}; frame-ancestors 'none'",
            "Cache-Control": "no-store",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Cross-Origin-Opener-Policy": "same-origin",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
            "X-Frame-Options": "DENY",
        }.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """A request is no news."""
