"""An agent behind an OpenAI-compatible endpoint: the context is its system message."""

from __future__ import annotations

import os
import ssl
from functools import cache
from typing import Any

from practicum.agents.frameworks.common import AgentFunction, Steps, agent_function, instructions
from practicum.core.errors import UsageError


def endpoint(name: str, key: str | None = None, **request: Any) -> AgentFunction:
    """An agent named as http://host:port/v1#agent. `key` defaults to OPENAI_API_KEY; `request` goes into each request
    (temperature, extra_body, timeout, ...). Raises UsageError for a name of another form."""
    address, _, model = name.partition("#")
    if not address.startswith(("http://", "https://")) or not model:
        raise UsageError(f"endpoint {name!r} must have the form http://host:port/v1#name-of-the-agent")

    async def ask(input: str, context: str) -> tuple[object, Steps]:
        from openai import AsyncOpenAI, DefaultAsyncHttpxClient

        system = instructions(context)
        messages: list[Any] = [{"role": "system", "content": system}] if system else []
        messages.append({"role": "user", "content": input})
        http = DefaultAsyncHttpxClient(verify=_certificates())
        secret = key or os.environ.get("OPENAI_API_KEY", "none")
        async with AsyncOpenAI(base_url=address, api_key=secret, http_client=http) as client:
            reply = await client.chat.completions.create(model=model, messages=messages, **request)
        return (reply.choices[0].message.content or "").strip(), []

    return agent_function(ask, f"endpoint({name})", "endpoint")


@cache
def _certificates() -> ssl.SSLContext:
    """Loaded once, since it takes 60 ms. A client lives for one attempt only, since it belongs to an event loop."""
    return ssl.create_default_context()
