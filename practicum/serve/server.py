"""Running the service: the model server behind it, the port, and an orderly end."""

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
from practicum.models.keys import ADDRESSES, is_loopback
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
"""Seconds after which a thread that computes lets another one work. With Python's 5 ms, a request that arrives while
the learner computes would wait so long."""

NOTICE = 5
"""Seconds for which new connections are still taken after the signal to stop, if somebody has asked whether the service
is ready: whoever balances the load asks again, and sends requests elsewhere."""

DRAIN = 20
"""Seconds that requests in flight get then. With all that follows it is about the 30 that Kubernetes waits."""

THREADS = 32
"""Threads that read and write beside the event loop. Python's number on two processors is 6, which a few slow reads of
the store would all take."""

Ready = Callable[[str, list[str], list[str]], None]


def run(settings: ServiceSettings, ready: Ready) -> None:
    """Serve until the process is interrupted. `ready` is called with the address, warnings, and the names of the new
    spaces, once requests are answered.

    Raises UsageError, ModelError or StoreError if something does not fit.
    """
    known, prefixes, upstream = read_keys(settings.keys), read_prefixes(settings.passing), settings.upstream
    if not upstream:
        raise UsageError("settings.missing", "give the model server: --upstream NAME", setting="upstream")
    if "#" in upstream or not upstream.startswith(ADDRESSES):
        require_model_name(upstream)
    sock = _bound(settings.host, settings.port)
    lines.set_up("json" in settings.log)
    spans = Spans() if "otel" in settings.log else None
    try:
        make_folder(settings.folder)
    except OSError as error:
        raise StoreError("store.unwritable", f"cannot make the folder {settings.folder}: {error.strerror}") from error
    server = open_upstream(upstream, settings.folder, settings.upstream_timeout, settings.max_output_tokens)
    sys.setswitchinterval(SWITCH)
    allow_many_files()
    uvloop.run(_serve(settings, server, known, prefixes, sock, spans, ready))


async def _serve(
    settings: ServiceSettings, upstream: Upstream, given: Mapping[str, Grant], passing: Sequence[str],
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
                warnings.append("the upstream has no model's name to learn with: write ADDRESS#NAME, or give --learner")
                settings = settings.model_copy(update={"learn": False})
        if spans is not None:
            stack.push_async_callback(asyncio.to_thread, spans.close)
        service = Service(settings, upstream)
        stack.push_async_callback(service.close)
        await service.start()
        keys = Keys(given, service.database, settings.a_minute)
        await keys.refresh()
        if not keys.required and not is_loopback(settings.host):
            raise UsageError(
                "key.not_configured",
                f"on {settings.host} everybody who reaches this machine could use the service: give a key "
                "(practicum key add, or --key), or listen on 127.0.0.1",
            )
        # What the filter loads for its first text would hold up requests.
        await asyncio.to_thread(flags, "a1")
        # What is loaded stays, so collections need not look through it again and again, which takes 50 ms and more.
        gc.collect()
        gc.freeze()
        agents = Agents()
        await stack.enter_async_context(agents.running())
        if isinstance(settings.store, Path):
            try:
                await stack.enter_async_context(listening(service, settings.store))
            except StoreError as error:
                warnings.append(f"practicum mcp cannot reach this service by its store: {error}")
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
        # Requests to models need no page, so they do not wait for this.
        loading = asyncio.create_task(pages.load())
        await server.serve(sockets=[sock])
        await loading


class _Server(uvicorn.Server):
    """A server that says when it answers, and ends in order: the first signal stops it, the second one ends the process
    at once."""

    def __init__(self, config: uvicorn.Config, service: Service, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._service, self._ready = service, ready
        self._until = 0.0

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        # They stay: all that follows is a part of the stop.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self.handle_exit)
        yield

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit:
            # What was acknowledged is on the disk.
            os._exit(128 + sig)
        self._until = time.monotonic() + (NOTICE if self._service.readiness.is_watched else 0)
        self.should_exit = self._service.stopping = True
        if sys.stderr.isatty():
            print(f"stopping; requests in flight get {DRAIN} seconds, and Ctrl-C again ends at once", file=sys.stderr)

    async def on_tick(self, counter: int) -> bool:
        return await super().on_tick(counter) and time.monotonic() >= self._until

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # The learner is cut now, so that requests in flight need not share the processor with it.
        await asyncio.gather(super().shutdown(sockets), asyncio.to_thread(self._service.learner.stop))


def _address(sock: socket.socket) -> str:
    host, port = sock.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def _bound(host: str, port: int) -> socket.socket:
    """A socket at the address. Raises UsageError if it is in use, or is none."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        sock = socket.socket(family, kind)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
    except OSError as error:
        other = "--port" if error.errno in (errno.EADDRINUSE, errno.EACCES) else "--host"
        raise UsageError(
            "server.cannot_listen", f"cannot listen on {host}:{port}: {error.strerror or error}; give another {other}"
        ) from error
    return sock
