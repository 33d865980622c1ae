"""A server of pages for the browser on this machine: it listens on the loopback address and changes nothing.

Any web page can make a browser send requests to this address. So a request is answered only if it names this address
in its Host header, which a foreign name that was pointed here (DNS rebinding) cannot, and no other page may frame,
read or script the answers.
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
    """Serves pages on 127.0.0.1; port 0 takes a free one. Raises UsageError if the port is taken."""

    def __init__(self, folders: Folders, port: int = 0) -> None:
        self._sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._sock.bind(("127.0.0.1", port))
        except (OSError, OverflowError) as error:
            self._sock.close()
            why = getattr(error, "strerror", None) or error
            raise UsageError(
                "server.cannot_listen", f"cannot listen on port {port}: {why}; leave out `port` for a free one"
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
        """Where a browser finds the pages."""
        return f"http://127.0.0.1:{self.port}/"

    def serve(self, ready: Callable[[], None]) -> None:
        """Serve until Ctrl-C, or until `stop`; `ready` is called once requests are answered."""

        async def run() -> None:
            serving = asyncio.create_task(self._server.serve(sockets=[self._sock]))
            # What the first page would wait for.
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
        """Let the server end; it may be called in any thread."""
        self._server.should_exit = True
