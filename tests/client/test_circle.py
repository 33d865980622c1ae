"""The circle: a wrong answer, a correction, and the next request is shown it. For each way to ask a model."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

import pytest
from needs import needs
from pydantic import SecretStr
from serving import asynchronous

from practicum import client

Ask = Callable[[client.Space, str, str], Awaitable[str]]
"""Asks a question of the model server at an address."""

TOPICS = count(1)


def chat(question: str) -> dict[str, Any]:
    return {"model": "sim", "messages": [{"role": "user", "content": question}]}


async def openai_sync(space: client.Space, url: str, question: str) -> str:
    from openai import OpenAI

    with OpenAI(base_url=url, api_key="own", max_retries=0) as plain:
        llm = space.wrap(plain)
        return str(llm.chat.completions.create(**chat(question)).choices[0].message.content)


async def openai_sync_stream(space: client.Space, url: str, question: str) -> str:
    from openai import OpenAI

    with space.wrap(OpenAI(base_url=url, api_key="own")) as llm:
        chunks = llm.chat.completions.create(**chat(question), stream=True)
        return "".join(chunk.choices[0].delta.content or "" for chunk in chunks)


async def openai_async(space: client.Space, url: str, question: str) -> str:
    from openai import AsyncOpenAI

    async with space.wrap(AsyncOpenAI(base_url=url, api_key="own")) as llm:
        return (await llm.responses.create(model="sim", input=question)).output_text


async def openai_async_stream(space: client.Space, url: str, question: str) -> str:
    from openai import AsyncOpenAI

    async with space.wrap(AsyncOpenAI(base_url=url, api_key="own")) as llm:
        events = await llm.responses.create(model="sim", input=question, stream=True)
        return "".join([event.delta async for event in events if event.type == "response.output_text.delta"])


async def openai_aiohttp(space: client.Space, url: str, question: str) -> str:
    from openai import AsyncOpenAI, DefaultAioHttpClient

    async with space.wrap(AsyncOpenAI(base_url=url, api_key="own", http_client=DefaultAioHttpClient())) as llm:
        return str((await llm.chat.completions.create(**chat(question))).choices[0].message.content)


async def openai_legacy(space: client.Space, url: str, question: str) -> str:
    httpx = needs("httpx", "all-tests")
    from openai import OpenAI

    with space.wrap(OpenAI(base_url=url, api_key="own", http_client=httpx.Client())) as llm:
        return str(llm.chat.completions.create(**chat(question)).choices[0].message.content)


async def anthropic_sync(space: client.Space, url: str, question: str) -> str:
    anthropic = needs("anthropic")
    with space.wrap(anthropic.Anthropic(base_url=url.removesuffix("/v1"), api_key="own")) as llm:
        text: str = llm.messages.create(max_tokens=50, **chat(question)).content[0].text
        return text


async def anthropic_async_stream(space: client.Space, url: str, question: str) -> str:
    anthropic = needs("anthropic")
    async with (
        space.wrap(anthropic.AsyncAnthropic(base_url=url.removesuffix("/v1"), api_key="own")) as llm,
        llm.messages.stream(max_tokens=50, **chat(question)) as stream,
    ):
        return "".join([text async for text in stream.text_stream])


async def pydantic_ai(space: client.Space, url: str, question: str) -> str:
    from openai import AsyncOpenAI
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    async with space.wrap(AsyncOpenAI(base_url=url, api_key="own")) as llm:
        agent = Agent(OpenAIChatModel("sim", provider=OpenAIProvider(openai_client=llm)))
        return (await agent.run(question)).output


async def openai_agents(space: client.Space, url: str, question: str) -> str:
    needs("agents", "all-tests")
    from agents import Agent, OpenAIProvider, RunConfig, Runner
    from openai import AsyncOpenAI

    async with space.wrap(AsyncOpenAI(base_url=url, api_key="own")) as llm:
        config = RunConfig(model_provider=OpenAIProvider(openai_client=llm), tracing_disabled=True)
        result = await Runner.run(Agent(name="support", model="sim"), question, run_config=config)
        return str(result.final_output)


async def langgraph(space: client.Space, url: str, question: str) -> str:
    needs("langchain_openai", "all-tests")
    from langchain.agents import create_agent
    from langchain_openai import ChatOpenAI

    with space.http_client() as http_client:
        async with space.async_http_client() as http_async_client:
            clients: dict[str, Any] = {"http_client": http_client, "http_async_client": http_async_client}
            agent: Any = create_agent(ChatOpenAI(model="sim", base_url=url, api_key=SecretStr("own"), **clients))
            messages = {"messages": [("user", question)]}
            return str((await agent.ainvoke(messages))["messages"][-1].text)


async def langgraph_sync(space: client.Space, url: str, question: str) -> str:
    needs("langchain_openai", "all-tests")
    from langchain.agents import create_agent
    from langchain_openai import ChatOpenAI

    with space.http_client() as http_client:
        model = ChatOpenAI(model="sim", base_url=url, api_key=SecretStr("own"), http_client=http_client)
        agent: Any = create_agent(model)
        return str(agent.invoke({"messages": [("user", question)]})["messages"][-1].text)


ASKS: list[Ask] = [
    openai_sync, openai_sync_stream, openai_async, openai_async_stream, openai_aiohttp, openai_legacy, anthropic_sync,
    anthropic_async_stream, pydantic_ai, openai_agents, langgraph, langgraph_sync,
]  # fmt: skip


@pytest.mark.parametrize("ask", ASKS, ids=lambda ask: ask.__name__)
@asynchronous
async def test_a_corrected_answer_is_right_the_next_time(ask: Ask, space: client.Space, world: Any) -> None:
    topic = next(TOPICS)
    question = f"Which team handles topic {topic}?"
    async with space.session(f"{ask.__name__}-{topic}"):
        assert await ask(space, world.provider, question) == "Team 0."
        id = client.interaction()
        assert id is not None
        told = await space.feedback(id, target=f"Team {topic}.")
        assert (told["interaction"], told["score"], told["correction"]) == (id, 0.0, "in effect")
        assert await ask(space, world.provider, question) == f"Team {topic}."
        assert client.interaction() not in (None, id)
    # Neither practicum's key nor its headers reach the provider.
    assert "practicum" not in str(world.requests[-1].headers)
