"""What goes wrong in practicum does not stop the user's agent; what is wrong in its use is said in one line."""

from __future__ import annotations

import logging
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI, AuthenticationError, InternalServerError, OpenAI
from serving import asynchronous, serving

from practicum import client
from practicum.client import blocks
from practicum.core.errors import StoreError, UsageError

CHAT: dict[str, Any] = {"model": "sim", "messages": [{"role": "user", "content": "What about topic 999?"}]}


@pytest.fixture
def away() -> str:
    """An address where nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return f"http://127.0.0.1:{sock.getsockname()[1]}"


@pytest.fixture
def silent() -> Iterator[str]:
    """An address where nothing answers."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        yield f"http://127.0.0.1:{sock.getsockname()[1]}"


@asynchronous
async def test_an_agent_goes_on_while_the_service_is_away(
    away: str, world: Any, caplog: pytest.LogCaptureFixture
) -> None:  # fmt: skip
    async with client.open(away) as space:
        for _ in range(3):
            async with space.task("Which team?") as t:
                t.answer = "the blue one"
                t.report(score=1.0)
            assert (t.context, t.interaction, t.outcome) == ("", None, None)
        with pytest.raises(StoreError, match="cannot be reached"):
            await space.feedback("some", score=1.0)
        async with space.wrap(AsyncOpenAI(base_url=world.provider, api_key="own", max_retries=0)) as llm:
            before = len(world.requests)
            reply = await llm.chat.completions.create(**CHAT)
        assert reply.choices[0].message.content == "Team 0."
        (sent,) = world.requests[before:]
        assert sent.headers["authorization"] == "Bearer own"
        assert space.counts == {
            "tasks without what was learned": 3, "reports that were dropped": 3,
            "requests that went to the provider directly": 1,
        }  # fmt: skip
    said = [each.message for each in caplog.records if each.name == "practicum.client"]
    # Not of each failure: the first, the second, the fourth.
    assert len(said) == 5
    assert "tasks without what was learned (1 so far): the service at http://127.0.0.1:" in said[0]


def test_a_service_that_is_late_is_not_waited_for(silent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "LATE", 0.05)
    with client.open(silent) as space, space.task("Which team?") as t:
        assert t.context == ""


def test_a_wrong_key_is_said(world: Any) -> None:
    with client.open(world.service, key="wrong-key-of-practicum") as space:
        with pytest.raises(UsageError, match="answered with 401: this key is wrong"), space.task("Which team?"):
            pass
        with pytest.raises(UsageError, match="answered with 401"):
            space.feedback_sync("some", score=1.0)
        with (
            space.wrap(OpenAI(base_url=world.provider, api_key="own")) as llm,
            pytest.raises(AuthenticationError, match="practicum: this key is wrong"),
        ):
            llm.chat.completions.create(**CHAT)
    with client.open(world.service) as space, pytest.raises(UsageError, match="there is no key"), space.task("Who?"):
        pass


def test_a_key_of_another_space_and_an_unknown_space_are_said(world: Any) -> None:
    key = f"of-other-{world.key}"
    with client.open(world.service, key=key) as space, space.task("Which team?") as t:
        t.report(target="the blue one")
    with client.open(world.service, key=world.key, space="other") as space, space.task("Which team?") as t:
        assert "the blue one" in t.context
    with client.open(world.service, key=world.key) as space, space.task("Which team?") as t:
        assert "the blue one" not in t.context
    with (
        client.open(world.service, key=key, space="default") as space,
        pytest.raises(UsageError, match="403: this key is for space other"),
        space.task("Which team?"),
    ):
        pass
    with (
        client.open(world.service, key=world.key, space="nowhere") as space,
        pytest.raises(UsageError, match="404: there is no space 'nowhere'"),
        space.task("Which team?"),
    ):
        pass


@asynchronous
async def test_what_is_no_service_is_said(world: Any) -> None:
    async def page(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"<html>Sign in</html>"})

    async with client.open(world.provider) as space:
        with pytest.raises(UsageError, match="answered with 404: nothing is simulated at /v1/feedback"):
            await space.feedback("some", score=1.0)
    async with serving(page) as address, client.open(address) as space:
        with pytest.raises(StoreError, match="answered with 200: this is no answer of practicum serve"):
            await space.feedback("some", score=1.0)


@pytest.mark.parametrize("passing", [False, True])
def test_the_provider_s_key_goes_to_the_service_only_if_that_is_wanted(passing: bool, world: Any) -> None:
    address = world.passing if passing else world.service
    with (
        client.open(f"{address}/v1/", key=world.key, pass_key=passing) as space,
        space.wrap(OpenAI(base_url=world.provider, api_key="own")) as llm,
    ):
        assert llm.chat.completions.create(**CHAT).choices[0].message.content == "Team 0."
        with space.task("Which team?") as t:
            pass
    assert t.interaction is not None
    assert world.requests[-1].headers.get("authorization") == ("Bearer own" if passing else None)


def test_keys_do_not_go_over_plain_http_to_other_machines() -> None:
    with pytest.raises(UsageError, match="plain http"):
        client.open("http://practicum.example:8700", key="some-key-of-practicum")


def test_other_requests_are_passed_on(space: client.Space, world: Any) -> None:
    with space.wrap(OpenAI(base_url=world.provider, api_key="own")) as llm:
        assert [model.id for model in llm.models.list()] == ["sim"]
        assert len(llm.embeddings.create(model="sim", input="x").data[0].embedding) == 8
    assert client.interaction() is None


def test_an_error_of_the_provider_reaches_the_agent(space: client.Space, world: Any) -> None:
    with space.wrap(OpenAI(base_url=world.provider, api_key="own", max_retries=0)) as llm:
        llm.chat.completions.create(**CHAT)
        assert client.interaction() is not None
        with pytest.raises(InternalServerError, match="simulated"):
            llm.chat.completions.create(**CHAT, extra_headers={"x-sim-fault": "500"})
    # What is reported now is not about the call before.
    assert client.interaction() is None


def test_a_second_program_is_told_that_the_store_is_in_use(local: client.Space, store: Path) -> None:
    with pytest.raises(StoreError, match=r"^another practicum serve or practicum mcp uses the store [^\n]*$"):
        client.open(store)


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"^cannot make the store [^\n]*$"):
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
        with pytest.raises(StoreError, match="cannot write to the store"):
            space.feedback_sync(t.interaction, score=1.0)
        with space.wrap(OpenAI(base_url=world.provider, api_key="own")) as llm:
            assert llm.chat.completions.create(**CHAT).choices[0].message.content == "Team 0."


def test_wrapped_clients_work_after_the_space_is_closed(
    tmp_path: Path, world: Any, caplog: pytest.LogCaptureFixture
) -> None:  # fmt: skip
    space = client.open(tmp_path / "store", space="support")
    with space.wrap(OpenAI(base_url=world.provider, api_key="own")) as llm:
        chunks = llm.chat.completions.create(**CHAT, stream=True)
        space.close_sync()
        space.close_sync()
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "Team 0."
        assert llm.chat.completions.create(**CHAT).choices[0].message.content == "Team 0."
    assert space.counts == {"requests that went on unchanged": 1}
    with pytest.raises(StoreError, match="this space is closed"):
        space.feedback_sync("some", score=1.0)
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]


def test_what_was_reported_is_known_after_opening_again(tmp_path: Path) -> None:
    for known in (False, True):
        with client.open(tmp_path / "store", space="support") as space, space.task("Which team?") as t:
            t.report(target="the blue one")
        assert ("the blue one" in t.context) is known


def test_a_program_that_ends_without_closing_loses_nothing(tmp_path: Path) -> None:
    program = """
import sys
from practicum import client
with client.open(sys.argv[1]).task("Which team?") as t:
    print(t.interaction)
"""
    command = [sys.executable, "-W", "error", "-c", program, str(tmp_path / "store")]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert ended.stderr == ""
    with client.open(tmp_path / "store") as space:
        assert space.feedback_sync(ended.stdout.strip(), score=1.0)["status"] == "kept"


@pytest.mark.parametrize(
    ("where", "given"),
    [
        ("http://127.0.0.1:8700", {"learner": "openai:gpt-4.1-mini"}), ("store", {"key": "some"}),
        ("store", {"pass_key": True}), ("store", {"space": "no/space"}), ("http://", {}),
    ],
    ids=str,
)  # fmt: skip
def test_what_does_not_go_together_is_refused(where: str, given: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        client.open(where if where.startswith("http") else tmp_path / where, **given)


def test_other_objects_cannot_be_wrapped(space: client.Space) -> None:
    with pytest.raises(UsageError, match="str cannot be wrapped: give a client of openai or anthropic"):
        space.wrap("OpenAI()")
