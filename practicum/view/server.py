"""Read-only web server of pages for a browser on this machine. The server listens on the loopback address.

Any web page can make a browser send requests to this server. Therefore the server only answers requests with its own
address in the Host header, which excludes DNS rebinding (a foreign host name that resolves to this machine). The
headers of the responses forbid other pages to frame, read or script the pages of this server.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import uvicorn

from practicum.core.errors import UsageError
from practicum.view.app import Site
from practicum.view.kit import load_templates
from practicum.view.library import Folders


class PageServer:
    """Web server on 127.0.0.1. `port`: the port to listen on; 0: any free port. Raises UsageError if the server cannot
    listen on the port."""

    def __init__(self, folders: Folders, port: int = 0) -> None:
        self._sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._sock.bind(("127.0.0.1", port))
        except (OSError, OverflowError) as error:
            self._sock.close()
            reason = getattr(error, "strerror", None) or error
            raise UsageError(
                "server.cannot_listen", f"cannot listen on port {port}: {reason}; leave out `port` to use a free port"
            ) from error
        self.port = self._sock.getsockname()[1]
        hosts = frozenset(f"{name}:{self.port}" for name in ("127.0.0.1", "localhost", "[::1]"))
        self._threads = ThreadPoolExecutor(1, "practicum-pages")
        config = uvicorn.Config(
            Site(folders, self._threads, hosts=hosts), ws="none", lifespan="off", access_log=False, log_config=None,
            server_header=False, timeout_graceful_shutdown=1,
        )  # fmt: skip
        self._server = uvicorn.Server(config)

    @property
    def address(self) -> str:
        """URL of the first page."""
        return f"http://127.0.0.1:{self.port}/"

    def serve(self, ready: Callable[[], None]) -> None:
        """Serve until Ctrl-C or `stop`. Calls `ready` when the server accepts requests."""

        async def run() -> None:
            serving = asyncio.create_task(self._server.serve(sockets=[self._sock]))
            # Compile the templates now, so that the first page does not wait for the compilation.
            await asyncio.to_thread(load_templates)
            while not self._server.started and not serving.done():  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            ready()
            await serving

        try:
            with suppress(KeyboardInterrupt):
                asyncio.run(run())
        finally:
            self._threads.shutdown(cancel_futures=True)
            self._sock.close()

    def stop(self) -> None:
        """Stop the server. Can be called from any thread."""
        self._server.should_exit = True
