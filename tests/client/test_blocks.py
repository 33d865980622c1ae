"""Tasks and sessions: what they show, whose calls belong to them, and when reports are sent."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from openai import AsyncOpenAI, OpenAI
from refusals import refused
from serving import asynchronous

from practicum import client
from practicum.core.errors import UsageError


def chat(question: str) -> dict[str, Any]:
    return {"model": "sim", "messages": [{"role": "user", "content": question}]}


@asynchronous
async def test_an_agent_with_its_own_prompt_is_shown_a_correction(space: client.Space) -> None:
    question = "How do I return a bicycle?"
    async with space.task(question) as t:
        assert t.input == question
        assert client.interaction() == t.interaction
        t.answer = "by post"
        t.report(target="in the shop", comment="it is too large")
        assert t.outcome is None
    assert t.outcome == {
        "interaction": t.interaction, "status": "kept", "score": 0.0, "correction": "in effect"
    }  # fmt: skip
    async with space.task(question) as again:
        assert "in the shop" in again.context
        assert "in the shop" not in t.context
        assert again.corrections
        assert again.version == t.version


def test_a_program_without_an_event_loop_does_the_same(space: client.Space) -> None:
    question = "When does the museum open?"
    with space.task(question) as t:
        t.answer = "at eleven"
        t.report(correction="It opens at ten.")
    with space.task(question) as again:
        assert "It opens at ten." in again.context
    assert client.interaction() == again.interaction


def test_a_later_target_is_compared_with_the_answer_of_the_task(space: client.Space) -> None:
    with space.task("What is the capital of Chad?") as t:
        t.answer = "N'Djamena"
    assert t.outcome is not None
    assert space.feedback_sync(t.interaction, target="N'Djamena")["score"] == 1.0


@pytest.mark.parametrize("answer", ["", "x" * 30_000, 42, {"team": "blue"}], ids=["none", "long", "number", "object"])
def test_an_answer_may_be_anything(answer: object, space: client.Space) -> None:
    with space.task("What may it be?") as t:
        t.answer = answer
        t.report(score=1.0)
    assert t.outcome is not None
    assert t.outcome["score"] == 1.0


def test_a_task_without_an_answer_or_a_report_sends_nothing(space: client.Space) -> None:
    with space.task("What is it?") as t:
        pass
    assert t.interaction is not None
    assert t.outcome is None


def test_a_report_is_sent_and_the_error_of_the_agent_is_seen(space: client.Space) -> None:
    with suppress(ZeroDivisionError), space.task("What is one by zero?") as t:
        t.report(label="thumbs_down")
        raise ZeroDivisionError
    assert t.outcome is not None
    assert t.outcome["score"] == 0.0


@pytest.mark.parametrize(
    "said", [{}, {"score": None}, {"score": 7.0}, {"target": ""}, {"sore": 1.0}, {"score": object()}], ids=range(6)
)
def test_what_is_no_report_is_refused_where_it_is_made(said: Any, space: client.Space) -> None:
    with space.task("Is it so?") as t, refused("outcome.invalid"):
        t.report(**said)
    assert t.outcome is None
    with refused("outcome.invalid"):
        space.feedback_sync(t.interaction, **said)


def test_feedback_on_something_unknown_is_refused(space: client.Space) -> None:
    with refused("interaction.unknown"):
        space.feedback_sync("nobody", score=1.0)
    with refused("interaction.unknown"), space.session("none") as s:
        s.report(score=1.0)
    with refused("outcome.invalid"):
        space.feedback_sync(score=1.0)


@asynchronous
async def test_calls_in_a_session_belong_to_it_and_to_its_user(space: client.Space, world: Any) -> None:
    async with (
        space.wrap(AsyncOpenAI(base_url=world.provider, api_key="own")) as llm,
        space.session("ticket-17", user="u7") as s,
    ):
        # Frameworks run calls in tasks of their own.
        await asyncio.create_task(llm.chat.completions.create(**chat("What about topic 901?")))
        await asyncio.create_task(llm.chat.completions.create(**chat("And topic 902?")))
        last = client.interaction()
        s.report(correction="Team 902.")
    assert s.outcome is not None
    assert last is not None
    assert client.interaction() == last
    assert (s.outcome["interaction"], s.outcome["correction"]) == (last, "waits for review")
    assert (await space.feedback(session="ticket-17", score=0.5))["interaction"] == last


@asynchronous
async def test_a_task_inside_a_session_is_of_the_session(space: client.Space) -> None:
    async with space.session("ticket-18"), space.task("Where is the station?") as t:
        pass
    assert (await space.feedback(session="ticket-18", score=1.0))["interaction"] == t.interaction


@asynchronous
async def test_each_task_of_a_program_has_its_own_last_interaction(space: client.Space, world: Any) -> None:
    async def ask(question: str) -> str | None:
        await llm.chat.completions.create(**chat(question))
        return client.interaction()

    async with space.wrap(AsyncOpenAI(base_url=world.provider, api_key="own")) as llm:
        ids = await asyncio.gather(*(ask(f"topic {number}?") for number in range(910, 914)))
    assert len({id for id in ids if id is not None}) == 4


def test_an_interaction_is_known_by_the_id_of_the_response_too(space: client.Space, world: Any) -> None:
    with space.wrap(OpenAI(base_url=world.provider, api_key="own")) as llm, space.session("s") as s:
        raw = llm.chat.completions.with_raw_response.create(**chat("What about topic 920?"))
        assert raw.headers["x-practicum-interaction"] == client.interaction()
        assert int(raw.headers["x-practicum-version"]) >= 0
        assert space.feedback_sync(raw.parse().id, score=1.0)["interaction"] == client.interaction()
    assert s.outcome is None


@pytest.mark.parametrize("name", ["Jürgen", "two\nlines", "x" * 201, " "])
def test_names_that_no_header_can_carry_are_refused(name: str, space: client.Space) -> None:
    with refused("request.malformed"):
        space.session(name)
    with refused("request.malformed"):
        space.feedback_sync("x", user=name, score=1.0)


def test_an_empty_task_is_refused(space: client.Space) -> None:
    with refused("query.empty"):
        space.task(" ")


def test_a_program_lists_the_last_interactions(space: client.Space) -> None:
    for session in ("listed-1", "listed-2", "listed-2"):
        with space.task("Who handles topic 1?", session=session):
            pass
    one, two = space.interactions_sync(session="listed-2")
    assert one["at"] >= two["at"]
    assert (one["session"], one["session_from"], one["question"]) == (
        "listed-2", "x-practicum-session", "Who handles topic 1?"
    )  # fmt: skip
    assert space.interactions_sync(session=None, limit=1) == [one]
    assert space.interactions_sync(since=one["at"] + 60) == []
    with pytest.raises(UsageError):
        space.interactions_sync(since="yesterday")
