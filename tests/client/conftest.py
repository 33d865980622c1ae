"""A service in a thread of this process, with a simulated model server behind it, and a store without a service."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from serving import served, serving

from practicum import client
from practicum.client import blocks
from practicum.serve import service
from practicum.serve.access import Keys, read_keys
from practicum.serve.app import App
from practicum.testing import Received

KEY = "the-key-of-practicum"


def answer(body: dict[str, Any]) -> str:
    """Which team handles topic N? Team N, but only those who are shown it know."""
    said = json.dumps(body)
    topic = re.findall(r"topic (\d+)\?", said)[-1]
    return f"Team {topic}." if f"Team {topic}." in said else "Team 0."


@pytest.fixture(autouse=True)
def _nothing_asked_yet() -> None:
    """Tests without an event loop share a thread, and so the last interaction."""
    blocks.remember(None)


@dataclass(frozen=True)
class World:
    """The addresses of the model server, of the service, and of one with --pass-key; what the model server received."""

    provider: str
    service: str
    passing: str
    requests: list[Received]
    key: str = KEY


@pytest.fixture(scope="session", autouse=True)
def _patient() -> Iterator[None]:
    """Requests wait for what they are shown: 20 ms are too few for a test beside others."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(service, "LATE", 10.0)
        yield


@pytest.fixture(scope="session")
def world(_patient: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    ready, store = threading.Event(), tmp_path_factory.mktemp("served")
    found: list[tuple[World, asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def main() -> None:
        spaces = ("default", "other")
        async with AsyncExitStack() as stack:
            keys = (KEY, f"other=of-other-{KEY}")
            at = await stack.enter_async_context(served(store, answer, keys=keys, spaces=spaces))
            assert at.service.upstream is not None
            app = App(at.service, at.service.upstream, Keys(read_keys([KEY]), at.service.log), pass_key=True)
            passing = await stack.enter_async_context(serving(app))
            ended = asyncio.Event()
            known = World(at.upstream.url, at.url, passing, at.upstream.requests)
            found.append((known, asyncio.get_running_loop(), ended))
            ready.set()
            await ended.wait()

    thread = threading.Thread(target=asyncio.run, args=(main(),))
    thread.start()
    assert ready.wait(60)
    ((known, loop, ended),) = found
    yield known
    loop.call_soon_threadsafe(ended.set)
    thread.join()


@pytest.fixture(scope="session")
def remote(world: World) -> Iterator[client.Space]:
    with client.open(world.service, key=KEY) as space:
        yield space


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="session")
def local(_patient: None, store: Path) -> Iterator[client.Space]:
    with client.open(store) as space:
        yield space


@pytest.fixture(params=["remote", "local"])
def space(request: pytest.FixtureRequest) -> client.Space:
    """A space, over the service and without it."""
    found: client.Space = request.getfixturevalue(request.param)
    return found
