"""Programs (docs/serve/programs.md): `practicum.client`, against a service and on a folder."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from helpers import asynchronous
from openai import AsyncOpenAI, InternalServerError, OpenAI
from refusals import refused
from service_kit import QUESTION, RIGHT, Client, Service, unique
from service_model import FAULT, UNKNOWN, Model

from practicum import UsageError, client


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[client.SpaceClient]:
    """A space in a folder, without a service."""
    with client.open(tmp_path_factory.mktemp("client") / "store") as space:
        yield space


@pytest.fixture(scope="module")
def remote(plain: Service) -> Iterator[client.SpaceClient]:
    """A space of a service."""
    with client.open(plain.client.url, space=plain.client.new_space().space) as space:
        yield space


@pytest.fixture(params=["remote", "local"], ids=["service", "folder"])
def space(request: pytest.FixtureRequest) -> client.SpaceClient:
    """An open space, of a service and in a folder. The tests of each share it, and use different words."""
    value: client.SpaceClient = request.getfixturevalue(request.param)
    return value


def chat(question: str) -> dict[str, Any]:
    return {"model": "sim", "messages": [{"role": "user", "content": question}]}


def sdk(model: Model, **more: Any) -> OpenAI:
    return OpenAI(base_url=f"{model.base}/v1", api_key="own", max_retries=0, **more)


def corrected(body: dict[str, Any]) -> str:
    """Right if the prompt has the correction."""
    text = json.dumps(body)
    topic = re.findall(r"handles (topic\d+)\?", text)[-1]
    return f"Team {topic}." if f"Team {topic}." in text else UNKNOWN


def test_a_corrected_answer_is_right_the_next_time(space: client.SpaceClient, model: Model) -> None:
    model.answers["Which team handles topic"] = corrected
    with space.wrap(sdk(model)) as llm, space.http_client() as http, sdk(model, http_client=http) as other:
        completions = llm.chat.completions

        def streamed(question: str) -> str:
            chunks = completions.create(**chat(question), stream=True)
            return "".join(chunk.choices[0].delta.content or "" for chunk in chunks)

        ways: tuple[Callable[[str], str | None], ...] = (
            lambda question: completions.create(**chat(question)).choices[0].message.content, streamed,
            lambda question: llm.responses.create(model="sim", input=question).output_text,
            lambda question: other.chat.completions.create(**chat(question)).choices[0].message.content,
        )  # fmt: skip
        for ask in ways:
            topic = unique("topic")
            question = f"Which team handles {topic}?"
            with space.session(topic):
                assert ask(question) == UNKNOWN
                id = client.interaction()
                assert id is not None
                reported = space.report_sync(id, target=f"Team {topic}.")
                assert (reported.interaction, reported.score, reported.correction) == (id, 0.0, "in effect")
                assert ask(question) == f"Team {topic}."
                assert client.interaction() not in (None, id)
            # Neither practicum's key nor its headers reach the provider.
            assert "practicum" not in str(model.received()[-1].headers)


@pytest.mark.slow
@asynchronous
async def test_an_async_client_is_wrapped_too(space: client.SpaceClient, model: Model) -> None:
    topic = unique("topic")
    async with (
        space.wrap(AsyncOpenAI(base_url=f"{model.base}/v1", api_key="own")) as llm,
        space.session(topic, user="u7") as session,
    ):
        # Frameworks run calls in separate tasks.
        await asyncio.create_task(llm.chat.completions.create(**chat(f"What about {topic}?")))
        last = client.interaction()
        session.report(comment=f"Team {topic}.")
    assert session.outcome is not None
    assert (session.outcome.interaction, session.outcome.correction) == (last, "waits for review")
    assert (await space.report(session=topic, score=0.5)).interaction


def test_other_requests_and_errors_of_the_provider_are_not_interactions(
    space: client.SpaceClient, model: Model
) -> None:
    with space.wrap(sdk(model)) as llm, space.session(unique("others")):
        assert [one.id for one in llm.models.list()] == ["sim"]
        assert llm.embeddings.create(model="sim", input="x").data[0].embedding
        assert client.interaction() is None
        llm.chat.completions.create(**chat("one"))
        assert client.interaction() is not None
        with pytest.raises(InternalServerError):
            llm.chat.completions.create(**chat("two"), extra_headers={FAULT: "500"})
        assert client.interaction() is None


@contextmanager
def begun(space: client.SpaceClient, question: str, **names: str) -> Iterator[client.TaskBlock]:
    """A task that has a context. A task waits a second for it and continues without, so on a slow machine it is tried
    again."""
    while True:
        with space.task(question, **names) as task:
            if task.interaction is not None:
                yield task
                return


def test_a_task_has_a_context_and_takes_the_answer_and_a_report(space: client.SpaceClient) -> None:
    question = f"How do I return a {unique('bicycle')}?"
    with begun(space, question) as task:
        assert client.interaction() == task.interaction
        task.answer = "by post"
        task.report(target="in the shop", comment="it is too large")
        assert task.outcome is None
    assert task.outcome is not None
    assert task.outcome.as_json() == {
        "interaction": task.interaction, "status": "kept", "score": 0.0, "correction": "in effect"
    }  # fmt: skip
    with begun(space, question) as again:
        assert "in the shop" in again.context
        assert again.corrections
        assert again.version == task.version
    # Without an answer and a report a task sends nothing. An answer is compared later.
    assert again.outcome is None
    with begun(space, question) as again:
        again.answer = "in the shop"
    assert space.report_sync(again.interaction, target="in the shop").score == 1.0


def test_a_task_inside_a_session_is_of_the_session_and_the_report_of_a_user_waits(space: client.SpaceClient) -> None:
    name, question = unique("ticket"), f"Which {unique('desk')}?"
    with space.session(name), begun(space, question, user="anna") as task:
        task.report(target=RIGHT)
    assert task.outcome is not None
    assert task.outcome.correction == "waits for review"
    assert space.report_sync(session=name, score=1.0).interaction == task.interaction
    with begun(space, question) as again:
        assert RIGHT not in again.context
    # The error of an agent is raised, and its report is sent.
    with pytest.raises(ZeroDivisionError), begun(space, "Divide one by zero.") as failed:  # noqa: PT012
        failed.report(label="thumbs_down")
        raise ZeroDivisionError
    assert failed.outcome is not None
    assert failed.outcome.score == 0.0


def test_a_malformed_or_unknown_report_is_refused(space: client.SpaceClient) -> None:
    for outcome in ({}, {"score": 7.0}, {"target": ""}, {"sore": 1.0}):
        with begun(space, "Is it so?") as task, pytest.raises(UsageError) as refusal:
            task.report(**outcome)
        assert refusal.value.code == "outcome.invalid", outcome
        assert task.outcome is None
    with pytest.raises(UsageError) as refusal:
        space.report_sync("nobody", score=1.0)
    assert refusal.value.code == "interaction.unknown"


def test_an_agent_continues_without_the_service(model: Model) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        away = f"http://127.0.0.1:{server.getsockname()[1]}"
    with client.open(away) as space:
        with space.task("Which team?") as task:
            task.report(score=1.0)
        assert (task.context, task.interaction, task.outcome) == ("", None, None)
        with refused("service.unreachable"):
            space.report_sync("some", score=1.0)
        with space.wrap(sdk(model)) as llm:
            assert llm.chat.completions.create(**chat("x")).choices[0].message.content == UNKNOWN
        assert sum(space.counts.values()) == 3
    assert model.received()[-1].headers["authorization"] == "Bearer own"


def test_a_wrong_key_and_a_forbidden_space_are_errors(locked: Client) -> None:
    key = locked.post("/v1/keys", name=unique("key"), space=locked.space, roles=["ask", "report"])["key"]
    with client.open(locked.url, key=key) as space, space.task("Which team?") as task:
        task.report(target=RIGHT)
    assert task.outcome is not None
    wrong: dict[str, dict[str, str]] = {
        "key.wrong": {"key": "w" * 20}, "key.missing": {}, "key.forbidden": {"key": key, "space": "other"}
    }  # fmt: skip
    # A key is not sent without TLS to another machine.
    with pytest.raises(UsageError):
        client.open("http://practicum.example:8700", key=key)
    for code, options in wrong.items():
        with (
            client.open(locked.url, **options) as space,  # type: ignore[arg-type]
            pytest.raises(UsageError) as refusal,
            space.task("Which team?"),
        ):
            pass
        assert refusal.value.code == code


def test_the_providers_key_is_sent_to_the_service_only_with_pass_key(passing: Service, locked: Client) -> None:
    for service, options in ((passing.client, {"pass_key": True}), (locked, {})):
        key = (service.headers.get("x-practicum-key") or service.headers["authorization"]).removeprefix("Bearer ")
        with client.open(service.url, key=key, **options) as space, space.wrap(sdk(service.model)) as llm:
            llm.chat.completions.create(**chat("x"))
        sent = service.model.received()[-1].headers
        assert sent.get("authorization") == ("Bearer own" if options else None)


def test_a_folder_is_open_once_and_a_closed_space_takes_no_report(tmp_path: Path, model: Model) -> None:
    space = client.open(tmp_path / "store", space="support")
    with space.task(QUESTION) as task:
        task.report(target=RIGHT)
    with pytest.raises(UsageError) as refusal:
        space.wrap("OpenAI()")
    assert refusal.value.code == "client.unsupported"
    with refused("store.busy"):
        client.open(tmp_path / "store")
    with space.wrap(sdk(model)) as llm:
        space.close_sync()
        space.close_sync()
        assert llm.chat.completions.create(**chat("x")).choices[0].message.content == UNKNOWN
    with refused("space.closed"):
        space.report_sync("some", score=1.0)
    # The report holds after the folder is opened again.
    with client.open(tmp_path / "store", space="support") as space, space.task(QUESTION) as again:
        assert (RIGHT in task.context, RIGHT in again.context) == (False, True)
