"""Server process of the service: upstream, port, signals and shutdown."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from types import FrameType

import uvicorn
import uvloop

from practicum.core.errors import StoreError, UsageError
from practicum.core.files import allow_many_files, make_folder
from practicum.core.screen import flags
from practicum.models.keys import ADDRESSES, is_loopback, require_private
from practicum.models.prices import priced_models
from practicum.models.registry import require_model_name
from practicum.serve import lines
from practicum.serve.access import Grant, Keys, read_keys
from practicum.serve.app import App
from practicum.serve.connections import Connection
from practicum.serve.local import listening
from practicum.serve.mcp_http import Agents
from practicum.serve.passing import read_prefixes
from practicum.serve.service import Service
from practicum.serve.settings import ServiceSettings
from practicum.serve.site import Pages
from practicum.serve.spans import Spans
from practicum.serve.upstream import Upstream, open_upstream

SWITCH = 0.0005
"""Thread switch interval (s). With Python's default, a request that arrives while the learner computes would wait
5 ms."""

NOTICE = 5
"""Time (s) after the signal to stop during which new connections are still accepted, if a load balancer polls
readiness. In this time, the load balancer polls again, and then sends requests to other nodes."""

DRAIN = 20
"""Time (s) after NOTICE in which requests in flight may finish. The whole shutdown fits into the 30 s that Kubernetes
allows."""

THREADS = 32
"""Number of threads for reads and writes outside the event loop. With Python's default (6 on two processors), a few
slow reads of the store would occupy all threads."""

Ready = Callable[[str, list[str], list[str]], None]


def run(settings: ServiceSettings, ready: Ready) -> None:
    """Serve until the process is interrupted. As soon as the service can answer requests, call `ready` with the address
    of the service, the warnings, and the names of the spaces that were created.

    Raises UsageError, ModelError or StoreError if the settings, the model, the key, the port or the store is invalid.
    """
    keys, prefixes, upstream = read_keys(settings.keys), read_prefixes(settings.passing), settings.upstream
    if not upstream:
        raise UsageError("settings.missing", "no model server: pass --upstream NAME", setting="upstream")
    if "#" in upstream or not upstream.startswith(ADDRESSES):
        require_model_name(upstream)
    with _bound(settings.host, settings.port) as sock:
        lines.set_up("json" in settings.log)
        spans = Spans() if "otel" in settings.log else None
        try:
            make_folder(settings.folder)
        except OSError as error:
            raise StoreError(
                "store.unwritable", f"cannot make the folder {settings.folder}: {error.strerror}"
            ) from error
        server = open_upstream(upstream, settings.folder, settings.upstream_timeout, settings.max_output_tokens)
        if settings.pass_key:
            require_private(server.address, "each client")
        sys.setswitchinterval(SWITCH)
        allow_many_files()
        uvloop.run(_serve(settings, server, keys, prefixes, sock, spans, ready))


async def _serve(
    settings: ServiceSettings, upstream: Upstream, configured: Mapping[str, Grant], passing: Sequence[str],
    sock: socket.socket, spans: Spans | None, ready: Ready,
) -> None:  # fmt: skip
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS, "practicum"))
    warnings = []
    await upstream.start()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(upstream.close)
        listed, priced = await asyncio.gather(
            upstream.list_models(), asyncio.to_thread(priced_models, upstream.address)
        )  # fmt: skip
        upstream.models = frozenset([*listed, *priced])
        if settings.learn and not upstream.name and settings.learner is None:
            upstream.model = listed[0] if len(listed) == 1 else ""
            upstream.name = f"{upstream.address}#{upstream.model}" if upstream.model else ""
            if not upstream.name:
                warnings.append("no model to learn with: pass --upstream ADDRESS#NAME, or --learner NAME")
                settings = settings.model_copy(update={"learn": False})
        if spans is not None:
            stack.push_async_callback(asyncio.to_thread, spans.close)
        service = Service(settings, upstream)
        stack.push_async_callback(service.close)
        await service.start()
        keys = Keys(configured, service.database, settings.per_minute)
        await keys.refresh()
        if not keys.required and not is_loopback(settings.host):
            raise UsageError(
                "key.not_configured",
                f"{settings.host} is reachable from other machines, so a key is required: create a key (practicum key "
                "add), pass --key, or listen on 127.0.0.1",
            )
        # Load the data of the injection filter now, so that no request waits until the data is loaded.
        await asyncio.to_thread(flags, "a1")
        # Exclude the objects loaded so far from garbage collection. Otherwise, a collection would take 50 ms or more.
        gc.collect()
        gc.freeze()
        agents = Agents()
        await stack.enter_async_context(agents.running())
        if isinstance(settings.store, Path):
            try:
                await stack.enter_async_context(listening(service, settings.store))
            except StoreError as error:
                warnings.append(f"practicum mcp cannot reach this service through the folder of the store: {error}")
        pages = Pages(service, keys)
        stack.callback(pages.close)
        app = App(
            service, upstream, keys, pass_key=settings.pass_key, passing=passing, pages=pages, agents=agents,
            spans=spans,
        )  # fmt: skip
        config = uvicorn.Config(
            app, http=Connection, ws="none", lifespan="off", access_log=False, log_config=None, server_header=False,
            timeout_graceful_shutdown=DRAIN, timeout_keep_alive=75,
        )  # fmt: skip
        maker = service.maker
        server = _Server(config, service, lambda: ready(_address(sock), [*warnings, *maker.warnings], maker.created))
        # Load the pages in the background, because requests to models do not need them.
        loading = asyncio.create_task(pages.load())
        await server.serve(sockets=[sock])
        await loading


class _Server(uvicorn.Server):
    """Server that reports when it is ready. The first signal begins an orderly shutdown. The second signal ends the
    process at once."""

    def __init__(self, config: uvicorn.Config, service: Service, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._service, self._ready = service, ready
        self._until = 0.0

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        # Do not restore the previous signal handlers at the end of the block: the rest of the shutdown follows, and a
        # second signal must still end the process.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self.handle_exit)
        yield

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit:
            # No acknowledged data is lost, because all acknowledged data is on disk.
            os._exit(128 + sig)
        self._until = time.monotonic() + (NOTICE if self._service.readiness.is_watched else 0)
        self.should_exit = self._service.stopping = True
        if sys.stderr.isatty():
            print(
                f"stopping; requests in flight have {DRAIN} seconds to finish; press Ctrl-C again to end now",
                file=sys.stderr,
            )

    async def on_tick(self, counter: int) -> bool:
        return await super().on_tick(counter) and time.monotonic() >= self._until

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # Stop the learner now, so that it takes no processor time from requests in flight.
        await asyncio.gather(super().shutdown(sockets), asyncio.to_thread(self._service.learner.stop))


def _address(sock: socket.socket) -> str:
    host, port = sock.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def _bound(host: str, port: int) -> socket.socket:
    """Return a socket bound to `host` and `port`. Raise UsageError if this address is in use or invalid."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        sock = socket.socket(family, kind)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
    except OSError as error:
        option = "--port" if error.errno in (errno.EADDRINUSE, errno.EACCES) else "--host"
        raise UsageError(
            "server.cannot_listen", f"cannot listen on {host}:{port}: {error.strerror or error}; pass another {option}"
        ) from error
    return sock
