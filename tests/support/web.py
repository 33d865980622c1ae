"""A web server of files, which may refuse, or break off."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@contextmanager
def served(content: dict[str, bytes], *, drops: int = 0, status: int = 200) -> Iterator[tuple[str, list[str]]]:
    """A web server of these files, and the paths it was asked for. It breaks off the first `drops` answers halfway."""
    asked: list[str] = []
    left = [drops]

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

        def do_HEAD(self) -> None:
            self.answer(body=False)

        def do_GET(self) -> None:
            asked.append(self.path)
            self.answer(body=True)

        def answer(self, body: bool) -> None:
            raw = content.get(self.path.partition("?")[0])
            if raw is None or status != 200:
                self.send_error(status if raw is not None else 404)
                return
            whole, start = len(raw), 0
            if requested := self.headers.get("Range"):
                first, _, last = requested.removeprefix("bytes=").partition("-")
                start, raw = int(first), raw[int(first) : int(last) + 1 if last else None]
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {start}-{start + len(raw) - 1}/{whole}")
            else:
                self.send_response(200)
            self.send_header("Accept-Ranges", "bytes")
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            if body:
                broken = left[0] > 0 and len(raw) > 1
                left[0] -= broken
                self.wfile.write(raw[: len(raw) // 2] if broken else raw)
                self.close_connection = self.close_connection or broken

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://user:password@127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
