"""What a client may do to a connection before its request is complete: who may ask is not known until then."""

from __future__ import annotations

import asyncio
import resource
import sys
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

WHOLE = 60.0
"""Seconds within which a request must have arrived, from the connection or from its first byte on."""

MOST_BESIDE = 2**16
"""Bytes of a request beside its body: the line with the address, headers, trailers, and what cuts a body into chunks
beyond the size of the body."""

MOST_OPEN = 10_000
"""Connections that are open at a time; fewer where the process may not open three times as many files."""

_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


def most_open() -> int:
    """Connections that fit: each may take another one to the upstream, and the store needs files, too."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(MOST_OPEN, files // 3) if files > 0 else MOST_OPEN


class Connection(HttpToolsProtocol):
    """A connection whose requests are bounded in size and in time. uvicorn waits for ever for the first request of a
    connection and for the end of each, and reads headers of any size. It reads some requests otherwise than proxies do:
    with trailers, with `Upgrade`, and with an address of another form than /path?query."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._most = most_open()
        self._beside = 0
        self._has_head = self._is_upgrade = False
        self._read = b""
        self._late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait()
        if len(self.connections) > self._most:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._arrived()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        # One read later than it could be known, since a read may hold a part of the body, too.
        if self._beside > MOST_BESIDE:
            if self.cycle is None or self.cycle.response_complete:
                self.transport.write(_TOO_LARGE)
            self.transport.close()
            return
        self._read = data
        super().data_received(data)
        self._beside += len(data)

    def _unsupported_upgrade_warning(self) -> None:
        """Called where the parser has stopped at a request with `Upgrade`, whose body it takes for another protocol's.
        No protocol is changed, so the request is read once more, without that header."""
        stopped = sys.exc_info()[1]
        if not self._is_upgrade or not isinstance(stopped, httptools.HttpParserUpgrade):
            return
        self._is_upgrade = False
        version = self.parser.get_http_version().encode()
        lines = [b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, version)]
        lines += [b"%s: %s" % header for header in self.headers if header[0] != b"upgrade"]
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        super().data_received(b"\r\n".join([*lines, b"", self._read[stopped.args[0] :]]))

    def on_message_begin(self) -> None:
        self._beside = 0
        self._has_head = False
        if self._late is None:
            self._wait()
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        # Trailers are dropped: after the head of a request, nothing may change who sent it.
        if not self._has_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._has_head = True
        if self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT":
            self._is_upgrade = True
            return
        target = self.url
        if self.parser.get_method() == b"CONNECT":
            # Its target is host:port. The application refuses the method.
            self.url = target = b"/"
        super().on_headers_complete()
        # uvicorn would read `//host/path` and `http://host/path` as /path, and would drop `#fragment`.
        self.scope["raw_path"], _, self.scope["query_string"] = target.partition(b"?")

    def on_body(self, body: bytes) -> None:
        # Twice: each byte of a body pays for one that cuts it into chunks.
        self._beside -= 2 * len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self._is_upgrade:
            return
        self._arrived()
        super().on_message_complete()

    def _wait(self) -> None:
        self._late = self.loop.call_later(WHOLE, self._end)

    def _arrived(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _end(self) -> None:
        self._late = None
        if self.pipeline:
            # It is not read any further until the requests before it are answered.
            self._wait()
        else:
            self.transport.close()
