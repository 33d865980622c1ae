"""What goes wrong in practicum does not stop the user's agent; what is wrong in its use is said in one line."""

from __future__ import annotations

import socket
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI
from refusals import refused
from serving import asynchronous, serving

from practicum import client
from practicum.client import blocks

CHAT: dict[str, Any] = {"model": "sim", "messages": [{"role": "user", "content": "What about topic 999?"}]}


@pytest.fixture
def silent() -> Iterator[str]:
    """An address where nothing answers."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        yield f"http://127.0.0.1:{sock.getsockname()[1]}"


def test_a_service_that_is_late_is_not_waited_for(silent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "LATE", 0.05)
    with client.open(silent) as space, space.task("Which team?") as t:
        assert t.context == ""


@asynchronous
async def test_what_is_no_service_is_said(world: Any) -> None:
    async def page(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"<html>Sign in</html>"})

    async with client.open(world.provider) as space:
        with refused("service.invalid_answer"):
            await space.feedback("some", score=1.0)
    async with serving(page) as address, client.open(address) as space:
        with refused("service.invalid_answer"):
            await space.feedback("some", score=1.0)


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with refused("store.unwritable"):
        client.open(tmp_path / "file" / "store")


def test_an_agent_goes_on_with_a_store_that_cannot_be_written(tmp_path: Path, world: Any) -> None:
    with client.open(tmp_path / "store") as space:
        with sqlite3.connect(tmp_path / "store" / "service.sqlite") as db:
            db.execute("DROP TABLE outcomes")
        db.close()
        with space.task("Which team?") as t:
            t.report(score=1.0)
        assert t.interaction is not None
        assert t.outcome is None
        assert space.counts == {"reports that were dropped": 1}
        with refused("store.unwritable"):
            space.feedback_sync(t.interaction, score=1.0)
        with space.wrap(OpenAI(base_url=world.provider, api_key="own")) as llm:
            assert llm.chat.completions.create(**CHAT).choices[0].message.content == "Team 0."
