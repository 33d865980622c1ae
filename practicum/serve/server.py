"""Running the service: the model server behind it, the port, and an orderly end."""

from __future__ import annotations

import gc
import logging
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from typing import Any

import uvicorn
import uvloop

from practicum.core.errors import StoreError, UsageError
from practicum.core.files import allow_many_files
from practicum.models.keys import ADDRESSES, is_loopback
from practicum.models.registry import require_model_name
from practicum.serve.access import Grant, Keys, read_keys
from practicum.serve.app import App
from practicum.serve.pages import Pages
from practicum.serve.service import Service, Settings
from practicum.serve.upstream import Upstream, open_upstream, sole_model

SWITCH = 0.0005
"""Seconds after which a thread that computes lets another one work. With Python's 5 ms, a request that arrives while
the learner computes would wait so long."""

DRAIN = 10
"""Seconds that requests in flight get at the end."""

Ready = Callable[[str, list[str]], None]


def run(
    settings: Settings, upstream: str, host: str, port: int, keys: Sequence[str], a_minute: int | None, pass_key: bool,
    timeout: float, ready: Ready,
) -> None:  # fmt: skip
    """Serve until the process is interrupted. `ready` is told the address, and warnings, once requests are answered.

    Raises UsageError, ModelError or StoreError if something does not fit.
    """
    known = read_keys(keys)
    if "#" in upstream or not upstream.startswith(ADDRESSES):
        require_model_name(upstream)
    sock = _bound(host, port)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s", stream=sys.stderr)
    try:
        settings.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise StoreError(f"cannot make the folder {settings.folder}: {error.strerror}") from error
    server = open_upstream(upstream, settings.folder, timeout)
    sys.setswitchinterval(SWITCH)
    allow_many_files()
    uvloop.run(_serve(settings, server, known, a_minute, pass_key, host, sock, ready))


async def _serve(
    settings: Settings, upstream: Upstream, given: Mapping[str, Grant], a_minute: int | None, pass_key: bool, host: str,
    sock: socket.socket, ready: Ready,
) -> None:  # fmt: skip
    warnings = []
    if settings.learn and not upstream.name and settings.learner is None:
        upstream.model = await sole_model(upstream.address, upstream.key)
        upstream.name = f"{upstream.address}#{upstream.model}" if upstream.model else ""
        if not upstream.name:
            warnings.append("the upstream has no model's name to learn with: write ADDRESS#NAME, or give --learner")
            settings = replace(settings, learn=False)
    await upstream.start()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(upstream.close)
        service = Service(settings, upstream)
        stack.push_async_callback(service.close)
        await service.start()
        keys = Keys(given, service.log, a_minute)
        await keys.refresh()
        if not keys.required and not is_loopback(host):
            raise UsageError(
                f"on {host} everybody who reaches this machine could use the service: give a key (practicum key add, "
                "or --key), or listen on 127.0.0.1"
            )
        # What is loaded stays, so collections need not look through it again and again, which takes 50 ms and more.
        gc.collect()
        gc.freeze()
        pages = Pages(service, keys)
        stack.callback(pages.close)
        app: Any = App(service, upstream, keys, pass_key=pass_key, pages=pages)
        config = uvicorn.Config(
            app, lifespan="off", access_log=False, log_level="warning", server_header=False,
            timeout_graceful_shutdown=DRAIN, timeout_keep_alive=75,
        )  # fmt: skip
        server = _Server(config, lambda: ready(_address(sock), [*warnings, *service.warnings]))
        # It hands the signal on that ended it, once all is closed.
        with suppress(KeyboardInterrupt):
            await server.serve(sockets=[sock])


class _Server(uvicorn.Server):
    """A server that says when it answers."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()


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
        raise UsageError(f"cannot listen on {host}:{port}: {error.strerror or error}; give another --port") from error
    return sock
