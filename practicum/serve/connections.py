"""Limits of a connection until a request is complete, because the sender is not authenticated before that."""

from __future__ import annotations

import asyncio
import resource
import sys
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

WHOLE = 60.0
"""Time limit (s) for a request to arrive. For the first request of a connection, the time begins with the connection;
for a later request, with the request's first byte."""

MOST_BESIDE = 2**16
"""Largest size (bytes) of a request without its body: request line, headers and trailers. The framing of the body's
chunks counts only if the framing is larger than the body, and then only the excess."""

MOST_OPEN = 10_000
"""Largest number of open connections. `most_open` returns a lower limit if the process may open few files."""

_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


def most_open() -> int:
    """Return the largest number of open connections: MOST_OPEN, or a third of the files that the process may open if
    that is less. Each connection may need a second connection to the upstream, and the store needs files too."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(MOST_OPEN, files // 3) if files > 0 else MOST_OPEN


class Connection(HttpToolsProtocol):
    """Connection with limits of the size and time of requests. uvicorn waits without a time limit for the first request
    and for the end of each request, and reads headers of any size. uvicorn also reads some requests differently than
    proxies do: requests with trailers, with `Upgrade`, or with a target that is not /path?query."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._most = most_open()
        self._head = 0
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
        # Check the size of the earlier data only: bodies in `data` are subtracted from the size when `data` is parsed.
        if self._head > MOST_BESIDE:
            if self.cycle is None or self.cycle.response_complete:
                self.transport.write(_TOO_LARGE)
            self.transport.close()
            return
        self._read = data
        super().data_received(data)
        self._head += len(data)

    def _unsupported_upgrade_warning(self) -> None:
        """Parse a request with the header `Upgrade` again, without this header. uvicorn calls this method when the
        parser has stopped at the header and takes the body for another protocol. The service never switches
        protocols."""
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
        self._head = 0
        self._has_head = False
        if self._late is None:
            self._wait()
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        # Drop trailers, so that they cannot replace headers that identify the sender.
        if not self._has_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._has_head = True
        if self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT":
            self._is_upgrade = True
            return
        target = self.url
        if self.parser.get_method() == b"CONNECT":
            # The target of CONNECT is host:port. The application refuses the method.
            self.url = target = b"/"
        super().on_headers_complete()
        # uvicorn would read `//host/path` and `http://host/path` as /path, and drop `#fragment`.
        self.scope["raw_path"], _, self.scope["query_string"] = target.partition(b"?")

    def on_body(self, body: bytes) -> None:
        # Subtract twice the size of the body, because the framing of its chunks may have the same size.
        self._head -= 2 * len(body)
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
            # The sender is not late: uvicorn reads no further until earlier requests of the connection are answered.
            self._wait()
        else:
            self.transport.close()
